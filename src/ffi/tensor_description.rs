//! `tensor_description.h`.

#![allow(non_camel_case_types)]

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
    let _ = dtype;
    0
}

/// True for FLOAT, HALF, DOUBLE, BF16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_dtype_is_floating_number(
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> bool {
    let _ = dtype;
    false
}

/// True for INT, INT64, INT16, INT8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_dtype_is_integer_number(
    dtype: MaybeUninit<wholememory_dtype_t>,
) -> bool {
    let _ = dtype;
    false
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
    let _ = sizes;
    wholememory_matrix_description_t {
        sizes: [0, 0],
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
    let _ = tensor_description;
}

/// The array as a matrix of one column and stride 1. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_array_desc_to_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
    array_description: *mut wholememory_array_description_t,
) {
    let _ = (matrix_description, array_description);
}

/// The array as a tensor of one dimension. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_array_desc_to_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    array_description: *mut wholememory_array_description_t,
) {
    let _ = (tensor_description, array_description);
}

/// The matrix as a tensor of two dimensions, strides {stride, 1}. Nothing happens if a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_copy_matrix_desc_to_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    matrix_description: *mut wholememory_matrix_description_t,
) {
    let _ = (tensor_description, matrix_description);
}

/// The tensor as an array. False, and the array untouched, unless it has a known dtype, one dimension and stride 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_convert_tensor_desc_to_array(
    array_description: *mut wholememory_array_description_t,
    tensor_description: *mut wholememory_tensor_description_t,
) -> bool {
    let _ = (array_description, tensor_description);
    false
}

/// The tensor as a matrix; one dimension becomes one column with stride 1 (its own stride is not looked at). False,
/// and the matrix untouched, unless it has a known dtype, one or two dimensions, and column stride 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_convert_tensor_desc_to_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
    tensor_description: *mut wholememory_tensor_description_t,
) -> bool {
    let _ = (matrix_description, tensor_description);
    false
}

/// Elements of the array: its size. -1 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_array(
    array_description: *mut wholememory_array_description_t,
) -> i64 {
    let _ = array_description;
    -1
}

/// Elements from the first to behind the padding of the last row: `sizes[0] * stride`. -1 for NULL or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
) -> i64 {
    let _ = matrix_description;
    -1
}

/// `sizes[0] * strides[0]`; 1 for dim 0; -1 for NULL, a dim outside [0, 8] or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_element_count_from_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
) -> i64 {
    let _ = tensor_description;
    -1
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_array(
    array_description: *mut wholememory_array_description_t,
) -> i64 {
    let _ = array_description;
    -1
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_matrix(
    matrix_description: *mut wholememory_matrix_description_t,
) -> i64 {
    let _ = matrix_description;
    -1
}

/// The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, a bad dim, values that are no type, or overflow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_get_memory_size_from_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
) -> i64 {
    let _ = tensor_description;
    -1
}

/// Removes dimension `dim` of size 1 in place. False, and nothing changed, for NULL, a dimension that is not there or not of size
/// 1, or (unless it is the last) one whose stride differs from that of the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_squeeze_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    dim: c_int,
) -> bool {
    let _ = (tensor_description, dim);
    false
}

/// Inserts a dimension of size 1 at `dim` in place, with the stride of the dimension that was there (at the end: of the last one;
/// without dimensions: 1). False, and nothing changed, for NULL, `dim` outside [0, dimensions], or a tensor that has 8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_unsqueeze_tensor(
    tensor_description: *mut wholememory_tensor_description_t,
    dim: c_int,
) -> bool {
    let _ = (tensor_description, dim);
    false
}
