// Sums over the blocks before one's own, found while these still run: every block takes the next tile, tells what the
// tile adds, and looks back over those before it until one knows its whole prefix.
#pragma once

#include <stdint.h>

namespace wmk {

// A sum is below 2^62.
constexpr uint64_t kSumLimit = uint64_t{1} << 62;

// Where blocks tell each other; all bits are set before the kernel starts.
struct Tiles {
  uint64_t *words;  // one a tile: what it adds, or with kWholePrefix the sum with all before it
  uint32_t *turn;

  static constexpr uint64_t kWholePrefix = kSumLimit;
};

__device__ __forceinline__ uint64_t load_acquire(const uint64_t *at) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(uint64_t *at, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// The block's tile: tiles are taken in their order, so those before it have all begun.
__device__ __forceinline__ uint32_t next_tile(const Tiles &tiles) {
  __shared__ uint32_t tile;
  if (gridDim.x == 1) return 0;
  if (threadIdx.x == 0) tile = atomicAdd(tiles.turn, 1) + 1;
  __syncthreads();
  return tile;
}

// By a whole warp that knows what its block's tile adds: the sum of the tiles before, for every lane. What the threads
// of those blocks wrote before they met their warp is visible then.
__device__ __forceinline__ uint64_t sum_before(const Tiles &tiles, uint32_t tile, uint64_t added) {
  const uint32_t lane = threadIdx.x % 32;
  if (gridDim.x == 1) return 0;
  if (lane == 0) store_release(&tiles.words[tile], tile == 0 ? Tiles::kWholePrefix | added : added);
  if (tile == 0) return 0;
  uint64_t before = 0;
  for (int64_t nearest = int64_t{tile} - 1;; nearest -= 32) {
    uint64_t word = Tiles::kWholePrefix;
    if (nearest >= lane) {
      do {
        word = load_acquire(&tiles.words[nearest - lane]);
      } while (word >= 2 * Tiles::kWholePrefix);
    }
    const uint32_t whole = __ballot_sync(0xffffffff, word >= Tiles::kWholePrefix);
    uint64_t sum = lane <= static_cast<uint32_t>(__ffs(whole) - 1) ? word % kSumLimit : 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    before += sum;
    if (whole != 0) break;
  }
  if (lane == 0) store_release(&tiles.words[tile], Tiles::kWholePrefix | (before + added));
  return before;
}

// The sum over the lanes up to this one.
template <class T>
__device__ __forceinline__ T sum_upto(T value) {
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(0xffffffff, value, step);
    if (threadIdx.x % 32 >= step) value += other;
  }
  return value;
}

}  // namespace wmk
