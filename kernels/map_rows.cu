// Round robin: from the rows a caller names to the rows of the table.

#include <cuda_runtime.h>

#include "args_learning.h"
#include "common/round_robin.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 4096;

template <class Id>
__global__ void __launch_bounds__(kThreads) map_kernel(const __grid_constant__ wmk_map_rows_args map) {
  const Id *ids = static_cast<const Id *>(map.ids);
  for (uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x; i < map.count; i += uint64_t{gridDim.x} * kThreads) {
    map.mapped[i] = dealt_row({map.block_rows, map.ranks, map.rank_rows, map.rows}, int64_t{ids[i]});
  }
}

cudaError_t map_rows(const wmk_map_rows_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, map_kernel<int32_t>);
    return code != cudaSuccess ? code : cudaFuncGetAttributes(&attributes, map_kernel<int64_t>);
  }
  if (args->count == 0) return cudaSuccess;
  if (args->block_rows == 0 || args->ranks == 0) return cudaErrorInvalidValue;
  const uint64_t needed = (args->count + kThreads - 1) / kThreads;
  const uint32_t blocks = static_cast<uint32_t>(needed < kMostBlocks ? needed : kMostBlocks);
  if (args->id_bytes == 8) {
    map_kernel<int64_t><<<blocks, kThreads, 0, stream>>>(*args);
  } else {
    map_kernel<int32_t><<<blocks, kThreads, 0, stream>>>(*args);
  }
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_map_rows(const wmk_map_rows_args *args, wmk_stream stream) { return wmk::told(wmk::map_rows(args, stream)); }
