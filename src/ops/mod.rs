//! WHAT IS DONE: each operation is a plan (pure, printable) and a run.

mod announce;
mod arrays;
pub mod cached;
mod env_test;
mod exchange;
mod gather;
mod gradients;
pub mod graph;
mod hierarchy;
mod in_place;
mod leg;
mod meet;
mod operand;
mod owners;
mod plan;
pub mod random;
mod route;
pub mod sampling;
mod scatter;
mod serving;

pub use env_test::env_test;
pub use gather::{gather, gather_dealt};
pub use gradients::{Cached, Gradients, Learner, apply_gradients};
pub use scatter::scatter;

use crate::error::Result;
use crate::kinds::{AllocationType, DType};
use crate::span::Address;
use crate::tensor::Description;

/// Scratch and output memory, as the caller's environment functions (or a pool of the library) give it. Implemented in ffi.
/// Blocks are released when the returned guard drops, after the operation has enqueued its work (stream order).
pub trait Buffers {
    /// `count` elements of `dtype` (raw enumerator as in a 1-D description) of scratch. A zero-byte block may be NULL.
    /// # Errors
    /// OUT_OF_MEMORY where the caller's function gives NULL for a non-zero size or throws.
    fn scratch(&self, count: usize, dtype: DType, kind: AllocationType) -> Result<Box<dyn Scratch + '_>>;

    /// False where scratch is the library's own: its next user comes before a graph in which it was recorded is replayed.
    fn outlasts_recording(&self) -> bool {
        true
    }

    /// An output block for the caller's context `context` (not NULL), with its final description.
    fn output(&self, description: &Description, kind: AllocationType, context: Address) -> Result<Address>;
}

/// A scratch block; released on drop.
pub trait Scratch {
    fn address(&self) -> Address;
}

/// The output contexts of `wholememory_env_test_op`; NULL is "not wanted".
#[derive(Clone, Copy, Debug)]
pub struct EnvTestContexts {
    pub device: Address,
    pub pinned: Address,
    pub host: Address,
}
