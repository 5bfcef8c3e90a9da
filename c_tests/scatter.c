/* scatter on every type and location; HIERARCHY too. */
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

#define INT32_IDS WHOLEMEMORY_DT_INT
#define INT64_IDS WHOLEMEMORY_DT_INT64

static void conversions(wm_rank* r, const wm_kind* k) {
  for (int to = 0; to < WM_DTYPES; to++) {
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = wm_dtypes[to].id, .rows = 97, .columns = 11, .stride = 16});
    for (int from = 0; from < WM_DTYPES; from++)
      if (wm_dtypes[to].floating == wm_dtypes[from].floating)
        wm_scatter_check(&t, (wm_lookup){.index_dtype = from % 2 ? INT64_IDS : INT32_IDS, .user_dtype = wm_dtypes[from].id,
                                         .bad_ids = true, .seed = from * 8 + to});
    wm_table_drop(&t);
  }
}

static void shapes(wm_rank* r, const wm_kind* k) {
  const int64_t columns[] = {1, 3, 7, 33, 127, 1025, 2049};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    for (int window = 0; window < 2; window++) {
      wm_shape shape = {.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 41, .columns = columns[i]};
      if (window) shape.first_column = 3, shape.stride = columns[i] + 8;
      wm_table t = wm_table_make(wm_world(r), shape);
      wm_scatter_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_FLOAT, .seed = (int)i});
      wm_scatter_check(&t, (wm_lookup){.index_dtype = INT32_IDS, .user_dtype = WHOLEMEMORY_DT_HALF, .seed = (int)i, .bad_ids = true,
                                       .pad = 3, .user_offset = 5, .index_offset = 1, .skew_elements = 1, .no_env = true});
      wm_table_drop(&t);
    }
}

static void few_rows(wm_rank* r, const wm_kind* k) {
  const int64_t rows[] = {0, 1, 3, 10};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int dim = 1; dim <= 2; dim++) {
      wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT16, .dim = dim, .rows = rows[i], .columns = 6});
      wm_scatter_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_INT, .bad_ids = true, .seed = (int)i});
      wm_table_drop(&t);
    }
}

/* One row written many times holds one of the rows written, whole. */
static void duplicates(wm_rank* r, const wm_kind* k) {
  enum { COUNT = 64, COLUMNS = 4 }; /* 16 bytes a row: not torn */
  wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT, .rows = 16, .columns = COLUMNS});
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0});
  wm_array in = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int i = 0; i < COUNT; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), 5);
    for (int c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&in, i, c), (uint64_t)(r->rank * COUNT + i + 1));
  }
  wm_array_push(&ids);
  wm_array_push(&in);
  EXPECT(0, wholememory_scatter(in.tensor, ids.tensor, t.window, NULL, NULL, -1));
  wm_finish();
  OK(wholememory_communicator_barrier(t.comm));
  unsigned char* host;
  int64_t first, own = wm_table_local(&t, &host, &first);
  if (first <= 5 && 5 < first + own) {
    const int32_t* row = (const int32_t*)host + (5 - first) * COLUMNS;
    CHECK(row[0] >= 1 && row[0] <= COUNT * r->size);
    for (int c = 1; c < COLUMNS; c++) CHECK_EQ(row[c], row[0]);
  }
  free(host);
  wm_array_drop(&ids);
  wm_array_drop(&in);
  wm_table_drop(&t);
}

static void body(wm_rank* r) {
  for (int i = 0; i < WM_KINDS; i++) {
    const wm_kind* k = &wm_kinds[i];
    if (!wm_kind_here(r, wm_world(r), k)) continue;
    conversions(r, k);
    shapes(r, k);
    few_rows(r, k);
    duplicates(r, k);
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 9000, .columns = 32});
    wm_scatter_check(&t, (wm_lookup){.index_dtype = INT64_IDS, .user_dtype = WHOLEMEMORY_DT_DOUBLE});
    wm_table_drop(&t);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
