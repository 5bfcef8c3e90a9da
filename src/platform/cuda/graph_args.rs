//! What the kernels on graphs are given: the argument structs of kernels/args_graph.h, made from what the callers pass. Pure.

use super::launch::{TableArgs, first_base, table_args};
use crate::error::{Result, ensure};
use crate::kinds::DType;
use crate::platform::graph::{Draw, Neighbours, SelfLoops, Take, Weights};
use crate::platform::{Indices, Table};
use crate::span::Address;
use std::ptr::null_mut;

/// Centers and ids are counted in 31 bits.
const MOST_COUNTED: u64 = i32::MAX as u64 - 1;

/// `wmk_neighbours`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighboursArgs {
    pub row_pointers: TableArgs,
    pub centers: Address,
    pub spans: Address,
    pub count: u64,
    pub center_bytes: u32,
    pub reserved: u32,
}

/// `wmk_take_kind`.
const TAKE_ALL: u32 = 0;
const TAKE_AT_MOST: u32 = 1;
const TAKE_ALL_ABOVE: u32 = 2;

/// `wmk_take`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeArgs {
    pub kind: u32,
    pub most: u32,
}

/// `wmk_span_ids_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIdsArgs {
    pub centers: Address,
    pub count: u64,
    pub nodes: u64,
    pub first: u64,
    pub ids: Address,
    pub spans: Address,
    pub center_bytes: u32,
    pub reserved: u32,
}

/// `wmk_shift_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftArgs {
    pub edges: Address,
    pub count: u64,
    pub by: i64,
    pub shifted: Address,
}

/// The words of `wmk_counted`: the total, the bad position (all bits set: none), its start and its end.
pub const COUNTED_WORDS: usize = 4;

/// `wmk_sample_offsets_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOffsetsArgs {
    pub neighbours: NeighboursArgs,
    pub edges: u64,
    pub take: TakeArgs,
    pub offsets: Address,
    pub counted: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
}

/// `wmk_sample_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleArgs {
    pub neighbours: NeighboursArgs,
    pub columns: TableArgs,
    pub weights: TableArgs,
    pub fetched_weights: Address,
    pub fetched_offsets: Address,
    pub seed: u64,
    pub take: TakeArgs,
    pub offsets: Address,
    pub total: u64,
    pub offsets_out: Address,
    pub dest: Address,
    pub positions: Address,
    pub edges: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub column_bytes: u32,
    pub weight_dtype: u32,
}

/// `wmk_append_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendArgs {
    pub targets: Address,
    pub target_count: u64,
    pub neighbours: Address,
    pub neighbour_count: u64,
    pub new_ids: Address,
    pub unique: Address,
    pub map: Address,
    pub scratch: Address,
    pub scratch_bytes: u64,
    pub needed_bytes: *mut u64,
    pub id_bytes: u32,
    pub reserved: u32,
}

/// `wmk_self_loops_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfLoopsArgs {
    pub row_pointers: Address,
    pub rows: u64,
    pub columns: Address,
    pub edges: u64,
    pub row_pointers_out: Address,
    pub columns_out: Address,
}

const NO_TABLE: TableArgs = TableArgs {
    bases: std::ptr::null(),
    start_rows: std::ptr::null(),
    places: 0,
    offset_bytes: 0,
    stride_bytes: 0,
    rows: 0,
};

/// The one base of a table that is flat, for as long as its arguments are used.
pub fn base_of(table: Option<&Table<'_>>) -> Address {
    table.map_or(Address::NULL, |table| first_base(&table.places))
}

pub fn row_pointers_of<'a>(neighbours: &Neighbours<'a>) -> Option<&'a Table<'a>> {
    match neighbours {
        Neighbours::Graph { row_pointers, .. } => Some(row_pointers),
        Neighbours::Spans { .. } => None,
    }
}

pub fn weights_of<'a>(draw: &Draw<'a>) -> Option<&'a Table<'a>> {
    match draw.weights {
        Some(Weights::Mapped(table)) => Some(table),
        _ => None,
    }
}

