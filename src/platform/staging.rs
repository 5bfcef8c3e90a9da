//! Moves bytes between the ranks of one host by copies through a staging segment that all of them map.
//!
//! Every rank owns a part of the staging segment, of two halves. In a round it writes the next piece of what it sends into
//! one half, meets the others, and takes what is for it from theirs; the next round uses the other half, so one meeting a
//! round is enough: a half is written again only after a meeting that all its readers have left it for.

use super::{Bootstrap, Segment, SegmentRequest, Segments, Stream, Transport, agree};
use crate::error::{Result, ensure, fail};
use crate::kinds::Location;
use crate::span::Address;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How bytes are copied here. All addresses lie in buffers whose sizes the caller of `all_to_all_v` vouches for, or in the
/// staging segment inside one half of one part; no two sides of a copy overlap.
pub trait Mover: Send + Sync {
    /// Begins a copy on the stream; `bytes` is not 0.
    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// Waits until all copies on the stream are done, and all copies of earlier calls on whatever stream.
    fn settle(&self, stream: Stream) -> Result<()>;

    /// Ends a call: its last copies may still run, and the next call may come on another stream.
    fn finish(&self, stream: Stream) -> Result<()>;
}

/// A transport over a staging segment of bounded size.
pub struct StagedTransport<M> {
    mover: M,
    /// `None` once released.
    staging: Mutex<Option<Box<dyn Segment>>>,
    half_bytes: usize,
    /// Rounds so far, the same on every rank; its parity picks the half.
    rounds: AtomicUsize,
}

impl<M: Mover> StagedTransport<M> {
    /// Every rank stages through `part_bytes` at `location`. Collective over `boot`: all ranks get a transport, or all the
    /// same error.
    /// # Errors
    /// Those of [`Segments::create`].
    pub fn create(
        mover: M,
        segments: &dyn Segments,
        location: Location,
        part_bytes: usize,
        boot: &dyn Bootstrap,
    ) -> Result<StagedTransport<M>> {
        // One rank alone copies directly.
        let part_bytes = if boot.size() == 1 { 0 } else { part_bytes };
        let starts_bytes: Vec<usize> = (0..=boot.size()).map(|rank| rank * part_bytes).collect();
        let request = SegmentRequest {
            location,
            starts_bytes: &starts_bytes,
            contiguous: false,
        };
        let staging = segments
            .create(&request, boot)
            .map_err(|e| e.within("the staging memory of the exchange"))?;
        Ok(StagedTransport {
            mover,
            staging: Mutex::new(Some(staging)),
            half_bytes: part_bytes / 2,
            rounds: AtomicUsize::new(0),
        })
    }

    fn staging(&self) -> MutexGuard<'_, Option<Box<dyn Segment>>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        match bytes {
            0 => Ok(()),
            _ => self.mover.copy(to, from, bytes, stream),
        }
    }

    fn half(&self, staging: &dyn Segment, rank: usize, round: usize) -> Address {
        staging
            .address_of_rank(rank)
            .offset_bytes(round % 2 * self.half_bytes)
    }

    /// One rank's part of all rounds. A copy that fails is told at the next meeting, where all ranks leave together.
    fn exchange(
        &self,
        boot: &dyn Bootstrap,
        staging: &dyn Segment,
        matrix: &Matrix,
        (send, receive): (Address, Address),
        stream: Stream,
    ) -> Result<()> {
        let me = boot.rank();
        let peers = || (0..boot.size()).filter(|peer| *peer != me);
        let send_starts = prefix_sums(matrix.bytes[me].iter().copied());
        let receive_starts = prefix_sums(matrix.bytes.iter().map(|row| row[me]));
        let mut mine = self.copy(
            receive.offset_bytes(receive_starts[me]),
            send.offset_bytes(send_starts[me]),
            matrix.bytes[me][me],
            stream,
        );
        for piece in 0..matrix.rounds(self.half_bytes) {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            let window = piece * self.half_bytes..(piece + 1) * self.half_bytes;
            for to in peers() {
                let range = matrix.range(me, to);
                let part = intersect(&range, &window);
                mine = mine.and_then(|()| {
                    self.copy(
                        self.half(staging, me, round)
                            .offset_bytes(part.start.saturating_sub(window.start)),
                        send.offset_bytes(send_starts[to] + part.start.saturating_sub(range.start)),
                        part.len(),
                        stream,
                    )
                });
            }
            agree(boot, &[], mine.and_then(|()| self.mover.settle(stream)))?;
            mine = peers().try_for_each(|from| {
                let range = matrix.range(from, me);
                let part = intersect(&range, &window);
                self.copy(
                    receive.offset_bytes(receive_starts[from] + part.start.saturating_sub(range.start)),
                    self.half(staging, from, round)
                        .offset_bytes(part.start.saturating_sub(window.start)),
                    part.len(),
                    stream,
                )
            });
        }
        mine
    }
}
/// Who sends how much to whom: `bytes[from][to]`.
struct Matrix {
    bytes: Vec<Vec<usize>>,
}

