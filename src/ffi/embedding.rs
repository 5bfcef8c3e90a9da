//! `embedding.h`.

#![allow(non_camel_case_types)]

use super::convert::{Out, raw, read};
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::{CommObject, table};
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::communicator::wholememory_comm_t;
use super::wholememory::library::wholememory_error_code_t;
use super::wholememory::memory::{wholememory_memory_location_t, wholememory_memory_type_t};
use super::wholememory_tensor::wholememory_tensor_t;
use crate::embedding;
use crate::error::{Result, ensure, fail};
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

/// What a cache is used for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_access_type_t {
    WHOLEMEMORY_AT_NONE = 0,
    WHOLEMEMORY_AT_READONLY = 1,
    WHOLEMEMORY_AT_READWRITE = 2,
}

/// Optimizers of the gradient step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_optimizer_type_t {
    WHOLEMEMORY_OPT_NONE = 0,
    WHOLEMEMORY_OPT_SGD = 1,
    WHOLEMEMORY_OPT_LAZY_ADAM = 2,
    WHOLEMEMORY_OPT_RMSPROP = 3,
    WHOLEMEMORY_OPT_ADAGRAD = 4,
}

/// How an embedding is cached. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_embedding_cache_policy_ {
    _opaque: (),
}

pub type wholememory_embedding_cache_policy_t = *mut wholememory_embedding_cache_policy_;

/// An optimizer and its parameters. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_embedding_optimizer_ {
    _opaque: (),
}

pub type wholememory_embedding_optimizer_t = *mut wholememory_embedding_optimizer_;

/// A table that can be cached and trained. A number in the dress of a pointer, never to be dereferenced.
pub struct wholememory_embedding_ {
    _opaque: (),
}

pub type wholememory_embedding_t = *mut wholememory_embedding_;

/// Makes an optimizer. Local. **Not in this version**: NOT_IMPLEMENTED for every type. INVALID_INPUT if `optimizer` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_embedding_optimizer(
    optimizer: *mut wholememory_embedding_optimizer_t,
    optimizer_type: MaybeUninit<wholememory_optimizer_type_t>,
) -> wholememory_error_code_t {
    guard::code(|| {
        Out::new("optimizer", optimizer)?;
        embedding::create_optimizer(raw(optimizer_type))
    })
}

/// Sets a parameter of an optimizer; `value` points at a `float`. Local. INVALID_INPUT for NULL, dead or foreign objects and unknown names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_optimizer_set_parameter(
    optimizer: wholememory_embedding_optimizer_t,
    parameter_name: *const c_char,
    value: *mut c_void,
) -> wholememory_error_code_t {
    guard::code(|| {
        no_handle("optimizer", "an optimizer", optimizer)?;
        ensure!(!parameter_name.is_null(), InvalidInput, "parameter_name is NULL");
        ensure!(!value.is_null(), InvalidInput, "value is NULL");
        embedding::not_in_this_version("an optimizer")
    })
}

/// Destroys an optimizer. Local. NULL is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding_optimizer(
    optimizer: wholememory_embedding_optimizer_t,
) {
    guard::value((), || match optimizer.is_null() {
        true => Ok(()),
        false => no_handle("optimizer", "an optimizer", optimizer),
    })
}

/// Makes a cache policy: a cache on `cache_level_comm` of `cache_ratio` of the rows. Local. **Not in this version**: the arguments are
/// checked, then NOT_IMPLEMENTED. INVALID_INPUT if `cache_policy` is NULL; INVALID_VALUE for a ratio outside [1/512, 1].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_embedding_cache_policy(
    cache_policy: *mut wholememory_embedding_cache_policy_t,
    cache_level_comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    access_type: MaybeUninit<wholememory_access_type_t>,
    cache_ratio: f32,
) -> wholememory_error_code_t {
    let _ = (memory_type, memory_location, access_type);
    guard::code(|| {
        Out::new("cache_policy", cache_policy)?;
        embedding::check_cache_ratio(cache_ratio)?;
        table().live::<CommObject>("cache_level_comm", cache_level_comm as usize)?;
        embedding::not_in_this_version("a cache policy")
    })
}

/// Destroys a cache policy. Local. NULL is SUCCESS; INVALID_INPUT for dead or foreign policies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding_cache_policy(
    cache_policy: wholememory_embedding_cache_policy_t,
) -> wholememory_error_code_t {
    guard::code(|| match cache_policy.is_null() {
        true => Ok(()),
        false => no_handle("cache_policy", "a cache policy", cache_policy),
    })
}

