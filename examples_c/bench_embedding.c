/* The benchmark's embeddings: batches of rows drawn by a power law, gathered in turn through a cache that adjusts itself. */
#include <math.h>

#include "bench.h"

enum { WARM_TURNS = 2, CHUNK_ROWS = 1 << 16, ROW_ALIGNMENT_BYTES = 16, SET_LINES = 32, MOST_COVERED_ROWS = 16384 };

/* Batch `batch` of rank `rank`, by inversion of the law; rows are scattered over the table. The same in every run. */
static void draw(const bench_case_t *what, int rank, int batch, int64_t *rows) {
  uint64_t state = 88172645463325252ULL + 7919ULL * (uint64_t)rank + 104729ULL * (uint64_t)batch;
  double all = (double)what->table_rows, rest = 1 - what->exponent;
  for (int64_t i = 0; i < what->call_rows; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (what->exponent <= 0) {
      rows[i] = (int64_t)(state % (uint64_t)what->table_rows);
      continue;
    }
    double u = (double)(state >> 11) * 0x1.0p-53;
    double place = fabs(rest) < 1e-9 ? pow(all, u) : pow(u * (pow(all, rest) - 1) + 1, 1 / rest);
    uint64_t x = (uint64_t)place * 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 29) * 0xc4ceb9fe1a85ec53ULL;
    rows[i] = (int64_t)((uint32_t)(x ^ x >> 32) % (uint64_t)what->table_rows);
  }
}

/* Rows that one rank caches, of a table that is cut into sets over all ranks. */
typedef struct {
  int64_t first, count, lines;
} share_t;

static share_t share_of(const bench_case_t *what, int rank, int ranks) {
  double covered = round(SET_LINES / what->cache_ratio);
  int64_t coverage = covered > MOST_COVERED_ROWS ? MOST_COVERED_ROWS : (int64_t)covered, all = coverage * ranks;
  int64_t sets = (what->table_rows + all - 1) / all;
  return (share_t){rank * sets * coverage, sets * coverage, sets * SET_LINES};
}

static int by_uses(const void *a, const void *b) {
  uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
  return (left < right) - (left > right);
}

/* Hits in a turn if this rank cached those of its rows that all ranks ask for most, and no others ever. */
static double best_hits(const bench_rank_t *rank, const bench_case_t *what) {
  share_t share = share_of(what, rank->ranks->rank, rank->ranks->size);
  uint32_t *uses = device_plain((size_t)share.count * sizeof *uses);
  int64_t *rows = device_plain((size_t)what->call_rows * sizeof *rows);
  memset(uses, 0, (size_t)share.count * sizeof *uses);
  for (int asker = 0; asker < rank->ranks->size; asker++)
    for (int batch = 0; batch < BENCH_BATCHES; batch++) {
      draw(what, asker, batch, rows);
      for (int64_t i = 0; i < what->call_rows; i++)
        if (rows[i] >= share.first && rows[i] < share.first + share.count) uses[rows[i] - share.first]++;
    }
  qsort(uses, (size_t)share.count, sizeof *uses, by_uses);
  double hits = 0;
  for (int64_t i = 0; i < share.lines && i < share.count; i++) hits += uses[i];
  free(rows);
  free(uses);
  return hits;
}

typedef struct {
  bench_rank_t *rank;
  wholememory_embedding_t embedding;
  wholememory_tensor_t batches[BENCH_BATCHES], values;
  void *ids[BENCH_BATCHES];
} turns_t;

static void ask(turns_t *t, int batch) {
  BENCH_TRY(t->rank, t->rank->api->wholememory_embedding_gather(t->embedding, t->batches[batch], t->values, true,
                                                                &t->rank->callbacks, 0));
}

static void turn(void *raw) {
  for (int batch = 0; batch < BENCH_BATCHES; batch++) ask(raw, batch);
}

/* Every rank scatters its share of the rows. */
static void fill(bench_rank_t *rank, const bench_case_t *what, wholememory_tensor_t table) {
  const bench_api_t *api = rank->api;
  int64_t ranks = rank->ranks->size, each = (what->table_rows + ranks - 1) / ranks;
  int64_t begin = each * rank->ranks->rank, end = begin + each < what->table_rows ? begin + each : what->table_rows;
  void *values = device_alloc(&rank->device, (size_t)CHUNK_ROWS * (size_t)what->columns * bench_element_bytes(what->dtype));
  void *ids = device_alloc(&rank->device, CHUNK_ROWS * sizeof(int64_t));
  int64_t *numbers = device_plain(CHUNK_ROWS * sizeof *numbers);
  /* All ranks scatter alike often: it is collective where the memory is. */
  for (int64_t done = 0; done < each; done += CHUNK_ROWS) {
    int64_t from = begin + done, left = end > from ? end - from : 0, now = left < CHUNK_ROWS ? left : CHUNK_ROWS;
    for (int64_t i = 0; i < now; i++) numbers[i] = from + i;
    if (now > 0) {
      bench_write_rows(rank, values, what->dtype, what->columns, NULL, from, now, 0);
      device_copy(&rank->device, ids, numbers, (size_t)now * sizeof *numbers);
    }
    wholememory_tensor_description_t shape = bench_describe(now, what->columns, what->dtype);
    wholememory_tensor_description_t ids_shape = bench_describe(now, 0, WHOLEMEMORY_DT_INT64);
    wholememory_tensor_t input, indices;
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&input, values, &shape));
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&indices, ids, &ids_shape));
    BENCH_TRY(rank, api->wholememory_scatter(input, indices, table, &rank->callbacks, NULL, -1));
    device_wait(&rank->device);
    BENCH_TRY(rank, api->wholememory_destroy_tensor(indices));
    BENCH_TRY(rank, api->wholememory_destroy_tensor(input));
  }
  free(numbers);
  device_free(&rank->device, ids);
  device_free(&rank->device, values);
  bench_line_up(rank);
}

