//! Meetings of ranks in the order of their streams: every rank has a board in its GPU's memory, on which the others post
//! their arrivals; kernels post and wait, the host never does.

use super::gpu::Gpu;
use super::launch::{MEET_ARRIVE, MEET_LETS_NEXT, MEET_WAIT, MeetArgs, Meetings};
use super::{CudaPlatform, kernels};
use crate::error::Result;
use crate::kinds::Location;
use crate::platform::{Bootstrap, Segment, SegmentRequest, Segments, Stream, agree};
use crate::span::Address;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// `wmk_board` of kernels/args.h; the addresses of the posts on the others' boards and the own posts follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardHead {
    pub epoch: u64,
    pub turns: u64,
    pub blocks_done: u32,
    pub ranks: u32,
    pub rank: u32,
    pub busy: u32,
}

/// Where the own posts begin on the board of any rank.
fn posts_offset_bytes(ranks: usize) -> usize {
    size_of::<BoardHead>() + ranks * size_of::<u64>()
}

fn board_bytes(ranks: usize) -> usize {
    posts_offset_bytes(ranks) + ranks * size_of::<u64>()
}

/// A fresh board: nobody has posted anything. `board_of` is where this rank maps each rank's board.
fn fresh(rank: usize, board_of: &[Address]) -> Vec<usize> {
    let ranks = board_of.len();
    // The epoch, the turns, blocks done and ranks, rank and that it is not busy.
    let mut words = vec![0, 0, ranks << 32, rank];
    let my_post = posts_offset_bytes(ranks) + rank * size_of::<u64>();
    words.extend(board_of.iter().map(|board| board.0 + my_post));
    words.resize(board_bytes(ranks) / size_of::<u64>(), 0);
    words
}

/// Whether every other rank has posted its arrival at the latest meeting that a rank with this board has come to.
fn all_posted(words: &[usize], ranks: usize, rank: usize) -> bool {
    let (epoch, posts) = (words[0], &words[posts_offset_bytes(ranks) / size_of::<u64>()..]);
    posts
        .iter()
        .enumerate()
        .all(|(peer, post)| peer == rank || *post >= epoch)
}

/// In the place of a number of meetings: graphs have some, and nobody counts their replays.
const RECORDED: u64 = u64::MAX;

/// The boards of a communicator's ranks, mapped by all of them.
pub struct Boards {
    own: Address,
    rank: usize,
    ranks: usize,
    so_far: Mutex<Meetings>,
    /// Of `so_far`, for those who must not wait: a launch waits where the GPU has much to do.
    met: AtomicU64,
    /// Keeps the boards mapped.
    _segment: Box<dyn Segment>,
}

impl Boards {
    /// Collective over `boot`, whose ranks map each other's memory.
    /// # Errors
    /// Those of [`Segments::create`], CUDA_ERROR; the same on all ranks.
    pub fn create(platform: &CudaPlatform, boot: &dyn Bootstrap) -> Result<Boards> {
        let (rank, ranks) = (boot.rank(), boot.size());
        let page_bytes = board_bytes(ranks).next_multiple_of(platform.granularity_bytes());
        let starts_bytes: Vec<usize> = (0..=ranks).map(|r| r * page_bytes).collect();
        let request = SegmentRequest {
            location: Location::Device,
            starts_bytes: &starts_bytes,
            contiguous: false,
        };
        let segment = platform.create(&request, boot)?;
        let board_of: Vec<Address> = (0..ranks).map(|r| segment.address_of_rank(r)).collect();
        let own = board_of[rank];
        // Nobody posts before all boards are there: the agreement is a meeting.
        agree(boot, &[], platform.gpu.write(own, &fresh(rank, &board_of)))?;
        Ok(Boards {
            own,
            rank,
            ranks,
            so_far: Mutex::default(),
            met: AtomicU64::new(0),
            _segment: segment,
        })
    }

    /// How many meetings were enqueued; `None` once one was recorded. Waits for nobody who enqueues.
    pub fn met(&self) -> Option<u64> {
        let met = self.met.load(Ordering::Acquire);
        (met != RECORDED).then_some(met)
    }

    /// Whether all ranks came to the meetings that have ended here. Waits for the stream.
    /// # Errors
    /// CUDA_ERROR.
    pub fn all_came(&self, gpu: &Gpu, stream: Stream) -> Result<bool> {
        let mut words = vec![0usize; board_bytes(self.ranks) / size_of::<u64>()];
        let to = Address(words.as_mut_ptr() as usize);
        gpu.copy(to, self.own, board_bytes(self.ranks), stream)?;
        gpu.synchronize_stream(stream)?;
        Ok(all_posted(&words, self.ranks, self.rank))
    }

    /// Enqueues a meeting: what this rank's stream did before it arrived, the others' streams see after they waited, and the
    /// other way round. Outside recordings it begins once the one before it has ended, whatever stream that is on; those of a graph
    /// are the caller's to order among others. `abort` ends the wait once it is set. `lets_next`: the kernel enqueued next may begin while it waits.
    /// # Errors
    /// CUDA_ERROR.
    pub fn meet(&self, abort: Address, lets_next: bool, stream: Stream) -> Result<()> {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let args = MeetArgs {
            board: self.own,
            abort,
            parts: MEET_ARRIVE | MEET_WAIT | if lets_next { MEET_LETS_NEXT } else { 0 },
            reserved: 0,
            so_far: &mut *so_far,
        };
        let enqueued = kernels::meet(&args, stream);
        let met = if so_far.recorded == 0 {
            so_far.turns
        } else {
            RECORDED
        };
        self.met.store(met, Ordering::Release);
        enqueued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_board_knows_its_posts() {
        let boards = [Address(0x10000), Address(0x20000), Address(0x30000)];
        let words = fresh(1, &boards);
        // Head, three addresses, three posts.
        assert_eq!(words.len(), 4 + 3 + 3);
        let head: BoardHead = BoardHead {
            epoch: words[0] as u64,
            turns: words[1] as u64,
            blocks_done: words[2] as u32,
            ranks: (words[2] >> 32) as u32,
            rank: words[3] as u32,
            busy: (words[3] >> 32) as u32,
        };
        let want = BoardHead {
            epoch: 0,
            turns: 0,
            blocks_done: 0,
            ranks: 3,
            rank: 1,
            busy: 0,
        };
        assert_eq!(head, want);
        // The post of rank 1 is the second behind head and addresses.
        let post = |board: usize| board + 32 + 24 + 8;
        assert_eq!(words[4..7], [post(0x10000), post(0x20000), post(0x30000)]);
        assert!(words[7..].iter().all(|word| *word == 0));
    }

    #[test]
    fn a_meeting_that_a_rank_did_not_come_to_shows_on_the_board() {
        let boards = [Address(0x10000), Address(0x20000), Address(0x30000)];
        let mut words = fresh(1, &boards);
        assert!(all_posted(&words, 3, 1));
        words[0] = 5;
        for (first, last, came) in [(5, 5, true), (5, 4, false), (4, 5, false), (6, 5, true)] {
            // The own post is never written.
            words[7..].copy_from_slice(&[first, 0, last]);
            assert_eq!(all_posted(&words, 3, 1), came, "{first} {last}");
        }
    }
}
