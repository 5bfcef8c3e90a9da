//! `wholememory_tensor.h`.

#![allow(non_camel_case_types)]

use super::convert::{Out, address, partition, pointer, raw, read, values};
use super::global_reference::continuous;
use super::global_reference::wholememory_gref_t;
use super::guard;
use super::objects::{CommObject, MemoryObject, TensorObject, destroy_tensor, live_tensors, table};
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::communicator::wholememory_comm_t;
use super::wholememory::library::{rmm_enabled, wholememory_error_code_t};
use super::wholememory::memory::write_reference;
use super::wholememory::memory::{
    wholememory_handle_t, wholememory_memory_location_t, wholememory_memory_type_t,
};
use crate::error::{Error, Result, ensure, fail};
use crate::kinds::MemoryType;
use crate::memory::{MallocRequest, Memory};
use crate::tensor::{Description, Storage, shape};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A tensor: a description over a handle or over the caller's memory. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_tensor_ {
    _opaque: (),
}

pub type wholememory_tensor_t = *mut wholememory_tensor_;

/// Allocates memory for a tensor of one or two dimensions and makes the tensor, which owns it. Collective over `comm`.
///
/// Rows take `strides[0]` elements and are never divided between ranks. `tensor_entry_partition` gives the rows of each rank (world size
/// values above 0, summing to the rows); NULL (the default in C++) is the default plan of `wholememory_malloc`. `*wholememory_tensor` is
/// the caller's until `wholememory_destroy_tensor`; it is written only on success. Tensors of 0 rows are allowed.
///
/// Errors, the same on every rank: INVALID_INPUT for a NULL output or description, a dim not 1 or 2, an offset not 0, a last stride not
/// 1, a dtype that is none; INVALID_VALUE for rows longer than their stride, negative sizes, sizes that
/// overflow; else as `wholememory_malloc`, also for a rank with a NULL, dead or foreign communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_tensor(
    wholememory_tensor: *mut wholememory_tensor_t,
    tensor_description: *mut wholememory_tensor_description_t,
    comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    tensor_entry_partition: *mut usize,
) -> wholememory_error_code_t {
    guard::code(|| {
        let object = table().live::<CommObject>("comm", comm as usize)?;
        let place = Out::new("wholememory_tensor", wholememory_tensor);
        let description = place
            .as_ref()
            .map_err(Error::clone)
            // SAFETY: the caller's pointer is NULL or holds the struct.
            .and_then(|_| unsafe { read("tensor_description", tensor_description) })
            .map(Description::from);
        // A rank whose own arguments are bad takes part all the same, so that every rank learns of it.
        let request = description.clone().and_then(|description| {
            let size = shape::allocation(&description)?;
            Ok(MallocRequest {
                total_bytes: size.total_bytes,
                memory_type: raw(memory_type),
                location: raw(memory_location),
                granule_bytes: size.granule_bytes,
                // SAFETY: NULL, or one value a rank by the contract.
                rank_granules: unsafe { partition(tensor_entry_partition, object.comm.size()) },
                rmm_enabled: rmm_enabled(),
                freed_alone: false,
                described_by: shape::terms(&description),
            })
        });
        let memory = Memory::malloc(&object.comm, request)?;
        let handle = MemoryObject::enter(memory.clone(), comm as usize, &object)?;
        let tensor = TensorObject::over_handle(memory, handle, description?, true)?;
        // SAFETY: the caller's place holds a tensor.
        unsafe { place?.write(tensor as wholememory_tensor_t) };
        Ok(())
    })
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
    guard::code(|| destroy_tensor(wholememory_tensor as usize))
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
    guard::code(|| {
        let place = Out::new("wholememory_tensor", wholememory_tensor)?;
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let description = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        shape::check_over_pointer(&description, !storage_ptr.is_null())?;
        let tensor = TensorObject::over_pointer(address(storage_ptr), description)?;
        // SAFETY: the caller's place holds a tensor.
        unsafe { place.write(tensor as wholememory_tensor_t) };
        Ok(())
    })
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
    guard::code(|| {
        let place = Out::new("wholememory_tensor", wholememory_tensor)?;
        let handle = wholememory_handle as usize;
        let object = table().live::<MemoryObject>("wholememory_handle", handle)?;
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let description = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        shape::check_over_handle(&description)?;
        let tensor = TensorObject::over_handle(object.memory.clone(), handle, description, false)?;
        // SAFETY: the caller's place holds a tensor.
        unsafe { place.write(tensor as wholememory_tensor_t) };
        Ok(())
    })
}