/// `base` as [`base_of`] the row pointers has it.
/// # Errors
/// NOT_SUPPORTED beyond what a kernel takes.
pub fn neighbours_args(neighbours: &Neighbours<'_>, base: &Address) -> Result<NeighboursArgs> {
    let count = neighbours.count() as u64;
    ensure!(
        (1..=MOST_COUNTED).contains(&count),
        NotSupported,
        "neighbours of {count} centers; the kernels for GPUs take 1 to {MOST_COUNTED}"
    );
    Ok(match *neighbours {
        Neighbours::Graph {
            row_pointers,
            centers,
        } => NeighboursArgs {
            row_pointers: table_args(row_pointers, base)?,
            centers: centers.address,
            spans: Address::NULL,
            count,
            center_bytes: centers.dtype.size_bytes() as u32,
            reserved: 0,
        },
        Neighbours::Spans { spans, .. } => NeighboursArgs {
            row_pointers: NO_TABLE,
            centers: Address::NULL,
            spans,
            count,
            center_bytes: 8,
            reserved: 0,
        },
    })
}

pub fn take_args(take: Take) -> TakeArgs {
    let (kind, most) = match take {
        Take::All => (TAKE_ALL, 0),
        Take::AtMost(most) => (TAKE_AT_MOST, most),
        Take::AllAbove(bound) => (TAKE_ALL_ABOVE, bound),
    };
    TakeArgs { kind, most }
}

/// The bases of the tables of a draw that are flat, for as long as its arguments are used.
pub struct Bases {
    row_pointers: Address,
    columns: Address,
    weights: Address,
}

impl Bases {
    pub fn of(draw: &Draw<'_>) -> Bases {
        Bases {
            row_pointers: base_of(row_pointers_of(&draw.neighbours)),
            columns: base_of(draw.columns),
            weights: base_of(weights_of(draw)),
        }
    }
}

/// Everything but the scratch.
/// # Errors
/// NOT_SUPPORTED beyond what a kernel takes.
pub fn sample_args(draw: &Draw<'_>, bases: &Bases) -> Result<SampleArgs> {
    let table = |table: Option<&Table<'_>>, base| table.map_or(Ok(NO_TABLE), |table| table_args(table, base));
    let (fetched_weights, fetched_offsets, weight_dtype) = match draw.weights {
        None => (Address::NULL, Address::NULL, 0),
        Some(Weights::Mapped(table)) => (Address::NULL, Address::NULL, table.dtype.raw()),
        Some(Weights::Fetched {
            values,
            dtype,
            offsets,
        }) => (values, offsets, dtype.raw()),
    };
    Ok(SampleArgs {
        neighbours: neighbours_args(&draw.neighbours, &bases.row_pointers)?,
        columns: table(draw.columns, &bases.columns)?,
        weights: table(weights_of(draw), &bases.weights)?,
        fetched_weights,
        fetched_offsets,
        seed: draw.seed,
        take: take_args(draw.take),
        offsets: draw.offsets,
        total: draw.total,
        offsets_out: draw.offsets_out,
        dest: draw.dest,
        positions: draw.center_localid,
        edges: draw.edge_gid,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
        column_bytes: draw.columns.map_or(8, |table| table.dtype.size_bytes() as u32),
        weight_dtype,
    })
}

