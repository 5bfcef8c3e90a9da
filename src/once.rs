//! Values that are made once.

use std::sync::OnceLock;

/// What a cell keeps, made at the first call and outside of it: where a process is forked while a thread makes a value inside of a
/// cell, the child would wait for that thread for ever. Of values that several threads make at once, one is kept.
pub fn known<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    match cell.get() {
        Some(value) => value,
        None => {
            let made = make();
            cell.get_or_init(|| made)
        }
    }
}
