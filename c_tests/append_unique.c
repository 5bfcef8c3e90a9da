/* Lists without doubles and self loops: against the definitions; empty lists, every value of an id, callbacks that fail,
 * memory of every kind that can be read, row pointers that lie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/graph_op.h>

#include "device.h"
#include "table.h"

enum { INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR, VALUE = WHOLEMEMORY_INVALID_VALUE };

typedef struct { wm_array targets, neighbors, map; int64_t target_count, neighbor_count; wholememory_dtype_t dtype; } lists;

static int64_t id_at(wm_array* a, int64_t i) {
  uint64_t bits = wm_bits(a->view.dtype, wm_array_at(a, i, 0));
  return a->view.dtype == WHOLEMEMORY_DT_INT ? (int32_t)bits : (int64_t)bits;
}

/* Ids of few values, of all values, negative ones, -1 among them, doubles on both sides. */
static lists make(wholememory_dtype_t dtype, int64_t targets, int64_t neighbors, int spread, int seed) {
  lists l = {.target_count = targets, .neighbor_count = neighbors, .dtype = dtype};
  l.targets = wm_array_make((wm_view){dtype, 1, targets, 1, 1, 3, 0});
  l.neighbors = wm_array_make((wm_view){dtype, 1, neighbors, 1, 1, 1, 0});
  l.map = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, neighbors, 1, 1, 2, 0});
  for (int64_t i = 0; i < targets + neighbors; i++) {
    uint64_t h = wm_hash((uint64_t)i, (uint64_t)seed);
    int64_t id = spread ? (int64_t)(h % (uint64_t)spread) - 3 : (int64_t)h;
    if (h % 61 == 0) id = INT64_MIN + (int64_t)(h % 3);
    if (h % 67 == 0) id = INT64_MAX - (int64_t)(h % 3);
    wm_array* to = i < targets ? &l.targets : &l.neighbors;
    wm_set_bits(dtype, wm_array_at(to, i < targets ? i : i - targets, 0), (uint64_t)id);
  }
  wm_array_push(&l.targets);
  wm_array_push(&l.neighbors);
  return l;
}

static void drop(lists* l) {
  wm_array_drop(&l->targets);
  wm_array_drop(&l->neighbors);
  wm_array_drop(&l->map);
}

typedef struct { int64_t id, position; } seen;

static int by_id(const void* a, const void* b) {
  const seen *p = a, *q = b;
  if (p->id != q->id) return p->id < q->id ? -1 : 1;
  return p->position < q->position ? -1 : p->position > q->position;
}

/* The output and the map by sorting all positions: the first position of an id is its place. */
static int64_t expected(lists* l, int64_t* unique) {
  int64_t all = l->target_count + l->neighbor_count, count = l->target_count;
  seen* list = malloc((size_t)(all + 1) * sizeof *list);
  int64_t* first = malloc((size_t)(all + 1) * sizeof *first);
  int64_t* place = malloc((size_t)(all + 1) * sizeof *place);
  REQUIRE(list && first && place);
  for (int64_t i = 0; i < all; i++)
    list[i] = (seen){i < l->target_count ? id_at(&l->targets, i) : id_at(&l->neighbors, i - l->target_count), i};
  for (int64_t i = 0; i < l->target_count; i++) unique[i] = list[i].id;
  qsort(list, (size_t)all, sizeof *list, by_id);
  for (int64_t i = 0; i < all; i++)
    first[list[i].position] = i > 0 && list[i].id == list[i - 1].id ? first[list[i - 1].position] : list[i].position;
  for (int64_t i = 0; i < all; i++) {
    place[i] = first[i] < i ? place[first[i]] : i < l->target_count ? i : count;
    if (i < l->target_count) continue;
    if (first[i] == i) unique[count++] = id_at(&l->neighbors, i - l->target_count);
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&l->map, i - l->target_count, 0), (uint64_t)place[i]);
  }
  free(list);
  free(first);
  free(place);
  return count;
}

static int append(const lists* l, wholememory_tensor_t map, void* context, wm_env* env) {
  return graph_append_unique(l->targets.tensor, l->neighbors.tensor, context, map, &env->fns, NULL);
}

