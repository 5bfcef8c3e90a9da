//! Loading and storing handles from and to files (core.md section 8).

use super::handle::Memory;
use crate::error::{Result, fail};
use std::path::PathBuf;
use std::sync::Arc;

/// The arguments of `wholememory_load_from_file`; `files` is the failure of reading the caller's names, if it failed.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    pub memory_offset_bytes: usize,
    pub memory_entry_bytes: usize,
    pub file_entry_bytes: usize,
    pub files: Result<Vec<PathBuf>>,
    pub round_robin_records: i32,
}

/// The arguments of `wholememory_store_to_file`.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    pub memory_offset_bytes: usize,
    pub memory_entry_bytes: usize,
    pub file_entry_bytes: usize,
    pub file: Result<PathBuf>,
}

/// Collective.
pub fn load_from_file(memory: &Arc<Memory>, request: &LoadRequest) -> Result<()> {
    let _ = (memory, request);
    fail!(NotImplemented, "not in this version")
}

/// Collective.
pub fn store_to_file(memory: &Arc<Memory>, request: &StoreRequest) -> Result<()> {
    let _ = (memory, request);
    fail!(NotImplemented, "not in this version")
}
