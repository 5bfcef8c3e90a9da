//! Caches of table rows on a CPU: the part of a rank is divided among threads by ids where it is read, by sets where it changes.

pub mod formulas;
mod part;
#[cfg(test)]
mod tests;

pub use part::Part;

use super::address::{Ids, Resolver};
use super::split::room;
use super::working::{Values, Working, workspace_bytes};
use super::{CpuPlatform, pool, rows};
use crate::error::Result;
use crate::kinds::DType;
use crate::platform::caching::{
    Adjustment, AfterWriteBack, CacheCounters, CacheKernels, CacheView, CachedGather, Loads, Misses,
    SET_LINES,
};
use crate::platform::call;
use crate::platform::{Indices, Launch, Places, Stream, Table};
use crate::span::Address;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes of memory that looking up one id touches: its tags, half of them.
const LOOKUP_BYTES: usize = 128;

/// Ids that a thread looks up at a time.
const PART_IDS: usize = 4096;

/// Ids whose sets are asked for before the first of them is looked up.
const AHEAD_IDS: usize = 16;

/// A row that was missed, and the place of its id.
#[derive(Clone, Copy)]
struct Candidate {
    row: u64,
    position: usize,
}

impl CacheKernels for CpuPlatform {
    fn reset(&self, view: &CacheView<'_>, _: Stream) -> Result<()> {
        call::check_own()?;
        let geometry = &view.geometry;
        // SAFETY: the own rank's part, of these sizes.
        unsafe {
            std::ptr::write_bytes(view.control.0 as *mut u8, 0, geometry.control_bytes());
            std::ptr::write_bytes(view.tags[view.rank].0 as *mut u32, 0, geometry.lines() as usize);
        }
        Ok(())
    }

    fn adjust_workspace_bytes(&self, _: &CacheView<'_>, count: usize) -> Result<usize> {
        Ok(workspace_bytes(&[count.saturating_mul(size_of::<Candidate>())]))
    }

    fn adjust(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        launch: Launch,
    ) -> Result<()> {
        call::check_own()?;
        // SAFETY: the view's memory is mapped while the caller holds it, who has set the workspace aside.
        let (part, working) = unsafe { (Part::of(view), Working::new(launch.workspace)) };
        adjust(&part, ids, adjustment, working, &|candidate, line| {
            // SAFETY: a row of the own rank and its line, which only this thread writes.
            unsafe {
                let (from, to) = (part.table_address(candidate.row), part.line_address(line));
                std::ptr::copy_nonoverlapping(from, to, view.row_stride_bytes);
            }
        })
    }

    fn admit(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        loads: Loads,
        launch: Launch,
    ) -> Result<()> {
        call::check_own()?;
        // SAFETY: as above.
        let working = unsafe { Working::new(launch.workspace) };
        // SAFETY: as above; the lists have room for a value an id.
        let (part, rows, lines) = unsafe {
            let list =
                |address: Address| std::slice::from_raw_parts(address.0 as *const AtomicI64, ids.count);
            (Part::of(view), list(loads.rows), list(loads.lines))
        };
        for value in rows.iter().chain(lines) {
            value.store(-1, Relaxed);
        }
        adjust(&part, ids, adjustment, working, &|candidate, line| {
            let row = view.first_row() + candidate.row;
            rows[candidate.position].store(row as i64, Relaxed);
            lines[candidate.position].store(line as i64, Relaxed);
        })
    }

    fn gather_cached(&self, view: &CacheView<'_>, gather: &CachedGather<'_>, _: Launch) -> Result<()> {
        call::check_own()?;
        let addresses = look_up(view, gather)?;
        // A table of bytes, whose row numbers are addresses.
        let memory = Table {
            places: Places::Flat(Address(0)),
            offset_bytes: 0,
            row_stride_bytes: 1,
            rows: i64::MAX as u64,
            cols: gather.cols,
            dtype: gather.dtype,
        };
        let ids = Indices {
            address: Address(addresses.as_ptr() as usize),
            dtype: DType::Int64,
            count: gather.ids.count,
        };
        rows::gather(&memory, &ids, &gather.output)
    }

    fn write_back(&self, view: &CacheView<'_>, then: AfterWriteBack, _: Launch) -> Result<()> {
        call::check_own()?;
        // SAFETY: the view's memory is mapped while the caller holds it.
        let part = unsafe { Part::of(view) };
        let drop = then == AfterWriteBack::Drop;
        over_sets(&part, |sets| {
            for set in sets {
                part.write_back(set, drop);
            }
        });
        Ok(())
    }

