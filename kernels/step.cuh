// The gradient step over sorted rows. A team of lanes (a warp, for short rows less) looks at a few neighbouring sorted rows;
// where one differs from the one before, a row begins, and the team sums its gradients, which are the next ones in the
// order, and changes the row. Sums stay in registers; a lane has a piece of the columns. While a row is on its way, the next
// one's memory is asked for.
//
// Rows with many gradients would keep a team busy long after the others are done. So they are found and begun first, by
// blocks of their own: a warp for each of their runs of 512 and for each 32 columns writes the sum of the run to memory, and
// the warp that comes last adds the sums of the runs and changes the row. In a window of 64 sorted rows one row with more
// gradients than that begins at most, and so does one run of a row that began before: so many sums have places.
//
// Sorted rows are only asked to be equal or not: any order with equal rows together would do.
#pragma once

#include <cuda_runtime.h>

#include "args_learning.h"
#include "bits.cuh"
#include "common/dtype.h"
#include "common/optimizer.h"
#include "early.cuh"
#include "pieces.cuh"

namespace wmk {

constexpr int kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kWarp = 0xffffffff;
// Gradients that are summed in one go.
constexpr uint32_t kRun = 512;
constexpr uint32_t kWindow = WMK_GROUP_WINDOW;
// A row with more gradients is many warps' work.
constexpr uint32_t kManyGradients = 64;
static_assert(kWindow <= kManyGradients && kWindow <= kRun && kWindow == 64, "two sorted rows a lane");
// Windows whose rows with many gradients are one block's.
constexpr uint32_t kBlockWindows = kWarps;

// What differs in the code of optimizers.
enum class Kind { kSgd, kAdam, kOneState };

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
  const uint32_t *home_heads;
  const uint32_t *home_count;
  uint32_t home_blocks;
  // Two sums for every window: of the run of a row that began before, and of the first run of a row that begins there.
  float *run_sums;
  uint64_t run_sum_floats;
  uint32_t *arrivals;  // of every window, how many sums there are of the row that begins there
  rule how;
  uint32_t cols;
  uint32_t pieces;  // of a row, up to whole 16 bytes of it: states that move, move whole
  uint32_t chunks;  // of the columns, 32 each
  uint32_t team_log;
  uint32_t run_blocks;
  uint32_t tiles;  // of the sorted rows, a block of teams each
  bool bf16_row;   // of types of 16 bits, which
  bool bf16_gradient;
};

__device__ __forceinline__ uint64_t key_at(const Step &step, uint32_t i) {
  return step.wide_keys ? static_cast<const uint64_t *>(step.keys)[i] : static_cast<const uint32_t *>(step.keys)[i];
}

// kCount elements as they lie in memory: floats, or HALF or BF16 by `bf16`.
template <bool kFloats, int kCount>
struct Elements {
  static constexpr int kBytes = (kFloats ? 4 : 2) * kCount;
  Bits<kBytes> bits;

  __device__ __forceinline__ float get(int e, bool bf16) const {
    if constexpr (kFloats) return same_bits<float>(bits.word[e]);
    const auto half = static_cast<uint16_t>(bits.word[e / 2] >> (e % 2 * 16));
    return bf16 ? to_float(bf16_bits{half}) : to_float(half_bits{half});
  }

  __device__ __forceinline__ void set(int e, float value, bool bf16) {
    if constexpr (kFloats) {
      bits.word[e] = same_bits<uint32_t>(value);
    } else {
      const uint32_t half = bf16 ? narrow<bf16_bits>::from(value).bits : narrow<half_bits>::from(value).bits;
      bits.word[e / 2] = e % 2 == 0 ? (bits.word[e / 2] & 0xffff0000) | half : (bits.word[e / 2] & 0xffff) | half << 16;
    }
  }
};

// Of a lane's piece of a row, the columns that have gradients; none where `live` is not above 0.
template <int kCount>
struct Columns {
  uint32_t first;
  int live;
  __device__ __forceinline__ Columns(const Step &step, uint32_t piece)
      : first(piece * kCount), live(min(static_cast<int>(step.cols) - static_cast<int>(first), kCount)) {}
};

