/* Gather, scatter and a single rank's gradient steps recorded in CUDA graphs, in every capture mode and without a call before, and
 * replayed with other ids; scratch through the callbacks. Calls that cannot be recorded are refused and leave the recording whole,
 * also that of another thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>
#include <wholememory/wholememory_op.h>

#include "cached.h"
#include "device.h"
#include "env.h"
#include "rows.h"
#include "table.h"

static struct {
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_synchronise)(void*);
  int (*begin)(void*, int);
  int (*end)(void*, void**);
  int (*nodes)(void*, void**, size_t*);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch)(void*, void*);
  int (*graph_destroy)(void*);
  int (*exec_destroy)(void*);
} gpu;

static void look_up(void) {
  *(void**)&gpu.stream_create = wm_driver_function("cuStreamCreate");
  *(void**)&gpu.stream_destroy = wm_driver_function("cuStreamDestroy_v2");
  *(void**)&gpu.stream_synchronise = wm_driver_function("cuStreamSynchronize");
  *(void**)&gpu.begin = wm_driver_function("cuStreamBeginCapture_v2");
  *(void**)&gpu.end = wm_driver_function("cuStreamEndCapture");
  *(void**)&gpu.nodes = wm_driver_function("cuGraphGetNodes");
  *(void**)&gpu.instantiate = wm_driver_function("cuGraphInstantiateWithFlags");
  *(void**)&gpu.launch = wm_driver_function("cuGraphLaunch");
  *(void**)&gpu.graph_destroy = wm_driver_function("cuGraphDestroy");
  *(void**)&gpu.exec_destroy = wm_driver_function("cuGraphExecDestroy");
}

static const char* const modes[] = {"global", "thread-local", "relaxed"};
enum { MODES = 3, BLOCKING = 0, NON_BLOCKING = 1 };
/* CU_STREAM_PER_THREAD. */
static void* const PER_THREAD = (void*)2;

/* Scratch that stays until the end, since replays use it again. */
typedef struct { wholememory_env_func_t fns; void* blocks[16]; int count, creates, destroys; } keeper;

static void keep_create(void** context, void* global) { *context = global, ((keeper*)global)->creates++; }
static void keep_destroy(void* context, void* global) { (void)context, ((keeper*)global)->destroys++; }
static void* keep_malloc(wholememory_tensor_description_t* d, wholememory_memory_allocation_type_t kind, void* context, void* global) {
  (void)context;
  keeper* k = global;
  REQUIRE(kind == WHOLEMEMORY_MA_DEVICE && k->count < 16);
  return k->blocks[k->count++] = wm_alloc(wm_desc_bytes(d));
}
static void keep_free(void* context, void* global) { (void)context, (void)global; }

static keeper* keeper_make(void) {
  keeper* k = calloc(1, sizeof *k);
  REQUIRE(k != NULL);
  k->fns.temporary_fns.create_memory_context_fn = keep_create;
  k->fns.temporary_fns.destroy_memory_context_fn = keep_destroy;
  k->fns.temporary_fns.malloc_fn = keep_malloc;
  k->fns.temporary_fns.free_fn = keep_free;
  k->fns.temporary_fns.global_context = k;
  return k;
}

static void keeper_drop(keeper* k) {
  CHECK_EQ(k->creates, k->destroys);
  for (int i = 0; i < k->count; i++) wm_release(k->blocks[i]);
  free(k);
}

typedef struct { wm_table* t; wm_array ids, out; } lookup;

static lookup lookup_make(wm_table* t, int64_t count) {
  lookup l = {t, wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0}),
              wm_array_make((wm_view){t->shape.dtype, 2, count, t->shape.columns, t->shape.columns + 1, 0, 0})};
  return l;
}

/* New ids, some out of range, and an output that nobody has written. */
static void lookup_prepare(lookup* l, int seed) {
  memset(l->out.host, WM_GUARD_BYTE, l->out.bytes);
  for (int64_t i = 0; i < l->ids.view.rows; i++) {
    uint64_t h = wm_hash((uint64_t)(seed * 64 + l->t->rank), (uint64_t)i);
    int64_t id = h % 9 == 0 ? -1 - (int64_t)(h % 5) : (int64_t)((h >> 8) % (uint64_t)l->t->shape.rows);
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&l->ids, i, 0), (uint64_t)id);
  }
  wm_array_push(&l->ids);
  wm_array_push(&l->out);
}

