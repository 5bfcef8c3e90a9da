// Elements of one type as elements of another: floating types through float (so DOUBLE to HALF and BF16 round twice), to the
// nearest, ties to even; integers as C casts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace wmk {

template <class To, class From>
struct Convert {
  static __device__ __forceinline__ To one(From x) { return static_cast<To>(x); }
};

template <class From>
__device__ __forceinline__ float as_float(From x) {
  return static_cast<float>(x);
}
template <>
__device__ __forceinline__ float as_float(__half x) {
  return __half2float(x);
}
template <>
__device__ __forceinline__ float as_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ __forceinline__ float as_float(double x) {
  return __double2float_rn(x);
}

template <class From>
struct Convert<__half, From> {
  static __device__ __forceinline__ __half one(From x) { return __float2half_rn(as_float(x)); }
};
template <class From>
struct Convert<__nv_bfloat16, From> {
  static __device__ __forceinline__ __nv_bfloat16 one(From x) { return __float2bfloat16_rn(as_float(x)); }
};
template <class From>
struct Convert<float, From> {
  static __device__ __forceinline__ float one(From x) { return as_float(x); }
};
template <>
struct Convert<double, __half> {
  static __device__ __forceinline__ double one(__half x) { return as_float(x); }
};
template <>
struct Convert<double, __nv_bfloat16> {
  static __device__ __forceinline__ double one(__nv_bfloat16 x) { return as_float(x); }
};

// kCount elements that are loaded or stored as one word.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Piece {
  T at[kCount];
};

template <class To, class From, int kCount>
__device__ __forceinline__ Piece<To, kCount> convert(const Piece<From, kCount>& from) {
  Piece<To, kCount> to;
#pragma unroll
  for (int i = 0; i < kCount; i++) to.at[i] = Convert<To, From>::one(from.at[i]);
  return to;
}

// Two at a time where the processor can.
template <int kCount>
__device__ __forceinline__ Piece<__half, kCount> convert_pairs(const Piece<float, kCount>& from, __half) {
  Piece<__half, kCount> to;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const __half2 pair = __floats2half2_rn(from.at[i], from.at[i + 1]);
    to.at[i] = pair.x;
    to.at[i + 1] = pair.y;
  }
  return to;
}
template <int kCount>
__device__ __forceinline__ Piece<__nv_bfloat16, kCount> convert_pairs(const Piece<float, kCount>& from, __nv_bfloat16) {
  Piece<__nv_bfloat16, kCount> to;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(from.at[i], from.at[i + 1]);
    to.at[i] = pair.x;
    to.at[i + 1] = pair.y;
  }
  return to;
}
template <>
__device__ __forceinline__ Piece<__half, 4> convert<__half, float, 4>(const Piece<float, 4>& from) {
  return convert_pairs(from, __half());
}
template <>
__device__ __forceinline__ Piece<__nv_bfloat16, 4> convert<__nv_bfloat16, float, 4>(const Piece<float, 4>& from) {
  return convert_pairs(from, __nv_bfloat16());
}

}  // namespace wmk
