/* wholememory_env_test_op: values, contexts, order of callbacks, strides, refusals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, WIDTH = 7, ROWS = 100 };

/* Small whole numbers and halves: sums are exact in every dtype. */
static uint64_t number(wholememory_dtype_t dtype, double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  if (dtype == WHOLEMEMORY_DT_DOUBLE) return bits;
  for (int i = 0; i < WM_DTYPES; i++)
    if (wm_dtypes[i].id == dtype && wm_dtypes[i].floating) return wm_convert(WHOLEMEMORY_DT_DOUBLE, dtype, bits);
  return wm_convert(WHOLEMEMORY_DT_INT64, dtype, (uint64_t)(int64_t)value);
}

static double input_value(const wm_dtype* dtype, int column) { return dtype->floating ? column * 0.5 - 1 : column - 3; }

static void check_output(const wm_dtype* dtype, const wm_context* c, int kind) {
  REQUIRE(c->pointer != NULL);
  CHECK_EQ(c->kind, kind);
  CHECK(c->desc.dim == 2 && c->desc.sizes[0] == ROWS && c->desc.sizes[1] == WIDTH && c->desc.dtype == dtype->id);
  size_t bytes = wm_desc_bytes(&c->desc);
  char* host = malloc(bytes);
  REQUIRE(host != NULL);
  if (kind == WHOLEMEMORY_MA_DEVICE) wm_copy(host, c->pointer, bytes);
  else memcpy(host, c->pointer, bytes);
  for (int i = 0; i < ROWS * WIDTH; i++) {
    int row = i / WIDTH, column = i % WIDTH;
    uint64_t got = wm_bits(dtype->id, host + ((size_t)row * (size_t)c->desc.strides[0] + (size_t)column) * (size_t)dtype->bytes);
    if (!CHECK_EQ(got, number(dtype->id, input_value(dtype, column) + row))) break;
  }
  free(host);
}

static void values(const wm_dtype* dtype, int pad, int contexts) {
  wm_array in = wm_array_make((wm_view){dtype->id, 1, WIDTH, 1, 1, 2, 0});
  wm_array out = wm_array_make((wm_view){dtype->id, 2, ROWS, WIDTH, WIDTH + pad, pad, 0});
  for (int c = 0; c < WIDTH; c++) wm_set_bits(dtype->id, wm_array_at(&in, c, 0), number(dtype->id, input_value(dtype, c)));
  wm_array_push(&in);
  wm_env env;
  wm_env_start(&env);
  wm_context made[3];
  for (int i = 0; i < 3; i++) wm_context_start(&made[i], &env);
  EXPECT(0, wholememory_env_test_op(in.tensor, out.tensor, contexts & 1 ? &made[0] : NULL, contexts & 2 ? &made[1] : NULL,
                                    contexts & 4 ? &made[2] : NULL, ROWS, &env.fns, NULL));
  wm_finish();
  BALANCED(&env);
  char order[16];
  snprintf(order, sizeof order, "cm%s%s%sfd", contexts & 1 ? "D" : "", contexts & 2 ? "P" : "", contexts & 4 ? "H" : "");
  if (strcmp(env.order, order)) FAILED("callbacks came in the order %s, not %s", env.order, order);
  CHECK_EQ(env.shapes[0].sizes[0], ROWS * WIDTH);
  CHECK_EQ(env.shapes[0].dtype, dtype->id);
  for (int row = 0; row < ROWS; row++)
    for (int c = 0; c < WIDTH; c++) wm_set_bits(dtype->id, wm_array_at(&out, row, c), number(dtype->id, input_value(dtype, c) + row));
  wm_array_matches(&out, "the fixed output");
  const int kinds[3] = {WHOLEMEMORY_MA_DEVICE, WHOLEMEMORY_MA_PINNED, WHOLEMEMORY_MA_HOST};
  for (int i = 0; i < 3; i++) {
    if (contexts >> i & 1) check_output(dtype, &made[i], kinds[i]);
    else CHECK_EQ(made[i].mallocs, 0);
    wm_context_drop(&made[i]);
  }
  wm_array_drop(&in);
  wm_array_drop(&out);
}

static void refusals(void) {
  wm_array in = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 1, WIDTH, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, ROWS, WIDTH, WIDTH, 0, 0});
  wholememory_tensor_description_t *in_desc = wholememory_tensor_get_tensor_description(in.tensor), in_good = *in_desc;
  wholememory_tensor_description_t *out_desc = wholememory_tensor_get_tensor_description(out.tensor), out_good = *out_desc;
  wm_env env;
  wm_env_start(&env);
  wm_context made;
  wm_context_start(&made, &env);
#define CALL(rows) wholememory_env_test_op(in.tensor, out.tensor, &made, NULL, NULL, rows, &env.fns, NULL)
#define WITH(change, code, rows) \
  do { change; EXPECT(code, CALL(rows)); *in_desc = in_good; *out_desc = out_good; BALANCED(&env); } while (0)
  WITH(in_desc->dim = 2, BAD_INPUT, ROWS);
  WITH(out_desc->dim = 1, BAD_INPUT, ROWS);
  WITH(in_desc->sizes[0] = WIDTH - 1, BAD_INPUT, ROWS);
  WITH(out_desc->sizes[0] = ROWS - 1, BAD_INPUT, ROWS);
  WITH(in_desc->dtype = WHOLEMEMORY_DT_HALF, BAD_INPUT, ROWS);
  WITH(in_desc->dtype = out_desc->dtype = (wholememory_dtype_t)99, BAD_INPUT, ROWS);
  WITH(in_desc->dtype = out_desc->dtype = WHOLEMEMORY_DT_UNKNOWN, BAD_INPUT, ROWS);
  WITH((void)0, BAD_INPUT, ROWS + 1);
  WITH((void)0, BAD_INPUT, -1);
  CHECK_EQ(env.output_mallocs, 0);
  EXPECT(BAD_INPUT, wholememory_env_test_op(NULL, out.tensor, &made, NULL, NULL, ROWS, &env.fns, NULL));
  EXPECT(BAD_INPUT, wholememory_env_test_op(in.tensor, NULL, &made, NULL, NULL, ROWS, &env.fns, NULL));
  EXPECT(BAD_INPUT, wholememory_env_test_op(in.tensor, out.tensor, &made, NULL, NULL, ROWS, NULL, NULL));
  /* Refused memory, of the library's own and for the caller. */
  wm_env_start(&env);
  env.fail_at = 1;
  EXPECT(WHOLEMEMORY_OUT_OF_MEMORY, CALL(ROWS));
  BALANCED(&env);
  wm_context_drop(&made);
  wm_env_start(&env);
  wm_context_start(&made, &env);
  env.fail_output_at = 1;
  EXPECT(WHOLEMEMORY_OUT_OF_MEMORY, CALL(ROWS));
  BALANCED(&env);
  wm_array_matches(&out, "the fixed output of refused calls");
  /* Nothing to compute is no fault. */
  wm_env_start(&env);
  wm_context_start(&made, &env);
  out_desc->sizes[0] = 0;
  EXPECT(0, CALL(0));
  BALANCED(&env);
  *out_desc = out_good;
  wm_context_drop(&made);
  wm_array_drop(&in);
  wm_array_drop(&out);
}

static void body(wm_rank* r) {
  (void)r;
  for (int d = 0; d < WM_DTYPES; d++)
    for (int contexts = 0; contexts < 8; contexts++) values(&wm_dtypes[d], contexts % 2 * 3, contexts);
  refusals();
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
