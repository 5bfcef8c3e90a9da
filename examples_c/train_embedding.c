/* Training: short vectors for words are learned so that the product of two is the cosine of the long vectors in a file. Pairs
 * are drawn as words are used, the frequent ones often. Each rank draws pairs of its own; the table is spread over the hosts'
 * memory, and a part of its rows is cached in the devices'. */
#include <math.h>
#include <wholememory/cache_stats.h>
#include <wholememory/embedding.h>

#include "common.h"

enum { FILE_COLUMNS = 100, MOST_COLUMNS = 64 };

typedef struct {
  const char *vectors_file;
  const char *optimizer;
  long cached; /* in percent of the rows */
  long columns;
  long steps;
  long pairs;
} settings_t;

typedef struct {
  float *values; /* FILE_COLUMNS a word, each word of length 1 */
  int64_t count;
} words_t;

static words_t read_vectors(const char *file, int rank) {
  words_t words = {NULL, 0};
  FILE *in = fopen(file, "rb");
  if (!in) {
    options_refuse(rank, "the vectors in %s cannot be read: %s", file, strerror(errno));
    return words;
  }
  fseek(in, 0, SEEK_END);
  long bytes = ftell(in);
  rewind(in);
  const long row_bytes = FILE_COLUMNS * (long)sizeof(float);
  if (bytes <= 0 || bytes % row_bytes != 0) {
    options_refuse(rank, "%s has %ld bytes, which is not a number of rows of %d floats", file, bytes, FILE_COLUMNS);
  } else {
    words.values = malloc((size_t)bytes);
    if (words.values && fread(words.values, 1, (size_t)bytes, in) == (size_t)bytes) words.count = bytes / row_bytes;
  }
  fclose(in);
  for (int64_t word = 0; word < words.count; word++) {
    float *row = words.values + word * FILE_COLUMNS;
    double length = 0;
    for (int i = 0; i < FILE_COLUMNS; i++) length += (double)row[i] * row[i];
    for (int i = 0; i < FILE_COLUMNS; i++) row[i] = (float)(row[i] / (length > 0 ? sqrt(length) : 1));
  }
  return words;
}

