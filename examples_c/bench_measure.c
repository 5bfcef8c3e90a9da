/* The benchmark's instruments: the library by name, the clock, and the memory that operations ask for. */
#include "bench.h"

enum { REPETITION_US = 50 * 1000, ITERATIONS_MAX = 100 * 1000, KINDS = 4, CLASSES = 48 };

bench_api_t bench_open(const char *path) {
  bench_api_t api;
  memset(&api, 0, sizeof api);
  api.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!api.library) {
    fprintf(stderr, "the library cannot be opened: %s\n", dlerror());
    exit(2);
  }
#define BENCH_FIND(name)                                                     \
  {                                                                          \
    void *found = dlsym(api.library, #name);                                 \
    if (!found) {                                                            \
      fprintf(stderr, "%s has no function " #name ": another ABI?\n", path); \
      exit(2);                                                               \
    }                                                                        \
    memcpy(&api.name, &found, sizeof found);                                 \
  }
  BENCH_FUNCTIONS(BENCH_FIND)
#undef BENCH_FIND
  void *last_error = dlsym(api.library, "wholememory_get_last_error");
  memcpy(&api.last_error, &last_error, sizeof last_error);
  void *cache_stats = dlsym(api.library, "wholememory_embedding_get_cache_stats");
  memcpy(&api.cache_stats, &cache_stats, sizeof cache_stats);
  return api;
}

size_t bench_element_bytes(wholememory_dtype_t dtype) {
  static const size_t bytes[] = {0, 4, 2, 8, 2, 4, 8, 2, 1};
  return bytes[dtype];
}

double bench_now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

double bench_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return count ? (values[(count - 1) / 2] + values[count / 2]) / 2 : 0;
}

void bench_line_up(bench_rank_t *rank) {
  device_wait(&rank->device);
  BENCH_TRY(rank, rank->api->wholememory_communicator_barrier(rank->communicator));
}

double bench_time(bench_rank_t *rank, bench_action_t action) {
  long iterations = rank->settings->iterations;
  double once_us = 0;
  for (int warm = 0; warm < 3 && once_us < REPETITION_US; warm++) {
    bench_line_up(rank);
    double start_us = bench_now_us();
    action.call(action.argument);
    device_wait(&rank->device);
    once_us = ranks_max(rank->ranks, bench_now_us() - start_us);
  }
  if (iterations < 1) iterations = once_us > 0 ? (long)(REPETITION_US / once_us) + 1 : ITERATIONS_MAX;
  if (iterations > ITERATIONS_MAX) iterations = ITERATIONS_MAX;
  int repetitions = rank->settings->repetitions;
  double call_us[repetitions];
  for (int i = 0; i < repetitions; i++) {
    bench_line_up(rank);
    double start_us = bench_now_us();
    for (long j = 0; j < iterations; j++) action.call(action.argument);
    device_wait(&rank->device);
    call_us[i] = (bench_now_us() - start_us) / (double)iterations;
  }
  bench_line_up(rank);
  return bench_median(call_us, repetitions);
}

typedef struct block {
  struct block *next;
  void *memory;
} block_t;

struct bench_pool {
  const device_t *device;
  block_t *idle[KINDS][CLASSES]; /* by kind of memory and power of two */
};

/* What one context of an operation holds: a block in use and the list it goes back to. */
typedef struct {
  block_t *block;
  block_t **home;
  int64_t count; /* elements asked for */
} lease_t;

_Static_assert(sizeof(lease_t) == sizeof(bench_output_t), "an output context is a lease");

static void *pool_memory(const bench_pool_t *pool, wholememory_memory_allocation_type_t kind, size_t bytes) {
  if (kind == WHOLEMEMORY_MA_DEVICE || !pool->device->driver) return device_alloc(pool->device, bytes);
  if (kind == WHOLEMEMORY_MA_HOST) return device_plain(bytes);
  void *pinned = NULL;
  device_must(pool->device->allocate_pinned(&pinned, bytes), "pinned memory");
  return pinned;
}

static void pool_release(const bench_pool_t *pool, int kind, void *memory) {
  if (kind == WHOLEMEMORY_MA_DEVICE || !pool->device->driver)
    device_free(pool->device, memory);
  else if (kind == WHOLEMEMORY_MA_HOST)
    free(memory);
  else
    device_must(pool->device->release_pinned(memory), "to free pinned memory");
}

static void lease_end(void *context, void *pool) {
  (void)pool;
  lease_t *lease = context;
  if (!lease->block) return;
  lease->block->next = *lease->home;
  *lease->home = lease->block;
  lease->block = NULL;
}

static void *lease_begin(wholememory_tensor_description_t *shape, wholememory_memory_allocation_type_t kind,
                         void *context, void *raw_pool) {
  bench_pool_t *pool = raw_pool;
  lease_t *lease = context;
  size_t bytes = bench_element_bytes(shape->dtype);
  for (int i = 0; i < shape->dim; i++) bytes *= (size_t)shape->sizes[i];
  int class = 9;
  while (((size_t)1 << class) < bytes) class ++;
  lease_end(lease, pool);
  lease->count = shape->sizes[0];
  block_t **home = &pool->idle[kind][class];
  block_t *block = *home;
  if (block) {
    *home = block->next;
  } else {
    block = malloc(sizeof *block);
    if (!block) return NULL;
    block->memory = pool_memory(pool, kind, (size_t)1 << class);
  }
  lease->block = block;
  lease->home = home;
  return block->memory;
}

static void context_create(void **context, void *pool) {
  (void)pool;
  *context = calloc(1, sizeof(lease_t));
}

static void context_destroy(void *context, void *pool) {
  lease_end(context, pool);
  free(context);
}

void *bench_output_memory(const bench_output_t *output) {
  return output->block ? ((const block_t *)output->block)->memory : NULL;
}

void bench_output_end(bench_rank_t *rank, bench_output_t *output) { lease_end(output, rank->pool); }

void bench_make_pool(bench_rank_t *rank) {
  bench_pool_t *pool = calloc(1, sizeof *pool);
  if (!pool) ranks_give_up(rank->ranks);
  pool->device = &rank->device;
  rank->pool = pool;
  rank->callbacks = (wholememory_env_func_t){{context_create, context_destroy, lease_begin, lease_end, pool},
                                             {lease_begin, lease_end, pool}};
}

void bench_drop_pool(bench_rank_t *rank) {
  for (int kind = 0; kind < KINDS; kind++)
    for (int class = 0; class < CLASSES; class ++)
      while (rank->pool->idle[kind][class]) {
        block_t *block = rank->pool->idle[kind][class];
        rank->pool->idle[kind][class] = block->next;
        pool_release(rank->pool, kind, block->memory);
        free(block);
      }
  free(rank->pool);
}
