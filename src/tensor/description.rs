//! Descriptions of arrays, matrices and tensors. Pure.

use crate::kinds::DType;

pub const MAX_DIM: usize = 8;

/// `wholememory_tensor_description_t`: sizes and strides in elements, the dtype as the raw enumerator (it may be wild).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Description {
    pub sizes: [i64; MAX_DIM],
    pub strides: [i64; MAX_DIM],
    pub storage_offset: i64,
    pub dim: i32,
    pub dtype: u32,
}

/// A description converted to one dimension: stride 1, dtype valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    pub size: i64,
    pub storage_offset: i64,
    pub dtype: DType,
}

/// A description converted to two dimensions: column stride 1, dtype valid; `stride` in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub rows: i64,
    pub cols: i64,
    pub stride: i64,
    pub storage_offset: i64,
    pub dtype: DType,
}

/// Size of an element of a raw dtype: 0 for UNKNOWN, `usize::MAX` for values that are no type.
pub fn element_size_bytes(dtype: u32) -> usize {
    match DType::from_raw(dtype) {
        Some(dtype) => dtype.size_bytes(),
        None if dtype == 0 => 0,
        None => usize::MAX,
    }
}

/// The bytes of `count` elements of a raw dtype: 0 for UNKNOWN, -1 for values that are no type, a count of -1 (no count)
/// and overflow.
pub fn memory_size_bytes(count: i64, dtype: u32) -> i64 {
    match DType::from_raw(dtype) {
        None if dtype == 0 => 0,
        Some(dtype) if count != -1 => count.checked_mul(dtype.size_bytes() as i64).unwrap_or(-1),
        _ => -1,
    }
}

/// Elements of a matrix, padding of the rows included; -1 on overflow.
pub fn matrix_element_count(rows: i64, stride: i64) -> i64 {
    rows.checked_mul(stride).unwrap_or(-1)
}

impl Description {
    /// No dimension, all sizes and strides 1, dtype UNKNOWN.
    pub const EMPTY: Description = Description {
        sizes: [1; MAX_DIM],
        strides: [1; MAX_DIM],
        storage_offset: 0,
        dim: 0,
        dtype: 0,
    };

    /// One dimension of stride 1.
    pub fn array(size: i64, storage_offset: i64, dtype: u32) -> Description {
        let mut description = Description {
            storage_offset,
            dim: 1,
            dtype,
            ..Description::EMPTY
        };
        description.sizes[0] = size;
        description
    }

    /// Two dimensions, strides {stride, 1}.
    pub fn matrix(sizes: [i64; 2], stride: i64, storage_offset: i64, dtype: u32) -> Description {
        let mut description = Description {
            storage_offset,
            dim: 2,
            dtype,
            ..Description::EMPTY
        };
        description.sizes[..2].copy_from_slice(&sizes);
        description.strides[0] = stride;
        description
    }

    /// The number of dimensions; `None` if it is not in [0, 8].
    pub fn dims(&self) -> Option<usize> {
        usize::try_from(self.dim).ok().filter(|dim| *dim <= MAX_DIM)
    }

    /// The stride of the last dimension; `None` without one.
    pub fn last_stride(&self) -> Option<i64> {
        Some(self.strides[self.dims()?.checked_sub(1)?])
    }

    /// `wholememory_convert_tensor_desc_to_array`; `None` where that returns false.
    pub fn to_array(&self) -> Option<Array> {
        let dtype = DType::from_raw(self.dtype)?;
        (self.dim == 1 && self.strides[0] == 1).then_some(Array {
            size: self.sizes[0],
            storage_offset: self.storage_offset,
            dtype,
        })
    }

    /// `wholememory_convert_tensor_desc_to_matrix`; `None` where that returns false.
    pub fn to_matrix(&self) -> Option<Matrix> {
        let dtype = DType::from_raw(self.dtype)?;
        let (rows, cols, stride) = match self.dim {
            1 => (self.sizes[0], 1, 1),
            2 if self.strides[1] == 1 => (self.sizes[0], self.sizes[1], self.strides[0]),
            _ => return None,
        };
        Some(Matrix {
            rows,
            cols,
            stride,
            storage_offset: self.storage_offset,
            dtype,
        })
    }

