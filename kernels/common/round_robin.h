// Where round robin puts the rows of a table. src/platform/learning.rs has the same in Rust; a test compares the two.
#pragma once

#include "define.h"

namespace wmk {

// Rows are dealt to the ranks in blocks of `block_rows`; the rows of rank k are numbered from k * rank_rows. `rows` are dealt.
struct round_robin {
  uint64_t block_rows;
  uint64_t ranks;
  uint64_t rank_rows;
  uint64_t rows;
};

// The row of the table that holds logical row `id`; -1 for ids outside [0, rows).
WMK_FN int64_t dealt_row(const round_robin &map, int64_t id) {
  // Negative ids are beyond all rows.
  const uint64_t row = static_cast<uint64_t>(id);
  if (row >= map.rows) return -1;
  const uint64_t block = row / map.block_rows, turn = block / map.ranks, owner = block % map.ranks;
  return static_cast<int64_t>(owner * map.rank_rows + turn * map.block_rows + row % map.block_rows);
}

}  // namespace wmk
