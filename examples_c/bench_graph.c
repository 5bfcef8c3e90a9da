/* Graphs: neighbours of random centers sampled from a generated graph of skewed degrees, and distinct ids appended. */
#include "bench.h"

enum { NODES = 2000000, CENTERS = 200000, SEED = 42 };

/* Node v has 2 to 31 neighbours, one node in 64 has 200 more; edge e leads to a hash of e. */
static int64_t degree_of(int64_t node) {
  uint32_t h = bench_mix((uint64_t)node * 77 + 5);
  return 2 + h % 30 + ((h >> 8) % 64 == 0 ? 200 : 0);
}
static int64_t column_of(int64_t edge) { return (int64_t)(bench_mix((uint64_t)edge * 3 + 1) % NODES); }
static float weight_of(int64_t edge) { return 0.01f + (float)(bench_mix((uint64_t)edge) % 1000); }

typedef struct {
  bench_rank_t *rank;
  const bench_case_t *what;
  wholememory_tensor_t starts, columns, weights, centers, offsets, sampled, map;
  bench_output_t neighbours, center_of, edges, distinct;
} graph_t;

typedef enum { PART_STARTS, PART_COLUMNS, PART_WEIGHTS } part_t;

/* One array of the graph over all ranks, each of which fills its own part. */
static wholememory_tensor_t make_array(bench_rank_t *rank, const bench_case_t *what, part_t part, int64_t count,
                                       const int64_t *starts) {
  const bench_api_t *api = rank->api;
  wholememory_dtype_t dtype = part == PART_WEIGHTS ? WHOLEMEMORY_DT_FLOAT : WHOLEMEMORY_DT_INT64;
  wholememory_tensor_description_t shape = bench_shape(count, 0, dtype);
  wholememory_tensor_t tensor;
  BENCH_TRY(rank, api->wholememory_create_tensor(&tensor, &shape, rank->communicator, what->type, what->location, NULL));
  void *mine;
  size_t bytes, offset_bytes, each = bench_element_bytes(dtype);
  BENCH_TRY(rank, api->wholememory_get_local_memory(&mine, &bytes, &offset_bytes,
                                                    api->wholememory_tensor_get_memory_handle(tensor)));
  char *values = device_plain(bytes);
  for (size_t i = 0; i < bytes / each; i++) {
    int64_t at = (int64_t)(offset_bytes / each + i), number = part == PART_STARTS ? starts[at] : column_of(at);
    float weight = weight_of(at);
    memcpy(values + i * each, part == PART_WEIGHTS ? (void *)&weight : (void *)&number, each);
  }
  device_copy(&rank->device, mine, values, bytes);
  free(values);
  return tensor;
}

static void sample(void *raw) {
  graph_t *g = raw;
  const bench_api_t *api = g->rank->api;
  if (g->what->op == OP_WEIGHTED)
    BENCH_TRY(g->rank, api->wholegraph_csr_weighted_sample_without_replacement(
                           g->starts, g->columns, g->weights, g->centers, g->what->fanout, g->offsets, &g->neighbours,
                           &g->center_of, &g->edges, SEED, &g->rank->callbacks, NULL));
  else
    BENCH_TRY(g->rank, api->wholegraph_csr_unweighted_sample_without_replacement(
                           g->starts, g->columns, g->centers, g->what->fanout, g->offsets, &g->neighbours,
                           &g->center_of, &g->edges, SEED, &g->rank->callbacks, NULL));
}

static void append(void *raw) {
  graph_t *g = raw;
  BENCH_TRY(g->rank, g->rank->api->graph_append_unique(g->centers, g->sampled, &g->distinct, g->map, &g->rank->callbacks, NULL));
}

static int rising(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return (left > right) - (left < right);
}

static void *fetched(const graph_t *g, const void *from, size_t bytes) {
  void *here = device_plain(bytes);
  device_copy(&g->rank->device, here, from, bytes);
  return here;
}

/* Every sampled edge is one of its center's, none comes twice, and as many come as there must. */
static double wrong_samples(graph_t *g, const int64_t *centers, const int64_t *starts, const void *offsets_memory) {
  double wrong = 0;
  int64_t total = g->edges.count;
  int32_t *offsets = fetched(g, offsets_memory, (CENTERS + 1) * sizeof *offsets);
  int64_t *edges = fetched(g, bench_output_memory(&g->edges), (size_t)total * sizeof *edges);
  int64_t *neighbours = fetched(g, bench_output_memory(&g->neighbours), (size_t)total * sizeof *neighbours);
  int32_t *center_of = fetched(g, bench_output_memory(&g->center_of), (size_t)total * sizeof *center_of);
  int64_t at = 0;
  for (int64_t i = 0; i < CENTERS; i++) {
    int64_t degree = degree_of(centers[i]), taken = degree < g->what->fanout ? degree : g->what->fanout;
    if (offsets[i] != at || at + taken > total) return wrong + 1;
    for (int64_t k = at; k < at + taken; k++)
      wrong += center_of[k] != i || edges[k] < starts[centers[i]] || edges[k] >= starts[centers[i] + 1] ||
               neighbours[k] != column_of(edges[k]);
    qsort(edges + at, (size_t)taken, sizeof *edges, rising);
    for (int64_t k = at + 1; k < at + taken; k++) wrong += edges[k] == edges[k - 1];
    at += taken;
  }
  wrong += offsets[CENTERS] != at || total != at;
  free(offsets);
  free(edges);
  free(neighbours);
  free(center_of);
  return wrong;
}

