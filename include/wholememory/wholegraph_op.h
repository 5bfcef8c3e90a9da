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
 * Samples up to `max_sample_count` neighbours of every center node, without replacement, each with the same chance; all of them in the order of their edges
 * where that is 0 or less or a center has no more. The same seed and list of centers give the same neighbours in the same order on every
 * platform, memory type and number of ranks. Collective where the graph is DISTRIBUTED or HIERARCHY, also without centers.
 *
 * Shapes: row pointers [V + 1] of INT64; columns of INT or INT64; centers [c] of INT or INT64; offsets [c + 1] of INT, c below 2^31 - 1:
 * neighbours of center i are at `offset[i]` to `offset[i + 1]` of the outputs. The parts of the graph are all mapped (CONTINUOUS, CHUNKED,
 * plain), or all DISTRIBUTED, or all HIERARCHY; tensors over a part of a handle are sampled as they are. Centres and offsets lie in plain
 * memory or a CONTINUOUS handle. Outputs, each from `output_fns.malloc_fn` with DEVICE and the final size, also for size 0: neighbours
 * (required, dtype of the columns), place of the center in the list (INT), edge (INT64: its place in the columns); a NULL context is not
 * wanted. They are asked for in this order, edges first for DISTRIBUTED and HIERARCHY. The work is ordered on `stream`; the host waits
 * once, for the size of the outputs (more often where rows are exchanged).
 *
 * Errors (on the failing rank alone; the others go on without it; nothing is written): INVALID_INPUT for NULL, dead or foreign tensors,
 * tensors of other than one dimension, parts on different kinds of memory, unsupported dtypes, too few offsets, data that cannot be
 * reached, a NULL context, `p_env_fns` NULL or without a function that is needed; LOGIC_ERROR for strides other than 1, for other dtypes
 * of row pointers and offsets, and on all ranks for graphs that differ between them; INVALID_VALUE for centers that are no nodes, row
 * pointers of centers that decrease or leave the columns, and 2^31 outputs or more; NOT_SUPPORTED while the stream records a graph;
 * OUT_OF_MEMORY; CUDA_ERROR; COMMUNICATION_ERROR. Where the tensors of the graph are all NULL or foreign (or destroyed, not always), they
 * name no ranks: that rank takes no part, and the others wait for its next collective call.
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
 * As `wholegraph_csr_unweighted_sample_without_replacement`, each neighbour with a chance by its weight: FLOAT or DOUBLE, at least one for
 * each column. Neighbours of a choice come with the best first. Those of weights that are not above 0 come only after all others, in the
 * order of their edges. Choices agree between platforms up to neighbours whose keys differ by no more than the last places of the
 * logarithm.
 *
 * Errors: those, and INVALID_INPUT for fewer weights than columns.
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
 * Fills `output` ([n] of INT or INT64 in host memory) with the non-negative integers that the samplers draw from this seed and subsequence
 * (the number of one of the streams of random numbers that a seed has). Local. INVALID_INPUT for NULL, dead or foreign tensors, other
 * shapes and dtypes, and memory that cannot be reached.
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
