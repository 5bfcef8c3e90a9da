//! The operations on rows, in the context of the bound GPU and as wide as it is.

use super::launch::{
    self, ALL_BLOCKS, BucketArgs, FillArgs, MOST_BUCKETS, OrderArgs, RowsArgs, UniqueArgs, first_base,
    id_bits, is_many, order_bits, rows_args, selected_args,
};
use super::{CudaPlatform, kernels};
use crate::error::{Error, Kind, Result, ensure};
use crate::platform::{Indices, Kernels, Launch, Rows, Selected, Stream, Table, Workspace};
use crate::settings;
use crate::span::Address;
use once_cell::race::OnceBox;

/// A sort counts in 32 bits.
pub(super) const MOST_SORTED: usize = i32::MAX as usize;

impl CudaPlatform {
    /// Blocks as the caller asked; else all, but for many rows of the host's memory: few blocks keep the bus busy, and those
    /// read in order stay close to each other.
    fn blocks(&self, table: &Table<'_>, indices: &Indices, launch: Launch) -> u32 {
        match launch.sms {
            Some(sms) => launch::blocks(sms),
            None if is_many(indices) && self.gpu.is_on_host(first_base(&table.places)) => {
                self.multiprocessors()
            }
            None => ALL_BLOCKS,
        }
    }

    /// The most blocks that may be there while the meeting before the launch waits. Each takes a part of a multiprocessor, and
    /// with the eight streams that run at once unless the driver is told otherwise some multiprocessors must stay free.
    fn early_blocks(&self, launch: Launch) -> u32 {
        match launch.after_meeting {
            true => self.multiprocessors().saturating_sub(1) / 8,
            false => 0,
        }
    }

    /// What a launch ends with: nothing, or with `WM_DEBUG_SYNC` the end of the work.
    pub(super) fn launched(&self, what: &str, stream: Stream) -> Result<()> {
        static DEBUG: OnceBox<bool> = OnceBox::new();
        if !*DEBUG.get_or_init(|| Box::new(settings::debug_sync())) || self.gpu.is_capturing(stream)? {
            return Ok(());
        }
        self.gpu
            .synchronize_stream(stream)
            .map_err(|e| e.within(format!("{what} (waited for because of WM_DEBUG_SYNC)")))
    }

    /// How ids are sorted before rows of the host's memory are read.
    fn ordering(&self, table: &Table<'_>, indices: &Indices) -> Option<OrderArgs> {
        let row_bytes = table.cols * table.dtype.size_bytes();
        let (shift, bits) = order_bits(table.rows, table.row_stride_bytes, row_bytes, indices)?;
        self.gpu
            .is_on_host(first_base(&table.places))
            .then_some(OrderArgs {
                ids: indices.address,
                count: indices.count as u64,
                scratch: Address::NULL,
                scratch_bytes: 0,
                needed_bytes: std::ptr::null_mut(),
                order: std::ptr::null_mut(),
                id_bytes: indices.dtype.size_bytes() as u32,
                shift,
                bits,
                reserved: 0,
                positions: Address::NULL,
            })
    }

    /// The same for some of the ids, whose positions an order counts in 32 bits.
    fn ordering_selected(&self, table: &Table<'_>, selected: &Selected) -> Option<OrderArgs> {
        let ordering = self.ordering(table, &selected.counted())?;
        (selected.indices.count <= MOST_SORTED).then_some(OrderArgs {
            positions: selected.positions,
            ..ordering
        })
    }

    /// What an order needs.
    fn ordering_bytes(&self, ordering: Option<OrderArgs>, stream: Stream) -> Result<usize> {
        let Some(mut ask) = ordering else {
            return Ok(0);
        };
        let _entered = self.gpu.enter_to_enqueue()?;
        let mut needed = 0;
        ask.needed_bytes = &mut needed;
        kernels::order(&ask, stream)?;
        Ok(needed as usize)
    }

