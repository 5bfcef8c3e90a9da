// What both platforms must agree on to sample the same neighbours: which thread of the published layouts draws which
// number, and how keys of weights are compared.
#pragma once

#include "define.h"
#include "pcg.h"

#include <math.h>

namespace wmk {

// Numbers for one center: thread t of `threads` draws `items` of them from the subsequence position * threads + t; draw
// j of thread t is number j * threads + t.
struct draw_layout {
  uint32_t threads;
  uint32_t items;
};

// The most that the first rule of unweighted sampling takes; above it the reservoir.
constexpr uint32_t most_shuffled = 1024;

// Unweighted, `most` in [1, most_shuffled].
WMK_FN draw_layout shuffle_layout(uint32_t most) {
  const uint32_t step = (most - 1) / 32;
  if (step < 3) return {32, step + 1};
  if (step < 4) return {64, 2};
  if (step < 6) return {64, 3};
  if (step < 8) return {128, 2};
  if (step < 12) return {128, 3};
  if (step < 16) return {256, 2};
  return {256, step < 24 ? 3u : 4u};
}

// Unweighted above most_shuffled: thread t draws for neighbours most + t, most + t + threads and so on.
constexpr uint32_t reservoir_threads = 32;

// Weighted: thread t draws keys for neighbours t, t + threads and so on.
WMK_FN uint32_t weighted_threads(uint32_t most) { return most <= 256 ? 128 : 256; }

// The key of a neighbour of this weight (a DOUBLE rounded to float); neighbours of larger keys come first.
WMK_FN float weight_key(pcg &numbers, float weight) {
  const float ln2 = 0x1.62e43p-1f;
  return (log1pf(numbers.negative_uniform()) / ln2) * (1.0f / weight);
}

// Keys as integers that compare like them; 0 for neighbours that come behind all others because their weight is not
// above 0. A key that is not a number counts as the lowest. Of equal ones the lower neighbour comes first.
WMK_FN uint32_t key_order(float key, bool positive) {
  if (!positive) return 0;
  const uint32_t bits = key == key ? same_bits<uint32_t>(key) : 0xff800000u;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

}  // namespace wmk
