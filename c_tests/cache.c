/* Cached embeddings: which wm_caches fit which tables, gathers and gradient steps against tables without a cache, what a drop and a
 * write-back do, counters of a scripted use, readers of several threads while lines are replaced. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "cached.h"
#include "device.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, VALUE = WHOLEMEMORY_INVALID_VALUE, LINES = 32 };

/* Where a table is slow to make, fewer pairs of tables and caches are tried. */
static bool is_brief(const wm_rank* r) { return r->size >= 4 || (wm_gpu() && r->size > 1); }

/* ---- gathers ---- */

/* Rounds of gathers of different shapes on every rank; one rank asks for nothing now and then. */
static void rounds(const wm_rows* e, int count, int salt, const char* what) {
  const bool floating = e->shape.dtype <= WHOLEMEMORY_DT_BF16;
  for (int round = 0; round < count; round++) {
    wm_draw d = {.ids = (round + e->rank) % 2 ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT, .to = e->shape.dtype, .count = 150 + 40 * e->rank,
              .pad = round % 3, .seed = (uint64_t)(round * 64 + e->rank), .adjust = round != 3, .salt = salt};
    if (round == 2) d.to = floating ? WHOLEMEMORY_DT_HALF : WHOLEMEMORY_DT_INT16;
    if (round == 4) d.to = floating ? WHOLEMEMORY_DT_DOUBLE : WHOLEMEMORY_DT_INT64;
    if (round == 5 && e->rank == e->size - 1) d.count = 0;
    if (!wm_cached_gather(e, d, what)) return;
  }
}

static void values(wm_rank* r, wholememory_comm_t comm, wholememory_comm_t cache_comm, const wm_kind* table, wm_cache_kind cache, wm_rows_shape shape, float ratio) {
  char what[160];
  snprintf(what, sizeof what, "%s table of %s, %lld x %lld, round robin %d, %s cache of %.2f%s", table->name, wm_dtype_name(shape.dtype),
           (long long)shape.rows, (long long)shape.columns, shape.round_robin, cache.name, (double)ratio, comm == cache_comm ? "" : " apart");
  wm_rows e = wm_cached_make(comm, cache_comm, shape, cache, WHOLEMEMORY_AT_READONLY, ratio);
  wm_rows_fill(&e, wm_value, 0);
  rounds(&e, 6, 0, what);
  wholememory_cache_stats_t stats = wm_cache_stats(&e);
  int cache_ranks;
  OK(wholememory_communicator_get_size(&cache_ranks, cache_comm));
  /* What fits is what the ratio allows, rounded up to whole sets. */
  double covered = (double)(int64_t)((double)LINES / (double)ratio + 0.5);
  int64_t user = wholememory_tensor_get_tensor_description(e.tensor)->sizes[0], unit = (int64_t)covered * cache_ranks;
  int64_t sets = (user + unit - 1) / unit;
  CHECK_EQ(stats.capacity_rows, sets * LINES);
  CHECK_EQ(stats.row_bytes, e.stride * (int64_t)wm_bytes_of(shape.dtype));
  CHECK(stats.loads - stats.evictions <= stats.capacity_rows);
  CHECK(stats.hits <= stats.lookups && stats.write_backs == 0 && stats.bytes_written == 0);
  CHECK_EQ(stats.bytes_read, stats.loads * stats.row_bytes);
  if (r->size == 1) CHECK(stats.hits > 0 && stats.loads > 0);
  /* New values in the table are seen after a drop, and nothing else. */
  OK(wholememory_communicator_barrier(comm));
  wm_rows_fill(&e, wm_value, 5);
  EXPECT(0, wholememory_embedding_drop_all_cache(e.embedding, 0));
  OK(wholememory_communicator_barrier(comm));
  rounds(&e, 2, 5, what);
  EXPECT(0, wholememory_embedding_writeback_cache(e.embedding, 0));
  OK(wholememory_communicator_barrier(comm));
  rounds(&e, 1, 5, what);
  OK(wholememory_communicator_barrier(comm));
  wm_rows_drop(&e);
}

