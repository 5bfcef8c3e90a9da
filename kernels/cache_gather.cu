// Reading through a cache: a lookup of the lines, and a gather from two places at once.

#include <cuda_runtime.h>

#include "cache.cuh"
#include "cache_order.cuh"
#include "dispatch.cuh"
#include "early.cuh"
#include "told.cuh"

namespace wmk {

namespace {

template <int kMost>
struct Lookup {
  uint64_t start_rows[kMost + 1];
  uint64_t tags[kMost];
  uint64_t reciprocal;
  uint32_t ranks;
  uint32_t whole;
  uint64_t rows;
  uint64_t set_count;
  const void *ids;
  uint32_t count;
  uint32_t wide_ids;
  int64_t *lines;
  void *missed;
  uint64_t *turns;
  Buckets buckets;
  cache_head *head;
};

template <int kMost>
__global__ void __launch_bounds__(kThreads) look_up(const __grid_constant__ Lookup<kMost> job) {
  __shared__ uint32_t lookups, hits;
  if (threadIdx.x == 0) lookups = hits = 0;
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t first = (blockIdx.x * kThreads + threadIdx.x) & ~31u; first < job.count;
       first += gridDim.x * kThreads) {
    const uint32_t i = first + lane;
    const int64_t id = i < job.count ? id_at(job.ids, i, job.wide_ids) : -1;
    const bool asks = static_cast<uint64_t>(id) < job.rows;
    uint32_t owner = 0, tag = 0;
    uint64_t set = 0, at = 0;
    if (asks) {
      if (kMost > one_place) owner = owner_of(job.start_rows, job.ranks, job.reciprocal, id);
      const uint64_t row = id - job.start_rows[owner];
      tag = static_cast<uint32_t>(row) + 1;
      set = cache_set_of(row, cache_hash(row), job.set_count, job.whole);
      // The tags of ranks that are not mapped are nowhere.
      at = job.tags[owner] == 0 ? 0 : tags_of(job.tags[owner], set);
    }
    const uint32_t found = find_lines(at, tag, lane);
    const bool hit = found != no_line;
    const uint32_t asking = __ballot_sync(0xffffffff, asks), hitting = __ballot_sync(0xffffffff, hit);
    if (lane == 0 && job.head != nullptr) {
      atomicAdd(&lookups, __popc(asking));
      atomicAdd(&hits, __popc(hitting));
    }
    if (i >= job.count) continue;
    job.lines[i] = hit ? static_cast<int64_t>((owner * job.set_count + set) * cache_set_lines + found) : -1;
    const bool misses = asks && !hit;
    if (job.missed != nullptr && job.wide_ids) static_cast<int64_t *>(job.missed)[i] = misses ? id : -1;
    if (job.missed != nullptr && !job.wide_ids) {
      static_cast<int32_t *>(job.missed)[i] = misses ? static_cast<int32_t>(id) : -1;
    }
    if (job.turns != nullptr) job.turns[i] = misses ? take_turn(job.buckets, id) : no_turn;
  }
  __syncthreads();
  if (threadIdx.x != 0 || job.head == nullptr || lookups == 0) return;
  atomicAdd(reinterpret_cast<unsigned long long *>(&job.head->lookups), lookups);
  if (hits != 0) atomicAdd(reinterpret_cast<unsigned long long *>(&job.head->hits), hits);
}

template <int kMost>
cudaError_t look_up_in(const wmk_cache_lookup_args &args, cudaStream_t stream) {
  Lookup<kMost> job{};
  job.count = static_cast<uint32_t>(args.count);
  uint32_t *total = nullptr;
  if (args.order != nullptr) {
    Scratch scratch(args.scratch, args.scratch_bytes);
    uint32_t *buckets = scratch.take<uint32_t>(uint64_t{1} << args.order_bits);
    job.turns = scratch.take<uint64_t>(job.count);
    if (scratch.counts_only()) {
      *args.needed_bytes = scratch.taken_bytes();
      return cudaSuccess;
    }
    if (!scratch.suffices()) return cudaErrorInvalidValue;
    job.buckets = buckets_for(args.rows, args.order_bits, buckets);
    total = args.misses;
    const cudaError_t code = cudaMemsetAsync(buckets, 0, sizeof(uint32_t) << args.order_bits, stream);
    if (code != cudaSuccess) return code;
  }
  for (uint64_t k = 0; k < args.ranks; k++) job.tags[k] = args.tags[k];
  for (uint64_t k = 0; k <= args.ranks; k++) job.start_rows[k] = args.start_rows[k];
  job.reciprocal = equal_parts_reciprocal(args.start_rows, args.ranks);
  job.ranks = static_cast<uint32_t>(args.ranks);
  job.whole = args.whole;
  job.rows = args.rows;
  job.set_count = args.set_count;
  job.ids = args.ids;
  job.wide_ids = args.id_bytes == 8;
  job.lines = args.lines;
  job.missed = args.missed;
  job.head = reinterpret_cast<cache_head *>(args.head);
  const uint32_t needed = (job.count + kThreads - 1) / kThreads, blocks = needed < 2048 ? needed : 2048;
  look_up<kMost><<<blocks, kThreads, 0, stream>>>(job);
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess || args.order == nullptr) return code;
  return enqueue_order(job.turns, job.count, nullptr, job.buckets, args.order, total, stream);
}

