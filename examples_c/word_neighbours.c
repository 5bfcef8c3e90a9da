/* Nearest neighbours of words: the vectors stand once in memory that all ranks share; each rank scores the
 * rows it owns against the words asked for, and rank 0 prints the best of all. */
#include <math.h>
#include <sys/stat.h>

#include "common.h"
#include "progress.h"
#include "words.h"

typedef struct {
  const char *vectors_file;
  const char *words_file;
  long columns;
  long shown;
  int plain;
  int asked_count;
  char **asked;
} settings_t;

/* A row and how near it is; `row` -1 is "none". */
typedef struct {
  double score;
  int64_t row;
} match_t;

static int files_fit(const settings_t *settings, const words_t *words, int rank) {
  struct stat about;
  if (stat(settings->vectors_file, &about) != 0)
    return options_refuse(rank, "the vectors in %s cannot be read: %s", settings->vectors_file, strerror(errno));
  long long wanted_bytes = (long long)words->count * settings->columns * (long long)sizeof(float);
  if (wanted_bytes <= 0 || about.st_size != wanted_bytes)
    return options_refuse(rank, "%s has %lld bytes, but %lld words of %ld float32 each need %lld",
                          settings->vectors_file, (long long)about.st_size, (long long)words->count, settings->columns,
                          wanted_bytes);
  return 1;
}

static double length_of(const float *vector, int64_t columns) {
  double sum = 0;
  for (int64_t i = 0; i < columns; i++) sum += (double)vector[i] * vector[i];
  return sqrt(sum);
}

static double cosine(const float *a, const float *b, int64_t columns) {
  double dot = 0, lengths = length_of(a, columns) * length_of(b, columns);
  for (int64_t i = 0; i < columns; i++) dot += (double)a[i] * b[i];
  return lengths > 0 ? dot / lengths : 0;
}

/* Puts `found` into the list of the best `kept`, which stays sorted; the smaller row wins a tie. */
static void keep_best(match_t *best, int64_t kept, match_t found) {
  for (int64_t i = 0; i < kept; i++) {
    int better =
        best[i].row < 0 || found.score > best[i].score || (found.score == best[i].score && found.row < best[i].row);
    if (!better) continue;
    match_t pushed = best[i];
    best[i] = found;
    found = pushed;
    if (found.row < 0) return;
  }
}

