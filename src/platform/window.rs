//! Memory of all ranks of a host in one range of addresses, a part a rank, in which ranks leave things that the others read
//! where they are.
//!
//! A part has two halves, and rounds use them in turn. A round is: write into the own part, meet, read from all parts. A half
//! is written again only after the meeting of the next round, to which every rank comes when its reading of this one is over.

use super::staging::Mover;
use super::{Bootstrap, Segment, SegmentRequest, Segments, Stream, agree, largest};
use crate::error::{Kind, Result};
use crate::kinds::Location;
use crate::log::say;
use crate::span::Address;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most that a half of a part may take; larger things are not left in windows.
pub const MOST_HALF_BYTES: usize = 512 << 20;

/// Sizes are rounded up to eighths of the next power of two, so that calls of about the same size share a window.
const STEPS: usize = 8;

/// For so many calls a size that could not be had is not asked for again.
const PATIENCE_CALLS: u32 = 64;

/// What readers and writers of a window need to know; the same on every rank up to the place of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Where the round's half of rank 0's part begins, as this rank sees it.
    pub base: Address,
    /// From a rank's part to the next rank's.
    pub part_bytes: usize,
}

impl Round {
    /// Where what `rank` leaves begins.
    pub fn part(&self, rank: usize) -> Address {
        self.base.offset_bytes(rank * self.part_bytes)
    }
}

/// A window, which comes with its first round and grows with the largest.
pub struct Windows<M> {
    mover: M,
    location: Location,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    segment: Option<Box<dyn Segment>>,
    base: Address,
    half_bytes: usize,
    /// Since the segment was made.
    rounds: usize,
    refused: Option<Refused>,
    released: bool,
}

/// A half of so many bytes could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    bytes: usize,
    calls_left: u32,
}

impl Held {
    /// Whether `bytes` could not be had a short while ago; the calls that ask so are counted.
    fn refuses(&mut self, bytes: usize) -> bool {
        match &mut self.refused {
            Some(refused) if bytes >= refused.bytes && refused.calls_left > 0 => {
                refused.calls_left -= 1;
                true
            }
            _ => false,
        }
    }
}

/// See the module. The ranks that use it do so in the same order, one call at a time.
pub trait Window: Send + Sync {
    /// Bytes of a half of a part that this rank holds now; 0 for none.
    fn held_bytes(&self) -> usize;

    /// Begins a round in which no rank leaves more than `bytes`, which is the same on all ranks, as is `held_by_all_bytes`, the
    /// least of what the ranks [hold](Window::held_bytes). `None` on all ranks if there is no room for that. Collective over
    /// `boot` where the window must grow, for which it waits for what it was used for.
    /// # Errors
    /// Those of [`Segments::create`] but for OUT_OF_MEMORY, SYSTEM_ERROR and NOT_SUPPORTED; CUDA_ERROR. The same on all ranks.
    fn begin(
        &self,
        segments: &dyn Segments,
        boot: &dyn Bootstrap,
        bytes: usize,
        held_by_all_bytes: usize,
        stream: Stream,
    ) -> Result<Option<Round>>;

    /// Meets the ranks behind what they wrote on their streams; when it returns, all may be read. A failed `mine` fails all.
    /// Collective over `boot`.
    /// # Errors
    /// That of the lowest rank that failed.
    fn meet(&self, boot: &dyn Bootstrap, mine: Result<()>, stream: Stream) -> Result<()>;

    /// This rank's reading is on the stream, as far as it will be.
    fn finish(&self, stream: Stream);

    /// Gives back what this rank holds, until the next round that needs it. Local, between rounds: what others still map of
    /// it stays there for them.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR.
    fn give_back(&self) -> Result<()>;
}

