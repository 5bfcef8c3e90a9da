//! The gradient step of a table over the ranks: what a caller passes, checked; ids and gradients to the owners; the step there.

use super::Buffers;
use super::cached::{self, Cache};
use super::leg::{Circle, Field};
use super::meet::meet;
use super::operand::Data;
use super::owners::{Delivery, Owners, Parcel, deliver, keep};
use super::route::deal;
use super::serving::{CACHED_RECORDING, not_recording, take_part};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{AllocationType, DType};
use crate::memory::{MappedBases, Memory};
use crate::platform::caching::CacheView;
use crate::platform::learning::{Lot, RoundRobin, Rule, Step};
use crate::platform::meeting::Called;
use crate::platform::{Indices, Launch, Rows, Stream};
use crate::span::Address;
use crate::tensor::Operand;

/// A table that learns: FLOAT, HALF or BF16 rows on a handle, and what its optimizer keeps of them on others, partitioned alike.
pub struct Learner<'a> {
    pub table: &'a Memory,
    pub dtype: DType,
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows that (dealt) ids may name.
    pub rows: u64,
    pub dealt: Option<&'a RoundRobin>,
    pub rule: Rule,
    /// FLOAT states of the size of a row, and for each the elements before it in its row of `elements_stride`.
    pub elements: Option<&'a Memory>,
    pub element_offsets: &'a [usize],
    pub elements_stride: usize,
    /// FLOAT [rows, 2].
    pub powers: Option<&'a Memory>,
    pub cache: Option<Cached<'a>>,
}

/// The cache of a table that learns, at home with it.
#[derive(Clone, Copy)]
pub struct Cached<'a> {
    pub cache: &'a Cache,
    /// Count the step's ids as accesses, and bring rows in that deserve it, before the step.
    pub adjust: bool,
}

/// The own gradients of a step.
#[derive(Clone, Copy)]
pub struct Gradients<'a> {
    pub indices: &'a Operand,
    pub gradients: &'a Operand,
}

const NAME: &str = "wholememory_embedding_gather_gradient_apply";

/// Applies a step. Collective over the table's communicator; a rank whose own checks failed (`mine`, or those made here) takes
/// part with nothing and alone returns its error. Work may go on in `stream` after the return.
/// # Errors
/// INVALID_INPUT for wrong shapes and types, LOGIC_ERROR for gradients that are not as many as the indices, and what
/// [`deliver`] says.
pub fn apply_gradients(
    learner: &Learner<'_>,
    mine: Result<Gradients<'_>>,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let comm = learner.table.communicator();
    let platform = comm.platform();
    let refusal = match (comm.size(), &learner.cache) {
        (_, Some(_)) => Some(CACHED_RECORDING),
        (1, None) if buffers.outlasts_recording() => None,
        (1, None) => Some(
            "a gradient step on a recording stream (graph capture) needs scratch that lives as long as the graph, and p_env_fns is NULL",
        ),
        _ => Some(
            "a gradient step over several ranks meets them on the host, which a recording stream (graph capture) cannot do",
        ),
    };
    let own = refusal.map_or(Ok(()), |refusal| not_recording(platform, stream, refusal));
    take_part(platform, stream, own, &mut |own, stream| {
        run(learner, own.and_then(|()| mine.clone()), buffers, stream)
    })
}

