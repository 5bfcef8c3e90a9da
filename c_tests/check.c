#include "check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 64, MOST_REPORTS = 25 };

const char* (*wm_error_text)(void);

static _Thread_local int this_rank = -1;
static atomic_int failures;
/* Slot 0 is "no rank"; written by ranks, read by the alarm. */
static struct { const char* file; int line; } last_place[MOST_RANKS + 1];

void wm_set_rank(int rank) {
  this_rank = rank;
  last_place[0].file = NULL; /* of the process this one was forked from */
}
int wm_get_rank(void) { return this_rank; }
int wm_failures(void) { return atomic_load(&failures); }

static bool forked;
void wm_forked(void) { forked = true; }
#ifdef __SANITIZE_ADDRESS__
/* Asked by the leak sanitizer when the process ends. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return forked; }
#endif

void wm_end(int status) {
  fflush(stdout);
  _exit(status);
}

const char* wm_code_name(int code) {
  static const char* const names[WM_ERROR_CODES] = {
      "SUCCESS",       "UNKNOW_ERROR",  "NOT_IMPLEMENTED", "LOGIC_ERROR",   "CUDA_ERROR",  "COMMUNICATION_ERROR",
      "INVALID_INPUT", "INVALID_VALUE", "OUT_OF_MEMORY",   "NOT_SUPPORTED", "SYSTEM_ERROR"};
  return code >= 0 && code < WM_ERROR_CODES ? names[code] : "no such code";
}

static void line_out(const char* head, const char* format, va_list values) {
  char text[2600];
  int used = this_rank < 0 ? snprintf(text, sizeof text, "[--] %s", head)
                           : snprintf(text, sizeof text, "[r%d] %s", this_rank, head);
  used += vsnprintf(text + used, sizeof text - (size_t)used - 1, format, values);
  if (used > (int)sizeof text - 2) used = (int)sizeof text - 2;
  text[used] = '\n';
  if (write(2, text, (size_t)used + 1) < 0) _exit(WM_FAIL);
}

void wm_say(const char* format, ...) {
  va_list values;
  va_start(values, format);
  line_out("", format, values);
  va_end(values);
}

void wm_failed(const char* file, int line, const char* format, ...) {
  int count = atomic_fetch_add(&failures, 1);
  if (count == MOST_REPORTS) wm_say("more failures follow; they are counted only");
  if (count >= MOST_REPORTS) return;
  char head[256];
  snprintf(head, sizeof head, "FAILED %s:%d: ", file, line);
  va_list values;
  va_start(values, format);
  line_out(head, format, values);
  va_end(values);
}

static const char* library_words(void) {
  const char* text = wm_error_text ? wm_error_text() : NULL;
  return text ? text : "";
}

bool wm_check(bool good, const char* file, int line, const char* what) {
  wm_here(file, line);
  if (!good) wm_failed(file, line, "%s; last error: \"%s\"", what, library_words());
  return good;
}

bool wm_check_eq(long long a, long long b, const char* file, int line, const char* what_a, const char* what_b) {
  wm_here(file, line);
  if (a != b)
    wm_failed(file, line, "%s is %lld, %s is %lld; last error: \"%s\"", what_a, a, what_b, b, library_words());
  return a == b;
}

bool wm_check_has(const char* text, const char* part, const char* file, int line, const char* what) {
  wm_here(file, line);
  bool good = text && strstr(text, part);
  if (!good) wm_failed(file, line, "%s lacks \"%s\": \"%s\"", what, part, text ? text : "(NULL)");
  return good;
}

bool wm_check_code(int want, int got, const char* file, int line, const char* call) {
  wm_here(file, line);
  if (want != got) {
    wm_failed(file, line, "%s is %d %s, not %d %s; last error: \"%s\"", call, got, wm_code_name(got), want,
              wm_code_name(want), library_words());
    return false;
  }
  if (want != 0 && wm_error_text && !*library_words()) {
    wm_failed(file, line, "%s is %s without words", call, wm_code_name(got));
    return false;
  }
  return true;
}

void wm_here(const char* file, int line) {
  int slot = this_rank < 0 || this_rank >= MOST_RANKS ? 0 : this_rank + 1;
  last_place[slot].file = file;
  last_place[slot].line = line;
}

static void on_alarm(int signal_number) {
  (void)signal_number;
  for (int slot = 0; slot <= MOST_RANKS; slot++) {
    if (!last_place[slot].file) continue;
    char text[300];
    int used = snprintf(text, sizeof text, "[r%d] FAILED: time is up; last check at %s:%d\n", slot - 1,
                        last_place[slot].file, last_place[slot].line);
    if (write(2, text, (size_t)used) < 0) break;
  }
  _exit(WM_FAIL);
}

unsigned wm_slower(void) {
  const char* text = getenv("WM_TEST_SLOWER");
  int times = text ? atoi(text) : 1;
  return times < 1 ? 1 : times > 100 ? 100 : (unsigned)times;
}

void wm_alarm(unsigned seconds) {
  signal(SIGALRM, on_alarm);
  alarm(seconds * wm_slower());
}