static uint64_t draw(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static double draw_unit(uint64_t *state) { return (double)(draw(state) >> 11) / 9007199254740992.0; }

/* The words of the file are sorted by use: the logarithm of the place is drawn evenly, so the first ones come often. */
static int64_t draw_word(uint64_t *state, int64_t count) {
  int64_t word = (int64_t)(exp(draw_unit(state) * log((double)count + 1)) - 1);
  return word < count ? word : count - 1;
}

/* Small values in the rows this rank owns. */
static void start_rows(ranks_t *ranks, const device_t *device, wholememory_tensor_t table, int64_t columns) {
  const wholememory_tensor_description_t *shape = wholememory_tensor_get_tensor_description(table);
  const int64_t stride = shape->strides[0];
  void *mine;
  size_t bytes, offset_bytes;
  TRY(ranks, wholememory_get_local_memory(&mine, &bytes, &offset_bytes, wholememory_tensor_get_memory_handle(table)));
  float *values = calloc(1, bytes + 1);
  if (!values) ranks_give_up(ranks);
  uint64_t state = 1000 + (uint64_t)ranks->rank;
  for (size_t row = 0; row < bytes / sizeof *values / (size_t)stride; row++)
    for (int64_t i = 0; i < columns; i++)
      values[row * (size_t)stride + (size_t)i] = (float)((draw_unit(&state) - 0.5) / sqrt((double)columns));
  device_copy(device, mine, values, bytes);
  free(values);
}

/* Arrays of one batch, here and where the library reaches them. */
typedef struct {
  int64_t count, columns;
  int64_t *ids;
  float *rows, *gradients;
  void *device_ids, *device_rows, *device_gradients;
  wholememory_tensor_t ids_tensor, rows_tensor, gradients_tensor;
} batch_t;

static batch_t batch_make(ranks_t *ranks, const device_t *device, int64_t count, int64_t columns) {
  size_t ids_bytes = (size_t)count * sizeof(int64_t), rows_bytes = (size_t)(count * columns) * sizeof(float);
  batch_t batch = {count, columns, malloc(ids_bytes), malloc(rows_bytes), malloc(rows_bytes), NULL, NULL, NULL, NULL, NULL, NULL};
  if (!batch.ids || !batch.rows || !batch.gradients) ranks_give_up(ranks);
  batch.device_ids = device_alloc(device, ids_bytes);
  batch.device_rows = device_alloc(device, rows_bytes);
  batch.device_gradients = device_alloc(device, rows_bytes);
  wholememory_tensor_description_t ids = list_of(count, WHOLEMEMORY_DT_INT64), rows = table_of(count, columns, WHOLEMEMORY_DT_FLOAT);
  TRY(ranks, wholememory_make_tensor_from_pointer(&batch.ids_tensor, batch.device_ids, &ids));
  TRY(ranks, wholememory_make_tensor_from_pointer(&batch.rows_tensor, batch.device_rows, &rows));
  TRY(ranks, wholememory_make_tensor_from_pointer(&batch.gradients_tensor, batch.device_gradients, &rows));
  return batch;
}

static void batch_drop(ranks_t *ranks, const device_t *device, batch_t *batch) {
  TRY(ranks, wholememory_destroy_tensor(batch->ids_tensor));
  TRY(ranks, wholememory_destroy_tensor(batch->rows_tensor));
  TRY(ranks, wholememory_destroy_tensor(batch->gradients_tensor));
  device_free(device, batch->device_ids);
  device_free(device, batch->device_rows);
  device_free(device, batch->device_gradients);
  free(batch->ids);
  free(batch->rows);
  free(batch->gradients);
}

/* One step: rows of the drawn words, the error of their products, the gradients back. Returns the mean squared error before it. */
static double step(ranks_t *ranks, const device_t *device, wholememory_embedding_t embedding, const words_t *words, batch_t *batch,
                   uint64_t *state, float rate) {
  const int64_t columns = batch->columns, pairs = batch->count / 2;
  for (int64_t i = 0; i < batch->count; i++) batch->ids[i] = draw_word(state, words->count);
  device_copy(device, batch->device_ids, batch->ids, (size_t)batch->count * sizeof *batch->ids);
  TRY(ranks, wholememory_embedding_gather(embedding, batch->ids_tensor, batch->rows_tensor, true, NULL, 0));
  device_wait(device);
  const size_t rows_bytes = (size_t)(batch->count * columns) * sizeof(float);
  device_copy(device, batch->rows, batch->device_rows, rows_bytes);
  double loss = 0;
  for (int64_t pair = 0; pair < pairs; pair++) {
    const float *a = batch->rows + 2 * pair * columns, *b = a + columns;
    const float *long_a = words->values + batch->ids[2 * pair] * FILE_COLUMNS;
    const float *long_b = words->values + batch->ids[2 * pair + 1] * FILE_COLUMNS;
    double wanted = 0, product = 0;
    for (int i = 0; i < FILE_COLUMNS; i++) wanted += (double)long_a[i] * long_b[i];
    for (int64_t i = 0; i < columns; i++) product += (double)a[i] * b[i];
    double error = product - wanted;
    loss += error * error / (double)pairs;
    float *of_a = batch->gradients + 2 * pair * columns, *of_b = of_a + columns;
    for (int64_t i = 0; i < columns; i++) {
      of_a[i] = (float)(2 * error * b[i]);
      of_b[i] = (float)(2 * error * a[i]);
    }
  }
  device_copy(device, batch->device_gradients, batch->gradients, rows_bytes);
  TRY(ranks, wholememory_embedding_gather_gradient_apply(embedding, batch->ids_tensor, batch->gradients_tensor, true, rate, NULL, 0));
  device_wait(device);
  return loss;
}

static wholememory_optimizer_type_t optimizer_named(const char *name) {
  const char *const names[] = {"", "sgd", "adam", "rmsprop", "adagrad"};
  for (int type = WHOLEMEMORY_OPT_SGD; type <= WHOLEMEMORY_OPT_ADAGRAD; type++)
    if (!strcmp(names[type], name)) return (wholememory_optimizer_type_t)type;
  return WHOLEMEMORY_OPT_NONE;
}

/* Of the lookups of all ranks, how many found their row in the cache. */
static void print_hit_rate(ranks_t *ranks, wholememory_embedding_t embedding) {
  wholememory_cache_stats_t stats = {.struct_size = sizeof stats};
  TRY(ranks, wholememory_embedding_get_cache_stats(embedding, &stats));
  double lookups = ranks_sum(ranks, (double)stats.lookups), hits = ranks_sum(ranks, (double)stats.hits);
  double capacity = ranks_sum(ranks, (double)stats.capacity_rows), loads = ranks_sum(ranks, (double)stats.loads);
  if (ranks->rank == 0)
    printf("the cache of %.0f rows answered %.1f %% of %.0f lookups; %.0f rows were loaded\n", capacity,
           lookups > 0 ? 100 * hits / lookups : 0, lookups, loads);
}

static int train(ranks_t *ranks, const settings_t *settings, const words_t *words) {
  device_t device = device_open(ranks->rank);
  wholememory_comm_t communicator = connect_ranks(ranks);

  wholememory_tensor_description_t shape = table_of(words->count, settings->columns, WHOLEMEMORY_DT_FLOAT);
  wholememory_embedding_cache_policy_t policy = NULL;
  if (settings->cached)
    TRY(ranks, wholememory_create_embedding_cache_policy(&policy, communicator, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE,
                                                         WHOLEMEMORY_AT_READWRITE, (float)settings->cached / 100));
  wholememory_embedding_t embedding;
  TRY(ranks, wholememory_create_embedding(&embedding, &shape, communicator, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, policy,
                                          NULL, -1, 0));
  TRY(ranks, wholememory_destroy_embedding_cache_policy(policy));
  start_rows(ranks, &device, wholememory_embedding_get_embedding_tensor(embedding), settings->columns);
  wholememory_embedding_optimizer_t optimizer;
  TRY(ranks, wholememory_create_embedding_optimizer(&optimizer, optimizer_named(settings->optimizer)));
  TRY(ranks, wholememory_embedding_set_optimizer(embedding, optimizer));
  TRY(ranks, wholememory_communicator_barrier(communicator));

  if (ranks->rank == 0)
    printf("%lld words, %ld floats each, spread over %d ranks; each draws %ld pairs a step\n", (long long)words->count,
           settings->columns, ranks->size, settings->pairs);
  /* Plain descent takes the sums of all ranks' gradients as they are; the others scale them. */
  const float rate = !strcmp(settings->optimizer, "sgd") ? 4.0f / (float)(settings->pairs * ranks->size) : 0.02f;
  batch_t batch = batch_make(ranks, &device, 2 * settings->pairs, settings->columns);
  uint64_t state = (uint64_t)ranks->rank + 1;
  double first = 0, last = 0;
  for (long done = 0; done <= settings->steps; done++) {
    double loss = ranks_sum(ranks, step(ranks, &device, embedding, words, &batch, &state, rate)) / ranks->size;
    TRY(ranks, wholememory_communicator_barrier(communicator));
    /* The mean of some steps: single ones jump. */
    if (done < 5) first += loss / 5;
    if (done > settings->steps - 5) last += loss / 5;
    if (ranks->rank == 0 && done % (settings->steps / 5 > 0 ? settings->steps / 5 : 1) == 0) {
      printf("step %5ld  loss %.5f\n", done, loss);
      fflush(stdout);
    }
  }
  if (ranks->rank == 0) {
    printf("the loss fell from %.5f to %.5f (means of five steps)\n", first, last);
    fflush(stdout);
  }
  if (settings->cached) print_hit_rate(ranks, embedding);
  batch_drop(ranks, &device, &batch);
  wholememory_destroy_embedding_optimizer(optimizer);
  TRY(ranks, wholememory_destroy_embedding(embedding));
  disconnect_ranks(ranks, communicator);
  return last < first / 2 ? 0 : 1;
}

static int run(ranks_t *ranks, void *argument) {
  const settings_t *settings = argument;
  if (settings->cached < 0 || settings->cached > 100) {
    options_refuse(ranks->rank, "--cached %ld: it is in percent, from 0 (no cache) to 100", settings->cached);
    return 2;
  }
  if (settings->columns < 1 || settings->columns > MOST_COLUMNS || settings->steps < 10 || settings->pairs < 1 || settings->pairs > 1 << 20) {
    options_refuse(ranks->rank, "--columns %ld --steps %ld --pairs %ld: columns are from 1 to %d, steps at least 10, pairs from 1 to %d",
                   settings->columns, settings->steps, settings->pairs, MOST_COLUMNS, 1 << 20);
    return 2;
  }
  if (optimizer_named(settings->optimizer) == WHOLEMEMORY_OPT_NONE) {
    options_refuse(ranks->rank, "--optimizer does not know \"%s\"; it knows: sgd adam rmsprop adagrad", settings->optimizer);
    return 2;
  }
  words_t words = read_vectors(settings->vectors_file, ranks->rank);
  int status = words.count ? train(ranks, settings, &words) : 2;
  free(words.values);
  return status;
}

int main(int argc, char **argv) {
  settings_t settings = {"examples_c/data/words.f32", "adam", 20, 16, 300, 1000};
  const option_t options[] = {
      {"--vectors", "FILE", "float32 rows of 100, the words used most first (examples_c/data/words.f32)", &settings.vectors_file, NULL, NULL},
      {"--optimizer", "NAME", "sgd, adam, rmsprop or adagrad (adam)", &settings.optimizer, NULL, NULL},
      {"--cached", "N", "percent of the rows that the cache holds, 0 for none (20)", NULL, &settings.cached, NULL},
      {"--columns", "N", "floats of a learned vector (16)", NULL, &settings.columns, NULL},
      {"--steps", "N", "gradient steps (300)", NULL, &settings.steps, NULL},
      {"--pairs", "N", "pairs of words that each rank draws for a step (1000)", NULL, &settings.pairs, NULL},
      {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Learns short vectors for words whose products are the cosines of the long ones in a file: the table is\n"
      "spread over all ranks, each of which draws pairs of words and sends its gradients to their owners.",
      "", options};
  command_t command = options_begin(&program, argc, argv);
  return ranks_run((int)command.process_count, (int)command.thread_count, run, &settings);
}
