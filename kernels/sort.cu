// Pairs sorted by their keys.

#include "sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace wmk {

namespace {

template <class Key>
cudaError_t radix_sort(Pairs<Key> &pairs, void *room, cudaStream_t stream) {
  cub::DoubleBuffer<Key> keys(pairs.keys, pairs.other_keys);
  cub::DoubleBuffer<uint32_t> positions(pairs.positions, pairs.other_positions);
  const cudaError_t code =
      cub::DeviceRadixSort::SortPairs(room, pairs.room_bytes, keys, positions, static_cast<int>(pairs.count), 0,
                                      static_cast<int>(pairs.bits), stream);
  if (room == nullptr) return code;
  pairs.keys = keys.Current();
  pairs.other_keys = keys.Alternate();
  pairs.positions = positions.Current();
  pairs.other_positions = positions.Alternate();
  return code;
}

}  // namespace

template <class Key>
cudaError_t take_pairs(Scratch &scratch, uint32_t count, uint32_t bits, Pairs<Key> &pairs) {
  pairs.count = count;
  pairs.bits = bits;
  pairs.keys = scratch.take<Key>(count);
  pairs.other_keys = scratch.take<Key>(count);
  pairs.positions = scratch.take<uint32_t>(count);
  pairs.other_positions = scratch.take<uint32_t>(count);
  pairs.room_bytes = 0;
  const cudaError_t code = radix_sort(pairs, nullptr, nullptr);
  if (code == cudaSuccess) pairs.room = scratch.take<char>(pairs.room_bytes);
  return code;
}

template <class Key>
cudaError_t sort_pairs(Pairs<Key> &pairs, cudaStream_t stream) {
  return radix_sort(pairs, pairs.room, stream);
}

template cudaError_t take_pairs(Scratch &, uint32_t, uint32_t, Pairs<uint32_t> &);
template cudaError_t take_pairs(Scratch &, uint32_t, uint32_t, Pairs<uint64_t> &);
template cudaError_t sort_pairs(Pairs<uint32_t> &, cudaStream_t);
template cudaError_t sort_pairs(Pairs<uint64_t> &, cudaStream_t);

}  // namespace wmk
