/* Ranks that do not agree: the same error on every rank, with both values in its words; then they go on together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

enum { VALUE = WHOLEMEMORY_INVALID_VALUE };

/* One rank, the last, is the odd one. */
static bool odd(const wm_rank* r) { return r->rank == r->size - 1; }

static void both(wm_rank* r, int want, int code, const char* a, const char* b, const char* what) {
  wm_check_code(want, code, __FILE__, __LINE__, what);
  const char* words = wholememory_get_last_error();
  if (!strcasestr(words, a) || !strcasestr(words, b)) FAILED("%s: \"%s\" does not name %s and %s", what, words, a, b);
  EXPECT(0, wholememory_communicator_barrier(wm_world(r)));
}

typedef struct { size_t total, granularity; int type, location; const char *a, *b, *what; } request;

static void malloc_requests(wm_rank* r) {
  const request plain = {960, 16, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "", "", ""};
  const request others[] = {
      {1920, 16, plain.type, plain.location, "960", "1920", "sizes"},
      {960, 32, plain.type, plain.location, "16", "32", "granularities"},
      {960, 16, WHOLEMEMORY_MT_HIERARCHY, plain.location, "DISTRIBUTED", "HIERARCHY", "types"},
      {960, 16, plain.type, WHOLEMEMORY_ML_DEVICE, "HOST", "DEVICE", "locations"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const request* q = odd(r) ? &others[i] : &plain;
    wholememory_handle_t handle = NULL;
    int code = wholememory_malloc(&handle, q->total, wm_world(r), (wholememory_memory_type_t)q->type, (wholememory_memory_location_t)q->location, q->granularity, NULL);
    both(r, VALUE, code, others[i].a, others[i].b, others[i].what);
    CHECK(handle == NULL);
  }
  /* Partitions: values, and one rank without any. */
  size_t partition[64], total = 0;
  for (int i = 0; i < r->size; i++) total += partition[i] = 10;
  if (odd(r)) partition[0] = 7, partition[1] = 13;
  wholememory_handle_t handle = NULL;
  int code = wholememory_malloc(&handle, total * 16, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, partition);
  both(r, VALUE, code, "10", "7", "partitions");
  code = wholememory_malloc(&handle, total * 16, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, odd(r) ? NULL : partition);
  both(r, VALUE, code, "partition", "", "a partition on some ranks only");
  /* A rank whose own arguments are wrong: the others hear whose and why. */
  char name[20];
  snprintf(name, sizeof name, "rank %d", r->size - 1);
  code = wholememory_malloc(&handle, odd(r) ? 961 : 960, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL);
  both(r, VALUE, code, odd(r) ? "961" : name, "961", "one rank's size");
  code = wholememory_malloc(odd(r) ? NULL : &handle, 960, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL);
  both(r, WHOLEMEMORY_INVALID_INPUT, code, odd(r) ? "" : name, "", "one rank's output");
  CHECK(handle == NULL);
}

static void tensor_requests(wm_rank* r) {
  wholememory_tensor_t t = NULL;
  const struct { int dtype; int64_t rows, columns, stride; const char *a, *b, *what; } others[] = {
      {WHOLEMEMORY_DT_INT, 40, 6, 8, "FLOAT", "INT", "dtypes"},
      {WHOLEMEMORY_DT_FLOAT, 41, 6, 8, "40", "41", "rows"},
      {WHOLEMEMORY_DT_FLOAT, 40, 7, 8, "6", "7", "columns"},
      {WHOLEMEMORY_DT_FLOAT, 20, 6, 16, "8", "16", "strides"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 40, 6, 8, 0);
    if (odd(r)) d = wm_desc((wholememory_dtype_t)others[i].dtype, 2, others[i].rows, others[i].columns, others[i].stride, 0);
    int code = wholememory_create_tensor(&t, &d, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL);
    both(r, VALUE, code, others[i].a, others[i].b, others[i].what);
    CHECK(t == NULL);
    if (t) OK(wholememory_destroy_tensor(t)); /* made against the rule: it must not spoil what follows */
    t = NULL;
  }
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 40, 6, odd(r) ? 5 : 8, 0);
  int code = wholememory_create_tensor(&t, &d, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL);
  both(r, VALUE, code, "5", "6", "one rank's stride");
}

static void communicator_requests(wm_rank* r) {
  int code = wholememory_communicator_set_distributed_backend(wm_world(r), odd(r) ? WHOLEMEMORY_DB_NVSHMEM : WHOLEMEMORY_DB_NCCL);
  CHECK(code == VALUE || code == WHOLEMEMORY_NOT_SUPPORTED);
  wholememory_comm_t made = NULL;
  /* Ranks that name different sizes. */
  char a[12], b[12];
  snprintf(a, sizeof a, "%d", r->size), snprintf(b, sizeof b, "%d", r->size + 1);
  code = wholememory_create_communicator(&made, wm_fresh_id(r), r->rank, odd(r) ? r->size + 1 : r->size);
  both(r, VALUE, code, a, b, "sizes of a communicator");
  CHECK(made == NULL);
}

/* Ranks that are in different operations, or one that cannot be tied to the communicator at all. */
static void operations(wm_rank* r) {
  wholememory_comm_t own;
  OK(wholememory_create_communicator(&own, wm_fresh_id(r), r->rank, r->size));
  wholememory_handle_t handle = NULL;
  int code;
  if (odd(r)) EXPECT(WHOLEMEMORY_INVALID_INPUT, wholememory_communicator_barrier(NULL));
  if (odd(r)) code = wholememory_malloc(&handle, 960, own, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL);
  else code = wholememory_communicator_barrier(own);
  both(r, WHOLEMEMORY_LOGIC_ERROR, code, "barrier", "malloc", "operations");
  CHECK(handle == NULL);
  wholememory_destroy_communicator(own);
}

static void body(wm_rank* r) {
  if (r->size < 2) SKIP(r, "needs two ranks or more");
  wm_world(r);
  malloc_requests(r);
  tensor_requests(r);
  communicator_requests(r);
  operations(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
