//! `wholememory_env_test_op` (core.md 9.1): lets callers try their environment functions.

use super::operand::Data;
use super::{Buffers, EnvTestContexts};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{AllocationType, DType};
use crate::platform::{self, Platform, Stream};
use crate::span::Address;
use crate::tensor::{Description, Matrix, Operand};
use half::{bf16, f16};

/// A checked call: `rows` x `cols` values, `input` of one row, the fixed output with its own row stride.
struct Plan {
    dtype: DType,
    rows: usize,
    cols: usize,
    input: Address,
    output: Address,
    output_stride_bytes: usize,
}

impl Plan {
    fn row_bytes(&self) -> usize {
        self.cols * self.dtype.size_bytes()
    }
}

fn not_a(name: &str, what: &str, description: &Description) -> Error {
    let what = format!(
        "{name} must be {what} with last stride 1; it has {} dimensions and dtype {}",
        description.dim, description.dtype
    );
    Error::new(Kind::InvalidInput, what)
}

/// The dtype and shape of a call, as a matrix of the fixed output.
fn shape(input: &Description, output: &Description, entry_count: i64) -> Result<Matrix> {
    let Some(array) = input.to_array() else {
        return Err(not_a("input", "an array", input));
    };
    let Some(matrix) = output.to_matrix().filter(|_| output.dim == 2) else {
        return Err(not_a("output", "a matrix", output));
    };
    ensure!(
        matrix.dtype == array.dtype,
        InvalidInput,
        "input is {} and output is {}, they must be the same",
        array.dtype,
        matrix.dtype
    );
    ensure!(
        entry_count >= 0 && array.size >= 0,
        InvalidInput,
        "entry_count is {entry_count} and input has size {}; neither may be negative",
        array.size
    );
    ensure!(
        (matrix.rows, matrix.cols) == (entry_count, array.size),
        InvalidInput,
        "output is {} x {}, it must be entry_count x size of input: {entry_count} x {}",
        matrix.rows,
        matrix.cols,
        array.size
    );
    ensure!(
        matrix.rows <= 1 || matrix.stride >= matrix.cols,
        InvalidInput,
        "output has row stride {} for {} columns",
        matrix.stride,
        matrix.cols
    );
    Ok(matrix)
}

fn plan(input: &Operand, output: &Operand, matrix: &Matrix, platform: &dyn Platform) -> Result<Plan> {
    let dtype = matrix.dtype;
    let bytes = |elements: i128| elements.saturating_mul(dtype.size_bytes() as i128);
    let (rows, cols) = (i128::from(matrix.rows), i128::from(matrix.cols));
    let can_reach = |address: Address| platform.can_reach(address);
    let span_bytes = bytes((rows - 1).max(0) * i128::from(matrix.stride) + cols);
    if bytes(rows * cols) > isize::MAX as i128 {
        fail!(
            InvalidValue,
            "{rows} x {cols} values of {dtype} are more bytes than the address space has"
        );
    }
    Ok(Plan {
        dtype,
        rows: matrix.rows as usize,
        cols: matrix.cols as usize,
        input: Data::of(input, "input")?.first(
            "input",
            dtype,
            input.description.storage_offset,
            bytes(cols),
            &can_reach,
        )?,
        output: Data::of(output, "output")?.first(
            "output",
            dtype,
            matrix.storage_offset,
            span_bytes,
            &can_reach,
        )?,
        output_stride_bytes: matrix.stride.unsigned_abs() as usize * dtype.size_bytes(),
    })
}

/// Row r of the result: every input value plus r, r going through a float, the sum in the type itself.
fn add_to_row(dtype: DType, input: &[u8], r: f32, into: &mut Vec<u8>) {
    macro_rules! sums {
        ($type:ty, $add:expr) => {
            for bytes in input.as_chunks::<{ size_of::<$type>() }>().0 {
                let add: fn($type, f32) -> $type = $add;
                into.extend(add(<$type>::from_ne_bytes(*bytes), r).to_ne_bytes());
            }
        };
    }
    match dtype {
        DType::Float => sums!(f32, |x, r| x + r),
        DType::Double => sums!(f64, |x, r| x + f64::from(r)),
        DType::Half => sums!(f16, |x, r| x + f16::from_f32(r)),
        DType::Bf16 => sums!(bf16, |x, r| x + bf16::from_f32(r)),
        DType::Int => sums!(i32, |x, r| x.wrapping_add(r as i32)),
        DType::Int64 => sums!(i64, |x, r| x.wrapping_add(r as i64)),
        DType::Int16 => sums!(i16, |x, r| x.wrapping_add(r as i32 as i16)),
        DType::Int8 => sums!(i8, |x, r| x.wrapping_add(r as i32 as i8)),
    }
}

/// A vector of `bytes` zeros, or OUT_OF_MEMORY: the size comes from the caller.
fn room(bytes: usize) -> Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|e| {
        Error::new(
            Kind::OutOfMemory,
            format!("{bytes} bytes for the values of env_test_op: {e}"),
        )
    })?;
    Ok(room)
}

/// `value[r][c] = input[c] + r` for `entry_count` rows, to `output` and to a dense block for every context that is not NULL,
/// each with the description of `output` (dense, from offset 0): DEVICE, PINNED, HOST. One DEVICE scratch block. The values
/// are there on return.
/// # Errors
/// INVALID_INPUT for shapes, dtypes and data that do not fit, INVALID_VALUE for sizes beyond the address space,
/// OUT_OF_MEMORY where a block is missing; then nothing is written.
pub fn env_test(
    input: &Operand,
    output: &Operand,
    contexts: EnvTestContexts,
    entry_count: i64,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let matrix = shape(&input.description, &output.description, entry_count)?;
    let mut dense = output.description;
    dense.storage_offset = 0;
    dense.strides[..2].copy_from_slice(&[matrix.cols, 1]);
    let wanted = [
        (contexts.device, AllocationType::Device),
        (contexts.pinned, AllocationType::Pinned),
        (contexts.host, AllocationType::Host),
    ];
    let blocks = || -> Result<Vec<Address>> {
        wanted
            .iter()
            .filter(|(context, _)| !context.is_null())
            .map(|(context, kind)| buffers.output(&dense, *kind, *context))
            .collect()
    };
    if matrix.rows == 0 || matrix.cols == 0 {
        return blocks().map(drop);
    }
    let platform = platform::current()?;
    let plan = plan(input, output, &matrix, platform)?;
    let total_bytes = plan.rows * plan.row_bytes();
    let mut values = room(total_bytes)?;
    let mut row = room(plan.row_bytes())?;
    row.resize(plan.row_bytes(), 0);
    platform.copy(
        Address(row.as_mut_ptr() as usize),
        plan.input,
        plan.row_bytes(),
        stream,
    )?;
    platform.synchronize(stream)?;
    for r in 0..plan.rows {
        add_to_row(plan.dtype, &row, r as f32, &mut values);
    }
    let scratch = buffers.scratch(plan.rows * plan.cols, plan.dtype, AllocationType::Device)?;
    let blocks = blocks()?;
    platform.copy(
        scratch.address(),
        Address(values.as_ptr() as usize),
        total_bytes,
        stream,
    )?;
    for r in 0..plan.rows {
        platform.copy(
            plan.output.offset_bytes(r * plan.output_stride_bytes),
            scratch.address().offset_bytes(r * plan.row_bytes()),
            plan.row_bytes(),
            stream,
        )?;
    }
    for block in blocks {
        platform.copy(block, scratch.address(), total_bytes, stream)?;
    }
    platform.synchronize(stream)
}
