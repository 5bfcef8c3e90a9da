//! Gather and scatter: rows between a table and plain memory. Memory decides the speed, so: the lines of rows some way
//! ahead are asked for early, large results go past the caches, and equal types move as bytes.

use super::address::{Ids, Resolver};
use super::convert::{RowConverter, row_converter};
use super::movers::{Any, Convert, Fixed, Joined, Mover, STAGED_ROW_BYTES, Staged, Stream, Whole};
use super::pool;
#[cfg(target_arch = "x86_64")]
use super::stores::x86;
use super::stores::{LINE_BYTES, Lines};
use crate::error::{Result, ensure};
use crate::platform::{Indices, Rows, Selected, Table};
use crate::span::Address;
use std::ops::Range;

/// Rows of at least this many bytes share few lines with their neighbours, so only those are put together on the side.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
const JOINED_ROW_BYTES: usize = 256;

/// Results of at least this many bytes are written past the caches: their readers would not find them there anyway.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
const STREAM_BYTES: usize = if cfg!(test) { 256 << 10 } else { 8 << 20 };

/// Rows at least this long consist of whole lines but for their ends.
const LONG_ROW_BYTES: usize = 1 << 10;

/// Staging shorter rows costs more than it saves.
const SHORT_ROW_BYTES: usize = 16;

/// Bytes of table rows that are under way while one is moved; with it the rows ahead, at most a ring.
const AHEAD_BYTES: usize = 16 << 10;
const RING: usize = 32;

/// `plain[i] = convert(table[ids[i]])`; see [`crate::platform::Kernels::gather`].
/// # Errors
/// LOGIC_ERROR for a float and an integer type.
pub fn gather(table: &Table<'_>, indices: &Indices, output: &Rows) -> Result<()> {
    walk::<true, false>(table, indices, Address::NULL, output)
}

/// `plain[p] = convert(table[ids[p]])`; see [`crate::platform::Kernels::gather_selected`].
/// # Errors
/// LOGIC_ERROR for a float and an integer type.
pub fn gather_selected(table: &Table<'_>, selected: &Selected, output: &Rows) -> Result<()> {
    walk::<true, true>(table, &selected.counted(), selected.positions, output)
}

/// `table[ids[i]] = convert(plain[i])`; see [`crate::platform::Kernels::scatter`].
/// # Errors
/// LOGIC_ERROR for a float and an integer type.
pub fn scatter(input: &Rows, indices: &Indices, table: &Table<'_>) -> Result<()> {
    walk::<false, false>(table, indices, Address::NULL, input)
}

/// `table[ids[p]] = convert(plain[p])`; see [`crate::platform::Kernels::scatter_selected`].
/// # Errors
/// LOGIC_ERROR for a float and an integer type.
pub fn scatter_selected(input: &Rows, selected: &Selected, table: &Table<'_>) -> Result<()> {
    walk::<false, true>(table, &selected.counted(), selected.positions, input)
}

struct Job<'a> {
    resolver: Resolver<'a>,
    ids: Ids,
    /// Of `SELECTED` walks, which ids and plain rows are meant; no two alike.
    positions: *const i64,
    plain: *mut u8,
    plain_stride_bytes: usize,
    table_bytes: usize,
    ahead_rows: usize,
}

// SAFETY: parts of a job touch disjoint plain rows; table rows are shared as the callers' contract says.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Where move number `i` has its id and its plain row.
    /// # Safety
    /// `i` is below the count of the job's moves.
    #[inline(always)]
    unsafe fn place<const SELECTED: bool>(&self, i: usize) -> usize {
        match SELECTED {
            // SAFETY: passed on.
            true => unsafe { self.positions.add(i).read_unaligned() as usize },
            false => i,
        }
    }

    /// The table row of move number `i`, which comes soon; NULL if there is none.
    /// # Safety
    /// `i` is below the count of the job's moves.
    #[inline(always)]
    unsafe fn look<const SELECTED: bool>(&self, i: usize) -> *mut u8 {
        // SAFETY: passed on.
        let row = self
            .resolver
            .row(unsafe { self.ids.get(self.place::<SELECTED>(i)) });
        if !row.is_null() {
            prefetch(row, self.table_bytes);
        }
        row
    }
}