static double verified(turns_t *t, const bench_case_t *what, int batch, void *values) {
  int64_t *rows = device_plain((size_t)what->call_rows * sizeof *rows);
  size_t bytes = (size_t)what->call_rows * (size_t)what->columns * bench_element_bytes(what->output_dtype);
  draw(what, t->rank->ranks->rank, batch, rows);
  device_fill(&t->rank->device, values, 0x5a, bytes);
  ask(t, batch);
  device_wait(&t->rank->device);
  double wrong = bench_wrong_in_rows(t->rank, values, what->output_dtype, what->columns, rows, what->call_rows, 0);
  free(rows);
  return wrong;
}

static wholememory_cache_stats_t counted(turns_t *t, const bench_case_t *what) {
  wholememory_cache_stats_t stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  if (what->cache_ratio > 0 && t->rank->api->cache_stats) BENCH_TRY(t->rank, t->rank->api->cache_stats(t->embedding, &stats));
  return stats;
}

bench_result_t bench_embedding(bench_rank_t *rank, const bench_case_t *what) {
  const bench_api_t *api = rank->api;
  const device_t *device = &rank->device;
  bench_result_t result;
  memset(&result, 0, sizeof result);
  turns_t turns;
  memset(&turns, 0, sizeof turns);
  turns.rank = rank;

  wholememory_embedding_cache_policy_t policy = NULL;
  if (what->cache_ratio > 0)
    BENCH_TRY(rank, api->wholememory_create_embedding_cache_policy(&policy, rank->communicator, what->type, WHOLEMEMORY_ML_DEVICE,
                                                                   WHOLEMEMORY_AT_READWRITE, (float)what->cache_ratio));
  wholememory_tensor_description_t shape = bench_describe(what->table_rows, what->columns, what->dtype);
  BENCH_TRY(rank, api->wholememory_create_embedding(&turns.embedding, &shape, rank->communicator, what->type, what->location,
                                                    policy, NULL, -1, 0));
  fill(rank, what, api->wholememory_embedding_get_embedding_tensor(turns.embedding));

  int64_t *rows = device_plain((size_t)what->call_rows * sizeof *rows);
  size_t values_bytes = (size_t)what->call_rows * (size_t)what->columns * bench_element_bytes(what->output_dtype);
  void *values = device_alloc(device, values_bytes);
  wholememory_tensor_description_t ids_shape = bench_describe(what->call_rows, 0, what->index_dtype);
  wholememory_tensor_description_t values_shape = bench_describe(what->call_rows, what->columns, what->output_dtype);
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&turns.values, values, &values_shape));
  for (int batch = 0; batch < BENCH_BATCHES; batch++) {
    draw(what, rank->ranks->rank, batch, rows);
    turns.ids[batch] = bench_upload_indices(rank, what, rows);
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&turns.batches[batch], turns.ids[batch], &ids_shape));
  }
  free(rows);

  for (int warm = 0; warm < WARM_TURNS; warm++)
    for (int batch = 0; batch < BENCH_BATCHES; batch++) {
      if (rank->settings->verify && batch % 16 == 0)
        result.wrong_values += verified(&turns, what, batch, values);
      else
        ask(&turns, batch);
    }
  wholememory_cache_stats_t before = counted(&turns, what);
  bench_line_up(rank);
  turn(&turns);
  wholememory_cache_stats_t after = counted(&turns, what);
  result.lookups = (double)(after.lookups - before.lookups);
  result.hits = (double)(after.hits - before.hits);
  if (what->cache_ratio > 0) result.best_hits = best_hits(rank, what);
  result.call_us = bench_time(rank, (bench_action_t){turn, &turns}) / BENCH_BATCHES;
  result.payload_bytes = (double)values_bytes;
  if (rank->settings->verify) result.wrong_values += verified(&turns, what, BENCH_BATCHES - 1, values);

  for (int batch = 0; batch < BENCH_BATCHES; batch++) {
    BENCH_TRY(rank, api->wholememory_destroy_tensor(turns.batches[batch]));
    device_free(device, turns.ids[batch]);
  }
  BENCH_TRY(rank, api->wholememory_destroy_tensor(turns.values));
  device_free(device, values);
  bench_line_up(rank);
  BENCH_TRY(rank, api->wholememory_destroy_embedding(turns.embedding));
  if (policy) BENCH_TRY(rank, api->wholememory_destroy_embedding_cache_policy(policy));
  return result;
}
