// Ids of the same row brought together. Calls of the usual sizes do it by buckets: a row's bucket is a hash of it, so
// that buckets are about equally full; a stable split by bucket (counts of each block's ids, a scan over the counts,
// writes) is followed by a sort of every bucket, in the registers of a warp. A few small kernels of which every
// multiprocessor has a part are quicker than the passes of a radix sort, which serves the largest calls, and those that
// want rows in order.

#include <cuda_runtime.h>

#include "args_learning.h"
#include "scratch.h"
#include "sort.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kWarp = 0xffffffff;
constexpr uint32_t kFewThreads = 1024;
// Ids of a call that one block sorts in shared memory.
constexpr uint32_t kFewIds = 2048;
// Ids of a bucket, on average and at most.
constexpr uint32_t kBucketIds = 128;
// What a warp sorts in registers: its lanes have so many each.
constexpr uint32_t kLaneIds = 8;
constexpr uint32_t kWarpIds = 32 * kLaneIds;
constexpr uint32_t kLeastLog = 8, kMostLog = 11;
constexpr uint32_t kMostBucketed = kBucketIds << kMostLog;
// A block splits so many ids, a thread's share of them.
constexpr uint32_t kShare = 4;
constexpr uint32_t kTile = kThreads * kShare;
constexpr uint32_t kMostTiles = kMostBucketed / kTile;
// Of a bucket with more ids than a warp sorts, how many a thread looks at between two meetings of the block.
constexpr uint32_t kThreadIds = 16;

using Pair = unsigned long long;  // a row and behind it the position, so that the order is that of both

__device__ __forceinline__ Pair pair_of(uint32_t row, uint32_t position) { return Pair{row} << 32 | position; }
__device__ __forceinline__ uint32_t row_of_pair(Pair pair) { return static_cast<uint32_t>(pair >> 32); }

// The ids of a call.
struct Ids {
  const void *at;
  uint32_t count;
  uint64_t first_row;
  uint64_t rows;
};

// The row of id i, ids.rows for none of these.
template <class Id>
__device__ __forceinline__ uint64_t row_at(const Ids &ids, uint32_t i) {
  const int64_t id = static_cast<const Id *>(ids.at)[i];
  const uint64_t row = static_cast<uint64_t>(id) - ids.first_row;
  return id >= 0 && row < ids.rows ? row : ids.rows;
}

struct Buckets {
  Ids ids;
  uint32_t log;      // of the number of buckets; one more is for ids of no row
  uint32_t columns;  // buckets, that one too, up to whole warps
  uint32_t tiles;
  // For every tile and bucket: how many ids; after the scan: of the bucket, where the tile's begin.
  uint32_t *counts;
  uint32_t *totals;  // of every bucket
  uint32_t *starts;  // of every bucket where it begins, and the end
  Pair *pairs;
  uint32_t *rows;
  uint32_t *positions;
  uint32_t *zeros;
  uint32_t zero_count;
};

// A row with its bits stirred; no two are the same.
__device__ __forceinline__ uint32_t stirred(uint32_t row) {
  uint32_t bits = row * 0x9e3779b1u;
  bits = (bits ^ bits >> 15) * 0x85ebca77u;
  return bits ^ bits >> 13;
}

__device__ __forceinline__ uint32_t bucket_of(const Buckets &job, uint32_t row) {
  return row == job.ids.rows ? 1u << job.log : stirred(row) >> (32 - job.log);
}

// The rows of a thread's ids: first, first + stride and so on; ids behind the last one are that again.
template <class Id>
__device__ __forceinline__ void load_rows(const Buckets &job, uint32_t first, uint32_t stride,
                                          uint32_t (&rows)[kShare]) {
#pragma unroll
  for (uint32_t k = 0; k < kShare; k++) {
    rows[k] = static_cast<uint32_t>(row_at<Id>(job.ids, min(first + k * stride, job.ids.count - 1)));
  }
}

extern __shared__ uint32_t shared_words[];

