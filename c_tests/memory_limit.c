/* Processes without memory (ulimit -v at what they have, the heap used up): calls are refused or done, and the process lives. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wholememory/embedding.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "harness.h"

enum { ROWS = 2000, COLUMNS = 20, MANY = 3000, FEW = 30 };

static wholememory_tensor_t tensor_over(void* data, wholememory_dtype_t dtype, int64_t rows, int64_t columns) {
  wholememory_tensor_description_t d = {.sizes = {rows, columns}, .strides = {columns, 1}, .dim = columns ? 2 : 1, .dtype = dtype};
  if (!columns) d.strides[0] = 1;
  wholememory_tensor_t made;
  OK(wholememory_make_tensor_from_pointer(&made, data, &d));
  return made;
}

/* What malloc has and gets, down to blocks of `least` bytes, is taken. */
static void use_up(size_t least) {
  for (size_t bytes = 1 << 20; bytes >= least; bytes /= 2)
    while (malloc(bytes)) continue;
}

enum { STEP, STEP_AGAIN, GATHER_ADJUSTING, GATHER, WRITE_BACK, MALLOC, EMBEDDING, TENSOR, SPLIT, UNIQUE_ID, OPTIMIZER, BARRIER, CALLS };

/* Address space for `spare_kib` more, and of the heap what is smaller than `least` bytes (0: all of it). */
static void one_call(int call, long spare_kib, size_t least) {
  OK(wholememory_init(0, LEVEL_ERROR));
  wholememory_unique_id_t id, another;
  wholememory_comm_t comm, part = NULL;
  wholememory_embedding_cache_policy_t policy;
  wholememory_embedding_t cached, plain, made = NULL;
  wholememory_embedding_optimizer_t adam;
  wholememory_handle_t handle = NULL;
  OK(wholememory_create_unique_id(&id));
  OK(wholememory_create_communicator(&comm, id, 0, 1));
  wholememory_tensor_description_t shape = {.sizes = {ROWS, COLUMNS}, .strides = {COLUMNS, 1}, .dim = 2, .dtype = WHOLEMEMORY_DT_FLOAT};
  OK(wholememory_create_embedding_cache_policy(&policy, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE, WHOLEMEMORY_AT_READWRITE, 0.1f));
  OK(wholememory_create_embedding(&cached, &shape, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, policy, NULL, -1, 0));
  OK(wholememory_create_embedding(&plain, &shape, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, NULL, NULL, -1, 0));
  OK(wholememory_create_embedding_optimizer(&adam, WHOLEMEMORY_OPT_LAZY_ADAM));
  OK(wholememory_embedding_set_optimizer(cached, adam));
  static int64_t ids[MANY];
  static float values[MANY * COLUMNS];
  for (int i = 0; i < MANY; i++) ids[i] = (int64_t)i * 7 % ROWS;
  wholememory_tensor_t many = tensor_over(ids, WHOLEMEMORY_DT_INT64, MANY, 0), rows = tensor_over(values, WHOLEMEMORY_DT_FLOAT, MANY, COLUMNS);
  wholememory_tensor_t few = tensor_over(ids, WHOLEMEMORY_DT_INT64, FEW, 0), few_rows = tensor_over(values, WHOLEMEMORY_DT_FLOAT, FEW, COLUMNS), over = NULL;
  if (call == STEP_AGAIN) OK(wholememory_embedding_gather_gradient_apply(cached, few, few_rows, false, 0.1f, NULL, 0));
  struct rlimit before, limited;
  long pages;
  FILE* size = fopen("/proc/self/statm", "r");
  REQUIRE(size && fscanf(size, "%ld", &pages) == 1 && fclose(size) == 0);
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  limited = before;
  limited.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + spare_kib * 1024);
  REQUIRE(setrlimit(RLIMIT_AS, &limited) == 0);
  if (least) use_up(least);
  int code = -1;
  switch (call) {
    case STEP:
    case STEP_AGAIN: code = (int)wholememory_embedding_gather_gradient_apply(cached, many, rows, false, 0.1f, NULL, 0); break;
    case GATHER_ADJUSTING: code = (int)wholememory_embedding_gather(cached, many, rows, true, NULL, 0); break;
    case GATHER: code = (int)wholememory_embedding_gather(plain, many, rows, false, NULL, 0); break;
    case WRITE_BACK: code = (int)wholememory_embedding_writeback_cache(cached, 0); break;
    case MALLOC: code = (int)wholememory_malloc(&handle, 64000, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, 64, NULL); break;
    case EMBEDDING: code = (int)wholememory_create_embedding(&made, &shape, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, policy, NULL, -1, 0); break;
    case TENSOR: code = (int)wholememory_make_tensor_from_pointer(&over, values, &shape); break;
    case SPLIT: code = (int)wholememory_split_communicator(&part, comm, 0, 0); break;
    case UNIQUE_ID: code = (int)wholememory_create_unique_id(&another); break;
    case OPTIMIZER: code = (int)wholememory_embedding_set_optimizer(plain, adam); break;
    default: code = (int)wholememory_communicator_barrier(comm);
  }
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  if (code != 0 && code != WHOLEMEMORY_OUT_OF_MEMORY && code != WHOLEMEMORY_SYSTEM_ERROR)
    FAILED("call %d with %ld KiB to spare: %d, %s", call, spare_kib, code, wholememory_get_last_error());
  CHECK(code != WHOLEMEMORY_OUT_OF_MEMORY || *wholememory_get_last_error());
  /* All is well again. */
  EXPECT(0, wholememory_embedding_gather(plain, many, rows, false, NULL, 0));
  EXPECT(0, wholememory_embedding_gather_gradient_apply(cached, many, rows, false, 0.1f, NULL, 0));
  EXPECT(0, wholememory_finalize());
}

static void body(wm_rank* r) {
  if (wm_gpu()) SKIP(r, "drivers of GPUs take address space as they like");
  for (int call = 0; call < CALLS; call++)
    for (int with = 0; with < 6; with++) {
      long spare_kib = (long[]){0, 16, 128}[with % 3];
      size_t least = with < 3 ? 0 : 1024;
      fflush(NULL);
      pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        wm_forked();
        one_call(call, spare_kib, least);
        wm_end(wm_failures() ? WM_FAIL : WM_PASS);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      if (status) FAILED("call %d with %ld KiB to spare, blocks of %zu bytes taken: the process ended with status %#x", call, spare_kib, least, (unsigned)status);
    }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_NO_INIT | WM_ONE_RANK); }
