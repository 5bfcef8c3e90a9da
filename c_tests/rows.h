/* Embeddings of the tests: made, filled row by row as ids name them, and compared. */
#ifndef WM_ROWS_H
#define WM_ROWS_H

#include <wholememory/embedding.h>

#include "table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  wm_kind kind;
  wholememory_dtype_t dtype;
  int64_t rows, columns;
  int round_robin, sms; /* sms 0 means -1 */
  size_t* partition_rows;
  wholememory_embedding_cache_policy_t policy;
} wm_rows_shape;
typedef struct {
  wm_rows_shape shape;
  wholememory_comm_t comm;
  int rank, size;
  wholememory_embedding_t embedding;
  wholememory_tensor_t tensor; /* lent by the embedding */
  int64_t stride;              /* elements, as the tests compute it */
} wm_rows;

/* Makes the embedding (collective). */
wm_rows wm_rows_make(wholememory_comm_t comm, wm_rows_shape shape);
void wm_rows_drop(wm_rows* e);

/* The row that local row `local` of this rank holds, or -1 for padding. */
int64_t wm_rows_held(const wm_rows* e, int64_t local);
typedef uint64_t wm_element(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt);
/* Writes every row this rank holds (collective: ends with a barrier). */
void wm_rows_fill(wm_rows* e, wm_element* value, int salt);
/* Values that every floating type holds exactly, and 0. */
uint64_t wm_first_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt);
uint64_t wm_zero_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt);
/* Between elements of a floating type and numbers. */
uint64_t wm_rounded(wholememory_dtype_t dtype, double value);
double wm_number(wholememory_dtype_t dtype, uint64_t bits);
/* Local memory of a tensor's handle, copied; the caller frees it. */
unsigned char* wm_local_copy(wholememory_tensor_t tensor, size_t* bytes);

#ifdef __cplusplus
}
#endif
#endif
