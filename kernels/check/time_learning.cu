// Times the gradient step on the current device: 131,072 gradients of 128 floats (64 MiB) on a table of 8.4 million rows, 64
// batches in turn. Microseconds of the work on the device, back to back.
//   time_learning [N] [variants]    only line N (0 for all); the step alone also by variants of its kernel

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "../step_launch.cuh"
#include "device.h"

namespace {

constexpr int64_t kRows = 8 << 20, kIds = 131072, kCols = 128;
constexpr int kBatches = 64;
cudaStream_t stream;

double time_us(const std::function<void()> &call) {
  constexpr int kRepeats = 5, kCalls = 20;
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  for (int i = 0; i < 3; i++) call();
  std::vector<double> us;
  for (int r = 0; r < kRepeats; r++) {
    CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < kCalls; i++) call();
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1000 / kCalls);
  }
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

// A power law by inversion, its ranks scattered over the table; 0: uniform.
std::vector<int64_t> make_ids(double zipf, int batch) {
  auto mix = [](uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
  };
  Random random{7919ull * batch + 1};
  std::vector<int64_t> ids(kIds);
  for (auto &id : ids) {
    if (zipf <= 0) {
      id = random.below(kRows);
    } else {
      const double u = (random.next() >> 11) * 0x1.0p-53;
      const double x = std::pow(u * (std::pow(double(kRows), 1 - zipf) - 1) + 1, 1 / (1 - zipf));
      id = mix(static_cast<uint64_t>(x) * 0x9e3779b97f4a7c15ull) % kRows;
    }
  }
  return ids;
}

struct Batch {
  Device ids{kIds * 8};
  Device scratch;
  wmk_group_args group{};
  uint64_t sorted_rows = 0, positions = 0, zeros = 0;
  explicit Batch(size_t bytes) : scratch(bytes) {}
};

wmk_group_args group_args() {
  wmk_group_args args{};
  args.count = kIds;
  args.rows = kRows;
  args.id_bytes = 8;
  return args;
}

struct Variant {
  const char *name;
  Choice choice;
};

template <Kind kKind>
std::vector<Variant> variants() {
  using S = Shape<kKind, true, true, true>;
#define VARIANT(FLIGHT, ROWS, PREPARES, BLOCKS)                                                \
  {                                                                                            \
    #FLIGHT " " #ROWS " " #PREPARES " " #BLOCKS, {                                             \
      step_kernel<S, FLIGHT, ROWS, PREPARES, BLOCKS>, S::kCount, ROWS                          \
    }                                                                                          \
  }
  return {VARIANT(4, 8, false, 3), VARIANT(4, 8, false, 4), VARIANT(4, 8, false, 5), VARIANT(4, 4, false, 4),
          VARIANT(4, 16, false, 4), VARIANT(4, 4, true, 3), VARIANT(4, 8, true, 3), VARIANT(4, 8, true, 4),
          VARIANT(4, 8, true, 5), VARIANT(4, 16, true, 4), VARIANT(8, 8, false, 3), VARIANT(8, 8, true, 4),
          VARIANT(2, 8, false, 5), VARIANT(2, 8, true, 6)};
}

}  // namespace