    /// A gather, its rows read in order where there is one and room to make it in.
    fn gather_rows(
        &self,
        mut args: RowsArgs,
        ordering: impl FnOnce() -> Option<OrderArgs>,
        launch: Launch,
    ) -> Result<()> {
        let _entered = self.gpu.enter_to_enqueue()?;
        if launch.workspace.bytes > 0
            && let Some(ordering) = ordering()
        {
            let sort = OrderArgs {
                scratch: launch.workspace.address,
                scratch_bytes: launch.workspace.bytes as u64,
                order: &mut args.order,
                ..ordering
            };
            kernels::order(&sort, launch.stream)?;
            self.launched("ordering ids", launch.stream)?;
        }
        kernels::gather(&args, launch.stream)?;
        self.launched("gather", launch.stream)
    }

    fn scatter_rows(&self, args: &RowsArgs, stream: Stream) -> Result<()> {
        let _entered = self.gpu.enter_to_enqueue()?;
        kernels::scatter(args, stream)?;
        self.launched("scatter", stream)
    }
}

/// Refuses a workspace that is smaller than was asked for.
pub(super) fn check_workspace(what: &str, workspace: Workspace, needed_bytes: usize) -> Result<()> {
    ensure!(
        workspace.bytes >= needed_bytes && !workspace.address.is_null(),
        Logic,
        "{what} needs {needed_bytes} bytes to work in and was given {} at {:#x}",
        workspace.bytes,
        workspace.address.0
    );
    Ok(())
}

