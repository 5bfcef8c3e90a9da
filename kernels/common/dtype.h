// Element types, and one element from one type to another: floating types through float (so double to half and bf16
// round twice), nearest even; integers as C casts. A NaN stays a NaN, quiet, upper payload kept; the conversions of a
// GPU to and from 16 bits may give another payload.
#pragma once

#include "define.h"

namespace wmk {

// The enumerators of wholememory_dtype_t.
enum dtype : uint32_t {
  dtype_float = 1,
  dtype_half = 2,
  dtype_double = 3,
  dtype_bf16 = 4,
  dtype_int = 5,
  dtype_int64 = 6,
  dtype_int16 = 7,
  dtype_int8 = 8,
};

WMK_FN bool is_dtype(uint32_t type) { return type >= dtype_float && type <= dtype_int8; }

WMK_FN bool is_float(uint32_t type) { return type <= dtype_bf16; }

WMK_FN uint32_t dtype_bytes(uint32_t type) {
  switch (type) {
    case dtype_int8:
      return 1;
    case dtype_half:
    case dtype_bf16:
    case dtype_int16:
      return 2;
    case dtype_float:
    case dtype_int:
      return 4;
    default:
      return 8;
  }
}

struct half_bits {
  uint16_t bits;
};

struct bf16_bits {
  uint16_t bits;
};

WMK_FN float to_float(float x) { return x; }

WMK_FN float to_float(double x) { return static_cast<float>(x); }

WMK_FN float to_float(bf16_bits x) {
  uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  if ((x.bits & 0x7fffu) > 0x7f80u) bits |= 0x400000u;
  return same_bits<float>(bits);
}

WMK_FN float to_float(half_bits x) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  uint32_t exponent = (x.bits >> 10) & 0x1fu;
  uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1fu) {
    uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
    return same_bits<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    // A multiple of 2^-24: exact in float.
    float magnitude = static_cast<float>(mantissa) * same_bits<float>(0x33800000u);
    return same_bits<float>(sign | same_bits<uint32_t>(magnitude));
  }
  return same_bits<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
#endif
}

template <typename To>
struct narrow;

template <>
struct narrow<float> {
  WMK_FN static float from(float x) { return x; }
};

template <>
struct narrow<double> {
  WMK_FN static double from(float x) { return static_cast<double>(x); }
};

template <>
struct narrow<bf16_bits> {
  WMK_FN static bf16_bits from(float x) {
#if defined(__CUDA_ARCH__)
    bf16_bits value;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
    return value;
#else
    uint32_t bits = same_bits<uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
  }
};

template <>
struct narrow<half_bits> {
  WMK_FN static half_bits from(float x) {
#if defined(__CUDA_ARCH__)
    half_bits value;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
    return value;
#else
    uint32_t bits = same_bits<uint32_t>(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      return {static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
    }
    // From 65520 on everything rounds to infinity.
    if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
    if (magnitude < 0x38800000u) {
      // Below 2^-14 the result is a multiple of 2^-24: adding 0.5 in float rounds to just that, to even.
      float rounded = same_bits<float>(magnitude) + 0.5f;
      return {static_cast<uint16_t>(sign | (same_bits<uint32_t>(rounded) - 0x3f000000u))};
    }
    uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | (rounded >> 13))};
#endif
  }
};

// One element as another type of the same kind.
template <typename To, typename From>
struct convert {
  WMK_FN static To from(From x) { return narrow<To>::from(to_float(x)); }
};

template <typename T>
struct convert<T, T> {
  WMK_FN static T from(T x) { return x; }
};

#define WMK_CAST(To, From)                                       \
  template <>                                                    \
  struct convert<To, From> {                                     \
    WMK_FN static To from(From x) { return static_cast<To>(x); } \
  };
#define WMK_CASTS(A, B) WMK_CAST(A, B) WMK_CAST(B, A)
WMK_CASTS(int8_t, int16_t)
WMK_CASTS(int8_t, int32_t)
WMK_CASTS(int8_t, int64_t)
WMK_CASTS(int16_t, int32_t)
WMK_CASTS(int16_t, int64_t)
WMK_CASTS(int32_t, int64_t)
#undef WMK_CASTS
#undef WMK_CAST

}  // namespace wmk
