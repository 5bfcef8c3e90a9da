//! Begin and end of the library in one process: init, finalize, what lives beyond them. One test, since all of it is global.

mod ranks;

use ranks::*;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;
use wholegraph::ffi::wholememory::communicator::*;
use wholegraph::ffi::wholememory::library::*;
use wholegraph::ffi::wholememory::memory::*;
use wholegraph::ffi::wholememory_tensor::*;

const FLOAT: u32 = 1;

/// Handles as numbers, so that threads can hand them over.
struct Left {
    comm: usize,
    handle: usize,
    owning: usize,
    window: usize,
}

fn tensors() -> i64 {
    // SAFETY: no arguments.
    unsafe { get_wholememory_tensor_count() }
}

fn create_tensor(comm: wholememory_comm_t) -> wholememory_tensor_t {
    let mut tensor = null_mut();
    let mut table = description(&[10, 4], &[4, 1], 0, FLOAT);
    // SAFETY: all places outlive the call.
    good(unsafe {
        wholememory_create_tensor(&mut tensor, &mut table, comm, raw(CHUNKED), raw(HOST), null_mut())
    });
    tensor
}

/// Two ranks of this process with objects on them, left as they are.
fn leave_objects() -> Vec<Left> {
    let id = unique_id();
    let left = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let left = &left;
            scope.spawn(move || {
                let comm = communicator(id, rank, 2);
                let handle = malloc(comm, CONTINUOUS, HOST, 64, 8);
                let owning = create_tensor(comm);
                let mut window = null_mut();
                // SAFETY: all places outlive the call.
                good(unsafe {
                    wholememory_tensor_get_subtensor(
                        owning,
                        [1, 0].as_mut_ptr(),
                        [2, 1].as_mut_ptr(),
                        &mut window,
                    )
                });
                left.lock().unwrap().push(Left {
                    comm: comm as usize,
                    handle: handle as usize,
                    owning: owning as usize,
                    window: window as usize,
                });
            });
        }
    });
    left.into_inner().unwrap()
}

fn begin_and_end() {
    // SAFETY: no pointers.
    unsafe {
        good(wholememory_finalize());
        good(wholememory_init(0, raw(2)));
        bad(
            wholememory_init(0, raw(2)),
            WHOLEMEMORY_LOGIC_ERROR,
            "initialised already",
        );
        let other = std::thread::spawn(|| wholememory_init(7, raw(99)))
            .join()
            .unwrap();
        assert_eq!(other, WHOLEMEMORY_LOGIC_ERROR);
        good(wholememory_finalize());
        good(wholememory_finalize());
        good(wholememory_init(u32::MAX, raw(99)));
        assert!(fork_get_device_count() >= -1);
        assert!(!wholememory_is_rmm_enabled());
        let mut two = MaybeUninit::<bool>::uninit();
        two.as_mut_ptr().cast::<u8>().write(2);
        good(wholememory_set_rmm_enabled(two));
        assert!(wholememory_is_rmm_enabled());
        good(wholememory_set_rmm_enabled(MaybeUninit::new(false)));
        assert!(!wholememory_is_rmm_enabled());
    }
}

fn finalize_with_live_objects() {
    let mut data = [0f32; 4];
    let pointer = over(&mut data, &[4], &[1], FLOAT);
    let left = leave_objects();
    assert_eq!(tensors(), 5);
    // SAFETY: handles are numbers; the places outlive the calls.
    unsafe {
        good(wholememory_finalize());
        let mut size = 0usize;
        for left in &left {
            let dead = |code| bad(code, WHOLEMEMORY_INVALID_INPUT, "does not exist any more");
            dead(wholememory_communicator_barrier(left.comm as _));
            dead(wholememory_destroy_communicator(left.comm as _));
            dead(wholememory_get_local_size(&mut size, left.handle as _));
            dead(wholememory_free(left.handle as _));
            // A tensor remains; what needs its memory is refused.
            assert!(wholememory_tensor_has_handle(left.window as _));
            let mut local = null_mut();
            bad(
                wholememory_tensor_map_local_tensor(left.owning as _, &mut local),
                WHOLEMEMORY_INVALID_INPUT,
                "dead",
            );
            good(wholememory_destroy_tensor(left.owning as _));
            bad(
                wholememory_destroy_tensor(left.owning as _),
                WHOLEMEMORY_INVALID_INPUT,
                "exist",
            );
            good(wholememory_destroy_tensor(left.window as _));
        }
        assert_eq!(tensors(), 1);
        good(wholememory_init(0, raw(2)));
    }
    destroy(pointer);
    assert_eq!(tensors(), 0);
}

fn tensors_beyond_their_communicator() {
    let left = leave_objects();
    std::thread::scope(|scope| {
        for left in &left {
            // SAFETY: a handle is a number.
            scope.spawn(|| good(unsafe { wholememory_destroy_communicator(left.comm as _) }));
        }
    });
    assert_eq!(tensors(), 4);
    for left in &left {
        destroy(left.window as _);
        destroy(left.owning as _);
    }
    assert_eq!(tensors(), 0);
}

fn failures_leave_the_counter() {
    with_ranks(1, |_, comm| {
        let mut tensor = null_mut();
        let mut table = description(&[10, 4], &[3, 1], 0, FLOAT);
        // SAFETY: all places outlive the call.
        let code = unsafe {
            wholememory_create_tensor(&mut tensor, &mut table, comm, raw(CHUNKED), raw(HOST), null_mut())
        };
        bad(code, WHOLEMEMORY_INVALID_VALUE, "strides[0]");
        table.dim = 3;
        // SAFETY: all places outlive the call.
        let code = unsafe { wholememory_make_tensor_from_pointer(&mut tensor, 8 as *mut _, &mut table) };
        good(code);
        destroy(tensor);
        let owning = create_tensor(comm);
        // SAFETY: handles are numbers.
        unsafe {
            let handle = wholememory_tensor_get_memory_handle(owning);
            assert_eq!(wholememory_get_total_size(handle), 160);
            destroy(owning);
            bad(
                wholememory_destroy_tensor(owning),
                WHOLEMEMORY_INVALID_INPUT,
                "destroyed before",
            );
            bad(wholememory_free(handle), WHOLEMEMORY_INVALID_INPUT, "dead");
        }
        // Handles freed behind a tensor's back: the tensor still goes.
        let owning = create_tensor(comm);
        // SAFETY: handles are numbers.
        good(unsafe { wholememory_free(wholememory_tensor_get_memory_handle(owning)) });
        destroy(owning);
    });
    assert_eq!(tensors(), 0);
}

fn many_rounds_do_not_grow() {
    with_ranks(1, |_, comm| {
        let first = malloc(comm, CONTINUOUS, HOST, 64, 8);
        for _ in 0..2500 {
            let tensor = create_tensor(comm);
            destroy(tensor);
            // The lower bits are the slot: those of the oldest dead handles come again.
            let slot = tensor as usize & 0xff_ffff;
            assert!(slot < 4500, "slot {slot} after at most 5000 dead handles");
        }
        // SAFETY: handles are numbers.
        good(unsafe { wholememory_free(first) });
    });
}

#[test]
fn the_library_begins_and_ends() {
    begin_and_end();
    finalize_with_live_objects();
    tensors_beyond_their_communicator();
    failures_leave_the_counter();
    many_rounds_do_not_grow();
    // SAFETY: no pointers.
    good(unsafe { wholememory_finalize() });
}