/// True for tensors over a handle and their subtensors. False for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_has_handle(wholememory_tensor: wholememory_tensor_t) -> bool {
    guard::value(false, || Ok(live(wholememory_tensor)?.memory != 0))
}

/// The handle under the tensor (not a new reference). NULL for tensors over plain memory and NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_memory_handle(
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_handle_t {
    guard::value(std::ptr::null_mut(), || {
        Ok(live(wholememory_tensor)?.memory as wholememory_handle_t)
    })
}

/// The description inside the tensor: what is written there counts from the next call on. It lives as long as the tensor.
/// NULL for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_tensor_description(
    wholememory_tensor: wholememory_tensor_t,
) -> *mut wholememory_tensor_description_t {
    guard::value(std::ptr::null_mut(), || {
        Ok(live(wholememory_tensor)?.description_place())
    })
}

/// Writes the global reference of the handle, or a continuous one to the storage (its offset is not applied).
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects; else as `wholememory_get_global_reference`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_global_reference(
    wholememory_tensor: wholememory_tensor_t,
    wholememory_gref: *mut wholememory_gref_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let tensor = live(wholememory_tensor)?;
        let place = Out::new("wholememory_gref", wholememory_gref)?;
        // SAFETY: the caller's place holds the struct.
        unsafe {
            match &tensor.storage {
                Storage::Memory(memory) => write_reference(memory, place)?,
                Storage::Pointer(storage) => place.write(continuous(pointer(*storage))),
            }
        }
        Ok(())
    })
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
    guard::code(|| {
        let tensor = live(wholememory_tensor)?;
        let place = Out::new("local_tensor", local_tensor)?;
        let Storage::Memory(memory) = &tensor.storage else {
            fail!(
                InvalidValue,
                "wholememory_tensor lies on plain memory, not on a handle"
            );
        };
        let span = memory.local()?;
        let description = shape::local_rows(&tensor.description(), span.offset_bytes, span.size_bytes)?;
        let local = TensorObject::over_pointer(span.address, description)?;
        // SAFETY: the caller's place holds a tensor.
        unsafe { place.write(local as wholememory_tensor_t) };
        Ok(())
    })
}

/// The address of the first element: for plain memory and CONTINUOUS handles. NULL for others (also for CHUNKED ones in HOST memory, whose one range
/// `wholememory_get_global_pointer` tells), and for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_data_pointer(
    wholememory_tensor: wholememory_tensor_t,
) -> *mut c_void {
    guard::value(std::ptr::null_mut(), || {
        let tensor = live(wholememory_tensor)?;
        let base = match &tensor.storage {
            Storage::Pointer(storage) => *storage,
            Storage::Memory(memory) if memory.memory_type() == MemoryType::Continuous => {
                memory.global_pointer()?
            }
            Storage::Memory(memory) => fail!(
                InvalidInput,
                "wholememory_tensor lies on {} memory, which has no data pointer (CONTINUOUS has)",
                memory.memory_type()
            ),
        };
        Ok(pointer(shape::data_address(&tensor.description(), base)))
    })
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
    guard::code(|| {
        let tensor = live(wholememory_tensor)?;
        let offsets = entry_offsets_of(&tensor)?;
        // SAFETY: the caller's place holds one value a rank and one more.
        unsafe { Out::new("entry_offsets", entry_offsets)?.write_all(&offsets) };
        Ok(())
    })
}

