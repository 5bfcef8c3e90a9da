/* A process that forks after init: the parent is unharmed; in the child collectives fail in words, memory that is mapped
 * can still be read, and its exit disturbs nobody. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "cached.h"
#include "device.h"

enum { BROKEN = WHOLEMEMORY_COMMUNICATION_ERROR };

/* CUDA does not work in a child of a process that uses it: whatever needs it fails in words, on memory of any kind. */
static void without_cuda(wm_table* t) {
  int32_t ids[3] = {0, 1, 2};
  float out[3][16];
  memset(out, WM_GUARD_BYTE, sizeof out);
  wholememory_tensor_description_t id_desc = wm_desc(WHOLEMEMORY_DT_INT, 1, 3, 1, 1, 0), out_desc = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 3, 16, 16, 0);
  wholememory_tensor_t id_tensor, out_tensor;
  OK(wholememory_make_tensor_from_pointer(&id_tensor, ids, &id_desc));
  OK(wholememory_make_tensor_from_pointer(&out_tensor, out, &out_desc));
  EXPECT(BROKEN, wholememory_gather(t->root, id_tensor, out_tensor, NULL, NULL, -1));
  CHECK_HAS(wholememory_get_last_error(), "fork");
  EXPECT(BROKEN, wholememory_scatter(out_tensor, id_tensor, t->root, NULL, NULL, -1));
  for (size_t i = 0; i < sizeof out; i++)
    if (!CHECK_EQ(((unsigned char*)out)[i], WM_GUARD_BYTE)) break;
  OK(wholememory_destroy_tensor(id_tensor));
  OK(wholememory_destroy_tensor(out_tensor));
  wholememory_unique_id_t id;
  wholememory_comm_t fresh = NULL;
  OK(wholememory_create_unique_id(&id));
  EXPECT(WHOLEMEMORY_CUDA_ERROR, wholememory_create_communicator(&fresh, id, 0, 1));
  CHECK_HAS(wholememory_get_last_error(), "fork");
  CHECK(fresh == NULL);
}

/* A child may read what is mapped, and change nothing; the parent compares the rows later. */
static void write_refused(wm_table* t) {
  int32_t ids[3] = {0, 1, 2};
  float rows[3][16] = {{0}};
  wholememory_tensor_description_t id_desc = wm_desc(WHOLEMEMORY_DT_INT, 1, 3, 1, 1, 0), row_desc = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 3, 16, 16, 0);
  wholememory_tensor_t id_tensor, row_tensor;
  OK(wholememory_make_tensor_from_pointer(&id_tensor, ids, &id_desc));
  OK(wholememory_make_tensor_from_pointer(&row_tensor, rows, &row_desc));
  EXPECT(BROKEN, wholememory_scatter(row_tensor, id_tensor, t->root, NULL, NULL, -1));
  CHECK_HAS(wholememory_get_last_error(), "fork");
  /* Rows of the table as the output. */
  int64_t from[2] = {10, 0}, to[2] = {13, 16};
  wholememory_tensor_t own_rows;
  OK(wholememory_tensor_get_subtensor(t->root, from, to, &own_rows));
  if (t->shape.kind.type == WHOLEMEMORY_MT_CONTINUOUS) EXPECT(BROKEN, wholememory_gather(t->root, id_tensor, own_rows, NULL, NULL, -1));
  OK(wholememory_destroy_tensor(own_rows));
  OK(wholememory_destroy_tensor(id_tensor));
  OK(wholememory_destroy_tensor(row_tensor));
}

