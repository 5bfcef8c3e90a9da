//! The part of a cache that belongs to one rank: its tags, lines and control block in memory.

use super::formulas::{MOST_COUNT, counted, estimate, halved, hash, raised, set_of, sketch_word};
use crate::platform::caching::{CacheCounters, CacheView, HEAD_BYTES, SET_BYTES, SET_LINES, StateLines};
use crate::platform::cpu::rows::prefetch_line;
use crate::span::Address;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Lines of a set.
const LINES: usize = SET_LINES as usize;

/// `cache_head` of kernels/common/cache.h.
#[repr(C)]
pub struct Head {
    pub lookups: AtomicU64,
    pub hits: AtomicU64,
    pub loads: AtomicU64,
    pub evictions: AtomicU64,
    pub write_backs: AtomicU64,
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    reserved: [AtomicU64; 9],
}

/// `cache_set` there. Threads here divide the sets among themselves, so the lock is not needed.
#[repr(C)]
pub struct Set {
    /// Counts of 8 lines each.
    counts: [AtomicU32; 4],
    lock: AtomicU32,
    epoch: AtomicU32,
    fresh: AtomicU32,
    dirty: AtomicU32,
    state_present: AtomicU32,
    state_dirty: AtomicU32,
    reserved: [AtomicU32; 6],
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES && size_of::<Set>() == SET_BYTES);

impl Set {
    fn count(&self, line: usize) -> u32 {
        self.counts[line / 8].load(Relaxed) >> (4 * (line % 8)) & 15
    }

    fn set_count(&self, line: usize, count: u32) {
        let (word, shift) = (&self.counts[line / 8], 4 * (line % 8));
        let _ = word.fetch_update(Relaxed, Relaxed, |w| Some(w & !(15 << shift) | count << shift));
    }

    /// One more use of a line; nothing is written once its count is full.
    fn count_use(&self, line: usize) {
        let (word, shift) = (&self.counts[line / 8], 4 * (line % 8));
        let _ = word.fetch_update(Relaxed, Relaxed, |w| {
            (w >> shift & 15 < MOST_COUNT).then(|| w + (1 << shift))
        });
    }

    fn age(&self) {
        for word in &self.counts {
            word.store(halved(u64::from(word.load(Relaxed))) as u32, Relaxed);
        }
    }

    /// Lines filled in adjustment `epoch`.
    fn fresh(&self, epoch: u32) -> u32 {
        if self.epoch.load(Relaxed) == epoch {
            self.fresh.load(Relaxed)
        } else {
            0
        }
    }
}

/// What a rank holds of a cache.
pub struct Part<'a> {
    pub view: &'a CacheView<'a>,
    pub head: &'a Head,
    pub sets: &'a [Set],
    tags: &'a [AtomicU32],
    sketch: &'a [AtomicU64],
    lines: Address,
    whole: bool,
}

/// The set of a row, and what its uses are counted by.
#[derive(Clone, Copy)]
pub struct Home {
    pub set: usize,
    hash: u64,
}

/// Finds `row` among the tags of a set, which begin at `tags`. Nobody changes them meanwhile: rows enter in turn.
#[inline(always)]
pub fn find_tag(tags: &[AtomicU32], row: u64) -> Option<usize> {
    let tags: &[AtomicU32; LINES] = tags.first_chunk()?;
    // SAFETY: as many words, of the same layout; the orders of their accesses are those of the turns.
    let tags: [u32; LINES] = unsafe { std::mem::transmute_copy(tags) };
    let wanted = row as u32 + 1;
    let hits = (0..LINES).fold(0u32, |hits, line| hits | u32::from(tags[line] == wanted) << line);
    (hits != 0).then(|| hits.trailing_zeros() as usize)
}

/// Asks for what a lookup of the row of `home` in these tags reads.
#[inline(always)]
pub fn prefetch_tags(tags: &[AtomicU32], set: usize) {
    let first = tags.as_ptr().wrapping_add(set * LINES).cast::<u8>();
    prefetch_line(first);
    prefetch_line(first.wrapping_add(64));
}

/// The tags of one rank.
/// # Safety
/// `address` is that rank's tags, mapped for the lifetime.
pub unsafe fn tags_at<'a>(address: Address, lines: u64) -> &'a [AtomicU32] {
    // SAFETY: the caller's promise; all writers go through atomics.
    unsafe { std::slice::from_raw_parts(address.0 as *const AtomicU32, lines as usize) }
}

