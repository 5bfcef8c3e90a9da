//! Parcels that their owners read where they were left: every rank sorts its rows and ids by owner into its part of a window.
//!
//! All parts lie in one range of addresses, in which rows of one width stand as on a grid; so a row of any rank is told by its
//! place on that grid, and what works on the rows needs to know only where every rank's begin.

use super::leg::{Arena, Circle, Field, bytes_of};
use super::owners::{Delivery, Needs, Parcel};
use crate::error::Result;
use crate::platform::learning::{Lot, MOST_GRADIENT_ROWS, MOST_LOTS};
use crate::platform::window::{MOST_HALF_BYTES, Round, Window};
use crate::platform::{Indices, Rows, Stream, Workspace};
use crate::span::Address;
use std::sync::Arc;

/// Ids begin at multiples of this from the beginning of a part.
const ALIGNMENT_BYTES: u64 = 256;

/// No window grows beyond this for parts of which the fullest is more than thrice the mean (so there are four ranks or more): every
/// rank's part is as large as the fullest.
const LARGE_PART_BYTES: u128 = 64 << 20;
const MOST_TIMES_THE_MEAN: u128 = 3;

/// What lies where in the parts, the same on all ranks.
pub struct Layout {
    /// Ids, each with a row, that a rank leaves for another: `counts[from][to]`.
    pub counts: Vec<Vec<u64>>,
    pub row_bytes: u64,
    pub id_bytes: u64,
}

impl Layout {
    fn left_by(&self, from: usize) -> u64 {
        self.counts[from].iter().sum()
    }

    /// Of what `from` leaves, how many are for lower ranks than `to`.
    fn before(&self, from: usize, to: usize) -> u64 {
        self.counts[from][..to].iter().sum()
    }

    /// From the beginning of a part to its ids; its first row begins less than a row from it.
    fn ids_offset_bytes(&self, from: usize) -> u64 {
        ((self.left_by(from) + 1) * self.row_bytes).next_multiple_of(ALIGNMENT_BYTES)
    }

    /// What the fullest part takes; `None` for more than windows have, and where one would have to grow that then lies idle for
    /// the most part.
    fn part_bytes(&self, held_by_all_bytes: usize) -> Option<usize> {
        let ranks = self.counts.len();
        let part = |from| {
            bytes_of(self.left_by(from) + 2, (self.row_bytes + self.id_bytes) as usize)
                + u128::from(ALIGNMENT_BYTES)
        };
        let fullest = (0..ranks).map(part).max()?;
        let all: u128 = (0..ranks).map(part).sum();
        let idle = fullest > LARGE_PART_BYTES && fullest * ranks as u128 > MOST_TIMES_THE_MEAN * all;
        let bytes = usize::try_from(fullest).ok()?;
        (bytes <= held_by_all_bytes || (bytes <= MOST_HALF_BYTES && !idle)).then_some(bytes)
    }

    /// On the grid that begins with the window, the first row of what `from` leaves.
    fn first_row(&self, round: &Round, from: usize) -> u64 {
        ((from * round.part_bytes) as u64).div_ceil(self.row_bytes)
    }

    /// Whether every row of such a window has a number.
    fn is_numbered(&self) -> bool {
        let window_bytes = 2 * MOST_HALF_BYTES as u64 * self.counts.len() as u64;
        window_bytes / self.row_bytes <= MOST_GRADIENT_ROWS
    }
}

/// Where a rank puts what it leaves.
pub struct Spot {
    pub rows: Address,
    pub ids: Address,
}

/// A round of a window that this rank still reads; dropped when all reading is on the stream.
pub struct Reading {
    window: Arc<dyn Window>,
    stream: Stream,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.window.finish(self.stream);
    }
}

