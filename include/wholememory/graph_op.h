/* Operations on graphs. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_GRAPH_OP_H_
#define WHOLEMEMORY_GRAPH_OP_H_

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes to an array from `output_fns.malloc_fn` for `output_unique_node_memory_context` the target nodes as they are (doubles stay), then every
 * neighbour that is not among them, once, in the order of their first occurrence; and to the mapping, if wanted, for every neighbour its
 * first place in that array. Local. Any value is an id, and either list may be empty. The output has the dtype of the lists and is
 * allocated also for no ids. The work is ordered on `stream`; the host waits once, for the size of the output.
 *
 * Shapes: targets [t] and neighbours [n] of INT or INT64, both the same; mapping [n] of INT, or a tensor of dim 0 or over NULL if not wanted.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors, wrong shapes, a mapping that is not INT or too short, ids that are not integers
 * of 32 or 64 bits, data that cannot be reached, a NULL context, and `p_env_fns` NULL or without a function that is needed; LOGIC_ERROR
 * for strides other than 1 and dtypes that differ; INVALID_VALUE for 2^31 ids or more; NOT_SUPPORTED while the stream records a graph;
 * OUT_OF_MEMORY; CUDA_ERROR. Nothing is written then.
 */
wholememory_error_code_t graph_append_unique(wholememory_tensor_t target_nodes_tensor,
                                             wholememory_tensor_t neighbor_nodes_tensor,
                                             void *output_unique_node_memory_context,
                                             wholememory_tensor_t output_neighbor_raw_to_unique_mapping_tensor,
                                             wholememory_env_func_t *p_env_fns,
                                             void *stream);

/**
 * Puts an edge from every node to itself in front of its edges: `output_row[r] = row[r] + r`, and row r of the output is r followed by the
 * columns of row r in their order (self loops among them stay). Local. The work is ordered on `stream` and may still run on return.
 *
 * Shapes, all INT: row pointers [R + 1], columns [E], output row pointers [R + 1], output columns [E + R].
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors, other dims and dtypes, no row pointers, outputs that are too short, data that
 * cannot be reached; LOGIC_ERROR for strides other than 1; INVALID_VALUE for results that INT cannot number and, on the CPU platform, for
 * row pointers that decrease or leave the columns (nothing is written then; on GPUs the columns of such rows are left out).
 */
wholememory_error_code_t csr_add_self_loop(wholememory_tensor_t csr_row_ptr_tensor,
                                           wholememory_tensor_t csr_col_ptr_tensor,
                                           wholememory_tensor_t output_csr_row_ptr_tensor,
                                           wholememory_tensor_t output_csr_col_ptr_tensor,
                                           void *stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_GRAPH_OP_H_ */
