/* The headers as C sees them: every function's signature, every layout and value that C code relies on. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <wholememory/embedding.h>
#include <wholememory/env_func_ptrs.h>
#include <wholememory/error.h>
#include <wholememory/global_reference.h>
#include <wholememory/graph_op.h>
#include <wholememory/tensor_description.h>
#include <wholememory/wholegraph_op.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_op.h>
#include <wholememory/wholememory_tensor.h>

#include "harness.h"

/* A wrong signature does not compile. */
#define X(result, name, arguments) static result(*const the_##name) arguments = name;
#include "exports.inc"
#undef X

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field)
SIZE(wholememory_unique_id_t, 128);
SIZE(clique_info_t, 24);
AT(clique_info_t, clique_num, 20);
SIZE(wholememory_gref_t, 40);
AT(wholememory_gref_t, stride, 24);
AT(wholememory_gref_t, same_chunk, 32);
SIZE(wholememory_array_description_t, 24);
AT(wholememory_array_description_t, dtype, 16);
SIZE(wholememory_matrix_description_t, 40);
AT(wholememory_matrix_description_t, storage_offset, 24);
SIZE(wholememory_tensor_description_t, 144);
AT(wholememory_tensor_description_t, strides, 64);
AT(wholememory_tensor_description_t, dim, 136);
AT(wholememory_tensor_description_t, dtype, 140);
SIZE(wholememory_env_func_t, 64);
AT(wholememory_env_func_t, output_fns, 40);
SIZE(wholememory_error_code_t, 4);
SIZE(wholememory_dtype_t, 4);
_Static_assert(WHOLEMEMORY_SPILT_NO_COLOR == -1 && WHOLEMEMORY_UNIQUE_ID_BYTES == 128 && WHOLEMEMORY_MAX_TENSOR_DIM == 8,
               "macros");
_Static_assert(WHOLEMEMORY_SYSTEM_ERROR == 10 && WHOLEMEMORY_MT_HIERARCHY == 4 && WHOLEMEMORY_ML_HOST == 2 &&
                   WHOLEMEMORY_DT_COUNT == 9 && WHOLEMEMORY_MA_PINNED == 3 && LEVEL_TRACE == 5 &&
                   WHOLEMEMORY_OPT_ADAGRAD == 4 && WHOLEMEMORY_AT_READWRITE == 2 && WHOLEMEMORY_DB_NVSHMEM == 2,
               "last values of the enumerations");

static wholememory_error_code_t passed_on(wholememory_error_code_t code) {
  WHOLEMEMORY_RETURN_ON_FAIL(code);
  return WHOLEMEMORY_SUCCESS;
}

static void body(wm_rank* r) {
  (void)r;
  int functions = 0;
#define X(result, name, arguments) functions += the_##name != NULL && dlsym(RTLD_DEFAULT, #name) != NULL;
#include "exports.inc"
#undef X
  CHECK_EQ(functions, 104);
  /* Exported, and declared in no header. */
  CHECK(dlsym(RTLD_DEFAULT, "wholememory_load_hdfs_support") != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "wholememory_load_from_hdfs_file") != NULL);
  CHECK_EQ(passed_on(WHOLEMEMORY_SUCCESS), WHOLEMEMORY_SUCCESS);
  CHECK_EQ(passed_on(WHOLEMEMORY_OUT_OF_MEMORY), WHOLEMEMORY_OUT_OF_MEMORY);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
