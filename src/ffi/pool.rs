//! Scratch of the library's own, for callers who give no memory functions: host memory in classes of powers of two, kept for
//! the next call up to a bound.

use crate::error::{Error, Kind, Result};
use crate::ops::Scratch;
use crate::platform::process::PerProcess;
use crate::span::Address;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One cache line, so that every block is aligned to it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

const LINE_BYTES: usize = size_of::<Line>();
/// Free blocks above this are given back to the system.
const MOST_FREE_BYTES: usize = 64 << 20;

struct Free {
    /// Class c holds blocks of `1 << c` lines.
    classes: [Vec<Vec<Line>>; usize::BITS as usize],
    bytes: usize,
}

impl Free {
    const fn nothing() -> Free {
        Free {
            classes: [const { Vec::new() }; usize::BITS as usize],
            bytes: 0,
        }
    }
}

static FREE: PerProcess<Mutex<Free>> =
    PerProcess::new(Mutex::new(Free::nothing()), || Mutex::new(Free::nothing()));

fn free() -> MutexGuard<'static, Free> {
    FREE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block of the pool; goes back when dropped. The operation must be done with it by then (the CPU platform always is).
pub(crate) struct Pooled {
    lines: Vec<Line>,
}

fn class_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_BYTES).next_power_of_two().ilog2() as usize
}

/// At least `bytes` of host memory with any content; no memory for 0 bytes.
/// # Errors
/// OUT_OF_MEMORY.
pub(crate) fn take(bytes: usize) -> Result<Pooled> {
    if bytes == 0 {
        return Ok(Pooled { lines: Vec::new() });
    }
    let class = class_of(bytes);
    let mut free = free();
    if let Some(lines) = free.classes[class].pop() {
        free.bytes -= lines.capacity() * LINE_BYTES;
        return Ok(Pooled { lines });
    }
    drop(free);
    let mut lines = Vec::new();
    lines.try_reserve_exact(1 << class).map_err(|error| {
        Error::new(
            Kind::OutOfMemory,
            format!("{bytes} bytes of scratch of the library's own: {error}"),
        )
    })?;
    Ok(Pooled { lines })
}

impl Scratch for Pooled {
    fn address(&self) -> Address {
        match self.lines.capacity() {
            0 => Address::NULL,
            _ => Address(self.lines.as_ptr() as usize),
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let bytes = lines.capacity() * LINE_BYTES;
        if bytes == 0 {
            return;
        }
        let mut free = free();
        if free.bytes + bytes <= MOST_FREE_BYTES && lines.capacity().is_power_of_two() {
            free.bytes += bytes;
            free.classes[lines.capacity().ilog2() as usize].push(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_apart_and_come_back() {
        let first = take(1000).unwrap();
        let second = take(1000).unwrap();
        assert_ne!(first.address(), second.address());
        assert_eq!(first.address().0 % 64, 0);
        assert!(first.lines.capacity() * LINE_BYTES >= 1000);
        assert!(take(0).unwrap().address().is_null());
        let huge = take(isize::MAX as usize / 2);
        assert_eq!(huge.err().unwrap().kind, Kind::OutOfMemory);
    }

    #[test]
    fn classes_hold_their_sizes() {
        for bytes in [1, 63, 64, 65, 4096, 4097] {
            assert!((LINE_BYTES << class_of(bytes)) >= bytes);
            assert!((LINE_BYTES << class_of(bytes)) < 2 * bytes.max(LINE_BYTES));
        }
    }
}