static void lookup_check(lookup* l, const char* what) {
  for (int64_t i = 0; i < l->ids.view.rows; i++) {
    int64_t id = (int64_t)wm_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&l->ids, i, 0));
    for (int64_t c = 0; c < l->t->shape.columns && id >= 0; c++)
      wm_set_bits(l->t->shape.dtype, wm_array_at(&l->out, i, c), wm_value(l->t->shape.dtype, id, c, 0));
  }
  wm_array_matches(&l->out, what);
}

static void lookup_drop(lookup* l) {
  wm_array_drop(&l->ids);
  wm_array_drop(&l->out);
}

static int lookup_run(lookup* l, wholememory_env_func_t* fns, void* stream) {
  return wholememory_gather(l->t->window, l->ids.tensor, l->out.tensor, fns, stream, -1);
}

/* Ranks that are threads share a context: while one records, none may do what a recording forbids. */
static void start_recording(wm_rank* r, void* stream, int mode) {
  wm_finish();
  wm_meet(r);
  if (stream) CHECK_EQ(gpu.begin(stream, mode), 0);
}

/* What was recorded, ready to be replayed; NULL with a failure that names the case. */
static void* recorded(wm_rank* r, void* stream, const char* what) {
  void *graph = NULL, *exec = NULL;
  size_t nodes = 0;
  int code = stream ? gpu.end(stream, &graph) : 0;
  wm_meet(r);
  if (!stream) return NULL;
  if (code != 0 || !graph) {
    FAILED("%s: the recording ends with driver error %d", what, code);
    return NULL;
  }
  CHECK_EQ(gpu.nodes(graph, NULL, &nodes), 0);
  if (nodes == 0) FAILED("%s: nothing was recorded", what);
  CHECK_EQ(gpu.instantiate(&exec, graph, 0), 0);
  CHECK_EQ(gpu.graph_destroy(graph), 0);
  return exec;
}

static void replays(lookup* l, void* exec, void* stream, const char* what) {
  for (int seed = 2; exec && seed < 5; seed++) {
    lookup_prepare(l, seed);
    wm_finish();
    CHECK_EQ(gpu.launch(exec, stream), 0);
    CHECK_EQ(gpu.stream_synchronise(stream), 0);
    lookup_check(l, what);
  }
  if (exec) CHECK_EQ(gpu.exec_destroy(exec), 0);
}

static void gathers(wm_rank* r, wm_table* t, int mode, int flags, int64_t count, bool own_scratch) {
  char what[200];
  snprintf(what, sizeof what, "gather of %lld rows of %s recorded in %s mode on a %s stream%s", (long long)count, t->shape.kind.name,
           modes[mode], flags ? "non-blocking" : "blocking", own_scratch ? ", no callbacks" : "");
  lookup l = lookup_make(t, count);
  keeper* scratch = keeper_make();
  void* stream;
  REQUIRE(gpu.stream_create(&stream, (unsigned)flags) == 0);
  lookup_prepare(&l, 1);
  start_recording(r, stream, mode);
  int code = lookup_run(&l, own_scratch ? NULL : &scratch->fns, stream);
  void* exec = recorded(r, stream, what);
  wm_check_code(0, code, __FILE__, __LINE__, what);
  wm_array_matches(&l.out, what); /* nothing was done yet */
  replays(&l, exec, stream, what);
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  keeper_drop(scratch);
  lookup_drop(&l);
}

/* Rows written by a replay are those of the input then. */
static void scatters(wm_rank* r, wm_table* t, int mode) {
  int64_t own = t->shape.rows / t->size, first = own * t->rank;
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, own, 1, 1, 0, 0});
  wm_array in = wm_array_make((wm_view){t->shape.dtype, 2, own, t->shape.columns, t->shape.columns, 0, 0});
  for (int64_t i = 0; i < own; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)(first + i));
  wm_array_push(&ids);
  wm_array_push(&in);
  void* stream;
  REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  start_recording(r, stream, mode);
  int code = wholememory_scatter(in.tensor, ids.tensor, t->window, NULL, stream, -1);
  void* exec = recorded(r, stream, "a scatter");
  EXPECT(0, code);
  for (int salt = 3; exec && salt < 5; salt++) {
    for (int64_t i = 0; i < own; i++)
      for (int64_t c = 0; c < t->shape.columns; c++)
        wm_set_bits(t->shape.dtype, wm_array_at(&in, i, c), wm_value(t->shape.dtype, first + i, c, salt));
    wm_array_push(&in);
    wm_finish();
    CHECK_EQ(gpu.launch(exec, stream), 0);
    CHECK_EQ(gpu.stream_synchronise(stream), 0);
    OK(wholememory_communicator_barrier(t->comm));
    unsigned char* host;
    int64_t from, rows = wm_table_local(t, &host, &from);
    bool good = true;
    for (int64_t i = 0; i < rows && good; i++)
      for (int64_t c = 0; c < t->shape.columns && good; c++)
        if (from + i < own * t->size)
          good = CHECK_EQ(wm_bits(t->shape.dtype, host + (size_t)(i * t->shape.stride + c) * wm_bytes_of(t->shape.dtype)),
                          wm_value(t->shape.dtype, from + i, c, salt));
    free(host);
    OK(wholememory_communicator_barrier(t->comm));
  }
  if (exec) CHECK_EQ(gpu.exec_destroy(exec), 0);
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  wm_table_fill(t, 0);
  wm_array_drop(&ids);
  wm_array_drop(&in);
}

