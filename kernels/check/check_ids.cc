// The split by owner, distinct ids, reading orders and filling against references on the host.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "check.h"

namespace {

// Asks how much scratch is needed and calls again with it.
template <class Args>
void call(int (*op)(const Args *, wmk_stream), Args &args, Device *&scratch) {
  uint64_t needed = 0;
  args.scratch = 0;
  args.needed_bytes = &needed;
  CUDA(op(&args, nullptr));
  scratch = new Device(needed + 256);
  scratch->poison();
  args.scratch = scratch->address();
  args.scratch_bytes = needed;
  CUDA(op(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
}

template <class Id>
bool bucket_case(Random &random, int64_t count, int owners, int buckets, bool equal, bool open_end, uint32_t blocks) {
  const int64_t rows = 1 + static_cast<int64_t>(random.below(100000));
  std::vector<uint64_t> starts(owners + 1);
  const uint64_t part = (rows + owners - 1) / owners;
  for (int k = 1; k < owners; k++) starts[k] = equal ? std::min<uint64_t>(rows, k * part) : random.below(rows + 1);
  starts[owners] = rows;
  std::sort(starts.begin(), starts.end());
  if (open_end) starts[owners] = INT64_MAX;
  std::vector<uint32_t> bucket_of(owners);
  for (int k = 0; k < owners; k++) bucket_of[k] = buckets == owners ? k : random.below(buckets);
  std::vector<Id> ids(count);
  for (auto &id : ids) {
    const uint64_t kind = random.below(12);
    id = kind == 0 ? static_cast<Id>(-1 - static_cast<int64_t>(random.below(1000)))
                   : static_cast<Id>(random.below(rows + (kind == 1 ? 1000 : 0)));
  }
  std::vector<std::vector<int64_t>> wanted(buckets);
  for (int64_t i = 0; i < count; i++) {
    const int64_t id = ids[i];
    if (id < 0 || static_cast<uint64_t>(id) >= starts[owners]) continue;
    const int owner = static_cast<int>(std::upper_bound(starts.begin(), starts.end() - 1, static_cast<uint64_t>(id)) -
                                       starts.begin()) -
                      1;
    wanted[bucket_of[owner]].push_back(i);
  }
  Device in(count * sizeof(Id)), out(count * sizeof(Id)), positions(count * 8);
  in.put(ids);
  out.poison();
  positions.poison();
  Shared<uint64_t> counts(buckets);
  std::fill(counts.get(), counts.get() + buckets, 77);
  wmk_bucket_args args{};
  args.ids = in.as<void>();
  args.count = count;
  args.start_rows = starts.data();
  args.bucket_of_owner = bucket_of.data();
  args.owners = owners;
  args.buckets = buckets;
  args.ids_out = out.as<void>();
  args.positions = positions.as<int64_t>();
  args.counts = counts.get();
  args.id_bytes = sizeof(Id);
  args.blocks = blocks;
  Device *scratch = nullptr;
  call(wmk_bucket, args, scratch);
  delete scratch;
  const auto got_ids = out.get<Id>(count);
  const auto got_positions = positions.get<int64_t>(count);
  int64_t at = 0;
  bool right = true;
  for (int b = 0; b < buckets; b++) {
    right = right && counts[b] == wanted[b].size();
    for (int64_t i : wanted[b]) {
      right = right && got_positions[at] == i && got_ids[at] == ids[i];
      at++;
    }
  }
  // Behind the last one nothing is written.
  for (; at < count; at++) right = right && static_cast<uint64_t>(got_positions[at]) == 0xa5a5a5a5a5a5a5a5ull;
  if (!right) {
    fprintf(stderr, "WRONG bucket: %lld ids of %zu bytes, %d owners, %d buckets, equal %d, open end %d, blocks %u\n",
            static_cast<long long>(count), sizeof(Id), owners, buckets, equal, open_end, blocks);
  }
  return right;
}

template <class Id>
bool unique_case(Random &random, int64_t count, int64_t rows) {
  std::vector<Id> ids(count);
  for (auto &id : ids) id = static_cast<Id>(random.below(rows));
  uint32_t bits = 1;
  while (bits < 63 && (int64_t{1} << bits) < rows) bits++;
  std::vector<Id> wanted = ids;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  Device in(count * sizeof(Id)), out(count * sizeof(Id)), slots(count * 8);
  in.put(ids);
  out.poison();
  slots.poison();
  Shared<uint64_t> distinct(1);
  wmk_unique_args args{};
  args.ids = in.as<void>();
  args.count = count;
  args.unique = out.as<void>();
  args.slots = slots.as<int64_t>();
  args.distinct = distinct.get();
  args.id_bytes = sizeof(Id);
  args.bits = bits;
  Device *scratch = nullptr;
  call(wmk_unique, args, scratch);
  delete scratch;
  const auto got = out.get<Id>(count);
  const auto got_slots = slots.get<int64_t>(count);
  bool right = distinct[0] == wanted.size() && std::equal(wanted.begin(), wanted.end(), got.begin());
  for (int64_t i = 0; right && i < count; i++) {
    right = got_slots[i] >= 0 && got_slots[i] < static_cast<int64_t>(wanted.size()) && wanted[got_slots[i]] == ids[i];
  }
  if (!right) {
    fprintf(stderr, "WRONG unique: %lld ids of %zu bytes over %lld rows\n", static_cast<long long>(count), sizeof(Id),
            static_cast<long long>(rows));
  }
  return right;
}

template <class Id>
bool order_case(Random &random, int64_t all, int64_t rows, uint32_t shift, uint32_t bits, bool selected) {
  std::vector<Id> ids(all);
  for (auto &id : ids) id = random.below(10) == 0 ? static_cast<Id>(-5) : static_cast<Id>(random.below(rows));
  Device in(all * sizeof(Id));
  in.put(ids);
  // Every other id.
  const int64_t count = selected ? (all + 1) / 2 : all;
  std::vector<int64_t> chosen(count);
  for (int64_t i = 0; i < count; i++) chosen[i] = 2 * i;
  Device positions(count * sizeof(int64_t));
  positions.put(chosen);
  uint64_t at = 0;
  wmk_order_args args{};
  args.ids = in.as<void>();
  args.count = count;
  args.order = &at;
  args.id_bytes = sizeof(Id);
  args.shift = shift;
  args.bits = bits;
  args.positions = selected ? positions.as<int64_t>() : nullptr;
  Device *scratch = nullptr;
  call(wmk_order, args, scratch);
  const bool inside = at >= scratch->address() && at + count * 4 <= scratch->address() + scratch->bytes();
  std::vector<uint32_t> got(count);
  if (inside) CUDA(cudaMemcpy(got.data(), reinterpret_cast<void *>(at), count * 4, cudaMemcpyDeviceToHost));
  delete scratch;
  auto key = [&](uint32_t i) {
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    return static_cast<uint64_t>(int64_t{ids[i]}) >> shift & mask;
  };
  std::vector<bool> seen(all);
  bool right = inside;
  for (int64_t i = 0; right && i < count; i++) {
    right = got[i] < all && (!selected || got[i] % 2 == 0) && !seen[got[i]] && (i == 0 || key(got[i - 1]) <= key(got[i]));
    if (right) seen[got[i]] = true;
  }
  if (!right) {
    fprintf(stderr, "WRONG order: %lld ids of %zu bytes over %lld rows, bits %u from %u\n",
            static_cast<long long>(count), sizeof(Id), static_cast<long long>(rows), bits, shift);
  }
  return right;
}

template <class T, class Sum>
bool fill_case(uint32_t dtype, int64_t rows, int64_t cols, int64_t stride, Sum sum) {
  std::vector<T> input(cols);
  for (int64_t c = 0; c < cols; c++) input[c] = static_cast<T>(static_cast<float>(c % 50));
  Device in(cols * sizeof(T)), out(rows * stride * sizeof(T));
  in.put(input);
  out.poison();
  wmk_fill_args args{};
  args.input = in.as<void>();
  args.output = out.address();
  args.stride_bytes = stride * sizeof(T);
  args.rows = rows;
  args.cols = cols;
  args.dtype = dtype;
  CUDA(wmk_fill(&args, nullptr));
  CUDA(cudaDeviceSynchronize());
  const auto got = out.get<uint8_t>(rows * stride * sizeof(T));
  bool right = true;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < stride; c++) {
      T wanted;
      memset(static_cast<void *>(&wanted), 0xa5, sizeof(T));
      if (c < cols) wanted = sum(input[c], r);
      right = right && memcmp(&wanted, &got[(r * stride + c) * sizeof(T)], sizeof(T)) == 0;
    }
  }
  if (!right)
    fprintf(stderr, "WRONG fill of %s, %lld x %lld\n", dtype_name(dtype), static_cast<long long>(rows),
            static_cast<long long>(cols));
  return right;
}

// As the runtime's bf16 in values the test uses: small integers are exact.
struct Bf16 {
  uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float x) {
    uint32_t wide;
    memcpy(&wide, &x, 4);
    bits = static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t wide = uint32_t{bits} << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
  }
};

}  // namespace