static void child_life(wm_rank* r, wm_table* shared, wm_table* distributed) {
  char whose[40];
  snprintf(whose, sizeof whose, "rank %d", r->rank);
  wholememory_comm_t comm = wm_world(r), none;
  wholememory_handle_t handle;
  EXPECT(BROKEN, wholememory_communicator_barrier(comm));
  CHECK_HAS(wholememory_get_last_error(), "fork");
  CHECK_HAS(wholememory_get_last_error(), whose);
  EXPECT(BROKEN, wholememory_malloc(&handle, 64, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL));
  EXPECT(BROKEN, wholememory_split_communicator(&none, comm, 0, 0));
  if (!wm_gpu()) {
    write_refused(shared);
    write_refused(distributed);
    /* Large enough for the pool of threads, which this process does not have. */
    wm_gather_check(shared, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT64, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 20000});
  }
  int rank = -1;
  EXPECT(0, wholememory_communicator_get_rank(&rank, comm));
  CHECK_EQ(rank, r->rank);
  if (wm_gpu()) {
    without_cuda(shared);
    without_cuda(distributed);
  } else if (r->size > 1) {
    wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 3, 1, 1, 0, 0}), out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 3, 16, 16, 0, 0});
    EXPECT(BROKEN, wholememory_gather(distributed->root, ids.tensor, out.tensor, NULL, NULL, -1));
    wm_array_matches(&out, "output of a gather in a forked child");
  }
  EXPECT(BROKEN, wholememory_destroy_tensor(distributed->root));
  EXPECT(BROKEN, wholememory_destroy_communicator(comm));
  EXPECT(0, wholememory_finalize());
}

/* Threads of the parent that are inside the library, with whatever they hold there, when a child is made. */
typedef struct {
  wholememory_comm_t comm, alone; /* alone: of this rank only */
  wm_rows learner;
  wholememory_handle_t memory;
  _Atomic bool stop;
} busy;

static void* make_and_drop(void* argument) {
  busy* b = argument;
  wholememory_tensor_description_t d;
  wholememory_initialize_tensor_desc(&d);
  while (!b->stop) {
    wholememory_tensor_t tensor;
    OK(wholememory_make_tensor_from_pointer(&tensor, NULL, &d));
    OK(wholememory_destroy_tensor(tensor));
  }
  return NULL;
}

static void* make_and_drop_ids(void* argument) {
  busy* b = argument;
  while (!b->stop) {
    wholememory_unique_id_t id;
    wholememory_comm_t alone;
    OK(wholememory_create_unique_id(&id));
    OK(wholememory_create_communicator(&alone, id, 0, 1));
    OK(wholememory_destroy_communicator(alone));
  }
  return NULL;
}

enum { IDS = 64, COLUMNS = 16, LEARNER_ROWS = 500 };

/* Two gathers, the second one adjusts the cache, and a step: each ends with `want`. The values are left as they come. */
static void learn(const busy* b, int want, int64_t* ids, float* rows, bool adjust) {
  wholememory_tensor_description_t id_desc = wm_desc(WHOLEMEMORY_DT_INT64, 1, IDS, 1, 1, 0), row_desc = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, IDS, COLUMNS, COLUMNS, 0);
  wholememory_tensor_t indices, values;
  OK(wholememory_make_tensor_from_pointer(&indices, ids, &id_desc));
  OK(wholememory_make_tensor_from_pointer(&values, rows, &row_desc));
  EXPECT(want, wholememory_embedding_gather(b->learner.embedding, indices, values, false, NULL, 0));
  EXPECT(want, wholememory_embedding_gather(b->learner.embedding, indices, values, true, NULL, 0));
  EXPECT(want, wholememory_embedding_gather_gradient_apply(b->learner.embedding, indices, values, adjust, 0.1f, NULL, 0));
  OK(wholememory_destroy_tensor(indices));
  OK(wholememory_destroy_tensor(values));
}

static void* learn_on(void* argument) {
  busy* b = argument;
  wm_device_bind(0);
  int64_t own_ids[IDS], *ids = wm_alloc(sizeof own_ids);
  float* rows = wm_alloc(IDS * COLUMNS * sizeof *rows);
  wm_fill(rows, 0, IDS * COLUMNS * sizeof *rows);
  for (uint64_t round = 0; !b->stop; round++) {
    for (int i = 0; i < IDS; i++) own_ids[i] = (int64_t)(wm_hash(round, (uint64_t)i) % LEARNER_ROWS);
    wm_copy(ids, own_ids, sizeof own_ids);
    learn(b, 0, ids, rows, round % 2);
    wm_finish();
  }
  wm_release(ids);
  wm_release(rows);
  return NULL;
}

