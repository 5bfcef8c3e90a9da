//! SHAPES: descriptions (pure) and tensors over memory.

mod description;
pub mod shape;

pub use description::{
    Array, Description, MAX_DIM, Matrix, element_size_bytes, matrix_element_count, memory_size_bytes,
};

use crate::memory::Memory;
use crate::span::Address;
use std::sync::Arc;

/// What a tensor lies on.
#[derive(Clone)]
pub enum Storage {
    Memory(Arc<Memory>),
    /// The caller's storage pointer (before `storage_offset`); NULL is allowed.
    Pointer(Address),
}

/// A tensor as an operation sees it: the description at the time of the call, and the storage.
#[derive(Clone)]
pub struct Operand {
    pub description: Description,
    pub storage: Storage,
}

impl Operand {
    /// No tensor: dim 0 over NULL.
    pub fn none() -> Operand {
        Operand {
            description: Description::EMPTY,
            storage: Storage::Pointer(Address::NULL),
        }
    }
}