static void gathers(wm_rank* r, wholememory_comm_t other) {
  wholememory_comm_t comm = wm_world(r);
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* table = &wm_kinds[k];
    if (table->type == WHOLEMEMORY_MT_HIERARCHY || !wm_kind_here(r, comm, table)) continue;
    for (int c = 0; c < WM_CACHES; c++) {
      bool home = c < WM_CACHES_AT_HOME && wm_caches[c].type >= table->type;
      for (int d = 0; d < WM_DTYPES; d++) {
        /* All types once a table; the other pairs with one of each kind. */
        bool all = !is_brief(r) && (c == (int)table->type - 1 || (c == 3 && k % 2 == 0));
        if (!all && d != (k + c) % WM_DTYPES) continue;
        wm_rows_shape shape = {.kind = *table, .dtype = wm_dtypes[d].id, .rows = 230, .columns = 7 + 4 * (d % 3)};
        if (home) values(r, comm, comm, table, wm_caches[c], shape, 0.2f);
        if (wm_caches[c].type != WHOLEMEMORY_MT_DISTRIBUTED) values(r, comm, other, table, wm_caches[c], shape, 0.2f);
      }
      if (is_brief(r) && c != k % WM_CACHES) continue;
      wm_rows_shape dealt = {.kind = *table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 123, .columns = 5, .round_robin = 4};
      if (home) values(r, comm, comm, table, wm_caches[c], dealt, 0.5f);
      if (wm_caches[c].type != WHOLEMEMORY_MT_DISTRIBUTED) values(r, comm, other, table, wm_caches[c], dealt, 1.0f);
    }
    /* Few rows, and ranks without any. */
    wm_rows_shape few = {.kind = *table, .dtype = WHOLEMEMORY_DT_HALF, .rows = 3, .columns = 33};
    values(r, comm, comm, table, wm_caches[2], few, 1.0f / 512);
    values(r, comm, comm, table, wm_caches[2], few, 1.0f);
  }
}

/* A table loaded from a file, dealt or not, is what is read after a drop. */
static void from_file(wm_rank* r) {
  enum { FILE_ROWS = 161, COLUMNS = 3 };
  char path[64];
  snprintf(path, sizeof path, "/tmp/wm_cache_XXXXXX");
  if (r->rank == 0) {
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    for (int64_t row = 0; row < FILE_ROWS; row++)
      for (int64_t c = 0; c < COLUMNS; c++) {
        uint64_t bits = wm_value(WHOLEMEMORY_DT_FLOAT, row, c, 0);
        REQUIRE(write(file, &bits, 4) == 4);
      }
    close(file);
  }
  wm_share(r, path, sizeof path);
  wm_kind table = {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"};
  for (int block = 0; block < 5; block += 4) {
    wm_rows e = wm_cached_make(wm_world(r), wm_world(r), (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = FILE_ROWS, .columns = COLUMNS, .round_robin = block},
                               wm_caches[2], WHOLEMEMORY_AT_READWRITE, 0.3f);
    wm_rows_fill(&e, wm_value, 3);
    rounds(&e, 2, 3, "a cached table before it is loaded");
    OK(wholememory_communicator_barrier(e.comm));
    const char* name = path;
    EXPECT(0, wholememory_load_from_file(wholememory_tensor_get_memory_handle(e.tensor), 0, (size_t)e.stride * 4, COLUMNS * 4, &name, 1, block));
    EXPECT(0, wholememory_embedding_drop_all_cache(e.embedding, 0));
    rounds(&e, 3, 0, "a cached table loaded from a file");
    OK(wholememory_communicator_barrier(e.comm));
    wm_rows_drop(&e);
  }
  if (r->rank == 0) unlink(path);
}

/* ---- counters ---- */

static void gather_list(const wm_rows* e, const int64_t* list, int64_t count, bool adjust) {
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){e->shape.dtype, 2, count, e->shape.columns, e->shape.columns, 0, 0});
  for (int64_t i = 0; i < count; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)list[i]);
    for (int64_t c = 0; c < e->shape.columns && list[i] >= 0 && list[i] < e->shape.rows; c++)
      wm_set_bits(e->shape.dtype, wm_array_at(&out, i, c), wm_value(e->shape.dtype, list[i], c, 0));
  }
  wm_array_push(&ids);
  EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, adjust, NULL, 0));
  wm_array_matches(&out, "a scripted gather");
  wm_array_drop(&ids);
  wm_array_drop(&out);
}

