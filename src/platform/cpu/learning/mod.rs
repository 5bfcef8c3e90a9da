//! The gradient step on this host's cores: gradients sorted by row, every row summed and updated by one thread, the rows
//! that very many gradients name summed by several.

pub mod rule;
#[cfg(test)]
mod tests;

use super::address::Ids;
use super::caching::Part;
use super::convert::{RowConverter, row_converter};
use super::pool;
use super::working::{Values, Working, workspace_bytes};
use crate::error::Result;
use crate::kinds::DType;
use crate::platform::learning::{Lot, RUN_GRADIENTS, RoundRobin, Step};
use crate::platform::{Indices, Workspace};
use crate::span::Address;
use rayon::slice::ParallelSliceMut;
use rule::{RowPowers, apply};

const FLOAT_BYTES: usize = size_of::<f32>();

/// Parts of the work a thread takes, so that none waits long for another.
const PARTS_PER_THREAD: usize = 8;

/// See [`crate::platform::learning::LearningKernels::map_rows`].
pub fn map_rows(indices: &Indices, map: &RoundRobin, mapped: Address) {
    let ids = Ids::new(indices);
    let bytes = indices.count.saturating_mul(size_of::<i64>());
    let parts = pool::width(bytes);
    let part_ids = indices.count.div_ceil(parts);
    pool::run(parts, bytes, &|part| {
        for i in part * part_ids..((part + 1) * part_ids).min(indices.count) {
            // SAFETY: `i` is below the count, for which both addresses have room.
            unsafe {
                let row = map.row(ids.get(i) as i64);
                (mapped.0 as *mut i64).add(i).write_unaligned(row);
            }
        }
    });
}

/// See [`crate::platform::learning::LearningKernels::fill`].
pub fn fill(address: Address, count: usize, value: f32) {
    for i in 0..count {
        // SAFETY: the caller vouches for `count` floats.
        unsafe { (address.0 as *mut f32).add(i).write(value) };
    }
}

/// A row of the own partition, and the position of a gradient for it.
type Pair = (u64, u64);

/// Gradients [begin, end) of the sorted pairs belong to one row; if they are more than a run, their run sums begin at number
/// `first_run` of the workspace.
#[derive(Clone, Copy)]
struct Segment {
    begin: usize,
    end: usize,
    first_run: usize,
}

/// Begin and end of a run among the sorted pairs.
type Run = (usize, usize);

impl Segment {
    fn is_hot(&self) -> bool {
        self.end - self.begin > RUN_GRADIENTS
    }

    fn runs(&self) -> usize {
        (self.end - self.begin).div_ceil(RUN_GRADIENTS)
    }
}

/// See [`crate::platform::learning::LearningKernels::step_workspace_bytes`]: for the most that so many gradients can need.
pub fn step_workspace(step: &Step<'_>) -> usize {
    let count = step.ids.count;
    let rows = usize::try_from(step.rows).unwrap_or(usize::MAX);
    // A row with more than one run has more than RUN_GRADIENTS gradients, so its last run is at most half of its runs.
    let hot_runs = 2 * (count / RUN_GRADIENTS);
    workspace_bytes(&[
        count.saturating_mul(size_of::<Pair>()),
        count.min(rows).saturating_mul(size_of::<Segment>()),
        hot_runs.saturating_mul(size_of::<Run>()),
        hot_runs.saturating_mul(step.cols).saturating_mul(FLOAT_BYTES),
    ])
}