// What a lane reads of gradients: the pieces of its columns. Behind the last column it reads that again, so that all lanes
// always load, without a branch that could wait. kAligned: pieces are aligned and rows are whole pieces.
template <bool kFloats, bool kAligned, int kCount>
class Gradients {
 public:
  using Piece = Elements<kFloats, kCount>;

  __device__ __forceinline__ Gradients(const Step &step, const Columns<kCount> &columns)
      : from_(step.gradients), stride_bytes_(step.gradient_stride_bytes), bf16_(step.bf16_gradient) {
    const int last = static_cast<int>(step.cols) - 1, first = static_cast<int>(columns.first);
    from_ += static_cast<uint64_t>(kAligned ? min(first, last + 1 - kCount) : min(first, last)) * kElementBytes;
    most_ = kAligned ? kCount - 1 : max(min(last - first, kCount - 1), 0);
  }

  __device__ __forceinline__ uint64_t at(uint32_t position) const { return from_ + position * stride_bytes_; }

  __device__ __forceinline__ Piece load(uint32_t position) const {
    Piece piece;
    if constexpr (kAligned) {
      piece.bits = wmk::load<Piece::kBytes, true>(at(position));
    } else {
      // Neighbouring elements come in turn from the L1 cache.
#pragma unroll
      for (int e = 0; e < kCount; e++) {
        const uint32_t element = wmk::load<kElementBytes>(at(position) + min(e, most_) * kElementBytes).word[0];
        if constexpr (kFloats) {
          piece.bits.word[e] = element;
        } else {
          piece.bits.word[e / 2] = e % 2 == 0 ? element : piece.bits.word[e / 2] | element << 16;
        }
      }
    }
    return piece;
  }

  __device__ __forceinline__ void begin(const Piece &piece, float (&sum)[kCount]) const {
#pragma unroll
    for (int e = 0; e < kCount; e++) sum[e] = piece.get(e, bf16_);
  }

  // Adds the gradients at sorted places [begin, end) to a sum, kFlight of them on their way at a time.
  template <int kFlight>
  __device__ __forceinline__ void add(const uint32_t *positions, uint32_t begin, uint32_t end,
                                      float (&sum)[kCount]) const {
    uint32_t next[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) next[k] = positions[min(begin + k, end - 1)];
#pragma unroll 1
    for (uint32_t i = begin; i < end; i += kFlight) {
      Piece pieces[kFlight];
#pragma unroll
      for (int k = 0; k < kFlight; k++) pieces[k] = load(next[k]);
#pragma unroll
      for (int k = 0; k < kFlight; k++) next[k] = positions[min(i + kFlight + k, end - 1)];
#pragma unroll
      for (int k = 0; k < kFlight; k++) {
#pragma unroll
        for (int e = 0; e < kCount; e++) {
          const float more = plus(sum[e], pieces[k].get(e, bf16_));
          sum[e] = i + k < end ? more : sum[e];
        }
      }
    }
  }

 private:
  static constexpr int kElementBytes = kFloats ? 4 : 2;
  uint64_t from_;
  uint64_t stride_bytes_;
  int most_;
  bool bf16_;
};

template <bool kPasses, int kCount>
__device__ __forceinline__ void load_floats(uint64_t at, float (&values)[kCount]) {
#pragma unroll
  for (int e = 0; e < kCount; e += 4) {
    const Bits<16> bits = load<16, kPasses>(at + e * sizeof(float));
#pragma unroll
    for (int k = 0; k < 4; k++) values[e + k] = same_bits<float>(bits.word[k]);
  }
}

