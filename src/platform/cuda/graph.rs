//! The operations on graphs, in the context of the bound GPU.

use super::graph_args::{
    AppendArgs, Bases, COUNTED_WORDS, NeighboursArgs, SampleOffsetsArgs, ShiftArgs, SpanIdsArgs, append_args,
    base_of, neighbours_args, row_pointers_of, sample_args, self_loops_args, take_args,
};
use super::rows::check_workspace;
use super::{CudaPlatform, kernels};
use crate::error::Result;
use crate::platform::graph::{BadCenter, Counted, Draw, GraphKernels, Neighbours, SelfLoops, Take};
use crate::platform::{Indices, Launch, Stream};
use crate::span::Address;
use std::ptr::null_mut;

impl GraphKernels for CudaPlatform {
    fn span_ids(
        &self,
        centers: &Indices,
        nodes: u64,
        first: u64,
        ids: Address,
        spans: Address,
        launch: Launch,
    ) -> Result<()> {
        let args = SpanIdsArgs {
            centers: centers.address,
            count: centers.count as u64,
            nodes,
            first,
            ids,
            spans,
            center_bytes: centers.dtype.size_bytes() as u32,
            reserved: 0,
        };
        let _entered = self.gpu.enter()?;
        kernels::span_ids(&args, launch.stream)?;
        self.launched("preparing the row pointers of centers", launch.stream)
    }

    fn shift(&self, edges: Address, count: u64, by: i64, shifted: Address, launch: Launch) -> Result<()> {
        let args = ShiftArgs {
            edges,
            count,
            by,
            shifted,
        };
        let _entered = self.gpu.enter()?;
        kernels::shift(&args, launch.stream)?;
        self.launched("shifting edges", launch.stream)
    }

    fn sample_offsets_workspace_bytes(&self, neighbours: &Neighbours<'_>) -> Result<usize> {
        let base = base_of(row_pointers_of(neighbours));
        let mut needed = 0;
        let ask = SampleOffsetsArgs {
            needed_bytes: &mut needed,
            ..offsets_args(neighbours_args(neighbours, &base)?, 0, Take::All)
        };
        let _entered = self.gpu.enter()?;
        kernels::sample_offsets(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn sample_offsets(
        &self,
        neighbours: &Neighbours<'_>,
        edges: u64,
        take: Take,
        offsets: Address,
        launch: Launch,
    ) -> Result<Counted> {
        let needed = self.sample_offsets_workspace_bytes(neighbours)?;
        check_workspace("counting neighbours", launch.workspace, needed)?;
        let base = base_of(row_pointers_of(neighbours));
        let mut counted = self.mailboxes.take(&self.gpu, COUNTED_WORDS)?;
        let args = SampleOffsetsArgs {
            offsets,
            counted: counted.address(),
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ..offsets_args(neighbours_args(neighbours, &base)?, edges, take)
        };
        let _entered = self.gpu.enter()?;
        kernels::sample_offsets(&args, launch.stream)?;
        self.gpu.synchronize_stream(launch.stream)?;
        let words = counted.read(COUNTED_WORDS);
        Ok(Counted {
            total: words[0],
            bad: (words[1] != u64::MAX).then_some(BadCenter {
                position: words[1],
                start: words[2] as i64,
                end: words[3] as i64,
            }),
        })
    }

    fn sample_workspace_bytes(&self, draw: &Draw<'_>) -> Result<usize> {
        let bases = Bases::of(draw);
        let mut ask = sample_args(draw, &bases)?;
        let mut needed = 0;
        ask.needed_bytes = &mut needed;
        let _entered = self.gpu.enter()?;
        kernels::sample(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn sample(&self, draw: &Draw<'_>, launch: Launch) -> Result<()> {
        let needed = self.sample_workspace_bytes(draw)?;
        if needed > 0 {
            check_workspace("sampling", launch.workspace, needed)?;
        }
        let bases = Bases::of(draw);
        let mut args = sample_args(draw, &bases)?;
        args.scratch = launch.workspace.address;
        args.scratch_bytes = launch.workspace.bytes as u64;
        let _entered = self.gpu.enter()?;
        kernels::sample(&args, launch.stream)?;
        self.launched("sampling", launch.stream)
    }

    fn append_unique_workspace_bytes(&self, targets: &Indices, neighbours: &Indices) -> Result<usize> {
        let mut needed = 0;
        let ask = AppendArgs {
            needed_bytes: &mut needed,
            ..append_args(targets, neighbours)?
        };
        let _entered = self.gpu.enter()?;
        kernels::append_count(&ask, Stream::default())?;
        Ok(needed as usize)
    }

    fn append_unique_count(&self, targets: &Indices, neighbours: &Indices, launch: Launch) -> Result<u64> {
        let needed = self.append_unique_workspace_bytes(targets, neighbours)?;
        check_workspace("finding new ids", launch.workspace, needed)?;
        let mut new_ids = self.mailboxes.take(&self.gpu, 1)?;
        let args = AppendArgs {
            new_ids: new_ids.address(),
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ..append_args(targets, neighbours)?
        };
        let _entered = self.gpu.enter()?;
        kernels::append_count(&args, launch.stream)?;
        self.gpu.synchronize_stream(launch.stream)?;
        Ok(new_ids.read(1)[0])
    }

    fn append_unique_write(
        &self,
        targets: &Indices,
        neighbours: &Indices,
        _new_ids: u64,
        unique: Address,
        map: Address,
        launch: Launch,
    ) -> Result<()> {
        let args = AppendArgs {
            unique,
            map,
            scratch: launch.workspace.address,
            scratch_bytes: launch.workspace.bytes as u64,
            ..append_args(targets, neighbours)?
        };
        let _entered = self.gpu.enter()?;
        kernels::append_write(&args, launch.stream)?;
        self.launched("appending new ids", launch.stream)
    }

    fn add_self_loops(&self, loops: &SelfLoops, launch: Launch) -> Result<()> {
        let _entered = self.gpu.enter()?;
        kernels::self_loops(&self_loops_args(loops), launch.stream)?;
        self.launched("adding self loops", launch.stream)
    }
}

/// Everything but the scratch and where the results go.
fn offsets_args(neighbours: NeighboursArgs, edges: u64, take: Take) -> SampleOffsetsArgs {
    SampleOffsetsArgs {
        neighbours,
        edges,
        take: take_args(take),
        offsets: Address::NULL,
        counted: Address::NULL,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
    }
}
