#include "graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { AFTER = 3 };

static int64_t degree(int64_t node) {
  if (node == WM_HUB) return WM_HUB_DEGREE;
  if (node % 7 == 0) return 0;
  return (int64_t)(wm_hash((uint64_t)node, 99) % (node % 5 ? 23 : 230));
}

int64_t wm_graph_column(const wm_graph* g, int64_t edge) {
  int64_t low = (int64_t)(wm_hash((uint64_t)edge, 7) % 1000003);
  return g->shape.columns == WHOLEMEMORY_DT_INT64 ? (1LL << 40) + low : low;
}

double wm_graph_weight(const wm_graph* g, int64_t edge) {
  uint64_t h = wm_hash((uint64_t)edge, 3);
  (void)g;
  return h % 3 ? 0.125 + (double)(h % 997) / 64 : -(double)(h % 2);
}

/* Bits of element `at` of an array, counted from the window's first. */
static uint64_t element(const wm_graph* g, char which, int64_t at) {
  int64_t size = which == 'r' ? WM_NODES + 1 : g->edges;
  bool outside = at < 0 || at >= size;
  if (which == 'r') return (uint64_t)(outside ? -99 : g->row_pointers[at]);
  if (which == 'c') return (uint64_t)(outside ? -5 : wm_graph_column(g, at));
  double weight = outside ? 1e30 : wm_graph_weight(g, at);
  uint64_t bits = 0;
  if (g->shape.weights == WHOLEMEMORY_DT_DOUBLE) {
    memcpy(&bits, &weight, 8);
  } else {
    float narrow = (float)weight;
    memcpy(&bits, &narrow, 4);
  }
  return bits;
}

static wm_part make_part(const wm_graph* g, wholememory_comm_t comm, char which) {
  wholememory_dtype_t dtype = which == 'r' ? WHOLEMEMORY_DT_INT64 : which == 'c' ? g->shape.columns : g->shape.weights;
  int64_t size = which == 'r' ? WM_NODES + 1 : g->edges, before = g->shape.before, all = before + size + (before ? AFTER : 0);
  size_t bytes_each = wm_bytes_of(dtype);
  wholememory_tensor_description_t d = wm_desc(dtype, 1, all, 1, 1, 0);
  wm_part p = {NULL, NULL, NULL};
  void* local;
  size_t bytes, offset = 0;
  if (g->shape.plain) {
    bytes = (size_t)all * bytes_each;
    local = p.memory = wm_alloc(bytes);
    OK(wholememory_make_tensor_from_pointer(&p.root, local, &d));
  } else {
    OK(wholememory_create_tensor(&p.root, &d, comm, g->shape.kind.type, g->shape.kind.location, NULL));
    OK(wholememory_get_local_memory(&local, &bytes, &offset, wholememory_tensor_get_memory_handle(p.root)));
  }
  unsigned char* host = malloc(bytes + 1);
  REQUIRE(host != NULL);
  for (size_t at = 0; at < bytes; at += bytes_each)
    wm_set_bits(dtype, host + at, element(g, which, (int64_t)((offset + at) / bytes_each) - before));
  if (bytes) wm_copy(local, host, bytes);
  free(host);
  if (!g->shape.plain) OK(wholememory_communicator_barrier(comm));
  p.tensor = p.root;
  if (before) {
    int64_t start = before, end = before + size;
    OK(wholememory_tensor_get_subtensor(p.root, &start, &end, &p.tensor));
  }
  return p;
}

void wm_graph_make_lying(wm_graph* g, wholememory_comm_t comm, wm_graph_shape shape, const wm_lie* lies, int count) {
  memset(g, 0, sizeof *g);
  g->shape = shape;
  for (int64_t node = 0; node < WM_NODES; node++) g->row_pointers[node + 1] = g->row_pointers[node] + degree(node);
  g->edges = g->row_pointers[WM_NODES];
  REQUIRE(g->edges <= WM_EDGES_MOST);
  for (int i = 0; i < count; i++) g->row_pointers[lies[i].node] = lies[i].pointer;
  g->rows = make_part(g, comm, 'r');
  g->columns = make_part(g, comm, 'c');
  g->weights = make_part(g, comm, 'w');
}

void wm_graph_make(wm_graph* g, wholememory_comm_t comm, wm_graph_shape shape) {
  wm_graph_make_lying(g, comm, shape, NULL, 0);
}

static void drop_part(wm_part* p) {
  if (p->tensor != p->root) OK(wholememory_destroy_tensor(p->tensor));
  OK(wholememory_destroy_tensor(p->root));
  if (p->memory) wm_release(p->memory);
}

void wm_graph_drop(wm_graph* g) {
  drop_part(&g->rows);
  drop_part(&g->columns);
  drop_part(&g->weights);
}

/* The generator: two draws around the seed, then `subsequence` more, which a step s -> a * s + b doubled and doubled
 * again does in few; wm_generator_steps_agree goes one by one. */
typedef struct { uint64_t state, increment; } generator;