    fn counters(&self, view: &CacheView<'_>, _: Stream) -> Result<CacheCounters> {
        // SAFETY: the view's memory is mapped while the caller holds it.
        Ok(unsafe { Part::of(view) }.counters())
    }
}

/// Calls `body` with parts of all sets of a rank, which do not overlap.
fn over_sets(part: &Part<'_>, body: impl Fn(std::ops::Range<usize>) + Sync) {
    let sets = part.sets.len();
    let bytes = sets * LOOKUP_BYTES;
    let parts = pool::width(bytes);
    pool::run(parts, bytes, &|k| body(sets * k / parts..sets * (k + 1) / parts));
}

/// Counts, lets rows enter, ages. `load` brings a row into a line of the rank.
fn adjust(
    part: &Part<'_>,
    ids: &Indices,
    adjustment: Adjustment,
    mut working: Working<'_>,
    load: &(dyn Fn(Candidate, usize) + Sync),
) -> Result<()> {
    let (count, list) = (ids.count, Ids::new(ids));
    let parts = count.div_ceil(PART_IDS);
    let bytes = count.saturating_mul(LOOKUP_BYTES);
    // One list a part, so that candidates keep the order of their ids.
    let missed = (0..parts)
        .map(|k| Ok(Mutex::new(working.values(PART_IDS.min(count - k * PART_IDS))?)))
        .collect::<Result<Vec<Mutex<Values<'_, Candidate>>>>>()?;
    let (lookups, hits) = (AtomicU64::new(0), AtomicU64::new(0));
    pool::run(parts, bytes, &|k| {
        let begin = k * PART_IDS;
        let positions = begin..(begin + PART_IDS).min(count);
        let mut candidates = missed[k].lock().unwrap_or_else(|e| e.into_inner());
        let (mut looked, mut found) = (0, 0);
        let mut batch = [None; AHEAD_IDS];
        for begin in positions.clone().step_by(AHEAD_IDS) {
            let ids = begin..(begin + AHEAD_IDS).min(positions.end);
            for (slot, position) in batch.iter_mut().zip(ids.clone()) {
                // SAFETY: below the count.
                *slot = part.own_row(unsafe { list.get(position) }).map(|row| {
                    let home = part.home(row);
                    part.prefetch(home);
                    (row, home)
                });
            }
            for (slot, position) in batch.iter().zip(ids) {
                let Some((row, home)) = *slot else { continue };
                looked += 1;
                if part.count_use(row, home) {
                    found += 1;
                } else {
                    candidates.push(Candidate { row, position });
                }
            }
        }
        lookups.fetch_add(looked, Relaxed);
        hits.fetch_add(found, Relaxed);
    });
    part.head.lookups.fetch_add(lookups.into_inner(), Relaxed);
    part.head.hits.fetch_add(hits.into_inner(), Relaxed);
    let missed: Vec<Values<'_, Candidate>> = missed
        .into_iter()
        .map(|list| list.into_inner().unwrap_or_else(|e| e.into_inner()))
        .collect();
    if missed.iter().any(|list| !list.is_empty()) {
        let stripes = pool::width(bytes);
        pool::run(stripes, bytes, &|stripe| {
            let sets = part.sets.len() * stripe / stripes..part.sets.len() * (stripe + 1) / stripes;
            for candidate in missed.iter().flat_map(|list| list.iter()) {
                if sets.contains(&part.home(candidate.row).set)
                    && let Some(line) = part.enter(candidate.row, adjustment.epoch)
                {
                    load(*candidate, line);
                }
            }
        });
    }
    if adjustment.ages {
        over_sets(part, |sets| {
            for set in sets {
                part.age(set);
            }
        });
    }
    Ok(())
}

