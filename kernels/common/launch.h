// How wide a kernel over rows is started. Pure; the tests hold the table.
#pragma once

#include "define.h"

namespace wmk {

constexpr uint32_t row_kernel_threads = 256;

// The largest power of two, at most 16, that divides all of `bits` (addresses, strides, lengths, combined by or).
WMK_FN uint32_t access_bytes(uint64_t bits)
{
  uint64_t lowest = bits & (0 - bits);
  return lowest == 0 || lowest > 16 ? 16 : static_cast<uint32_t>(lowest);
}

struct row_launch {
  // A power of two of lanes works on a row.
  uint32_t lanes_per_row;
  uint32_t blocks;
};

// `steps`: accesses a row takes; `rows_in_flight`: rows a group of lanes loads before it stores the first;
// `most_blocks`: what fills the device. At least one block.
WMK_FN row_launch launch_rows(uint64_t rows, uint64_t steps, uint32_t rows_in_flight, uint32_t most_blocks)
{
  uint32_t lanes = 1;
  while (lanes < 32 && lanes < steps) {
    lanes *= 2;
  }
  uint64_t rows_per_block = static_cast<uint64_t>(row_kernel_threads / lanes) * rows_in_flight;
  uint64_t blocks         = (rows + rows_per_block - 1) / rows_per_block;
  if (blocks > most_blocks) blocks = most_blocks;
  if (blocks < 1) blocks = 1;
  return {lanes, static_cast<uint32_t>(blocks)};
}

}  // namespace wmk
