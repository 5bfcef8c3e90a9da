// The generator of the samplers: one stream of numbers per (seed, subsequence).
#pragma once

#include "define.h"

namespace wmk {

struct pcg {
  static constexpr uint64_t multiplier = 6364136223846793005ull;

  uint64_t state;
  uint64_t increment;

  pcg() = default;

  // The stream `subsequence` of `seed`, skipped ahead by `subsequence` draws.
  WMK_FN pcg(uint64_t seed, uint64_t subsequence) : increment(2 * subsequence + 1) {
    state = (increment + seed) * multiplier + increment;
    skip(subsequence);
  }

  // Advances by `draws` draws of 32 bits, in at most 64 steps.
  WMK_FN void skip(uint64_t draws) {
    uint64_t factor = multiplier, summand = increment;
    for (; draws > 0; draws >>= 1) {
      if (draws & 1) state = state * factor + summand;
      summand *= factor + 1;
      factor *= factor;
    }
  }

  WMK_FN uint32_t u32() {
    uint64_t old = state;
    state = old * multiplier + increment;
    uint32_t mixed = static_cast<uint32_t>(((old >> 18) ^ old) >> 27);
    uint32_t turn = static_cast<uint32_t>(old >> 59);
    return (mixed >> turn) | (mixed << (-turn & 31u));
  }

  WMK_FN uint64_t u64() {
    uint64_t low = u32();
    return low | static_cast<uint64_t>(u32()) << 32;
  }

  // A non-negative INT.
  WMK_FN int32_t i31() { return static_cast<int32_t>(u32() & 0x7fffffffu); }

  // A non-negative INT64.
  WMK_FN int64_t i63() { return static_cast<int64_t>(u64() & 0x7fffffffffffffffull); }

  // A multiple of 2^-24 in [0, 1).
  WMK_FN float f32() { return static_cast<float>(u32() >> 8) * (1.0f / (1 << 24)); }
};

}  // namespace wmk
