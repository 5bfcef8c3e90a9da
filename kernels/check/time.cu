// Times the kernels on the current device, beside variants of them, in tables. Figures are payload GB/s unless said.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>

#include "../dispatch.cuh"
#include "device.h"

namespace {

constexpr int kRepeats = 5, kCalls = 10;
cudaStream_t stream;

// Microseconds of a call, the median of a few rows of calls.
double time_us(const std::function<void()> &call, int calls = kCalls) {
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 2; i++) call();
  std::vector<double> us;
  for (int r = 0; r < kRepeats; r++) {
    CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < calls; i++) call();
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1000 / calls);
  }
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

// Host time of a call back to back, and of a call with a synchronisation, in microseconds.
std::pair<double, double> host_us(const std::function<void()> &call) {
  auto now = [] { return std::chrono::steady_clock::now(); };
  auto us = [](auto span) { return std::chrono::duration<double, std::micro>(span).count(); };
  std::vector<double> row, single;
  for (int i = 0; i < 5; i++) call();
  CUDA(cudaStreamSynchronize(stream));
  for (int r = 0; r < 5; r++) {
    const auto begin = now();
    for (int i = 0; i < 100; i++) call();
    CUDA(cudaStreamSynchronize(stream));
    row.push_back(us(now() - begin) / 100);
  }
  for (int i = 0; i < 100; i++) {
    const auto begin = now();
    call();
    CUDA(cudaStreamSynchronize(stream));
    single.push_back(us(now() - begin));
  }
  std::sort(row.begin(), row.end());
  std::sort(single.begin(), single.end());
  return {row[row.size() / 2], single[single.size() / 2]};
}

__global__ void make_ids(int64_t *ids, uint64_t count, uint64_t rows, uint64_t seed, float zipf) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    auto mix = [](uint64_t x) {
      x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
      x = (x ^ x >> 27) * 0x94d049bb133111ebull;
      return x ^ x >> 31;
    };
    const uint64_t x = mix((i + seed) * 0x9e3779b97f4a7c15ull + 1);
    if (zipf == 0) {
      ids[i] = x % rows;
    } else {
      const double u = (x >> 11) * 0x1.0p-53;
      const double v = pow(u * (pow(double(rows), 1.0 - zipf) - 1) + 1, 1 / (1.0 - zipf));
      ids[i] = mix(uint64_t(v) * 0x9e3779b97f4a7c15ull) % rows;
    }
  }
}

__global__ void make_values(uint64_t *at, uint64_t words) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < words; i += uint64_t{gridDim.x} * blockDim.x) {
    at[i] = i * 0x9e3779b97f4a7c15ull;
  }
}

struct Shape {
  uint32_t from, to;
  int cols;
  uint64_t table_elt() const { return dtype_bytes(from); }
  uint64_t row_bytes() const { return cols * table_elt(); }
  uint64_t out_bytes() const { return cols * uint64_t(dtype_bytes(to)); }
};

wmk_rows_args arguments(const Shape &s, const uint64_t *base, uint64_t rows, const void *ids, uint64_t count,
                        uint64_t plain, uint32_t path, uint32_t access) {
  wmk_rows_args a{};
  a.table = {base, nullptr, 1, 0, s.row_bytes(), rows};
  a.ids = ids;
  a.count = count;
  a.plain = plain;
  a.plain_stride_bytes = s.out_bytes();
  a.id_bytes = 8;
  a.table_dtype = s.from;
  a.plain_dtype = s.to;
  a.path = path;
  a.access_bytes = access;
  a.cols = s.cols;
  a.blocks = UINT32_MAX;
  return a;
}

template <int kMost>
void launch_variant(Kernel<kMost> kernel, uint32_t tile, const wmk_rows_args &a) {
  Job<kMost> job{};
  job.table = pack_places<kMost>(a.table.bases, a.table.start_rows, a.table.places, a.table.offset_bytes,
                                 a.table.stride_bytes, a.table.rows);
  job.ids = a.ids;
  job.order = a.order;
  job.plain = a.plain;
  job.plain_stride_bytes = a.plain_stride_bytes;
  job.plain_rows = a.count;
  const uint32_t pieces_per_row = shape_for(a, false).pieces_per_row;
  job.by = split_of(pieces_per_row);
  job.cols = a.cols;
  job.wide_ids = a.id_bytes == 8;
  job.pieces = a.count * pieces_per_row;
  const uint32_t tiles = (job.pieces + tile - 1) / tile;
  void *parameters[] = {&job};
  CUDA(cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(std::min(a.blocks, tiles)), dim3(kThreads),
                        parameters, 0, stream));
}

