//! What a gather or a scatter is asked to do: every check of the arguments, in the order that decides which code a caller
//! sees, and the geometry that all routes work from. Pure.

use super::operand::Data;
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{DType, MemoryType};
use crate::memory::Partition;
use crate::platform::{Indices, Places, Rows, Table};
use crate::span::Address;
use crate::tensor::{Description, Matrix};
use std::fmt;

/// Which way the rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the table to plain rows, the output.
    Gather,
    /// From plain rows, the input, to the table.
    Scatter,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Gather => "gather",
            Operation::Scatter => "scatter",
        }
    }

    pub fn rows_name(self) -> &'static str {
        match self {
            Operation::Gather => "output",
            Operation::Scatter => "input",
        }
    }
}

/// What a table lies on.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'a> {
    /// The caller's storage pointer.
    Pointer(Address),
    /// A handle; `flat` is the base of the one range over all partitions, where there is one, and `alone` that of the only rank's
    /// partition, where there is only one rank and its rows need not be exchanged.
    Handle {
        memory_type: MemoryType,
        partition: &'a Partition,
        flat: Option<Address>,
        alone: Option<Address>,
    },
}

/// The arguments of one call, resolved to facts.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub operation: Operation,
    pub table: &'a Description,
    pub holder: Holder<'a>,
    pub indices: &'a Description,
    pub indices_data: Data,
    pub rows: &'a Description,
    pub rows_data: Data,
    pub sms: i32,
    pub can_reach: &'a dyn Fn(Address) -> bool,
}

/// Where the rows of the table's window are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Row 0 begins here, the storage offset included.
    Flat(Address),
    /// A range a rank.
    Ranks {
        /// World size + 1 row numbers of the window, ascending from 0 to the number of rows.
        start_rows: Vec<u64>,
        /// Whole rows of the handle before the window.
        first_row: u64,
        /// Rows of the handle before each partition.
        partition_rows: Vec<u64>,
        /// Column window.
        offset_bytes: usize,
    },
}

/// A checked call with something to move.
#[derive(Clone, Debug)]
pub struct Plan {
    pub operation: Operation,
    pub placement: Placement,
    /// Rows that ids may name: never more than the handle holds.
    pub table_rows: u64,
    pub cols: usize,
    pub table_row_stride_bytes: usize,
    pub table_dtype: DType,
    pub indices: Indices,
    pub rows: Rows,
    /// Launch width; `None` is automatic.
    pub sms: Option<u32>,
}

/// Bytes from the first element of row 0 to the last of row `rows - 1`.
fn span_bytes(rows: i64, matrix: &Matrix) -> i128 {
    let elements = i128::from(rows - 1) * i128::from(matrix.stride) + i128::from(matrix.cols);
    elements.saturating_mul(matrix.dtype.size_bytes() as i128)
}

/// `None` where last stride or dtype forbid a matrix.
fn dense_matrix(description: &Description) -> Option<Matrix> {
    if description.dim == 1 && description.strides[0] != 1 {
        return None;
    }
    description.to_matrix()
}

/// The sentence for a description that is no array or matrix.
fn not_dense(name: &str, description: &Description) -> String {
    let last = (description.dim - 1).clamp(0, 7) as usize;
    format!(
        "{name} has last stride {} and dtype {}; the last stride must be 1 and the dtype one of 1 to 8",
        description.strides[last], description.dtype
    )
}

