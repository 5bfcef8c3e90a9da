//! The operations on graphs that a platform offers: sampling of neighbours, lists without doubles, self loops.

use super::{Indices, Launch, Table};
use crate::error::{Result, fail};
use crate::kinds::DType;
use crate::span::Address;

/// The nodes whose neighbours are looked at. Edge e of the graph leads to `columns[e]`; the edges of a node are a span
/// [start, end) of edge numbers.
#[derive(Clone, Copy, Debug)]
pub enum Neighbours<'a> {
    /// Node `centers[i]` has the span from `row_pointers[centers[i]]` to `row_pointers[centers[i] + 1]`. The row pointers are
    /// INT64, one column; their rows less one is the number of nodes.
    Graph {
        row_pointers: &'a Table<'a>,
        centers: &'a Indices,
    },
    /// Center i has the span from `spans[2 * i]` to `spans[2 * i + 1]` (INT64, densely).
    Spans { spans: Address, count: usize },
}

impl Neighbours<'_> {
    /// How many centers there are.
    pub fn count(&self) -> usize {
        match self {
            Neighbours::Graph { centers, .. } => centers.count,
            Neighbours::Spans { count, .. } => *count,
        }
    }
}

/// How many of a center's neighbours are taken; `degree` is how many it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    All,
    /// All if the degree is at most this, else this many by chance. At least 1.
    AtMost(u32),
    /// All if the degree is above this, else none. Only for edges (no weights, no chance).
    AllAbove(u32),
}

impl Take {
    pub fn of(self, degree: u64) -> u64 {
        match self {
            Take::All => degree,
            Take::AtMost(most) => degree.min(u64::from(most)),
            Take::AllAbove(bound) if degree > u64::from(bound) => degree,
            Take::AllAbove(_) => 0,
        }
    }
}

/// What [`GraphKernels::sample_offsets`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Neighbours taken over all centers; without meaning if `bad` is there.
    pub total: u64,
    /// The first center (lowest position) that is none of the graph, or whose span is none of the columns.
    pub bad: Option<BadCenter>,
}

/// A center that cannot be sampled: outside [0, nodes) (then start and end are -1), or with a span that is not
/// 0 <= start <= end <= edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCenter {
    /// Its place in the list of centers.
    pub position: u64,
    pub start: i64,
    pub end: i64,
}

/// The weight of every edge, FLOAT or DOUBLE.
#[derive(Clone, Copy, Debug)]
pub enum Weights<'a> {
    /// Edge e weighs `table[e]`; as many rows as the columns have, or more.
    Mapped(&'a Table<'a>),
    /// Neighbour j of center i weighs `values[offsets[i] + j]`, for centers from which not all are taken. `values` are dense,
    /// `offsets` INT, as `sample_offsets` made them with [`Take::AllAbove`].
    Fetched {
        values: Address,
        dtype: DType,
        offsets: Address,
    },
}

/// One sampling. Center i takes its `offsets[i + 1] - offsets[i]` neighbours by the rules of the samplers: all in the order
/// of their edges, or a choice that `seed`, i, the degree and the weights decide alone, in the order of the choice. Number
/// `offsets[i] + x` of each output belongs to neighbour x of the choice.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    pub neighbours: Neighbours<'a>,
    pub take: Take,
    pub seed: u64,
    /// INT or INT64, one column; `None` if only the edges are wanted.
    pub columns: Option<&'a Table<'a>>,
    /// `None`: every choice of neighbours is equally likely.
    pub weights: Option<Weights<'a>>,
    /// INT, one more than centers, as `sample_offsets` wrote them for the same neighbours and `take`.
    pub offsets: Address,
    /// The last of the offsets. May be 0.
    pub total: u64,
    /// NULL, or where the offsets are copied to.
    pub offsets_out: Address,
    /// `total` of the dtype of the columns: the neighbours. NULL without columns.
    pub dest: Address,
    /// NULL, or `total` INT: the place of the center in the list of centers.
    pub center_localid: Address,
    /// NULL, or `total` INT64: the edges.
    pub edge_gid: Address,
}

/// The operands of [`GraphKernels::add_self_loops`], all INT.
#[derive(Clone, Copy, Debug)]
pub struct SelfLoops {
    /// `rows` + 1.
    pub row_pointers: Address,
    pub rows: u64,
    /// `edges`.
    pub columns: Address,
    pub edges: u64,
    /// `rows` + 1.
    pub row_pointers_out: Address,
    /// `edges` + `rows`.
    pub columns_out: Address,
}

