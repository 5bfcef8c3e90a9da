//! Where the ranks of one host meet: a shared-memory segment with a futex barrier, and a note and a slot a rank for small values.
//! A waiting rank yields a few times (or a little while, where there are cores enough), then sleeps with a 100 ms tick at which
//! it looks whether the communicator broke; it never spins (ranks may outnumber cores).

use crate::error::{Error, Kind, Result};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use std::fmt;
use std::io::Write;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

const LINE_BYTES: usize = 128;
const HEADER_BYTES: usize = 3 * LINE_BYTES;
const SLOT_BYTES: usize = 8 << 10;
const SLOT_HEADER_BYTES: usize = 128;
const PAYLOAD_BYTES: usize = SLOT_BYTES - SLOT_HEADER_BYTES;
const NAME_BYTES: usize = SLOT_HEADER_BYTES - 16;
const YIELDS: usize = 8;
/// How long a rank yields at most where every rank of the host has a core, and another one for its threads: to be woken takes
/// longer than most ranks are late.
const AWAKE: Duration = Duration::from_micros(50);
const CORES_A_RANK: usize = 2;
const TICK: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The call in which a rank meets the others. Calls whose ranks meet otherwise by what is passed (by the route of a table, with a cache
/// or without) are of as many ways, so that ranks on different ones are told and none takes the other's meetings for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    pub operation: &'static str,
    /// Empty where there is one only.
    pub way: &'static str,
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.way {
            "" => f.write_str(self.operation),
            way => write!(f, "{} ({way})", self.operation),
        }
    }
}

impl From<&'static str> for Called {
    fn from(operation: &'static str) -> Called {
        Called { operation, way: "" }
    }
}

/// The mapping of one rank. Calls are made one at a time (under the communicator's lock).
pub struct Meeting {
    base: *mut u8,
    rank: usize,
    size: usize,
    /// How long a waiting rank goes on yielding.
    awake: Duration,
    /// Meetings held so far; its parity picks the slots, so a slot is rewritten only after all have read it.
    held: AtomicU64,
}

// SAFETY: the mapping is shared memory; its words are atomics, its slots are ordered by the barrier.
unsafe impl Send for Meeting {}
// SAFETY: as above; concurrent calls are excluded by the communicator's lock, `wake` only touches atomics.
unsafe impl Sync for Meeting {}

fn length_bytes(size: usize) -> usize {
    HEADER_BYTES + size * (LINE_BYTES + 2 * SLOT_BYTES)
}

/// Makes the segment for `size` ranks; its descriptor goes to the others.
/// # Errors
/// SYSTEM_ERROR, OUT_OF_MEMORY.
pub fn create(size: usize) -> Result<OwnedFd> {
    // Growing past the limit would raise SIGXFSZ in the caller's process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    crate::error::ensure!(
        limit.is_none_or(|limit| length_bytes(size) as u64 <= limit),
        OutOfMemory,
        "the ranks meet in a segment of {} bytes, the file-size limit (ulimit -f) is {} bytes",
        length_bytes(size),
        limit.unwrap_or(u64::MAX)
    );
    let fd = memfd_create("wholememory-meeting", MemfdFlags::CLOEXEC)
        .map_err(|e| Error::system("memfd_create", e))?;
    ftruncate(&fd, length_bytes(size) as u64)
        .map_err(|e| Error::system("ftruncate of the meeting segment", e))?;
    rustix::fs::fallocate(
        &fd,
        rustix::fs::FallocateFlags::empty(),
        0,
        length_bytes(size) as u64,
    )
    .map_err(|e| {
        Error::new(
            Kind::OutOfMemory,
            format!(
                "reserving the meeting segment of {} bytes: {e}",
                length_bytes(size)
            ),
        )
    })?;
    Ok(fd)
}

