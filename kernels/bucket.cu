// The stable split of ids by owner. Every block takes one stretch of the ids: it counts them by bucket, a scan over the
// counts says where its part of each bucket begins, and it goes over its stretch again to write. Few ids are one
// block's.

#include <cuda_runtime.h>

#include "args.h"
#include "common/place.h"
#include "scratch.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kMostWarps = 16;
constexpr uint32_t kIdsALane = 8;
constexpr uint32_t kWarpTile = 32 * kIdsALane;
// What every kernel may use without asking.
constexpr size_t kSharedBytes = 48 << 10;

// By value for as many owners as fit; more lie in scratch memory.
template <int kMost>
struct Owners {
  uint64_t start_rows[kMost + 1];
  uint32_t bucket[kMost];
};
template <>
struct Owners<0> {
  const uint64_t *start_rows;
  const uint32_t *bucket;
};

template <int kMost>
struct Split {
  Owners<kMost> owners;
  uint64_t rows;
  uint64_t reciprocal;
  uint32_t owner_count;
  uint32_t buckets;
  const void *ids;
  void *ids_out;
  int64_t *positions;
  uint64_t count;
  // Ids of a block's stretch; the last ones may be shorter.
  uint64_t stretch;
  // Of every bucket and block: how many ids; after the scan: of the bucket, where the block's begin.
  uint64_t *matrix;
  uint64_t *totals;
  uint64_t *counts;
};

// Shared memory of the writing kernel: where the block writes next, and counts of each warp and of the whole block.
__host__ __device__ constexpr size_t shared_bytes(uint32_t warps, uint64_t buckets) {
  return buckets * (sizeof(uint64_t) + (warps + 1) * sizeof(uint32_t));
}

template <int kMost>
__device__ __forceinline__ uint32_t bucket_of(const Split<kMost> &split, uint64_t id) {
  if (id >= split.rows) return split.buckets;
  return split.owners.bucket[owner_of(split.owners.start_rows, split.owner_count, split.reciprocal, id)];
}

template <class Id, int kMost>
__device__ __forceinline__ uint64_t id_at(const Split<kMost> &split, uint64_t i) {
  return static_cast<uint64_t>(int64_t{static_cast<const Id *>(split.ids)[i]});
}

template <class Id, int kMost>
__device__ void count_stretch(const Split<kMost> &split, uint64_t begin, uint64_t end, uint32_t *histogram) {
  for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) histogram[b] = 0;
  __syncthreads();
  for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const uint32_t b = bucket_of(split, id_at<Id>(split, i));
    if (b < split.buckets) atomicAdd(&histogram[b], 1);
  }
  __syncthreads();
}

__device__ __forceinline__ uint64_t inclusive_in_warp(uint64_t value, uint32_t lane) {
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffff, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// out[i] = sum of in(j) for j < i, by one warp; returns the sum of all.
template <class In>
__device__ uint64_t exclusive_by_warp(uint64_t count, uint32_t lane, In in, uint64_t *out, uint32_t stride) {
  uint64_t sum = 0;
  for (uint64_t i = lane; i - lane < count; i += 32) {
    const uint64_t value = i < count ? in(i) : 0;
    const uint64_t upto = inclusive_in_warp(value, lane);
    if (i < count) out[i * stride] = sum + upto - value;
    sum += __shfl_sync(0xffffffff, upto, 31);
  }
  return sum;
}

// Writes the ids of a stretch in their order behind base[bucket], which is shared by the block and moves on.
template <class Id, int kMost>
__device__ void write_stretch(const Split<kMost> &split, uint64_t begin, uint64_t end, uint64_t *base,
                              uint32_t *warp_counts) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const uint32_t before_me = (1u << lane) - 1;
  uint32_t *mine = warp_counts + warp * split.buckets;
  uint32_t *all = warp_counts + warps * split.buckets;
  for (uint64_t tile = begin; tile < end; tile += warps * kWarpTile) {
    for (uint32_t b = lane; b < split.buckets; b += 32) mine[b] = 0;
    __syncwarp();
    uint64_t id[kIdsALane];
    uint32_t bucket[kIdsALane], rank[kIdsALane];
    const uint64_t first = tile + warp * kWarpTile + lane;
#pragma unroll
    for (uint32_t k = 0; k < kIdsALane; k++) {
      const uint64_t i = first + k * 32;
      id[k] = i < end ? id_at<Id>(split, i) : UINT64_MAX;
    }
#pragma unroll
    for (uint32_t k = 0; k < kIdsALane; k++) {
      bucket[k] = bucket_of(split, id[k]);
      const uint32_t same = __match_any_sync(0xffffffff, bucket[k]);
      const uint32_t leader = __ffs(same) - 1;
      uint32_t earlier = 0;
      if (lane == leader && bucket[k] < split.buckets) {
        earlier = mine[bucket[k]];
        mine[bucket[k]] = earlier + __popc(same);
      }
      rank[k] = __shfl_sync(0xffffffff, earlier, leader) + __popc(same & before_me);
      __syncwarp();
    }
    __syncthreads();
    for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) {
      uint32_t sum = 0;
      for (uint32_t w = 0; w < warps; w++) {
        uint32_t &at = warp_counts[w * split.buckets + b];
        const uint32_t counted = at;
        at = sum;
        sum += counted;
      }
      all[b] = sum;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < kIdsALane; k++) {
      if (bucket[k] < split.buckets) {
        const uint64_t to = base[bucket[k]] + mine[bucket[k]] + rank[k];
        static_cast<Id *>(split.ids_out)[to] = static_cast<Id>(id[k]);
        split.positions[to] = static_cast<int64_t>(first + k * 32);
      }
    }
    __syncthreads();
    for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) base[b] += all[b];
  }
}