/* Ranks that meet on the host: what records is refused alone, once by one rank and once by all, and the recording goes on. Also in the
 * thread's own default stream, which is where a refused rank takes part otherwise. */
static void refused(wm_rank* r, wm_table* t, wm_table* mapped, int mode, int who, bool own_default) {
  bool records = who < 0 || r->rank == who;
  lookup l = lookup_make(t, 50), other = lookup_make(mapped, 60);
  keeper* scratch = keeper_make();
  void* stream = PER_THREAD;
  if (!own_default) REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  lookup_prepare(&l, 9);
  lookup_prepare(&other, 9);
  start_recording(r, records ? stream : NULL, mode);
  int code = lookup_run(&l, &scratch->fns, stream);
  EXPECT(records ? WHOLEMEMORY_NOT_SUPPORTED : 0, code);
  if (records) {
    CHECK_HAS(wholememory_get_last_error(), "recording");
    EXPECT(0, lookup_run(&other, &scratch->fns, stream));
  }
  void* exec = recorded(r, records ? stream : NULL, "a recording with a refused call");
  if (records) {
    wm_array_matches(&l.out, "output of a refused gather");
    replays(&other, exec, stream, "what was recorded behind a refused call");
  } else {
    CHECK_EQ(gpu.stream_synchronise(stream), 0);
    lookup_check(&l, "a gather beside one that is refused");
  }
  if (!own_default) CHECK_EQ(gpu.stream_destroy(stream), 0);
  keeper_drop(scratch);
  lookup_drop(&l);
  lookup_drop(&other);
}

/* While this thread records, another one uses the library on a stream of its own: neither disturbs the other. */
static void* beside(void* argument) {
  lookup* l = argument;
  wm_set_rank(l->t->rank);
  wm_device_bind(l->t->rank);
  void* stream;
  REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  EXPECT(0, lookup_run(l, NULL, stream));
  CHECK_EQ(gpu.stream_synchronise(stream), 0);
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  return NULL;
}

static void another_thread(wm_rank* r, wm_table* t) {
  lookup mine = lookup_make(t, 300), theirs = lookup_make(t, 400);
  lookup_prepare(&mine, 1);
  lookup_prepare(&theirs, 2);
  void* stream;
  pthread_t thread;
  REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  /* Thread-local, so that the other thread may make its stream. */
  start_recording(r, stream, 1);
  REQUIRE(pthread_create(&thread, NULL, beside, &theirs) == 0);
  pthread_join(thread, NULL);
  EXPECT(0, lookup_run(&mine, NULL, stream));
  void* exec = recorded(r, stream, "a recording beside another thread");
  lookup_check(&theirs, "a gather while another thread records");
  replays(&mine, exec, stream, "a gather recorded beside another thread");
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  lookup_drop(&mine);
  lookup_drop(&theirs);
}

/* Gradients of 1, `count` / STEP_ROWS for every row. */
typedef struct { wm_rows* e; int rank; void* stream; wm_array ids, grads; } step_beside;

enum { STEP_ROWS = 40, STEP_COLUMNS = 16 };

static void prepare_step(step_beside* s, int count) {
  s->ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0});
  s->grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, count, STEP_COLUMNS, STEP_COLUMNS, 0, 0});
  for (int i = 0; i < count; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&s->ids, i, 0), (uint64_t)(i % STEP_ROWS));
    for (int c = 0; c < STEP_COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&s->grads, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, 1));
  }
  wm_array_push(&s->ids);
  wm_array_push(&s->grads);
  wm_finish();
}

