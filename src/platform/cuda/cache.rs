//! Caches of table rows, in the context of the bound GPU. Nothing here waits for the GPU but the question for the counters.

mod args;

pub use args::{
    CacheAdjustArgs, CacheFlushArgs, CacheGatherArgs, CacheLocateArgs, CacheLookupArgs, CacheReadArgs,
    order_bits,
};

use super::CudaPlatform;
use super::kernels;
use super::launch::{self, ALL_BLOCKS, RowsArgs, TableArgs, first_base, rows_args};
use super::row_lists::RowLists;
use super::rows::check_workspace;
use crate::error::Result;
use crate::kinds::DType;
use crate::platform::caching::{
    Adjustment, AfterWriteBack, CacheCounters, CacheKernels, CacheView, CachedGather, HEAD_BYTES, Loads,
    Misses,
};
use crate::platform::{Indices, Launch, Places, Stream, Table};
use crate::span::Address;
use args::{
    DROP, RESET, Room, SCRATCH_ALIGNMENT_BYTES, WRITE_BACK, cache_args, check_count, lookup_args,
    read_at_once, starts,
};
use std::ptr::null_mut;

/// Blocks that read rows of the host's memory: few of them keep the bus busy, and stay close to each other.
const HOST_BLOCKS: u32 = 33;

impl CudaPlatform {
    /// Everything but the scratch. `base` is kept for as long as the arguments are used.
    fn read_args(
        &self,
        view: &CacheView<'_>,
        gather: &CachedGather<'_>,
        table: &Table<'_>,
        base: &Address,
        launch: Launch,
    ) -> Result<CacheReadArgs> {
        check_count(gather.ids.count)?;
        let cache = cache_args(view)?;
        let rows = rows_args(
            table,
            base,
            &gather.ids,
            &gather.output,
            self.miss_blocks(*base, launch),
        )?;
        Ok(CacheReadArgs {
            cache,
            rows: RowsArgs {
                table: TableArgs {
                    rows: cache.rows,
                    ..rows.table
                },
                ..rows
            },
            scratch: Address::NULL,
            scratch_bytes: 0,
            needed_bytes: null_mut(),
            order_bits: order_bits(gather.ids.count),
            hit_blocks: ALL_BLOCKS,
            ages: 0,
            reserved: 0,
        })
    }

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

    /// Where the gradient step changes rows, for `count` sorted ones of `row_bytes` each. Lines that are found are dirty from now on.
    pub(super) fn locate_in_cache(
        &self,
        view: &CacheView<'_>,
        (sorted_rows, row_bytes, count): (Address, u32, usize),
        lists: &RowLists,
        stream: Stream,
    ) -> Result<()> {
        let args = CacheLocateArgs {
            cache: cache_args(view)?,
            sorted_rows,
            count: count as u64,
            row_places: lists.places,
            state_sources: lists.state_sources,
            state_targets: lists.state_targets,
            home_heads: lists.home_heads,
            home_count: lists.home_count,
            home_turns: lists.home_turns,
            home_buckets: lists.home_buckets,
            row_bytes,
            order_bits: order_bits(count),
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

    fn read_workspace_bytes(&self, view: &CacheView<'_>, gather: &CachedGather<'_>) -> Result<usize> {
        let Some(table) = read_at_once(view, gather) else {
            let adjusting = self.adjust_workspace_bytes(view, gather.ids.count)?;
            return Ok(adjusting.max(self.gather_cached_workspace_bytes(view, gather)?));
        };
        let base = first_base(&table.places);
        let mut needed = 0;
        let ask = CacheReadArgs {
            needed_bytes: &mut needed,
            ..self.read_args(view, gather, table, &base, Launch::default())?
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_read(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn read(
        &self,
        view: &CacheView<'_>,
        gather: &CachedGather<'_>,
        adjustment: Adjustment,
        launch: Launch,
    ) -> Result<()> {
        let Some(table) = read_at_once(view, gather) else {
            self.adjust(view, &gather.ids, adjustment, launch)?;
            return self.gather_cached(view, gather, launch);
        };
        let needed = self.read_workspace_bytes(view, gather)?;
        check_workspace("adjusting and reading a cache", launch.workspace, needed)?;
        let base = first_base(&table.places);
        let args = CacheReadArgs {
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ages: adjustment.ages.into(),
            ..self.read_args(view, gather, table, &base, launch)?
        };
        let _entered = self.gpu.enter()?;
        kernels::cache_read(&args, launch.stream)?;
        self.launched("adjusting and reading a cache", launch.stream)
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
        let mut mailbox = self.mailboxes.take(&self.gpu, WORDS)?;
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