    /// `sizes[0] * strides[0]`; 1 without dimensions; -1 for a bad dim or overflow.
    pub fn element_count(&self) -> i64 {
        match self.dims() {
            Some(0) => 1,
            Some(_) => matrix_element_count(self.sizes[0], self.strides[0]),
            None => -1,
        }
    }

    /// Removes dimension `at` of size 1; false, and nothing changed, where that cannot be.
    pub fn squeeze(&mut self, at: i32) -> bool {
        let (Some(dims), Ok(at)) = (self.dims(), usize::try_from(at)) else {
            return false;
        };
        if at >= dims || self.sizes[at] != 1 {
            return false;
        }
        if at + 1 < dims && self.strides[at] != self.strides[at + 1] {
            return false;
        }
        self.sizes.copy_within(at + 1..dims, at);
        self.strides.copy_within(at + 1..dims, at);
        self.dim -= 1;
        true
    }

    /// Inserts a dimension of size 1 at `at`; false, and nothing changed, where that cannot be.
    pub fn unsqueeze(&mut self, at: i32) -> bool {
        let (Some(dims), Ok(at)) = (self.dims(), usize::try_from(at)) else {
            return false;
        };
        if at > dims || dims == MAX_DIM {
            return false;
        }
        let stride = match dims {
            0 => 1,
            _ => self.strides[at.min(dims - 1)],
        };
        self.sizes.copy_within(at..dims, at + 1);
        self.strides.copy_within(at..dims, at + 1);
        self.sizes[at] = 1;
        self.strides[at] = stride;
        self.dim += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOAT: u32 = DType::Float as u32;

    type Shape<'a> = (&'a [i64], &'a [i64]);
    type Squeezing<'a> = (&'a [i64], &'a [i64], i32, Option<Shape<'a>>);

    fn of(sizes: &[i64], strides: &[i64]) -> Description {
        let mut description = Description {
            dim: sizes.len() as i32,
            dtype: FLOAT,
            ..Description::EMPTY
        };
        description.sizes[..sizes.len()].copy_from_slice(sizes);
        description.strides[..strides.len()].copy_from_slice(strides);
        description
    }

    fn shape(description: &Description) -> (Vec<i64>, Vec<i64>) {
        let dims = description.dims().unwrap();
        (
            description.sizes[..dims].to_vec(),
            description.strides[..dims].to_vec(),
        )
    }

    #[test]
    fn element_sizes() {
        let found: Vec<usize> = (-1..=10).map(|raw: i32| element_size_bytes(raw as u32)).collect();
        assert_eq!(
            found,
            [usize::MAX, 0, 4, 2, 8, 2, 4, 8, 2, 1, usize::MAX, usize::MAX]
        );
    }

    #[test]
    fn counts_and_sizes_by_dim() {
        let mut description = of(&[3], &[5]);
        let mut counts = Vec::new();
        let mut bytes = Vec::new();
        for dim in -1..=10 {
            description.dim = dim;
            counts.push(description.element_count());
            bytes.push(memory_size_bytes(description.element_count(), FLOAT));
        }
        assert_eq!(counts, [-1, 1, 15, 15, 15, 15, 15, 15, 15, 15, -1, -1]);
        assert_eq!(bytes, [-1, 4, 60, 60, 60, 60, 60, 60, 60, 60, -1, -1]);
    }

    #[test]
    fn sizes_by_dtype() {
        assert_eq!(memory_size_bytes(3, 0), 0);
        for raw in [9, u32::MAX, 100] {
            assert_eq!(memory_size_bytes(3, raw), -1);
        }
        assert_eq!(memory_size_bytes(matrix_element_count(4, 8), FLOAT), 128);
        assert_eq!(memory_size_bytes(i64::MAX / 2, FLOAT), -1);
        assert_eq!(matrix_element_count(i64::MAX, 2), -1);
    }

