// The C face of gather.cu. Rust declares the same struct.
#pragma once

#include <stdint.h>

// output[i] = convert(table[ids[i]]) for i in [0, count); ids outside [0, rows) leave their output row as it is.
// All addresses are the device's. Rows may have any alignment that is a multiple of their element size.
typedef struct wmk_gather_args {
  // The one range of the table, if `ranks` is 0; else a base a rank and ranks + 1 first rows (device arrays).
  uint64_t base;
  const uint64_t* bases;
  const uint64_t* start_rows;
  uint32_t ranks;
  uint32_t table_dtype;
  uint64_t offset_bytes;
  uint64_t table_stride_bytes;
  uint64_t rows;
  uint64_t cols;
  // The lowest set bit of this one divides every base; only alignment is taken from it.
  uint64_t base_alignment_bits;
  uint64_t ids;
  uint64_t count;
  uint32_t ids_dtype;
  uint32_t output_dtype;
  uint64_t output;
  uint64_t output_stride_bytes;
  // Blocks of 256 threads that fill the device, at least 1.
  uint32_t most_blocks;
  uint32_t reserved;
} wmk_gather_args;