cudaError_t look_up_all(const wmk_cache_lookup_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    for (const void *kernel :
         {reinterpret_cast<const void *>(look_up<one_place>), reinterpret_cast<const void *>(look_up<few_places>),
          reinterpret_cast<const void *>(look_up<many_places>), reinterpret_cast<const void *>(order_turns)}) {
      const cudaError_t code = load_code(kernel);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  if (args->count == 0 || args->count > INT32_MAX || args->ranks == 0 || args->ranks > many_places ||
      args->set_count == 0 || args->order_bits > WMK_MOST_CACHE_ORDER_BITS) {
    return cudaErrorInvalidValue;
  }
  if (args->ranks <= one_place) return look_up_in<one_place>(*args, stream);
  if (args->ranks <= few_places) return look_up_in<few_places>(*args, stream);
  return look_up_in<many_places>(*args, stream);
}

// The first blocks gather the misses and the others the hits. Never begun early: so the next kernel may run beside this one
// from its first step on.
template <class T, int kCount, int kFlight, int kBlocks, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks)
    aligned_pair(const __grid_constant__ Job<kMost> misses, const __grid_constant__ Job<kMost> hits, uint32_t blocks) {
  let_next_begin();
  if (blockIdx.x < blocks) {
    move_aligned<T, T, kCount, kFlight, Way::kGather, true>(misses, blockIdx.x, blocks);
  } else {
    move_aligned<T, T, kCount, kFlight, Way::kGather, true>(hits, blockIdx.x - blocks, gridDim.x - blocks);
  }
}

template <class T, int kCount, int kFlight, int kBlocks, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks)
    shifted_pair(const __grid_constant__ Job<kMost> misses, const __grid_constant__ Job<kMost> hits, uint32_t blocks) {
  let_next_begin();
  if (blockIdx.x < blocks) {
    move_shifted<T, T, kCount, kFlight, Way::kGather, true>(misses, blockIdx.x, blocks);
  } else {
    move_shifted<T, T, kCount, kFlight, Way::kGather, true>(hits, blockIdx.x - blocks, gridDim.x - blocks);
  }
}

template <int kMost>
struct Pair {
  void (*kernel)(Job<kMost>, Job<kMost>, uint32_t) = nullptr;
  uint32_t tile = 0;
};

// Kernels for equal types; what is converted is gathered in two launches.
template <int kMost>
Pair<kMost> pair_for(uint32_t path, uint32_t access, uint32_t elt) {
  constexpr uint32_t kAligned = kThreads * kAlignedFlight, kShifted = kShiftedStride * kShiftedFlight;
  if (path == path_move) {
    switch (access) {
      case 1:
        return {aligned_pair<uint8_t, 1, kAlignedFlight, kAlignedBlocks, kMost>, kAligned};
      case 2:
        return {aligned_pair<uint16_t, 1, kAlignedFlight, kAlignedBlocks, kMost>, kAligned};
      case 4:
        return {aligned_pair<uint32_t, 1, kAlignedFlight, kAlignedBlocks, kMost>, kAligned};
      case 8:
        return {aligned_pair<uint32_t, 2, kAlignedFlight, kAlignedBlocks, kMost>, kAligned};
      case 16:
        return {aligned_pair<uint32_t, 4, kAlignedFlight, kAlignedBlocks, kMost>, kAligned};
    }
  }
  if (path == path_shift) {
    switch (elt) {
      case 1:
        return {shifted_pair<uint8_t, 16, kShiftedFlight, kShiftedBlocks, kMost>, kShifted};
      case 2:
        return {shifted_pair<uint16_t, 8, kShiftedFlight, kShiftedBlocks, kMost>, kShifted};
      case 4:
        return {shifted_pair<uint32_t, 4, kShiftedFlight, kShiftedBlocks, kMost>, kShifted};
    }
  }
  return {};
}

