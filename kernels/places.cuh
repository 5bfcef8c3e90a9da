// Where a row of a table is: its owner, found by a product where all ranks have equally many rows, else by search.
#pragma once

#include "args.h"

namespace wmk {

// Travels by value as a kernel argument; kMost is the room for ranks.
template <int kMost>
struct Places {
  uint64_t first_row[kMost + 1];
  // Row r of rank k begins at base[k] + r * stride_bytes.
  uint64_t base[kMost];
  uint64_t stride_bytes;
  uint64_t rows;
  // ceil(2^64 / rows of a rank) where all ranks but the last ones have equally many; 0 where they have not.
  uint64_t reciprocal;
  uint32_t count;
};

// The rooms that kernels are compiled for: one place needs no search, and few travel faster than many.
constexpr int kOnePlace = 1;
constexpr int kFewPlaces = 16;
constexpr int kManyPlaces = WMK_MAX_PLACES;

inline uint64_t equal_parts_reciprocal(const uint64_t* starts, uint64_t parts) {
  const uint64_t part = starts[1] - starts[0], end = starts[parts];
  if (part < 2) return 0;
  for (uint64_t k = 0; k <= parts; k++) {
    const uint64_t start = k <= end / part ? k * part : end;
    if (starts[k] != (start < end ? start : end)) return 0;
  }
  return UINT64_MAX / part + 1;
}

template <int kMost>
Places<kMost> pack(const wmk_table& table) {
  Places<kMost> places{};
  places.count = static_cast<uint32_t>(table.places);
  places.stride_bytes = table.stride_bytes;
  places.rows = table.rows;
  if (table.places == 1) {
    const uint64_t first = table.start_rows ? table.start_rows[0] : 0;
    places.base[0] = table.bases[0] + table.offset_bytes - first * table.stride_bytes;
    places.first_row[0] = first;
    places.first_row[1] = table.rows;
    return places;
  }
  for (uint64_t k = 0; k < table.places; k++) {
    places.base[k] = table.bases[k] + table.offset_bytes - table.start_rows[k] * table.stride_bytes;
    places.first_row[k] = table.start_rows[k];
  }
  places.first_row[table.places] = table.start_rows[table.places];
  places.reciprocal = equal_parts_reciprocal(table.start_rows, table.places);
  return places;
}

#ifdef __CUDACC__

// The k with first_row[k] <= id < first_row[k + 1], for an id below the last of them.
__device__ __forceinline__ uint32_t owner_of(const uint64_t* first_row, uint32_t count, uint64_t reciprocal, uint64_t id) {
  if (reciprocal != 0) {
    // The reciprocal is rounded up, so the product is right or one too high.
    const uint32_t guess = static_cast<uint32_t>(__umul64hi(id, reciprocal));
    return guess - (id < first_row[guess] ? 1 : 0);
  }
  uint32_t low = 0, high = count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (first_row[middle] <= id) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Found {
  uint64_t address;
  // The row has neighbours on both sides in the same memory.
  bool interior;
};

template <int kMost>
__device__ __forceinline__ Found find(const Places<kMost>& places, uint64_t id) {
  uint32_t owner = 0;
  if constexpr (kMost > 1) owner = owner_of(places.first_row, places.count, places.reciprocal, id);
  Found found;
  found.address = places.base[owner] + id * places.stride_bytes;
  found.interior = id > places.first_row[owner] && id + 1 < places.first_row[owner + 1] && id + 1 < places.rows;
  return found;
}

#endif  // __CUDACC__

}  // namespace wmk