#define ALIGNED(T, N, FLIGHT, BLOCKS, MOST) aligned_rows<T, T, N, FLIGHT, BLOCKS, Way::kGather, MOST>
#define SHIFTED(T, N, FLIGHT, BLOCKS) shifted_rows<T, T, N, FLIGHT, BLOCKS, Way::kGather, 1>

struct Variant {
  const char *name;
  Kernel<1> kernel;
  uint32_t tile;
};

#define ALIGNED_VARIANT(T, N, FLIGHT, BLOCKS) {#FLIGHT "x" #BLOCKS, ALIGNED(T, N, FLIGHT, BLOCKS, 1), kThreads * FLIGHT}
#define SHIFTED_VARIANT(T, N, FLIGHT, BLOCKS) \
  {#FLIGHT "x" #BLOCKS, SHIFTED(T, N, FLIGHT, BLOCKS), kShiftedStride * FLIGHT}

// The same kernel with other numbers of pieces in flight and blocks a multiprocessor.
std::vector<Variant> variants(uint32_t path, uint32_t access, uint32_t elt) {
  if (path == path_move && access == 16) {
    return {ALIGNED_VARIANT(uint32_t, 4, 1, 8), ALIGNED_VARIANT(uint32_t, 4, 2, 6), ALIGNED_VARIANT(uint32_t, 4, 4, 4),
            ALIGNED_VARIANT(uint32_t, 4, 8, 2)};
  }
  if (path == path_move && access == 8) {
    return {ALIGNED_VARIANT(uint32_t, 2, 2, 6), ALIGNED_VARIANT(uint32_t, 2, 4, 4), ALIGNED_VARIANT(uint32_t, 2, 8, 2)};
  }
  if (path == path_move && access == 4) {
    return {ALIGNED_VARIANT(uint32_t, 1, 2, 6), ALIGNED_VARIANT(uint32_t, 1, 4, 4), ALIGNED_VARIANT(uint32_t, 1, 8, 2)};
  }
  if (path == path_shift && elt == 2) {
    return {SHIFTED_VARIANT(uint16_t, 8, 2, 5), SHIFTED_VARIANT(uint16_t, 8, 3, 4), SHIFTED_VARIANT(uint16_t, 8, 4, 4),
            SHIFTED_VARIANT(uint16_t, 8, 4, 3)};
  }
  if (path == path_shift && elt == 4) {
    return {SHIFTED_VARIANT(uint32_t, 4, 2, 5), SHIFTED_VARIANT(uint32_t, 4, 3, 4), SHIFTED_VARIANT(uint32_t, 4, 4, 4),
            SHIFTED_VARIANT(uint32_t, 4, 4, 3)};
  }
  return {};
}

void device_tables() {
  const uint64_t table_bytes = 4ull << 30, out_bytes = 256ull << 20;
  Device table(table_bytes), out(out_bytes * 2), ids((out_bytes + 64) * 2);
  make_values<<<4096, 256>>>(table.as<uint64_t>(), table_bytes / 8);
  const uint64_t base = table.address();
  Device copy(table_bytes / 4);
  const double copy_us = time_us([&] {
    CUDA(cudaMemcpyAsync(copy.as<void>(), table.as<void>(), copy.bytes(), cudaMemcpyDeviceToDevice, stream));
  });
  printf("copy of 1 GiB: %.0f GB/s read + written\n\n", 2 * copy.bytes() / copy_us / 1e3);

  struct Line {
    const char *name;
    Shape shape;
    uint32_t path, access;
  };
  const Line lines[] = {
      {"f32 x1", {1, 1, 1}, path_move, 4},
      {"f32 x4", {1, 1, 4}, path_move, 16},
      {"f32 x8", {1, 1, 8}, path_move, 16},
      {"f32 x16", {1, 1, 16}, path_move, 16},
      {"f32 x32", {1, 1, 32}, path_move, 16},
      {"f32 x64", {1, 1, 64}, path_move, 16},
      {"f32 x128", {1, 1, 128}, path_move, 16},
      {"f32 x256", {1, 1, 256}, path_move, 16},
      {"f32 x1024", {1, 1, 1024}, path_move, 16},
      {"f16 x8", {2, 2, 8}, path_move, 16},
      {"f16 x32", {2, 2, 32}, path_move, 16},
      {"f16 x100 by 8", {2, 2, 100}, path_move, 8},
      {"f16 x100 shift", {2, 2, 100}, path_shift, 0},
      {"f16 x127 shift", {2, 2, 127}, path_shift, 0},
      {"f16 x128 shift", {2, 2, 128}, path_shift, 0},
      {"f32 x127 by 4", {1, 1, 127}, path_move, 4},
      {"f32 x127 shift", {1, 1, 127}, path_shift, 0},
      {"f32 x3 by 4", {1, 1, 3}, path_move, 4},
      {"f32 x3 shift", {1, 1, 3}, path_shift, 0},
      {"f32 x7 by 4", {1, 1, 7}, path_move, 4},
      {"f32 x7 shift", {1, 1, 7}, path_shift, 0},
  };
  printf(
      "gather, one place, 4 GiB table, 256 MiB gathered, uniform ids: pieces in flight a thread x blocks a "
      "multiprocessor;\nall blocks / 528 that share\n");
  for (const Line &l : lines) {
    const uint64_t rows = table_bytes / l.shape.row_bytes(), count = out_bytes / l.shape.out_bytes();
    if (count * 8 > ids.bytes()) continue;
    make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count, rows, 1, 0);
    wmk_rows_args a = arguments(l.shape, &base, rows, ids.as<void>(), count, out.address(), l.path, l.access);
    auto rate = [&](double us) { return count * l.shape.out_bytes() / us / 1e3; };
    printf("%-15s", l.name);
    for (const Variant &v : variants(l.path, l.access, dtype_bytes(l.shape.from))) {
      a.blocks = UINT32_MAX;
      const double all = rate(time_us([&] { launch_variant<1>(v.kernel, v.tile, a); }));
      a.blocks = 528;
      printf("  %s %5.0f/%5.0f", v.name, all, rate(time_us([&] { launch_variant<1>(v.kernel, v.tile, a); })));
    }
    a.blocks = UINT32_MAX;
    printf("  | dispatched %5.0f\n", rate(time_us([&] { CUDA(wmk_gather(&a, stream)); })));
  }
  printf("\n\nother ways, 128 columns: ");
  {
    const Shape s{1, 1, 128};
    const uint64_t rows = table_bytes / s.row_bytes(), count = out_bytes / s.out_bytes();
    make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count, rows, 3, 0);
    wmk_rows_args a = arguments(s, &base, rows, ids.as<void>(), count, out.address(), path_move, 16);
    printf("\n  scatter f32: %.0f", out_bytes / time_us([&] { CUDA(wmk_scatter(&a, stream)); }) / 1e3);
    for (int places : {4, 64}) {
      for (bool equal : {true, false}) {
        std::vector<uint64_t> starts(places + 1), bases(places);
        for (int k = 0; k <= places; k++) starts[k] = k * (rows / places) + (!equal && k > 0 && k < places ? k : 0);
        for (int k = 0; k < places; k++) bases[k] = base + starts[k] * s.row_bytes();
        a.table.bases = bases.data();
        a.table.start_rows = starts.data();
        a.table.places = places;
        printf("\n  gather f32, %d places, %s: %.0f", places, equal ? "equal" : "searched",
               out_bytes / time_us([&] { CUDA(wmk_gather(&a, stream)); }) / 1e3);
      }
    }
    const Shape half{1, 2, 128};
    a = arguments(half, &base, rows, ids.as<void>(), count, out.address(), path_convert, 0);
    printf("\n  gather f32 to f16 (output bytes): %.0f",
           out_bytes / 2 / time_us([&] { CUDA(wmk_gather(&a, stream)); }) / 1e3);
    a.path = path_convert_shift;
    printf(", by the shifting kernel: %.0f", out_bytes / 2 / time_us([&] { CUDA(wmk_gather(&a, stream)); }) / 1e3);
    const Shape wide{2, 1, 128};
    a = arguments(wide, &base, rows * 2, ids.as<void>(), count, out.address(), path_convert, 0);
    printf("\n  gather f16 to f32 (output bytes): %.0f",
           out_bytes / time_us([&] { CUDA(wmk_gather(&a, stream)); }) / 1e3);
    const Shape odd{1, 2, 127};
    a = arguments(odd, &base, table_bytes / odd.row_bytes(), ids.as<void>(), count, out.address(), path_convert_shift,
                  0);
    printf("\n  gather f32 x127 to f16 (output bytes): %.0f",
           count * odd.out_bytes() / time_us([&] { CUDA(wmk_gather(&a, stream)); }) / 1e3);
  }

  printf("\n\nsmall calls, f32 x128: us back to back / each with a synchronisation\n");
  const Shape s{1, 1, 128};
  const uint64_t rows = (1ull << 30) / s.row_bytes();
  for (uint64_t count : {10, 1000, 10000, 100000}) {
    make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count, rows, 4, 0);
    wmk_rows_args a = arguments(s, &base, rows, ids.as<void>(), count, out.address(), path_move, 16);
    const auto one = host_us([&] { CUDA(wmk_gather(&a, stream)); });
    std::vector<uint64_t> starts(65), bases(64);
    for (int k = 0; k <= 64; k++) starts[k] = k * (rows / 64);
    for (int k = 0; k < 64; k++) bases[k] = base + starts[k] * s.row_bytes();
    a.table = {bases.data(), starts.data(), 64, 0, s.row_bytes(), rows};
    const auto many = host_us([&] { CUDA(wmk_gather(&a, stream)); });
    printf("  %6llu rows: %.1f / %.1f; 64 places %.1f / %.1f\n", static_cast<unsigned long long>(count), one.first,
           one.second, many.first, many.second);
  }
}

