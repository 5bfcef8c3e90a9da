// Looking rows up in a cache: what its operations share.
#pragma once

#include "args_cache.h"
#include "common/cache.h"

namespace wmk {

constexpr uint32_t no_line = cache_set_lines;

// Where the 32 tags of a set are.
__device__ __forceinline__ uint64_t tags_of(uint64_t tags, uint64_t set) {
  return tags + set * cache_set_lines * sizeof(uint32_t);
}

// Of every lane a tag to find in the set whose tags begin at `at` (0: nothing to find): the line, or no_line. All lanes
// of the warp take part; 8 of them read a set, 4 sets at a time, all 32 in flight together.
__device__ __forceinline__ uint32_t find_lines(uint64_t at, uint32_t tag, uint32_t lane) {
  uint4 tags[8];
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const uint64_t set = __shfl_sync(0xffffffff, at, 4 * k + lane / 8);
    tags[k] = make_uint4(0, 0, 0, 0);
    if (set != 0) {
      asm("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(tags[k].x), "=r"(tags[k].y), "=r"(tags[k].z), "=r"(tags[k].w)
          : "l"(set + lane % 8 * sizeof(uint4)));
    }
  }
  uint32_t line = no_line;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const uint32_t wanted = __shfl_sync(0xffffffff, tag, 4 * k + lane / 8);
    uint32_t found = no_line;
    if (tags[k].x == wanted) found = lane % 8 * 4;
    if (tags[k].y == wanted) found = lane % 8 * 4 + 1;
    if (tags[k].z == wanted) found = lane % 8 * 4 + 2;
    if (tags[k].w == wanted) found = lane % 8 * 4 + 3;
    const uint32_t finders = __ballot_sync(0xffffffff, found != no_line) >> (lane % 4 * 8) & 0xff;
    const uint32_t finder = finders == 0 ? lane : lane % 4 * 8 + __ffs(finders) - 1;
    const uint32_t its = __shfl_sync(0xffffffff, found, finder);
    if (lane / 4 == k && finders != 0) line = its;
  }
  return at == 0 ? no_line : line;
}

// Id number i; it is read once.
__device__ __forceinline__ int64_t id_at(const void *ids, uint32_t i, bool wide) {
  return wide ? __ldcs(static_cast<const long long *>(ids) + i) : __ldcs(static_cast<const int32_t *>(ids) + i);
}

__device__ __forceinline__ cache_set *sets_of(const wmk_cache &cache) {
  return reinterpret_cast<cache_set *>(cache.sets);
}

}  // namespace wmk
