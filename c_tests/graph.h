/* Graphs over ranks and the samplers' definitions in C, apart from the library: choices are made as the definitions put
 * them. */
#ifndef WM_GRAPH_H
#define WM_GRAPH_H

#include <wholememory/wholegraph_op.h>

#include "table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WM_NODES = 160, WM_HUB = 5, WM_HUB_DEGREE = 3000, WM_EDGES_MOST = 12000 };

typedef struct {
  wm_kind kind;
  bool plain;                  /* in the caller's memory instead of a handle */
  bool exchanged;              /* ranks do not read each other's parts */
  wholememory_dtype_t columns; /* INT or INT64; INT64 ones are beyond 32 bits */
  wholememory_dtype_t weights; /* FLOAT or DOUBLE */
  int before;                  /* elements of every array that lie before the window which is the graph */
} wm_graph_shape;

/* An array of a graph: the tensor that is passed, and what it is a window of. */
typedef struct { wholememory_tensor_t root, tensor; void* memory; } wm_part;

typedef struct {
  wm_graph_shape shape;
  int64_t row_pointers[WM_NODES + 1];
  int64_t edges;
  wm_part rows, columns, weights;
} wm_graph;

int64_t wm_graph_column(const wm_graph* g, int64_t edge);
/* A third of them are not above 0. */
double wm_graph_weight(const wm_graph* g, int64_t edge);

/* Makes and fills the arrays (collective unless plain). */
void wm_graph_make(wm_graph* g, wholememory_comm_t comm, wm_graph_shape shape);
/* The same with row pointers that lie: `lies` are nodes and what stands in the place of their pointer. */
typedef struct { int64_t node, pointer; } wm_lie;
void wm_graph_make_lying(wm_graph* g, wholememory_comm_t comm, wm_graph_shape shape, const wm_lie* lies, int count);
void wm_graph_drop(wm_graph* g);

/* One call of a sampler. */
typedef struct {
  const int64_t* centers;
  int64_t count;
  wholememory_dtype_t center_dtype;
  int most;
  uint64_t seed;
  bool weighted, no_localid, no_gid;
} wm_sampling;

/* What the definitions give; to be freed with wm_sampled_drop. */
typedef struct { int32_t* offsets; int64_t *edges, total; int32_t* localid; } wm_sampled;
/* The generator's start, compared with as many single steps. */
bool wm_generator_steps_agree(uint64_t seed, uint64_t subsequence);
wm_sampled wm_sample_reference(const wm_graph* g, const wm_sampling* s);
void wm_sampled_drop(wm_sampled* s);

/* Calls the library with these callbacks, which stay the caller's to look at. Offsets get a guard behind them. */
typedef struct {
  wm_array offsets, centers;
  wm_context dest, localid, gid;
  int code;
} wm_call;
wm_call wm_sample_call(const wm_graph* g, const wm_sampling* s, wm_env* env);
void wm_call_drop(wm_call* c);

/* Samples, and compares offsets, outputs, the callbacks' order, dtypes and lengths with the reference (collective where
 * the kind is). */
bool wm_sample_check(const wm_graph* g, const wm_sampling* s);

#ifdef __cplusplus
}
#endif
#endif
