// Rows of a row of values plus the row's number.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "args.h"
#include "common/dtype.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 4096;

template <class T>
__device__ __forceinline__ T plus_row(T x, uint64_t row) {
  // Integers take the low bits of the float's integral value.
  return static_cast<T>(static_cast<uint64_t>(x) +
                        static_cast<uint64_t>(static_cast<int64_t>(static_cast<float>(row))));
}
template <>
__device__ __forceinline__ float plus_row(float x, uint64_t row) {
  return x + static_cast<float>(row);
}
template <>
__device__ __forceinline__ double plus_row(double x, uint64_t row) {
  return x + static_cast<float>(row);
}
template <>
__device__ __forceinline__ __half plus_row(__half x, uint64_t row) {
  return __hadd(x, __float2half_rn(static_cast<float>(row)));
}
template <>
__device__ __forceinline__ __nv_bfloat16 plus_row(__nv_bfloat16 x, uint64_t row) {
  return __hadd(x, __float2bfloat16_rn(static_cast<float>(row)));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(const T *input, uint64_t output, uint64_t stride_bytes, uint64_t rows, uint64_t cols) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x; i < rows * cols; i += step) {
    const uint64_t row = i / cols, col = i % cols;
    reinterpret_cast<T *>(output + row * stride_bytes)[col] = plus_row(input[col], row);
  }
}

template <class T>
cudaError_t fill_with(const wmk_fill_args *args, cudaStream_t stream) {
  const uint64_t blocks = (args->rows * args->cols + kThreads - 1) / kThreads;
  fill_kernel<T><<<static_cast<uint32_t>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(
      static_cast<const T *>(args->input), args->output, args->stride_bytes, args->rows, args->cols);
  return cudaGetLastError();
}

cudaError_t fill(const wmk_fill_args *args, cudaStream_t stream) {
  // Nobody waits for this operation on a device, so its kernels may be loaded when first used.
  if (args == nullptr || args->rows == 0 || args->cols == 0) return cudaSuccess;
  switch (args->dtype) {
    case dtype_float:
      return fill_with<float>(args, stream);
    case dtype_half:
      return fill_with<__half>(args, stream);
    case dtype_double:
      return fill_with<double>(args, stream);
    case dtype_bf16:
      return fill_with<__nv_bfloat16>(args, stream);
    case dtype_int:
      return fill_with<int32_t>(args, stream);
    case dtype_int64:
      return fill_with<int64_t>(args, stream);
    case dtype_int16:
      return fill_with<int16_t>(args, stream);
    case dtype_int8:
      return fill_with<int8_t>(args, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

}  // namespace wmk

int wmk_fill(const wmk_fill_args *args, wmk_stream stream) { return wmk::told(wmk::fill(args, stream)); }