template <class Id>
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ Buckets job) {
  uint32_t *counts = shared_words;
  const uint32_t first = blockIdx.x * kTile + threadIdx.x;
  uint32_t rows[kShare];
  load_rows<Id>(job, first, kThreads, rows);
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < job.zero_count; i += gridDim.x * kThreads) {
    job.zeros[i] = 0;
  }
  for (uint32_t b = threadIdx.x; b < job.columns; b += kThreads) counts[b] = 0;
  __syncthreads();
#pragma unroll
  for (uint32_t k = 0; k < kShare; k++) {
    if (first + k * kThreads < job.ids.count) atomicAdd(&counts[bucket_of(job, rows[k])], 1);
  }
  __syncthreads();
  uint32_t *to = job.counts + uint64_t{blockIdx.x} * job.columns;
  for (uint32_t b = threadIdx.x; b < job.columns; b += kThreads) to[b] = counts[b];
}

constexpr uint32_t kScanWarps = 32;

// A block has 32 buckets, one a lane; its warps share out the tiles.
__global__ void __launch_bounds__(kScanWarps * 32) scan_kernel(const __grid_constant__ Buckets job) {
  constexpr uint32_t kMine = kMostTiles / kScanWarps;
  __shared__ uint32_t of_warp[kScanWarps][32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t share = (job.tiles + kScanWarps - 1) / kScanWarps, first = warp * share;
  uint32_t *at = job.counts + uint64_t{first} * job.columns + blockIdx.x * 32 + lane;
  uint32_t counts[kMine], mine = 0;
#pragma unroll
  for (uint32_t k = 0; k < kMine; k++) {
    counts[k] = k < share && first + k < job.tiles ? at[uint64_t{k} * job.columns] : 0;
  }
#pragma unroll
  for (uint32_t k = 0; k < kMine; k++) mine += counts[k];
  of_warp[warp][lane] = mine;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (uint32_t w = 0; w < kScanWarps; w++) {
    before += w < warp ? of_warp[w][lane] : 0;
    all += of_warp[w][lane];
  }
#pragma unroll
  for (uint32_t k = 0; k < kMine; k++) {
    if (k < share && first + k < job.tiles) at[uint64_t{k} * job.columns] = before;
    before += counts[k];
  }
  if (warp == 0) job.totals[blockIdx.x * 32 + lane] = all;
}

// The sum of the values of the threads before, of all in `all`; the block's threads call it together.
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

// Shared memory of the writing kernel: of every bucket where the block writes, and of every warp and bucket how many
// ids.
__host__ __device__ constexpr size_t split_bytes(uint32_t columns) {
  return columns * (sizeof(uint32_t) + kWarps * sizeof(uint16_t));
}

template <class Id>
__global__ void __launch_bounds__(kThreads) write_kernel(const __grid_constant__ Buckets job) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, buckets = (1u << job.log) + 1;
  uint32_t *base = shared_words;
  uint16_t *of_warps = reinterpret_cast<uint16_t *>(shared_words + job.columns), *mine = of_warps + warp * job.columns;
  const uint32_t first = blockIdx.x * kTile + warp * (kTile / kWarps) + lane;
  uint32_t rows[kShare], ranks[kShare];
  load_rows<Id>(job, first, 32, rows);
  const uint32_t *counts = job.counts + uint64_t{blockIdx.x} * job.columns;
  // Where buckets begin: each thread sums the ids of some neighbouring ones.
  const uint32_t share = (job.columns + kThreads - 1) / kThreads;
  const uint32_t begin = min(threadIdx.x * share, job.columns), end = min(begin + share, job.columns);
  uint32_t sum = 0, all;
  for (uint32_t b = begin; b < end; b++) sum += job.totals[b];
  for (uint32_t w = threadIdx.x; w < kWarps * job.columns / 2; w += kThreads) shared_words[job.columns + w] = 0;
  uint32_t before = sum_before(sum, all);
  for (uint32_t b = begin; b < end; b++) {
    base[b] = before + counts[b];
    if (blockIdx.x == 0 && b < buckets) job.starts[b] = before;
    before += job.totals[b];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) job.starts[buckets] = job.ids.count;
#pragma unroll
  for (uint32_t k = 0; k < kShare; k++) {
    const bool live = first + k * 32 < job.ids.count;
    const uint32_t bucket = live ? bucket_of(job, rows[k]) : job.columns;
    const uint32_t same = __match_any_sync(kWarp, bucket);
    ranks[k] = __popc(same & ((1u << lane) - 1)) + (live ? mine[bucket] : 0);
    __syncwarp();
    if (live && lane == __ffs(same) - 1) mine[bucket] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < job.columns; b += kThreads) {
    uint32_t earlier = 0;
#pragma unroll
    for (uint32_t w = 0; w < kWarps; w++) {
      const uint32_t counted = of_warps[w * job.columns + b];
      of_warps[w * job.columns + b] = static_cast<uint16_t>(earlier);
      earlier += counted;
    }
  }
  __syncthreads();
#pragma unroll
  for (uint32_t k = 0; k < kShare; k++) {
    const uint32_t i = first + k * 32;
    if (i >= job.ids.count) continue;
    const uint32_t bucket = bucket_of(job, rows[k]);
    const uint32_t to = base[bucket] + mine[bucket] + ranks[k];
    if (rows[k] == job.ids.rows) {
      // There is nothing to sort any more.
      job.rows[to] = rows[k];
      job.positions[to] = i;
    } else {
      job.pairs[to] = pair_of(rows[k], i);
    }
  }
}

