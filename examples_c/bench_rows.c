/* The benchmark's data calls: gather, scatter, and gathers of a single row.
 * A value is a hash of its place in the table, 0 to 126, which every dtype holds exactly. */
#include <pthread.h>

#include "bench.h"

enum { VALUES = 127, CHUNK_BYTES = 64 << 20, WRITERS = 16 };

uint32_t bench_mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 29;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return (uint32_t)(x >> 32);
}

/* `version` tells what a scatter wrote from what the table held before. */
static unsigned value_at(uint64_t row, uint64_t column, uint64_t columns, unsigned version) {
  return (bench_mix(row * columns + column) + version) % VALUES;
}

/* The whole number `value` (0 to 126) as an element of `dtype`. */
static void encode(unsigned value, wholememory_dtype_t dtype, void *element) {
  float single = (float)value;
  double twice = (double)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  uint16_t bfloat = (uint16_t)(bits >> 16);
  int exponent = value ? 31 - __builtin_clz(value) : 0;
  uint16_t half = value ? (uint16_t)(((unsigned)(exponent + 15) << 10) | ((value << (10 - exponent)) & 0x3ff)) : 0;
  int64_t integer = value;
  switch (dtype) {
    case WHOLEMEMORY_DT_FLOAT:
      memcpy(element, &single, 4);
      break;
    case WHOLEMEMORY_DT_DOUBLE:
      memcpy(element, &twice, 8);
      break;
    case WHOLEMEMORY_DT_HALF:
      memcpy(element, &half, 2);
      break;
    case WHOLEMEMORY_DT_BF16:
      memcpy(element, &bfloat, 2);
      break;
    default:
      memcpy(element, &integer, bench_element_bytes(dtype));
      break;
  }
}

typedef struct {
  size_t bytes; /* of one element */
  unsigned char element[VALUES][8];
} dictionary_t;

static dictionary_t dictionary_of(wholememory_dtype_t dtype) {
  dictionary_t dictionary = {bench_element_bytes(dtype), {{0}}};
  for (unsigned value = 0; value < VALUES; value++) encode(value, dtype, dictionary.element[value]);
  return dictionary;
}

static void write_row(const dictionary_t *dictionary, unsigned char *to, uint64_t row, uint64_t columns,
                      unsigned version) {
  for (uint64_t column = 0; column < columns; column++)
    memcpy(to + column * dictionary->bytes, dictionary->element[value_at(row, column, columns, version)],
           dictionary->bytes);
}

