// Where the rows of a table are: in one range, or in a range a rank.
#pragma once

#include "define.h"

namespace wmk {

// The k in [0, owners) with start_rows[k] <= row < start_rows[k + 1]; `row` is below start_rows[owners].
WMK_FN uint32_t owner_of(const uint64_t* start_rows, uint32_t owners, uint64_t row)
{
  uint32_t low = 0, high = owners;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (start_rows[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct places {
  // The one range, if `ranks` is 0.
  uint64_t base;
  // Else a base a rank, and ranks + 1 first rows, ascending from 0.
  const uint64_t* bases;
  const uint64_t* start_rows;
  uint32_t ranks;
  // Added to every row's address: the column window.
  uint64_t offset_bytes;
  uint64_t row_stride_bytes;
  uint64_t rows;
};

// The address of row `id`; 0 for ids outside [0, rows), so also for negative ones (as unsigned values they are large).
WMK_FN uint64_t row_address(const places& table, uint64_t id)
{
  if (id >= table.rows) return 0;
  uint64_t base = table.base, local = id;
  if (table.ranks != 0) {
    uint32_t owner = owner_of(table.start_rows, table.ranks, id);
    base           = table.bases[owner];
    local          = id - table.start_rows[owner];
  }
  return base + table.offset_bytes + local * table.row_stride_bytes;
}

}  // namespace wmk
