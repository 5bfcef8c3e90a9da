//! Plain writes to host memory of the caller.

#![allow(unsafe_code)]

use crate::span::Address;

/// Writes `count` values, densely from `to`, in order. The caller has checked that the memory is there; it need not be
/// aligned.
pub fn fill<T: Copy>(to: Address, count: usize, mut next: impl FnMut() -> T) {
    let first = to.0 as *mut T;
    for i in 0..count {
        // SAFETY: the caller of the C API passed room for `count` values at `to`; unaligned writes ask nothing of it.
        unsafe { first.add(i).write_unaligned(next()) };
    }
}