static void expect_stats(const wm_rows* e, uint64_t lookups, uint64_t hits, uint64_t loads, uint64_t evictions, int line) {
  wholememory_cache_stats_t s = wm_cache_stats(e);
  bool same = s.lookups == lookups && s.hits == hits && s.loads == loads && s.evictions == evictions && s.bytes_read == loads * s.row_bytes;
  if (!same)
    wm_failed(__FILE__, line, "lookups %llu hits %llu loads %llu evictions %llu, wanted %llu %llu %llu %llu", (unsigned long long)s.lookups,
              (unsigned long long)s.hits, (unsigned long long)s.loads, (unsigned long long)s.evictions, (unsigned long long)lookups,
              (unsigned long long)hits, (unsigned long long)loads, (unsigned long long)evictions);
}

/* One rank, one set of 32 lines for 64 rows: everything that happens can be told in advance. */
static void counted(wm_rank* r) {
  wholememory_comm_t own;
  OK(wholememory_split_communicator(&own, wm_world(r), r->rank, 0));
  wm_kind table = {WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, "CONTINUOUS HOST"};
  wm_rows e = wm_cached_make(own, own, (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 64, .columns = 6}, wm_caches[0], WHOLEMEMORY_AT_READWRITE, 0.5f);
  wm_rows_fill(&e, wm_value, 0);
  CHECK_EQ(wm_cache_stats(&e).capacity_rows, 32);
  int64_t list[64];
  for (int64_t i = 0; i < 64; i++) list[i] = i;
  expect_stats(&e, 0, 0, 0, 0, __LINE__);
  gather_list(&e, list, 32, false); /* looks, changes nothing */
  expect_stats(&e, 32, 0, 0, 0, __LINE__);
  gather_list(&e, list, 32, true); /* 32 rows fill the lines */
  expect_stats(&e, 64, 0, 32, 0, __LINE__);
  gather_list(&e, list, 32, true); /* all are there, and used twice now */
  expect_stats(&e, 96, 32, 32, 0, __LINE__);
  gather_list(&e, list, 64, false);
  expect_stats(&e, 160, 64, 32, 0, __LINE__);
  gather_list(&e, list + 40, 1, true); /* used once: not worth a line */
  expect_stats(&e, 161, 64, 32, 0, __LINE__);
  const int64_t often[6] = {40, 40, -3, 64, 40, 1000};
  gather_list(&e, often, 6, true); /* used four times in all: worth more than any */
  expect_stats(&e, 164, 64, 33, 1, __LINE__);
  gather_list(&e, often, 6, false);
  expect_stats(&e, 167, 67, 33, 1, __LINE__);
  /* A drop empties the lines and keeps what is known of the rows. */
  EXPECT(0, wholememory_embedding_drop_all_cache(e.embedding, 0));
  gather_list(&e, often, 6, false);
  expect_stats(&e, 170, 67, 33, 1, __LINE__);
  gather_list(&e, list, 64, true);
  wholememory_cache_stats_t s = wm_cache_stats(&e);
  CHECK(s.lookups == 234 && s.hits == 67 && s.loads == 65 && s.write_backs == 0);
  /* The struct of an older or newer caller, and none. */
  wholememory_cache_stats_t small;
  memset(&small, 0x7F, sizeof small);
  small.struct_size = 24;
  OK(wholememory_embedding_get_cache_stats(e.embedding, &small));
  CHECK(small.struct_size == 24 && small.capacity_rows == 32 && small.lookups == 234 && small.hits == 0x7F7F7F7F7F7F7F7Full);
  small.struct_size = 7;
  EXPECT(VALUE, wholememory_embedding_get_cache_stats(e.embedding, &small));
  struct { wholememory_cache_stats_t known; uint64_t later; } large = {.known = {.struct_size = sizeof large}, .later = 9};
  OK(wholememory_embedding_get_cache_stats(e.embedding, &large.known));
  CHECK(large.known.hits == 67 && large.later == 9);
  EXPECT(BAD_INPUT, wholememory_embedding_get_cache_stats(e.embedding, NULL));
  EXPECT(BAD_INPUT, wholememory_embedding_get_cache_stats(NULL, &small));
  wm_rows_drop(&e);
  EXPECT(BAD_INPUT, wholememory_embedding_get_cache_stats(e.embedding, &small));
  e = wm_rows_make(own, (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 64, .columns = 6});
  small.struct_size = sizeof small;
  EXPECT(BAD_INPUT, wholememory_embedding_get_cache_stats(e.embedding, &small));
  CHECK_HAS(wholememory_get_last_error(), "no cache");
  wm_rows_drop(&e);
  OK(wholememory_destroy_communicator(own));
}

