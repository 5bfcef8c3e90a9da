//! What a cache of table rows needs from a platform. A cache belongs to the ranks of one communicator: each holds lines for
//! rows of its own, and may read the lines of the others where their memory is mapped.

use super::{Indices, Launch, Rows, Stream, Table};
use crate::error::{Result, fail};
use crate::kinds::DType;
use crate::span::Address;

/// Lines of a set (`cache_set_lines` of kernels/common/cache.h).
pub const SET_LINES: u64 = 32;

/// Accesses per line of a cache after which its counts are halved. Long enough for the rows at the edge of what fits to be
/// told from those beyond it, in counts that end at 15.
pub const AGE_ACCESSES_PER_LINE: u64 = 64;

/// `cache_head` of kernels/common/cache.h.
pub const HEAD_BYTES: usize = 128;
/// `cache_set` there.
pub const SET_BYTES: usize = 64;

/// How the rows of a table are spread over ranks and sets. Rank k of the cache's communicator is responsible for the rows
/// `[k * rank_rows, (k + 1) * rank_rows)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub ranks: usize,
    /// Rows that ids may name; those at or beyond it are skipped like negative ones.
    pub rows: u64,
    /// Rows of one rank, a multiple of `coverage_rows`.
    pub rank_rows: u64,
    /// Rows of the table to one set.
    pub coverage_rows: u64,
}

impl Geometry {
    /// Sets of one rank.
    pub fn sets(&self) -> u64 {
        self.rank_rows / self.coverage_rows
    }

    /// Lines of one rank; the sketch has as many words.
    pub fn lines(&self) -> u64 {
        self.sets() * SET_LINES
    }

    /// There is a line for every row: set = row / 32.
    pub fn is_whole(&self) -> bool {
        self.coverage_rows == SET_LINES
    }

    /// Bytes of [`CacheView::control`].
    pub fn control_bytes(&self) -> usize {
        HEAD_BYTES + self.sets() as usize * SET_BYTES + self.lines() as usize * 8
    }
}

/// A cache as one rank's kernels see it.
#[derive(Clone, Copy, Debug)]
pub struct CacheView<'a> {
    pub geometry: Geometry,
    /// Of the cache's communicator.
    pub rank: usize,
    /// For each rank where its tags are: `lines()` words of 32 bits, line l of set s at `32 * s + l`. The tag of a line is the
    /// number of its row within the rank, plus 1; 0 where the line is empty. NULL for ranks whose memory is not mapped.
    pub tags: &'a [Address],
    /// For each rank where its lines are, `row_stride_bytes` apart, of the table's dtype. NULL as in `tags`.
    pub lines: &'a [Address],
    /// Bytes of a row and of a line, a multiple of 16; whole rows are loaded and written back.
    pub row_stride_bytes: usize,
    /// The own rank's `cache_head`, `sets()` of `cache_set`, then `lines()` words of the sketch. Device memory.
    pub control: Address,
    /// Where the first row of the own rank is in the table, its rows `row_stride_bytes` apart; NULL where the cache is a copy
    /// of rows of a table that is apart (nothing is written back then, and [`CacheKernels::admit`] takes the place of `adjust`).
    pub home: Address,
    pub states: Option<StateLines>,
}

impl CacheView<'_> {
    /// The first row of the own rank.
    pub fn first_row(&self) -> u64 {
        self.rank as u64 * self.geometry.rank_rows
    }

    /// The table's `cache_set` array of the own rank.
    pub fn sets_address(&self) -> Address {
        self.control.offset_bytes(HEAD_BYTES)
    }

    /// The own rank's sketch, words of 64 bits.
    pub fn sketch_address(&self) -> Address {
        self.sets_address()
            .offset_bytes(self.geometry.sets() as usize * SET_BYTES)
    }
}

/// Optimizer states that are cached with the rows: the line of a row has the same number in both. Only the responsible rank
/// reads or writes them; a state is loaded when a step first needs it.
#[derive(Clone, Copy, Debug)]
pub struct StateLines {
    /// The own rank's lines, `stride_bytes` apart.
    pub lines: Address,
    /// The state of the own rank's first row in the table of states, also `stride_bytes` apart.
    pub home: Address,
    /// A multiple of 16.
    pub stride_bytes: usize,
}

/// One adjustment among those of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// Counts up from 1; 0 is left out where it wraps.
    pub epoch: u32,
    /// Halve all counts when the accesses have been counted.
    pub ages: bool,
}

/// What [`CacheKernels::admit`] found worth loading: `ids.count` values of INT64 each, -1 where there is nothing.
#[derive(Clone, Copy, Debug)]
pub struct Loads {
    /// Rows of the table.
    pub rows: Address,
    /// The own rank's lines for them.
    pub lines: Address,
}

/// What becomes of ids whose row has no line.
#[derive(Clone, Copy, Debug)]
pub enum Misses<'a> {
    /// They are read from the table.
    Table(&'a Table<'a>),
    /// They are listed: as many values of the ids' dtype as there are ids, the id for a miss, -1 for everything else.
    List(Address),
}

/// A gather through a cache; `cols` elements of `dtype` at the beginning of a line are moved.
#[derive(Clone, Copy, Debug)]
pub struct CachedGather<'a> {
    pub ids: Indices,
    pub output: Rows,
    pub cols: usize,
    pub dtype: DType,
    pub misses: Misses<'a>,
    /// Count lookups and hits in the own head; an adjustment has counted them already.
    pub counts: bool,
}