__device__ __forceinline__ void order(Pair &low, Pair &high) {
  const Pair a = low, b = high;
  if (a > b) {
    low = b;
    high = a;
  }
}

// Sorts by a network whose comparators all point the same way, so that places behind the end need not exist. The
// block's threads call it together; all may read when it returns.
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

// The same network in the registers of a warp: key k of a lane is the one at place lane * kLaneIds + k.
__device__ __forceinline__ void sort_in_warp(uint32_t (&keys)[kLaneIds], uint32_t lane) {
#pragma unroll
  for (uint32_t size = 2; size <= kWarpIds; size *= 2) {
#pragma unroll
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      const bool mirrors = stride == size / 2;
      if (stride < kLaneIds) {
        // Both are this lane's.
#pragma unroll
        for (uint32_t low = 0; low < kLaneIds; low++) {
          const uint32_t high = mirrors ? (low ^ (size - 1)) : (low ^ stride);
          if (high < low) continue;
          const uint32_t a = keys[low], b = keys[high];
          keys[low] = min(a, b);
          keys[high] = max(a, b);
        }
        continue;
      }
      // The other is in another lane, in the mirrored place there or in the same.
      const uint32_t lanes = (mirrors ? size - 1 : stride) / kLaneIds;
      const bool low = lane < (lane ^ lanes);
      uint32_t others[kLaneIds];
#pragma unroll
      for (uint32_t k = 0; k < kLaneIds; k++) {
        others[k] = __shfl_xor_sync(kWarp, keys[mirrors ? kLaneIds - 1 - k : k], lanes);
      }
#pragma unroll
      for (uint32_t k = 0; k < kLaneIds; k++) keys[k] = low ? min(keys[k], others[k]) : max(keys[k], others[k]);
    }
  }
}

