// Ids brought together by row, against what that means.

#include <map>

#include "../args_learning.h"
#include "spread.h"

namespace {

// Every position once, equal rows together and in the order of their positions, what is no row at the end, and zeros.
bool group_case(Random &random, Spread spread, int64_t rows, int64_t count, int id_bytes, bool ascends) {
  const uint64_t first_row = random.below(2) ? 0 : random.below(100000);
  const auto ids = make_ids(random, {spread, rows, count, first_row, static_cast<uint64_t>(rows)});
  Device ids_at(count * id_bytes);
  if (id_bytes == 8) {
    ids_at.put(ids);
  } else {
    ids_at.put(std::vector<int32_t>(ids.begin(), ids.end()));
  }
  uint64_t rows_at = 0, positions_at = 0, zeros_at = 0;
  wmk_group_args args{};
  args.ids = ids_at.as<void>();
  args.count = count;
  args.first_row = first_row;
  args.rows = rows;
  args.id_bytes = id_bytes;
  args.ascends = ascends;
  args.rows_at = &rows_at;
  args.positions_at = &positions_at;
  args.zeros_at = &zeros_at;
  Device *scratch = nullptr;
  call(wmk_group, args, scratch);
  CUDA(cudaDeviceSynchronize());
  const auto read = [&](uint64_t at, size_t words) {
    std::vector<uint32_t> got(words, 0xffffffff);
    if (at >= scratch->address() && at + words * 4 <= scratch->address() + scratch->bytes()) {
      CUDA(cudaMemcpy(got.data(), reinterpret_cast<void *>(at), words * 4, cudaMemcpyDeviceToHost));
    }
    return got;
  };
  const auto got = read(rows_at, count), positions = read(positions_at, count);
  const auto zeros = read(zeros_at, count / WMK_GROUP_WINDOW + 1);
  delete scratch;
  bool right = std::all_of(zeros.begin(), zeros.end(), [](uint32_t zero) { return zero == 0; });
  std::vector<bool> seen(count);
  std::map<uint32_t, int> begun;
  for (int64_t i = 0; right && i < count; i++) {
    const uint32_t position = positions[i];
    right = position < count && !seen[position];
    if (!right) break;
    seen[position] = true;
    const int64_t row = ids[position] - static_cast<int64_t>(first_row);
    const bool named = ids[position] >= 0 && row >= 0 && row < rows;
    right = got[i] == (named ? row : rows);
    if (i > 0 && got[i] == got[i - 1]) {
      right = right && positions[i - 1] < position;
    } else {
      right = right && begun[got[i]]++ == 0;
    }
    if (i > 0) right = right && got[i - 1] <= (ascends ? got[i] : rows) && !(got[i - 1] == rows && got[i] != rows);
  }
  if (!right) {
    fprintf(stderr, "WRONG group: %lld ids of %d bytes over %lld rows, %s, ascends %d\n", static_cast<long long>(count),
            id_bytes, static_cast<long long>(rows), spread_names[spread], ascends);
  }
  return right;
}

}  // namespace

void check_groups(Tally &tally) {
  Random random{77};
  for (int64_t count : {1, 2, 3, 63, 64, 1000, 2047, 2048, 2049, 5000, 70000, 524288, 524289}) {
    for (int spread = 0; spread < kSpreads; spread++) {
      if (count > 100000 && spread != kUniform && spread != kHalfOneRow) continue;
      for (bool ascends : {false, true}) {
        const int64_t rows = random.one_of<int64_t>({1, 5, 1000, 100000, 8 << 20});
        tally.count(group_case(random, static_cast<Spread>(spread), rows, count, random.below(2) ? 8 : 4, ascends));
      }
    }
  }
}
