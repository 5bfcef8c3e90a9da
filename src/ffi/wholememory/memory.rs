//! `wholememory.h`, memory handles.

#![allow(non_camel_case_types)]

use super::super::global_reference::wholememory_gref_t;
use super::communicator::wholememory_comm_t;
use super::library::wholememory_error_code_t;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

/// How the partitions of a handle can be reached.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_memory_type_t {
    WHOLEMEMORY_MT_NONE = 0,
    /// One address range over all ranks, readable and writable by each.
    WHOLEMEMORY_MT_CONTINUOUS = 1,
    /// An address range a rank, all readable and writable by each.
    WHOLEMEMORY_MT_CHUNKED = 2,
    /// Each rank reaches its own part; gather and scatter reach the others.
    WHOLEMEMORY_MT_DISTRIBUTED = 3,
    /// As DISTRIBUTED, with traffic gathered inside each node before it crosses to others.
    WHOLEMEMORY_MT_HIERARCHY = 4,
}

/// Where the bytes are. On the CPU platform both are memory of the host.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_memory_location_t {
    WHOLEMEMORY_ML_NONE = 0,
    WHOLEMEMORY_ML_DEVICE = 1,
    WHOLEMEMORY_ML_HOST = 2,
}

/// Who moves the rows of DISTRIBUTED handles.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_distributed_backend_t {
    WHOLEMEMORY_DB_NONE = 0,
    WHOLEMEMORY_DB_NCCL = 1,
    WHOLEMEMORY_DB_NVSHMEM = 2,
}

/// A memory handle: one logical range of bytes over the ranks of a communicator. A number in the dress of a pointer, never to
/// be dereferenced.
pub struct wholememory_handle_ {
    _opaque: (),
}

pub type wholememory_handle_t = *mut wholememory_handle_;

/// Allocates `total_size` bytes over the ranks of `comm`. Collective, the same arguments on all ranks.
///
/// The whole consists of granules of `data_granularity` bytes, which are never divided between ranks (a row, usually).
/// `rank_entry_partition` gives the granules of each rank (world size values above 0 that sum to the whole); NULL (the
/// default in C++) gives every rank `ceil(granules / ranks)` in rank order, so the last ones may have less or nothing.
/// Content is zero for HOST and on the CPU platform, else undefined. The handle is the caller's until
/// `wholememory_free`; it dies with its communicator. `*wholememory_handle_ptr` is written only on success.
///
/// Errors, the same on every rank: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for a granularity of 0 or one
/// that does not divide the size, a bad partition, unknown type or location, values that differ between ranks;
/// NOT_SUPPORTED where `wholememory_communicator_support_type_location` says so; OUT_OF_MEMORY; COMMUNICATION_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_malloc(
    wholememory_handle_ptr: *mut wholememory_handle_t,
    total_size: usize,
    comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    data_granularity: usize,
    rank_entry_partition: *mut usize,
) -> wholememory_error_code_t {
    let _ = (
        wholememory_handle_ptr,
        total_size,
        comm,
        memory_type,
        memory_location,
        data_granularity,
        rank_entry_partition,
    );
    super::super::guard::later()
}

/// Frees a handle. Collective, the same handle on all ranks, whose use of it must have ended (streams synchronised).
///
/// Errors: INVALID_INPUT for NULL, dead or foreign handles; COMMUNICATION_ERROR if a rank is dead (the local side is
/// released all the same and the handle is gone).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_free(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = wholememory_handle;
    super::super::guard::later()
}

/// Writes the communicator passed to malloc (the same value; not a new reference). INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (comm, wholememory_handle);
    super::super::guard::later()
}

/// Writes the communicator of the ranks on the own node that a HIERARCHY handle uses. It belongs to the communicator of the
/// handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (comm, wholememory_handle);
    super::super::guard::later()
}

/// Writes the communicator of the ranks with the same place in every node that a HIERARCHY handle uses. It belongs to the
/// communicator of the handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_cross_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (comm, wholememory_handle);
    super::super::guard::later()
}

