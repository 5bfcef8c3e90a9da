/* Tensors: creation checks, windows, entry queries, the counter, and destroying in any order. */
#include <string.h>

#include "table.h"

typedef wholememory_tensor_description_t desc_t;
enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, BAD_VALUE = WHOLEMEMORY_INVALID_VALUE, F = WHOLEMEMORY_DT_FLOAT };

static float storage[4 * 8];

static wholememory_tensor_t four_by_six(void) {
  wholememory_tensor_t t;
  desc_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 4, 6, 8, 0);
  OK(wholememory_make_tensor_from_pointer(&t, storage, &d));
  return t;
}

static void from_pointer(void) {
  const wholememory_tensor_t untouched = (wholememory_tensor_t)&storage;
  const struct { void* storage; int dim; int64_t last_stride; int dtype, want; } cases[] = {
      {storage, 2, 1, F, 0},  {storage, 2, 2, F, BAD_INPUT}, {storage, 2, 1, 0, BAD_INPUT}, {storage, 2, 1, 9, BAD_INPUT},
      {NULL, 2, 3, F, 0},     {NULL, 2, 3, 0, 0},            {storage, 0, 1, 0, 0},         {storage, -1, 1, F, BAD_INPUT},
      {storage, 8, 1, F, 0},  {storage, 9, 1, F, BAD_INPUT}, {storage, 1, 2, F, BAD_INPUT}, {storage, 2, 1, -1, BAD_INPUT}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    desc_t d = wm_desc((wholememory_dtype_t)cases[i].dtype, 2, 4, 6, 8, 0);
    d.dim = cases[i].dim;
    if (d.dim >= 1 && d.dim <= 8) d.strides[d.dim - 1] = cases[i].last_stride;
    wholememory_tensor_t t = untouched;
    int64_t before = get_wholememory_tensor_count();
    EXPECT(cases[i].want, wholememory_make_tensor_from_pointer(&t, cases[i].storage, &d));
    CHECK_EQ(get_wholememory_tensor_count(), before + (cases[i].want == 0));
    if (cases[i].want) {
      CHECK(t == untouched);
      continue;
    }
    CHECK(!wholememory_tensor_has_handle(t));
    CHECK(wholememory_tensor_get_memory_handle(t) == NULL);
    CHECK(wholememory_tensor_get_root(t) == t);
    EXPECT(0, wholememory_destroy_tensor(t));
    CHECK_EQ(get_wholememory_tensor_count(), before);
  }
  desc_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 4, 6, 8, 3);
  wholememory_tensor_t t;
  EXPECT(BAD_INPUT, wholememory_make_tensor_from_pointer(NULL, storage, &d));
  EXPECT(BAD_INPUT, wholememory_make_tensor_from_pointer(&t, storage, NULL));
  EXPECT(BAD_INPUT, wholememory_make_tensor_from_handle(&t, NULL, &d));
  OK(wholememory_make_tensor_from_pointer(&t, storage, &d));
  CHECK(wholememory_tensor_get_data_pointer(t) == storage + 3);
  wholememory_gref_t ref;
  EXPECT(0, wholememory_tensor_get_global_reference(t, &ref));
  CHECK(ref.pointer == storage && ref.stride == 0);
  EXPECT(BAD_INPUT, wholememory_tensor_get_global_reference(t, NULL));
  /* The description is the tensor's own: what the caller writes there counts. */
  desc_t* live = wholememory_tensor_get_tensor_description(t);
  CHECK(live && live->sizes[1] == 6 && live->storage_offset == 3);
  live->storage_offset = 5;
  CHECK(wholememory_tensor_get_tensor_description(t) == live);
  CHECK(wholememory_tensor_get_data_pointer(t) == storage + 5);
  OK(wholememory_destroy_tensor(t));
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(t));
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(NULL));
}

