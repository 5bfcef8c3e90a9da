// By chance and weight: of every center's neighbours the first by their ranks, and by their numbers where ranks are
// equal. A candidate is a rank above a neighbour's number, so candidates are all different and sort as whole numbers;
// all bits set is none. Degrees are taken for 2^32 - 1 where they are more.

#include "args.h"
#include "block_sort.cuh"
#include "common/dtype.h"
#include "graph.cuh"
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

// The weights of one center, by neighbour, as bits: those of a float below.
template <int kMost>
struct WeightsOfCenter {
  const Weights<kMost> &weights;
  // Of neighbour 0: among the edges, or among the fetched values.
  int64_t first;

  __device__ __forceinline__ WeightsOfCenter(const Weights<kMost> &all, uint32_t i, const Span &span)
      : weights(all), first(all.fetched == nullptr ? span.start : all.offsets[i]) {}

  __device__ __forceinline__ uint64_t operator()(uint32_t y) const {
    const uint64_t at = static_cast<uint64_t>(first) + y;
    if (weights.fetched == nullptr && at >= weights.table.rows) return 0;
    const uint64_t address = weights.fetched == nullptr
                                 ? find_row(weights.table, at).address
                                 : reinterpret_cast<uint64_t>(weights.fetched) + (at << (weights.is_double ? 3 : 2));
    return weights.is_double ? value_of<uint64_t>(load<8>(address)) : value_of<uint32_t>(load<4>(address));
  }
};

// The rank of the neighbour with the next numbers of the stream.
template <int kMost>
__device__ __forceinline__ uint32_t next_rank(const Weights<kMost> &weights, uint64_t weight, pcg &stream) {
  const float minus_u = minus_uniform(stream);
  if (weights.is_double) return weighted_rank(same_bits<double>(weight), minus_u);
  return weighted_rank(same_bits<float>(static_cast<uint32_t>(weight)), minus_u);
}

// Few taken: a warp a center with a choice, its lanes hold the first 32 candidates in order.
constexpr uint32_t kFewThreads = 256;
constexpr int kSeats = 8;
// The threads of the rule, as lanes hold them: lane l of set s is thread 32 s + l.
constexpr uint32_t kSets = 4;

// The first 32 of 64 candidates, of which each half is in order.
__device__ __forceinline__ uint64_t first_of(uint64_t kept, uint64_t other) {
  return merged(min(kept, __shfl_xor_sync(0xffffffff, other, 31)));
}

// The numbers of the neighbours in the order of their ranks, for at most 32 neighbours, a lane each.
__device__ __forceinline__ uint32_t order_of_lanes(uint32_t rank) {
  const uint32_t lane = threadIdx.x % 32;
  // Nearly always the high bits decide; of equal ones the lanes do, and rightly where the ranks are equal.
  const uint32_t order = sorted((rank & ~31u) | lane) & 31;
  const uint32_t ordered = __shfl_sync(0xffffffff, rank, order);
  const uint32_t before = __shfl_up_sync(0xffffffff, ordered, 1);
  if (!__any_sync(0xffffffff, lane > 0 && before > ordered)) return order;
  return static_cast<uint32_t>(sorted(uint64_t{rank} << 32 | lane));
}

// Picks for the centers of the tile in `small`, which have at most 32 neighbours.
template <int kMost>
__device__ __forceinline__ void pick_small(const Weighted<kMost> &job, uint32_t first, uint32_t small, leap to_center,
                                           Tile<kSeats> &tile) {
  const uint32_t lane = threadIdx.x % 32;
  const leap to_thread = leap::of(lane);
  const auto weight_in = [&](uint32_t c) {
    const Span span = tile.span(c);
    return lane < span.degree() ? WeightsOfCenter<kMost>(job.weights, first + c, span)(lane) : 0;
  };
  uint64_t next = weight_in(__ffs(small) - 1);
  for (uint32_t left = small; left != 0; left &= left - 1) {
    const uint32_t c = __ffs(left) - 1;
    const uint64_t weight = next;
    // On its way while this center is worked on.
    if ((left & (left - 1)) != 0) next = weight_in(__ffs(left & (left - 1)) - 1);
    const leap skipped = {__shfl_sync(0xffffffff, to_center.factor, c), __shfl_sync(0xffffffff, to_center.sum, c)};
    uint32_t rank = UINT32_MAX;
    if (lane < tile.span(c).degree()) {
      pcg stream = stream_for(job.draw, first + c, lane, skipped, to_thread);
      rank = next_rank(job.weights, weight, stream);
    }
    const uint32_t pick = order_of_lanes(rank);
    if (lane < job.draw.most) picks_of(tile)[tile.begin[c] + lane] = pick;
  }
}