static void* run_step(void* argument) {
  step_beside* s = argument;
  wm_set_rank(s->rank);
  wm_device_bind(s->rank);
  EXPECT(0, wholememory_embedding_gather_gradient_apply(s->e->embedding, s->ids.tensor, s->grads.tensor, false, 1, NULL, (int64_t)s->stream));
  return NULL;
}

static void wants_sgd(wm_rows* e) {
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_SGD));
  EXPECT(0, wholememory_embedding_set_optimizer(e->embedding, made));
  wholememory_destroy_embedding_optimizer(made);
}

/* Every element of the table itself. */
static void holds(wm_rows* e, double value) {
  size_t bytes;
  unsigned char* held = wm_local_copy(e->tensor, &bytes);
  for (int64_t local = 0; local < (int64_t)(bytes / (e->stride * 4)); local++)
    for (int64_t c = 0; c < STEP_COLUMNS && wm_rows_held(e, local) >= 0; c++)
      CHECK_EQ(wm_bits(WHOLEMEMORY_DT_FLOAT, held + (local * e->stride + c) * 4), wm_rounded(WHOLEMEMORY_DT_FLOAT, value));
  free(held);
}

/* Who changes a cache has a turn, which no recording has: also a single rank's step is refused, changes nothing, and can be
 * repeated outside. Once in the thread's own default stream, which is where a refused rank takes part otherwise. */
static void refused_step(wm_rank* r, wm_table* mapped, int mode) {
  wm_rows e = wm_cached_make(mapped->comm, mapped->comm, (wm_rows_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = STEP_ROWS, .columns = STEP_COLUMNS}, wm_caches[0], WHOLEMEMORY_AT_READWRITE, 0.5f);
  wm_rows_fill(&e, wm_zero_value, 0);
  wants_sgd(&e);
  lookup other = lookup_make(mapped, 60);
  lookup_prepare(&other, 9);
  step_beside s = {.e = &e, .rank = r->rank};
  prepare_step(&s, 2 * STEP_ROWS);
  bool own_default = mode == 1;
  s.stream = PER_THREAD;
  if (!own_default) REQUIRE(gpu.stream_create(&s.stream, NON_BLOCKING) == 0);
  start_recording(r, s.stream, mode);
  EXPECT(WHOLEMEMORY_NOT_SUPPORTED, wholememory_embedding_gather_gradient_apply(e.embedding, s.ids.tensor, s.grads.tensor, true, 1, NULL, (int64_t)s.stream));
  CHECK_HAS(wholememory_get_last_error(), "recording");
  EXPECT(0, lookup_run(&other, NULL, s.stream));
  void* exec = recorded(r, s.stream, "a recording with a refused step");
  replays(&other, exec, s.stream, "what was recorded behind a refused step");
  run_step(&s);
  EXPECT(0, wholememory_embedding_writeback_cache(e.embedding, (int64_t)s.stream));
  CHECK_EQ(gpu.stream_synchronise(s.stream), 0);
  OK(wholememory_communicator_barrier(mapped->comm));
  holds(&e, -2. * r->size);
  if (!own_default) CHECK_EQ(gpu.stream_destroy(s.stream), 0);
  wm_array_drop(&s.ids);
  wm_array_drop(&s.grads);
  OK(wholememory_communicator_barrier(mapped->comm));
  wm_rows_drop(&e);
  lookup_drop(&other);
}

/* A single rank's steps without a cache: every replay learns from the ids and gradients that are there then. Without callbacks,
 * whose scratch stays, the recording is spared. */
