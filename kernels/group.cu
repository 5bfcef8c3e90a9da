// Ids sorted by the rows they name. The number of a row has as few bits as the rows of this rank need, which makes the sort
// short.

#include <cuda_runtime.h>

#include "args_learning.h"
#include "scratch.h"
#include "sort.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;

template <class Id, class Key>
__global__ void __launch_bounds__(kThreads)
    number_kernel(const Id *ids, uint32_t count, uint64_t first_row, uint64_t rows, Key *keys, uint32_t *positions,
                  uint32_t *zeros, uint32_t zero_count) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < zero_count) zeros[i] = 0;
  if (i >= count) return;
  const uint64_t row = static_cast<uint64_t>(int64_t{ids[i]}) - first_row;
  keys[i] = static_cast<Key>(ids[i] >= 0 && row < rows ? row : rows);
  positions[i] = i;
}

template <class Id, class Key>
const void *kernel() {
  return reinterpret_cast<const void *>(number_kernel<Id, Key>);
}

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  for (const void *each : {kernel<int32_t, uint32_t>(), kernel<int64_t, uint32_t>(), kernel<int32_t, uint64_t>(),
                           kernel<int64_t, uint64_t>()}) {
    const cudaError_t code = cudaFuncGetAttributes(&attributes, each);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

// Bits of the numbers 0 to `most`.
uint32_t bits_upto(uint64_t most) {
  uint32_t bits = 1;
  while (bits < 64 && most >> bits != 0) bits++;
  return bits;
}

template <class Key>
cudaError_t group(const wmk_group_args &args, cudaStream_t stream) {
  const uint32_t count = static_cast<uint32_t>(args.count), zero_count = count / WMK_GROUP_WINDOW + 1;
  Scratch scratch(args.scratch, args.scratch_bytes);
  uint32_t *zeros = scratch.take<uint32_t>(zero_count);
  Pairs<Key> pairs{};
  cudaError_t code = take_pairs(scratch, count, bits_upto(args.rows), pairs);
  if (scratch.counts_only()) *args.needed_bytes = scratch.taken_bytes();
  if (code != cudaSuccess || scratch.counts_only()) return code;
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  // Also the one zero behind whole windows has a thread.
  const uint32_t blocks = count / kThreads + 1;
  if (args.id_bytes == 8) {
    number_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const int64_t *>(args.ids), count, args.first_row,
                                                   args.rows, pairs.keys, pairs.positions, zeros, zero_count);
  } else {
    number_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const int32_t *>(args.ids), count, args.first_row,
                                                   args.rows, pairs.keys, pairs.positions, zeros, zero_count);
  }
  code = cudaGetLastError();
  if (code == cudaSuccess) code = sort_pairs(pairs, stream);
  *args.rows_at = reinterpret_cast<uint64_t>(pairs.keys);
  *args.positions_at = reinterpret_cast<uint64_t>(pairs.positions);
  *args.zeros_at = reinterpret_cast<uint64_t>(zeros);
  return code;
}

cudaError_t group(const wmk_group_args *args, cudaStream_t stream) {
  if (args == nullptr) return load_kernels();
  if (args->count == 0 || args->count > INT32_MAX || args->rows > INT64_MAX) return cudaErrorInvalidValue;
  return args->rows <= UINT32_MAX ? group<uint32_t>(*args, stream) : group<uint64_t>(*args, stream);
}

}  // namespace

}  // namespace wmk

int wmk_group(const wmk_group_args *args, wmk_stream stream) { return wmk::told(wmk::group(args, stream)); }