static uint32_t draw(generator* g) {
  uint64_t old = g->state;
  g->state = old * 6364136223846793005u + g->increment;
  uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);
  return turn ? x >> turn | x << (32 - turn) : x;
}

static generator start(uint64_t seed, uint64_t subsequence) {
  generator g = {0, 2 * subsequence + 1};
  draw(&g);
  g.state += seed;
  draw(&g);
  uint64_t a = 6364136223846793005u, b = g.increment;
  for (uint64_t left = subsequence; left; left /= 2) {
    if (left % 2) g.state = a * g.state + b;
    b += a * b;
    a *= a;
  }
  return g;
}

bool wm_generator_steps_agree(uint64_t seed, uint64_t subsequence) {
  generator slow = {0, 2 * subsequence + 1}, fast = start(seed, subsequence);
  draw(&slow);
  slow.state += seed;
  draw(&slow);
  for (uint64_t i = 0; i < subsequence; i++) draw(&slow);
  return slow.state == fast.state && slow.increment == fast.increment;
}

/* Threads of the published layouts by (most - 1) / 32. */
static int layout(int most) {
  static const short threads[32] = {32,  32,  32,  64,  64,  64,  128, 128, 128, 128, 128, 128, 256, 256, 256, 256,
                                    256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256, 256};
  return threads[(most - 1) / 32];
}

static void choose_uniform(uint64_t seed, int64_t position, int64_t most, int64_t n, int64_t* chosen) {
  if (most > 1024) {
    for (int64_t x = 0; x < most; x++) chosen[x] = x;
    for (int t = 0; t < 32; t++) {
      generator g = start(seed, (uint64_t)position * 32 + (uint64_t)t);
      for (int64_t y = most + t; y < n; y += 32) {
        int64_t v = (int64_t)(draw(&g) & 0x7fffffff) % (y + 1);
        if (v < most && chosen[v] < y) chosen[v] = y;
      }
    }
    return;
  }
  int threads = layout((int)most);
  generator g[256];
  for (int t = 0; t < threads; t++) g[t] = start(seed, (uint64_t)position * (uint64_t)threads + (uint64_t)t);
  int64_t* queue = malloc((size_t)n * sizeof *queue);
  REQUIRE(queue != NULL);
  for (int64_t y = 0; y < n; y++) queue[y] = y;
  for (int64_t x = 0; x < most; x++) {
    int64_t at = (int64_t)(draw(&g[x % threads]) & 0x7fffffff) % (n - x);
    chosen[x] = queue[at];
    queue[at] = queue[n - x - 1];
  }
  free(queue);
}

typedef struct { bool late; float key; int64_t y; } candidate;

static int better_first(const void* a, const void* b) {
  const candidate *p = a, *q = b;
  if (p->late != q->late) return p->late ? 1 : -1;
  if (!p->late && p->key != q->key) return p->key > q->key ? -1 : 1;
  return p->y < q->y ? -1 : 1;
}

static void choose_weighted(const wm_graph* graph, uint64_t seed, int64_t position, int64_t most, int64_t first, int64_t n, int64_t* chosen) {
  int threads = most <= 256 ? 128 : 256;
  candidate* all = malloc((size_t)n * sizeof *all);
  REQUIRE(all != NULL);
  for (int t = 0; t < threads && t < n; t++) {
    generator g = start(seed, (uint64_t)position * (uint64_t)threads + (uint64_t)t);
    for (int64_t y = t; y < n; y += threads) {
      float u = -(0.5f + 0.5f * ((float)(draw(&g) >> 8) * 0x1p-24f));
      uint64_t r = draw(&g);
      r |= (uint64_t)draw(&g) << 32;
      REQUIRE(r != 0); /* a chance of 2^-64 */
      for (; !(r >> 63); r <<= 1) u *= 0.5f;
      float weight = (float)wm_graph_weight(graph, first + y);
      all[y] = (candidate){!(weight > 0), log1pf(u) / logf(2.0f) * (1.0f / weight), y};
    }
  }
  qsort(all, (size_t)n, sizeof *all, better_first);
  for (int64_t x = 0; x < most; x++) chosen[x] = all[x].y;
  free(all);
}

wm_sampled wm_sample_reference(const wm_graph* g, const wm_sampling* s) {
  wm_sampled out = {calloc((size_t)s->count + 1, 4), NULL, 0, NULL};
  int64_t room = 1;
  for (int64_t i = 0; i < s->count; i++) room += degree(s->centers[i]);
  out.edges = malloc((size_t)room * 8);
  out.localid = malloc((size_t)room * 4);
  REQUIRE(out.offsets && out.edges && out.localid);
  for (int64_t i = 0; i < s->count; i++) {
    int64_t first = g->row_pointers[s->centers[i]], n = degree(s->centers[i]), taken = s->most <= 0 || n <= s->most ? n : s->most;
    int64_t* chosen = out.edges + out.total;
    if (taken == n)
      for (int64_t y = 0; y < n; y++) chosen[y] = y;
    else if (s->weighted)
      choose_weighted(g, s->seed, i, taken, first, n, chosen);
    else
      choose_uniform(s->seed, i, taken, n, chosen);
    for (int64_t x = 0; x < taken; x++) chosen[x] += first, out.localid[out.total + x] = (int32_t)i;
    out.total += taken;
    out.offsets[i + 1] = (int32_t)out.total;
  }
  return out;
}