fn run(
    learner: &Learner<'_>,
    mine: Result<Gradients<'_>>,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let comm = learner.table.communicator();
    let platform = comm.platform();
    let leases = Leases::new(learner);
    let mut dealt = None;
    let parcel = mine.and_then(|mine| {
        leases.as_ref().map_err(Error::clone)?;
        platform.check_stream(stream)?;
        let mut parcel = check(learner, mine, &|address| platform.can_reach(address))?;
        if let (Some(parcel), Some(map)) = (&mut parcel, learner.dealt) {
            let block = buffers.scratch(parcel.ids.count, DType::Int64, AllocationType::Device)?;
            parcel.ids = deal(platform, &parcel.ids, map, block.address(), stream)?;
            dealt = Some(block);
        }
        Ok(parcel)
    });
    // Want of room is a failure of all ranks, what else is wrong of this one alone.
    let (parcel, own_failure) = match parcel {
        Err(error) if error.kind != Kind::OutOfMemory => (Ok(None), Err(error)),
        parcel => (parcel, Ok(())),
    };
    let start_rows = start_rows(learner);
    let launch = Launch {
        stream,
        ..Launch::default()
    };
    let target = leases
        .as_ref()
        .map(|leases| Target::new(learner, leases, &start_rows));
    let needs = |parcel: &Parcel| match (&target, parcel.rows) {
        (Ok(target), Some(_)) if parcel.ids.count > 0 => {
            let step = platform
                .learning()
                .step_workspace_bytes(&target.step(parcel, &[]))?;
            Ok(step.max(target.adjust_workspace_bytes(parcel.ids.count)?))
        }
        _ => Ok(0),
    };
    let step = |delivery: &Delivery<'_>| match &target {
        Ok(target) if delivery.parcel.ids.count > 0 => {
            let launch = Launch {
                workspace: delivery.workspace,
                ..launch
            };
            target.adjust(delivery, stream)?;
            platform
                .learning()
                .step(&target.step(&delivery.parcel, &delivery.lots), launch)
        }
        _ => Ok(()),
    };
    let session = comm.enter_as(Called {
        operation: NAME,
        way: match &learner.cache {
            Some(_) => "with a cache",
            None => "without a cache",
        },
    })?;
    let field = Field {
        platform,
        buffers,
        world: &session,
        launch,
    };
    // Lines of a cache change: what others of this rank and of other ranks read is read before, or after. Ranks meet so once they have
    // met on the host, where those that are in another call are found.
    let meets = || match &learner.cache {
        Some(_) => meet(&session, stream),
        None => Ok(Ok(())),
    };
    let work = |ordered: Result<()>| {
        if comm.size() == 1 {
            return match own_failure.and(ordered).and(parcel)? {
                Some(parcel) => step(&keep(&field, parcel, &needs)?),
                None => Ok(()),
            };
        }
        let transport = comm.transport(&session)?;
        let circle = Circle {
            boot: &session,
            transport: &*transport,
        };
        let owners = Owners {
            start_rows: &start_rows,
            identity: learner.table.number(),
            serves: leases.is_ok(),
        };
        let (delivery, sent) = match deliver(&field, circle, &owners, parcel, &needs) {
            Ok(delivered) => delivered,
            Err(error) => return own_failure.and(Err(error)),
        };
        let stepped = ordered
            .and(meets()?)
            .and_then(|()| delivery.map_or(Ok(()), |delivery| step(&delivery)));
        let met = meets()?;
        own_failure.and(sent).and(stepped).and(met)
    };
    let outcome = match &learner.cache {
        Some(Cached { cache, .. }) => cache.turns.change(platform, stream, work),
        None => work(Ok(())),
    };
    comm.window_was_used();
    outcome
}

/// Keeps what a step writes mapped while it runs, and says where this rank's parts of it are.
struct Leases {
    table: MappedBases,
    elements: Option<MappedBases>,
    powers: Option<MappedBases>,
    cache: Option<cached::Leases>,
}

impl Leases {
    fn new(learner: &Learner<'_>) -> Result<Leases> {
        Ok(Leases {
            table: learner.table.mapped_bases()?,
            elements: learner.elements.map(Memory::mapped_bases).transpose()?,
            powers: learner.powers.map(Memory::mapped_bases).transpose()?,
            cache: learner.cache.map(|cached| cached.cache.leases()).transpose()?,
        })
    }
}

/// The first row of every rank, and the end of the rows that ids may name.
fn start_rows(learner: &Learner<'_>) -> Vec<u64> {
    let row_bytes = learner.stride * learner.dtype.size_bytes();
    let partition = learner.table.partition();
    (0..partition.world_ranks())
        .map(|rank| ((partition.offset_bytes(rank) / row_bytes) as u64).min(learner.rows))
        .chain([learner.rows])
        .collect()
}

/// What of the table is this rank's.
struct Target<'a> {
    learner: &'a Learner<'a>,
    first_row: u64,
    rows: u64,
    table: Address,
    states: Vec<Address>,
    powers: Address,
    cache: Option<CacheView<'a>>,
}

