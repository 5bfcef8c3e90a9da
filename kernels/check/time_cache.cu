// Times the kernels of the embedding cache on streams of batches that follow a power law: a table of 2 GiB in the
// host's memory, lines in device memory, batches of 64 MiB. Figures are GB/s of output unless said.
//   time_cache [quick | LAW RATIO CALLS] [small]     without arguments all tables; else one case, as many calls, for a
//   profiler; small: in small pages

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>

#include "../args_cache.h"
#include "../common/cache.h"
#include "device.h"

namespace {

constexpr uint64_t kRows = 1 << 22, kRowBytes = 512, kBatch = 131072, kBatches = 64;
cudaStream_t stream;

template <class F>
void parallel(uint64_t count, F body) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; t++)
    all.emplace_back([=] { body(count * t / threads, count * (t + 1) / threads); });
  for (auto &thread : all) thread.join();
}

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

double time_us(const std::function<void(int)> &call, int calls, int rounds) {
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  std::vector<double> us;
  for (int r = 0; r < rounds; r++) {
    CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < calls; i++) call(i);
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

// Word w of row r of the table is r * 64 + w.
__global__ void find_wrong(const int64_t *ids, const uint64_t *rows, uint32_t *wrong) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < kBatch * 64;
       i += uint64_t{gridDim.x} * blockDim.x) {
    if (rows[i] != static_cast<uint64_t>(ids[i / 64]) * 64 + i % 64) atomicAdd(wrong, 1);
  }
}

struct Streams {
  std::vector<int64_t> host;
  Device ids{kBatch * kBatches * 8};
  std::vector<uint32_t> frequency = std::vector<uint32_t>(kRows);
  explicit Streams(double law) : host(kBatch * kBatches) {
    // As the benchmark of the library draws them.
    parallel(kBatches, [&](uint64_t begin, uint64_t end) {
      for (uint64_t batch = begin; batch < end; batch++) {
        uint64_t s = 88172645463325252ULL + 104729ULL * batch;
        for (uint64_t i = 0; i < kBatch; i++) {
          s ^= s << 13, s ^= s >> 7, s ^= s << 17;
          const double u = (s >> 11) * 0x1.0p-53;
          const double x = std::pow(u * (std::pow(double(kRows), 1 - law) - 1) + 1, 1 / (1 - law));
          host[batch * kBatch + i] = mix(uint64_t(x) * 0x9e3779b97f4a7c15ULL) % kRows;
        }
      }
    });
    for (int64_t id : host) frequency[id]++;
    ids.put(host);
  }
  // The share of the most frequent rows that fit.
  double best(uint64_t lines) const {
    auto sorted = frequency;
    std::sort(sorted.rbegin(), sorted.rend());
    uint64_t sum = 0;
    for (uint64_t i = 0; i < lines && i < sorted.size(); i++) sum += sorted[i];
    return double(sum) / host.size();
  }
};

struct Setting {
  uint32_t blocks = 33, bits = 13, hit_blocks = UINT32_MAX;
};

