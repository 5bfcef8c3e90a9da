//! How tables learn: the gradient step on the rows a rank owns, and the small works around it.

use super::caching::CacheView;
use super::{Indices, Launch, Rows, Stream};
use crate::error::{Result, fail};
use crate::span::Address;

/// Optimizers, with the values of `wholememory_optimizer_type_t` (NONE is no optimizer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptimizerKind {
    Sgd = 1,
    LazyAdam = 2,
    RmsProp = 3,
    AdaGrad = 4,
}

impl OptimizerKind {
    pub const ALL: [OptimizerKind; 4] = [
        OptimizerKind::Sgd,
        OptimizerKind::LazyAdam,
        OptimizerKind::RmsProp,
        OptimizerKind::AdaGrad,
    ];

    /// States of the size of a row: m and v of Adam, v of RMSProp, the sum of squares of AdaGrad.
    pub fn element_states(self) -> usize {
        match self {
            OptimizerKind::Sgd => 0,
            OptimizerKind::LazyAdam => 2,
            OptimizerKind::RmsProp | OptimizerKind::AdaGrad => 1,
        }
    }

    /// True if every row keeps the powers of both betas of its own steps.
    pub fn has_beta_powers(self) -> bool {
        self == OptimizerKind::LazyAdam
    }
}

/// An optimizer with its parameters at the time of a step; `wmk::rule` of kernels/common/optimizer.h, which has the formulas.
/// Parameters that the optimizer does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Rule {
    pub optimizer: OptimizerKind,
    /// 1 for AdamW, else 0.
    pub adam_w: u32,
    pub learning_rate: f32,
    pub weight_decay: f32,
    pub epsilon: f32,
    pub beta1: f32,
    pub beta2: f32,
    pub alpha: f32,
}

/// One gradient step on the rows of this rank. Gradients of one row are summed in the order of `ids`: cut into runs of
/// [`RUN_GRADIENTS`], each run summed left to right in f32 (first assigned, others added), then the run sums left to right.
/// The optimizer is applied once to every row that `ids` name. No result depends on the shape of the launch.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Whose gradients came, in the order of the ranks they came from, and of each rank in its order. Rows outside
    /// [`first_row`, `first_row + rows`) are left out.
    pub ids: Indices,
    /// Gradient i belongs to id i; FLOAT, HALF or BF16.
    pub gradients: Rows,
    /// Which row of `gradients` is gradient i, if not row i: row `lot.row + i - lot.first` for the last lot with `first <= i`.
    /// At most [`MOST_LOTS`], ascending in both; the first begins with id 0.
    pub lots: &'a [Lot],
    /// Columns of the gradients; so many of every row are updated, its others are not touched.
    pub cols: usize,
    /// The row of the whole table that `table` begins with.
    pub first_row: u64,
    /// Rows from there that ids may name.
    pub rows: u64,
    /// The own rows: row `first_row + r` begins at `address + r * row_stride_bytes`. FLOAT, HALF or BF16, rows aligned to 16 bytes.
    pub table: Rows,
    pub rule: Rule,
    /// The element states of row r, FLOAT: state k begins at `states[k] + r * state_stride_bytes`, aligned to 16 bytes.
    pub states: &'a [Address],
    pub state_stride_bytes: usize,
    /// Two FLOAT values a row: beta1^t and beta2^t. NULL for optimizers without.
    pub beta_powers: Address,
    /// Rows that have a line there are updated in it, and their states too; the line is marked as changed.
    pub cache: Option<&'a CacheView<'a>>,
}

/// Gradients that lie behind each other: that of id `first` is row `row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot {
    pub first: u64,
    pub row: u64,
}

/// What steps take (`WMK_GROUP_LOTS`).
pub const MOST_LOTS: usize = 16;

/// Rows of gradients are counted by 32 bits.
pub const MOST_GRADIENT_ROWS: u64 = 1 << 32;

/// Gradients of one row that are summed in one go.
pub const RUN_GRADIENTS: usize = 512;

/// Where round robin puts logical rows (kernels/common/round_robin.h): row g belongs to rank `(g / block_rows) % ranks`, there to local row
/// `block_rows * (g / block_rows / ranks) + g % block_rows`; rank k's rows are numbered from `k * rank_rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    pub block_rows: u64,
    pub ranks: u64,
    pub rank_rows: u64,
    /// Logical rows; ids outside [0, rows) are mapped to -1.
    pub rows: u64,
}

impl RoundRobin {
    /// The row of the table that holds logical row `id`; -1 for ids that name none.
    pub fn row(&self, id: i64) -> i64 {
        let Some(id) = u64::try_from(id).ok().filter(|id| *id < self.rows) else {
            return -1;
        };
        let (block, place) = (id / self.block_rows, id % self.block_rows);
        let (turn, owner) = (block / self.ranks, block % self.ranks);
        (owner * self.rank_rows + turn * self.block_rows + place) as i64
    }
}

/// What a platform does for tables that learn. Arguments are checked by the callers; work is ordered on the stream, and nothing
/// waits on the host.
pub trait LearningKernels: Send + Sync {
    /// What [`step`](LearningKernels::step) needs to work in.
    /// # Errors
    /// CUDA_ERROR; NOT_SUPPORTED for more gradients than the platform takes.
    fn step_workspace_bytes(&self, step: &Step<'_>) -> Result<usize>;

    /// Sums the gradients and updates rows and states.
    /// # Errors
    /// CUDA_ERROR, OUT_OF_MEMORY, NOT_SUPPORTED.
    fn step(&self, step: &Step<'_>, launch: Launch) -> Result<()>;

    /// Writes `map.row(id)` for every id to `mapped`, as INT64 whatever the ids are.
    /// # Errors
    /// CUDA_ERROR.
    fn map_rows(&self, indices: &Indices, map: &RoundRobin, mapped: Address, launch: Launch) -> Result<()>;

    /// Writes `value` to `count` floats from `address`.
    /// # Errors
    /// CUDA_ERROR.
    fn fill(&self, address: Address, count: usize, value: f32, stream: Stream) -> Result<()>;
}

/// The answers of a platform without a gradient step.
pub(super) struct CannotLearn;

fn refuse<T>() -> Result<T> {
    fail!(
        NotSupported,
        "this platform has no gradient step: tables can be read, not trained"
    )
}

impl LearningKernels for CannotLearn {
    fn step_workspace_bytes(&self, _: &Step<'_>) -> Result<usize> {
        refuse()
    }

    fn step(&self, _: &Step<'_>, _: Launch) -> Result<()> {
        refuse()
    }

    fn map_rows(&self, _: &Indices, _: &RoundRobin, _: Address, _: Launch) -> Result<()> {
        refuse()
    }

    fn fill(&self, _: Address, _: usize, _: f32, _: Stream) -> Result<()> {
        refuse()
    }
}