impl Matrix {
    /// Collective. Every rank sees both sides of every count, so all find the same mismatch.
    fn agree(boot: &dyn Bootstrap, send_bytes: &[usize], receive_bytes: &[usize]) -> Result<Matrix> {
        let ranks = boot.size();
        let mine: Vec<u8> = send_bytes
            .iter()
            .chain(receive_bytes)
            .flat_map(|bytes| (*bytes as u64).to_le_bytes())
            .collect();
        let sides = boot
            .all_gather(&mine)?
            .iter()
            .enumerate()
            .map(|(rank, bytes)| {
                let counts: Vec<usize> = bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .map(|b| u64::from_le_bytes(*b) as usize)
                    .collect();
                ensure!(
                    counts.len() == 2 * ranks,
                    Logic,
                    "rank {rank} came to an exchange of {ranks} ranks with {} counts",
                    counts.len()
                );
                Ok(counts)
            })
            .collect::<Result<Vec<_>>>()?;
        for (from, sender) in sides.iter().enumerate() {
            for (to, receiver) in sides.iter().enumerate() {
                let (sent, awaited) = (sender[to], receiver[ranks + from]);
                ensure!(
                    sent == awaited,
                    Logic,
                    "rank {from} sends {sent} bytes to rank {to}, which awaits {awaited}"
                );
            }
        }
        let bytes = sides
            .into_iter()
            .map(|mut side| {
                side.truncate(ranks);
                side
            })
            .collect();
        Ok(Matrix { bytes })
    }

    /// What `from` puts through its part is one stream of bytes: the receivers from the next rank on, round the circle, so
    /// that not all ranks feed the same receiver first. This is the range of `to` in it.
    fn range(&self, from: usize, to: usize) -> Range<usize> {
        let ranks = self.bytes.len();
        let before = (to + ranks - from - 1) % ranks;
        let start = (1..=before)
            .map(|step| self.bytes[from][(from + step) % ranks])
            .sum();
        start..start + self.bytes[from][to]
    }

    fn stream_bytes(&self, from: usize) -> usize {
        self.bytes[from].iter().sum::<usize>() - self.bytes[from][from]
    }

    fn rounds(&self, half_bytes: usize) -> usize {
        (0..self.bytes.len())
            .map(|from| self.stream_bytes(from).div_ceil(half_bytes.max(1)))
            .max()
            .unwrap_or(0)
    }
}

