//! Caches of table rows, in the context of the bound GPU. Nothing here waits for the GPU but the question for the counters.

use super::CudaPlatform;
use super::kernels;
use super::launch::{self, ALL_BLOCKS, RowsArgs, TableArgs, first_base, rows_args};
use super::rows::{MOST_SORTED, check_workspace};
use crate::error::{Result, ensure};
use crate::kinds::DType;
use crate::platform::caching::{
    Adjustment, AfterWriteBack, CacheCounters, CacheKernels, CacheView, CachedGather, HEAD_BYTES, Loads,
    Misses,
};
use crate::platform::{Indices, Launch, Places, Stream, Table};
use crate::span::Address;
use std::ptr::null_mut;

/// The most bits of rows that order reads of the table (`WMK_MOST_CACHE_ORDER_BITS`).
const MOST_ORDER_BITS: u32 = 13;
/// Rows of a rank are told apart in 32 bits, with one value to spare, and so are its lines.
const MOST_ROWS: u64 = u32::MAX as u64 - 1;
/// What rows and lines are aligned to.
const ROW_ALIGNMENT_BYTES: usize = 16;
/// Scratch arrays begin at multiples of this.
const SCRATCH_ALIGNMENT_BYTES: usize = 256;
/// Blocks that read rows of the host's memory: few of them keep the bus busy, and stay close to each other.
const HOST_BLOCKS: u32 = 132;

/// Parts of a flush (`wmk_cache_flush_part`).
const WRITE_BACK: u32 = 1;
const DROP: u32 = 2;
const RESET: u32 = 4;

/// `wmk_cache`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheArgs {
    pub tags: Address,
    pub lines: Address,
    pub head: Address,
    pub sets: Address,
    pub sketch: Address,
    pub home: Address,
    pub stride_bytes: u64,
    pub state_lines: Address,
    pub state_home: Address,
    pub state_stride_bytes: u64,
    pub first_row: u64,
    pub rows: u64,
    pub set_count: u64,
    pub sketch_words: u64,
    pub whole: u32,
    pub reserved: u32,
}

/// `wmk_cache_adjust_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheAdjustArgs {
    pub cache: CacheArgs,
    pub ids: Address,
    pub count: u64,
    pub count_at: Address,
    pub load_ids: Address,
    pub load_lines: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub id_bytes: u32,
    pub order_bits: u32,
    pub load_blocks: u32,
    pub ages: u32,
    pub reserved: [u32; 2],
}

/// `wmk_cache_lookup_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheLookupArgs {
    pub tags: *const Address,
    pub start_rows: *const u64,
    pub ranks: u64,
    pub rows: u64,
    pub set_count: u64,
    pub ids: Address,
    pub count: u64,
    pub lines: Address,
    pub missed: Address,
    pub order: Address,
    pub misses: Address,
    pub head: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub id_bytes: u32,
    pub order_bits: u32,
    pub whole: u32,
    pub reserved: u32,
}

/// `wmk_cache_gather_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheGatherArgs {
    pub hits: RowsArgs,
    pub misses: RowsArgs,
}

/// `wmk_cache_locate_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheLocateArgs {
    pub cache: CacheArgs,
    pub sorted_rows: Address,
    pub count: u64,
    pub row_places: Address,
    pub state_sources: Address,
    pub state_targets: Address,
    pub row_bytes: u32,
    pub reserved: u32,
}

/// `wmk_cache_flush_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheFlushArgs {
    pub cache: CacheArgs,
    pub parts: u32,
    pub reserved: u32,
}

