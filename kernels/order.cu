// In what order to read rows of memory that likes neighbours: ids are counted by their place in the table, and take
// turns place by place. In a place they keep no order, since any order is right and this one is cheap.

#include <cuda_runtime.h>

#include "args.h"
#include "scratch.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostBlocks = 1024;
constexpr uint32_t kPlacesAThread = 16;
constexpr uint32_t kPlacesABlock = kThreads * kPlacesAThread;
static_assert((1u << WMK_MOST_ORDER_BITS) / kPlacesABlock <= kThreads, "a thread a block before one's own");

struct Ids {
  const void *at;
  // NULL, or which of the ids count.
  const int64_t *positions;
  uint32_t count;
  uint32_t wide;
  uint32_t shift;
  uint32_t places;
};

__device__ __forceinline__ uint32_t position_of(const Ids &ids, uint32_t i) {
  return ids.positions != nullptr ? static_cast<uint32_t>(ids.positions[i]) : i;
}

// The place of id i, or a place that no id has.
__device__ __forceinline__ uint32_t place_of(const Ids &ids, uint32_t i) {
  if (i >= ids.count) return ids.places;
  const uint32_t at = position_of(ids, i);
  const int64_t id = ids.wide ? static_cast<const int64_t *>(ids.at)[at] : static_cast<const int32_t *>(ids.at)[at];
  return static_cast<uint32_t>(static_cast<uint64_t>(id) >> ids.shift) & (ids.places - 1);
}

// Calls `body` for every id, a warp at a time: its number, its place, and the lanes with ids of the same place.
template <class F>
__device__ __forceinline__ void for_each_id(const Ids &ids, F body) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t first = blockIdx.x * kThreads + threadIdx.x - lane; first < ids.count; first += gridDim.x * kThreads) {
    const uint32_t place = place_of(ids, first + lane);
    body(first + lane, place, __match_any_sync(0xffffffff, place), lane);
  }
}

// Equal ids of a warp count together, so that a favourite is no bottleneck.
__global__ void __launch_bounds__(kThreads) count_kernel(const Ids ids, uint32_t *places) {
  for_each_id(ids, [&](uint32_t, uint32_t place, uint32_t same, uint32_t lane) {
    if (lane == __ffs(same) - 1 && place < ids.places) atomicAdd(&places[place], __popc(same));
  });
}

// The sum over the block, for all its threads.
__device__ __forceinline__ uint32_t block_sum(uint32_t value) {
  __shared__ uint32_t of_warp[kThreads / 32];
  for (uint32_t step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  uint32_t sum = 0;
  for (uint32_t w = 0; w < kThreads / 32; w++) sum += of_warp[w];
  return sum;
}

__global__ void __launch_bounds__(kThreads) sum_kernel(const uint32_t *places, uint32_t count, uint32_t *sums) {
  const uint32_t first = blockIdx.x * kPlacesABlock;
  uint32_t mine = 0;
  for (uint32_t i = threadIdx.x; i < kPlacesABlock; i += kThreads) mine += first + i < count ? places[first + i] : 0;
  const uint32_t sum = block_sum(mine);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Counts become the numbers of the first ids of their places. `sums` of the blocks before, where there are any.
__global__ void __launch_bounds__(kThreads) scan_kernel(uint32_t *places, uint32_t count, const uint32_t *sums) {
  __shared__ uint32_t of_warp[kThreads / 32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t before_block = block_sum(threadIdx.x < blockIdx.x ? sums[threadIdx.x] : 0);
  const uint32_t first = blockIdx.x * kPlacesABlock + threadIdx.x * kPlacesAThread;
  uint32_t counted[kPlacesAThread], mine = 0;
#pragma unroll
  for (uint32_t i = 0; i < kPlacesAThread; i++) {
    counted[i] = first + i < count ? places[first + i] : 0;
    mine += counted[i];
  }
  uint32_t upto = mine;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffff, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  uint32_t next = before_block + upto - mine;
  for (uint32_t w = 0; w < warp; w++) next += of_warp[w];
#pragma unroll
  for (uint32_t i = 0; i < kPlacesAThread; i++) {
    if (first + i < count) places[first + i] = next;
    next += counted[i];
  }
}

__global__ void __launch_bounds__(kThreads) turn_kernel(const Ids ids, uint32_t *places, uint32_t *order) {
  for_each_id(ids, [&](uint32_t i, uint32_t place, uint32_t same, uint32_t lane) {
    const uint32_t leader = __ffs(same) - 1;
    uint32_t first = 0;
    if (lane == leader && place < ids.places) first = atomicAdd(&places[place], __popc(same));
    const uint32_t turn = __shfl_sync(0xffffffff, first, leader) + __popc(same & ((1u << lane) - 1));
    if (place < ids.places) order[turn] = position_of(ids, i);
  });
}

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  for (const void *kernel :
       {reinterpret_cast<const void *>(count_kernel), reinterpret_cast<const void *>(sum_kernel),
        reinterpret_cast<const void *>(scan_kernel), reinterpret_cast<const void *>(turn_kernel)}) {
    const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t order(const wmk_order_args *args, cudaStream_t stream) {
  if (args == nullptr) return load_kernels();
  if (args->count == 0 || args->count > INT32_MAX || args->bits == 0 || args->bits > WMK_MOST_ORDER_BITS ||
      args->shift > 63) {
    return cudaErrorInvalidValue;
  }
  const uint32_t places = 1u << args->bits, count = static_cast<uint32_t>(args->count);
  const uint32_t scan_blocks = (places + kPlacesABlock - 1) / kPlacesABlock;
  Scratch scratch(args->scratch, args->scratch_bytes);
  uint32_t *counts = scratch.take<uint32_t>(places);
  uint32_t *sums = scratch.take<uint32_t>(scan_blocks);
  uint32_t *order = scratch.take<uint32_t>(count);
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const Ids ids = {args->ids, args->positions, count, args->id_bytes == 8, args->shift, places};
  const uint32_t needed = (count + kThreads - 1) / kThreads, blocks = needed < kMostBlocks ? needed : kMostBlocks;
  const cudaError_t code = cudaMemsetAsync(counts, 0, places * sizeof(uint32_t), stream);
  if (code != cudaSuccess) return code;
  count_kernel<<<blocks, kThreads, 0, stream>>>(ids, counts);
  if (scan_blocks > 1) sum_kernel<<<scan_blocks, kThreads, 0, stream>>>(counts, places, sums);
  scan_kernel<<<scan_blocks, kThreads, 0, stream>>>(counts, places, sums);
  turn_kernel<<<blocks, kThreads, 0, stream>>>(ids, counts, order);
  *args->order = reinterpret_cast<uint64_t>(order);
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_order(const wmk_order_args *args, wmk_stream stream) { return wmk::told(wmk::order(args, stream)); }
