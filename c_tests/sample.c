/* Sampling on every type and location, plain memory and every route: against the definitions, bit for bit; ranks without
 * centers, ranks that are refused, graphs that lie, callbacks that fail. */
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "graph.h"

enum { LOGIC = WHOLEMEMORY_LOGIC_ERROR, INPUT = WHOLEMEMORY_INVALID_INPUT, VALUE = WHOLEMEMORY_INVALID_VALUE };
enum { MOST_CENTERS = 300 };

/* Fills in nodes of every degree; the same on no two ranks. */
static const int64_t* nodes(int64_t* list, int64_t count, int salt) {
  for (int64_t i = 0; i < count; i++) list[i] = (int64_t)(wm_hash((uint64_t)i, (uint64_t)salt) % WM_NODES);
  if (count > 2) list[1] = WM_HUB, list[2] = 7;
  return list;
}

static void every_count(wm_rank* r, const wm_graph* g, bool weighted) {
  /* Every thread layout has a count here. */
  const int counts[] = {-3, 0, 1, 3, 10, 30, 32, 33, 97, 150, 256, 257, 600, 1024, 1025, 2000, 4000};
  int64_t list[MOST_CENTERS];
  /* Fewer in host memory, where the same code reads, and where ranks meet for every call. */
  size_t step = g->shape.exchanged ? 5 : g->shape.kind.location == WHOLEMEMORY_ML_HOST ? 3 : 1;
  for (size_t i = weighted; i < sizeof counts / sizeof *counts; i += step) {
    int64_t centers = counts[i] > 32 || weighted ? 11 + r->rank : 60 + 20 * r->rank;
    wm_sampling s = {.centers = nodes(list, centers, (int)i + 100 * r->rank), .count = centers,
                     .center_dtype = i % 2 ? WHOLEMEMORY_DT_INT : WHOLEMEMORY_DT_INT64, .most = counts[i],
                     .seed = 0x9000000000000000u + i, .weighted = weighted, .no_localid = i % 3 == 1, .no_gid = i % 4 >= 2};
    if (!wm_sample_check(g, &s)) return;
  }
}

/* Some ranks have no centers, with offsets alone; then none has. */
static void no_centers(wm_rank* r, const wm_graph* g, bool weighted) {
  int64_t list[MOST_CENTERS];
  for (int round = 0; round < 3; round++) {
    int64_t count = round == 2 || r->rank % 2 == round ? 0 : MOST_CENTERS;
    wm_sampling s = {.centers = nodes(list, count, round), .count = count, .center_dtype = WHOLEMEMORY_DT_INT, .most = 4, .seed = 1, .weighted = weighted};
    wm_sample_check(g, &s);
  }
  /* Nodes without neighbours only. */
  int64_t empty[3] = {0, 7, 14};
  wm_sampling s = {.centers = empty, .count = 3, .center_dtype = WHOLEMEMORY_DT_INT64, .most = 4, .seed = 1, .weighted = weighted};
  wm_sample_check(g, &s);
}

/* Nothing of a refused call is written: offsets keep their guard, contexts have no block. */
static void refused(const char* what, int want, wm_call* c, const wm_env* env, int line) {
  wm_check_code(want, c->code, __FILE__, line, what);
  wm_finish();
  BALANCED(env);
  wm_array_matches(&c->offsets, what);
  CHECK_EQ(env->output_mallocs, 0);
  wm_call_drop(c);
}

