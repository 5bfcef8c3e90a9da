//! The loops against one thread that follows the definitions to the letter.

mod choices;
mod lists;
mod reference;

use super::*;
use crate::kinds::DType;
use crate::platform::graph::Weights;
use crate::platform::{Places, Table};

/// Values of either width, as the operations take them.
pub enum Integers {
    Wide(Vec<i64>),
    Narrow(Vec<i32>),
}

impl Integers {
    pub fn new(values: &[i64], wide: bool) -> Integers {
        match wide {
            true => Integers::Wide(values.to_vec()),
            false => Integers::Narrow(values.iter().map(|value| *value as i32).collect()),
        }
    }

    pub fn dtype(&self) -> DType {
        match self {
            Integers::Wide(_) => DType::Int64,
            Integers::Narrow(_) => DType::Int,
        }
    }

    pub fn address(&self) -> Address {
        match self {
            Integers::Wide(v) => address_of(v),
            Integers::Narrow(v) => address_of(v),
        }
    }

    pub fn values(&self) -> Vec<i64> {
        match self {
            Integers::Wide(v) => v.clone(),
            Integers::Narrow(v) => v.iter().map(|value| i64::from(*value)).collect(),
        }
    }

    pub fn indices(&self) -> Indices {
        Indices {
            address: self.address(),
            dtype: self.dtype(),
            count: self.values().len(),
        }
    }

    pub fn table(&self) -> Table<'static> {
        flat(self.address(), self.dtype(), self.values().len())
    }
}

pub fn address_of<T>(values: &[T]) -> Address {
    Address(values.as_ptr() as usize)
}

pub fn flat(address: Address, dtype: DType, rows: usize) -> Table<'static> {
    Table {
        places: Places::Flat(address),
        offset_bytes: 0,
        row_stride_bytes: dtype.size_bytes(),
        rows: rows as u64,
        cols: 1,
        dtype,
    }
}

/// A graph in plain memory; weights are given as doubles and stored as either type.
pub struct Graph {
    pub row_pointers: Vec<i64>,
    pub columns: Integers,
    pub floats: Vec<f32>,
    pub doubles: Vec<f64>,
}

impl Graph {
    /// Node v has `degrees[v]` neighbours; edge e leads to 1000 + 7 * e, beyond 32 bits where columns are wide.
    pub fn new(degrees: &[u64], wide: bool, weight: impl Fn(usize) -> f64) -> Graph {
        let mut row_pointers = vec![0i64];
        for degree in degrees {
            row_pointers.push(row_pointers.last().unwrap() + *degree as i64);
        }
        let edges = *row_pointers.last().unwrap() as usize;
        let base = if wide { 1i64 << 40 } else { 1000 };
        let columns: Vec<i64> = (0..edges as i64).map(|e| base + 7 * e).collect();
        let doubles: Vec<f64> = (0..edges).map(weight).collect();
        Graph {
            row_pointers,
            columns: Integers::new(&columns, wide),
            floats: doubles.iter().map(|w| *w as f32).collect(),
            doubles,
        }
    }

    pub fn edges(&self) -> u64 {
        self.doubles.len() as u64
    }

    pub fn degree(&self, node: i64) -> u64 {
        (self.row_pointers[node as usize + 1] - self.row_pointers[node as usize]) as u64
    }
}

/// What a sampling gives.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Sampled {
    pub offsets: Vec<i32>,
    pub dest: Vec<i64>,
    pub center_localid: Vec<i32>,
    pub edge_gid: Vec<i64>,
}

/// Which weights a sampling goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Chance,
    Floats,
    Doubles,
    /// Fetched, as doubles.
    Fetched,
}

pub fn sample(graph: &Graph, centers: &Integers, take: Take, seed: u64, by: By) -> Sampled {
    let row_pointers = flat(
        address_of(&graph.row_pointers),
        DType::Int64,
        graph.row_pointers.len(),
    );
    let columns = graph.columns.table();
    let indices = centers.indices();
    let neighbours = Neighbours::Graph {
        row_pointers: &row_pointers,
        centers: &indices,
    };
    let count = |take| {
        let offsets = vec![-7i32; indices.count + 1];
        let counted = CpuPlatform
            .sample_offsets(
                &neighbours,
                graph.edges(),
                take,
                address_of(&offsets),
                Launch::default(),
            )
            .unwrap();
        assert_eq!(counted.bad, None);
        assert_eq!(counted.total, offsets[indices.count] as u64);
        (offsets, counted.total as usize)
    };
    let (offsets, total) = count(take);
    let draw = Draw {
        neighbours,
        take,
        seed,
        columns: None,
        weights: None,
        offsets: address_of(&offsets),
        total: total as u64,
        offsets_out: Address::NULL,
        dest: Address::NULL,
        center_localid: Address::NULL,
        edge_gid: Address::NULL,
    };
    let floats = flat(address_of(&graph.floats), DType::Float, graph.floats.len());
    let doubles = flat(address_of(&graph.doubles), DType::Double, graph.doubles.len());
    let fetched = match take {
        Take::AtMost(most) if by == By::Fetched => {
            let (starts, all) = count(Take::AllAbove(most));
            let edges = vec![-1i64; all];
            let ask = Draw {
                take: Take::AllAbove(most),
                offsets: address_of(&starts),
                total: all as u64,
                edge_gid: address_of(&edges),
                ..draw
            };
            CpuPlatform.sample(&ask, Launch::default()).unwrap();
            let values: Vec<f64> = edges.iter().map(|e| graph.doubles[*e as usize]).collect();
            (starts, values)
        }
        _ => (vec![], vec![]),
    };
    let weights = match by {
        By::Chance => None,
        By::Floats => Some(Weights::Mapped(&floats)),
        By::Doubles => Some(Weights::Mapped(&doubles)),
        By::Fetched => Some(Weights::Fetched {
            values: address_of(&fetched.1),
            dtype: DType::Double,
            offsets: address_of(&fetched.0),
        }),
    };
    let out = vec![-7i32; indices.count + 1];
    let dest = Integers::new(&vec![-7; total], graph.columns.dtype() == DType::Int64);
    let (localid, gid) = (vec![-7i32; total], vec![-7i64; total]);
    let whole = Draw {
        columns: Some(&columns),
        weights,
        offsets_out: address_of(&out),
        dest: dest.address(),
        center_localid: address_of(&localid),
        edge_gid: address_of(&gid),
        ..draw
    };
    CpuPlatform.sample(&whole, Launch::default()).unwrap();
    assert_eq!(out, offsets);
    Sampled {
        offsets: std::hint::black_box(out),
        dest: dest.values(),
        center_localid: std::hint::black_box(localid),
        edge_gid: std::hint::black_box(gid),
    }
}
