/* The benchmark's control calls: communicators, barriers, allocation and files, each beside what the
 * operating system alone takes for the same work. */
#include <fcntl.h>
#include <spawn.h>

#include "bench.h"

extern char **environ;

static void must(int good, const char *what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void call_barrier(void *raw) {
  bench_rank_t *rank = raw;
  BENCH_TRY(rank, rank->api->wholememory_communicator_barrier(rank->communicator));
}

bench_result_t bench_barrier(bench_rank_t *rank, const bench_case_t *what) {
  (void)what;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  result.call_us = bench_time(rank, (bench_action_t){call_barrier, rank});
  return result;
}

/* The time is of create alone: the id is on every rank before it, the destroy comes after. */
bench_result_t bench_communicator(bench_rank_t *rank, const bench_case_t *what) {
  (void)what;
  const bench_api_t *api = rank->api;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  int repetitions = rank->settings->repetitions;
  double create_us[repetitions];
  for (int i = -1; i < repetitions; i++) {
    wholememory_unique_id_t id;
    wholememory_comm_t communicator;
    memset(&id, 0, sizeof id);
    if (rank->ranks->rank == 0) BENCH_TRY(rank, api->wholememory_create_unique_id(&id));
    ranks_broadcast(rank->ranks, &id, sizeof id);
    bench_line_up(rank);
    double start_us = bench_now_us();
    BENCH_TRY(rank, api->wholememory_create_communicator(&communicator, id, rank->ranks->rank, rank->ranks->size));
    if (i >= 0) create_us[i] = bench_now_us() - start_us;
    BENCH_TRY(rank, api->wholememory_communicator_barrier(communicator));
    BENCH_TRY(rank, api->wholememory_destroy_communicator(communicator));
  }
  result.call_us = bench_median(create_us, repetitions);
  return result;
}

/* A mapping of `bytes` that the kernel has really provided, as shared memory is made. */
static void *provide(size_t bytes, int *descriptor) {
  *descriptor = memfd_create("bench-reference", MFD_CLOEXEC);
  must(*descriptor >= 0, "memfd_create");
  must(fallocate(*descriptor, 0, 0, (off_t)bytes) == 0, "fallocate");
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor, 0);
  must(memory != MAP_FAILED, "mmap");
  return memory;
}

static void give_back(void *memory, size_t bytes, int descriptor) {
  must(munmap(memory, bytes) == 0, "munmap");
  close(descriptor);
}

typedef struct {
  bench_rank_t *rank;
  const bench_case_t *what;
} control_call_t;

static wholememory_handle_t allocate(bench_rank_t *rank, const bench_case_t *what) {
  wholememory_handle_t handle;
  BENCH_TRY(rank, rank->api->wholememory_malloc(&handle, what->table_bytes, rank->communicator, what->type,
                                                what->location, 4096, NULL));
  return handle;
}

static void call_allocation(void *raw) {
  control_call_t *c = raw;
  wholememory_handle_t handle = allocate(c->rank, c->what);
  BENCH_TRY(c->rank, c->rank->api->wholememory_free(handle));
}

/* This rank's part of a new table takes and returns bytes, and the parts make up the whole. */
static double check_allocation(bench_rank_t *rank, const bench_case_t *what) {
  wholememory_handle_t handle = allocate(rank, what);
  void *mine;
  size_t bytes;
  double wrong = 0;
  BENCH_TRY(rank, rank->api->wholememory_get_local_memory(&mine, &bytes, NULL, handle));
  device_fill(&rank->device, mine, 0xa5, bytes);
  unsigned char ends[2] = {0xa5, 0xa5};
  if (bytes) {
    device_copy(&rank->device, &ends[0], mine, 1);
    device_copy(&rank->device, &ends[1], (char *)mine + bytes - 1, 1);
  }
  wrong += (ends[0] != 0xa5) + (ends[1] != 0xa5);
  if (ranks_sum(rank->ranks, (double)bytes) != (double)what->table_bytes) wrong++;
  BENCH_TRY(rank, rank->api->wholememory_free(handle));
  return wrong;
}

bench_result_t bench_allocation(bench_rank_t *rank, const bench_case_t *what) {
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  result.wrong_values = check_allocation(rank, what);
  control_call_t call = {rank, what};
  result.call_us = bench_time(rank, (bench_action_t){call_allocation, &call});
  if (what->location != WHOLEMEMORY_ML_HOST && rank->device.driver) return result;
  if (rank->ranks->rank == 0) {
    int repetitions = rank->settings->repetitions;
    double provide_us[repetitions];
    for (int i = 0; i < repetitions; i++) {
      int descriptor;
      double start_us = bench_now_us();
      void *memory = provide(what->table_bytes, &descriptor);
      give_back(memory, what->table_bytes, descriptor);
      provide_us[i] = bench_now_us() - start_us;
    }
    result.reference_us = bench_median(provide_us, repetitions);
    result.reference = "fallocate+munmap";
  }
  ranks_meet(rank->ranks);
  return result;
}

/* Word `i` of the file: any piece of it can be checked alone. */
static uint64_t word_at(uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15ULL; }

static void write_file(const char *path, size_t bytes) {
  FILE *out = fopen(path, "wb");
  must(out != NULL, path);
  uint64_t words[8192];
  for (size_t done = 0; done < bytes; done += sizeof words) {
    for (size_t i = 0; i < 8192; i++) words[i] = word_at(done / 8 + i);
    size_t now = bytes - done < sizeof words ? bytes - done : sizeof words;
    must(fwrite(words, 1, now, out) == now, path);
  }
  must(fclose(out) == 0, path);
}

