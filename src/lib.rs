//! WholeMemory in Rust: one array in the memory of many GPUs or processes, behind the C ABI of `libwholegraph.so`.
//! ARCHITECTURE.md is the map of the rooms below.

#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod error;
pub mod kinds;
pub mod log;
pub mod settings;
pub mod span;

pub mod comm;
pub mod embedding;
pub mod ffi;
pub mod memory;
pub mod ops;
#[allow(unsafe_code)]
pub mod platform;
pub mod tensor;

#[global_allocator]
static ALLOCATOR: platform::reserve::WithReserve = platform::reserve::WithReserve;
