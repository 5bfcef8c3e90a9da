//! Rows in plain memory of a test, and values that can be recomputed anywhere.

use half::{bf16, f16};
use wholegraph::kinds::DType;
use wholegraph::span::Address;
use wholegraph::tensor::{Description, Operand, Storage};

/// What memory holds before an operation writes it.
pub const UNTOUCHED: u8 = 0x7F;

/// The bytes of a small number in any dtype.
pub fn encode(dtype: DType, value: i64) -> Vec<u8> {
    match dtype {
        DType::Float => (value as f32).to_ne_bytes().to_vec(),
        DType::Double => (value as f64).to_ne_bytes().to_vec(),
        DType::Half => f16::from_f32(value as f32).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f32(value as f32).to_ne_bytes().to_vec(),
        DType::Int => (value as i32).to_ne_bytes().to_vec(),
        DType::Int64 => value.to_ne_bytes().to_vec(),
        DType::Int16 => (value as i16).to_ne_bytes().to_vec(),
        DType::Int8 => (value as i8).to_ne_bytes().to_vec(),
    }
}

/// The value of a table at a row and column, below 100 and different for neighbours.
pub fn value(salt: i64, row: i64, col: i64) -> i64 {
    (salt * 31 + row * 7 + col * 3).rem_euclid(97)
}

pub fn describe(sizes: &[i64], strides: &[i64], storage_offset: i64, dtype: DType) -> Description {
    let mut description = Description {
        sizes: [1; 8],
        strides: [1; 8],
        storage_offset,
        dim: sizes.len() as i32,
        dtype: dtype.raw(),
    };
    description.sizes[..sizes.len()].copy_from_slice(sizes);
    description.strides[..strides.len()].copy_from_slice(strides);
    description
}

pub fn pointer(description: Description, address: usize) -> Operand {
    Operand {
        description,
        storage: Storage::Pointer(Address(address)),
    }
}

/// A matrix in plain memory with a row stride and an offset, all bytes [`UNTOUCHED`] at first.
#[derive(Clone)]
pub struct Grid {
    words: Vec<u64>,
    pub dtype: DType,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
    pub offset: usize,
}

impl Grid {
    pub fn new(dtype: DType, rows: usize, cols: usize, stride: usize, offset: usize) -> Grid {
        let bytes = (offset + rows * stride) * dtype.size_bytes();
        Grid {
            words: vec![u64::from_ne_bytes([UNTOUCHED; 8]); bytes.div_ceil(8) + 1],
            dtype,
            rows,
            cols,
            stride,
            offset,
        }
    }

    pub fn operand(&mut self) -> Operand {
        let sizes = [self.rows as i64, self.cols as i64];
        let description = describe(&sizes, &[self.stride as i64, 1], self.offset as i64, self.dtype);
        pointer(description, self.words.as_mut_ptr() as usize)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.words.len() * 8;
        // SAFETY: the words as bytes, borrowed as long.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), bytes) }
    }

    fn at(&self, row: usize, col: usize) -> usize {
        (self.offset + row * self.stride + col) * self.dtype.size_bytes()
    }

    pub fn set(&mut self, row: usize, values: impl Fn(i64) -> i64) {
        for col in 0..self.cols {
            let at = self.at(row, col);
            let value = encode(self.dtype, values(col as i64));
            self.bytes()[at..at + value.len()].copy_from_slice(&value);
        }
    }

    /// Compares all bytes, the gaps between rows included, with a copy on which the same rows were set by hand.
    pub fn assert_same(&self, want: &Grid, about: &str) {
        assert!(
            self.words == want.words,
            "{about}: {:x?}, wanted {:x?}",
            self.words,
            want.words
        );
    }
}

/// Row ids in plain memory, behind an offset.
pub struct Ids {
    words: Vec<u64>,
    dtype: DType,
    count: usize,
    offset: usize,
}

impl Ids {
    pub fn new(dtype: DType, ids: &[i64], offset: usize) -> Ids {
        let mut bytes = vec![UNTOUCHED; offset * dtype.size_bytes()];
        ids.iter().for_each(|id| bytes.extend(encode(dtype, *id)));
        bytes.resize(bytes.len().next_multiple_of(8), UNTOUCHED);
        Ids {
            words: bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| u64::from_ne_bytes(*b))
                .collect(),
            dtype,
            count: ids.len(),
            offset,
        }
    }

    /// An empty one has a NULL pointer.
    pub fn operand(&mut self) -> Operand {
        let description = describe(&[self.count as i64], &[1], self.offset as i64, self.dtype);
        let address = if self.count == 0 {
            0
        } else {
            self.words.as_mut_ptr() as usize
        };
        pointer(description, address)
    }
}
