//! `embedding.h`.

#![allow(non_camel_case_types)]

use super::callbacks::Environment;
use super::convert::{Out, partition, raw, read, truth};
use super::embedding_objects::{EmbeddingObject, destroy, embedding};
use super::env_func_ptrs::wholememory_env_func_t;
use super::guard;
use super::objects::{CommObject, operand, or_none, table};
use super::tensor_description::wholememory_tensor_description_t;
use super::wholememory::communicator::wholememory_comm_t;
use super::wholememory::library::{rmm_enabled, wholememory_error_code_t};
use super::wholememory::memory::{wholememory_memory_location_t, wholememory_memory_type_t};
use super::wholememory_tensor::wholememory_tensor_t;
use crate::embedding::{CachePolicy, Embedding, Optimizer, Request, state_name_sets};
use crate::error::{Error, Result, ensure};
use crate::platform::Stream;
use crate::platform::caching::AfterWriteBack;
use once_cell::race::OnceBox;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

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

/// Makes an optimizer, the caller's until `wholememory_destroy_embedding_optimizer`. Local. It may serve many embeddings.
///
/// Errors: INVALID_INPUT if `optimizer` is NULL; NOT_IMPLEMENTED for NONE and values that are no optimizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_embedding_optimizer(
    optimizer: *mut wholememory_embedding_optimizer_t,
    optimizer_type: MaybeUninit<wholememory_optimizer_type_t>,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("optimizer", optimizer)?;
        let made = table().insert(Arc::new(Optimizer::new(raw(optimizer_type))?))?;
        // SAFETY: the caller's place holds an optimizer.
        unsafe { place.write(made as wholememory_embedding_optimizer_t) };
        Ok(())
    })
}

/// Sets a parameter of an optimizer; `value` points at a `float`. Local. Counts from the next step of every embedding on.
///
/// Parameters (defaults): `weight_decay` (0) of all; `epsilon` (1e-8) of LAZY_ADAM, RMSPROP, ADAGRAD; `beta1` (0.9), `beta2` (0.999) and
/// `adam_w` (0; AdamW above 0.5) of LAZY_ADAM; `alpha` (0.99) of RMSPROP. The learning rate is an argument of the step.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign objects and for names that the optimizer does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_optimizer_set_parameter(
    optimizer: wholememory_embedding_optimizer_t,
    parameter_name: *const c_char,
    value: *mut c_void,
) -> wholememory_error_code_t {
    guard::code(|| {
        let optimizer = table().live::<Optimizer>("optimizer", optimizer as usize)?;
        ensure!(!parameter_name.is_null(), InvalidInput, "parameter_name is NULL");
        // SAFETY: the caller's string is ended by NUL, the value is NULL or a float.
        let (name, value) = unsafe {
            let name = CStr::from_ptr(parameter_name).to_string_lossy();
            (name, read("value", value.cast::<f32>())?)
        };
        optimizer.set(&name, value)
    })
}

/// Destroys an optimizer. Local. Embeddings that have it go on with the parameters it had. NULL is left alone; dead and foreign
/// optimizers too, and `wholememory_get_last_error` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding_optimizer(
    optimizer: wholememory_embedding_optimizer_t,
) {
    guard::value((), || {
        if !optimizer.is_null() {
            table().live::<Optimizer>("optimizer", optimizer as usize)?;
            table().remove::<Optimizer>(optimizer as usize);
        }
        Ok(())
    })
}

/// Makes a cache policy: a cache of `cache_ratio` of the rows on `cache_level_comm`. Local. Embeddings copy it when they are made. Type,
/// location and access are checked there.
///
/// Errors: INVALID_INPUT if `cache_policy` is NULL and for NULL, dead or foreign communicators; INVALID_VALUE for a ratio
/// outside [1/512, 1], NaN included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_embedding_cache_policy(
    cache_policy: *mut wholememory_embedding_cache_policy_t,
    cache_level_comm: wholememory_comm_t,
    memory_type: MaybeUninit<wholememory_memory_type_t>,
    memory_location: MaybeUninit<wholememory_memory_location_t>,
    access_type: MaybeUninit<wholememory_access_type_t>,
    cache_ratio: f32,
) -> wholememory_error_code_t {
    guard::code(|| {
        let place = Out::new("cache_policy", cache_policy)?;
        CachePolicy::check_ratio(cache_ratio)?;
        let comm = table().live::<CommObject>("cache_level_comm", cache_level_comm as usize)?;
        let policy = CachePolicy {
            comm: comm.comm.clone(),
            memory_type: raw(memory_type),
            location: raw(memory_location),
            access: raw(access_type),
            ratio: cache_ratio,
        };
        let made = table().insert(Arc::new(policy))?;
        // SAFETY: the caller's place holds a policy.
        unsafe { place.write(made as wholememory_embedding_cache_policy_t) };
        Ok(())
    })
}