/// Everything but the scratch and where the results go.
/// # Errors
/// LOGIC_ERROR for lists of different types, NOT_SUPPORTED beyond what a kernel takes.
pub fn append_args(targets: &Indices, neighbours: &Indices) -> Result<AppendArgs> {
    let wide = |list: &Indices| list.dtype == DType::Int64;
    ensure!(
        wide(targets) == wide(neighbours),
        Logic,
        "cannot append ids of {} to ids of {}",
        neighbours.dtype,
        targets.dtype
    );
    let count = targets.count as u64 + neighbours.count as u64;
    ensure!(
        (1..=MOST_COUNTED).contains(&count),
        NotSupported,
        "{} targets and {} neighbours; the kernels for GPUs take 1 to {MOST_COUNTED} together",
        targets.count,
        neighbours.count
    );
    Ok(AppendArgs {
        targets: targets.address,
        target_count: targets.count as u64,
        neighbours: neighbours.address,
        neighbour_count: neighbours.count as u64,
        new_ids: Address::NULL,
        unique: Address::NULL,
        map: Address::NULL,
        scratch: Address::NULL,
        scratch_bytes: 0,
        needed_bytes: null_mut(),
        id_bytes: targets.dtype.size_bytes() as u32,
        reserved: 0,
    })
}

