/* gather on every type and location: conversions bit for bit, ids of both widths, windows, strides, shapes. */
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

#define INT32_IDS WHOLEMEMORY_DT_INT
#define INT64_IDS WHOLEMEMORY_DT_INT64

static void conversions(wm_rank* r, const wm_kind* k) {
  for (int from = 0; from < WM_DTYPES; from++) {
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = wm_dtypes[from].id, .rows = 131, .columns = 11, .stride = 16});
    for (int to = 0; to < WM_DTYPES; to++) {
      if (wm_dtypes[to].floating != wm_dtypes[from].floating) continue;
      for (int wide = 0; wide < 2; wide++)
        wm_gather_check(&t, (wm_lookup){.index_dtype = wide ? INT64_IDS : INT32_IDS, .user_dtype = wm_dtypes[to].id,
                                        .count = 150, .bad_ids = true, .seed = from * 8 + to});
    }
    wm_table_drop(&t);
  }
}

static void shapes(wm_rank* r, const wm_kind* k) {
  const int64_t columns[] = {1, 3, 4, 7, 32, 33, 127, 128, 1025, 2049};
  const wholememory_dtype_t dtypes[] = {WHOLEMEMORY_DT_FLOAT, WHOLEMEMORY_DT_HALF, WHOLEMEMORY_DT_INT8, WHOLEMEMORY_DT_DOUBLE};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    wholememory_dtype_t dtype = dtypes[i % 4], to = dtype == WHOLEMEMORY_DT_HALF ? WHOLEMEMORY_DT_FLOAT : dtype;
    wm_shape shape = {.kind = *k, .dtype = dtype, .rows = 53, .columns = columns[i]};
    wm_lookup plain = {.index_dtype = INT64_IDS, .user_dtype = to, .count = 64, .seed = (int)i};
    wm_table t = wm_table_make(wm_world(r), shape);
    wm_gather_check(&t, plain);
    wm_lookup odd = {.index_dtype = INT32_IDS, .user_dtype = to, .count = 61, .seed = (int)i, .bad_ids = true,
                     .pad = 3, .user_offset = 5, .index_offset = 3, .skew_elements = 1};
    wm_gather_check(&t, odd);
    wm_table_drop(&t);
    /* A window of columns in wider rows. */
    shape.first_column = 3;
    shape.stride = columns[i] + 9;
    t = wm_table_make(wm_world(r), shape);
    wm_gather_check(&t, plain);
    wm_gather_check(&t, odd);
    wm_table_drop(&t);
  }
}

static void one_dimension(wm_rank* r, const wm_kind* k) {
  for (int dtype = 0; dtype < WM_DTYPES; dtype++) {
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = wm_dtypes[dtype].id, .dim = 1, .rows = 77});
    for (int dim = 1; dim <= 2; dim++)
      wm_gather_check(&t, (wm_lookup){.index_dtype = INT32_IDS, .user_dtype = wm_dtypes[dtype].id, .count = 90,
                                      .bad_ids = true, .user_dim = dim, .user_offset = dim, .seed = dtype});
    wm_table_drop(&t);
  }
}

/* Few rows: some ranks own none, ids just past the end must not reach the padding. */
static void few_rows(wm_rank* r, const wm_kind* k) {
  const int64_t rows[] = {0, 1, 3, 10};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = rows[i], .columns = 6});
    for (int wide = 0; wide < 2; wide++)
      wm_gather_check(&t, (wm_lookup){.index_dtype = wide ? INT64_IDS : INT32_IDS, .user_dtype = WHOLEMEMORY_DT_BF16,
                                      .count = 40, .bad_ids = true, .seed = 3});
    wm_table_drop(&t);
  }
  size_t partition[64];
  int64_t total = 0;
  for (int i = 0; i < r->size; i++) total += (int64_t)(partition[i] = (size_t)(1 + (i * 5) % 7));
  wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT, .rows = total, .columns = 5, .partition_rows = partition});
  wm_gather_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_INT64, .count = 50, .bad_ids = true});
  wm_table_drop(&t);
}

