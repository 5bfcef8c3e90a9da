//! The two random functions of `wholegraph_op.h` (ops.md 9.2, 9.3).

use crate::error::{Result, fail};
use crate::tensor::Operand;

/// `generate_random_positive_int_cpu`.
pub fn positive_int(seed: i64, subsequence: i64, output: &Operand) -> Result<()> {
    let _ = (seed, subsequence, output);
    fail!(NotImplemented, "not in this version")
}

/// `generate_exponential_distribution_negative_float_cpu`.
pub fn exponential_negative_float(seed: i64, subsequence: i64, output: &Operand) -> Result<()> {
    let _ = (seed, subsequence, output);
    fail!(NotImplemented, "not in this version")
}