/* ---- readers while lines are replaced ---- */

typedef struct { const wm_rows* e; int rank, number; void* stream; bool adjust; } reader;

static void* read_rows(void* given) {
  reader* me = given;
  wm_set_rank(me->rank);
  wm_device_bind(me->rank);
  const int64_t count = 700;
  const wm_rows* e = me->e;
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0});
  for (int round = 0; round < 25; round++) {
    wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, count, e->shape.columns, e->shape.columns, 0, 0});
    wm_draw d = {.seed = (uint64_t)(me->number * 1000 + round)};
    for (int64_t i = 0; i < count; i++) {
      int64_t id = wm_drawn(&d, e, i);
      wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)id);
      for (int64_t c = 0; c < e->shape.columns && id >= 0 && id < e->shape.rows; c++)
        wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&out, i, c), wm_value(WHOLEMEMORY_DT_FLOAT, id, c, 0));
    }
    wm_array_push(&ids);
    EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, me->adjust, NULL, (int64_t)(intptr_t)me->stream));
    wm_finish();
    bool good = wm_array_matches(&out, "rows read while others replace lines");
    wm_array_drop(&out);
    if (!good) break;
  }
  wm_array_drop(&ids);
  return NULL;
}

static void side_by_side(wm_rank* r) {
  enum { READERS = 5 };
  wholememory_comm_t own;
  OK(wholememory_split_communicator(&own, wm_world(r), r->rank, 0));
  wm_kind table = {WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_HOST, "CHUNKED HOST"};
  for (int c = 1; c < WM_CACHES_AT_HOME; c++) {
    wm_rows e = wm_cached_make(own, own, (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 4000, .columns = 40}, wm_caches[c], WHOLEMEMORY_AT_READWRITE, 0.02f);
    wm_rows_fill(&e, wm_value, 0);
    int (*create)(void**, unsigned) = NULL;
    int (*destroy)(void*) = NULL;
    *(void**)&create = wm_driver_function("cuStreamCreate");
    *(void**)&destroy = wm_driver_function("cuStreamDestroy_v2");
    reader readers[READERS];
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
      readers[i] = (reader){.e = &e, .rank = r->rank, .number = i + READERS * r->rank, .adjust = i < 2};
      if (create) REQUIRE(create(&readers[i].stream, 1) == 0);
      REQUIRE(pthread_create(&threads[i], NULL, read_rows, &readers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
    CHECK(wm_cache_stats(&e).evictions > 0);
    wm_rows_drop(&e);
    for (int i = 0; i < READERS; i++)
      if (destroy) REQUIRE(destroy(readers[i].stream) == 0);
  }
  OK(wholememory_destroy_communicator(own));
}

/* ---- gradient steps beside a table without a cache ---- */

enum { ROWS = 150, STEPS = 8 };
static const char* const states_of[][4] = {{0}, {0}, {"m", "v", "beta12t"}, {"v"}, {"state_sum"}};

/* What a gather of all rows gives, of an embedding or (`table`) of a tensor; the caller frees it. */
static unsigned char* all_rows(const wm_rows* e, wholememory_tensor_t table, bool adjust, wholememory_dtype_t dtype, int64_t columns, size_t* bytes) {
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, ROWS, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){dtype, 2, ROWS, columns, columns, 0, 0});
  for (int64_t i = 0; i < ROWS; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i);
  wm_array_push(&ids);
  if (table) EXPECT(0, wholememory_gather(table, ids.tensor, out.tensor, NULL, NULL, -1));
  else EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, adjust, NULL, 0));
  wm_finish();
  *bytes = out.bytes;
  unsigned char* rows = malloc(out.bytes);
  REQUIRE(rows != NULL);
  wm_copy(rows, out.device, out.bytes);
  wm_array_drop(&ids);
  wm_array_drop(&out);
  return rows;
}

