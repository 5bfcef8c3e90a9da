// From the arguments of a call to the launch of the kernel compiled for it.
#pragma once

#include "rows.cuh"

namespace wmk {

template <int kMost>
using Kernel = void (*)(Job<kMost>);

// A kernel and how many pieces a thread of it has in flight; no kernel where the arguments name none.
template <int kMost>
struct Choice {
  Kernel<kMost> kernel = nullptr;
  uint32_t flight = 0;
};

// Pieces in flight a thread and blocks a multiprocessor: what registers allow without spilling. Conversions at any
// alignment are less work a byte for memory than for the compiler, so they get by with one.
constexpr int kAlignedFlight = 4, kAlignedBlocks = 4;
constexpr int kShiftedFlight = 2, kShiftedBlocks = 4;
constexpr int kShiftedConvertingFlight = 1, kShiftedConvertingBlocks = 6;

template <class From, class To, int kCount, Way kWay, int kMost>
Choice<kMost> aligned() {
  return {aligned_rows<From, To, kCount, kAlignedFlight, kAlignedBlocks, kWay, kMost>, kAlignedFlight};
}

template <class From, class To, int kCount, Way kWay, int kMost>
Choice<kMost> shifted() {
  constexpr bool kMoves = std::is_same_v<From, To>;
  constexpr int kFlight = kMoves ? kShiftedFlight : kShiftedConvertingFlight;
  constexpr int kBlocks = kMoves ? kShiftedBlocks : kShiftedConvertingBlocks;
  return {shifted_rows<From, To, kCount, kFlight, kBlocks, kWay, kMost>, kFlight};
}

inline int dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case WMK_INT8:
      return 1;
    case WMK_HALF:
    case WMK_BF16:
    case WMK_INT16:
      return 2;
    case WMK_FLOAT:
    case WMK_INT:
      return 4;
    default:
      return 8;
  }
}

// Kernels for equal types: they move bytes.
template <Way kWay>
struct Moves {
  template <int kMost>
  static Choice<kMost> pick(const wmk_rows_args& args) {
    if (args.from != args.to) return {};
    if (args.path == WMK_PATH_MOVE) {
      switch (args.access_bytes) {
        case 1:
          return aligned<uint8_t, uint8_t, 1, kWay, kMost>();
        case 2:
          return aligned<uint16_t, uint16_t, 1, kWay, kMost>();
        case 4:
          return aligned<uint32_t, uint32_t, 1, kWay, kMost>();
        case 8:
          return aligned<uint32_t, uint32_t, 2, kWay, kMost>();
        case 16:
          return aligned<uint32_t, uint32_t, 4, kWay, kMost>();
      }
    }
    if (args.path == WMK_PATH_SHIFT) {
      switch (dtype_bytes(args.from)) {
        case 1:
          return shifted<uint8_t, uint8_t, 16, kWay, kMost>();
        case 2:
          return shifted<uint16_t, uint16_t, 8, kWay, kMost>();
        case 4:
          return shifted<uint32_t, uint32_t, 4, kWay, kMost>();
      }
    }
    return {};
  }

  // Calls `f` with arguments that name each of the kernels.
  template <class F>
  static void each(F f) {
    wmk_rows_args args{};
    for (uint32_t bytes = 1; bytes <= 16; bytes *= 2) {
      args.from = args.to = WMK_INT8;
      args.path = WMK_PATH_MOVE;
      args.access_bytes = bytes;
      f(args);
    }
    for (uint32_t dtype : {WMK_INT8, WMK_INT16, WMK_INT}) {
      args.from = args.to = dtype;
      args.path = WMK_PATH_SHIFT;
      f(args);
    }
  }
};

template <class Picker, int kMost>
cudaError_t load_kernels() {
  cudaError_t code = cudaSuccess;
  Picker::each([&](const wmk_rows_args& args) {
    const Kernel<kMost> kernel = Picker::template pick<kMost>(args).kernel;
    cudaFuncAttributes attributes;
    if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  });
  return code;
}

template <class Picker, int kMost>
cudaError_t launch(const wmk_rows_args& args, bool scatters, cudaStream_t stream) {
  const Choice<kMost> choice = Picker::template pick<kMost>(args);
  if (choice.kernel == nullptr || args.pieces_per_row == 0 || args.pieces_per_row >= kPiecesLimit || args.blocks == 0) {
    return cudaErrorInvalidValue;
  }
  Job<kMost> job{};
  job.places = pack<kMost>(args.table);
  job.ids = args.ids;
  job.order = args.order;
  job.plain = args.plain;
  job.plain_stride_bytes = args.plain_stride_bytes;
  job.plain_rows = args.count;
  job.split = split_of(args.pieces_per_row);
  job.cols = args.cols;
  job.wide_ids = args.id_bytes == 8;
  job.scatters = scatters;
  const uint32_t tile = kThreads * choice.flight;
  const uint64_t rows_a_launch = (kPiecesLimit - 1) / args.pieces_per_row;
  for (uint64_t first = 0; first < args.count; first += rows_a_launch) {
    const uint64_t rows = args.count - first < rows_a_launch ? args.count - first : rows_a_launch;
    job.first = first;
    job.pieces = static_cast<uint32_t>(rows * args.pieces_per_row);
    job.board = first + rows == args.count ? static_cast<wmk_board*>(args.board) : nullptr;
    const uint32_t tiles = (job.pieces + tile - 1) / tile;
    void* parameters[] = {&job};
    const cudaError_t code =
        cudaLaunchKernel(reinterpret_cast<const void*>(choice.kernel), dim3(args.blocks < tiles ? args.blocks : tiles),
                         dim3(kThreads), parameters, 0, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

// Kernels for different types, in convert.cu; they go both ways. NULL arguments load them.
cudaError_t convert_rows(const wmk_rows_args* args, bool scatters, cudaStream_t stream);

template <Way kWay>
cudaError_t move_rows(const wmk_rows_args* args, cudaStream_t stream) {
  constexpr bool kScatters = kWay == Way::kScatter;
  if (args == nullptr) {
    for (const cudaError_t code : {load_kernels<Moves<kWay>, kOnePlace>(), load_kernels<Moves<kWay>, kFewPlaces>(),
                                   load_kernels<Moves<kWay>, kManyPlaces>()}) {
      if (code != cudaSuccess) return code;
    }
    return convert_rows(nullptr, kScatters, stream);
  }
  if (args->table.places == 0 || args->table.places > kManyPlaces) return cudaErrorInvalidValue;
  if (args->from != args->to) return convert_rows(args, kScatters, stream);
  if (args->table.places <= kOnePlace) return launch<Moves<kWay>, kOnePlace>(*args, kScatters, stream);
  if (args->table.places <= kFewPlaces) return launch<Moves<kWay>, kFewPlaces>(*args, kScatters, stream);
  return launch<Moves<kWay>, kManyPlaces>(*args, kScatters, stream);
}

}  // namespace wmk
