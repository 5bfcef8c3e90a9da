// From the arguments of a call to the launch of the kernel compiled for it.
#pragma once

#include "enqueue.cuh"
#include "rows.cuh"

namespace wmk {

template <int kMost>
using Kernel = void (*)(Job<kMost>);

// What a kernel is compiled for.
struct Ask {
  uint32_t from;
  uint32_t to;
  uint32_t path;
  uint32_t access_bytes;
};

// A kernel and how many pieces a block of it moves at a time; no kernel where the arguments name none.
template <int kMost>
struct Choice {
  Kernel<kMost> kernel = nullptr;
  uint32_t tile = 0;
  Handle *handle = nullptr;
};

// Pieces in flight a thread and blocks a multiprocessor: what registers allow without spilling.
constexpr int kAlignedFlight = 4, kAlignedBlocks = 4;
constexpr int kShiftedFlight = 4, kShiftedBlocks = 4;
constexpr int kShiftedConvertingFlight = 2, kShiftedConvertingBlocks = 6;

template <class From, class To, int kCount, Way kWay, int kMost>
Choice<kMost> aligned() {
  constexpr Kernel<kMost> kKernel = aligned_rows<From, To, kCount, kAlignedFlight, kAlignedBlocks, kWay, kMost>;
  return {kKernel, kThreads * kAlignedFlight, &handle_of<kKernel>};
}

template <class From, class To, int kCount, Way kWay, int kMost>
Choice<kMost> shifted() {
  constexpr bool kMoves = std::is_same_v<From, To>;
  constexpr int kFlight = kMoves ? kShiftedFlight : kShiftedConvertingFlight;
  constexpr int kBlocks = kMoves ? kShiftedBlocks : kShiftedConvertingBlocks;
  constexpr Kernel<kMost> kKernel = shifted_rows<From, To, kCount, kFlight, kBlocks, kWay, kMost>;
  return {kKernel, kShiftedStride * kFlight, &handle_of<kKernel>};
}

// Kernels for equal types: they move bytes.
template <Way kWay>
struct Moves {
  template <int kMost>
  static Choice<kMost> pick(const Ask &ask) {
    if (ask.path == path_move) {
      switch (ask.access_bytes) {
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
    if (ask.path == path_shift) {
      switch (dtype_bytes(ask.from)) {
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

  // Calls `f` with what each of the kernels is compiled for.
  template <class F>
  static void each(F f) {
    for (uint32_t bytes = 1; bytes <= access_limit; bytes *= 2) f(Ask{dtype_int8, dtype_int8, path_move, bytes});
    for (uint32_t type : {dtype_int8, dtype_int16, dtype_int}) f(Ask{type, type, path_shift, 0});
  }
};

template <class Picker, int kMost>
cudaError_t load_kernels() {
  cudaError_t code = cudaSuccess;
  Picker::each([&](const Ask &ask) {
    const Choice<kMost> choice = Picker::template pick<kMost>(ask);
    if (code == cudaSuccess) code = load_kernel(reinterpret_cast<const void *>(choice.kernel), *choice.handle);
  });
  return code;
}

inline row_facts facts_of(const wmk_rows_args &args, bool scatters) {
  uint64_t table_bits = args.table.offset_bytes | args.table.stride_bytes;
  for (uint64_t k = 0; k < args.table.places; k++) table_bits |= args.table.bases[k];
  const uint64_t plain_bits = args.plain | args.plain_stride_bytes;
  row_facts facts;
  facts.cols = args.cols;
  facts.from_bytes = dtype_bytes(scatters ? args.plain_dtype : args.table_dtype);
  facts.to_bytes = dtype_bytes(scatters ? args.table_dtype : args.plain_dtype);
  facts.converts = args.table_dtype != args.plain_dtype;
  facts.from_bits = scatters ? plain_bits : table_bits;
  facts.to_bits = scatters ? table_bits : plain_bits;
  return facts;
}

inline row_shape shape_for(const wmk_rows_args &args, bool scatters) {
  const row_facts facts = facts_of(args, scatters);
  if (args.path == 0) return shape_of(facts);
  row_shape shape = shape_on(args.path, facts);
  if (args.path == path_move && args.access_bytes != 0) {
    shape.pieces_per_row = shape.pieces_per_row * shape.access_bytes / args.access_bytes;
    shape.access_bytes = args.access_bytes;
  }
  return shape;
}

// Everything but the pieces of a launch.
template <int kMost>
Job<kMost> job_for(const wmk_rows_args &args, const row_shape &shape, bool scatters) {
  Job<kMost> job{};
  job.table = pack_places<kMost>(args.table.bases, args.table.start_rows, args.table.places, args.table.offset_bytes,
                                 args.table.stride_bytes, args.table.rows);
  job.ids = args.ids;
  job.order = args.order;
  job.positions = args.order == nullptr ? args.positions : nullptr;
  job.count = args.count_at;
  job.plain = args.plain;
  job.plain_stride_bytes = args.plain_stride_bytes;
  job.plain_rows = args.plain_rows != 0 ? args.plain_rows : args.count;
  job.by = split_of(static_cast<uint32_t>(shape.pieces_per_row));
  job.cols = static_cast<uint32_t>(args.cols);
  job.wide_ids = args.id_bytes == 8;
  job.scatters = scatters;
  return job;
}

template <class Picker, int kMost>
cudaError_t launch(const wmk_rows_args &args, bool scatters, cudaStream_t stream) {
  const row_shape shape = shape_for(args, scatters);
  const uint32_t from = scatters ? args.plain_dtype : args.table_dtype,
                 to = scatters ? args.table_dtype : args.plain_dtype;
  // Places in a row are counted in 31 bits, with room for the words around it.
  const uint64_t most_cols =
      (INT32_MAX - 64) / (dtype_bytes(from) > dtype_bytes(to) ? dtype_bytes(from) : dtype_bytes(to));
  const Choice<kMost> choice = Picker::template pick<kMost>({from, to, shape.path, shape.access_bytes});
  if (choice.kernel == nullptr || shape.pieces_per_row == 0 || shape.pieces_per_row >= pieces_limit ||
      args.cols > most_cols || args.blocks == 0) {
    return cudaErrorInvalidValue;
  }
  Job<kMost> job = job_for<kMost>(args, shape, scatters);
  const uint64_t rows_a_launch = (pieces_limit - 1) / shape.pieces_per_row;
  for (uint64_t first = 0; first < args.count; first += rows_a_launch) {
    const uint64_t rows = args.count - first < rows_a_launch ? args.count - first : rows_a_launch;
    job.first = first;
    job.pieces = static_cast<uint32_t>(rows * shape.pieces_per_row);
    job.board = first + rows == args.count ? static_cast<wmk_board *>(args.board) : nullptr;
    const uint32_t tiles = (job.pieces + choice.tile - 1) / choice.tile;
    const uint32_t blocks = args.blocks < tiles ? args.blocks : tiles;
    job.early = first == 0 && blocks <= args.early_blocks && may_begin_early(stream);
    void *parameters[] = {&job};
    const cudaError_t code = enqueue(reinterpret_cast<const void *>(choice.kernel), *choice.handle,
                                     blocks, kThreads, parameters, stream, job.early != 0);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

// Kernels for different types, in convert.cu; they go both ways. NULL arguments load them.
cudaError_t convert_rows(const wmk_rows_args *args, bool scatters, cudaStream_t stream);

template <Way kWay>
cudaError_t move_rows(const wmk_rows_args *args, cudaStream_t stream) {
  constexpr bool kScatters = kWay == Way::kScatter;
  if (args == nullptr) {
    for (const cudaError_t code : {load_kernels<Moves<kWay>, one_place>(), load_kernels<Moves<kWay>, few_places>(),
                                   load_kernels<Moves<kWay>, many_places>()}) {
      if (code != cudaSuccess) return code;
    }
    return convert_rows(nullptr, kScatters, stream);
  }
  const uint32_t types[] = {args->table_dtype, args->plain_dtype};
  if (!is_dtype(types[0]) || !is_dtype(types[1]) || args->table.places == 0 || args->table.places > many_places) {
    return cudaErrorInvalidValue;
  }
  if (types[0] != types[1]) return convert_rows(args, kScatters, stream);
  if (args->table.places <= one_place) return launch<Moves<kWay>, one_place>(*args, kScatters, stream);
  if (args->table.places <= few_places) return launch<Moves<kWay>, few_places>(*args, kScatters, stream);
  return launch<Moves<kWay>, many_places>(*args, kScatters, stream);
}

}  // namespace wmk