static void subtensors(void) {
  wholememory_tensor_t t = four_by_six();
  const struct { int64_t starts[2], ends[2]; int want; int64_t sizes[2], offset; } cases[] = {
      {{-1, -1}, {-1, -1}, 0, {4, 6}, 0},
      {{1, 2}, {-1, 4}, 0, {3, 2}, 10},
      {{3, 5}, {-1, -1}, 0, {1, 1}, 29},
      {{1, 2}, {100, 4}, BAD_VALUE, {0}, 0},
      {{0, 0}, {0, 1}, BAD_INPUT, {0}, 0},
      {{4, 0}, {5, 1}, BAD_INPUT, {0}, 0},
      {{-2, 0}, {2, 1}, BAD_VALUE, {0}, 0},
      {{2, 0}, {1, 1}, BAD_INPUT, {0}, 0},
      {{-5, 0}, {-3, 1}, BAD_INPUT, {0}, 0},
      {{0, 0}, {4, 7}, BAD_VALUE, {0}, 0},
      {{INT64_MIN, 0}, {INT64_MAX, 1}, BAD_VALUE, {0}, 0},
  };
  const wholememory_tensor_t untouched = (wholememory_tensor_t)&storage;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t starts[2] = {cases[i].starts[0], cases[i].starts[1]}, ends[2] = {cases[i].ends[0], cases[i].ends[1]};
    wholememory_tensor_t sub = untouched;
    int64_t before = get_wholememory_tensor_count();
    if (!EXPECT(cases[i].want, wholememory_tensor_get_subtensor(t, starts, ends, &sub)))
      wm_say("(case %zu: starts %lld,%lld ends %lld,%lld)", i, (long long)starts[0], (long long)starts[1],
             (long long)ends[0], (long long)ends[1]);
    CHECK_EQ(get_wholememory_tensor_count(), before + (sub != untouched));
    if (sub == untouched) continue;
    desc_t* d = wholememory_tensor_get_tensor_description(sub);
    CHECK(d->sizes[0] == cases[i].sizes[0] && d->sizes[1] == cases[i].sizes[1] && d->strides[0] == 8 && d->strides[1] == 1);
    CHECK_EQ(d->storage_offset, cases[i].offset);
    CHECK_EQ(d->dim, 2);
    CHECK(wholememory_tensor_get_root(sub) == t);
    CHECK(wholememory_tensor_get_data_pointer(sub) == storage + cases[i].offset);
    OK(wholememory_destroy_tensor(sub));
  }
  int64_t starts[2] = {1, 2}, ends[2] = {-1, -1}, ones[2] = {1, 1};
  wholememory_tensor_t sub, subsub;
  OK(wholememory_tensor_get_subtensor(t, starts, ends, &sub));
  OK(wholememory_tensor_get_subtensor(sub, ones, ends, &subsub));
  desc_t* d = wholememory_tensor_get_tensor_description(subsub);
  CHECK(d->sizes[0] == 2 && d->sizes[1] == 3 && d->storage_offset == 19);
  CHECK(wholememory_tensor_get_root(subsub) == t);
  CHECK((char*)wholememory_tensor_get_data_pointer(subsub) == (char*)storage + 76);
  size_t values[2] = {9, 9};
  OK(wholememory_tensor_get_entry_offsets(values, subsub));
  CHECK(values[0] == 0 && values[1] == 4);
  OK(wholememory_tensor_get_entry_partition_sizes(values, subsub));
  CHECK_EQ(values[0], 4);
  OK(wholememory_tensor_get_local_entry_count(values, subsub));
  CHECK_EQ(values[0], 4);
  OK(wholememory_tensor_get_local_entry_start(values, subsub));
  CHECK_EQ(values[0], 0);
  wholememory_tensor_t local;
  EXPECT(BAD_VALUE, wholememory_tensor_map_local_tensor(subsub, &local));
  EXPECT(BAD_INPUT, wholememory_tensor_map_local_tensor(subsub, NULL));
  EXPECT(BAD_INPUT, wholememory_tensor_map_local_tensor(NULL, &local));
  EXPECT(BAD_INPUT, wholememory_tensor_get_subtensor(NULL, ones, ends, &local));
  EXPECT(BAD_INPUT, wholememory_tensor_get_subtensor(t, NULL, ends, &local));
  EXPECT(BAD_INPUT, wholememory_tensor_get_subtensor(t, ones, NULL, &local));
  EXPECT(BAD_INPUT, wholememory_tensor_get_subtensor(t, ones, ends, NULL));
  /* The root first: its windows stay usable, then go by themselves. */
  OK(wholememory_destroy_tensor(t));
  CHECK((char*)wholememory_tensor_get_data_pointer(subsub) == (char*)storage + 76);
  OK(wholememory_destroy_tensor(sub));
  OK(wholememory_destroy_tensor(subsub));

  desc_t eight = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 2, 2, 1, 0);
  eight.dim = 8;
  OK(wholememory_make_tensor_from_pointer(&t, storage, &eight));
  int64_t starts8[8] = {0}, ends8[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT(WHOLEMEMORY_NOT_IMPLEMENTED, wholememory_tensor_get_subtensor(t, starts8, ends8, &sub));
  EXPECT(BAD_VALUE, wholememory_tensor_get_entry_offsets(values, t));
  EXPECT(BAD_VALUE, wholememory_tensor_get_local_entry_count(values, t));
  OK(wholememory_destroy_tensor(t));
  desc_t none = wm_desc(WHOLEMEMORY_DT_UNKNOWN, 0, 1, 1, 1, 0);
  OK(wholememory_make_tensor_from_pointer(&t, NULL, &none));
  EXPECT(0, wholememory_tensor_get_subtensor(t, starts, ends, &sub));
  OK(wholememory_destroy_tensor(sub));
  OK(wholememory_destroy_tensor(t));
}