static double wrong_words(bench_rank_t *rank, wholememory_handle_t handle) {
  void *mine;
  size_t bytes, offset_bytes;
  BENCH_TRY(rank, rank->api->wholememory_get_local_memory(&mine, &bytes, &offset_bytes, handle));
  uint64_t words[8192];
  double wrong = 0;
  for (size_t done = 0; done < bytes; done += sizeof words) {
    size_t now = bytes - done < sizeof words ? bytes - done : sizeof words;
    device_copy(&rank->device, words, (char *)mine + done, now);
    for (size_t i = 0; i < now / 8; i++) wrong += words[i] != word_at((offset_bytes + done) / 8 + i);
  }
  return wrong;
}

enum { FILE_ROW_BYTES = 4096 };

typedef struct {
  bench_rank_t *rank;
  wholememory_handle_t handle;
  const char *path;
} load_call_t;

static void call_load(void *raw) {
  load_call_t *c = raw;
  BENCH_TRY(c->rank,
            c->rank->api->wholememory_load_from_file(c->handle, 0, FILE_ROW_BYTES, FILE_ROW_BYTES, &c->path, 1, 0));
}

static double cat_us(const char *path) {
  char *const words[] = {"cat", (char *)path, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child;
  int how = 0;
  double start_us = bench_now_us();
  errno = posix_spawnp(&child, "cat", &actions, NULL, words, environ);
  must(errno == 0, "cat");
  must(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0, "cat FILE > /dev/null");
  double us = bench_now_us() - start_us;
  posix_spawn_file_actions_destroy(&actions);
  return us;
}

typedef struct {
  int descriptor;
  char *to;
  size_t begin, bytes;
} read_part_t;

static void *read_part(void *raw) {
  read_part_t *part = raw;
  for (size_t done = 0; done < part->bytes;) {
    size_t now = part->bytes - done < (16u << 20) ? part->bytes - done : (16u << 20);
    ssize_t got = pread(part->descriptor, part->to + done, now, (off_t)(part->begin + done));
    must(got > 0, "pread");
    done += (size_t)got;
  }
  return NULL;
}

/* This rank's share of the file into memory made for it, by as many threads as the library's readers. */
static double provide_and_read_us(bench_rank_t *rank, const char *path, size_t begin, size_t bytes) {
  int readers = rank->settings->reader_count, memory_descriptor;
  pthread_t threads[readers];
  read_part_t parts[readers];
  double start_us = bench_now_us();
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  must(descriptor >= 0, path);
  char *memory = provide(bytes ? bytes : 1, &memory_descriptor);
  for (int i = 0; i < readers; i++) {
    size_t from = bytes / (size_t)readers * (size_t)i;
    size_t to = i + 1 == readers ? bytes : bytes / (size_t)readers * (size_t)(i + 1);
    parts[i] = (read_part_t){descriptor, memory + from, begin + from, to - from};
    errno = pthread_create(&threads[i], NULL, read_part, &parts[i]);
    must(errno == 0, "a reader thread");
  }
  for (int i = 0; i < readers; i++) pthread_join(threads[i], NULL);
  double us = bench_now_us() - start_us;
  give_back(memory, bytes ? bytes : 1, memory_descriptor);
  close(descriptor);
  return us;
}

static void load_into_written(bench_rank_t *rank, load_call_t *call, bench_result_t *result) {
  result->call_us = bench_time(rank, (bench_action_t){call_load, call});
  if (rank->ranks->rank == 0) {
    int repetitions = rank->settings->repetitions;
    double us[repetitions];
    for (int i = 0; i < repetitions; i++) us[i] = cat_us(call->path);
    result->reference_us = bench_median(us, repetitions);
    result->reference = "cat-file";
  }
  ranks_meet(rank->ranks);
}

static void load_into_fresh(bench_rank_t *rank, const bench_case_t *what, load_call_t *call, bench_result_t *result) {
  int repetitions = rank->settings->repetitions;
  double load_us[repetitions], reference_us[repetitions];
  void *mine;
  size_t bytes, offset_bytes;
  for (int i = 0; i < repetitions; i++) {
    bench_line_up(rank);
    double start_us = bench_now_us();
    load_call_t fresh = {rank, allocate(rank, what), call->path};
    call_load(&fresh);
    load_us[i] = bench_now_us() - start_us;
    BENCH_TRY(rank, rank->api->wholememory_get_local_memory(&mine, &bytes, &offset_bytes, fresh.handle));
    BENCH_TRY(rank, rank->api->wholememory_free(fresh.handle));
    bench_line_up(rank);
    reference_us[i] = provide_and_read_us(rank, call->path, offset_bytes, bytes);
  }
  result->call_us = bench_median(load_us, repetitions);
  result->reference_us = bench_median(reference_us, repetitions);
  result->reference = "fallocate+pread";
}

bench_result_t bench_load(bench_rank_t *rank, const bench_case_t *what) {
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  char path[RANKS_MESSAGE_BYTES];
  snprintf(path, sizeof path, "%s/wholememory_bench.%d", rank->settings->directory, (int)getpid());
  ranks_broadcast(rank->ranks, path, sizeof path);
  if (rank->ranks->rank == 0) write_file(path, what->table_bytes);
  ranks_meet(rank->ranks);

  load_call_t call = {rank, allocate(rank, what), path};
  call_load(&call);
  result.wrong_values = wrong_words(rank, call.handle);
  bench_line_up(rank);
  if (what->op == OP_LOAD) load_into_written(rank, &call, &result);
  BENCH_TRY(rank, rank->api->wholememory_free(call.handle));
  if (what->op == OP_LOAD_FRESH) load_into_fresh(rank, what, &call, &result);
  result.payload_bytes = (double)what->table_bytes / rank->ranks->size;

  ranks_meet(rank->ranks);
  if (rank->ranks->rank == 0) unlink(path);
  return result;
}
