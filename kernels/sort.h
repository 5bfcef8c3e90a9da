// Sorting by CUB, which only sort.cu includes.
#pragma once

#include <cuda_runtime_api.h>

#include "scratch.h"

namespace wmk {

// Keys (uint32_t or uint64_t) and the positions they had, in scratch memory. The caller fills both arrays, and after the sort
// they are the sorted ones, elsewhere.
template <class Key>
struct Pairs {
  Key *keys;
  uint32_t *positions;
  Key *other_keys;
  uint32_t *other_positions;
  void *room;
  size_t room_bytes;
  uint32_t count;
  uint32_t bits;
};

// Takes from `scratch` what sorting needs. No key has bits from `bits` on.
template <class Key>
cudaError_t take_pairs(Scratch &scratch, uint32_t count, uint32_t bits, Pairs<Key> &pairs);

// Enqueues the sort; equal keys stay in their order.
template <class Key>
cudaError_t sort_pairs(Pairs<Key> &pairs, cudaStream_t stream);

}  // namespace wmk
