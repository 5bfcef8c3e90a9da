/* What the examples share: a communicator over all ranks, and how a failed call is reported. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <wholememory/error.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_op.h>
#include <wholememory/wholememory_tensor.h>

#include "device.h"
#include "options.h"
#include "ranks.h"

static inline const char *code_name(wholememory_error_code_t code) {
  static const char *const names[] = {"SUCCESS",       "UNKNOW_ERROR",        "NOT_IMPLEMENTED", "LOGIC_ERROR",
                                      "CUDA_ERROR",    "COMMUNICATION_ERROR", "INVALID_INPUT",   "INVALID_VALUE",
                                      "OUT_OF_MEMORY", "NOT_SUPPORTED",       "SYSTEM_ERROR"};
  return (unsigned)code < sizeof names / sizeof *names ? names[code] : "a code this program does not know";
}

/* Calls the library; when it refuses, says what, why and on which rank, and ends the program. */
#define TRY(ranks, call)                                                                                \
  do {                                                                                                  \
    wholememory_error_code_t try_code = (call);                                                         \
    if (try_code != WHOLEMEMORY_SUCCESS) {                                                              \
      fprintf(stderr, "rank %d: %s\n  failed with %s: %s\n", (ranks)->rank, #call, code_name(try_code), \
              wholememory_get_last_error());                                                            \
      ranks_give_up(ranks);                                                                             \
    }                                                                                                   \
  } while (0)

/* Starts the library and makes a communicator over all ranks. One rank makes the id, all the others get it. */
static inline wholememory_comm_t connect_ranks(ranks_t *ranks) {
  wholememory_unique_id_t id;
  wholememory_comm_t communicator;
  if (ranks->leads_process) TRY(ranks, wholememory_init(0, LEVEL_ERROR));
  if (ranks->rank == 0) TRY(ranks, wholememory_create_unique_id(&id));
  ranks_broadcast(ranks, &id, sizeof id);
  TRY(ranks, wholememory_create_communicator(&communicator, id, ranks->rank, ranks->size));
  return communicator;
}

/* The opposite: every rank destroys the communicator, then each process ends the library. */
static inline void disconnect_ranks(ranks_t *ranks, wholememory_comm_t communicator) {
  TRY(ranks, wholememory_destroy_communicator(communicator));
  ranks_meet(ranks);
  if (ranks->leads_process) TRY(ranks, wholememory_finalize());
}

/* The description of a dense table of `rows` rows and `columns` columns. */
static inline wholememory_tensor_description_t table_of(int64_t rows, int64_t columns, wholememory_dtype_t dtype) {
  int64_t sizes[2] = {rows, columns};
  wholememory_matrix_description_t matrix = wholememory_create_matrix_desc(sizes, columns, 0, dtype);
  wholememory_tensor_description_t description;
  wholememory_copy_matrix_desc_to_tensor(&description, &matrix);
  return description;
}

static inline wholememory_tensor_description_t list_of(int64_t length, wholememory_dtype_t dtype) {
  wholememory_array_description_t array = wholememory_create_array_desc(length, 0, dtype);
  wholememory_tensor_description_t description;
  wholememory_copy_array_desc_to_tensor(&description, &array);
  return description;
}

#endif