/// Makes an embedding. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED (local). INVALID_INPUT for NULL, dead or foreign
/// objects and descriptions that are no matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_embedding(
    wholememory_embedding: *mut wholememory_embedding_t,
    embedding_tensor_description: *mut wholememory_tensor_description_t,
    comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    cache_policy: wholememory_embedding_cache_policy_t,
    embedding_entry_partition: *mut usize,
    user_defined_sms: c_int,
    round_robin_size: c_int,
) -> wholememory_error_code_t {
    let _ = (embedding_entry_partition, user_defined_sms, round_robin_size);
    guard::code(|| {
        Out::new("wholememory_embedding", wholememory_embedding)?;
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let description = unsafe { read("embedding_tensor_description", embedding_tensor_description) }?;
        embedding::check_description(&description.into())?;
        table().live::<CommObject>("comm", comm as usize)?;
        embedding::check_place(raw(memory_type), raw(memory_location))?;
        if !cache_policy.is_null() {
            no_handle("cache_policy", "a cache policy", cache_policy)?;
        }
        embedding::not_in_this_version("an embedding")
    })
}

/// Destroys an embedding. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding(
    wholememory_embedding: wholememory_embedding_t,
) -> wholememory_error_code_t {
    guard::code(|| no_embedding(wholememory_embedding))
}

/// The table of an embedding, which owns it. NULL for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_embedding_tensor(
    wholememory_embedding: wholememory_embedding_t,
) -> wholememory_tensor_t {
    guard::value(std::ptr::null_mut(), || no_embedding(wholememory_embedding))
}

/// Gives an embedding an optimizer. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_set_optimizer(
    wholememory_embedding: wholememory_embedding_t,
    optimizer: wholememory_embedding_optimizer_t,
) -> wholememory_error_code_t {
    let _ = optimizer;
    guard::code(|| no_embedding(wholememory_embedding))
}

/// As `wholememory_gather` from the table of an embedding. INVALID_INPUT for NULL, dead or foreign objects (in this version every embedding).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_embedding_gather(
    wholememory_embedding: wholememory_embedding_t,
    indices: wholememory_tensor_t,
    output: wholememory_tensor_t,
    adjust_cache: MaybeUninit<bool>,
    p_env_fns: *mut wholememory_env_func_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    let _ = (indices, output, adjust_cache, p_env_fns, stream_int);
    guard::code(|| no_embedding(wholememory_embedding))
}

/// Applies a step of the optimizer to the rows of an embedding. INVALID_INPUT for NULL, dead or foreign objects (in this version every embedding).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_embedding_gather_gradient_apply(
    wholememory_embedding: wholememory_embedding_t,
    indices: wholememory_tensor_t,
    grads: wholememory_tensor_t,
    adjust_cache: MaybeUninit<bool>,
    lr: f32,
    p_env_fns: *mut wholememory_env_func_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    let _ = (indices, grads, adjust_cache, lr, p_env_fns, stream_int);
    guard::code(|| no_embedding(wholememory_embedding))
}

/// The names of the optimizer's states, ended by NULL. NULL for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_optimizer_state_names(
    wholememory_embedding: wholememory_embedding_t,
) -> *const *const c_char {
    guard::value(std::ptr::null(), || no_embedding(wholememory_embedding))
}

/// The state `name`, owned by the embedding. NULL for NULL, dead or foreign embeddings (in this version every one) and unknown names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_optimizer_state(
    wholememory_embedding: wholememory_embedding_t,
    name: *const c_char,
) -> wholememory_tensor_t {
    let _ = name;
    guard::value(std::ptr::null_mut(), || no_embedding(wholememory_embedding))
}

/// Writes changed rows of the cache back to the table. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_writeback_cache(
    wholememory_embedding: wholememory_embedding_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    let _ = stream_int;
    guard::code(|| no_embedding(wholememory_embedding))
}

/// Writes back and empties the cache. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_drop_all_cache(
    wholememory_embedding: wholememory_embedding_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    let _ = stream_int;
    guard::code(|| no_embedding(wholememory_embedding))
}

/// In this version nothing has a handle of such a kind.
fn no_handle<T, A>(name: &str, kind: &str, given: *mut T) -> Result<A> {
    ensure!(
        !given.is_null(),
        InvalidInput,
        "{name} is NULL, it must be {kind}"
    );
    fail!(InvalidInput, "{name} is {given:p}, which is no handle of {kind}")
}

fn no_embedding<A>(given: wholememory_embedding_t) -> Result<A> {
    no_handle("wholememory_embedding", "an embedding", given)
}
