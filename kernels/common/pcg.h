// The generator of the samplers: one stream of numbers per (seed, subsequence).
#pragma once

#include "define.h"

namespace wmk {

// `subsequence` draws at once, for every seed: h to that power, and the sum of the powers of h below it (h is the
// multiplier of the generator).
struct pcg_jump {
  static constexpr uint64_t multiplier = 6364136223846793005ull;

  uint64_t subsequence;
  uint64_t factor;
  uint64_t sum;

  // In at most 64 steps.
  static WMK_FN pcg_jump of(uint64_t subsequence) {
    pcg_jump all = {0, 1, 0}, power = {1, multiplier, 1};
    for (uint64_t left = subsequence; left > 0; left >>= 1) {
      if (left & 1) all = all.then(power);
      power = power.then(power);
    }
    return all;
  }

  // This jump and another behind it: that of the sum of their subsequences.
  WMK_FN pcg_jump then(const pcg_jump &other) const {
    return {subsequence + other.subsequence, factor * other.factor, sum * other.factor + other.sum};
  }
};

struct pcg {
  static constexpr uint64_t multiplier = pcg_jump::multiplier;

  uint64_t state;
  uint64_t increment;

  // The stream `jump.subsequence` of `seed`, skipped ahead by as many draws.
  WMK_FN pcg(uint64_t seed, const pcg_jump &jump) : increment(2 * jump.subsequence + 1) {
    state = ((increment + seed) * multiplier + increment) * jump.factor + increment * jump.sum;
  }

  WMK_FN pcg(uint64_t seed, uint64_t subsequence) : pcg(seed, pcg_jump::of(subsequence)) {}

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

  // In [-1, 0), every binary order of magnitude half as likely as the one above it. Three draws of 32 bits, two more for
  // every 64 bits that are all 0.
  WMK_FN float negative_uniform() {
    float u = -(0.5f + 0.5f * f32());
    uint64_t bits;
    for (bits = u64(); bits == 0; bits = u64()) u *= 0x1p-64f;
    uint32_t halvings = 0;
    for (; !(bits >> 63); bits <<= 1) halvings++;
    return u * same_bits<float>((127 - halvings) << 23);
  }
};

}  // namespace wmk