/// Checks a call. `None` is a success with nothing to move.
/// # Errors
/// The codes of the contract; INVALID_VALUE for partitions that cut rows and for sizes that leave the address space.
pub fn plan(request: &Request<'_>) -> Result<Option<Plan>> {
    let Request {
        operation,
        table,
        indices,
        rows,
        ..
    } = *request;
    let rows_name = operation.rows_name();

    ensure!(
        table.dim == 1 || table.dim == 2,
        InvalidInput,
        "table has {} dimensions, it must have 1 or 2",
        table.dim
    );
    let Some(matrix) = dense_matrix(table) else {
        let kind = match operation {
            Operation::Gather => Kind::Logic,
            Operation::Scatter => Kind::InvalidInput,
        };
        return Err(Error::new(kind, not_dense("table", table)));
    };
    ensure!(
        indices.dim == 1,
        InvalidInput,
        "indices has {} dimensions, it must have 1",
        indices.dim
    );
    let one_dimensional = operation == Operation::Gather && table.dim == 1 && rows.dim == 1;
    ensure!(
        rows.dim == 2 || one_dimensional,
        InvalidInput,
        "{rows_name} has {} dimensions, it must have 2 for a table of {}{}",
        rows.dim,
        table.dim,
        if table.dim == 1 { ": [n, 1]" } else { "" }
    );
    let Some(index_array) = indices.to_array() else {
        fail!(InvalidInput, "{}", not_dense("indices", indices));
    };
    let Some(row_matrix) = dense_matrix(rows) else {
        fail!(InvalidInput, "{}", not_dense(rows_name, rows));
    };
    ensure!(
        matrix.rows >= 0 && matrix.cols >= 0 && matrix.stride >= 0,
        InvalidInput,
        "table has {} rows, {} columns and row stride {}; none may be negative",
        matrix.rows,
        matrix.cols,
        matrix.stride
    );
    ensure!(
        index_array.size >= 0,
        InvalidInput,
        "indices has size {}",
        index_array.size
    );
    if let Holder::Handle { memory_type, .. } = request.holder
        && matches!(memory_type, MemoryType::Distributed | MemoryType::Hierarchy)
    {
        check_column_window(&matrix, memory_type)?;
    }
    ensure!(
        matrix.dtype.is_float() == row_matrix.dtype.is_float(),
        Logic,
        "table is {} and {rows_name} is {}; both must be floating-point types or both integers",
        matrix.dtype,
        row_matrix.dtype
    );
    let count = index_array.size;
    if count == 0 {
        return Ok(None);
    }
    ensure!(
        index_array.dtype.is_index(),
        Logic,
        "indices is {}, it must be INT or INT64",
        index_array.dtype
    );
    ensure!(
        row_matrix.rows == count,
        Logic,
        "{rows_name} has {} rows for {count} indices",
        row_matrix.rows
    );
    if matrix.cols == 0 {
        return Ok(None);
    }
    ensure!(
        row_matrix.cols == matrix.cols,
        InvalidInput,
        "{rows_name} has {} columns, table has {}",
        row_matrix.cols,
        matrix.cols
    );
    ensure!(
        row_matrix.stride >= 0,
        InvalidInput,
        "{rows_name} has row stride {}, it may not be negative",
        row_matrix.stride
    );
    let rows_address = request.rows_data.first(
        rows_name,
        row_matrix.dtype,
        row_matrix.storage_offset,
        span_bytes(count, &row_matrix),
        request.can_reach,
    )?;
    let indices_address = request.indices_data.first(
        "indices",
        index_array.dtype,
        index_array.storage_offset,
        i128::from(count) * index_array.dtype.size_bytes() as i128,
        request.can_reach,
    )?;
    let (placement, table_rows, table_row_stride_bytes) = place(request.holder, &matrix, request.can_reach)?;
    ensure!(
        request.sms == -1 || request.sms > 0,
        Logic,
        "{}_sms is {}; it must be -1 (automatic) or at least 1",
        operation.name(),
        request.sms
    );

    Ok(Some(Plan {
        operation,
        placement,
        table_rows,
        cols: matrix.cols as usize,
        table_row_stride_bytes,
        table_dtype: matrix.dtype,
        indices: Indices {
            address: indices_address,
            dtype: index_array.dtype,
            count: count as usize,
        },
        rows: Rows {
            address: rows_address,
            row_stride_bytes: stride_bytes(rows_name, &row_matrix, count)?,
            dtype: row_matrix.dtype,
        },
        sms: (request.sms > 0).then_some(request.sms as u32),
    }))
}

