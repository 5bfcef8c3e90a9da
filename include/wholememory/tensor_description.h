/* Shapes and element types. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_TENSOR_DESCRIPTION_H_
#define WHOLEMEMORY_TENSOR_DESCRIPTION_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * Most dimensions of a description.
 */
#define WHOLEMEMORY_MAX_TENSOR_DIM 8

/**
 * Element types.
 */
typedef enum wholememory_dtype_t {
  WHOLEMEMORY_DT_UNKNOWN = 0,
  /**
   * 32-bit IEEE.
   */
  WHOLEMEMORY_DT_FLOAT = 1,
  /**
   * 16-bit IEEE.
   */
  WHOLEMEMORY_DT_HALF = 2,
  /**
   * 64-bit IEEE.
   */
  WHOLEMEMORY_DT_DOUBLE = 3,
  /**
   * The upper 16 bits of a FLOAT.
   */
  WHOLEMEMORY_DT_BF16 = 4,
  /**
   * 32-bit signed.
   */
  WHOLEMEMORY_DT_INT = 5,
  WHOLEMEMORY_DT_INT64 = 6,
  WHOLEMEMORY_DT_INT16 = 7,
  WHOLEMEMORY_DT_INT8 = 8,
  /**
   * Number of the values above; no type.
   */
  WHOLEMEMORY_DT_COUNT = 9,
} wholememory_dtype_t;

/**
 * `size` elements in a row, the first `storage_offset` elements after the begin of the storage.
 */
typedef struct wholememory_array_description_t {
  int64_t size;
  int64_t storage_offset;
  enum wholememory_dtype_t dtype;
} wholememory_array_description_t;

/**
 * `sizes[0]` rows of `sizes[1]` elements, `stride` elements from row to row.
 */
typedef struct wholememory_matrix_description_t {
  int64_t sizes[2];
  int64_t stride;
  int64_t storage_offset;
  enum wholememory_dtype_t dtype;
} wholememory_matrix_description_t;

/**
 * `dim` dimensions (the first entries of both arrays); all numbers in elements.
 */
typedef struct wholememory_tensor_description_t {
  int64_t sizes[WHOLEMEMORY_MAX_TENSOR_DIM];
  int64_t strides[WHOLEMEMORY_MAX_TENSOR_DIM];
  int64_t storage_offset;
  int dim;
  enum wholememory_dtype_t dtype;
} wholememory_tensor_description_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Size of an element in bytes; 0 for UNKNOWN, SIZE_MAX for values that are no type.
 */
size_t wholememory_dtype_get_element_size(enum wholememory_dtype_t dtype);

/**
 * True for FLOAT, HALF, DOUBLE, BF16.
 */
bool wholememory_dtype_is_floating_number(enum wholememory_dtype_t dtype);

/**
 * True for INT, INT64, INT16, INT8.
 */
bool wholememory_dtype_is_integer_number(enum wholememory_dtype_t dtype);

/**
 * The description of these values; nothing is checked.
 */
struct wholememory_array_description_t wholememory_create_array_desc(int64_t size,
                                                                     int64_t storage_offset,
                                                                     enum wholememory_dtype_t dtype);

/**
 * The description of these values (`sizes` points at two); nothing is checked. With `sizes` NULL both sizes are 0.
 */
struct wholememory_matrix_description_t wholememory_create_matrix_desc(int64_t *sizes,
                                                                       int64_t stride,
                                                                       int64_t storage_offset,
                                                                       enum wholememory_dtype_t dtype);

/**
 * Sets dim 0, all sizes and strides 1, offset 0, dtype UNKNOWN. NULL is left alone.
 */
void wholememory_initialize_tensor_desc(struct wholememory_tensor_description_t *tensor_description);

/**
 * The array as a matrix of one column and stride 1. Nothing happens if a pointer is NULL.
 */
void wholememory_copy_array_desc_to_matrix(struct wholememory_matrix_description_t *matrix_description,
                                           struct wholememory_array_description_t *array_description);

/**
 * The array as a tensor of one dimension. Nothing happens if a pointer is NULL.
 */
void wholememory_copy_array_desc_to_tensor(struct wholememory_tensor_description_t *tensor_description,
                                           struct wholememory_array_description_t *array_description);

/**
 * The matrix as a tensor of two dimensions, strides {stride, 1}. Nothing happens if a pointer is NULL.
 */
void wholememory_copy_matrix_desc_to_tensor(struct wholememory_tensor_description_t *tensor_description,
                                            struct wholememory_matrix_description_t *matrix_description);

/**
 * The tensor as an array. False, and the array untouched, unless it has a known dtype, one dimension and stride 1.
 */
bool wholememory_convert_tensor_desc_to_array(struct wholememory_array_description_t *array_description,
                                              struct wholememory_tensor_description_t *tensor_description);

/**
 * The tensor as a matrix; one dimension becomes one column with stride 1 (its own stride is not looked at). False,
 * and the matrix untouched, unless it has a known dtype, one or two dimensions, and column stride 1.
 */
bool wholememory_convert_tensor_desc_to_matrix(struct wholememory_matrix_description_t *matrix_description,
                                               struct wholememory_tensor_description_t *tensor_description);

/**
 * Elements of the array: its size. -1 for NULL.
 */
int64_t wholememory_get_memory_element_count_from_array(struct wholememory_array_description_t *array_description);

/**
 * Elements from the first to behind the padding of the last row: `sizes[0] * stride`. -1 for NULL or overflow.
 */
int64_t wholememory_get_memory_element_count_from_matrix(struct wholememory_matrix_description_t *matrix_description);

/**
 * `sizes[0] * strides[0]`; 1 for dim 0; -1 for NULL, a dim outside [0, 8] or overflow.
 */
int64_t wholememory_get_memory_element_count_from_tensor(struct wholememory_tensor_description_t *tensor_description);

/**
 * The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
 */
int64_t wholememory_get_memory_size_from_array(struct wholememory_array_description_t *array_description);

/**
 * The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, values that are no type, or overflow.
 */
int64_t wholememory_get_memory_size_from_matrix(struct wholememory_matrix_description_t *matrix_description);

/**
 * The element count in bytes; 0 for dtype UNKNOWN; -1 for NULL, a bad dim, values that are no type, or overflow.
 */
int64_t wholememory_get_memory_size_from_tensor(struct wholememory_tensor_description_t *tensor_description);

/**
 * Removes dimension `dim` of size 1 in place. False, and nothing changed, for NULL, a dimension that is not there or not of size
 * 1, or (unless it is the last) one whose stride differs from that of the next.
 */
bool wholememory_squeeze_tensor(struct wholememory_tensor_description_t *tensor_description,
                                int dim);

/**
 * Inserts a dimension of size 1 at `dim` in place, with the stride of the dimension that was there (at the end: of the last one;
 * without dimensions: 1). False, and nothing changed, for NULL, `dim` outside [0, dimensions], or a tensor that has 8.
 */
bool wholememory_unsqueeze_tensor(struct wholememory_tensor_description_t *tensor_description,
                                  int dim);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_TENSOR_DESCRIPTION_H_ */
