//! Sampling a graph whose parts this rank cannot read: the spans of the centers come by a gather of row pointers, the
//! edges are chosen here, their columns come by another gather; for weighted choices the weights come in between. Every rank
//! takes part in every gather, whatever happened before: one that failed asks for nothing.

use super::NAME;
use super::graph::{COLUMNS, Plain, ROW_POINTERS, WEIGHTS, as_column, check_weights};
use super::reading::{Block, Request};
use super::results::Results;
use crate::comm::Communicator;
use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::memory::Memory;
use crate::ops::leg::{decode_words, encode_words, with_workspace};
use crate::ops::plan::Operation;
use crate::ops::route::Call;
use crate::platform::Bootstrap;
use crate::platform::graph::{Draw, Neighbours, Take, Weights};
use crate::span::Address;
use crate::tensor::{Description, Operand, Storage};
use std::sync::Arc;

/// A window of a handle that is fetched from.
#[derive(Clone, Copy)]
struct Window {
    dtype: DType,
    /// Its first element in the handle.
    first: u64,
    /// Elements that the handle holds.
    size: u64,
}

/// What a rank's own part has come to. Blocks stay until the work of the stream that uses them is enqueued.
struct Progress<'a> {
    request: &'a Request<'a>,
    plain: Plain,
    nodes: u64,
    columns: Window,
    weights: Option<Window>,
    /// Ids of row pointers, and the spans they lead to.
    ids: Block<'a>,
    spans: Block<'a>,
    fetched: Option<Fetched<'a>>,
    offsets: Block<'a>,
    total: u64,
    results: Results,
    /// Where columns are fetched from: the edges, by their numbers in the handle.
    edges: Address,
    _edge_blocks: [Block<'a>; 2],
}

/// Weights of the neighbours of centers from which not all are taken.
struct Fetched<'a> {
    _edges: Block<'a>,
    _shifted: Block<'a>,
    ids: Address,
    values: Block<'a>,
    dtype: DType,
    offsets: Block<'a>,
    total: u64,
}

/// Ids that a rank fetches, and where to; nothing by default.
#[derive(Clone, Copy, Default)]
struct Wish {
    ids: Address,
    count: u64,
    to: Address,
}

