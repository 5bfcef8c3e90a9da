//! What a forked child gets of its parent's objects: answers or codes in a moment, whatever locks a thread of its parent held.

use super::cache_stats::{wholememory_cache_stats_t, wholememory_embedding_get_cache_stats};
use super::embedding::*;
use super::embedding_objects::EmbeddingObject;
use super::objects::{CommObject, MemoryObject, forget_communicator, table};
use super::tensor_description::{wholememory_dtype_t, wholememory_tensor_description_t};
use super::wholememory::library::{wholememory_error_code_t as Code, wholememory_finalize};
use super::wholememory::memory::*;
use super::wholememory_tensor::{wholememory_destroy_tensor, wholememory_make_tensor_from_pointer};
use crate::comm::{Communicator, UniqueId};
use crate::platform::process::in_a_forked_child;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

const OK: Code = Code::WHOLEMEMORY_SUCCESS;
const BROKEN: Code = Code::WHOLEMEMORY_COMMUNICATION_ERROR;
const ROWS: i64 = 100;
const COLUMNS: i64 = 4;

struct Life {
    comm: usize,
    policy: wholememory_embedding_cache_policy_t,
    optimizer: wholememory_embedding_optimizer_t,
    embedding: wholememory_embedding_t,
    memory: wholememory_handle_t,
}

fn description(rows: i64, columns: i64, dtype: wholememory_dtype_t) -> wholememory_tensor_description_t {
    let mut sizes = [0; 8];
    let mut strides = [1; 8];
    (sizes[0], sizes[1], strides[0]) = (rows, columns, columns);
    wholememory_tensor_description_t {
        sizes,
        strides,
        storage_offset: 0,
        dim: if columns == 1 { 1 } else { 2 },
        dtype: MaybeUninit::new(dtype),
    }
}

/// A communicator of one rank with memory and a cached, trained embedding.
fn begin() -> Life {
    let id = UniqueId::create().unwrap();
    let comm = CommObject::enter(Communicator::create(&id, 0, 1, Ok(())).unwrap(), None).unwrap();
    let mut life = Life {
        comm,
        policy: null_mut(),
        optimizer: null_mut(),
        embedding: null_mut(),
        memory: null_mut(),
    };
    let continuous = MaybeUninit::new(wholememory_memory_type_t::WHOLEMEMORY_MT_CONTINUOUS);
    let host = MaybeUninit::new(wholememory_memory_location_t::WHOLEMEMORY_ML_HOST);
    let device = MaybeUninit::new(wholememory_memory_location_t::WHOLEMEMORY_ML_DEVICE);
    let read_write = MaybeUninit::new(wholememory_access_type_t::WHOLEMEMORY_AT_READWRITE);
    let adam = MaybeUninit::new(wholememory_optimizer_type_t::WHOLEMEMORY_OPT_LAZY_ADAM);
    let mut of_rows = description(ROWS, COLUMNS, wholememory_dtype_t::WHOLEMEMORY_DT_FLOAT);
    let handle = comm as _;
    // SAFETY: places of this function, handles that live.
    let codes = unsafe {
        [
            wholememory_malloc(&mut life.memory, 4096, handle, continuous, host, 16, null_mut()),
            wholememory_create_embedding_cache_policy(
                &mut life.policy,
                handle,
                continuous,
                device,
                read_write,
                0.5,
            ),
            wholememory_create_embedding(
                &mut life.embedding,
                &mut of_rows,
                handle,
                continuous,
                host,
                life.policy,
                null_mut(),
                -1,
                0,
            ),
            wholememory_create_embedding_optimizer(&mut life.optimizer, adam),
            wholememory_embedding_set_optimizer(life.embedding, life.optimizer),
        ]
    };
    assert_eq!(codes, [OK; 5]);
    life
}

impl Life {
    /// Every lock of its objects, held.
    fn hold_locks(&self) -> impl Sized {
        let comm = table().live::<CommObject>("comm", self.comm).unwrap();
        let embedding = table()
            .live::<EmbeddingObject>("embedding", self.embedding as usize)
            .unwrap();
        let memory = table()
            .live::<MemoryObject>("memory", self.memory as usize)
            .unwrap();
        // What is held lives in the table, and these keep it alive besides.
        let (comm, embedding, memory): (
            &'static CommObject,
            &'static EmbeddingObject,
            &'static MemoryObject,
        ) = (leaked(comm), leaked(embedding), leaked(memory));
        (
            comm.hold_locks(),
            embedding.hold_locks(),
            memory.memory.hold_locks(),
        )
    }

