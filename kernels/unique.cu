// The distinct ids, ascending: sorted, the first of every run of equal ids takes the next slot. Every block takes one stretch of the sorted ids; a count of the runs that begin in each and a scan
// over the blocks say with which slot a block begins.

#include <cuda_runtime.h>

#include "args.h"
#include "scratch.h"
#include "sort.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 512;
constexpr uint32_t kMostBlocks = 512;
// So many ids are one block's work.
constexpr uint32_t kFewIds = 8192;

constexpr uint32_t kSortThreads = 256;

// keys[i] = id i; positions[i] = i.
template <class Id>
__global__ void key_kernel(const Id *ids, uint32_t count, uint64_t *keys, uint32_t *positions) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    keys[i] = static_cast<uint64_t>(int64_t{ids[i]});
    positions[i] = i;
  }
}

// Takes what the sort needs from `scratch`, and enqueues it unless that only counts.
cudaError_t sort(const void *ids, uint32_t id_bytes, uint32_t count, uint32_t bits, Scratch &scratch,
                 Pairs<uint64_t> &pairs, cudaStream_t stream) {
  cudaError_t code = take_pairs(scratch, count, bits, pairs);
  if (code != cudaSuccess || scratch.counts_only()) return code;
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const uint32_t blocks = (count + kSortThreads - 1) / kSortThreads;
  const uint32_t grid = blocks < 4096 ? blocks : 4096;
  if (id_bytes == 8) {
    key_kernel<<<grid, kSortThreads, 0, stream>>>(static_cast<const int64_t *>(ids), count, pairs.keys,
                                                  pairs.positions);
  } else {
    key_kernel<<<grid, kSortThreads, 0, stream>>>(static_cast<const int32_t *>(ids), count, pairs.keys,
                                                  pairs.positions);
  }
  code = cudaGetLastError();
  return code != cudaSuccess ? code : sort_pairs(pairs, stream);
}

struct Runs {
  const uint64_t *keys;
  const uint32_t *positions;
  uint32_t count;
  uint32_t stretch;
  uint32_t wide_ids;
  // Runs that begin in a block's stretch; after the scan: before it.
  uint32_t *begins;
  void *unique;
  int64_t *slots;
  uint64_t *distinct;
};

__device__ __forceinline__ bool begins_run(const Runs &runs, uint32_t i) {
  return i == 0 || runs.keys[i] != runs.keys[i - 1];
}

__global__ void __launch_bounds__(kThreads) count_runs(const Runs runs) {
  const uint32_t begin = blockIdx.x * runs.stretch;
  const uint32_t end = min(begin + runs.stretch, runs.count);
  uint32_t found = 0;
  for (uint32_t i = begin; i < end; i += kThreads) {
    const uint32_t at = i + threadIdx.x;
    found += __syncthreads_count(at < end && begins_run(runs, at));
  }
  if (threadIdx.x == 0) runs.begins[blockIdx.x] = found;
}

// One warp.
__global__ void scan_runs(uint32_t *begins, uint32_t blocks, uint64_t *distinct) {
  const uint32_t lane = threadIdx.x;
  uint32_t sum = 0;
  for (uint32_t i = lane; i - lane < blocks; i += 32) {
    const uint32_t value = i < blocks ? begins[i] : 0;
    uint32_t upto = value;
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffff, upto, step);
      if (lane >= step) upto += other;
    }
    if (i < blocks) begins[i] = sum + upto - value;
    sum += __shfl_sync(0xffffffff, upto, 31);
  }
  if (lane == 0) *distinct = sum;
}

__global__ void __launch_bounds__(kThreads) write_runs(const Runs runs) {
  __shared__ uint32_t found_by_warp[kThreads / 32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t begin = blockIdx.x * runs.stretch;
  const uint32_t end = min(begin + runs.stretch, runs.count);
  uint32_t before = runs.begins == nullptr ? 0 : runs.begins[blockIdx.x];
  for (uint32_t i = begin; i < end; i += kThreads) {
    const uint32_t at = i + threadIdx.x;
    const bool begins = at < end && begins_run(runs, at);
    const uint32_t found = __ballot_sync(0xffffffff, begins);
    if (lane == 0) found_by_warp[warp] = __popc(found);
    __syncthreads();
    uint32_t slot = before + __popc(found & (2u << lane) - 1) - 1;
    uint32_t all = 0;
    for (uint32_t w = 0; w < kThreads / 32; w++) {
      if (w == warp) slot += all;
      all += found_by_warp[w];
    }
    __syncthreads();
    before += all;
    if (at < end) {
      runs.slots[runs.positions[at]] = slot;
      if (begins && runs.wide_ids) static_cast<int64_t *>(runs.unique)[slot] = static_cast<int64_t>(runs.keys[at]);
      if (begins && !runs.wide_ids) static_cast<int32_t *>(runs.unique)[slot] = static_cast<int32_t>(runs.keys[at]);
    }
  }
  if (runs.begins == nullptr && threadIdx.x == 0) *runs.distinct = before;
}

cudaError_t unique(const wmk_unique_args *args, cudaStream_t stream) {
  // Only calls that nobody waits for on a device use these kernels, so they may be loaded when first used.
  if (args == nullptr) return cudaSuccess;
  if (args->count == 0 || args->count > INT32_MAX || args->bits == 0 || args->bits > 63) return cudaErrorInvalidValue;
  const uint32_t count = static_cast<uint32_t>(args->count);
  Scratch scratch(args->scratch, args->scratch_bytes);
  const bool few = count <= kFewIds;
  Runs runs{};
  runs.begins = scratch.take<uint32_t>(kMostBlocks);
  Pairs<uint64_t> sorted;
  const cudaError_t code = sort(args->ids, args->id_bytes, count, args->bits, scratch, sorted, stream);
  if (scratch.counts_only()) *args->needed_bytes = scratch.taken_bytes();
  if (code != cudaSuccess || scratch.counts_only()) return code;
  runs.keys = sorted.keys;
  runs.positions = sorted.positions;
  runs.count = count;
  runs.wide_ids = args->id_bytes == 8;
  runs.unique = args->unique;
  runs.slots = args->slots;
  runs.distinct = args->distinct;
  if (few) {
    runs.begins = nullptr;
    runs.stretch = count;
    write_runs<<<1, kThreads, 0, stream>>>(runs);
    return cudaGetLastError();
  }
  const uint32_t tiles = (count + kThreads - 1) / kThreads;
  runs.stretch = (tiles + kMostBlocks - 1) / kMostBlocks * kThreads;
  const uint32_t blocks = (count + runs.stretch - 1) / runs.stretch;
  count_runs<<<blocks, kThreads, 0, stream>>>(runs);
  scan_runs<<<1, 32, 0, stream>>>(runs.begins, blocks, runs.distinct);
  write_runs<<<blocks, kThreads, 0, stream>>>(runs);
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_unique(const wmk_unique_args *args, wmk_stream stream) { return wmk::told(wmk::unique(args, stream)); }