impl Request<'_> {
    /// See [`Sampling::run`](super::Sampling::run). Collective over `comm` and over the communicators of the parts.
    pub fn fetch(&self, comm: &Arc<Communicator>, checked: Result<()>) -> Result<()> {
        let begun = checked.and_then(|()| self.begin());
        let parts = match self.same_parts(comm) {
            Ok(parts) => parts,
            Err(error) => return Err(begun.err().unwrap_or(error)),
        };
        let wish = begun.as_ref().map(Progress::wish_for_spans).unwrap_or_default();
        let came = self.gather(&parts.row_pointers, DType::Int64, wish);
        let mut progress = begun.and_then(|progress| came.map(|()| progress));
        if let Some(weights) = &parts.weights {
            progress = progress.and_then(Progress::ask_for_weights);
            let (dtype, wish) = progress
                .as_ref()
                .map(Progress::wish_for_weights)
                .unwrap_or((DType::Float, Wish::default()));
            let came = self.gather(weights, dtype, wish);
            progress = progress.and_then(|progress| came.map(|()| progress));
        }
        let progress = progress.and_then(Progress::choose);
        let (dtype, wish) = progress
            .as_ref()
            .map(|p| (p.columns.dtype, p.wish_for_columns()))
            .unwrap_or((DType::Int64, Wish::default()));
        let came = self.gather(&parts.columns, dtype, wish);
        progress.and_then(|progress| came.and_then(|()| progress.finish()))
    }

    /// Every rank's graph, compared: the gathers that follow are those of the same handles on all ranks, or none.
    /// # Errors
    /// LOGIC_ERROR on all ranks if they passed different parts.
    fn same_parts(&self, comm: &Arc<Communicator>) -> Result<Parts> {
        let memory = |operand: &Operand| match &operand.storage {
            Storage::Memory(memory) => Some(memory.clone()),
            Storage::Pointer(_) => None,
        };
        let sampling = self.sampling;
        let row_pointers = memory(&sampling.row_pointers);
        let columns = memory(&sampling.columns);
        let weights = sampling.weights.as_ref().map(memory);
        let number = |memory: &Option<Arc<Memory>>| memory.as_ref().map_or(MISSING, |m| m.number());
        let mine = [
            number(&row_pointers),
            number(&columns),
            weights.as_ref().map_or(UNWEIGHTED, number),
        ];
        let session = comm.enter(NAME)?;
        let all = session.all_gather(&encode_words(&mine))?;
        drop(session);
        for (rank, theirs) in all.iter().enumerate() {
            ensure!(
                !decode_words(theirs).contains(&MISSING),
                Logic,
                "rank {rank} passed a graph without row pointers, columns or weights, so nobody can reach its part of them"
            );
            ensure!(
                *theirs == all[0],
                Logic,
                "rank 0 and rank {rank} passed graphs on different memory handles"
            );
        }
        match (row_pointers, columns, weights) {
            (Some(row_pointers), Some(columns), None) => Ok(Parts {
                row_pointers,
                columns,
                weights: None,
            }),
            (Some(row_pointers), Some(columns), Some(Some(weights))) => Ok(Parts {
                row_pointers,
                columns,
                weights: Some(weights),
            }),
            _ => fail!(Logic, "no rank passed a graph that lies on memory handles"),
        }
    }

    /// Rows of one element. Collective over the handle's communicator.
    fn gather(&self, memory: &Arc<Memory>, dtype: DType, wish: Wish) -> Result<()> {
        let plain = |dtype: DType, address: Address| Operand {
            description: Description::array(wish.count as i64, 0, dtype.raw()),
            storage: Storage::Pointer(address),
        };
        let elements = memory.total_bytes() / dtype.size_bytes();
        let table = Operand {
            description: Description::array(elements as i64, 0, dtype.raw()),
            storage: Storage::Memory(memory.clone()),
        };
        let call = Call {
            operation: Operation::Gather,
            name: NAME,
            table: &table,
            dealt: None,
            indices: &plain(DType::Int64, wish.ids),
            rows: &plain(dtype, wish.to),
            buffers: self.buffers,
            stream: self.stream,
            sms: -1,
        };
        call.run()
    }

    /// Checks what the gathers do not, and names the row pointers of the centers.
    fn begin(&self) -> Result<Progress<'_>> {
        self.platform.check_stream(self.stream)?;
        let sampling = self.sampling;
        let row_pointers = window(ROW_POINTERS, &sampling.row_pointers)?;
        let columns = window(COLUMNS, &sampling.columns)?;
        let weights = match &sampling.weights {
            Some(weights) => Some(window(WEIGHTS, weights)?),
            None => None,
        };
        if let Some(weights) = &weights {
            check_weights(weights.size, columns.size)?;
        }
        let plain = Plain::of(sampling, self.platform)?;
        let nodes = row_pointers.size.saturating_sub(1);
        let count = plain.centers.count;
        let ids = self.block(2 * count, DType::Int64)?;
        let spans = self.block(2 * count, DType::Int64)?;
        if count > 0 {
            self.platform.graph().span_ids(
                &plain.centers,
                nodes,
                row_pointers.first,
                ids.address(),
                spans.address(),
                self.launch(),
            )?;
        }
        Ok(Progress {
            request: self,
            plain,
            nodes,
            columns,
            weights,
            ids,
            spans,
            fetched: None,
            offsets: Block::none(),
            total: 0,
            results: Results::default(),
            edges: Address::NULL,
            _edge_blocks: [Block::none(), Block::none()],
        })
    }

    /// Numbers of edges as numbers in the handle. Without an offset they are.
    fn in_handle(&self, edges: Address, count: u64, window: &Window) -> Result<(Address, Block<'_>)> {
        if window.first == 0 || count == 0 {
            return Ok((edges, Block::none()));
        }
        let shifted = self.block(count as usize, DType::Int64)?;
        let by = window.first as i64;
        self.platform
            .graph()
            .shift(edges, count, by, shifted.address(), self.launch())?;
        Ok((shifted.address(), shifted))
    }
}

/// In the place of a handle's number.
const MISSING: u64 = u64::MAX;
const UNWEIGHTED: u64 = u64::MAX - 1;

/// The handles of the graph, the same on all ranks.
struct Parts {
    row_pointers: Arc<Memory>,
    columns: Arc<Memory>,
    weights: Option<Arc<Memory>>,
}

/// # Errors
/// INVALID_INPUT for sizes and offsets below 0.
fn window(name: &str, operand: &Operand) -> Result<Window> {
    let column = as_column(name, operand)?;
    let Storage::Memory(memory) = &operand.storage else {
        fail!(InvalidInput, "{name} does not lie on a memory handle");
    };
    let elements = (memory.total_bytes() / column.dtype.size_bytes()) as u64;
    let first = column.storage_offset as u64;
    Ok(Window {
        dtype: column.dtype,
        first,
        size: elements.saturating_sub(first).min(column.rows as u64),
    })
}

impl<'a> Progress<'a> {
    fn count(&self) -> usize {
        self.plain.centers.count
    }