/// Writes every rank's number of rows of the root tensor: world size values (plain memory: one). Errors as
/// `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_entry_partition_sizes(
    entry_partition: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let tensor = live(wholememory_tensor)?;
        let sizes: Vec<usize> = entry_offsets_of(&tensor)?
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        // SAFETY: the caller's place holds one value a rank.
        unsafe { Out::new("entry_partition", entry_partition)?.write_all(&sizes) };
        Ok(())
    })
}

/// Writes the caller's own number of rows of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_local_entry_count(
    local_entry_count: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (_, count) = local_entries(wholememory_tensor)?;
        // SAFETY: the caller's place holds a size.
        unsafe { Out::new("local_entry_count", local_entry_count)?.write(count) };
        Ok(())
    })
}

/// Writes the caller's own first row of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_local_entry_start(
    local_entry_start: *mut usize,
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (start, _) = local_entries(wholememory_tensor)?;
        // SAFETY: the caller's place holds a size.
        unsafe { Out::new("local_entry_start", local_entry_start)?.write(start) };
        Ok(())
    })
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
    guard::code(|| {
        let tensor = live(wholememory_tensor)?;
        let place = Out::new("sub_wholememory_tensor", sub_wholememory_tensor)?;
        ensure!(!starts.is_null(), InvalidInput, "starts is NULL");
        ensure!(!ends.is_null(), InvalidInput, "ends is NULL");
        let description = tensor.description();
        let dims = shape::window_dims(&description)?;
        // SAFETY: the caller's arrays hold one value a dimension.
        let (starts, ends) = unsafe { (values("starts", starts, dims)?, values("ends", ends, dims)?) };
        let description = shape::window(&description, &starts, &ends)?;
        let window = tensor.window(wholememory_tensor as usize, description)?;
        // SAFETY: the caller's place holds a tensor.
        unsafe { place.write(window as wholememory_tensor_t) };
        Ok(())
    })
}

/// The tensor at the top of a chain of subtensors; the tensor itself if it is none. NULL for NULL, dead or foreign tensors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_tensor_get_root(
    wholememory_tensor: wholememory_tensor_t,
) -> wholememory_tensor_t {
    guard::value(std::ptr::null_mut(), || {
        let own = wholememory_tensor as usize;
        Ok(live(wholememory_tensor)?.root_handle(own) as wholememory_tensor_t)
    })
}

/// The number of tensors of this process that are not destroyed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_wholememory_tensor_count() -> i64 {
    live_tensors()
}

fn live(tensor: wholememory_tensor_t) -> Result<Arc<TensorObject>> {
    table().live("wholememory_tensor", tensor as usize)
}

/// Where the ranks' entries begin in the root, and their total.
fn entry_offsets_of(tensor: &TensorObject) -> Result<Vec<usize>> {
    let root = tensor.root_description();
    let unit_bytes = shape::entry_unit_bytes(tensor.description().dtype, &root)?;
    match &tensor.storage {
        Storage::Memory(memory) => memory
            .partition()
            .starts_bytes
            .iter()
            .map(|bytes| shape::in_entries(*bytes, unit_bytes))
            .collect(),
        Storage::Pointer(_) => Ok(vec![0, shape::root_entries(&root)?]),
    }
}

/// The first own entry and their number.
fn local_entries(tensor: wholememory_tensor_t) -> Result<(usize, usize)> {
    let tensor = live(tensor)?;
    let offsets = entry_offsets_of(&tensor)?;
    let rank = match &tensor.storage {
        Storage::Memory(memory) => memory.communicator().rank(),
        Storage::Pointer(_) => 0,
    };
    Ok((offsets[rank], offsets[rank + 1] - offsets[rank]))
}
