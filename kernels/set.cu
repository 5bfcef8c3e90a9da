// Floats of one value.

#include <cuda_runtime.h>

#include "args_learning.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 4096;

__global__ void __launch_bounds__(kThreads) set_kernel(float *values, uint64_t count, float value) {
  for (uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * kThreads) {
    values[i] = value;
  }
}

cudaError_t set(const wmk_set_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, set_kernel);
  }
  if (args->count == 0) return cudaSuccess;
  const uint64_t needed = (args->count + kThreads - 1) / kThreads;
  const uint32_t blocks = static_cast<uint32_t>(needed < kMostBlocks ? needed : kMostBlocks);
  set_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<float *>(args->values), args->count, args->value);
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_set(const wmk_set_args *args, wmk_stream stream) { return wmk::told(wmk::set(args, stream)); }