/// Row stride in bytes; of a matrix of one row it is never used, so any is taken.
fn stride_bytes(name: &str, matrix: &Matrix, rows: i64) -> Result<usize> {
    let bytes = i128::from(matrix.stride) * matrix.dtype.size_bytes() as i128;
    if rows <= 1 && bytes > isize::MAX as i128 {
        return Ok(0);
    }
    ensure!(
        bytes <= isize::MAX as i128,
        InvalidValue,
        "{name} has row stride {} of {}, which leaves the address space",
        matrix.stride,
        matrix.dtype
    );
    Ok(bytes as usize)
}

/// Tables whose ranks are apart have their window inside a row.
fn check_column_window(matrix: &Matrix, memory_type: MemoryType) -> Result<()> {
    let end = i128::from(matrix.storage_offset) + i128::from(matrix.cols);
    ensure!(
        matrix.storage_offset >= 0 && end <= i128::from(matrix.stride),
        InvalidInput,
        "a table on {memory_type} memory must lie inside its rows: columns {} to {end} of row stride {}",
        matrix.storage_offset,
        matrix.stride
    );
    Ok(())
}

/// Where the table's rows are, how many of them ids may name, and their stride in bytes.
/// # Errors
/// INVALID_INPUT for rows outside the memory, INVALID_VALUE for partitions that cut rows.
pub fn place(
    holder: Holder<'_>,
    matrix: &Matrix,
    can_reach: &dyn Fn(Address) -> bool,
) -> Result<(Placement, u64, usize)> {
    let row_stride_bytes = stride_bytes("table", matrix, matrix.rows)?;
    match holder {
        Holder::Pointer(address) => {
            // A table without rows has nothing that could be read; its pointer may be NULL.
            if matrix.rows == 0 {
                return Ok((Placement::Flat(Address::NULL), 0, row_stride_bytes));
            }
            let first = Data::Pointer(address).first(
                "table",
                matrix.dtype,
                matrix.storage_offset,
                span_bytes(matrix.rows, matrix),
                can_reach,
            )?;
            Ok((Placement::Flat(first), matrix.rows as u64, row_stride_bytes))
        }
        Holder::Handle {
            partition,
            flat,
            alone,
            memory_type,
        } => {
            let rows = rows_held(partition, matrix)?;
            let in_one = |base: Address| {
                // An offset beyond the handle comes with no rows at all, so its product is never used.
                let offset_bytes = (matrix.storage_offset as usize).wrapping_mul(matrix.dtype.size_bytes());
                Placement::Flat(if rows == 0 {
                    base
                } else {
                    base.offset_bytes(offset_bytes)
                })
            };
            let placement = match flat {
                Some(base) => in_one(base),
                None => {
                    let in_row = window_in_row(matrix, row_stride_bytes, memory_type)?;
                    match alone {
                        Some(base) => in_one(base),
                        None => place_in_ranks(partition, matrix, &in_row, row_stride_bytes, rows)?,
                    }
                }
            };
            Ok((placement, rows, row_stride_bytes))
        }
    }
}

/// The rows of the description that lie inside the handle.
fn rows_held(partition: &Partition, matrix: &Matrix) -> Result<u64> {
    ensure!(
        matrix.storage_offset >= 0,
        InvalidInput,
        "table has storage offset {}, which is before the beginning of its memory",
        matrix.storage_offset
    );
    // No operand is negative and no handle has more than isize::MAX bytes, so every difference has 64 bits but the last.
    let elements = (partition.total_bytes() / matrix.dtype.size_bytes()) as i64;
    let held = match (
        (elements - matrix.storage_offset).checked_sub(matrix.cols),
        matrix.stride,
    ) {
        (None | Some(..0), _) => 0,
        (_, 0) => matrix.rows,
        (Some(room), stride) => (room / stride).saturating_add(1),
    };
    Ok(held.min(matrix.rows) as u64)
}

