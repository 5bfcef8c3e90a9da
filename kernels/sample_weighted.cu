// By chance and weight: of every center's neighbours the first by their ranks, and by their numbers where ranks are equal.
// A candidate is a rank above a neighbour's number, so candidates are all different and sort as whole numbers; all bits
// set is none. Degrees are taken for 2^32 - 1 where they are more.

#include "args.h"
#include "common/dtype.h"
#include "graph.cuh"
#include "sort.cuh"
#include "tile.cuh"

namespace wmk {

namespace {

template <int kMost>
struct Weights {
  places<kMost> table;
  // Or dense values, with the first one of every center.
  const void *fetched;
  const int32_t *offsets;
  uint32_t is_double;
};

template <int kMost>
struct Weighted {
  Sampling<kMost> draw;
  Weights<kMost> weights;
};

// The weights of one center, by neighbour.
template <int kMost>
struct WeightsOfCenter {
  const Weights<kMost> &weights;
  // Of neighbour 0: among the edges, or among the fetched values.
  int64_t first;

  __device__ __forceinline__ WeightsOfCenter(const Weights<kMost> &all, uint32_t i, const Span &span)
      : weights(all), first(all.fetched == nullptr ? span.start : all.offsets[i]) {}

  __device__ __forceinline__ double operator()(uint32_t y) const {
    const uint64_t at = static_cast<uint64_t>(first) + y;
    if (weights.fetched == nullptr && at >= weights.table.rows) return 0;
    const uint64_t address = weights.fetched == nullptr
                                 ? find_row(weights.table, at).address
                                 : reinterpret_cast<uint64_t>(weights.fetched) + (at << (weights.is_double ? 3 : 2));
    return weights.is_double ? value_of<double>(load<8>(address)) : double{value_of<float>(load<4>(address))};
  }
};

// Few taken: a warp a center, its lanes hold the first 32 candidates in order.
constexpr uint32_t kFewThreads = 256;
constexpr int kFewCenters = 8;
constexpr uint32_t kSets = 4;
static_assert(kSets * 32 == 128, "the threads of the rule, as lanes hold them");

// The first 32 of 64 candidates, of which each half is in order.
__device__ __forceinline__ uint64_t first_of(uint64_t kept, uint64_t other) {
  return merged(min(kept, __shfl_xor_sync(0xffffffff, other, 31)));
}

// Lane l of set s draws for the neighbours of thread 32 s + l. Sets [from, to) are looked at.
template <int kMost>
__device__ __forceinline__ uint64_t best_of_center(const Weighted<kMost> &job, uint32_t i, const Span &span,
                                                   leap to_center, uint32_t from, uint32_t to) {
  const uint32_t lane = threadIdx.x % 32, n = narrow_degree(span), last = job.draw.most - 1;
  const WeightsOfCenter<kMost> weight_of(job.weights, i, span);
  pcg streams[kSets];
  leap to_thread = leap::of(from * 32 + lane);
  const leap over_warp = leap::of(32);
#pragma unroll
  for (uint32_t s = 0; s < kSets; s++) {
    if (s < from || s >= to || s * 32 >= n) continue;
    streams[s] = stream_for(job.draw, i, s * 32 + lane, to_center, to_thread);
    to_thread = to_thread.then(over_warp);
  }
  uint64_t kept = kNoCandidate;
  for (uint64_t first = 0; first < n; first += kSets * 32) {
    double weight[kSets];
#pragma unroll
    for (uint32_t s = 0; s < kSets; s++) {
      const uint64_t y = first + s * 32 + lane;
      weight[s] = s >= from && s < to && y < n ? weight_of(static_cast<uint32_t>(y)) : 0;
    }
#pragma unroll
    for (uint32_t s = 0; s < kSets; s++) {
      if (s < from || s >= to || first + s * 32 >= n) continue;
      const uint64_t y = first + s * 32 + lane;
      uint64_t candidate = kNoCandidate;
      if (y < n) {
        const float minus_u = minus_uniform(streams[s]);
        candidate = uint64_t{weighted_rank(weight[s], minus_u)} << 32 | y;
      }
      // Most neighbours of a center with many are no better than what is kept.
      const uint64_t worst = __shfl_sync(0xffffffff, kept, last);
      if (__any_sync(0xffffffff, candidate < worst)) kept = first_of(kept, sorted(candidate));
    }
  }
  return kept;
}

// Degrees from here on are worth a block.
constexpr uint64_t kHub = 4096;

template <int kMost>
__global__ void __launch_bounds__(kFewThreads) few_kernel(const __grid_constant__ Weighted<kMost> job) {
  extern __shared__ uint64_t room[];
  __shared__ uint64_t halves[kSets][32];
  constexpr uint32_t kWarps = kFewThreads / 32;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, most = job.draw.most;
  const auto tile_of = [&](uint32_t w) {
    return reinterpret_cast<Tile<kFewCenters> *>(reinterpret_cast<char *>(room) + w * Tile<kFewCenters>::bytes(most));
  };
  const uint64_t block_first = uint64_t{blockIdx.x} * kWarps * kFewCenters, first = block_first + warp * kFewCenters;
  Tile<kFewCenters> &tile = *tile_of(warp);
  uint32_t tile_begin = 0, tile_count = 0, choosing = 0, hubs = 0;
  if (first < job.draw.nodes.count) {
    const Seat seat = sit_down(job.draw, static_cast<uint32_t>(first), tile, tile_begin, tile_count);
    choosing = __ballot_sync(0xffffffff, seat.chooses);
    hubs = __ballot_sync(0xffffffff, seat.chooses && seat.span.degree() >= kHub);
    const leap to_center = seat.chooses ? leap_to(job.draw, static_cast<uint32_t>(first) + lane) : leap::none();
    for (uint32_t left = choosing & ~hubs; left != 0; left &= left - 1) {
      const uint32_t c = __ffs(left) - 1;
      const leap skipped = {__shfl_sync(0xffffffff, to_center.factor, c), __shfl_sync(0xffffffff, to_center.sum, c)};
      const uint64_t kept =
          best_of_center(job, static_cast<uint32_t>(first) + c, tile.span(c), skipped, 0, kSets);
      if (lane < most) tile.picks()[tile.begin[c] + lane] = static_cast<uint32_t>(kept);
    }
    __syncwarp();
  }
  // Hubs: a warp a set of the rule's threads.
  __shared__ uint32_t hubs_of[kWarps];
  if (lane == 0) hubs_of[warp] = hubs;
  __syncthreads();
  for (uint32_t w = 0; w < kWarps; w++) {
    for (uint32_t left = hubs_of[w]; left != 0; left &= left - 1) {
      const uint32_t c = __ffs(left) - 1, i = static_cast<uint32_t>(block_first) + w * kFewCenters + c;
      Tile<kFewCenters> &home = *tile_of(w);
      if (warp < kSets) {
        halves[warp][lane] = best_of_center(job, i, home.span(c), leap_to(job.draw, i), warp, warp + 1);
      }
      __syncthreads();
      if (warp == 0) {
        uint64_t kept = halves[0][lane];
#pragma unroll
        for (uint32_t s = 1; s < kSets; s++) kept = first_of(kept, halves[s][lane]);
        if (lane < most) home.picks()[home.begin[c] + lane] = static_cast<uint32_t>(kept);
      }
      __syncthreads();
    }
  }
  if (first < job.draw.nodes.count) {
    write_tile<true>(job.draw, tile, static_cast<uint32_t>(first), choosing, tile_begin, tile_count);
  }
}

// Many taken: a block a center, as many threads as the rule has. Candidates that may be among the first are collected
// until the room for them is full, then the first ones are kept and the others dropped.
template <int kMost, bool kInScratch>
__global__ void __launch_bounds__(256)
    many_kernel(const __grid_constant__ Weighted<kMost> job, uint64_t *scratch, uint64_t total, uint32_t capacity) {
  extern __shared__ uint64_t room[];
  __shared__ uint32_t collected;
  __shared__ uint64_t worst;
  const uint32_t i = blockIdx.x, most = job.draw.most, threads = blockDim.x;
  const uint32_t begin = static_cast<uint32_t>(job.draw.offsets[i]);
  const uint32_t end = static_cast<uint32_t>(job.draw.offsets[i + 1]);
  const Span span = span_of(job.draw.nodes, i);
  if (job.draw.offsets_out != nullptr && threadIdx.x == 0) {
    job.draw.offsets_out[i] = static_cast<int32_t>(begin);
    if (i + 1 == job.draw.nodes.count) job.draw.offsets_out[i + 1] = static_cast<int32_t>(end);
  }
  if (span.degree() <= most) {
    put_all(job.draw.takings, begin, i, end - begin, threadIdx.x, threads, [&](uint32_t x) { return span.start + x; });
    return;
  }
  // Two arrays with room for twice what is taken, or one in shared memory.
  uint64_t *candidates = kInScratch ? scratch + 2 * uint64_t{begin} : room;
  uint64_t *others = kInScratch ? candidates + 2 * total : nullptr;
  if (threadIdx.x == 0) {
    collected = 0;
    worst = kNoCandidate;
  }
  __syncthreads();
  const uint32_t n = narrow_degree(span);
  const WeightsOfCenter<kMost> weight_of(job.weights, i, span);
  pcg stream = stream_for(job.draw, i, threadIdx.x, leap_to(job.draw, i), leap::of(threadIdx.x));
  const auto keep_first = [&] {
    if constexpr (kInScratch) {
      sort_in_memory(candidates, others, collected, room);
    } else {
      sort_in_block(candidates, collected);
    }
    if (threadIdx.x == 0) {
      collected = min(collected, most);
      worst = candidates[collected - 1];
    }
    __syncthreads();
  };
  for (uint64_t first = 0; first < n; first += threads) {
    const uint64_t y = first + threadIdx.x;
    if (y < n) {
      const double weight = weight_of(static_cast<uint32_t>(y));
      const float minus_u = minus_uniform(stream);
      const uint64_t candidate = uint64_t{weighted_rank(weight, minus_u)} << 32 | y;
      if (candidate < worst) candidates[atomicAdd(&collected, 1)] = candidate;
    }
    __syncthreads();
    if (collected + threads > capacity) keep_first();
    __syncthreads();
  }
  keep_first();
  put_all(job.draw.takings, begin, i, most, threadIdx.x, threads,
          [&](uint32_t x) { return span.start + static_cast<uint32_t>(candidates[x]); });
}

// More are taken with the candidates in scratch memory.
constexpr uint32_t kMostInBlock = kSorted / 2;

template <int kMost>
Weighted<kMost> pack_weighted(const wmk_sample_args &args) {
  Weighted<kMost> job{};
  job.draw = pack_sampling<kMost>(args, weighted_threads(args.take.most));
  job.weights.fetched = args.fetched_weights;
  job.weights.offsets = args.fetched_offsets;
  job.weights.is_double = args.weight_dtype == dtype_double;
  if (args.fetched_weights == nullptr) job.weights.table = pack<kMost>(args.weights);
  return job;
}

}  // namespace

uint64_t weighted_scratch_bytes(const wmk_sample_args &args) {
  return args.take.most > kMostInBlock ? 4 * args.total * sizeof(uint64_t) : 0;
}

cudaError_t sample_weighted(const wmk_sample_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return with_every_room([](auto room) {
      constexpr int kMost = decltype(room)::value;
      for (const cudaError_t code : {load_kernel(few_kernel<kMost>), load_kernel(many_kernel<kMost, false>),
                                     load_kernel(many_kernel<kMost, true>)}) {
        if (code != cudaSuccess) return code;
      }
      return cudaSuccess;
    });
  }
  const uint32_t most = args->take.most, count = static_cast<uint32_t>(args->neighbours.count);
  return with_room(places_of(*args), [&](auto room) {
    constexpr int kMost = decltype(room)::value;
    const auto job = pack_weighted<kMost>(*args);
    auto *scratch = reinterpret_cast<uint64_t *>(args->scratch);
    if (most <= kFew) {
      constexpr uint32_t kWarps = kFewThreads / 32, kCenters = kWarps * kFewCenters;
      few_kernel<kMost><<<(count + kCenters - 1) / kCenters, kFewThreads, kWarps * Tile<kFewCenters>::bytes(most),
                          stream>>>(job);
    } else if (most <= kMostInBlock) {
      // Half of the room and the candidates of all threads once more, a power of two for the sort.
      const uint32_t capacity = most <= 384 ? 1024 : most <= 768 ? 2048 : kSorted;
      many_kernel<kMost, false><<<count, job.draw.threads, capacity * sizeof(uint64_t), stream>>>(job, nullptr, 0,
                                                                                                  capacity);
    } else {
      many_kernel<kMost, true><<<count, job.draw.threads, kSorted * sizeof(uint64_t), stream>>>(
          job, scratch, args->total, 2 * most);
    }
    return cudaGetLastError();
  });
}

}  // namespace wmk
