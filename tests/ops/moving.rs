//! Rows that arrive.

use crate::grid::{Grid, Ids, describe, encode, value};
use crate::heap::Heap;
use crate::world;
use std::sync::Arc;
use wholegraph::comm::Communicator;
use wholegraph::kinds::{DType, Location, MemoryType};
use wholegraph::memory::{MallocRequest, Memory, Route};
use wholegraph::ops;
use wholegraph::ops::Learner;
use wholegraph::platform::Stream;
use wholegraph::platform::learning::{OptimizerKind, Rule};
use wholegraph::tensor::{Description, Operand, Storage};

pub const TYPES: [MemoryType; 4] = [
    MemoryType::Continuous,
    MemoryType::Chunked,
    MemoryType::Distributed,
    MemoryType::Hierarchy,
];

/// A table of `rows` x `stride` elements on a handle, and the window of it that operations see.
pub struct Table {
    pub memory: Arc<Memory>,
    pub dtype: DType,
    pub rows: i64,
    pub cols: i64,
    pub stride: i64,
    pub col_offset: i64,
}

impl Table {
    /// What changes its rows by SGD without decay.
    pub fn learner(&self, learning_rate: f32) -> Learner<'_> {
        Learner {
            table: &self.memory,
            dtype: self.dtype,
            cols: self.cols as usize,
            stride: self.stride as usize,
            rows: self.rows as u64,
            dealt: None,
            rule: Rule {
                optimizer: OptimizerKind::Sgd,
                adam_w: 0,
                learning_rate,
                weight_decay: 0.0,
                epsilon: 0.0,
                beta1: 0.0,
                beta2: 0.0,
                alpha: 0.0,
            },
            elements: None,
            element_offsets: &[],
            elements_stride: 0,
            powers: None,
            cache: None,
        }
    }

    pub fn new(
        comm: &Arc<Communicator>,
        (memory_type, location): (MemoryType, Location),
        dtype: DType,
        rows: i64,
        (cols, stride, col_offset): (i64, i64, i64),
        partition: Option<&[usize]>,
    ) -> Table {
        let granule_bytes = stride as usize * dtype.size_bytes();
        let request = MallocRequest {
            total_bytes: rows as usize * granule_bytes,
            memory_type: memory_type.raw(),
            location: location.raw(),
            granule_bytes,
            rank_granules: partition.map(<[usize]>::to_vec),
            rmm_enabled: false,
            freed_alone: false,
            described_by: Vec::new(),
        };
        let table = Table {
            memory: Memory::malloc(comm, Ok(request)).unwrap(),
            dtype,
            rows,
            cols,
            stride,
            col_offset,
        };
        table.fill(comm, 0);
        table
    }

    pub fn operand(&self) -> Operand {
        let sizes = [self.rows, self.cols];
        self.described(describe(&sizes, &[self.stride, 1], self.col_offset, self.dtype))
    }

    pub fn described(&self, description: Description) -> Operand {
        Operand {
            description,
            storage: Storage::Memory(self.memory.clone()),
        }
    }

    /// Visits every element of the own partition with its row and its column in the row.
    pub fn visit(&self, mut visit: impl FnMut(i64, i64, &mut [u8])) {
        let span = self.memory.local().unwrap();
        if span.size_bytes == 0 {
            return;
        }
        // SAFETY: the own partition, which no other rank touches between the meetings of a test.
        let bytes = unsafe { std::slice::from_raw_parts_mut(span.address.0 as *mut u8, span.size_bytes) };
        let element_bytes = self.dtype.size_bytes();
        let first = span.offset_bytes / element_bytes;
        for (i, element) in bytes.chunks_exact_mut(element_bytes).enumerate() {
            let i = (first + i) as i64;
            visit(i / self.stride, i % self.stride, element);
        }
    }

    /// Element values of the whole row, padding included; columns are counted in the row.
    pub fn fill(&self, comm: &Arc<Communicator>, salt: i64) {
        self.visit(|row, col, element| element.copy_from_slice(&encode(self.dtype, value(salt, row, col))));
        comm.barrier().unwrap();
    }

    /// Every element of the own partition holds what `want(row, column in the row)` says.
    pub fn assert_local(&self, want: impl Fn(i64, i64) -> i64, about: &str) {
        self.visit(|row, col, element| {
            let wanted = encode(self.dtype, want(row, col));
            assert_eq!(element, wanted, "{about}: row {row} column {col}");
        });
    }
}

