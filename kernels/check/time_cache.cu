// Times the kernels of the embedding cache on streams of batches that follow a power law: a table of 4 GiB in the host's memory,
// lines in device memory, batches of 64 MiB. Figures are GB/s of output unless said.
//   time_cache [quick]

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>

#include "../args_cache.h"
#include "../common/cache.h"
#include "device.h"

namespace {

constexpr uint64_t kRows = 1 << 23, kRowBytes = 512, kBatch = 131072, kBatches = 64;
cudaStream_t stream;

template <class F>
void parallel(uint64_t count, F body) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> all;
  for (unsigned t = 0; t < threads; t++) all.emplace_back([=] { body(count * t / threads, count * (t + 1) / threads); });
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
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < kBatch * 64; i += uint64_t{gridDim.x} * blockDim.x) {
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
  uint32_t load_blocks = 132, miss_blocks = 132, bits = 13;
};

struct Cache {
  uint64_t sets;
  Device tags, lines, control, output{kBatch * kRowBytes}, found{kBatch * 8}, order{kBatch * 4}, misses{4}, scratch{32 << 20};
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
    cache = {tags.address(), lines.address(), control.address(), of_sets, of_sets + sets * sizeof(cache_set), base, kRowBytes,
             0, 0, 0, 0, kRows, sets, sets * 32, ratio == 1, 0};
  }
  cache_head head() {
    CUDA(cudaStreamSynchronize(stream));
    return control.get<cache_head>(1)[0];
  }
  void adjust(const int64_t *ids, const Setting &setting) {
    uint64_t needed = 0;
    accesses += kBatch;
    const bool ages = accesses >= 64 * sets * 32;
    if (ages) accesses = 0;
    wmk_cache_adjust_args args{cache, ids, kBatch, nullptr, nullptr, nullptr, scratch.address(), scratch.bytes(), &needed, 8,
                               setting.bits, setting.load_blocks, ages, {}};
    CUDA(wmk_cache_adjust(&args, stream));
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
  void gather(const int64_t *ids, const Setting &setting) {
    wmk_cache_gather_args pair{};
    for (wmk_rows_args *half : {&pair.hits, &pair.misses}) {
      half->count = kBatch;
      half->plain = output.address();
      half->plain_stride_bytes = kRowBytes;
      half->cols = kRowBytes / 4;
      half->table_dtype = half->plain_dtype = dtype_float;
      half->id_bytes = 8;
    }
    pair.hits.blocks = UINT32_MAX;
    pair.hits.ids = found.as<void>();
    pair.hits.table = {&line_base, line_starts, 1, 0, kRowBytes, line_starts[1]};
    pair.misses.blocks = setting.miss_blocks;
    pair.misses.ids = ids;
    pair.misses.order = order.as<uint32_t>();
    pair.misses.count_at = misses.as<uint32_t>();
    pair.misses.table = {&base, starts, 1, 0, kRowBytes, kRows};
    CUDA(wmk_cache_gather(&pair, stream));
  }
};

void cases(uint64_t base, bool quick) {
  printf("gathers of 64 MiB through a cache. static: hit rate of the best fixed rows; warm: of the third turn of 64 batches;\n"
         "GB/s adjusting and not; us of adjusting, looking up, gathering alone\n");
  const double rate = kBatch * kRowBytes / 1e3;
  for (double law : {0.80, 0.99, 1.10}) {
    Streams streams(law);
    auto ids = [&](int k) { return streams.ids.as<int64_t>() + k % kBatches * kBatch; };
    for (double ratio : {0.05, 0.2}) {
      Cache cache(ratio, base);
      Setting setting;
      Device wrong(4);
      CUDA(cudaMemset(wrong.as<void>(), 0, 4));
      auto both = [&](int k) {
        cache.adjust(ids(k), setting);
        cache.look_up(ids(k), setting);
        cache.gather(ids(k), setting);
      };
      for (int k = 0; k < 128; k++) {
        both(k);
        if (k % 21 == 0) find_wrong<<<1024, 256, 0, stream>>>(ids(k), cache.output.as<uint64_t>(), wrong.as<uint32_t>());
      }
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
      const double adjust_us = time_us([&](int k) { cache.adjust(ids(k), setting); }, 64, 1);
      const double look_us = time_us([&](int k) { cache.look_up(ids(k), setting); }, 64, 1);
      cache.look_up(ids(5), setting);
      const double gather_us = time_us([&](int) { cache.gather(ids(5), setting); }, 64, 1);
      const double best = streams.best(cache.sets * 32);
      printf("  %.2f %.2f: static %.3f, warm %.3f (%.3f), loads a call %.0f; adjusting %.0f, reading %.0f; us %.0f + %.0f + %.0f%s\n",
             law, ratio, best, hits, hits / best, double(after.loads - before.loads) / 64, rate / adjusting, rate / reading, adjust_us,
             look_us, gather_us, wrong.get<uint32_t>(1)[0] ? "  WRONG VALUES" : "");
      fflush(stdout);
      if (quick || (law == 1.10 && ratio == 0.2)) continue;
      printf("    by blocks and bits, adjusting / reading GB/s:");
      for (Setting s : {Setting{8, 8, 13}, Setting{16, 16, 13}, Setting{33, 33, 13}, Setting{66, 66, 13}, Setting{132, 132, 10},
                        Setting{132, 132, 6}, Setting{264, 264, 13}, Setting{528, 528, 0}}) {
        setting = s;
        printf(" %u.%u: %.0f/%.0f", s.load_blocks, s.bits, rate / time_us(both, 64, 1), rate / time_us(only_gather, 64, 1));
      }
      printf("\n");
    }
  }
}

// How fast so many rows come out of the host's memory: at random, or in the order of the table.
void reads(uint64_t base) {
  printf("rows of 512 B of a host table of 4 GiB, GB/s by blocks: at random / in order\n");
  Device output(kBatch * kRowBytes), ids(kBatch * kBatches * 8);
  for (uint64_t count : {8192, 16384, 32768, 65536, 131072}) {
    std::vector<int64_t> random(count * 32), ordered(count * 32);
    parallel(32, [&](uint64_t begin, uint64_t end) {
      for (uint64_t k = begin; k < end; k++) {
        for (uint64_t i = 0; i < count; i++) random[k * count + i] = mix((k * count + i) * 0x9e3779b97f4a7c15ull + count) % kRows;
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

}  // namespace

int main(int argc, char **) {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void *memory = mmap(nullptr, kRows * kRowBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    printf("no host memory of 4 GiB\n");
    return 77;
  }
  parallel(kRows * 64, [=](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; i++) static_cast<uint64_t *>(memory)[i] = i;
  });
  CUDA(cudaHostRegister(memory, kRows * kRowBytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
  for (auto load : {wmk_cache_adjust(nullptr, nullptr), wmk_cache_lookup(nullptr, nullptr), wmk_cache_gather(nullptr, nullptr),
                    wmk_gather(nullptr, nullptr)}) {
    CUDA(load);
  }
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  if (argc <= 1) reads(base);
  cases(base, argc > 1);
  CUDA(cudaHostUnregister(memory));
  munmap(memory, kRows * kRowBytes);
  return 0;
}
