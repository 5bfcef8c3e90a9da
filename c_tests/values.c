#include <string.h>

#include "table.h"

const wm_dtype wm_dtypes[WM_DTYPES] = {
    {WHOLEMEMORY_DT_FLOAT, "FLOAT", 4, true},   {WHOLEMEMORY_DT_HALF, "HALF", 2, true},
    {WHOLEMEMORY_DT_DOUBLE, "DOUBLE", 8, true}, {WHOLEMEMORY_DT_BF16, "BF16", 2, true},
    {WHOLEMEMORY_DT_INT, "INT", 4, false},      {WHOLEMEMORY_DT_INT64, "INT64", 8, false},
    {WHOLEMEMORY_DT_INT16, "INT16", 2, false},  {WHOLEMEMORY_DT_INT8, "INT8", 1, false},
};

const wm_kind wm_kinds[WM_KINDS] = {
    {WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE, "CONTINUOUS DEVICE"},
    {WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, "CONTINUOUS HOST"},
    {WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE, "CHUNKED DEVICE"},
    {WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_HOST, "CHUNKED HOST"},
    {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE, "DISTRIBUTED DEVICE"},
    {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"},
    {WHOLEMEMORY_MT_HIERARCHY, WHOLEMEMORY_ML_DEVICE, "HIERARCHY DEVICE"},
    {WHOLEMEMORY_MT_HIERARCHY, WHOLEMEMORY_ML_HOST, "HIERARCHY HOST"},
};

const char* wm_dtype_name(wholememory_dtype_t id) {
  for (int i = 0; i < WM_DTYPES; i++)
    if (wm_dtypes[i].id == id) return wm_dtypes[i].name;
  return "?";
}

/* A float's bits from sign, exponent and mantissa, the exponent taken near the range of a half. */
static uint64_t near_half(uint64_t h, int mantissa_bits, int bias) {
  uint64_t exponent = (uint64_t)(bias - 27 + (int)((h >> 8) % 46));
  uint64_t mantissa = h >> 16 & (((uint64_t)1 << mantissa_bits) - 1);
  int to_half = mantissa_bits - 10, to_bf16 = mantissa_bits - 7;
  switch (h >> 2 & 3) {
    case 0: /* a tie of the rounding to half */
      mantissa = (mantissa >> to_half << to_half) | (uint64_t)1 << (to_half - 1);
      break;
    case 1: /* a tie of the rounding to bf16 */
      mantissa = (mantissa >> to_bf16 << to_bf16) | (uint64_t)1 << (to_bf16 - 1);
      break;
    case 2: /* just above a tie: a double loses it on the way through float */
      mantissa = (mantissa >> to_half << to_half) | (uint64_t)1 << (to_half - 1) | 1;
      break;
    default: break;
  }
  return (h & 1) << (mantissa_bits == 52 ? 63 : 31) | exponent << mantissa_bits | mantissa;
}

uint64_t wm_value(wholememory_dtype_t dtype, int64_t row, int64_t column, int salt) {
  uint64_t h = wm_hash(wm_hash((uint64_t)row, (uint64_t)column), (uint64_t)salt);
  bool any_bits = (h >> 60) == 0;
  if (dtype == WHOLEMEMORY_DT_FLOAT && !any_bits) return near_half(h, 23, 127);
  if (dtype == WHOLEMEMORY_DT_DOUBLE && !any_bits) return near_half(h, 52, 1023);
  size_t bytes = wm_bytes_of(dtype);
  return bytes == 8 ? h : h & (((uint64_t)1 << 8 * bytes) - 1);
}

static bool is_nan(wholememory_dtype_t dtype, uint64_t b) {
  switch (dtype) {
    case WHOLEMEMORY_DT_FLOAT: return (b & 0x7FFFFFFF) > 0x7F800000;
    case WHOLEMEMORY_DT_HALF: return (b & 0x7FFF) > 0x7C00;
    case WHOLEMEMORY_DT_BF16: return (b & 0x7FFF) > 0x7F80;
    case WHOLEMEMORY_DT_DOUBLE: return (b & INT64_MAX) > 0x7FF0000000000000u;
    default: return false;
  }
}

bool wm_same(wholememory_dtype_t dtype, uint64_t a, uint64_t b) {
  return a == b || (is_nan(dtype, a) && is_nan(dtype, b));
}

static float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static float half_to_float(uint32_t h) {
  uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return float_of(sign | 0x7F800000 | mantissa << 13);
  /* mantissa * 2^-24 is exact for subnormals; normals only move the exponent. */
  if (exponent == 0) return float_of(bits_of((float)mantissa * 0x1p-24f) | sign);
  return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* `keep` without its last `drop` bits, rounded to nearest, ties to even. */
static uint32_t round_off(uint32_t keep, int drop) {
  if (drop > 31) return 0;
  uint32_t half = (uint32_t)1 << (drop - 1), rest = keep & (2 * half - 1), quotient = keep >> drop;
  return quotient + (rest > half || (rest == half && (quotient & 1)));
}

static uint32_t float_to_half(float f) {
  uint32_t b = bits_of(f), sign = b >> 16 & 0x8000, magnitude = b & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;
  if (magnitude >= 0x47800000) return sign | 0x7C00;                            /* 65536 and above, infinity */
  if (magnitude >= 0x38800000) return sign | round_off(magnitude - 0x38000000, 13); /* carries into infinity by itself */
  int exponent = (int)(magnitude >> 23);
  uint32_t mantissa = (magnitude & 0x7FFFFF) | (exponent ? 0x800000 : 0);
  return sign | (exponent ? round_off(mantissa, 126 - exponent) : 0);
}

static uint32_t float_to_bf16(float f) {
  uint32_t b = bits_of(f);
  if ((b & 0x7FFFFFFF) > 0x7F800000) return b >> 16 | 0x40;
  return (b >> 31) << 15 | round_off(b & 0x7FFFFFFF, 16);
}

uint64_t wm_convert(wholememory_dtype_t from, wholememory_dtype_t to, uint64_t bits) {
  if (from == to) return bits;
  double d = 0;
  float f = 0;
  int64_t i = 0;
  switch (from) {
    case WHOLEMEMORY_DT_FLOAT: f = float_of((uint32_t)bits); break;
    case WHOLEMEMORY_DT_HALF: f = half_to_float((uint32_t)bits); break;
    case WHOLEMEMORY_DT_BF16: f = float_of((uint32_t)bits << 16); break;
    case WHOLEMEMORY_DT_DOUBLE: memcpy(&d, &bits, 8); f = (float)d; break; /* half and bf16 go through float */
    case WHOLEMEMORY_DT_INT: i = (int32_t)bits; break;
    case WHOLEMEMORY_DT_INT16: i = (int16_t)bits; break;
    case WHOLEMEMORY_DT_INT8: i = (int8_t)bits; break;
    default: i = (int64_t)bits; break;
  }
  switch (to) {
    case WHOLEMEMORY_DT_FLOAT: return bits_of(f);
    case WHOLEMEMORY_DT_HALF: return float_to_half(f);
    case WHOLEMEMORY_DT_BF16: return float_to_bf16(f);
    case WHOLEMEMORY_DT_DOUBLE: d = f; memcpy(&bits, &d, 8); return bits;
    case WHOLEMEMORY_DT_INT: return (uint32_t)i;
    case WHOLEMEMORY_DT_INT16: return (uint16_t)i;
    case WHOLEMEMORY_DT_INT8: return (uint8_t)i;
    default: return (uint64_t)i;
  }
}