fn walk<const GATHER: bool, const SELECTED: bool>(
    table: &Table<'_>,
    indices: &Indices,
    positions: Address,
    plain: &Rows,
) -> Result<()> {
    let (from, to) = if GATHER {
        (table.dtype, plain.dtype)
    } else {
        (plain.dtype, table.dtype)
    };
    let convert = row_converter(from, to);
    ensure!(
        convert.is_some() || from == to,
        Logic,
        "cannot convert {from} to {to}: one is a floating type, the other an integer"
    );
    if indices.count == 0 || table.cols == 0 || table.rows == 0 {
        return Ok(());
    }
    let table_bytes = table.cols * table.dtype.size_bytes();
    let plain_bytes = table.cols * plain.dtype.size_bytes();
    let job = Job {
        resolver: Resolver::new(table),
        ids: Ids::new(indices),
        positions: positions.0 as *const i64,
        plain: plain.address.0 as *mut u8,
        plain_stride_bytes: plain.row_stride_bytes,
        table_bytes,
        ahead_rows: (AHEAD_BYTES / table_bytes).clamp(2, RING),
    };
    let row_bytes = table_bytes.max(plain_bytes);
    let total_bytes = indices.count.saturating_mul(row_bytes);
    let width = pool::width(total_bytes);
    let parts = if width == 1 {
        1
    } else {
        (total_bytes / PART_BYTES).clamp(width, indices.count.max(width))
    };
    let part_rows = indices.count.div_ceil(parts);
    let (bytes, misalignment, dense) = if GATHER {
        let address = plain.address.0 | plain.row_stride_bytes;
        let dense = !SELECTED && plain.row_stride_bytes == plain_bytes;
        (plain_bytes, address, dense)
    } else {
        (table_bytes, job.resolver.misalignment(), false)
    };
    let body = pick::<GATHER, SELECTED>(&Shape {
        convert,
        cols: table.cols,
        bytes,
        total_bytes,
        misalignment,
        dense,
    });
    pool::run(parts, total_bytes, &|k| {
        let begin = (k * part_rows).min(indices.count);
        body(&job, begin..(begin + part_rows).min(indices.count));
    });
    Ok(())
}

/// What a thread takes at a time: long against the start of a part, short against the whole.
const PART_BYTES: usize = 512 << 10;

type Body = Box<dyn Fn(&Job<'_>, Range<usize>) + Sync>;

/// What a job's rows look like.
struct Shape {
    convert: Option<RowConverter>,
    cols: usize,
    /// Bytes of a row where it is written.
    bytes: usize,
    total_bytes: usize,
    /// Has none of the low bits that no written row's address has.
    misalignment: usize,
    /// The written rows follow each other without gaps.
    dense: bool,
}

/// The loop for this job, compiled for the mover that suits the rows and for this processor.
fn pick<const GATHER: bool, const SELECTED: bool>(shape: &Shape) -> Body {
    #[cfg(target_arch = "x86_64")]
    if shape.total_bytes >= STREAM_BYTES {
        let streamed = if has_avx512() {
            pick_streamed::<GATHER, SELECTED, _>(shape, x86::Wide)
        } else if std::is_x86_feature_detected!("avx2") {
            pick_streamed::<GATHER, SELECTED, _>(shape, x86::Narrow)
        } else {
            None
        };
        if let Some(body) = streamed {
            return body;
        }
    }
    let &Shape {
        convert, cols, bytes, ..
    } = shape;
    if let Some(convert) = convert {
        return body::<GATHER, SELECTED, _>(move || Convert { convert, cols });
    }
    if SELECTED {
        return body::<GATHER, SELECTED, _>(move || Any { bytes });
    }
    match bytes {
        1 => body::<GATHER, SELECTED, _>(|| Fixed::<1>),
        2 => body::<GATHER, SELECTED, _>(|| Fixed::<2>),
        4 => body::<GATHER, SELECTED, _>(|| Fixed::<4>),
        8 => body::<GATHER, SELECTED, _>(|| Fixed::<8>),
        16 => body::<GATHER, SELECTED, _>(|| Fixed::<16>),
        32 => body::<GATHER, SELECTED, _>(|| Fixed::<32>),
        64 => body::<GATHER, SELECTED, _>(|| Fixed::<64>),
        128 => body::<GATHER, SELECTED, _>(|| Fixed::<128>),
        _ => body::<GATHER, SELECTED, _>(move || Any { bytes }),
    }
}

/// The loop that writes past the caches, where the rows allow it: whole lines, long rows, or rows without gaps.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn pick_streamed<const GATHER: bool, const SELECTED: bool, L: Lines + 'static>(
    shape: &Shape,
    lines: L,
) -> Option<Body> {
    let &Shape {
        convert, cols, bytes, ..
    } = shape;
    if convert.is_none() && (shape.misalignment | bytes).is_multiple_of(LINE_BYTES) {
        let row_lines = bytes / LINE_BYTES;
        return Some(body::<GATHER, SELECTED, _>(move || Whole {
            row_lines,
            _lines: lines,
        }));
    }
    if convert.is_none() && bytes >= LONG_ROW_BYTES {
        return Some(body::<GATHER, SELECTED, _>(move || Stream {
            bytes,
            _lines: lines,
        }));
    }
    if SELECTED || !shape.dense || !(SHORT_ROW_BYTES..=STAGED_ROW_BYTES).contains(&bytes) {
        return None;
    }
    Some(match convert {
        Some(convert) => {
            body::<GATHER, SELECTED, _>(move || Staged::new(lines, Convert { convert, cols }, bytes))
        }
        None if bytes >= JOINED_ROW_BYTES => body::<GATHER, SELECTED, _>(move || Joined::new(lines, bytes)),
        None => body::<GATHER, SELECTED, _>(move || Staged::new(lines, Any { bytes }, bytes)),
    })
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512vl")
}