/// Lets every rank `put` what it has for the others, and gives this one what is for it, which stays as long as the delivery.
/// `held_by_all_bytes` is as for [`Window::begin`]; `given` are ids without rows as they arrive here. `None` on all ranks where this way cannot be gone; then nothing has been put.
/// Collective over the circle.
/// # Errors
/// Outer ones are those of all ranks, with nothing delivered to any: OUT_OF_MEMORY if one has no room for what it needs,
/// failures of `put`, COMMUNICATION_ERROR. The inner one is this rank's alone.
pub fn leave<'a>(
    field: &Field<'a>,
    circle: Circle<'_>,
    layout: &Layout,
    held_by_all_bytes: usize,
    given: Parcel,
    needs: Needs<'_>,
    put: &mut dyn FnMut(Spot) -> Result<()>,
) -> Result<Option<(Option<Delivery<'a>>, Result<()>)>> {
    let ranks = layout.counts.len();
    let (Some(window), Some(bytes)) = (circle.transport.window(), layout.part_bytes(held_by_all_bytes))
    else {
        return Ok(None);
    };
    if ranks > MOST_LOTS || !layout.is_numbered() {
        return Ok(None);
    }
    let stream = field.launch.stream;
    let segments = field.platform.segments();
    let Some(round) = window.begin(segments, circle.boot, bytes, held_by_all_bytes, stream)? else {
        return Ok(None);
    };
    let reading = Reading { window, stream };
    let me = circle.boot.rank();
    let row_at = |row: u64| round.base.offset_bytes((row * layout.row_bytes) as usize);
    let ids_at = |from: usize| {
        round
            .part(from)
            .offset_bytes(layout.ids_offset_bytes(from) as usize)
    };
    let room = room(field, &given, needs);
    let mine = match &room {
        Ok(_) => put(Spot {
            rows: row_at(layout.first_row(&round, me)),
            ids: ids_at(me),
        }),
        Err(error) => Err(error.clone()),
    };
    reading.window.meet(circle.boot, mine, stream)?;
    let (scratch, [ids, address], bytes) = room?;

    let mut lots = Vec::with_capacity(ranks);
    let mut first = 0;
    for from in 0..ranks {
        let (count, before) = (layout.counts[from][me], layout.before(from, me));
        if count == 0 {
            continue;
        }
        let copied = field.platform.copy(
            ids.offset_bytes((first * layout.id_bytes) as usize),
            ids_at(from).offset_bytes((before * layout.id_bytes) as usize),
            (count * layout.id_bytes) as usize,
            stream,
        );
        if copied.is_err() {
            return Ok(Some((None, copied)));
        }
        lots.push(Lot {
            first,
            row: layout.first_row(&round, from) + before,
        });
        first += count;
    }
    let parcel = Parcel {
        ids: Indices {
            address: ids,
            ..given.ids
        },
        rows: given.rows.map(|rows| Rows {
            address: round.base,
            ..rows
        }),
        ..given
    };
    let workspace = Workspace { address, bytes };
    let delivery = Delivery::in_place(parcel, lots, workspace, scratch, reading);
    Ok(Some((Some(delivery), Ok(()))))
}

/// For the ids that arrive, and to work on them in.
fn room<'a>(field: &Field<'a>, given: &Parcel, needs: Needs<'_>) -> Result<(Arena<'a>, [Address; 2], usize)> {
    let bytes = needs(given)?;
    let id_bytes = bytes_of(given.ids.count as u64, given.ids.dtype.size_bytes());
    let (scratch, places) = field.arena([id_bytes, bytes as u128])?;
    Ok((scratch, places, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(row_bytes: u64) -> Layout {
        Layout {
            counts: vec![vec![3, 0, 5], vec![0, 0, 0], vec![1, 7, 2]],
            row_bytes,
            id_bytes: 8,
        }
    }

    /// Rows of every rank are on the grid, in its part and before its ids, for any width of rows.
    #[test]
    fn parts_hold_what_is_left_in_them() {
        for row_bytes in [1, 2, 6, 16, 100, 508, 512, 4097] {
            let layout = layout(row_bytes);
            let half_bytes = layout.part_bytes(0).unwrap();
            let round = Round {
                base: Address(1 << 40),
                part_bytes: 2 * half_bytes,
            };
            for from in 0..3 {
                let part = (from * round.part_bytes) as u64;
                let begin = layout.first_row(&round, from) * row_bytes;
                let end = begin + layout.left_by(from) * row_bytes;
                let ids = layout.ids_offset_bytes(from);
                assert!(part <= begin && begin < part + row_bytes, "{row_bytes} {from}");
                assert!(
                    end <= part + ids && ids.is_multiple_of(ALIGNMENT_BYTES),
                    "{row_bytes} {from}"
                );
                assert!(ids + layout.left_by(from) * layout.id_bytes <= half_bytes as u64);
            }
        }
        assert_eq!(
            (
                layout(4).before(2, 2),
                layout(4).before(0, 1),
                layout(4).left_by(2)
            ),
            (8, 3, 10)
        );
    }

    #[test]
    fn what_windows_do_not_hold_is_not_left() {
        let mut many = layout(512);
        many.counts[1][2] = MOST_HALF_BYTES as u64 / 512;
        assert_eq!(many.part_bytes(0), None);
        many.counts[1][2] = u64::MAX / 4;
        assert_eq!(many.part_bytes(0), None);
        // 128 MiB of one rank of two, of four, and 32 MiB of one of four.
        let one = |ranks: usize, rows: u64| {
            let mut counts = vec![vec![0; ranks]; ranks];
            counts[0][1] = rows;
            let layout = Layout {
                counts,
                ..layout(512)
            };
            layout.part_bytes(0).is_some()
        };
        assert_eq!(
            [one(2, 1 << 18), one(4, 1 << 18), one(4, 1 << 16)],
            [true, false, true]
        );
        // A window that is there serves.
        let skewed = Layout {
            counts: vec![vec![0, 1 << 18, 0, 0], vec![0; 4], vec![0; 4], vec![0; 4]],
            ..layout(512)
        };
        assert_eq!(skewed.part_bytes(128 << 20), None);
        assert!(skewed.part_bytes(256 << 20).is_some());
        assert!(layout(4).is_numbered());
        let mut crowd = layout(1);
        crowd.counts = vec![vec![0; 16]; 16];
        assert!(!crowd.is_numbered());
    }
}