/// The own rank's part of a cache.
/// # Errors
/// NOT_SUPPORTED for more rows than the kernels tell apart, LOGIC_ERROR for rows that are not aligned.
pub fn cache_args(view: &CacheView<'_>) -> Result<CacheArgs> {
    let geometry = &view.geometry;
    ensure!(
        geometry.rank_rows <= MOST_ROWS && geometry.lines() <= MOST_ROWS,
        NotSupported,
        "a cache for {} rows a rank; the kernels for GPUs take up to {MOST_ROWS}",
        geometry.rank_rows
    );
    let lines = view.lines[view.rank];
    let states = view.states.map(|s| [s.lines.0, s.home.0, s.stride_bytes]);
    let places = [lines.0, view.home.0, view.row_stride_bytes];
    ensure!(
        places
            .iter()
            .chain(states.iter().flatten())
            .all(|at| at % ROW_ALIGNMENT_BYTES == 0),
        Logic,
        "lines at {:#x} of rows at {:#x}, {} bytes apart, or their states ({states:#x?}) are not all aligned to \
         {ROW_ALIGNMENT_BYTES} bytes",
        places[0],
        places[1],
        places[2]
    );
    let first_row = view.first_row();
    Ok(CacheArgs {
        tags: view.tags[view.rank],
        lines,
        head: view.control,
        sets: view.sets_address(),
        sketch: view.sketch_address(),
        home: view.home,
        stride_bytes: view.row_stride_bytes as u64,
        state_lines: view.states.map_or(Address::NULL, |s| s.lines),
        state_home: view.states.map_or(Address::NULL, |s| s.home),
        state_stride_bytes: view.states.map_or(0, |s| s.stride_bytes as u64),
        first_row,
        rows: geometry.rows.saturating_sub(first_row).min(geometry.rank_rows),
        set_count: geometry.sets(),
        sketch_words: geometry.lines(),
        whole: geometry.is_whole().into(),
        reserved: 0,
    })
}

/// About two places an id: finer ones do not bring neighbours closer.
fn order_bits(count: usize) -> u32 {
    (count.max(1).ilog2() + 1).min(MOST_ORDER_BITS)
}

fn check_count(count: usize) -> Result<()> {
    ensure!(
        count <= MOST_SORTED,
        NotSupported,
        "{count} ids for a cache in one call; the kernels for GPUs take up to {MOST_SORTED}"
    );
    Ok(())
}

/// The arrays of a cached gather in its workspace.
struct Room {
    lines: Address,
    order: Address,
    misses: Address,
    scratch: Address,
    bytes: usize,
}

impl Room {
    fn cut(base: Address, count: usize, scratch_bytes: usize) -> Room {
        let mut taken = 0;
        let mut take = |bytes: usize| {
            let at = base.offset_bytes(taken);
            taken += bytes.next_multiple_of(SCRATCH_ALIGNMENT_BYTES);
            at
        };
        let lines = take(count * size_of::<i64>());
        let order = take(count * size_of::<u32>());
        let misses = take(size_of::<u32>());
        let scratch = take(scratch_bytes);
        Room {
            lines,
            order,
            misses,
            scratch,
            bytes: taken,
        }
    }
}

/// Where every rank's rows begin: `ranks + 1` values.
fn starts(view: &CacheView<'_>, part: u64) -> Vec<u64> {
    (0..=view.geometry.ranks as u64).map(|rank| rank * part).collect()
}

/// Everything but where the results go. `start_rows` is kept for as long as the arguments are used.
fn lookup_args(
    view: &CacheView<'_>,
    gather: &CachedGather<'_>,
    start_rows: &[u64],
) -> Result<CacheLookupArgs> {
    check_count(gather.ids.count)?;
    ensure!(
        (1..=launch::MOST_PLACES).contains(&view.geometry.ranks),
        NotSupported,
        "a cache over {} ranks; the kernels for GPUs reach 1 to {}",
        view.geometry.ranks,
        launch::MOST_PLACES
    );
    Ok(CacheLookupArgs {
        tags: view.tags.as_ptr(),
        start_rows: start_rows.as_ptr(),
        ranks: view.geometry.ranks as u64,
        rows: view.geometry.rows,
        set_count: view.geometry.sets(),
        ids: gather.ids.address,
        count: gather.ids.count as u64,
        lines: Address::NULL,
        missed: Address::NULL,
        order: Address::NULL,
        misses: Address::NULL,
        head: if gather.counts {
            view.control
        } else {
            Address::NULL
        },
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
        id_bytes: gather.ids.dtype.size_bytes() as u32,
        order_bits: order_bits(gather.ids.count),
        whole: view.geometry.is_whole().into(),
        reserved: 0,
    })
}

impl CudaPlatform {
    /// The kernels that read rows of the table, of which there are at most `count`.
    fn miss_blocks(&self, at: Address, launch: Launch) -> u32 {
        match launch.sms {
            Some(sms) => launch::blocks(sms),
            None if self.gpu.is_on_host(at) => HOST_BLOCKS,
            None => ALL_BLOCKS,
        }
    }