impl Meeting {
    /// Maps the segment as `rank` of `size`.
    /// # Errors
    /// SYSTEM_ERROR; COMMUNICATION_ERROR if the segment is not one for `size` ranks.
    pub fn open(fd: impl AsFd, rank: usize, size: usize) -> Result<Meeting> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| Error::system("fstat of the meeting segment", e))?;
        if stat.st_size as usize != length_bytes(size) {
            let what = format!(
                "the meeting segment has {} bytes, {} ranks need {}",
                stat.st_size,
                size,
                length_bytes(size)
            );
            return Err(Error::new(Kind::Communication, what));
        }
        // SAFETY: a fresh shared mapping of the whole segment at an address of the kernel's choice.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length_bytes(size),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }
        .map_err(|e| Error::system("mmap of the meeting segment", e))?;
        Ok(Meeting {
            base: base.cast(),
            rank,
            size,
            awake: awake(available_parallelism().map_or(1, NonZero::get), size),
            held: AtomicU64::new(0),
        })
    }

    fn word(&self, line: usize) -> &AtomicU32 {
        // SAFETY: the header lies within the mapping, is aligned, and is only ever used as atomics.
        unsafe { AtomicU32::from_ptr(self.base.add(line * LINE_BYTES).cast()) }
    }

    fn arrived(&self) -> &AtomicU32 {
        self.word(0)
    }

    fn generation(&self) -> &AtomicU32 {
        self.word(1)
    }

    fn sleepers(&self) -> &AtomicU32 {
        self.word(2)
    }

    fn note(&self, rank: usize) -> &AtomicU64 {
        // SAFETY: rank < size, so the line lies within the mapping; it is aligned, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.add(HEADER_BYTES + rank * LINE_BYTES).cast()) }
    }

    /// Leaves a note for the others, in the place of the one before; at first it is 0. Costs a store.
    pub fn leave_note(&self, note: u64) {
        self.note(self.rank).store(note, Ordering::Release);
    }

    /// The notes of all ranks as they are now, in rank order.
    pub fn notes(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.size).map(|rank| self.note(rank).load(Ordering::Acquire))
    }

    fn slot(&self, rank: usize, parity: u64) -> *mut u8 {
        let slots_bytes = HEADER_BYTES + self.size * LINE_BYTES;
        // SAFETY: rank < size and parity < 2, so the slot lies within the mapping.
        unsafe {
            self.base
                .add(slots_bytes + (2 * rank + parity as usize) * SLOT_BYTES)
        }
    }

    /// Wakes the sleeping ranks of this host so that they look at their communicator's state.
    pub fn wake(&self) {
        let _ = futex::wake(self.generation(), futex::Flags::empty(), i32::MAX as u32);
    }

    fn arrive(&self, failure: &dyn Fn() -> Option<Error>) -> Result<()> {
        let before = self.generation().load(Ordering::SeqCst);
        if self.arrived().fetch_add(1, Ordering::SeqCst) as usize + 1 == self.size {
            self.arrived().store(0, Ordering::SeqCst);
            self.generation().fetch_add(1, Ordering::SeqCst);
            if self.sleepers().load(Ordering::SeqCst) > 0 {
                self.wake();
            }
            return Ok(());
        }
        let start = Instant::now();
        for yields in 1.. {
            std::thread::yield_now();
            if self.generation().load(Ordering::SeqCst) != before {
                return Ok(());
            }
            if yields >= YIELDS && start.elapsed() >= self.awake {
                break;
            }
        }
        self.sleepers().fetch_add(1, Ordering::SeqCst);
        let outcome = loop {
            if self.generation().load(Ordering::SeqCst) != before {
                break Ok(());
            }
            if let Some(error) = failure() {
                // A rank leaves only after the meetings it took part in: what it completed counts.
                if self.generation().load(Ordering::SeqCst) != before {
                    break Ok(());
                }
                break Err(error);
            }
            match futex::wait(self.generation(), futex::Flags::empty(), before, Some(&TICK)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(e) => break Err(Error::system("futex wait", e)),
            }
        };
        self.sleepers().fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Writes one chunk of `mine` and what was called, meets, and appends everybody's chunk to `all`. Returns the lengths of the ranks'
    /// whole values.
    fn round(
        &self,
        called: Called,
        mine: &[u8],
        start: usize,
        all: &mut [Vec<u8>],
        failure: &dyn Fn() -> Option<Error>,
    ) -> Result<Vec<usize>> {
        if let Some(error) = failure() {
            return Err(error);
        }
        let parity = self.held.fetch_add(1, Ordering::Relaxed) & 1;
        let chunk = &mine[start.min(mine.len())..(start + PAYLOAD_BYTES).min(mine.len())];
        let mut name = [0u8; NAME_BYTES];
        // What does not fit is cut.
        let _ = write!(&mut name[..], "{called}");
        let slot = self.slot(self.rank, parity);
        // SAFETY: the slot has SLOT_BYTES; nobody reads it before the barrier below, and all read the previous use of this
        // parity before they arrived at the barrier in between.
        unsafe {
            slot.cast::<u64>().write(mine.len() as u64);
            slot.add(8).cast::<u64>().write(chunk.len() as u64);
            slot.add(16).cast::<[u8; NAME_BYTES]>().write(name);
            slot.add(SLOT_HEADER_BYTES)
                .copy_from_nonoverlapping(chunk.as_ptr(), chunk.len());
        }
        self.arrive(failure)?;
        let mut lengths = Vec::with_capacity(self.size);
        let mut names = Vec::with_capacity(self.size);
        for (rank, value) in all.iter_mut().enumerate() {
            let slot = self.slot(rank, parity);
            // SAFETY: written before the barrier, rewritten only after the next one; the chunk length is clamped to the slot.
            unsafe {
                lengths.push(slot.cast::<u64>().read() as usize);
                let chunk_bytes = (slot.add(8).cast::<u64>().read() as usize).min(PAYLOAD_BYTES);
                names.push(slot.add(16).cast::<[u8; NAME_BYTES]>().read());
                value.extend_from_slice(std::slice::from_raw_parts(
                    slot.add(SLOT_HEADER_BYTES),
                    chunk_bytes,
                ));
            }
        }
        if let Some(rank) = names.iter().position(|n| *n != names[0]) {
            return Err(different_operations(
                0,
                &text(&names[0]),
                rank,
                &text(&names[rank]),
            ));
        }
        Ok(lengths)
    }

    /// The values of all ranks, in rank order; lengths may differ. `failure` tells whether the communicator broke.
    pub fn all_gather(
        &self,
        called: Called,
        mine: &[u8],
        failure: &dyn Fn() -> Option<Error>,
    ) -> Result<Vec<Vec<u8>>> {
        let mut all = vec![Vec::new(); self.size];
        let mut start = 0;
        loop {
            let lengths = self.round(called, mine, start, &mut all, failure)?;
            start += PAYLOAD_BYTES;
            if lengths.iter().all(|l| *l <= start) {
                return Ok(all);
            }
        }
    }

    /// Returns when every rank has called it.
    pub fn barrier(&self, called: Called, failure: &dyn Fn() -> Option<Error>) -> Result<()> {
        self.round(called, &[], 0, &mut vec![Vec::new(); self.size], failure)
            .map(drop)
    }
}

