#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "mpi_ranks.h"
#include "table.h"

enum { MOST_RANKS = 64, SHARE_BYTES = 4096, DEFAULT_ALARM_S = 60 };

/* Shared by all ranks: threads, or processes forked from the one that made it. */
typedef struct {
  pthread_barrier_t meeting;
  char shared[SHARE_BYTES];
} wm_page;

typedef struct {
  wm_page* page; /* NULL under MPI and for one rank */
  void (*body)(wm_rank*);
  int options;
  bool skipped;
} wm_parts;

static wm_parts* parts(const wm_rank* r) { return (wm_parts*)r->private_parts; }

double wm_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void wm_meet(wm_rank* r) {
  if (r->mpi) wm_mpi_meet();
  else if (parts(r)->page) pthread_barrier_wait(&parts(r)->page->meeting);
}

void wm_share(wm_rank* r, void* data, size_t bytes) {
  REQUIRE(bytes <= SHARE_BYTES);
  if (r->mpi) {
    wm_mpi_share(data, bytes);
  } else if (parts(r)->page) {
    if (r->rank == 0) memcpy(parts(r)->page->shared, data, bytes);
    wm_meet(r);
    if (r->rank != 0) memcpy(data, parts(r)->page->shared, bytes);
    wm_meet(r);
  }
}

wholememory_unique_id_t wm_fresh_id(wm_rank* r) {
  wholememory_unique_id_t id;
  memset(&id, 0, sizeof id);
  if (r->rank == 0) OK(wholememory_create_unique_id(&id));
  wm_share(r, &id, sizeof id);
  return id;
}

wholememory_comm_t wm_world(wm_rank* r) {
  if (!r->world) OK(wholememory_create_communicator(&r->world, wm_fresh_id(r), r->rank, r->size));
  return r->world;
}