fn intersect(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

fn prefix_sums(bytes: impl Iterator<Item = usize>) -> Vec<usize> {
    bytes
        .scan(0, |end, bytes| {
            let start = *end;
            *end += bytes;
            Some(start)
        })
        .collect()
}

impl<M: Mover> Transport for StagedTransport<M> {
    fn all_to_all_v(
        &self,
        boot: &dyn Bootstrap,
        send: Address,
        send_bytes: &[usize],
        receive: Address,
        receive_bytes: &[usize],
        stream: Stream,
    ) -> Result<()> {
        let matrix = Matrix::agree(boot, send_bytes, receive_bytes)?;
        let held = self.staging();
        let Some(staging) = held.as_deref() else {
            fail!(Logic, "the transport of this communicator was released");
        };
        let moved = self.exchange(boot, staging, &matrix, (send, receive), stream);
        moved.and(self.mover.finish(stream))
    }

    fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let staging = self.staging().take();
        staging.map_or(Ok(()), |staging| staging.release(boot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::platform::cpu::Copies;
    use crate::platform::cpu::segments::MemfdSegments;
    use crate::platform::cpu::segments::threaded::{Threaded, ranks};

    fn create(part_bytes: usize, boot: &Threaded) -> Result<StagedTransport<Copies>> {
        StagedTransport::create(Copies, &MemfdSegments, Location::Host, part_bytes, boot)
    }

    /// The byte at `i` of what `from` sends to `to` in call `call`.
    fn byte(call: usize, from: usize, to: usize, i: usize) -> u8 {
        (call * 101 + from * 31 + to * 7 + i * 13 + i / 251) as u8
    }

    fn exchange(boot: &Threaded, transport: &StagedTransport<Copies>, call: usize, sizes: &[Vec<usize>]) {
        let me = boot.rank();
        let all = 0..boot.size();
        let receive_bytes: Vec<usize> = all.clone().map(|from| sizes[from][me]).collect();
        let send: Vec<u8> = all
            .clone()
            .flat_map(|to| (0..sizes[me][to]).map(move |i| byte(call, me, to, i)))
            .collect();
        let want: Vec<u8> = all
            .flat_map(|from| (0..sizes[from][me]).map(move |i| byte(call, from, me, i)))
            .collect();
        let mut got = vec![0xEEu8; want.len() + 8];
        let receive = Address(got.as_mut_ptr() as usize);
        transport
            .all_to_all_v(
                boot,
                Address(send.as_ptr() as usize),
                &sizes[me],
                receive,
                &receive_bytes,
                Stream(0),
            )
            .unwrap();
        assert_eq!(got[..want.len()], want);
        assert_eq!(got[want.len()..], [0xEE; 8]);
    }

    #[test]
    fn bytes_arrive_whatever_the_sizes() {
        for size in [1, 2, 3, 5] {
            ranks(size, |boot| {
                let transport = create(4096, &boot).unwrap();
                for call in 0..12 {
                    // From nothing at all over single bytes to many rounds, uneven between the ranks.
                    let sizes: Vec<Vec<usize>> = (0..size)
                        .map(|from| {
                            (0..size)
                                .map(|to| (from * 5 + to * 3 + call) % 7 * call * 331)
                                .collect()
                        })
                        .collect();
                    exchange(&boot, &transport, call, &sizes);
                }
            });
        }
    }

    #[test]
    fn nothing_to_move_needs_no_addresses() {
        ranks(3, |boot| {
            let transport = create(4096, &boot).unwrap();
            for _ in 0..3 {
                transport
                    .all_to_all_v(&boot, Address::NULL, &[0; 3], Address::NULL, &[0; 3], Stream(0))
                    .unwrap();
            }
        });
    }

    #[test]
    fn counts_that_do_not_fit_fail_on_every_rank() {
        let errors = ranks(3, |boot| {
            let transport = create(4096, &boot).unwrap();
            let receive_bytes = if boot.rank() == 2 { [0, 5, 0] } else { [0; 3] };
            transport
                .all_to_all_v(
                    &boot,
                    Address::NULL,
                    &[0; 3],
                    Address::NULL,
                    &receive_bytes,
                    Stream(0),
                )
                .unwrap_err()
        });
        for error in errors {
            assert_eq!(error.kind, Kind::Logic);
            assert_eq!(error.what, "rank 1 sends 0 bytes to rank 2, which awaits 5");
        }
    }

    /// Copies that fail once `left` of them were made.
    struct Failing {
        left: AtomicUsize,
    }

    impl Mover for Failing {
        fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
            ensure!(
                self.left.fetch_sub(1, Ordering::Relaxed) > 0,
                Cuda,
                "the copy engine burns"
            );
            Copies.copy(to, from, bytes, stream)
        }

        fn settle(&self, _: Stream) -> Result<()> {
            Ok(())
        }

        fn finish(&self, _: Stream) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_copy_that_fails_before_the_last_meeting_fails_all_and_the_next_exchange_works() {
        for lasting in 0..6 {
            let outcomes = ranks(3, |boot| {
                let left = if boot.rank() == 1 { lasting } else { 1000 };
                let mover = Failing {
                    left: AtomicUsize::new(left),
                };
                let transport =
                    StagedTransport::create(mover, &MemfdSegments, Location::Host, 4096, &boot).unwrap();
                let send = vec![boot.rank() as u8; 3 * 3000];
                let mut receive = vec![0xEEu8; 3 * 3000];
                let (from, to) = (
                    Address(send.as_ptr() as usize),
                    Address(receive.as_mut_ptr() as usize),
                );
                let once = || transport.all_to_all_v(&boot, from, &[3000; 3], to, &[3000; 3], Stream(0));
                let first = once();
                transport.mover.left.store(1000, Ordering::Relaxed);
                once().unwrap();
                assert_eq!(receive, [vec![0; 3000], vec![1; 3000], vec![2; 3000]].concat());
                transport.release(Some(&boot)).unwrap();
                assert_eq!(once().unwrap_err().kind, Kind::Logic);
                first
            });
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                let error = outcome.unwrap_err();
                assert_eq!(error.kind, Kind::Cuda);
                assert_eq!(error.what.starts_with("rank 1: "), rank != 1, "{error}");
            }
        }
    }

    #[test]
    fn a_rank_that_fails_fails_every_creation() {
        let errors = ranks(3, |boot| {
            let boot = {
                let loses = boot.rank() == 1;
                boot.losing_descriptors(loses)
            };
            create(4096, &boot).err()
        });
        for error in errors {
            assert_eq!(error.unwrap().kind, Kind::System);
        }
    }
}
