//! Moves bytes between the ranks of one host by copies through a staging segment that all of them map.
//!
//! Every rank owns a part of the staging segment, of two halves. In a round it writes the next piece of what it sends into
//! one half, meets the others, and takes what is for it from theirs; the next round uses the other half, so one meeting a
//! round is enough: a half is written again only after a meeting that all its readers have left it for.

#![allow(unsafe_code)]

use crate::error::{Result, ensure};
use crate::kinds::Location;
use crate::platform::{Bootstrap, Segment, SegmentRequest, Segments, Stream, Transport};
use crate::span::Address;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all parts together may take.
const STAGING_BYTES: usize = 64 << 20;
const MOST_PART_BYTES: usize = 4 << 20;
const LEAST_PART_BYTES: usize = 64 << 10;

/// A transport over a staging segment of bounded size.
pub struct LocalTransport {
    staging: Box<dyn Segment>,
    half_bytes: usize,
    /// Rounds so far, the same on every rank; its parity picks the half.
    rounds: AtomicUsize,
}

impl LocalTransport {
    /// Collective over `boot`: all ranks get a transport, or all the same error.
    /// # Errors
    /// Those of [`Segments::create`].
    pub fn create(segments: &dyn Segments, boot: &dyn Bootstrap) -> Result<LocalTransport> {
        let part_bytes = (STAGING_BYTES / boot.size()).clamp(LEAST_PART_BYTES, MOST_PART_BYTES);
        LocalTransport::with_parts(part_bytes, segments, boot)
    }

    fn with_parts(
        part_bytes: usize,
        segments: &dyn Segments,
        boot: &dyn Bootstrap,
    ) -> Result<LocalTransport> {
        // One rank alone copies directly.
        let part_bytes = if boot.size() == 1 { 0 } else { part_bytes };
        let starts_bytes: Vec<usize> = (0..=boot.size()).map(|rank| rank * part_bytes).collect();
        let request = SegmentRequest {
            location: Location::Host,
            starts_bytes: &starts_bytes,
            contiguous: true,
        };
        Ok(LocalTransport {
            staging: segments
                .create(&request, boot)
                .map_err(|e| e.within("the staging memory of the exchange"))?,
            half_bytes: part_bytes / 2,
            rounds: AtomicUsize::new(0),
        })
    }

    fn half(&self, rank: usize, round: usize) -> Address {
        self.staging
            .address_of_rank(rank)
            .offset_bytes(round % 2 * self.half_bytes)
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

fn prefix_sums(bytes: &[usize]) -> Vec<usize> {
    bytes
        .iter()
        .scan(0, |end, bytes| {
            let start = *end;
            *end += bytes;
            Some(start)
        })
        .collect()
}

fn copy(to: Address, from: Address, bytes: usize) {
    if bytes > 0 {
        // SAFETY: both sides lie in buffers whose sizes the caller of `all_to_all_v` vouches for, or in the staging
        // segment inside one half of one part; a user's buffers and the staging segment never overlap.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
    }
}

impl Transport for LocalTransport {
    fn all_to_all_v(
        &self,
        boot: &dyn Bootstrap,
        send: Address,
        send_bytes: &[usize],
        receive: Address,
        receive_bytes: &[usize],
        _stream: Stream,
    ) -> Result<()> {
        let me = boot.rank();
        let matrix = Matrix::agree(boot, send_bytes, receive_bytes)?;
        let send_starts = prefix_sums(send_bytes);
        let receive_starts = prefix_sums(receive_bytes);
        copy(
            receive.offset_bytes(receive_starts[me]),
            send.offset_bytes(send_starts[me]),
            send_bytes[me],
        );
        for piece in 0..matrix.rounds(self.half_bytes) {
            let round = self.rounds.fetch_add(1, Ordering::Relaxed);
            let window = piece * self.half_bytes..(piece + 1) * self.half_bytes;
            for to in (0..boot.size()).filter(|to| *to != me) {
                let range = matrix.range(me, to);
                let part = intersect(&range, &window);
                copy(
                    self.half(me, round)
                        .offset_bytes(part.start.saturating_sub(window.start)),
                    send.offset_bytes(send_starts[to] + part.start.saturating_sub(range.start)),
                    part.len(),
                );
            }
            boot.barrier()?;
            for from in (0..boot.size()).filter(|from| *from != me) {
                let range = matrix.range(from, me);
                let part = intersect(&range, &window);
                copy(
                    receive.offset_bytes(receive_starts[from] + part.start.saturating_sub(range.start)),
                    self.half(from, round)
                        .offset_bytes(part.start.saturating_sub(window.start)),
                    part.len(),
                );
            }
        }
        Ok(())
    }

    fn release(&self, _boot: Option<&dyn Bootstrap>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::platform::cpu::segments::MemfdSegments;
    use crate::platform::cpu::segments::threaded::{Threaded, ranks};

    /// The byte at `i` of what `from` sends to `to` in call `call`.
    fn byte(call: usize, from: usize, to: usize, i: usize) -> u8 {
        (call * 101 + from * 31 + to * 7 + i * 13 + i / 251) as u8
    }

    fn exchange(boot: &Threaded, transport: &LocalTransport, call: usize, sizes: &[Vec<usize>]) {
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
                let transport = LocalTransport::with_parts(4096, &MemfdSegments, &boot).unwrap();
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
            let transport = LocalTransport::create(&MemfdSegments, &boot).unwrap();
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
            let transport = LocalTransport::create(&MemfdSegments, &boot).unwrap();
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

    #[test]
    fn a_rank_that_fails_fails_every_creation() {
        let errors = ranks(3, |boot| {
            let boot = {
                let loses = boot.rank() == 1;
                boot.losing_descriptors(loses)
            };
            LocalTransport::create(&MemfdSegments, &boot).err()
        });
        for error in errors {
            assert_eq!(error.unwrap().kind, Kind::System);
        }
    }
}
