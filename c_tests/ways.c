/* Calls of one name whose ranks meet in different ways by what they pass. A rank that passes something else than the others is told like
 * one in another call: the same error on all ranks, none is left waiting, and they go on together. */
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "cached.h"
#include "device.h"
#include "graph.h"

enum { ROWS = 60, COLUMNS = 8, COUNT = 20, LOGIC = WHOLEMEMORY_LOGIC_ERROR };

static bool odd(const wm_rank* r) { return r->rank == r->size - 1; }

typedef struct { wholememory_comm_t comm; wm_array ids, rows; } asked;

static asked ask(wm_rank* r) {
  asked a = {NULL, wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT, 1, 1, 0, 0}), wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0})};
  OK(wholememory_create_communicator(&a.comm, wm_fresh_id(r), r->rank, r->size));
  for (int64_t i = 0; i < COUNT; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&a.ids, i, 0), wm_hash((uint64_t)i, (uint64_t)r->rank) % ROWS);
    for (int64_t c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&a.rows, i, c), wm_first_value(WHOLEMEMORY_DT_FLOAT, i, c, 0));
  }
  wm_array_push(&a.ids);
  wm_array_push(&a.rows);
  wm_finish();
  return a;
}

static void drop(asked* a) {
  wm_finish();
  wm_array_drop(&a->ids);
  wm_array_drop(&a->rows);
  OK(wholememory_destroy_communicator(a->comm));
}

static void told(int code, const char* one, const char* other) {
  CHECK_EQ(code, LOGIC);
  CHECK_HAS(wholememory_get_last_error(), one);
  CHECK_HAS(wholememory_get_last_error(), other);
}

/* Some embedding of the table's type, with a cache at home or none, that can be trained or not. */
static wm_rows embedding(wm_rank* r, asked* a, wm_kind kind, bool cached, bool trained) {
  wm_rows_shape shape = {.kind = kind, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS};
  wm_cache_kind cache = {kind.type, WHOLEMEMORY_ML_DEVICE, "a cache like its table"};
  wm_rows e = cached ? wm_cached_make(a->comm, a->comm, shape, cache, WHOLEMEMORY_AT_READWRITE, 0.5f) : wm_rows_make(a->comm, shape);
  if (trained) {
    wholememory_embedding_optimizer_t sgd;
    OK(wholememory_create_embedding_optimizer(&sgd, WHOLEMEMORY_OPT_SGD));
    OK(wholememory_embedding_set_optimizer(e.embedding, sgd));
    wholememory_destroy_embedding_optimizer(sgd);
  }
  wm_rows_fill(&e, wm_first_value, 0);
  wm_meet(r);
  return e;
}

static int step(asked* a, const wm_rows* e) {
  return wholememory_embedding_gather_gradient_apply(e->embedding, a->ids.tensor, a->rows.tensor, true, 0.5f, NULL, 0);
}

/* The odd rank's step has other columns than the embedding besides, where it is wrong. */
static void steps(wm_rank* r, wm_kind kind, bool odd_is_cached, bool odd_is_wrong) {
  asked a = ask(r);
  wm_rows plain = embedding(r, &a, kind, false, true), cached = embedding(r, &a, kind, true, true);
  bool wrong = odd_is_wrong && odd(r);
  if (wrong) wholememory_tensor_get_tensor_description(a.rows.tensor)->sizes[1] = COLUMNS - 5;
  int code = step(&a, odd(r) == odd_is_cached ? &cached : &plain);
  if (wrong) CHECK_EQ(code, WHOLEMEMORY_INVALID_INPUT);
  else told(code, "with a cache", "without a cache");
  if (wrong) wholememory_tensor_get_tensor_description(a.rows.tensor)->sizes[1] = COLUMNS;
  EXPECT(0, wholememory_communicator_barrier(a.comm));
  EXPECT(0, step(&a, &plain));
  EXPECT(0, step(&a, &cached));
  EXPECT(0, wholememory_communicator_barrier(a.comm));
  wm_rows_drop(&cached);
  wm_rows_drop(&plain);
  drop(&a);
}

/* What a rank passes to a call: one of two things, of which the second makes the ranks meet on the host. */
typedef struct { const void* of[2]; int (*call)(asked*, const void*); const char *words[2]; } choice;

/* The last rank passes the second. Where streams meet, the calls of the others return, and they are told at the barrier; the last one can
 * still make their call. */
