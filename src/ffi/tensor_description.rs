//! `tensor_description.h`.

#![allow(non_camel_case_types)]

use super::convert::{Out, dressed, raw, read};
use super::guard;
use crate::error::{Result, fail};
use crate::kinds::DType;
use crate::tensor::{Description, element_size_bytes, matrix_element_count, memory_size_bytes};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Most dimensions of a description.
pub const WHOLEMEMORY_MAX_TENSOR_DIM: usize = 8;

/// Element types.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wholememory_dtype_t {
    WHOLEMEMORY_DT_UNKNOWN = 0,
    /// 32-bit IEEE.
    WHOLEMEMORY_DT_FLOAT = 1,
    /// 16-bit IEEE.
    WHOLEMEMORY_DT_HALF = 2,
    /// 64-bit IEEE.
    WHOLEMEMORY_DT_DOUBLE = 3,
    /// The upper 16 bits of a FLOAT.
    WHOLEMEMORY_DT_BF16 = 4,
    /// 32-bit signed.
    WHOLEMEMORY_DT_INT = 5,
    WHOLEMEMORY_DT_INT64 = 6,
    WHOLEMEMORY_DT_INT16 = 7,
    WHOLEMEMORY_DT_INT8 = 8,
    /// Number of the values above; no type.
    WHOLEMEMORY_DT_COUNT = 9,
}

/// `size` elements in a row, the first `storage_offset` elements after the begin of the storage.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_array_description_t {
    pub size: i64,
    pub storage_offset: i64,
    pub dtype: MaybeUninit<wholememory_dtype_t>,
}

/// `sizes[0]` rows of `sizes[1]` elements, `stride` elements from row to row.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_matrix_description_t {
    pub sizes: [i64; 2],
    pub stride: i64,
    pub storage_offset: i64,
    pub dtype: MaybeUninit<wholememory_dtype_t>,
}

/// `dim` dimensions (the first entries of both arrays); all numbers in elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct wholememory_tensor_description_t {
    pub sizes: [i64; WHOLEMEMORY_MAX_TENSOR_DIM],
    pub strides: [i64; WHOLEMEMORY_MAX_TENSOR_DIM],
    pub storage_offset: i64,
    pub dim: c_int,
    pub dtype: MaybeUninit<wholememory_dtype_t>,
}

/// Size of an element in bytes; 0 for UNKNOWN, SIZE_MAX for values that are no type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_dtype_get_element_size(
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> usize {
    element_size_bytes(raw(dtype))
}

/// True for FLOAT, HALF, DOUBLE, BF16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_dtype_is_floating_number(
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> bool {
    DType::from_raw(raw(dtype)).is_some_and(DType::is_float)
}

/// True for INT, INT64, INT16, INT8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_dtype_is_integer_number(
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> bool {
    DType::from_raw(raw(dtype)).is_some_and(|dtype| !dtype.is_float())
}

/// The description of these values; nothing is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_array_desc(
    size: i64,
    storage_offset: i64,
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> wholememory_array_description_t {
    wholememory_array_description_t {
        size,
        storage_offset,
        dtype,
    }
}

/// The description of these values (`sizes` points at two); nothing is checked. With `sizes` NULL both sizes are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_create_matrix_desc(
    sizes: *mut i64,
    stride: i64,
    storage_offset: i64,
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> wholememory_matrix_description_t {
    // SAFETY: the caller's pointer is NULL or holds two values.
    let sizes = guard::value([0, 0], || unsafe { read("sizes", sizes.cast::<[i64; 2]>()) });
    wholememory_matrix_description_t {
        sizes,
        stride,
        storage_offset,
        dtype,
    }
}

/// Sets dim 0, all sizes and strides 1, offset 0, dtype UNKNOWN. NULL is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_initialize_tensor_desc(
    tensor_description: *mut wholememory_tensor_description_t,
) {
    guard::value((), || {
        let place = Out::new("tensor_description", tensor_description)?;
        // SAFETY: the caller's place holds the struct.
        unsafe { place.write(Description::EMPTY.into()) };
        Ok(())
    })
}

/// The array as a matrix of one column and stride 1. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_array_desc_to_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
    array_description: *mut wholememory_array_description_t,
) {
    guard::value((), || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let array = unsafe { read("array_description", array_description) }?;
        let matrix = wholememory_matrix_description_t {
            sizes: [array.size, 1],
            stride: 1,
            storage_offset: array.storage_offset,
            dtype: array.dtype,
        };
        // SAFETY: the caller's place holds the struct.
        unsafe { Out::new("matrix_description", matrix_description)?.write(matrix) };
        Ok(())
    })
}

/// The array as a tensor of one dimension. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_array_desc_to_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    array_description: *mut wholememory_array_description_t,
) {
    guard::value((), || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let array = unsafe { read("array_description", array_description) }?;
        let tensor = Description::array(array.size, array.storage_offset, raw(array.dtype));
        // SAFETY: the caller's place holds the struct.
        unsafe { Out::new("tensor_description", tensor_description)?.write(tensor.into()) };
        Ok(())
    })
}

/// The matrix as a tensor of two dimensions, strides {stride, 1}. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_matrix_desc_to_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    matrix_description: *mut wholememory_matrix_description_t,
) {
    guard::value((), || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let matrix = unsafe { read("matrix_description", matrix_description) }?;
        let tensor = Description::matrix(
            matrix.sizes,
            matrix.stride,
            matrix.storage_offset,
            raw(matrix.dtype),
        );
        // SAFETY: the caller's place holds the struct.
        unsafe { Out::new("tensor_description", tensor_description)?.write(tensor.into()) };
        Ok(())
    })
}