static void a_refused_rank(wm_rank* r, const wm_graph* g, bool weighted) {
  int64_t list[40];
  for (int kind = 0; kind < 5; kind++)
    for (int who = 0; who < r->size; who += r->size > 1 ? r->size - 1 : 1) {
      wm_sampling s = {.centers = nodes(list, 40, who + kind), .count = 40, .center_dtype = WHOLEMEMORY_DT_INT64, .most = 6, .seed = 8, .weighted = weighted};
      wm_env env;
      wm_env_start(&env);
      if (r->rank != who && kind == 4 && g->shape.exchanged) {
        wm_call c = wm_sample_call(g, &s, &env);
        CHECK_HAS(wholememory_get_last_error(), "without row pointers, columns or weights");
        refused("beside a rank without columns", LOGIC, &c, &env, __LINE__);
        continue;
      }
      if (r->rank != who) {
        wm_sample_check(g, &s);
        continue;
      }
      const int64_t bad[] = {WM_NODES, -1, INT64_MAX};
      if (kind < 3) list[33] = bad[kind], list[37] = -5;
      if (kind == 3) s.center_dtype = WHOLEMEMORY_DT_FLOAT;
      wm_graph other = *g;
      if (kind == 4) {
        /* A tensor that is none: what is left of the graph says who is waiting. */
        other.columns.tensor = NULL;
        wm_call c = wm_sample_call(&other, &s, &env);
        refused("without columns", INPUT, &c, &env, __LINE__);
        continue;
      }
      wm_call c = wm_sample_call(g, &s, &env);
      if (kind == 0) CHECK_HAS(wholememory_get_last_error(), "center_nodes[33] is 160");
      refused("a center that is no node", kind == 3 ? INPUT : VALUE, &c, &env, __LINE__);
    }
}

/* Contexts are filled in the order of the contract, by blocks of DEVICE memory. */
static void order_of_outputs(const wm_graph* g) {
  int64_t list[5] = {WM_HUB, 1, 2, 3, 4};
  wm_sampling s = {.centers = list, .count = 5, .center_dtype = WHOLEMEMORY_DT_INT, .most = 9, .seed = 4};
  bool apart = !g->shape.plain && (g->shape.kind.type == WHOLEMEMORY_MT_DISTRIBUTED || g->shape.kind.type == WHOLEMEMORY_MT_HIERARCHY);
  for (int failing = 1; failing <= 4; failing++) {
    wm_env env;
    wm_env_start(&env);
    env.fail_output_at = failing;
    wm_call c = wm_sample_call(g, &s, &env);
    wm_finish();
    BALANCED(&env);
    wm_check_code(failing <= 3 ? WHOLEMEMORY_OUT_OF_MEMORY : 0, c.code, __FILE__, __LINE__, "an output that is refused");
    CHECK_EQ(env.output_mallocs, failing <= 3 ? failing : 3);
    int dest = apart ? 2 : 1, localid = apart ? 3 : 2, gid = apart ? 1 : 3;
    CHECK_EQ(c.dest.mallocs, failing >= dest);
    CHECK_EQ(c.localid.mallocs, failing >= localid);
    CHECK_EQ(c.gid.mallocs, failing >= gid);
    if (failing <= 3) wm_array_matches(&c.offsets, "offsets of a call without outputs");
    wm_call_drop(&c);
  }
}

/* Every temporary block refused in turn, on one rank: it alone may fail, or all, and nobody waits. */
static void refused_blocks(wm_rank* r, const wm_graph* g, wholememory_comm_t comm, bool weighted) {
  int64_t list[50];
  wm_sampling s = {.centers = nodes(list, 50, r->rank), .count = 50, .center_dtype = WHOLEMEMORY_DT_INT64, .most = 7, .seed = 8, .weighted = weighted};
  wm_env env;
  wm_env_start(&env);
  wm_call c = wm_sample_call(g, &s, &env);
  EXPECT(0, c.code);
  wm_finish();
  wm_call_drop(&c);
  int most = env.mallocs;
  wm_share(r, &most, sizeof most);
  CHECK(most > 0);
  for (int k = 1; k <= most; k++) {
    wm_env_start(&env);
    env.fail_at = r->rank == r->size - 1 ? k : 0;
    c = wm_sample_call(g, &s, &env);
    wm_finish();
    BALANCED(&env);
    bool lacking = env.fail_at && env.mallocs >= k;
    if (lacking) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, c.code, __FILE__, __LINE__, "a sampling whose scratch was refused");
    else if (c.code) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, c.code, __FILE__, __LINE__, "a sampling beside a rank without scratch");
    wm_call_drop(&c);
    OK(wholememory_communicator_barrier(comm));
  }
  wm_sample_check(g, &s);
}

