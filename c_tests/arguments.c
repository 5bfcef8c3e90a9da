/* The order of gather's and scatter's argument checks: with two defects at once, the earlier one is reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR, ROWS = 24, COLUMNS = 6, COUNT = 5, NONE = -1 };

/* In the order in which they are looked for. */
typedef enum { TABLE_DIM, TABLE_DESC, IDS_DIM, USER_DIM, IDS_DESC, USER_DESC, OFFSET, KINDS, IDS_DTYPE, USER_ROWS, SKEWED, LAUNCH, DEFECTS } defect;
static const char* const defect_names[DEFECTS] = {"table dim", "table description", "indices dim", "user dim", "indices description",
                                                  "user description", "table offset", "kinds", "indices dtype", "user rows",
                                                  "misaligned", "launch width"};
static const int gather_codes[DEFECTS] = {BAD_INPUT, LOGIC, BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, LOGIC, LOGIC, LOGIC, LOGIC, LOGIC};
static const int scatter_codes[DEFECTS] = {BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, BAD_INPUT, LOGIC, LOGIC, LOGIC, LOGIC, LOGIC};

typedef struct { wholememory_tensor_t table, ids, user; wm_array ids_array, user_array; int width; } operands;

static bool exchanged(const wm_kind* k) { return k->type == WHOLEMEMORY_MT_DISTRIBUTED || k->type == WHOLEMEMORY_MT_HIERARCHY; }

static wholememory_tensor_description_t* live(wholememory_tensor_t t) { return wholememory_tensor_get_tensor_description(t); }

static operands sound(const wm_table* t, int64_t count, int skew_bytes) {
  operands o;
  wholememory_tensor_description_t d = *live(t->root);
  OK(wholememory_make_tensor_from_handle(&o.table, t->handle, &d));
  o.ids_array = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, count, 1, 1, 0, 0});
  o.user_array = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, count, COLUMNS, COLUMNS, 0, skew_bytes});
  for (int64_t i = 0; i < count; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&o.ids_array, i, 0), (uint64_t)i);
  wm_array_push(&o.ids_array);
  o.ids = o.ids_array.tensor;
  o.user = o.user_array.tensor;
  o.width = -1;
  return o;
}

static void spoil(operands* o, defect d) {
  switch (d) {
    case TABLE_DIM: live(o->table)->dim = 3; live(o->table)->strides[2] = 1; break;
    case TABLE_DESC: live(o->table)->strides[1] = 2; break;
    case IDS_DIM: live(o->ids)->dim = 2; break;
    case USER_DIM: live(o->user)->dim = 3; break;
    case IDS_DESC: live(o->ids)->strides[live(o->ids)->dim - 1] = 2; break;
    case USER_DESC: live(o->user)->strides[1] = 2; break;
    case OFFSET: live(o->table)->storage_offset = 1; break;
    case KINDS: live(o->user)->dtype = WHOLEMEMORY_DT_INT; break;
    case IDS_DTYPE: live(o->ids)->dtype = WHOLEMEMORY_DT_INT16; break;
    case USER_ROWS: live(o->user)->sizes[0] = COUNT - 1; break;
    case LAUNCH: o->width = 0; break;
    default: break; /* the misaligned pointer is there from the start */
  }
}

static int call(bool scatter, const operands* o) {
  return scatter ? wholememory_scatter(o->user, o->ids, o->table, NULL, NULL, o->width)
                 : wholememory_gather(o->table, o->ids, o->user, NULL, NULL, o->width);
}

static void drop(operands* o) {
  OK(wholememory_destroy_tensor(o->table));
  wm_array_drop(&o->ids_array);
  wm_array_drop(&o->user_array);
}

static void one_case(const wm_table* t, bool scatter, int first, int second) {
  char what[160];
  snprintf(what, sizeof what, "%s %s with %s and %s", t->shape.kind.name, scatter ? "scatter" : "gather",
           defect_names[first], second == NONE ? "nothing else" : defect_names[second]);
  operands o = sound(t, COUNT, first == SKEWED || second == SKEWED ? 1 : 0);
  spoil(&o, (defect)first);
  if (second != NONE) spoil(&o, (defect)second);
  int want = (scatter ? scatter_codes : gather_codes)[first];
  wm_check_code(want, call(scatter, &o), __FILE__, __LINE__, what);
  wm_array_matches(&o.user_array, what);
  drop(&o);
}

