/* Gather and scatter against values recomputed from row and column. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

static int64_t bad_id(uint64_t h, int64_t rows, bool wide) {
  const int64_t narrow_ids[] = {-1, INT32_MIN, rows, rows + 1, INT32_MAX, -2 - rows};
  const int64_t wide_ids[] = {-1, INT64_MIN, rows, rows + 3, INT64_MAX, (int64_t)1 << 31, -((int64_t)1 << 40), (int64_t)1 << 32};
  return wide ? wide_ids[h % 8] : narrow_ids[h % 6];
}

static bool in_table(const wm_table* t, int64_t id) { return id >= 0 && id < t->shape.rows; }

static void set_id(wm_array* ids, int64_t at, int64_t id) {
  wm_set_bits(ids->view.dtype, wm_array_at(ids, at, 0), (uint64_t)id);
}

static int64_t get_id(const wm_array* ids, int64_t at) {
  uint64_t bits = wm_bits(ids->view.dtype, wm_array_at(ids, at, 0));
  return ids->view.dtype == WHOLEMEMORY_DT_INT ? (int32_t)bits : (int64_t)bits;
}

static wm_array ids_array(const wm_lookup* l, int64_t count) {
  return wm_array_make((wm_view){l->index_dtype, 1, count, 1, 1, l->index_offset, 0});
}

static wm_array user_array(const wm_table* t, const wm_lookup* l, int64_t count) {
  wm_view v = {l->user_dtype, l->user_dim ? l->user_dim : 2, count, t->shape.columns,
               t->shape.columns + l->pad, l->user_offset, l->skew_elements * (int)wm_bytes_of(l->user_dtype)};
  return wm_array_make(v);
}

static void name(char* text, size_t room, const char* op, const wm_table* t, const wm_lookup* l) {
  snprintf(text, room, "%s %s %s to %s, %s ids, %lld of %lld rows x %lld (stride %lld), offsets %lld/%lld/%lld, pad %lld",
           op, t->shape.kind.name, wm_dtype_name(t->shape.dtype), wm_dtype_name(l->user_dtype),
           wm_dtype_name(l->index_dtype), (long long)l->count, (long long)t->shape.rows, (long long)t->shape.columns,
           (long long)t->shape.stride, (long long)t->shape.first_column, (long long)l->user_offset,
           (long long)l->index_offset, (long long)l->pad);
}

void wm_gather_check(const wm_table* t, wm_lookup l) {
  char what[300];
  name(what, sizeof what, "gather", t, &l);
  wm_array ids = ids_array(&l, l.count), out = user_array(t, &l, l.count);
  for (int64_t i = 0; i < l.count; i++) {
    uint64_t h = wm_hash((uint64_t)(l.seed * 64 + t->rank), (uint64_t)i);
    bool bad = t->shape.rows == 0 || (l.bad_ids && h % 4 == 0);
    set_id(&ids, i, bad ? bad_id(h >> 8, t->shape.rows, l.index_dtype == WHOLEMEMORY_DT_INT64)
                        : (int64_t)((h >> 8) % (uint64_t)t->shape.rows));
  }
  wm_array_push(&ids);
  wm_env env;
  wm_env_start(&env);
  int code = wholememory_gather(t->window, ids.tensor, out.tensor, l.no_env ? NULL : &env.fns, NULL, -1);
  if (!wm_check_code(0, code, __FILE__, __LINE__, what)) wm_end(WM_FAIL);
  wm_finish();
  BALANCED(&env);
  CHECK_EQ(env.output_mallocs, 0);
  for (int64_t i = 0; i < l.count; i++) {
    int64_t id = get_id(&ids, i);
    for (int64_t c = 0; c < t->shape.columns && in_table(t, id); c++)
      wm_set_bits(l.user_dtype, wm_array_at(&out, i, c),
                  wm_convert(t->shape.dtype, l.user_dtype,
                             wm_value(t->shape.dtype, id, t->shape.first_column + c, 0)));
  }
  wm_array_matches(&out, what);
  wm_array_matches(&ids, "indices of a gather");
  wm_array_drop(&ids);
  wm_array_drop(&out);
}

enum { SCATTER_SALT = 7 };

static bool scattered(int64_t row, int seed) { return wm_hash((uint64_t)row, (uint64_t)seed) % 3 != 0; }

static void check_own_rows(const wm_table* t, const wm_lookup* l, const char* what) {
  unsigned char* host;
  int64_t first, own = wm_table_local(t, &host, &first);
  wholememory_dtype_t dtype = t->shape.dtype;
  bool good = true;
  for (int64_t i = 0; i < own && good; i++)
    for (int64_t c = 0; c < t->shape.stride && good; c++) {
      int64_t row = first + i, column = c - t->shape.first_column;
      bool written = scattered(row, l->seed) && column >= 0 && column < t->shape.columns;
      uint64_t want = written ? wm_convert(l->user_dtype, dtype, wm_value(l->user_dtype, row, column, SCATTER_SALT))
                              : wm_value(dtype, row, c, 0);
      uint64_t got = wm_bits(dtype, host + (size_t)(i * t->shape.stride + c) * wm_bytes_of(dtype));
      good = written ? wm_same(dtype, got, want) : got == want;
      if (!good)
        FAILED("%s: row %lld column %lld, %s, is %#llx, not %#llx", what, (long long)row, (long long)c,
               written ? "scattered" : "untouched", (unsigned long long)got, (unsigned long long)want);
    }
  free(host);
}

void wm_scatter_check(wm_table* t, wm_lookup l) {
  char what[300];
  l.count = 0;
  /* Backwards, so that rows do not come in the order of the table. */
  for (int64_t row = 0; row < t->shape.rows; row++) l.count += scattered(row, l.seed) && row % t->size == t->rank;
  int64_t good_count = l.count;
  if (l.bad_ids) l.count += 9;
  name(what, sizeof what, "scatter", t, &l);
  wm_array ids = ids_array(&l, l.count), in = user_array(t, &l, l.count);
  int64_t at = 0;
  for (int64_t row = t->shape.rows - 1; row >= 0; row--) {
    if (!scattered(row, l.seed) || row % t->size != t->rank) continue;
    set_id(&ids, at, row);
    for (int64_t c = 0; c < t->shape.columns; c++)
      wm_set_bits(l.user_dtype, wm_array_at(&in, at, c), wm_value(l.user_dtype, row, c, SCATTER_SALT));
    at++;
  }
  REQUIRE(at == good_count);
  for (; at < l.count; at++)
    set_id(&ids, at, bad_id((uint64_t)at, t->shape.rows, l.index_dtype == WHOLEMEMORY_DT_INT64));
  wm_array_push(&ids);
  wm_array_push(&in);
  wm_env env;
  wm_env_start(&env);
  int code = wholememory_scatter(in.tensor, ids.tensor, t->window, l.no_env ? NULL : &env.fns, NULL, -1);
  if (!wm_check_code(0, code, __FILE__, __LINE__, what)) wm_end(WM_FAIL);
  wm_finish();
  BALANCED(&env);
  OK(wholememory_communicator_barrier(t->comm));
  check_own_rows(t, &l, what);
  wm_array_matches(&in, "input of a scatter");
  OK(wholememory_communicator_barrier(t->comm));
  wm_table_fill(t, 0);
  wm_array_drop(&ids);
  wm_array_drop(&in);
}
