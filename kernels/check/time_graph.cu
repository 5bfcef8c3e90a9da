// Times the kernels on graphs on the current device: us of each step on the device, without the host.

#include <algorithm>
#include <functional>
#include <memory>

#include "device.h"

namespace {

cudaStream_t stream;

double time_us(const std::function<void()> &call) {
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 3; i++) call();
  std::vector<double> us;
  for (int r = 0; r < 5; r++) {
    CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < 10; i++) call();
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 100);
  }
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

struct Sampler {
  Device &rows, &columns, &weights, &centers;
  uint64_t nodes, edges, count;
  uint64_t bases[3];
  Device offsets, scratch;
  Shared<wmk_counted> counted{1};
  std::unique_ptr<Device> dest, positions, edge_ids, room;
  wmk_sample_offsets_args count_args{};
  wmk_sample_args args{};

  Sampler(Device &r, Device &c, Device &w, Device &ids, uint64_t node_count, uint64_t edge_count, uint64_t center_count,
          wmk_take take, bool weighted)
      : rows(r),
        columns(c),
        weights(w),
        centers(ids),
        nodes(node_count),
        edges(edge_count),
        count(center_count),
        bases{r.address(), c.address(), w.address()},
        offsets((count + 1) * 4),
        scratch(1 << 20) {
    count_args.neighbours.row_pointers = {&bases[0], nullptr, 1, 0, 8, nodes + 1};
    count_args.neighbours.centers = ids.as<void>();
    count_args.neighbours.count = count;
    count_args.neighbours.center_bytes = 8;
    count_args.edges = edges;
    count_args.take = take;
    count_args.offsets = offsets.as<int32_t>();
    count_args.counted = counted.get();
    count_args.scratch = scratch.address();
    count_args.scratch_bytes = scratch.bytes();
    CUDA(wmk_sample_offsets(&count_args, stream));
    CUDA(cudaStreamSynchronize(stream));
    args.neighbours = count_args.neighbours;
    args.columns = {&bases[1], nullptr, 1, 0, 8, edges};
    if (weighted) args.weights = {&bases[2], nullptr, 1, 0, 4, edges};
    args.seed = 42;
    args.take = take;
    args.offsets = offsets.as<int32_t>();
    args.total = counted[0].total;
    dest = std::make_unique<Device>(args.total * 8);
    positions = std::make_unique<Device>(args.total * 4);
    edge_ids = std::make_unique<Device>(args.total * 8);
    args.dest = dest->as<void>();
    args.positions = positions->as<int32_t>();
    args.edges = edge_ids->as<int64_t>();
    args.column_bytes = 8;
    args.weight_dtype = weighted ? dtype_float : 0;
    uint64_t needed = 0;
    args.needed_bytes = &needed;
    CUDA(wmk_sample(&args, stream));
    args.needed_bytes = nullptr;
    room = std::make_unique<Device>(needed);
    args.scratch = room->address();
    args.scratch_bytes = needed;
  }
};

}  // namespace

int main() {
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(wmk_sample(nullptr, nullptr));
  // 2 million nodes with 2 to 31 neighbours, one in 64 with 200 more.
  const uint64_t nodes = 2000000, count = 200000;
  Random random{9};
  std::vector<int64_t> rows{0}, ids(count);
  for (uint64_t v = 0; v < nodes; v++) {
    rows.push_back(rows.back() + 2 + static_cast<int64_t>(random.below(30)) + (random.below(64) == 0 ? 200 : 0));
  }
  const uint64_t edges = rows.back();
  std::vector<int64_t> columns(edges);
  std::vector<float> weights(edges);
  for (auto &c : columns) c = random.below(nodes);
  for (auto &w : weights) w = 0.01f + random.below(1000);
  for (auto &id : ids) id = random.below(nodes);
  Device d_rows(rows.size() * 8), d_columns(edges * 8), d_weights(edges * 4), d_ids(count * 8);
  d_rows.put(rows);
  d_columns.put(columns);
  d_weights.put(weights);
  d_ids.put(ids);
  std::unique_ptr<Sampler> last;
  for (const bool weighted : {true, false}) {
    for (const uint32_t most : {1u, 5u, 10u, 15u, 16u, 25u, 30u, 50u, 100u}) {
      last = std::make_unique<Sampler>(d_rows, d_columns, d_weights, d_ids, nodes, edges, count,
                                       wmk_take{WMK_TAKE_AT_MOST, most}, weighted);
      Sampler &s = *last;
      const double offsets = time_us([&] { CUDA(wmk_sample_offsets(&s.count_args, stream)); });
      const double sample = time_us([&] { CUDA(wmk_sample(&s.args, stream)); });
      printf("%s %3u: offsets %.1f, sample %.1f (%llu taken)\n", weighted ? "weighted" : "even", most, offsets, sample,
             (unsigned long long)s.args.total);
    }
  }
  {
    Sampler all(d_rows, d_columns, d_weights, d_ids, nodes, edges, count, wmk_take{WMK_TAKE_ALL, 0}, false);
    printf("all: sample %.1f (%llu taken)\n", time_us([&] { CUDA(wmk_sample(&all.args, stream)); }),
           (unsigned long long)all.args.total);
  }
  Sampler thirty(d_rows, d_columns, d_weights, d_ids, nodes, edges, count, wmk_take{WMK_TAKE_AT_MOST, 30}, false);
  CUDA(wmk_sample(&thirty.args, stream));
  Shared<uint64_t> new_ids(1);
  wmk_append_args append{};
  append.targets = d_ids.as<void>();
  append.target_count = count;
  append.neighbours = thirty.dest->as<void>();
  append.neighbour_count = thirty.args.total;
  append.new_ids = new_ids.get();
  append.id_bytes = 8;
  uint64_t needed = 0;
  append.needed_bytes = &needed;
  CUDA(wmk_append_count(&append, stream));
  Device scratch(needed);
  append.scratch = scratch.address();
  append.scratch_bytes = needed;
  CUDA(wmk_append_count(&append, stream));
  CUDA(cudaStreamSynchronize(stream));
  Device unique((count + new_ids[0]) * 8), map(thirty.args.total * 4);
  append.unique = unique.as<void>();
  append.map = map.as<int32_t>();
  const double found = time_us([&] { CUDA(wmk_append_count(&append, stream)); });
  CUDA(wmk_append_count(&append, stream));
  const double written = time_us([&] { CUDA(wmk_append_write(&append, stream)); });
  const double cleared = time_us([&] { CUDA(cudaMemsetAsync(scratch.as<void>(), 0xff, needed, stream)); });
  printf("append %llu: count %.1f (of it clearing %.1f), write %.1f, %llu new\n", (unsigned long long)thirty.args.total,
         found, cleared, written, (unsigned long long)new_ids[0]);
  return 0;
}