/* Elements of `row` that are not what they must be. */
static uint64_t wrong_in_row(const dictionary_t *dictionary, const unsigned char *at, uint64_t row, uint64_t columns,
                             unsigned version) {
  uint64_t wrong = 0;
  for (uint64_t column = 0; column < columns; column++)
    wrong += memcmp(at + column * dictionary->bytes, dictionary->element[value_at(row, column, columns, version)],
                    dictionary->bytes) != 0;
  return wrong;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows to be filled, whose numbers are `rows[i]`, or first + i where `rows` is NULL. */
typedef struct {
  const dictionary_t *dictionary;
  unsigned char *to;
  const int64_t *rows;
  int64_t first, count, columns;
  unsigned version;
} share_t;

static void *write_share(void *raw) {
  const share_t *s = raw;
  size_t row_bytes = (size_t)s->columns * s->dictionary->bytes;
  for (int64_t i = 0; i < s->count; i++)
    write_row(s->dictionary, s->to + (size_t)i * row_bytes, (uint64_t)(s->rows ? s->rows[i] : s->first + i),
              (uint64_t)s->columns, s->version);
  return NULL;
}

/* The rows of one chunk by several threads: a table of gigabytes is not waited for. */
static void write_chunk(const share_t *all, int threads) {
  share_t shares[WRITERS];
  pthread_t writers[WRITERS];
  size_t row_bytes = (size_t)all->columns * all->dictionary->bytes;
  for (int t = 0; t < threads; t++) {
    int64_t from = all->count * t / threads;
    shares[t] = *all;
    shares[t].to += (size_t)from * row_bytes;
    shares[t].rows = all->rows ? all->rows + from : NULL;
    shares[t].first += from;
    shares[t].count = all->count * (t + 1) / threads - from;
  }
  int started = 0;
  while (started < threads - 1 && !pthread_create(&writers[started], NULL, write_share, &shares[started])) started++;
  for (int t = started; t < threads; t++) write_share(&shares[t]);
  for (int t = 0; t < started; t++) pthread_join(writers[t], NULL);
}

void bench_write_rows(bench_rank_t *rank, void *to, wholememory_dtype_t dtype, int64_t columns, const int64_t *rows,
                      int64_t first, int64_t count, unsigned version) {
  dictionary_t dictionary = dictionary_of(dtype);
  size_t row_bytes = (size_t)columns * dictionary.bytes;
  int64_t at_once = smaller(count, 1 + CHUNK_BYTES / (int64_t)row_bytes);
  long cores = sysconf(_SC_NPROCESSORS_ONLN) / rank->ranks->size;
  int threads = cores < 1 ? 1 : cores > WRITERS ? WRITERS : (int)cores;
  unsigned char *chunk = device_plain((size_t)at_once * row_bytes);
  for (int64_t done = 0; done < count; done += at_once) {
    int64_t now = smaller(at_once, count - done);
    write_chunk(&(share_t){&dictionary, chunk, rows ? rows + done : NULL, first + done, now, columns, version}, threads);
    device_copy(&rank->device, (char *)to + (size_t)done * row_bytes, chunk, (size_t)now * row_bytes);
  }
  free(chunk);
}

double bench_wrong_in_rows(bench_rank_t *rank, const void *from, wholememory_dtype_t dtype, int64_t columns,
                           const int64_t *rows, int64_t count, unsigned version) {
  dictionary_t dictionary = dictionary_of(dtype);
  size_t row_bytes = (size_t)columns * dictionary.bytes;
  int64_t at_once = smaller(count, 1 + CHUNK_BYTES / (int64_t)row_bytes);
  unsigned char *chunk = device_plain((size_t)at_once * row_bytes);
  uint64_t wrong = 0;
  for (int64_t done = 0; done < count; done += at_once) {
    int64_t now = smaller(at_once, count - done);
    device_copy(&rank->device, chunk, (const char *)from + (size_t)done * row_bytes, (size_t)now * row_bytes);
    for (int64_t i = 0; i < now; i++)
      wrong += wrong_in_row(&dictionary, chunk + (size_t)i * row_bytes, (uint64_t)rows[done + i], (uint64_t)columns,
                            version);
  }
  free(chunk);
  return (double)wrong;
}

static int by_row(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

/* The rows this rank asks for: the same in every run, different on every rank. */
static int64_t *choose_rows(const bench_rank_t *rank, const bench_case_t *what) {
  int64_t *rows = device_plain((size_t)what->call_rows * sizeof *rows);
  uint64_t state = 88172645463325252ULL + 7919ULL * (uint64_t)rank->ranks->rank;
  int64_t part = (what->table_rows + rank->ranks->size - 1) / rank->ranks->size;
  int64_t next = part * ((rank->ranks->rank + 1) % rank->ranks->size);
  for (int64_t i = 0; i < what->call_rows; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    rows[i] = rank->settings->order == ORDER_SEQUENTIAL ? i % what->table_rows
              : rank->settings->order == ORDER_NEXT     ? (next + i % part) % what->table_rows
                                                        : (int64_t)(state % (uint64_t)what->table_rows);
  }
  if (rank->settings->order == ORDER_SORTED) qsort(rows, (size_t)what->call_rows, sizeof *rows, by_row);
  return rows;
}

static void *upload_indices(bench_rank_t *rank, const bench_case_t *what, const int64_t *rows) {
  size_t bytes = (size_t)what->call_rows * bench_element_bytes(what->index_dtype);
  void *indices = device_alloc(&rank->device, bytes);
  if (what->index_dtype == WHOLEMEMORY_DT_INT64) {
    device_copy(&rank->device, indices, rows, bytes);
    return indices;
  }
  int32_t *narrow = device_plain(bytes);
  for (int64_t i = 0; i < what->call_rows; i++) narrow[i] = (int32_t)rows[i];
  device_copy(&rank->device, indices, narrow, bytes);
  free(narrow);
  return indices;
}

wholememory_tensor_description_t bench_shape(int64_t rows, int64_t columns, wholememory_dtype_t dtype) {
  wholememory_tensor_description_t d;
  memset(&d, 0, sizeof d);
  for (int i = 0; i < WHOLEMEMORY_MAX_TENSOR_DIM; i++) d.sizes[i] = d.strides[i] = 1;
  d.dim = columns ? 2 : 1;
  d.dtype = dtype;
  d.sizes[0] = rows;
  if (columns) d.strides[0] = d.sizes[1] = columns;
  return d;
}

typedef struct {
  bench_rank_t *rank;
  wholememory_tensor_t table, indices, values;
  int scatters;
  void *stream;
} row_call_t;

static void call_rows(void *raw) {
  row_call_t *c = raw;
  const bench_api_t *api = c->rank->api;
  if (c->scatters)
    BENCH_TRY(c->rank, api->wholememory_scatter(c->values, c->indices, c->table, &c->rank->callbacks, c->stream,
                                                c->rank->settings->width));
  else
    BENCH_TRY(c->rank, api->wholememory_gather(c->table, c->indices, c->values, &c->rank->callbacks, c->stream,
                                               c->rank->settings->width));
}

/* A call recorded once in a CUDA graph of this rank's GPU. */
typedef struct {
  bench_rank_t *rank;
  void *stream, *ready;
  int (*launch)(void *, void *);
} replay_t;

static void replay_once(void *raw) {
  replay_t *c = raw;
  device_must(c->launch(c->ready, c->stream), "to replay a graph");
}

/* Records the call on a stream of its own; every rank does. The graph and the stream live until the process ends. */
static replay_t record(bench_rank_t *rank, row_call_t call) {
  enum { NON_BLOCKING = 1, THREAD_LOCAL = 1 };
  replay_t replay = {rank, NULL, NULL, NULL};
  int (*make_stream)(void **, unsigned), (*begin)(void *, int), (*end)(void *, void **);
  int (*instantiate)(void **, void *, unsigned long long);
  device_take(&rank->device, &make_stream, "cuStreamCreate");
  device_take(&rank->device, &begin, "cuStreamBeginCapture_v2");
  device_take(&rank->device, &end, "cuStreamEndCapture");
  device_take(&rank->device, &instantiate, "cuGraphInstantiateWithFlags");
  device_take(&rank->device, &replay.launch, "cuGraphLaunch");
  void *graph;
  device_must(make_stream(&replay.stream, NON_BLOCKING), "a stream");
  call.stream = replay.stream;
  bench_line_up(rank);
  device_must(begin(replay.stream, THREAD_LOCAL), "to record a graph");
  call_rows(&call);
  device_must(end(replay.stream, &graph), "to end a recording");
  device_must(instantiate(&replay.ready, graph, 0), "to make a graph ready");
  return replay;
}

/* The same rows by a plain loop of memcpy over the whole table in this rank's sight: what one core can do. */
typedef struct {
  const char *table;
  char *values;
  const int64_t *rows;
  int64_t count;
  size_t row_bytes;
} copy_loop_t;

static void copy_loop(void *raw) {
  copy_loop_t *c = raw;
  for (int64_t i = 0; i < c->count; i++)
    memcpy(c->values + (size_t)i * c->row_bytes, c->table + (size_t)c->rows[i] * c->row_bytes, c->row_bytes);
}

static void fill_own_rows(bench_rank_t *rank, const bench_case_t *what, wholememory_tensor_t table) {
  const bench_api_t *api = rank->api;
  void *mine;
  size_t bytes, offset_bytes, row_bytes = (size_t)what->columns * bench_element_bytes(what->dtype);
  BENCH_TRY(rank, api->wholememory_get_local_memory(&mine, &bytes, &offset_bytes,
                                                    api->wholememory_tensor_get_memory_handle(table)));
  bench_write_rows(rank, mine, what->dtype, what->columns, NULL, (int64_t)(offset_bytes / row_bytes),
             (int64_t)(bytes / row_bytes), 0);
}

bench_result_t bench_rows(bench_rank_t *rank, const bench_case_t *what) {
  const bench_api_t *api = rank->api;
  const device_t *device = &rank->device;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  size_t row_bytes = (size_t)what->columns * bench_element_bytes(what->output_dtype);
  size_t values_bytes = (size_t)what->call_rows * row_bytes;
  row_call_t call = {rank, NULL, NULL, NULL, 0, NULL};

  wholememory_tensor_description_t shape = bench_shape(what->table_rows, what->columns, what->dtype);
  BENCH_TRY(rank,
            api->wholememory_create_tensor(&call.table, &shape, rank->communicator, what->type, what->location, NULL));
  fill_own_rows(rank, what, call.table);
  bench_line_up(rank);

  int64_t *rows = choose_rows(rank, what);
  void *indices = upload_indices(rank, what, rows);
  void *values = device_alloc(device, values_bytes);
  device_fill(device, values, 0x5a, values_bytes);
  wholememory_tensor_description_t indices_shape = bench_shape(what->call_rows, 0, what->index_dtype);
  wholememory_tensor_description_t values_shape = bench_shape(what->call_rows, what->columns, what->output_dtype);
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&call.indices, indices, &indices_shape));
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&call.values, values, &values_shape));

  /* The table answers with what was put into it ... */
  unsigned version = 0;
  if (rank->settings->verify) {
    call_rows(&call);
    device_wait(device);
    result.wrong_values +=
        bench_wrong_in_rows(rank, values, what->output_dtype, what->columns, rows, what->call_rows, version);
    bench_line_up(rank);
  }
  if (what->op == OP_SCATTER) {
    /* ... and, after a scatter of other values, with those. */
    version = 1;
    bench_write_rows(rank, values, what->output_dtype, what->columns, rows, 0, what->call_rows, version);
    call.scatters = 1;
    call_rows(&call);
    bench_line_up(rank);
    if (rank->settings->verify) {
      device_fill(device, values, 0x5a, values_bytes);
      call.scatters = 0;
      call_rows(&call);
      call.scatters = 1;
      device_wait(device);
      result.wrong_values +=
          bench_wrong_in_rows(rank, values, what->output_dtype, what->columns, rows, what->call_rows, version);
    }
  }
  bench_line_up(rank);
  if (what->op == OP_REPLAY) {
    replay_t replay = record(rank, call);
    result.call_us = bench_time(rank, (bench_action_t){replay_once, &replay});
  } else {
    result.call_us = bench_time(rank, (bench_action_t){call_rows, &call});
  }
  result.payload_bytes = (double)values_bytes;

  void *whole = NULL;
  size_t whole_bytes = 0;
  BENCH_TRY(rank, api->wholememory_get_local_memory(&whole, &whole_bytes, NULL,
                                                    api->wholememory_tensor_get_memory_handle(call.table)));
  if (what->op == OP_GATHER && rank->ranks->size == 1 && !device->driver && what->dtype == what->output_dtype) {
    copy_loop_t loop = {whole, values, rows, what->call_rows, row_bytes};
    result.reference_us = bench_time(rank, (bench_action_t){copy_loop, &loop});
    result.reference = "memcpy-a-row,1-thread";
  }

  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.indices));
  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.values));
  device_free(device, indices);
  device_free(device, values);
  free(rows);
  bench_line_up(rank);
  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.table));
  return result;
}