/// What is to be of the lines after they were written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWriteBack {
    Keep,
    /// Empty them; the rows' counts go back to the sketch.
    Drop,
}

/// What a rank's part of a cache did since it was made, `cache_head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CacheCounters {
    /// Valid ids that were looked up by this rank: in an adjusting call those it is responsible for, else those it gathers.
    pub lookups: u64,
    /// Lookups whose row was in the cache before the call.
    pub hits: u64,
    /// Rows that were brought into lines.
    pub loads: u64,
    /// Rows that had to leave for others.
    pub evictions: u64,
    /// Changed rows that were written to the table, when they left or when that was asked for.
    pub write_backs: u64,
    /// From the table into lines, whole rows with their padding, optimizer states included.
    pub bytes_read: u64,
    /// From lines to the table, likewise.
    pub bytes_written: u64,
}

/// The operations of a cache. The callers order them: what changes lines, tags or masks runs alone (`reset`, `adjust`, `admit`,
/// `write_back`, a gradient step); gathers may run side by side. Ids outside `[0, rows)` are skipped everywhere.
///
/// Who enters: a row's access is counted in its line, or for a row without one in the sketch. Then each row that was missed
/// looks at its set: it takes an empty line; else the line with the least count that was not filled in this adjustment, if the
/// row's estimate is above that count. The line begins with the row's estimate, the count of the row that leaves goes back to the
/// sketch (`sketch_raised`).
pub trait CacheKernels: Send + Sync {
    /// Empties the own rank's part: its tags and its control block become zero. Nothing is written back.
    fn reset(&self, view: &CacheView<'_>, stream: Stream) -> Result<()>;

    /// What [`adjust`](CacheKernels::adjust) and [`admit`](CacheKernels::admit) need for `count` ids.
    fn adjust_workspace_bytes(&self, _view: &CacheView<'_>, _count: usize) -> Result<usize> {
        Ok(0)
    }

    /// Counts the accesses to rows the own rank is responsible for (others are skipped) and brings rows in that deserve it;
    /// changed rows that leave are written to the table first.
    fn adjust(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        launch: Launch,
    ) -> Result<()>;

    /// As [`adjust`](CacheKernels::adjust) for a cache without a home: tags and counts change as there, and the caller brings
    /// the rows of `loads` into their lines.
    fn admit(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        loads: Loads,
        launch: Launch,
    ) -> Result<()>;

    /// What makes [`gather_cached`](CacheKernels::gather_cached) faster or possible.
    fn gather_cached_workspace_bytes(
        &self,
        _view: &CacheView<'_>,
        _gather: &CachedGather<'_>,
    ) -> Result<usize> {
        Ok(0)
    }

    /// `output[i] = convert(row ids[i])`, from a line where the row has one.
    fn gather_cached(&self, view: &CacheView<'_>, gather: &CachedGather<'_>, launch: Launch) -> Result<()>;

    /// What [`read`](CacheKernels::read) needs.
    fn read_workspace_bytes(&self, view: &CacheView<'_>, gather: &CachedGather<'_>) -> Result<usize> {
        let adjusting = self.adjust_workspace_bytes(view, gather.ids.count)?;
        Ok(adjusting.max(self.gather_cached_workspace_bytes(view, gather)?))
    }

    /// [`adjust`](CacheKernels::adjust) and [`gather_cached`](CacheKernels::gather_cached) of the same ids, for a cache of one rank with
    /// a home; a platform may read what was missed only once.
    fn read(
        &self,
        view: &CacheView<'_>,
        gather: &CachedGather<'_>,
        adjustment: Adjustment,
        launch: Launch,
    ) -> Result<()> {
        self.adjust(view, &gather.ids, adjustment, launch)?;
        self.gather_cached(view, gather, launch)
    }

    /// Writes changed lines (and states) of the own rank to the table, which then has what the cache has.
    fn write_back(&self, view: &CacheView<'_>, then: AfterWriteBack, launch: Launch) -> Result<()>;

    /// The own rank's counters once the stream has done its work; waits for it.
    fn counters(&self, view: &CacheView<'_>, stream: Stream) -> Result<CacheCounters>;
}

/// The answers of a platform without caches.
pub(super) struct CannotCache;

fn refuse<T>() -> Result<T> {
    fail!(NotSupported, "this platform has no caches for tables")
}

impl CacheKernels for CannotCache {
    fn reset(&self, _: &CacheView<'_>, _: Stream) -> Result<()> {
        refuse()
    }

    fn adjust(&self, _: &CacheView<'_>, _: &Indices, _: Adjustment, _: Launch) -> Result<()> {
        refuse()
    }

    fn admit(&self, _: &CacheView<'_>, _: &Indices, _: Adjustment, _: Loads, _: Launch) -> Result<()> {
        refuse()
    }

    fn gather_cached(&self, _: &CacheView<'_>, _: &CachedGather<'_>, _: Launch) -> Result<()> {
        refuse()
    }

    fn write_back(&self, _: &CacheView<'_>, _: AfterWriteBack, _: Launch) -> Result<()> {
        refuse()
    }

    fn counters(&self, _: &CacheView<'_>, _: Stream) -> Result<CacheCounters> {
        refuse()
    }
}