/// Destroys a cache policy. Local. NULL is SUCCESS; INVALID_INPUT for dead or foreign policies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding_cache_policy(
    cache_policy: wholememory_embedding_cache_policy_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        if !cache_policy.is_null() {
            table().live::<CachePolicy>("cache_policy", cache_policy as usize)?;
            table().remove::<CachePolicy>(cache_policy as usize);
        }
        Ok(())
    })
}

/// Makes an embedding, the caller's until `wholememory_destroy_embedding`: a table of `sizes[0]` rows of `sizes[1]` columns (one dimension:
/// one column) of any dtype. With two dimensions `strides[1]` must be 1; `strides[0]` and the offset are of no account. Rows are padded to a multiple of
/// 16 bytes: the table's tensor tells their stride. Collective over `comm` and the policy's communicator, the same arguments on all ranks.
///
/// `cache_policy` may be NULL (no cache). A cache on `comm` itself lies in DEVICE memory and may have the type CONTINUOUS, CHUNKED or DISTRIBUTED for a
/// CONTINUOUS table, CHUNKED or DISTRIBUTED for a CHUNKED one, DISTRIBUTED for a DISTRIBUTED one. A cache on another communicator, which consists of
/// ranks of `comm`, is READONLY and CONTINUOUS or CHUNKED, in either location. HIERARCHY tables have none. Capacity is rounded up to sets of 32 lines a rank.
/// `embedding_entry_partition` (NULL, the default in C++: the default plan of malloc) gives the
/// rows of each rank, world size values above 0 that sum to the rows; it is ignored with a cache, and without one switches round
/// robin off. `user_defined_sms` (-1, the default in C++, is automatic) is the launch width of gathers without a cache; useless values warn and mean -1.
/// `round_robin_size` R (0, the default in C++: none) deals blocks of R rows to the ranks in turn, as `wholememory_load_from_file` does: row g
/// lies on rank (g / R) % ranks, and the table gets the same number of rows on every rank. Ids name rows before they were dealt.
///
/// Errors, the same on every rank: INVALID_INPUT for NULL, dead or foreign objects, descriptions that are no matrix, no rows or columns, caches
/// that do not fit; INVALID_VALUE for a negative round robin size, values that differ between ranks; else as `wholememory_malloc`. A rank whose `comm` is
/// NULL, dead or foreign gets INVALID_INPUT alone and takes no part.
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
    guard::code(|| {
        let object = table().live::<CommObject>("comm", comm as usize)?;
        let place = Out::new("wholememory_embedding", wholememory_embedding);
        // A rank whose own arguments are bad takes part all the same, so that every rank learns of it.
        let request = place.as_ref().map_err(Error::clone).and_then(|_| {
            let name = "embedding_tensor_description";
            let policy = match cache_policy.is_null() {
                true => None,
                false => Some(table().live::<CachePolicy>("cache_policy", cache_policy as usize)?),
            };
            Ok(Request {
                // SAFETY: the caller's pointer is NULL or holds the struct.
                description: unsafe { read(name, embedding_tensor_description) }?.into(),
                memory_type: raw(memory_type),
                location: raw(memory_location),
                policy: policy.map(|policy| (*policy).clone()),
                // SAFETY: NULL, or one value a rank by the contract.
                partition: unsafe { partition(embedding_entry_partition, object.comm.size()) },
                sms: user_defined_sms,
                round_robin_size,
                rmm_enabled: rmm_enabled(),
            })
        });
        let made = Arc::new(Embedding::create(&object.comm, request)?);
        let handle = EmbeddingObject::enter(made, comm as usize)?;
        // SAFETY: the caller's place holds an embedding.
        unsafe { place?.write(handle as wholememory_embedding_t) };
        Ok(())
    })
}

/// Destroys an embedding with its table, cache and states. Local: ranks may destroy theirs in any order, also after the communicator is gone or the
/// library finalized. The memory is free when all ranks have. The tensors it lent are dead.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign embeddings; CUDA_ERROR, SYSTEM_ERROR (the embedding is gone all the same).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_destroy_embedding(
    wholememory_embedding: wholememory_embedding_t,
) -> wholememory_error_code_t {
    guard::code(|| destroy(wholememory_embedding as usize))
}

