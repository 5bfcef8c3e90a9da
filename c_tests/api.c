#include "api.h"

#include <string.h>

#include "device.h"

enum { ROWS = 1000, COLUMNS = 16 };

static wholememory_tensor_description_t describe(wholememory_dtype_t dtype, int dim, int64_t rows, int64_t columns) {
  wholememory_tensor_description_t d = {{rows, columns, 1, 1, 1, 1, 1, 1}, {columns, 1, 1, 1, 1, 1, 1, 1}, 0, dim, dtype};
  return d;
}

void* wm_api_job(void* argument) {
  wm_api_rank* r = argument;
  const wm_api* api = r->api;
  wm_set_rank(r->rank);
  wm_device_bind(r->rank);
  wholememory_comm_t comm;
  OK(api->wholememory_create_communicator(&comm, r->id, r->rank, r->size));
  wholememory_tensor_description_t d = describe(WHOLEMEMORY_DT_INT, 2, ROWS, COLUMNS);
  wholememory_tensor_t table, ids_tensor, out_tensor;
  OK(api->wholememory_create_tensor(&table, &d, comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, NULL));
  void* mine;
  size_t bytes, offset;
  OK(api->wholememory_get_local_memory(&mine, &bytes, &offset, api->wholememory_tensor_get_memory_handle(table)));
  for (size_t i = 0; i < bytes / 4; i++) ((int32_t*)mine)[i] = (int32_t)(offset / 4 + i);
  OK(api->wholememory_communicator_barrier(comm));
  int64_t ids_host[ROWS];
  static _Thread_local int32_t out_host[ROWS * COLUMNS];
  for (int i = 0; i < ROWS; i++) ids_host[i] = (i * 7 + r->rank) % ROWS;
  void *ids = wm_alloc(sizeof ids_host), *out = wm_alloc(sizeof out_host);
  wm_copy(ids, ids_host, sizeof ids_host);
  d = describe(WHOLEMEMORY_DT_INT64, 1, ROWS, 1);
  OK(api->wholememory_make_tensor_from_pointer(&ids_tensor, ids, &d));
  d = describe(WHOLEMEMORY_DT_INT, 2, ROWS, COLUMNS);
  OK(api->wholememory_make_tensor_from_pointer(&out_tensor, out, &d));
  OK(api->wholememory_gather(table, ids_tensor, out_tensor, NULL, NULL, -1));
  wm_finish();
  wm_copy(out_host, out, sizeof out_host);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    if (!CHECK_EQ(out_host[i], ids_host[i / COLUMNS] * COLUMNS + i % COLUMNS)) break;
  OK(api->wholememory_destroy_tensor(ids_tensor));
  OK(api->wholememory_destroy_tensor(out_tensor));
  OK(api->wholememory_destroy_tensor(table));
  wm_release(ids);
  wm_release(out);
  OK(api->wholememory_destroy_communicator(comm));
  return NULL;
}