static wholememory_tensor_t no_tensor(int dim) {
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_INT, dim, 0, 1, 1, 0);
  if (dim == 0) d.dtype = WHOLEMEMORY_DT_UNKNOWN;
  wholememory_tensor_t none;
  OK(wholememory_make_tensor_from_pointer(&none, NULL, &d));
  return none;
}

static void check(wholememory_dtype_t dtype, int64_t targets, int64_t neighbors, int spread, int mapping) {
  lists l = make(dtype, targets, neighbors, spread, (int)(targets * 31 + neighbors) + spread);
  int64_t* unique = malloc((size_t)(targets + neighbors + 1) * sizeof *unique);
  REQUIRE(unique != NULL);
  wm_env env;
  wm_context context;
  wm_env_start(&env);
  wm_context_start(&context, &env);
  wholememory_tensor_t none = no_tensor(mapping == 2);
  char what[120];
  snprintf(what, sizeof what, "%lld targets, %lld neighbours of %s, spread %d", (long long)targets, (long long)neighbors, wm_dtype_name(dtype), spread);
  wm_check_code(0, append(&l, mapping ? none : l.map.tensor, &context, &env), __FILE__, __LINE__, what);
  wm_finish();
  BALANCED(&env);
  CHECK_EQ(env.output_mallocs, 1);
  if (mapping) {
    wm_array_matches(&l.map, what); /* nothing was written there */
    expected(&l, unique);
  }
  int64_t count = expected(&l, unique);
  if (!mapping) wm_array_matches(&l.map, what);
  CHECK_EQ(context.desc.dim, 1);
  CHECK_EQ(context.desc.dtype, dtype);
  CHECK_EQ(context.kind, WHOLEMEMORY_MA_DEVICE);
  if (CHECK_EQ(context.desc.sizes[0], count) && count) {
    size_t each = wm_bytes_of(dtype);
    unsigned char* got = malloc((size_t)count * each);
    REQUIRE(got != NULL);
    wm_copy(got, context.pointer, (size_t)count * each);
    for (int64_t i = 0; i < count; i++) {
      uint64_t bits = wm_bits(dtype, got + (size_t)i * each);
      int64_t id = dtype == WHOLEMEMORY_DT_INT ? (int32_t)bits : (int64_t)bits;
      if (id == unique[i]) continue;
      FAILED("%s: unique[%lld] of %lld is %lld, not %lld", what, (long long)i, (long long)count, (long long)id, (long long)unique[i]);
      break;
    }
    free(got);
  }
  free(unique);
  OK(wholememory_destroy_tensor(none));
  wm_context_drop(&context);
  drop(&l);
}

/* Every block refused in turn: an error, and neither map nor output. */
static void refused_blocks(void) {
  lists l = make(WHOLEMEMORY_DT_INT64, 50, 700, 300, 1);
  wm_env env;
  wm_env_start(&env);
  wm_context context;
  wm_context_start(&context, &env);
  EXPECT(0, append(&l, l.map.tensor, &context, &env));
  wm_finish();
  wm_context_drop(&context);
  int most = env.mallocs;
  CHECK(most > 0);
  lists untouched = make(WHOLEMEMORY_DT_INT64, 50, 700, 300, 1);
  for (int k = 1; k <= most + 1; k++) {
    wm_env_start(&env);
    wm_context_start(&context, &env);
    if (k <= most) env.fail_at = k;
    else env.fail_output_at = 1;
    EXPECT(WHOLEMEMORY_OUT_OF_MEMORY, append(&untouched, untouched.map.tensor, &context, &env));
    wm_finish();
    BALANCED(&env);
    CHECK(context.pointer == NULL);
    wm_array_matches(&untouched.map, "the map of a call without memory");
  }
  drop(&l);
  drop(&untouched);
}

