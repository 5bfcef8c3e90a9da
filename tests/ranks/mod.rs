//! What the tests of the door share: ranks as threads, and short names for C calls.

#![allow(dead_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use wholegraph::ffi::error::wholememory_get_last_error;
use wholegraph::ffi::tensor_description::*;
use wholegraph::ffi::wholememory::communicator::*;
use wholegraph::ffi::wholememory::library::wholememory_error_code_t;
use wholegraph::ffi::wholememory::memory::*;
use wholegraph::ffi::wholememory_tensor::*;

pub use wholememory_error_code_t::*;

pub const CONTINUOUS: u32 = 1;
pub const CHUNKED: u32 = 2;
pub const DISTRIBUTED: u32 = 3;
pub const HIERARCHY: u32 = 4;
pub const DEVICE: u32 = 1;
pub const HOST: u32 = 2;

/// Any integer in the place of an enumerator.
pub fn raw<T>(value: u32) -> MaybeUninit<T> {
    assert_eq!(size_of::<T>(), 4);
    let mut place = MaybeUninit::<T>::uninit();
    // SAFETY: the place has 4 bytes and may hold any pattern.
    unsafe { place.as_mut_ptr().cast::<u32>().write(value) };
    place
}

pub fn last_error() -> String {
    // SAFETY: never NULL, ended by NUL, and unchanged until the next failure of this thread.
    unsafe { CStr::from_ptr(wholememory_get_last_error()) }
        .to_str()
        .unwrap()
        .to_owned()
}

#[track_caller]
pub fn good(code: wholememory_error_code_t) {
    assert_eq!(code, WHOLEMEMORY_SUCCESS, "{}", last_error());
}

/// The code and a part of the words of a failure.
#[track_caller]
pub fn bad(code: wholememory_error_code_t, expected: wholememory_error_code_t, words: &str) {
    assert_eq!(code, expected, "{}", last_error());
    assert!(
        last_error().contains(words),
        "{:?} has no {words:?}",
        last_error()
    );
}

pub fn unique_id() -> wholememory_unique_id_t {
    let mut id = wholememory_unique_id_t {
        internal: [0; WHOLEMEMORY_UNIQUE_ID_BYTES],
    };
    // SAFETY: the place holds an id.
    good(unsafe { wholememory_create_unique_id(&mut id) });
    id
}

pub fn communicator(id: wholememory_unique_id_t, rank: i32, size: i32) -> wholememory_comm_t {
    let mut comm = null_mut();
    // SAFETY: the place holds a communicator.
    good(unsafe { wholememory_create_communicator(&mut comm, id, rank, size) });
    comm
}

/// Runs `body` on `size` ranks, each a thread with the communicator of all; destroys it afterwards unless the body did.
pub fn with_ranks(size: i32, body: impl Fn(usize, wholememory_comm_t) + Sync) {
    let id = unique_id();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let body = &body;
            scope.spawn(move || {
                let comm = communicator(id, rank, size);
                let body = std::panic::AssertUnwindSafe(|| body(rank as usize, comm));
                if std::panic::catch_unwind(body).is_err() {
                    // The other ranks would wait for this one; the message of the panic is out.
                    std::process::abort();
                }
                // SAFETY: a handle is a number, never dereferenced.
                unsafe {
                    let mut rank = 0;
                    if wholememory_communicator_get_rank(&mut rank, comm) == WHOLEMEMORY_SUCCESS {
                        good(wholememory_destroy_communicator(comm));
                    }
                }
            });
        }
    });
}

pub fn malloc(
    comm: wholememory_comm_t,
    memory_type: u32,
    location: u32,
    total: usize,
    granule: usize,
) -> wholememory_handle_t {
    let mut handle = null_mut();
    // SAFETY: the place holds a handle; the default partition is asked for.
    good(unsafe {
        wholememory_malloc(
            &mut handle,
            total,
            comm,
            raw(memory_type),
            raw(location),
            granule,
            null_mut(),
        )
    });
    handle
}

pub fn description(
    sizes: &[i64],
    strides: &[i64],
    offset: i64,
    dtype: u32,
) -> wholememory_tensor_description_t {
    let mut description = wholememory_tensor_description_t {
        sizes: [1; 8],
        strides: [1; 8],
        storage_offset: offset,
        dim: sizes.len() as i32,
        dtype: raw(dtype),
    };
    description.sizes[..sizes.len()].copy_from_slice(sizes);
    description.strides[..strides.len()].copy_from_slice(strides);
    description
}

/// A tensor over the elements of a slice.
pub fn over<T>(data: &mut [T], sizes: &[i64], strides: &[i64], dtype: u32) -> wholememory_tensor_t {
    let mut tensor = null_mut();
    let mut description = description(sizes, strides, 0, dtype);
    // SAFETY: all places outlive the call; the caller keeps the slice while the tensor is used.
    good(unsafe {
        wholememory_make_tensor_from_pointer(&mut tensor, data.as_mut_ptr().cast(), &mut description)
    });
    tensor
}

pub fn destroy(tensor: wholememory_tensor_t) {
    // SAFETY: a handle is a number, never dereferenced.
    good(unsafe { wholememory_destroy_tensor(tensor) });
}
