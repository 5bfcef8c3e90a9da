//! `graph_op.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::address;
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::operand;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory_tensor::wholememory_tensor_t;
use crate::ops::graph::{AppendUnique, SelfLoop};
use crate::platform::Stream;
use std::ffi::c_void;

/// Writes to an array from `output_fns.malloc_fn` for `output_unique_node_memory_context` the target nodes as they are (doubles stay), then every
/// neighbour that is not among them, once, in the order of their first occurrence; and to the mapping, if wanted, for every neighbour its
/// first place in that array. Local. Any value is an id, and either list may be empty. The output has the dtype of the lists and is
/// allocated also for no ids. The work is ordered on `stream`; the host waits once, for the size of the output.
///
/// Shapes: targets [t] and neighbours [n] of INT or INT64, both the same; mapping [n] of INT, or a tensor of dim 0 or over NULL if not wanted.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors, wrong shapes, a mapping that is not INT or too short, ids that are not integers
/// of 32 or 64 bits, data that cannot be reached, a NULL context, and `p_env_fns` NULL or without a function that is needed; LOGIC_ERROR
/// for strides other than 1 and dtypes that differ; INVALID_VALUE for 2^31 ids or more; NOT_SUPPORTED while the stream records a graph;
/// OUT_OF_MEMORY; CUDA_ERROR. Nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn graph_append_unique(
    target_nodes_tensor: wholememory_tensor_t,
    neighbor_nodes_tensor: wholememory_tensor_t,
    output_unique_node_memory_context: *mut c_void,
    output_neighbor_raw_to_unique_mapping_tensor: wholememory_tensor_t,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    let given = environment.required();
    environment.run(|buffers| {
        let append = AppendUnique {
            targets: operand("target_nodes_tensor", target_nodes_tensor)?,
            neighbors: operand("neighbor_nodes_tensor", neighbor_nodes_tensor)?,
            mapping: operand(
                "output_neighbor_raw_to_unique_mapping_tensor",
                output_neighbor_raw_to_unique_mapping_tensor,
            )?,
            context: address(output_unique_node_memory_context),
        };
        append.run(given, buffers, Stream(stream as usize))
    })
}

/// Puts an edge from every node to itself in front of its edges: `output_row[r] = row[r] + r`, and row r of the output is r followed by the
/// columns of row r in their order (self loops among them stay). Local. The work is ordered on `stream` and may still run on return.
///
/// Shapes, all INT: row pointers [R + 1], columns [E], output row pointers [R + 1], output columns [E + R].
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors, other dims and dtypes, no row pointers, outputs that are too short, data that
/// cannot be reached; LOGIC_ERROR for strides other than 1; INVALID_VALUE for results that INT cannot number and, on the CPU platform, for
/// row pointers that decrease or leave the columns (nothing is written then; on GPUs the columns of such rows are left out).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csr_add_self_loop(
    csr_row_ptr_tensor: wholememory_tensor_t,
    csr_col_ptr_tensor: wholememory_tensor_t,
    output_csr_row_ptr_tensor: wholememory_tensor_t,
    output_csr_col_ptr_tensor: wholememory_tensor_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    guard::code(|| {
        let loops = SelfLoop {
            row_pointers: operand("csr_row_ptr_tensor", csr_row_ptr_tensor)?,
            columns: operand("csr_col_ptr_tensor", csr_col_ptr_tensor)?,
            output_row_pointers: operand("output_csr_row_ptr_tensor", output_csr_row_ptr_tensor)?,
            output_columns: operand("output_csr_col_ptr_tensor", output_csr_col_ptr_tensor)?,
        };
        loops.run(Stream(stream as usize))
    })
}
