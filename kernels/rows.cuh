// Rows between a table and plain memory, the kernels of gather and scatter. A row is cut into pieces of (at most) 16
// bytes, one a thread, so that no lane idles whatever the length of a row; every thread has several pieces in flight
// before it stores the first. All addresses are 64 bits wide; pieces are counted in 32 bits, larger calls are cut by
// the launcher.
#pragma once

#include <type_traits>

#include "args.h"
#include "bits.cuh"
#include "common/launch.h"
#include "common/place.h"
#include "early.cuh"
#include "meet.cuh"
#include "pieces.cuh"

namespace wmk {

template <int kMost>
struct Job {
  places<kMost> table;
  const void *ids;
  // At most one of the two.
  const uint32_t *order;
  const int64_t *positions;
  // NULL, or on the device: how many rows there are, `pieces` being for the most there can be.
  const uint32_t *count;
  uint64_t plain;
  uint64_t plain_stride_bytes;
  uint64_t plain_rows;
  wmk_board *board;
  // Of the rows of the call, the one that piece 0 is in.
  uint64_t first;
  uint32_t pieces;
  split by;
  uint32_t cols;
  uint32_t wide_ids;
  uint32_t early;  // may have begun before the meeting before it ended
  // Used where the direction is not known when compiling.
  uint32_t scatters;
};

constexpr int kThreads = 256;
// Pieces that a block of the shifting kernels stores at once: a lane of every warp only reads.
constexpr int kShiftedStride = kThreads / 32 * 31;

// Which side of a row is in the table.
enum class Way { kGather, kScatter, kEither };

// One thread's piece of a row.
struct Cell {
  uint64_t from;  // the row read
  uint64_t to;    // the row written
  uint32_t place;
  bool live;
  // The row read has neighbours on both sides.
  bool interior;
};

template <Way kWay, int kMost>
__device__ __forceinline__ bool scatters(const Job<kMost> &job) {
  return kWay == Way::kScatter || (kWay == Way::kEither && job.scatters);
}

// First of all in a kernel that may begin early, behind a meeting.
template <int kMost>
__device__ __forceinline__ void begin(const Job<kMost> &job) {
  if (!job.early) return;
  wait_for_before();
  // What others wrote before the meeting is in no cache of this multiprocessor.
  asm volatile("fence.acq_rel.sys;" ::: "memory");
  let_next_begin();
}

// The pieces of the launch.
template <int kMost>
__device__ __forceinline__ uint32_t pieces_of(const Job<kMost> &job) {
  if (job.count == nullptr) return job.pieces;
  const uint64_t rows = *job.count;
  const uint64_t pieces = rows > job.first ? (rows - job.first) * job.by.per_row : 0;
  return pieces < job.pieces ? static_cast<uint32_t>(pieces) : job.pieces;
}

// The pieces first_piece, first_piece + stride and so on, those before `end`.
template <Way kWay, int kFlight, int kMost>
__device__ __forceinline__ void locate(const Job<kMost> &job, uint32_t first_piece, uint32_t stride, uint32_t end,
                                       Cell (&cells)[kFlight]) {
  const bool scatter = scatters<kWay>(job);
  uint64_t row[kFlight], id[kFlight];
#pragma unroll
  for (int k = 0; k < kFlight; k++) {
    const uint32_t piece = first_piece + k * stride;
    const uint32_t r = row_of(job.by, piece);
    cells[k].live = piece < end;
    cells[k].place = piece - r * job.by.per_row;
    row[k] = job.first + r;
  }
  if (job.order != nullptr) {
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) row[k] = job.order[row[k]];
    }
  } else if (job.positions != nullptr) {
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) row[k] = static_cast<uint64_t>(job.positions[row[k]]);
    }
  }
  if (job.wide_ids) {
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) id[k] = static_cast<const uint64_t *>(job.ids)[row[k]];
    }
  } else {
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) id[k] = static_cast<uint64_t>(int64_t{static_cast<const int32_t *>(job.ids)[row[k]]});
    }
  }
#pragma unroll
  for (int k = 0; k < kFlight; k++) {
    // Negative ids are beyond all rows.
    cells[k].live = cells[k].live && id[k] < job.table.rows;
    const found_row found = find_row(job.table, cells[k].live ? id[k] : 0);
    const uint64_t plain = job.plain + row[k] * job.plain_stride_bytes;
    cells[k].from = scatter ? plain : found.address;
    cells[k].to = scatter ? found.address : plain;
    cells[k].interior = scatter ? row[k] > 0 && row[k] + 1 < job.plain_rows : found.interior;
  }
}

