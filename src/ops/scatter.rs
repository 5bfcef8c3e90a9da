//! `wholememory_scatter`.

use super::Buffers;
use super::plan::Operation;
use super::route::Call;
use crate::error::Result;
use crate::platform::Stream;
use crate::tensor::Operand;

/// Copies rows of `input` into `table`: `table[indices[i]] = convert(input[i])`, `input` of shape n x D also for a 1-D table.
/// Ids out of range are skipped. Which of several rows for one id stays is not specified. Otherwise as
/// [`gather`](super::gather()): who takes part, dtypes, `sms`.
///
/// Other ranks see the rows after a meeting of the ranks that follows the end of the work in `stream`.
/// # Errors
/// As gather, but INVALID_INPUT for a table that is no matrix.
pub fn scatter(
    input: &Operand,
    indices: &Operand,
    table: &Operand,
    buffers: &dyn Buffers,
    stream: Stream,
    sms: i32,
) -> Result<()> {
    let call = Call {
        operation: Operation::Scatter,
        name: Operation::Scatter.name(),
        table,
        dealt: None,
        indices,
        rows: input,
        buffers,
        stream,
        sms,
    };
    call.run()
}
