// The rules of the samplers: which stream of numbers an item or a neighbour draws from, and how weights decide. A
// sampler's stream of center i and thread t of T is subsequence i * T + t.
#pragma once

#include <math.h>

#include "pcg.h"

namespace wmk {

// Unweighted: up to so many items are drawn one by one; item x belongs to thread x mod T and is its draw x div T.
// Beyond, neighbours take the places of others; neighbour y belongs to thread (y - most) mod 32.
constexpr uint32_t most_items = 1024;

// T of an unweighted sampling of `most`, at least 1.
WMK_FN uint32_t unweighted_threads(uint32_t most) {
  const uint32_t k = (most - 1) / 32;
  if (k <= 2 || most > most_items) return 32;
  if (k <= 5) return 64;
  if (k <= 11) return 128;
  return 256;
}

// T of a weighted sampling; neighbour y belongs to thread y mod T and is its element y div T.
WMK_FN uint32_t weighted_threads(uint32_t most) { return most <= 256 ? 128 : 256; }

// What a number of draws does to a state s: s * factor + increment * sum.
struct leap {
  uint64_t factor;
  uint64_t sum;

  // This one, then another.
  WMK_FN leap then(leap other) const { return {factor * other.factor, sum * other.factor + other.sum}; }

  WMK_FN static leap none() { return {1, 0}; }
  WMK_FN static leap one() { return {pcg::multiplier, 1}; }

  WMK_FN static leap of(uint64_t draws) {
    leap all = none(), step = one();
    for (; draws > 0; draws >>= 1) {
      if (draws & 1) all = all.then(step);
      step = step.then(step);
    }
    return all;
  }
};

// The stream `subsequence` of `seed`; `skipped` is leap::of(subsequence).
WMK_FN pcg stream_of(uint64_t seed, uint64_t subsequence, leap skipped) {
  pcg stream;
  stream.increment = 2 * subsequence + 1;
  stream.state = (stream.increment + seed) * pcg::multiplier + stream.increment;
  stream.state = stream.state * skipped.factor + stream.increment * skipped.sum;
  return stream;
}

// The next -u, u in (0, 1] with the small ones as fine as a float can tell.
WMK_FN float minus_uniform(pcg &stream) {
  // A half and half of a fraction of 24 bits: 25 bits, rounded to a float.
  const float half_to_one = static_cast<float>((1u << 24) + (stream.u32() >> 8)) * (1.0f / (1 << 25));
  int halvings = 0;
  uint64_t bits = stream.u64();
  while (bits == 0) {
    halvings += 64;
    bits = stream.u64();
  }
#if defined(__CUDA_ARCH__)
  halvings += __clzll(static_cast<long long>(bits));
#else
  halvings += __builtin_clzll(bits);
#endif
  // A power of two that a float has, as nearly always, takes a product.
  if (halvings < 64) return half_to_one * -same_bits<float>(static_cast<uint32_t>(127 - halvings) << 23);
  return -ldexpf(half_to_one, -halvings);
}

// How a neighbour of weight `weight` fares with its number of minus_uniform: lower is taken first, of equals the one
// that comes first among the neighbours. Keys, log2(1 - u) / weight, are at most 0, so the rank is the key's magnitude;
// a key that is no number counts as the worst. Weights that are not above 0 come after all others.
template <class T>
WMK_FN uint32_t weighted_rank(T weight, float minus_u) {
  constexpr uint32_t infinite = 0x7f800000u;
  if (!(weight > 0)) return UINT32_MAX;
  // The logarithm of 2 as a float has it.
  const float key = log1pf(minus_u) / 0.693147182f * (1.0f / static_cast<float>(weight));
  return key == key ? same_bits<uint32_t>(key) & 0x7fffffffu : infinite;
}

}  // namespace wmk