/// Ids of one rank: repeated, unordered, some out of range; every third rank has none.
fn ids_of(rank: usize, rows: i64, dtype: DType) -> Vec<i64> {
    if rank % 3 == 1 {
        return Vec::new();
    }
    let (least, most) = match dtype {
        DType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let inside = (0..40).map(|i| (i * 17 + rank as i64 * 5) % (rows + 2) - 1);
    inside.chain([-1, least, most, rows, rows + 1]).collect()
}

pub fn gather_and_check(comm: &Arc<Communicator>, table: &Table, to: DType, index: DType, about: &str) {
    let ids = ids_of(comm.rank(), table.rows, index);
    let cols = table.cols as usize;
    let mut output = Grid::new(to, ids.len(), cols, cols + comm.rank() % 2 * 3, 5);
    let mut want = output.clone();
    for (i, id) in ids
        .iter()
        .enumerate()
        .filter(|(_, id)| (0..table.rows).contains(id))
    {
        want.set(i, |col| value(0, *id, table.col_offset + col));
    }
    let mut indices = Ids::new(index, &ids, 3);
    let heap = Heap::default();
    let (table, indices) = (table.operand(), indices.operand());
    ops::gather(&table, &indices, &output.operand(), &heap, Stream(0), -1).expect(about);
    output.assert_same(&want, about);
}

/// Every rank writes rows that no other rank writes; a third of the rows nobody.
pub fn scatter_and_check(comm: &Arc<Communicator>, table: &Table, from: DType, index: DType, about: &str) {
    let size = comm.size() as i64;
    let writer = |row: i64| if row % 3 == 2 { None } else { Some(row / 3 % size) };
    let ids: Vec<i64> = (-2..table.rows + 2)
        .rev()
        .filter(|row| !(0..table.rows).contains(row) || writer(*row) == Some(comm.rank() as i64))
        .collect();
    let cols = table.cols as usize;
    let mut input = Grid::new(from, ids.len(), cols, cols + 1, 2);
    for (i, id) in ids.iter().enumerate() {
        input.set(i, |col| value(9, *id, col));
    }
    let mut indices = Ids::new(index, &ids, 1);
    let heap = Heap::default();
    // Others may still read what is written now.
    comm.barrier().unwrap();
    ops::scatter(
        &input.operand(),
        &indices.operand(),
        &table.operand(),
        &heap,
        Stream(0),
        -1,
    )
    .expect(about);
    comm.barrier().unwrap();
    let window = table.col_offset..table.col_offset + table.cols;
    table.assert_local(
        |row, col| match writer(row) {
            Some(_) if window.contains(&col) => value(9, row, col - table.col_offset),
            _ => value(0, row, col),
        },
        about,
    );
    comm.barrier().unwrap();
    table.fill(comm, 0);
}

fn kinds_of(comm: &Communicator) -> impl Iterator<Item = (MemoryType, Location)> {
    TYPES
        .into_iter()
        .flat_map(|t| [(t, Location::Device), (t, Location::Host)])
        .filter(|(t, l)| comm.supports(*t, *l).is_ok())
}

fn all_types_and_dtypes(comm: &Arc<Communicator>) {
    use DType::*;
    let cases = [
        (Float, Float, Int64, (32, 32, 0)),
        (Float, Half, Int, (7, 8, 0)),
        (Half, Float, Int, (33, 40, 3)),
        (Double, Bf16, Int64, (1, 1, 0)),
        (Int8, Int64, Int, (127, 128, 1)),
        (Int64, Int16, Int64, (3, 5, 2)),
        (Bf16, Half, Int64, (5, 6, 0)),
        (Int, Int, Int, (1025, 1025, 0)),
    ];
    for kind in kinds_of(comm) {
        for (table_dtype, row_dtype, index, shape) in cases {
            for rows in [57, 3] {
                let about = format!(
                    "{kind:?} {rows} rows {table_dtype} {row_dtype} {index} {shape:?} rank {}",
                    comm.rank()
                );
                let table = Table::new(comm, kind, table_dtype, rows, shape, None);
                gather_and_check(comm, &table, row_dtype, index, &about);
                scatter_and_check(comm, &table, row_dtype, index, &about);
                gather_and_check(comm, &table, table_dtype, index, &about);
                table.memory.free().unwrap();
            }
        }
    }
}

#[test]
fn every_type_location_and_dtype() {
    for size in [1, 4] {
        world::ranks(size, all_types_and_dtypes);
    }
}

fn partitions_and_empty_tables(comm: &Arc<Communicator>) {
    let size = comm.size();
    let uneven: Vec<usize> = (0..size).map(|rank| 1 + rank * 5 % 7 * 3).collect();
    let rows = uneven.iter().sum::<usize>() as i64;
    for kind in kinds_of(comm) {
        let about = format!("{kind:?} uneven");
        let table = Table::new(comm, kind, DType::Float, rows, (4, 4, 0), Some(&uneven));
        gather_and_check(comm, &table, DType::Float, DType::Int, &about);
        scatter_and_check(comm, &table, DType::Float, DType::Int, &about);
        table.memory.free().unwrap();
        for rows in [0, 1] {
            let about = format!("{kind:?} {rows} rows");
            let table = Table::new(comm, kind, DType::Float, rows, (4, 4, 0), None);
            gather_and_check(comm, &table, DType::Float, DType::Int64, &about);
            scatter_and_check(comm, &table, DType::Float, DType::Int64, &about);
            table.memory.free().unwrap();
        }
    }
}

#[test]
fn uneven_partitions_and_tables_without_rows() {
    for size in [1, 3, 4] {
        world::ranks(size, partitions_and_empty_tables);
    }
}

/// A table whose description names fewer rows than the handle holds: the rest must not leak out, nor be written.
fn windows(comm: &Arc<Communicator>) {
    for kind in kinds_of(comm) {
        let whole = Table::new(comm, kind, DType::Float, 24, (4, 4, 0), None);
        let part = Table {
            rows: 10,
            memory: whole.memory.clone(),
            ..whole
        };
        let about = format!("{kind:?} rows 0 to 10");
        gather_and_check(comm, &part, DType::Float, DType::Int, &about);
        let mut beyond = Ids::new(DType::Int64, &[9, 10, 11, 23, 24], 0);
        let mut input = Grid::new(DType::Float, 5, 4, 4, 0);
        (0..5).for_each(|row| input.set(row, |_| 55));
        let heap = Heap::default();
        comm.barrier().unwrap();
        ops::scatter(
            &input.operand(),
            &beyond.operand(),
            &part.operand(),
            &heap,
            Stream(0),
            -1,
        )
        .unwrap();
        comm.barrier().unwrap();
        part.assert_local(|row, col| if row == 9 { 55 } else { value(0, row, col) }, &about);
        comm.barrier().unwrap();
        part.fill(comm, 0);

        // Rows 7 to 20 as a table of their own; memory whose ranks are apart refuses it.
        let mapped = matches!(kind.0, MemoryType::Continuous | MemoryType::Chunked);
        let window = whole.described(describe(&[13, 4], &[4, 1], 7 * 4, DType::Float));
        let mut ids = Ids::new(DType::Int, &[0, 12, 13, 5, -1], 0);
        let mut output = Grid::new(DType::Float, 5, 4, 4, 0);
        let mut want = output.clone();
        let gathered = ops::gather(&window, &ids.operand(), &output.operand(), &heap, Stream(0), -1);
        assert_eq!(gathered.is_ok(), mapped, "{kind:?}");
        if mapped {
            for (i, row) in [(0, 7), (1, 19), (3, 12)] {
                want.set(i, |col| value(0, row, col));
            }
        }
        output.assert_same(&want, &format!("{kind:?} rows 7 to 20"));
        comm.barrier().unwrap();
        whole.memory.free().unwrap();
    }
}

#[test]
fn windows_of_tables() {
    world::ranks(3, windows);
}

/// One-dimensional tables take [n] and [n, 1] outputs; indices may lie on a CONTINUOUS handle.
fn vectors(comm: &Arc<Communicator>) {
    for kind in kinds_of(comm) {
        let table = Table::new(comm, kind, DType::Int64, 20, (1, 1, 0), None);
        let flat = table.described(describe(&[20], &[1], 0, DType::Int64));
        let mut ids = Ids::new(DType::Int, &[19, 0, 20, 7], 0);
        let mut output = Grid::new(DType::Int64, 4, 1, 1, 0);
        let mut want = output.clone();
        for (i, row) in [(0, 19), (1, 0), (3, 7)] {
            want.set(i, |_| value(0, row, 0));
        }
        let heap = Heap::default();
        let mut one_dimensional = output.operand();
        one_dimensional.description.dim = 1;
        ops::gather(&flat, &ids.operand(), &one_dimensional, &heap, Stream(0), -1).unwrap();
        output.assert_same(&want, "[n]");
        ops::gather(&flat, &ids.operand(), &output.operand(), &heap, Stream(0), -1).unwrap();
        output.assert_same(&want, "[n, 1]");
        // The table's own first values are row numbers again.
        if kind.0 == MemoryType::Continuous {
            let indices = table.described(describe(&[4], &[1], 3, DType::Int64));
            let mut want = Grid::new(DType::Int64, 4, 1, 1, 0);
            for i in 0..4 {
                let id = value(0, 3 + i as i64, 0);
                if id < 20 {
                    want.set(i, |_| value(0, id, 0));
                }
            }
            let mut output = Grid::new(DType::Int64, 4, 1, 1, 0);
            ops::gather(&flat, &indices, &output.operand(), &heap, Stream(0), -1).unwrap();
            output.assert_same(&want, "indices on a handle");
        }
        comm.barrier().unwrap();
        table.memory.free().unwrap();
    }
}

#[test]
fn one_dimensional_tables() {
    world::ranks(2, vectors);
}

/// Ranks that ask for different windows, by different index types, into different dtypes, in one call.
fn mixed(comm: &Arc<Communicator>) {
    for kind in kinds_of(comm) {
        let mut table = Table::new(comm, kind, DType::Float, 31, (8, 8, 0), None);
        let rank = comm.rank();
        (table.col_offset, table.cols) = (rank as i64 % 3, 8 - rank as i64 % 3);
        let to = [DType::Float, DType::Half, DType::Double][rank % 3];
        let index = [DType::Int, DType::Int64][rank / 2 % 2];
        gather_and_check(comm, &table, to, index, "mixed");
        (table.col_offset, table.cols) = (2, 3);
        scatter_and_check(comm, &table, to, index, "mixed");
        comm.barrier().unwrap();
        table.memory.free().unwrap();
    }
}

#[test]
fn ranks_may_ask_differently() {
    world::ranks(4, mixed);
}

#[test]
fn plain_tables_need_no_communicator() {
    let mut table = Grid::new(DType::Float, 9, 3, 4, 2);
    (0..9).for_each(|row| table.set(row, |col| value(1, row as i64, col)));
    let mut ids = Ids::new(DType::Int64, &[8, -3, 0, 9, 4], 2);
    let mut output = Grid::new(DType::Double, 5, 3, 3, 0);
    let mut want = output.clone();
    for (i, row) in [(0, 8), (2, 0), (4, 4)] {
        want.set(i, |col| value(1, row, col));
    }
    let heap = Heap::default();
    ops::gather(
        &table.operand(),
        &ids.operand(),
        &output.operand(),
        &heap,
        Stream(0),
        3,
    )
    .unwrap();
    output.assert_same(&want, "plain gather");

    let mut written = table.clone();
    for (row, _) in [(8, 0), (0, 2), (4, 4)] {
        written.set(row, |col| value(2, row as i64, col));
    }
    for (i, row) in [(0, 8), (2, 0), (4, 4)] {
        output.set(i, |col| value(2, row, col));
    }
    ops::scatter(
        &output.operand(),
        &ids.operand(),
        &table.operand(),
        &heap,
        Stream(0),
        -1,
    )
    .unwrap();
    table.assert_same(&written, "plain scatter");
    assert_eq!(heap.calls.get(), 0);
}

#[test]
#[ignore = "run as ranks by over_nodes_of_different_shapes"]
fn over_nodes_rank() {
    world::as_process(|comm| {
        if comm.supports(MemoryType::Hierarchy, Location::Host).is_ok() {
            let kind = (MemoryType::Hierarchy, Location::Host);
            let table = Table::new(comm, kind, DType::Int, 5, (1, 1, 0), None);
            assert_eq!(table.memory.route(), Route::Hierarchy);
            table.memory.free().unwrap();
        }
        all_types_and_dtypes(comm);
        partitions_and_empty_tables(comm);
        windows(comm);
        mixed(comm);
    });
}
