// The gradient step over sorted rows. A team of lanes (a warp, for short rows less) looks at a few neighbouring sorted rows;
// where one differs from the one before, a row begins, and the team sums its gradients, which are the next ones in the
// order, and changes the row. Sums stay in registers; a lane has a piece of the columns.
//
// Rows with many gradients would keep a team busy long after the others are done. So they are found and begun first: a
// warp for each of their runs of 512 writes the sum of the run to memory, and the warp that comes last adds the sums of the
// runs and changes the row. In a window of 64 sorted rows one row with more than 128 gradients begins at most, and so does
// one run of a row that began before; that is how many warps look for them, and the places that their sums have.
#pragma once

#include <cuda_runtime.h>

#include "args_learning.h"
#include "bits.cuh"
#include "common/optimizer.h"
#include "pieces.cuh"

namespace wmk {

constexpr int kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kWarp = 0xffffffff;
// Gradients that are summed in one go.
constexpr uint32_t kRun = 512;
// A row with more gradients is many warps' work.
constexpr uint32_t kManyGradients = 128;
constexpr uint32_t kWindow = WMK_GROUP_WINDOW;
static_assert(kWindow <= kManyGradients && kWindow <= kRun && kWindow == 64, "two sorted rows a lane");

// What differs in the code of optimizers.
enum class Kind { kSgd, kAdam, kOneState };

// Elements of a lane's piece of a row: the widest of gradient, row and sum has 16 bytes, or the states have more.
template <class T, class G>
constexpr int kPieceElements = sizeof(T) == 2 && sizeof(G) == 2 ? 8 : 4;

struct Step {
  const void *keys;  // sorted rows
  const uint32_t *positions;
  uint32_t count;
  uint32_t wide_keys;
  uint64_t rows;
  uint64_t gradients;
  uint64_t gradient_stride_bytes;
  uint64_t table;
  uint64_t table_stride_bytes;
  uint64_t states;
  uint64_t second_bytes;  // from a first state to the second
  uint64_t state_stride_bytes;
  row_powers *powers;
  const uint64_t *row_places;
  const uint64_t *state_sources;
  const uint64_t *state_targets;
  // Two sums for every window: of the run of a row that began before, and of the first run of a row that begins there.
  float *run_sums;
  uint64_t run_sum_floats;
  uint32_t *arrivals;  // of every window, how many sums there are of the row that begins there
  rule how;
  uint32_t cols;
  uint32_t pieces;  // of a row, up to whole 16 bytes of it: states that move, move whole
  uint32_t chunks;  // of the pieces, as many as a warp has lanes each
  uint32_t team_log;
  uint32_t run_blocks;
  uint32_t tiles;  // of the sorted rows, a block of teams each
  uint32_t aligned_gradients;
};

__device__ __forceinline__ uint64_t key_at(const Step &step, uint32_t i) {
  return step.wide_keys ? static_cast<const uint64_t *>(step.keys)[i] : static_cast<const uint32_t *>(step.keys)[i];
}

// Of a lane's piece, the columns that have gradients; none where `live` is not above 0.
template <int kCount>
struct Columns {
  uint32_t first;
  int live;
  __device__ __forceinline__ Columns(const Step &step, uint32_t piece)
      : first(piece * kCount), live(min(static_cast<int>(step.cols) - static_cast<int>(first), kCount)) {}
};

// A lane's piece of the gradient at a position, as it lies in memory: so it takes the fewest registers while others are on
// their way.
template <class G, int kCount>
__device__ __forceinline__ Bits<sizeof(G) * kCount> load_gradient(const Step &step, uint32_t position,
                                                                  const Columns<kCount> &columns) {
  constexpr int kWordElements = 4 / sizeof(G);
  const uint64_t at = step.gradients + position * step.gradient_stride_bytes + columns.first * uint64_t{sizeof(G)};
  if (step.aligned_gradients && columns.live == kCount) return load<sizeof(G) * kCount>(at);
  Bits<sizeof(G) * kCount> bits{};
#pragma unroll
  for (int e = 0; e < kCount; e++) {
    if (e >= columns.live) continue;
    bits.word[e / kWordElements] |= load<sizeof(G)>(at + e * sizeof(G)).word[0] << (e % kWordElements * 16);
  }
  return bits;
}

template <class G, int kCount>
__device__ __forceinline__ void widen(const Bits<sizeof(G) * kCount> &bits, float (&sum)[kCount]) {
  const auto piece = value_of<Piece<G, kCount>>(bits);
#pragma unroll
  for (int e = 0; e < kCount; e++) sum[e] = to_float(piece.at[e]);
}

// Adds the gradients at sorted places [begin, end) to a sum, kFlight of them on their way at a time.
template <int kFlight, class G, int kCount>
__device__ __forceinline__ void add_gradients(const Step &step, uint32_t begin, uint32_t end,
                                              const Columns<kCount> &columns, float (&sum)[kCount]) {
#pragma unroll 1
  for (uint32_t i = begin; i < end; i += kFlight) {
    Bits<sizeof(G) * kCount> pieces[kFlight];
    uint32_t positions[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (i + k < end) positions[k] = step.positions[i + k];
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (i + k < end) pieces[k] = load_gradient<G>(step, positions[k], columns);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (i + k < end) {
        float gradient[kCount];
        widen<G>(pieces[k], gradient);
#pragma unroll
        for (int e = 0; e < kCount; e++) sum[e] = plus(sum[e], gradient[e]);
      }
    }
  }
}

template <int kCount>
__device__ __forceinline__ void load_floats(uint64_t at, float (&values)[kCount]) {
#pragma unroll
  for (int e = 0; e < kCount; e += 4) {
    const auto four = value_of<Piece<float, 4>>(load<16>(at + e * sizeof(float)));
#pragma unroll
    for (int k = 0; k < 4; k++) values[e + k] = four.at[k];
  }
}

template <int kCount>
__device__ __forceinline__ void store_floats(uint64_t at, const float (&values)[kCount]) {
#pragma unroll
  for (int e = 0; e < kCount; e += 4) {
    const Piece<float, 4> four = {values[e], values[e + 1], values[e + 2], values[e + 3]};
    store(at + e * sizeof(float), bits_of(four));
  }
}

// Where a row and its states are.
struct Found {
  uint64_t row;
  uint64_t state_source;
  uint64_t state_target;
};

template <Kind kKind>
__device__ __forceinline__ Found find(const Step &step, uint32_t head, uint64_t key) {
  Found found{};
  const bool listed = step.row_places != nullptr;
  found.row = listed ? step.row_places[head] : step.table + key * step.table_stride_bytes;
  if constexpr (kKind != Kind::kSgd) {
    const uint64_t state = step.states + key * step.state_stride_bytes;
    found.state_source = listed ? step.state_sources[head] : state;
    found.state_target = listed ? step.state_targets[head] : state;
  }
  return found;
}

__device__ __forceinline__ void prefetch(uint64_t at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// A lane's part in changing a row: the pieces lane, lane + lanes and so on. `lanes` are those with the same row, `mask` names
// them. sum_of(columns, sum, load_row) sums the gradients and calls load_row when it pays to have the row on its way.
template <Kind kKind, class T, int kCount, class Sum>
__device__ __forceinline__ void change_row(const Step &step, const Found &found, uint64_t key, uint32_t lane,
                                           uint32_t lanes, uint32_t mask, Sum sum_of) {
  row_powers powers{};
  if constexpr (kKind == Kind::kAdam) {
    powers = next_powers(step.how, step.powers[key]);
    // All have read what the first lane will write.
    __syncwarp(mask);
  }
  for (uint32_t piece = lane; piece < step.pieces; piece += lanes) {
    const Columns<kCount> columns(step, piece);
    const uint64_t row_at = found.row + columns.first * uint64_t{sizeof(T)};
    const uint64_t state_offset = columns.first * uint64_t{sizeof(float)};
    float sum[kCount], first[kCount], second[kCount];
    Piece<T, kCount> row;
    sum_of(columns, sum, [&] {
      row = value_of<Piece<T, kCount>>(load<sizeof(T) * kCount>(row_at));
      if constexpr (kKind != Kind::kSgd) load_floats(found.state_source + state_offset, first);
      if constexpr (kKind == Kind::kAdam) {
        load_floats(found.state_source + state_offset + step.second_bytes, second);
      }
    });
#pragma unroll
    for (int e = 0; e < kCount; e++) {
      // What lies behind the last column stays as it is.
      if (e >= columns.live) continue;
      const float w = to_float(row.at[e]);
      float next;
      if constexpr (kKind == Kind::kSgd) {
        next = sgd(step.how, w, sum[e]);
      } else if constexpr (kKind == Kind::kAdam) {
        next = lazy_adam(step.how, powers, w, sum[e], first[e], second[e]);
      } else {
        next = step.how.optimizer == optimizer_rms_prop ? rms_prop(step.how, w, sum[e], first[e])
                                                        : ada_grad(step.how, w, sum[e], first[e]);
      }
      row.at[e] = narrow<T>::from(next);
    }
    store(row_at, bits_of(row));
    if constexpr (kKind != Kind::kSgd) store_floats(found.state_target + state_offset, first);
    if constexpr (kKind == Kind::kAdam) store_floats(found.state_target + state_offset + step.second_bytes, second);
  }
  if constexpr (kKind == Kind::kAdam) {
    if (lane == 0) step.powers[key] = powers;
  }
}

// The first sorted place behind `head` with another row, or `limit`.
__device__ __forceinline__ uint32_t end_of(const Step &step, uint32_t head, uint64_t key, uint32_t limit) {
  constexpr uint32_t kLook = 8;
  uint32_t end = head + 1;
  for (;;) {
    uint32_t same = 0;
#pragma unroll
    for (uint32_t k = 0; k < kLook; k++) {
      if (end + k < limit && key_at(step, end + k) == key) same |= 1u << k;
    }
    const uint32_t found = __ffs(~same) - 1;
    end += found;
    if (found < kLook) return end;
  }
}

// A row that begins at sorted place `head`, with at most kManyGradients gradients.
template <Kind kKind, class T, class G, int kCount, int kFlight>
__device__ __forceinline__ void few_gradients(const Step &step, uint32_t head, uint64_t key, uint32_t lane,
                                              uint32_t lanes, uint32_t mask) {
  const uint32_t position = step.positions[head];
  const bool single = head + 1 >= step.count || key_at(step, head + 1) != key;
  uint32_t end = head + 1;
  if (!single) {
    if (head + kManyGradients < step.count && key_at(step, head + kManyGradients) == key) return;
    end = end_of(step, head, key, min(head + kManyGradients, step.count));
  }
  const Found found = find<kKind>(step, head, key);
  change_row<kKind, T, kCount>(step, found, key, lane, lanes, mask,
                               [&](const Columns<kCount> &columns, float (&sum)[kCount], auto load_row) {
                                 const auto gradient = load_gradient<G>(step, position, columns);
                                 if (!single) {
                                   prefetch(found.row + columns.first * uint64_t{sizeof(T)});
                                   widen<G>(gradient, sum);
                                   add_gradients<kFlight, G>(step, head + 1, end, columns, sum);
                                 }
                                 load_row();
                                 if (single) widen<G>(gradient, sum);
                               });
}

// The first place in [begin, end) of which `below` is not true, or `end`; it is true of a beginning of them. By a warp, for
// all its lanes.
template <class Below>
__device__ __forceinline__ uint32_t first_not(uint32_t begin, uint32_t end, uint32_t lane, Below below) {
  while (begin < end) {
    const uint32_t stride = (end - begin + 31) / 32;
    const uint64_t probe = begin + uint64_t{lane} * stride;
    const uint32_t found = __popc(__ballot_sync(kWarp, probe < end && below(static_cast<uint32_t>(probe))));
    if (found == 0) return begin;
    const uint64_t next = begin + uint64_t{found} * stride;
    begin += (found - 1) * stride + 1;
    if (next < end) end = static_cast<uint32_t>(next);
  }
  return end;
}

// A run of a row with many gradients.
struct Run {
  uint64_t key;
  uint32_t head;  // where the row begins
  uint32_t begin;
  uint32_t row_end;
  bool found;
};

// Of a row that begins in the window: its first run.
__device__ __forceinline__ Run first_run(const Step &step, uint32_t window, uint32_t lane) {
  Run run{};
  const uint32_t begin = window * kWindow;
  for (uint32_t half = 2; half-- > 0;) {
    const uint32_t i = begin + half * 32 + lane;
    const bool head = i < step.count && (i == 0 || key_at(step, i - 1) != key_at(step, i));
    const uint32_t heads = __ballot_sync(kWarp, head);
    if (heads == 0) continue;
    run.head = run.begin = begin + half * 32 + 31 - __clz(heads);
    run.key = key_at(step, run.head);
    run.found = run.key < step.rows && run.head + kManyGradients < step.count &&
                key_at(step, run.head + kManyGradients) == run.key;
    break;
  }
  return run;
}

// Of a row that began before the window: the run that begins in it.
__device__ __forceinline__ Run later_run(const Step &step, uint32_t window, uint32_t lane) {
  Run run{};
  const uint32_t begin = window * kWindow;
  run.key = key_at(step, begin);
  if (begin == 0 || run.key >= step.rows || key_at(step, begin - 1) != run.key) return run;
  run.head = first_not(0, begin, lane, [&](uint32_t i) { return key_at(step, i) < run.key; });
  run.begin = run.head + (begin - run.head + kRun - 1) / kRun * kRun;
  run.found = run.begin < begin + kWindow && run.begin < step.count && key_at(step, run.begin) == run.key;
  return run;
}

// Where the sum of a run is, columns from `piece` on.
template <int kCount>
__device__ __forceinline__ float *run_sum(const Step &step, uint32_t begin, bool first, uint32_t piece) {
  return step.run_sums + (uint64_t{begin / kWindow} * 2 + first) * step.run_sum_floats + uint64_t{piece} * kCount;
}

// The sums of the runs of a row, left to right; other warps wrote them.
template <int kCount>
__device__ __forceinline__ void add_runs(const Step &step, const Run &run, uint32_t piece, float (&sum)[kCount]) {
  constexpr int kRunFlight = 16 / kCount;
  const uint32_t runs = (run.row_end - run.head + kRun - 1) / kRun;
#pragma unroll
  for (int e = 0; e < kCount; e++) sum[e] = run_sum<kCount>(step, run.head, true, piece)[e];
#pragma unroll 1
  for (uint32_t r = 1; r < runs; r += kRunFlight) {
    float sums[kRunFlight][kCount];
#pragma unroll
    for (int k = 0; k < kRunFlight; k++) {
      const float *from = run_sum<kCount>(step, run.head + (r + k) * kRun, false, piece);
#pragma unroll
      for (int e = 0; e < kCount; e++) sums[k][e] = r + k < runs ? from[e] : 0;
    }
#pragma unroll
    for (int k = 0; k < kRunFlight; k++) {
      if (r + k < runs) {
#pragma unroll
        for (int e = 0; e < kCount; e++) sum[e] = plus(sum[e], sums[k][e]);
      }
    }
  }
}

// A warp's part in the rows with many gradients: one chunk of one run, if there is one to find.
template <Kind kKind, class T, class G, int kCount, int kFlight>
__device__ __forceinline__ void many_gradients(const Step &step) {
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t turn = blockIdx.x * uint64_t{kWarps} + threadIdx.x / 32;
  const bool first = turn & 1;
  const uint32_t window = static_cast<uint32_t>((turn >> 1) / step.chunks);
  const uint32_t chunk = static_cast<uint32_t>((turn >> 1) % step.chunks);
  if (window > (step.count - 1) / kWindow) return;
  Run run = first ? first_run(step, window, lane) : later_run(step, window, lane);
  if (!run.found) return;
  run.row_end = first_not(run.begin + 1, step.count, lane, [&](uint32_t i) { return key_at(step, i) == run.key; });
  const uint32_t piece = chunk * 32 + lane;
  if (piece < step.pieces) {
    const Columns<kCount> columns(step, piece);
    float sum[kCount];
    widen<G>(load_gradient<G>(step, step.positions[run.begin], columns), sum);
    add_gradients<kFlight, G>(step, run.begin + 1, min(run.begin + kRun, run.row_end), columns, sum);
    float *to = run_sum<kCount>(step, run.begin, first, piece);
#pragma unroll
    for (int e = 0; e < kCount; e++) to[e] = sum[e];
  }
  __threadfence();
  __syncwarp();
  uint32_t before = 0;
  if (lane == 0) before = atomicAdd(&step.arrivals[run.head / kWindow], 1);
  before = __shfl_sync(kWarp, before, 0);
  const uint32_t runs = (run.row_end - run.head + kRun - 1) / kRun;
  if (before + 1 != runs * step.chunks) return;
  __threadfence();
  change_row<kKind, T, kCount>(step, find<kKind>(step, run.head, run.key), run.key, lane, 32, kWarp,
                               [&](const Columns<kCount> &columns, float (&sum)[kCount], auto load_row) {
                                 load_row();
                                 add_runs<kCount>(step, run, columns.first / kCount, sum);
                               });
}

// kTeamRows: the sorted rows that a team looks at, one after the other.
template <Kind kKind, class T, class G, int kFlight, int kTeamRows, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) step_kernel(const __grid_constant__ Step step) {
  constexpr int kCount = kPieceElements<T, G>;
  if (blockIdx.x < step.run_blocks) {
    many_gradients<kKind, T, G, kCount, kFlight>(step);
    return;
  }
  const uint32_t lanes = 1u << step.team_log, lane = threadIdx.x & (lanes - 1), team = threadIdx.x >> step.team_log;
  const uint32_t mask = (kWarp >> (32 - lanes)) << (threadIdx.x % 32 - lane);
  const uint32_t teams = kThreads >> step.team_log;
  for (uint32_t tile = blockIdx.x - step.run_blocks; tile < step.tiles; tile += gridDim.x - step.run_blocks) {
    const uint32_t begin = (tile * teams + team) * kTeamRows;
#pragma unroll 1
    for (uint32_t head = begin; head < begin + kTeamRows && head < step.count; head++) {
      const uint64_t key = key_at(step, head);
      if (key >= step.rows || (head > 0 && key_at(step, head - 1) == key)) continue;
      few_gradients<kKind, T, G, kCount, kFlight>(step, head, key, lane, lanes, mask);
    }
  }
}

}  // namespace wmk