/// Where every id's row is, in a line or in the table; -1 where there is none, and for misses that are only to be listed.
fn look_up(view: &CacheView<'_>, gather: &CachedGather<'_>) -> Result<Vec<i64>> {
    let (count, list) = (gather.ids.count, Ids::new(&gather.ids));
    let mut addresses: Vec<i64> = room(count)?;
    addresses.resize(count, -1);
    let slots = Address(addresses.as_mut_ptr() as usize);
    let reader = Reader::of(view);
    let (lookups, hits) = (AtomicU64::new(0), AtomicU64::new(0));
    let table = match &gather.misses {
        Misses::Table(table) => Some(Resolver::new(table)),
        Misses::List(_) => None,
    };
    let bytes = count.saturating_mul(LOOKUP_BYTES);
    pool::run(count.div_ceil(PART_IDS), bytes, &|k| {
        let begin = k * PART_IDS;
        let (mut looked, mut found) = (0, 0);
        let end = (begin + PART_IDS).min(count);
        for position in begin..end {
            if (position - begin).is_multiple_of(AHEAD_IDS) {
                for ahead in position..(position + AHEAD_IDS).min(end) {
                    // SAFETY: below the count.
                    reader.prefetch(unsafe { list.get(ahead) });
                }
            }
            // SAFETY: below the count.
            let id = unsafe { list.get(position) };
            let line = reader.line(id);
            looked += u64::from(id < view.geometry.rows);
            found += u64::from(line.is_some());
            let address = match (line, &table) {
                (Some(line), _) => line as i64,
                (None, Some(table)) if id < view.geometry.rows => match table.row(id) {
                    row if row.is_null() => -1,
                    row => row as i64,
                },
                (None, _) => -1,
            };
            if let Misses::List(misses) = gather.misses {
                let is_miss = line.is_none() && id < view.geometry.rows;
                let value = if is_miss { id as i64 } else { -1 };
                // SAFETY: the list has room for a value an id.
                unsafe { put_id(misses, gather.ids.dtype, position, value) };
            }
            // SAFETY: below the count.
            unsafe { (slots.0 as *mut i64).add(position).write(address) };
        }
        lookups.fetch_add(looked, Relaxed);
        hits.fetch_add(found, Relaxed);
    });
    if gather.counts {
        // SAFETY: the view's memory is mapped while the caller holds it.
        let part = unsafe { Part::of(view) };
        part.head.lookups.fetch_add(lookups.into_inner(), Relaxed);
        part.head.hits.fetch_add(hits.into_inner(), Relaxed);
    }
    Ok(addresses)
}

/// # Safety
/// `at` has room for more than `index` ids.
unsafe fn put_id(at: Address, dtype: DType, index: usize, id: i64) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Int64 => (at.0 as *mut i64).add(index).write_unaligned(id),
            _ => (at.0 as *mut i32).add(index).write_unaligned(id as i32),
        }
    }
}

/// Finds lines of all ranks.
struct Reader<'a> {
    view: &'a CacheView<'a>,
    sets: u64,
    whole: bool,
}

impl<'a> Reader<'a> {
    fn of(view: &'a CacheView<'a>) -> Reader<'a> {
        Reader {
            view,
            sets: view.geometry.sets(),
            whole: view.geometry.is_whole(),
        }
    }

    /// The rank, the number there, and the set of a row; `None` for ids that name none.
    #[inline(always)]
    fn place(&self, id: u64) -> Option<(usize, u64, usize)> {
        let geometry = &self.view.geometry;
        if id >= geometry.rows {
            return None;
        }
        let (rank, row) = match geometry.ranks {
            1 => (0, id),
            _ => (id / geometry.rank_rows, id % geometry.rank_rows),
        };
        let set = formulas::set_of(row, formulas::hash(row), self.sets, self.whole);
        Some((rank as usize, row, set as usize))
    }

    #[inline(always)]
    fn tags(&self, rank: usize) -> &'a [AtomicU32] {
        // SAFETY: the tags of a rank, mapped while the caller holds the view.
        unsafe { part::tags_at(self.view.tags[rank], self.view.geometry.lines()) }
    }

    #[inline(always)]
    fn prefetch(&self, id: u64) {
        if let Some((rank, _, set)) = self.place(id) {
            part::prefetch_tags(self.tags(rank), set);
        }
    }

    /// The address of the line of a row, if it is in one.
    #[inline(always)]
    fn line(&self, id: u64) -> Option<*const u8> {
        let (rank, row, set) = self.place(id)?;
        let first = set * SET_LINES as usize;
        let line = part::find_tag(&self.tags(rank)[first..], row)?;
        let lines = self.view.lines[rank].0;
        Some((lines + (first + line) * self.view.row_stride_bytes) as *const u8)
    }
}
