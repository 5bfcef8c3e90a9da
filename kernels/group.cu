// Ids of the same row brought together. Calls of the usual sizes do it by buckets: a row's bucket is a hash of it, so that
// buckets are about equally full; a stable split by bucket (a warp a stretch of the ids: counts, a scan over the counts,
// writes) makes each bucket one block's work, which sorts it in shared memory. Three small kernels of which every
// multiprocessor has a part are quicker than the passes of a radix sort, which serves the largest calls, and those that
// want rows in order.

#include <cuda_runtime.h>

#include "args_learning.h"
#include "early.cuh"
#include "scratch.h"
#include "sort.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
// What one block sorts in shared memory.
constexpr uint32_t kMostSorted = 2048;
// Ids of a bucket, on average.
constexpr uint32_t kBucketIds = 256;
constexpr uint32_t kMostBuckets = 2048;
constexpr uint64_t kMostBucketed = uint64_t{kBucketIds} * kMostBuckets;
// A stretch of ids is a warp's, some warps a block.
constexpr uint32_t kSplitWarps = 4;
constexpr uint32_t kSplitThreads = kSplitWarps * 32;
constexpr uint32_t kMostStretches = 512;
constexpr uint32_t kWarp = 0xffffffff;
// Of a bucket with more ids than one block sorts at once, how many a thread looks at between two meetings of the block.
constexpr uint32_t kThreadIds = 16;

using Pair = unsigned long long;  // a row and behind it the position, so that the order is that of both

__device__ __forceinline__ Pair pair_of(uint32_t row, uint32_t position) { return Pair{row} << 32 | position; }
__device__ __forceinline__ uint32_t row_of_pair(Pair pair) { return static_cast<uint32_t>(pair >> 32); }

// The ids of a call.
struct Ids {
  const void *at;
  uint32_t wide;
  uint32_t count;
  uint64_t first_row;
  uint64_t rows;
  uint32_t lots;
  uint32_t lot_firsts[WMK_GROUP_LOTS];
  uint32_t lot_shifts[WMK_GROUP_LOTS];  // from an id's number to its position
};

__device__ __forceinline__ uint32_t position_of(const Ids &ids, uint32_t i) {
  uint32_t shift = 0;
  for (uint32_t k = 0; k < ids.lots && ids.lot_firsts[k] <= i; k++) shift = ids.lot_shifts[k];
  return i + shift;
}

// The row of id i, ids.rows for none of these.
__device__ __forceinline__ uint64_t row_at(const Ids &ids, uint32_t i) {
  const int64_t id = ids.wide ? static_cast<const int64_t *>(ids.at)[i] : static_cast<const int32_t *>(ids.at)[i];
  const uint64_t row = static_cast<uint64_t>(id) - ids.first_row;
  return id >= 0 && row < ids.rows ? row : ids.rows;
}

struct Buckets {
  Ids ids;
  uint32_t log;       // of the number of buckets; one more is for ids of no row
  uint32_t columns;   // buckets, that one too, up to whole warps
  uint32_t stretch;   // ids of a warp, whole warps of them
  uint32_t stretches;
  // For every stretch and bucket: how many ids; after the scan: of the bucket, where the stretch's begin.
  uint32_t *counts;
  uint32_t *totals;  // of every bucket
  uint32_t *starts;  // of every bucket where it begins, and the end
  Pair *pairs;
  uint32_t *rows;
  uint32_t *positions;
  uint32_t *zeros;
  uint32_t zero_count;
};

__device__ __forceinline__ uint32_t bucket_count(const Buckets &job) { return (1u << job.log) + 1; }

__device__ __forceinline__ uint32_t bucket_of(const Buckets &job, uint32_t row) {
  if (row == job.ids.rows) return 1u << job.log;
  uint32_t bits = row * 0x9e3779b1u;
  bits = (bits ^ bits >> 15) * 0x85ebca77u;
  return bits >> (32 - job.log);
}

extern __shared__ uint32_t shared_words[];

