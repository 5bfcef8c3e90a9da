//! `wholememory.h`, memory handles.

#![allow(non_camel_case_types)]

use super::super::global_reference::wholememory_gref_t;
use super::communicator::wholememory_comm_t;
use super::library::{rmm_enabled, wholememory_error_code_t};
use crate::error::{Error, Result, ensure};
use crate::ffi::convert::{Out, partition, pointer, raw, write_if_wanted};
use crate::ffi::guard;
use crate::ffi::objects::{CommObject, MemoryObject, bury_memory, table};
use crate::kinds::{Backend, Location, MemoryType};
use crate::memory::{MallocRequest, Memory, equal_entry_partition_plan};
use crate::span::{Address, Span};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

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
/// `wholememory_free`; it dies with its communicator. `*wholememory_handle_ptr` is written only on success. A size of 0 gives a handle without memory.
///
/// Errors, the same on every rank: INVALID_INPUT for a NULL output; INVALID_VALUE for a granularity of 0 or one that does not divide the
/// size, a bad partition, unknown type or location, values that differ between ranks; NOT_SUPPORTED where
/// `wholememory_communicator_support_type_location` says so; OUT_OF_MEMORY; COMMUNICATION_ERROR; LOGIC_ERROR for ranks found in different
/// calls. A rank whose communicator is NULL, dead or foreign gets INVALID_INPUT alone and takes no part.
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
    guard::code(|| {
        let object = table().live::<CommObject>("comm", comm as usize)?;
        let place = Out::new("wholememory_handle_ptr", wholememory_handle_ptr);
        // A rank whose own arguments are bad takes part all the same, so that every rank learns of it.
        let request = place.as_ref().map_err(Error::clone).map(|_| MallocRequest {
            total_bytes: total_size,
            memory_type: raw(memory_type),
            location: raw(memory_location),
            granule_bytes: data_granularity,
            // SAFETY: NULL, or one value a rank by the contract.
            rank_granules: unsafe { partition(rank_entry_partition, object.comm.size()) },
            rmm_enabled: rmm_enabled(),
            freed_alone: false,
            described_by: Vec::new(),
        });
        let memory = Memory::malloc(&object.comm, request)?;
        let handle = MemoryObject::enter(memory, comm as usize, &object)?;
        // SAFETY: the caller's place holds a handle.
        unsafe { place?.write(handle as wholememory_handle_t) };
        Ok(())
    })
}

/// Frees a handle. Collective, the same handle on all ranks, whose use of it must have ended (streams synchronised).
///
/// Errors: INVALID_INPUT for NULL, dead or foreign handles; COMMUNICATION_ERROR if a rank is dead or finalizes (the local side is
/// released all the same and the handle is gone); LOGIC_ERROR if ranks are found in different calls or one left a call out that
/// others made (nothing is freed).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_free(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let handle = wholememory_handle as usize;
        // A dead handle of a live communicator takes part, so that the other ranks learn of it.
        let (object, dead) = table().live_or_tombstone::<MemoryObject>("wholememory_handle", handle)?;
        ensure!(
            object.lender == 0,
            InvalidInput,
            "wholememory_handle {handle:#x} belongs to embedding {:#x}: it goes with its owner",
            object.lender
        );
        let outcome = object.memory.free();
        if !dead && !object.memory.is_live() {
            bury_memory(handle, object.comm);
        }
        outcome
    })
}

/// Writes the communicator passed to malloc (the same value; not a new reference). INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live(wholememory_handle)?;
        // SAFETY: the caller's place holds a communicator.
        unsafe { Out::new("comm", comm)?.write(object.comm as wholememory_comm_t) };
        Ok(())
    })
}

/// Writes the communicator of the ranks on the own node that a HIERARCHY handle uses. It belongs to the communicator of the
/// handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("comm", comm)?;
        let (local, _) = pair(wholememory_handle)?;
        // SAFETY: the caller's place holds a communicator.
        unsafe { place.write(local as wholememory_comm_t) };
        Ok(())
    })
}