impl<M: Mover> Windows<M> {
    pub fn new(mover: M, location: Location) -> Windows<M> {
        Windows {
            mover,
            location,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Transport::release`](super::Transport::release).
    pub fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()> {
        self.held().released = true;
        let given = self.give_back();
        let met = boot.map_or(Ok(()), |boot| boot.barrier());
        given.and(met)
    }

    fn grow(
        &self,
        held: &mut Held,
        segments: &dyn Segments,
        boot: &dyn Bootstrap,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let unit_bytes = largest(boot, segments.granularity_bytes() as u64)? as usize;
        let half_bytes = rounded(bytes, unit_bytes);
        // Whatever the last rounds read or wrote.
        agree(boot, &[], self.mover.settle(stream))?;
        held.half_bytes = 0;
        let given = held.segment.take().map(Segment::release_settled);
        agree(boot, &[], given.unwrap_or(Ok(())))?;
        let part_bytes = 2 * half_bytes;
        let starts_bytes: Vec<usize> = (0..=boot.size()).map(|rank| rank * part_bytes).collect();
        let request = SegmentRequest {
            location: self.location,
            starts_bytes: &starts_bytes,
            contiguous: true,
        };
        let segment = segments
            .create(&request, boot)
            .map_err(|e| e.within(format!("a window of {half_bytes} bytes a rank and half")))?;
        held.base = segment.address_of_rank(0);
        held.segment = Some(segment);
        held.half_bytes = half_bytes;
        held.rounds = 0;
        Ok(())
    }
}

/// A size that serves calls of `bytes` and a little more, in whole units.
fn rounded(bytes: usize, unit_bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / STEPS).max(unit_bytes);
    bytes.next_multiple_of(step).next_multiple_of(unit_bytes)
}

/// Whether a window that cannot be had for this is done without.
fn is_shortage(kind: Kind) -> bool {
    matches!(kind, Kind::OutOfMemory | Kind::System | Kind::NotSupported)
}

impl<M: Mover> Window for Windows<M> {
    fn held_bytes(&self) -> usize {
        self.held().half_bytes
    }

    fn begin(
        &self,
        segments: &dyn Segments,
        boot: &dyn Bootstrap,
        bytes: usize,
        held_by_all_bytes: usize,
        stream: Stream,
    ) -> Result<Option<Round>> {
        let mut held = self.held();
        let grows = bytes > held_by_all_bytes;
        if held.released || bytes > MOST_HALF_BYTES || (grows && held.refuses(bytes)) {
            return Ok(None);
        }
        if grows {
            match self.grow(&mut held, segments, boot, bytes, stream) {
                Err(error) if is_shortage(error.kind) && boot.failure().is_none() => {
                    say!(Debug, "{error}; for some calls no window is asked for");
                    held.refused = Some(Refused {
                        bytes,
                        calls_left: PATIENCE_CALLS,
                    });
                    return Ok(None);
                }
                grown => grown?,
            }
        }
        let round = held.rounds;
        held.rounds += 1;
        Ok(Some(Round {
            base: held.base.offset_bytes(round % 2 * held.half_bytes),
            part_bytes: 2 * held.half_bytes,
        }))
    }

    fn meet(&self, boot: &dyn Bootstrap, mine: Result<()>, stream: Stream) -> Result<()> {
        agree(boot, &[], mine.and(self.mover.settle(stream)))
    }

    fn finish(&self, stream: Stream) {
        if self.mover.finish(stream).is_err() {
            // Then nothing tells later when the reading is over, so it is waited for now.
            let _ = self.mover.settle(stream);
        }
    }

    fn give_back(&self) -> Result<()> {
        let segment = {
            let mut held = self.held();
            held.half_bytes = 0;
            held.segment.take()
        };
        segment.map_or(Ok(()), |segment| segment.release(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::platform::cpu::Copies;
    use crate::platform::cpu::segments::MemfdSegments;
    use crate::platform::cpu::segments::threaded::{Threaded, ranks};

    fn window() -> Windows<Copies> {
        Windows::new(Copies, Location::Host)
    }

    fn begin(window: &Windows<Copies>, boot: &Threaded, bytes: usize) -> Option<Round> {
        begin_in(&MemfdSegments, window, boot, bytes)
    }

    fn begin_in(
        segments: &dyn Segments,
        window: &Windows<Copies>,
        boot: &Threaded,
        bytes: usize,
    ) -> Option<Round> {
        let held = boot.all_gather(&window.held_bytes().to_le_bytes()).unwrap();
        let least = held
            .iter()
            .map(|bytes| usize::from_le_bytes(bytes[..].try_into().unwrap()))
            .min();
        window
            .begin(segments, boot, bytes, least.unwrap(), Stream(0))
            .unwrap()
    }

    fn byte(call: usize, rank: usize, i: usize) -> u8 {
        (call * 37 + rank * 101 + i * 7 + i / 253) as u8
    }

    fn write(at: Address, bytes: &[u8]) {
        // SAFETY: at the beginning of an own part, with room for it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.0 as *mut u8, bytes.len()) };
    }

    fn read(at: Address, bytes: usize) -> Vec<u8> {
        // SAFETY: at the beginning of a part that holds as much, after the meeting.
        unsafe { std::slice::from_raw_parts(at.0 as *const u8, bytes).to_vec() }
    }

    #[test]
    fn all_read_what_each_left_while_others_write_the_next_round() {
        for size in [1, 2, 3, 5] {
            ranks(size, |boot| {
                let (window, me) = (window(), boot.rank());
                for call in 0..40 {
                    // The window grows some times, and is larger than it must be for the others.
                    let bytes = [100, 5000, 70, 30_000, 200_000, 9][call / 3 % 6] + call;
                    let round = begin(&window, &boot, bytes).unwrap();
                    let own: Vec<u8> = (0..bytes).map(|i| byte(call, me, i)).collect();
                    write(round.part(me), &own);
                    window.meet(&boot, Ok(()), Stream(0)).unwrap();
                    // The others are by now writing what comes next, as far as they may.
                    if (call + me) % 3 == 0 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    for from in 0..size {
                        let want: Vec<u8> = (0..bytes).map(|i| byte(call, from, i)).collect();
                        assert!(
                            read(round.part(from), bytes) == want,
                            "rank {from} to rank {me}, round {call}"
                        );
                    }
                    window.finish(Stream(0));
                }
                window.release(Some(&boot)).unwrap();
                assert_eq!(begin(&window, &boot, 1), None);
            });
        }
    }

    #[test]
    fn a_rank_that_fails_fails_all_and_the_next_round_works() {
        let outcomes = ranks(3, |boot| {
            let (window, me) = (window(), boot.rank());
            begin(&window, &boot, 64).unwrap();
            let mine = match me {
                1 => Err(Error::new(Kind::Cuda, "the row that would not move")),
                _ => Ok(()),
            };
            let failed = window.meet(&boot, mine, Stream(0));
            let round = begin(&window, &boot, 64).unwrap();
            write(round.part(me), &[me as u8; 64]);
            window.meet(&boot, Ok(()), Stream(0)).unwrap();
            assert_eq!(read(round.part(2), 64), [2; 64]);
            failed
        });
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind, Kind::Cuda);
            assert!(error.what.ends_with("the row that would not move"), "{error}");
        }
    }

    /// Segments that fail for more than they say.
    struct Small {
        most_bytes: usize,
        with: Kind,
    }

    impl Segments for Small {
        fn granularity_bytes(&self) -> usize {
            4096
        }

        fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
            let bytes = *request.starts_bytes.last().unwrap_or(&0);
            if bytes > self.most_bytes {
                return Err(Error::new(self.with, "none left"));
            }
            MemfdSegments.create(request, boot)
        }
    }

    #[test]
    fn without_room_there_is_no_round_and_for_a_while_nobody_asks_again() {
        for with in [Kind::OutOfMemory, Kind::System, Kind::NotSupported] {
            ranks(2, |boot| {
                let (window, me) = (window(), boot.rank());
                let small = Small {
                    most_bytes: 1 << 20,
                    with,
                };
                assert_eq!(begin_in(&small, &window, &boot, MOST_HALF_BYTES + 1), None);
                assert_eq!(begin_in(&small, &window, &boot, 1 << 20), None);
                for call in 0..PATIENCE_CALLS {
                    let left = PATIENCE_CALLS - call;
                    assert_eq!(window.held().refused.unwrap().calls_left, left);
                    assert_eq!(
                        begin(&window, &boot, 1 << 21),
                        None,
                        "there is room, but nobody asks"
                    );
                    let round = begin_in(&small, &window, &boot, 4096).unwrap();
                    write(round.part(me), &[me as u8 + 1; 4096]);
                    window.meet(&boot, Ok(()), Stream(0)).unwrap();
                    assert_eq!(read(round.part(1 - me), 4096), [2 - me as u8; 4096]);
                }
                assert!(begin(&window, &boot, 1 << 21).is_some());
            });
        }
    }

    #[test]
    fn other_failures_to_grow_are_those_of_all_ranks() {
        ranks(2, |boot| {
            let small = Small {
                most_bytes: 0,
                with: Kind::Cuda,
            };
            let failed = window().begin(&small, &boot, 1, 0, Stream(0));
            assert_eq!(failed.unwrap_err().kind, Kind::Cuda);
        });
    }

    /// Ranks give back when they like; the next round is one of all ranks again.
    #[test]
    fn what_some_ranks_gave_back_is_made_anew_by_all() {
        ranks(3, |boot| {
            let (window, me) = (window(), boot.rank());
            for call in 0..30 {
                let round = begin(&window, &boot, 5000).unwrap();
                assert!(window.held_bytes() >= 5000);
                write(round.part(me), &[(call * 3 + me) as u8; 5000]);
                window.meet(&boot, Ok(()), Stream(0)).unwrap();
                for from in 0..3 {
                    assert_eq!(read(round.part(from), 5000), [(call * 3 + from) as u8; 5000]);
                }
                window.finish(Stream(0));
                if (call + me) % 4 == 0 || call % 7 == 3 {
                    window.give_back().unwrap();
                    assert_eq!(window.held_bytes(), 0);
                }
            }
            window.release(Some(&boot)).unwrap();
        });
    }

    #[test]
    fn sizes_are_whole_units_that_serve_a_little_more() {
        assert_eq!(rounded(1, 4096), 4096);
        assert_eq!(rounded(4097, 4096), 8192);
        assert_eq!(rounded((64 << 20) + 1, 2 << 20), 80 << 20);
        assert_eq!(rounded(MOST_HALF_BYTES, 2 << 20), MOST_HALF_BYTES);
    }
}
