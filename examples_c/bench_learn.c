/* Embeddings: gathers through a cache, and gradient steps, over a stream of batches that is repeated. The ids follow a
 * power law whose frequent rows lie scattered over the table, so that a cache sees repeats only where the law has them. */
#include <math.h>

#include "bench.h"

typedef struct {
  bench_rank_t *rank;
  const bench_case_t *what;
  wholememory_embedding_t embedding;
  wholememory_embedding_cache_policy_t policy; /* kept as long as the embedding: some libraries read it at every call */
  wholememory_tensor_t *batches, values;
  int batch_count, turn, adjust;
} learner_t;

/* Batch `set` of `who`: the same in every run. */
static void choose_ids(const bench_case_t *what, int who, int set, int64_t *ids) {
  uint64_t state = 88172645463325252ULL + 7919ULL * (uint64_t)who + 104729ULL * (uint64_t)set;
  double rows = (double)what->table_rows, exponent = 1 - what->skew;
  for (int64_t i = 0; i < what->call_rows; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (what->skew <= 0) {
      ids[i] = (int64_t)(state % (uint64_t)what->table_rows);
      continue;
    }
    double u = (double)(state >> 11) * 0x1.0p-53;
    double rank_of_row = fabs(exponent) < 1e-9 ? pow(rows, u) : pow(u * (pow(rows, exponent) - 1) + 1, 1 / exponent);
    ids[i] = (int64_t)(bench_mix((uint64_t)rank_of_row * 0x9e3779b97f4a7c15ULL) % (uint64_t)what->table_rows);
  }
}

static int falling(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left < right) - (left > right);
}

/* The share of the stream that the `capacity` rows asked for most often make up: no fixed set of rows does better. */
static double best_fixed_share(const bench_case_t *what, int batch_count, uint64_t capacity) {
  uint32_t *counts = calloc((size_t)what->table_rows, sizeof *counts);
  int64_t *ids = device_plain((size_t)what->call_rows * sizeof *ids);
  if (!counts) return 0;
  for (int set = 0; set < batch_count; set++) {
    choose_ids(what, 0, set, ids);
    for (int64_t i = 0; i < what->call_rows; i++) counts[ids[i]]++;
  }
  qsort(counts, (size_t)what->table_rows, sizeof *counts, falling);
  double covered = 0;
  for (uint64_t i = 0; i < capacity && i < (uint64_t)what->table_rows; i++) covered += counts[i];
  free(ids);
  free(counts);
  return covered / ((double)what->call_rows * batch_count);
}

static void gather_next(void *raw) {
  learner_t *l = raw;
  BENCH_TRY(l->rank, l->rank->api->wholememory_embedding_gather(l->embedding, l->batches[l->turn++ % l->batch_count],
                                                                l->values, l->adjust, &l->rank->callbacks, 0));
}

static void step_next(void *raw) {
  learner_t *l = raw;
  BENCH_TRY(l->rank, l->rank->api->wholememory_embedding_gather_gradient_apply(
                         l->embedding, l->batches[l->turn++ % l->batch_count], l->values, true, 0.01f,
                         &l->rank->callbacks, 0));
}

static void make_embedding(learner_t *l) {
  const bench_api_t *api = l->rank->api;
  const bench_case_t *what = l->what;
  if (what->cache_ratio > 0)
    BENCH_TRY(l->rank, api->wholememory_create_embedding_cache_policy(
                           &l->policy, l->rank->communicator,
                           what->type < WHOLEMEMORY_MT_CHUNKED ? WHOLEMEMORY_MT_CHUNKED : what->type,
                           WHOLEMEMORY_ML_DEVICE, WHOLEMEMORY_AT_READWRITE, (float)what->cache_ratio));
  wholememory_tensor_description_t shape = bench_shape(what->table_rows, what->columns, what->dtype);
  BENCH_TRY(l->rank, api->wholememory_create_embedding(&l->embedding, &shape, l->rank->communicator, what->type,
                                                       what->location, l->policy, NULL, -1, 0));
  void *mine;
  size_t bytes, offset_bytes, row_bytes = (size_t)what->columns * bench_element_bytes(what->dtype);
  wholememory_tensor_t table = api->wholememory_embedding_get_embedding_tensor(l->embedding);
  BENCH_TRY(l->rank, api->wholememory_get_local_memory(&mine, &bytes, &offset_bytes,
                                                       api->wholememory_tensor_get_memory_handle(table)));
  bench_write_rows(l->rank, mine, what->dtype, what->columns, NULL, (int64_t)(offset_bytes / row_bytes),
                   (int64_t)(bytes / row_bytes), 0);
}

