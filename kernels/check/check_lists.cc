// Lists without doubles and self loops against references on the host.

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "check.h"

namespace {

template <class Id>
bool append_case(const char *name, const std::vector<Id> &targets, const std::vector<Id> &neighbours, bool wants_map) {
  std::unordered_map<Id, int32_t> place;
  std::vector<Id> wanted = targets;
  std::vector<int32_t> wanted_map(neighbours.size());
  for (size_t i = 0; i < targets.size(); i++) place.emplace(targets[i], static_cast<int32_t>(i));
  for (size_t i = 0; i < neighbours.size(); i++) {
    const auto entry = place.emplace(neighbours[i], static_cast<int32_t>(wanted.size()));
    if (entry.second) wanted.push_back(neighbours[i]);
    wanted_map[i] = entry.first->second;
  }
  Device t(targets.size() * sizeof(Id)), n(neighbours.size() * sizeof(Id));
  t.put(targets);
  n.put(neighbours);
  Shared<uint64_t> new_ids(1);
  new_ids[0] = 77;
  wmk_append_args args{};
  args.targets = targets.empty() ? nullptr : t.as<void>();
  args.target_count = targets.size();
  args.neighbours = neighbours.empty() ? nullptr : n.as<void>();
  args.neighbour_count = neighbours.size();
  args.new_ids = new_ids.get();
  args.id_bytes = sizeof(Id);
  uint64_t needed = 0;
  args.needed_bytes = &needed;
  CUDA(wmk_append_count(&args, nullptr));
  Device scratch(needed);
  scratch.poison();
  args.scratch = scratch.address();
  args.scratch_bytes = needed;
  CUDA(wmk_append_count(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  bool right = new_ids[0] == wanted.size() - targets.size();
  if (right) {
    Device unique(wanted.size() * sizeof(Id)), map(neighbours.size() * 4);
    unique.poison();
    map.poison();
    args.unique = unique.as<void>();
    args.map = wants_map ? map.as<int32_t>() : nullptr;
    CUDA(wmk_append_write(&args, nullptr));
    CUDA(cudaDeviceSynchronize());
    right = unique.get<Id>(wanted.size()) == wanted;
    if (wants_map) right = right && map.get<int32_t>(neighbours.size()) == wanted_map;
  }
  if (!right) {
    fprintf(stderr, "WRONG append %s: %zu targets, %zu neighbours of %zu bytes: %llu new for %zu\n", name,
            targets.size(), neighbours.size(), sizeof(Id), (unsigned long long)new_ids[0],
            wanted.size() - targets.size());
  }
  return right;
}

template <class Id>
void append_cases(Tally &tally, Random &random, bool few) {
  for (int round = 0; round < (few ? 6 : 30); round++) {
    std::vector<Id> targets(random.one_of({0, 1, 100, 3000})),
        neighbours(random.one_of({0, 1, 31, 4096, 4097, few ? 9000 : 100000}));
    if (targets.empty() && neighbours.empty()) continue;
    const uint64_t range = random.one_of<uint64_t>({1, 2, 1000, 60000, 1ull << 31});
    for (auto *list : {&targets, &neighbours}) {
      for (auto &id : *list) {
        id = static_cast<Id>(random.below(range));
        if (random.below(10) == 0) id = static_cast<Id>(-static_cast<int64_t>(random.below(3)));
        if (random.below(100) == 0)
          id = random.below(2) ? std::numeric_limits<Id>::min() : std::numeric_limits<Id>::max();
      }
    }
    tally.count(append_case("random", targets, neighbours, random.below(4) != 0));
  }
  const size_t many = few ? 9000 : 300000;
  std::vector<Id> same(many, -1), distinct(many);
  for (size_t i = 0; i < distinct.size(); i++) distinct[i] = static_cast<Id>(i * 7919 - 1000000);
  tally.count(append_case("all the same", std::vector<Id>(10, 5), same, true));
  tally.count(append_case("all distinct", std::vector<Id>(10, 5), distinct, true));
  tally.count(append_case("neighbours are targets", distinct, distinct, true));
}

// Rows with `spoilt` row pointers among them get no columns, and nothing else is touched for them.
bool loops_case(Random &random, uint64_t rows, uint64_t degree, bool spoilt) {
  std::vector<int32_t> pointers{0};
  for (uint64_t r = 0; r < rows; r++) {
    pointers.push_back(pointers.back() + static_cast<int32_t>(random.below(degree + 1)) + (r == 3 ? 100000 : 0));
  }
  const uint64_t edges = pointers.back();
  if (spoilt && rows > 3) {
    pointers[0] = -5;
    pointers[rows / 2] = static_cast<int32_t>(edges) + 17;
  }
  std::vector<int32_t> columns(edges);
  for (auto &c : columns) c = static_cast<int32_t>(random.below(rows + 1));
  std::vector<int32_t> wanted_pointers(rows + 1), wanted(edges + rows, 0x5a5a5a5a);
  for (uint64_t r = 0; r <= rows; r++) wanted_pointers[r] = pointers[r] + static_cast<int32_t>(r);
  for (uint64_t r = 0; r < rows; r++) {
    const int64_t start = pointers[r], end = pointers[r + 1];
    if (start < 0 || start > end || end > static_cast<int64_t>(edges)) continue;
    wanted[start + r] = static_cast<int32_t>(r);
    std::copy(columns.begin() + start, columns.begin() + end, wanted.begin() + start + r + 1);
  }
  Device p(pointers.size() * 4), c(edges * 4), p_out(pointers.size() * 4), c_out(wanted.size() * 4);
  p.put(pointers);
  c.put(columns);
  p_out.poison();
  c_out.put(std::vector<int32_t>(wanted.size(), 0x5a5a5a5a));
  const wmk_self_loops_args args{p.as<int32_t>(),    rows, c.as<int32_t>(), edges, p_out.as<int32_t>(),
                                 c_out.as<int32_t>()};
  CUDA(wmk_self_loops(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  const bool right = p_out.get<int32_t>(rows + 1) == wanted_pointers && c_out.get<int32_t>(wanted.size()) == wanted;
  if (!right)
    fprintf(stderr, "WRONG self loops: %llu rows, degree %llu, spoilt %d\n", (unsigned long long)rows,
            (unsigned long long)degree, spoilt);
  return right;
}

}  // namespace

void check_lists(Tally &tally, Size size) {
  const bool few = size == Size::few;
  Random random{77};
  append_cases<int32_t>(tally, random, few);
  append_cases<int64_t>(tally, random, few);
  // Ids of more than 32 bits that look alike in a slot of the table, among some that need no more.
  std::vector<int64_t> alike(few ? 12000 : 200000);
  for (auto &id : alike) {
    const uint64_t high = random.below(4);
    const uint32_t low = static_cast<uint32_t>(random.below(3000)) ^ static_cast<uint32_t>(high * 0x9e3779b1u);
    id = static_cast<int64_t>(high << 32 | low);
  }
  tally.count(append_case("alike", std::vector<int64_t>(alike.begin(), alike.begin() + 1000), alike, true));
  if (size == Size::all) {
    std::vector<int64_t> targets(200000), neighbours(3300000);
    for (auto &id : targets) id = random.below(2000000);
    for (auto &id : neighbours) id = random.below(2000000);
    tally.count(append_case("large", targets, neighbours, true));
  }
  for (const uint64_t rows : {0, 1, 4, 255, 256, 257, 20000}) {
    for (const uint64_t degree : {0, 3, 40}) {
      if (few && (rows == 255 || rows == 256 || rows > 257 || (degree == 3) != (rows == 4))) continue;
      tally.count(loops_case(random, rows, degree, false));
      tally.count(loops_case(random, rows, degree, true));
    }
  }
}
