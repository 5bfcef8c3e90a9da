// In what order to read rows of memory that likes neighbours.

#include "sort.cuh"
#include "told.cuh"

namespace wmk {

namespace {

cudaError_t order(const wmk_order_args *args, cudaStream_t stream) {
  // Only calls that nobody waits for use these kernels, so they may be loaded when first used.
  if (args == nullptr) return cudaSuccess;
  if (args->count == 0 || args->count > INT32_MAX || args->bits == 0 || args->bits > 32) return cudaErrorInvalidValue;
  Scratch scratch(args->scratch, args->scratch_bytes);
  Sorted<uint32_t> sorted;
  const cudaError_t code = sort<uint32_t>(args->ids, args->id_bytes, static_cast<uint32_t>(args->count), args->shift,
                                          args->bits, scratch, sorted, stream);
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
  } else {
    *args->order = reinterpret_cast<uint64_t>(sorted.positions.Current());
  }
  return code;
}

}  // namespace

}  // namespace wmk

int wmk_order(const wmk_order_args *args, wmk_stream stream) { return wmk::told(wmk::order(args, stream)); }