template <bool kPasses, int kCount>
__device__ __forceinline__ void store_floats(uint64_t at, const float (&values)[kCount]) {
#pragma unroll
  for (int e = 0; e < kCount; e += 4) {
    Bits<16> bits;
#pragma unroll
    for (int k = 0; k < 4; k++) bits.word[k] = same_bits<uint32_t>(values[e + k]);
    store<kPasses>(at + e * sizeof(float), bits);
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

// A lane's piece of a row and its states.
template <Kind kKind, bool kFloats, int kCount>
struct Row {
  using Piece = Elements<kFloats, kCount>;
  static constexpr uint64_t kElementBytes = kFloats ? 4 : 2;
  Piece row;
  float first[kCount];
  float second[kCount];

  __device__ __forceinline__ void load(const Step &step, const Found &found, uint32_t column) {
    constexpr bool kPasses = true;
    const uint64_t state_at = found.state_source + column * uint64_t{sizeof(float)};
    row.bits = wmk::load<Piece::kBytes, kPasses>(found.row + column * kElementBytes);
    if constexpr (kKind != Kind::kSgd) load_floats<kPasses>(state_at, first);
    if constexpr (kKind == Kind::kAdam) load_floats<kPasses>(state_at + step.second_bytes, second);
  }

  // What lies behind the columns that have gradients stays as it is.
  __device__ __forceinline__ void change(const Step &step, const row_powers &powers, int live,
                                         const float (&sum)[kCount]) {
#pragma unroll
    for (int e = 0; e < kCount; e++) {
      if (e >= live) continue;
      const float w = row.get(e, step.bf16_row);
      float next;
      if constexpr (kKind == Kind::kSgd) {
        next = sgd(step.how, w, sum[e]);
      } else if constexpr (kKind == Kind::kAdam) {
        next = lazy_adam(step.how, powers, w, sum[e], first[e], second[e]);
      } else {
        next = step.how.optimizer == optimizer_rms_prop ? rms_prop(step.how, w, sum[e], first[e])
                                                        : ada_grad(step.how, w, sum[e], first[e]);
      }
      row.set(e, next, step.bf16_row);
    }
  }

  template <bool kPasses>
  __device__ __forceinline__ void store(const Step &step, const Found &found, uint32_t column) const {
    const uint64_t state_at = found.state_target + column * uint64_t{sizeof(float)};
    wmk::store<kPasses>(found.row + column * kElementBytes, row.bits);
    if constexpr (kKind != Kind::kSgd) store_floats<kPasses>(state_at, first);
    if constexpr (kKind == Kind::kAdam) store_floats<kPasses>(state_at + step.second_bytes, second);
  }

  // Asks for the memory of a row that comes soon.
  static __device__ __forceinline__ void prefetch(const Step &step, const Found &found, uint32_t column) {
    wmk::prefetch(found.row + column * kElementBytes);
    if constexpr (kKind != Kind::kSgd) wmk::prefetch(found.state_source + column * sizeof(float));
    if constexpr (kKind == Kind::kAdam) {
      wmk::prefetch(found.state_source + column * sizeof(float) + step.second_bytes);
    }
  }
};

// Lanes that have the same row: `number` of this one, `count` of all, which `mask` names in the warp.
struct Team {
  uint32_t number;
  uint32_t count;
  uint32_t mask;
};

// A team changes a row, whose gradients `sum(columns, row, sums)` sums after or before it loads `row`.
template <Kind kKind, bool kFloats, int kCount, class Sum>
__device__ __forceinline__ void change_row(const Step &step, const Found &found, uint64_t key, const Team &team,
                                           Sum sum) {
  row_powers powers{};
  if constexpr (kKind == Kind::kAdam) powers = step.powers[key];
  for (uint32_t piece = team.number; piece < step.pieces; piece += team.count) {
    const Columns<kCount> columns(step, piece);
    float sums[kCount];
    Row<kKind, kFloats, kCount> row;
    sum(columns, row, sums);
    row.change(step, next_powers(step.how, powers), columns.live, sums);
    // Lines of a cache beside a table in the host's memory.
    if (step.row_places != nullptr) {
      row.template store<true>(step, found, columns.first);
    } else {
      row.template store<false>(step, found, columns.first);
    }
  }
  if constexpr (kKind == Kind::kAdam) {
    // All have read what the first lane writes.
    __syncwarp(team.mask);
    if (team.number == 0) step.powers[key] = next_powers(step.how, powers);
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
      const bool equal = key_at(step, min(end + k, limit - 1)) == key;
      if (end + k < limit && equal) same |= 1u << k;
    }
    const uint32_t found = __ffs(~same) - 1;
    end += found;
    if (found < kLook) return end;
  }
}

// A row that begins at sorted place `head`, with at most kManyGradients gradients.
template <Kind kKind, bool kFloatRow, bool kFloatGradient, bool kAligned, int kCount, int kFlight>
__device__ __forceinline__ void few_gradients(const Step &step, uint32_t head, uint64_t key, const Team &team) {
  const uint32_t position = step.positions[head];
  const bool single = head + 1 >= step.count || key_at(step, head + 1) != key;
  uint32_t end = head + 1;
  if (!single) {
    if (head + kManyGradients < step.count && key_at(step, head + kManyGradients) == key) return;
    end = end_of(step, head, key, min(head + kManyGradients, step.count));
  }
  const Found found = find<kKind>(step, head, key);
  change_row<kKind, kFloatRow, kCount>(
      step, found, key, team,
      [&](const Columns<kCount> &columns, Row<kKind, kFloatRow, kCount> &row, float(&sum)[kCount]) {
        const Gradients<kFloatGradient, kAligned, kCount> gradients(step, columns);
        const auto first = gradients.load(position);
        if (single) {
          row.load(step, found, columns.first);
          gradients.begin(first, sum);
        } else {
          Row<kKind, kFloatRow, kCount>::prefetch(step, found, columns.first);
          gradients.begin(first, sum);
          gradients.template add<kFlight>(step.positions, head + 1, end, sum);
          row.load(step, found, columns.first);
        }
      });
}

// Asks for what the row at sorted place `head` will need; it may be one with many gradients, or no row's beginning.
template <Kind kKind, bool kFloatRow, bool kFloatGradient, bool kAligned, int kCount>
__device__ __forceinline__ void prepare(const Step &step, uint32_t head, const Team &team) {
  const uint64_t key = key_at(step, head);
  if (key >= step.rows || team.number >= step.pieces) return;
  const Columns<kCount> columns(step, team.number);
  prefetch(Gradients<kFloatGradient, kAligned, kCount>(step, columns).at(step.positions[head]));
  // Cached rows are listed where they begin only.
  if (key_at(step, head - 1) == key) return;
  const Found found = find<kKind>(step, head, key);
  Row<kKind, kFloatRow, kCount>::prefetch(step, found, columns.first);
  if constexpr (kKind == Kind::kAdam) prefetch(reinterpret_cast<uint64_t>(step.powers + key));
}

// The first place in [begin, end) of which `before` is not true, or `end`; it is true of a beginning of them. By a warp, for
// all its lanes.
template <class Before>
__device__ __forceinline__ uint32_t first_not(uint32_t begin, uint32_t end, uint32_t lane, Before before) {
  while (begin < end) {
    const uint32_t stride = (end - begin + 31) / 32;
    const uint64_t probe = begin + uint64_t{lane} * stride;
    const uint32_t found = __popc(__ballot_sync(kWarp, probe < end && before(static_cast<uint32_t>(probe))));
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
  bool first;
};

// Looks for the first run of a row that begins in the window. By a warp.
__device__ __forceinline__ bool first_run(const Step &step, uint32_t window, uint32_t lane, Run &run) {
  const uint32_t begin = window * kWindow;
  for (uint32_t half = 2; half-- > 0;) {
    const uint32_t i = begin + half * 32 + lane;
    const bool head = i < step.count && (i == 0 || key_at(step, i - 1) != key_at(step, i));
    const uint32_t heads = __ballot_sync(kWarp, head);
    if (heads == 0) continue;
    run.head = run.begin = begin + half * 32 + 31 - __clz(heads);
    run.key = key_at(step, run.head);
    run.first = true;
    return run.key < step.rows && run.head + kManyGradients < step.count &&
           key_at(step, run.head + kManyGradients) == run.key;
  }
  return false;
}

// Looks for the run that begins in the window, of a row that began before it. By a warp.
__device__ __forceinline__ bool later_run(const Step &step, uint32_t window, uint32_t lane, Run &run) {
  const uint32_t begin = window * kWindow;
  run.key = key_at(step, begin);
  if (begin == 0 || run.key >= step.rows || key_at(step, begin - 1) != run.key) return false;
  run.head = first_not(0, begin, lane, [&](uint32_t i) { return key_at(step, i) != run.key; });
  run.begin = run.head + (begin - run.head + kRun - 1) / kRun * kRun;
  run.first = false;
  return run.begin < begin + kWindow && run.begin < step.count && key_at(step, run.begin) == run.key;
}

// Where the sum of a run is.
__device__ __forceinline__ float *run_sum(const Step &step, uint32_t begin, bool first) {
  return step.run_sums + (uint64_t{begin / kWindow} * 2 + first) * step.run_sum_floats;
}

__device__ __forceinline__ uint32_t runs_of(const Run &run) { return (run.row_end - run.head + kRun - 1) / kRun; }

// The sums of the runs of a row, left to right; other warps wrote them.
template <int kCount>
__device__ __forceinline__ void add_runs(const Step &step, const Run &run, uint32_t column, float (&sum)[kCount]) {
  constexpr int kFlight = 32 / kCount;
  const uint32_t runs = runs_of(run);
  const float *head = run_sum(step, run.head, true) + column;
#pragma unroll
  for (int e = 0; e < kCount; e++) sum[e] = head[e];
#pragma unroll 1
  for (uint32_t r = 1; r < runs; r += kFlight) {
    float sums[kFlight][kCount];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const float *from = run_sum(step, run.head + min(r + k, runs - 1) * kRun, false) + column;
#pragma unroll
      for (int e = 0; e < kCount; e++) sums[k][e] = from[e];
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
#pragma unroll
      for (int e = 0; e < kCount; e++) {
        const float more = plus(sum[e], sums[k][e]);
        sum[e] = r + k < runs ? more : sum[e];
      }
    }
  }
}

// 32 columns of a run by a warp, which also changes the row if it is the last one to come.
template <Kind kKind, bool kFloatRow, bool kFloatGradient, int kCount>
__device__ __forceinline__ void sum_run(const Step &step, const Run &run, uint32_t chunk, uint32_t lane) {
  constexpr int kRunFlight = 16;
  const Columns<1> column(step, chunk * 32 + lane);
  const Gradients<kFloatGradient, false, 1> gradients(step, column);
  float sum[1];
  gradients.begin(gradients.load(step.positions[run.begin]), sum);
  gradients.template add<kRunFlight>(step.positions, run.begin + 1, min(run.begin + kRun, run.row_end), sum);
  if (column.live > 0) run_sum(step, run.begin, run.first)[column.first] = sum[0];
  __threadfence();
  __syncwarp();
  uint32_t before = 0;
  if (lane == 0) before = atomicAdd(&step.arrivals[run.head / kWindow], 1);
  before = __shfl_sync(kWarp, before, 0);
  if (before + 1 != runs_of(run) * step.chunks) return;
  __threadfence();
  const Found found = find<kKind>(step, run.head, run.key);
  change_row<kKind, kFloatRow, kCount>(
      step, found, run.key, Team{lane, 32, kWarp},
      [&](const Columns<kCount> &columns, Row<kKind, kFloatRow, kCount> &row, float(&sum)[kCount]) {
        row.load(step, found, columns.first);
        add_runs<kCount>(step, run, columns.first, sum);
      });
}

// A block's part in the rows with many gradients: what begins in its windows.
template <Kind kKind, bool kFloatRow, bool kFloatGradient, int kCount>
__device__ __forceinline__ void many_gradients(const Step &step) {
  __shared__ Run runs[2 * kBlockWindows];
  __shared__ uint32_t found;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t window = blockIdx.x * kBlockWindows + warp;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  if (window <= (step.count - 1) / kWindow) {
    for (int which = 0; which < 2; which++) {
      Run run{};
      if (!(which == 0 ? first_run(step, window, lane, run) : later_run(step, window, lane, run))) continue;
      run.row_end = first_not(run.begin + 1, step.count, lane, [&](uint32_t i) { return key_at(step, i) == run.key; });
      if (lane == 0) runs[atomicAdd(&found, 1)] = run;
    }
  }
  __syncthreads();
  const uint32_t all = found;
  for (uint64_t turn = warp; turn < uint64_t{all} * step.chunks; turn += kWarps) {
    const Run run = runs[turn / step.chunks];
    sum_run<kKind, kFloatRow, kFloatGradient, kCount>(step, run, static_cast<uint32_t>(turn % step.chunks), lane);
  }
}

// What a kernel is compiled for: whether rows and gradients are floats (else of 16 bits), gradients aligned and whole pieces.
template <Kind kKindOf, bool kFloatRowOf, bool kFloatGradientOf, bool kAlignedOf>
struct Shape {
  static constexpr Kind kKind = kKindOf;
  static constexpr bool kFloatRow = kFloatRowOf, kFloatGradient = kFloatGradientOf, kAligned = kAlignedOf;
  // Elements of a lane's piece: the widest of gradient, row and state has 16 bytes.
  static constexpr int kCount = kKind == Kind::kSgd && !kFloatRow && !kFloatGradient ? 8 : 4;
};

// kFlight: gradients on their way at a time; kTeamRows: sorted rows that a team looks at; kPrepares: asks for the next one.
template <class S, int kFlight, int kTeamRows, bool kPrepares, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) step_kernel(const __grid_constant__ Step step) {
  wait_for_before();
  constexpr int kCount = S::kCount;
  if (blockIdx.x < step.run_blocks) {
    many_gradients<S::kKind, S::kFloatRow, S::kFloatGradient, kCount>(step);
    return;
  }
  const uint32_t lanes = 1u << step.team_log, number = threadIdx.x & (lanes - 1);
  const Team team = {number, lanes, (kWarp >> (32 - lanes)) << (threadIdx.x % 32 - number)};
  const uint32_t teams = kThreads >> step.team_log, block = blockIdx.x - step.run_blocks;
  if (block < step.home_blocks) {
    const uint32_t heads = *step.home_count;
#pragma unroll 1
    for (uint32_t k = block * teams + (threadIdx.x >> step.team_log); k < heads; k += step.home_blocks * teams) {
      const uint32_t head = step.home_heads[k];
      few_gradients<S::kKind, S::kFloatRow, S::kFloatGradient, S::kAligned, kCount, kFlight>(
          step, head, key_at(step, head), team);
    }
    return;
  }
  const uint32_t blocks = gridDim.x - step.run_blocks - step.home_blocks;
  for (uint32_t tile = block - step.home_blocks; tile < step.tiles; tile += blocks) {
    const uint32_t begin = (tile * teams + (threadIdx.x >> step.team_log)) * kTeamRows;
    const uint32_t end = min(begin + kTeamRows, step.count);
#pragma unroll 1
    for (uint32_t head = begin; head < end; head++) {
      if (kPrepares && head + 1 < end) {
        prepare<S::kKind, S::kFloatRow, S::kFloatGradient, S::kAligned, kCount>(step, head + 1, team);
      }
      const uint64_t key = key_at(step, head);
      if (key >= step.rows || (head > 0 && key_at(step, head - 1) == key)) continue;
      if (step.home_blocks != 0 && step.row_places[head] == step.table + key * step.table_stride_bytes) continue;
      few_gradients<S::kKind, S::kFloatRow, S::kFloatGradient, S::kAligned, kCount, kFlight>(step, head, key, team);
    }
  }
}

}  // namespace wmk
