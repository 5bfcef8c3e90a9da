//! `wholememory.h`, communicators.

#![allow(non_camel_case_types)]

use super::library::wholememory_error_code_t;
use super::memory::{
    wholememory_distributed_backend_t, wholememory_memory_location_t, wholememory_memory_type_t,
};
use crate::comm::{Communicator, UniqueId};
use crate::error::{Error, Result, fail};
use crate::ffi::convert::{Out, raw};
use crate::ffi::guard;
use crate::ffi::objects::{CommObject, forget_communicator, table};
use crate::kinds::{Location, MemoryType};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The color that makes a rank member of no new communicator.
pub const WHOLEMEMORY_SPILT_NO_COLOR: c_int = -1;

/// Size of a unique id in bytes.
pub const WHOLEMEMORY_UNIQUE_ID_BYTES: usize = 128;

/// A communicator: the ranks that share handles. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_comm_ {
    _opaque: (),
}

pub type wholememory_comm_t = *mut wholememory_comm_;

/// The meeting place of the ranks of one new communicator, to be carried to them byte by byte (MPI, a file, a socket).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_unique_id_t {
    pub internal: [c_char; WHOLEMEMORY_UNIQUE_ID_BYTES],
}

/// The NVLink clique (ranks whose GPUs share a fabric) of the own rank. Where the GPUs are in no fabric, all ranks count as one: 0, 0, own rank, number of
/// ranks, 0, 1. Where nothing is known of the own GPU (no NVML, the CPU platform): 0, -1, -1, 0, 0, 1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct clique_info_t {
    /// 1 if the own GPU is part of a fabric, else 0.
    pub is_in_clique: c_int,
    /// The first rank of the own clique.
    pub clique_first_rank: c_int,
    /// The own place in the clique.
    pub clique_rank: c_int,
    /// Ranks in the own clique.
    pub clique_rank_num: c_int,
    /// Number of the own clique.
    pub clique_id: c_int,
    /// Number of cliques.
    pub clique_num: c_int,
}

/// Starts the rendezvous of one new communicator in this process and writes its id. Local. One id serves one communicator.
///
/// The process must live until all ranks have connected. An id that is never used is dropped after
/// `WHOLEMEMORY_TIMEOUT_S` (300) seconds, or by finalize.
///
/// Errors: INVALID_INPUT if `unique_id` is NULL; SYSTEM_ERROR if no socket can be opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_unique_id(
    unique_id: *mut wholememory_unique_id_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("unique_id", unique_id)?;
        let internal = UniqueId::create()?.0.map(|byte| byte as c_char);
        // SAFETY: the caller's place holds a unique id.
        unsafe { place.write(wholememory_unique_id_t { internal }) };
        Ok(())
    })
}

/// Makes a communicator of `size` ranks, this one being `rank`. Collective over the `size` callers that hold the same id, be they
/// processes or threads. `*comm` is the caller's until `wholememory_destroy_communicator` or finalize. On the CUDA platform it uses the
/// device that is current for its caller here (`cudaSetDevice`); which one is current in later calls does not matter to it.
///
/// Errors: INVALID_INPUT for NULL; INVALID_VALUE for a rank outside [0, size), a rank that is there twice, sizes that differ, an id used
/// before (also by a call that failed), WHOLEMEMORY_PLATFORM, _ROUTE or _TRANSPORT with an unknown value, a _ROUTE or _TRANSPORT that
/// differs between ranks; COMMUNICATION_ERROR if a rank does not come or dies; NOT_SUPPORTED for ranks that cannot work together (the text
/// says why).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_communicator(
    comm: *mut wholememory_comm_t,
    unique_id: wholememory_unique_id_t,
    rank: c_int,
    size: c_int,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("comm", comm);
        let id = UniqueId(unique_id.internal.map(|byte| byte as u8));
        let prior = place.as_ref().map(drop).map_err(Error::clone);
        let made = Communicator::create(&id, rank, size, prior)?;
        let handle = CommObject::enter(made, None)?;
        // SAFETY: the caller's place holds a communicator.
        unsafe { place?.write(handle as wholememory_comm_t) };
        Ok(())
    })
}

/// Splits a communicator: ranks of equal `color` make a new one, ordered by (`key`, parent rank). Collective over the parent,
/// also for ranks with `WHOLEMEMORY_SPILT_NO_COLOR`, which get `*new_comm = NULL`. The new communicator may outlive its parent.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for a color below -1; COMMUNICATION_ERROR
/// and LOGIC_ERROR as `wholememory_communicator_barrier`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_split_communicator(
    new_comm: *mut wholememory_comm_t,
    comm: wholememory_comm_t,
    color: c_int,
    key: c_int,
) -> wholememory_error_code_t {
    guard::code(|| {
        let parent = live("comm", comm)?;
        let place = Out::new("new_comm", new_comm);
        let prior = place.as_ref().map(drop).map_err(Error::clone);
        let made = parent.comm.split(color, key, prior)?;
        let handle = match made {
            Some(made) => CommObject::enter(made, None)?,
            None => 0,
        };
        // SAFETY: the caller's place holds a communicator.
        unsafe { place?.write(handle as wholememory_comm_t) };
        Ok(())
    })
}

