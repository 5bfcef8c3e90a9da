/* Tables and arrays of the tests. Every value is a function of (dtype, row, column, salt), so that each rank
 * recomputes what it expects; conversions are written out here on the bits, apart from the library. */
#ifndef WM_TABLE_H
#define WM_TABLE_H

#include <string.h>

#include "env.h"
#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct { wholememory_dtype_t id; const char* name; int bytes; bool floating; } wm_dtype;
enum { WM_DTYPES = 8, WM_KINDS = 8 };
extern const wm_dtype wm_dtypes[WM_DTYPES];
/* 0 for what is no dtype. */
static inline size_t wm_bytes_of(wholememory_dtype_t id) {
  static const unsigned char bytes[] = {0, 4, 2, 8, 2, 4, 8, 2, 1};
  return (unsigned)id < sizeof bytes ? bytes[id] : 0;
}
const char* wm_dtype_name(wholememory_dtype_t id);

typedef struct { wholememory_memory_type_t type; wholememory_memory_location_t location; const char* name; } wm_kind;
/* The four types at the two locations. */
extern const wm_kind wm_kinds[WM_KINDS];
/* False, with a line that says so, where the communicator does not support the kind. */
bool wm_kind_here(wm_rank* r, wholememory_comm_t comm, const wm_kind* kind);

static inline uint64_t wm_hash(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0xD1B54A32D192ED03u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/* The bits of an element; floats mix ordinary numbers, ties of every rounding, and any bit pattern. */
uint64_t wm_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt);
static inline uint64_t wm_bits(wholememory_dtype_t dtype, const void* element) {
  uint64_t bits = 0;
  switch (wm_bytes_of(dtype)) { /* little-endian, as every platform of the library */
    case 1: memcpy(&bits, element, 1); break;
    case 2: memcpy(&bits, element, 2); break;
    case 4: memcpy(&bits, element, 4); break;
    default: memcpy(&bits, element, 8); break;
  }
  return bits;
}
static inline void wm_set_bits(wholememory_dtype_t dtype, void* element, uint64_t bits) {
  switch (wm_bytes_of(dtype)) {
    case 1: memcpy(element, &bits, 1); break;
    case 2: memcpy(element, &bits, 2); break;
    case 4: memcpy(element, &bits, 4); break;
    default: memcpy(element, &bits, 8); break;
  }
}
uint64_t wm_convert(wholememory_dtype_t from, wholememory_dtype_t to, uint64_t bits);
/* Equal bits, or NaN on both sides: the payload of a converted NaN is free. */
bool wm_same(wholememory_dtype_t dtype, uint64_t a, uint64_t b);

wholememory_tensor_description_t wm_desc(wholememory_dtype_t dtype, int dim, int64_t size0, int64_t size1,
                                         int64_t stride0, int64_t offset);

/* A user's array: `rows` x `columns` in rows of `stride` elements, its first element `offset` elements after the
 * storage pointer, which is `skew_bytes` past an aligned address. Bytes around and between are guarded. */
typedef struct { wholememory_dtype_t dtype; int dim; int64_t rows, columns, stride, offset; int skew_bytes; } wm_view;
typedef struct {
  wm_view view;
  size_t bytes;
  unsigned char* device; /* what the library sees */
  unsigned char* host;   /* the test's copy of all of it */
  wholememory_tensor_t tensor;
} wm_array;
enum { WM_GUARD_BYTE = 0x7F };
wm_array wm_array_make(wm_view view);
void* wm_array_at(const wm_array* a, int64_t row, int64_t column); /* in the host copy */
void wm_array_push(wm_array* a);
/* Compares the device's bytes with the host copy: only elements set in `want` may differ by the NaN rule. */
bool wm_array_matches(const wm_array* a, const char* what);
void wm_array_drop(wm_array* a);

/* A table over all ranks of a communicator, seen through a window of columns. */
typedef struct {
  wm_kind kind;
  wholememory_dtype_t dtype;
  int dim; /* 1: columns is 1 */
  int64_t rows, columns, first_column, stride;
  size_t* partition_rows;
} wm_shape;
typedef struct {
  wm_shape shape;
  wholememory_comm_t comm;
  int rank, size;
  wholememory_tensor_t root, window;
  wholememory_handle_t handle;
} wm_table;
/* Makes the table and fills every row, padding too, with wm_value(.., salt 0) (collective). */
wm_table wm_table_make(wholememory_comm_t comm, wm_shape shape);
void wm_table_fill(wm_table* t, int salt);
void wm_table_drop(wm_table* t);
/* Rows of the handle that the caller owns: their bytes copied to `*host` (to be freed), the first row's number. */
int64_t wm_table_local(const wm_table* t, unsigned char** host, int64_t* first_row);

typedef struct {
  wholememory_dtype_t index_dtype, user_dtype;
  int64_t count;
  int64_t pad, user_offset, index_offset; /* elements */
  int skew_elements;
  bool bad_ids; /* mixes negative and too large ids in */
  int user_dim; /* 0 means 2 */
  int seed;
  bool no_env;
} wm_lookup;
/* Gathers as described and compares every byte of the output (collective where the kind is). */
void wm_gather_check(const wm_table* t, wm_lookup l);
/* All ranks scatter disjoint rows, then each compares its own partition, and puts the old values back (collective). */
void wm_scatter_check(wm_table* t, wm_lookup l);

#ifdef __cplusplus
}
#endif
#endif