static void creation_checks(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  const struct { int dim; int64_t rows, columns, stride, last_stride, offset; int dtype, want; } cases[] = {
      {0, 4, 6, 8, 1, 0, F, BAD_INPUT},         {3, 4, 6, 8, 1, 0, F, BAD_INPUT},   {2, 4, 6, 8, 1, 1, F, BAD_INPUT},
      {2, 4, 6, 8, 2, 0, F, BAD_INPUT},         {2, 4, 6, 8, 1, 0, 0, BAD_INPUT},   {2, 4, 6, 8, 1, 0, 9, BAD_INPUT},
      {2, 4, 6, 5, 1, 0, F, BAD_VALUE},         {2, 4, 0, 0, 1, 0, F, BAD_VALUE},   {2, 4, 6, -8, 1, 0, F, BAD_VALUE},
      {2, -4, 6, 8, 1, 0, F, BAD_VALUE},        {2, 4, -6, 8, 1, 0, F, BAD_VALUE},  {1, -1, 1, 1, 1, 0, F, BAD_VALUE},
      {2, INT64_MAX / 8, 6, 8, 1, 0, F, BAD_VALUE}, {2, INT64_MAX, 6, INT64_MAX, 1, 0, F, BAD_VALUE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    desc_t d = wm_desc((wholememory_dtype_t)cases[i].dtype, 2, cases[i].rows, cases[i].columns, cases[i].stride, cases[i].offset);
    d.dim = cases[i].dim;
    if (d.dim >= 1) d.strides[d.dim - 1] = cases[i].last_stride;
    wholememory_tensor_t t = (wholememory_tensor_t)&storage;
    int64_t before = get_wholememory_tensor_count();
    wm_meet(r);
    if (!EXPECT(cases[i].want, wholememory_create_tensor(&t, &d, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL)))
      wm_say("(case %zu)", i);
    wm_meet(r);
    CHECK(t == (wholememory_tensor_t)&storage || (cases[i].want == BAD_VALUE && t == NULL));
    if (!r->threads) CHECK_EQ(get_wholememory_tensor_count(), before);
  }
  desc_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 4, 6, 8, 0);
  wholememory_tensor_t t = NULL;
  EXPECT(BAD_INPUT, wholememory_create_tensor(NULL, &d, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL));
  EXPECT(BAD_INPUT, wholememory_create_tensor(&t, NULL, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL));
  EXPECT(BAD_INPUT, wholememory_create_tensor(&t, &d, NULL, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL));
  EXPECT(BAD_VALUE, wholememory_create_tensor(&t, &d, comm, (wholememory_memory_type_t)99, WHOLEMEMORY_ML_HOST, NULL));
  EXPECT(BAD_VALUE, wholememory_create_tensor(&t, &d, comm, WHOLEMEMORY_MT_DISTRIBUTED, (wholememory_memory_location_t)-1, NULL));
  CHECK(t == NULL);
}

