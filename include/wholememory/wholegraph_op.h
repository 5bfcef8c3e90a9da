/* Sampling of neighbours, and the random numbers behind it. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_WHOLEGRAPH_OP_H_
#define WHOLEMEMORY_WHOLEGRAPH_OP_H_

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Samples up to `max_sample_count` neighbours of every centre node, without replacement (0 or less: all). **Not in this version**: the arguments are checked, then
 * NOT_IMPLEMENTED.
 *
 * Shapes: row pointers [V + 1] of INT64; columns of INT or INT64; centres [c] of INT or INT64; offsets [c + 1] of INT. Output contexts:
 * neighbours (required, dtype of the columns), place of the centre (INT) and edge (INT64); NULL is not wanted.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors, tensors of other than one dimension, and unsupported memory types or dtypes; LOGIC_ERROR for strides
 * other than 1, and for other dtypes of row pointers and offsets.
 */
wholememory_error_code_t wholegraph_csr_unweighted_sample_without_replacement(wholememory_tensor_t wm_csr_row_ptr_tensor,
                                                                              wholememory_tensor_t wm_csr_col_ptr_tensor,
                                                                              wholememory_tensor_t center_nodes_tensor,
                                                                              int max_sample_count,
                                                                              wholememory_tensor_t output_sample_offset_tensor,
                                                                              void *output_dest_memory_context,
                                                                              void *output_center_localid_memory_context,
                                                                              void *output_edge_gid_memory_context,
                                                                              unsigned long long random_seed,
                                                                              wholememory_env_func_t *p_env_fns,
                                                                              void *stream);

/**
 * As `wholegraph_csr_unweighted_sample_without_replacement`, each neighbour with a chance by its weight: FLOAT or DOUBLE, one for each column. **Not in
 * this version**: the arguments are checked, then NOT_IMPLEMENTED.
 */
wholememory_error_code_t wholegraph_csr_weighted_sample_without_replacement(wholememory_tensor_t wm_csr_row_ptr_tensor,
                                                                            wholememory_tensor_t wm_csr_col_ptr_tensor,
                                                                            wholememory_tensor_t wm_csr_weight_ptr_tensor,
                                                                            wholememory_tensor_t center_nodes_tensor,
                                                                            int max_sample_count,
                                                                            wholememory_tensor_t output_sample_offset_tensor,
                                                                            void *output_dest_memory_context,
                                                                            void *output_center_localid_memory_context,
                                                                            void *output_edge_gid_memory_context,
                                                                            unsigned long long random_seed,
                                                                            wholememory_env_func_t *p_env_fns,
                                                                            void *stream);

/**
 * Fills `output` ([n] of INT or INT64 in host memory) with the non-negative integers that the samplers draw from this seed and
 * subsequence. Local. INVALID_INPUT for NULL, dead or foreign tensors, other shapes and dtypes, and memory that cannot be reached.
 */
wholememory_error_code_t generate_random_positive_int_cpu(int64_t random_seed,
                                                          int64_t subsequence,
                                                          wholememory_tensor_t output);

/**
 * Fills `output` ([n] of FLOAT in host memory) with the negative, exponentially distributed numbers that the weighted sampler draws from
 * this seed and subsequence. Local. Errors as `generate_random_positive_int_cpu`.
 */
wholememory_error_code_t generate_exponential_distribution_negative_float_cpu(int64_t random_seed,
                                                                              int64_t subsequence,
                                                                              wholememory_tensor_t output);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_WHOLEGRAPH_OP_H_ */
