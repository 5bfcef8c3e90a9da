//! `wholememory_env_test_op`: lets callers try their environment functions.

use super::operand::Data;
use super::serving::not_recording;
use super::{Buffers, EnvTestContexts};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{AllocationType, DType};
use crate::platform::{self, Launch, Platform, Rows, Stream};
use crate::span::Address;
use crate::tensor::{Description, Matrix, Operand};

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
        output: Data::written(output, "output")?.first(
            "output",
            dtype,
            matrix.storage_offset,
            span_bytes,
            &can_reach,
        )?,
        output_stride_bytes: matrix.stride.unsigned_abs() as usize * dtype.size_bytes(),
    })
}

/// `value[r][c] = input[c] + r` for `entry_count` rows, to `output` and to a dense block for every context that is not NULL,
/// each with the description of `output` (dense, from offset 0): DEVICE, PINNED, HOST. One DEVICE scratch block. The values
/// are there on return.
/// # Errors
/// INVALID_INPUT for shapes, dtypes and data that do not fit, INVALID_VALUE for sizes beyond the address space,
/// OUT_OF_MEMORY where a block is missing, NOT_SUPPORTED on a recording stream; then nothing is written.
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
    let recording =
        "wholememory_env_test_op waits for its output, which a recording stream (graph capture) cannot do";
    not_recording(platform, stream, recording)?;
    let total_bytes = plan.rows * plan.row_bytes();
    let scratch = buffers.scratch(plan.rows * plan.cols, plan.dtype, AllocationType::Device)?;
    let blocks = blocks()?;
    let launch = Launch {
        stream,
        ..Launch::default()
    };
    for (address, row_stride_bytes) in [
        (scratch.address(), plan.row_bytes()),
        (plan.output, plan.output_stride_bytes),
    ] {
        let rows = Rows {
            address,
            row_stride_bytes,
            dtype: plan.dtype,
        };
        platform
            .kernels()
            .add_row_numbers(plan.input, plan.rows, plan.cols, &rows, launch)?;
    }
    for block in blocks {
        platform.copy(block, scratch.address(), total_bytes, stream)?;
    }
    platform.synchronize(stream)
}
