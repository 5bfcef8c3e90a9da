/* The graph operations check their arguments in the order of their contract, write nothing where they refuse, and take
 * the sound call. */
#include <stdio.h>
#include <string.h>
#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>

#include "device.h"
#include "table.h"

enum { INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR };
enum { MOST = 5, SAME = -99 };

enum { BLOCK_BYTES = 64 };

/* Device memory full of zeros: a graph without edges, lists of node 0. */
static char* memory;
static wm_context contexts[MOST];

typedef struct { const char* what; int at, dim, dtype, stride, want; } defect; /* SAME leaves a field as it is */
typedef struct { int dtype; int64_t size; } operand;
typedef int (*operation)(const wholememory_tensor_t* t, wholememory_env_func_t* env);

/* Each defect alone; then the sound call. */
static void check(const char* name, operation call, const operand* operands, int count, const defect* defects, int outputs) {
  wm_env env;
  wm_env_start(&env);
  for (const defect* d = defects;; d++) {
    wholememory_tensor_t t[MOST];
    for (int i = 0; i < count; i++) {
      wholememory_tensor_description_t desc = wm_desc((wholememory_dtype_t)operands[i].dtype, 1, operands[i].size, 1, 1, 0);
      OK(wholememory_make_tensor_from_pointer(&t[i], memory + i * BLOCK_BYTES, &desc));
      if (!d->what || d->at != i) continue;
      wholememory_tensor_description_t* live = wholememory_tensor_get_tensor_description(t[i]);
      if (d->dim != SAME) live->dim = d->dim;
      if (d->dtype != SAME) live->dtype = (wholememory_dtype_t)d->dtype;
      if (d->stride != SAME) live->strides[0] = d->stride;
    }
    char what[120];
    snprintf(what, sizeof what, "%s, %s", name, d->what ? d->what : "sound");
    wm_context_start(&contexts[0], &env);
    wm_check_code(d->what ? d->want : 0, call(t, &env.fns), __FILE__, __LINE__, what);
    wm_finish();
    wm_context_drop(&contexts[0]);
    CHECK_EQ(env.output_mallocs, d->what ? 0 : outputs);
    for (int i = 0; i < count; i++) OK(wholememory_destroy_tensor(t[i]));
    if (!d->what) break;
  }
  BALANCED(&env);
}

static int append_unique(const wholememory_tensor_t* t, wholememory_env_func_t* env) {
  return graph_append_unique(t[0], t[1], &contexts[0], t[2], env, NULL);
}
static int self_loop(const wholememory_tensor_t* t, wholememory_env_func_t* env) {
  (void)env;
  return csr_add_self_loop(t[0], t[1], t[2], t[3], NULL);
}
static int unweighted(const wholememory_tensor_t* t, wholememory_env_func_t* env) {
  return wholegraph_csr_unweighted_sample_without_replacement(t[0], t[1], t[2], 3, t[3], &contexts[0], NULL, NULL, 7, env, NULL);
}
static int weighted(const wholememory_tensor_t* t, wholememory_env_func_t* env) {
  return wholegraph_csr_weighted_sample_without_replacement(t[0], t[1], t[4], t[2], 3, t[3], &contexts[0], NULL, NULL, 7, env, NULL);
}