// A block's part of the work of `blocks` of them: kCount elements a piece, aligned on both sides, and whole pieces a row.
template <class From, class To, int kCount, int kFlight, Way kWay, bool kPasses = false, int kMost>
__device__ __forceinline__ void move_aligned(const Job<kMost> &job, uint32_t block, uint32_t blocks) {
  constexpr uint32_t kTile = kThreads * kFlight;
  constexpr int kFromBytes = sizeof(From) * kCount, kToBytes = sizeof(To) * kCount;
  const uint32_t step = blocks * kTile, pieces = pieces_of(job);
  for (uint32_t tile = block * kTile; tile < pieces; tile += step) {
    Cell cells[kFlight];
    locate<kWay>(job, tile + threadIdx.x, kThreads, pieces, cells);
    Bits<kFromBytes> in[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) in[k] = load<kFromBytes, kPasses>(cells[k].from + uint64_t{cells[k].place} * kFromBytes);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const uint64_t to = cells[k].to + uint64_t{cells[k].place} * kToBytes;
      if constexpr (std::is_same_v<From, To>) {
        if (cells[k].live) store<kPasses>(to, in[k]);
      } else {
        const auto piece = convert_piece<To>(value_of<Piece<From, kCount>>(in[k]));
        if (cells[k].live) store<kPasses>(to, bits_of(piece));
      }
    }
  }
}

template <class From, class To, int kCount, int kFlight, int kBlocks, Way kWay, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks) aligned_rows(const __grid_constant__ Job<kMost> job) {
  begin(job);
  move_aligned<From, To, kCount, kFlight, kWay>(job, blockIdx.x, gridDim.x);
  arrive_with_last_block(job.board);
}

// Elements [begin, end) of a row, one after the other: for rows at the ends of their memory.
template <class From, class To>
__device__ __forceinline__ void copy_elements(uint64_t from, uint64_t to, int begin, int end) {
#pragma unroll 1
  for (int i = begin; i < end; i++) {
    const auto element = value_of<From>(load<sizeof(From)>(from + i * static_cast<int64_t>(sizeof(From))));
    store(to + i * static_cast<int64_t>(sizeof(To)), bits_of(convert<To, From>::from(element)));
  }
}

// Rows at any alignment. Pieces are aligned to the row written, so all but its ends are stored whole; what a piece
// needs is a window into two neighbouring aligned words of the row read: a lane loads the first, the second is the next
// lane's. So a row has a piece more than it needs, and a warp's last lane loads only, what the next warp's first one
// stores. Words may stick out of a row, into its neighbours.
template <class From, class To, int kCount, int kFlight, Way kWay, bool kPasses = false, int kMost>
__device__ __forceinline__ void move_shifted(const Job<kMost> &job, uint32_t block, uint32_t blocks) {
  constexpr uint32_t kTile = kShiftedStride * kFlight;
  constexpr int kFromBytes = sizeof(From) * kCount, kToBytes = sizeof(To) * kCount;
  const uint32_t step = blocks * kTile, pieces = pieces_of(job);
  const uint32_t lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 31 + lane;
  const int cols = static_cast<int>(job.cols), row_bytes = cols * static_cast<int>(sizeof(From));
  // Else a word could reach beyond the neighbours.
  const bool wide_rows = (scatters<kWay>(job) ? job.plain_stride_bytes : job.table.stride_bytes) >= kFromBytes;
  for (uint32_t tile = block * kTile; tile < pieces; tile += step) {
    Cell cells[kFlight];
    locate<kWay>(job, tile + mine, kShiftedStride, pieces, cells);
    // Of a piece, the first element (those before 0 belong to the row before) and where its window begins in the word.
    int first[kFlight];
    uint32_t skip[kFlight];
    Bits<kFromBytes> word[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      Cell &cell = cells[k];
      first[k] = static_cast<int>(cell.place) * kCount - static_cast<int>(cell.to % kToBytes / sizeof(To));
      const int begin = first[k] * static_cast<int>(sizeof(From));
      skip[k] = static_cast<uint32_t>(cell.from + begin) % kFromBytes;
      const int at = begin - static_cast<int>(skip[k]);
      if (cell.live && !(wide_rows && cell.interior)) {
        if (lane != 31) copy_elements<From, To>(cell.from, cell.to, max(first[k], 0), min(first[k] + kCount, cols));
        cell.live = false;
      }
      if (cell.live && at + kFromBytes > 0 && at < row_bytes) word[k] = load<kFromBytes, kPasses>(cell.from + at);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const Bits<kFromBytes> in = window(word[k], from_next_lane(word[k]), skip[k]);
      const auto piece = convert_piece<To>(value_of<Piece<From, kCount>>(in));
      const uint64_t to = cells[k].to + first[k] * static_cast<int64_t>(sizeof(To));
      const bool stores = cells[k].live && lane != 31;
      const bool begins = first[k] >= 0, ends = first[k] + kCount <= cols;
      if (stores && begins && ends) {
        store<kPasses>(to, bits_of(piece));
      } else if (stores && ends) {
        store_tail<sizeof(To), kPasses>(to, bits_of(piece), max(first[k] + kCount, 0) * sizeof(To));
      } else if (stores && begins) {
        store_head<sizeof(To), kPasses>(to, bits_of(piece), max(cols - first[k], 0) * sizeof(To));
      } else if (stores) {
        // A row within one piece.
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          if (first[k] + i >= 0 && first[k] + i < cols) store<kPasses>(to + i * sizeof(To), bits_of(piece.at[i]));
        }
      }
    }
  }
}

template <class From, class To, int kCount, int kFlight, int kBlocks, Way kWay, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks) shifted_rows(const __grid_constant__ Job<kMost> job) {
  begin(job);
  move_shifted<From, To, kCount, kFlight, kWay>(job, blockIdx.x, gridDim.x);
  arrive_with_last_block(job.board);
}

}  // namespace wmk
