//! `wholememory.h`, files.

#![allow(non_camel_case_types)]

use super::library::wholememory_error_code_t;
use super::memory::wholememory_handle_t;
use crate::error::{Result, ensure};
use crate::ffi::convert::{path, values};
use crate::ffi::guard;
use crate::ffi::objects::{MemoryObject, table};
use crate::memory::{LoadRequest, StoreRequest, load_from_file, store_to_file};
use std::ffi::{c_char, c_int};
use std::path::PathBuf;

/// Fills a handle from files. Collective, the same arguments on all ranks.
///
/// The files, in list order, are one array of records of `file_entry_size` bytes; a record never straddles files. The handle is an array of slots of
/// `memory_entry_size` bytes; each rank's partition is a whole number of them. Record e
/// goes to bytes [slot * `memory_entry_size` + `memory_offset`, + `file_entry_size`) of the handle; other bytes are not touched.
/// With `round_robin_size` 0 the slot of record e is e, and fewer records than slots are allowed. With R =
/// `round_robin_size` above 0, block b = e / R belongs to rank b mod W, at record (b / W) * R + e mod R of its own partition.
///
/// Environment, read on each call: `WG_LOAD_BUFFER_SIZE_MB`, `WG_LOAD_THREADS_PER_RANK`, `WG_LOAD_USE_DIRECTIO`.
///
/// Errors, the same on every rank: INVALID_INPUT for freed handles, a record of 0 bytes or one that does not fit its slot, a slot that does
/// not divide the granularity, a count outside [0, 65535], a file that is NULL, missing, unreadable, a directory, or not a multiple of the
/// record; INVALID_VALUE for more records than slots and for a negative `round_robin_size`; LOGIC_ERROR for file lists that differ and
/// ranks found in different calls; SYSTEM_ERROR for a failed read; COMMUNICATION_ERROR. A rank whose handle is NULL or foreign, or gone
/// with its communicator, gets INVALID_INPUT alone and takes no part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_load_from_file(
    wholememory_handle: wholememory_handle_t,
    memory_offset: usize,
    memory_entry_size: usize,
    file_entry_size: usize,
    file_names: *mut *const c_char,
    file_count: c_int,
    round_robin_size: c_int,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (object, _) =
            table().live_or_tombstone::<MemoryObject>("wholememory_handle", wholememory_handle as usize)?;
        let request = LoadRequest {
            memory_offset_bytes: memory_offset,
            memory_entry_bytes: memory_entry_size,
            file_entry_bytes: file_entry_size,
            // SAFETY: the caller's array holds `file_count` names.
            files: unsafe { paths(file_names, file_count) },
            round_robin_records: round_robin_size,
        };
        load_from_file(&object.memory, &request)
    })
}

/// Writes the own partition of every rank to its own file. Collective; each rank names its own file, which is created or truncated.
///
/// The file holds, for each slot of `memory_entry_stride` bytes in order, the `file_entry_size` bytes at `memory_offset`.
/// The files in rank order, loaded again, restore the array. A rank without slots writes an empty file.
///
/// Errors, the same on every rank: as `wholememory_load_from_file`; INVALID_INPUT for a NULL name; SYSTEM_ERROR for a file that
/// cannot be created or written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_store_to_file(
    wholememory_handle: wholememory_handle_t,
    memory_offset: usize,
    memory_entry_stride: usize,
    file_entry_size: usize,
    local_file_name: *const c_char,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (object, _) =
            table().live_or_tombstone::<MemoryObject>("wholememory_handle", wholememory_handle as usize)?;
        let request = StoreRequest {
            memory_offset_bytes: memory_offset,
            memory_entry_bytes: memory_entry_stride,
            file_entry_bytes: file_entry_size,
            // SAFETY: the caller's name is NULL or a string.
            file: unsafe { path("local_file_name", local_file_name) },
        };
        store_to_file(&object.memory, &request)
    })
}

const MOST_FILES: c_int = 65535;

/// # Safety
/// The array is NULL or holds `count` pointers, each NULL or a string.
unsafe fn paths(names: *mut *const c_char, count: c_int) -> Result<Vec<PathBuf>> {
    ensure!(
        (0..=MOST_FILES).contains(&count),
        InvalidInput,
        "file_count is {count}, it must be in [0, {MOST_FILES}]"
    );
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: by the contract of this function.
    let names = unsafe { values("file_names", names.cast_const(), count as usize) }?;
    let name = |(i, name): (usize, &*const c_char)| {
        // SAFETY: by the contract of this function.
        unsafe { path(&format!("file_names[{i}]"), *name) }
    };
    names.iter().enumerate().map(name).collect()
}
