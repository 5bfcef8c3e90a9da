//! The spans of edges that centers have, and how many neighbours are taken from each.

use super::{get, part, put};
use crate::error::Result;
use crate::platform::cpu::address::{Ids, Resolver};
use crate::platform::cpu::pool;
use crate::platform::graph::{BadCenter, Counted, Neighbours, Take};
use crate::span::Address;
use std::sync::{Mutex, PoisonError};

/// Finds the span of every center.
pub enum Spans<'a> {
    Graph {
        row_pointers: Resolver<'a>,
        nodes: u64,
        centers: Ids,
    },
    Given(Address),
}

impl<'a> Spans<'a> {
    pub fn new(neighbours: &Neighbours<'a>) -> Spans<'a> {
        match *neighbours {
            Neighbours::Graph {
                row_pointers,
                centers,
            } => Spans::Graph {
                row_pointers: Resolver::new(row_pointers),
                nodes: row_pointers.rows.saturating_sub(1),
                centers: Ids::new(centers),
            },
            Neighbours::Spans { spans, .. } => Spans::Given(spans),
        }
    }

    /// Start and end of the span of center `i` as they stand in memory; -1 both for a center that is no node.
    /// # Safety
    /// `i` is below the count of the neighbours.
    #[inline(always)]
    pub unsafe fn get(&self, i: usize) -> (i64, i64) {
        // SAFETY: the caller vouches for the centers, the table for its rows.
        unsafe {
            match self {
                Spans::Graph {
                    row_pointers,
                    nodes,
                    centers,
                } => {
                    let center = centers.get(i);
                    if center >= *nodes {
                        return (-1, -1);
                    }
                    let pointer = |row| row_pointers.row(row).cast::<i64>().read_unaligned();
                    (pointer(center), pointer(center + 1))
                }
                Spans::Given(spans) => (get(*spans, 2 * i), get(*spans, 2 * i + 1)),
            }
        }
    }
}

/// What one part of the centers adds.
#[derive(Clone, Copy, Default)]
struct Sum {
    taken: u64,
    bad: Option<BadCenter>,
}

/// See [`crate::platform::graph::GraphKernels::sample_offsets`]. Two passes: every part counts from 0, then begins where those
/// before it ended.
pub fn offsets(neighbours: &Neighbours<'_>, edges: u64, take: Take, offsets: Address) -> Result<Counted> {
    let count = neighbours.count();
    let spans = Spans::new(neighbours);
    let bytes = count.saturating_mul(BYTES_PER_CENTER);
    let parts = pool::width(bytes);
    let sums: Vec<Mutex<Sum>> = (0..parts).map(|_| Mutex::default()).collect();
    pool::run(parts, bytes, &|k| {
        let mut sum = Sum::default();
        for i in part(k, parts, count) {
            // SAFETY: `i` is below the count, and there is one more offset.
            let (start, end) = unsafe {
                put(offsets, i, sum.taken as i32);
                spans.get(i)
            };
            if start < 0 || end < start || end as u64 > edges {
                sum.bad = sum.bad.or(Some(BadCenter {
                    position: i as u64,
                    start,
                    end,
                }));
                continue;
            }
            // No memory holds so many edges that this could overflow.
            sum.taken = sum.taken.saturating_add(take.of((end - start) as u64));
        }
        *sums[k].lock().unwrap_or_else(PoisonError::into_inner) = sum;
    });
    let sums: Vec<Sum> = sums
        .into_iter()
        .map(|sum| sum.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect();
    let before = |k: usize| {
        sums[..k]
            .iter()
            .fold(0u64, |all, sum| all.saturating_add(sum.taken))
    };
    let counted = Counted {
        total: before(parts),
        bad: sums.iter().find_map(|sum| sum.bad),
    };
    pool::run(parts, bytes, &|k| {
        let begin = before(k) as i32;
        for i in part(k, parts, count) {
            // SAFETY: as above.
            unsafe { put(offsets, i, get::<i32>(offsets, i).wrapping_add(begin)) };
        }
    });
    // SAFETY: the offset after the last center's.
    unsafe { put(offsets, count, counted.total as i32) };
    Ok(counted)
}

/// The memory that a center touches: its id, two row pointers in a line of their own, its offset twice.
pub const BYTES_PER_CENTER: usize = 80;