int main(int argc, char **argv) {
  const int only = argc > 1 ? atoi(argv[1]) : 0;
  const bool all_variants = argc > 2 && std::string(argv[2]) == "variants";
  CUDA(cudaStreamCreate(&stream));
  uint64_t needed = 0;
  for (uint32_t ascends : {0, 1}) {
    uint64_t bytes = 0;
    auto ask = group_args();
    ask.needed_bytes = &bytes;
    ask.ascends = ascends;
    CUDA(wmk_group(&ask, stream));
    needed = std::max(needed, bytes);
  }
  std::vector<Batch *> batches;
  for (int b = 0; b < kBatches; b++) batches.push_back(new Batch(needed));
  const uint64_t row_bytes = kCols * 4;
  Device table(kRows * row_bytes), state(kRows * row_bytes * 2), powers(kRows * 8), gradients(kIds * row_bytes);
  CUDA(cudaMemset(table.as<void>(), 0, table.bytes()));
  CUDA(cudaMemset(state.as<void>(), 0, state.bytes()));
  CUDA(cudaMemset(powers.as<void>(), 0, powers.bytes()));
  CUDA(cudaMemset(gradients.as<void>(), 0, gradients.bytes()));
  Device step_scratch(64 << 20);

  struct Row {
    const char *name;
    double zipf;  // below 0: all ids are one row
    uint32_t optimizer, dtype;
  };
  printf("%-32s %8s %8s %8s %8s %10s\n", "microseconds", "in order", "group", "step", "both", "distinct");
  int line = 0;
  for (const Row &row : {Row{"uniform, SGD", 0, optimizer_sgd, dtype_float},
                         Row{"uniform, Adam", 0, optimizer_lazy_adam, dtype_float},
                         Row{"Zipf 0.99, Adam", 0.99, optimizer_lazy_adam, dtype_float},
                         Row{"Zipf 0.99, SGD", 0.99, optimizer_sgd, dtype_float},
                         Row{"Zipf 0.80, Adam", 0.80, optimizer_lazy_adam, dtype_float},
                         Row{"one row, Adam", -1, optimizer_lazy_adam, dtype_float},
                         Row{"uniform, AdaGrad", 0, optimizer_ada_grad, dtype_float},
                         Row{"uniform, SGD, half by half", 0, optimizer_sgd, dtype_half},
                         Row{"uniform, Adam, half by half", 0, optimizer_lazy_adam, dtype_half}}) {
    line++;
    if (only != 0 && line != only) continue;
    size_t distinct = 0;
    for (int b = 0; b < kBatches; b++) {
      auto ids = row.zipf < 0 ? std::vector<int64_t>(kIds, 12345) : make_ids(row.zipf, b);
      Batch &batch = *batches[b];
      batch.ids.put(ids);
      std::sort(ids.begin(), ids.end());
      distinct = std::unique(ids.begin(), ids.end()) - ids.begin();
      batch.group = group_args();
      batch.group.ids = batch.ids.as<void>();
      batch.group.scratch = batch.scratch.address();
      batch.group.scratch_bytes = needed;
      batch.group.rows_at = &batch.sorted_rows;
      batch.group.positions_at = &batch.positions;
      batch.group.zeros_at = &batch.zeros;
      CUDA(wmk_group(&batch.group, stream));
    }
    wmk_step_args step{};
    step.count = kIds;
    step.rows = kRows;
    step.gradients = gradients.address();
    step.gradient_stride_bytes = kCols * dtype_bytes(row.dtype);
    step.cols = kCols;
    step.table = table.address();
    step.table_stride_bytes = kCols * dtype_bytes(row.dtype);
    step.states[0] = state.address();
    step.states[1] = state.address() + row_bytes;
    step.state_stride_bytes = 2 * row_bytes;
    step.beta_powers = powers.address();
    step.scratch = step_scratch.address();
    step.scratch_bytes = step_scratch.bytes();
    step.rule = {row.optimizer, 0, 0.01f, 0, 1e-8f, 0.9f, 0.999f, 0.99f};
    step.gradient_dtype = step.table_dtype = row.dtype;
    step.blocks = UINT32_MAX;
    int turn = 0;
    const auto group = [&](uint32_t ascends) {
      Batch &batch = *batches[turn++ % kBatches];
      batch.group.ascends = ascends;
      CUDA(wmk_group(&batch.group, stream));
      step.sorted_rows = batch.sorted_rows;
      step.positions = batch.positions;
      step.zeros = batch.zeros;
    };
    // The arrivals of rows with many gradients are used up by a step.
    const auto again = [&] {
      Batch &batch = *batches[turn++ % kBatches];
      CUDA(cudaMemsetAsync(reinterpret_cast<void *>(batch.zeros), 0, (kIds / WMK_GROUP_WINDOW + 1) * 4, stream));
      step.sorted_rows = batch.sorted_rows;
      step.positions = batch.positions;
      step.zeros = batch.zeros;
    };
    const double sort_us = time_us([&] { group(1); });
    const double group_us = time_us([&] { group(0); });
    for (int b = 0; b < kBatches; b++) group(0);
    const double step_us = time_us([&] {
      again();
      CUDA(wmk_step(&step, stream));
    });
    const double both_us = time_us([&] {
      group(0);
      CUDA(wmk_step(&step, stream));
    });
    printf("%-32s %8.1f %8.1f %8.1f %8.1f %10zu\n", row.name, sort_us, group_us, step_us, both_us, distinct);
    fflush(stdout);
    if (!all_variants || row.dtype != dtype_float || row.optimizer == optimizer_ada_grad) continue;
    const auto tried = row.optimizer == optimizer_sgd ? variants<Kind::kSgd>()
                                                      : variants<Kind::kAdam>();
    for (const Variant &variant : tried) {
      const double us = time_us([&] {
        again();
        CUDA(launch_step(step, variant.choice, stream));
      });
      printf("  flight, rows, prepares, blocks %-12s %5.1f\n", variant.name, us);
    }
  }
  return 0;
}