static bool same_rows(const wm_rows* a, wholememory_tensor_t in_a, const wm_rows* b, wholememory_tensor_t in_b, bool adjust, wholememory_dtype_t dtype, int64_t columns, const char* what) {
  size_t bytes_a, bytes_b;
  unsigned char *rows_a = all_rows(a, in_a, adjust, dtype, columns, &bytes_a), *rows_b = all_rows(b, in_b, adjust, dtype, columns, &bytes_b);
  bool same = bytes_a == bytes_b && memcmp(rows_a, rows_b, bytes_a) == 0;
  if (!same) {
    size_t at = 0;
    while (at < bytes_a && rows_a[at] == rows_b[at]) at++;
    FAILED("%s: differs from the table without a cache at byte %zu (rows of %zu)", what, at, (size_t)columns * wm_bytes_of(dtype));
  }
  free(rows_a);
  free(rows_b);
  return same;
}

static uint64_t small_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt) {
  double value = ((double)(wm_hash((uint64_t)row, (uint64_t)column) % 257) - 128 + salt) / 64;
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return wm_convert(WHOLEMEMORY_DT_DOUBLE, dtype, bits);
}

static void step(const wm_rows* e, int number, bool adjust) {
  int64_t count = number == 3 && e->rank == 0 ? 0 : 60 + 10 * e->rank;
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0});
  wm_array grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, count, e->shape.columns, e->shape.columns + 1, 0, 0});
  wm_draw d = {.seed = (uint64_t)(number * 64 + e->rank)};
  for (int64_t i = 0; i < count; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)wm_drawn(&d, e, i));
    for (int64_t c = 0; c < e->shape.columns; c++)
      wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&grads, i, c), small_value(WHOLEMEMORY_DT_FLOAT, i + 1000 * number, c, e->rank));
  }
  wm_array_push(&ids);
  wm_array_push(&grads);
  wm_env env;
  wm_env_start(&env);
  EXPECT(0, wholememory_embedding_gather_gradient_apply(e->embedding, ids.tensor, grads.tensor, adjust, 0.05f, &env.fns, 0));
  BALANCED(&env);
  wm_finish();
  OK(wholememory_communicator_barrier(e->comm));
  wm_array_drop(&ids);
  wm_array_drop(&grads);
}

