/* Callbacks: they balance on success and on every error; a NULL for memory is OUT_OF_MEMORY and leaves no rank waiting. */
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

enum { COUNT = 300, COLUMNS = 9 };

typedef struct { wm_array ids, user; } lookup_arrays;

static lookup_arrays arrays(const wm_table* t, int dtype) {
  lookup_arrays a = {wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT, 1, 1, 0, 0}),
                     wm_array_make((wm_view){(wholememory_dtype_t)dtype, 2, COUNT, COLUMNS, COLUMNS, 0, 0})};
  for (int i = 0; i < COUNT; i++)
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&a.ids, i, 0), wm_hash((uint64_t)i, (uint64_t)t->rank) % (uint64_t)t->shape.rows);
  wm_array_push(&a.ids);
  return a;
}

static void drop(lookup_arrays* a) {
  wm_array_drop(&a->ids);
  wm_array_drop(&a->user);
}

static int call(const wm_table* t, const lookup_arrays* a, bool scatter, wm_env* env) {
  return scatter ? wholememory_scatter(a->user.tensor, a->ids.tensor, t->window, &env->fns, NULL, -1)
                 : wholememory_gather(t->window, a->ids.tensor, a->user.tensor, &env->fns, NULL, -1);
}

/* The k-th block of all ranks, or of one, is refused, for every k there is; false when there is none. */
static bool null_blocks(wm_rank* r, wm_table* t, const char* route, bool scatter, bool one_rank) {
  lookup_arrays a = arrays(t, WHOLEMEMORY_DT_HALF);
  wm_env env;
  wm_env_start(&env);
  EXPECT(0, call(t, &a, scatter, &env));
  BALANCED(&env);
  int most = env.mallocs;
  wm_share(r, &most, sizeof most);
  bool exchanged = t->shape.kind.type == WHOLEMEMORY_MT_DISTRIBUTED || t->shape.kind.type == WHOLEMEMORY_MT_HIERARCHY;
  if (r->size > 1 && exchanged && !strcmp(route, "exchange")) CHECK(most > 0);
  for (int k = 1; k <= most; k++) {
    wm_env_start(&env);
    bool failing = !one_rank || r->rank == r->size - 1;
    env.fail_at = failing ? k : 0;
    int code = call(t, &a, scatter, &env);
    BALANCED(&env);
    bool refused = env.fail_at && env.mallocs >= k;
    if (refused) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, code, __FILE__, __LINE__, "a call whose scratch was refused");
    else if (code != 0) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, code, __FILE__, __LINE__, "a call beside a rank without scratch");
    OK(wholememory_communicator_barrier(t->comm));
  }
  drop(&a);
  /* What was scattered last is overwritten only when every rank is through. */
  OK(wholememory_communicator_barrier(t->comm));
  if (scatter) wm_table_fill(t, 0);
  wm_gather_check(t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_HALF, .count = 50});
  OK(wholememory_communicator_barrier(t->comm));
  return most > 0;
}

/* Calls that are refused balance too. */
static void refused_calls(const wm_table* t) {
  for (int scatter = 0; scatter < 2; scatter++) {
    lookup_arrays a = arrays(t, WHOLEMEMORY_DT_INT16);
    wm_env env;
    wm_env_start(&env);
    EXPECT(WHOLEMEMORY_LOGIC_ERROR, call(t, &a, scatter, &env));
    BALANCED(&env);
    wholememory_tensor_get_tensor_description(a.user.tensor)->sizes[0] = COUNT - 1;
    wholememory_tensor_get_tensor_description(a.user.tensor)->dtype = WHOLEMEMORY_DT_HALF;
    EXPECT(WHOLEMEMORY_LOGIC_ERROR, call(t, &a, scatter, &env));
    BALANCED(&env);
    CHECK_EQ(env.output_mallocs, 0);
    drop(&a);
  }
}

static void body(wm_rank* r) {
  const char* const routes[] = {"auto", "exchange"};
  for (int route = 0; route < 2; route++) {
    wm_meet(r);
    if (!r->threads || r->rank == 0) setenv("WHOLEMEMORY_ROUTE", routes[route], 1);
    wm_meet(r);
    wholememory_comm_t comm;
    OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
    char without[200] = "";
    for (int k = 0; k < WM_KINDS; k++) {
      if (!wm_kind_here(r, comm, &wm_kinds[k])) continue;
      wm_table t = wm_table_make(comm, (wm_shape){.kind = wm_kinds[k], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 90, .columns = COLUMNS});
      refused_calls(&t);
      for (int one_rank = 0; one_rank < 2; one_rank++) null_blocks(r, &t, routes[route], false, one_rank);
      bool any = null_blocks(r, &t, routes[route], true, false);
      if (!any) strcat(strcat(without, without[0] ? ", " : ""), wm_kinds[k].name);
      wm_table_drop(&t);
    }
    if (without[0]) wm_leave_out(r, "route %s has no scratch to refuse for %s", routes[route], without);
    OK(wholememory_destroy_communicator(comm));
  }
  wm_meet(r);
  if (!r->threads || r->rank == 0) unsetenv("WHOLEMEMORY_ROUTE");
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
