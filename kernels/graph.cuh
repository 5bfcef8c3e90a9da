// What the kernels on graphs share: spans of edges, columns of edges, and their packing for a launch.
#pragma once

#include <type_traits>

#include "args.h"
#include "bits.cuh"
#include "common/launch.h"
#include "common/place.h"
#include "common/sample.h"

namespace wmk {

template <int kMost>
struct Nodes {
  places<kMost> row_pointers;
  const void *centers;
  const int64_t *spans;
  uint32_t count;
  uint32_t wide_centers;
};

// Edges [start, end); -1 both for a center that is no node.
struct Span {
  int64_t start;
  int64_t end;

  __device__ __forceinline__ uint64_t degree() const { return static_cast<uint64_t>(end - start); }
};

template <int kMost>
__device__ __forceinline__ int64_t row_pointer(const places<kMost> &table, uint64_t row) {
  return value_of<int64_t>(load<8>(find_row(table, row).address));
}

// The number of center i's node, beyond all nodes if it is negative.
template <int kMost>
__device__ __forceinline__ uint64_t node_of(const Nodes<kMost> &nodes, uint32_t i) {
  if (nodes.wide_centers) return static_cast<const uint64_t *>(nodes.centers)[i];
  return static_cast<uint64_t>(int64_t{static_cast<const int32_t *>(nodes.centers)[i]});
}

template <int kMost>
__device__ __forceinline__ Span span_of(const Nodes<kMost> &nodes, uint32_t i) {
  if (nodes.spans != nullptr) return {nodes.spans[2 * uint64_t{i}], nodes.spans[2 * uint64_t{i} + 1]};
  const uint64_t node = node_of(nodes, i);
  if (node >= nodes.row_pointers.rows || node + 1 >= nodes.row_pointers.rows) return {-1, -1};
  return {row_pointer(nodes.row_pointers, node), row_pointer(nodes.row_pointers, node + 1)};
}

// Where the neighbours taken go.
template <int kMost>
struct Takings {
  places<kMost> columns;
  void *dest;
  int32_t *positions;
  int64_t *edges;
  uint32_t wide_columns;
};

// The column of an edge, the bits of a narrow one below.
template <int kMost>
__device__ __forceinline__ uint64_t column_of(const Takings<kMost> &takings, int64_t edge) {
  if (takings.dest == nullptr || static_cast<uint64_t>(edge) >= takings.columns.rows) return 0;
  const uint64_t address = find_row(takings.columns, static_cast<uint64_t>(edge)).address;
  return takings.wide_columns ? value_of<uint64_t>(load<8>(address)) : value_of<uint32_t>(load<4>(address));
}

template <int kMost>
__device__ __forceinline__ void put(const Takings<kMost> &takings, uint64_t at, uint32_t position, int64_t edge,
                                    uint64_t column) {
  if (takings.dest != nullptr && takings.wide_columns) static_cast<uint64_t *>(takings.dest)[at] = column;
  if (takings.dest != nullptr && !takings.wide_columns) {
    static_cast<uint32_t *>(takings.dest)[at] = static_cast<uint32_t>(column);
  }
  if (takings.positions != nullptr) takings.positions[at] = static_cast<int32_t>(position);
  if (takings.edges != nullptr) takings.edges[at] = edge;
}

// Takings of one center by `threads` threads, this being number `thread`: edge_of(x) for x below `count`, written from
// `at` on.
template <int kMost, class F>
__device__ __forceinline__ void put_all(const Takings<kMost> &takings, uint64_t at, uint32_t position, uint32_t count,
                                        uint32_t thread, uint32_t threads, F edge_of) {
  constexpr int kFlight = 4;
  for (uint32_t first = thread; first < count; first += threads * kFlight) {
    int64_t edge[kFlight];
    uint64_t column[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const uint32_t x = first + k * threads;
      if (x >= count) continue;
      edge[k] = edge_of(x);
      column[k] = column_of(takings, edge[k]);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const uint32_t x = first + k * threads;
      if (x < count) put(takings, at + x, position, edge[k], column[k]);
    }
  }
}

// A sampling in which chance or weights decide.
template <int kMost>
struct Sampling {
  Nodes<kMost> nodes;
  Takings<kMost> takings;
  uint64_t seed;
  const int32_t *offsets;
  int32_t *offsets_out;
  // At least 1; and the threads that the draws of a center are dealt to.
  uint32_t most;
  uint32_t threads;
  // Centers of a tile.
  uint32_t seats;
  // Over 2^k times `threads` draws.
  leap powers[32];
};

// To the first of the draws of center i.
template <int kMost>
__device__ __forceinline__ leap leap_to(const Sampling<kMost> &job, uint32_t i) {
  leap all = leap::none();
  for (uint32_t k = 0; i > 0; k++, i >>= 1) {
    if (i & 1) all = all.then(job.powers[k]);
  }
  return all;
}

// The stream of thread t of center i; `center` leads to the center's draws, `thread` over t draws.
template <int kMost>
__device__ __forceinline__ pcg stream_for(const Sampling<kMost> &job, uint32_t i, uint32_t t, leap center,
                                          leap thread) {
  return stream_of(job.seed, uint64_t{i} * job.threads + t, center.then(thread));
}

// Picks of neighbours in 32 bits: a number below 2^31, or, so that any degree is possible, the distance from the last
// neighbour.
constexpr uint32_t kFromEnd = 0x80000000u;

__device__ __forceinline__ int64_t edge_of_pick(const Span &span, uint32_t pick) {
  return pick & kFromEnd ? span.end - 1 - static_cast<int64_t>(pick & ~kFromEnd) : span.start + pick;
}

// A degree for arithmetic in 32 bits. Draws have 31 bits: all larger degrees are alike to them.
__device__ __forceinline__ uint32_t narrow_degree(const Span &span) {
  return span.degree() < UINT32_MAX ? static_cast<uint32_t>(span.degree()) : UINT32_MAX;
}

template <int kMost>
places<kMost> pack(const wmk_table &table) {
  return pack_places<kMost>(table.bases, table.start_rows, table.places, table.offset_bytes, table.stride_bytes,
                            table.rows);
}

template <int kMost>
Nodes<kMost> pack_nodes(const wmk_neighbours &neighbours) {
  Nodes<kMost> nodes{};
  if (neighbours.spans == nullptr) nodes.row_pointers = pack<kMost>(neighbours.row_pointers);
  nodes.centers = neighbours.centers;
  nodes.spans = neighbours.spans;
  nodes.count = static_cast<uint32_t>(neighbours.count);
  nodes.wide_centers = neighbours.center_bytes == 8;
  return nodes;
}

template <int kMost>
Takings<kMost> pack_takings(const wmk_sample_args &args) {
  Takings<kMost> takings{};
  if (args.dest != nullptr) takings.columns = pack<kMost>(args.columns);
  takings.dest = args.dest;
  takings.positions = args.positions;
  takings.edges = args.edges;
  takings.wide_columns = args.column_bytes == 8;
  return takings;
}

template <int kMost>
Sampling<kMost> pack_sampling(const wmk_sample_args &args, uint32_t threads, uint32_t fewest_seats,
                              uint32_t most_seats) {
  Sampling<kMost> job{};
  job.nodes = pack_nodes<kMost>(args.neighbours);
  job.takings = pack_takings<kMost>(args);
  job.seed = args.seed;
  job.offsets = args.offsets;
  job.offsets_out = args.offsets_out;
  job.most = args.take.most;
  job.threads = threads;
  job.seats = seats_of(args.neighbours.count, fewest_seats, most_seats);
  job.powers[0] = leap::of(threads);
  for (int k = 1; k < 32; k++) job.powers[k] = job.powers[k - 1].then(job.powers[k - 1]);
  return job;
}

inline bool is_table(const wmk_table &table) { return table.places >= 1 && table.places <= many_places; }

inline bool are_neighbours(const wmk_neighbours &neighbours) {
  return neighbours.count >= 1 && neighbours.count < INT32_MAX &&
         (neighbours.spans != nullptr || is_table(neighbours.row_pointers));
}

inline uint64_t more_places(uint64_t places, const wmk_table &table) {
  return table.places > places ? table.places : places;
}

// The places that kernels must be compiled for to take all tables of a sampling.
inline uint64_t places_of(const wmk_sample_args &args) {
  uint64_t places = one_place;
  if (args.neighbours.spans == nullptr) places = more_places(places, args.neighbours.row_pointers);
  if (args.dest != nullptr) places = more_places(places, args.columns);
  if (args.weight_dtype != 0 && args.fetched_weights == nullptr) places = more_places(places, args.weights);
  return places;
}

// Calls `f` with the room for so many places, as a constant.
template <class F>
cudaError_t with_room(uint64_t places, F f) {
  if (places <= one_place) return f(std::integral_constant<int, one_place>());
  if (places <= few_places) return f(std::integral_constant<int, few_places>());
  return f(std::integral_constant<int, many_places>());
}

template <class F>
cudaError_t with_every_room(F f) {
  for (const uint64_t places : {one_place, few_places, many_places}) {
    const cudaError_t code = with_room(places, f);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

template <class Kernel>
cudaError_t load_kernel(Kernel kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));
}

// Parts of a sampling, each in a file of its own; sample.cu picks one. NULL arguments load the kernels.
// All neighbours of the centers.
cudaError_t sample_all(const wmk_sample_args *args, cudaStream_t stream);
// By chance, each as likely as another.
cudaError_t sample_even(const wmk_sample_args *args, cudaStream_t stream);
// By chance and weight.
cudaError_t sample_weighted(const wmk_sample_args *args, cudaStream_t stream);

// Scratch bytes of the latter two.
uint64_t even_scratch_bytes(const wmk_sample_args &args);
uint64_t weighted_scratch_bytes(const wmk_sample_args &args);

}  // namespace wmk