// At most kWarpIds pairs of one bucket, in the order of their positions, sorted by a warp; `room` has space for them.
// What is sorted is a word a pair: the bits that tell the rows of a bucket apart, and behind them the pair's place, in
// whose order pairs of a row are already.
__device__ __forceinline__ void sort_bucket(const Buckets &job, const Pair *pairs, uint32_t count, Pair *room,
                                            uint32_t *rows, uint32_t *positions, uint32_t lane) {
  constexpr uint32_t kPlaceBits = 8;
  static_assert(kWarpIds == 1u << kPlaceBits && kLeastLog >= kPlaceBits, "a row's bits and a place fill a word");
  uint32_t keys[kLaneIds];
#pragma unroll
  for (uint32_t k = 0; k < kLaneIds; k++) {
    const uint32_t place = k * 32 + lane;
    const Pair pair = place < count ? pairs[place] : 0;
    room[place] = pair;
    keys[k] = place < count ? stirred(row_of_pair(pair)) << kPlaceBits | place : UINT32_MAX;
  }
  sort_in_warp(keys, lane);
  // Into the lanes that write neighbours.
  __shared__ uint8_t turns[kWarps][kWarpIds];
  uint8_t *turn = turns[threadIdx.x / 32];
#pragma unroll
  for (uint32_t k = 0; k < kLaneIds; k++) turn[lane * kLaneIds + k] = static_cast<uint8_t>(keys[k]);
  __syncwarp();
  for (uint32_t i = lane; i < count; i += 32) {
    const Pair pair = room[turn[i]];
    rows[i] = row_of_pair(pair);
    positions[i] = static_cast<uint32_t>(pair);
  }
}

// Of a bucket with one or a few favourite rows: takes the pairs of one row out, in their order, to `rows` and
// `positions`, and moves the others together. Returns how many it took. By a block.
__device__ __forceinline__ uint32_t take_favourite(Pair *pairs, uint32_t count, uint32_t *rows, uint32_t *positions) {
  __shared__ uint32_t favourite;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, before_me = (1u << lane) - 1;
  __syncthreads();
  if (warp == 0) {
    const uint32_t row = row_of_pair(pairs[static_cast<uint64_t>(lane) * count / 32]);
    const uint32_t same = __popc(__match_any_sync(kWarp, row));
    uint32_t most = same;
    for (uint32_t step = 1; step < 32; step *= 2) most = max(most, __shfl_xor_sync(kWarp, most, step));
    if (lane == __ffs(__ballot_sync(kWarp, same == most)) - 1) favourite = row;
  }
  __syncthreads();
  const uint32_t wanted = favourite;
  uint32_t taken = 0, kept = 0;
  for (uint32_t tile = 0; tile < count; tile += kThreads * kThreadIds) {
    const uint32_t first = tile + warp * 32 * kThreadIds + lane;
    Pair mine[kThreadIds];
#pragma unroll
    for (uint32_t k = 0; k < kThreadIds; k++) mine[k] = pairs[min(first + k * 32, count - 1)];
    uint32_t hits = 0, all;
#pragma unroll
    for (uint32_t k = 0; k < kThreadIds; k++) {
      hits += __popc(__ballot_sync(kWarp, first + k * 32 < count && row_of_pair(mine[k]) == wanted));
    }
    // Also: all have read what is now written over.
    uint32_t to = taken + __shfl_sync(kWarp, sum_before(lane == 0 ? hits : 0, all), 0);
    uint32_t keep = kept + (first - lane - tile) - (to - taken);
#pragma unroll
    for (uint32_t k = 0; k < kThreadIds; k++) {
      const bool live = first + k * 32 < count, hit = live && row_of_pair(mine[k]) == wanted;
      const uint32_t hitting = __ballot_sync(kWarp, hit), keeping = __ballot_sync(kWarp, live && !hit);
      if (hit) {
        rows[to + __popc(hitting & before_me)] = wanted;
        positions[to + __popc(hitting & before_me)] = static_cast<uint32_t>(mine[k]);
      } else if (live) {
        pairs[keep + __popc(keeping & before_me)] = mine[k];
      }
      to += __popc(hitting);
      keep += __popc(keeping);
    }
    taken += all;
    kept += min(kThreads * kThreadIds, count - tile) - all;
  }
  __syncthreads();
  return taken;
}

