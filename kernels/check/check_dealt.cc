// Rows dealt to ranks in turn, against a deal block by block on the host; floats that are all set to one value.

#include <algorithm>
#include <map>

#include "../args_learning.h"
#include "check.h"

namespace {

template <class Id>
bool map_case(Random &random, int64_t count, uint64_t block_rows, uint64_t ranks, uint64_t rows) {
  const uint64_t whole = block_rows * ranks;
  wmk_map_rows_args args{};
  args.count = count;
  args.block_rows = block_rows;
  args.ranks = ranks;
  args.rows = rows;
  args.rank_rows = rows / whole * block_rows + std::min(rows % whole, block_rows);
  std::vector<Id> ids(count);
  for (auto &id : ids) {
    id = static_cast<Id>(random.below(8) == 0 ? rows + random.below(1000) : random.below(rows));
    if (random.below(8) == 0) id = static_cast<Id>(-1 - static_cast<int64_t>(random.below(100)));
  }
  Device in(count * sizeof(Id)), out(count * 8);
  in.put(ids);
  out.poison();
  args.ids = in.as<void>();
  args.mapped = out.as<int64_t>();
  args.id_bytes = sizeof(Id);
  CUDA(wmk_map_rows(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  const auto got = out.get<int64_t>(count);
  // By walking through the blocks of rows as they are dealt out.
  bool right = true;
  std::map<int64_t, int64_t> place;
  if (rows <= 100000) {
    std::vector<int64_t> dealt(ranks, 0);
    for (uint64_t g = 0; g < rows; g++) {
      const uint64_t owner = g / block_rows % ranks;
      place[g] = owner * args.rank_rows + dealt[owner]++;
    }
  }
  for (int64_t i = 0; i < count; i++) {
    const int64_t id = ids[i];
    const bool named = id >= 0 && static_cast<uint64_t>(id) < rows;
    int64_t want = -1;
    if (named && rows <= 100000) {
      want = place[id];
    } else if (named) {
      const int64_t block = id / static_cast<int64_t>(block_rows);
      want = static_cast<int64_t>(block % ranks * args.rank_rows + block / ranks * block_rows + id % block_rows);
    }
    right = right && got[i] == want;
  }
  if (!right) {
    fprintf(stderr, "WRONG map: blocks of %llu rows, %llu ranks, %llu rows\n",
            static_cast<unsigned long long>(block_rows), static_cast<unsigned long long>(ranks),
            static_cast<unsigned long long>(rows));
  }
  return right;
}

bool set_case(uint64_t count) {
  Device out((count + 8) * 4);
  out.poison();
  wmk_set_args args{};
  args.values = out.address();
  args.count = count;
  args.value = 1.25f;
  CUDA(wmk_set(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  const auto got = out.get<float>(count);
  const auto behind = out.get<uint32_t>(count + 8);
  bool right = true;
  for (uint64_t i = 0; i < count; i++) right = right && got[i] == 1.25f;
  for (uint64_t i = count; i < count + 8; i++) right = right && behind[i] == 0xa5a5a5a5;
  if (!right) fprintf(stderr, "WRONG set of %llu floats\n", static_cast<unsigned long long>(count));
  return right;
}

}  // namespace

void check_dealt(Tally &tally, Size size) {
  Random random{2025};
  const bool few = size == Size::few;
  const int64_t count = few ? 300 : 3000;
  for (uint64_t rows : {1, 2, 1000, 99999}) {
    for (uint64_t block : {1, 3, 64, 100000}) {
      for (uint64_t ranks : {1, 2, 3, 8}) {
        if (few && (rows == 2 || rows > 1000 || block == 1 || block == 64 || ranks == 1 || ranks == 8)) continue;
        tally.count(map_case<int32_t>(random, count, block, ranks, rows));
        tally.count(map_case<int64_t>(random, count, block, ranks, rows));
      }
    }
  }
  tally.count(map_case<int64_t>(random, count, 1000003, 7, uint64_t{1} << 40));
  for (uint64_t floats : {0, 1, 255, 256, 257, few ? 5001 : 3000001}) tally.count(set_case(floats));
}