fn awake(cores: usize, ranks: usize) -> Duration {
    match cores / CORES_A_RANK >= ranks {
        true => AWAKE,
        false => Duration::ZERO,
    }
}

/// LOGIC_ERROR for two ranks found in different collective calls.
pub fn different_operations(a: usize, called_a: &str, b: usize, called_b: &str) -> Error {
    let what = format!(
        "ranks are in different operations: rank {a} called {called_a}, rank {b} called {called_b}; \
         all ranks of a communicator must make its collective calls in the same order"
    );
    Error::new(Kind::Logic, what)
}

fn text(name: &[u8; NAME_BYTES]) -> String {
    String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open` with this length and nobody can use it after the drop.
        let _ = unsafe { munmap(self.base.cast(), length_bytes(self.size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_ranks(size: usize, body: impl Fn(usize, &Meeting) + Sync) {
        for awake in [Duration::ZERO, AWAKE] {
            let fd = create(size).unwrap();
            std::thread::scope(|s| {
                for rank in 0..size {
                    let (fd, body) = (&fd, &body);
                    s.spawn(move || {
                        let mut meeting = Meeting::open(fd, rank, size).unwrap();
                        meeting.awake = awake;
                        body(rank, &meeting);
                    });
                }
            });
        }
    }

    #[test]
    fn ranks_stay_awake_where_there_are_cores_to_spare() {
        let cases = [(1, 1), (2, 2), (3, 2), (4, 2), (32, 2), (32, 16), (32, 17)];
        let awake = cases.map(|(cores, ranks)| !awake(cores, ranks).is_zero());
        assert_eq!(awake, [false, false, false, true, true, true, false]);
    }

    #[test]
    fn values_of_any_length_arrive_in_rank_order() {
        with_ranks(5, |rank, meeting| {
            for round in 0..200usize {
                let value = |r: usize| vec![(r + round) as u8; (r * 5_000 * round) % 40_000];
                let all = meeting.all_gather("test".into(), &value(rank), &|| None).unwrap();
                assert_eq!(all, (0..5).map(value).collect::<Vec<_>>());
                meeting.barrier("test".into(), &|| None).unwrap();
            }
        });
    }

    #[test]
    fn different_operations_are_found_by_all_and_the_next_call_works() {
        with_ranks(3, |rank, meeting| {
            let name = if rank == 2 { "malloc" } else { "barrier" };
            let error = meeting.barrier(name.into(), &|| None).unwrap_err();
            assert_eq!(error.kind, Kind::Logic);
            assert!(
                error.what.contains("rank 0 called barrier") && error.what.contains("rank 2 called malloc")
            );
            let called = Called {
                operation: "gather",
                way: ["by one way", "by one way", "by another"][rank],
            };
            let error = meeting.barrier(called, &|| None).unwrap_err();
            assert!(
                error.what.contains("rank 0 called gather (by one way)")
                    && error.what.contains("rank 2 called gather (by another)"),
                "{error}"
            );
            meeting.barrier("again".into(), &|| None).unwrap();
        });
    }

    #[test]
    fn a_failure_frees_the_waiting() {
        with_ranks(2, |rank, meeting| {
            if rank == 0 {
                let start = std::time::Instant::now();
                let dead = || {
                    (start.elapsed().as_millis() > 50).then(|| Error::new(Kind::Communication, "rank 1 died"))
                };
                assert_eq!(
                    meeting.barrier("b".into(), &dead).unwrap_err().kind,
                    Kind::Communication
                );
                assert!(start.elapsed().as_millis() < 2_000);
            }
        });
    }

    #[test]
    fn notes_are_seen_without_a_meeting_and_change_no_value() {
        with_ranks(3, |rank, meeting| {
            let values = meeting
                .all_gather("a".into(), &[rank as u8; 9000], &|| None)
                .unwrap();
            meeting.leave_note(10 + rank as u64);
            meeting.barrier("b".into(), &|| None).unwrap();
            assert_eq!(meeting.notes().collect::<Vec<_>>(), [10, 11, 12]);
            assert_eq!(values, [0, 1, 2].map(|of| vec![of; 9000]));
        });
    }
}