bench_result_t bench_meeting(bench_rank_t *rank, const bench_case_t *what) {
  (void)what;
  const bench_api_t *api = rank->api;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  row_call_t call = {rank, NULL, NULL, NULL, 0, NULL};
  wholememory_tensor_description_t shape = bench_shape(1024, 32, WHOLEMEMORY_DT_FLOAT);
  BENCH_TRY(rank, api->wholememory_create_tensor(&call.table, &shape, rank->communicator, WHOLEMEMORY_MT_DISTRIBUTED,
                                                 WHOLEMEMORY_ML_DEVICE, NULL));
  wholememory_tensor_description_t none = bench_shape(0, 0, WHOLEMEMORY_DT_INT64);
  wholememory_tensor_description_t nothing = bench_shape(0, 32, WHOLEMEMORY_DT_FLOAT);
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&call.indices, NULL, &none));
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&call.values, NULL, &nothing));
  result.call_us = bench_time(rank, (bench_action_t){call_rows, &call});
  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.indices));
  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.values));
  bench_line_up(rank);
  BENCH_TRY(rank, api->wholememory_destroy_tensor(call.table));
  return result;
}

/* Whole blocks of the next rank's part of a CONTINUOUS table, by the driver: what no gather from there exceeds. */
typedef struct {
  bench_rank_t *rank;
  int (*copy)(void *, const void *, size_t, void *); /* NULL without a driver */
  const char *from;
  char *to;
  size_t bytes, blocks, turn;
} block_copy_t;

