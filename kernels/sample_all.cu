// All neighbours of the centers: outputs are shared out evenly, whatever the degrees, and find their centers in the
// offsets.

#include "args.h"
#include "graph.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTile = 2048;
constexpr uint32_t kFlight = 4;

template <int kMost>
struct Copying {
  Nodes<kMost> nodes;
  Takings<kMost> takings;
  const int32_t *offsets;
  uint32_t total;
};

// The last of the centers [0, count) whose offset is not above `value`, by a warp. The first one's is not.
__device__ __forceinline__ uint32_t center_of(const int32_t *offsets, uint32_t count, int32_t value) {
  uint32_t low = 0, high = count;
  while (high - low > 1) {
    const uint32_t step = (high - low + 31) / 32, probe = low + threadIdx.x % 32 * step;
    const uint32_t not_above = __ballot_sync(0xffffffff, probe < high && offsets[probe] <= value);
    low += (__popc(not_above) - 1) * step;
    high = min(high, low + step);
  }
  return low;
}

template <int kMost>
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ Copying<kMost> job) {
  __shared__ int32_t near[kTile];
  __shared__ uint32_t ends[2];
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t begin = blockIdx.x * kTile, end = min(begin + kTile, job.total);
  if (warp < 2) {
    const uint32_t center = center_of(job.offsets, job.nodes.count, static_cast<int32_t>(warp == 0 ? begin : end - 1));
    if (threadIdx.x % 32 == 0) ends[warp] = center;
  }
  __syncthreads();
  // Centers without neighbours may make them more than outputs.
  const uint32_t first = ends[0], centers = ends[1] - ends[0] + 1;
  const bool are_near = centers <= kTile;
  if (are_near) {
    for (uint32_t c = threadIdx.x; c < centers; c += kThreads) near[c] = job.offsets[first + c];
  }
  __syncthreads();
  const int32_t *offsets = are_near ? near : job.offsets + first;
  for (uint32_t at = begin + threadIdx.x; at < end; at += kThreads * kFlight) {
    uint32_t center[kFlight];
    int64_t edge[kFlight];
    uint64_t column[kFlight];
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      const uint32_t x = at + k * kThreads;
      if (x >= end) continue;
      uint32_t low = 0, high = centers;
      while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (offsets[middle] <= static_cast<int32_t>(x)) {
          low = middle;
        } else {
          high = middle;
        }
      }
      center[k] = first + low;
      edge[k] = span_of(job.nodes, first + low).start + (x - static_cast<uint32_t>(offsets[low]));
    }
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      if (at + k * kThreads < end) column[k] = column_of(job.takings, edge[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < kFlight; k++) {
      if (at + k * kThreads < end) put(job.takings, at + k * kThreads, center[k], edge[k], column[k]);
    }
  }
}

}  // namespace

cudaError_t sample_all(const wmk_sample_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return with_every_room([](auto room) { return load_kernel(copy_kernel<decltype(room)::value>); });
  }
  if (args->offsets_out != nullptr) {
    const cudaError_t code =
        cudaMemcpyAsync(args->offsets_out, args->offsets, (args->neighbours.count + 1) * sizeof(int32_t),
                        cudaMemcpyDeviceToDevice, stream);
    if (code != cudaSuccess) return code;
  }
  if (args->total == 0) return cudaSuccess;
  return with_room(places_of(*args), [&](auto room) {
    constexpr int kMost = decltype(room)::value;
    Copying<kMost> job{};
    job.nodes = pack_nodes<kMost>(args->neighbours);
    job.takings = pack_takings<kMost>(*args);
    job.offsets = args->offsets;
    job.total = static_cast<uint32_t>(args->total);
    copy_kernel<kMost><<<(job.total + kTile - 1) / kTile, kThreads, 0, stream>>>(job);
    return cudaGetLastError();
  });
}

}  // namespace wmk
