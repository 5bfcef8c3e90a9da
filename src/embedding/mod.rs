//! TABLES THAT LEARN: rows, cache and optimizer. This version knows what may be asked for and refuses it in words.

use crate::error::{Result, ensure, fail};
use crate::kinds::{Location, MemoryType};
use crate::tensor::Description;

/// A cache holds at least this part of the rows.
const LEAST_CACHE_RATIO: f32 = 1.0 / 512.0;

/// # Errors
/// NOT_IMPLEMENTED, always.
pub fn not_in_this_version<T>(what: &str) -> Result<T> {
    fail!(NotImplemented, "{what} is not in this version")
}

/// # Errors
/// NOT_IMPLEMENTED, always; the text tells unknown types from known ones.
pub fn create_optimizer(optimizer_type: u32) -> Result<()> {
    let name = match optimizer_type {
        1 => "SGD",
        2 => "LAZY_ADAM",
        3 => "RMSPROP",
        4 => "ADAGRAD",
        other => fail!(NotImplemented, "optimizer type {} does not exist", other as i32),
    };
    not_in_this_version(&format!("the optimizer {name}"))
}

/// # Errors
/// INVALID_VALUE outside [1/512, 1], also for NaN.
pub fn check_cache_ratio(ratio: f32) -> Result<()> {
    ensure!(
        (LEAST_CACHE_RATIO..=1.0).contains(&ratio),
        InvalidValue,
        "cache_ratio is {ratio}, it must be in [1/512, 1]"
    );
    Ok(())
}

/// # Errors
/// INVALID_INPUT for a description that is no matrix.
pub fn check_description(description: &Description) -> Result<()> {
    ensure!(
        description.to_matrix().is_some(),
        InvalidInput,
        "the description of an embedding (dim {}, dtype {}) is no matrix of column stride 1 and known dtype",
        description.dim,
        description.dtype as i32
    );
    Ok(())
}

/// # Errors
/// INVALID_VALUE for enumerators that are none.
pub fn check_place(memory_type: u32, location: u32) -> Result<()> {
    ensure!(
        MemoryType::from_raw(memory_type).is_some(),
        InvalidValue,
        "memory_type is {}, it must be 1 to 4",
        memory_type as i32
    );
    ensure!(
        Location::from_raw(location).is_some(),
        InvalidValue,
        "memory_location is {}, it must be DEVICE (1) or HOST (2)",
        location as i32
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_ratios() {
        for good in [1.0 / 512.0, 0.02, 1.0] {
            assert!(check_cache_ratio(good).is_ok(), "{good}");
        }
        for bad in [0.0, -1.0, 0.0019, 1.001, f32::NAN, f32::INFINITY] {
            assert!(check_cache_ratio(bad).is_err(), "{bad}");
        }
    }
}