// The first of the candidates that the threads of the rule in sets [from, to) draw for.
template <int kMost>
__device__ __forceinline__ uint64_t best_of_center(const Weighted<kMost> &job, uint32_t i, const Span &span,
                                                   leap to_center, uint32_t from, uint32_t to) {
  const uint32_t lane = threadIdx.x % 32, n = narrow_degree(span), last = job.draw.most - 1;
  const WeightsOfCenter<kMost> weight_of(job.weights, i, span);
  const auto weight_at = [&](uint64_t y) { return y < n ? weight_of(static_cast<uint32_t>(y)) : 0; };
  uint64_t kept = kNoCandidate;
  uint64_t next = weight_at(from * 32 + lane);
  for (uint32_t set = from; set < to && set * 32 < n; set++) {
    pcg stream = stream_for(job.draw, i, set * 32 + lane, to_center, leap::of(set * 32 + lane));
    for (uint64_t first = set * 32; first < n; first += kSets * 32) {
      const uint64_t y = first + lane;
      const uint64_t weight = next;
      next = weight_at(first + kSets * 32 < n ? y + kSets * 32 : (set + 1) * 32 + lane);
      const uint64_t candidate = y < n ? uint64_t{next_rank(job.weights, weight, stream)} << 32 | y : kNoCandidate;
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
  __shared__ uint64_t kept_by[kSets][32];
  __shared__ uint32_t hubs_of[kFewThreads / 32];
  constexpr uint32_t kWarps = kFewThreads / 32;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, most = job.draw.most, seats = job.draw.seats;
  const auto tile_of = [&](uint32_t w) -> Tile<kSeats> & {
    return *reinterpret_cast<Tile<kSeats> *>(reinterpret_cast<char *>(room) + w * tile_bytes<kSeats>(most));
  };
  const uint64_t block_first = uint64_t{blockIdx.x} * kWarps * seats, first = block_first + warp * seats;
  uint32_t hubs = 0;
  if (first < job.draw.nodes.count) {
    const uint32_t tile_first = static_cast<uint32_t>(first);
    Tile<kSeats> &tile = tile_of(warp);
    const Span span = sit_down(job.draw, tile_first, tile);
    const uint32_t choosing = tile.choosing, small = choosing & __ballot_sync(0xffffffff, span.degree() <= 32);
    hubs = __ballot_sync(0xffffffff, (choosing >> lane & 1) != 0 && span.degree() >= kHub);
    const leap to_center = choosing >> lane & 1 ? leap_to(job.draw, tile_first + lane) : leap::none();
    if (small != 0) pick_small(job, tile_first, small, to_center, tile);
    for (uint32_t left = choosing & ~small & ~hubs; left != 0; left &= left - 1) {
      const uint32_t c = __ffs(left) - 1;
      const leap skipped = {__shfl_sync(0xffffffff, to_center.factor, c), __shfl_sync(0xffffffff, to_center.sum, c)};
      const uint64_t kept = best_of_center(job, tile_first + c, tile.span(c), skipped, 0, kSets);
      if (lane < most) picks_of(tile)[tile.begin[c] + lane] = static_cast<uint32_t>(kept);
    }
    __syncwarp();
    write_tile<Picks::kNumbers>(job.draw, tile, tile_first, hubs, lane, 32);
  }
  // Hubs: a warp a set of the rule's threads.
  if (lane == 0) hubs_of[warp] = hubs;
  __syncthreads();
  for (uint32_t w = 0; w < kWarps; w++) {
    for (uint32_t left = hubs_of[w]; left != 0; left &= left - 1) {
      const uint32_t c = __ffs(left) - 1, i = static_cast<uint32_t>(block_first) + w * seats + c;
      const Tile<kSeats> &home = tile_of(w);
      const Span span = home.span(c);
      if (warp < kSets) kept_by[warp][lane] = best_of_center(job, i, span, leap_to(job.draw, i), warp, warp + 1);
      __syncthreads();
      if (warp == 0) {
        uint64_t kept = kept_by[0][lane];
#pragma unroll
        for (uint32_t s = 1; s < kSets; s++) kept = first_of(kept, kept_by[s][lane]);
        if (lane < most) {
          const int64_t edge = span.start + static_cast<uint32_t>(kept);
          put(job.draw.takings, uint64_t{home.first_taking} + home.begin[c] + lane, i, edge,
              column_of(job.draw.takings, edge));
        }
      }
      __syncthreads();
    }
  }
}

// Many taken: a block a center with a choice, as many threads as the rule has. Candidates that may be among the first
// are collected until the room for them is full, then the first ones are kept and the others dropped.
struct Collection {
  uint32_t count;
  uint32_t reserved;
  // The last of those kept.
  uint64_t worst;
};

template <bool kInScratch, int kMost>
__device__ __forceinline__ void take_many(const Weighted<kMost> &job, uint32_t i, const Span &span, uint32_t begin,
                                          uint64_t *candidates, uint64_t *others, uint32_t capacity, uint64_t *room,
                                          Collection &kept) {
  const uint32_t most = job.draw.most, threads = blockDim.x, n = narrow_degree(span);
  if (threadIdx.x == 0) kept = {0, 0, kNoCandidate};
  __syncthreads();
  const WeightsOfCenter<kMost> weight_of(job.weights, i, span);
  pcg stream = stream_for(job.draw, i, threadIdx.x, leap_to(job.draw, i), leap::of(threadIdx.x));
  const auto keep_first = [&] {
    if constexpr (kInScratch) {
      sort_in_memory(candidates, others, kept.count, room);
    } else {
      sort_in_block(candidates, kept.count);
    }
    if (threadIdx.x == 0) {
      kept.count = min(kept.count, most);
      kept.worst = candidates[kept.count - 1];
    }
    __syncthreads();
  };
  for (uint64_t first = 0; first < n; first += threads) {
    const uint64_t y = first + threadIdx.x;
    if (y < n) {
      const uint64_t weight = weight_of(static_cast<uint32_t>(y));
      const uint64_t candidate = uint64_t{next_rank(job.weights, weight, stream)} << 32 | y;
      if (candidate < kept.worst) candidates[atomicAdd(&kept.count, 1)] = candidate;
    }
    __syncthreads();
    if (kept.count + threads > capacity) keep_first();
    __syncthreads();
  }
  keep_first();
  put_all(job.draw.takings, begin, i, most, threadIdx.x, threads,
          [&](uint32_t x) { return span.start + static_cast<uint32_t>(candidates[x]); });
  __syncthreads();
}

template <int kMost, bool kInScratch>
__global__ void __launch_bounds__(256)
    many_kernel(const __grid_constant__ Weighted<kMost> job, uint64_t *scratch, uint64_t total, uint32_t capacity) {
  extern __shared__ uint64_t room[];
  __shared__ Collection kept;
  __shared__ Tile<kSeats> tile;
  const uint32_t first = blockIdx.x * job.draw.seats;
  begin_tile(job.draw, first, tile);
  for (uint32_t left = tile.choosing; left != 0; left &= left - 1) {
    const uint32_t c = __ffs(left) - 1, begin = tile.first_taking + tile.begin[c];
    // Two arrays with room for twice what is taken, or one in shared memory.
    uint64_t *candidates = kInScratch ? scratch + 2 * uint64_t{begin} : room;
    uint64_t *others = kInScratch ? candidates + 2 * total : nullptr;
    take_many<kInScratch>(job, first + c, tile.span(c), begin, candidates, others, capacity, room, kept);
  }
}

// More are taken with the candidates in scratch memory.
constexpr uint32_t kMostInBlock = kSorted / 2;

template <int kMost>
Weighted<kMost> pack_weighted(const wmk_sample_args &args) {
  Weighted<kMost> job{};
  job.draw = pack_sampling<kMost>(args, weighted_threads(args.take.most), 1, kSeats);
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
    const auto tiles = [&](uint32_t seats) { return (count + seats - 1) / seats; };
    const uint32_t seats = job.draw.seats;
    if (most <= kFew) {
      constexpr uint32_t kWarps = kFewThreads / 32;
      few_kernel<kMost><<<tiles(kWarps * seats), kFewThreads, kWarps * tile_bytes<kSeats>(most), stream>>>(job);
    } else if (most <= kMostInBlock) {
      // Half of the room and the candidates of all threads once more, a power of two for the sort.
      const uint32_t capacity = most <= 384 ? 1024 : most <= 768 ? 2048 : kSorted;
      many_kernel<kMost, false>
          <<<tiles(seats), job.draw.threads, capacity * sizeof(uint64_t), stream>>>(job, nullptr, 0, capacity);
    } else {
      many_kernel<kMost, true>
          <<<tiles(seats), job.draw.threads, kSorted * sizeof(uint64_t), stream>>>(job, scratch, args->total, 2 * most);
    }
    return cudaGetLastError();
  });
}

}  // namespace wmk
