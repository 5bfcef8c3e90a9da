//! Which rank is responsible for which bytes (core.md 4.2). Pure.

use crate::error::{Result, fail};

/// The partition of a handle: rank r owns bytes `[starts_bytes[r], starts_bytes[r + 1])` of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub granule_bytes: usize,
    /// World size + 1 values, ascending from 0.
    pub starts_bytes: Box<[usize]>,
}

/// `ceil(total_entries / world_size)`: the entries each rank but the last ones owns by default.
/// # Errors
/// INVALID_VALUE for a world size below 1.
pub fn equal_entry_partition_plan(total_entries: usize, world_size: i32) -> Result<usize> {
    let _ = total_entries;
    fail!(InvalidValue, "world_size is {world_size}, it must be at least 1")
}
