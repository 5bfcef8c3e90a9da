#include "rows.h"

#include <stdlib.h>

#include "device.h"

wm_rows wm_rows_make(wholememory_comm_t comm, wm_rows_shape shape) {
  if (shape.sms == 0) shape.sms = -1;
  wm_rows e = {.shape = shape, .comm = comm};
  OK(wholememory_communicator_get_rank(&e.rank, comm));
  OK(wholememory_communicator_get_size(&e.size, comm));
  int64_t unit = 16 / (int64_t)wm_bytes_of(shape.dtype);
  e.stride = (shape.columns + unit - 1) / unit * unit;
  wholememory_tensor_description_t d = wm_desc(shape.dtype, 2, shape.rows, shape.columns, shape.columns, 0);
  OK(wholememory_create_embedding(&e.embedding, &d, comm, shape.kind.type, shape.kind.location, shape.policy,
                                  shape.partition_rows, shape.sms, shape.round_robin));
  e.tensor = wholememory_embedding_get_embedding_tensor(e.embedding);
  REQUIRE(e.tensor != NULL);
  return e;
}

void wm_rows_drop(wm_rows* e) { EXPECT(0, wholememory_destroy_embedding(e->embedding)); }

int64_t wm_rows_held(const wm_rows* e, int64_t local) {
  int64_t row;
  if (e->shape.round_robin) {
    int64_t block = e->shape.round_robin;
    row = (local / block * e->size + e->rank) * block + local % block;
  } else {
    size_t first;
    OK(wholememory_tensor_get_local_entry_start(&first, e->tensor));
    row = (int64_t)first + local;
  }
  return row < e->shape.rows ? row : -1;
}

void wm_rows_fill(wm_rows* e, wm_element* value, int salt) {
  size_t element = wm_bytes_of(e->shape.dtype), row_bytes = element * (size_t)e->stride, bytes, offset;
  void* local;
  OK(wholememory_get_local_memory(&local, &bytes, &offset, wholememory_tensor_get_memory_handle(e->tensor)));
  CHECK_EQ(bytes % row_bytes, 0);
  unsigned char* host = malloc(bytes + 1);
  REQUIRE(host != NULL);
  memset(host, WM_GUARD_BYTE, bytes);
  for (int64_t at = 0; at < (int64_t)(bytes / row_bytes); at++) {
    int64_t row = wm_rows_held(e, at);
    for (int64_t c = 0; c < e->shape.columns && row >= 0; c++)
      wm_set_bits(e->shape.dtype, host + (size_t)at * row_bytes + (size_t)c * element, value(e->shape.dtype, row, c, salt));
  }
  if (bytes) wm_copy(local, host, bytes);
  free(host);
  OK(wholememory_communicator_barrier(e->comm));
}

unsigned char* wm_local_copy(wholememory_tensor_t tensor, size_t* bytes) {
  size_t offset;
  void* local;
  OK(wholememory_get_local_memory(&local, bytes, &offset, wholememory_tensor_get_memory_handle(tensor)));
  unsigned char* host = malloc(*bytes + 1);
  REQUIRE(host != NULL);
  wm_finish();
  if (*bytes) wm_copy(host, local, *bytes);
  return host;
}

uint64_t wm_rounded(wholememory_dtype_t dtype, double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return wm_convert(WHOLEMEMORY_DT_DOUBLE, dtype, bits);
}

double wm_number(wholememory_dtype_t dtype, uint64_t bits) {
  double value;
  bits = wm_convert(dtype, WHOLEMEMORY_DT_DOUBLE, bits);
  memcpy(&value, &bits, 8);
  return value;
}

uint64_t wm_first_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt) {
  (void)salt;
  return wm_rounded(dtype, ((double)(wm_hash((uint64_t)row, (uint64_t)column) % 257) - 128) / 64);
}

uint64_t wm_zero_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt) {
  (void)dtype, (void)row, (void)column, (void)salt;
  return 0;
}
