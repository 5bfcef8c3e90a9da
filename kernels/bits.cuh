// Words of 1 to 16 bytes in registers: loads and stores of global memory, and windows into two of them side by side.
#pragma once

#include <stdint.h>
#include <string.h>

namespace wmk {

// kBytes (1, 2, 4, 8, 16) in registers; words of less than 4 bytes fill the low end of one.
template <int kBytes>
struct Bits {
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  uint32_t word[kWords];
};

// What passes through the caches leaves them first: rows that fill them without being read again soon. Else such rows drive
// out of the L2 cache what addresses of the host's memory are translated by, and reads of it take half as long again. Loads
// do it too, not only stores.
template <int kBytes, bool kPasses = false>
__device__ __forceinline__ Bits<kBytes> load(uint64_t address) {
  Bits<kBytes> b;
  if constexpr (kBytes == 16) {
    if constexpr (kPasses) {
      asm("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
          : "l"(address));
    } else {
      asm("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
          : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
          : "l"(address));
    }
  } else if constexpr (kBytes == 8) {
    if constexpr (kPasses) {
      asm("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(b.word[0]), "=r"(b.word[1]) : "l"(address));
    } else {
      asm("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(b.word[0]), "=r"(b.word[1]) : "l"(address));
    }
  } else if constexpr (kBytes == 4) {
    if constexpr (kPasses) {
      asm("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    } else {
      asm("ld.global.u32 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    }
  } else if constexpr (kBytes == 2) {
    if constexpr (kPasses) {
      asm("ld.global.L1::no_allocate.u16 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    } else {
      asm("ld.global.u16 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    }
  } else {
    static_assert(kBytes == 1, "1, 2, 4, 8 or 16 bytes");
    if constexpr (kPasses) {
      asm("ld.global.L1::no_allocate.u8 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    } else {
      asm("ld.global.u8 %0, [%1];" : "=r"(b.word[0]) : "l"(address));
    }
  }
  return b;
}

template <bool kPasses = false>
__device__ __forceinline__ void store(uint64_t address, const Bits<16> &b) {
  if constexpr (kPasses) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(b.word[0]), "r"(b.word[1]),
                 "r"(b.word[2]), "r"(b.word[3]));
  } else {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(b.word[0]), "r"(b.word[1]),
                 "r"(b.word[2]), "r"(b.word[3]));
  }
}
template <bool kPasses = false>
__device__ __forceinline__ void store(uint64_t address, const Bits<8> &b) {
  if constexpr (kPasses) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(b.word[0]), "r"(b.word[1]));
  } else {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(b.word[0]), "r"(b.word[1]));
  }
}
template <bool kPasses = false>
__device__ __forceinline__ void store(uint64_t address, const Bits<4> &b) {
  if constexpr (kPasses) {
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  } else {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  }
}
template <bool kPasses = false>
__device__ __forceinline__ void store(uint64_t address, const Bits<2> &b) {
  if constexpr (kPasses) {
    asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  } else {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  }
}
template <bool kPasses = false>
__device__ __forceinline__ void store(uint64_t address, const Bits<1> &b) {
  if constexpr (kPasses) {
    asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  } else {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "r"(b.word[0]));
  }
}

// The word that holds byte `at`; no table in memory, as an index would need.
template <int kBytes>
__device__ __forceinline__ uint32_t word_at(const Bits<kBytes> &b, uint32_t at) {
  if constexpr (kBytes <= 4) {
    return b.word[0];
  } else if constexpr (kBytes == 8) {
    return at & 4 ? b.word[1] : b.word[0];
  } else {
    const uint32_t low = at & 4 ? b.word[1] : b.word[0], high = at & 4 ? b.word[3] : b.word[2];
    return at & 8 ? high : low;
  }
}

// Stores kPart bytes of a word, those from byte `at` on, where they belong behind `address`; `at` is a multiple of kPart.
template <int kPart, bool kPasses, int kBytes>
__device__ __forceinline__ void store_part(uint64_t address, const Bits<kBytes> &b, uint32_t at) {
  if constexpr (kPart == 8) {
    store<kPasses>(address + at, Bits<8>{{word_at(b, at), word_at(b, at + 4)}});
  } else if constexpr (kPart == 4) {
    store<kPasses>(address + at, Bits<4>{{word_at(b, at)}});
  } else {
    store<kPasses>(address + at, Bits<kPart>{{word_at(b, at) >> at % 4 * 8}});
  }
}

// The first `bytes` of a word, fewer than all, at an aligned address, in as few stores as there are ones in `bytes`; a
// multiple of kUnit.
template <int kUnit, bool kPasses, int kBytes>
__device__ __forceinline__ void store_head(uint64_t address, const Bits<kBytes> &b, uint32_t bytes) {
  if constexpr (kBytes > 8) {
    if (bytes & 8) store_part<8, kPasses>(address, b, 0);
  }
  if constexpr (kBytes > 4 && kUnit <= 4) {
    if (bytes & 4) store_part<4, kPasses>(address, b, bytes & 8);
  }
  if constexpr (kBytes > 2 && kUnit <= 2) {
    if (bytes & 2) store_part<2, kPasses>(address, b, bytes & 12);
  }
  if constexpr (kBytes > 1 && kUnit == 1) {
    if (bytes & 1) store_part<1, kPasses>(address, b, bytes & 14);
  }
}

// The last `bytes` of a word, likewise; they end where the word does.
template <int kUnit, bool kPasses, int kBytes>
__device__ __forceinline__ void store_tail(uint64_t address, const Bits<kBytes> &b, uint32_t bytes) {
  if constexpr (kBytes > 1 && kUnit == 1) {
    if (bytes & 1) store_part<1, kPasses>(address, b, kBytes - bytes);
  }
  if constexpr (kBytes > 2 && kUnit <= 2) {
    if (bytes & 2) store_part<2, kPasses>(address, b, kBytes - (bytes & 14));
  }
  if constexpr (kBytes > 4 && kUnit <= 4) {
    if (bytes & 4) store_part<4, kPasses>(address, b, kBytes - (bytes & 12));
  }
  if constexpr (kBytes > 8) {
    if (bytes & 8) store_part<8, kPasses>(address, b, kBytes - 8);
  }
}

template <class T>
__device__ __forceinline__ Bits<sizeof(T)> bits_of(const T &value) {
  Bits<sizeof(T)> b;
  b.word[0] = 0;
  memcpy(&b, &value, sizeof(T));
  return b;
}

template <class T>
__device__ __forceinline__ T value_of(const Bits<sizeof(T)> &b) {
  T value;
  memcpy(&value, &b, sizeof(T));
  return value;
}

// The kBytes that begin `skip` bytes (less than kBytes) into `low` followed by `high`.
__device__ __forceinline__ Bits<16> window(const Bits<16> &low, const Bits<16> &high, uint32_t skip) {
  const uint32_t *h = high.word;
  const uint32_t w[8] = {low.word[0], low.word[1], low.word[2], low.word[3], h[0], h[1], h[2], h[3]};
  const bool two = skip & 8, one = skip & 4;
  uint32_t x[6], y[5];
#pragma unroll
  for (int i = 0; i < 6; i++) x[i] = two ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; i++) y[i] = one ? x[i + 1] : x[i];
  Bits<16> b;
#pragma unroll
  for (int i = 0; i < 4; i++) b.word[i] = __funnelshift_r(y[i], y[i + 1], skip * 8);
  return b;
}
__device__ __forceinline__ Bits<8> window(const Bits<8> &low, const Bits<8> &high, uint32_t skip) {
  const uint32_t w0 = low.word[0], w1 = low.word[1], w2 = high.word[0], w3 = high.word[1];
  const bool one = skip & 4;
  const uint32_t y0 = one ? w1 : w0, y1 = one ? w2 : w1, y2 = one ? w3 : w2;
  return {{__funnelshift_r(y0, y1, skip * 8), __funnelshift_r(y1, y2, skip * 8)}};
}
__device__ __forceinline__ Bits<4> window(const Bits<4> &low, const Bits<4> &high, uint32_t skip) {
  return {{__funnelshift_r(low.word[0], high.word[0], skip * 8)}};
}
// `low` may be a word that nobody loaded, with anything above its 2 bytes.
__device__ __forceinline__ Bits<2> window(const Bits<2> &low, const Bits<2> &high, uint32_t skip) {
  return {{(((low.word[0] & 0xffff) | high.word[0] << 16) >> (skip * 8)) & 0xffff}};
}
__device__ __forceinline__ Bits<1> window(const Bits<1> &low, const Bits<1> &, uint32_t) { return low; }

template <int kBytes>
__device__ __forceinline__ Bits<kBytes> from_next_lane(const Bits<kBytes> &b) {
  Bits<kBytes> next;
#pragma unroll
  for (int i = 0; i < Bits<kBytes>::kWords; i++) next.word[i] = __shfl_down_sync(0xffffffff, b.word[i], 1);
  return next;
}

}  // namespace wmk
