// Neighbours of the centers, by the part that the sampling needs.

#include "args.h"
#include "common/dtype.h"
#include "graph.cuh"
#include "told.cuh"

namespace wmk {

namespace {

bool is_sound(const wmk_sample_args &args) {
  if (!are_neighbours(args.neighbours) || args.total > INT32_MAX) return false;
  if (args.dest != nullptr && (!is_table(args.columns) || (args.column_bytes != 4 && args.column_bytes != 8))) {
    return false;
  }
  if (args.take.kind == WMK_TAKE_AT_MOST && (args.take.most == 0 || args.take.most > INT32_MAX)) return false;
  if (args.weight_dtype == 0) return true;
  if (args.weight_dtype != dtype_float && args.weight_dtype != dtype_double) return false;
  return args.fetched_weights != nullptr ? args.fetched_offsets != nullptr : is_table(args.weights);
}

cudaError_t sample(const wmk_sample_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    for (const auto part : {sample_all, sample_even, sample_weighted}) {
      const cudaError_t code = part(nullptr, stream);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  if (!is_sound(*args)) return cudaErrorInvalidValue;
  const bool chooses = args->take.kind == WMK_TAKE_AT_MOST, weighs = chooses && args->weight_dtype != 0;
  const uint64_t needed = weighs ? weighted_scratch_bytes(*args) : chooses ? even_scratch_bytes(*args) : 0;
  if (args->needed_bytes != nullptr) {
    *args->needed_bytes = needed;
    return cudaSuccess;
  }
  if (args->scratch_bytes < needed) return cudaErrorInvalidValue;
  if (weighs) return sample_weighted(args, stream);
  return chooses ? sample_even(args, stream) : sample_all(args, stream);
}

}  // namespace

}  // namespace wmk

int wmk_sample(const wmk_sample_args *args, wmk_stream stream) { return wmk::told(wmk::sample(args, stream)); }
