/* One table, many owners: each rank writes its own rows, then reads its neighbour's through the same pointer. */
#include "common.h"

enum { COLUMNS = 8 };

typedef struct {
  long rows;
} settings_t;

static float expected(size_t row, size_t column) { return (float)row + (float)column / 16; }

static int share(ranks_t *ranks, void *argument) {
  const settings_t *settings = argument;
  device_open(ranks->rank);
  wholememory_comm_t communicator = connect_ranks(ranks);

  wholememory_tensor_description_t shape = table_of(settings->rows, COLUMNS, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t table;
  TRY(ranks,
      wholememory_create_tensor(&table, &shape, communicator, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, NULL));
  wholememory_handle_t memory = wholememory_tensor_get_memory_handle(table);

  /* The rows this rank owns: a piece of the table and where it begins, in bytes. */
  void *mine;
  size_t bytes, offset_bytes;
  TRY(ranks, wholememory_get_local_memory(&mine, &bytes, &offset_bytes, memory));
  const size_t row_bytes = COLUMNS * sizeof(float);
  size_t first = offset_bytes / row_bytes, count = bytes / row_bytes;
  for (size_t i = 0; i < count; i++)
    for (size_t column = 0; column < COLUMNS; column++)
      ((float *)mine)[i * COLUMNS + column] = expected(first + i, column);

  /* After the barrier every rank sees what every other wrote before it. */
  TRY(ranks, wholememory_communicator_barrier(communicator));

  void *whole;
  TRY(ranks, wholememory_get_global_pointer(&whole, memory));
  int neighbour = (ranks->rank + 1) % ranks->size;
  void *theirs;
  size_t their_bytes, their_offset_bytes;
  TRY(ranks, wholememory_get_rank_memory(&theirs, &their_bytes, &their_offset_bytes, neighbour, memory));
  long wrong = 0;
  size_t their_first = their_offset_bytes / row_bytes, their_count = their_bytes / row_bytes;
  for (size_t row = their_first; row < their_first + their_count; row++)
    for (size_t column = 0; column < COLUMNS; column++)
      wrong += ((const float *)whole)[row * COLUMNS + column] != expected(row, column);
  if (their_count && (const char *)theirs != (const char *)whole + their_offset_bytes) wrong++;

  double wrong_anywhere = ranks_sum(ranks, (double)wrong), read_anywhere = ranks_sum(ranks, (double)their_count);
  if (ranks->rank == 0) {
    printf("%d ranks share one table of %ld rows x %d floats; rank 0 owns rows 0 to %ld\n", ranks->size, settings->rows,
           COLUMNS, (long)count - 1);
    printf("each rank read its neighbour's rows: %.0f rows, %.0f wrong values\n", read_anywhere, wrong_anywhere);
    fflush(stdout);
  }
  TRY(ranks, wholememory_destroy_tensor(table));
  disconnect_ranks(ranks, communicator);
  return wrong_anywhere != 0;
}

int main(int argc, char **argv) {
  settings_t settings = {1000};
  const option_t options[] = {{"--rows", "N", "rows of the table (1000)", NULL, &settings.rows, NULL},
                              {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Makes one table in the memory of all ranks; each writes its own rows and reads its neighbour's.", "", options};
  command_t command = options_begin(&program, argc, argv);
  return ranks_run((int)command.process_count, (int)command.thread_count, share, &settings);
}
