//! Huge pages for memory files, also where the system gives them to nobody by itself: the tables of pages that every process
//! keeps of its own become 512 times smaller, and nobody meets a page fault for every 4 KiB.

use crate::log::say;
use crate::span::Address;
use rustix::fd::AsFd;
use rustix::fs::FallocateFlags;
use std::time::{Duration, Instant};

/// The huge page of every system this library runs on. Parts of memory without a whole one gain nothing here.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Huge pages are asked for in steps, after each of which it may turn out that the system has no more of them.
const STEP_BYTES: usize = 32 << 20;

/// A system that must first move other memory about for a huge page takes longer than this; small pages are better then.
/// A page that lies ready is cleared in a quarter of a millisecond.
const PATIENCE_PER_PAGE: Duration = Duration::from_millis(4);

/// Where huge pages begin and end in `bytes` at `address`; empty where there is no whole one.
pub fn whole_pages(address: Address, bytes: usize) -> std::ops::Range<usize> {
    let begin = address.0.next_multiple_of(HUGE_PAGE_BYTES);
    let end = (address.0 + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    begin..end.max(begin)
}

/// Provides the whole huge pages in `bytes` from `offset` of the file, whose byte 0 is mapped at `base` (a multiple of a huge
/// page) and which nobody has written yet. Does as much of it as goes quickly; the rest is left to be provided in small pages.
/// Returns how many bytes lie in huge pages now.
pub fn provide(file: impl AsFd, base: Address, offset: usize, bytes: usize) -> usize {
    let pages = whole_pages(base.offset_bytes(offset), bytes);
    let mut at = pages.start;
    while at < pages.end {
        let step = STEP_BYTES.min(pages.end - at);
        let begun = Instant::now();
        // The kernel makes one page out of 512 where at least one of them is there already.
        let small = rustix::param::page_size() as u64;
        let heads = (at..at + step).step_by(HUGE_PAGE_BYTES).try_for_each(|page| {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), (page - base.0) as u64, small)
        });
        if heads.is_err() {
            break;
        }
        // SAFETY: the range lies in the mapping of the file; its content stays.
        let code = unsafe { libc::madvise(at as *mut libc::c_void, step, libc::MADV_COLLAPSE) };
        if code != 0 {
            let refusal = std::io::Error::last_os_error();
            say!(
                Debug,
                "no huge pages for {} bytes of shared memory: {refusal}",
                pages.end - at
            );
            break;
        }
        at += step;
        if begun.elapsed() > PATIENCE_PER_PAGE * (step / HUGE_PAGE_BYTES) as u32 {
            say!(
                Debug,
                "huge pages are slow to come, {} bytes of shared memory take small ones",
                pages.end - at
            );
            break;
        }
    }
    at - pages.start
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = HUGE_PAGE_BYTES;

    #[test]
    fn only_whole_pages_are_huge() {
        let cases = [
            ((HUGE, 0), HUGE..HUGE),
            ((HUGE, HUGE - 1), HUGE..HUGE),
            ((HUGE, HUGE), HUGE..2 * HUGE),
            ((HUGE + 1, 2 * HUGE), 2 * HUGE..3 * HUGE),
            ((HUGE - 4096, HUGE + 4096), HUGE..2 * HUGE),
            ((HUGE + 4096, 100), 2 * HUGE..2 * HUGE),
            ((3 * HUGE, 5 * HUGE + 8), 3 * HUGE..8 * HUGE),
        ];
        for ((address, bytes), wanted) in cases {
            let pages = whole_pages(Address(address), bytes);
            assert_eq!(pages, wanted, "{bytes} bytes at {address:#x}");
        }
    }
}