// A warp a bucket; buckets with more than a warp sorts are then the block's.
__global__ void __launch_bounds__(kThreads) sort_kernel(const __grid_constant__ Buckets job) {
  __shared__ Pair room[kWarps * kWarpIds];
  __shared__ uint32_t large[kWarps], large_count;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t bucket = blockIdx.x * kWarps + warp;
  if (threadIdx.x == 0) large_count = 0;
  __syncthreads();
  const uint32_t first = job.starts[bucket], last = job.starts[bucket + 1];
  if (last - first <= kWarpIds) {
    sort_bucket(job, job.pairs + first, last - first, room + warp * kWarpIds, job.rows + first, job.positions + first,
                lane);
  } else if (lane == 0) {
    large[atomicAdd(&large_count, 1)] = bucket;
  }
  __syncthreads();
  const uint32_t all = large_count;
  for (uint32_t n = 0; n < all; n++) {
    uint32_t begin = job.starts[large[n]];
    const uint32_t end = job.starts[large[n] + 1];
    Pair *pairs = job.pairs + begin;
    // A few rows at most fill a bucket by themselves, or somebody wants to see this sort fail.
    for (int most = 0; most < 8 && end - begin > kWarpIds; most++) {
      begin += take_favourite(pairs, end - begin, job.rows + begin, job.positions + begin);
    }
    const uint32_t count = end - begin;
    if (count <= kWarpIds) {
      if (warp == 0) sort_bucket(job, pairs, count, room, job.rows + begin, job.positions + begin, lane);
      continue;
    }
    __syncthreads();
    if (count <= kWarps * kWarpIds) {
      for (uint32_t i = threadIdx.x; i < count; i += kThreads) room[i] = pairs[i];
      pairs = room;
    }
    sort_together(pairs, count);
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      job.rows[begin + i] = row_of_pair(pairs[i]);
      job.positions[begin + i] = static_cast<uint32_t>(pairs[i]);
    }
    __syncthreads();
  }
}

// Few ids, all by one block.
template <class Id>
__global__ void __launch_bounds__(kFewThreads) few_kernel(const __grid_constant__ Ids ids, uint32_t *rows,
                                                          uint32_t *positions, uint32_t *zeros, uint32_t zero_count) {
  __shared__ Pair sorted[kFewIds];
  for (uint32_t i = threadIdx.x; i < zero_count; i += kFewThreads) zeros[i] = 0;
  for (uint32_t i = threadIdx.x; i < ids.count; i += kFewThreads) {
    sorted[i] = pair_of(static_cast<uint32_t>(row_at<Id>(ids, i)), i);
  }
  sort_together(sorted, ids.count);
  for (uint32_t i = threadIdx.x; i < ids.count; i += kFewThreads) {
    rows[i] = row_of_pair(sorted[i]);
    positions[i] = static_cast<uint32_t>(sorted[i]);
  }
}

// What a radix sort is given.
template <class Id, class Key>
__global__ void __launch_bounds__(kThreads) number_kernel(const __grid_constant__ Ids ids, Key *keys,
                                                          uint32_t *positions, uint32_t *zeros, uint32_t zero_count) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < zero_count) zeros[i] = 0;
  if (i >= ids.count) return;
  keys[i] = static_cast<Key>(row_at<Id>(ids, i));
  positions[i] = i;
}

template <class Kernel>
cudaError_t load(Kernel kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));
}