// Calls `body` for the ids of a warp's stretch, 32 at a time: row, position, bucket and the lanes with the same bucket.
// Lanes behind the last id have a bucket of their own.
template <class F>
__device__ __forceinline__ void for_stretch(const Buckets &job, uint32_t stretch, uint32_t lane, F body) {
  constexpr uint32_t kAhead = 8;
  const uint32_t begin = stretch * job.stretch, end = min(begin + job.stretch, job.ids.count);
  for (uint32_t first = begin; first < end; first += 32 * kAhead) {
    uint32_t rows[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      const uint32_t i = first + k * 32 + lane;
      rows[k] = i < end ? static_cast<uint32_t>(row_at(job.ids, i)) : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      const uint32_t i = first + k * 32 + lane;
      const uint32_t bucket = i < end ? bucket_of(job, rows[k]) : job.columns;
      body(rows[k], i, bucket, __match_any_sync(kWarp, bucket), i < end);
    }
  }
}

__global__ void __launch_bounds__(kSplitThreads) count_kernel(const __grid_constant__ Buckets job) {
  wait_for_before();
  let_next_begin();
  for (uint32_t i = blockIdx.x * kSplitThreads + threadIdx.x; i < job.zero_count; i += gridDim.x * kSplitThreads) {
    job.zeros[i] = 0;
  }
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t stretch = blockIdx.x * kSplitWarps + warp;
  if (stretch >= job.stretches) return;
  uint32_t *mine = shared_words + warp * job.columns;
  for (uint32_t b = lane; b < job.columns; b += 32) mine[b] = 0;
  __syncwarp();
  for_stretch(job, stretch, lane, [&](uint32_t, uint32_t, uint32_t bucket, uint32_t same, bool live) {
    if (live && lane == __ffs(same) - 1) mine[bucket] += __popc(same);
    __syncwarp();
  });
  uint32_t *to = job.counts + uint64_t{stretch} * job.columns;
  for (uint32_t b = lane; b < job.columns; b += 32) to[b] = mine[b];
}

constexpr uint32_t kScanWarps = 32;

// A block has 32 buckets, one a lane; its warps share out the stretches.
__global__ void __launch_bounds__(kScanWarps * 32) scan_kernel(const __grid_constant__ Buckets job) {
  wait_for_before();
  let_next_begin();
  constexpr uint32_t kMine = kMostStretches / kScanWarps;
  __shared__ uint32_t of_warp[kScanWarps][32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t share = (job.stretches + kScanWarps - 1) / kScanWarps, first = warp * share;
  uint32_t *at = job.counts + uint64_t{first} * job.columns + blockIdx.x * 32 + lane;
  uint32_t counts[kMine], mine = 0;
#pragma unroll
  for (uint32_t k = 0; k < kMine; k++) {
    counts[k] = k < share && first + k < job.stretches ? at[uint64_t{k} * job.columns] : 0;
    mine += counts[k];
  }
  of_warp[warp][lane] = mine;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (uint32_t w = 0; w < kScanWarps; w++) {
    before += w < warp ? of_warp[w][lane] : 0;
    all += of_warp[w][lane];
  }
#pragma unroll
  for (uint32_t k = 0; k < kMine; k++) {
    if (k < share && first + k < job.stretches) at[uint64_t{k} * job.columns] = before;
    before += counts[k];
  }
  if (warp == 0) job.totals[blockIdx.x * 32 + lane] = all;
}

// The sum of the values of the threads before, of all in `all`; the block's threads call it together.
template <uint32_t kWarps>
__device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t &all) {
  __shared__ uint32_t of_warp[kWarps];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t upto = value;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kWarp, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  uint32_t before = upto - value;
  all = 0;
  for (uint32_t w = 0; w < kWarps; w++) {
    before += w < warp ? of_warp[w] : 0;
    all += of_warp[w];
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kSplitThreads) write_kernel(const __grid_constant__ Buckets job) {
  wait_for_before();
  let_next_begin();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t stretch = blockIdx.x * kSplitWarps + warp, buckets = bucket_count(job);
  // Where buckets begin: each thread sums the ids of some neighbouring ones.
  uint32_t *starts = shared_words, *next = shared_words + job.columns + warp * job.columns;
  const uint32_t share = (job.columns + kSplitThreads - 1) / kSplitThreads;
  const uint32_t first = threadIdx.x * share, last = min(first + share, job.columns);
  uint32_t mine = 0, all;
  for (uint32_t b = first; b < last; b++) mine += job.totals[b];
  uint32_t before = sum_before<kSplitWarps>(mine, all);
  for (uint32_t b = first; b < last; b++) {
    starts[b] = before;
    before += job.totals[b];
  }
  __syncthreads();
  if (blockIdx.x == 0) {
    for (uint32_t b = threadIdx.x; b < buckets; b += kSplitThreads) job.starts[b] = starts[b];
    if (threadIdx.x == 0) job.starts[buckets] = job.ids.count;
  }
  if (stretch >= job.stretches) return;
  const uint32_t *counts = job.counts + uint64_t{stretch} * job.columns;
  for (uint32_t b = lane; b < job.columns; b += 32) next[b] = starts[b] + counts[b];
  __syncwarp();
  for_stretch(job, stretch, lane, [&](uint32_t row, uint32_t i, uint32_t bucket, uint32_t same, bool live) {
    const uint32_t to = live ? next[bucket] + __popc(same & ((1u << lane) - 1)) : 0;
    __syncwarp();
    if (live && lane == __ffs(same) - 1) next[bucket] += __popc(same);
    __syncwarp();
    if (live) job.pairs[to] = pair_of(row, position_of(job.ids, i));
  });
}

__device__ __forceinline__ void order(Pair &low, Pair &high) {
  const Pair a = low, b = high;
  if (a > b) {
    low = b;
    high = a;
  }
}

// Sorts by a network whose comparators all point the same way, so that places behind the end need not exist. The block's
// threads call it together; all may read when it returns.
__device__ __forceinline__ void sort_together(Pair *pairs, uint32_t count) {
  for (uint32_t size = 2; size / 2 < count; size *= 2) {
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const bool mirrors = stride == size / 2;
      for (uint32_t t = threadIdx.x;; t += blockDim.x) {
        const uint32_t place = t & (stride - 1), low = (t - place) * 2 + place;
        if (low >= count) break;
        const uint32_t high = mirrors ? (t - place) * 2 + size - 1 - place : low + stride;
        if (high < count) order(pairs[low], pairs[high]);
      }
    }
  }
  __syncthreads();
}