/* The centers come first as they are, and every sampled id stands where the map says. */
static double wrong_list(graph_t *g, const int64_t *centers, const void *map_memory) {
  double wrong = 0;
  int64_t total = g->neighbours.count, length = g->distinct.count;
  if (length < CENTERS) return 1;
  int64_t *list = fetched(g, bench_output_memory(&g->distinct), (size_t)length * sizeof *list);
  int64_t *neighbours = fetched(g, bench_output_memory(&g->neighbours), (size_t)total * sizeof *neighbours);
  int32_t *map = fetched(g, map_memory, (size_t)total * sizeof *map);
  for (int64_t i = 0; i < CENTERS; i++) wrong += list[i] != centers[i];
  for (int64_t k = 0; k < total; k++) wrong += map[k] < 0 || map[k] >= length || list[map[k]] != neighbours[k];
  free(list);
  free(neighbours);
  free(map);
  return wrong;
}

bench_result_t bench_graph(bench_rank_t *rank, const bench_case_t *what) {
  const bench_api_t *api = rank->api;
  const device_t *device = &rank->device;
  bench_result_t result = {0, 0, 0, 0, NULL, ""};
  graph_t g;
  memset(&g, 0, sizeof g);
  g.rank = rank;
  g.what = what;
  int64_t *starts = device_plain((NODES + 1) * sizeof *starts), *centers = device_plain(CENTERS * sizeof *centers);
  starts[0] = 0;
  for (int64_t v = 0; v < NODES; v++) starts[v + 1] = starts[v] + degree_of(v);
  uint64_t state = 88172645463325252ULL + 7919ULL * (uint64_t)rank->ranks->rank;
  for (int64_t i = 0; i < CENTERS; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    centers[i] = (int64_t)(state % NODES);
  }
  g.starts = make_array(rank, what, PART_STARTS, NODES + 1, starts);
  g.columns = make_array(rank, what, PART_COLUMNS, starts[NODES], starts);
  if (what->op == OP_WEIGHTED) g.weights = make_array(rank, what, PART_WEIGHTS, starts[NODES], starts);
  void *centers_memory = device_alloc(device, CENTERS * sizeof *centers);
  void *offsets_memory = device_alloc(device, (CENTERS + 1) * sizeof(int32_t)), *map_memory = NULL;
  device_copy(device, centers_memory, centers, CENTERS * sizeof *centers);
  wholememory_tensor_description_t centers_shape = bench_shape(CENTERS, 0, WHOLEMEMORY_DT_INT64);
  wholememory_tensor_description_t offsets_shape = bench_shape(CENTERS + 1, 0, WHOLEMEMORY_DT_INT);
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&g.centers, centers_memory, &centers_shape));
  BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&g.offsets, offsets_memory, &offsets_shape));
  bench_line_up(rank);

  sample(&g);
  device_wait(device);
  if (rank->settings->verify) result.wrong_values += wrong_samples(&g, centers, starts, offsets_memory);
  int64_t total = g.neighbours.count;
  result.payload_bytes = (double)total * (8 + 4 + 8);
  if (what->op == OP_UNIQUE) {
    map_memory = device_alloc(device, (size_t)total * sizeof(int32_t));
    wholememory_tensor_description_t sampled_shape = bench_shape(total, 0, WHOLEMEMORY_DT_INT64);
    wholememory_tensor_description_t map_shape = bench_shape(total, 0, WHOLEMEMORY_DT_INT);
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&g.sampled, bench_output_memory(&g.neighbours), &sampled_shape));
    BENCH_TRY(rank, api->wholememory_make_tensor_from_pointer(&g.map, map_memory, &map_shape));
    append(&g);
    device_wait(device);
    if (rank->settings->verify) result.wrong_values += wrong_list(&g, centers, map_memory);
    result.payload_bytes = (double)total * (8 + 4);
  }
  result.call_us = bench_time(rank, (bench_action_t){what->op == OP_UNIQUE ? append : sample, &g});

  bench_output_t *outputs[] = {&g.neighbours, &g.center_of, &g.edges, &g.distinct};
  for (int i = 0; i < 4; i++) bench_output_end(rank, outputs[i]);
  wholememory_tensor_t plain[] = {g.centers, g.offsets, g.sampled, g.map}, shared[] = {g.starts, g.columns, g.weights};
  for (int i = 0; i < 4; i++)
    if (plain[i]) BENCH_TRY(rank, api->wholememory_destroy_tensor(plain[i]));
  bench_line_up(rank);
  for (int i = 0; i < 3; i++)
    if (shared[i]) BENCH_TRY(rank, api->wholememory_destroy_tensor(shared[i]));
  device_free(device, centers_memory);
  device_free(device, offsets_memory);
  device_free(device, map_memory);
  free(starts);
  free(centers);
  return result;
}