/* Some ranks ask for nothing, with data or with NULL; then all do. */
static void empty_inputs(wm_rank* r, const wm_kind* k) {
  wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 100, .columns = 8});
  for (int round = 0; round < 3; round++) {
    bool nothing = round == 2 || r->rank % 2 == round;
    wm_gather_check(&t, (wm_lookup){.index_dtype = INT32_IDS, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = nothing ? 0 : 1000, .seed = round});
    if (!nothing) {
      wm_gather_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 1000, .seed = round, .no_env = true});
      continue;
    }
    wholememory_tensor_description_t ids = wm_desc(WHOLEMEMORY_DT_INT64, 1, 0, 1, 1, 0), out = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 0, 8, 8, 0);
    wholememory_tensor_t ids_tensor, out_tensor;
    OK(wholememory_make_tensor_from_pointer(&ids_tensor, NULL, &ids));
    OK(wholememory_make_tensor_from_pointer(&out_tensor, NULL, &out));
    EXPECT(0, wholememory_gather(t.window, ids_tensor, out_tensor, NULL, NULL, -1));
    OK(wholememory_destroy_tensor(ids_tensor));
    OK(wholememory_destroy_tensor(out_tensor));
  }
  wm_table_drop(&t);
}

/* Windows of rows start counting at their own first row and end at their own last. */
static void row_windows(wm_rank* r, const wm_kind* k) {
  if (k->type != WHOLEMEMORY_MT_CONTINUOUS && k->type != WHOLEMEMORY_MT_CHUNKED) return;
  wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT, .rows = 60, .columns = 4});
  int64_t starts[2] = {7, 1}, ends[2] = {40, 3};
  wholememory_tensor_t window;
  OK(wholememory_tensor_get_subtensor(t.root, starts, ends, &window));
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 5, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 5, 2, 2, 0, 0});
  const int32_t wanted[5] = {0, 32, 33, -1, 5}; /* 33 rows: the third is past the window's end */
  for (int i = 0; i < 5; i++) memcpy(wm_array_at(&ids, i, 0), &wanted[i], 4);
  wm_array_push(&ids);
  EXPECT(0, wholememory_gather(window, ids.tensor, out.tensor, NULL, NULL, -1));
  for (int i = 0; i < 5; i++)
    for (int c = 0; c < 2 && wanted[i] >= 0 && wanted[i] < 33; c++)
      wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&out, i, c), wm_value(WHOLEMEMORY_DT_INT, 7 + wanted[i], 1 + c, 0));
  wm_array_matches(&out, "gather from a window of rows");
  wm_array_drop(&ids);
  wm_array_drop(&out);
  OK(wholememory_destroy_tensor(window));
  wm_table_drop(&t);
}

/* A table without a handle: the caller's own memory. */
static void local_table(void) {
  wm_array table = wm_array_make((wm_view){WHOLEMEMORY_DT_DOUBLE, 2, 20, 5, 7, 2, 0});
  for (int i = 0; i < 20; i++)
    for (int c = 0; c < 5; c++) wm_set_bits(WHOLEMEMORY_DT_DOUBLE, wm_array_at(&table, i, c), wm_value(WHOLEMEMORY_DT_DOUBLE, i, c, 0));
  wm_array_push(&table);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 6, 1, 1, 1, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_HALF, 2, 6, 5, 5, 0, 0});
  const int64_t wanted[6] = {19, 0, 20, 7, INT64_MIN, 7};
  for (int i = 0; i < 6; i++) memcpy(wm_array_at(&ids, i, 0), &wanted[i], 8);
  wm_array_push(&ids);
  EXPECT(0, wholememory_gather(table.tensor, ids.tensor, out.tensor, NULL, NULL, -1));
  for (int i = 0; i < 6; i++)
    for (int c = 0; c < 5 && wanted[i] >= 0 && wanted[i] < 20; c++)
      wm_set_bits(WHOLEMEMORY_DT_HALF, wm_array_at(&out, i, c),
                  wm_convert(WHOLEMEMORY_DT_DOUBLE, WHOLEMEMORY_DT_HALF, wm_value(WHOLEMEMORY_DT_DOUBLE, wanted[i], c, 0)));
  wm_array_matches(&out, "gather from the caller's memory");
  wm_array_drop(&ids);
  wm_array_drop(&out);
  wm_array_drop(&table);
}

/* Long enough for the pool of threads, and for every rank to own some rows asked for. */
static void large(wm_rank* r, const wm_kind* k) {
  wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_HALF, .rows = 6000, .columns = 64});
  wm_gather_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 3000 + 1000 * r->rank, .bad_ids = true});
  wm_table_drop(&t);
}

static void body(wm_rank* r) {
  local_table();
  for (int i = 0; i < WM_KINDS; i++) {
    const wm_kind* k = &wm_kinds[i];
    if (!wm_kind_here(r, wm_world(r), k)) continue;
    conversions(r, k);
    shapes(r, k);
    one_dimension(r, k);
    few_rows(r, k);
    empty_inputs(r, k);
    row_windows(r, k);
    large(r, k);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