/// The tensor as an array. False, and the array untouched, unless it has a known dtype, one dimension and stride 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_convert_tensor_desc_to_array(
    array_description: *mut wholememory_array_description_t,
    tensor_description: *mut wholememory_tensor_description_t,
) -> bool {
    guard::value(false, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let tensor = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        let place = Out::new("array_description", array_description)?;
        let Some(array) = tensor.to_array() else {
            fail!(
                InvalidInput,
                "{} is no array of stride 1 and known dtype",
                in_words(&tensor)
            );
        };
        let array = wholememory_array_description_t {
            size: array.size,
            storage_offset: array.storage_offset,
            dtype: dressed(array.dtype.raw()),
        };
        // SAFETY: the caller's place holds the struct.
        unsafe { place.write(array) };
        Ok(true)
    })
}

/// The tensor as a matrix; one dimension becomes one column with stride 1 (its own stride is not looked at). False,
/// and the matrix untouched, unless it has a known dtype, one or two dimensions, and column stride 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_convert_tensor_desc_to_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
    tensor_description: *mut wholememory_tensor_description_t,
) -> bool {
    guard::value(false, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let tensor = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        let place = Out::new("matrix_description", matrix_description)?;
        let Some(matrix) = tensor.to_matrix() else {
            fail!(
                InvalidInput,
                "{} is no matrix of column stride 1 and known dtype",
                in_words(&tensor)
            );
        };
        let matrix = wholememory_matrix_description_t {
            sizes: [matrix.rows, matrix.cols],
            stride: matrix.stride,
            storage_offset: matrix.storage_offset,
            dtype: dressed(matrix.dtype.raw()),
        };
        // SAFETY: the caller's place holds the struct.
        unsafe { place.write(matrix) };
        Ok(true)
    })
}

/// Elements of the array: its size. -1 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_array(
    array_description: *mut wholememory_array_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        Ok(unsafe { read("array_description", array_description) }?.size)
    })
}

/// Elements from the first to behind the padding of the last row: `sizes[0] * stride`. -1 for NULL or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let matrix = unsafe { read("matrix_description", matrix_description) }?;
        Ok(matrix_element_count(matrix.sizes[0], matrix.stride))
    })
}

/// `sizes[0] * strides[0]`; 1 for dim 0; -1 for NULL, a dim outside [0, 8] or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let tensor = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        Ok(tensor.element_count())
    })
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_array(
    array_description: *mut wholememory_array_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let array = unsafe { read("array_description", array_description) }?;
        Ok(memory_size_bytes(array.size, raw(array.dtype)))
    })
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let matrix = unsafe { read("matrix_description", matrix_description) }?;
        Ok(memory_size_bytes(
            matrix_element_count(matrix.sizes[0], matrix.stride),
            raw(matrix.dtype),
        ))
    })
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, a bad dim, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
) -> i64 {
    guard::value(-1, || {
        // SAFETY: the caller's pointer is NULL or holds the struct.
        let tensor = Description::from(unsafe { read("tensor_description", tensor_description) }?);
        Ok(memory_size_bytes(tensor.element_count(), tensor.dtype))
    })
}

/// Removes dimension `dim` of size 1 in place. False, and nothing changed, for NULL, a dimension that is not there or not of size
/// 1, or (unless it is the last) one whose stride differs from that of the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_squeeze_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    dim: c_int,
) -> bool {
    // SAFETY: the caller's pointer is NULL or holds the struct.
    guard::value(false, || unsafe {
        change(tensor_description, |tensor| tensor.squeeze(dim), "squeezed", dim)
    })
}

/// Inserts a dimension of size 1 at `dim` in place, with the stride of the dimension that was there (at the end: of the last one;
/// without dimensions: 1). False, and nothing changed, for NULL, `dim` outside [0, dimensions], or a tensor that has 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_unsqueeze_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    dim: c_int,
) -> bool {
    // SAFETY: the caller's pointer is NULL or holds the struct.
    guard::value(false, || unsafe {
        change(
            tensor_description,
            |tensor| tensor.unsqueeze(dim),
            "unsqueezed",
            dim,
        )
    })
}

fn in_words(tensor: &Description) -> String {
    let dims = tensor.dims().unwrap_or(0);
    format!(
        "a description of dim {}, sizes {:?}, strides {:?}, dtype {}",
        tensor.dim,
        &tensor.sizes[..dims],
        &tensor.strides[..dims],
        DType::name_of(tensor.dtype)
    )
}

/// Changes a description in place; it is written only if the change was made.
/// # Safety
/// The pointer is NULL or valid for the struct.
unsafe fn change(
    place: *mut wholememory_tensor_description_t,
    with: impl FnOnce(&mut Description) -> bool,
    verb: &str,
    dim: c_int,
) -> Result<bool> {
    // SAFETY: by the contract of this function.
    let mut tensor = Description::from(unsafe { read("tensor_description", place) }?);
    if !with(&mut tensor) {
        fail!(InvalidInput, "{} cannot be {verb} at {dim}", in_words(&tensor));
    }
    // SAFETY: by the contract of this function.
    unsafe { Out::new("tensor_description", place)?.write(tensor.into()) };
    Ok(true)
}
