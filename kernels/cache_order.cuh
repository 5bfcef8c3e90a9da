// The order in which rows are read from memory that likes neighbours, made while they are found: a row takes a turn in
// the bucket of its upper bits, and one kernel puts the turns of all buckets behind each other.
#pragma once

#include <cuda_runtime.h>

#include "args_cache.h"
#include "early.cuh"
#include "scratch.h"

namespace wmk {

namespace {

constexpr uint64_t no_turn = UINT64_MAX;

// Counts of rows by the upper bits of theirs.
struct Buckets {
  uint32_t *counts;  // zero at first
  uint32_t shift;
  uint32_t bits;
};

__device__ __forceinline__ uint64_t take_turn(const Buckets &buckets, uint64_t row) {
  const uint32_t bucket = static_cast<uint32_t>(row >> buckets.shift);
  return uint64_t{bucket} << 32 | atomicAdd(&buckets.counts[bucket], 1);
}

inline Buckets buckets_for(uint64_t rows, uint32_t bits, uint32_t *counts) {
  uint32_t all = 1;
  while (all < 63 && uint64_t{1} << all < rows) all++;
  if (bits > all) bits = all;
  return {counts, all - bits, bits};
}

constexpr uint32_t kOrderThreads = 1024;
constexpr uint32_t kMostBuckets = 1u << WMK_MOST_CACHE_ORDER_BITS;
constexpr uint32_t kBucketsAThread = kMostBuckets / kOrderThreads;

// order[turn] = i for all i below `most`, and below *count where that is told, that have a turn; *total: how many have.
// Every block adds up all the counts for itself.
__global__ void __launch_bounds__(kOrderThreads)
    order_turns(const uint64_t *turns, uint32_t most, const uint32_t *count, const Buckets buckets, uint32_t *order,
                uint32_t *total) {
  wait_for_before();
  let_next_begin();
  __shared__ uint32_t first_of[kMostBuckets];
  __shared__ uint32_t of_warp[32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, all = 1u << buckets.bits;
  uint32_t counted[kBucketsAThread], mine = 0;
#pragma unroll
  for (uint32_t k = 0; k < kBucketsAThread; k++) {
    const uint32_t bucket = threadIdx.x * kBucketsAThread + k;
    counted[k] = bucket < all ? buckets.counts[bucket] : 0;
    mine += counted[k];
  }
  uint32_t upto = mine;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffff, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  const uint32_t others = of_warp[lane];
  uint32_t before = lane < warp ? others : 0;
  before = __reduce_add_sync(0xffffffff, before);
  uint32_t next = before + upto - mine;
#pragma unroll
  for (uint32_t k = 0; k < kBucketsAThread; k++) {
    first_of[threadIdx.x * kBucketsAThread + k] = next;
    next += counted[k];
  }
  if (blockIdx.x == 0 && threadIdx.x == kOrderThreads - 1) *total = next;
  __syncthreads();
  const uint32_t end = count == nullptr ? most : *count;
  for (uint32_t i = blockIdx.x * kOrderThreads + threadIdx.x; i < end; i += gridDim.x * kOrderThreads) {
    const uint64_t turn = turns[i];
    if (turn != no_turn) order[first_of[turn >> 32] + static_cast<uint32_t>(turn)] = i;
  }
}

inline cudaError_t enqueue_order(const uint64_t *turns, uint32_t most, const uint32_t *count, const Buckets &buckets,
                                 uint32_t *order, uint32_t *total, cudaStream_t stream, bool early = false) {
  const uint32_t needed = (most + kOrderThreads * 2 - 1) / (kOrderThreads * 2), blocks = needed < 128 ? needed : 128;
  return launch_kernel(early, order_turns, blocks, kOrderThreads, 0, stream, turns, most, count, buckets, order, total);
}

}  // namespace

}  // namespace wmk
