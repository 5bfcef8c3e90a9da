//! `wholememory.h`.

pub mod communicator;
pub mod file;
pub mod library;
pub mod memory;
