//! `env_func_ptrs.h`.

#![allow(non_camel_case_types)]

use super::guard;
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::library::is_initialised;
use crate::error::{ensure, fail};
use crate::platform::device_properties;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

/// What memory a function of the caller is asked for. On the CPU platform plain host memory serves for all.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_memory_allocation_type_t {
    WHOLEMEMORY_MA_NONE = 0,
    WHOLEMEMORY_MA_DEVICE = 1,
    WHOLEMEMORY_MA_HOST = 2,
    WHOLEMEMORY_MA_PINNED = 3,
}

/// Properties of a device as the CUDA runtime declares them.
pub struct cudaDeviceProp {
    _opaque: (),
}

/// Makes a context for one block of scratch memory and writes it to `*memory_context`.
pub type wholememory_create_memory_context_func_t =
    Option<unsafe extern "C" fn(memory_context: *mut *mut c_void, global_context: *mut c_void)>;

/// Destroys a context made by the create function.
pub type wholememory_destroy_memory_context_func_t =
    Option<unsafe extern "C" fn(memory_context: *mut c_void, global_context: *mut c_void)>;

/// Gives memory of the described size and dtype. NULL is right for a size of 0, else it is OUT_OF_MEMORY. The
/// description is a temporary: copy what is needed. The memory must be usable on the stream of the operation.
pub type wholememory_malloc_func_t = Option<
    unsafe extern "C" fn(
        tensor_description: *mut wholememory_tensor_description_t,
        memory_allocation_type: MaybeUninit<wholememory_memory_allocation_type_t>,
        memory_context: *mut c_void,
        global_context: *mut c_void,
    ) -> *mut c_void,
>;

/// Takes back the memory of a context; the context may be used again.
pub type wholememory_free_func_t =
    Option<unsafe extern "C" fn(memory_context: *mut c_void, global_context: *mut c_void)>;

/// Scratch memory. For each block: create, malloc, free (only if malloc gave memory), destroy (only if create gave a context).
/// Blocks are given back when the call returns, perhaps before the stream has done its work. An operation that needs scratch needs all four
/// functions: INVALID_INPUT if one is NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_temp_memory_func_t {
    pub create_memory_context_fn: wholememory_create_memory_context_func_t,
    pub destroy_memory_context_fn: wholememory_destroy_memory_context_func_t,
    pub malloc_fn: wholememory_malloc_func_t,
    pub free_fn: wholememory_free_func_t,
    pub global_context: *mut c_void,
}

/// Memory for outputs whose size the operation finds out. The library calls only `malloc_fn`, at most once for each context of
/// the caller, with the final description, also for a size of 0. `free_fn` may be NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_output_memory_func_t {
    pub malloc_fn: wholememory_malloc_func_t,
    pub free_fn: wholememory_free_func_t,
    pub global_context: *mut c_void,
}

/// The functions of the caller that give an operation memory. Read during the call only. They return, or throw C++ exceptions; to leave
/// them by `pthread_exit` or `longjmp` ends the process or spoils it. Where they throw, the operation ends, gives back its scratch, lets no
/// other rank wait, and the exception goes on to its caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_env_func_t {
    pub temporary_fns: wholememory_temp_memory_func_t,
    pub output_fns: wholememory_output_memory_func_t,
}

/// Properties of device `dev_id` (-1: the current one), learned by `wholememory_init` and valid until finalize.
/// NULL before init, for a device that is not there, and on the CPU platform.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_device_prop(dev_id: c_int) -> *mut cudaDeviceProp {
    guard::value(std::ptr::null_mut(), || {
        ensure!(
            is_initialised(),
            Logic,
            "dev_id is {dev_id}: device properties are known between wholememory_init and wholememory_finalize"
        );
        match device_properties(dev_id) {
            Some(address) => Ok(address.0 as *mut cudaDeviceProp),
            None => fail!(
                InvalidInput,
                "dev_id is {dev_id}, and there is no such CUDA device"
            ),
        }
    })
}