struct Cache {
  uint64_t sets;
  Device tags, lines, control, output{kBatch * kRowBytes}, found{kBatch * 8}, order{kBatch * 4}, misses{4},
      scratch{32 << 20};
  wmk_cache cache{};
  uint64_t base, accesses = 0, tag_base, line_base, starts[2] = {0, kRows}, line_starts[2];
  Cache(double ratio, uint64_t base)
      : sets((kRows + std::lround(32 / ratio) - 1) / std::lround(32 / ratio)),
        tags(sets * 128),
        lines(sets * 32 * kRowBytes),
        control(sizeof(cache_head) + sets * sizeof(cache_set) + sets * 32 * 8),
        base(base),
        tag_base(tags.address()),
        line_base(lines.address()),
        line_starts{0, sets * 32} {
    CUDA(cudaMemset(tags.as<void>(), 0, tags.bytes()));
    CUDA(cudaMemset(control.as<void>(), 0, control.bytes()));
    const uint64_t of_sets = control.address() + sizeof(cache_head);
    cache = {tags.address(),
             lines.address(),
             control.address(),
             of_sets,
             of_sets + sets * sizeof(cache_set),
             base,
             kRowBytes,
             0,
             0,
             0,
             0,
             kRows,
             sets,
             sets * 32,
             ratio == 1,
             0};
  }
  cache_head head() {
    CUDA(cudaStreamSynchronize(stream));
    return control.get<cache_head>(1)[0];
  }
  void adjust(const int64_t *ids, const Setting &setting) {
    uint64_t needed = 0;
    wmk_cache_adjust_args args{
        cache,           ids,     kBatch, nullptr,      nullptr,        nullptr, scratch.address(),
        scratch.bytes(), &needed, 8,      setting.bits, setting.blocks, ages(),  {}};
    CUDA(wmk_cache_adjust(&args, stream));
  }
  void read(const int64_t *ids, const Setting &setting) {
    uint64_t needed = 0;
    wmk_cache_read_args args{};
    args.cache = cache;
    args.rows.table = {&base, starts, 1, 0, kRowBytes, kRows};
    args.rows.ids = ids;
    args.rows.count = kBatch;
    args.rows.plain = output.address();
    args.rows.plain_stride_bytes = kRowBytes;
    args.rows.cols = kRowBytes / 4;
    args.rows.id_bytes = 8;
    args.rows.table_dtype = args.rows.plain_dtype = dtype_float;
    args.rows.blocks = setting.blocks;
    args.scratch = scratch.address();
    args.scratch_bytes = scratch.bytes();
    args.needed_bytes = &needed;
    args.order_bits = setting.bits;
    args.hit_blocks = setting.hit_blocks;
    args.ages = ages();
    CUDA(wmk_cache_read(&args, stream));
  }
  bool ages() {
    accesses += kBatch;
    if (accesses < 64 * sets * 32) return false;
    accesses = 0;
    return true;
  }
  void look_up(const int64_t *ids, const Setting &setting) {
    uint64_t needed = 0;
    wmk_cache_lookup_args args{};
    args.tags = &tag_base;
    args.start_rows = starts;
    args.ranks = 1;
    args.rows = kRows;
    args.set_count = sets;
    args.ids = ids;
    args.count = kBatch;
    args.lines = found.as<int64_t>();
    args.order = order.as<uint32_t>();
    args.misses = misses.as<uint32_t>();
    args.scratch = scratch.address();
    args.scratch_bytes = scratch.bytes();
    args.needed_bytes = &needed;
    args.id_bytes = 8;
    args.order_bits = setting.bits;
    CUDA(wmk_cache_lookup(&args, stream));
  }
  wmk_cache_gather_args pair_of(const int64_t *ids, const Setting &setting) {
    wmk_cache_gather_args pair{};
    for (wmk_rows_args *half : {&pair.hits, &pair.misses}) {
      half->count = kBatch;
      half->plain = output.address();
      half->plain_stride_bytes = kRowBytes;
      half->cols = kRowBytes / 4;
      half->table_dtype = half->plain_dtype = dtype_float;
      half->id_bytes = 8;
    }
    pair.hits.blocks = setting.hit_blocks;
    pair.hits.ids = found.as<void>();
    pair.hits.table = {&line_base, line_starts, 1, 0, kRowBytes, line_starts[1]};
    pair.misses.blocks = setting.blocks;
    pair.misses.ids = ids;
    pair.misses.order = order.as<uint32_t>();
    pair.misses.count_at = misses.as<uint32_t>();
    pair.misses.table = {&base, starts, 1, 0, kRowBytes, kRows};
    return pair;
  }
  void read_misses(const int64_t *ids, const Setting &setting) {
    const wmk_cache_gather_args pair = pair_of(ids, setting);
    CUDA(wmk_gather(&pair.misses, stream));
  }
  void gather(const int64_t *ids, const Setting &setting, bool at_once = true) {
    const wmk_cache_gather_args pair = pair_of(ids, setting);
    if (at_once) {
      CUDA(wmk_cache_gather(&pair, stream));
    } else {
      CUDA(wmk_gather(&pair.misses, stream));
      CUDA(wmk_gather(&pair.hits, stream));
    }
  }
};