static void* make_and_drop_memory(void* argument) {
  busy* b = argument;
  while (!b->stop) {
    wholememory_handle_t handle;
    OK(wholememory_malloc(&handle, 4096, b->alone, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, 16, NULL));
    OK(wholememory_free(handle));
  }
  return NULL;
}

static void* wait_for_others(void* argument) {
  OK(wholememory_communicator_barrier(((busy*)argument)->comm));
  return NULL;
}

/* What threads of the parent are at work on, and what is its own: codes or answers, none is waited for. */
static void busy_child(busy* b) {
  wholememory_tensor_description_t d;
  wholememory_tensor_t tensor;
  wholememory_unique_id_t id;
  wholememory_initialize_tensor_desc(&d);
  EXPECT(0, wholememory_make_tensor_from_pointer(&tensor, NULL, &d));
  EXPECT(0, wholememory_destroy_tensor(tensor));
  EXPECT(0, wholememory_create_unique_id(&id));
  EXPECT(BROKEN, wholememory_communicator_barrier(b->comm));
  int64_t ids[IDS] = {0};
  float rows[IDS * COLUMNS] = {0};
  learn(b, BROKEN, ids, rows, false);
  wholememory_cache_stats_t stats = {.struct_size = sizeof stats};
  EXPECT(BROKEN, wholememory_embedding_get_cache_stats(b->learner.embedding, &stats));
  EXPECT(BROKEN, wholememory_embedding_writeback_cache(b->learner.embedding, 0));
  /* What these find depends on the moment of the fork. */
  void* local;
  size_t size_bytes, offset_bytes;
  (void)wholememory_get_local_memory(&local, &size_bytes, &offset_bytes, b->memory);
  (void)wholememory_embedding_get_embedding_tensor(b->learner.embedding);
  (void)wholememory_embedding_get_optimizer_state(b->learner.embedding, "m");
  (void)wholememory_destroy_embedding(b->learner.embedding);
  EXPECT(BROKEN, wholememory_free(b->memory));
  EXPECT(BROKEN, wholememory_destroy_communicator(b->alone));
  EXPECT(BROKEN, wholememory_destroy_communicator(b->comm));
  EXPECT(0, wholememory_finalize());
}

static void busy_begin(busy* b) {
  wholememory_unique_id_t id;
  OK(wholememory_create_unique_id(&id));
  OK(wholememory_create_communicator(&b->alone, id, 0, 1));
  OK(wholememory_malloc(&b->memory, 4096, b->alone, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, 16, NULL));
  wm_rows_shape shape = {.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = LEARNER_ROWS, .columns = COLUMNS};
  b->learner = wm_cached_make(b->alone, b->alone, shape, wm_caches[0], WHOLEMEMORY_AT_READWRITE, 0.2f);
  wm_rows_fill(&b->learner, wm_zero_value, 0);
  wholememory_embedding_optimizer_t adam;
  OK(wholememory_create_embedding_optimizer(&adam, WHOLEMEMORY_OPT_LAZY_ADAM));
  OK(wholememory_embedding_set_optimizer(b->learner.embedding, adam));
  wholememory_destroy_embedding_optimizer(adam);
}

static void busy_end(busy* b) {
  wm_rows_drop(&b->learner);
  OK(wholememory_free(b->memory));
  OK(wholememory_destroy_communicator(b->alone));
}