static void body(wm_rank* r) {
  (void)r;
  memory = wm_alloc(MOST * BLOCK_BYTES);
  wm_fill(memory, 0, MOST * BLOCK_BYTES);
  const operand unique[] = {{WHOLEMEMORY_DT_INT, 4}, {WHOLEMEMORY_DT_INT, 8}, {WHOLEMEMORY_DT_INT, 8}};
  const defect unique_defects[] = {
      {"targets dim", 0, 2, SAME, SAME, INPUT},
      {"neighbours dim", 1, 2, SAME, SAME, INPUT},
      {"map dim", 2, 2, SAME, SAME, INPUT},
      {"map dtype", 2, SAME, WHOLEMEMORY_DT_INT64, SAME, INPUT},
      {"targets stride", 0, SAME, SAME, 2, LOGIC},
      {"neighbours stride", 1, SAME, SAME, 2, LOGIC},
      {"dtypes differ", 1, SAME, WHOLEMEMORY_DT_INT64, SAME, LOGIC},
      {NULL, 0, 0, 0, 0, 0}};
  check("append unique", append_unique, unique, 3, unique_defects, 1);
  const operand floats[] = {{WHOLEMEMORY_DT_FLOAT, 4}, {WHOLEMEMORY_DT_FLOAT, 4}, {WHOLEMEMORY_DT_INT, 4}};
  wholememory_tensor_t t[3];
  for (int i = 0; i < 3; i++) {
    wholememory_tensor_description_t desc = wm_desc((wholememory_dtype_t)floats[i].dtype, 1, 4, 1, 1, 0);
    OK(wholememory_make_tensor_from_pointer(&t[i], memory + i * BLOCK_BYTES, &desc));
  }
  EXPECT(INPUT, append_unique(t, NULL));
  for (int i = 0; i < 3; i++) OK(wholememory_destroy_tensor(t[i]));

  const operand loops[] = {{WHOLEMEMORY_DT_INT, 4}, {WHOLEMEMORY_DT_INT, 5}, {WHOLEMEMORY_DT_INT, 4}, {WHOLEMEMORY_DT_INT, 8}};
  const defect loop_defects[] = {
      {"row dim", 0, 2, SAME, SAME, INPUT},           {"row dtype", 0, SAME, WHOLEMEMORY_DT_INT64, SAME, INPUT},
      {"column dim", 1, 2, SAME, SAME, INPUT},        {"column dtype", 1, SAME, WHOLEMEMORY_DT_FLOAT, SAME, INPUT},
      {"output row dim", 2, 0, SAME, SAME, INPUT},    {"output row dtype", 2, SAME, WHOLEMEMORY_DT_INT8, SAME, INPUT},
      {"output column dim", 3, 3, SAME, SAME, INPUT}, {"output column dtype", 3, SAME, 99, SAME, INPUT},
      {"row stride", 0, SAME, SAME, 2, LOGIC},        {"output column stride", 3, SAME, SAME, 0, LOGIC},
      {NULL, 0, 0, 0, 0, 0}};
  check("self loop", self_loop, loops, 4, loop_defects, 0);

  const operand sampling[] = {{WHOLEMEMORY_DT_INT64, 4}, {WHOLEMEMORY_DT_INT, 8}, {WHOLEMEMORY_DT_INT, 2}, {WHOLEMEMORY_DT_INT, 3}, {WHOLEMEMORY_DT_FLOAT, 8}};
  const defect sampling_defects[] = {
      {"row dim", 0, 2, SAME, SAME, INPUT},
      {"column dim", 1, 2, SAME, SAME, INPUT},
      {"row stride", 0, SAME, SAME, 2, LOGIC},
      {"column stride", 1, SAME, SAME, 2, LOGIC},
      {"centres dim", 2, 2, SAME, SAME, INPUT},
      {"centres stride", 2, SAME, SAME, 2, LOGIC},
      {"offsets dim", 3, 2, SAME, SAME, INPUT},
      {"offsets stride", 3, SAME, SAME, 2, LOGIC},
      {"centres dtype", 2, SAME, WHOLEMEMORY_DT_FLOAT, SAME, INPUT},
      {"column dtype", 1, SAME, WHOLEMEMORY_DT_DOUBLE, SAME, INPUT},
      {"row dtype", 0, SAME, WHOLEMEMORY_DT_INT, SAME, LOGIC},
      {"offsets dtype", 3, SAME, WHOLEMEMORY_DT_INT64, SAME, LOGIC},
      {NULL, 0, 0, 0, 0, 0}};
  check("unweighted sampling", unweighted, sampling, 4, sampling_defects, 1);
  check("weighted sampling", weighted, sampling, 5, sampling_defects, 1);
  const defect weight_defects[] = {{"weight dim", 4, 2, SAME, SAME, INPUT},
                                   {"weight stride", 4, SAME, SAME, 2, LOGIC},
                                   {"weight dtype", 4, SAME, WHOLEMEMORY_DT_HALF, SAME, INPUT},
                                   {NULL, 0, 0, 0, 0, 0}};
  check("weighted sampling", weighted, sampling, 5, weight_defects, 1);
  wm_release(memory);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
