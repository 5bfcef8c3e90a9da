//! The parts of a graph as kernels see them, and the plain operands of a call.

use super::Sampling;
use crate::error::{Result, ensure};
use crate::kinds::DType;
use crate::memory::MappedBases;
use crate::ops::operand::Data;
use crate::ops::plan::{Holder, Placement, place};
use crate::ops::route::holder;
use crate::platform::{Indices, Platform, Table};
use crate::span::Address;
use crate::tensor::{Matrix, Operand, Storage};

/// An array of the graph that this rank reads where it is.
pub struct Located {
    placement: Placement,
    bases: Vec<Address>,
    /// Elements: those of the description that its memory holds.
    pub size: u64,
    pub dtype: DType,
    _lease: Option<MappedBases>,
}

impl Located {
    /// # Errors
    /// INVALID_INPUT for sizes and offsets below 0, for memory that was freed or cannot be reached.
    fn new(name: &str, operand: &Operand, platform: &dyn Platform) -> Result<Located> {
        let matrix = as_column(name, operand)?;
        let (held, lease) = match &operand.storage {
            Storage::Memory(memory) => {
                let lease = memory.mapped_bases()?;
                (holder(memory, &lease), Some(lease))
            }
            Storage::Pointer(address) => (Holder::Pointer(*address), None),
        };
        let (placement, size, stride_bytes) =
            place(held, &matrix, &|address| platform.can_reach(address)).map_err(|e| e.within(name))?;
        let bases = lease
            .as_ref()
            .map_or_else(Vec::new, |partitions| placement.bases(partitions, stride_bytes));
        Ok(Located {
            placement,
            bases,
            size,
            dtype: matrix.dtype,
            _lease: lease,
        })
    }

    pub fn table(&self) -> Table<'_> {
        let (places, offset_bytes) = self.placement.places(&self.bases);
        Table {
            places,
            offset_bytes,
            row_stride_bytes: self.dtype.size_bytes(),
            rows: self.size,
            cols: 1,
            dtype: self.dtype,
        }
    }
}

/// A checked array as a matrix of one column.
/// # Errors
/// INVALID_INPUT for a size below 0.
pub fn as_column(name: &str, operand: &Operand) -> Result<Matrix> {
    let array = crate::ops::arrays::as_array(name, &operand.description)?;
    ensure!(
        array.size >= 0 && array.storage_offset >= 0,
        InvalidInput,
        "{name} has size {} and storage offset {}; neither may be negative",
        array.size,
        array.storage_offset
    );
    Ok(Matrix {
        rows: array.size,
        cols: 1,
        stride: 1,
        storage_offset: array.storage_offset,
        dtype: array.dtype,
    })
}

/// A graph that this rank reads where it is.
pub struct Graph {
    pub row_pointers: Located,
    pub columns: Located,
    pub weights: Option<Located>,
}

pub const ROW_POINTERS: &str = "the row pointer tensor";
pub const COLUMNS: &str = "the column tensor";
pub const WEIGHTS: &str = "the weight tensor";

impl Graph {
    /// # Errors
    /// INVALID_INPUT for parts that cannot be reached, and for fewer weights than columns.
    pub fn of(sampling: &Sampling, platform: &dyn Platform) -> Result<Graph> {
        let graph = Graph {
            row_pointers: Located::new(ROW_POINTERS, &sampling.row_pointers, platform)?,
            columns: Located::new(COLUMNS, &sampling.columns, platform)?,
            weights: match &sampling.weights {
                Some(weights) => Some(Located::new(WEIGHTS, weights, platform)?),
                None => None,
            },
        };
        if let Some(weights) = &graph.weights {
            check_weights(weights.size, graph.columns.size)?;
        }
        Ok(graph)
    }
}

/// # Errors
/// INVALID_INPUT for fewer weights than columns.
pub fn check_weights(weights: u64, columns: u64) -> Result<()> {
    ensure!(
        weights >= columns,
        InvalidInput,
        "the weight tensor has {weights} weights for {columns} columns; every column needs one"
    );
    Ok(())
}

/// The operands of a call that lie in plain memory.
pub struct Plain {
    pub centers: Indices,
    /// INT, one more than centers.
    pub offsets: Address,
}

impl Plain {
    /// # Errors
    /// INVALID_INPUT for data that cannot be reached and offsets that are too few, LOGIC_ERROR for data that is not aligned,
    /// INVALID_VALUE for more centers than INT can number.
    pub fn of(sampling: &Sampling, platform: &dyn Platform) -> Result<Plain> {
        let centers = as_column("the center tensor", &sampling.centers)?;
        let offsets = as_column("the offset tensor", &sampling.offsets)?;
        ensure!(
            offsets.rows > centers.rows,
            InvalidInput,
            "the offset tensor has {} elements for {} centers; it needs one more than there are centers",
            offsets.rows,
            centers.rows
        );
        ensure!(
            centers.rows < i64::from(i32::MAX),
            InvalidValue,
            "{} centers are more than INT can number",
            centers.rows
        );
        let first = |name: &str, operand: &Operand, matrix: &Matrix, count: i64| {
            let bytes = i128::from(count) * matrix.dtype.size_bytes() as i128;
            Data::of(operand, name)?.first(name, matrix.dtype, matrix.storage_offset, bytes, &|address| {
                platform.can_reach(address)
            })
        };
        Data::written(&sampling.offsets, "the offset tensor")?;
        let address = match centers.rows {
            0 => Address::NULL,
            count => first("the center tensor", &sampling.centers, &centers, count)?,
        };
        Ok(Plain {
            centers: Indices {
                address,
                dtype: centers.dtype,
                count: centers.rows as usize,
            },
            offsets: first("the offset tensor", &sampling.offsets, &offsets, centers.rows + 1)?,
        })
    }
}
