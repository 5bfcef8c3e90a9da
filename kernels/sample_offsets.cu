// How many neighbours are taken of each center, summed up, and whether the graph makes sense there: one pass.

#include "args.h"
#include "graph.cuh"
#include "scan.cuh"
#include "scratch.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kCenters = 4;
constexpr uint32_t kTile = kThreads * kCenters;

template <int kMost>
struct Counting {
  Nodes<kMost> nodes;
  uint64_t edges;
  wmk_take take;
  // What a center counts for at most, so that the sum stays in its bounds; beyond INT anyway.
  uint64_t limit;
  int32_t *offsets;
  wmk_counted *counted;
  // The lowest bad position; all bits set before the kernel starts.
  uint64_t *bad;
  Tiles tiles;
};

__device__ __forceinline__ bool is_good(const Span &span, uint64_t edges) {
  return span.start >= 0 && span.start <= span.end && static_cast<uint64_t>(span.end) <= edges;
}

__device__ __forceinline__ uint64_t taken(wmk_take take, uint64_t degree) {
  if (take.kind == WMK_TAKE_AT_MOST) return degree < take.most ? degree : take.most;
  if (take.kind == WMK_TAKE_ALL_ABOVE) return degree > take.most ? degree : 0;
  return degree;
}

template <int kMost>
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ Counting<kMost> job) {
  __shared__ uint64_t of_warp[kThreads / 32];
  __shared__ uint64_t before_tile;
  __shared__ unsigned long long bad_here;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) bad_here = UINT64_MAX;
  const uint32_t tile = next_tile(job.tiles);
  __syncthreads();
  const uint32_t first = tile * kTile + threadIdx.x * kCenters;
  Span span[kCenters];
#pragma unroll
  for (uint32_t k = 0; k < kCenters; k++) {
    span[k] = first + k < job.nodes.count ? span_of(job.nodes, first + k) : Span{0, 0};
  }
  uint64_t count[kCenters], mine = 0;
#pragma unroll
  for (uint32_t k = 0; k < kCenters; k++) {
    count[k] = 0;
    if (is_good(span[k], job.edges)) {
      count[k] = min(taken(job.take, span[k].degree()), job.limit);
    } else {
      atomicMin(&bad_here, static_cast<unsigned long long>(first + k));
    }
    mine += count[k];
  }
  const uint64_t upto = sum_upto(mine);
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  uint64_t next = upto - mine, all = 0;
#pragma unroll
  for (uint32_t w = 0; w < kThreads / 32; w++) {
    if (w == warp) next += all;
    all += of_warp[w];
  }
  if (warp == 0) {
    if (lane == 0 && bad_here != UINT64_MAX && gridDim.x > 1) {
      atomicMin(reinterpret_cast<unsigned long long *>(job.bad), bad_here);
      __threadfence();
    }
    __syncwarp();
    const uint64_t before = sum_before(job.tiles, tile, all);
    if (lane == 0) before_tile = before;
  }
  __syncthreads();
  next += before_tile;
#pragma unroll
  for (uint32_t k = 0; k < kCenters; k++) {
    if (first + k < job.nodes.count) job.offsets[first + k] = static_cast<int32_t>(next);
    next += count[k];
  }
  if (tile + 1 != gridDim.x || threadIdx.x != 0) return;
  // All tiles before have told their sums, and so their bad centers.
  const uint64_t bad = gridDim.x > 1 ? load_acquire(job.bad) : bad_here;
  const uint64_t total = before_tile + all;
  job.offsets[job.nodes.count] = static_cast<int32_t>(total);
  Span worst = {-1, -1};
  if (bad != UINT64_MAX) worst = span_of(job.nodes, static_cast<uint32_t>(bad));
  *job.counted = {total, bad, worst.start, worst.end};
}

cudaError_t sample_offsets(const wmk_sample_offsets_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return with_every_room([](auto room) { return load_kernel(count_kernel<decltype(room)::value>); });
  }
  const wmk_neighbours &neighbours = args->neighbours;
  if (!are_neighbours(neighbours)) return cudaErrorInvalidValue;
  const uint32_t tiles = static_cast<uint32_t>((neighbours.count + kTile - 1) / kTile);
  Scratch scratch(args->scratch, args->scratch_bytes);
  // Prepared as one.
  uint64_t *words = scratch.take<uint64_t>(uint64_t{tiles} + 2);
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  if (tiles > 1) {
    const cudaError_t code = cudaMemsetAsync(words, 0xff, (uint64_t{tiles} + 2) * sizeof(uint64_t), stream);
    if (code != cudaSuccess) return code;
  }
  const uint64_t places = neighbours.spans == nullptr ? neighbours.row_pointers.places : one_place;
  return with_room(places, [&](auto room) {
    constexpr int kMost = decltype(room)::value;
    Counting<kMost> job{};
    job.nodes = pack_nodes<kMost>(neighbours);
    job.edges = args->edges;
    job.take = args->take;
    job.limit = (kSumLimit - 1) / neighbours.count;
    job.offsets = args->offsets;
    job.counted = args->counted;
    job.bad = words + tiles;
    job.tiles = {words, reinterpret_cast<uint32_t *>(words + tiles + 1)};
    count_kernel<kMost><<<tiles, kThreads, 0, stream>>>(job);
    return cudaGetLastError();
  });
}

}  // namespace

}  // namespace wmk

int wmk_sample_offsets(const wmk_sample_offsets_args *args, wmk_stream stream) {
  return wmk::told(wmk::sample_offsets(args, stream));
}