static void copy_block(void *raw) {
  block_copy_t *c = raw;
  const char *from = c->from + c->turn++ % c->blocks * c->bytes;
  if (c->copy)
    device_must(c->copy(c->to, from, c->bytes, NULL), "to copy a block");
  else
    memcpy(c->to, from, c->bytes);
}

bench_result_t bench_copying(bench_rank_t *rank, const bench_case_t *what) {
  const bench_api_t *api = rank->api;
  const device_t *device = &rank->device;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  int size = rank->ranks->size, next = (rank->ranks->rank + 1) % size;
  size_t part_bytes = what->table_bytes / (size_t)size;
  block_copy_t copy = {rank, NULL, NULL, NULL, part_bytes < CHUNK_BYTES ? part_bytes : CHUNK_BYTES, 1, 0};
  wholememory_handle_t table;
  void *all, *mine;
  size_t my_bytes;
  BENCH_TRY(rank, api->wholememory_malloc(&table, part_bytes * (size_t)size, rank->communicator,
                                          WHOLEMEMORY_MT_CONTINUOUS, what->location, 1, NULL));
  BENCH_TRY(rank, api->wholememory_get_global_pointer(&all, table));
  BENCH_TRY(rank, api->wholememory_get_local_memory(&mine, &my_bytes, NULL, table));
  device_fill(device, mine, (unsigned char)(rank->ranks->rank + 1), my_bytes);
  bench_line_up(rank);

  copy.from = (const char *)all + part_bytes * (size_t)next;
  copy.to = device_alloc(device, copy.bytes);
  copy.blocks = part_bytes / copy.bytes;
  if (device->driver) device_take((device_t *)device, &copy.copy, "cuMemcpyAsync");
  copy_block(&copy);
  device_wait(device);
  unsigned char *seen = device_plain(copy.bytes);
  device_copy(device, seen, copy.to, copy.bytes);
  for (size_t i = 0; i < copy.bytes; i++) result.wrong_values += seen[i] != (unsigned char)(next + 1);
  free(seen);
  bench_line_up(rank);
  result.call_us = bench_time(rank, (bench_action_t){copy_block, &copy});
  result.payload_bytes = (double)copy.bytes;
  device_free(device, copy.to);
  bench_line_up(rank);
  BENCH_TRY(rank, api->wholememory_free(table));
  return result;
}