static void steps(wm_rank* r, const wm_kind* kind, int mode) {
  enum { IDS = 3 * STEP_ROWS };
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *kind, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = STEP_ROWS, .columns = STEP_COLUMNS});
  wm_rows_fill(&e, wm_zero_value, 0);
  wants_sgd(&e);
  keeper* scratch = keeper_make();
  step_beside s = {.e = &e, .rank = r->rank};
  prepare_step(&s, IDS);
  REQUIRE(gpu.stream_create(&s.stream, NON_BLOCKING) == 0);
  start_recording(r, s.stream, mode);
  EXPECT(WHOLEMEMORY_NOT_SUPPORTED, wholememory_embedding_gather_gradient_apply(e.embedding, s.ids.tensor, s.grads.tensor, false, 1, NULL, (int64_t)s.stream));
  CHECK_HAS(wholememory_get_last_error(), "p_env_fns");
  EXPECT(0, wholememory_embedding_gather_gradient_apply(e.embedding, s.ids.tensor, s.grads.tensor, false, 1, &scratch->fns, (int64_t)s.stream));
  void* exec = recorded(r, s.stream, "a gradient step");
  holds(&e, 0);
  double want[STEP_ROWS] = {0};
  for (int turn = 1; exec && turn < 5; turn++) {
    for (int i = 0; i < IDS; i++) {
      /* A row that all name, some, none that exist; then as at first. */
      int id = turn == 1 ? 7 : turn == 2 ? (int)(wm_hash((uint64_t)turn, (uint64_t)i) % (2 * STEP_ROWS)) - STEP_ROWS / 2 : turn == 3 ? -1 - i : i % STEP_ROWS;
      wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&s.ids, i, 0), (uint64_t)(int64_t)id);
      for (int c = 0; c < STEP_COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&s.grads, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, turn));
      if (id >= 0 && id < STEP_ROWS) want[id] -= turn;
    }
    wm_array_push(&s.ids);
    wm_array_push(&s.grads);
    wm_finish();
    CHECK_EQ(gpu.launch(exec, s.stream), 0);
    CHECK_EQ(gpu.stream_synchronise(s.stream), 0);
    size_t bytes;
    unsigned char* held = wm_local_copy(e.tensor, &bytes);
    for (int64_t row = 0; row < STEP_ROWS; row++)
      for (int64_t c = 0; c < STEP_COLUMNS; c++)
        CHECK_EQ(wm_bits(WHOLEMEMORY_DT_FLOAT, held + (row * e.stride + c) * 4), wm_rounded(WHOLEMEMORY_DT_FLOAT, want[row]));
    free(held);
  }
  if (exec) CHECK_EQ(gpu.exec_destroy(exec), 0);
  CHECK_EQ(gpu.stream_destroy(s.stream), 0);
  keeper_drop(scratch);
  wm_array_drop(&s.ids);
  wm_array_drop(&s.grads);
  wm_rows_drop(&e);
}

/* Calls that wait for what they write, also by themselves, are refused before they ask for memory. */
static void refused_waits(wm_table* mapped, int mode) {
  lookup other = lookup_make(mapped, 60);
  lookup_prepare(&other, 9);
  enum { COUNT = 8 };
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0}), pointers = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT + 1, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT + 1, 1, 1, 0, 0}), line = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 1, COUNT, COUNT, 0, 0});
  for (int k = 0; k <= COUNT; k++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&pointers, k, 0), (uint64_t)k);
    if (k < COUNT) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, k, 0), (uint64_t)k);
  }
  wm_array* arrays[] = {&ids, &pointers, &out, &line};
  for (int i = 0; i < 4; i++) wm_array_push(arrays[i]);
  wm_env env;
  wm_env_start(&env);
  wm_context made;
  wm_context_start(&made, &env);
  void* stream;
  REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  wm_finish();
  CHECK_EQ(gpu.begin(stream, mode), 0);
  for (int call = 0; call < 3; call++) {
    int code = call == 0   ? wholememory_env_test_op(ids.tensor, line.tensor, &made, NULL, NULL, 1, &env.fns, stream)
               : call == 1 ? graph_append_unique(ids.tensor, ids.tensor, &made, out.tensor, &env.fns, stream)
                           : wholegraph_csr_unweighted_sample_without_replacement(pointers.tensor, ids.tensor, ids.tensor, 2, out.tensor, &made, NULL, NULL, 1, &env.fns, stream);
    EXPECT(WHOLEMEMORY_NOT_SUPPORTED, code);
    CHECK_HAS(wholememory_get_last_error(), "recording");
  }
  EXPECT(0, lookup_run(&other, NULL, stream));
  void *graph = NULL, *exec = NULL;
  REQUIRE(gpu.end(stream, &graph) == 0 && graph);
  CHECK_EQ(gpu.instantiate(&exec, graph, 0), 0);
  CHECK_EQ(gpu.graph_destroy(graph), 0);
  CHECK_EQ(made.mallocs, 0);
  CHECK_EQ(env.order[0], 0);
  replays(&other, exec, stream, "what was recorded behind calls that wait");
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  wm_context_drop(&made);
  for (int i = 0; i < 4; i++) wm_array_drop(arrays[i]);
  lookup_drop(&other);
}