template <int kMost>
cudaError_t load_pairs() {
  cudaError_t code = cudaSuccess;
  for (uint32_t bytes = 1; bytes <= access_limit && code == cudaSuccess; bytes *= 2) {
    code = load_code(reinterpret_cast<const void *>(pair_for<kMost>(path_move, bytes, bytes).kernel));
  }
  for (uint32_t bytes = 1; bytes <= 4 && code == cudaSuccess; bytes *= 2) {
    code = load_code(reinterpret_cast<const void *>(pair_for<kMost>(path_shift, 0, bytes).kernel));
  }
  return code;
}

template <int kMost>
cudaError_t gather_pair(const wmk_cache_gather_args &args, const row_shape &shape, cudaStream_t stream) {
  const Pair<kMost> pair = pair_for<kMost>(shape.path, shape.access_bytes, dtype_bytes(args.hits.table_dtype));
  if (pair.kernel == nullptr) return cudaErrorInvalidValue;
  const uint32_t pieces = static_cast<uint32_t>(args.hits.count * shape.pieces_per_row);
  Job<kMost> jobs[2];
  for (int k = 0; k < 2; k++) jobs[k] = job_for<kMost>(k == 0 ? args.misses : args.hits, shape, false);
  for (Job<kMost> &job : jobs) job.pieces = pieces;
  const uint32_t tiles = (pieces + pair.tile - 1) / pair.tile;
  uint32_t miss_blocks = args.misses.blocks < tiles ? args.misses.blocks : tiles;
  const uint32_t blocks = miss_blocks + (args.hits.blocks < tiles ? args.hits.blocks : tiles);
  void *parameters[] = {&jobs[0], &jobs[1], &miss_blocks};
  return cudaLaunchKernel(reinterpret_cast<const void *>(pair.kernel), dim3(blocks), dim3(kThreads), parameters, 0,
                          stream);
}

// One after the other, by the kernels of gather.
cudaError_t gather_in_turn(const wmk_cache_gather_args &args, cudaStream_t stream) {
  const int code = wmk_gather(&args.misses, stream);
  return static_cast<cudaError_t>(code != 0 ? code : wmk_gather(&args.hits, stream));
}

cudaError_t gather(const wmk_cache_gather_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    const cudaError_t code = load_pairs<one_place>();
    return code != cudaSuccess ? code : load_pairs<few_places>();
  }
  const wmk_rows_args &hits = args->hits, &misses = args->misses;
  if (hits.blocks == 0 || misses.blocks == 0 || hits.cols == 0) return cudaErrorInvalidValue;
  const uint64_t places = hits.table.places > misses.table.places ? hits.table.places : misses.table.places;
  row_facts facts = facts_of(hits, false);
  facts.from_bits |= facts_of(misses, false).from_bits;
  const row_shape shape = shape_of(facts);
  const bool one_launch = !facts.converts && hits.table_dtype == misses.table_dtype && hits.plain == misses.plain &&
                          hits.count == misses.count && hits.cols == misses.cols && places <= few_places &&
                          shape.pieces_per_row < pieces_limit && hits.count * shape.pieces_per_row < pieces_limit &&
                          hits.cols <= (INT32_MAX - 64) / dtype_bytes(hits.table_dtype);
  if (!one_launch) return gather_in_turn(*args, stream);
  return places <= one_place ? gather_pair<one_place>(*args, shape, stream)
                             : gather_pair<few_places>(*args, shape, stream);
}

}  // namespace

}  // namespace wmk

int wmk_cache_lookup(const wmk_cache_lookup_args *args, wmk_stream stream) {
  return wmk::told(wmk::look_up_all(args, stream));
}
int wmk_cache_gather(const wmk_cache_gather_args *args, wmk_stream stream) {
  return wmk::told(wmk::gather(args, stream));
}
