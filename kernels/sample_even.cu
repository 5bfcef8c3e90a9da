// By chance, each neighbour as likely as another. Of N neighbours item x takes Q[r] with r = draw mod (N - x), and the
// last of the N - x that are left moves to its place. So item x takes what the last item before it with the same r put
// there, or r itself; and what item j put there is what the last item before it with r = N - 1 - j put there, or
// N - 1 - j itself. All items look back at once.

#include "args.h"
#include "graph.cuh"
#include "tile.cuh"

namespace wmk {

namespace {

constexpr uint32_t kFewThreads = 256;
// Most centers of a tile where more than a few are taken.
constexpr int kSeats = 8;
constexpr uint32_t kNone = UINT32_MAX;

// The lanes of a warp in groups, a group a center and a lane an item, as many as there is room for.
template <int kMost>
__device__ __forceinline__ void pick_few(const Sampling<kMost> &job, const Span &span, uint32_t first, Tile<32> &tile,
                                         uint32_t *turns, uint32_t *below) {
  const uint32_t lane = threadIdx.x % 32, most = job.most;
  const uint32_t groups = 32 / most, group = lane / most, item = lane - group * most, group_first = lane - item;
  const uint32_t members = (most == 32 ? kNone : (1u << most) - 1) << (group_first & 31);
  const uint32_t choosing = tile.choosing, degree = narrow_degree(span);
  const leap to_thread = leap::of(item);
  leap to_center = leap::none();
  if (choosing >> lane & 1) {
    to_center = leap_to(job, first + lane);
    turns[__popc(choosing & ((1u << lane) - 1))] = lane;
  }
  __syncwarp();
  const uint32_t chosen_from = __popc(choosing);
  for (uint32_t turn = 0; turn < chosen_from; turn += groups) {
    const bool live = group < groups && turn + group < chosen_from;
    const uint32_t center = live ? turns[turn + group] : 0;
    const leap skipped = {__shfl_sync(0xffffffff, to_center.factor, center),
                          __shfl_sync(0xffffffff, to_center.sum, center)};
    const uint32_t n = __shfl_sync(0xffffffff, degree, center);
    uint32_t r = kNone;
    if (live) {
      pcg stream = stream_for(job, first + center, item, skipped, to_thread);
      r = static_cast<uint32_t>(stream.i31()) % (n - item);
    }
    const uint32_t same = __match_any_sync(0xffffffff, r) & members;
    // The item that will look for what was put at r, and the last of these lanes before it.
    const uint32_t seeker = n - 1 - r;
    below[lane] = kNone;
    __syncwarp();
    if (live && seeker < most) {
      const uint32_t others = same & ~(1u << (group_first + seeker));
      if (others != 0 && lane == 31 - __clz(others)) below[group_first + seeker] = lane;
    }
    __syncwarp();
    uint32_t root = lane;
    while (below[root] != kNone) root = below[root];
    const uint32_t put_there = kFromEnd | (root - group_first);
    const uint32_t before = same & ((1u << lane) - 1);
    const uint32_t from_before = __shfl_sync(0xffffffff, put_there, before != 0 ? 31 - __clz(before) : lane);
    if (live) picks_of(tile)[tile.begin[center] + item] = before != 0 ? from_before : r;
    __syncwarp();
  }
}

template <int kMost>
__global__ void __launch_bounds__(kFewThreads) few_kernel(const __grid_constant__ Sampling<kMost> job) {
  extern __shared__ uint64_t room[];
  __shared__ uint32_t lists[kFewThreads / 32][2][32];
  const uint32_t warp = threadIdx.x / 32;
  const uint64_t first = (uint64_t{blockIdx.x} * (kFewThreads / 32) + warp) * job.seats;
  if (first >= job.nodes.count) return;
  auto &tile = *reinterpret_cast<Tile<32> *>(reinterpret_cast<char *>(room) + warp * tile_bytes<32>(job.most));
  const Span span = sit_down(job, static_cast<uint32_t>(first), tile);
  if (tile.choosing != 0) pick_few(job, span, static_cast<uint32_t>(first), tile, lists[warp][0], lists[warp][1]);
  write_tile<Picks::kEdges>(job, tile, static_cast<uint32_t>(first), 0, threadIdx.x % 32, 32);
}

// More items than lanes: a warp a center with a choice. Items with the same r are found by lists of items that agree in
// the low bits of r, an item in the lists is its number plus 1.
constexpr uint32_t kManyThreads = 128;
// The lists of so many items in a block of two warps have room in the shared memory that a kernel has unasked.
constexpr uint32_t kItemsForAllWarps = 512;

struct Lists {
  uint32_t *heads;
  uint32_t *draws;
  uint16_t *next;
  uint16_t *below;
  uint32_t mask;

