/* Operations on rows. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_WHOLEMEMORY_OP_H_
#define WHOLEMEMORY_WHOLEMEMORY_OP_H_

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * `output[i] = table[indices[i]]` for every i, converted to the dtype of `output`. Rows of negative ids and of ids
 * not below the rows of the table are left untouched. Collective for DISTRIBUTED and HIERARCHY tables, also with no indices.
 *
 * Shapes: table [rows] or [rows, D]; indices [n] of INT or INT64; output [n, D] ([n] or [n, 1] for a table [rows]), any
 * row stride. Indices and output lie in plain memory or a CONTINUOUS handle. Dtypes: floating to floating, integer to integer.
 * A table that is a window of a DISTRIBUTED or HIERARCHY one begins at any column, but at the first row. The output must not overlap the
 * memory of the table: rows may be read after others were written.
 * `p_env_fns` may be NULL (the library then takes scratch of its own). `stream` is a `cudaStream_t`; the work is ordered on it and may
 * still run on return; the CPU platform ignores it and is done on return. `gather_sms` is the launch width, -1 (the default in C++) automatic.
 *
 * Errors (on the failing rank alone; the others go on without it): INVALID_INPUT for NULL, dead or foreign objects, wrong shapes, data that cannot be
 * reached; LOGIC_ERROR for a table whose last stride is not 1 or dtype is none, mixed kinds of dtype, an index dtype other than INT
 * and INT64, rows that differ from the indices, a misaligned output, `gather_sms` 0 or below -1; OUT_OF_MEMORY; CUDA_ERROR; COMMUNICATION_ERROR.
 * A NULL or foreign table names no ranks, a destroyed one not always: that rank takes no part, and the others wait for its next collective call.
 */
wholememory_error_code_t wholememory_gather(wholememory_tensor_t wholememory_tensor,
                                            wholememory_tensor_t indices_tensor,
                                            wholememory_tensor_t output_tensor,
                                            wholememory_env_func_t *p_env_fns,
                                            void *stream,
                                            int gather_sms);

/**
 * `table[indices[i]] = input[i]` for every i, converted to the dtype of the table. Negative ids and ids not below the rows of
 * the table are skipped. Which of several equal ids wins is not specified. Other ranks see the rows after a barrier.
 * Collective for DISTRIBUTED and HIERARCHY tables, also with no indices.
 *
 * Shapes, dtypes, `p_env_fns`, `stream`, `scatter_sms` (-1, the default in C++, is automatic) and errors as `wholememory_gather`, with `input` in the
 * place of its output; `input` is [n, 1] for a table [N], and a table whose description is bad is INVALID_INPUT.
 */
wholememory_error_code_t wholememory_scatter(wholememory_tensor_t input_tensor,
                                             wholememory_tensor_t indices_tensor,
                                             wholememory_tensor_t wholememory_tensor,
                                             wholememory_env_func_t *p_env_fns,
                                             void *stream,
                                             int scatter_sms);

/**
 * Tries the functions of the caller: computes v[i][j] = i + input[j] for i in [0, `entry_count`) in a block of scratch and copies it to
 * `output_fixed_tensor` and, for each context that is not NULL, to memory from `output_fns.malloc_fn` (device, pinned, host in this order).
 *
 * Shapes: input [D]; output [`entry_count`, D] of the same dtype. Host results are valid when the stream is synchronised.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects, wrong shapes or dtypes, and for `p_env_fns` NULL; NOT_SUPPORTED while the stream records a
 * graph; OUT_OF_MEMORY; CUDA_ERROR.
 */
wholememory_error_code_t wholememory_env_test_op(wholememory_tensor_t input_tensor,
                                                 wholememory_tensor_t output_fixed_tensor,
                                                 void *output_variable_device_tensor_handle,
                                                 void *output_variable_pinned_tensor_handle,
                                                 void *output_variable_host_tensor_handle,
                                                 int64_t output_variable_entry_count,
                                                 wholememory_env_func_t *p_env_fns,
                                                 void *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* Default arguments for C++, by a second declaration. */
#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#endif
extern "C" {
wholememory_error_code_t wholememory_gather(wholememory_tensor_t wholememory_tensor,
                                            wholememory_tensor_t indices_tensor,
                                            wholememory_tensor_t output_tensor,
                                            wholememory_env_func_t *p_env_fns,
                                            void *stream,
                                            int gather_sms = -1);
wholememory_error_code_t wholememory_scatter(wholememory_tensor_t input_tensor,
                                             wholememory_tensor_t indices_tensor,
                                             wholememory_tensor_t wholememory_tensor,
                                             wholememory_env_func_t *p_env_fns,
                                             void *stream,
                                             int scatter_sms = -1);
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif  /* WHOLEMEMORY_WHOLEMEMORY_OP_H_ */
