// Ids brought together by row, rows dealt by round robin and values set, against references on the host.

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

template <class Id>
bool map_case(Random &random, uint64_t block_rows, uint64_t ranks, uint64_t rows) {
  const int64_t count = 3000;
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
  for (uint64_t rows : {1, 2, 1000, 99999}) {
    for (uint64_t block : {1, 3, 64, 100000}) {
      for (uint64_t ranks : {1, 2, 3, 8}) {
        tally.count(map_case<int32_t>(random, block, ranks, rows));
        tally.count(map_case<int64_t>(random, block, ranks, rows));
      }
    }
  }
  tally.count(map_case<int64_t>(random, 1000003, 7, uint64_t{1} << 40));
  for (uint64_t count : {0, 1, 255, 256, 257, 3000001}) tally.count(set_case(count));
}