/* The rows of the words asked for, fetched through the library into plain memory. */
static float *gather_rows(ranks_t *ranks, const device_t *device, wholememory_tensor_t table, const int64_t *rows,
                          int64_t count, int64_t columns) {
  size_t ids_bytes = (size_t)count * sizeof *rows, vectors_bytes = (size_t)(count * columns) * sizeof(float);
  void *ids = device_alloc(device, ids_bytes), *fetched = device_alloc(device, vectors_bytes);
  float *vectors = malloc(vectors_bytes);
  if (!vectors) ranks_give_up(ranks);
  wholememory_tensor_description_t ids_shape = list_of(count, WHOLEMEMORY_DT_INT64);
  wholememory_tensor_description_t fetched_shape = table_of(count, columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t ids_tensor, fetched_tensor;
  TRY(ranks, wholememory_make_tensor_from_pointer(&ids_tensor, ids, &ids_shape));
  TRY(ranks, wholememory_make_tensor_from_pointer(&fetched_tensor, fetched, &fetched_shape));
  device_copy(device, ids, rows, ids_bytes);
  TRY(ranks, wholememory_gather(table, ids_tensor, fetched_tensor, NULL, NULL, -1));
  device_wait(device);
  device_copy(device, vectors, fetched, vectors_bytes);
  TRY(ranks, wholememory_destroy_tensor(ids_tensor));
  TRY(ranks, wholememory_destroy_tensor(fetched_tensor));
  device_free(device, ids);
  device_free(device, fetched);
  return vectors;
}

/* Scores the rows this rank owns against every word asked for; `best` holds `shown` matches a word. */
static void score_own_rows(ranks_t *ranks, wholememory_handle_t memory, const float *asked, const int64_t *asked_rows,
                           const settings_t *settings, match_t *best) {
  const int64_t columns = settings->columns;
  void *mine;
  size_t bytes, offset_bytes, row_bytes = (size_t)columns * sizeof(float);
  TRY(ranks, wholememory_get_local_memory(&mine, &bytes, &offset_bytes, memory));
  int64_t first = (int64_t)(offset_bytes / row_bytes), count = (int64_t)(bytes / row_bytes);
  for (int word = 0; word < settings->asked_count; word++)
    for (int64_t i = 0; i < count; i++) {
      match_t found = {cosine(asked + word * columns, (const float *)mine + i * columns, columns), first + i};
      if (found.row != asked_rows[word]) keep_best(best + word * settings->shown, settings->shown, found);
    }
}

static void print_matches(const settings_t *settings, const words_t *words, int word, const match_t *best) {
  printf(settings->plain ? "%s:" : "%s\n", settings->asked[word]);
  const char *separator = " ";
  for (long i = 0; i < settings->shown && best[i].row >= 0; i++) {
    const char *name = words->list[best[i].row];
    if (settings->plain)
      printf("%s%s %.4f", separator, name, best[i].score);
    else
      printf("  %3ld  %-20s %7.4f\n", i + 1, name, best[i].score);
    separator = ", ";
  }
  printf("\n");
}

static int search(ranks_t *ranks, const settings_t *settings, const words_t *words, const int64_t *asked_rows) {
  device_t device = device_open(ranks->rank);
  wholememory_comm_t communicator = connect_ranks(ranks);
  const int64_t columns = settings->columns;
  const size_t row_bytes = (size_t)columns * sizeof(float);

  wholememory_tensor_description_t shape = table_of(words->count, columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t table;
  TRY(ranks,
      wholememory_create_tensor(&table, &shape, communicator, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, NULL));
  wholememory_handle_t memory = wholememory_tensor_get_memory_handle(table);
  const char *file = settings->vectors_file;
  progress_t progress;
  progress_start(&progress, "loading the vectors", (size_t)words->count * row_bytes, ranks);
  TRY(ranks, wholememory_load_from_file(memory, 0, row_bytes, row_bytes, &file, 1, 0));
  progress_stop(&progress);

  /* Each rank leaves its best matches in its own part of a small shared table: one row a rank. */
  size_t matches = (size_t)(settings->asked_count * settings->shown);
  wholememory_handle_t board;
  TRY(ranks, wholememory_malloc(&board, matches * sizeof(match_t) * (size_t)ranks->size, communicator,
                                WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, matches * sizeof(match_t), NULL));
  void *mine, *all;
  TRY(ranks, wholememory_get_local_memory(&mine, NULL, NULL, board));
  TRY(ranks, wholememory_get_global_pointer(&all, board));
  match_t *best = mine;
  for (size_t i = 0; i < matches; i++) best[i] = (match_t){0, -1};

  float *asked = gather_rows(ranks, &device, table, asked_rows, settings->asked_count, columns);
  score_own_rows(ranks, memory, asked, asked_rows, settings, best);
  TRY(ranks, wholememory_communicator_barrier(communicator));

  if (ranks->rank == 0) {
    if (!settings->plain)
      printf("%lld words of %lld floats in one table, shared by %d ranks; each scored its own rows\n\n",
             (long long)words->count, (long long)columns, ranks->size);
    for (int word = 0; word < settings->asked_count; word++) {
      match_t *own = best + word * settings->shown;
      for (int peer = 1; peer < ranks->size; peer++)
        for (long i = 0; i < settings->shown; i++) {
          match_t theirs = ((const match_t *)all)[(size_t)peer * matches + (size_t)(word * settings->shown + i)];
          if (theirs.row >= 0) keep_best(own, settings->shown, theirs);
        }
      print_matches(settings, words, word, own);
    }
    fflush(stdout);
  }
  free(asked);
  TRY(ranks, wholememory_free(board));
  TRY(ranks, wholememory_destroy_tensor(table));
  disconnect_ranks(ranks, communicator);
  return 0;
}

static int run(ranks_t *ranks, void *argument) {
  const settings_t *settings = argument;
  if (settings->shown < 1 || settings->shown > 1000 || settings->columns < 1) {
    options_refuse(ranks->rank, "--shown %ld --columns %ld: the first is from 1 to 1000, the second at least 1",
                   settings->shown, settings->columns);
    return 2;
  }
  words_t words = read_words(settings->words_file, ranks->rank);
  int64_t asked_rows[settings->asked_count];
  int status = 2;
  if (words.list && files_fit(settings, &words, ranks->rank) && find_rows(&words, settings->asked, settings->asked_count, settings->words_file, ranks->rank, asked_rows))
    status = search(ranks, settings, &words, asked_rows);
  forget_words(&words);
  return status;
}

int main(int argc, char **argv) {
  settings_t settings = {"examples_c/data/words.f32", "examples_c/data/words.txt", 100, 5, 0, 0, NULL};
  const option_t options[] = {
      {"--vectors", "FILE", "float32 rows, one a word (examples_c/data/words.f32)", &settings.vectors_file, NULL, NULL},
      {"--words", "FILE", "one word a line (examples_c/data/words.txt)", &settings.words_file, NULL, NULL},
      {"--columns", "N", "floats in a row (100)", NULL, &settings.columns, NULL},
      {"--shown", "N", "neighbours to print for each word (5)", NULL, &settings.shown, NULL},
      {"--plain", "", "one line a word, for scripts", NULL, NULL, &settings.plain},
      {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Loads word vectors from a file into one table shared by all ranks and prints the words\n"
      "nearest to each word given, by cosine. Without a WORD: king paris water.",
      "[WORD...]", options};
  command_t command = options_begin(&program, argc, argv);
  static char *default_words[] = {"king", "paris", "water"};
  settings.asked = command.word_count ? command.words : default_words;
  settings.asked_count = command.word_count ? command.word_count : 3;
  return ranks_run((int)command.process_count, (int)command.thread_count, run, &settings);
}
