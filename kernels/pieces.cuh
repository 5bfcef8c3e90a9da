// Elements that are loaded or stored as one word, and their conversion.
#pragma once

#include "common/dtype.h"

namespace wmk {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Piece {
  T at[kCount];
};

template <class To, class From, int kCount>
__device__ __forceinline__ Piece<To, kCount> convert_piece(const Piece<From, kCount> &from) {
  Piece<To, kCount> to;
#pragma unroll
  for (int i = 0; i < kCount; i++) to.at[i] = convert<To, From>::from(from.at[i]);
  return to;
}

}  // namespace wmk
