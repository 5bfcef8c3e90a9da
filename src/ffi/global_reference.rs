//! `global_reference.h`.

#![allow(non_camel_case_types)]

use std::ffi::{c_int, c_void};

/// How code on a device or the host reaches all partitions of a handle (`device_reference.cuh` reads it).
///
/// `stride` 0: `pointer` is the base of one range. Else `pointer` is an array of `world_size` base pointers and `rank_memory_offsets` an
/// array of `world_size` + 1 byte offsets, both readable where kernels run (on the CUDA platform that is device memory, which the host must
/// not read); with `same_chunk` every rank but the last non-empty ones holds exactly `stride` bytes, so rank = byte offset / `stride`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wholememory_gref_t {
    pub pointer: *mut c_void,
    pub rank_memory_offsets: *mut usize,
    pub world_size: c_int,
    pub stride: usize,
    pub same_chunk: bool,
}

/// The same for memory of NVSHMEM, where peers are reached by rank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wholememory_nvshmem_ref_t {
    pub pointer: *mut c_void,
    pub rank_memory_offsets: *mut usize,
    pub stride: usize,
    pub world_rank: c_int,
    pub world_size: c_int,
    pub same_chunk: bool,
}

/// A reference to plain memory at `ptr`: stride 0, world size 1, no offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_continuous_global_reference(
    ptr: *mut c_void,
) -> wholememory_gref_t {
    continuous(ptr)
}

pub(crate) fn continuous(pointer: *mut c_void) -> wholememory_gref_t {
    wholememory_gref_t {
        pointer,
        rank_memory_offsets: std::ptr::null_mut(),
        world_size: 1,
        stride: 0,
        same_chunk: false,
    }
}
