// Looking rows up in a cache: what lookup, adjustment and gradient steps share.
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
      asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
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

__device__ __forceinline__ cache_set *sets_of(const wmk_cache &cache) {
  return reinterpret_cast<cache_set *>(cache.sets);
}

// Where a row of a table with a cache is to be read and written, and its optimizer states.
struct located_row {
  uint64_t address;
  uint64_t states_from;
  uint64_t states_to;
};

// The place of a row for a change: its line if it has one, which is dirty from now on. States are read from states_from
// and must all be written to states_to; the two differ where a line's states are not in the cache yet. `row` is the same
// on all lanes of the warp, which call this together; nobody else changes the row at the same time.
__device__ __forceinline__ located_row locate_for_change(const wmk_cache &cache, uint32_t row) {
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t set = cache_set_of(row, cache_hash(row), cache.set_count, cache.whole);
  const uint32_t tag = reinterpret_cast<const uint32_t *>(tags_of(cache.tags, set))[lane];
  const uint32_t found = __ballot_sync(0xffffffff, tag == row + 1);
  const uint64_t home_states = cache.state_home + row * cache.state_stride_bytes;
  if (found == 0) return {cache.home + row * cache.stride_bytes, home_states, home_states};
  const uint64_t line = set * cache_set_lines + __ffs(found) - 1;
  const uint64_t states = cache.state_lines + line * cache.state_stride_bytes;
  cache_set *of_set = sets_of(cache) + set;
  bool present = true;
  if (lane == 0) {
    // Other warps may be at other lines of the set.
    if ((of_set->dirty & found) == 0) atomicOr(&of_set->dirty, found);
    if (cache.state_lines != 0) {
      present = of_set->state_present & found;
      if (!present) atomicOr(&of_set->state_present, found);
      if ((of_set->state_dirty & found) == 0) atomicOr(&of_set->state_dirty, found);
    }
  }
  present = __shfl_sync(0xffffffff, present, 0);
  return {cache.lines + line * cache.stride_bytes, present ? states : home_states, states};
}

}  // namespace wmk