pub fn self_loops_args(loops: &SelfLoops) -> SelfLoopsArgs {
    SelfLoopsArgs {
        row_pointers: loops.row_pointers,
        rows: loops.rows,
        columns: loops.columns,
        edges: loops.edges,
        row_pointers_out: loops.row_pointers_out,
        columns_out: loops.columns_out,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layouts::{assert_layouts, layouts};
    use super::*;
    use crate::error::Kind;
    use crate::platform::Places;

    const BASE: Address = Address(0x1000);

    fn table(rows: u64, dtype: DType) -> Table<'static> {
        Table {
            places: Places::Flat(BASE),
            offset_bytes: 0,
            row_stride_bytes: dtype.size_bytes(),
            rows,
            cols: 1,
            dtype,
        }
    }

    fn list(dtype: DType, count: usize) -> Indices {
        Indices {
            address: Address(0x3000),
            dtype,
            count,
        }
    }

    fn draw<'a>(
        neighbours: Neighbours<'a>,
        columns: Option<&'a Table<'a>>,
        weights: Option<Weights<'a>>,
    ) -> Draw<'a> {
        Draw {
            neighbours,
            take: Take::AtMost(10),
            seed: 42,
            columns,
            weights,
            offsets: Address(0x5000),
            total: 70,
            offsets_out: Address(0x6000),
            dest: Address(0x7000),
            center_localid: Address(0x8000),
            edge_gid: Address(0x9000),
        }
    }

    #[test]
    fn arguments_are_those_of_the_call() {
        let (rows, columns, weights) = (
            table(101, DType::Int64),
            table(500, DType::Int),
            table(500, DType::Double),
        );
        let centers = list(DType::Int, 7);
        let graph = Neighbours::Graph {
            row_pointers: &rows,
            centers: &centers,
        };
        let call = draw(graph, Some(&columns), Some(Weights::Mapped(&weights)));
        let bases = Bases::of(&call);
        let args = sample_args(&call, &bases).unwrap();
        assert_eq!(
            args.neighbours.row_pointers,
            table_args(&rows, &bases.row_pointers).unwrap()
        );
        assert_eq!(args.columns, table_args(&columns, &bases.columns).unwrap());
        assert_eq!(args.weights, table_args(&weights, &bases.weights).unwrap());
        assert_eq!(
            (bases.row_pointers, bases.columns, bases.weights),
            (BASE, BASE, BASE)
        );
        let neighbours = args.neighbours;
        assert_eq!(
            (
                neighbours.centers,
                neighbours.spans,
                neighbours.count,
                neighbours.center_bytes
            ),
            (Address(0x3000), Address::NULL, 7, 4)
        );
        assert_eq!(
            (args.column_bytes, args.weight_dtype, args.seed, args.total),
            (4, 3, 42, 70)
        );
        assert_eq!(
            (args.fetched_weights, args.fetched_offsets),
            (Address::NULL, Address::NULL)
        );
        assert_eq!(
            (
                args.offsets,
                args.offsets_out,
                args.dest,
                args.positions,
                args.edges
            ),
            (
                Address(0x5000),
                Address(0x6000),
                Address(0x7000),
                Address(0x8000),
                Address(0x9000)
            )
        );
        let spans = Neighbours::Spans {
            spans: Address(0x2000),
            count: 9,
        };
        let fetched = Weights::Fetched {
            values: Address(0xa000),
            dtype: DType::Float,
            offsets: Address(0xb000),
        };
        let call = draw(spans, None, Some(fetched));
        let args = sample_args(&call, &Bases::of(&call)).unwrap();
        assert_eq!(
            (args.neighbours.row_pointers, args.columns, args.weights),
            (NO_TABLE, NO_TABLE, NO_TABLE)
        );
        assert_eq!(
            (args.neighbours.spans, args.neighbours.count),
            (Address(0x2000), 9)
        );
        assert_eq!(
            (args.fetched_weights, args.fetched_offsets, args.weight_dtype),
            (Address(0xa000), Address(0xb000), 1)
        );
        let takes =
            [Take::All, Take::AtMost(3), Take::AllAbove(4)].map(|t| (take_args(t).kind, take_args(t).most));
        assert_eq!(takes, [(0, 0), (1, 3), (2, 4)]);
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let many = |count| neighbours_args(&Neighbours::Spans { spans: BASE, count }, &BASE);
        assert_eq!(many(0).unwrap_err().kind, Kind::NotSupported);
        assert_eq!(many(i32::MAX as usize).unwrap_err().kind, Kind::NotSupported);
        many(i32::MAX as usize - 1).unwrap();
        let append = |a, b| append_args(&list(DType::Int, a), &list(DType::Int, b)).map(|_| ());
        assert_eq!(append(0, 0).unwrap_err().kind, Kind::NotSupported);
        assert_eq!(append(1 << 30, 1 << 30).unwrap_err().kind, Kind::NotSupported);
        append(1 << 30, (1 << 30) - 2).unwrap();
        append(0, 1).unwrap();
        let mixed = append_args(&list(DType::Int, 1), &list(DType::Int64, 1));
        assert_eq!(mixed.unwrap_err().kind, Kind::Logic);
    }

    /// The structs of kernels/args_graph.h, as a C++ compiler lays them out, are those of this file.
    #[test]
    fn layouts_are_those_of_the_header() {
        let structs = layouts! {
            NeighboursArgs = "wmk_neighbours" { row_pointers, centers, spans, count, center_bytes, reserved }
            TakeArgs = "wmk_take" { kind, most }
            SpanIdsArgs = "wmk_span_ids_args" { centers, count, nodes, first, ids, spans, center_bytes, reserved }
            ShiftArgs = "wmk_shift_args" { edges, count, by, shifted }
            SampleOffsetsArgs = "wmk_sample_offsets_args" {
                neighbours, edges, take, offsets, counted, scratch, scratch_bytes, needed_bytes
            }
            SampleArgs = "wmk_sample_args" {
                neighbours, columns, weights, fetched_weights, fetched_offsets, seed, take, offsets, total, offsets_out, dest,
                positions, edges, scratch, scratch_bytes, needed_bytes, column_bytes, weight_dtype
            }
            AppendArgs = "wmk_append_args" {
                targets, target_count, neighbours, neighbour_count, new_ids, unique, map, scratch, scratch_bytes,
                needed_bytes, id_bytes, reserved
            }
            SelfLoopsArgs = "wmk_self_loops_args" { row_pointers, rows, columns, edges, row_pointers_out, columns_out }
        };
        let constants = [
            format!("sizeof(wmk_counted) == 8 * {COUNTED_WORDS} && offsetof(wmk_counted, bad_position) == 8"),
            "offsetof(wmk_counted, bad_start) == 16 && offsetof(wmk_counted, bad_end) == 24".to_string(),
            format!("WMK_TAKE_ALL == {TAKE_ALL} && WMK_TAKE_AT_MOST == {TAKE_AT_MOST}"),
            format!("WMK_TAKE_ALL_ABOVE == {TAKE_ALL_ABOVE}"),
        ];
        assert_layouts(&["args.h"], &structs, &constants);
    }
}
