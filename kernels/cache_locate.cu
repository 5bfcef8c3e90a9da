// Where a gradient step changes the rows of a table with a cache, and what becomes dirty by it.

#include <cuda_runtime.h>

#include "cache.cuh"
#include "cache_order.cuh"
#include "early.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;

// Sets bits of a mask; true if they were set before.
__device__ __forceinline__ bool mark(uint32_t &mask, uint32_t bits) {
  return (__ldcg(&mask) & bits) == bits || (atomicOr(&mask, bits) & bits) == bits;
}

template <class Row>
__global__ void __launch_bounds__(kThreads) locate_rows(const __grid_constant__ wmk_cache_locate_args job,
                                                         const Buckets buckets) {
  wait_for_before();
  let_next_begin();
  __shared__ uint32_t state_loads;
  if (threadIdx.x == 0) state_loads = 0;
  __syncthreads();
  const wmk_cache &cache = job.cache;
  const Row *rows = static_cast<const Row *>(job.sorted_rows);
  const uint32_t lane = threadIdx.x % 32, count = static_cast<uint32_t>(job.count);
  for (uint32_t first = blockIdx.x * kThreads; first < count; first += gridDim.x * kThreads) {
    const uint32_t i = first + threadIdx.x;
    const uint64_t row = i < count ? rows[i] : cache.rows;
    const bool asks = row < cache.rows && (i == 0 || rows[i - 1] != rows[i]);
    const uint64_t set = asks ? cache_set_of(row, cache_hash(row), cache.set_count, cache.whole) : 0;
    const uint32_t found = find_lines(asks ? tags_of(cache.tags, set) : 0, static_cast<uint32_t>(row) + 1, lane);
    const bool cached = found != no_line;
    if (job.home_turns != nullptr && i < count) job.home_turns[i] = asks && !cached ? take_turn(buckets, row) : no_turn;
    if (!asks) continue;
    cache_set &of_set = sets_of(cache)[set];
    const uint64_t line = set * cache_set_lines + found;
    job.row_places[i] = cached ? cache.lines + line * cache.stride_bytes : cache.home + row * cache.stride_bytes;
    if (cached) mark(of_set.dirty, 1u << found);
    if (job.state_sources == nullptr) continue;
    const uint64_t at_home = cache.state_home + row * cache.state_stride_bytes;
    const uint64_t in_cache = cache.state_lines + line * cache.state_stride_bytes;
    bool present = false;
    if (cached) {
      mark(of_set.state_dirty, 1u << found);
      present = mark(of_set.state_present, 1u << found);
      if (!present) atomicAdd(&state_loads, 1);
    }
    job.state_sources[i] = present ? in_cache : at_home;
    job.state_targets[i] = cached ? in_cache : at_home;
  }
  __syncthreads();
  if (threadIdx.x != 0 || state_loads == 0) return;
  auto *head = reinterpret_cast<cache_head *>(cache.head);
  atomicAdd(reinterpret_cast<unsigned long long *>(&head->bytes_read), state_loads * cache.state_stride_bytes);
}

cudaError_t locate(const wmk_cache_locate_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    cudaError_t code = load_code(reinterpret_cast<const void *>(locate_rows<uint32_t>));
    if (code == cudaSuccess) code = load_code(reinterpret_cast<const void *>(locate_rows<uint64_t>));
    return code != cudaSuccess ? code : load_code(reinterpret_cast<const void *>(order_turns));
  }
  const bool lists = args->home_heads != nullptr;
  if (args->count == 0 || args->count > INT32_MAX || args->cache.set_count == 0 || args->cache.home == 0 ||
      (args->state_sources != nullptr && args->cache.state_lines == 0) || args->order_bits > WMK_MOST_CACHE_ORDER_BITS ||
      lists != (args->home_turns != nullptr) || (lists && (args->home_count == nullptr || args->home_buckets == nullptr))) {
    return cudaErrorInvalidValue;
  }
  const uint32_t count = static_cast<uint32_t>(args->count), needed = (count + kThreads - 1) / kThreads;
  const auto kernel = args->row_bytes == 8 ? locate_rows<uint64_t> : locate_rows<uint32_t>;
  const Buckets buckets = buckets_for(args->cache.rows, args->order_bits, args->home_buckets);
  const bool early = may_begin_early(stream);
  const cudaError_t code = launch_kernel(early, kernel, needed < 2048 ? needed : 2048, kThreads, 0, stream, *args, buckets);
  if (code != cudaSuccess || !lists) return code;
  return enqueue_order(args->home_turns, count, nullptr, buckets, args->home_heads, args->home_count, stream, early);
}

}  // namespace

}  // namespace wmk

int wmk_cache_locate(const wmk_cache_locate_args *args, wmk_stream stream) {
  return wmk::told(wmk::locate(args, stream));
}
