#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"

/* An overrun at the end is the address sanitizer's to find, so nothing is allocated after the last element there. */
#ifdef __SANITIZE_ADDRESS__
enum { GUARD_BEFORE_BYTES = 64, GUARD_AFTER_BYTES = 0 };
#else
enum { GUARD_BEFORE_BYTES = 64, GUARD_AFTER_BYTES = 64 };
#endif

bool wm_kind_here(wm_rank* r, wholememory_comm_t comm, const wm_kind* kind) {
  int code = wholememory_communicator_support_type_location(comm, kind->type, kind->location);
  if (code == WHOLEMEMORY_SUCCESS) return true;
  CHECK_EQ(code, WHOLEMEMORY_NOT_SUPPORTED);
  wm_leave_out(r, "%s is not supported here: %s", kind->name, wholememory_get_last_error());
  return false;
}

wholememory_tensor_description_t wm_desc(wholememory_dtype_t dtype, int dim, int64_t size0, int64_t size1,
                                         int64_t stride0, int64_t offset) {
  wholememory_tensor_description_t d;
  wholememory_initialize_tensor_desc(&d);
  d.dim = dim;
  d.dtype = dtype;
  d.storage_offset = offset;
  d.sizes[0] = size0;
  d.strides[0] = dim == 1 ? 1 : stride0;
  if (dim == 2) d.sizes[1] = size1, d.strides[1] = 1;
  return d;
}

static size_t byte_at(const wm_array* a, int64_t row, int64_t column) {
  int64_t element = a->view.offset + row * a->view.stride + column;
  return (size_t)(GUARD_BEFORE_BYTES + a->view.skew_bytes + element * (int64_t)wm_bytes_of(a->view.dtype));
}

wm_array wm_array_make(wm_view view) {
  if (view.dim == 0) view.dim = 2;
  wm_array a = {view, 0, NULL, NULL, NULL};
  size_t storage = byte_at(&a, 0, 0) - (size_t)view.offset * wm_bytes_of(view.dtype);
  a.bytes = (view.rows ? byte_at(&a, view.rows - 1, view.columns) : byte_at(&a, 0, 0)) + GUARD_AFTER_BYTES;
  a.device = wm_alloc(a.bytes);
  a.host = malloc(a.bytes);
  REQUIRE(a.host != NULL);
  memset(a.host, WM_GUARD_BYTE, a.bytes);
  wm_array_push(&a);
  wholememory_tensor_description_t d =
      wm_desc(view.dtype, view.dim, view.rows, view.columns, view.stride, view.offset);
  OK(wholememory_make_tensor_from_pointer(&a.tensor, a.device + storage, &d));
  return a;
}

void* wm_array_at(const wm_array* a, int64_t row, int64_t column) { return a->host + byte_at(a, row, column); }

void wm_array_push(wm_array* a) { wm_copy(a->device, a->host, a->bytes); }

bool wm_array_matches(const wm_array* a, const char* what) {
  unsigned char* got = malloc(a->bytes);
  REQUIRE(got != NULL);
  wm_finish();
  wm_copy(got, a->device, a->bytes);
  bool good = true;
  size_t element = wm_bytes_of(a->view.dtype);
  for (int64_t row = 0; row < a->view.rows && good; row++) {
    unsigned char *g = got + byte_at(a, row, 0), *w = a->host + byte_at(a, row, 0);
    if (!memcmp(g, w, element * (size_t)a->view.columns)) continue;
    for (int64_t column = 0; column < a->view.columns && good; column++, g += element, w += element) {
      uint64_t got_bits = wm_bits(a->view.dtype, g), want_bits = wm_bits(a->view.dtype, w);
      good = wm_same(a->view.dtype, got_bits, want_bits);
      if (!good)
        FAILED("%s: row %lld column %lld is %#llx, not %#llx", what, (long long)row, (long long)column,
               (unsigned long long)got_bits, (unsigned long long)want_bits);
      wm_set_bits(a->view.dtype, g, want_bits);
    }
  }
  for (size_t i = 0; i < a->bytes && good; i++) {
    good = got[i] == a->host[i];
    if (!good) FAILED("%s: byte %zu of %zu, outside every row, was written", what, i, a->bytes);
  }
  free(got);
  return good;
}

void wm_array_drop(wm_array* a) {
  OK(wholememory_destroy_tensor(a->tensor));
  wm_release(a->device);
  free(a->host);
}

wm_table wm_table_make(wholememory_comm_t comm, wm_shape shape) {
  if (shape.dim == 0) shape.dim = 2;
  if (shape.dim == 1) shape.stride = shape.columns = 1;
  if (shape.stride == 0) shape.stride = shape.first_column + shape.columns;
  wm_table t = {shape, comm, 0, 0, NULL, NULL, NULL};
  OK(wholememory_communicator_get_rank(&t.rank, comm));
  OK(wholememory_communicator_get_size(&t.size, comm));
  wholememory_tensor_description_t d =
      wm_desc(shape.dtype, shape.dim, shape.rows, shape.first_column + shape.columns, shape.stride, 0);
  OK(wholememory_create_tensor(&t.root, &d, comm, shape.kind.type, shape.kind.location, shape.partition_rows));
  t.handle = wholememory_tensor_get_memory_handle(t.root);
  REQUIRE(t.handle != NULL);
  t.window = t.root;
  if (shape.first_column) {
    int64_t starts[2] = {-1, shape.first_column}, ends[2] = {-1, -1};
    OK(wholememory_tensor_get_subtensor(t.root, starts, ends, &t.window));
  }
  wm_table_fill(&t, 0);
  return t;
}

void wm_table_fill(wm_table* t, int salt) {
  size_t element = wm_bytes_of(t->shape.dtype), row_bytes = element * (size_t)t->shape.stride;
  void* local;
  size_t bytes, offset;
  OK(wholememory_get_local_memory(&local, &bytes, &offset, t->handle));
  unsigned char* host = malloc(bytes + 1);
  REQUIRE(host != NULL);
  for (size_t at = 0; at < bytes; at += element)
    wm_set_bits(t->shape.dtype, host + at,
                wm_value(t->shape.dtype, (int64_t)((offset + at) / row_bytes),
                         (int64_t)((offset + at) % row_bytes / element), salt));
  if (bytes) wm_copy(local, host, bytes);
  free(host);
  OK(wholememory_communicator_barrier(t->comm));
}

int64_t wm_table_local(const wm_table* t, unsigned char** host, int64_t* first_row) {
  size_t row_bytes = wm_bytes_of(t->shape.dtype) * (size_t)t->shape.stride, bytes, offset;
  void* local;
  OK(wholememory_get_local_memory(&local, &bytes, &offset, t->handle));
  *host = malloc(bytes + 1);
  REQUIRE(*host != NULL);
  wm_finish();
  if (bytes) wm_copy(*host, local, bytes);
  *first_row = (int64_t)(offset / row_bytes);
  return (int64_t)(bytes / row_bytes);
}

void wm_table_drop(wm_table* t) {
  if (t->window != t->root) OK(wholememory_destroy_tensor(t->window));
  OK(wholememory_destroy_tensor(t->root));
}