/* Row pointers that decrease, are negative or leave the columns: an error that names the center, on the ranks that meet it. */
static void lying_graphs(wm_rank* r, wholememory_comm_t comm, wm_graph_shape shape) {
  const wm_lie lies[] = {{20, 1}, {40, -7}, {60, 1LL << 40}, {80, INT64_MAX}, {90, INT64_MIN}, {WM_NODES, WM_EDGES_MOST + 1}};
  const int64_t bad[] = {19, 39, 40, 59, 60, 79, 80, 89, 90, WM_NODES - 1};
  wm_graph g;
  wm_graph_make_lying(&g, comm, shape, lies, sizeof lies / sizeof *lies);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    for (int weighted = 0; weighted < 2; weighted++) {
      int64_t list[3] = {2, bad[i], 3};
      bool mine = (size_t)r->rank == i % (size_t)r->size;
      wm_sampling s = {.centers = list, .count = mine ? 3 : 1, .center_dtype = WHOLEMEMORY_DT_INT64, .most = i % 2 ? 3 : 0, .seed = 8, .weighted = weighted};
      if (!mine) {
        wm_sample_check(&g, &s);
        continue;
      }
      wm_env env;
      wm_env_start(&env);
      wm_call c = wm_sample_call(&g, &s, &env);
      CHECK_HAS(wholememory_get_last_error(), "center_nodes[1]");
      refused("row pointers that lie", VALUE, &c, &env, __LINE__);
    }
  wm_graph_drop(&g);
}

/* More neighbours than offsets of INT can count, and offsets that are too few. */
static void too_much(const wm_graph* g) {
  enum { CENTERS = 800000 };
  int64_t* list = malloc(CENTERS * sizeof *list);
  REQUIRE(list != NULL);
  for (int i = 0; i < CENTERS; i++) list[i] = WM_HUB;
  wm_sampling s = {.centers = list, .count = CENTERS, .center_dtype = WHOLEMEMORY_DT_INT, .most = 0, .seed = 8};
  wm_env env;
  wm_env_start(&env);
  wm_call c = wm_sample_call(g, &s, &env);
  CHECK_HAS(wholememory_get_last_error(), "2400000000");
  refused("2.4e9 neighbours", VALUE, &c, &env, __LINE__);
  free(list);

  wm_array centers = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 4, 1, 1, 0, 0});
  wm_array offsets = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 4, 1, 1, 0, 0});
  wm_context dest;
  wm_env_start(&env);
  wm_context_start(&dest, &env);
  EXPECT(INPUT, wholegraph_csr_unweighted_sample_without_replacement(g->rows.tensor, g->columns.tensor, centers.tensor, 1, offsets.tensor,
                                                                     &dest, NULL, NULL, 1, &env.fns, NULL));
  EXPECT(INPUT, wholegraph_csr_unweighted_sample_without_replacement(g->rows.tensor, g->columns.tensor, centers.tensor, 1, offsets.tensor,
                                                                     NULL, NULL, NULL, 1, &env.fns, NULL));
  EXPECT(INPUT, wholegraph_csr_unweighted_sample_without_replacement(g->rows.tensor, g->columns.tensor, centers.tensor, 1, offsets.tensor,
                                                                     &dest, NULL, NULL, 1, NULL, NULL));
  wholememory_tensor_description_t* live = wholememory_tensor_get_tensor_description(g->weights.tensor);
  live->sizes[0]--;
  EXPECT(INPUT, wholegraph_csr_weighted_sample_without_replacement(g->rows.tensor, g->columns.tensor, g->weights.tensor, centers.tensor, 1,
                                                                   offsets.tensor, &dest, NULL, NULL, 1, &env.fns, NULL));
  live->sizes[0]++;
  CHECK_EQ(env.output_mallocs, 0);
  BALANCED(&env);
  wm_array_drop(&centers);
  wm_array_drop(&offsets);
}

