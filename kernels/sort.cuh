// The positions of ids in the order of their keys, by CUB's radix sort; the only header that includes CUB.
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include "args.h"
#include "scratch.h"

namespace wmk {

constexpr uint32_t kSortThreads = 256;

// keys[i] = bits of id i from `shift` on; positions[i] = i.
template <class Key, class Id>
__global__ void key_kernel(const Id *ids, uint32_t count, uint32_t shift, Key *keys, uint32_t *positions) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    keys[i] = static_cast<Key>(static_cast<uint64_t>(int64_t{ids[i]}) >> shift);
    positions[i] = i;
  }
}

// Sorted keys and, in the same order, positions; inside scratch memory.
template <class Key>
struct Sorted {
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<uint32_t> positions;
};

// Takes what the sort needs from `scratch`, and enqueues it unless that only counts.
template <class Key>
cudaError_t sort(const void *ids, uint32_t id_bytes, uint32_t count, uint32_t shift, uint32_t bits, Scratch &scratch,
                 Sorted<Key> &sorted, cudaStream_t stream) {
  auto *keys = scratch.take<Key>(count);
  auto *other_keys = scratch.take<Key>(count);
  auto *positions = scratch.take<uint32_t>(count);
  auto *other_positions = scratch.take<uint32_t>(count);
  sorted.keys = {keys, other_keys};
  sorted.positions = {positions, other_positions};
  size_t bytes = 0;
  cudaError_t code = cub::DeviceRadixSort::SortPairs(nullptr, bytes, sorted.keys, sorted.positions, count, 0,
                                                     static_cast<int>(bits), stream);
  if (code != cudaSuccess) return code;
  void *room = scratch.take<char>(bytes);
  if (scratch.counts_only()) return cudaSuccess;
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const uint32_t blocks = (count + kSortThreads - 1) / kSortThreads;
  const uint32_t grid = blocks < 4096 ? blocks : 4096;
  if (id_bytes == 8) {
    key_kernel<Key><<<grid, kSortThreads, 0, stream>>>(static_cast<const int64_t *>(ids), count, shift, keys,
                                                       positions);
  } else {
    key_kernel<Key><<<grid, kSortThreads, 0, stream>>>(static_cast<const int32_t *>(ids), count, shift, keys,
                                                       positions);
  }
  code = cudaGetLastError();
  if (code != cudaSuccess) return code;
  return cub::DeviceRadixSort::SortPairs(room, bytes, sorted.keys, sorted.positions, count, 0, static_cast<int>(bits),
                                         stream);
}

}  // namespace wmk