void cases(uint64_t base, bool quick, double only_law, double only_ratio, int calls) {
  printf(
      "gathers of 64 MiB through a cache. static: hit rate of the best fixed rows; warm: of the third turn of 64 "
      "batches;\n"
      "GB/s adjusting in one and in three calls, and not; us of adjusting, looking up, gathering alone\n");
  const double rate = kBatch * kRowBytes / 1e3;
  for (double law : {0.80, 0.99, 1.10}) {
    if (only_law != 0 && law != only_law) continue;
    Streams streams(law);
    auto ids = [&](int k) { return streams.ids.as<int64_t>() + k % kBatches * kBatch; };
    for (double ratio : {0.05, 0.2}) {
      if (only_ratio != 0 && ratio != only_ratio) continue;
      Cache cache(ratio, base);
      Setting setting;
      Device wrong(4);
      CUDA(cudaMemset(wrong.as<void>(), 0, 4));
      auto both = [&](int k) { cache.read(ids(k), setting); };
      auto in_turn = [&](int k) {
        cache.adjust(ids(k), setting);
        cache.look_up(ids(k), setting);
        cache.gather(ids(k), setting);
      };
      for (int k = 0; k < calls; k++) {
        both(k);
        if (k % 21 == 0)
          find_wrong<<<1024, 256, 0, stream>>>(ids(k), cache.output.as<uint64_t>(), wrong.as<uint32_t>());
      }
      if (only_law != 0) continue;
      const cache_head before = cache.head();
      const double adjusting = time_us(both, 64, 1);
      const cache_head after = cache.head();
      const double hits = double(after.hits - before.hits) / (after.lookups - before.lookups);
      auto only_gather = [&](int k) {
        cache.look_up(ids(k), setting);
        cache.gather(ids(k), setting);
      };
      const double reading = time_us(only_gather, 64, 1);
      find_wrong<<<1024, 256, 0, stream>>>(ids(63), cache.output.as<uint64_t>(), wrong.as<uint32_t>());
      const double turns = time_us(in_turn, 64, 1);
      const double apart = time_us(
          [&](int k) {
            cache.look_up(ids(k), setting);
            cache.gather(ids(k), setting, false);
          },
          64, 1);
      const double misses_us = time_us(
          [&](int k) {
            cache.look_up(ids(k), setting);
            cache.read_misses(ids(k), setting);
          },
          64, 1);
      const double adjust_us = time_us([&](int k) { cache.adjust(ids(k), setting); }, 64, 1);
      const double look_us = time_us([&](int k) { cache.look_up(ids(k), setting); }, 64, 1);
      cache.look_up(ids(5), setting);
      const double gather_us = time_us([&](int) { cache.gather(ids(5), setting); }, 64, 1);
      const double best = streams.best(cache.sets * 32);
      printf(
          "  %.2f %.2f: static %.3f, warm %.3f (%.3f), loads a call %.0f; adjusting %.0f, in turn %.0f, reading %.0f, "
          "hits after misses %.0f; us %.0f + %.0f + %.0f, misses alone %.0f%s\n",
          law, ratio, best, hits, hits / best, double(after.loads - before.loads) / 64, rate / adjusting, rate / turns,
          rate / reading, rate / apart, adjust_us, look_us, gather_us,
          misses_us - look_us,
          wrong.get<uint32_t>(1)[0] ? "  WRONG VALUES" : "");
      fflush(stdout);
      if (quick || (law == 1.10 && ratio == 0.2)) continue;
      printf("    by blocks and bits, adjusting / reading GB/s:");
      for (Setting s : {Setting{8}, Setting{16}, Setting{24}, Setting{33}, Setting{66}, Setting{132}, Setting{33, 8},
                        Setting{33, 0}, Setting{132, 0}, Setting{528, 0}, Setting{33, 13, 132}, Setting{33, 13, 528}}) {
        setting = s;
        printf(" %u.%u%s: %.0f/%.0f", s.blocks, s.bits, s.hit_blocks < 1000 ? " few" : "", rate / time_us(both, 64, 1),
               rate / time_us(only_gather, 64, 1));
      }
      printf("\n");
    }
  }
}

// How fast so many rows come out of the host's memory: at random, or in the order of the table.
void reads(uint64_t base) {
  printf("rows of 512 B of the table, GB/s by blocks: at random / in order\n");
  Device output(kBatch * kRowBytes), ids(kBatch * kBatches * 8);
  for (uint64_t count : {8192, 16384, 32768, 65536, 131072}) {
    std::vector<int64_t> random(count * 32), ordered(count * 32);
    parallel(32, [&](uint64_t begin, uint64_t end) {
      for (uint64_t k = begin; k < end; k++) {
        for (uint64_t i = 0; i < count; i++)
          random[k * count + i] = mix((k * count + i) * 0x9e3779b97f4a7c15ull + count) % kRows;
        std::copy(&random[k * count], &random[k * count] + count, &ordered[k * count]);
        std::sort(&ordered[k * count], &ordered[k * count] + count);
      }
    });
    printf("  %6llu rows:", static_cast<unsigned long long>(count));
    for (uint32_t blocks : {4u, 8u, 16u, 33u, 66u, 132u, 528u}) {
      printf(" %u:", blocks);
      for (const auto *drawn : {&random, &ordered}) {
        ids.put(*drawn);
        wmk_rows_args a{};
        a.table = {&base, nullptr, 1, 0, kRowBytes, kRows};
        a.count = count;
        a.plain = output.address();
        a.plain_stride_bytes = kRowBytes;
        a.cols = 128;
        a.id_bytes = 8;
        a.table_dtype = a.plain_dtype = dtype_float;
        a.blocks = blocks;
        const double us = time_us(
            [&](int k) {
              a.ids = ids.as<int64_t>() + k * count;
              CUDA(wmk_gather(&a, stream));
            },
            32, 1);
        printf("%s%.1f", drawn == &random ? " " : "/", count * kRowBytes / us / 1e3);
      }
    }
    printf("\n");
    fflush(stdout);
  }
}