    /// Calls everything that a child may try on its parent's objects; codes of what returns codes, NULL told as BROKEN. Pointers that
    /// are handed out are no concern here.
    fn try_all(&self) -> Vec<(&'static str, Code)> {
        let mut stats = wholememory_cache_stats_t {
            struct_size: size_of::<wholememory_cache_stats_t>() as u32,
            ..Default::default()
        };
        let mut ids = [1i64, 2, 3];
        let mut rows = [[0f32; COLUMNS as usize]; 3];
        let (mut indices, mut grads) = (null_mut(), null_mut());
        let mut of_ids = description(3, 1, wholememory_dtype_t::WHOLEMEMORY_DT_INT64);
        let mut of_rows = description(3, COLUMNS, wholememory_dtype_t::WHOLEMEMORY_DT_FLOAT);
        let (mut pointer, mut size_bytes, mut offset_bytes): (*mut c_void, usize, usize) = (null_mut(), 0, 0);
        let told = |found: bool| if found { OK } else { BROKEN };
        let (no, yes) = (MaybeUninit::new(false), MaybeUninit::new(true));
        // SAFETY: places and buffers of this function, handles that were made here.
        unsafe {
            let made = [
                wholememory_make_tensor_from_pointer(&mut indices, ids.as_mut_ptr().cast(), &mut of_ids),
                wholememory_make_tensor_from_pointer(&mut grads, rows.as_mut_ptr().cast(), &mut of_rows),
            ];
            assert_eq!(made, [OK; 2]);
            let (embedding, memory) = (self.embedding, self.memory);
            let codes = vec![
                (
                    "stats",
                    wholememory_embedding_get_cache_stats(embedding, &mut stats),
                ),
                (
                    "table",
                    told(!wholememory_embedding_get_embedding_tensor(embedding).is_null()),
                ),
                (
                    "names",
                    told(!wholememory_embedding_get_optimizer_state_names(embedding).is_null()),
                ),
                (
                    "state",
                    told(!wholememory_embedding_get_optimizer_state(embedding, c"m".as_ptr()).is_null()),
                ),
                (
                    "gather",
                    wholememory_embedding_gather(embedding, indices, grads, no, null_mut(), -1),
                ),
                (
                    "adjusting",
                    wholememory_embedding_gather(embedding, indices, grads, yes, null_mut(), -1),
                ),
                (
                    "step",
                    wholememory_embedding_gather_gradient_apply(
                        embedding,
                        indices,
                        grads,
                        no,
                        0.1,
                        null_mut(),
                        -1,
                    ),
                ),
                (
                    "optimizer",
                    wholememory_embedding_set_optimizer(embedding, self.optimizer),
                ),
                ("write back", wholememory_embedding_writeback_cache(embedding, -1)),
                ("drop", wholememory_embedding_drop_all_cache(embedding, -1)),
                (
                    "local",
                    wholememory_get_local_memory(&mut pointer, &mut size_bytes, &mut offset_bytes, memory),
                ),
                ("global", wholememory_get_global_pointer(&mut pointer, memory)),
                ("free", wholememory_free(memory)),
            ];
            assert_eq!(
                [
                    wholememory_destroy_tensor(indices),
                    wholememory_destroy_tensor(grads)
                ],
                [OK; 2]
            );
            codes
        }
    }

    fn end(self) {
        // SAFETY: handles that live.
        unsafe {
            assert_eq!(wholememory_destroy_embedding(self.embedding), OK);
            assert_eq!(wholememory_destroy_embedding_cache_policy(self.policy), OK);
            wholememory_destroy_embedding_optimizer(self.optimizer);
        }
        let comm = table().live::<CommObject>("comm", self.comm).unwrap();
        comm.comm.destroy().unwrap();
        forget_communicator(self.comm);
    }
}

fn leaked<T>(object: Arc<T>) -> &'static T {
    // SAFETY: the count is never given back, so the object lives on.
    unsafe { &*Arc::into_raw(object) }
}

#[test]
fn a_child_gets_codes_of_what_threads_of_its_parent_held() {
    let life = begin();
    let held = life.hold_locks();
    in_a_forked_child(|| {
        let codes = life.try_all();
        // SAFETY: a handle that was made here.
        let destroyed = unsafe { wholememory_destroy_embedding(life.embedding) };
        // SAFETY: takes no arguments.
        let ended = unsafe { wholememory_finalize() };
        assert!(codes.iter().all(|(_, code)| *code == BROKEN), "{codes:?}");
        // What it has of the memory goes with the process; the handle is dead.
        destroyed == BROKEN && ended == OK
    });
    drop(held);
    let codes = life.try_all();
    // The parent is unharmed. The second optimizer is refused, to it and to everybody.
    let good = |what: &str, code: Code| {
        code == if what == "optimizer" {
            Code::WHOLEMEMORY_NOT_SUPPORTED
        } else {
            OK
        }
    };
    assert!(codes.iter().all(|(what, code)| good(what, *code)), "{codes:?}");
    life.end();
}

/// Where nobody held a lock: what is collective or needs the cache is refused all the same, memory that is mapped can be read.
#[test]
fn a_child_may_ask_what_is_local() {
    let life = begin();
    in_a_forked_child(|| {
        let codes = life.try_all();
        let local = ["table", "names", "state", "local", "global"];
        let want = |what: &str| if local.contains(&what) { OK } else { BROKEN };
        assert!(codes.iter().all(|(what, code)| *code == want(what)), "{codes:?}");
        true
    });
    assert!(
        life.try_all()
            .iter()
            .all(|(what, code)| *what == "optimizer" || *code == OK)
    );
    life.end();
}

/// What a thread of the parent holds at the fork, nobody in the child gives back.
#[test]
fn a_child_finalizes_whatever_locks_its_parent_held() {
    let id = UniqueId::create().unwrap();
    let comm = Communicator::create(&id, 0, 1, Ok(())).unwrap();
    let handle = CommObject::enter(comm.clone(), None).unwrap();
    let object = table().live::<CommObject>("comm", handle).unwrap();
    let held = object.hold_locks();
    in_a_forked_child(|| {
        // SAFETY: takes no arguments.
        let code = unsafe { wholememory_finalize() };
        code == OK && !comm.is_alive()
    });
    drop(held);
    assert!(comm.is_alive(), "the child's end is not the parent's");
    forget_communicator(handle);
}
