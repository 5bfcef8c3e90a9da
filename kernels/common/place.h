// Where a row of a table is: its owner, found by a product where all ranks have equally many rows, else by search.
#pragma once

#include "define.h"

namespace wmk {

// The high half of a product.
WMK_FN uint64_t high_product(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// ceil(2^64 / part) where all owners but the last ones have `part` rows, more than one; 0 where they have not.
// `start_rows`: owners + 1 values ascending from 0.
WMK_FN uint64_t equal_parts_reciprocal(const uint64_t *start_rows, uint64_t owners) {
  const uint64_t part = start_rows[1], end = start_rows[owners];
  if (part < 2) return 0;
  for (uint64_t k = 0; k <= owners; k++) {
    const uint64_t start = k <= end / part ? k * part : end;
    if (start_rows[k] != start) return 0;
  }
  return UINT64_MAX / part + 1;
}

// The k in [0, owners) with start_rows[k] <= row < start_rows[k + 1]; `row` is below start_rows[owners].
// `reciprocal` as equal_parts_reciprocal has it.
WMK_FN uint32_t owner_of(const uint64_t *start_rows, uint32_t owners, uint64_t reciprocal, uint64_t row) {
  if (reciprocal != 0) {
    // The reciprocal is rounded up, so the product is right or one too high.
    const uint32_t guess = static_cast<uint32_t>(high_product(row, reciprocal));
    return guess - (row < start_rows[guess] ? 1 : 0);
  }
  uint32_t low = 0, high = owners;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (start_rows[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The places of a table's rows; travels by value as a part of a kernel's argument. `most`: room for so many ranks.
template <int most>
struct places {
  uint64_t start_rows[most + 1];
  // Row r of rank k begins at base[k] + r * stride_bytes.
  uint64_t base[most];
  uint64_t stride_bytes;
  uint64_t rows;
  uint64_t reciprocal;
  uint32_t ranks;
};

// The rooms that kernels are compiled for: one place needs no search, and few travel faster than many.
constexpr int one_place = 1;
constexpr int few_places = 16;
constexpr int many_places = 512;

struct found_row {
  uint64_t address;
  // There are rows before and behind it in the same memory.
  bool interior;
};

// `id` is below the table's rows.
template <int most>
WMK_FN found_row find_row(const places<most> &table, uint64_t id) {
  uint32_t owner = 0;
  if (most > one_place) owner = owner_of(table.start_rows, table.ranks, table.reciprocal, id);
  found_row row;
  row.address = table.base[owner] + id * table.stride_bytes;
  row.interior = id > table.start_rows[owner] && id + 1 < table.start_rows[owner + 1] && id + 1 < table.rows;
  return row;
}

// Row r of rank k begins at bases[k] + offset_bytes + (r - start_rows[k]) * stride_bytes. One rank may come without
// start_rows, its rows begin with 0 then.
template <int most>
inline places<most> pack_places(const uint64_t *bases, const uint64_t *start_rows, uint64_t ranks,
                                uint64_t offset_bytes, uint64_t stride_bytes, uint64_t rows) {
  places<most> table = {};
  table.ranks = static_cast<uint32_t>(ranks);
  table.stride_bytes = stride_bytes;
  table.rows = rows;
  if (start_rows == nullptr) {
    table.base[0] = bases[0] + offset_bytes;
    table.start_rows[1] = rows;
    return table;
  }
  for (uint64_t k = 0; k < ranks; k++) {
    table.base[k] = bases[k] + offset_bytes - start_rows[k] * stride_bytes;
  }
  for (uint64_t k = 0; k <= ranks; k++) {
    table.start_rows[k] = start_rows[k];
  }
  table.reciprocal = equal_parts_reciprocal(start_rows, ranks);
  return table;
}

}  // namespace wmk