/// The type passed to malloc. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_type(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_memory_type_t {
    let _ = wholememory_handle;
    wholememory_memory_type_t::WHOLEMEMORY_MT_NONE
}

/// The location passed to malloc. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_location(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_memory_location_t {
    let _ = wholememory_handle;
    wholememory_memory_location_t::WHOLEMEMORY_ML_NONE
}

/// The backend the handle was made with. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_distributed_backend(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_distributed_backend_t {
    let _ = wholememory_handle;
    wholememory_distributed_backend_t::WHOLEMEMORY_DB_NONE
}

/// The size passed to malloc in bytes. 0 for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_total_size(wholememory_handle: wholememory_handle_t) -> usize {
    let _ = wholememory_handle;
    0
}

/// The granularity passed to malloc in bytes. 0 for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_data_granularity(wholememory_handle: wholememory_handle_t) -> usize {
    let _ = wholememory_handle;
    0
}

/// Writes address, size and offset in the whole (bytes) of the caller's own partition. Each output may be NULL. The address
/// of an empty partition may be NULL. INVALID_INPUT for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_memory(
    local_ptr: *mut *mut c_void,
    local_size: *mut usize,
    local_offset: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (local_ptr, local_size, local_offset, wholememory_handle);
    super::super::guard::later()
}

/// Writes the size of the caller's own partition in bytes. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_size(
    local_size: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (local_size, wholememory_handle);
    super::super::guard::later()
}

/// Writes the offset of the caller's own partition in the whole, in bytes. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_offset(
    local_offset: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (local_offset, wholememory_handle);
    super::super::guard::later()
}

/// Writes address, size and offset in the whole (bytes) of the partition of `rank` as this process sees it. Each output may be NULL.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign handles and ranks outside the world (outputs untouched), and for DISTRIBUTED and
/// HIERARCHY handles, whose partitions cannot be reached (outputs become NULL, 0, 0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_rank_memory(
    rank_memory_ptr: *mut *mut c_void,
    rank_memory_size: *mut usize,
    rank_memory_offset: *mut usize,
    rank: c_int,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (
        rank_memory_ptr,
        rank_memory_size,
        rank_memory_offset,
        rank,
        wholememory_handle,
    );
    super::super::guard::later()
}

/// Writes `ceil(total_entry_count / world_size)`: the entries a rank owns by default (the last ranks may own less).
///
/// Errors: INVALID_INPUT if `per_rank_entry` is NULL; INVALID_VALUE if `world_size` is below 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_equal_entry_partition_plan(
    per_rank_entry: *mut usize,
    total_entry_count: usize,
    world_size: c_int,
) -> wholememory_error_code_t {
    let _ = (per_rank_entry, total_entry_count, world_size);
    super::super::guard::later()
}

/// Writes the base of the one address range of a CONTINUOUS or CHUNKED HOST handle, as this process sees it.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects, and for other handles (NULL is written).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_global_pointer(
    global_ptr: *mut *mut c_void,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (global_ptr, wholememory_handle);
    super::super::guard::later()
}

/// Writes what device code needs to reach every partition (`wholememory/global_reference.h`, `device_reference.cuh`).
/// The arrays in it belong to the handle.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects (output untouched), and for DISTRIBUTED and HIERARCHY handles (the
/// struct is filled, its pointer is NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_global_reference(
    wholememory_gref: *mut wholememory_gref_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (wholememory_gref, wholememory_handle);
    super::super::guard::later()
}

/// Writes the size of every rank's partition in bytes: world size values. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_rank_partition_sizes(
    rank_sizes: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (rank_sizes, wholememory_handle);
    super::super::guard::later()
}

/// Writes where every rank's partition begins in the whole, in bytes, and the total size: world size + 1 values.
/// INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_rank_partition_offsets(
    rank_offsets: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    let _ = (rank_offsets, wholememory_handle);
    super::super::guard::later()
}