impl Kernels for CudaPlatform {
    fn gather_workspace_bytes(&self, table: &Table<'_>, indices: &Indices, launch: Launch) -> Result<usize> {
        self.ordering_bytes(self.ordering(table, indices), launch.stream)
    }

    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
        let base = first_base(&table.places);
        let args = RowsArgs {
            early_blocks: self.early_blocks(launch),
            ..rows_args(table, &base, indices, output, self.blocks(table, indices, launch))?
        };
        self.gather_rows(args, || self.ordering(table, indices), launch)
    }

    fn scatter(&self, input: &Rows, indices: &Indices, table: &Table<'_>, launch: Launch) -> Result<()> {
        let base = first_base(&table.places);
        let args = RowsArgs {
            early_blocks: self.early_blocks(launch),
            ..rows_args(table, &base, indices, input, self.blocks(table, indices, launch))?
        };
        self.scatter_rows(&args, launch.stream)
    }

    fn gather_selected_workspace_bytes(
        &self,
        table: &Table<'_>,
        selected: &Selected,
        launch: Launch,
    ) -> Result<usize> {
        self.ordering_bytes(self.ordering_selected(table, selected), launch.stream)
    }

    fn gather_selected(
        &self,
        table: &Table<'_>,
        selected: &Selected,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        let base = first_base(&table.places);
        let blocks = self.blocks(table, &selected.counted(), launch);
        let args = selected_args(table, &base, selected, output, blocks)?;
        self.gather_rows(args, || self.ordering_selected(table, selected), launch)
    }

    fn scatter_selected(
        &self,
        input: &Rows,
        selected: &Selected,
        table: &Table<'_>,
        launch: Launch,
    ) -> Result<()> {
        let base = first_base(&table.places);
        let blocks = self.blocks(table, &selected.counted(), launch);
        let args = selected_args(table, &base, selected, input, blocks)?;
        self.scatter_rows(&args, launch.stream)
    }

    fn bucket_workspace_bytes(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_count: usize,
    ) -> Result<usize> {
        let mut needed = 0;
        let ask = BucketArgs {
            needed_bytes: &mut needed,
            ..bucket_args(
                indices,
                start_rows,
                bucket_count,
                launch::blocks(self.multiprocessors()),
            )?
        };
        let _entered = self.gpu.enter()?;
        kernels::bucket(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        bucket_count: usize,
        ids: Address,
        positions: Address,
        launch: Launch,
    ) -> Result<Vec<u64>> {
        let needed = self.bucket_workspace_bytes(indices, start_rows, bucket_count)?;
        check_workspace("splitting ids by owner", launch.workspace, needed)?;
        let mut counts = self.mailboxes.take(&self.gpu, bucket_count)?;
        let args = BucketArgs {
            bucket_of_owner: bucket_of_owner.as_ptr(),
            ids_out: ids,
            positions,
            counts: counts.address(),
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ..bucket_args(
                indices,
                start_rows,
                bucket_count,
                launch::blocks(self.multiprocessors()),
            )?
        };
        let _entered = self.gpu.enter()?;
        kernels::bucket(&args, launch.stream)?;
        self.gpu.synchronize_stream(launch.stream)?;
        Ok(counts.read(bucket_count))
    }

    fn unique_workspace_bytes(&self, indices: &Indices, rows: u64) -> Result<usize> {
        let mut needed = 0;
        let ask = UniqueArgs {
            needed_bytes: &mut needed,
            ..unique_args(indices, rows)?
        };
        let _entered = self.gpu.enter()?;
        kernels::unique(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn unique(
        &self,
        indices: &Indices,
        rows: u64,
        unique: Address,
        slots: Address,
        launch: Launch,
    ) -> Result<u64> {
        let needed = self.unique_workspace_bytes(indices, rows)?;
        check_workspace("finding distinct ids", launch.workspace, needed)?;
        let mut distinct = self.mailboxes.take(&self.gpu, 1)?;
        let args = UniqueArgs {
            unique,
            slots,
            distinct: distinct.address(),
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ..unique_args(indices, rows)?
        };
        let _entered = self.gpu.enter()?;
        kernels::unique(&args, launch.stream)?;
        self.gpu.synchronize_stream(launch.stream)?;
        Ok(distinct.read(1)[0])
    }

    fn add_row_numbers(
        &self,
        input: Address,
        rows: usize,
        cols: usize,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        let args = FillArgs {
            input,
            output: output.address,
            stride_bytes: output.row_stride_bytes as u64,
            rows: rows as u64,
            cols: cols as u64,
            dtype: output.dtype.raw(),
            reserved: 0,
        };
        let _entered = self.gpu.enter_to_enqueue()?;
        kernels::fill(&args, launch.stream)?;
        self.launched("adding row numbers", launch.stream)
    }
}

/// Everything but where the results go.
fn bucket_args(
    indices: &Indices,
    start_rows: &[u64],
    bucket_count: usize,
    blocks: u32,
) -> Result<BucketArgs> {
    ensure!(
        (1..=MOST_BUCKETS).contains(&bucket_count),
        NotSupported,
        "splitting ids over {bucket_count} ranks; the kernels for GPUs take 1 to {MOST_BUCKETS}"
    );
    Ok(BucketArgs {
        ids: indices.address,
        count: indices.count as u64,
        start_rows: start_rows.as_ptr(),
        bucket_of_owner: std::ptr::null(),
        owners: start_rows.len() as u64 - 1,
        buckets: bucket_count as u64,
        ids_out: Address::NULL,
        positions: Address::NULL,
        counts: Address::NULL,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: std::ptr::null_mut(),
        id_bytes: indices.dtype.size_bytes() as u32,
        blocks,
    })
}

/// Everything but where the results go.
fn unique_args(indices: &Indices, rows: u64) -> Result<UniqueArgs> {
    if !(1..=MOST_SORTED).contains(&indices.count) {
        let what = format!(
            "finding the distinct ones of {} ids; the kernels for GPUs take 1 to {MOST_SORTED}",
            indices.count
        );
        return Err(Error::new(Kind::NotSupported, what));
    }
    Ok(UniqueArgs {
        ids: indices.address,
        count: indices.count as u64,
        unique: Address::NULL,
        slots: Address::NULL,
        distinct: Address::NULL,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: std::ptr::null_mut(),
        id_bytes: indices.dtype.size_bytes() as u32,
        bits: id_bits(rows).min(63),
    })
}
