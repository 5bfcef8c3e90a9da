//! `graph_op.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::context_given;
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::operand;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory_tensor::wholememory_tensor_t;
use crate::ops::graph::{AppendUnique, SelfLoop};
use std::ffi::c_void;

/// Appends to the target nodes every neighbour that is not among them, once. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED.
///
/// Shapes: targets [t] and neighbours [n] of INT or INT64, both the same; mapping [n] of INT, or a tensor of dim 0 if not wanted.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors, wrong shapes, a mapping that is not INT, ids that are not integers of 32 or 64 bits;
/// LOGIC_ERROR for strides other than 1 and dtypes that differ.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn graph_append_unique(
    target_nodes_tensor: wholememory_tensor_t,
    neighbor_nodes_tensor: wholememory_tensor_t,
    output_unique_node_memory_context: *mut c_void,
    output_neighbor_raw_to_unique_mapping_tensor: wholememory_tensor_t,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    let _ = stream;
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    let given = environment.required();
    environment.run(|_| {
        let append = AppendUnique {
            targets: operand("target_nodes_tensor", target_nodes_tensor)?.description,
            neighbors: operand("neighbor_nodes_tensor", neighbor_nodes_tensor)?.description,
            mapping: operand(
                "output_neighbor_raw_to_unique_mapping_tensor",
                output_neighbor_raw_to_unique_mapping_tensor,
            )?
            .description,
        };
        append.check()?;
        context_given(
            "output_unique_node_memory_context",
            output_unique_node_memory_context,
        )?;
        given?;
        append.run()
    })
}

/// Puts an edge from every node to itself in front of its edges. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED.
///
/// Shapes, all INT: row pointers [R + 1], columns [E], output row pointers [R + 1], output columns [E + R].
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors, other dims and dtypes; LOGIC_ERROR for strides other than 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn csr_add_self_loop(
    csr_row_ptr_tensor: wholememory_tensor_t,
    csr_col_ptr_tensor: wholememory_tensor_t,
    output_csr_row_ptr_tensor: wholememory_tensor_t,
    output_csr_col_ptr_tensor: wholememory_tensor_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    let _ = stream;
    guard::code(|| {
        let loops = SelfLoop {
            row_pointers: operand("csr_row_ptr_tensor", csr_row_ptr_tensor)?.description,
            columns: operand("csr_col_ptr_tensor", csr_col_ptr_tensor)?.description,
            output_row_pointers: operand("output_csr_row_ptr_tensor", output_csr_row_ptr_tensor)?.description,
            output_columns: operand("output_csr_col_ptr_tensor", output_csr_col_ptr_tensor)?.description,
        };
        loops.check()?;
        loops.run()
    })
}