  static __host__ __device__ uint32_t count_of_heads(uint32_t most) {
    uint32_t heads = 32;
    while (heads < most) heads *= 2;
    return heads;
  }

  // For a warp.
  static __host__ __device__ uint32_t bytes(uint32_t most) {
    const uint32_t even = most + most % 2;
    return count_of_heads(most) * sizeof(uint32_t) + even * (sizeof(uint32_t) + 2 * sizeof(uint16_t));
  }

  __device__ __forceinline__ Lists(char *room, uint32_t most) {
    const uint32_t even = most + most % 2, count = count_of_heads(most);
    heads = reinterpret_cast<uint32_t *>(room);
    draws = heads + count;
    next = reinterpret_cast<uint16_t *>(draws + even);
    below = next + even;
    mask = count - 1;
  }

  __device__ __forceinline__ void enter(uint32_t item, uint32_t draw) {
    draws[item] = draw;
    next[item] = static_cast<uint16_t>(atomicExch(&heads[draw & mask], item + 1));
  }

  // The last item before `item` that drew `draw`, plus 1; 0 if none did.
  __device__ __forceinline__ uint32_t last_before(uint32_t item, uint32_t draw) const {
    uint32_t last = 0;
    for (uint32_t at = heads[draw & mask]; at != 0; at = next[at - 1]) {
      if (at <= item && at > last && draws[at - 1] == draw) last = at;
    }
    return last;
  }
};

template <int kMost>
__device__ __forceinline__ void take_many(const Sampling<kMost> &job, uint32_t i, const Span &span, uint32_t begin,
                                          Lists &lists) {
  const uint32_t lane = threadIdx.x % 32, most = job.most, n = narrow_degree(span);
  for (uint32_t k = lane; k <= lists.mask; k += 32) lists.heads[k] = 0;
  __syncwarp();
  const leap to_center = leap_to(job, i), over_warp = leap::of(32);
  leap to_thread = leap::of(lane);
  for (uint32_t t = lane; t < job.threads; t += 32) {
    pcg stream = stream_for(job, i, t, to_center, to_thread);
    for (uint32_t item = t; item < most; item += job.threads) {
      lists.enter(item, static_cast<uint32_t>(stream.i31()) % (n - item));
    }
    to_thread = to_thread.then(over_warp);
  }
  __syncwarp();
  for (uint32_t item = lane; item < most; item += 32) {
    lists.below[item] = static_cast<uint16_t>(lists.last_before(item, n - 1 - item));
  }
  __syncwarp();
  put_all(job.takings, begin, i, most, lane, 32, [&](uint32_t item) {
    uint32_t pick = lists.draws[item], at = lists.last_before(item, pick);
    if (at != 0) {
      while (lists.below[at - 1] != 0) at = lists.below[at - 1];
      pick = kFromEnd | (at - 1);
    }
    return edge_of_pick(span, pick);
  });
  __syncwarp();
}

template <int kMost>
__global__ void __launch_bounds__(kManyThreads) many_kernel(const __grid_constant__ Sampling<kMost> job) {
  extern __shared__ uint64_t room[];
  __shared__ Tile<kSeats> tiles[kManyThreads / 32];
  const uint32_t warp = threadIdx.x / 32;
  const uint64_t first = (uint64_t{blockIdx.x} * (blockDim.x / 32) + warp) * job.seats;
  if (first >= job.nodes.count) return;
  Tile<kSeats> &tile = tiles[warp];
  sit_down(job, static_cast<uint32_t>(first), tile);
  write_tile<Picks::kNone>(job, tile, static_cast<uint32_t>(first), tile.choosing, threadIdx.x % 32, 32);
  Lists lists(reinterpret_cast<char *>(room) + warp * Lists::bytes(job.most), job.most);
  for (uint32_t left = tile.choosing; left != 0; left &= left - 1) {
    const uint32_t c = __ffs(left) - 1;
    take_many(job, static_cast<uint32_t>(first) + c, tile.span(c), tile.first_taking + tile.begin[c], lists);
  }
}

// More than most_items: places are taken over by later neighbours, a block a center with a choice. The highest
// neighbour that drew a place has it in the end, so the draws of a thread may be made in pieces.
constexpr uint32_t kPlaceThreads = 256;

template <int kMost>
__device__ __forceinline__ void take_places(const Sampling<kMost> &job, uint32_t i, const Span &span, uint32_t begin,
                                            unsigned long long *places) {
  constexpr uint32_t kWarps = kPlaceThreads / 32;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint64_t most = job.most, n = span.degree();
  for (uint64_t x = threadIdx.x; x < most; x += kPlaceThreads) places[x] = x;
  __syncthreads();
  // Thread `lane` of the rule draws for the neighbours most + lane, most + lane + 32 and so on; each warp makes a piece
  // of its draws.
  const uint64_t draws = (n - most + 31) / 32, piece = (draws + kWarps - 1) / kWarps;
  const uint64_t from = min(warp * piece, draws), to = min(from + piece, draws);
  pcg stream = stream_for(job, i, lane, leap_to(job, i), leap::of(lane + from));
  for (uint64_t k = from; k < to; k++) {
    const uint64_t y = most + lane + 32 * k;
    if (y >= n) break;
    const uint32_t draw = static_cast<uint32_t>(stream.i31());
    // A draw has 31 bits.
    const uint32_t place = y + 1 < 0x80000000u ? draw % static_cast<uint32_t>(y + 1) : draw;
    if (place < most) atomicMax(&places[place], static_cast<unsigned long long>(y));
  }
  __syncthreads();
  put_all(job.takings, begin, i, job.most, threadIdx.x, kPlaceThreads,
          [&](uint32_t x) { return span.start + static_cast<int64_t>(__ldcg(&places[x])); });
}

template <int kMost>
__global__ void __launch_bounds__(kPlaceThreads)
    places_kernel(const __grid_constant__ Sampling<kMost> job, unsigned long long *scratch) {
  __shared__ Tile<kSeats> tile;
  const uint32_t first = blockIdx.x * job.seats;
  begin_tile(job, first, tile);
  for (uint32_t left = tile.choosing; left != 0; left &= left - 1) {
    const uint32_t c = __ffs(left) - 1, begin = tile.first_taking + tile.begin[c];
    take_places(job, first + c, tile.span(c), begin, scratch + begin);
  }
}

}  // namespace

uint64_t even_scratch_bytes(const wmk_sample_args &args) {
  return args.take.most > most_items ? args.total * sizeof(uint64_t) : 0;
}

cudaError_t sample_even(const wmk_sample_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return with_every_room([](auto room) {
      constexpr int kMost = decltype(room)::value;
      for (const cudaError_t code :
           {load_kernel(few_kernel<kMost>), load_kernel(many_kernel<kMost>), load_kernel(places_kernel<kMost>)}) {
        if (code != cudaSuccess) return code;
      }
      return cudaSuccess;
    });
  }
  const uint32_t most = args->take.most, count = static_cast<uint32_t>(args->neighbours.count);
  return with_room(places_of(*args), [&](auto room) {
    constexpr int kMost = decltype(room)::value;
    const auto packed = [&](uint32_t fewest_seats, uint32_t most_seats) {
      return pack_sampling<kMost>(*args, unweighted_threads(most), fewest_seats, most_seats);
    };
    const auto tiles = [&](uint32_t seats) { return (count + seats - 1) / seats; };
    if (most <= kFew) {
      constexpr uint32_t kWarps = kFewThreads / 32;
      const auto job = packed(kFew / most, 32);
      few_kernel<kMost><<<tiles(kWarps * job.seats), kFewThreads, kWarps * tile_bytes<32>(most), stream>>>(job);
    } else if (most <= most_items) {
      const uint32_t warps = most <= kItemsForAllWarps ? kManyThreads / 32 : 2;
      const auto job = packed(1, kSeats);
      many_kernel<kMost><<<tiles(warps * job.seats), warps * 32, warps * Lists::bytes(most), stream>>>(job);
    } else {
      const auto job = packed(1, kSeats);
      places_kernel<kMost>
          <<<tiles(job.seats), kPlaceThreads, 0, stream>>>(job, reinterpret_cast<unsigned long long *>(args->scratch));
    }
    return cudaGetLastError();
  });
}

}  // namespace wmk