/* Two turns over the stream, in which the cache learns; the first and the last batches are checked. */
static double warm_up(learner_t *l, void *values, size_t values_bytes) {
  bench_rank_t *rank = l->rank;
  int64_t *ids = device_plain((size_t)l->what->call_rows * sizeof *ids);
  double wrong = 0;
  int turns = 2 * l->batch_count;
  l->adjust = 1;
  for (int i = 0; i < turns; i++) {
    device_fill(&rank->device, values, 0x5a, values_bytes);
    gather_next(l);
    device_wait(&rank->device);
    if (rank->settings->verify && (i < 2 || i >= turns - 2)) {
      choose_ids(l->what, rank->ranks->rank, i % l->batch_count, ids);
      wrong += bench_wrong_in_rows(rank, values, l->what->dtype, l->what->columns, ids, l->what->call_rows, 0);
    }
    bench_line_up(rank);
  }
  free(ids);
  return wrong;
}

/* One more turn, in which hits are counted, where the library counts them. */
static void count_hits(learner_t *l, bench_result_t *result) {
  bench_rank_t *rank = l->rank;
  if (!rank->api->cache_stats || l->what->cache_ratio <= 0) return;
  wholememory_cache_stats_t before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
  BENCH_TRY(rank, rank->api->cache_stats(l->embedding, &before));
  for (int i = 0; i < l->batch_count; i++) gather_next(l);
  bench_line_up(rank);
  BENCH_TRY(rank, rank->api->cache_stats(l->embedding, &after));
  double lookups = ranks_sum(rank->ranks, (double)(after.lookups - before.lookups));
  double hits = ranks_sum(rank->ranks, (double)(after.hits - before.hits));
  double share = lookups > 0 ? hits / lookups : 0;
  if (rank->ranks->size > 1)
    snprintf(result->note, sizeof result->note, "hits=%.3f", share);
  else
    snprintf(result->note, sizeof result->note, "hits=%.3f,best=%.3f", share,
             best_fixed_share(l->what, l->batch_count, after.capacity_rows));
}

bench_result_t bench_embedding(bench_rank_t *rank, const bench_case_t *what) {
  const bench_api_t *api = rank->api;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  learner_t l = {.rank = rank, .what = what, .batch_count = rank->settings->batches, .adjust = 1};
  size_t row_bytes = (size_t)what->columns * bench_element_bytes(what->dtype);
  if (row_bytes % 16) {
    if (rank->ranks->rank == 0) fprintf(stderr, "rows of an embedding take a multiple of 16 bytes, not %zu\n", row_bytes);
    ranks_give_up(rank->ranks);
  }
  make_embedding(&l);
  wholememory_embedding_optimizer_t optimizer = NULL;
  if (what->op == OP_STEP) {
    BENCH_TRY(rank, api->wholememory_create_embedding_optimizer(&optimizer, what->optimizer));
    BENCH_TRY(rank, api->wholememory_embedding_set_optimizer(l.embedding, optimizer));
  }
  bench_line_up(rank);
  size_t ids_bytes = (size_t)what->call_rows * sizeof(int64_t), values_bytes = (size_t)what->call_rows * row_bytes;
  int64_t *ids = device_plain(ids_bytes);
  void *memory = device_alloc(&rank->device, ids_bytes * (size_t)l.batch_count);
  l.batches = calloc((size_t)l.batch_count, sizeof *l.batches);
  if (!l.batches) ranks_give_up(rank->ranks);
  wholememory_tensor_description_t ids_shape = bench_shape(what->call_rows, 0, WHOLEMEMORY_DT_INT64);
  for (int set = 0; set < l.batch_count; set++) {
    choose_ids(what, rank->ranks->rank, set, ids);
    char *at = (char *)memory + ids_bytes * (size_t)set;
    device_copy(&rank->device, at, ids, ids_bytes);
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&l.batches[set], at, &ids_shape));
  }
  void *values = device_alloc(&rank->device, values_bytes);
  wholememory_tensor_description_t values_shape = bench_shape(what->call_rows, what->columns, what->dtype);
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&l.values, values, &values_shape));

  result.wrong_values = warm_up(&l, values, values_bytes);
  count_hits(&l, &result);
  l.adjust = !rank->settings->still;
  if (what->op == OP_STEP) device_fill(&rank->device, values, 0, values_bytes);
  result.call_us = bench_time(rank, (bench_action_t){what->op == OP_STEP ? step_next : gather_next, &l});
  result.payload_bytes = (double)values_bytes;

  for (int set = 0; set < l.batch_count; set++) BENCH_TRY(rank, api->wholememory_destroy_tensor(l.batches[set]));
  BENCH_TRY(rank, api->wholememory_destroy_tensor(l.values));
  free(l.batches);
  free(ids);
  device_free(&rank->device, memory);
  device_free(&rank->device, values);
  bench_line_up(rank);
  BENCH_TRY(rank, api->wholememory_destroy_embedding(l.embedding));
  if (l.policy) BENCH_TRY(rank, api->wholememory_destroy_embedding_cache_policy(l.policy));
  if (optimizer) api->wholememory_destroy_embedding_optimizer(optimizer);
  return result;
}