/// The window of a table whose ranks are apart, inside its row.
fn window_in_row(matrix: &Matrix, row_stride_bytes: usize, memory_type: MemoryType) -> Result<Matrix> {
    ensure!(
        row_stride_bytes > 0,
        InvalidInput,
        "a table on {memory_type} memory has row stride {}, which no row number can be divided by",
        matrix.stride
    );
    let in_row = Matrix {
        storage_offset: matrix.storage_offset % matrix.stride,
        ..*matrix
    };
    check_column_window(&in_row, memory_type)?;
    Ok(in_row)
}

fn place_in_ranks(
    partition: &Partition,
    matrix: &Matrix,
    in_row: &Matrix,
    row_stride_bytes: usize,
    rows: u64,
) -> Result<Placement> {
    let first_row = (matrix.storage_offset / matrix.stride) as u64;
    let starts = &partition.starts_bytes;
    let ranks = starts.len() - 1;
    for (rank, start) in starts.iter().enumerate().take(ranks) {
        ensure!(
            start.is_multiple_of(row_stride_bytes),
            InvalidValue,
            "the partition of rank {rank} begins at byte {start} of the handle, inside a row of {row_stride_bytes} bytes"
        );
    }
    let partition_rows: Vec<u64> = starts[..ranks]
        .iter()
        .map(|start| (start / row_stride_bytes) as u64)
        .collect();
    let start_rows = partition_rows
        .iter()
        .map(|row| row.saturating_sub(first_row).min(rows))
        .chain([rows])
        .collect();
    Ok(Placement::Ranks {
        start_rows,
        first_row,
        partition_rows,
        offset_bytes: in_row.storage_offset as usize * matrix.dtype.size_bytes(),
    })
}

impl Plan {
    /// The bases that [`Plan::table`] needs, from where each rank's partition is mapped here. Empty for a flat table.
    pub fn bases(&self, partitions: &[Address]) -> Vec<Address> {
        self.placement.bases(partitions, self.table_row_stride_bytes)
    }

    /// The table as kernels see it where all of it is mapped; `bases` come from [`Plan::bases`].
    pub fn table<'a>(&'a self, bases: &'a [Address]) -> Table<'a> {
        let (places, offset_bytes) = self.placement.places(bases);
        Table {
            places,
            offset_bytes,
            row_stride_bytes: self.table_row_stride_bytes,
            rows: self.table_rows,
            cols: self.cols,
            dtype: self.table_dtype,
        }
    }
}

impl Placement {
    /// The bases that [`Placement::places`] needs, from where each rank's partition is mapped here.
    pub fn bases(&self, partitions: &[Address], row_stride_bytes: usize) -> Vec<Address> {
        match self {
            Placement::Flat(_) => Vec::new(),
            Placement::Ranks {
                first_row,
                partition_rows,
                ..
            } => partitions
                .iter()
                .zip(partition_rows)
                .map(|(base, row)| {
                    // The window begins inside this partition, or before it.
                    let skipped_rows = first_row.saturating_sub(*row) as usize;
                    base.offset_bytes(skipped_rows.wrapping_mul(row_stride_bytes))
                })
                .collect(),
        }
    }

    /// Where the rows are as kernels see them, and what is to be added to every row's address.
    pub fn places<'a>(&'a self, bases: &'a [Address]) -> (Places<'a>, usize) {
        match self {
            Placement::Flat(address) => (Places::Flat(*address), 0),
            Placement::Ranks {
                start_rows,
                offset_bytes,
                ..
            } => (Places::Ranks { bases, start_rows }, *offset_bytes),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table_side = format!(
            "a {} table of {} rows, stride {} bytes",
            self.table_dtype, self.table_rows, self.table_row_stride_bytes
        );
        let row_side = format!(
            "{} rows, stride {} bytes",
            self.rows.dtype, self.rows.row_stride_bytes
        );
        let (from, to) = match self.operation {
            Operation::Gather => (table_side, row_side),
            Operation::Scatter => (row_side, table_side),
        };
        write!(
            f,
            "{} of {} {} ids x {} columns from {from} to {to}",
            self.operation.name(),
            self.indices.count,
            self.indices.dtype,
            self.cols
        )
    }
}

#[cfg(test)]
mod tests;