extern __shared__ uint64_t shared_words[];

template <class Id, int kMost>
__global__ void __launch_bounds__(kMostWarps * 32) count_kernel(const __grid_constant__ Split<kMost> split) {
  uint32_t *histogram = reinterpret_cast<uint32_t *>(shared_words);
  const uint64_t begin = blockIdx.x * split.stretch;
  const uint64_t end = begin + split.stretch < split.count ? begin + split.stretch : split.count;
  count_stretch<Id>(split, begin, end, histogram);
  for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) {
    split.matrix[uint64_t{b} * gridDim.x + blockIdx.x] = histogram[b];
  }
}

// A warp a bucket.
__global__ void scan_kernel(uint64_t *matrix, uint64_t *totals, uint64_t *counts, uint32_t blocks) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t *row = matrix + uint64_t{blockIdx.x} * blocks;
  const uint64_t total = exclusive_by_warp(blocks, lane, [&](uint64_t i) { return row[i]; }, row, 1);
  if (lane == 0) {
    totals[blockIdx.x] = total;
    counts[blockIdx.x] = total;
  }
}

template <class Id, int kMost>
__global__ void __launch_bounds__(kMostWarps * 32) write_kernel(const __grid_constant__ Split<kMost> split) {
  uint64_t *base = shared_words;
  if (threadIdx.x < 32)
    exclusive_by_warp(split.buckets, threadIdx.x, [&](uint64_t b) { return split.totals[b]; }, base, 1);
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) {
    base[b] += split.matrix[uint64_t{b} * gridDim.x + blockIdx.x];
  }
  __syncthreads();
  const uint64_t begin = blockIdx.x * split.stretch;
  const uint64_t end = begin + split.stretch < split.count ? begin + split.stretch : split.count;
  write_stretch<Id>(split, begin, end, base, reinterpret_cast<uint32_t *>(base + split.buckets));
}

// All of it by one block.
template <class Id, int kMost>
__global__ void __launch_bounds__(kMostWarps * 32) small_kernel(const __grid_constant__ Split<kMost> split) {
  uint64_t *base = shared_words;
  uint32_t *histogram = reinterpret_cast<uint32_t *>(base + split.buckets);
  count_stretch<Id>(split, 0, split.count, histogram);
  for (uint32_t b = threadIdx.x; b < split.buckets; b += blockDim.x) split.counts[b] = histogram[b];
  if (threadIdx.x < 32)
    exclusive_by_warp(split.buckets, threadIdx.x, [&](uint64_t b) { return histogram[b]; }, base, 1);
  __syncthreads();
  write_stretch<Id>(split, 0, split.count, base, histogram);
}

