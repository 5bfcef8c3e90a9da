//! `wholememory_gather`.

use super::Buffers;
use super::plan::Operation;
use super::route::Call;
use crate::error::Result;
use crate::platform::Stream;
use crate::platform::learning::RoundRobin;
use crate::tensor::Operand;

/// Copies rows of `table` to `output`: `output[i] = convert(table[indices[i]])`, shape n x D for n `indices` (INT or INT64)
/// and D columns of the table; a 1-D table takes shape n or n x 1. Ids below 0 or not below the table's row count leave their
/// output row as it is. Both are floating-point types or both integers. `sms` is the launch width, -1 automatic.
///
/// Collective over the table's communicator where its memory is DISTRIBUTED or HIERARCHY, also for ranks without indices;
/// a rank whose checks fail still takes part and alone returns its error. Work may go on in `stream` after the return.
/// # Errors
/// INVALID_INPUT for wrong shapes, unreachable data, dead handles; LOGIC_ERROR for a table that is no matrix, kinds or index
/// types that do not fit, misaligned data, a bad `sms`, tables that differ between ranks; INVALID_VALUE for partitions that
/// cut rows or sizes beyond the address space; OUT_OF_MEMORY where scratch is missing (on all ranks); COMMUNICATION_ERROR.
pub fn gather(
    table: &Operand,
    indices: &Operand,
    output: &Operand,
    buffers: &dyn Buffers,
    stream: Stream,
    sms: i32,
) -> Result<()> {
    gather_dealt(table, None, indices, output, buffers, stream, sms)
}

/// As [`gather`] from a table on a handle whose rows may be dealt to the ranks in turn: ids name rows before they were dealt.
/// # Errors
/// Those of [`gather`].
pub fn gather_dealt(
    table: &Operand,
    dealt: Option<&RoundRobin>,
    indices: &Operand,
    output: &Operand,
    buffers: &dyn Buffers,
    stream: Stream,
    sms: i32,
) -> Result<()> {
    let call = Call {
        operation: Operation::Gather,
        name: Operation::Gather.name(),
        table,
        dealt,
        indices,
        rows: output,
        buffers,
        stream,
        sms,
    };
    call.run()
}
