/* Callbacks that fork, each of them in turn, while a call is under way; the child goes back into the call. The call is its parent's:
 * the child writes nothing that is shared, and its parent and the other ranks are unharmed. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cached.h"
#include "device.h"

enum { BROKEN = WHOLEMEMORY_COMMUNICATION_ERROR, ROWS = 300, COLUMNS = 8, IDS = 200, POSITIONS = 14 };

/* Forks at the callback number `at` of a call, and waits there for what the child does. */
typedef struct { int at, now; bool child; } forker;

static void maybe_fork(void* argument) {
  forker* f = argument;
  if (f->child || f->now++ != f->at) return;
  fflush(stdout);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    f->child = true;
    wm_forked();
    wm_alarm(20);
    return;
  }
  int state;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

/* The end of a child that came back with `code`: its own life works. */
static void end_of_child(int code) {
  if (code != 0) {
    CHECK_EQ(code, BROKEN);
    CHECK_HAS(wholememory_get_last_error(), "fork");
  }
  wholememory_unique_id_t id;
  wholememory_comm_t own;
  OK(wholememory_create_unique_id(&id));
  OK(wholememory_create_communicator(&own, id, 0, 1));
  EXPECT(0, wholememory_finalize());
  _exit(wm_failures() ? WM_FAIL : 0);
}

typedef int call(void* argument, wm_env* env);
/* Makes the call while this rank, if it is the last one, forks at callback `at`. */
static void with_fork(const wm_rank* r, int at, call* make, void* argument) {
  forker f = {.at = r->rank == r->size - 1 ? at : -1};
  wm_env env;
  wm_env_start(&env);
  env.on_call = maybe_fork;
  env.argument = &f;
  int code = make(argument, &env);
  if (f.child) end_of_child(code);
  EXPECT(0, code);
  BALANCED(&env);
}

typedef struct { const wm_rows* e; wm_array ids, rows; bool adjust; } request;

static request request_make(const wm_rows* e, uint64_t seed) {
  request q = {.e = e, .ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, IDS, 1, 1, 0, 0}),
               .rows = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, IDS, COLUMNS, COLUMNS, 0, 0})};
  for (int64_t i = 0; i < IDS; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&q.ids, i, 0), wm_hash(seed, (uint64_t)i) % ROWS);
    for (int64_t c = 0; c < COLUMNS; c++)
      wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&q.rows, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, (double)((i + c) % 7) - 3));
  }
  wm_array_push(&q.ids);
  wm_array_push(&q.rows);
  return q;
}

static void request_drop(request* q) {
  wm_array_drop(&q->ids);
  wm_array_drop(&q->rows);
}

static int gather_call(void* argument, wm_env* env) {
  request* q = argument;
  return wholememory_embedding_gather(q->e->embedding, q->ids.tensor, q->rows.tensor, q->adjust, &env->fns, 0);
}
static int step_call(void* argument, wm_env* env) {
  request* q = argument;
  return wholememory_embedding_gather_gradient_apply(q->e->embedding, q->ids.tensor, q->rows.tensor, q->adjust, 0.1f, &env->fns, 0);
}
/* Steps on an embedding whose callbacks fork, and on a twin whose do not: the rows stay the same. */
static void steps(wm_rank* r, wholememory_comm_t comm, const wm_kind* kind, bool cached) {
  wm_rows_shape shape = {.kind = *kind, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS};
  wm_rows both[2];
  wholememory_embedding_optimizer_t adam;
  OK(wholememory_create_embedding_optimizer(&adam, WHOLEMEMORY_OPT_LAZY_ADAM));
  for (int k = 0; k < 2; k++) {
    both[k] = cached ? wm_cached_make(comm, comm, shape, wm_caches[kind->type == WHOLEMEMORY_MT_DISTRIBUTED ? 2 : 0], WHOLEMEMORY_AT_READWRITE, 0.3f) : wm_rows_make(comm, shape);
    wm_rows_fill(&both[k], wm_first_value, 0);
    OK(wholememory_embedding_set_optimizer(both[k].embedding, adam));
  }
  wholememory_destroy_embedding_optimizer(adam);
  for (int at = -1; at < POSITIONS && !wm_failures(); at++) {
    for (int k = 0; k < 2; k++) {
      request q = request_make(&both[k], (uint64_t)(at * 8 + r->rank));
      q.adjust = cached;
      with_fork(r, k == 0 ? at : -1, step_call, &q);
      request_drop(&q);
    }
    OK(wholememory_communicator_barrier(comm));
  }
  unsigned char* bytes[2];
  size_t size_bytes[2];
  for (int k = 0; k < 2; k++) {
    OK(wholememory_embedding_writeback_cache(both[k].embedding, 0));
    OK(wholememory_communicator_barrier(comm));
    bytes[k] = wm_local_copy(both[k].tensor, &size_bytes[k]);
  }
  CHECK_EQ(size_bytes[0], size_bytes[1]);
  CHECK(memcmp(bytes[0], bytes[1], size_bytes[0]) == 0);
  free(bytes[0]);
  free(bytes[1]);
  wm_rows_drop(&both[1]);
  wm_rows_drop(&both[0]);
}

/* Gathers that adjust a cache: what they and later ones give is right. */
static void gathers(wm_rank* r, wholememory_comm_t comm, wholememory_comm_t cache_comm, wm_cache_kind cache) {
  wm_rows_shape shape = {.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS};
  int access = cache_comm == comm ? WHOLEMEMORY_AT_READWRITE : WHOLEMEMORY_AT_READONLY;
  wm_rows e = wm_cached_make(comm, cache_comm, shape, cache, access, 0.2f);
  wm_rows_fill(&e, wm_value, 0);
  for (int at = 0; at < POSITIONS && !wm_failures(); at++) {
    request q = request_make(&e, (uint64_t)(at * 8 + r->rank));
    q.adjust = true;
    with_fork(r, at, gather_call, &q);
    request_drop(&q);
    for (int still = 0; still < 2; still++)
      wm_cached_gather(&e, (wm_draw){.ids = WHOLEMEMORY_DT_INT64, .to = WHOLEMEMORY_DT_FLOAT, .count = 400, .seed = (uint64_t)at, .adjust = !still}, cache.name);
  }
  wm_rows_drop(&e);
}

static void body(wm_rank* r) {
  if (wm_gpu()) SKIP(r, "a forked child cannot use a GPU");
  const char* const routes[] = {"auto", "exchange"};
  for (int route = 0; route < 2; route++) {
    setenv("WHOLEMEMORY_ROUTE", routes[route], 1);
    wholememory_comm_t comm, alone;
    OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
    OK(wholememory_split_communicator(&alone, comm, r->rank, 0));
    for (int cached = 0; cached < 2; cached++) {
      steps(r, comm, &wm_kinds[1], cached);
      steps(r, comm, &wm_kinds[5], cached);
    }
    for (int k = 0; k < WM_CACHES_AT_HOME; k++) gathers(r, comm, comm, wm_caches[k]);
    gathers(r, comm, alone, wm_caches[0]);
    OK(wholememory_destroy_communicator(alone));
    OK(wholememory_destroy_communicator(comm));
  }
  unsetenv("WHOLEMEMORY_ROUTE");
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
