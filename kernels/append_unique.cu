// Distinct ids by first occurrence. Ids are numbered, targets first. A table finds for every id the lowest number that
// has it: who comes and finds a lower number of its id refers to it, who finds a higher one takes the slot and makes
// that one refer to it. Numbers that refer to none are first occurrences. Every reference is written by one thread
// only: a number loses its slot at most once, and one that never had a slot is nobody's reference.

#include <initializer_list>

#include "args.h"
#include "scan.cuh"
#include "scratch.h"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kEmpty = UINT64_MAX;
// Refers to none. From kNew on: one of the new ids, in their order.
constexpr uint32_t kFirst = UINT32_MAX;
constexpr uint32_t kNew = 0x80000000u;

struct Lists {
  const void *targets;
  const void *neighbours;
  uint32_t target_count;
  // Of both lists.
  uint32_t count;
};

template <class Id>
__device__ __forceinline__ uint64_t id_of(const Lists &lists, uint32_t number) {
  const bool is_target = number < lists.target_count;
  const Id *ids = static_cast<const Id *>(is_target ? lists.targets : lists.neighbours);
  const Id id = ids[is_target ? number : number - lists.target_count];
  // All bits of an id, and no others.
  return sizeof(Id) == 4 ? static_cast<uint32_t>(id) : static_cast<uint64_t>(id);
}

// A slot holds 32 bits of the id, whether these do not tell all of it (the id has more), and the number. Equal ids
// differ in the number only, so the lowest number is the lowest slot value.
constexpr uint64_t kWide = 0x80000000u;

__device__ __forceinline__ uint64_t slot_value(uint64_t id, uint32_t number) {
  const uint32_t high = static_cast<uint32_t>(id >> 32), low = static_cast<uint32_t>(id);
  return uint64_t{low ^ high * 0x9e3779b1u} << 32 | (high != 0 ? kWide : 0) | number;
}

__device__ __forceinline__ uint32_t number_in(uint64_t slot) { return static_cast<uint32_t>(slot) & 0x7fffffffu; }

__device__ __forceinline__ uint64_t mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

__device__ __forceinline__ uint64_t load_relaxed(const uint64_t *at) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}

// An id a thread: more of them only make the threads of a warp wait for each other.
template <class Id>
__global__ void __launch_bounds__(kThreads)
    enter_kernel(const Lists lists, unsigned long long *table, uint32_t slots, uint32_t *refers) {
  const uint32_t number = blockIdx.x * kThreads + threadIdx.x;
  if (number >= lists.count) return;
  const uint64_t id = id_of<Id>(lists, number), value = slot_value(id, number);
  uint32_t at = static_cast<uint32_t>(__umul64hi(mix(id), slots));
  while (true) {
    uint64_t now = load_relaxed(reinterpret_cast<uint64_t *>(table) + at);
    if (now == kEmpty) {
      now = atomicCAS(&table[at], kEmpty, value);
      if (now == kEmpty) return;
    }
    // Only the numbers differ.
    const bool is_same = (now ^ value) < kWide;
    if (is_same && ((value & kWide) == 0 || id_of<Id>(lists, number_in(now)) == id)) {
      if (now > value) now = atomicMin(&table[at], value);
      if (now < value) {
        refers[number] = number_in(now);
      } else {
        refers[number_in(now)] = number;
      }
      return;
    }
    at = at + 1 == slots ? 0 : at + 1;
  }
}

// Numbers the neighbours that refer to none.
constexpr uint32_t kWarpTile = 512;
constexpr uint32_t kTile = kThreads / 32 * kWarpTile;

__global__ void __launch_bounds__(kThreads)
    number_kernel(uint32_t *refers, uint32_t count, uint64_t *new_ids, const Tiles tiles) {
  __shared__ uint32_t of_warp[kThreads / 32];
  __shared__ uint32_t before_tile;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t tile = next_tile(tiles);
  const uint32_t first = tile * kTile + warp * kWarpTile + lane;
  // Bit k: number first + 32 k is new.
  uint32_t is_new = 0;
#pragma unroll
  for (uint32_t k = 0; k < kWarpTile / 32; k++) {
    const uint32_t at = first + k * 32;
    is_new |= (at < count && refers[at] == kFirst ? 1u : 0) << k;
  }
  uint32_t found = __popc(is_new);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) found += __shfl_xor_sync(0xffffffff, found, step);
  if (lane == 0) of_warp[warp] = found;
  __syncthreads();
  uint32_t next = 0, all = 0;
#pragma unroll
  for (uint32_t w = 0; w < kThreads / 32; w++) {
    if (w == warp) next = all;
    all += of_warp[w];
  }
  if (warp == 0) {
    const uint64_t before = sum_before(tiles, tile, all);
    if (lane == 0) {
      before_tile = static_cast<uint32_t>(before);
      if (tile + 1 == gridDim.x) *new_ids = before + all;
    }
  }
  __syncthreads();
  next += before_tile;
#pragma unroll
  for (uint32_t k = 0; k < kWarpTile / 32; k++) {
    const bool mine = is_new >> k & 1;
    const uint32_t news = __ballot_sync(0xffffffff, mine);
    if (mine) refers[first + k * 32] = kNew | (next + __popc(news & ((1u << lane) - 1)));
    next += __popc(news);
  }
}

