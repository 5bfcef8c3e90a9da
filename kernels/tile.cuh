// A warp's tile of centers, from each of which few neighbours are taken: the warp picks center by center, then writes
// the tile's takings side by side.
#pragma once

#include "graph.cuh"

namespace wmk {

// Most neighbours taken of a center.
constexpr uint32_t kFew = 32;

// In shared memory, followed by room for kCenters times `most` picks.
template <int kCenters>
struct Tile {
  int64_t start[kCenters];
  int64_t end[kCenters];
  // Of the takings of a center, the first, counted from the tile's first.
  uint32_t begin[kCenters];

  static __host__ __device__ constexpr uint32_t bytes(uint32_t most) {
    return sizeof(Tile) + kCenters * most * sizeof(uint32_t) + (kCenters * most % 2) * sizeof(uint32_t);
  }

  __device__ __forceinline__ uint32_t *picks() { return reinterpret_cast<uint32_t *>(this + 1); }

  __device__ __forceinline__ Span span(uint32_t c) const { return {start[c], end[c]}; }

  // The center of taking number `at`.
  __device__ __forceinline__ uint32_t center_of(uint32_t at) const {
    uint32_t center = 0;
#pragma unroll
    for (uint32_t step = kCenters / 2; step > 0; step /= 2) center += begin[center + step] <= at ? step : 0;
    return center;
  }
};

// What lane c knows of center c of the tile.
struct Seat {
  Span span;
  uint32_t begin;
  // The neighbours taken are a choice.
  bool chooses;
};

// Reads the tile's centers and copies their offsets. `first` is below the number of centers.
template <int kCenters, int kMost>
__device__ __forceinline__ Seat sit_down(const Sampling<kMost> &job, uint32_t first, Tile<kCenters> &tile,
                                         uint32_t &tile_begin, uint32_t &tile_count) {
  const uint32_t lane = threadIdx.x % 32, count = job.nodes.count, i = first + lane;
  const bool is_center = lane < kCenters && i < count;
  const uint32_t at = min(first + min(lane, uint32_t{kCenters}), count);
  const uint32_t offset = static_cast<uint32_t>(job.offsets[at]);
  Seat seat = {{0, 0}, 0, false};
  if (is_center) seat.span = span_of(job.nodes, i);
  uint32_t end;
  if constexpr (kCenters == 32) {
    end = static_cast<uint32_t>(job.offsets[min(first + 32, count)]);
  } else {
    end = __shfl_sync(0xffffffff, offset, kCenters);
  }
  tile_begin = __shfl_sync(0xffffffff, offset, 0);
  tile_count = end - tile_begin;
  seat.begin = offset - tile_begin;
  seat.chooses = is_center && seat.span.degree() > job.most;
  if (job.offsets_out != nullptr) {
    if (is_center) job.offsets_out[i] = static_cast<int32_t>(offset);
    if (is_center && i + 1 == count) job.offsets_out[count] = static_cast<int32_t>(end);
  }
  if (lane < kCenters) {
    tile.start[lane] = seat.span.start;
    tile.end[lane] = seat.span.end;
    tile.begin[lane] = seat.begin;
  }
  __syncwarp();
  return seat;
}

// Writes the takings of the tile: picks of the centers that choose (a bit each), all neighbours of the others. Picks are
// numbers of neighbours where these are `kNumbers`, else as edge_of_pick has them.
template <bool kNumbers, int kCenters, int kMost>
__device__ __forceinline__ void write_tile(const Sampling<kMost> &job, Tile<kCenters> &tile, uint32_t first,
                                           uint32_t choosing, uint32_t tile_begin, uint32_t tile_count) {
  constexpr uint32_t kFlight = 4;
  const uint32_t *picks = tile.picks();
  for (uint32_t at = threadIdx.x % 32; at < tile_count; at += 32 * kFlight) {
    uint32_t center[kFlight];
    int64_t edge[kFlight];
    uint64_t column[kFlight];
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint32_t x = at + k * 32;
      if (x >= tile_count) continue;
      center[k] = tile.center_of(x);
      const uint32_t pick = choosing >> center[k] & 1 ? picks[x] : x - tile.begin[center[k]];
      edge[k] = kNumbers ? tile.start[center[k]] + pick : edge_of_pick(tile.span(center[k]), pick);
      column[k] = column_of(job.takings, edge[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint32_t x = at + k * 32;
      if (x < tile_count) put(job.takings, uint64_t{tile_begin} + x, first + center[k], edge[k], column[k]);
    }
  }
}

}  // namespace wmk
