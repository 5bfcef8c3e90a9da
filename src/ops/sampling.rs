//! Sampling of neighbours: what it accepts, and who takes part. Graphs that this rank can read are sampled where they are
//! (`reading`); of others, row pointers, weights and columns come by gathers (`fetching`).

mod fetching;
mod graph;
mod reading;
mod results;
#[cfg(test)]
mod tests;

use super::Buffers;
use super::arrays::{as_array, id_dtype, one_dim};
use super::meet::meet;
use super::route::lease;
use super::serving::{not_recording, take_part};
use crate::comm::{Communicator, Session};
use crate::error::{Result, ensure};
use crate::kinds::{DType, MemoryType};
use crate::memory::{Memory, Route};
use crate::platform::graph::Take;
use crate::platform::meeting::Called;
use crate::platform::{self, Stream};
use crate::span::Address;
use crate::tensor::{Operand, Storage};
use reading::Request;
use std::sync::Arc;

/// One call of a sampler; `weights` for the weighted one.
pub struct Sampling {
    pub row_pointers: Operand,
    pub columns: Operand,
    pub weights: Option<Operand>,
    pub centers: Operand,
    pub offsets: Operand,
    /// Neighbours of a center at most; 0 or less for all.
    pub most: i32,
    pub seed: u64,
    pub contexts: SampleContexts,
}

/// The output contexts of a sampler; NULL is "not wanted", but for the first.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleContexts {
    pub dest: Address,
    pub center_localid: Address,
    pub edge_gid: Address,
}

const NAME: &str = "sampling of neighbours";
/// What a stream that records is told.
const RECORDING: &str = "sampling of neighbours waits for the size of its outputs, which a recording stream \
                         (graph capture) cannot do";

/// The memory type that matters for the engine; plain memory counts as mapped.
fn distributed(operand: &Operand) -> Option<MemoryType> {
    match &operand.storage {
        Storage::Memory(memory) => {
            Some(memory.memory_type()).filter(|t| !matches!(t, MemoryType::Continuous | MemoryType::Chunked))
        }
        Storage::Pointer(_) => None,
    }
}

impl Sampling {
    /// # Errors
    /// In the order of the contract: INVALID_INPUT for memory types, dims and dtypes, LOGIC_ERROR for strides and the fixed dtypes.
    pub fn check(&self) -> Result<()> {
        self.check_memory()?;
        one_dim("the row pointer tensor", &self.row_pointers.description)?;
        one_dim("the column tensor", &self.columns.description)?;
        if let Some(weights) = &self.weights {
            one_dim("the weight tensor", &weights.description)?;
        }
        let rows = as_array("the row pointer tensor", &self.row_pointers.description)?;
        let columns = as_array("the column tensor", &self.columns.description)?;
        let weights = match &self.weights {
            Some(weights) => Some(as_array("the weight tensor", &weights.description)?),
            None => None,
        };
        one_dim("the center tensor", &self.centers.description)?;
        let centers = as_array("the center tensor", &self.centers.description)?;
        one_dim("the offset tensor", &self.offsets.description)?;
        let offsets = as_array("the offset tensor", &self.offsets.description)?;
        id_dtype("the center tensor", centers.dtype)?;
        id_dtype("the column tensor", columns.dtype)?;
        if let Some(weights) = weights {
            ensure!(
                matches!(weights.dtype, DType::Float | DType::Double),
                InvalidInput,
                "the weight tensor has dtype {}, weights are FLOAT or DOUBLE",
                weights.dtype
            );
        }
        ensure!(
            rows.dtype == DType::Int64,
            Logic,
            "the row pointer tensor has dtype {}, it must be INT64",
            rows.dtype
        );
        ensure!(
            offsets.dtype == DType::Int,
            Logic,
            "the offset tensor has dtype {}, it must be INT",
            offsets.dtype
        );
        Ok(())
    }

    fn check_memory(&self) -> Result<()> {
        let rows = distributed(&self.row_pointers);
        let columns = distributed(&self.columns);
        let weights = self.weights.as_ref().map_or(rows, distributed);
        let words = |kind: Option<MemoryType>| kind.map_or("mapped memory".to_string(), |k| k.to_string());
        ensure!(
            rows == columns && rows == weights,
            InvalidInput,
            "the parts of the graph lie on different kinds of memory (row pointers: {}, columns: {}{}); they must all be mapped \
             (CONTINUOUS, CHUNKED or plain), or all DISTRIBUTED, or all HIERARCHY",
            words(rows),
            words(columns),
            match &self.weights {
                Some(_) => format!(", weights: {}", words(weights)),
                None => String::new(),
            }
        );
        Ok(())
    }

