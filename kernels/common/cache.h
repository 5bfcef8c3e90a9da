// Where a row is looked for in a cache, and the sketch of how often rows are asked for: words of 16 counters of 4 bits, of
// which a row has 4 in one word. A row's count is at least so much as its smallest counter says, but for what others
// with the same counters added, and for the halvings.
#pragma once

#include "place.h"

namespace wmk {

// Lines of a set: what a lookup compares a row with.
constexpr uint32_t cache_ways = 32;

// Bits of a row (of the rank that owns it), each a function of all of the row's.
WMK_FN uint64_t cache_hash(uint64_t row) {
  uint64_t x = (row + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The set of a row. `direct`: the cache has a line for every row.
WMK_FN uint64_t cache_set(uint64_t row, uint64_t sets, bool direct) {
  return direct ? row / cache_ways : high_product(cache_hash(row), sets);
}

// Where a row's counters are: a word, and bits that say which 4 of its 16.
struct sketch_place {
  uint64_t word;
  uint32_t picks;
};

WMK_FN sketch_place sketch_find(uint64_t row, uint64_t words) {
  const uint64_t hash = cache_hash(cache_hash(row) ^ 0x6a09e667f3bcc909ull);
  return {high_product(hash, words), static_cast<uint32_t>(hash) & 0xff};
}

WMK_FN uint32_t sketch_shift(uint32_t picks, uint32_t k) { return 16 * k + 4 * ((picks >> (2 * k)) & 3); }

// 0 to 15.
WMK_FN uint32_t sketch_estimate(uint64_t word, uint32_t picks) {
  uint32_t least = 15;
  for (uint32_t k = 0; k < 4; k++) {
    const uint32_t counter = static_cast<uint32_t>(word >> sketch_shift(picks, k)) & 15;
    least = counter < least ? counter : least;
  }
  return least;
}

// The word after one more use of a row: its smallest counters have one more. The same word where they are at their most.
WMK_FN uint64_t sketch_used(uint64_t word, uint32_t picks) {
  const uint32_t least = sketch_estimate(word, picks);
  if (least == 15) return word;
  for (uint32_t k = 0; k < 4; k++) {
    const uint32_t shift = sketch_shift(picks, k);
    if (((word >> shift) & 15) == least) word += uint64_t{1} << shift;
  }
  return word;
}

// All counters of a word halved.
WMK_FN uint64_t sketch_halved(uint64_t word) { return (word >> 1) & 0x7777777777777777ull; }

}  // namespace wmk