/// The operations on graphs. Arguments are checked by the callers in `ops`; the kernels check what they find in memory:
/// centers, spans and row pointers. They never read or write beyond what these types state, whatever they find. Work may go on in
/// the stream after the return but where a number is returned. A platform whose operations need memory to work in says
/// how much, and is given it by `launch`.
pub trait GraphKernels: Send + Sync {
    /// Prepares the fetching of row pointers: `ids[2 * i]` = `first` + `centers[i]`, `ids[2 * i + 1]` one more (INT64), -1 both
    /// for centers outside [0, nodes); `spans[2 * i]` = `spans[2 * i + 1]` = -1.
    fn span_ids(
        &self,
        centers: &Indices,
        nodes: u64,
        first: u64,
        ids: Address,
        spans: Address,
        launch: Launch,
    ) -> Result<()>;

    /// `shifted[i] = edges[i] + by` for `count` INT64.
    fn shift(&self, edges: Address, count: u64, by: i64, shifted: Address, launch: Launch) -> Result<()>;

    /// What [`sample_offsets`](GraphKernels::sample_offsets) needs.
    fn sample_offsets_workspace_bytes(&self, _neighbours: &Neighbours<'_>) -> Result<usize> {
        Ok(0)
    }

    /// Counts what is taken from each center: writes the exclusive prefix sums to `offsets` (INT, one more than centers) and
    /// returns their end, which may be more than INT holds (the offsets are then without meaning). `edges` bounds all spans.
    /// Waits for the stream. There is at least one center.
    fn sample_offsets(
        &self,
        neighbours: &Neighbours<'_>,
        edges: u64,
        take: Take,
        offsets: Address,
        launch: Launch,
    ) -> Result<Counted>;

    /// What [`sample`](GraphKernels::sample) needs.
    fn sample_workspace_bytes(&self, _draw: &Draw<'_>) -> Result<usize> {
        Ok(0)
    }

    /// Samples. No center of the draw is bad, and its total is one that INT holds. There is at least one center.
    fn sample(&self, draw: &Draw<'_>, launch: Launch) -> Result<()>;

    /// What [`append_unique_count`](GraphKernels::append_unique_count) and
    /// [`append_unique_write`](GraphKernels::append_unique_write) need together.
    fn append_unique_workspace_bytes(&self, _targets: &Indices, _neighbours: &Indices) -> Result<usize> {
        Ok(0)
    }

    /// How many distinct neighbours are not among the targets. Waits for the stream. Both lists have the same dtype,
    /// either may be empty but not both, and together they have fewer than 2^31 ids; any value is an id.
    fn append_unique_count(&self, targets: &Indices, neighbours: &Indices, launch: Launch) -> Result<u64>;

    /// Writes to `unique` (of the dtype of the lists) the targets as they are, then the `new_ids` that
    /// `append_unique_count` found, in the order of their first occurrence; and to `map`, unless NULL, for every neighbour (INT)
    /// the first position in `unique` that holds it. The workspace is as `append_unique_count` left it.
    fn append_unique_write(
        &self,
        targets: &Indices,
        neighbours: &Indices,
        new_ids: u64,
        unique: Address,
        map: Address,
        launch: Launch,
    ) -> Result<()>;

    /// `row_pointers_out[r] = row_pointers[r] + r`; row r of the output begins with r itself, then its columns in their order.
    /// A row whose pointers are not 0 <= start <= end <= edges gets no columns; a platform that is done on return refuses
    /// it instead (INVALID_VALUE) before it writes anything.
    fn add_self_loops(&self, loops: &SelfLoops, launch: Launch) -> Result<()>;
}

/// The operations of a platform that has none.
pub struct NoGraphs;

macro_rules! not_here {
    () => {
        fail!(NotSupported, "this platform has no kernels for graphs")
    };
}

impl GraphKernels for NoGraphs {
    fn span_ids(&self, _: &Indices, _: u64, _: u64, _: Address, _: Address, _: Launch) -> Result<()> {
        not_here!()
    }

    fn shift(&self, _: Address, _: u64, _: i64, _: Address, _: Launch) -> Result<()> {
        not_here!()
    }

    fn sample_offsets(&self, _: &Neighbours<'_>, _: u64, _: Take, _: Address, _: Launch) -> Result<Counted> {
        not_here!()
    }

    fn sample(&self, _: &Draw<'_>, _: Launch) -> Result<()> {
        not_here!()
    }

    fn append_unique_count(&self, _: &Indices, _: &Indices, _: Launch) -> Result<u64> {
        not_here!()
    }

    fn append_unique_write(
        &self,
        _: &Indices,
        _: &Indices,
        _: u64,
        _: Address,
        _: Address,
        _: Launch,
    ) -> Result<()> {
        not_here!()
    }

    fn add_self_loops(&self, _: &SelfLoops, _: Launch) -> Result<()> {
        not_here!()
    }
}