static void over_memory(wm_rank* r, const wm_kind* kind) {
  wholememory_comm_t comm = wm_world(r);
  /* Two rows fewer than the ranks could hold, so that the last parts are short or empty. */
  const int64_t rows = 3 * r->size - 2, columns = 5, stride = 8;
  wm_table t = wm_table_make(comm, (wm_shape){.kind = *kind, .dtype = WHOLEMEMORY_DT_INT, .rows = rows, .columns = columns, .stride = stride});
  const int64_t per = (rows + r->size - 1) / r->size;
  const int64_t first = r->rank * per < rows ? r->rank * per : rows, last = first + per < rows ? first + per : rows;
  size_t values[65];
  OK(wholememory_tensor_get_entry_offsets(values, t.root));
  for (int i = 0; i <= r->size; i++) CHECK_EQ(values[i], i * per < rows ? i * per : rows);
  OK(wholememory_tensor_get_entry_partition_sizes(values, t.root));
  CHECK_EQ(values[r->rank], last - first);
  OK(wholememory_tensor_get_local_entry_count(values, t.root));
  CHECK_EQ(values[0], last - first);
  OK(wholememory_tensor_get_local_entry_start(values, t.root));
  CHECK_EQ(values[0], first);
  CHECK(wholememory_tensor_has_handle(t.root));
  void* pointer = wholememory_tensor_get_data_pointer(t.root);
  CHECK_EQ(pointer != NULL, kind->type == WHOLEMEMORY_MT_CONTINUOUS);

  /* Columns 2..4 of the local rows. */
  int64_t starts[2] = {-1, 2}, ends[2] = {-1, 4}, row_starts[2] = {1, 0};
  wholememory_tensor_t window, local, rows_window;
  OK(wholememory_tensor_get_subtensor(t.root, starts, ends, &window));
  OK(wholememory_tensor_map_local_tensor(window, &local));
  desc_t* d = wholememory_tensor_get_tensor_description(local);
  CHECK(d->dim == 2 && d->sizes[0] == last - first && d->sizes[1] == 2 && d->strides[0] == stride && d->storage_offset == 2);
  CHECK(!wholememory_tensor_has_handle(local));
  void* mine;
  OK(wholememory_get_local_memory(&mine, NULL, NULL, t.handle));
  if (last > first) CHECK((char*)wholememory_tensor_get_data_pointer(local) == (char*)mine + 8);
  OK(wholememory_destroy_tensor(local));
  if (rows > 1) {
    int64_t all[2] = {-1, -1};
    OK(wholememory_tensor_get_subtensor(t.root, row_starts, all, &rows_window));
    EXPECT(BAD_VALUE, wholememory_tensor_map_local_tensor(rows_window, &local));
    OK(wholememory_destroy_tensor(rows_window));
  }

  /* A description that ends before this rank's part maps to nothing, not to all of it. */
  wholememory_tensor_t shorter;
  desc_t one_row = wm_desc(WHOLEMEMORY_DT_INT, 2, 1, columns, stride, 0);
  OK(wholememory_make_tensor_from_handle(&shorter, t.handle, &one_row));
  CHECK(wholememory_tensor_get_memory_handle(shorter) == t.handle);
  OK(wholememory_tensor_map_local_tensor(shorter, &local));
  CHECK_EQ(wholememory_tensor_get_tensor_description(local)->sizes[0], r->rank == 0);
  OK(wholememory_destroy_tensor(local));
  /* A unit that does not divide the partition. */
  desc_t odd = wm_desc(WHOLEMEMORY_DT_INT, 2, 1, 3, 3, 0);
  wholememory_tensor_t misfit;
  OK(wholememory_make_tensor_from_handle(&misfit, t.handle, &odd));
  if (r->size > 1 && per * stride % 3 != 0) EXPECT(BAD_VALUE, wholememory_tensor_get_entry_offsets(values, misfit));
  OK(wholememory_destroy_tensor(misfit));

  wholememory_gref_t ref;
  bool mapped = kind->type == WHOLEMEMORY_MT_CONTINUOUS || kind->type == WHOLEMEMORY_MT_CHUNKED;
  EXPECT(mapped ? 0 : BAD_INPUT, wholememory_tensor_get_global_reference(t.root, &ref));

  /* The root goes first; the window and the borrowed tensors are told apart from it and go after. */
  OK(wholememory_destroy_tensor(t.root));
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(t.root));
  EXPECT(0, wholememory_destroy_tensor(window));
  EXPECT(0, wholememory_destroy_tensor(shorter));
}

/* A communicator that goes before its tensors takes their memory; destroying them then only frees the objects. */
static void late_destroys(wm_rank* r) {
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  wm_table t = wm_table_make(comm, (wm_shape){.kind = wm_kinds[5], .dtype = WHOLEMEMORY_DT_INT8, .rows = 10, .columns = 4});
  wholememory_handle_t handle;
  OK(wholememory_malloc(&handle, 1 << 12, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL));
  OK(wholememory_destroy_communicator(comm));
  EXPECT(BAD_INPUT, wholememory_destroy_communicator(comm));
  EXPECT(BAD_INPUT, wholememory_free(handle));
  EXPECT(BAD_INPUT, wholememory_communicator_barrier(comm));
  EXPECT(0, wholememory_destroy_tensor(t.root));
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(t.root));
}

static void body(wm_rank* r) {
  if (!r->threads) from_pointer();
  if (!r->threads) subtensors();
  creation_checks(r);
  for (int k = 0; k < WM_KINDS; k++)
    if (wm_kind_here(r, wm_world(r), &wm_kinds[k])) over_memory(r, &wm_kinds[k]);
  late_destroys(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
