//! `wholegraph_op.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::context_given;
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::operand;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory_tensor::wholememory_tensor_t;
use crate::ops::random;
use crate::ops::sampling::Sampling;
use std::ffi::{c_int, c_ulonglong, c_void};

/// Samples up to `max_sample_count` neighbours of every centre node, without replacement (0 or less: all). **Not in this version**: the arguments are checked, then
/// NOT_IMPLEMENTED.
///
/// Shapes: row pointers [V + 1] of INT64; columns of INT or INT64; centres [c] of INT or INT64; offsets [c + 1] of INT. Output contexts:
/// neighbours (required, dtype of the columns), place of the centre (INT) and edge (INT64); NULL is not wanted.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors, tensors of other than one dimension, and unsupported memory types or dtypes; LOGIC_ERROR for strides
/// other than 1, and for other dtypes of row pointers and offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholegraph_csr_unweighted_sample_without_replacement(
    wm_csr_row_ptr_tensor: wholememory_tensor_t,
    wm_csr_col_ptr_tensor: wholememory_tensor_t,
    center_nodes_tensor: wholememory_tensor_t,
    max_sample_count: c_int,
    output_sample_offset_tensor: wholememory_tensor_t,
    output_dest_memory_context: *mut c_void,
    output_center_localid_memory_context: *mut c_void,
    output_edge_gid_memory_context: *mut c_void,
    random_seed: c_ulonglong,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    let _ = (
        max_sample_count,
        output_center_localid_memory_context,
        output_edge_gid_memory_context,
        random_seed,
        stream,
    );
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    let given = environment.required();
    environment.run(|_| {
        let sampling = Sampling {
            row_pointers: operand("wm_csr_row_ptr_tensor", wm_csr_row_ptr_tensor)?,
            columns: operand("wm_csr_col_ptr_tensor", wm_csr_col_ptr_tensor)?,
            weights: None,
            centers: operand("center_nodes_tensor", center_nodes_tensor)?,
            offsets: operand("output_sample_offset_tensor", output_sample_offset_tensor)?,
        };
        sampling.check()?;
        context_given("output_dest_memory_context", output_dest_memory_context)?;
        given?;
        sampling.run()
    })
}

/// As `wholegraph_csr_unweighted_sample_without_replacement`, each neighbour with a chance by its weight: FLOAT or DOUBLE, one for each column. **Not in
/// this version**: the arguments are checked, then NOT_IMPLEMENTED.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholegraph_csr_weighted_sample_without_replacement(
    wm_csr_row_ptr_tensor: wholememory_tensor_t,
    wm_csr_col_ptr_tensor: wholememory_tensor_t,
    wm_csr_weight_ptr_tensor: wholememory_tensor_t,
    center_nodes_tensor: wholememory_tensor_t,
    max_sample_count: c_int,
    output_sample_offset_tensor: wholememory_tensor_t,
    output_dest_memory_context: *mut c_void,
    output_center_localid_memory_context: *mut c_void,
    output_edge_gid_memory_context: *mut c_void,
    random_seed: c_ulonglong,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    let _ = (
        max_sample_count,
        output_center_localid_memory_context,
        output_edge_gid_memory_context,
        random_seed,
        stream,
    );
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    let given = environment.required();
    environment.run(|_| {
        let sampling = Sampling {
            row_pointers: operand("wm_csr_row_ptr_tensor", wm_csr_row_ptr_tensor)?,
            columns: operand("wm_csr_col_ptr_tensor", wm_csr_col_ptr_tensor)?,
            weights: Some(operand("wm_csr_weight_ptr_tensor", wm_csr_weight_ptr_tensor)?),
            centers: operand("center_nodes_tensor", center_nodes_tensor)?,
            offsets: operand("output_sample_offset_tensor", output_sample_offset_tensor)?,
        };
        sampling.check()?;
        context_given("output_dest_memory_context", output_dest_memory_context)?;
        given?;
        sampling.run()
    })
}

/// Fills `output` ([n] of INT or INT64 in host memory) with the non-negative integers that the samplers draw from this seed and
/// subsequence. Local. INVALID_INPUT for NULL, dead or foreign tensors, other shapes and dtypes, and memory that cannot be reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn generate_random_positive_int_cpu(
    random_seed: i64,
    subsequence: i64,
    output: wholememory_tensor_t,
) -> wholememory_error_code_t {
    guard::code(|| random::positive_int(random_seed, subsequence, &operand("output", output)?))
}

/// Fills `output` ([n] of FLOAT in host memory) with the negative, exponentially distributed numbers that the weighted sampler draws from
/// this seed and subsequence. Local. Errors as `generate_random_positive_int_cpu`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn generate_exponential_distribution_negative_float_cpu(
    random_seed: i64,
    subsequence: i64,
    output: wholememory_tensor_t,
) -> wholememory_error_code_t {
    guard::code(|| random::exponential_negative_float(random_seed, subsequence, &operand("output", output)?))
}