/* Parts of a graph on kinds of memory that do not go together. */
static void mixed_kinds(wm_rank* r, wholememory_comm_t comm, const wm_graph* plain) {
  const wm_kind* k = &wm_kinds[0];
  for (int i = 0; i < WM_KINDS; i++)
    if (wm_kinds[i].type == WHOLEMEMORY_MT_DISTRIBUTED && wm_kinds[i].location == WHOLEMEMORY_ML_HOST) k = &wm_kinds[i];
  if (k->type != WHOLEMEMORY_MT_DISTRIBUTED || !wm_kind_here(r, comm, k)) return;
  wm_graph g;
  wm_graph_make(&g, comm, (wm_graph_shape){.kind = *k, .columns = WHOLEMEMORY_DT_INT, .weights = WHOLEMEMORY_DT_FLOAT});
  int64_t list[2] = {1, 2};
  wm_sampling s = {.centers = list, .count = 2, .center_dtype = WHOLEMEMORY_DT_INT, .most = 1, .seed = 8};
  for (int weighted = 0; weighted < 2; weighted++) {
    wm_graph mixed = g;
    if (weighted) mixed.weights = plain->weights;
    else mixed.columns = plain->columns;
    s.weighted = weighted;
    wm_env env;
    wm_env_start(&env);
    wm_call c = wm_sample_call(&mixed, &s, &env);
    CHECK_HAS(wholememory_get_last_error(), "DISTRIBUTED");
    refused("a graph of two kinds of memory", INPUT, &c, &env, __LINE__);
    OK(wholememory_communicator_barrier(comm));
  }
  wm_graph_drop(&g);
}

static void on(wm_rank* r, wholememory_comm_t comm, wm_graph_shape shape) {
  for (int wide = 0; wide < 2; wide++) {
    wm_graph g;
    shape.columns = wide ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT;
    shape.weights = wide ? WHOLEMEMORY_DT_DOUBLE : WHOLEMEMORY_DT_FLOAT;
    shape.before = wide ? 5 : 0;
    wm_graph_make(&g, comm, shape);
    for (int weighted = 0; weighted < 2; weighted++) {
      every_count(r, &g, weighted);
      no_centers(r, &g, weighted);
      if (weighted != wide || (shape.exchanged && shape.kind.location == WHOLEMEMORY_ML_HOST)) continue;
      a_refused_rank(r, &g, weighted);
      refused_blocks(r, &g, comm, weighted);
    }
    order_of_outputs(&g);
    if (!shape.plain) OK(wholememory_communicator_barrier(comm));
    if (shape.plain && !wide) too_much(&g), mixed_kinds(r, comm, &g);
    wm_graph_drop(&g);
    if (wide && shape.kind.location != WHOLEMEMORY_ML_HOST) lying_graphs(r, comm, shape);
  }
}

static void set_for_all(wm_rank* r, const char* name, const char* value) {
  wm_meet(r);
  if (!r->threads || r->rank == 0) value ? setenv(name, value, 1) : unsetenv(name);
  wm_meet(r);
}

/* What the ranks of one host read of each other decides, but for HIERARCHY over several nodes. */
static void under(wm_rank* r, const char* route, bool apart_only, bool nodes) {
  set_for_all(r, "WHOLEMEMORY_ROUTE", route);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  for (int k = 0; k < WM_KINDS; k++) {
    bool apart = wm_kinds[k].type == WHOLEMEMORY_MT_DISTRIBUTED || wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY;
    if (apart_only && !apart) continue;
    bool exchanged = apart && (!strcmp(route, "exchange") || (nodes && wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY));
    if (wm_kind_here(r, comm, &wm_kinds[k])) on(r, comm, (wm_graph_shape){.kind = wm_kinds[k], .exchanged = exchanged});
  }
  OK(wholememory_destroy_communicator(comm));
}

static void body(wm_rank* r) {
  for (uint64_t q = 0; q < 3000; q = q * 3 + 1) CHECK(wm_generator_steps_agree(q * 77, q));
  on(r, wm_world(r), (wm_graph_shape){.plain = true});
  under(r, "auto", false, false);
  under(r, "exchange", true, false);
  if (!r->threads && r->size > 1 && r->size % 2 == 0) {
    setenv("WHOLEMEMORY_BOOTID", r->rank % 2 ? "second" : "first", 1);
    under(r, "auto", true, true);
    unsetenv("WHOLEMEMORY_BOOTID");
  }
  set_for_all(r, "WHOLEMEMORY_ROUTE", NULL);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