// Of a bucket with one or a few favourite rows: takes the pairs of one row out, in their order, to `rows` and `positions`,
// and moves the others together. Returns how many it took.
__device__ __forceinline__ uint32_t take_favourite(Pair *pairs, uint32_t count, uint32_t *rows, uint32_t *positions) {
  __shared__ uint32_t favourite;
  if (threadIdx.x < 32) {
    const uint32_t row = row_of_pair(pairs[static_cast<uint64_t>(threadIdx.x) * count / 32]);
    const uint32_t same = __popc(__match_any_sync(kWarp, row));
    uint32_t most = same;
    for (uint32_t step = 1; step < 32; step *= 2) most = max(most, __shfl_xor_sync(kWarp, most, step));
    if (threadIdx.x == __ffs(__ballot_sync(kWarp, same == most)) - 1) favourite = row;
  }
  __syncthreads();
  const uint32_t wanted = favourite;
  uint32_t taken = 0, kept = 0;
  for (uint32_t tile = 0; tile < count; tile += kThreads * kThreadIds) {
    const uint32_t first = tile + threadIdx.x * kThreadIds;
    Pair mine[kThreadIds];
    uint32_t hits = 0, all;
#pragma unroll
    for (uint32_t k = 0; k < kThreadIds; k++) {
      mine[k] = first + k < count ? pairs[first + k] : 0;
      hits += first + k < count && row_of_pair(mine[k]) == wanted;
    }
    // Also: all have read what is now written over.
    const uint32_t before = sum_before<kThreads / 32>(hits, all);
    uint32_t to = taken + before, keep = kept + threadIdx.x * kThreadIds - before;
#pragma unroll
    for (uint32_t k = 0; k < kThreadIds; k++) {
      if (first + k >= count) continue;
      if (row_of_pair(mine[k]) == wanted) {
        rows[to] = wanted;
        positions[to++] = static_cast<uint32_t>(mine[k]);
      } else {
        pairs[keep++] = mine[k];
      }
    }
    taken += all;
    kept += min(kThreads * kThreadIds, count - tile) - all;
  }
  __syncthreads();
  return taken;
}

