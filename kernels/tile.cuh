// A tile of centers, whose takings are written side by side: few neighbours are taken of a center, or all of them. A
// warp or a block has a tile at a time.
#pragma once

#include "graph.cuh"

namespace wmk {

// Most neighbours that are taken of a center where a warp writes its choices with the rest of the tile.
constexpr uint32_t kFew = 32;

// In shared memory.
template <int kCenters>
struct Tile {
  int64_t start[kCenters];
  int64_t end[kCenters];
  // Of the takings of a center, the first, counted from the tile's first.
  uint32_t begin[kCenters];
  // Of all centers of the tile: the first taking, and how many there are.
  uint32_t first_taking;
  uint32_t count;
  // A bit for every center of which not all neighbours are taken.
  uint32_t choosing;
  uint32_t reserved;

  __device__ __forceinline__ Span span(uint32_t c) const { return {start[c], end[c]}; }

  // The center of taking number `at`.
  __device__ __forceinline__ uint32_t center_of(uint32_t at) const {
    uint32_t center = 0;
#pragma unroll
    for (uint32_t step = kCenters / 2; step > 0; step /= 2) center += begin[center + step] <= at ? step : 0;
    return center;
  }
};

// Followed by room for a pick of every taking, where few are taken.
template <int kCenters>
__host__ __device__ constexpr uint32_t tile_bytes(uint32_t most) {
  return sizeof(Tile<kCenters>) + (kCenters * most + 1) / 2 * 8;
}

template <int kCenters>
__device__ __forceinline__ uint32_t *picks_of(Tile<kCenters> &tile) {
  return reinterpret_cast<uint32_t *>(&tile + 1);
}

// Reads the centers first to first + seats - 1, as far as there are any, and copies their offsets; by a warp, whose
// lane c comes to know the span of center c. `first` is below the number of centers.
template <int kCenters, int kMost>
__device__ __forceinline__ Span sit_down(const Sampling<kMost> &job, uint32_t first, Tile<kCenters> &tile) {
  const uint32_t lane = threadIdx.x % 32, count = job.nodes.count, seats = job.seats, i = first + lane;
  const bool is_center = lane < seats && i < count;
  const uint32_t offset = static_cast<uint32_t>(job.offsets[min(first + min(lane, seats), count)]);
  const uint32_t end = static_cast<uint32_t>(job.offsets[min(first + seats, count)]);
  Span span = {0, 0};
  if (is_center) span = span_of(job.nodes, i);
  const uint32_t tile_first = __shfl_sync(0xffffffff, offset, 0);
  if (job.offsets_out != nullptr) {
    if (is_center) job.offsets_out[i] = static_cast<int32_t>(offset);
    if (is_center && i + 1 == count) job.offsets_out[count] = static_cast<int32_t>(end);
  }
  const uint32_t choosing = __ballot_sync(0xffffffff, span.degree() > job.most);
  if (lane < kCenters) {
    tile.start[lane] = span.start;
    tile.end[lane] = span.end;
    tile.begin[lane] = offset - tile_first;
  }
  if (lane == 0) {
    tile.first_taking = tile_first;
    tile.count = end - tile_first;
    tile.choosing = choosing;
  }
  __syncwarp();
  return span;
}

// How the neighbours are numbered that a center with a choice takes.
enum class Picks {
  // As edge_of_pick has them.
  kEdges,
  // By their numbers.
  kNumbers,
  // Centers with a choice are left out.
  kNone,
};

// Writes the takings of the tile but for the centers `left_out`, by `threads` threads.
template <Picks kPicks, int kCenters, int kMost>
__device__ __forceinline__ void write_tile(const Sampling<kMost> &job, Tile<kCenters> &tile, uint32_t first,
                                           uint32_t left_out, uint32_t thread, uint32_t threads) {
  constexpr uint32_t kFlight = 4;
  const uint32_t *picks = picks_of(tile);
  const uint32_t choosing = tile.choosing;
  for (uint32_t at = thread; at < tile.count; at += threads * kFlight) {
    uint32_t center[kFlight];
    int64_t edge[kFlight];
    uint64_t column[kFlight];
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint32_t x = at + k * threads;
      center[k] = kCenters;
      if (x >= tile.count) continue;
      const uint32_t c = tile.center_of(x);
      if (left_out >> c & 1) continue;
      center[k] = c;
      if (kPicks == Picks::kNone || (choosing >> c & 1) == 0) {
        edge[k] = tile.start[c] + (x - tile.begin[c]);
      } else {
        edge[k] = kPicks == Picks::kNumbers ? tile.start[c] + picks[x] : edge_of_pick(tile.span(c), picks[x]);
      }
      column[k] = column_of(job.takings, edge[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint64_t to = uint64_t{tile.first_taking} + at + k * threads;
      if (center[k] != kCenters) put(job.takings, to, first + center[k], edge[k], column[k]);
    }
  }
}

// Reads a tile and writes its centers of which all are taken, by a block. The others are left to it: tile.choosing.
template <int kCenters, int kMost>
__device__ __forceinline__ void begin_tile(const Sampling<kMost> &job, uint32_t first, Tile<kCenters> &tile) {
  if (threadIdx.x < 32) sit_down(job, first, tile);
  __syncthreads();
  write_tile<Picks::kNone>(job, tile, first, tile.choosing, threadIdx.x, blockDim.x);
}

}  // namespace wmk
