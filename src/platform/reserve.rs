//! Memory kept back for small allocations. Where one fails Rust ends the process, and a library must not end its client's because
//! memory runs out in the middle of a list of ranks. What grows with a call's size is asked for by means that can fail instead.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// More than the least that malloc takes from the system at once (1 MiB), and than all small allocations of a call together.
const RESERVE_BYTES: usize = 4 << 20;

/// The largest that the reserve is opened for.
const MOST_BYTES: usize = 64 << 10;

/// Addresses that nobody uses; NULL while there are none.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The system's allocator, which gets the reserve where it has no memory for something small.
pub struct WithReserve;

/// Whether the system would give so much memory at this moment.
pub fn has_room(bytes: usize) -> bool {
    let room = map(bytes);
    if !room.is_null() {
        unmap(room, bytes);
    }
    !room.is_null()
}

/// Keeps a reserve from now on, if there is memory for one. Every call begins with this.
pub fn keep() {
    if RESERVE.load(Ordering::Relaxed).is_null() {
        make();
    }
}

#[cold]
fn make() {
    let made = map(RESERVE_BYTES);
    let had = RESERVE.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Relaxed);
    if had.is_err() && !made.is_null() {
        unmap(made, RESERVE_BYTES);
    }
}

fn map(bytes: usize) -> *mut u8 {
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: new pages at addresses that the system chooses.
    let at = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        null_mut()
    } else {
        at.cast()
    }
}

fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: what `map` gave, which nobody else knows.
    unsafe { libc::munmap(at.cast(), bytes) };
}

/// Tries again with what was kept back.
#[cold]
fn again(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    if bytes > MOST_BYTES {
        return null_mut();
    }
    loop {
        let reserve = RESERVE.swap(null_mut(), Ordering::AcqRel);
        if !reserve.is_null() {
            unmap(reserve, RESERVE_BYTES);
        }
        // Also where another thread has just opened it; one that has kept the same memory again opens it in the next turn.
        let given = allocate();
        if !given.is_null() || reserve.is_null() && RESERVE.load(Ordering::Acquire).is_null() {
            return given;
        }
    }
}

// SAFETY: the system's allocator throughout, called a second time where it gave nothing.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let allocate = || unsafe { System.alloc(layout) };
        let given = allocate();
        if given.is_null() {
            again(layout.size(), allocate)
        } else {
            given
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let allocate = || unsafe { System.alloc_zeroed(layout) };
        let given = allocate();
        if given.is_null() {
            again(layout.size(), allocate)
        } else {
            given
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a block that was not moved is still there.
        let allocate = || unsafe { System.realloc(at, layout, bytes) };
        let given = allocate();
        if given.is_null() {
            again(bytes, allocate)
        } else {
            given
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What c_tests/memory_limit.c asks of it without memory, that is whether small allocations go on, is asked there.
    #[test]
    fn the_reserve_is_opened_for_what_is_small_alone() {
        keep();
        let tries = std::cell::Cell::new(0);
        let mut block = [0u8; 8];
        let at = block.as_mut_ptr();
        let after = |failures: i32| {
            tries.set(0);
            let tries = &tries;
            move || {
                tries.set(tries.get() + 1);
                if tries.get() > failures { at } else { null_mut() }
            }
        };
        assert!(again(MOST_BYTES + 1, after(0)).is_null());
        assert_eq!(tries.get(), 0);
        assert_eq!(again(MOST_BYTES, after(0)), at);
        assert_eq!(tries.get(), 1);
        // Other tests of this process may keep one meanwhile; without one there is an end.
        assert!(again(1, after(i32::MAX)).is_null());
        assert!(tries.get() >= 1);
        keep();
        assert!(has_room(1 << 20) && !has_room(1 << 60));
    }
}
