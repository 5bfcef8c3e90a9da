//! `wholememory_tensor.h`.

#![allow(non_camel_case_types)]

use super::global_reference::wholememory_gref_t;
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::communicator::wholememory_comm_t;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory::memory::{
    wholememory_handle_t, wholememory_memory_location_t, wholememory_memory_type_t,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// A tensor: a description over a handle or over the caller's memory. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_tensor_ {
    _opaque: (),
}

pub type wholememory_tensor_t = *mut wholememory_tensor_;

/// Allocates memory for a tensor of one or two dimensions and makes the tensor, which owns it. Collective over `comm`.
///
/// Rows take `strides[0]` elements and are never divided between ranks. `tensor_entry_partition` gives the rows of each
/// rank (world size values above 0, summing to the rows); NULL (the default in C++) is the default plan of
/// `wholememory_malloc`. `*wholememory_tensor` is the caller's until `wholememory_destroy_tensor`; it is written only on success.
///
/// Errors, the same on every rank: INVALID_INPUT for NULL, dead or foreign objects, a dim not 1 or 2, an offset not 0, a last stride not
/// 1, a dtype that is none; INVALID_VALUE for rows longer than their stride, negative sizes, sizes that
/// overflow; else as `wholememory_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_tensor(
    wholememory_tensor: *mut wholememory_tensor_t,
    tensor_description: *mut wholememory_tensor_description_t,
    comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    tensor_entry_partition: *mut usize,
) -> wholememory_error_code_t {
    let _ = (
        wholememory_tensor,
        tensor_description,
        comm,
        memory_type,
        memory_location,
        tensor_entry_partition,
    );
    super::guard::later()
}

/// Destroys a tensor, and frees its memory if it owns it (collective then, else local). Subtensors of it stay valid objects and
/// are destroyed for themselves, but their memory is gone.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign tensors and for tensors that belong to an embedding; COMMUNICATION_ERROR if
/// a rank is dead (the tensor is gone all the same). A tensor whose memory went with its communicator: SUCCESS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_tensor(
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = wholememory_tensor;
    super::guard::later()
}

/// Makes a tensor over the caller's memory, which must outlive it. Local. `storage_ptr` is the begin of the storage: the first
/// element is `storage_offset` elements further on. With `storage_ptr` NULL or dim 0 any description is accepted ("no tensor").
///
/// Errors: INVALID_INPUT for a NULL output or description, a dim outside [0, 8], a last stride not 1, a dtype that is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_make_tensor_from_pointer(
    wholememory_tensor: *mut wholememory_tensor_t,
    storage_ptr: *mut c_void,
    tensor_description: *mut wholememory_tensor_description_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_tensor, storage_ptr, tensor_description);
    super::guard::later()
}

/// Makes a tensor of one or two dimensions over a handle, which stays the caller's. Local.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects, a dim not 1 or 2, a last stride not 1, a dtype that is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_make_tensor_from_handle(
    wholememory_tensor: *mut wholememory_tensor_t,
    wholememory_handle: wholememory_handle_t,
    tensor_description: *mut wholememory_tensor_description_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_tensor, wholememory_handle, tensor_description);
    super::guard::later()
}

/// True for tensors over a handle and their subtensors. False for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_has_handle(wholememory_tensor: wholememory_tensor_t) -> bool {
    let _ = wholememory_tensor;
    false
}

/// The handle under the tensor (not a new reference). NULL for tensors over plain memory and NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_memory_handle(
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_handle_t {
    let _ = wholememory_tensor;
    std::ptr::null_mut()
}

/// The description inside the tensor: what is written there counts from the next call on. It lives as long as the tensor.
/// NULL for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_tensor_description(
    wholememory_tensor: wholememory_tensor_t,
) -> *mut wholememory_tensor_description_t {
    let _ = wholememory_tensor;
    std::ptr::null_mut()
}

/// Writes the global reference of the handle, or a continuous one to the storage (its offset is not applied).
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects; else as `wholememory_get_global_reference`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_global_reference(
    wholememory_tensor: wholememory_tensor_t,
    wholememory_gref: *mut wholememory_gref_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_tensor, wholememory_gref);
    super::guard::later()
}

/// Makes a tensor over the caller's own partition of a tensor over a handle, with the rows of the tensor that lie there. Local;
/// the memory belongs to the handle, the new tensor to the caller. A rank without rows gets 0 rows.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for tensors without a handle, a dim not 1 or
/// 2, a row offset, a stride below 1; LOGIC_ERROR if the partition is not a whole number of rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_map_local_tensor(
    wholememory_tensor: wholememory_tensor_t,
    local_tensor: *mut wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_tensor, local_tensor);
    super::guard::later()
}

/// The address of the first element: for plain memory and CONTINUOUS handles. NULL for others, and for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_data_pointer(
    wholememory_tensor: wholememory_tensor_t,
) -> *mut c_void {
    let _ = wholememory_tensor;
    std::ptr::null_mut()
}

/// Writes where every rank's rows begin in the root tensor, and their total: world size + 1 values (plain memory: 0 and the rows).
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for a root that has not 1 or 2 dimensions or a
/// partition that is not a whole number of rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_entry_offsets(
    entry_offsets: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (entry_offsets, wholememory_tensor);
    super::guard::later()
}

/// Writes every rank's number of rows of the root tensor: world size values (plain memory: one). Errors as
/// `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_entry_partition_sizes(
    entry_partition: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (entry_partition, wholememory_tensor);
    super::guard::later()
}

/// Writes the caller's own number of rows of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_local_entry_count(
    local_entry_count: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (local_entry_count, wholememory_tensor);
    super::guard::later()
}

/// Writes the caller's own first row of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_local_entry_start(
    local_entry_start: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (local_entry_start, wholememory_tensor);
    super::guard::later()
}

/// Makes a tensor over the window [`starts`, `ends`) of a tensor of at most two dimensions: one value each a dimension,
/// relative to the tensor; start -1 is 0, end -1 is the size. Local; same storage, nothing owned; the caller destroys it.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects and empty windows; INVALID_VALUE for a start below -1 or an end
/// above the size; NOT_IMPLEMENTED for more than two dimensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_subtensor(
    wholememory_tensor: wholememory_tensor_t,
    starts: *mut i64,
    ends: *mut i64,
    sub_wholememory_tensor: *mut wholememory_tensor_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_tensor, starts, ends, sub_wholememory_tensor);
    super::guard::later()
}

/// The tensor at the top of a chain of subtensors; the tensor itself if it is none. NULL for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_root(
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_tensor_t {
    let _ = wholememory_tensor;
    std::ptr::null_mut()
}

/// The number of tensors of this process that are not destroyed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_wholememory_tensor_count() -> i64 {
    0
}
