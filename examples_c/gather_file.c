/* Rows from a file: the ranks load it into a table that is spread over them, and each fetches rows it wants. */
#include <sys/stat.h>

#include "common.h"
#include "progress.h"

enum { SHOWN = 4 };

typedef struct {
  const char *file;
  long columns;
  int wanted_count;
  char **wanted;
} settings_t;

/* Rows in the file, or -1 after saying what is wrong with it. Every rank looks, rank 0 speaks. */
static int64_t rows_in(const settings_t *settings, int rank) {
  struct stat about;
  if (settings->columns < 1) {
    if (rank == 0) fprintf(stderr, "--columns %ld: a row has at least one value\n", settings->columns);
    return -1;
  }
  if (stat(settings->file, &about) != 0) {
    if (rank == 0) fprintf(stderr, "%s cannot be read: %s (relative names count from the folder this is run in; --file names another)\n", settings->file, strerror(errno));
    return -1;
  }
  int64_t row_bytes = settings->columns * (int64_t)sizeof(float);
  if (about.st_size == 0 || about.st_size % row_bytes != 0) {
    if (rank == 0)
      fprintf(stderr, "%s has %lld bytes, which is not a number of rows of %ld floats\n", settings->file,
              (long long)about.st_size, settings->columns);
    return -1;
  }
  return about.st_size / row_bytes;
}

static int gather(ranks_t *ranks, void *argument) {
  const settings_t *settings = argument;
  int64_t rows = rows_in(settings, ranks->rank);
  if (rows < 0) return 2;
  int64_t wanted[settings->wanted_count];
  for (int i = 0; i < settings->wanted_count; i++) {
    long row = -1;
    if (!options_number(ranks->rank, "a row", settings->wanted[i], &row)) return 2;
    if (row < 0 || row >= rows) {
      options_refuse(ranks->rank, "row %ld is not in %s, which has rows 0 to %lld", row, settings->file,
                     (long long)rows - 1);
      return 2;
    }
    wanted[i] = row;
  }

  device_t device = device_open(ranks->rank);
  wholememory_comm_t communicator = connect_ranks(ranks);
  const char *file = settings->file;
  const int64_t columns = settings->columns;
  const size_t row_bytes = (size_t)columns * sizeof(float);

  /* Each rank holds a part of the table in memory of its own and reads only that part of the file. */
  wholememory_tensor_description_t shape = table_of(rows, columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t table;
  TRY(ranks,
      wholememory_create_tensor(&table, &shape, communicator, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL));
  progress_t progress;
  progress_start(&progress, "loading", (size_t)rows * row_bytes, ranks);
  TRY(ranks,
      wholememory_load_from_file(wholememory_tensor_get_memory_handle(table), 0, row_bytes, row_bytes, &file, 1, 0));
  progress_stop(&progress);

  /* Rank r fetches every size-th wanted row. On a DISTRIBUTED table all ranks call, even for nothing. */
  int64_t count = 0;
  int64_t mine[settings->wanted_count + 1];
  for (int i = ranks->rank; i < settings->wanted_count; i += ranks->size) mine[count++] = wanted[i];
  void *ids = device_alloc(&device, (size_t)count * sizeof *mine);
  void *fetched = device_alloc(&device, (size_t)count * row_bytes);
  device_copy(&device, ids, mine, (size_t)count * sizeof *mine);
  wholememory_tensor_description_t ids_shape = list_of(count, WHOLEMEMORY_DT_INT64);
  wholememory_tensor_description_t fetched_shape = table_of(count, columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t ids_tensor, fetched_tensor;
  TRY(ranks, wholememory_make_tensor_from_pointer(&ids_tensor, ids, &ids_shape));
  TRY(ranks, wholememory_make_tensor_from_pointer(&fetched_tensor, fetched, &fetched_shape));
  TRY(ranks, wholememory_gather(table, ids_tensor, fetched_tensor, NULL, NULL, -1));
  device_wait(&device);

  /* The answers meet in a second, shared table, where rank 0 reads them in the order they were asked for. */
  wholememory_tensor_description_t answers_shape = table_of(settings->wanted_count, columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t answers;
  TRY(ranks, wholememory_create_tensor(&answers, &answers_shape, communicator, WHOLEMEMORY_MT_CONTINUOUS,
                                       WHOLEMEMORY_ML_HOST, NULL));
  float *answer = wholememory_tensor_get_data_pointer(answers);
  for (int64_t i = 0; i < count; i++)
    device_copy(&device, answer + (ranks->rank + i * ranks->size) * columns, (char *)fetched + (size_t)i * row_bytes,
                row_bytes);
  TRY(ranks, wholememory_communicator_barrier(communicator));
  if (ranks->rank == 0) {
    printf("%s: %lld rows of %lld floats over %d rank%s\n", settings->file, (long long)rows, (long long)columns,
           ranks->size, ranks->size == 1 ? "" : "s");
    for (int i = 0; i < settings->wanted_count; i++) {
      printf("row %lld:", (long long)wanted[i]);
      for (int64_t column = 0; column < columns && column < SHOWN; column++)
        printf(" %.6f", answer[i * columns + column]);
      printf(columns > SHOWN ? " ...\n" : "\n");
    }
    fflush(stdout);
  }

  TRY(ranks, wholememory_destroy_tensor(ids_tensor));
  TRY(ranks, wholememory_destroy_tensor(fetched_tensor));
  TRY(ranks, wholememory_destroy_tensor(answers));
  TRY(ranks, wholememory_destroy_tensor(table));
  device_free(&device, ids);
  device_free(&device, fetched);
  disconnect_ranks(ranks, communicator);
  return 0;
}

int main(int argc, char **argv) {
  settings_t settings = {"examples_c/data/words.f32", 100, 0, NULL};
  const option_t options[] = {
      {"--file", "FILE", "rows of float32, one after another (examples_c/data/words.f32)", &settings.file, NULL, NULL},
      {"--columns", "N", "floats in a row (100)", NULL, &settings.columns, NULL},
      {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Loads a file of rows into a table spread over all ranks, gathers the rows asked for\n"
      "and prints the first values of each. Without a ROW: 0 1 4999.",
      "[ROW...]", options};
  command_t command = options_begin(&program, argc, argv);
  static char *default_rows[] = {"0", "1", "4999"};
  settings.wanted = command.word_count ? command.words : default_rows;
  settings.wanted_count = command.word_count ? command.word_count : 3;
  return ranks_run((int)command.process_count, (int)command.thread_count, gather, &settings);
}