/// The loop with the movers that `make` makes, one a part.
fn body<const GATHER: bool, const SELECTED: bool, M: Mover>(make: impl Fn() -> M + Sync + 'static) -> Body {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            #[target_feature(enable = "avx512f,avx512vl")]
            unsafe fn compiled<const GATHER: bool, const SELECTED: bool, M: Mover>(
                mover: M,
                job: &Job<'_>,
                rows: Range<usize>,
            ) {
                // SAFETY: passed on.
                unsafe { loop_over::<GATHER, SELECTED, M>(mover, job, rows) }
            }
            // SAFETY: the features are there; the rows are those of the job.
            return Box::new(move |job, rows| unsafe { compiled::<GATHER, SELECTED, M>(make(), job, rows) });
        }
        if std::is_x86_feature_detected!("avx2") {
            #[target_feature(enable = "avx2")]
            unsafe fn compiled<const GATHER: bool, const SELECTED: bool, M: Mover>(
                mover: M,
                job: &Job<'_>,
                rows: Range<usize>,
            ) {
                // SAFETY: passed on.
                unsafe { loop_over::<GATHER, SELECTED, M>(mover, job, rows) }
            }
            // SAFETY: the feature is there; the rows are those of the job.
            return Box::new(move |job, rows| unsafe { compiled::<GATHER, SELECTED, M>(make(), job, rows) });
        }
    }
    // SAFETY: the rows are those of the job.
    Box::new(move |job, rows| unsafe { loop_over::<GATHER, SELECTED, M>(make(), job, rows) })
}

/// Makes the moves of these numbers. Every row's table address is found `ahead_rows` rows early and its first lines are
/// asked for; the processor fetches the rest of a row by itself.
/// # Safety
/// The job's addresses are valid for its rows.
#[inline(always)]
unsafe fn loop_over<const GATHER: bool, const SELECTED: bool, M: Mover>(
    mut mover: M,
    job: &Job<'_>,
    rows: Range<usize>,
) {
    let mut ring = [std::ptr::null_mut::<u8>(); RING];
    let ahead = job.ahead_rows.min(rows.len());
    for k in 0..ahead {
        // SAFETY: a row of the part.
        ring[k % RING] = unsafe { job.look::<SELECTED>(rows.start + k) };
    }
    for (slot, i) in rows.clone().enumerate() {
        let row = ring[slot % RING];
        if i + ahead < rows.end {
            // SAFETY: a row of the part.
            ring[(slot + ahead) % RING] = unsafe { job.look::<SELECTED>(i + ahead) };
        }
        if row.is_null() {
            continue;
        }
        // SAFETY: a row of the plain side and a table row, both of the mover's size.
        unsafe {
            let plain = job.plain.add(job.place::<SELECTED>(i) * job.plain_stride_bytes);
            if GATHER {
                mover.move_row(plain, row);
            } else {
                mover.move_row(row, plain);
            }
        }
    }
    // SAFETY: the rows' targets are valid for the time of the job.
    unsafe { mover.finish() };
}

/// Asks for the first two lines of a row of `bytes`; the processor gets the others by running ahead of itself.
#[inline(always)]
fn prefetch(row: *const u8, bytes: usize) {
    prefetch_line(row);
    prefetch_line(row.wrapping_add((bytes - 1).min(LINE_BYTES)));
}

/// Asks for the line of memory at an address, whatever it is.
#[inline(always)]
pub(super) fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}