/// The table of an embedding: [rows, columns], its root the rows as they are allocated. It belongs to the embedding and goes with it; destroying it is
/// INVALID_INPUT. Under round robin it has the same number of rows of each rank. Its rows are `strides[0]` elements apart, a multiple of 16 bytes: for files
/// that is the `memory_entry_size`, and `file_entry_size` the bytes of the columns (6 floats: 32 and 24). NULL for NULL, dead or foreign embeddings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_embedding_tensor(
    wholememory_embedding: wholememory_embedding_t,
) -> wholememory_tensor_t {
    guard::value(std::ptr::null_mut(), || {
        Ok(live(wholememory_embedding)?.table_tensor()? as wholememory_tensor_t)
    })
}

/// Gives an embedding an optimizer and makes its states: those of the size of a row begin with 0, `beta12t` with 1. Collective, the same
/// optimizer type on all ranks. A NULL optimizer (on all ranks) changes nothing. The embedding keeps the optimizer.
///
/// Errors, the same on every rank: NOT_SUPPORTED if it has one already; NOT_IMPLEMENTED for tables that are not FLOAT, HALF or
/// BF16; INVALID_INPUT for dead or foreign objects and for caches that are not READWRITE; INVALID_VALUE for optimizers that differ; else as
/// `wholememory_malloc`. A rank with a NULL or foreign embedding alone gets INVALID_INPUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_set_optimizer(
    wholememory_embedding: wholememory_embedding_t,
    optimizer: wholememory_embedding_optimizer_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (object, alive) = embedding(wholememory_embedding as usize)?;
        let optimizer = alive.and_then(|()| match optimizer.is_null() {
            true => Ok(None),
            false => table()
                .live::<Optimizer>("optimizer", optimizer as usize)
                .map(Some),
        });
        object.embedding.set_optimizer(optimizer)
    })
}

/// `output[i] = row indices[i]` of the embedding, as `wholememory_gather` with its rules, errors and completion. Ids below 0 and
/// not below the rows of the embedding leave their output row untouched. The output must not overlap the memory of the table or the cache.
/// `adjust_cache`: the ids count as uses, and rows that were missed may enter the cache; ignored without one.
/// `stream_int`: a `cudaStream_t` as an integer, 0 the default stream; ignored on the CPU platform.
///
/// Collective over the embedding's communicator where the table or its cache is DISTRIBUTED, and for HIERARCHY tables; where there is a cache and
/// `adjust_cache` is true also over the cache's communicator. Else local. All these ranks pass the same embedding and `adjust_cache`: where
/// they do not, they are told (LOGIC_ERROR) if they meet on one communicator; on two they wait for each other.
///
/// Where ranks exchange ids or rows and one has no memory or descriptor for that: OUT_OF_MEMORY or SYSTEM_ERROR on all of them.
///
/// A NULL or foreign embedding names no ranks, nor does one that went with its communicator: that rank takes no part, and the others wait for its
/// next collective call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wholememory_embedding_gather(
    wholememory_embedding: wholememory_embedding_t,
    indices: wholememory_tensor_t,
    output: wholememory_tensor_t,
    adjust_cache: MaybeUninit<bool>,
    p_env_fns: *mut wholememory_env_func_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) }.on(Stream(stream_int as usize));
    environment.run(|buffers| {
        let (object, mut prior) = embedding(wholememory_embedding as usize)?;
        let indices = or_none(operand("indices", indices), &mut prior);
        let output = or_none(operand("output", output), &mut prior);
        let outcome = object.embedding.gather(
            &indices,
            &output,
            truth(adjust_cache),
            buffers,
            Stream(stream_int as usize),
        );
        prior.and(outcome)
    })
}

/// One step of the embedding's optimizer with learning rate `lr`. Gradients of a row are summed over all ranks, then the optimizer
/// is applied to the row once. Rows that no rank names do not change. Collective, also with no indices.
///
/// Shapes: indices [n] of INT or INT64; grads [n, D] of FLOAT, HALF or BF16, any row stride, D the columns of the embedding (fewer within the same
/// 16 bytes of padding update only those). Ids below 0 and not below the rows are left out. Sums are in float, in the order of the ranks and of
/// their gradients, in runs of 512 whose sums are summed in turn. `p_env_fns` may be NULL. The work is ordered on the stream and may still run on
/// return; other ranks see the rows after a barrier that follows its end. `adjust_cache` and `stream_int` are those of `wholememory_embedding_gather`.
///
/// Errors (on the failing rank alone; the others go on without it): INVALID_INPUT for NULL, dead or foreign objects, an embedding without
/// optimizer, wrong shapes or dtypes, data that cannot be reached, gradients with other columns than those of the lowest rank that has
/// some; LOGIC_ERROR for gradients that are not as many as indices and for data that is not aligned to its elements; INVALID_VALUE for
/// spans that leave the address space; CUDA_ERROR. On all ranks: OUT_OF_MEMORY; SYSTEM_ERROR for want of descriptors; LOGIC_ERROR if they
/// pass different embeddings or one that a rank has destroyed; COMMUNICATION_ERROR. A NULL or foreign embedding, or one without an
/// optimizer, names no ranks: that rank takes no part, and the others wait for its next collective call.
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
    // SAFETY: the caller's struct is NULL or valid during the call.
    let environment = unsafe { Environment::new(p_env_fns) }.on(Stream(stream_int as usize));
    environment.run(|buffers| {
        let (object, mut prior) = embedding(wholememory_embedding as usize)?;
        let indices = or_none(operand("indices", indices), &mut prior);
        let gradients = or_none(operand("grads", grads), &mut prior);
        object.embedding.apply_gradients(
            prior.map(|()| (&indices, &gradients)),
            truth(adjust_cache),
            lr,
            buffers,
            Stream(stream_int as usize),
        )
    })
}