// What decides how fast rows come in an order: how exact it is, and whether what is written is in order too.
void orders(uint64_t base) {
  const uint64_t count = 65536, sets = 16;
  printf("%llu rows, GB/s by 33 and 16 blocks: ordered by so many bits, written anywhere / written in order\n",
         static_cast<unsigned long long>(count));
  std::vector<int64_t> drawn(count * sets), sorted(count * sets);
  std::vector<uint32_t> order(count * sets);
  Device output(count * kRowBytes), ids(count * sets * 8), sorted_ids(count * sets * 8), orders(count * sets * 4);
  for (uint64_t i = 0; i < count * sets; i++) drawn[i] = mix(i * 0x9e3779b97f4a7c15ull + 99) % kRows;
  ids.put(drawn);
  for (uint32_t bits : {0u, 8u, 13u, 22u}) {
    for (uint64_t k = 0; k < sets; k++) {
      for (uint64_t i = 0; i < count; i++) order[k * count + i] = i;
      std::stable_sort(&order[k * count], &order[k * count] + count, [&](uint32_t a, uint32_t b) {
        return drawn[k * count + a] >> (22 - bits) < drawn[k * count + b] >> (22 - bits);
      });
      for (uint64_t i = 0; i < count; i++) sorted[k * count + i] = drawn[k * count + order[k * count + i]];
    }
    orders.put(order);
    sorted_ids.put(sorted);
    printf("  %u bits:", bits);
    for (uint32_t blocks : {33u, 16u}) {
      for (bool anywhere : {true, false}) {
        wmk_rows_args a{};
        a.table = {&base, nullptr, 1, 0, kRowBytes, kRows};
        a.count = count;
        a.plain = output.address();
        a.plain_stride_bytes = kRowBytes;
        a.cols = 128;
        a.id_bytes = 8;
        a.table_dtype = a.plain_dtype = dtype_float;
        a.blocks = blocks;
        const double us = time_us(
            [&](int k) {
              a.ids = (anywhere ? ids : sorted_ids).as<int64_t>() + k * count;
              a.order = anywhere ? orders.as<uint32_t>() + k * count : nullptr;
              CUDA(wmk_gather(&a, stream));
            },
            sets, 1);
        printf("%s%.1f", anywhere ? " " : "/", count * kRowBytes / us / 1e3);
      }
    }
  }
  printf("\n");
}

}  // namespace

// Shared memory as the library makes it for tables, in huge pages where the system gives them.
void *make_memory(uint64_t bytes, bool huge) {
  constexpr uint64_t kHuge = 2 << 20;
  const int file = memfd_create("table", 0);
  if (file < 0 || ftruncate(file, bytes) != 0) return MAP_FAILED;
  char *room = static_cast<char *>(mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char *at = reinterpret_cast<char *>((reinterpret_cast<uint64_t>(room) + kHuge - 1) / kHuge * kHuge);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) return MAP_FAILED;
  uint64_t collapsed = 0;
  for (uint64_t page = 0; huge && page < bytes; page += kHuge) {
    at[page] = 0;
    if (madvise(at + page, kHuge, 25 /* MADV_COLLAPSE */) != 0) break;
    collapsed += kHuge;
  }
  printf("table of %.1f GiB, %.1f of it in huge pages\n", bytes * 0x1p-30, collapsed * 0x1p-30);
  return at;
}

int main(int argc, char **argv) {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const bool small = argc > 1 && strcmp(argv[argc - 1], "small") == 0;
  if (small) argc--;
  void *memory = make_memory(kRows * kRowBytes, !small);
  if (memory == MAP_FAILED) {
    printf("no host memory of 2 GiB\n");
    return 77;
  }
  parallel(kRows * 64, [=](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; i++) static_cast<uint64_t *>(memory)[i] = i;
  });
  CUDA(cudaHostRegister(memory, kRows * kRowBytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  for (auto load : {wmk_cache_adjust(nullptr, nullptr), wmk_cache_lookup(nullptr, nullptr),
                    wmk_cache_gather(nullptr, nullptr), wmk_gather(nullptr, nullptr)}) {
    CUDA(load);
  }
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  if (argc == 4) {
    cases(base, true, atof(argv[1]), atof(argv[2]), atoi(argv[3]));
  } else {
    if (argc <= 1) orders(base);
    if (argc <= 1) reads(base);
    cases(base, argc > 1, 0, 0, 128);
  }
  CUDA(cudaHostUnregister(memory));
  munmap(memory, kRows * kRowBytes);
  return 0;
}