static void choose(wm_rank* r, asked* a, choice c) {
  int code = c.call(a, c.of[odd(r)]);
  bool returned = code == 0;
  if (returned) code = wholememory_communicator_barrier(a->comm);
  CHECK_EQ(code, LOGIC);
  wm_share(r, &returned, sizeof returned);
  if (!returned) told(code, c.words[0], c.words[1]);
  else if (!wm_gpu()) FAILED("a call whose ranks meet on the host did not fail");
  if (returned && odd(r)) EXPECT(0, c.call(a, c.of[0]));
  EXPECT(0, wholememory_communicator_barrier(a->comm));
  for (int i = 0; i < 2; i++) EXPECT(0, c.call(a, c.of[i]));
  EXPECT(0, wholememory_communicator_barrier(a->comm));
}

static _Thread_local const wm_rows* adjusted; /* of this rank */

static int gather_adjusting(asked* a, const void* adjust) {
  return wholememory_embedding_gather(adjusted->embedding, a->ids.tensor, a->rows.tensor, adjust != NULL, NULL, 0);
}

static int gather(asked* a, const void* table) { return wholememory_gather(((const wm_table*)table)->window, a->ids.tensor, a->rows.tensor, NULL, NULL, -1); }
static int scatter(asked* a, const void* table) { return wholememory_scatter(a->rows.tensor, a->ids.tensor, ((const wm_table*)table)->window, NULL, NULL, -1); }

static void nodes(wm_rank* r) {
  asked a = ask(r);
  wm_shape shape = {.dtype = WHOLEMEMORY_DT_FLOAT, .dim = 2, .rows = ROWS, .columns = COLUMNS, .stride = COLUMNS};
  wm_table tables[2];
  wm_graph graphs[2];
  for (int i = 0; i < 2; i++) {
    shape.kind = (wm_kind){i ? WHOLEMEMORY_MT_HIERARCHY : WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE, i ? "HIERARCHY DEVICE" : "DISTRIBUTED DEVICE"};
    tables[i] = wm_table_make(a.comm, shape);
    wm_graph_make(&graphs[i], a.comm, (wm_graph_shape){.kind = shape.kind, .columns = WHOLEMEMORY_DT_INT, .weights = WHOLEMEMORY_DT_FLOAT});
  }
  choice c = {{&tables[0], &tables[1]}, gather, {"rank 0 called gather (direct route)", "called gather (hierarchy route)"}};
  choose(r, &a, c);
  if (!wm_gpu()) { /* a scatter waits for its stream; on the host both ways round are the same */
    c = (choice){{&tables[0], &tables[1]}, scatter, {"rank 0 called scatter (direct route)", "called scatter (hierarchy route)"}};
    choose(r, &a, c);
    c = (choice){{&tables[1], &tables[0]}, gather, {"rank 0 called gather (hierarchy route)", "called gather (direct route)"}};
    choose(r, &a, c);
  }
  /* A rank whose graph is wrong alone is refused alone. */
  const int64_t centers[] = {WM_HUB, 3, 9};
  wm_sampling s = {.centers = centers, .count = 3, .center_dtype = WHOLEMEMORY_DT_INT64, .most = 4, .seed = 5};
  wm_graph mixed = graphs[0];
  mixed.columns = graphs[1].columns;
  for (int round = 0; round < 2; round++) {
    if (odd(r) && round == 0) {
      wm_env env;
      wm_env_start(&env);
      wm_call call = wm_sample_call(&mixed, &s, &env);
      CHECK_EQ(call.code, WHOLEMEMORY_INVALID_INPUT);
      CHECK_HAS(wholememory_get_last_error(), "HIERARCHY");
      wm_call_drop(&call);
    } else {
      wm_sample_check(&graphs[0], &s);
    }
  }
  for (int i = 0; i < 2; i++) wm_graph_drop(&graphs[i]), wm_table_drop(&tables[i]);
  drop(&a);
}

static void body(wm_rank* r) {
  if (r->size < 2) SKIP(r, "needs two ranks or more");
  const wm_kind kinds[] = {{WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, "CONTINUOUS HOST"}, {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"}};
  for (int k = 0; k < 2; k++)
    for (int way = 0; way < 4; way++) steps(r, kinds[k], way & 1, way & 2);
  asked a = ask(r);
  wm_rows cached = embedding(r, &a, kinds[1], true, false);
  adjusted = &cached;
  choose(r, &a, (choice){{NULL, "adjust"}, gather_adjusting, {"rank 0 called wholememory_embedding_gather (lines", "called wholememory_embedding_gather (adjusts"}});
  wm_rows_drop(&cached);
  drop(&a);
  if (!r->threads && r->size % 2 == 0) {
    setenv("WHOLEMEMORY_BOOTID", r->rank % 2 ? "second" : "first", 1);
    nodes(r);
    unsetenv("WHOLEMEMORY_BOOTID");
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
