/* Two layers of neighbours around words: a graph of word senses lies in memory spread over all ranks; around each word
 * some neighbours are sampled, around those some of theirs, every node once; then the features of all of them are
 * gathered. This is what a graph network reads for one step. Every rank samples for itself; the same seed gives all the
 * same, which is checked. */
#include <sys/stat.h>

#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>

#include "common.h"
#include "environment.h"
#include "words.h"

enum { FEATURES = 2 }; /* of a node: its relations, the letters of its name */

typedef struct {
  const char *graph; /* the files' name up to .row_ptr.i64, .col.i32, .names.txt */
  long first, second;
  long seed;
  int asked_count;
  char **asked;
} settings_t;

/* What a rank needs for all calls. */
typedef struct {
  ranks_t *ranks;
  device_t *device;
  wholememory_env_func_t *environment;
  wholememory_tensor_t row_pointers, columns, features;
} world_t;

/* A list in memory that operations reach, and the tensor over it. */
typedef struct {
  output_t block;
  wholememory_tensor_t tensor;
} list_t;

static list_t list_over(const world_t *world, output_t block, wholememory_dtype_t dtype) {
  list_t list = {block, NULL};
  wholememory_tensor_description_t shape = list_of(block.count, dtype);
  TRY(world->ranks, wholememory_make_tensor_from_pointer(&list.tensor, block.memory, &shape));
  return list;
}

static list_t list_new(const world_t *world, int64_t count, wholememory_dtype_t dtype) {
  size_t bytes = (size_t)count * wholememory_dtype_get_element_size(dtype);
  return list_over(world, (output_t){device_alloc(world->device, bytes), count, WHOLEMEMORY_MA_DEVICE}, dtype);
}

static void list_drop(const world_t *world, list_t *list) {
  TRY(world->ranks, wholememory_destroy_tensor(list->tensor));
  device_free(world->device, list->block.memory);
}

/* A copy of a list where this program reads it. */
static void *list_read(const world_t *world, const list_t *list, size_t element_bytes) {
  void *copy = malloc((size_t)list->block.count * element_bytes + 1);
  if (!copy) ranks_give_up(world->ranks);
  device_wait(world->device);
  device_copy(world->device, copy, list->block.memory, (size_t)list->block.count * element_bytes);
  return copy;
}

/* One layer. Neighbour j of node i of the list before is at `offsets[i] + j` of `place`, which names nodes of `nodes`:
 * those of the list before, in their order, and the new ones behind them. */
typedef struct {
  list_t nodes;
  int32_t *offsets, *place;
} layer_t;

static layer_t sample_layer(const world_t *world, const list_t *before, long most, unsigned long long seed) {
  layer_t layer;
  list_t offsets = list_new(world, before->block.count + 1, WHOLEMEMORY_DT_INT);
  output_t neighbours = {0}, unique = {0};
  TRY(world->ranks, wholegraph_csr_unweighted_sample_without_replacement(
                        world->row_pointers, world->columns, before->tensor, (int)most, offsets.tensor, &neighbours,
                        NULL, NULL, seed, world->environment, NULL));
  list_t sampled = list_over(world, neighbours, WHOLEMEMORY_DT_INT);
  list_t map = list_new(world, neighbours.count, WHOLEMEMORY_DT_INT);
  TRY(world->ranks,
      graph_append_unique(before->tensor, sampled.tensor, &unique, map.tensor, world->environment, NULL));
  layer.nodes = list_over(world, unique, WHOLEMEMORY_DT_INT);
  layer.offsets = list_read(world, &offsets, sizeof(int32_t));
  layer.place = list_read(world, &map, sizeof(int32_t));
  list_drop(world, &offsets);
  list_drop(world, &sampled);
  list_drop(world, &map);
  return layer;
}

static void layer_drop(const world_t *world, layer_t *layer) {
  list_drop(world, &layer->nodes);
  free(layer->offsets);
  free(layer->place);
}

