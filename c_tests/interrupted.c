/* Calls that another thread interrupts: what they work on is destroyed under them, or their thread is cancelled. Nothing ends the process,
 * and the library goes on. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "rows.h"

enum { TRIES = 24, TABLE_ROWS = 200000, COLUMNS = 32, FILE_ROWS = 40000, RECORD_BYTES = 40 };

typedef struct { wholememory_embedding_t embedding; wholememory_embedding_optimizer_t optimizer; atomic_bool begun; int code; } training;

static void* set_optimizer(void* given) {
  training* t = given;
  wm_device_bind(0);
  atomic_store(&t->begun, true);
  t->code = wholememory_embedding_set_optimizer(t->embedding, t->optimizer);
  return NULL;
}

/* The states that the call is about to fill go with the communicator, earlier or later in the call. */
static void destroyed(wm_rank* r, wholememory_memory_type_t type) {
  double took_s = 0;
  for (int i = 0; i < TRIES; i++) {
    wholememory_comm_t comm;
    OK(wholememory_create_communicator(&comm, wm_fresh_id(r), 0, 1));
    wm_rows e = wm_rows_make(comm, (wm_rows_shape){.kind = {type, WHOLEMEMORY_ML_HOST, ""}, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = TABLE_ROWS, .columns = COLUMNS});
    training t = {.embedding = e.embedding, .code = -1};
    OK(wholememory_create_embedding_optimizer(&t.optimizer, WHOLEMEMORY_OPT_LAZY_ADAM));
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, set_optimizer, &t) == 0);
    double begun = wm_now();
    while (!atomic_load(&t.begun)) sched_yield();
    if (i == 0) {
      REQUIRE(pthread_join(thread, NULL) == 0);
      took_s = wm_now() - begun;
    } else {
      usleep((useconds_t)(took_s * 1e6 * i / TRIES));
    }
    OK(wholememory_destroy_communicator(comm));
    if (i > 0) REQUIRE(pthread_join(thread, NULL) == 0);
    CHECK(t.code == 0 || t.code == WHOLEMEMORY_INVALID_INPUT || t.code == WHOLEMEMORY_COMMUNICATION_ERROR);
    if (i == 0) CHECK_EQ(t.code, 0);
    OK(wholememory_destroy_embedding(e.embedding));
    wholememory_destroy_embedding_optimizer(t.optimizer);
  }
}

typedef struct { wholememory_handle_t handle; char path[64]; atomic_int calls; } filing;

static void* store_and_load(void* given) {
  filing* f = given;
  const char* path = f->path;
  wm_device_bind(0);
  for (;;) {
    OK(wholememory_store_to_file(f->handle, 0, RECORD_BYTES, RECORD_BYTES, path));
    OK(wholememory_load_from_file(f->handle, 0, RECORD_BYTES, RECORD_BYTES, &path, 1, 0));
    atomic_fetch_add(&f->calls, 1);
    pthread_testcancel();
  }
  return NULL;
}

/* Reading and writing files are what threads are cancelled in; here they end between two calls. */
static void cancelled(wm_rank* r) {
  filing f = {.calls = 0};
  snprintf(f.path, sizeof f.path, "/tmp/wm_interrupted.%d", (int)getpid());
  OK(wholememory_malloc(&f.handle, FILE_ROWS * RECORD_BYTES, wm_world(r), WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, RECORD_BYTES, NULL));
  for (int i = 0; i < TRIES; i++) {
    atomic_store(&f.calls, 0);
    pthread_t thread;
    void* ended = NULL;
    REQUIRE(pthread_create(&thread, NULL, store_and_load, &f) == 0);
    while (atomic_load(&f.calls) < 1) usleep(100);
    usleep((useconds_t)(100 * i));
    REQUIRE(pthread_cancel(thread) == 0);
    REQUIRE(pthread_join(thread, &ended) == 0);
    CHECK(ended == PTHREAD_CANCELED);
  }
  /* A call leaves the state of its thread as it was. */
  int state = -1;
  REQUIRE(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
  CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
  OK(wholememory_communicator_barrier(wm_world(r)));
  REQUIRE(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
  CHECK_EQ(state, PTHREAD_CANCEL_DISABLE);
  OK(wholememory_free(f.handle));
  unlink(f.path);
}

static void body(wm_rank* r) {
  destroyed(r, WHOLEMEMORY_MT_CONTINUOUS);
  destroyed(r, WHOLEMEMORY_MT_DISTRIBUTED);
  cancelled(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