template <class Id, int kMost>
cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  for (const void *kernel :
       {reinterpret_cast<const void *>(count_kernel<Id, kMost>), reinterpret_cast<const void *>(scan_kernel),
        reinterpret_cast<const void *>(write_kernel<Id, kMost>),
        reinterpret_cast<const void *>(small_kernel<Id, kMost>)}) {
    const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

static_assert(shared_bytes(1, WMK_MAX_BUCKETS) <= kSharedBytes, "one warp can split into the most buckets");

uint32_t warps_for(uint64_t buckets) {
  uint32_t warps = kMostWarps;
  while (warps > 1 && shared_bytes(warps, buckets) > kSharedBytes) warps /= 2;
  return warps;
}

// Does nothing but count the scratch where that only counts.
template <class Id, int kMost>
cudaError_t launch(const wmk_bucket_args &args, uint32_t warps, uint32_t blocks, Scratch &scratch,
                   cudaStream_t stream) {
  Split<kMost> split{};
  split.rows = args.start_rows[args.owners];
  split.reciprocal = equal_parts_reciprocal(args.start_rows, args.owners);
  split.owner_count = static_cast<uint32_t>(args.owners);
  split.buckets = static_cast<uint32_t>(args.buckets);
  split.ids = args.ids;
  split.ids_out = args.ids_out;
  split.positions = args.positions;
  split.count = args.count;
  split.counts = args.counts;
  split.matrix = scratch.take<uint64_t>(args.buckets * blocks);
  split.totals = scratch.take<uint64_t>(args.buckets);
  if constexpr (kMost == 0) {
    auto *start_rows = scratch.take<uint64_t>(args.owners + 1);
    auto *bucket = scratch.take<uint32_t>(args.owners);
    if (scratch.counts_only()) return cudaSuccess;
    if (!scratch.suffices()) return cudaErrorInvalidValue;
    // The host arrays are pageable, so they are read before the call returns.
    cudaError_t code = cudaMemcpyAsync(start_rows, args.start_rows, (args.owners + 1) * sizeof(uint64_t),
                                       cudaMemcpyHostToDevice, stream);
    if (code == cudaSuccess) {
      code =
          cudaMemcpyAsync(bucket, args.bucket_of_owner, args.owners * sizeof(uint32_t), cudaMemcpyHostToDevice, stream);
    }
    if (code != cudaSuccess) return code;
    split.owners = {start_rows, bucket};
  } else {
    if (scratch.counts_only()) return cudaSuccess;
    for (uint64_t k = 0; k <= args.owners; k++) split.owners.start_rows[k] = args.start_rows[k];
    for (uint64_t k = 0; k < args.owners; k++) split.owners.bucket[k] = args.bucket_of_owner[k];
  }
  if (scratch.counts_only()) return cudaSuccess;
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const dim3 threads(warps * 32);
  const size_t shared = shared_bytes(warps, args.buckets);
  if (blocks == 1) {
    split.stretch = args.count;
    small_kernel<Id, kMost><<<1, threads, shared, stream>>>(split);
    return cudaGetLastError();
  }
  const uint64_t tile = warps * kWarpTile, tiles = (args.count + tile - 1) / tile;
  split.stretch = (tiles + blocks - 1) / blocks * tile;
  count_kernel<Id, kMost><<<blocks, threads, shared, stream>>>(split);
  scan_kernel<<<split.buckets, 32, 0, stream>>>(split.matrix, split.totals, split.counts, blocks);
  write_kernel<Id, kMost><<<blocks, threads, shared, stream>>>(split);
  return cudaGetLastError();
}

template <class Id>
cudaError_t launch_for(const wmk_bucket_args &args, uint32_t warps, uint32_t blocks, Scratch &scratch,
                       cudaStream_t stream) {
  if (args.owners <= few_places) return launch<Id, few_places>(args, warps, blocks, scratch, stream);
  if (args.owners <= many_places) return launch<Id, many_places>(args, warps, blocks, scratch, stream);
  return launch<Id, 0>(args, warps, blocks, scratch, stream);
}

template <class Id>
cudaError_t load_for() {
  for (const cudaError_t code :
       {load_kernels<Id, few_places>(), load_kernels<Id, many_places>(), load_kernels<Id, 0>()}) {
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t bucket(const wmk_bucket_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    const cudaError_t code = load_for<int32_t>();
    return code != cudaSuccess ? code : load_for<int64_t>();
  }
  if (args->owners == 0 || args->owners > UINT32_MAX || args->buckets == 0 || args->buckets > WMK_MAX_BUCKETS ||
      args->blocks == 0) {
    return cudaErrorInvalidValue;
  }
  const uint32_t warps = warps_for(args->buckets);
  const uint64_t tile = warps * kWarpTile, tiles = (args->count + tile - 1) / tile;
  const uint32_t blocks = tiles < args->blocks ? static_cast<uint32_t>(tiles < 1 ? 1 : tiles) : args->blocks;
  Scratch scratch(args->scratch, args->scratch_bytes);
  const cudaError_t code = args->id_bytes == 8 ? launch_for<int64_t>(*args, warps, blocks, scratch, stream)
                                               : launch_for<int32_t>(*args, warps, blocks, scratch, stream);
  if (scratch.counts_only()) *args->needed_bytes = scratch.taken_bytes();
  return code;
}

}  // namespace

}  // namespace wmk

int wmk_bucket(const wmk_bucket_args *args, wmk_stream stream) { return wmk::told(wmk::bucket(args, stream)); }