static void refused_arguments(void) {
  lists l = make(WHOLEMEMORY_DT_INT, 5, 9, 4, 1);
  wm_env env;
  wm_context context;
  wm_env_start(&env);
  wm_context_start(&context, &env);
  EXPECT(INPUT, append(&l, l.map.tensor, NULL, &env));
  EXPECT(INPUT, graph_append_unique(l.targets.tensor, l.neighbors.tensor, &context, l.map.tensor, NULL, NULL));
  wholememory_tensor_description_t* live = wholememory_tensor_get_tensor_description(l.map.tensor);
  live->sizes[0]--;
  EXPECT(INPUT, append(&l, l.map.tensor, &context, &env));
  live->sizes[0]++;
  live = wholememory_tensor_get_tensor_description(l.targets.tensor);
  live->sizes[0] = -2;
  EXPECT(INPUT, append(&l, l.map.tensor, &context, &env));
  live->sizes[0] = 5;
  int64_t offset = live->storage_offset;
  live->storage_offset = -1;
  EXPECT(INPUT, append(&l, l.map.tensor, &context, &env));
  live->storage_offset = offset;
  live->sizes[0] = (1LL << 31) - 9;
  EXPECT(VALUE, append(&l, l.map.tensor, &context, &env));
  CHECK_HAS(wholememory_get_last_error(), "2147483639");
  live->sizes[0] = 5;
  wholememory_tensor_t none = no_tensor(1);
  wholememory_tensor_get_tensor_description(none)->sizes[0] = 3;
  EXPECT(INPUT, graph_append_unique(none, l.neighbors.tensor, &context, l.map.tensor, &env.fns, NULL));
  OK(wholememory_destroy_tensor(none));
  BALANCED(&env);
  CHECK_EQ(env.output_mallocs, 0);
  wm_array_matches(&l.map, "the map of refused calls");
  drop(&l);
}

/* Lists on handles: one range can be read, others are refused. */
static void on_handles(wm_rank* r, const wm_kind* k) {
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_INT64, 1, 64, 1, 1, 0);
  wholememory_tensor_t t;
  OK(wholememory_create_tensor(&t, &d, wm_world(r), k->type, k->location, NULL));
  void* local;
  size_t bytes, offset;
  OK(wholememory_get_local_memory(&local, &bytes, &offset, wholememory_tensor_get_memory_handle(t)));
  int64_t host[64];
  for (int i = 0; i < 64; i++) host[i] = i % 10;
  if (bytes) wm_copy(local, (char*)host + offset, bytes);
  OK(wholememory_communicator_barrier(wm_world(r)));
  wholememory_tensor_t none = no_tensor(0);
  wm_env env;
  wm_context context;
  wm_env_start(&env);
  wm_context_start(&context, &env);
  bool readable = k->type == WHOLEMEMORY_MT_CONTINUOUS;
  EXPECT(readable ? 0 : INPUT, graph_append_unique(t, t, &context, none, &env.fns, NULL));
  wm_finish();
  if (readable) CHECK_EQ(context.desc.sizes[0], 64);
  wm_context_drop(&context);
  OK(wholememory_communicator_barrier(wm_world(r)));
  OK(wholememory_destroy_tensor(none));
  OK(wholememory_destroy_tensor(t));
}

typedef struct { wm_array rows, columns, out_rows, out_columns; } loops;

static loops loops_make(const int32_t* rows, int64_t row_count, int64_t edges) {
  loops l = {wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, row_count + 1, 1, 1, 1, 0}), wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, edges, 1, 1, 2, 0}),
             wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, row_count + 1, 1, 1, 3, 0}), wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, edges + row_count, 1, 1, 4, 0})};
  memcpy(wm_array_at(&l.rows, 0, 0), rows, (size_t)(row_count + 1) * 4);
  for (int64_t e = 0; e < edges; e++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&l.columns, e, 0), wm_hash((uint64_t)e, 1) % 1000);
  wm_array_push(&l.rows);
  wm_array_push(&l.columns);
  return l;
}

static int loops_call(const loops* l) { return csr_add_self_loop(l->rows.tensor, l->columns.tensor, l->out_rows.tensor, l->out_columns.tensor, NULL); }

static void loops_drop(loops* l) {
  wm_array_drop(&l->rows);
  wm_array_drop(&l->columns);
  wm_array_drop(&l->out_rows);
  wm_array_drop(&l->out_columns);
}

