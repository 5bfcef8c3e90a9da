// The cache of an embedding: which set a row belongs to, and how its uses are counted. Rows are numbered from 0 within
// their rank. A set has 32 lines and counts of 4 bits for them; rows without a line are counted in a sketch.
#pragma once

#include "define.h"
#include "place.h"

namespace wmk {

constexpr uint32_t cache_set_lines = 32;
// Where a count ends.
constexpr uint32_t cache_most_count = 15;

// What a rank keeps of its part of a cache, in memory of its own: a head, then a word-wise table of sets, then the
// sketch, a word a line. All zero is an empty cache.
struct cache_head {
  uint64_t lookups;
  uint64_t hits;
  uint64_t loads;
  uint64_t evictions;
  uint64_t write_backs;
  // Between table and lines, the rows of optimizer states included.
  uint64_t bytes_read;
  uint64_t bytes_written;
  uint64_t reserved[9];
};

// Bit i of a mask stands for line i.
struct cache_set {
  // Line i has bits 4 * (i % 8) and on of counts[i / 8].
  uint32_t counts[4];
  uint32_t lock;
  // The adjustment whose new lines `fresh` tells: they are no victims in it.
  uint32_t epoch;
  uint32_t fresh;
  // Lines that the table must learn of.
  uint32_t dirty;
  // Lines whose optimizer states are here, and those of them that the states' table must learn of.
  uint32_t state_present;
  uint32_t state_dirty;
  // On GPUs, of the adjustment that runs: how many rows would enter, and the last of them. 0 between adjustments.
  uint32_t candidates;
  uint32_t newest;
  uint32_t reserved[4];
};

WMK_FN uint64_t cache_hash(uint64_t row) {
  uint64_t bits = (row + 1) * UINT64_C(0x9e3779b97f4a7c15);
  bits = (bits ^ bits >> 32) * UINT64_C(0xd6e8feb86659fd93);
  return bits ^ bits >> 32;
}

// The set of a row. `whole`: every row has a line, so neighbours share sets.
WMK_FN uint64_t cache_set_of(uint64_t row, uint64_t hash, uint64_t sets, bool whole) {
  return whole ? row / cache_set_lines : high_product(hash * UINT64_C(0x9e3779b97f4a7c15), sets);
}

// The word of the sketch that counts a row.
WMK_FN uint64_t sketch_word(uint64_t hash, uint64_t words) { return high_product(hash, words); }

// The four counters of a row in its word, as the numbers of their lowest bits: one of each quarter.
WMK_FN uint32_t sketch_shift(uint64_t hash, uint32_t quarter) {
  const uint64_t bits = hash * UINT64_C(0x2545f4914f6cdd1d) >> 56;
  return 16 * quarter + 4 * static_cast<uint32_t>(bits >> 2 * quarter & 3);
}

// How often a row was used, at least; 0 to cache_most_count.
WMK_FN uint32_t sketch_estimate(uint64_t word, uint64_t hash) {
  uint32_t least = cache_most_count;
  for (uint32_t quarter = 0; quarter < 4; quarter++) {
    const uint32_t count = static_cast<uint32_t>(word >> sketch_shift(hash, quarter) & 15);
    least = count < least ? count : least;
  }
  return least;
}

// The word with no counter of the row below `count`.
WMK_FN uint64_t sketch_raised(uint64_t word, uint64_t hash, uint32_t count) {
  const uint64_t wanted = count < cache_most_count ? count : cache_most_count;
  for (uint32_t quarter = 0; quarter < 4; quarter++) {
    const uint32_t shift = sketch_shift(hash, quarter);
    if ((word >> shift & 15) < wanted) word = (word & ~(UINT64_C(15) << shift)) | wanted << shift;
  }
  return word;
}

// The word after one more use of the row: only its least counters move. The word itself once they are full.
WMK_FN uint64_t sketch_counted(uint64_t word, uint64_t hash) {
  return sketch_raised(word, hash, sketch_estimate(word, hash) + 1);
}

// Sixteen counts at once, halved: ageing.
WMK_FN uint64_t counts_halved(uint64_t word) { return word >> 1 & UINT64_C(0x7777777777777777); }

}  // namespace wmk
