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
#include "meet.cuh"
#include "pieces.cuh"

namespace wmk {

template <int kMost>
struct Job {
  places<kMost> table;
  const void *ids;
  const uint32_t *order;
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
  // Used where the direction is not known when compiling.
  uint32_t scatters;
};

constexpr int kThreads = 256;

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

template <Way kWay, int kFlight, int kMost>
__device__ __forceinline__ void locate(const Job<kMost> &job, uint32_t first_piece, Cell (&cells)[kFlight]) {
  const bool scatter = scatters<kWay>(job);
  uint64_t row[kFlight], id[kFlight];
#pragma unroll
  for (int k = 0; k < kFlight; k++) {
    const uint32_t piece = first_piece + k * kThreads + threadIdx.x;
    const uint32_t r = row_of(job.by, piece);
    cells[k].live = piece < job.pieces;
    cells[k].place = piece - r * job.by.per_row;
    row[k] = job.first + r;
  }
  if (job.order != nullptr) {
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) row[k] = job.order[row[k]];
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

// kCount elements a piece, aligned on both sides, and whole pieces a row.
template <class From, class To, int kCount, int kFlight, int kBlocks, Way kWay, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks) aligned_rows(const __grid_constant__ Job<kMost> job) {
  constexpr uint32_t kTile = kThreads * kFlight;
  constexpr int kFromBytes = sizeof(From) * kCount, kToBytes = sizeof(To) * kCount;
  const uint32_t step = gridDim.x * kTile;
  for (uint32_t tile = blockIdx.x * kTile; tile < job.pieces; tile += step) {
    Cell cells[kFlight];
    locate<kWay>(job, tile, cells);
    Bits<kFromBytes> in[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      if (cells[k].live) in[k] = load<kFromBytes>(cells[k].from + uint64_t{cells[k].place} * kFromBytes);
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const uint64_t to = cells[k].to + uint64_t{cells[k].place} * kToBytes;
      if constexpr (std::is_same_v<From, To>) {
        if (cells[k].live) store(to, in[k]);
      } else {
        const auto piece = convert_piece<To>(value_of<Piece<From, kCount>>(in[k]));
        if (cells[k].live) store(to, bits_of(piece));
      }
    }
  }
  arrive_with_last_block(job.board);
}

// The aligned word at `at`, or what of it lies in [begin, end). Words that stick out of a row are read whole where its
// neighbours are there to be read.
template <class T, int kBytes>
__device__ __forceinline__ Bits<kBytes> load_within(uint64_t at, uint64_t begin, uint64_t end, bool interior) {
  if (interior || (at >= begin && at + kBytes <= end)) return load<kBytes>(at);
  Bits<kBytes> b{};
#pragma unroll 1
  for (uint64_t element = at > begin ? at : begin; element < (at + kBytes < end ? at + kBytes : end);
       element += sizeof(T)) {
    put(b, static_cast<uint32_t>(element - at), load<sizeof(T)>(element));
  }
  return b;
}

// Rows at any alignment. Pieces are aligned to the row written, so all but its ends are stored whole; what a piece
// needs is a window into two neighbouring aligned words of the row read, and the second is the next lane's first.
template <class From, class To, int kCount, int kFlight, int kBlocks, Way kWay, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocks) shifted_rows(const __grid_constant__ Job<kMost> job) {
  constexpr uint32_t kTile = kThreads * kFlight;
  constexpr int kFromBytes = sizeof(From) * kCount, kToBytes = sizeof(To) * kCount;
  const uint32_t step = gridDim.x * kTile;
  const int cols = static_cast<int>(job.cols);
  const bool last_lane = threadIdx.x % 32 == 31;
  // Only then do words that stick out of a row stay within its neighbours.
  const bool wide_rows = (scatters<kWay>(job) ? job.plain_stride_bytes : job.table.stride_bytes) >= kFromBytes;
  for (uint32_t tile = blockIdx.x * kTile; tile < job.pieces; tile += step) {
    Cell cells[kFlight];
    locate<kWay>(job, tile, cells);
    Bits<kFromBytes> low[kFlight], high[kFlight];
    int first[kFlight];
    uint32_t skip[kFlight];
    bool own[kFlight];
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const Cell &cell = cells[k];
      // The piece's first element; those before 0 belong to the row before.
      first[k] = static_cast<int>(cell.place) * kCount - static_cast<int>(cell.to % kToBytes / sizeof(To));
      const uint64_t begin = cell.from, end = cell.from + uint64_t(cols) * sizeof(From);
      const uint64_t at = cell.from + int64_t{first[k]} * static_cast<int64_t>(sizeof(From));
      skip[k] = static_cast<uint32_t>(at % kFromBytes);
      const uint64_t word = at - skip[k];
      const bool interior = wide_rows && cell.interior;
      own[k] = last_lane || cell.place + 1 == job.by.per_row;
      if (cell.live && word + kFromBytes > begin && word < end)
        low[k] = load_within<From, kFromBytes>(word, begin, end, interior);
      if (cell.live && own[k] && skip[k] != 0 && word + 2 * kFromBytes > begin && word + kFromBytes < end) {
        high[k] = load_within<From, kFromBytes>(word + kFromBytes, begin, end, interior);
      }
    }
#pragma unroll
    for (int k = 0; k < kFlight; k++) {
      const Cell &cell = cells[k];
      const Bits<kFromBytes> next = from_next_lane(low[k]);
      const Bits<kFromBytes> in = window(low[k], own[k] ? high[k] : next, skip[k]);
      const auto piece = convert_piece<To>(value_of<Piece<From, kCount>>(in));
      const uint64_t to = cell.to + int64_t{first[k]} * static_cast<int64_t>(sizeof(To));
      if (cell.live && first[k] >= 0 && first[k] + kCount <= cols) {
        store(to, bits_of(piece));
      } else if (cell.live) {
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          if (first[k] + i >= 0 && first[k] + i < cols) store(to + i * sizeof(To), bits_of(piece.at[i]));
        }
      }
    }
  }
  arrive_with_last_block(job.board);
}

}  // namespace wmk
