//! Descriptions of arrays, matrices and tensors (core.md section 6). Pure.

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

impl Description {
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
}
