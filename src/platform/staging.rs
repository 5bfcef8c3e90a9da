//! Moves bytes between the ranks of one host by copies through a staging segment that all of them map.
//!
//! Every rank owns a part of the staging segment, of two halves. In a round it writes the next piece of what it sends into
//! one half, meets the others, and takes what is for it from theirs; the next round uses the other half, so one meeting a
//! round is enough: a half is written again only after a meeting that all its readers have left it for.

use super::window::{Window, Windows};
use super::{Bootstrap, Segment, SegmentRequest, Segments, Shipment, Stream, Transport, agree};
use crate::error::{Result, ensure, fail};
use crate::kinds::Location;
use crate::span::Address;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    windows: Option<Arc<Windows<M>>>,
}

impl<M: Mover + 'static> StagedTransport<M> {
    /// Every rank stages through `part_bytes` at `location`. With a mover for it there is a window in memory of that kind too.
    /// Collective over `boot`: all ranks get a transport, or all the same error.
    /// # Errors
    /// Those of [`Segments::create`].
    pub fn create(
        mover: M,
        window_mover: Option<M>,
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
            windows: window_mover.map(|mover| Arc::new(Windows::new(mover, location))),
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

    /// One rank's part of all rounds. A copy that fails is told at the next meeting, where all ranks leave together: the outer error. The
    /// inner one is of the last copies, behind which nobody meets.
    fn exchange(
        &self,
        boot: &dyn Bootstrap,
        staging: &dyn Segment,
        matrix: &Matrix,
        shipments: &[Shipment<'_>],
        stream: Stream,
    ) -> Result<Result<()>> {
        let me = boot.rank();
        let lanes = || shipments.iter().enumerate();
        let peers = || (0..boot.size()).filter(|peer| *peer != me);
        let starts = |lane: usize, mine: &dyn Fn(usize) -> (usize, usize)| -> Vec<usize> {
            prefix_sums((0..boot.size()).map(|peer| {
                let (from, to) = mine(peer);
                matrix.bytes[lane][from][to]
            }))
        };
        let send_starts: Vec<_> = lanes().map(|(lane, _)| starts(lane, &|to| (me, to))).collect();
        let receive_starts: Vec<_> = lanes()
            .map(|(lane, _)| starts(lane, &|from| (from, me)))
            .collect();
        let mut mine = lanes().try_for_each(|(lane, it)| {
            self.copy(
                it.receive.offset_bytes(receive_starts[lane][me]),
                it.send.offset_bytes(send_starts[lane][me]),
                matrix.bytes[lane][me][me],
                stream,
            )
        });
        for piece in 0..matrix.rounds(self.half_bytes) {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            let window = piece * self.half_bytes..(piece + 1) * self.half_bytes;
            for (to, (lane, it)) in peers().flat_map(|to| lanes().map(move |lane| (to, lane))) {
                let range = matrix.range(lane, me, to);
                let part = intersect(&range, &window);
                mine = mine.and_then(|()| {
                    self.copy(
                        self.half(staging, me, round)
                            .offset_bytes(part.start.saturating_sub(window.start)),
                        it.send
                            .offset_bytes(send_starts[lane][to] + part.start.saturating_sub(range.start)),
                        part.len(),
                        stream,
                    )
                });
            }
            agree(boot, &[], mine.and_then(|()| self.mover.settle(stream)))?;
            let mut arriving = peers().flat_map(|from| lanes().map(move |lane| (from, lane)));
            mine = arriving.try_for_each(|(from, (lane, it))| {
                let range = matrix.range(lane, from, me);
                let part = intersect(&range, &window);
                self.copy(
                    it.receive
                        .offset_bytes(receive_starts[lane][from] + part.start.saturating_sub(range.start)),
                    self.half(staging, from, round)
                        .offset_bytes(part.start.saturating_sub(window.start)),
                    part.len(),
                    stream,
                )
            });
        }
        Ok(mine)
    }
}

/// Who sends how much to whom, of each shipment: `bytes[lane][from][to]`.
struct Matrix {
    bytes: Vec<Vec<Vec<usize>>>,
}

impl Matrix {
    /// Collective. Every rank sees both sides of every count, so all find the same mismatch.
    fn agree(boot: &dyn Bootstrap, shipments: &[Shipment<'_>]) -> Result<Matrix> {
        let (ranks, lanes) = (boot.size(), shipments.len());
        let mine: Vec<u8> = shipments
            .iter()
            .flat_map(|it| it.send_bytes.iter().chain(it.receive_bytes))
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
                    counts.len() == 2 * ranks * lanes,
                    Logic,
                    "rank {rank} came to an exchange of {ranks} ranks and {lanes} shipments with {} counts",
                    counts.len()
                );
                Ok(counts)
            })
            .collect::<Result<Vec<_>>>()?;
        let side = |lane: usize, rank: usize| &sides[rank][2 * ranks * lane..2 * ranks * (lane + 1)];
        for lane in 0..lanes {
            for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                let (sent, awaited) = (side(lane, from)[to], side(lane, to)[ranks + from]);
                ensure!(
                    sent == awaited,
                    Logic,
                    "rank {from} sends {sent} bytes to rank {to}, which awaits {awaited}"
                );
            }
        }
        let sent = |lane: usize| (0..ranks).map(move |from| side(lane, from)[..ranks].to_vec());
        Ok(Matrix {
            bytes: (0..lanes).map(|lane| sent(lane).collect()).collect(),
        })
    }

    fn ranks(&self) -> usize {
        self.bytes.first().map_or(0, Vec::len)
    }

    /// Of all shipments.
    fn all_bytes(&self, from: usize, to: usize) -> usize {
        self.bytes.iter().map(|lane| lane[from][to]).sum()
    }

    /// What `from` puts through its part is one stream of bytes: the receivers from the next rank on, round the circle, so
    /// that not all ranks feed the same receiver first, and for each the shipments behind each other. This is the range of `to` of a
    /// shipment in it.
    fn range(&self, lane: usize, from: usize, to: usize) -> Range<usize> {
        let ranks = self.ranks();
        let before = (to + ranks - from - 1) % ranks;
        let others: usize = (1..=before)
            .map(|step| self.all_bytes(from, (from + step) % ranks))
            .sum();
        let lanes: usize = self.bytes[..lane].iter().map(|it| it[from][to]).sum();
        let start = others + lanes;
        start..start + self.bytes[lane][from][to]
    }

    fn stream_bytes(&self, from: usize) -> usize {
        (0..self.ranks())
            .filter(|to| *to != from)
            .map(|to| self.all_bytes(from, to))
            .sum()
    }

    fn rounds(&self, half_bytes: usize) -> usize {
        (0..self.ranks())
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

impl<M: Mover + 'static> Transport for StagedTransport<M> {
    fn ship(&self, boot: &dyn Bootstrap, shipments: &[Shipment<'_>], stream: Stream) -> Result<()> {
        let matrix = Matrix::agree(boot, shipments)?;
        let held = self.staging();
        let Some(staging) = held.as_deref() else {
            fail!(Logic, "the transport of this communicator was released");
        };
        let moved = self.exchange(boot, staging, &matrix, shipments, stream);
        let finished = self.mover.finish(stream);
        let own = moved?.and(finished);
        // The others take it that all has gone well.
        if let Err(error) = &own {
            boot.break_off(error);
        }
        own
    }

    fn window(&self) -> Option<Arc<dyn Window>> {
        self.windows.clone().map(|windows| windows as Arc<dyn Window>)
    }

    fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let staging = self.staging().take();
        let gone = staging.map_or(Ok(()), |staging| staging.release(boot));
        gone.and(
            self.windows
                .as_ref()
                .map_or(Ok(()), |windows| windows.release(boot)),
        )
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
        StagedTransport::create(
            Copies,
            Some(Copies),
            &MemfdSegments,
            Location::Host,
            part_bytes,
            boot,
        )
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
    fn shipments_side_by_side_arrive_whatever_the_sizes() {
        for size in [1, 2, 3, 5] {
            ranks(size, |boot| {
                let transport = create(4096, &boot).unwrap();
                let (me, all) = (boot.rank(), 0..boot.size());
                for call in 0..8 {
                    let bytes = |lane: usize, from: usize, to: usize| {
                        (from * 5 + to * 3 + call + lane) % 7 * (call + lane) * 331
                    };
                    let content = |lane: usize, from: usize, to: usize| -> Vec<u8> {
                        (0..bytes(lane, from, to))
                            .map(|i| byte(call * 3 + lane, from, to, i))
                            .collect()
                    };
                    let lanes: Vec<_> = (0..3)
                        .map(|lane| {
                            let send_bytes: Vec<_> = all.clone().map(|to| bytes(lane, me, to)).collect();
                            let receive_bytes: Vec<_> =
                                all.clone().map(|from| bytes(lane, from, me)).collect();
                            let send: Vec<_> = all.clone().flat_map(|to| content(lane, me, to)).collect();
                            let want: Vec<_> = all.clone().flat_map(|from| content(lane, from, me)).collect();
                            (send_bytes, receive_bytes, send, want)
                        })
                        .collect();
                    let mut got: Vec<_> = lanes
                        .iter()
                        .map(|(_, _, _, want)| vec![0xEEu8; want.len()])
                        .collect();
                    let shipments: Vec<_> = lanes
                        .iter()
                        .zip(&mut got)
                        .map(|((send_bytes, receive_bytes, send, _), got)| Shipment {
                            send: Address(send.as_ptr() as usize),
                            send_bytes,
                            receive: Address(got.as_mut_ptr() as usize),
                            receive_bytes,
                        })
                        .collect();
                    transport.ship(&boot, &shipments, Stream(0)).unwrap();
                    for ((_, _, _, want), got) in lanes.iter().zip(&got) {
                        assert_eq!(got, want);
                    }
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

    /// Copies of rank 1 fail once `lasting` were made.
    fn failing(boot: &Threaded, lasting: usize) -> StagedTransport<Failing> {
        let mover = Failing {
            left: AtomicUsize::new(if boot.rank() == 1 { lasting } else { 1000 }),
        };
        StagedTransport::create(mover, None, &MemfdSegments, Location::Host, 4096, boot).unwrap()
    }

    /// Each of three ranks sends 3000 times its number to each.
    fn once(boot: &Threaded, transport: &StagedTransport<Failing>) -> Result<Vec<u8>> {
        let send = vec![boot.rank() as u8; 3 * 3000];
        let mut receive = vec![0xEEu8; 3 * 3000];
        let (from, to) = (
            Address(send.as_ptr() as usize),
            Address(receive.as_mut_ptr() as usize),
        );
        transport.all_to_all_v(boot, from, &[3000; 3], to, &[3000; 3], Stream(0))?;
        Ok(receive)
    }

    #[test]
    fn a_copy_that_fails_before_the_last_meeting_fails_all_and_the_next_exchange_works() {
        for lasting in 0..6 {
            let outcomes = ranks(3, |boot| {
                let transport = failing(&boot, lasting);
                let first = once(&boot, &transport);
                transport.mover.left.store(1000, Ordering::Relaxed);
                let second = once(&boot, &transport).unwrap();
                assert_eq!(second, [vec![0; 3000], vec![1; 3000], vec![2; 3000]].concat());
                transport.release(Some(&boot)).unwrap();
                assert_eq!(once(&boot, &transport).unwrap_err().kind, Kind::Logic);
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
    fn a_copy_that_fails_at_any_place_fails_all_or_breaks_the_communicator() {
        let (mut told, mut broken, mut whole) = (0, 0, 0);
        for lasting in 0..40 {
            let outcomes = ranks(3, |boot| {
                let moved = once(&boot, &failing(&boot, lasting));
                (moved.is_ok(), boot.broke_off())
            });
            match outcomes[..] {
                [(false, false), (false, false), (false, false)] => told += 1,
                [(true, false), (false, true), (true, false)] => broken += 1,
                [(true, false), (true, false), (true, false)] => whole += 1,
                _ => panic!("{lasting} copies: {outcomes:?}"),
            }
        }
        assert!(told > 0 && broken > 0 && whole > 0, "{told} {broken} {whole}");
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