/// Writes the communicator of the ranks with the same place in every node that a HIERARCHY handle uses. It belongs to the
/// communicator of the handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_cross_communicator(
    comm: *mut wholememory_comm_t,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("comm", comm)?;
        let (_, cross) = pair(wholememory_handle)?;
        // SAFETY: the caller's place holds a communicator.
        unsafe { place.write(cross as wholememory_comm_t) };
        Ok(())
    })
}

/// The type passed to malloc. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_type(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_memory_type_t {
    guard::value(wholememory_memory_type_t::WHOLEMEMORY_MT_NONE, || {
        Ok(live(wholememory_handle)?.memory.memory_type().into())
    })
}

/// The location passed to malloc. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_location(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_memory_location_t {
    guard::value(wholememory_memory_location_t::WHOLEMEMORY_ML_NONE, || {
        Ok(live(wholememory_handle)?.memory.location().into())
    })
}

/// The backend the handle was made with. NONE for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_distributed_backend(
    wholememory_handle: wholememory_handle_t,
) -> wholememory_distributed_backend_t {
    guard::value(wholememory_distributed_backend_t::WHOLEMEMORY_DB_NONE, || {
        Ok(live(wholememory_handle)?.memory.backend().into())
    })
}

/// The size passed to malloc in bytes. 0 for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_total_size(wholememory_handle: wholememory_handle_t) -> usize {
    guard::value(0, || Ok(live(wholememory_handle)?.memory.total_bytes()))
}

/// The granularity passed to malloc in bytes. 0 for NULL, dead or foreign handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_data_granularity(wholememory_handle: wholememory_handle_t) -> usize {
    guard::value(0, || {
        Ok(live(wholememory_handle)?.memory.partition().granule_bytes)
    })
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
    guard::code(|| {
        let span = live(wholememory_handle)?.memory.local()?;
        // SAFETY: each of the caller's places is NULL or holds its value.
        unsafe { write_span(span, local_ptr, local_size, local_offset) };
        Ok(())
    })
}

/// Writes the size of the caller's own partition in bytes. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_size(
    local_size: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let span = live(wholememory_handle)?.memory.local()?;
        // SAFETY: the caller's place holds a size.
        unsafe { Out::new("local_size", local_size)?.write(span.size_bytes) };
        Ok(())
    })
}

/// Writes the offset of the caller's own partition in the whole, in bytes. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_local_offset(
    local_offset: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let span = live(wholememory_handle)?.memory.local()?;
        // SAFETY: the caller's place holds a size.
        unsafe { Out::new("local_offset", local_offset)?.write(span.offset_bytes) };
        Ok(())
    })
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
    guard::code(|| {
        let memory = &live(wholememory_handle)?.memory;
        let span = memory.of_rank(rank);
        let in_world = usize::try_from(rank).is_ok_and(|rank| rank < memory.partition().world_ranks());
        let written = match &span {
            Ok(span) => *span,
            Err(_) if in_world && memory.is_live() => Span::default(),
            Err(_) => return span.map(drop),
        };
        // SAFETY: each of the caller's places is NULL or holds its value.
        unsafe { write_span(written, rank_memory_ptr, rank_memory_size, rank_memory_offset) };
        span.map(drop)
    })
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
    guard::code(|| {
        let place = Out::new("per_rank_entry", per_rank_entry)?;
        let entries = equal_entry_partition_plan(total_entry_count, world_size)?;
        // SAFETY: the caller's place holds a size.
        unsafe { place.write(entries) };
        Ok(())
    })
}

/// Writes the base of the one address range of a CONTINUOUS handle in either location, or of a CHUNKED one in HOST memory, as this process sees it.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects, and for other handles (NULL is written).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_global_pointer(
    global_ptr: *mut *mut c_void,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live(wholememory_handle)?;
        let place = Out::new("global_ptr", global_ptr)?;
        let base = object.memory.global_pointer();
        // SAFETY: the caller's place holds a pointer.
        unsafe { place.write(pointer(*base.as_ref().unwrap_or(&Address::NULL))) };
        base.map(drop)
    })
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
    guard::code(|| {
        let object = live(wholememory_handle)?;
        let place = Out::new("wholememory_gref", wholememory_gref)?;
        // SAFETY: the caller's place holds the struct.
        unsafe { write_reference(&object.memory, place) }
    })
}