void check_ids(Tally &tally, Size size) {
  Random random{99};
  const bool few = size == Size::few;
  // Few: around the sizes at which another kernel takes over, once each.
  using Counts = std::vector<int64_t>;
  for (int64_t count : few ? Counts{33, 4097} : Counts{1, 2, 31, 32, 33, 1000, 4096, 4097, 20000, 300001}) {
    for (int owners : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 100, 512, 513, 2000}) {
      if (owners > 100 && count > 20000) continue;
      if (few && owners != 1 && owners != 3 && owners != 8 && owners != 17 && owners != 513) continue;
      for (int variant = 0; variant < 4; variant++) {
        const bool equal = variant & 1, wide = variant & 2;
        const int buckets = random.below(2) ? owners : 1 + static_cast<int>(random.below(owners));
        const uint32_t blocks = random.one_of<uint32_t>({1, 3, 132, 528});
        const bool open_end = random.below(4) == 0;
        tally.count(wide ? bucket_case<int64_t>(random, count, owners, buckets, equal, open_end, blocks)
                         : bucket_case<int32_t>(random, count, owners, buckets, equal, open_end, blocks));
      }
    }
  }
  tally.count(bucket_case<int64_t>(random, 5000, WMK_MAX_BUCKETS, WMK_MAX_BUCKETS, true, false, 528));
  for (int64_t count : few ? Counts{2, 513, 8193} : Counts{1, 2, 33, 511, 512, 513, 8192, 8193, 100000, 3000000}) {
    for (int64_t rows : few ? Counts{100, 2000000000} : Counts{1, 2, 100, 100000, 2000000000}) {
      tally.count(unique_case<int32_t>(random, count, rows));
      tally.count(unique_case<int64_t>(random, count, rows > 1000000 ? rows * 1000000 : rows));
    }
  }
  for (int64_t count : few ? Counts{33, 5000} : Counts{1, 33, 5000, 200000}) {
    for (uint32_t bits : {1, 8, 12, 13, 16, 20}) {
      if (few && bits != 8 && bits != 13) continue;
      for (bool selected : {false, true}) {
        tally.count(order_case<int32_t>(random, count, 1 << 20, 20 - bits, bits, selected));
        tally.count(order_case<int64_t>(random, count, 1ll << 36, 36 - bits, bits, selected));
      }
    }
  }
  for (int64_t cols : few ? Counts{3} : Counts{1, 3, 257}) {
    for (int64_t rows : few ? Counts{100} : Counts{1, 5, 1000}) {
      const int64_t stride = cols + 2;
      tally.count(fill_case<float>(dtype_float, rows, cols, stride,
                                   [](float x, int64_t r) { return x + static_cast<float>(r); }));
      tally.count(fill_case<double>(dtype_double, rows, cols, stride,
                                    [](double x, int64_t r) { return x + static_cast<float>(r); }));
      tally.count(fill_case<_Float16>(dtype_half, rows, cols, stride, [](_Float16 x, int64_t r) {
        return static_cast<_Float16>(static_cast<float>(x) + static_cast<float>(r));
      }));
      tally.count(fill_case<Bf16>(dtype_bf16, rows, cols, stride, [](Bf16 x, int64_t r) {
        return Bf16(static_cast<float>(x) + static_cast<float>(Bf16(static_cast<float>(r))));
      }));
      tally.count(fill_case<int32_t>(dtype_int, rows, cols, stride,
                                     [](int32_t x, int64_t r) { return static_cast<int32_t>(x + r); }));
      tally.count(fill_case<int64_t>(dtype_int64, rows, cols, stride, [](int64_t x, int64_t r) { return x + r; }));
      tally.count(fill_case<int16_t>(dtype_int16, rows, cols, stride,
                                     [](int16_t x, int64_t r) { return static_cast<int16_t>(x + r); }));
      tally.count(fill_case<int8_t>(dtype_int8, rows, cols, stride,
                                    [](int8_t x, int64_t r) { return static_cast<int8_t>(x + r); }));
    }
  }
}
