// Sorting whole numbers, ascending, by a warp or a block. All bits set stands for no number.
#pragma once

#include <stdint.h>

namespace wmk {

constexpr uint64_t kNoCandidate = UINT64_MAX;

// Of two lanes `distance` apart the lower one keeps the lower number where `ascends`, else the higher one.
template <class T>
__device__ __forceinline__ T exchanged(T number, uint32_t distance, bool ascends) {
  const T other = __shfl_xor_sync(0xffffffff, number, distance);
  const bool is_lower = (threadIdx.x & distance) == 0;
  return is_lower == ascends ? min(number, other) : max(number, other);
}

// The numbers of a warp that rise and then fall, in order.
template <class T>
__device__ __forceinline__ T merged(T number) {
#pragma unroll
  for (uint32_t distance = 16; distance > 0; distance /= 2) number = exchanged(number, distance, true);
  return number;
}

// The numbers of a warp in order.
template <class T>
__device__ __forceinline__ T sorted(T number) {
#pragma unroll
  for (uint32_t length = 2; length <= 32; length *= 2) {
#pragma unroll
    for (uint32_t distance = length / 2; distance > 0; distance /= 2) {
      number = exchanged(number, distance, length == 32 || (threadIdx.x & length) == 0);
    }
  }
  return number;
}

// Most numbers that a block sorts in shared memory.
constexpr uint32_t kSorted = 4096;

// Sorts `count` numbers by a whole block; there is room up to the next power of two, which is filled with none.
__device__ __forceinline__ void sort_in_block(uint64_t *numbers, uint32_t count) {
  uint32_t room = 2;
  while (room < count) room *= 2;
  __syncthreads();
  for (uint32_t x = count + threadIdx.x; x < room; x += blockDim.x) numbers[x] = kNoCandidate;
  for (uint32_t length = 2; length <= room; length *= 2) {
    for (uint32_t distance = length / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (uint32_t pair = threadIdx.x; pair < room / 2; pair += blockDim.x) {
        const uint32_t low = 2 * pair - (pair & (distance - 1)), high = low + distance;
        const uint64_t a = numbers[low], b = numbers[high];
        if ((a > b) == ((low & length) == 0)) {
          numbers[low] = b;
          numbers[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

// Of `count` ascending numbers, those below `number`.
__device__ __forceinline__ uint32_t count_below(const uint64_t *numbers, uint32_t count, uint64_t number) {
  uint32_t low = 0, high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (numbers[middle] < number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Sorts `count` different numbers of device memory by a whole block, with as much room in `others` and for kSorted
// numbers in `shared`: runs that the block can sort are merged two by two, every number finding its place by those
// below it in the other run.
__device__ __forceinline__ void sort_in_memory(uint64_t *numbers, uint64_t *others, uint32_t count, uint64_t *shared) {
  __syncthreads();
  for (uint32_t first = 0; first < count; first += kSorted) {
    const uint32_t length = min(kSorted, count - first);
    for (uint32_t x = threadIdx.x; x < length; x += blockDim.x) shared[x] = numbers[first + x];
    sort_in_block(shared, length);
    for (uint32_t x = threadIdx.x; x < length; x += blockDim.x) numbers[first + x] = shared[x];
    __syncthreads();
  }
  uint64_t *from = numbers, *to = others;
  for (uint64_t run = kSorted; run < count; run *= 2) {
    for (uint32_t x = threadIdx.x; x < count; x += blockDim.x) {
      const uint32_t mine = static_cast<uint32_t>(x / run * run);
      const uint64_t partner = x / run % 2 == 0 ? mine + run : mine - run;
      const uint32_t partner_end = static_cast<uint32_t>(min(partner + run, uint64_t{count}));
      const uint32_t below =
          partner < count ? count_below(from + partner, partner_end - static_cast<uint32_t>(partner), from[x]) : 0;
      to[min(uint64_t{mine}, partner) + (x - mine) + below] = from[x];
    }
    __syncthreads();
    uint64_t *swap = from;
    from = to;
    to = swap;
  }
  if (from == numbers) return;
  for (uint32_t x = threadIdx.x; x < count; x += blockDim.x) numbers[x] = from[x];
  __syncthreads();
}

}  // namespace wmk
