/* A process that forks after init: the parent is unharmed; in the child collectives fail in words, memory that is mapped
 * can still be read, and its exit disturbs nobody. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

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
typedef struct { wholememory_comm_t comm; _Atomic bool stop; } busy;

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

static void* wait_for_others(void* argument) {
  OK(wholememory_communicator_barrier(((busy*)argument)->comm));
  return NULL;
}

static void busy_parent(wm_rank* r) {
  enum { CHILDREN = 50, THREADS = 4 };
  busy b = {.stop = false};
  OK(wholememory_split_communicator(&b.comm, wm_world(r), 0, r->rank));
  void* (*const lives[THREADS])(void*) = {make_and_drop, make_and_drop, make_and_drop_ids, wait_for_others};
  pthread_t threads[THREADS];
  if (r->rank == 0) {
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, lives[i], &b) == 0);
    usleep(20000);
    for (int i = 0; i < CHILDREN; i++) {
      pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        wm_forked();
        wm_alarm(5);
        wholememory_tensor_description_t d;
        wholememory_tensor_t tensor;
        wholememory_unique_id_t id;
        wholememory_initialize_tensor_desc(&d);
        EXPECT(0, wholememory_make_tensor_from_pointer(&tensor, NULL, &d));
        EXPECT(0, wholememory_destroy_tensor(tensor));
        EXPECT(0, wholememory_create_unique_id(&id));
        EXPECT(BROKEN, wholememory_communicator_barrier(b.comm));
        EXPECT(BROKEN, wholememory_destroy_communicator(b.comm));
        EXPECT(0, wholememory_finalize());
        _exit(wm_failures() ? WM_FAIL : 0);
      }
      int state;
      REQUIRE(waitpid(child, &state, 0) == child);
      CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
      if (!WIFEXITED(state)) break;
    }
    b.stop = true;
  }
  wm_meet(r);
  if (r->rank != 0) wait_for_others(&b);
  for (int i = 0; r->rank == 0 && i < THREADS; i++) pthread_join(threads[i], NULL);
  OK(wholememory_destroy_communicator(b.comm));
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
  busy_parent(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