static void single_rules(wm_rank* r, const wm_table* t, bool scatter) {
  /* No ids: fine whatever the user's shape, but not across kinds. */
  operands o = sound(t, 0, 0);
  live(o.user)->sizes[0] = 9;
  EXPECT(0, call(scatter, &o));
  live(o.user)->dtype = WHOLEMEMORY_DT_INT64;
  EXPECT(LOGIC, call(scatter, &o));
  drop(&o);
  /* No columns: nothing to do. */
  o = sound(t, COUNT, 0);
  live(o.table)->sizes[1] = live(o.user)->sizes[1] = 0;
  EXPECT(0, call(scatter, &o));
  live(o.table)->sizes[1] = COLUMNS;
  live(o.user)->sizes[1] = COLUMNS - 1;
  EXPECT(BAD_INPUT, call(scatter, &o)); /* fewer columns than the table */
  live(o.user)->sizes[1] = COLUMNS;
  o.width = -2;
  EXPECT(LOGIC, call(scatter, &o));
  o.width = 3;
  EXPECT(0, call(scatter, &o));
  o.width = -1;
  /* Negative sizes. */
  live(o.ids)->sizes[0] = -1;
  int negative = call(scatter, &o);
  CHECK(negative == BAD_INPUT || negative == WHOLEMEMORY_INVALID_VALUE || negative == LOGIC);
  live(o.ids)->sizes[0] = COUNT;
  EXPECT(0, call(scatter, &o));
  drop(&o);

  /* Data that cannot be reached: NULL, and memory that is not one range. */
  o = sound(t, COUNT, 0);
  wholememory_tensor_t nothing, good_ids = o.ids, good_user = o.user;
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0);
  OK(wholememory_make_tensor_from_pointer(&nothing, NULL, &d));
  o.ids = nothing;
  EXPECT(BAD_INPUT, call(scatter, &o));
  o.ids = good_ids;
  OK(wholememory_destroy_tensor(nothing));
  d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0);
  OK(wholememory_make_tensor_from_pointer(&nothing, NULL, &d));
  o.user = nothing;
  EXPECT(BAD_INPUT, call(scatter, &o));
  OK(wholememory_destroy_tensor(nothing));
  if (exchanged(&t->shape.kind)) {
    OK(wholememory_make_tensor_from_handle(&nothing, t->handle, &d));
    o.user = nothing;
    EXPECT(BAD_INPUT, call(scatter, &o));
    OK(wholememory_destroy_tensor(nothing));
  }
  o.user = good_user;
  EXPECT(BAD_INPUT, scatter ? wholememory_scatter(o.user, NULL, o.table, NULL, NULL, -1)
                            : wholememory_gather(o.table, NULL, o.user, NULL, NULL, -1));
  OK(wholememory_communicator_barrier(wm_world(r)));
  EXPECT(BAD_INPUT, scatter ? wholememory_scatter(NULL, o.ids, o.table, NULL, NULL, -1)
                            : wholememory_gather(o.table, o.ids, NULL, NULL, NULL, -1));
  EXPECT(BAD_INPUT, scatter ? wholememory_scatter(o.user, o.ids, NULL, NULL, NULL, -1)
                            : wholememory_gather(NULL, o.ids, o.user, NULL, NULL, -1));
  drop(&o);
}

static void body(wm_rank* r) {
  for (int k = 0; k < WM_KINDS; k++) {
    if (!wm_kind_here(r, wm_world(r), &wm_kinds[k])) continue;
    wm_table t = wm_table_make(wm_world(r), (wm_shape){.kind = wm_kinds[k], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS});
    for (int scatter = 0; scatter < 2; scatter++)
      for (int first = 0; first < DEFECTS; first++) {
        if (first == OFFSET && !exchanged(&wm_kinds[k])) continue;
        one_case(&t, scatter, first, NONE);
        for (int second = first + 1; second < DEFECTS; second++)
          if (second != OFFSET || exchanged(&wm_kinds[k])) one_case(&t, scatter, first, second);
      }
    /* Nothing of all this reached the table. */
    wm_gather_check(&t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_FLOAT, .count = 30});
    for (int scatter = 0; scatter < 2; scatter++) single_rules(r, &t, scatter);
    wm_table_drop(&t);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