void id_kernels() {
  printf("\nids: us on the device\n");
  for (uint64_t count : {1000ull, 100000ull, 524288ull, 4000000ull}) {
    Device ids(count * 8), out(count * 8), positions(count * 8);
    const uint64_t rows = 1 << 23;
    make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count, rows, 5, 0);
    Shared<uint64_t> counts(512);
    printf("  %7llu ids:", static_cast<unsigned long long>(count));
    for (int owners : {2, 8, 64}) {
      std::vector<uint64_t> starts(owners + 1);
      std::vector<uint32_t> bucket(owners);
      for (int k = 0; k <= owners; k++) starts[k] = rows / owners * k;
      for (int k = 0; k < owners; k++) bucket[k] = k;
      uint64_t needed = 0;
      wmk_bucket_args a{ids.as<void>(),
                        count,
                        starts.data(),
                        bucket.data(),
                        uint64_t(owners),
                        uint64_t(owners),
                        out.as<void>(),
                        positions.as<int64_t>(),
                        counts.get(),
                        0,
                        0,
                        &needed,
                        8,
                        528};
      CUDA(wmk_bucket(&a, stream));
      Device scratch(needed);
      a.scratch = scratch.address();
      a.scratch_bytes = needed;
      printf("  bucket %d: %.1f (call and wait %.1f)", owners, time_us([&] { CUDA(wmk_bucket(&a, stream)); }),
             host_us([&] { CUDA(wmk_bucket(&a, stream)); }).second);
    }
    uint64_t needed = 0, order = 0;
    wmk_unique_args u{
        ids.as<void>(), count, out.as<void>(), positions.as<int64_t>(), counts.get(), 0, 0, &needed, 8, 23};
    CUDA(wmk_unique(&u, stream));
    Device scratch(needed);
    u.scratch = scratch.address();
    u.scratch_bytes = needed;
    printf("  unique: %.1f", time_us([&] { CUDA(wmk_unique(&u, stream)); }));
    for (uint32_t bits : {8u, 16u, 20u}) {
      wmk_order_args o{ids.as<void>(), count, 0, 0, &needed, &order, 8, 23 - bits, bits, 0};
      CUDA(wmk_order(&o, stream));
      Device room(needed);
      o.scratch = room.address();
      o.scratch_bytes = needed;
      printf("  order by %u bits: %.1f", bits, time_us([&] { CUDA(wmk_order(&o, stream)); }));
    }
    printf("\n");
  }
  Device board(64 + 2 * 8);
  wmk_board head{};
  head.ranks = 1;
  board.put(&head, sizeof head);
  Shared<uint32_t> abort(1);
  abort[0] = 0;
  wmk_meet_args m{board.as<void>(), abort.get(), WMK_MEET_ARRIVE | WMK_MEET_WAIT, 0, nullptr};
  const auto us = host_us([&] { CUDA(wmk_meet(&m, stream)); });
  printf("  a meeting of one: %.1f back to back / %.1f\n", us.first, us.second);
}

