// What a graph needs whose rows are fetched from other ranks: the ids of row pointers, and edges counted from another
// beginning.

#include "args.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 4096;

uint32_t blocks_for(uint64_t count) {
  const uint64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<uint32_t>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class Id>
__global__ void __launch_bounds__(kThreads) span_ids_kernel(const wmk_span_ids_args args) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x; i < args.count; i += step) {
    const int64_t center = static_cast<const Id *>(args.centers)[i];
    // Negative ones are beyond all nodes.
    const bool is_node = static_cast<uint64_t>(center) < args.nodes;
    const int64_t row = static_cast<int64_t>(args.first + static_cast<uint64_t>(center));
    args.ids[2 * i] = is_node ? row : -1;
    args.ids[2 * i + 1] = is_node ? row + 1 : -1;
    args.spans[2 * i] = args.spans[2 * i + 1] = -1;
  }
}

__global__ void __launch_bounds__(kThreads) shift_kernel(const wmk_shift_args args) {
  const uint64_t step = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x; i < args.count; i += step) {
    args.shifted[i] = static_cast<int64_t>(static_cast<uint64_t>(args.edges[i]) + static_cast<uint64_t>(args.by));
  }
}

cudaError_t span_ids(const wmk_span_ids_args *args, cudaStream_t stream) {
  cudaFuncAttributes attributes;
  if (args == nullptr) {
    const cudaError_t code = cudaFuncGetAttributes(&attributes, span_ids_kernel<int32_t>);
    return code != cudaSuccess ? code : cudaFuncGetAttributes(&attributes, span_ids_kernel<int64_t>);
  }
  if (args->count == 0) return cudaSuccess;
  if (args->center_bytes == 8) {
    span_ids_kernel<int64_t><<<blocks_for(args->count), kThreads, 0, stream>>>(*args);
  } else {
    span_ids_kernel<int32_t><<<blocks_for(args->count), kThreads, 0, stream>>>(*args);
  }
  return cudaGetLastError();
}

cudaError_t shift(const wmk_shift_args *args, cudaStream_t stream) {
  cudaFuncAttributes attributes;
  if (args == nullptr) return cudaFuncGetAttributes(&attributes, shift_kernel);
  if (args->count == 0) return cudaSuccess;
  shift_kernel<<<blocks_for(args->count), kThreads, 0, stream>>>(*args);
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_span_ids(const wmk_span_ids_args *args, wmk_stream stream) { return wmk::told(wmk::span_ids(args, stream)); }

int wmk_shift(const wmk_shift_args *args, wmk_stream stream) { return wmk::told(wmk::shift(args, stream)); }