/// See [`crate::platform::learning::LearningKernels::step`].
/// # Errors
/// OUT_OF_MEMORY where `workspace` has less than [`step_workspace`].
/// # Safety
/// The workspace is this call's.
pub unsafe fn step(step: &Step<'_>, workspace: Workspace) -> Result<()> {
    // SAFETY: passed on.
    let mut working = unsafe { Working::new(workspace) };
    let pairs = sorted_pairs(step, &mut working)?;
    let (segments, hot_runs) = segments(&pairs, &mut working)?;
    let job = Job {
        step,
        pairs: &pairs[..],
        widen: row_converter(step.gradients.dtype, DType::Float),
        load: row_converter(step.table.dtype, DType::Float),
        store: row_converter(DType::Float, step.table.dtype),
        // SAFETY: the cache's memory is mapped while the caller holds its view.
        cache: step.cache.map(|view| unsafe { Part::of(view) }),
    };
    let row_bytes = step.cols * FLOAT_BYTES;
    let bytes = pairs.len().saturating_mul(row_bytes);

    let mut run_sums = working.values::<f32>(hot_runs.len().saturating_mul(step.cols))?;
    run_sums.fill(0.0);
    let sums = Floats(run_sums.as_mut_ptr());
    pool::run(hot_runs.len(), bytes, &|run| {
        let (begin, end) = hot_runs[run];
        let mut row = vec![0.0; step.cols];
        let mut one = vec![0.0; step.cols];
        job.sum(begin, end, &mut row, &mut one);
        // SAFETY: every run has its own place of `cols` floats.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), sums.at(run * step.cols), step.cols) };
    });

    let parts = (pool::width(bytes) * PARTS_PER_THREAD).min(segments.len());
    let part_segments = segments.len().div_ceil(parts.max(1));
    pool::run(parts, bytes, &|part| {
        let begin = (part * part_segments).min(segments.len());
        let own = &segments[begin..(begin + part_segments).min(segments.len())];
        let mut buffers = Buffers::new(step.cols);
        for segment in own {
            if segment.is_hot() {
                let from = segment.first_run * step.cols;
                sum_rows(
                    &run_sums[from..from + segment.runs() * step.cols],
                    &mut buffers.sums,
                );
            } else {
                job.sum(segment.begin, segment.end, &mut buffers.sums, &mut buffers.one);
            }
            job.update(pairs[segment.begin].0, &mut buffers);
        }
    });
    Ok(())
}

/// The gradients of the own rows, by row and then in their order.
fn sorted_pairs<'a>(step: &Step<'_>, working: &mut Working<'a>) -> Result<Values<'a, Pair>> {
    let ids = Ids::new(&step.ids);
    let mut pairs = working.values(step.ids.count)?;
    let all = [Lot { first: 0, row: 0 }];
    let lots = if step.lots.is_empty() { &all[..] } else { step.lots };
    for (k, lot) in lots.iter().enumerate() {
        let end = lots.get(k + 1).map_or(step.ids.count as u64, |next| next.first);
        for i in lot.first..end {
            // SAFETY: `i` is below the count.
            let row = unsafe { ids.get(i as usize) }.wrapping_sub(step.first_row);
            if row < step.rows {
                pairs.push((row, lot.row + i - lot.first));
            }
        }
    }
    let bytes = pairs.len() * size_of::<Pair>();
    let all = &mut pairs[..];
    if pool::on_helpers(bytes, || all.par_sort_unstable()).is_none() {
        pairs.sort_unstable();
    }
    Ok(pairs)
}

/// One segment a row, and the runs of those that have more than one.
fn segments<'a>(pairs: &[Pair], working: &mut Working<'a>) -> Result<(Values<'a, Segment>, Values<'a, Run>)> {
    let (mut rows, mut runs) = (0, 0);
    for chunk in pairs.chunk_by(|a, b| a.0 == b.0) {
        rows += 1;
        runs += match chunk.len() > RUN_GRADIENTS {
            true => chunk.len().div_ceil(RUN_GRADIENTS),
            false => 0,
        };
    }
    let mut segments = working.values::<Segment>(rows)?;
    let mut hot_runs = working.values::<Run>(runs)?;
    let mut begin = 0;
    for chunk in pairs.chunk_by(|a, b| a.0 == b.0) {
        let segment = Segment {
            begin,
            end: begin + chunk.len(),
            first_run: hot_runs.len(),
        };
        if segment.is_hot() {
            let cut = (segment.begin..segment.end).step_by(RUN_GRADIENTS);
            cut.for_each(|from| hot_runs.push((from, (from + RUN_GRADIENTS).min(segment.end))));
        }
        segments.push(segment);
        begin = segment.end;
    }
    Ok((segments, hot_runs))
}

/// Rows of floats after each other, summed left to right.
fn sum_rows(rows: &[f32], sums: &mut [f32]) {
    let mut rows = rows.chunks_exact(sums.len());
    if let Some(first) = rows.next() {
        sums.copy_from_slice(first);
    }
    for row in rows {
        add(sums, row);
    }
}

fn add(sums: &mut [f32], row: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value;
    }
}

/// Floats that threads write side by side.
struct Floats(*mut f32);

// SAFETY: every thread writes places of its own.
unsafe impl Sync for Floats {}

impl Floats {
    /// # Safety
    /// `index` is inside the block.
    unsafe fn at(&self, index: usize) -> *mut f32 {
        // SAFETY: passed on.
        unsafe { self.0.add(index) }
    }
}

/// What a thread works in: rows of floats.
struct Buffers {
    sums: Vec<f32>,
    one: Vec<f32>,
    row: Vec<f32>,
    states: [Vec<f32>; 2],
}

