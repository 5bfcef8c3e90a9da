//! How a table is to be cached. Embeddings copy their policy when they are made, so it may go before them.

use crate::comm::Communicator;
use crate::error::{Result, ensure};
use crate::kinds::{Location, MemoryType};
use std::sync::Arc;

/// A cache holds at least this part of the rows.
const LEAST_RATIO: f32 = 1.0 / 512.0;

/// `wholememory_access_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    None = 0,
    ReadOnly = 1,
    ReadWrite = 2,
}

impl Access {
    pub fn from_raw(raw: u32) -> Option<Access> {
        [Access::None, Access::ReadOnly, Access::ReadWrite]
            .into_iter()
            .find(|access| *access as u32 == raw)
    }
}

/// The enumerators are kept as they were given: they are checked when an embedding is made, as far as it needs them.
#[derive(Clone)]
pub struct CachePolicy {
    pub comm: Arc<Communicator>,
    pub memory_type: u32,
    pub location: u32,
    pub access: u32,
    /// Cached rows to all rows.
    pub ratio: f32,
}

impl CachePolicy {
    /// # Errors
    /// INVALID_VALUE for a ratio outside [1/512, 1], NaN included.
    pub fn check_ratio(ratio: f32) -> Result<()> {
        ensure!(
            (LEAST_RATIO..=1.0).contains(&ratio),
            InvalidValue,
            "cache_ratio is {ratio}, it must be in [1/512, 1]"
        );
        Ok(())
    }

    pub fn memory_type(&self) -> Option<MemoryType> {
        MemoryType::from_raw(self.memory_type)
    }

    pub fn location(&self) -> Option<Location> {
        Location::from_raw(self.location)
    }

    pub fn access(&self) -> Option<Access> {
        Access::from_raw(self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_ratios() {
        for good in [1.0 / 512.0, 0.02, 1.0] {
            assert!(CachePolicy::check_ratio(good).is_ok(), "{good}");
        }
        for bad in [0.0, -1.0, 0.0019, 1.001, f32::NAN, f32::INFINITY] {
            assert!(CachePolicy::check_ratio(bad).is_err(), "{bad}");
        }
    }
}