    fn neighbours(&self) -> Neighbours<'static> {
        Neighbours::Spans {
            spans: self.spans.address(),
            count: self.count(),
        }
    }

    fn wish_for_spans(&self) -> Wish {
        Wish {
            ids: self.ids.address(),
            count: 2 * self.count() as u64,
            to: self.spans.address(),
        }
    }

    /// Offsets and their end.
    fn counted(&self, take: Take) -> Result<(Block<'a>, u64)> {
        let Request {
            platform, buffers, ..
        } = *self.request;
        let kernels = platform.graph();
        let neighbours = self.neighbours();
        let offsets = self.request.block(self.count() + 1, DType::Int)?;
        let bytes = kernels.sample_offsets_workspace_bytes(&neighbours)?;
        let counted = with_workspace(buffers, bytes, self.request.launch(), |launch| {
            kernels.sample_offsets(&neighbours, self.columns.size, take, offsets.address(), launch)
        })?;
        let total = self
            .request
            .accept(&counted, &self.plain.centers, self.nodes, self.columns.size)?;
        Ok((offsets, total))
    }

    fn sample(&self, draw: &Draw<'_>) -> Result<()> {
        let Request {
            platform, buffers, ..
        } = *self.request;
        let kernels = platform.graph();
        let bytes = kernels.sample_workspace_bytes(draw)?;
        with_workspace(buffers, bytes, self.request.launch(), |launch| {
            kernels.sample(draw, launch)
        })
    }

    /// A draw of edges alone.
    fn draw(&self, take: Take, offsets: Address, total: u64, edge_gid: Address) -> Draw<'static> {
        Draw {
            neighbours: self.neighbours(),
            take,
            seed: self.request.sampling.seed,
            columns: None,
            weights: None,
            offsets,
            total,
            offsets_out: Address::NULL,
            dest: Address::NULL,
            center_localid: Address::NULL,
            edge_gid,
        }
    }

    /// Where there is a choice, names the weights that decide it. Where there is none, none are needed.
    fn ask_for_weights(mut self) -> Result<Progress<'a>> {
        let (Some(window), Take::AtMost(most)) = (self.weights, self.request.sampling.take()) else {
            return Ok(self);
        };
        if self.count() == 0 {
            return Ok(self);
        }
        let take = Take::AllAbove(most);
        let (offsets, total) = self.counted(take)?;
        if total == 0 {
            return Ok(self);
        }
        let edges = self.request.block(total as usize, DType::Int64)?;
        let values = self.request.block(total as usize, window.dtype)?;
        self.sample(&self.draw(take, offsets.address(), total, edges.address()))?;
        let (ids, shifted) = self.request.in_handle(edges.address(), total, &window)?;
        self.fetched = Some(Fetched {
            _edges: edges,
            _shifted: shifted,
            ids,
            values,
            dtype: window.dtype,
            offsets,
            total,
        });
        Ok(self)
    }

    fn wish_for_weights(&self) -> (DType, Wish) {
        match &self.fetched {
            Some(fetched) => (
                fetched.dtype,
                Wish {
                    ids: fetched.ids,
                    count: fetched.total,
                    to: fetched.values.address(),
                },
            ),
            None => (DType::Float, Wish::default()),
        }
    }

    /// Asks for the outputs and chooses the edges.
    fn choose(mut self) -> Result<Progress<'a>> {
        if self.count() == 0 {
            self.results = self.request.outputs(0, self.columns.dtype)?;
            return Ok(self);
        }
        let take = self.request.sampling.take();
        (self.offsets, self.total) = self.counted(take)?;
        self.results = self.request.outputs(self.total, self.columns.dtype)?;
        if self.total == 0 {
            return Ok(self);
        }
        let own = match self.results.edge_gid.is_null() {
            true => self.request.block(self.total as usize, DType::Int64)?,
            false => Block::none(),
        };
        let edges = match self.results.edge_gid.is_null() {
            true => own.address(),
            false => self.results.edge_gid,
        };
        let weights = self.fetched.as_ref().map(|fetched| Weights::Fetched {
            values: fetched.values.address(),
            dtype: fetched.dtype,
            offsets: fetched.offsets.address(),
        });
        self.sample(&Draw {
            weights,
            center_localid: self.results.center_localid,
            ..self.draw(take, self.offsets.address(), self.total, edges)
        })?;
        let (ids, shifted) = self.request.in_handle(edges, self.total, &self.columns)?;
        self.edges = ids;
        self._edge_blocks = [own, shifted];
        Ok(self)
    }

    fn wish_for_columns(&self) -> Wish {
        Wish {
            ids: self.edges,
            count: self.total,
            to: self.results.dest,
        }
    }

    /// The offsets are the caller's when all else has come.
    fn finish(self) -> Result<()> {
        let Request { platform, stream, .. } = *self.request;
        if self.count() == 0 {
            return self.request.write_no_offsets(self.plain.offsets);
        }
        let bytes = (self.count() + 1) * DType::Int.size_bytes();
        platform.copy(self.plain.offsets, self.offsets.address(), bytes, stream)
    }
}
