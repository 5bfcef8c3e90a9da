//! Sampling a graph that this rank reads where it is: count, ask for the outputs, sample. The host waits once, for the count.

use super::Sampling;
use super::graph::{Graph, Plain};
use crate::error::Result;
use crate::kinds::{AllocationType, DType};
use crate::ops::leg::with_workspace;
use crate::ops::{Buffers, Scratch};
use crate::platform::graph::{Draw, Neighbours, Weights};
use crate::platform::{Launch, Platform, Stream};
use crate::span::Address;

/// A call and what it works with.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub sampling: &'a Sampling,
    pub platform: &'a dyn Platform,
    pub buffers: &'a dyn Buffers,
    pub stream: Stream,
}

impl<'a> Request<'a> {
    pub fn launch(&self) -> Launch {
        Launch {
            stream: self.stream,
            ..Launch::default()
        }
    }

    /// A block of scratch; none asks for no block.
    pub fn block(&self, count: usize, dtype: DType) -> Result<Block<'a>> {
        if count == 0 {
            return Ok(Block(None));
        }
        let block = self.buffers.scratch(count, dtype, AllocationType::Device)?;
        Ok(Block(Some(block)))
    }

    /// See [`Sampling::run`].
    pub fn read(&self) -> Result<()> {
        self.platform.check_stream(self.stream)?;
        let graph = Graph::of(self.sampling, self.platform)?;
        let plain = Plain::of(self.sampling, self.platform)?;
        let count = plain.centers.count;
        if count == 0 {
            self.outputs(0, graph.columns.dtype)?;
            return self.write_no_offsets(plain.offsets);
        }
        let (row_pointers, columns) = (graph.row_pointers.table(), graph.columns.table());
        let weights = graph.weights.as_ref().map(|weights| weights.table());
        let neighbours = Neighbours::Graph {
            row_pointers: &row_pointers,
            centers: &plain.centers,
        };
        let kernels = self.platform.graph();
        let take = self.sampling.take();
        let offsets = self.block(count + 1, DType::Int)?;
        let bytes = kernels.sample_offsets_workspace_bytes(&neighbours)?;
        let counted = with_workspace(self.buffers, bytes, self.launch(), |launch| {
            kernels.sample_offsets(&neighbours, columns.rows, take, offsets.address(), launch)
        })?;
        let nodes = row_pointers.rows.saturating_sub(1);
        let total = self.accept(&counted, &plain.centers, nodes, columns.rows)?;
        let results = self.outputs(total, columns.dtype)?;
        let draw = Draw {
            neighbours,
            take,
            seed: self.sampling.seed,
            columns: Some(&columns),
            weights: weights.as_ref().map(Weights::Mapped),
            offsets: offsets.address(),
            total,
            offsets_out: plain.offsets,
            dest: results.dest,
            center_localid: results.center_localid,
            edge_gid: results.edge_gid,
        };
        let bytes = kernels.sample_workspace_bytes(&draw)?;
        with_workspace(self.buffers, bytes, self.launch(), |launch| {
            kernels.sample(&draw, launch)
        })
    }
}

/// Scratch, or none.
pub struct Block<'a>(Option<Box<dyn Scratch + 'a>>);

impl Block<'_> {
    pub fn none() -> Self {
        Block(None)
    }

    pub fn address(&self) -> Address {
        self.0.as_ref().map_or(Address::NULL, |block| block.address())
    }
}
