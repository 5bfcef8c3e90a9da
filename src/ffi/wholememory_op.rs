//! `wholememory_op.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::address;
use super::env_func_ptrs::wholememory_env_func_t;
use super::objects::{operand, or_none, table_operand};
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory_tensor::wholememory_tensor_t;
use crate::ops::{self, EnvTestContexts};
use crate::platform::Stream;
use std::ffi::{c_int, c_void};

/// `output[i] = table[indices[i]]` for every i, converted to the dtype of `output`. Rows of negative ids and of ids
/// not below the rows of the table are left untouched. Collective for DISTRIBUTED and HIERARCHY tables, also with no indices.
///
/// Shapes: table [rows] or [rows, D]; indices [n] of INT or INT64; output [n, D] ([n] or [n, 1] for a table [rows]), any
/// row stride. Indices and output lie in plain memory or a CONTINUOUS handle. Dtypes: floating to floating, integer to integer.
/// A table that is a window of a DISTRIBUTED or HIERARCHY one begins at any column, but at the first row. The output must not overlap the
/// memory of the table: rows may be read after others were written.
/// `p_env_fns` may be NULL (the library then takes scratch of its own). `stream` is a `cudaStream_t`; the work is ordered on it and may
/// still run on return; the CPU platform ignores it and is done on return. `gather_sms` is the launch width, -1 (the default in C++) automatic.
///
/// Errors (on the failing rank alone; the others go on without it): INVALID_INPUT for NULL, dead or foreign objects, wrong shapes, data that cannot be
/// reached; LOGIC_ERROR for a table whose last stride is not 1 or dtype is none, mixed kinds of dtype, an index dtype other than INT
/// and INT64, rows that differ from the indices, a misaligned output, `gather_sms` 0 or below -1; OUT_OF_MEMORY; CUDA_ERROR; COMMUNICATION_ERROR.
/// A NULL or foreign table names no ranks, a destroyed one not always: that rank takes no part, and the others wait for its next collective call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_gather(
    wholememory_tensor: wholememory_tensor_t,
    indices_tensor: wholememory_tensor_t,
    output_tensor: wholememory_tensor_t,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
    gather_sms: c_int,
) -> wholememory_error_code_t {
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) }.on(Stream(stream as usize));
    environment.run(|buffers| {
        let (table, mut prior) = table_operand("wholememory_tensor", wholememory_tensor)?;
        let indices = or_none(operand("indices_tensor", indices_tensor), &mut prior);
        let output = or_none(operand("output_tensor", output_tensor), &mut prior);
        let outcome = ops::gather(
            &table,
            &indices,
            &output,
            buffers,
            Stream(stream as usize),
            gather_sms,
        );
        prior.and(outcome)
    })
}

/// `table[indices[i]] = input[i]` for every i, converted to the dtype of the table. Negative ids and ids not below the rows of
/// the table are skipped. Which of several equal ids wins is not specified. Other ranks see the rows after a barrier.
/// Collective for DISTRIBUTED and HIERARCHY tables, also with no indices.
///
/// Shapes, dtypes, `p_env_fns`, `stream`, `scatter_sms` (-1, the default in C++, is automatic) and errors as `wholememory_gather`, with `input` in the
/// place of its output; `input` is [n, 1] for a table [N], and a table whose description is bad is INVALID_INPUT.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_scatter(
    input_tensor: wholememory_tensor_t,
    indices_tensor: wholememory_tensor_t,
    wholememory_tensor: wholememory_tensor_t,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
    scatter_sms: c_int,
) -> wholememory_error_code_t {
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) }.on(Stream(stream as usize));
    environment.run(|buffers| {
        let (table, mut prior) = table_operand("wholememory_tensor", wholememory_tensor)?;
        let input = or_none(operand("input_tensor", input_tensor), &mut prior);
        let indices = or_none(operand("indices_tensor", indices_tensor), &mut prior);
        let outcome = ops::scatter(
            &input,
            &indices,
            &table,
            buffers,
            Stream(stream as usize),
            scatter_sms,
        );
        prior.and(outcome)
    })
}

/// Tries the functions of the caller: computes v[i][j] = i + input[j] for i in [0, `entry_count`) in a block of scratch and copies it to
/// `output_fixed_tensor` and, for each context that is not NULL, to memory from `output_fns.malloc_fn` (device, pinned, host in this order).
///
/// Shapes: input [D]; output [`entry_count`, D] of the same dtype. Host results are valid when the stream is synchronised.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects, wrong shapes or dtypes, and for `p_env_fns` NULL; NOT_SUPPORTED while the stream records a
/// graph; OUT_OF_MEMORY; CUDA_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_env_test_op(
    input_tensor: wholememory_tensor_t,
    output_fixed_tensor: wholememory_tensor_t,
    output_variable_device_tensor_handle: *mut c_void,
    output_variable_pinned_tensor_handle: *mut c_void,
    output_variable_host_tensor_handle: *mut c_void,
    output_variable_entry_count: i64,
    p_env_fns: *mut wholememory_env_func_t,
    stream: *mut c_void,
) -> wholememory_error_code_t {
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) }.on(Stream(stream as usize));
    let given = environment.required();
    environment.run(|buffers| {
        let input = operand("input_tensor", input_tensor)?;
        let output = operand("output_fixed_tensor", output_fixed_tensor)?;
        given?;
        let contexts = EnvTestContexts {
            device: address(output_variable_device_tensor_handle),
            pinned: address(output_variable_pinned_tensor_handle),
            host: address(output_variable_host_tensor_handle),
        };
        ops::env_test(
            &input,
            &output,
            contexts,
            output_variable_entry_count,
            buffers,
            Stream(stream as usize),
        )
    })
}
