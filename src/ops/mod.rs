//! WHAT IS DONE: each operation is a plan (pure, printable) and a run.

mod announce;
mod exchange;
mod leg;
mod operand;
mod plan;
pub mod random;

use crate::error::{Result, fail};
use crate::kinds::AllocationType;
use crate::platform::Stream;
use crate::span::Address;
use crate::tensor::{Description, Operand};

/// Scratch and output memory, as the caller's environment functions (or a pool of the library) give it. Implemented in ffi.
/// Blocks are released when the returned guard drops, after the operation has enqueued its work (stream order).
pub trait Buffers {
    /// `count` elements of `dtype` (raw enumerator as in a 1-D description) of scratch. A zero-byte block may be NULL.
    /// # Errors
    /// OUT_OF_MEMORY where the caller's function gives NULL for a non-zero size or throws.
    fn scratch(
        &self,
        count: usize,
        dtype: crate::kinds::DType,
        kind: AllocationType,
    ) -> Result<Box<dyn Scratch + '_>>;

    /// An output block for the caller's context `context` (not NULL), with its final description.
    fn output(&self, description: &Description, kind: AllocationType, context: Address) -> Result<Address>;
}

/// A scratch block; released on drop.
pub trait Scratch {
    fn address(&self) -> Address;
}

/// `wholememory_gather` (ops.md section 2). `sms` as the caller gave it (-1 automatic).
pub fn gather(
    table: &Operand,
    indices: &Operand,
    output: &Operand,
    buffers: &dyn Buffers,
    stream: Stream,
    sms: i32,
) -> Result<()> {
    let _ = (table, indices, output, buffers, stream, sms);
    fail!(NotImplemented, "not in this version")
}

/// `wholememory_scatter` (ops.md section 3).
pub fn scatter(
    input: &Operand,
    indices: &Operand,
    table: &Operand,
    buffers: &dyn Buffers,
    stream: Stream,
    sms: i32,
) -> Result<()> {
    let _ = (table, indices, input, buffers, stream, sms);
    fail!(NotImplemented, "not in this version")
}

/// The output contexts of `wholememory_env_test_op`; NULL is "not wanted".
#[derive(Clone, Copy, Debug)]
pub struct EnvTestContexts {
    pub device: Address,
    pub pinned: Address,
    pub host: Address,
}

/// `wholememory_env_test_op` (core.md 9.1).
pub fn env_test(
    input: &Operand,
    output: &Operand,
    contexts: EnvTestContexts,
    entry_count: i64,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let _ = (input, output, contexts, entry_count, buffers, stream);
    fail!(NotImplemented, "not in this version")
}
