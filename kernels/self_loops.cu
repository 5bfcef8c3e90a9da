// Every row of a graph with its own number before its columns: a block takes some rows and writes their outputs side by
// side, which find their rows among the sums of the lengths.

#include "args.h"
#include "scan.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kFlight = 4;

__global__ void __launch_bounds__(kThreads) self_loops_kernel(const wmk_self_loops_args args) {
  __shared__ uint64_t of_warp[kThreads / 32];
  // Of each row: where its outputs begin among the block's, and its pointer.
  __shared__ uint64_t begins[kThreads];
  __shared__ uint32_t starts[kThreads];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint64_t first = uint64_t{blockIdx.x} * kThreads, row = first + threadIdx.x;
  uint64_t length = 0;
  int32_t start = 0;
  if (row < args.rows) {
    start = args.row_pointers[row];
    const int32_t end = args.row_pointers[row + 1];
    args.row_pointers_out[row] = static_cast<int32_t>(static_cast<uint32_t>(start) + static_cast<uint32_t>(row));
    if (row + 1 == args.rows) {
      args.row_pointers_out[row + 1] =
          static_cast<int32_t>(static_cast<uint32_t>(end) + static_cast<uint32_t>(row + 1));
    }
    if (start >= 0 && start <= end && static_cast<uint64_t>(end) <= args.edges) length = uint64_t(end - start) + 1;
  }
  const uint64_t upto = sum_upto(length);
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  uint64_t begin = upto - length, all = 0;
#pragma unroll
  for (uint32_t w = 0; w < kThreads / 32; w++) {
    if (w == warp) begin += all;
    all += of_warp[w];
  }
  begins[threadIdx.x] = begin;
  starts[threadIdx.x] = static_cast<uint32_t>(start);
  __syncthreads();
  for (uint64_t at = threadIdx.x; at < all; at += kThreads * kFlight) {
    uint64_t to[kFlight];
    int32_t column[kFlight];
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint64_t x = at + k * kThreads;
      if (x >= all) continue;
      // The last of the rows that do not begin behind x is the one with outputs.
      uint32_t r = 0;
#pragma unroll
      for (uint32_t step = kThreads / 2; step > 0; step /= 2) r += begins[r + step] <= x ? step : 0;
      const uint64_t place = x - begins[r];
      to[k] = starts[r] + first + r + place;
      column[k] = place == 0 ? static_cast<int32_t>(first + r) : args.columns[starts[r] + place - 1];
    }
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      if (at + k * kThreads < all) args.columns_out[to[k]] = column[k];
    }
  }
}

// The end of no rows is their beginning.
__global__ void no_rows_kernel(const wmk_self_loops_args args) { args.row_pointers_out[0] = args.row_pointers[0]; }

cudaError_t self_loops(const wmk_self_loops_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, self_loops_kernel);
    return code != cudaSuccess ? code : cudaFuncGetAttributes(&attributes, no_rows_kernel);
  }
  if (args->rows > INT32_MAX || args->edges > INT32_MAX) return cudaErrorInvalidValue;
  if (args->rows == 0) {
    no_rows_kernel<<<1, 1, 0, stream>>>(*args);
  } else {
    self_loops_kernel<<<static_cast<uint32_t>((args->rows + kThreads - 1) / kThreads), kThreads, 0, stream>>>(*args);
  }
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_self_loops(const wmk_self_loops_args *args, wmk_stream stream) {
  return wmk::told(wmk::self_loops(args, stream));
}
