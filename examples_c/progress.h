/* Progress of a long load: a thread of its own that tells, once a second, how much this process has read. */
#ifndef EXAMPLES_PROGRESS_H
#define EXAMPLES_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

typedef struct {
  pthread_t thread;
  const char *what;
  double total_bytes; /* what this process is going to read */
  double before_bytes;
  atomic_int done;
  int running;
} progress_t;

/* Bytes this process has read by system calls so far; 0 where the kernel does not tell. */
static inline double progress_read_bytes(void) {
  FILE *counters = fopen("/proc/self/io", "r");
  unsigned long long bytes = 0;
  if (counters) {
    if (fscanf(counters, "rchar: %llu", &bytes) != 1) bytes = 0;
    fclose(counters);
  }
  return (double)bytes;
}

static inline void *progress_main(void *raw) {
  progress_t *progress = raw;
  struct timespec pause = {0, 50 * 1000 * 1000};
  for (int tick = 1; !atomic_load(&progress->done); tick++) {
    nanosleep(&pause, NULL);
    if (tick % 20 || atomic_load(&progress->done)) continue;
    double share = (progress_read_bytes() - progress->before_bytes) / progress->total_bytes;
    fprintf(stderr, "%s: %d s, %.0f %%\n", progress->what, tick / 20, 100 * (share > 1 ? 1 : share));
  }
  return NULL;
}

/* Begins to tell, on rank 0, how far a load of `bytes` by all ranks is. A load of less than a second prints nothing. */
static inline void progress_start(progress_t *progress, const char *what, size_t bytes, const ranks_t *ranks) {
  progress->running = 0;
  if (ranks->rank != 0) return;
  if (ranks->kind != RANKS_THREADS) bytes /= (size_t)ranks->size; /* the counters are of one process */
  progress->what = what;
  progress->total_bytes = bytes ? (double)bytes : 1;
  progress->before_bytes = progress_read_bytes();
  atomic_init(&progress->done, 0);
  progress->running = pthread_create(&progress->thread, NULL, progress_main, progress) == 0;
}

static inline void progress_stop(progress_t *progress) {
  if (!progress->running) return;
  atomic_store(&progress->done, 1);
  pthread_join(progress->thread, NULL);
}

#endif