void wm_skip(wm_rank* r, const char* format, ...) {
  parts(r)->skipped = true;
  char text[512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (r->rank == 0) printf("skip: %s\n", text);
}

void wm_leave_out(const wm_rank* r, const char* format, ...) {
  if (r->rank != 0) return;
  char text[512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  printf("left out: %s\n", text);
}

/* The driver, NVML and NCCL keep descriptors from the first communicator, and from the first time that GPUs map each other's
 * memory and exchange rows: what a body leaves behind is measured against a process that has done all that. */
static bool has_firsts(bool mpi) { return !mpi && wm_gpu(); }

static void do_firsts(wm_rank* r) {
  wm_set_rank(r->rank);
  wm_device_bind(r->rank);
  const wm_kind* const kinds[] = {&wm_kinds[0], &wm_kinds[4]};
  wholememory_comm_t comm = wm_world(r);
  for (int k = 0; k < 2 && r->size > 1 && wm_gpus() > 1; k++) {
    if (wholememory_communicator_support_type_location(comm, kinds[k]->type, kinds[k]->location) != 0) continue;
    wm_table t = wm_table_make(comm, (wm_shape){.kind = *kinds[k], .dtype = WHOLEMEMORY_DT_INT, .rows = 100, .columns = 4});
    wm_gather_check(&t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_INT, .count = 50});
    wm_table_drop(&t);
  }
  OK(wholememory_destroy_communicator(comm));
  r->world = NULL;
}

static void* thread_firsts(void* argument) {
  do_firsts((wm_rank*)argument);
  return NULL;
}

/* Runs the body on this rank, then checks that it left nothing behind that belongs to the rank. */
static int run_rank(wm_rank* r) {
  wm_set_rank(r->rank);
  wm_device_bind(r->rank);
  parts(r)->body(r);
  if (r->world) OK(wholememory_destroy_communicator(r->world));
  return parts(r)->skipped ? WM_SKIP : WM_PASS;
}

static void before_ranks(int options) {
  if (!(options & WM_NO_INIT)) OK(wholememory_init(0, LEVEL_WARN));
}

/* What a process must look like when its ranks are done. */
static void after_ranks(int options, const wm_holdings* before, bool mpi) {
  CHECK_EQ(get_wholememory_tensor_count(), 0);
  if (!(options & WM_NO_INIT)) EXPECT(0, wholememory_finalize());
  wm_holdings after = wm_holdings_now();
  CHECK_EQ(after.shared_mappings, before->shared_mappings);
  /* MPI opens descriptors of its own whenever it likes, and drivers of GPUs close some of theirs. */
  if (mpi || (options & WM_KEEPS_OPEN)) return;
  if (wm_gpu()) CHECK(after.descriptors <= before->descriptors);
  else CHECK_EQ(after.descriptors, before->descriptors);
}

static int verdict(int status) { return wm_failures() ? WM_FAIL : status; }

static void* thread_rank(void* argument) {
  return (void*)(intptr_t)run_rank((wm_rank*)argument);
}

static wm_page* new_page(int ranks) {
  wm_page* page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  REQUIRE(pthread_barrier_init(&page->meeting, &shared, (unsigned)ranks) == 0);
  return page;
}

static void run_threads(wm_parts common, int ranks, void* (*run)(void*), int* status) {
  wm_rank all[MOST_RANKS];
  wm_parts all_parts[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  for (int i = 0; i < ranks; i++) {
    all_parts[i] = common;
    all[i] = (wm_rank){i, ranks, true, false, NULL, &all_parts[i]};
    REQUIRE(pthread_create(&threads[i], NULL, run, &all[i]) == 0);
  }
  for (int i = 0; i < ranks; i++) {
    void* result;
    pthread_join(threads[i], &result);
    if (result) *status = (int)(intptr_t)result;
  }
}

static int as_threads(wm_parts common, int ranks) {
  int status = WM_PASS;
  /* Before what the process holds is noted: the driver keeps what it opens for a device. */
  for (int i = 0; i < ranks; i++) wm_device_bind(i);
  common.page = new_page(ranks);
  if (has_firsts(false)) {
    setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
    run_threads(common, ranks, thread_firsts, &status);
    unsetenv("WHOLEMEMORY_ROUTE");
  }
  wm_holdings before = wm_holdings_now();
  before_ranks(common.options);
  run_threads(common, ranks, thread_rank, &status);
  after_ranks(common.options, &before, false);
  return verdict(status);
}

static int one_process_rank(wm_parts common, wm_page* page, int rank, int ranks, bool mpi) {
  wm_device_bind(rank);
  common.page = page;
  wm_rank r = {rank, ranks, false, mpi, NULL, &common};
  wm_set_rank(rank);
  if (has_firsts(mpi)) {
    const char* own = getenv("WHOLEMEMORY_ROUTE");
    char route[32];
    snprintf(route, sizeof route, "%s", own ? own : "");
    setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
    do_firsts(&r);
    own ? setenv("WHOLEMEMORY_ROUTE", route, 1) : unsetenv("WHOLEMEMORY_ROUTE");
  }
  wm_holdings before = wm_holdings_now();
  before_ranks(common.options);
  int status = run_rank(&r);
  after_ranks(common.options, &before, mpi);
  return verdict(status);
}

static int as_processes(wm_parts common, int ranks, unsigned alarm_s) {
  wm_page* page = new_page(ranks);
  pid_t children[MOST_RANKS];
  for (int i = 0; i < ranks; i++) {
    children[i] = fork();
    REQUIRE(children[i] >= 0);
    if (children[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      wm_alarm(alarm_s);
      exit(one_process_rank(common, page, i, ranks, false));
    }
  }
  wm_alarm(alarm_s + 10);
  int worst = WM_PASS;
  for (int left = ranks; left > 0; left--) {
    int state;
    pid_t gone = waitpid(-1, &state, 0);
    int status = gone > 0 && WIFEXITED(state) ? WEXITSTATUS(state) : WM_FAIL;
    if (gone > 0 && WIFSIGNALED(state)) wm_say("a rank was ended by signal %d", WTERMSIG(state));
    if (status == WM_FAIL && worst != WM_FAIL)
      /* The others may wait for it for ever: give them time to say what they see. */
      wm_alarm(15);
    if (status == WM_FAIL || worst == WM_PASS) worst = status;
  }
  return worst;
}

/* A whole number of ranks; 0 for anything else. */
static int ranks_of(const char* text) {
  char* end;
  errno = 0;
  long ranks = strtol(text, &end, 10);
  return errno || end == text || *end || ranks < 1 || ranks > MOST_RANKS ? 0 : (int)ranks;
}

int wm_test_main(int argc, char** argv, void (*body)(wm_rank*), int options) {
  wm_error_text = wholememory_get_last_error;
  unsigned alarm_s = DEFAULT_ALARM_S;
  if (getenv("WM_TEST_ALARM_S")) alarm_s = (unsigned)atoi(getenv("WM_TEST_ALARM_S"));
  wm_alarm(alarm_s);
  wm_parts common = {NULL, body, options, false};
  int ranks = argc == 3 ? ranks_of(argv[2]) : 1;
  bool by_processes = argc == 3 && !strcmp(argv[1], "--nproc");
  bool by_threads = argc == 3 && !strcmp(argv[1], "--threads");
  if (argc != 1 && !by_processes && !by_threads) {
    fprintf(stderr, "use: %s [--nproc N | --threads N], or start it with mpirun\n", argv[0]);
    return 2;
  }
  if (ranks == 0) {
    fprintf(stderr, "%s %s: the number of ranks is from 1 to %d\n", argv[1], argv[2], MOST_RANKS);
    return 2;
  }
  if ((options & WM_ONE_RANK) && ranks > 1) {
    printf("skip: one rank is all it needs\n");
    return WM_SKIP;
  }
  if (by_threads && (options & WM_PROCESSES)) {
    printf("skip: its ranks are processes\n");
    return WM_SKIP;
  }
  if (by_threads) return as_threads(common, ranks);
  if (by_processes) return as_processes(common, ranks, alarm_s);
  if (!wm_mpi_start(&argc, &argv)) return one_process_rank(common, NULL, 0, 1, false);
  int status = one_process_rank(common, NULL, wm_mpi_rank(), wm_mpi_size(), true);
  return wm_mpi_end(status);
}
