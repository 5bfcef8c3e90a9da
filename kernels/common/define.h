// What the headers of this folder need to be host code for g++ and device code for nvcc.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define WMK_FN __host__ __device__ inline
#else
#define WMK_FN inline
#endif

namespace wmk {

// A value with the bits of another of the same size.
template <typename To, typename From>
WMK_FN To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace wmk