static void trained(wm_rank* r, wholememory_comm_t comm, const wm_kind* table, wm_cache_kind cache, int optimizer, wholememory_dtype_t dtype, float ratio, int round_robin) {
  char what[160];
  snprintf(what, sizeof what, "%s table of %s, %s cache of %.2f, optimizer %d, round robin %d", table->name, wm_dtype_name(dtype), cache.name, (double)ratio, optimizer, round_robin);
  wm_rows_shape shape = {.kind = *table, .dtype = dtype, .rows = ROWS, .columns = 11, .round_robin = round_robin};
  wm_rows a = wm_cached_make(comm, comm, shape, cache, WHOLEMEMORY_AT_READWRITE, ratio), b = wm_rows_make(comm, shape);
  wm_rows_fill(&a, small_value, 0);
  wm_rows_fill(&b, small_value, 0);
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, (wholememory_optimizer_type_t)optimizer));
  EXPECT(0, wholememory_embedding_set_optimizer(a.embedding, made));
  EXPECT(0, wholememory_embedding_set_optimizer(b.embedding, made));
  bool same = true;
  for (int number = 0; number < STEPS && same; number++) {
    bool adjust = number % 3 != 2;
    step(&a, number, adjust);
    step(&b, number, adjust);
    same = same_rows(&a, NULL, &b, NULL, number % 2, dtype, shape.columns, what);
    if (number == 4) EXPECT(0, wholememory_embedding_writeback_cache(a.embedding, 0));
    if (number == 6) EXPECT(0, wholememory_embedding_drop_all_cache(a.embedding, 0));
    OK(wholememory_communicator_barrier(comm));
    /* What was written back is in the tables, states too. */
    if (number != 4 && number != 6) continue;
    if (round_robin == 0 || r->size == 1) same = same_rows(&a, a.tensor, &b, b.tensor, false, dtype, shape.columns, what) && same;
    for (const char* const* name = states_of[optimizer]; *name && round_robin == 0; name++) {
      wholememory_tensor_t in_a = wholememory_embedding_get_optimizer_state(a.embedding, *name), in_b = wholememory_embedding_get_optimizer_state(b.embedding, *name);
      REQUIRE(in_a != NULL && in_b != NULL);
      same = same_rows(&a, in_a, &b, in_b, false, WHOLEMEMORY_DT_FLOAT, strcmp(*name, "beta12t") ? shape.columns : 2, *name) && same;
    }
    OK(wholememory_communicator_barrier(comm));
  }
  if (r->size == 1) {
    wholememory_cache_stats_t stats = wm_cache_stats(&a);
    CHECK(stats.write_backs > 0 && stats.bytes_written >= stats.write_backs * stats.row_bytes && stats.loads > 0);
  }
  OK(wholememory_communicator_barrier(comm));
  wm_rows_drop(&a);
  wm_rows_drop(&b);
  wholememory_destroy_embedding_optimizer(made);
}

static void trainings(wm_rank* r) {
  const wholememory_dtype_t dtypes[] = {WHOLEMEMORY_DT_FLOAT, WHOLEMEMORY_DT_HALF, WHOLEMEMORY_DT_BF16};
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* table = &wm_kinds[k];
    if (table->type == WHOLEMEMORY_MT_HIERARCHY || !wm_kind_here(r, wm_world(r), table)) continue;
    for (int c = (int)table->type - 1; c < WM_CACHES_AT_HOME; c++)
      for (int optimizer = 1; optimizer <= 4; optimizer++)
        if (!is_brief(r) || optimizer == 1 + (k + c) % 4) trained(r, wm_world(r), table, wm_caches[c], optimizer, dtypes[(k + c + optimizer) % 3], optimizer == 2 ? 0.25f : 0.5f, optimizer == 3 ? 3 : 0);
  }
}