void wm_sampled_drop(wm_sampled* s) {
  free(s->offsets);
  free(s->edges);
  free(s->localid);
}

wm_call wm_sample_call(const wm_graph* g, const wm_sampling* s, wm_env* env) {
  wm_call c = {.offsets = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, s->count + 1, 1, 1, 3, 0}),
               .centers = wm_array_make((wm_view){s->center_dtype, 1, s->count, 1, 1, 2, 0})};
  for (int64_t i = 0; i < s->count; i++) wm_set_bits(s->center_dtype, wm_array_at(&c.centers, i, 0), (uint64_t)s->centers[i]);
  wm_array_push(&c.centers);
  wm_context_start(&c.dest, env);
  wm_context_start(&c.localid, env);
  wm_context_start(&c.gid, env);
  void *localid = s->no_localid ? NULL : &c.localid, *gid = s->no_gid ? NULL : &c.gid;
  c.code = s->weighted ? wholegraph_csr_weighted_sample_without_replacement(
                             g->rows.tensor, g->columns.tensor, g->weights.tensor, c.centers.tensor, s->most,
                             c.offsets.tensor, &c.dest, localid, gid, s->seed, &env->fns, NULL)
                       : wholegraph_csr_unweighted_sample_without_replacement(
                             g->rows.tensor, g->columns.tensor, c.centers.tensor, s->most, c.offsets.tensor, &c.dest,
                             localid, gid, s->seed, &env->fns, NULL);
  return c;
}

void wm_call_drop(wm_call* c) {
  wm_context_drop(&c->dest);
  wm_context_drop(&c->localid);
  wm_context_drop(&c->gid);
  wm_array_drop(&c->offsets);
  wm_array_drop(&c->centers);
}

/* What a context got: once, of this dtype, as many elements; then the elements. */
static bool output_matches(const char* what, const wm_context* c, wholememory_dtype_t dtype, int64_t count, const void* want) {
  if (!CHECK_EQ(c->mallocs, 1) || !CHECK_EQ(c->desc.dtype, dtype) || !CHECK_EQ(c->desc.dim, 1) || !CHECK_EQ(c->desc.sizes[0], count) ||
      !CHECK_EQ(c->kind, WHOLEMEMORY_MA_DEVICE))
    return false;
  size_t each = wm_bytes_of(dtype), bytes = (size_t)count * each;
  if (bytes == 0) return true;
  unsigned char* got = malloc(bytes);
  REQUIRE(got != NULL);
  wm_copy(got, c->pointer, bytes);
  bool good = true;
  for (int64_t i = 0; i < count && good; i++) {
    const unsigned char* w = (const unsigned char*)want + (size_t)i * each;
    good = !memcmp(got + (size_t)i * each, w, each);
    if (!good)
      FAILED("%s[%lld] of %lld is %lld, not %lld", what, (long long)i, (long long)count,
             (long long)wm_bits(dtype, got + (size_t)i * each), (long long)wm_bits(dtype, w));
  }
  free(got);
  return good;
}

bool wm_sample_check(const wm_graph* g, const wm_sampling* s) {
  wm_env env;
  wm_env_start(&env);
  wm_call c = wm_sample_call(g, s, &env);
  wm_sampled want = wm_sample_reference(g, s);
  char what[160];
  snprintf(what, sizeof what, "%s of at most %d from %lld centers on %s", s->weighted ? "weighted sample" : "sample", s->most,
           (long long)s->count, g->shape.plain ? "plain memory" : g->shape.kind.name);
  bool good = wm_check_code(0, c.code, __FILE__, __LINE__, what);
  wm_finish();
  BALANCED(&env);
  if (good) {
    for (int64_t i = 0; i <= s->count; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&c.offsets, i, 0), (uint64_t)want.offsets[i]);
    good = wm_array_matches(&c.offsets, what);
    unsigned char* dest = malloc((size_t)want.total * 8 + 1);
    REQUIRE(dest != NULL);
    for (int64_t i = 0; i < want.total; i++)
      wm_set_bits(g->shape.columns, dest + (size_t)i * wm_bytes_of(g->shape.columns), (uint64_t)wm_graph_column(g, want.edges[i]));
    good &= output_matches("neighbours", &c.dest, g->shape.columns, want.total, dest);
    if (!s->no_localid) good &= output_matches("center_localid", &c.localid, WHOLEMEMORY_DT_INT, want.total, want.localid);
    if (!s->no_gid) good &= output_matches("edge_gid", &c.gid, WHOLEMEMORY_DT_INT64, want.total, want.edges);
    CHECK_EQ(env.output_mallocs, 3 - s->no_localid - s->no_gid);
    free(dest);
    if (!good) wm_say("in a %s", what);
  }
  wm_sampled_drop(&want);
  wm_call_drop(&c);
  return good;
}
