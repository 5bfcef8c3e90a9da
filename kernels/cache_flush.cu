// Writing back what a cache has changed, and emptying it. A warp has 32 sets in its eye and goes to those with dirty
// lines.

#include <cuda_runtime.h>

#include "bits.cuh"
#include "cache.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostBlocks = 1056;

// The dirty rows of a set, by a warp.
__device__ __forceinline__ void save_rows(uint32_t dirty, const uint32_t *tags, uint64_t first_line, uint64_t lines,
                                          uint64_t raw, uint64_t stride_bytes, uint32_t lane) {
  while (dirty != 0) {
    const uint32_t line = __ffs(dirty) - 1;
    dirty &= dirty - 1;
    const uint64_t from = lines + (first_line + line) * stride_bytes;
    const uint64_t to = raw + (tags[line] - 1) * stride_bytes;
    for (uint64_t at = lane * 16; at < stride_bytes; at += 32 * 16) store(to + at, load<16>(from + at));
  }
}

__global__ void __launch_bounds__(kThreads) flush_sets(const __grid_constant__ wmk_cache cache, uint32_t parts) {
  const bool writes_back = parts & WMK_CACHE_WRITE_BACK, drops = parts & WMK_CACHE_DROP;
  __shared__ uint32_t written, states_written;
  if (threadIdx.x == 0) written = states_written = 0;
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t first = (blockIdx.x * uint64_t{kThreads} + threadIdx.x) & ~uint64_t{31}; first < cache.set_count;
       first += uint64_t{gridDim.x} * kThreads) {
    const bool there = first + lane < cache.set_count;
    cache_set *of_set = sets_of(cache) + first + lane;
    const uint32_t dirty = there && writes_back ? of_set->dirty : 0;
    const uint32_t state_dirty = there && writes_back ? of_set->state_dirty : 0;
    uint32_t sets = __ballot_sync(0xffffffff, (dirty | state_dirty) != 0);
    if (dirty != 0) atomicAdd(&written, __popc(dirty));
    if (state_dirty != 0) atomicAdd(&states_written, __popc(state_dirty));
    while (sets != 0) {
      const uint32_t k = __ffs(sets) - 1;
      sets &= sets - 1;
      const uint64_t first_line = (first + k) * cache_set_lines;
      const auto *tags = reinterpret_cast<const uint32_t *>(tags_of(cache.tags, first + k));
      save_rows(__shfl_sync(0xffffffff, dirty, k), tags, first_line, cache.lines, cache.home, cache.stride_bytes, lane);
      save_rows(__shfl_sync(0xffffffff, state_dirty, k), tags, first_line, cache.state_lines, cache.state_home,
                cache.state_stride_bytes, lane);
    }
    if (there && (dirty | state_dirty) != 0) of_set->dirty = of_set->state_dirty = 0;
    __syncwarp();
    if (drops) {
      if (there) of_set->dirty = of_set->state_present = of_set->state_dirty = 0;
      const uint64_t end = first + 32 < cache.set_count ? first + 32 : cache.set_count;
      auto *tags = reinterpret_cast<uint32_t *>(cache.tags);
      for (uint64_t line = first * cache_set_lines + lane; line < end * cache_set_lines; line += 32) tags[line] = 0;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0 || (written | states_written) == 0) return;
  auto *head = reinterpret_cast<cache_head *>(cache.head);
  atomicAdd(reinterpret_cast<unsigned long long *>(&head->write_backs), written);
  atomicAdd(reinterpret_cast<unsigned long long *>(&head->bytes_written),
            written * cache.stride_bytes + states_written * cache.state_stride_bytes);
}

cudaError_t flush(const wmk_cache_flush_args *args, cudaStream_t stream) {
  if (args == nullptr) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, flush_sets);
  }
  if (args->cache.set_count == 0 || args->cache.stride_bytes % 16 != 0) return cudaErrorInvalidValue;
  const wmk_cache &cache = args->cache;
  if (args->parts & (WMK_CACHE_WRITE_BACK | WMK_CACHE_DROP)) {
    const uint64_t needed = (cache.set_count + kThreads - 1) / kThreads;
    const uint32_t blocks = needed < kMostBlocks ? static_cast<uint32_t>(needed) : kMostBlocks;
    flush_sets<<<blocks, kThreads, 0, stream>>>(cache, args->parts);
  }
  if (args->parts & WMK_CACHE_RESET) {
    const struct {
      uint64_t address, bytes;
    } all[] = {{cache.tags, cache.set_count * cache_set_lines * sizeof(uint32_t)},
               {cache.head, sizeof(cache_head)},
               {cache.sets, cache.set_count * sizeof(cache_set)},
               {cache.sketch, cache.sketch_words * sizeof(uint64_t)}};
    for (const auto &memory : all) {
      const cudaError_t code = cudaMemsetAsync(reinterpret_cast<void *>(memory.address), 0, memory.bytes, stream);
      if (code != cudaSuccess) return code;
    }
  }
  return cudaGetLastError();
}

}  // namespace

}  // namespace wmk

int wmk_cache_flush(const wmk_cache_flush_args *args, wmk_stream stream) { return wmk::told(wmk::flush(args, stream)); }