template <class Id>
cudaError_t load_kernels() {
  for (const cudaError_t code :
       {load(count_kernel<Id>), load(scan_kernel), load(write_kernel<Id>), load(sort_kernel), load(few_kernel<Id>),
        load(number_kernel<Id, uint32_t>), load(number_kernel<Id, uint64_t>)}) {
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

// The ways of doing it: each takes its scratch, and then, unless that only counts or is too small, enqueues its
// kernels.
bool may_work(const Scratch &scratch, cudaError_t &code) {
  if (!scratch.counts_only() && !scratch.suffices()) code = cudaErrorInvalidValue;
  return code == cudaSuccess && !scratch.counts_only();
}

template <class Id>
cudaError_t group_few(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results, cudaStream_t stream) {
  uint32_t *zeros = scratch.take<uint32_t>(zero_count);
  uint32_t *rows = scratch.take<uint32_t>(ids.count);
  uint32_t *positions = scratch.take<uint32_t>(ids.count);
  results = {rows, positions, zeros};
  cudaError_t code = cudaSuccess;
  if (!may_work(scratch, code)) return code;
  few_kernel<Id><<<1, kFewThreads, 0, stream>>>(ids, rows, positions, zeros, zero_count);
  return cudaGetLastError();
}

static_assert(split_bytes((1u << kMostLog) + 32) <= 48 << 10, "what kernels may use unasked");

template <class Id>
cudaError_t group_by_buckets(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results,
                             cudaStream_t stream) {
  Buckets job{};
  job.ids = ids;
  job.log = kLeastLog;
  while (kBucketIds << job.log < ids.count) job.log++;
  job.columns = ((1u << job.log) + 1 + 31) / 32 * 32;
  job.tiles = (ids.count + kTile - 1) / kTile;
  job.counts = scratch.take<uint32_t>(uint64_t{job.tiles} * job.columns);
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
  const size_t counts_bytes = job.columns * sizeof(uint32_t);
  count_kernel<Id><<<job.tiles, kThreads, counts_bytes, stream>>>(job);
  scan_kernel<<<job.columns / 32, kScanWarps * 32, 0, stream>>>(job);
  write_kernel<Id><<<job.tiles, kThreads, split_bytes(job.columns), stream>>>(job);
  sort_kernel<<<(1u << job.log) / kWarps, kThreads, 0, stream>>>(job);
  return cudaGetLastError();
}

template <class Id, class Key>
cudaError_t group_by_radix(const Ids &ids, uint32_t zero_count, Scratch &scratch, Results &results,
                           cudaStream_t stream) {
  uint32_t *zeros = scratch.take<uint32_t>(zero_count);
  Pairs<Key> pairs{};
  cudaError_t code = take_pairs(scratch, ids.count, bits_upto(ids.rows), pairs);
  if (!may_work(scratch, code)) return code;
  // Also the one zero behind whole windows has a thread.
  const uint32_t blocks = ids.count / kThreads + 1;
  number_kernel<Id, Key><<<blocks, kThreads, 0, stream>>>(ids, pairs.keys, pairs.positions, zeros, zero_count);
  code = cudaGetLastError();
  if (code == cudaSuccess) code = sort_pairs(pairs, stream);
  results = {pairs.keys, pairs.positions, zeros};
  return code;
}

template <class Id>
cudaError_t group(const wmk_group_args &args, cudaStream_t stream) {
  const Ids ids = {args.ids, static_cast<uint32_t>(args.count), args.first_row, args.rows};
  const uint32_t zero_count = ids.count / WMK_GROUP_WINDOW + 1;
  Scratch scratch(args.scratch, args.scratch_bytes);
  Results results{};
  cudaError_t code;
  if (args.rows > UINT32_MAX) {
    code = group_by_radix<Id, uint64_t>(ids, zero_count, scratch, results, stream);
  } else if (ids.count <= kFewIds) {
    code = group_few<Id>(ids, zero_count, scratch, results, stream);
  } else if (ids.count <= kMostBucketed && args.ascends == 0) {
    code = group_by_buckets<Id>(ids, zero_count, scratch, results, stream);
  } else {
    code = group_by_radix<Id, uint32_t>(ids, zero_count, scratch, results, stream);
  }
  if (code != cudaSuccess) return code;
  if (scratch.counts_only()) {
    *args.needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  *args.rows_at = reinterpret_cast<uint64_t>(results.rows);
  *args.positions_at = reinterpret_cast<uint64_t>(results.positions);
  *args.zeros_at = reinterpret_cast<uint64_t>(results.zeros);
  return cudaSuccess;
}

cudaError_t group(const wmk_group_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    const cudaError_t code = load_kernels<int32_t>();
    return code != cudaSuccess ? code : load_kernels<int64_t>();
  }
  if (args->count == 0 || args->count > INT32_MAX || args->rows > INT64_MAX) return cudaErrorInvalidValue;
  return args->id_bytes == 8 ? group<int64_t>(*args, stream) : group<int32_t>(*args, stream);
}

}  // namespace

}  // namespace wmk

int wmk_group(const wmk_group_args *args, wmk_stream stream) { return wmk::told(wmk::group(args, stream)); }
