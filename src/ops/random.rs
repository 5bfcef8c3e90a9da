//! The two random functions of `wholegraph_op.h`.

use super::operand::Data;
use crate::error::{Result, ensure, fail};
use crate::kinds::DType;
use crate::platform::cpu::fill::fill;
use crate::platform::random::Pcg;
use crate::span::Address;
use crate::tensor::{Array, Operand};

/// The description and the address of a host output; the address is NULL for an empty one.
fn host_output(output: &Operand, accepted: &[DType]) -> Result<(Array, usize, Address)> {
    let description = &output.description;
    ensure!(
        description.dim == 1,
        InvalidInput,
        "output has {} dimensions, it must have 1",
        description.dim
    );
    let Some(array) = description.to_array() else {
        fail!(
            InvalidInput,
            "output has stride {} and dtype {}, it must be a dense array of a known dtype",
            description.strides[0],
            description.dtype
        );
    };
    ensure!(
        accepted.contains(&array.dtype),
        InvalidInput,
        "output has dtype {}, it must be {}",
        array.dtype,
        accepted
            .iter()
            .map(|d| d.to_string())
            .collect::<Vec<_>>()
            .join(" or ")
    );
    ensure!(array.size >= 0, InvalidInput, "output has size {}", array.size);
    if array.size == 0 {
        return Ok((array, 0, Address::NULL));
    }
    let span_bytes = i128::from(array.size) * array.dtype.size_bytes() as i128;
    let address = Data::written(output, "output")?.first(
        "output",
        array.dtype,
        array.storage_offset,
        span_bytes,
        &|_| true,
    )?;
    Ok((array, array.size as usize, address))
}

/// `generate_random_positive_int_cpu`: fills `output`, a 1-D INT or INT64 array in host memory, with non-negative numbers.
/// # Errors
/// INVALID_INPUT for other shapes and dtypes and for data that cannot be reached.
pub fn positive_int(seed: i64, subsequence: i64, output: &Operand) -> Result<()> {
    let (array, count, address) = host_output(output, &[DType::Int, DType::Int64])?;
    let mut pcg = Pcg::new(seed as u64, subsequence as u64);
    match array.dtype {
        DType::Int => fill(address, count, || pcg.i31()),
        _ => fill(address, count, || pcg.i63()),
    }
    Ok(())
}

/// `generate_exponential_distribution_negative_float_cpu`: fills `output`, a 1-D FLOAT array in host memory, with log2 of
/// uniform numbers.
/// # Errors
/// INVALID_INPUT for other shapes and dtypes and for data that cannot be reached.
pub fn exponential_negative_float(seed: i64, subsequence: i64, output: &Operand) -> Result<()> {
    let (_, count, address) = host_output(output, &[DType::Float])?;
    let mut pcg = Pcg::new(seed as u64, subsequence as u64);
    fill(address, count, || pcg.negative_exponential());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::tensor::{Description, Storage};
    use serde_json::Value;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../../tests/data/vectors_rng.json")).unwrap()
    }

    fn hex(text: &Value) -> u64 {
        u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    }

    fn array_over<T>(values: &mut [T], dtype: DType, storage_offset: i64) -> Operand {
        let mut description = Description {
            sizes: [1; 8],
            strides: [1; 8],
            storage_offset,
            dim: 1,
            dtype: dtype.raw(),
        };
        description.sizes[0] = values.len() as i64 - storage_offset;
        Operand {
            description,
            storage: Storage::Pointer(Address(values.as_mut_ptr() as usize)),
        }
    }

    #[test]
    fn functions_match_the_reference_bit_for_bit() {
        for case in vectors()["binary"].as_array().unwrap() {
            let seed = case["seed"].as_i64().unwrap();
            let subsequence = case["subsequence"].as_i64().unwrap();
            let mut ints = vec![0i32; 10];
            positive_int(seed, subsequence, &array_over(&mut ints, DType::Int, 0)).unwrap();
            let mut longs = vec![0i64; 10];
            positive_int(seed, subsequence, &array_over(&mut longs, DType::Int64, 0)).unwrap();
            let mut floats = vec![0f32; 10];
            exponential_negative_float(seed, subsequence, &array_over(&mut floats, DType::Float, 0)).unwrap();
            for i in 0..10 {
                assert_eq!(i64::from(ints[i]), case["int32"][i].as_i64().unwrap());
                assert_eq!(longs[i], case["int64"][i].as_i64().unwrap());
                assert_eq!(
                    u64::from(floats[i].to_bits()),
                    hex(&case["neg_exp_float_bits_hex"][i])
                );
            }
        }
    }

    #[test]
    fn the_storage_offset_is_applied_once() {
        let mut ints = vec![-7i32; 6];
        positive_int(0, 0, &array_over(&mut ints, DType::Int, 2)).unwrap();
        assert_eq!(ints[..4], [-7, -7, 1690388360, 932996374]);
    }

    #[test]
    fn bad_outputs_are_refused_and_empty_ones_are_fine() {
        let kind = |result: Result<()>| result.unwrap_err().kind;
        let mut ints = vec![0i32; 4];
        let mut operand = array_over(&mut ints, DType::Int, 0);
        assert_eq!(
            kind(exponential_negative_float(0, 0, &operand)),
            Kind::InvalidInput
        );
        operand.description.dim = 2;
        assert_eq!(kind(positive_int(0, 0, &operand)), Kind::InvalidInput);
        operand.description.dim = 1;
        for dtype in [0, 1, 2, 7, 8, 9, 4000] {
            operand.description.dtype = dtype;
            assert_eq!(kind(positive_int(0, 0, &operand)), Kind::InvalidInput);
        }
        operand.description.dtype = DType::Int.raw();
        operand.description.sizes[0] = -1;
        assert_eq!(kind(positive_int(0, 0, &operand)), Kind::InvalidInput);
        operand.description.sizes[0] = i64::MAX;
        assert_eq!(kind(positive_int(0, 0, &operand)), Kind::InvalidValue);
        operand.description.sizes[0] = 4;
        operand.storage = Storage::Pointer(Address::NULL);
        assert_eq!(kind(positive_int(0, 0, &operand)), Kind::InvalidInput);
        operand.description.sizes[0] = 0;
        assert!(positive_int(0, 0, &operand).is_ok());
        assert_eq!(ints, [0; 4]);
    }
}
