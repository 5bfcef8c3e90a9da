// Ids for the checks of what learns: spread over the rows of a rank in several ways, some of them naming no row of it.
#pragma once

#include <algorithm>
#include <cmath>

#include "check.h"

// How ids are spread over the rows.
enum Spread { kUniform, kOneRow, kHalfOneRow, kFewRows, kSkewed, kNowhere, kSpreads };
inline const char *const spread_names[] = {"uniform",  "one row", "half of them one row",
                                           "few rows", "skewed",  "nowhere"};

// `rows` rows from first_row; rows_said where the operation is told that there are more.
struct Spreading {
  Spread spread;
  int64_t rows, count;
  uint64_t first_row, rows_said;
};

inline std::vector<int64_t> make_ids(Random &random, const Spreading &c) {
  std::vector<int64_t> ids(c.count);
  const int64_t favourite = random.below(c.rows);
  for (auto &id : ids) {
    int64_t row = random.below(c.rows);
    if (c.spread == kOneRow || (c.spread == kHalfOneRow && random.below(2))) row = favourite;
    if (c.spread == kFewRows)
      row = random.below(std::min<int64_t>(c.rows, 7)) * (c.rows / std::min<int64_t>(c.rows, 7));
    if (c.spread == kSkewed) row = static_cast<int64_t>(c.rows * std::pow(random.below(1 << 20) / double(1 << 20), 8));
    id = c.first_row + row;
    // Rows of others, and none.
    const bool stray = c.spread == kNowhere || random.below(20) == 0;
    if (stray && c.first_row > 0 && random.below(2)) {
      id = random.below(c.first_row);
    } else if (stray && (random.below(2) || c.rows_said != static_cast<uint64_t>(c.rows))) {
      id = -1 - static_cast<int64_t>(random.below(1 << 20));
    } else if (stray) {
      id = c.first_row + c.rows + random.below(1000);
    }
  }
  return ids;
}

// Asks how much scratch is needed and calls again with it.
template <class Args>
void call(int (*op)(const Args *, wmk_stream), Args &args, Device *&scratch) {
  uint64_t needed = 0;
  args.scratch = 0;
  args.needed_bytes = &needed;
  CUDA(op(&args, nullptr));
  scratch = new Device(needed);
  scratch->poison();
  args.scratch = scratch->address();
  args.scratch_bytes = needed;
  CUDA(op(&args, nullptr));
}