/// Writes the size of every rank's partition in bytes: world size values. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_rank_partition_sizes(
    rank_sizes: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live(wholememory_handle)?;
        let sizes: Vec<usize> = object
            .memory
            .partition()
            .starts_bytes
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        // SAFETY: the caller's place holds one value a rank.
        unsafe { Out::new("rank_sizes", rank_sizes)?.write_all(&sizes) };
        Ok(())
    })
}

/// Writes where every rank's partition begins in the whole, in bytes, and the total size: world size + 1 values.
/// INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_rank_partition_offsets(
    rank_offsets: *mut usize,
    wholememory_handle: wholememory_handle_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live(wholememory_handle)?;
        // SAFETY: the caller's place holds one value a rank and one more.
        unsafe { Out::new("rank_offsets", rank_offsets)?.write_all(&object.memory.partition().starts_bytes) };
        Ok(())
    })
}

impl From<MemoryType> for wholememory_memory_type_t {
    fn from(memory_type: MemoryType) -> wholememory_memory_type_t {
        match memory_type {
            MemoryType::Continuous => wholememory_memory_type_t::WHOLEMEMORY_MT_CONTINUOUS,
            MemoryType::Chunked => wholememory_memory_type_t::WHOLEMEMORY_MT_CHUNKED,
            MemoryType::Distributed => wholememory_memory_type_t::WHOLEMEMORY_MT_DISTRIBUTED,
            MemoryType::Hierarchy => wholememory_memory_type_t::WHOLEMEMORY_MT_HIERARCHY,
        }
    }
}

impl From<Location> for wholememory_memory_location_t {
    fn from(location: Location) -> wholememory_memory_location_t {
        match location {
            Location::Device => wholememory_memory_location_t::WHOLEMEMORY_ML_DEVICE,
            Location::Host => wholememory_memory_location_t::WHOLEMEMORY_ML_HOST,
        }
    }
}

impl From<Backend> for wholememory_distributed_backend_t {
    fn from(backend: Backend) -> wholememory_distributed_backend_t {
        match backend {
            Backend::Nccl => wholememory_distributed_backend_t::WHOLEMEMORY_DB_NCCL,
            Backend::Nvshmem => wholememory_distributed_backend_t::WHOLEMEMORY_DB_NVSHMEM,
        }
    }
}

fn live(handle: wholememory_handle_t) -> Result<Arc<MemoryObject>> {
    table().live("wholememory_handle", handle as usize)
}

/// The handles of the local and the cross communicator.
fn pair(handle: wholememory_handle_t) -> Result<(usize, usize)> {
    let object = live(handle)?;
    let hierarchy = object.memory.hierarchy()?;
    table()
        .live::<CommObject>("the communicator of wholememory_handle", object.comm)?
        .pair(object.comm, &hierarchy)
}

/// # Safety
/// Each place is NULL or valid for its value.
unsafe fn write_span(span: Span, base: *mut *mut c_void, size: *mut usize, offset: *mut usize) {
    // SAFETY: by the contract of this function.
    unsafe {
        write_if_wanted(base, pointer(span.address));
        write_if_wanted(size, span.size_bytes);
        write_if_wanted(offset, span.offset_bytes);
    }
}

/// Fills a global reference, also where its pointer is NULL, which is INVALID_INPUT.
/// # Safety
/// The place is valid for the struct.
pub(crate) unsafe fn write_reference(memory: &Memory, place: Out<wholememory_gref_t>) -> Result<()> {
    let reference = memory.global_reference()?;
    let filled = wholememory_gref_t {
        pointer: pointer(reference.pointer),
        rank_memory_offsets: pointer(reference.rank_memory_offsets).cast(),
        world_size: reference.world_size,
        stride: reference.stride_bytes,
        same_chunk: reference.same_chunk,
    };
    // SAFETY: by the contract of this function.
    unsafe { place.write(filled) };
    ensure!(
        !reference.pointer.is_null(),
        InvalidInput,
        "{} memory has no global reference: its ranks reach each other through gather and scatter",
        memory.memory_type()
    );
    Ok(())
}