// A block a bucket.
__global__ void __launch_bounds__(kThreads) sort_kernel(const __grid_constant__ Buckets job) {
  wait_for_before();
  let_next_begin();
  __shared__ Pair sorted[kMostSorted];
  uint32_t begin = job.starts[blockIdx.x];
  const uint32_t end = job.starts[blockIdx.x + 1];
  if (blockIdx.x == 1u << job.log) {
    for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) {
      job.rows[i] = static_cast<uint32_t>(job.ids.rows);
      job.positions[i] = static_cast<uint32_t>(job.pairs[i]);
    }
    return;
  }
  Pair *pairs = job.pairs + begin;
  // A few rows at most fill a bucket by themselves, or somebody wants to see this sort fail.
  for (int most = 0; most < 8 && end - begin > kMostSorted; most++) {
    begin += take_favourite(pairs, end - begin, job.rows + begin, job.positions + begin);
  }
  const uint32_t count = end - begin;
  if (count <= kMostSorted) {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) sorted[i] = pairs[i];
    pairs = sorted;
  }
  sort_together(pairs, count);
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    job.rows[begin + i] = row_of_pair(pairs[i]);
    job.positions[begin + i] = static_cast<uint32_t>(pairs[i]);
  }
}

// Few ids, all by one block.
__global__ void __launch_bounds__(kThreads)
    few_kernel(const __grid_constant__ Ids ids, uint32_t *rows, uint32_t *positions, uint32_t *zeros,
               uint32_t zero_count) {
  __shared__ Pair sorted[kMostSorted];
  for (uint32_t i = threadIdx.x; i < zero_count; i += kThreads) zeros[i] = 0;
  for (uint32_t i = threadIdx.x; i < ids.count; i += kThreads) {
    sorted[i] = pair_of(static_cast<uint32_t>(row_at(ids, i)), position_of(ids, i));
  }
  sort_together(sorted, ids.count);
  for (uint32_t i = threadIdx.x; i < ids.count; i += kThreads) {
    rows[i] = row_of_pair(sorted[i]);
    positions[i] = static_cast<uint32_t>(sorted[i]);
  }
}

// What a radix sort is given.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    number_kernel(const __grid_constant__ Ids ids, Key *keys, uint32_t *positions, uint32_t *zeros,
                  uint32_t zero_count) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < zero_count) zeros[i] = 0;
  if (i >= ids.count) return;
  keys[i] = static_cast<Key>(row_at(ids, i));
  positions[i] = position_of(ids, i);
}

