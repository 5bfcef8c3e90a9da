// Tries include/wholememory/device_reference.cuh on the host: every element of many partitions, found where it lies.
#include <wholememory/device_reference.cuh>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

int failures = 0;

// Chunks of the given sizes (in elements); element i holds i.
template <typename T>
void check(const std::vector<size_t> &sizes, size_t stride_elements, bool same_chunk) {
  std::vector<std::vector<T>> chunks;
  std::vector<void *> bases;
  std::vector<size_t> offsets{0};
  size_t next = 0;
  for (size_t size : sizes) {
    std::vector<T> chunk(size);
    for (T &element : chunk) element = static_cast<T>(next++);
    chunks.push_back(chunk);
    offsets.push_back(next * sizeof(T));
  }
  for (auto &chunk : chunks) bases.push_back(chunk.data());
  const wholememory_gref_t gref = {bases.data(), offsets.data(), static_cast<int>(sizes.size()),
                                   stride_elements * sizeof(T), same_chunk};
  const wholememory::device_reference<T> table(gref);
  for (size_t i = 0; i < next; i++) {
    const size_t at = i * sizeof(T);
    const int rank = table.rank_of(i);
    if (table[i] != static_cast<T>(i) || at < offsets[rank] || at >= offsets[rank + 1]) {
      std::printf("element %zu of %zu ranks is not found\n", i, sizes.size());
      failures++;
      return;
    }
  }
}

template <typename T>
void check_all() {
  check<T>({5}, 5, true);
  check<T>({3, 3, 2}, 3, true);
  check<T>({3, 3, 0}, 3, true);
  check<T>({1, 3}, 1, false);
  check<T>({4, 4, 2}, 3, false);
  check<T>({0, 5, 0, 0, 7, 0}, 2, false);
  std::vector<size_t> many;
  unsigned state = 1;
  for (int rank = 0; rank < 73; rank++) {
    state = state * 1103515245u + 12345u;
    many.push_back((state >> 16) % 9);
    check<T>(many, 4, false);
  }
  std::vector<T> flat(7);
  for (size_t i = 0; i < flat.size(); i++) flat[i] = static_cast<T>(i);
  const wholememory_gref_t gref = {flat.data(), nullptr, 4, 0, false};
  const wholememory::device_reference<T> table(gref);
  for (size_t i = 0; i < flat.size(); i++) {
    if (table.address(i) != &flat[i] || table.rank_of(i) != 0) failures++;
  }
  table[3] = 42;
  if (flat[3] != 42) failures++;
}

}  // namespace

int main() {
  check_all<int8_t>();
  check_all<int32_t>();
  check_all<double>();
  if (failures != 0) std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