    fn adjust_args(&self, view: &CacheView<'_>, count: usize) -> Result<CacheAdjustArgs> {
        check_count(count)?;
        Ok(CacheAdjustArgs {
            cache: cache_args(view)?,
            ids: Address::NULL,
            count: count as u64,
            count_at: Address::NULL,
            load_ids: Address::NULL,
            load_lines: Address::NULL,
            scratch: Address::NULL,
            scratch_bytes: 0,
            needed_bytes: null_mut(),
            id_bytes: size_of::<i64>() as u32,
            order_bits: order_bits(count),
            load_blocks: self.miss_blocks(view.home, Launch::default()),
            ages: 0,
            reserved: [0; 2],
        })
    }

    fn adjust_cache(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        loads: Option<Loads>,
        launch: Launch,
    ) -> Result<()> {
        let needed = self.adjust_workspace_bytes(view, ids.count)?;
        if ids.count == 0 {
            return Ok(());
        }
        check_workspace("adjusting a cache", launch.workspace, needed)?;
        let args = CacheAdjustArgs {
            ids: ids.address,
            load_ids: loads.map_or(Address::NULL, |l| l.rows),
            load_lines: loads.map_or(Address::NULL, |l| l.lines),
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            id_bytes: ids.dtype.size_bytes() as u32,
            ages: adjustment.ages.into(),
            ..self.adjust_args(view, ids.count)?
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_adjust(&args, launch.stream)?;
        self.launched("adjusting a cache", launch.stream)
    }

    fn flush(&self, view: &CacheView<'_>, parts: u32, what: &str, stream: Stream) -> Result<()> {
        let args = CacheFlushArgs {
            cache: cache_args(view)?,
            parts,
            reserved: 0,
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_flush(&args, stream)?;
        self.launched(what, stream)
    }

    /// Where the gradient step changes rows, for `count` sorted ones of `row_bytes` each: the arrays are those of
    /// [`StepArgs`](super::learning::StepArgs), those of states NULL without states. Lines that are found are dirty from now on.
    pub(super) fn locate_in_cache(
        &self,
        view: &CacheView<'_>,
        (sorted_rows, row_bytes, count): (Address, u32, usize),
        row_places: Address,
        state_sources: Address,
        state_targets: Address,
        stream: Stream,
    ) -> Result<()> {
        let args = CacheLocateArgs {
            cache: cache_args(view)?,
            sorted_rows,
            count: count as u64,
            row_places,
            state_sources,
            state_targets,
            row_bytes,
            reserved: 0,
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_locate(&args, stream)
    }

    fn lookup_scratch_bytes(&self, args: CacheLookupArgs) -> Result<usize> {
        let mut needed = 0;
        let ask = CacheLookupArgs {
            // An order is wanted; it is made later.
            order: Address(SCRATCH_ALIGNMENT_BYTES),
            needed_bytes: &mut needed,
            ..args
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_lookup(&ask, Stream::default())?;
        Ok(needed as usize)
    }
}

impl CacheKernels for CudaPlatform {
    fn reset(&self, view: &CacheView<'_>, stream: Stream) -> Result<()> {
        self.flush(view, RESET, "emptying a cache", stream)
    }

    fn adjust_workspace_bytes(&self, view: &CacheView<'_>, count: usize) -> Result<usize> {
        if count == 0 {
            return Ok(0);
        }
        let mut needed = 0;
        let ask = CacheAdjustArgs {
            needed_bytes: &mut needed,
            ..self.adjust_args(view, count)?
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_adjust(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn adjust(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        launch: Launch,
    ) -> Result<()> {
        self.adjust_cache(view, ids, adjustment, None, launch)
    }

    fn admit(
        &self,
        view: &CacheView<'_>,
        ids: &Indices,
        adjustment: Adjustment,
        loads: Loads,
        launch: Launch,
    ) -> Result<()> {
        self.adjust_cache(view, ids, adjustment, Some(loads), launch)
    }

    fn gather_cached_workspace_bytes(
        &self,
        view: &CacheView<'_>,
        gather: &CachedGather<'_>,
    ) -> Result<usize> {
        let count = gather.ids.count;
        if count == 0 {
            return Ok(0);
        }
        let start_rows = starts(view, view.geometry.rank_rows);
        let args = lookup_args(view, gather, &start_rows)?;
        let scratch_bytes = match gather.misses {
            Misses::Table(_) => self.lookup_scratch_bytes(args)?,
            Misses::List(_) => 0,
        };
        Ok(Room::cut(Address::NULL, count, scratch_bytes).bytes)
    }

    fn gather_cached(&self, view: &CacheView<'_>, gather: &CachedGather<'_>, launch: Launch) -> Result<()> {
        let count = gather.ids.count;
        if count == 0 {
            return Ok(());
        }
        let start_rows = starts(view, view.geometry.rank_rows);
        let mut args = lookup_args(view, gather, &start_rows)?;
        let scratch_bytes = match gather.misses {
            Misses::Table(_) => self.lookup_scratch_bytes(args)?,
            Misses::List(_) => 0,
        };
        let room = Room::cut(launch.workspace.address, count, scratch_bytes);
        check_workspace("a gather through a cache", launch.workspace, room.bytes)?;
        args.lines = room.lines;

        // The lines of all ranks, as a table whose rows are numbered through.
        let line_starts = starts(view, view.geometry.lines());
        let in_lines = Table {
            places: match view.lines {
                [lines] => Places::Flat(*lines),
                bases => Places::Ranks {
                    bases,
                    start_rows: &line_starts,
                },
            },
            offset_bytes: 0,
            row_stride_bytes: view.row_stride_bytes,
            rows: view.geometry.lines() * view.geometry.ranks as u64,
            cols: gather.cols,
            dtype: gather.dtype,
        };
        let found = Indices {
            address: room.lines,
            dtype: DType::Int64,
            count,
        };
        let line_base = first_base(&in_lines.places);
        let hits = rows_args(&in_lines, &line_base, &found, &gather.output, ALL_BLOCKS)?;
        let _entered = self.gpu.enter()?;
        match gather.misses {
            Misses::List(missed) => {
                args.missed = missed;
                kernels::cache_lookup(&args, launch.stream)?;
                kernels::gather(&hits, launch.stream)?;
            }
            Misses::Table(table) => {
                args.order = room.order;
                args.misses = room.misses;
                args.scratch = room.scratch;
                args.scratch_bytes = scratch_bytes as u64;
                let table_base = first_base(&table.places);
                let blocks = self.miss_blocks(table_base, launch);
                let table_rows = table.rows.min(view.geometry.rows);
                let misses = rows_args(table, &table_base, &gather.ids, &gather.output, blocks)?;
                let misses = RowsArgs {
                    table: TableArgs {
                        rows: table_rows,
                        ..misses.table
                    },
                    order: room.order,
                    count_at: room.misses,
                    ..misses
                };
                kernels::cache_lookup(&args, launch.stream)?;
                kernels::cache_gather(&CacheGatherArgs { hits, misses }, launch.stream)?;
            }
        }
        self.launched("a gather through a cache", launch.stream)
    }

    fn write_back(&self, view: &CacheView<'_>, then: AfterWriteBack, launch: Launch) -> Result<()> {
        let saved = if view.home.is_null() { 0 } else { WRITE_BACK };
        let parts = saved
            | match then {
                AfterWriteBack::Keep => 0,
                AfterWriteBack::Drop => DROP,
            };
        self.flush(view, parts, "writing a cache back", launch.stream)
    }

    fn counters(&self, view: &CacheView<'_>, stream: Stream) -> Result<CacheCounters> {
        const WORDS: usize = HEAD_BYTES / size_of::<u64>();
        let mailbox = self.mailboxes.take(&self.gpu, WORDS)?;
        self.gpu
            .copy(mailbox.address(), view.control, HEAD_BYTES, stream)?;
        self.gpu.synchronize_stream(stream)?;
        let head = mailbox.read(WORDS);
        Ok(CacheCounters {
            lookups: head[0],
            hits: head[1],
            loads: head[2],
            evictions: head[3],
            write_backs: head[4],
            bytes_read: head[5],
            bytes_written: head[6],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layouts::{assert_layouts, layouts};
    use super::*;
    use crate::error::Kind;
    use crate::platform::caching::{Geometry, SET_BYTES, SET_LINES, StateLines};

    fn geometry() -> Geometry {
        Geometry {
            ranks: 2,
            rows: 1000,
            rank_rows: 640,
            coverage_rows: 64,
        }
    }

    const TAGS: [Address; 2] = [Address(0x1000), Address(0x2000)];
    const LINES: [Address; 2] = [Address(0x10000), Address(0x20000)];

    fn view(rank: usize) -> CacheView<'static> {
        CacheView {
            geometry: geometry(),
            rank,
            tags: &TAGS,
            lines: &LINES,
            row_stride_bytes: 48,
            control: Address(0x30000),
            home: Address(0x40000),
            states: Some(StateLines {
                lines: Address(0x50000),
                home: Address(0x60000),
                stride_bytes: 96,
            }),
        }
    }

    #[test]
    fn a_part_is_the_own_ranks() {
        let args = cache_args(&view(1)).unwrap();
        assert_eq!((args.tags, args.lines), (TAGS[1], LINES[1]));
        assert_eq!((args.first_row, args.rows), (640, 360));
        assert_eq!((args.set_count, args.sketch_words, args.whole), (10, 320, 0));
        assert_eq!(args.sets.0, 0x30000 + HEAD_BYTES);
        assert_eq!(args.sketch.0, 0x30000 + HEAD_BYTES + 10 * SET_BYTES);
        assert_eq!((args.stride_bytes, args.state_stride_bytes), (48, 96));
        assert_eq!(cache_args(&view(0)).unwrap().rows, 640);
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let mut large = view(0);
        large.geometry.rank_rows = 1 << 32;
        assert_eq!(cache_args(&large).unwrap_err().kind, Kind::NotSupported);
        let mut odd = view(0);
        odd.row_stride_bytes = 40;
        assert_eq!(cache_args(&odd).unwrap_err().kind, Kind::Logic);
        let mut odd = view(0);
        odd.states = odd.states.map(|s| StateLines {
            home: Address(0x60008),
            ..s
        });
        assert_eq!(cache_args(&odd).unwrap_err().kind, Kind::Logic);
        assert_eq!(check_count(1 << 31).unwrap_err().kind, Kind::NotSupported);
    }

    #[test]
    fn reads_are_ordered_by_as_many_bits_as_pay() {
        assert_eq!([0, 1, 2, 3, 4096, 131_072].map(order_bits), [1, 1, 2, 2, 13, 13]);
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        let structs = layouts! {
            CacheArgs = "wmk_cache" {
                tags, lines, head, sets, sketch, home, stride_bytes, state_lines, state_home, state_stride_bytes, first_row, rows,
                set_count, sketch_words, whole, reserved
            }
            CacheAdjustArgs = "wmk_cache_adjust_args" {
                cache, ids, count, count_at, load_ids, load_lines, scratch, scratch_bytes, needed_bytes, id_bytes, order_bits,
                load_blocks, ages, reserved
            }
            CacheLookupArgs = "wmk_cache_lookup_args" {
                tags, start_rows, ranks, rows, set_count, ids, count, lines, missed, order, misses, head, scratch, scratch_bytes,
                needed_bytes, id_bytes, order_bits, whole, reserved
            }
            CacheGatherArgs = "wmk_cache_gather_args" { hits, misses }
            CacheLocateArgs = "wmk_cache_locate_args" {
                cache, sorted_rows, count, row_places, state_sources, state_targets, row_bytes, reserved
            }
            CacheFlushArgs = "wmk_cache_flush_args" { cache, parts, reserved }
        };
        let head: Vec<String> = [
            "lookups",
            "hits",
            "loads",
            "evictions",
            "write_backs",
            "bytes_read",
            "bytes_written",
        ]
        .iter()
        .enumerate()
        .map(|(at, field)| format!("offsetof(wmk::cache_head, {field}) == {}", at * size_of::<u64>()))
        .collect();
        let constants = [
            format!("sizeof(wmk::cache_head) == {HEAD_BYTES} && sizeof(wmk::cache_set) == {SET_BYTES}"),
            format!("wmk::cache_set_lines == {SET_LINES} && WMK_MOST_CACHE_ORDER_BITS == {MOST_ORDER_BITS}"),
            format!(
                "WMK_CACHE_WRITE_BACK == {WRITE_BACK} && WMK_CACHE_DROP == {DROP} && WMK_CACHE_RESET == {RESET}"
            ),
        ];
        let conditions: Vec<String> = head.into_iter().chain(constants).collect();
        assert_layouts(&["args_cache.h", "common/cache.h"], &structs, &conditions);
    }
}
