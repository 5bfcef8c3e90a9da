//! Bytes between files, buffers and memory that this process maps. Addresses are those of partitions; the callers vouch for
//! their bounds. Other ranks may touch the memory at the same time, so no reference to it is ever made.

use crate::span::Address;
use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::io;

fn retried(call: impl Fn() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(bytes) = usize::try_from(call()) {
            return Ok(bytes);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads at most `bytes` from byte `offset` of the file to `to`; returns how many came, 0 at the end of the file.
pub fn read_at(file: BorrowedFd<'_>, offset: u64, to: Address, bytes: usize) -> io::Result<usize> {
    // SAFETY: the caller vouches for `bytes` writable bytes at `to`; a bad address would give EFAULT, not a fault.
    retried(|| unsafe { libc::pread64(file.as_raw_fd(), to.0 as *mut _, bytes, offset as i64) })
}

/// Writes at most `bytes` from `from` to byte `offset` of the file; returns how many went.
pub fn write_at(file: BorrowedFd<'_>, offset: u64, from: Address, bytes: usize) -> io::Result<usize> {
    // SAFETY: the caller vouches for `bytes` readable bytes at `from`; a bad address would give EFAULT, not a fault.
    retried(|| unsafe { libc::pwrite64(file.as_raw_fd(), from.0 as *const _, bytes, offset as i64) })
}

/// Closes a file and says what the file system said: some report lost writes only here.
pub fn close(file: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was owned and is given up, so this is its one close.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Brings the pages of a mapped range in, writable, in one call: cheaper than a fault a page when all of them are about to
/// be written for the first time. Content is unchanged; where the kernel does not know the call, nothing happens.
pub fn populate(first: Address, bytes: usize) {
    let page_bytes = rustix::param::page_size();
    let begin = first.0 - first.0 % page_bytes;
    let length = (first.0 + bytes).next_multiple_of(page_bytes) - begin;
    // SAFETY: advice only; the range lies inside one mapping, which consists of whole pages.
    let _ = unsafe { rustix::mm::madvise(begin as *mut _, length, rustix::mm::Advice::LinuxPopulateWrite) };
}

/// Rows of `row_bytes` that begin every `stride_bytes` from `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub first: Address,
    pub row_bytes: usize,
    pub stride_bytes: usize,
}

/// A part of a packed stream of rows that lies inside one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub address: Address,
    /// Where it begins in the slice that was asked about.
    pub at: usize,
    pub bytes: usize,
}

impl Rows {
    /// The parts that `bytes` packed bytes from packed position `position` on fall into. Rows without gaps are one part.
    pub fn parts(self, position: usize, bytes: usize) -> impl Iterator<Item = Part> {
        let dense = self.row_bytes == self.stride_bytes;
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == bytes {
                return None;
            }
            let here = position + at;
            let (row, column) = (here / self.row_bytes, here % self.row_bytes);
            let room = if dense {
                usize::MAX
            } else {
                self.row_bytes - column
            };
            let part = Part {
                address: self.first.offset_bytes(row * self.stride_bytes + column),
                at,
                bytes: room.min(bytes - at),
            };
            at += part.bytes;
            Some(part)
        })
    }

    /// Lays packed bytes into the rows, beginning at packed position `position`.
    pub fn put(self, position: usize, packed: &[u8]) {
        for part in self.parts(position, packed.len()) {
            let from = packed[part.at..part.at + part.bytes].as_ptr();
            // SAFETY: the slice bounds the source; the caller vouches for the rows, which no buffer of ours overlaps.
            unsafe { std::ptr::copy_nonoverlapping(from, part.address.0 as *mut u8, part.bytes) };
        }
    }

    /// Packs bytes out of the rows, beginning at packed position `position`.
    pub fn take(self, position: usize, packed: &mut [u8]) {
        for part in self.parts(position, packed.len()) {
            let to = packed[part.at..part.at + part.bytes].as_mut_ptr();
            // SAFETY: the slice bounds the destination; the caller vouches for the rows, which no buffer of ours overlaps.
            unsafe { std::ptr::copy_nonoverlapping(part.address.0 as *const u8, to, part.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fd::AsFd;

    proptest! {
        #[test]
        fn rows_take_and_give_back_what_was_put(
            row_bytes in 1usize..9,
            gap in 0usize..5,
            rows in 1usize..12,
            cut in 0usize..200,
        ) {
            let stride_bytes = row_bytes + gap;
            let mut memory = vec![0xEEu8; rows * stride_bytes];
            let place = Rows { first: Address(memory.as_mut_ptr() as usize), row_bytes, stride_bytes };
            let packed: Vec<u8> = (0..rows * row_bytes).map(|i| i as u8).collect();
            let cut = cut % (packed.len() + 1);
            place.put(0, &packed[..cut]);
            place.put(cut, &packed[cut..]);
            for (i, byte) in memory.iter().enumerate() {
                let (row, column) = (i / stride_bytes, i % stride_bytes);
                let expected = if column < row_bytes { (row * row_bytes + column) as u8 } else { 0xEE };
                prop_assert_eq!(*byte, expected);
            }
            let mut back = vec![0; packed.len()];
            let (head, tail) = back.split_at_mut(cut);
            place.take(0, head);
            place.take(cut, tail);
            prop_assert_eq!(back, packed);
        }
    }

    #[test]
    fn bad_addresses_are_errors_not_faults() {
        let file = tempfile::tempfile().unwrap();
        let word = 7u64;
        let here = Address(&raw const word as usize);
        assert_eq!(write_at(file.as_fd(), 5, here, 8).unwrap(), 8);
        assert_eq!(read_at(file.as_fd(), 13, here, 8).unwrap(), 0);
        assert!(read_at(file.as_fd(), 5, Address(8), 8).is_err());
        assert!(write_at(file.as_fd(), 5, Address(8), 8).is_err());
    }
}
