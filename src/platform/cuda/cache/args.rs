//! What the kernels of caches are given: the argument structs of kernels/args_cache.h, made from what the callers pass. Pure.

use crate::error::{Result, ensure};
use crate::platform::Table;
use crate::platform::caching::{CacheView, CachedGather, Misses};
use crate::platform::cuda::launch::{self, RowsArgs};
use crate::platform::cuda::rows::MOST_SORTED;
use crate::span::Address;
use std::ptr::null_mut;

/// The most bits of rows that order reads of the table (`WMK_MOST_CACHE_ORDER_BITS`).
const MOST_ORDER_BITS: u32 = 13;
/// Rows of a rank are told apart in 32 bits, with one value to spare, and so are its lines.
const MOST_ROWS: u64 = u32::MAX as u64 - 1;
/// What rows and lines are aligned to.
const ROW_ALIGNMENT_BYTES: usize = 16;
/// Scratch arrays begin at multiples of this.
pub const SCRATCH_ALIGNMENT_BYTES: usize = 256;

/// Parts of a flush (`wmk_cache_flush_part`).
pub const WRITE_BACK: u32 = 1;
pub const DROP: u32 = 2;
pub const RESET: u32 = 4;

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

/// `wmk_cache_read_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CacheReadArgs {
    pub cache: CacheArgs,
    pub rows: RowsArgs,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub order_bits: u32,
    pub hit_blocks: u32,
    pub ages: u32,
    pub reserved: u32,
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
    pub home_heads: Address,
    pub home_count: Address,
    pub home_turns: Address,
    pub home_buckets: Address,
    pub row_bytes: u32,
    pub order_bits: u32,
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
pub fn order_bits(count: usize) -> u32 {
    (count.max(1).ilog2() + 1).min(MOST_ORDER_BITS)
}

pub fn check_count(count: usize) -> Result<()> {
    ensure!(
        count <= MOST_SORTED,
        NotSupported,
        "{count} ids for a cache in one call; the kernels for GPUs take up to {MOST_SORTED}"
    );
    Ok(())
}

/// The arrays of a cached gather in its workspace.
pub struct Room {
    pub lines: Address,
    pub order: Address,
    pub misses: Address,
    pub scratch: Address,
    pub bytes: usize,
}

impl Room {
    pub fn cut(base: Address, count: usize, scratch_bytes: usize) -> Room {
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
pub fn starts(view: &CacheView<'_>, part: u64) -> Vec<u64> {
    (0..=view.geometry.ranks as u64).map(|rank| rank * part).collect()
}

/// Everything but where the results go. `start_rows` is kept for as long as the arguments are used.
pub fn lookup_args(
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

/// The table that one operation reads what was missed from, into the output and from there into lines: of a cache of one rank,
/// where lines and output have the same bytes. `None`: the cache is adjusted first.
pub fn read_at_once<'a>(view: &CacheView<'_>, gather: &CachedGather<'a>) -> Option<&'a Table<'a>> {
    let Misses::Table(table) = gather.misses else {
        return None;
    };
    let row_bytes = gather.cols * gather.dtype.size_bytes();
    let whole_rows =
        table.offset_bytes == 0 && row_bytes.next_multiple_of(ROW_ALIGNMENT_BYTES) == view.row_stride_bytes;
    let fits = view.geometry.ranks == 1
        && gather.ids.count > 0
        && whole_rows
        && gather.output.dtype == gather.dtype
        && table.rows >= view.geometry.rows;
    fits.then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::kinds::DType;
    use crate::platform::caching::{Geometry, HEAD_BYTES, SET_BYTES, SET_LINES, StateLines};
    use crate::platform::cuda::layouts::{assert_layouts, layouts};
    use crate::platform::{Indices, Places, Rows};

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
    fn what_is_copied_to_lines_has_their_bytes() {
        let mut alone = view(0);
        alone.geometry = Geometry {
            ranks: 1,
            rows: 600,
            ..geometry()
        };
        let table = Table {
            places: Places::Flat(alone.home),
            offset_bytes: 0,
            row_stride_bytes: 48,
            rows: 600,
            cols: 11,
            dtype: DType::Float,
        };
        let gather = |table| CachedGather {
            ids: Indices {
                address: Address(0x7000),
                dtype: DType::Int64,
                count: 5,
            },
            output: Rows {
                address: Address(0x8000),
                row_stride_bytes: 44,
                dtype: DType::Float,
            },
            cols: 11,
            dtype: DType::Float,
            misses: Misses::Table(table),
            counts: false,
        };
        let fits = |view: &CacheView<'_>, gather: &CachedGather<'_>| read_at_once(view, gather).is_some();
        let good = gather(&table);
        assert!(fits(&alone, &good));
        assert!(!fits(&view(0), &good), "two ranks");
        assert!(!fits(&alone, &CachedGather { cols: 8, ..good }), "parts of rows");
        let mut half = good;
        half.output.dtype = DType::Half;
        assert!(!fits(&alone, &half), "converted");
        let mut none = good;
        none.ids.count = 0;
        assert!(!fits(&alone, &none), "nothing");
        let window = Table {
            offset_bytes: 16,
            ..table
        };
        assert!(!fits(&alone, &gather(&window)), "a window");
        let listed = CachedGather {
            misses: Misses::List(Address(0x9000)),
            ..good
        };
        assert!(!fits(&alone, &listed), "only listed");
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
            CacheReadArgs = "wmk_cache_read_args" {
                cache, rows, scratch, scratch_bytes, needed_bytes, order_bits, hit_blocks, ages, reserved
            }
            CacheLocateArgs = "wmk_cache_locate_args" {
                cache, sorted_rows, count, row_places, state_sources, state_targets, home_heads, home_count, home_turns,
                home_buckets, row_bytes, order_bits
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
