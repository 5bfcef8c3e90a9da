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
 * Appends to the target nodes every neighbour that is not among them, once. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED.
 *
 * Shapes: targets [t] and neighbours [n] of INT or INT64, both the same; mapping [n] of INT, or a tensor of dim 0 if not wanted.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors, wrong shapes, a mapping that is not INT, ids that are not integers of 32 or 64 bits;
 * LOGIC_ERROR for strides other than 1 and dtypes that differ.
 */
wholememory_error_code_t graph_append_unique(wholememory_tensor_t target_nodes_tensor,
                                             wholememory_tensor_t neighbor_nodes_tensor,
                                             void *output_unique_node_memory_context,
                                             wholememory_tensor_t output_neighbor_raw_to_unique_mapping_tensor,
                                             wholememory_env_func_t *p_env_fns,
                                             void *stream);

/**
 * Puts an edge from every node to itself in front of its edges. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED.
 *
 * Shapes, all INT: row pointers [R + 1], columns [E], output row pointers [R + 1], output columns [E + R].
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors, other dims and dtypes; LOGIC_ERROR for strides other than 1.
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
