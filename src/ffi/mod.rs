//! THE DOOR: C types in, codes out, no logic. One file (or folder) per header, named after it; the headers are generated
//! from these files.

#![allow(unsafe_code)]
// The safety contract of every export is its C contract, written in its documentation and copied into the header.
#![allow(clippy::missing_safety_doc)]

mod callbacks;
mod convert;
mod embedding_objects;
#[cfg(test)]
mod forked;
pub(crate) mod guard;
mod handle;
mod objects;
mod pool;

pub mod cache_stats;
pub mod embedding;
pub mod env_func_ptrs;
pub mod error;
pub mod global_reference;
pub mod graph_op;
pub mod hdfs;
pub mod tensor_description;
pub mod wholegraph_op;
pub mod wholememory;
pub mod wholememory_op;
pub mod wholememory_tensor;
