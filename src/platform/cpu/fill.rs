//! Plain writes to host memory of the caller.

#![allow(unsafe_code)]

use crate::kinds::DType;
use crate::platform::Rows;
use crate::span::Address;
use half::{bf16, f16};

/// Writes `count` values, densely from `to`, in order. The caller has checked that the memory is there; it need not be
/// aligned.
pub fn fill<T: Copy>(to: Address, count: usize, mut next: impl FnMut() -> T) {
    let first = to.0 as *mut T;
    for i in 0..count {
        // SAFETY: the caller of the C API passed room for `count` values at `to`; unaligned writes ask nothing of it.
        unsafe { first.add(i).write_unaligned(next()) };
    }
}

/// See [`crate::platform::Kernels::add_row_numbers`].
pub fn add_row_numbers(input: Address, rows: usize, cols: usize, output: &Rows) {
    for r in 0..rows {
        let to = output.address.offset_bytes(r * output.row_stride_bytes);
        let row = r as f32;
        match output.dtype {
            DType::Float => add(input, to, cols, |x: f32| x + row),
            DType::Double => add(input, to, cols, |x: f64| x + f64::from(row)),
            DType::Half => add(input, to, cols, |x: f16| x + f16::from_f32(row)),
            DType::Bf16 => add(input, to, cols, |x: bf16| x + bf16::from_f32(row)),
            DType::Int => add(input, to, cols, |x: i32| x.wrapping_add(row as i64 as i32)),
            DType::Int64 => add(input, to, cols, |x: i64| x.wrapping_add(row as i64)),
            DType::Int16 => add(input, to, cols, |x: i16| x.wrapping_add(row as i64 as i16)),
            DType::Int8 => add(input, to, cols, |x: i8| x.wrapping_add(row as i64 as i8)),
        }
    }
}

fn add<T: Copy>(from: Address, to: Address, count: usize, sum: impl Fn(T) -> T) {
    let first = from.0 as *const T;
    let mut i = 0;
    fill(to, count, || {
        // SAFETY: the caller of the C API passed `count` values at `from`; unaligned reads ask nothing of it.
        let value = unsafe { first.add(i).read_unaligned() };
        i += 1;
        sum(value)
    });
}