    fn take(&self) -> Take {
        match u32::try_from(self.most) {
            Ok(most) if most > 0 => Take::AtMost(most),
            _ => Take::All,
        }
    }

    /// The parts of the graph that are tensors at all.
    fn parts(&self) -> impl Iterator<Item = &Operand> {
        [
            Some(&self.row_pointers),
            Some(&self.columns),
            self.weights.as_ref(),
        ]
        .into_iter()
        .flatten()
    }

    /// The handles under the graph whose ranks make calls together; one rank alone has nobody to meet where it reads all.
    fn shared(&self) -> impl Iterator<Item = &Arc<Memory>> {
        self.parts().filter_map(|part| match &part.storage {
            Storage::Memory(memory) => Some(memory).filter(|memory| match memory.route() {
                Route::Mapped => false,
                Route::Direct => memory.communicator().size() > 1,
                Route::Exchange | Route::Hierarchy => true,
            }),
            Storage::Pointer(_) => None,
        })
    }

    /// Samples. `operands` says what was wrong with the tensors themselves (they stand as [`Operand::none`] then), `outputs`
    /// what with the memory functions. Collective where the graph is DISTRIBUTED or HIERARCHY, also without centers; a rank
    /// whose checks fail takes part without centers and alone returns its error. Work may go on in `stream` after the return.
    /// # Errors
    /// Those of [`check`](Sampling::check); INVALID_INPUT for data that cannot be reached, offsets that are too few, weights
    /// that are fewer than columns, a missing context; INVALID_VALUE for centers that are no nodes, row pointers that decrease
    /// or leave the columns, and totals that INT does not hold; LOGIC_ERROR if ranks pass different graphs; NOT_SUPPORTED
    /// while the stream records a graph; OUT_OF_MEMORY; COMMUNICATION_ERROR. Nothing is written then.
    pub fn run(
        &self,
        operands: Result<()>,
        outputs: Result<()>,
        buffers: &dyn Buffers,
        stream: Stream,
    ) -> Result<()> {
        let _leases: Vec<_> = [&self.centers, &self.offsets]
            .into_iter()
            .chain(self.parts())
            .map(lease)
            .collect();
        let checked = operands.and_then(|()| self.check()).and_then(|()| {
            ensure!(
                !self.contexts.dest.is_null(),
                InvalidInput,
                "output_dest_memory_context is NULL, the operation needs it for its output"
            );
            outputs
        });
        let request = |platform, stream| Request {
            sampling: self,
            platform,
            buffers,
            stream,
        };
        let Some(first) = self.shared().next() else {
            checked?;
            let held = self.parts().find_map(|part| match &part.storage {
                Storage::Memory(memory) => Some(memory.communicator().platform()),
                Storage::Pointer(_) => None,
            });
            let platform = match held {
                Some(platform) => platform,
                None => platform::current()?,
            };
            not_recording(platform, stream, RECORDING)?;
            return platform.within(&mut || request(platform, stream).read());
        };
        let platform = first.communicator().platform();
        let own = not_recording(platform, stream, RECORDING);
        take_part(platform, stream, own, &mut |own, stream| {
            self.with_others(
                &request(platform, stream),
                first.communicator(),
                own.and(checked.clone()),
            )
        })
    }

    fn with_others(
        &self,
        request: &Request<'_>,
        comm: &Arc<Communicator>,
        checked: Result<()>,
    ) -> Result<()> {
        // What cannot be seen here (a part that is no tensor) is taken to be like the rest, and of parts on different kinds of memory
        // the rest to be like the first: the others' graphs are sound.
        let seen = if self.check_memory().is_ok() {
            usize::MAX
        } else {
            1
        };
        let direct = self
            .shared()
            .take(seen)
            .all(|memory| memory.route() == Route::Direct && Arc::ptr_eq(memory.communicator(), comm));
        if direct {
            let session = comm.enter_as(Called {
                operation: NAME,
                way: Route::Direct.words(),
            })?;
            return together(&session, request.stream, checked, || request.read());
        }
        request.fetch(comm, checked)
    }
}

/// Meet, so that what the others wrote before is there; work, unless the own checks failed; meet, so that they may write
/// again.
fn together(
    session: &Session<'_>,
    stream: Stream,
    checked: Result<()>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let met = meet(session, stream)?;
    let worked = checked.and(met).and_then(|()| {
        let worked = work();
        // It has been waited for; what was read after a wait in vain may be anything.
        session.communicator().check_all_came(stream).and(worked)
    });
    worked.and(meet(session, stream)?)
}