impl<'a> Part<'a> {
    /// # Safety
    /// The addresses of the view are mapped for the lifetime, of the sizes that its geometry says.
    pub unsafe fn of(view: &'a CacheView<'a>) -> Part<'a> {
        let geometry = &view.geometry;
        let (sets, lines) = (geometry.sets() as usize, geometry.lines());
        // SAFETY: the caller's promise; everything in there is accessed by atomics only.
        unsafe {
            Part {
                view,
                head: &*(view.control.0 as *const Head),
                sets: std::slice::from_raw_parts(view.sets_address().0 as *const Set, sets),
                tags: tags_at(view.tags[view.rank], lines),
                sketch: std::slice::from_raw_parts(
                    view.sketch_address().0 as *const AtomicU64,
                    lines as usize,
                ),
                lines: view.lines[view.rank],
                whole: geometry.is_whole(),
            }
        }
    }

    /// The number of a row within the own rank; `None` for ids of other ranks and for those that name no row.
    #[inline(always)]
    pub fn own_row(&self, id: u64) -> Option<u64> {
        let geometry = &self.view.geometry;
        let row = id.wrapping_sub(self.view.first_row());
        (id < geometry.rows && row < geometry.rank_rows).then_some(row)
    }

    #[inline(always)]
    pub fn home(&self, row: u64) -> Home {
        let hash = hash(row);
        let set = set_of(row, hash, self.sets.len() as u64, self.whole) as usize;
        Home { set, hash }
    }

    fn tags_of(&self, set: usize) -> &[AtomicU32] {
        &self.tags[set * LINES..][..LINES]
    }

    /// The line of a row within its set.
    #[inline(always)]
    pub fn find(&self, row: u64, home: Home) -> Option<usize> {
        find_tag(self.tags_of(home.set), row)
    }

    fn sketch_of(&self, hash: u64) -> &AtomicU64 {
        &self.sketch[sketch_word(hash, self.sketch.len() as u64) as usize]
    }

    /// Asks for what [`count_use`](Part::count_use) is about to read.
    #[inline(always)]
    pub fn prefetch(&self, home: Home) {
        prefetch_tags(self.tags, home.set);
        prefetch_line((&raw const self.sets[home.set]).cast());
        prefetch_line((&raw const *self.sketch_of(home.hash)).cast());
    }

    /// Counts a use of a row, whose home is `home`. True if it is in a line.
    #[inline(always)]
    pub fn count_use(&self, row: u64, home: Home) -> bool {
        if let Some(line) = self.find(row, home) {
            self.sets[home.set].count_use(line);
            return true;
        }
        let word = self.sketch_of(home.hash);
        let _ = word.fetch_update(Relaxed, Relaxed, |w| {
            let next = counted(w, home.hash);
            (next != w).then_some(next)
        });
        false
    }

    /// Halves the counts of one set, and of the words of the sketch that go with its lines.
    pub fn age(&self, set: usize) {
        self.sets[set].age();
        for word in &self.sketch[set * LINES..][..LINES] {
            word.store(halved(word.load(Relaxed)), Relaxed);
        }
    }

    /// Where line `line` of the rank begins.
    pub fn line_address(&self, line: usize) -> *mut u8 {
        (self.lines.0 + line * self.view.row_stride_bytes) as *mut u8
    }

    /// Where a row of the rank begins in the table.
    pub fn table_address(&self, row: u64) -> *mut u8 {
        (self.view.home.0 + row as usize * self.view.row_stride_bytes) as *mut u8
    }

    /// Brings a row that was missed into a line if it deserves one: [`crate::platform::caching::CacheKernels`] says when. The
    /// line's old content is written to the table if it changed; the new one is the caller's to load. Returns the line's number in the rank.
    /// Only one thread may do this for rows of one set.
    pub fn enter(&self, row: u64, epoch: u32) -> Option<usize> {
        let home = self.home(row);
        if self.find(row, home).is_some() {
            return None;
        }
        let (set, tags) = (&self.sets[home.set], self.tags_of(home.set));
        let fresh = set.fresh(epoch);
        let price = |line: usize| match tags[line].load(Relaxed) {
            0 => 0,
            _ => 1 + set.count(line),
        };
        let victim = (0..LINES)
            .filter(|line| fresh >> line & 1 == 0)
            .min_by_key(|l| price(*l))?;
        let deserved = estimate(self.sketch_of(home.hash).load(Relaxed), home.hash);
        let old = tags[victim].load(Relaxed);
        if old != 0 {
            if deserved <= set.count(victim) {
                return None;
            }
            self.leave(home.set, victim, u64::from(old) - 1);
        }
        set.epoch.store(epoch, Relaxed);
        set.fresh.store(fresh | 1 << victim, Relaxed);
        set.set_count(victim, deserved);
        tags[victim].store(row as u32 + 1, Relaxed);
        self.head.loads.fetch_add(1, Relaxed);
        self.head
            .bytes_read
            .fetch_add(self.view.row_stride_bytes as u64, Relaxed);
        Some(home.set * LINES + victim)
    }

    fn leave(&self, set: usize, line: usize, row: u64) {
        self.write_back_line(set, line, row);
        let keep = !(1 << line);
        self.sets[set].state_present.fetch_and(keep, Relaxed);
        self.head.evictions.fetch_add(1, Relaxed);
        self.give_back_count(set, line, row);
    }

    /// The sketch counts a row that has no line any more.
    fn give_back_count(&self, set: usize, line: usize, row: u64) {
        let (hash, count) = (hash(row), self.sets[set].count(line));
        let word = self.sketch_of(hash);
        let _ = word.fetch_update(Relaxed, Relaxed, |w| {
            let next = raised(w, hash, count);
            (next != w).then_some(next)
        });
    }

    /// Writes what changed of one line, and of its states, to the tables.
    fn write_back_line(&self, set: usize, line: usize, row: u64) {
        let (words, at) = (&self.sets[set], set * LINES + line);
        let mut bytes = 0;
        if words.dirty.load(Relaxed) >> line & 1 != 0 {
            bytes += self.view.row_stride_bytes;
            // SAFETY: a line and a row of the own rank.
            unsafe {
                copy(
                    self.line_address(at),
                    self.table_address(row),
                    self.view.row_stride_bytes,
                )
            };
        }
        if let Some(states) = &self.view.states
            && words.state_dirty.load(Relaxed) >> line & 1 != 0
        {
            bytes += states.stride_bytes;
            let (in_line, in_table) = state_addresses(states, at, row);
            // SAFETY: a line and a state of the own rank.
            unsafe { copy(in_line, in_table, states.stride_bytes) };
        }
        if bytes > 0 {
            words.dirty.fetch_and(!(1 << line), Relaxed);
            words.state_dirty.fetch_and(!(1 << line), Relaxed);
            self.head.write_backs.fetch_add(1, Relaxed);
            self.head.bytes_written.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Writes back what changed in a set; empties it if `drop`.
    pub fn write_back(&self, set: usize, drop: bool) {
        let words = &self.sets[set];
        let changed = words.dirty.load(Relaxed) | words.state_dirty.load(Relaxed);
        for line in (0..LINES).filter(|line| changed >> line & 1 != 0) {
            let tag = self.tags_of(set)[line].load(Relaxed);
            self.write_back_line(set, line, u64::from(tag) - 1);
        }
        if drop {
            for (line, tag) in self.tags_of(set).iter().enumerate() {
                let tag = tag.swap(0, Relaxed);
                if tag != 0 {
                    self.give_back_count(set, line, u64::from(tag) - 1);
                }
            }
            words.state_present.store(0, Relaxed);
            for word in &words.counts {
                word.store(0, Relaxed);
            }
        }
    }

    /// Where a gradient step changes a row of the own rank, and its states: in its line, which the table then has to learn of,
    /// else in the tables. No two threads may do this for one row, nor while rows enter.
    pub fn change(&self, row: u64) -> (*mut u8, Option<*mut u8>) {
        let home = self.home(row);
        let Some(line) = self.find(row, home) else {
            let state = |states: &StateLines| state_addresses(states, 0, row).1;
            return (self.table_address(row), self.view.states.as_ref().map(state));
        };
        let (set, at, bit) = (&self.sets[home.set], home.set * LINES + line, 1 << line);
        set.dirty.fetch_or(bit, Relaxed);
        let state = self.view.states.as_ref().map(|states| {
            let (in_line, in_table) = state_addresses(states, at, row);
            if set.state_present.fetch_or(bit, Relaxed) & bit == 0 {
                // SAFETY: a line and a state of the own rank.
                unsafe { copy(in_table, in_line, states.stride_bytes) };
                let bytes = states.stride_bytes as u64;
                self.head.bytes_read.fetch_add(bytes, Relaxed);
            }
            set.state_dirty.fetch_or(bit, Relaxed);
            in_line
        });
        (self.line_address(at), state)
    }

    pub fn counters(&self) -> CacheCounters {
        let head = self.head;
        CacheCounters {
            lookups: head.lookups.load(Relaxed),
            hits: head.hits.load(Relaxed),
            loads: head.loads.load(Relaxed),
            evictions: head.evictions.load(Relaxed),
            write_backs: head.write_backs.load(Relaxed),
            bytes_read: head.bytes_read.load(Relaxed),
            bytes_written: head.bytes_written.load(Relaxed),
        }
    }
}

/// The state of a row in its line and in the table of states.
fn state_addresses(states: &StateLines, line: usize, row: u64) -> (*mut u8, *mut u8) {
    let at = |base: Address, index: usize| (base.0 + index * states.stride_bytes) as *mut u8;
    (at(states.lines, line), at(states.home, row as usize))
}

/// # Safety
/// `bytes` at both addresses, which do not overlap.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}