static void self_loops(int64_t row_count, int most_degree) {
  int32_t* rows = malloc((size_t)(row_count + 1) * 4);
  REQUIRE(rows != NULL);
  rows[0] = 0;
  for (int64_t i = 0; i < row_count; i++) rows[i + 1] = rows[i] + (int32_t)(wm_hash((uint64_t)i, 2) % (uint64_t)(most_degree + 1));
  loops l = loops_make(rows, row_count, rows[row_count]);
  EXPECT(0, loops_call(&l));
  for (int64_t i = 0; i <= row_count; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&l.out_rows, i, 0), (uint64_t)(rows[i] + i));
    if (i == row_count) break;
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&l.out_columns, rows[i] + i, 0), (uint64_t)i);
    for (int32_t e = rows[i]; e < rows[i + 1]; e++)
      memcpy(wm_array_at(&l.out_columns, e + i + 1, 0), wm_array_at(&l.columns, e, 0), 4);
  }
  wm_array_matches(&l.out_rows, "row pointers with self loops");
  wm_array_matches(&l.out_columns, "columns with self loops");
  loops_drop(&l);
  free(rows);
}

/* Where the call waits, row pointers that lie are refused; else their rows stay unwritten. Nothing is read or written out
 * of bounds, which the guards and the sanitizers watch. */
static void lying_loops(void) {
  const int32_t lies[][4] = {{0, 2, 1, 3}, {0, 1, 2, 4}, {-1, 1, 2, 3}, {0, INT32_MIN, INT32_MAX, 3}};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    loops l = loops_make(lies[i], 3, 3);
    int code = loops_call(&l);
    wm_finish();
    if (!wm_gpu()) {
      wm_check_code(VALUE, code, __FILE__, __LINE__, "self loops of row pointers that lie");
      wm_array_matches(&l.out_columns, "columns of a refused call");
      wm_array_matches(&l.out_rows, "row pointers of a refused call");
    } else {
      CHECK_EQ(code, 0);
    }
    loops_drop(&l);
  }
  const int32_t good[] = {0, 1, 3};
  loops l = loops_make(good, 2, 3);
  wholememory_tensor_description_t* live = wholememory_tensor_get_tensor_description(l.out_columns.tensor);
  live->sizes[0] = 4;
  EXPECT(INPUT, loops_call(&l));
  live->sizes[0] = 5;
  live->storage_offset -= 5;
  EXPECT(INPUT, loops_call(&l));
  live->storage_offset += 5;
  live = wholememory_tensor_get_tensor_description(l.out_rows.tensor);
  live->sizes[0] = 2;
  EXPECT(INPUT, loops_call(&l));
  live->sizes[0] = 3;
  live = wholememory_tensor_get_tensor_description(l.rows.tensor);
  live->sizes[0] = 0;
  EXPECT(INPUT, loops_call(&l));
  live->sizes[0] = 3;
  live = wholememory_tensor_get_tensor_description(l.columns.tensor);
  live->sizes[0] = INT32_MAX;
  EXPECT(VALUE, loops_call(&l));
  live->sizes[0] = 3;
  wm_array_matches(&l.out_columns, "columns of refused calls");
  loops_drop(&l);
}

static void body(wm_rank* r) {
  for (int wide = 0; wide < 2; wide++) {
    wholememory_dtype_t dtype = wide ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT;
    const int64_t sizes[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 900}, {700, 0}, {40, 1000}, {33, 64}, {3000, 40000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int spread = 0; spread < 3; spread++)
        check(dtype, sizes[i][0], sizes[i][1], spread == 0 ? 0 : spread == 1 ? 7 : 5000, (int)(i + (size_t)spread) % 3);
  }
  refused_blocks();
  refused_arguments();
  for (int k = 0; k < WM_KINDS; k++)
    if (wm_kind_here(r, wm_world(r), &wm_kinds[k])) on_handles(r, &wm_kinds[k]);
  self_loops(0, 0);
  self_loops(1, 0);
  self_loops(1, 5);
  self_loops(300, 9);
  self_loops(20000, 3);
  lying_loops();
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