template <class Id>
__global__ void __launch_bounds__(kThreads)
    write_kernel(const Lists lists, const uint32_t *refers, Id *unique, int32_t *map) {
  const uint32_t self = blockIdx.x * kThreads + threadIdx.x;
  if (self >= lists.count) return;
  const bool is_target = self < lists.target_count;
  uint32_t number = self, refer = refers[self];
  // Targets are not numbered anew.
  if (is_target || refer >= kNew) {
    const uint32_t to = is_target ? self : lists.target_count + (refer & ~kNew);
    unique[to] = static_cast<Id>(id_of<Id>(lists, self));
  }
  if (map == nullptr || is_target) return;
  while (refer < kNew) {
    number = refer;
    refer = refers[number];
  }
  map[self - lists.target_count] =
      static_cast<int32_t>(number < lists.target_count ? number : lists.target_count + (refer & ~kNew));
}

// What both parts find in the scratch.
struct Room {
  uint64_t *table;
  uint32_t slots;
  uint32_t *refers;
  Tiles tiles;
  uint32_t tile_count;
  // Of all these, which begin with the table.
  uint64_t bytes;

  Room(const wmk_append_args &args, Scratch &scratch) {
    const uint64_t count = args.target_count + args.neighbour_count;
    slots = static_cast<uint32_t>(count + count / 3 + 16);
    tile_count = static_cast<uint32_t>((args.neighbour_count + kTile - 1) / kTile);
    const uint64_t begin = scratch.taken_bytes();
    table = scratch.take<uint64_t>(slots);
    refers = scratch.take<uint32_t>(count);
    uint64_t *words = scratch.take<uint64_t>(uint64_t{tile_count} + 1);
    tiles = {words, reinterpret_cast<uint32_t *>(words + tile_count)};
    bytes = scratch.taken_bytes() - begin;
  }
};

Lists lists_of(const wmk_append_args &args) {
  return {args.targets, args.neighbours, static_cast<uint32_t>(args.target_count),
          static_cast<uint32_t>(args.target_count + args.neighbour_count)};
}

bool is_sound(const wmk_append_args &args) {
  return args.target_count < INT32_MAX && args.neighbour_count < INT32_MAX &&
         args.target_count + args.neighbour_count < INT32_MAX && args.target_count + args.neighbour_count > 0 &&
         (args.id_bytes == 4 || args.id_bytes == 8);
}

uint32_t blocks_for(uint32_t count) { return (count + kThreads - 1) / kThreads; }

cudaError_t load_all(std::initializer_list<const void *> kernels) {
  cudaFuncAttributes attributes;
  for (const void *kernel : kernels) {
    const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t append_count(const wmk_append_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return load_all({reinterpret_cast<const void *>(enter_kernel<int32_t>),
                     reinterpret_cast<const void *>(enter_kernel<int64_t>),
                     reinterpret_cast<const void *>(number_kernel)});
  }
  if (!is_sound(*args)) return cudaErrorInvalidValue;
  Scratch scratch(args->scratch, args->scratch_bytes);
  const Room room(*args, scratch);
  if (scratch.counts_only()) {
    *args->needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const cudaError_t code = cudaMemsetAsync(room.table, 0xff, room.bytes, stream);
  if (code != cudaSuccess) return code;
  const Lists lists = lists_of(*args);
  auto *table = reinterpret_cast<unsigned long long *>(room.table);
  if (args->id_bytes == 8) {
    enter_kernel<int64_t><<<blocks_for(lists.count), kThreads, 0, stream>>>(lists, table, room.slots, room.refers);
  } else {
    enter_kernel<int32_t><<<blocks_for(lists.count), kThreads, 0, stream>>>(lists, table, room.slots, room.refers);
  }
  const uint32_t tiles = room.tile_count == 0 ? 1 : room.tile_count;
  number_kernel<<<tiles, kThreads, 0, stream>>>(
      room.refers + lists.target_count, static_cast<uint32_t>(args->neighbour_count), args->new_ids, room.tiles);
  return cudaGetLastError();
}

cudaError_t append_write(const wmk_append_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    return load_all(
        {reinterpret_cast<const void *>(write_kernel<int32_t>), reinterpret_cast<const void *>(write_kernel<int64_t>)});
  }
  if (!is_sound(*args)) return cudaErrorInvalidValue;
  Scratch scratch(args->scratch, args->scratch_bytes);
  const Room room(*args, scratch);
  if (scratch.counts_only() || !scratch.suffices()) return cudaErrorInvalidValue;
  const Lists lists = lists_of(*args);
  if (args->id_bytes == 8) {
    write_kernel<<<blocks_for(lists.count), kThreads, 0, stream>>>(lists, room.refers,
                                                                   static_cast<int64_t *>(args->unique), args->map);
  } else {
    write_kernel<<<blocks_for(lists.count), kThreads, 0, stream>>>(lists, room.refers,
                                                                   static_cast<int32_t *>(args->unique), args->map);
  }
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_append_count(const wmk_append_args *args, wmk_stream stream) {
  return wmk::told(wmk::append_count(args, stream));
}

int wmk_append_write(const wmk_append_args *args, wmk_stream stream) {
  return wmk::told(wmk::append_write(args, stream));
}
