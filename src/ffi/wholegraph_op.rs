//! `wholegraph_op.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::address;
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::{operand, or_none, table_operand};
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory_tensor::wholememory_tensor_t;
use crate::error::Result;
use crate::ops::random;
use crate::ops::sampling::{SampleContexts, Sampling};
use crate::platform::Stream;
use std::ffi::{c_int, c_ulonglong, c_void};

/// The arguments of a sampler.
struct Call {
    row_pointers: wholememory_tensor_t,
    columns: wholememory_tensor_t,
    weights: Option<wholememory_tensor_t>,
    centers: wholememory_tensor_t,
    offsets: wholememory_tensor_t,
    most: c_int,
    seed: c_ulonglong,
    contexts: SampleContexts,
    stream: Stream,
}

fn sample(environment: Environment, call: Call) -> wholememory_error_code_t {
    let given = environment.required();
    environment.run(|buffers| {
        let mut refused = Ok(());
        // What lies on a handle ties the rank to a communicator, also when it is dead: the others do not wait then.
        let part = |name: &str, tensor, refused: &mut Result<()>| match table_operand(name, tensor) {
            Ok((operand, refusal)) => {
                *refused = std::mem::replace(refused, Ok(())).and(refusal);
                operand
            }
            Err(error) => or_none(Err(error), refused),
        };
        let row_pointers = part("wm_csr_row_ptr_tensor", call.row_pointers, &mut refused);
        let columns = part("wm_csr_col_ptr_tensor", call.columns, &mut refused);
        let weights = call
            .weights
            .map(|weights| part("wm_csr_weight_ptr_tensor", weights, &mut refused));
        let sampling = Sampling {
            row_pointers,
            columns,
            weights,
            centers: or_none(operand("center_nodes_tensor", call.centers), &mut refused),
            offsets: or_none(operand("output_sample_offset_tensor", call.offsets), &mut refused),
            most: call.most,
            seed: call.seed,
            contexts: call.contexts,
        };
        sampling.run(refused, given, buffers, call.stream)
    })
}

/// Samples up to `max_sample_count` neighbours of every center node, without replacement, each with the same chance; all of them in the order of their edges
/// where that is 0 or less or a center has no more. The same seed and list of centers give the same neighbours in the same order on every
/// platform, memory type and number of ranks. Collective where the graph is DISTRIBUTED or HIERARCHY, also without centers.
///
/// Shapes: row pointers [V + 1] of INT64; columns of INT or INT64; centers [c] of INT or INT64; offsets [c + 1] of INT, c below 2^31 - 1:
/// neighbours of center i are at `offset[i]` to `offset[i + 1]` of the outputs. The parts of the graph are all mapped (CONTINUOUS, CHUNKED,
/// plain), or all DISTRIBUTED, or all HIERARCHY; tensors over a part of a handle are sampled as they are. Centres and offsets lie in plain
/// memory or a CONTINUOUS handle. Outputs, each from `output_fns.malloc_fn` with DEVICE and the final size, also for size 0: neighbours
/// (required, dtype of the columns), place of the center in the list (INT), edge (INT64: its place in the columns); a NULL context is not
/// wanted. They are asked for in this order, edges first for DISTRIBUTED and HIERARCHY. The work is ordered on `stream`; the host waits
/// once, for the size of the outputs (more often where rows are exchanged).
///
/// Errors (on the failing rank alone; the others go on without it; nothing is written): INVALID_INPUT for NULL, dead or foreign tensors,
/// tensors of other than one dimension, parts on different kinds of memory, unsupported dtypes, too few offsets, data that cannot be
/// reached, a NULL context, `p_env_fns` NULL or without a function that is needed; LOGIC_ERROR for strides other than 1, for other dtypes
/// of row pointers and offsets, and on all ranks for graphs that differ between them; INVALID_VALUE for centers that are no nodes, row
/// pointers of centers that decrease or leave the columns, and 2^31 outputs or more; NOT_SUPPORTED while the stream records a graph;
/// OUT_OF_MEMORY; CUDA_ERROR; COMMUNICATION_ERROR. Where the tensors of the graph are all NULL or foreign (or destroyed, not always), they
/// name no ranks: that rank takes no part, and the others wait for its next collective call.
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
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    sample(
        environment,
        Call {
            row_pointers: wm_csr_row_ptr_tensor,
            columns: wm_csr_col_ptr_tensor,
            weights: None,
            centers: center_nodes_tensor,
            offsets: output_sample_offset_tensor,
            most: max_sample_count,
            seed: random_seed,
            contexts: SampleContexts {
                dest: address(output_dest_memory_context),
                center_localid: address(output_center_localid_memory_context),
                edge_gid: address(output_edge_gid_memory_context),
            },
            stream: Stream(stream as usize),
        },
    )
}

/// As `wholegraph_csr_unweighted_sample_without_replacement`, each neighbour with a chance by its weight: FLOAT or DOUBLE, at least one for
/// each column. Neighbours of a choice come with the best first. Those of weights that are not above 0 come only after all others, in the
/// order of their edges. Choices agree between platforms up to neighbours whose keys differ by no more than the last places of the
/// logarithm.
///
/// Errors: those, and INVALID_INPUT for fewer weights than columns.
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
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) };
    sample(
        environment,
        Call {
            row_pointers: wm_csr_row_ptr_tensor,
            columns: wm_csr_col_ptr_tensor,
            weights: Some(wm_csr_weight_ptr_tensor),
            centers: center_nodes_tensor,
            offsets: output_sample_offset_tensor,
            most: max_sample_count,
            seed: random_seed,
            contexts: SampleContexts {
                dest: address(output_dest_memory_context),
                center_localid: address(output_center_localid_memory_context),
                edge_gid: address(output_edge_gid_memory_context),
            },
            stream: Stream(stream as usize),
        },
    )
}

/// Fills `output` ([n] of INT or INT64 in host memory) with the non-negative integers that the samplers draw from this seed and subsequence
/// (the number of one of the streams of random numbers that a seed has). Local. INVALID_INPUT for NULL, dead or foreign tensors, other
/// shapes and dtypes, and memory that cannot be reached.
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