/// Destroys a communicator and frees its handles. Collective. Tensors over its handles remain and are to be destroyed.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign communicators and for the local and cross communicators of a
/// HIERARCHY handle, which belong to their parent; COMMUNICATION_ERROR if a rank is dead or finalizes (the local side is
/// released all the same and the communicator is gone); LOGIC_ERROR if ranks are found in different calls or one left a call out that others made
/// (nothing is released).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_communicator(
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        if let Some(owner) = &object.owner {
            fail!(
                InvalidInput,
                "comm is {owner}, which owns it: it goes with its owner"
            );
        }
        let outcome = object.comm.destroy();
        if !object.comm.is_alive() {
            forget_communicator(comm as usize);
        }
        outcome
    })
}

/// SUCCESS if `wholememory_malloc` on this communicator accepts the type at the location, else NOT_SUPPORTED (also
/// for unknown enumerators). Local; all ranks get the same answer. INVALID_INPUT for NULL, dead or foreign communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_support_type_location(
    comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        let (kind, place) = (raw(memory_type), raw(memory_location));
        match (MemoryType::from_raw(kind), Location::from_raw(place)) {
            (Some(kind), Some(place)) => object.comm.supports(kind, place),
            (None, _) => fail!(NotSupported, "memory type {} is none of 1 to 4", kind as i32),
            (_, None) => fail!(
                NotSupported,
                "memory location {} is none of DEVICE (1), HOST (2)",
                place as i32
            ),
        }
    })
}

/// Writes the caller's rank. Local. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_get_rank(
    rank: *mut c_int,
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        // SAFETY: the caller's place holds an int.
        unsafe { Out::new("rank", rank)?.write(object.comm.rank() as c_int) };
        Ok(())
    })
}

/// Writes the number of ranks. Local. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_get_size(
    size: *mut c_int,
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        // SAFETY: the caller's place holds an int.
        unsafe { Out::new("size", size)?.write(object.comm.size() as c_int) };
        Ok(())
    })
}

/// Writes the number of ranks on the caller's node. Local. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_get_local_size(
    local_size: *mut c_int,
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        // SAFETY: the caller's place holds an int.
        unsafe { Out::new("local_size", local_size)?.write(object.comm.local_size() as c_int) };
        Ok(())
    })
}

/// Writes the NVLink clique of the caller's rank. Local. INVALID_INPUT for NULL, dead or foreign objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_get_clique_info(
    clique_info: *mut clique_info_t,
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = live("comm", comm)?;
        let place = Out::new("clique_info", clique_info)?;
        let info = object.comm.clique_info();
        let info = clique_info_t {
            is_in_clique: info.is_in_clique.into(),
            clique_first_rank: info.first_rank,
            clique_rank: info.rank,
            clique_rank_num: info.rank_count,
            clique_id: info.id,
            clique_num: info.count,
        };
        // SAFETY: the caller's place holds the struct.
        unsafe { place.write(info) };
        Ok(())
    })
}

/// True if the communicator moves DISTRIBUTED memory by NVSHMEM. This version: false. `comm` is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_is_bind_to_nvshmem(comm: wholememory_comm_t) -> bool {
    let _ = comm;
    false
}

/// Sets who moves the rows of DISTRIBUTED handles made later. Collective, the same value on all ranks.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign communicators; INVALID_VALUE for NONE, unknown values and values that
/// differ; LOGIC_ERROR while a DISTRIBUTED handle lives; NOT_SUPPORTED for NVSHMEM in a build without it; COMMUNICATION_ERROR and
/// LOGIC_ERROR as `wholememory_communicator_barrier`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_set_distributed_backend(
    comm: wholememory_comm_t,
    distributed_backend: MaybeUninit<wholememory_distributed_backend_t>,
) -> wholememory_error_code_t {
    guard::code(|| live("comm", comm)?.comm.set_backend(raw(distributed_backend)))
}

/// The backend of the communicator, NCCL at first. Local. NONE for NULL, dead or foreign communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_get_distributed_backend(
    comm: wholememory_comm_t,
) -> wholememory_distributed_backend_t {
    guard::value(wholememory_distributed_backend_t::WHOLEMEMORY_DB_NONE, || {
        Ok(live("comm", comm)?.comm.backend().into())
    })
}

/// Waits until all ranks are here. Collective. It does not wait for work on CUDA streams: synchronise those first.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign communicators; COMMUNICATION_ERROR if a rank is dead; LOGIC_ERROR
/// if ranks are found in different calls, or one left a call out that others made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_communicator_barrier(
    comm: wholememory_comm_t,
) -> wholememory_error_code_t {
    guard::code(|| live("comm", comm)?.comm.barrier())
}

/// True if all ranks are on one node. Local. False for NULL, dead or foreign communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_is_intranode_communicator(comm: wholememory_comm_t) -> bool {
    guard::value(false, || Ok(live("comm", comm)?.comm.is_intranode()))
}

/// True if all ranks are in one multi-node NVLink domain. Local. False for NULL, dead or foreign communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_is_intra_mnnvl_communicator(comm: wholememory_comm_t) -> bool {
    guard::value(false, || Ok(live("comm", comm)?.comm.is_intra_mnnvl()))
}

fn live(name: &str, comm: wholememory_comm_t) -> Result<Arc<CommObject>> {
    table().live(name, comm as usize)
}
