/* The life of the library in a process: init, finalize, again; objects alive when it ends; exit without it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wholememory/env_func_ptrs.h>

#include "device.h"
#include "rows.h"
#include "table.h"

enum { INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR };

/* A life in a process of its own, which has not touched the library (nor a GPU: a process that has cannot pass that on). */
typedef struct { const char* name; void (*run)(void); bool by_exit; } life;
static const life lives[];

static const life* life_named(const char* name) {
  for (const life* l = lives; l->name; l++)
    if (!strcmp(l->name, name)) return l;
  return NULL;
}

static int live(const char* name) {
  const life* l = life_named(name);
  REQUIRE(l != NULL);
  wm_error_text = wholememory_get_last_error;
  wm_alarm(20);
  l->run();
  if (l->by_exit) exit(wm_failures() ? WM_FAIL : 0);
  wm_end(wm_failures() ? WM_FAIL : 0);
}

/* 0 when it ended well and found no failure. */
static int in_a_process(const char* name) {
  fflush(NULL);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    execl("/proc/self/exe", "init_finalize", "--alone", name, (char*)NULL);
    _exit(WM_FAIL);
  }
  int state;
  REQUIRE(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1000 + state;
}

static int threads_of_the_library(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  REQUIRE(tasks != NULL);
  for (struct dirent* e; (e = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE* f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (f && fgets(name, sizeof name, f)) count += !strncmp(name, "wm-", 3);
    if (f) fclose(f);
  }
  closedir(tasks);
  return count;
}

static void before_anything(void) {
  CHECK(!strcmp(wholememory_get_last_error(), ""));
  EXPECT(0, wholememory_finalize());
  EXPECT(0, wholememory_finalize());
  CHECK(get_device_prop(0) == NULL && get_device_prop(2) == NULL && get_device_prop(-1) == NULL);
  CHECK_EQ(get_wholememory_tensor_count(), 0);
  int count = fork_get_device_count();
  CHECK_EQ(fork_get_device_count(), count);
  EXPECT(0, wholememory_init(0, (LogLevel)99));
  EXPECT(LOGIC, wholememory_init(0, LEVEL_WARN));
  CHECK_EQ(fork_get_device_count(), count);
  /* None of all that starts a thread; the driver may. */
  CHECK_EQ(threads_of_the_library(), 0);
  if (!wm_gpu()) CHECK_EQ(wm_holdings_now().threads, 1);
  const char* platform = getenv("WHOLEMEMORY_PLATFORM");
  if (!platform || strcmp(platform, "cpu")) CHECK(wm_gpu() ? count > 0 : count == 0);
  EXPECT(0, wholememory_finalize());
  EXPECT(0, wholememory_init(7, LEVEL_FATAL));
  EXPECT(0, wholememory_finalize());
}

static void cuda_wanted(void) {
  setenv("WHOLEMEMORY_PLATFORM", "cuda", 1);
  if (fork_get_device_count() > 0) return;
  EXPECT(WHOLEMEMORY_CUDA_ERROR, wholememory_init(0, LEVEL_WARN));
  EXPECT(0, wholememory_finalize());
}

static void unknown_platform(void) {
  setenv("WHOLEMEMORY_PLATFORM", "abacus", 1);
  int code = wholememory_init(0, LEVEL_WARN);
  CHECK(code != 0);
  CHECK_HAS(wholememory_get_last_error(), "abacus");
}

static wholememory_comm_t alone(void) {
  wholememory_unique_id_t id;
  wholememory_comm_t comm;
  OK(wholememory_create_unique_id(&id));
  OK(wholememory_create_communicator(&comm, id, 0, 1));
  return comm;
}

static void left_alive(void) {
  wm_device_bind(0);
  OK(wholememory_init(0, LEVEL_WARN));
  wholememory_comm_t comm = alone();
  wm_table_make(comm, (wm_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_INT, .rows = 100, .columns = 4});
}

static void an_unused_id(void) {
  wholememory_unique_id_t id;
  OK(wholememory_create_unique_id(&id));
}

static const life lives[] = {{"before_anything", before_anything, false},
                             {"cuda_wanted", cuda_wanted, false},
                             {"unknown_platform", unknown_platform, false},
                             {"left_alive", left_alive, true},
                             {"an_unused_id", an_unused_id, true},
                             {NULL, NULL, false}};

/* Finalize takes what is alive; destroying it afterwards says so or is harmless. */
static void finalize_with_objects(wm_rank* r, bool with_init) {
  wm_holdings before = wm_holdings_now();
  wm_meet(r);
  if (with_init && (!r->threads || r->rank == 0)) OK(wholememory_init(0, LEVEL_WARN));
  wm_meet(r);
  wholememory_comm_t comm, child, local;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  OK(wholememory_split_communicator(&child, comm, 0, -r->rank));
  wm_table tables[2] = {
      wm_table_make(comm, (wm_shape){.kind = wm_kinds[7], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 37, .columns = 8}),
      wm_table_make(child, (wm_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_INT8, .rows = 9, .columns = 3, .first_column = 2})};
  OK(wholememory_get_local_communicator(&local, tables[0].handle));
  wholememory_handle_t handle;
  OK(wholememory_malloc(&handle, 4096, child, WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE, 16, NULL));
  wm_rows learner = wm_rows_make(child, (wm_rows_shape){.kind = wm_kinds[4], .dtype = WHOLEMEMORY_DT_HALF, .rows = 30, .columns = 5});
  wholememory_embedding_optimizer_t optimizer;
  OK(wholememory_create_embedding_optimizer(&optimizer, WHOLEMEMORY_OPT_LAZY_ADAM));
  OK(wholememory_embedding_set_optimizer(learner.embedding, optimizer));
  wholememory_tensor_t state = wholememory_embedding_get_optimizer_state(learner.embedding, "m");
  REQUIRE(state != NULL);
  static float storage[8];
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 4, 2, 2, 0);
  wholememory_tensor_t plain;
  OK(wholememory_make_tensor_from_pointer(&plain, storage, &d));
  wm_meet(r);
  if (!r->threads || r->rank == 0) EXPECT(0, wholememory_finalize());
  wm_meet(r);
  /* All of it is gone, though tensors are still to be destroyed. */
  wm_holdings after = wm_holdings_now();
  wm_meet(r);
  CHECK_EQ(after.shared_mappings, before.shared_mappings);
  if (!r->mpi) CHECK_EQ(after.descriptors, before.descriptors);
  int value = -5;
  EXPECT(INPUT, wholememory_communicator_get_rank(&value, comm));
  CHECK_EQ(value, -5);
  EXPECT(INPUT, wholememory_communicator_barrier(child));
  EXPECT(INPUT, wholememory_destroy_communicator(child));
  EXPECT(INPUT, wholememory_destroy_communicator(comm));
  EXPECT(INPUT, wholememory_destroy_communicator(local));
  EXPECT(INPUT, wholememory_free(handle));
  EXPECT(INPUT, wholememory_get_local_memory(NULL, NULL, NULL, tables[0].handle));
  CHECK(wholememory_tensor_get_data_pointer(plain) == storage);
  EXPECT(INPUT, wholememory_embedding_set_optimizer(learner.embedding, optimizer));
  EXPECT(INPUT, wholememory_embedding_gather(learner.embedding, plain, plain, false, NULL, 0));
  EXPECT(INPUT, wholememory_destroy_tensor(state));
  EXPECT(0, wholememory_destroy_embedding(learner.embedding));
  EXPECT(INPUT, wholememory_destroy_embedding(learner.embedding));
  EXPECT(INPUT, wholememory_destroy_tensor(state));
  wholememory_destroy_embedding_optimizer(optimizer);
  EXPECT(0, wholememory_destroy_tensor(tables[1].window));
  EXPECT(0, wholememory_destroy_tensor(tables[0].root));
  EXPECT(0, wholememory_destroy_tensor(tables[1].root));
  EXPECT(0, wholememory_destroy_tensor(plain));
  EXPECT(INPUT, wholememory_destroy_tensor(plain));
  wm_meet(r);
  CHECK_EQ(get_wholememory_tensor_count(), 0);
}

static void body(wm_rank* r) {
  if (r->rank == 0 && !r->mpi) {
    for (const life* l = lives; l->name; l++)
      if (in_a_process(l->name) != 0) FAILED("the life \"%s\" failed", l->name);
  }
  wm_meet(r);
  for (int round = 0; round < 5; round++) finalize_with_objects(r, round != 2);
}

int main(int argc, char** argv) {
  if (argc == 3 && !strcmp(argv[1], "--alone")) return live(argv[2]);
  return wm_test_main(argc, argv, body, WM_NO_INIT);
}