/* The feature rows of nodes, fetched from whichever rank has them. */
static float *gather_features(const world_t *world, const list_t *nodes) {
  int64_t count = nodes->block.count;
  list_t fetched = list_new(world, count * FEATURES, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_description_t shape = table_of(count, FEATURES, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t rows;
  TRY(world->ranks, wholememory_make_tensor_from_pointer(&rows, fetched.block.memory, &shape));
  TRY(world->ranks, wholememory_gather(world->features, nodes->tensor, rows, world->environment, NULL, -1));
  float *features = list_read(world, &fetched, sizeof(float));
  TRY(world->ranks, wholememory_destroy_tensor(rows));
  list_drop(world, &fetched);
  return features;
}

/* An array of the graph in memory spread over the ranks, loaded from a file. */
static wholememory_tensor_t load(ranks_t *ranks, wholememory_comm_t communicator, const char *file, int64_t count,
                                 wholememory_dtype_t dtype) {
  wholememory_tensor_description_t shape = list_of(count, dtype);
  size_t element_bytes = wholememory_dtype_get_element_size(dtype);
  wholememory_tensor_t tensor;
  TRY(ranks, wholememory_create_tensor(&tensor, &shape, communicator, WHOLEMEMORY_MT_DISTRIBUTED,
                                       WHOLEMEMORY_ML_HOST, NULL));
  TRY(ranks, wholememory_load_from_file(wholememory_tensor_get_memory_handle(tensor), 0, element_bytes, element_bytes,
                                        &file, 1, 0));
  return tensor;
}

/* Every rank writes the features of the nodes whose rows it owns. */
static wholememory_tensor_t make_features(ranks_t *ranks, wholememory_comm_t communicator, const words_t *names,
                                          const int64_t *row_pointers) {
  wholememory_tensor_description_t shape = table_of(names->count, FEATURES, WHOLEMEMORY_DT_FLOAT);
  wholememory_tensor_t tensor;
  TRY(ranks, wholememory_create_tensor(&tensor, &shape, communicator, WHOLEMEMORY_MT_DISTRIBUTED,
                                       WHOLEMEMORY_ML_HOST, NULL));
  void *mine;
  size_t bytes, offset_bytes, row_bytes = FEATURES * sizeof(float);
  TRY(ranks, wholememory_get_local_memory(&mine, &bytes, &offset_bytes, wholememory_tensor_get_memory_handle(tensor)));
  for (size_t i = 0; i < bytes / row_bytes; i++) {
    size_t node = offset_bytes / row_bytes + i;
    float *feature = (float *)mine + i * FEATURES;
    if (node >= (size_t)names->count) break;
    feature[0] = (float)(row_pointers[node + 1] - row_pointers[node]);
    feature[1] = (float)strlen(names->list[node]);
  }
  TRY(ranks, wholememory_communicator_barrier(communicator));
  return tensor;
}

static void print_sample(const settings_t *settings, const words_t *names, const layer_t *first, const layer_t *second,
                         const int32_t *nodes, const float *features) {
  for (int word = 0; word < settings->asked_count; word++) {
    printf("%s, %.0f relations\n", settings->asked[word], features[word * FEATURES]);
    for (int32_t i = first->offsets[word]; i < first->offsets[word + 1]; i++) {
      int32_t near = first->place[i];
      printf("  %-28s %4.0f  ", names->list[nodes[near]], features[near * FEATURES]);
      for (int32_t j = second->offsets[near]; j < second->offsets[near + 1]; j++)
        printf("%s%s", j > second->offsets[near] ? ", " : "", names->list[nodes[second->place[j]]]);
      printf("\n");
    }
  }
}

/* The same on all ranks? Each sums what it has; the sums must not differ. */
static int agreed(ranks_t *ranks, const int32_t *nodes, const float *features, int64_t count) {
  double mine = 0;
  for (int64_t i = 0; i < count; i++) mine += (double)nodes[i] * (double)(i + 1) + features[i * FEATURES];
  return ranks_max(ranks, mine) == mine && ranks_max(ranks, -mine) == -mine;
}

static int sample(ranks_t *ranks, const settings_t *settings, const words_t *names, const int64_t *asked_nodes,
                  const int64_t *row_pointers, const char *row_file, const char *column_file) {
  device_t device = device_open(ranks->rank);
  wholememory_env_func_t environment = environment_of(&device);
  wholememory_comm_t communicator = connect_ranks(ranks);
  const int64_t edges = row_pointers[names->count];
  world_t world = {ranks, &device, &environment, NULL, NULL, NULL};
  world.row_pointers = load(ranks, communicator, row_file, names->count + 1, WHOLEMEMORY_DT_INT64);
  world.columns = load(ranks, communicator, column_file, edges, WHOLEMEMORY_DT_INT);
  world.features = make_features(ranks, communicator, names, row_pointers);

  list_t words = list_new(&world, settings->asked_count, WHOLEMEMORY_DT_INT);
  int32_t ids[settings->asked_count];
  for (int word = 0; word < settings->asked_count; word++) ids[word] = (int32_t)asked_nodes[word];
  device_copy(&device, words.block.memory, ids, sizeof ids);
  layer_t first = sample_layer(&world, &words, settings->first, (unsigned long long)settings->seed);
  layer_t second = sample_layer(&world, &first.nodes, settings->second, (unsigned long long)settings->seed + 1);
  const int64_t count = second.nodes.block.count;
  int32_t *nodes = list_read(&world, &second.nodes, sizeof(int32_t));
  float *features = gather_features(&world, &second.nodes);

  int same = agreed(ranks, nodes, features, count);
  if (ranks->rank == 0) {
    double relations = 0, letters = 0;
    for (int64_t i = 0; i < count; i++) relations += features[i * FEATURES], letters += features[i * FEATURES + 1];
    printf("%lld senses and %lld relations in memory of %d ranks; up to %ld neighbours of a word, %ld of a neighbour\n\n",
           (long long)names->count, (long long)edges, ranks->size, settings->first, settings->second);
    printf("  %-24s relations  some of its neighbours\n", "neighbour");
    print_sample(settings, names, &first, &second, nodes, features);
    printf("\n%lld nodes sampled, %.1f relations and %.1f letters on average; the ranks %s\n", (long long)count,
           relations / (double)count, letters / (double)count, same ? "agree" : "DO NOT agree");
    fflush(stdout);
  }
  free(nodes);
  free(features);
  layer_drop(&world, &second);
  layer_drop(&world, &first);
  list_drop(&world, &words);
  TRY(ranks, wholememory_destroy_tensor(world.features));
  TRY(ranks, wholememory_destroy_tensor(world.columns));
  TRY(ranks, wholememory_destroy_tensor(world.row_pointers));
  disconnect_ranks(ranks, communicator);
  return same ? 0 : 1;
}

/* The row pointers as this program reads them, one more than nodes; NULL after saying why not. */
static int64_t *read_row_pointers(const char *row_file, const char *column_file, int64_t nodes, int rank) {
  size_t bytes = (size_t)(nodes + 1) * sizeof(int64_t);
  int64_t *row_pointers = malloc(bytes);
  FILE *in = fopen(row_file, "rb");
  struct stat rows, columns;
  int good = 0;
  if (!in || stat(row_file, &rows) != 0 || stat(column_file, &columns) != 0)
    options_refuse(rank, "the graph in %s and %s cannot be read: %s", row_file, column_file, strerror(errno));
  else if ((size_t)rows.st_size != bytes || !row_pointers || fread(row_pointers, 1, bytes, in) != bytes)
    options_refuse(rank, "%s has %lld bytes, but %lld names need %zu", row_file, (long long)rows.st_size,
                   (long long)nodes, bytes);
  else if (columns.st_size != row_pointers[nodes] * (long long)sizeof(int32_t))
    options_refuse(rank, "%s has %lld bytes, but the row pointers end at %lld columns of 4 bytes", column_file,
                   (long long)columns.st_size, (long long)row_pointers[nodes]);
  else
    good = 1;
  if (in) fclose(in);
  if (good) return row_pointers;
  free(row_pointers);
  return NULL;
}

static int run(ranks_t *ranks, void *argument) {
  const settings_t *settings = argument;
  if (settings->first < 1 || settings->second < 1 || settings->first > 1000 || settings->second > 1000) {
    options_refuse(ranks->rank, "--first %ld --second %ld: both are from 1 to 1000", settings->first, settings->second);
    return 2;
  }
  char names_file[1024], row_file[1024], column_file[1024];
  snprintf(names_file, sizeof names_file, "%s.names.txt", settings->graph);
  snprintf(row_file, sizeof row_file, "%s.row_ptr.i64", settings->graph);
  snprintf(column_file, sizeof column_file, "%s.col.i32", settings->graph);
  words_t names = read_words(names_file, ranks->rank);
  int64_t asked_nodes[settings->asked_count];
  int status = 2;
  if (names.list && find_rows(&names, settings->asked, settings->asked_count, names_file, ranks->rank, asked_nodes)) {
    int64_t *row_pointers = read_row_pointers(row_file, column_file, names.count, ranks->rank);
    if (row_pointers)
      status = sample(ranks, settings, &names, asked_nodes, row_pointers, row_file, column_file);
    free(row_pointers);
  }
  forget_words(&names);
  return status;
}

int main(int argc, char **argv) {
  settings_t settings = {"examples_c/data/wordnet", 4, 3, 1, 0, NULL};
  const option_t options[] = {
      {"--graph", "NAME", "reads NAME.row_ptr.i64, NAME.col.i32, NAME.names.txt (examples_c/data/wordnet)",
       &settings.graph, NULL, NULL},
      {"--first", "N", "neighbours of each word at most (4)", NULL, &settings.first, NULL},
      {"--second", "N", "neighbours of each of those at most (3)", NULL, &settings.second, NULL},
      {"--seed", "N", "other seeds give other samples (1)", NULL, &settings.seed, NULL},
      {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Samples two layers of neighbours around each word in a graph of word senses that is spread\n"
      "over all ranks, gathers the features of all nodes sampled, and prints a table. A word stands\n"
      "for the first sense of that name; names of several words have underscores. Without a WORD:\n"
      "dog music.",
      "[WORD...]", options};
  command_t command = options_begin(&program, argc, argv);
  static char *default_words[] = {"dog", "music"};
  settings.asked = command.word_count ? command.words : default_words;
  settings.asked_count = command.word_count ? command.word_count : 2;
  return ranks_run((int)command.process_count, (int)command.thread_count, run, &settings);
}
