/* Starts ranks as processes of their own (fork and exec of the same program), watches what they report, and kills one
 * at a named point: what a launcher that ends all ranks with the first cannot test. */
#ifndef WM_LAUNCHER_H
#define WM_LAUNCHER_H

#include <wholememory/error.h>
#include <wholememory/wholememory.h>

#include "check.h"
#include "harness.h"

enum { WM_LAUNCH_MOST = 8, WM_WORDS = 1100 };

/* ---- in the launcher ---- */
typedef struct {
  char what[40];
  int code;
  double at_s; /* wm_now() of the rank when it said so */
  char words[WM_WORDS];
} wm_report;

typedef struct {
  int ranks;
  const char* scenario;
  pid_t pids[WM_LAUNCH_MOST];
  int sockets[WM_LAUNCH_MOST];
  bool killed[WM_LAUNCH_MOST];
} wm_launch;

wm_launch wm_launch_start(const char* scenario, int ranks);
/* The rank's next report of `what`; others before it are dropped. False, reported, after `seconds`. */
bool wm_launch_report(wm_launch* l, int rank, const char* what, double seconds, wm_report* report);
/* Passes an id made by `from` on to the other ranks. */
void wm_launch_pass_id(wm_launch* l, int from);
/* Lets a rank that waits in wm_child_wait go on. */
void wm_launch_go(wm_launch* l, int rank);
void wm_launch_signal(wm_launch* l, int rank, int signal_number);
/* Waits for every rank that was not killed: each must end with 0. Ends those that do not. */
void wm_launch_end(wm_launch* l);

/* ---- in a rank ---- */
/* True when this process is a rank; then rank, size, scenario are set. */
bool wm_child_start(int argc, char** argv, int* rank, int* size, const char** scenario);
void wm_child_say(const char* what, int code);
void wm_child_wait(void);
/* An id made by rank `from` and known to all. */
wholememory_unique_id_t wm_child_id(int rank, int from);

/* ---- what ranks leave behind on the machine ---- */
typedef struct { char* names; } wm_leftovers;
wm_leftovers wm_leftovers_now(void);
/* Reports what appeared since and can be the library's. */
void wm_leftovers_check(const wm_leftovers* before);

#endif