impl Buffers {
    fn new(cols: usize) -> Buffers {
        Buffers {
            sums: vec![0.0; cols],
            one: vec![0.0; cols],
            row: vec![0.0; cols],
            states: [vec![0.0; cols], vec![0.0; cols]],
        }
    }
}

struct Job<'a> {
    step: &'a Step<'a>,
    pairs: &'a [Pair],
    /// Converters to and from float; `None` for FLOAT itself.
    widen: Option<RowConverter>,
    load: Option<RowConverter>,
    store: Option<RowConverter>,
    cache: Option<Part<'a>>,
}

/// Where a row of the own partition is, and the first of its states.
struct Place {
    values: *mut u8,
    states: *mut u8,
}

/// # Safety
/// `from` holds as many elements of the converter's type as `to`.
unsafe fn read_row(convert: Option<RowConverter>, from: *const u8, to: &mut [f32]) {
    let place = to.as_mut_ptr().cast::<u8>();
    // SAFETY: passed on.
    unsafe {
        match convert {
            Some(convert) => convert(place, from, to.len()),
            None => std::ptr::copy_nonoverlapping(from, place, to.len() * FLOAT_BYTES),
        }
    }
}

/// # Safety
/// `to` has room for as many elements of the converter's type as there are.
unsafe fn write_row(convert: Option<RowConverter>, from: &[f32], to: *mut u8) {
    let place = from.as_ptr().cast::<u8>();
    // SAFETY: passed on.
    unsafe {
        match convert {
            Some(convert) => convert(to, place, from.len()),
            None => std::ptr::copy_nonoverlapping(place, to, from.len() * FLOAT_BYTES),
        }
    }
}

impl Job<'_> {
    /// Sums gradients [begin, end) of the sorted pairs left to right.
    fn sum(&self, begin: usize, end: usize, sums: &mut [f32], one: &mut [f32]) {
        let gradients = &self.step.gradients;
        for (i, (_, position)) in self.pairs[begin..end].iter().enumerate() {
            let from = gradients
                .address
                .offset_bytes(*position as usize * gradients.row_stride_bytes);
            let to = if i == 0 { &mut *sums } else { &mut *one };
            // SAFETY: the position is one of the gradients'.
            unsafe { read_row(self.widen, from.0 as *const u8, to) };
            if i > 0 {
                add(sums, one);
            }
        }
    }

    /// In its line if it has one, which then counts as changed; else in the tables.
    fn place(&self, row: u64) -> Place {
        if let Some(cache) = &self.cache {
            let (values, states) = cache.change(row);
            return Place {
                values,
                states: states.unwrap_or(std::ptr::null_mut()),
            };
        }
        let step = self.step;
        let at = |base: Address, stride_bytes: usize| (base.0 + row as usize * stride_bytes) as *mut u8;
        Place {
            values: at(step.table.address, step.table.row_stride_bytes),
            states: step
                .states
                .first()
                .map_or(std::ptr::null_mut(), |first| at(*first, step.state_stride_bytes)),
        }
    }

    /// Applies the sums to a row of the own partition. Each row is updated by one thread.
    fn update(&self, row: u64, buffers: &mut Buffers) {
        let step = self.step;
        let at = |base: Address, stride_bytes: usize| (base.0 + row as usize * stride_bytes) as *mut u8;
        let Place { values, states } = self.place(row);
        // Further states lie as far behind the first as they do in the tables.
        let state_at = |base: Address| states.wrapping_add(base.0.wrapping_sub(step.states[0].0));
        let [first, second] = &mut buffers.states;
        // SAFETY: the row and its states are those of the own partition, which the caller vouches for.
        unsafe {
            let powers = match step.beta_powers.is_null() {
                true => RowPowers {
                    beta1: 0.0,
                    beta2: 0.0,
                },
                false => {
                    let place = at(step.beta_powers, size_of::<RowPowers>()).cast::<RowPowers>();
                    let next = place.read_unaligned().next(&step.rule);
                    place.write_unaligned(next);
                    next
                }
            };
            read_row(self.load, values, &mut buffers.row);
            for (state, base) in [&mut *first, &mut *second].into_iter().zip(step.states) {
                read_row(None, state_at(*base), state);
            }
            apply(&step.rule, powers, &mut buffers.row, &buffers.sums, first, second);
            write_row(self.store, &buffers.row, values);
            for (state, base) in [first, second].into_iter().zip(step.states) {
                write_row(None, state, state_at(*base));
            }
        }
    }
}