/// The names of the optimizer's states, ended by NULL (LAZY_ADAM: m, v, beta12t; RMSPROP: v; ADAGRAD: state_sum; SGD: none). They are constants.
/// NULL without an optimizer, and for NULL, dead or foreign embeddings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_optimizer_state_names(
    wholememory_embedding: wholememory_embedding_t,
) -> *const *const c_char {
    guard::value(std::ptr::null(), || {
        let names = live(wholememory_embedding)?.embedding.state_names()?;
        Ok(names.map_or(std::ptr::null(), name_array))
    })
}

/// The state `name` as a FLOAT tensor: [rows, columns], or [rows, 2] for beta12t (beta1^t and beta2^t of each row; DISTRIBUTED, DEVICE). It
/// can be loaded and stored, belongs to the embedding and goes with it. States may share a handle: `storage_offset` and `strides[0]` of the
/// tensor say where its rows are. For files: `memory_offset` is storage_offset * 4, `memory_entry_size` strides[0] * 4, `file_entry_size`
/// columns * 4 (in an embedding of 6 columns with m and v, v has storage_offset 8 and strides[0] 16, so 32, 64 and 24). NULL for unknown
/// names, without an optimizer, and for NULL, dead or foreign embeddings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_optimizer_state(
    wholememory_embedding: wholememory_embedding_t,
    name: *const c_char,
) -> wholememory_tensor_t {
    guard::value(std::ptr::null_mut(), || {
        let object = live(wholememory_embedding)?;
        ensure!(!name.is_null(), InvalidInput, "name is NULL");
        // SAFETY: the caller's string is ended by NUL.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        Ok(object.state_tensor(wholememory_embedding as usize, &name)? as wholememory_tensor_t)
    })
}

/// Writes changed rows of the cache (and their optimizer states) back to the table, which all ranks see there when it returns. Collective over the
/// embedding's communicator (a cache on another one: over that). `stream_int` as for `wholememory_embedding_gather`. Without a cache SUCCESS and
/// nothing to do.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign embeddings; CUDA_ERROR, COMMUNICATION_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_writeback_cache(
    wholememory_embedding: wholememory_embedding_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    write_back(wholememory_embedding, AfterWriteBack::Keep, stream_int)
}

/// As `wholememory_embedding_writeback_cache`, and empties the cache. To be called before the table is changed by other means (loaded from files,
/// scattered to), which the cache does not notice; the cache is used again only after the change. Called after the change it overwrites those rows of
/// the table that a gradient step had changed in the cache. Where there are none (READONLY, or just written back), it may be called after as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_drop_all_cache(
    wholememory_embedding: wholememory_embedding_t,
    stream_int: i64,
) -> wholememory_error_code_t {
    write_back(wholememory_embedding, AfterWriteBack::Drop, stream_int)
}

fn write_back(given: wholememory_embedding_t, then: AfterWriteBack, stream: i64) -> wholememory_error_code_t {
    guard::code(|| {
        let (object, alive) = embedding(given as usize)?;
        object.embedding.write_back(alive, then, Stream(stream as usize))
    })
}

fn live(given: wholememory_embedding_t) -> Result<Arc<EmbeddingObject>> {
    table().live("wholememory_embedding", given as usize)
}

/// The constant array of the C interface for a list of names.
fn name_array(names: &'static [&'static CStr]) -> *const *const c_char {
    // Addresses of constant strings, each list ended by 0; never freed.
    static ARRAYS: OnceBox<Vec<Vec<usize>>> = OnceBox::new();
    let sets = state_name_sets();
    let arrays = ARRAYS.get_or_init(|| {
        let array = |set: &&'static [&'static CStr]| {
            let addresses = set.iter().map(|name| name.as_ptr() as usize);
            addresses.chain([0]).collect()
        };
        Box::new(sets.iter().map(array).collect())
    });
    let place = sets.iter().position(|set| *set == names);
    place.map_or(std::ptr::null(), |place| arrays[place].as_ptr().cast())
}