/* While this thread records, another one lets the ranks learn from more gradients than ever before: what these are left in has to
 * grow, and what it was before has to go. */
static void learning_beside(wm_rank* r, wm_table* t, int mode) {
  wm_rows e = wm_rows_make(t->comm, (wm_rows_shape){.kind = wm_kinds[0], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = STEP_ROWS, .columns = STEP_COLUMNS});
  wm_rows_fill(&e, wm_zero_value, 0);
  wants_sgd(&e);
  lookup mine = lookup_make(t, 300);
  lookup_prepare(&mine, 1);
  step_beside first = {.e = &e, .rank = r->rank}, second = first;
  prepare_step(&first, STEP_ROWS);
  prepare_step(&second, 2000 * STEP_ROWS);
  void* stream;
  pthread_t thread;
  REQUIRE(gpu.stream_create(&stream, NON_BLOCKING) == 0);
  REQUIRE(gpu.stream_create(&first.stream, NON_BLOCKING) == 0);
  second.stream = first.stream;
  run_step(&first);
  CHECK_EQ(gpu.stream_synchronise(first.stream), 0);
  start_recording(r, stream, mode);
  REQUIRE(pthread_create(&thread, NULL, run_step, &second) == 0);
  pthread_join(thread, NULL);
  EXPECT(0, lookup_run(&mine, NULL, stream));
  void* exec = recorded(r, stream, "a recording beside a gradient step");
  /* Not by the other thread: some recordings allow nobody to wait for a stream. */
  CHECK_EQ(gpu.stream_synchronise(second.stream), 0);
  replays(&mine, exec, stream, "a gather recorded beside a gradient step");
  OK(wholememory_communicator_barrier(t->comm));
  holds(&e, -2001. * r->size);
  CHECK_EQ(gpu.stream_destroy(stream), 0);
  CHECK_EQ(gpu.stream_destroy(first.stream), 0);
  wm_array_drop(&first.ids);
  wm_array_drop(&first.grads);
  wm_array_drop(&second.ids);
  wm_array_drop(&second.grads);
  OK(wholememory_communicator_barrier(t->comm));
  wm_rows_drop(&e);
  lookup_drop(&mine);
}

/* Ranks that each have a GPU of their own, with no communicator of other threads, and map each other's memory meet in the order of
 * their streams: all of them record. */
static bool meets_on_streams(const wm_rank* r, wholememory_comm_t comm) {
  return wm_gpus() >= r->size &&
         wholememory_communicator_support_type_location(comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE) == 0;
}

static void body(wm_rank* r) {
  if (!wm_gpu()) SKIP(r, "there are no graphs without a GPU");
  look_up();
  wholememory_comm_t comm = wm_world(r);
  wm_table mapped = wm_table_make(comm, (wm_shape){.kind = wm_kinds[0], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 1000, .columns = 20, .stride = 20});
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* kind = &wm_kinds[k];
    if (!wm_kind_here(r, comm, kind)) continue;
    wm_table t = wm_table_make(comm, (wm_shape){.kind = *kind, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 3000, .columns = 33, .stride = 40});
    bool together = kind->type == WHOLEMEMORY_MT_DISTRIBUTED || kind->type == WHOLEMEMORY_MT_HIERARCHY;
    for (int mode = 0; mode < MODES; mode++) {
      if (together && r->size > 1 && !meets_on_streams(r, comm)) {
        for (int who = -1; who < r->size; who++) refused(r, &t, &mapped, mode, who, who == mode);
        continue;
      }
      gathers(r, &t, mode, NON_BLOCKING, 500, false);
      gathers(r, &t, mode, BLOCKING, 500, true);
      scatters(r, &t, mode);
      if (r->size == 1) steps(r, kind, mode);
    }
    wm_table_drop(&t);
  }
  /* So many short rows of the host's memory are read in an order of their own, which takes scratch. */
  wm_table large = wm_table_make(comm, (wm_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 3 << 20, .columns = 8, .stride = 8});
  gathers(r, &large, 0, NON_BLOCKING, 40000, false);
  gathers(r, &large, 0, NON_BLOCKING, 40000, true);
  wm_table_drop(&large);
  another_thread(r, &mapped);
  for (int mode = 0; mode < MODES; mode++) {
    refused_step(r, &mapped, mode);
    if (r->size == 1) refused_waits(&mapped, mode);
    learning_beside(r, &mapped, mode);
  }
  wm_table_drop(&mapped);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