/* Ranks that cannot, or are told not to, read each other's memory: ids go to the owners, rows come back. */
static void exchanged(wm_rank* r) {
  if (!r->threads || r->rank == 0) setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  wm_meet(r);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  wm_meet(r);
  if (!r->threads || r->rank == 0) unsetenv("WHOLEMEMORY_ROUTE");
  wm_meet(r);
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* table = &wm_kinds[k];
    if (table->type == WHOLEMEMORY_MT_HIERARCHY || !wm_kind_here(r, comm, table)) continue;
    for (int d = k % 3; d < WM_DTYPES; d += is_brief(r) ? WM_DTYPES : 3)
      values(r, comm, comm, table, wm_caches[2], (wm_rows_shape){.kind = *table, .dtype = wm_dtypes[d].id, .rows = 230, .columns = 9}, 0.2f);
    /* The table exchanges, the cache does not. */
    wholememory_comm_t pair;
    OK(wholememory_split_communicator(&pair, comm, r->size > 2 ? r->rank / 2 : r->rank, r->rank));
    if (r->size > 1) values(r, comm, pair, table, wm_caches[1], (wm_rows_shape){.kind = *table, .dtype = WHOLEMEMORY_DT_BF16, .rows = 230, .columns = 9}, 0.2f);
    OK(wholememory_destroy_communicator(pair));
    trained(r, comm, table, wm_caches[2], 2, WHOLEMEMORY_DT_FLOAT, 0.25f, 0);
  }
  OK(wholememory_destroy_communicator(comm));
}

/* Dealt rows, and a cache of other ranks than the table's: with 3 and 4 ranks the last one would have a row too few, did the
 * table only grow to what the cache asks for. */
static void dealt_apart(wm_rank* r) {
  wholememory_comm_t own;
  OK(wholememory_split_communicator(&own, wm_world(r), r->rank, 0));
  int block = r->size == 3 ? 15 : 34;
  for (int k = 0; k < WM_KINDS; k++)
    if (wm_kinds[k].type != WHOLEMEMORY_MT_HIERARCHY && wm_kind_here(r, wm_world(r), &wm_kinds[k]))
      values(r, wm_world(r), own, &wm_kinds[k], wm_caches[1], (wm_rows_shape){.kind = wm_kinds[k], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = block * r->size, .columns = 5, .round_robin = block}, 0.7f);
  OK(wholememory_destroy_communicator(own));
}

/* What is local by the header: one rank gathers through its cache while all others are elsewhere, in a barrier. */
static void by_one_rank(wm_rank* r) {
  wholememory_comm_t own;
  OK(wholememory_split_communicator(&own, wm_world(r), r->rank, 0));
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* table = &wm_kinds[k];
    if (table->type > WHOLEMEMORY_MT_CHUNKED || !wm_kind_here(r, wm_world(r), table)) continue;
    wm_rows_shape shape = {.kind = *table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 230, .columns = 9};
    for (int apart = 0; apart < 2; apart++) {
      wm_rows e = wm_cached_make(wm_world(r), apart ? own : wm_world(r), shape, wm_caches[1], WHOLEMEMORY_AT_READONLY, 0.2f);
      wm_rows_fill(&e, wm_value, 0);
      wm_draw d = {.ids = WHOLEMEMORY_DT_INT64, .to = WHOLEMEMORY_DT_FLOAT, .count = 100, .seed = 7, .adjust = apart};
      for (int i = 0; i < 3 && r->rank == r->size - 1; i++) wm_cached_gather(&e, d, apart ? "an adjusting gather of one rank" : "a gather of one rank");
      EXPECT(0, wholememory_communicator_barrier(wm_world(r)));
      wm_rows_drop(&e);
    }
  }
  OK(wholememory_destroy_communicator(own));
}

static void body(wm_rank* r) {
  wholememory_comm_t pairs = wm_pairs(r);
  counted(r);
  gathers(r, pairs);
  from_file(r);
  side_by_side(r);
  by_one_rank(r);
  dealt_apart(r);
  trainings(r);
  exchanged(r);
  OK(wholememory_destroy_communicator(pairs));
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