impl<'a> Target<'a> {
    fn new(learner: &'a Learner<'a>, leases: &'a Leases, start_rows: &[u64]) -> Target<'a> {
        let rank = learner.table.communicator().rank();
        let own = |bases: &MappedBases| bases.get(rank).copied().unwrap_or(Address::NULL);
        let elements = leases.elements.as_ref().map_or(Address::NULL, own);
        Target {
            learner,
            first_row: start_rows[rank],
            rows: start_rows[rank + 1] - start_rows[rank],
            table: own(&leases.table),
            states: learner
                .element_offsets
                .iter()
                .map(|offset| elements.offset_bytes(offset * DType::Float.size_bytes()))
                .collect(),
            powers: leases.powers.as_ref().map_or(Address::NULL, own),
            cache: match (&learner.cache, &leases.cache) {
                (Some(cached), Some(leases)) => Some(cached.cache.view(leases)),
                _ => None,
            },
        }
    }

    fn adjust_workspace_bytes(&self, ids: usize) -> Result<usize> {
        match (&self.learner.cache, &self.cache) {
            (Some(Cached { cache, adjust: true }), Some(view)) => {
                cache.comm.platform().caching().adjust_workspace_bytes(view, ids)
            }
            _ => Ok(0),
        }
    }

    fn adjust(&self, delivery: &Delivery<'_>, stream: Stream) -> Result<()> {
        match (&self.learner.cache, &self.cache) {
            (Some(Cached { cache, adjust: true }), Some(view)) => cache.adjust_to(view, delivery, stream),
            _ => Ok(()),
        }
    }

    fn step<'s>(&'s self, parcel: &Parcel, lots: &'s [Lot]) -> Step<'s> {
        Step {
            ids: parcel.ids,
            gradients: parcel.rows.unwrap_or(Rows {
                address: Address::NULL,
                row_stride_bytes: 0,
                dtype: DType::Float,
            }),
            lots,
            cols: parcel.cols,
            first_row: self.first_row,
            rows: self.rows,
            table: Rows {
                address: self.table,
                row_stride_bytes: self.learner.stride * self.learner.dtype.size_bytes(),
                dtype: self.learner.dtype,
            },
            rule: self.learner.rule,
            states: &self.states,
            state_stride_bytes: self.learner.elements_stride * DType::Float.size_bytes(),
            beta_powers: self.powers,
            cache: self.cache.as_ref(),
        }
    }
}

/// The caller's arguments; `None` if there is nothing to send.
fn check(
    learner: &Learner<'_>,
    mine: Gradients<'_>,
    can_reach: &dyn Fn(Address) -> bool,
) -> Result<Option<Parcel>> {
    let (indices, gradients) = (&mine.indices.description, &mine.gradients.description);
    ensure!(
        indices.dim == 1,
        InvalidInput,
        "indices has {} dimensions, it must have 1",
        indices.dim
    );
    ensure!(
        gradients.dim == 2,
        InvalidInput,
        "grads has {} dimensions, it must have 2",
        gradients.dim
    );
    let Some(ids) = indices.to_array() else {
        fail!(
            InvalidInput,
            "indices has stride {} and dtype {}; it needs stride 1 and INT or INT64",
            indices.strides[0],
            DType::name_of(indices.dtype)
        );
    };
    let Some(rows) = gradients.to_matrix() else {
        fail!(
            InvalidInput,
            "grads has column stride {} and dtype {}; it needs column stride 1 and FLOAT, HALF or BF16",
            gradients.strides[1],
            DType::name_of(gradients.dtype)
        );
    };
    ensure!(
        ids.dtype.is_index(),
        InvalidInput,
        "indices is {}, it must be INT or INT64",
        ids.dtype
    );
    ensure!(
        matches!(rows.dtype, DType::Float | DType::Half | DType::Bf16),
        InvalidInput,
        "grads is {}, it must be FLOAT, HALF or BF16",
        rows.dtype
    );
    ensure!(ids.size >= 0, InvalidInput, "indices has size {}", ids.size);
    ensure!(
        rows.rows == ids.size,
        Logic,
        "grads has {} rows for {} indices",
        rows.rows,
        ids.size
    );
    if ids.size == 0 {
        return Ok(None);
    }
    let unit = 16 / learner.dtype.size_bytes() as i64;
    ensure!(
        rows.cols > 0
            && rows.cols <= learner.cols as i64
            && (rows.cols + unit - 1) / unit * unit == learner.stride as i64,
        InvalidInput,
        "grads has {} columns, the embedding has {} ({} with the padding of its rows)",
        rows.cols,
        learner.cols,
        learner.stride
    );
    ensure!(
        rows.stride >= rows.cols || rows.rows == 1,
        InvalidInput,
        "grads has row stride {}, less than its {} columns",
        rows.stride,
        rows.cols
    );
    let bytes = rows.dtype.size_bytes();
    let span = (i128::from(rows.rows - 1) * i128::from(rows.stride) + i128::from(rows.cols)) * bytes as i128;
    let address = Data::of(mine.gradients, "grads")?.first(
        "grads",
        rows.dtype,
        rows.storage_offset,
        span,
        can_reach,
    )?;
    let id_bytes = ids.dtype.size_bytes();
    let ids_address = Data::of(mine.indices, "indices")?.first(
        "indices",
        ids.dtype,
        ids.storage_offset,
        i128::from(ids.size) * id_bytes as i128,
        can_reach,
    )?;
    let row_stride_bytes = usize::try_from(i128::from(rows.stride) * bytes as i128)
        .ok()
        .filter(|_| rows.rows > 1)
        .unwrap_or(0);
    Ok(Some(Parcel {
        ids: Indices {
            address: ids_address,
            dtype: ids.dtype,
            count: ids.size as usize,
        },
        rows: Some(Rows {
            address,
            row_stride_bytes,
            dtype: rows.dtype,
        }),
        cols: rows.cols as usize,
    }))
}