cudaError_t load_kernels() {
  for (const void *kernel :
       {reinterpret_cast<const void *>(count_kernel), reinterpret_cast<const void *>(scan_kernel),
        reinterpret_cast<const void *>(write_kernel), reinterpret_cast<const void *>(sort_kernel),
        reinterpret_cast<const void *>(few_kernel), reinterpret_cast<const void *>(number_kernel<uint32_t>),
        reinterpret_cast<const void *>(number_kernel<uint64_t>)}) {
    const cudaError_t code = load_code(kernel);
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

// Where the results are.
struct Results {
  const void *rows;
  const uint32_t *positions;
  const uint32_t *zeros;
};

// The ways of doing it: each takes its scratch, and then, unless that only counts or is too small, enqueues its kernels.
bool may_work(const Scratch &scratch, cudaError_t &code) {
  if (!scratch.counts_only() && !scratch.suffices()) code = cudaErrorInvalidValue;
  return code == cudaSuccess && !scratch.counts_only();
}

cudaError_t group_few(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results, cudaStream_t stream) {
  uint32_t *zeros = scratch.take<uint32_t>(zero_count);
  uint32_t *rows = scratch.take<uint32_t>(ids.count);
  uint32_t *positions = scratch.take<uint32_t>(ids.count);
  results = {rows, positions, zeros};
  cudaError_t code = cudaSuccess;
  if (!may_work(scratch, code)) return code;
  few_kernel<<<1, kThreads, 0, stream>>>(ids, rows, positions, zeros, zero_count);
  return cudaGetLastError();
}

cudaError_t group_by_buckets(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results,
                             cudaStream_t stream) {
  Buckets job{};
  job.ids = ids;
  job.log = 3;
  while (uint64_t{kBucketIds} << job.log < ids.count) job.log++;
  job.columns = ((1u << job.log) + 1 + 31) / 32 * 32;
  const uint32_t least = (ids.count + kMostStretches - 1) / kMostStretches;
  job.stretch = (least + 255) / 256 * 256;
  job.stretches = (ids.count + job.stretch - 1) / job.stretch;
  job.counts = scratch.take<uint32_t>(uint64_t{job.stretches} * job.columns);
  job.totals = scratch.take<uint32_t>(job.columns);
  job.starts = scratch.take<uint32_t>(job.columns + 1);
  job.pairs = scratch.take<Pair>(ids.count);
  job.rows = scratch.take<uint32_t>(ids.count);
  job.positions = scratch.take<uint32_t>(ids.count);
  job.zeros = scratch.take<uint32_t>(zero_count);
  job.zero_count = zero_count;
  results = {job.rows, job.positions, job.zeros};
  cudaError_t code = cudaSuccess;
  if (!may_work(scratch, code)) return code;
  const uint32_t blocks = (job.stretches + kSplitWarps - 1) / kSplitWarps;
  const size_t shared = job.columns * sizeof(uint32_t);
  const bool early = may_begin_early(stream);
  code = launch_kernel(early, count_kernel, blocks, kSplitThreads, kSplitWarps * shared, stream, job);
  if (code == cudaSuccess) {
    code = launch_kernel(early, scan_kernel, job.columns / 32, kScanWarps * 32, 0, stream, job);
  }
  if (code == cudaSuccess) {
    code = launch_kernel(early, write_kernel, blocks, kSplitThreads, (kSplitWarps + 1) * shared, stream, job);
  }
  if (code == cudaSuccess) code = launch_kernel(early, sort_kernel, (1u << job.log) + 1, kThreads, 0, stream, job);
  return code;
}

static_assert((kSplitWarps + 1) * (kMostBuckets + 32) * sizeof(uint32_t) <= 48 << 10, "what kernels may use unasked");

template <class Key>
cudaError_t group_by_radix(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results,
                           cudaStream_t stream) {
  uint32_t *zeros = scratch.take<uint32_t>(zero_count);
  Pairs<Key> pairs{};
  cudaError_t code = take_pairs(scratch, ids.count, bits_upto(ids.rows), pairs);
  if (!may_work(scratch, code)) return code;
  // Also the zeros have threads.
  const uint32_t most = ids.count > zero_count ? ids.count : zero_count;
  number_kernel<<<most / kThreads + 1, kThreads, 0, stream>>>(ids, pairs.keys, pairs.positions, zeros, zero_count);
  code = cudaGetLastError();
  if (code == cudaSuccess) code = sort_pairs(pairs, stream);
  results = {pairs.keys, pairs.positions, zeros};
  return code;
}

cudaError_t group(const wmk_group_args *args, cudaStream_t stream) {
  if (args == nullptr) return load_kernels();
  if (args->count == 0 || args->count > INT32_MAX || args->rows > INT64_MAX || args->spare > INT32_MAX) {
    return cudaErrorInvalidValue;
  }
  Ids ids = {args->ids, args->id_bytes == 8, static_cast<uint32_t>(args->count), args->first_row, args->rows};
  if (args->lots > WMK_GROUP_LOTS || (args->lots > 0 && args->lot_firsts[0] != 0)) return cudaErrorInvalidValue;
  ids.lots = args->lots;
  for (uint32_t k = 0; k < args->lots; k++) {
    ids.lot_firsts[k] = args->lot_firsts[k];
    ids.lot_shifts[k] = args->lot_positions[k] - args->lot_firsts[k];
  }
  const uint32_t zero_count = ids.count / WMK_GROUP_WINDOW + 1 + args->spare;
  Scratch scratch(args->scratch, args->scratch_bytes);
  Results results{};
  cudaError_t code;
  if (args->rows > UINT32_MAX) {
    code = group_by_radix<uint64_t>(ids, zero_count, scratch, results, stream);
  } else if (ids.count <= kMostSorted) {
    code = group_few(ids, zero_count, scratch, results, stream);
  } else if (ids.count <= kMostBucketed && args->ascends == 0) {
    code = group_by_buckets(ids, zero_count, scratch, results, stream);
  } else {
    code = group_by_radix<uint32_t>(ids, zero_count, scratch, results, stream);
  }
  if (code != cudaSuccess) return code;
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  *args->rows_at = reinterpret_cast<uint64_t>(results.rows);
  *args->positions_at = reinterpret_cast<uint64_t>(results.positions);
  *args->zeros_at = reinterpret_cast<uint64_t>(results.zeros);
  return cudaSuccess;
}

}  // namespace

}  // namespace wmk

int wmk_group(const wmk_group_args *args, wmk_stream stream) { return wmk::told(wmk::group(args, stream)); }