// Scratch-using steps before a gather from host memory.
struct Ordering {
  Device scratch;
  wmk_order_args args;
  Ordering(const void *ids, uint64_t count, uint32_t shift, uint32_t bits, uint64_t *order, uint64_t *needed,
           size_t bytes)
      : scratch(bytes), args{ids, count, scratch.address(), bytes, needed, order, 8, shift, bits, 0} {}
};

uint32_t bits_for(uint64_t rows) {
  uint32_t bits = 1;
  while ((1ull << bits) < rows) bits++;
  return bits;
}

void host_tables() {
  const uint64_t table_bytes = 1ull << 30;
  void *memory = mmap(nullptr, table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    printf("no host memory of 1 GiB\n");
    return;
  }
  CUDA(cudaHostRegister(memory, table_bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  const uint64_t out_bytes = 64ull << 20;
  Device out(out_bytes * 2), ids(out_bytes / 2 * 8 / 8 + (32 << 20)), target(out_bytes);
  const double copy_us =
      time_us([&] { CUDA(cudaMemcpyAsync(target.as<void>(), memory, out_bytes, cudaMemcpyHostToDevice, stream)); }, 3);
  printf(
      "\nhost table of 1 GiB, 64 MiB gathered (copy engine %.1f GB/s): unordered (by blocks), then by 132 blocks in "
      "order by bits, making the order included / without it\n",
      out_bytes / copy_us / 1e3);
  struct Line {
    Shape shape;
    uint32_t path, access;
    float zipf;
  };
  for (const Line &l :
       {Line{{1, 1, 8}, path_move, 16, 0}, Line{{1, 1, 32}, path_move, 16, 0}, Line{{1, 1, 127}, path_move, 4, 0},
        Line{{1, 1, 127}, path_shift, 0, 0}, Line{{1, 1, 128}, path_move, 16, 0}, Line{{1, 1, 256}, path_move, 16, 0},
        Line{{1, 1, 512}, path_move, 16, 0}, Line{{1, 1, 1024}, path_move, 16, 0},
        Line{{1, 1, 32}, path_move, 16, 0.99f}, Line{{1, 1, 128}, path_move, 16, 0.99f}}) {
    const uint64_t rows = table_bytes / l.shape.row_bytes(), count = out_bytes / l.shape.row_bytes();
    make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count, rows, 6, l.zipf);
    wmk_rows_args a = arguments(l.shape, &base, rows, ids.as<void>(), count, out.address(), l.path, l.access);
    auto rate = [&](double us) { return count * l.shape.row_bytes() / us / 1e3; };
    printf("  x%-4d path %d%s: %.1f", l.shape.cols, l.path, l.zipf ? " zipf" : "",
           rate(time_us([&] { CUDA(wmk_gather(&a, stream)); }, 2)));
    for (uint32_t blocks : {16u, 66u, 132u, 528u}) {
      a.blocks = blocks;
      printf(" (%u: %.1f)", blocks, rate(time_us([&] { CUDA(wmk_gather(&a, stream)); }, 2)));
    }
    a.blocks = 132;
    const uint32_t all = bits_for(rows);
    for (uint32_t bits : {12u, 14u, 16u, 18u, 20u}) {
      if (bits > all) continue;
      uint64_t needed = 0, order = 0;
      wmk_order_args ask{ids.as<void>(), count, 0, 0, &needed, &order, 8, all - bits, bits, 0};
      CUDA(wmk_order(&ask, stream));
      Ordering o(ids.as<void>(), count, all - bits, bits, &order, &needed, needed);
      const double with = time_us(
          [&] {
            CUDA(wmk_order(&o.args, stream));
            a.order = reinterpret_cast<const uint32_t *>(order);
            CUDA(wmk_gather(&a, stream));
          },
          3);
      const double without = time_us([&] { CUDA(wmk_gather(&a, stream)); }, 3);
      printf("  %u bits %.1f/%.1f", bits, rate(with), rate(without));
      if (bits == std::min(all, 20u) || bits == 18) {
        for (uint32_t blocks : {16u, 33u, 66u, 528u}) {
          a.blocks = blocks;
          printf("  (%u blocks %.1f)", blocks, rate(time_us([&] { CUDA(wmk_gather(&a, stream)); }, 3)));
        }
        a.blocks = 132;
      }
      a.order = nullptr;
    }
    if (l.zipf) {
      Device unique(count * 8), slots(count * 8), kept(out_bytes);
      Shared<uint64_t> distinct(1);
      uint64_t needed = 0;
      wmk_unique_args u{
          ids.as<void>(), count, unique.as<void>(), slots.as<int64_t>(), distinct.get(), 0, 0, &needed, 8, all};
      CUDA(wmk_unique(&u, stream));
      Device room(needed);
      u.scratch = room.address();
      u.scratch_bytes = needed;
      const uint64_t kept_base = kept.address();
      const double us = time_us(
          [&] {
            CUDA(wmk_unique(&u, stream));
            CUDA(cudaStreamSynchronize(stream));
            const wmk_rows_args fetch =
                arguments(l.shape, &base, rows, unique.as<void>(), distinct[0], kept.address(), l.path, l.access);
            CUDA(wmk_gather(&fetch, stream));
            const wmk_rows_args spread =
                arguments(l.shape, &kept_base, distinct[0], slots.as<void>(), count, out.address(), l.path, l.access);
            CUDA(wmk_gather(&spread, stream));
          },
          3);
      printf("  dedup %.1f (%.0f%% distinct)", rate(us), 100.0 * distinct[0] / count);
    }
    printf("\n");
  }
  // Every call has ids of its own, so that no translation of an address is left from the call before.
  printf("where ordering begins to pay: us unordered by all blocks / by 132 / ordered, by 132 blocks\n");
  const int sets = 8;
  for (uint64_t size : {1ull << 30, 64ull << 20}) {
    for (int cols : {8, 32, 128}) {
      const Shape s{1, 1, cols};
      const uint64_t rows = size / s.row_bytes();
      printf("  table of %4llu MiB, x%-4d", static_cast<unsigned long long>(size >> 20), cols);
      for (uint64_t count : {4000, 16000, 32000, 64000}) {
        make_ids<<<4096, 256, 0, stream>>>(ids.as<int64_t>(), count * sets, rows, 7, 0);
        wmk_rows_args a = arguments(s, &base, rows, ids.as<void>(), count, out.address(), path_move, 16);
        const uint32_t all = bits_for(rows), bits = std::min({bits_for(count * 2), all, 20u});
        uint64_t needed = 0, order = 0;
        wmk_order_args ask{ids.as<void>(), count, 0, 0, &needed, &order, 8, all - bits, bits, 0};
        CUDA(wmk_order(&ask, stream));
        Ordering o(ids.as<void>(), count, all - bits, bits, &order, &needed, needed);
        int turn = 0;
        auto next = [&] {
          a.ids = o.args.ids = ids.as<int64_t>() + count * (turn++ % sets);
          if (a.order != nullptr) {
            CUDA(wmk_order(&o.args, stream));
            a.order = reinterpret_cast<const uint32_t *>(order);
          }
          CUDA(wmk_gather(&a, stream));
        };
        printf("  %llu: %.0f", static_cast<unsigned long long>(count), time_us(next, sets));
        a.blocks = 132;
        printf("/%.0f", time_us(next, sets));
        a.order = reinterpret_cast<const uint32_t *>(1);
        printf("/%.0f", time_us(next, sets));
      }
      printf("\n");
    }
  }
  CUDA(cudaHostUnregister(memory));
  munmap(memory, table_bytes);
}

}  // namespace

int main() {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto begin = std::chrono::steady_clock::now();
  CUDA(wmk_gather(nullptr, nullptr));
  CUDA(wmk_scatter(nullptr, nullptr));
  CUDA(wmk_bucket(nullptr, nullptr));
  CUDA(wmk_order(nullptr, nullptr));
  CUDA(wmk_meet(nullptr, nullptr));
  printf("all kernels loaded in %.1f ms\n",
         std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  device_tables();
  id_kernels();
  host_tables();
  return 0;
}