    #[test]
    fn squeezing() {
        let cases: [Squeezing; 7] = [
            (&[1, 5], &[5, 1], 0, None),
            (&[1, 5], &[1, 1], 0, Some((&[5], &[1]))),
            (&[5, 1], &[7, 1], 1, Some((&[5], &[7]))),
            (&[1], &[1], 0, Some((&[], &[]))),
            (&[2, 1, 3], &[3, 3, 1], 1, None),
            (&[2, 1, 3], &[3, 1, 1], 1, Some((&[2, 3], &[3, 1]))),
            (&[2, 1, 3], &[3, 1, 1], 3, None),
        ];
        for (sizes, strides, at, expected) in cases {
            let mut description = of(sizes, strides);
            let before = description;
            assert_eq!(description.squeeze(at), expected.is_some(), "{sizes:?} @ {at}");
            match expected {
                Some((sizes, strides)) => assert_eq!(shape(&description), (sizes.to_vec(), strides.to_vec())),
                None => assert_eq!(description, before),
            }
        }
        assert!(!of(&[1], &[1]).squeeze(-1));
    }

    #[test]
    fn unsqueezing() {
        let cases: [(&[i64], &[i64], i32, Shape); 6] = [
            (&[4, 6], &[8, 1], 0, (&[1, 4, 6], &[8, 8, 1])),
            (&[4, 6], &[8, 1], 1, (&[4, 1, 6], &[8, 1, 1])),
            (&[4, 6], &[8, 1], 2, (&[4, 6, 1], &[8, 1, 1])),
            (&[5], &[1], 0, (&[1, 5], &[1, 1])),
            (&[5], &[1], 1, (&[5, 1], &[1, 1])),
            (&[], &[], 0, (&[1], &[1])),
        ];
        for (sizes, strides, at, (new_sizes, new_strides)) in cases {
            let mut description = of(sizes, strides);
            assert!(description.unsqueeze(at), "{sizes:?} @ {at}");
            assert_eq!(shape(&description), (new_sizes.to_vec(), new_strides.to_vec()));
        }
        assert!(!of(&[4, 6], &[8, 1]).unsqueeze(-1));
        assert!(!of(&[4, 6], &[8, 1]).unsqueeze(3));
        let mut seven = of(&[1, 2, 3, 4, 5, 6, 7], &[1; 7]);
        assert!(seven.unsqueeze(3));
        assert_eq!(seven.dim, 8);
        let before = seven;
        assert!(!seven.unsqueeze(0));
        assert_eq!(seven, before);
    }

    #[test]
    fn conversions() {
        assert_eq!(of(&[5], &[1]).to_array().map(|a| a.size), Some(5));
        assert_eq!(of(&[5], &[2]).to_array(), None);
        assert_eq!(of(&[], &[]).to_array(), None);
        assert_eq!(of(&[5, 1], &[1, 1]).to_array(), None);
        for dtype in [0, 9, u32::MAX] {
            let description = Description {
                dtype,
                ..of(&[5], &[1])
            };
            assert_eq!(description.to_array(), None);
            assert_eq!(description.to_matrix(), None);
        }
        let column = of(&[5], &[2]).to_matrix().unwrap();
        assert_eq!((column.rows, column.cols, column.stride), (5, 1, 1));
        let matrix = of(&[5, 2], &[7, 1]).to_matrix().unwrap();
        assert_eq!((matrix.rows, matrix.cols, matrix.stride), (5, 2, 7));
        assert_eq!(of(&[5, 2], &[7, 2]).to_matrix(), None);
        assert_eq!(of(&[5, 2, 1], &[2, 1, 1]).to_matrix(), None);
        assert_eq!(of(&[], &[]).to_matrix(), None);
    }

    proptest::proptest! {
        #[test]
        fn squeeze_undoes_unsqueeze(dims in 0usize..8, at in 0usize..9, seed in 1i64..1000) {
            proptest::prop_assume!(at <= dims);
            let sizes: Vec<i64> = (0..dims as i64).map(|i| seed + i).collect();
            let strides: Vec<i64> = (0..dims as i64).map(|i| seed * 3 + i).collect();
            let mut description = of(&sizes, &strides);
            proptest::prop_assert!(description.unsqueeze(at as i32));
            proptest::prop_assert_eq!(description.sizes[at], 1);
            proptest::prop_assert!(description.squeeze(at as i32));
            proptest::prop_assert_eq!(shape(&description), (sizes, strides));
        }
    }
}