static void busy_parent(wm_rank* r) {
  enum { CHILDREN = 50, THREADS = 6 };
  busy b = {.stop = false};
  OK(wholememory_split_communicator(&b.comm, wm_world(r), 0, r->rank));
  void* (*const lives[THREADS])(void*) = {make_and_drop, make_and_drop, make_and_drop_ids, learn_on, make_and_drop_memory, wait_for_others};
  pthread_t threads[THREADS];
  if (r->rank == 0) {
    busy_begin(&b);
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, lives[i], &b) == 0);
    usleep(20000);
    for (int i = 0; i < CHILDREN && !wm_failures(); i++) {
      pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        wm_forked();
        wm_alarm(20);
        busy_child(&b);
        _exit(wm_failures() ? WM_FAIL : 0);
      }
      int state;
      REQUIRE(waitpid(child, &state, 0) == child);
      CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    b.stop = true;
  }
  wm_meet(r);
  if (r->rank != 0) wait_for_others(&b);
  for (int i = 0; r->rank == 0 && i < THREADS; i++) pthread_join(threads[i], NULL);
  if (r->rank == 0) busy_end(&b);
  OK(wholememory_destroy_communicator(b.comm));
}

static void fork_once(void* child) {
  if (*(pid_t*)child == -1) *(pid_t*)child = fork();
}

/* A callback that forks; the child goes back into the call, which is its parent's to make: it fails there, and the ranks are unharmed. */
static void fork_in_a_callback(wm_rank* r) {
  if (wm_gpu() || r->size == 1) return; /* a child cannot use a GPU at all */
  setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  unsetenv("WHOLEMEMORY_ROUTE");
  wm_table table = wm_table_make(comm, (wm_shape){.kind = wm_kinds[5], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 100, .columns = 4});
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 90, 1, 1, 0, 0}), out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 90, 4, 4, 0, 0});
  for (int i = 0; i < 90; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)(i * 7 % 100));
  wm_array_push(&ids);
  pid_t child = -1;
  wm_env env;
  wm_env_start(&env);
  if (r->rank == r->size - 1) {
    env.on_malloc = fork_once;
    env.argument = &child;
  } else {
    child = 1; /* not this rank's to make */
  }
  int code = wholememory_gather(table.root, ids.tensor, out.tensor, &env.fns, NULL, -1);
  if (child == 0) {
    wm_forked();
    wm_alarm(20);
    CHECK_EQ(code, BROKEN);
    CHECK_HAS(wholememory_get_last_error(), "fork");
    EXPECT(0, wholememory_finalize());
    _exit(wm_failures() ? WM_FAIL : 0);
  }
  EXPECT(0, code);
  CHECK(child != -1);
  if (r->rank == r->size - 1 && child > 0) {
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
  BALANCED(&env);
  wm_array_drop(&ids);
  wm_array_drop(&out);
  wm_gather_check(&table, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 100});
  wm_table_drop(&table);
  OK(wholememory_destroy_communicator(comm));
}

static void body(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  wm_table shared = wm_table_make(comm, (wm_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 5000, .columns = 16});
  wm_table distributed = wm_table_make(comm, (wm_shape){.kind = wm_kinds[5], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 100, .columns = 16});
  /* The pool exists before the fork. */
  wm_lookup large = {.index_dtype = WHOLEMEMORY_DT_INT64, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 20000};
  wm_gather_check(&shared, large);
  for (int round = 0; round < 3; round++) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      wm_forked();
      wm_alarm(20);
      if (round < 2) child_life(r, &shared, &distributed);
      if (round == 1) wm_end(wm_failures() ? WM_FAIL : 0);
      exit(wm_failures() ? WM_FAIL : 0); /* round 2: without a word to the library */
    }
    /* While the child lives, and after it is gone. */
    for (int i = 0; i < 3; i++) {
      wm_gather_check(&distributed, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_HALF, .count = 100, .seed = i});
      OK(wholememory_communicator_barrier(comm));
    }
    int state;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    wm_gather_check(&shared, large);
    OK(wholememory_communicator_barrier(comm));
  }
  wm_table_drop(&shared);
  wm_table_drop(&distributed);
  fork_in_a_callback(r);
#ifdef __SANITIZE_ADDRESS__
  /* A child is stuck in the sanitizer's allocator where another thread of its parent was in there. */
  (void)busy_parent;
  wm_leave_out(r, "forks beside threads that allocate");
#else
  busy_parent(r);
#endif
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
