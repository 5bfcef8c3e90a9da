/* Starts one body on several ranks: processes under MPI, processes by `--nproc N`, threads by `--threads N`,
 * else one rank. A body sees its rank only; it does not know how the ranks were started. */
#ifndef WM_HARNESS_H
#define WM_HARNESS_H

#include <wholememory/error.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#include "check.h"
#include "holdings.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wm_rank {
  int rank;
  int size;
  bool threads; /* all ranks live in this process */
  bool mpi;
  /* The communicator of all ranks; made by wm_world, destroyed by the harness unless the body took it. */
  wholememory_comm_t world;
  void* private_parts;
} wm_rank;

typedef enum {
  WM_PLAIN = 0,
  WM_NO_INIT = 1,      /* the body calls wholememory_init and wholememory_finalize itself */
  WM_ONE_RANK = 2,     /* more ranks would only repeat it */
  WM_PROCESSES = 4,    /* ranks need an environment, or a file table, of their own: not for threads */
  WM_KEEPS_OPEN = 8    /* leaves descriptors open on purpose */
} wm_options;

/* Runs the body on every rank and returns what main returns: 0, 77 when it was skipped, else failure. */
int wm_test_main(int argc, char** argv, void (*body)(wm_rank*), int options);

/* The communicator of all ranks, made at the first call (collective). */
wholememory_comm_t wm_world(wm_rank* r);
/* A fresh unique id, made by rank 0 and known to all (collective over the ranks of the program). */
wholememory_unique_id_t wm_fresh_id(wm_rank* r);
/* Meets all ranks without the library, so that a test of the library does not lean on it. */
void wm_meet(wm_rank* r);
/* Copies `bytes` bytes (at most 4096) from rank 0 to all. */
void wm_share(wm_rank* r, void* data, size_t bytes);
/* Seconds of the monotonic clock. */
double wm_now(void);

/* Leaves the body: the whole program is skipped. All ranks must come to the same verdict. */
void wm_skip(wm_rank* r, const char* format, ...) __attribute__((format(printf, 2, 3)));
#define SKIP(r, ...) \
  do { wm_skip(r, __VA_ARGS__); return; } while (0)
/* Says on rank 0 that one case of many is left out. */
void wm_leave_out(const wm_rank* r, const char* format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
