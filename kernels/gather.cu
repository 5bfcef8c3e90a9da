// Gather: rows of a table that the device can read, in the order of the ids. Kernels are chosen by access width
// and conversion: equal types move as bytes, and both id widths share a kernel. A group of lanes works on a row, and loads from several rows before it stores.

#include "common/dtype.h"
#include "common/launch.h"
#include "common/place.h"
#include "gather.h"

#include <cuda_runtime_api.h>

namespace {

using wmk::places;

struct job {
  places table;
  const void* ids;
  bool wide_ids;
  uint64_t count;
  uint64_t output;
  uint64_t output_stride_bytes;
  // Accesses (or elements) that make up a row, and what is left over.
  uint64_t steps;
  uint32_t tail;
  uint32_t lanes_per_row;
};

// Negative ids come out larger than every row count. The branch is the same for all threads.
__device__ uint64_t id_at(const job& work, uint64_t row)
{
  int64_t id = work.wide_ids ? static_cast<const int64_t*>(work.ids)[row] : static_cast<const int32_t*>(work.ids)[row];
  return static_cast<uint64_t>(id);
}

// The rows that the group of this thread works on in one turn: `InFlight` of them, so that neighbouring groups of a warp
// write neighbouring rows.
template <int InFlight>
struct turn {
  uint64_t source[InFlight];
  uint64_t target[InFlight];

  __device__ turn(const job& work, uint64_t first)
  {
    uint32_t groups = 32 / work.lanes_per_row;
    uint32_t group  = (threadIdx.x & 31u) / work.lanes_per_row;
#pragma unroll
    for (int k = 0; k < InFlight; k++) {
      uint64_t row = first + static_cast<uint64_t>(k) * groups + group;
      source[k]    = 0;
      target[k]    = work.output + row * work.output_stride_bytes;
      if (row < work.count) {
        source[k] = wmk::row_address(work.table, id_at(work, row));
      }
    }
  }
};

// Calls `body(first row of a warp's turn, lane within its group)` until all rows are done.
template <int InFlight, typename Body>
__device__ void for_each_turn(const job& work, Body body)
{
  uint32_t lane     = threadIdx.x % work.lanes_per_row;
  uint64_t per_turn = static_cast<uint64_t>(32 / work.lanes_per_row) * InFlight;
  uint64_t warp     = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  uint64_t warps    = static_cast<uint64_t>(gridDim.x) * blockDim.x / 32;
  for (uint64_t first = warp * per_turn; first < work.count; first += warps * per_turn) {
    body(first, lane);
  }
}

// Rows as bytes, where sources and targets are aligned to Access.
template <typename Access, int InFlight>
__global__ void __launch_bounds__(wmk::row_kernel_threads) move_aligned(job work)
{
  for_each_turn<InFlight>(work, [&](uint64_t first, uint32_t lane) {
    turn<InFlight> rows(work, first);
    for (uint64_t step = lane; step < work.steps; step += work.lanes_per_row) {
      Access value[InFlight];
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] != 0) value[k] = reinterpret_cast<const Access*>(rows.source[k])[step];
      }
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] != 0) reinterpret_cast<Access*>(rows.target[k])[step] = value[k];
      }
    }
    uint64_t done = work.steps * sizeof(Access);
    for (uint32_t byte = lane; byte < work.tail; byte += work.lanes_per_row) {
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] != 0) {
          reinterpret_cast<char*>(rows.target[k])[done + byte] =
            reinterpret_cast<const char*>(rows.source[k])[done + byte];
        }
      }
    }
  });
}

// 16 bytes from any address, out of the aligned words that hold them (and no others).
__device__ uint4 load_shifted(uint64_t from)
{
  const uint32_t* words = reinterpret_cast<const uint32_t*>(from & ~uint64_t{3});
  uint32_t shift        = static_cast<uint32_t>(from & 3) * 8;
  uint4 value           = {words[0], words[1], words[2], words[3]};
  if (shift != 0) {
    uint32_t last = words[4];
    value.x       = __funnelshift_r(value.x, value.y, shift);
    value.y       = __funnelshift_r(value.y, value.z, shift);
    value.z       = __funnelshift_r(value.z, value.w, shift);
    value.w       = __funnelshift_r(value.w, last, shift);
  }
  return value;
}

// Rows as bytes, at any alignment: the aligned 16-byte pieces of the target are put together from shifted words of the source;
// the two ends of a row, less than 16 bytes each, move byte by byte. `work.steps` is the row's length in bytes.
template <int InFlight>
__global__ void __launch_bounds__(wmk::row_kernel_threads) move_shifted(job work)
{
  for_each_turn<InFlight>(work, [&](uint64_t first, uint32_t lane) {
    turn<InFlight> rows(work, first);
    uint64_t head[InFlight], pieces[InFlight], most = 0;
#pragma unroll
    for (int k = 0; k < InFlight; k++) {
      head[k] = (0 - rows.target[k]) & 15;
      if (head[k] > work.steps) head[k] = work.steps;
      pieces[k] = rows.source[k] != 0 ? (work.steps - head[k]) / 16 : 0;
      if (pieces[k] > most) most = pieces[k];
    }
    for (uint64_t piece = lane; piece < most; piece += work.lanes_per_row) {
      uint4 value[InFlight];
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (piece < pieces[k]) value[k] = load_shifted(rows.source[k] + head[k] + piece * 16);
      }
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (piece < pieces[k]) *reinterpret_cast<uint4*>(rows.target[k] + head[k] + piece * 16) = value[k];
      }
    }
#pragma unroll
    for (int k = 0; k < InFlight; k++) {
      if (rows.source[k] == 0) continue;
      const char* source = reinterpret_cast<const char*>(rows.source[k]);
      char* target       = reinterpret_cast<char*>(rows.target[k]);
      uint64_t middle    = pieces[k] * 16;
      for (uint64_t at = lane; at < work.steps - middle; at += work.lanes_per_row) {
        uint64_t byte = at < head[k] ? at : at + middle;
        target[byte]  = source[byte];
      }
    }
  });
}

template <typename T, int Count>
struct alignas(sizeof(T) * Count) pack {
  T value[Count];
};

// Rows whose element type changes, Pack elements an access.
template <typename From, typename To, int Pack, int InFlight>
__global__ void __launch_bounds__(wmk::row_kernel_threads) move_converted(job work)
{
  for_each_turn<InFlight>(work, [&](uint64_t first, uint32_t lane) {
    turn<InFlight> rows(work, first);
    for (uint64_t step = lane; step < work.steps; step += work.lanes_per_row) {
      pack<From, Pack> in[InFlight];
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] != 0) in[k] = reinterpret_cast<const pack<From, Pack>*>(rows.source[k])[step];
      }
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] == 0) continue;
        pack<To, Pack> out;
#pragma unroll
        for (int e = 0; e < Pack; e++) {
          out.value[e] = wmk::convert<To, From>::from(in[k].value[e]);
        }
        reinterpret_cast<pack<To, Pack>*>(rows.target[k])[step] = out;
      }
    }
    uint64_t done = work.steps * Pack;
    for (uint32_t e = lane; e < work.tail; e += work.lanes_per_row) {
#pragma unroll
      for (int k = 0; k < InFlight; k++) {
        if (rows.source[k] == 0) continue;
        From value                                         = reinterpret_cast<const From*>(rows.source[k])[done + e];
        reinterpret_cast<To*>(rows.target[k])[done + e] = wmk::convert<To, From>::from(value);
      }
    }
  });
}

constexpr int byte_rows    = 4;
constexpr int convert_rows = 2;

cudaError_t start(void (*kernel)(job), job work, int in_flight, uint32_t most_blocks, cudaStream_t stream)
{
  uint64_t steps       = work.steps > 0 ? work.steps : 1;
  wmk::row_launch wide = wmk::launch_rows(work.count, steps, in_flight, most_blocks);
  work.lanes_per_row   = wide.lanes_per_row;
  kernel<<<wide.blocks, wmk::row_kernel_threads, 0, stream>>>(work);
  return cudaGetLastError();
}

cudaError_t gather_bytes(const wmk_gather_args& args, job work, uint64_t alignment, cudaStream_t stream)
{
  uint64_t bytes  = args.cols * wmk::dtype_bytes(args.table_dtype);
  uint32_t access = wmk::access_bytes(alignment);
  // Rows shorter than the alignment of their places need no wider accesses than they have bytes.
  while (access > bytes) {
    access /= 2;
  }
  if (access < 4 && bytes >= 16) {
    work.steps = bytes;
    // A lane moves 16 bytes, so the width follows from the pieces.
    uint64_t steps       = bytes / 16;
    wmk::row_launch wide = wmk::launch_rows(work.count, steps, byte_rows, args.most_blocks);
    work.lanes_per_row   = wide.lanes_per_row;
    move_shifted<byte_rows><<<wide.blocks, wmk::row_kernel_threads, 0, stream>>>(work);
    return cudaGetLastError();
  }
  work.steps = bytes / access;
  work.tail  = static_cast<uint32_t>(bytes % access);
  switch (access) {
    case 16: return start(move_aligned<uint4, byte_rows>, work, byte_rows, args.most_blocks, stream);
    case 8: return start(move_aligned<uint2, byte_rows>, work, byte_rows, args.most_blocks, stream);
    case 4: return start(move_aligned<uint32_t, byte_rows>, work, byte_rows, args.most_blocks, stream);
    case 2: return start(move_aligned<uint16_t, byte_rows>, work, byte_rows, args.most_blocks, stream);
    default: return start(move_aligned<uint8_t, byte_rows>, work, byte_rows, args.most_blocks, stream);
  }
}

template <typename From, typename To>
cudaError_t gather_as(const wmk_gather_args& args, job work, uint64_t from, uint64_t to, cudaStream_t stream)
{
  constexpr int larger = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To);
  constexpr int wide   = 16 / larger;
  bool aligned         = from % (wide * sizeof(From)) == 0 && to % (wide * sizeof(To)) == 0;
  if (aligned && args.cols >= wide) {
    work.steps = args.cols / wide;
    work.tail  = static_cast<uint32_t>(args.cols % wide);
    return start(move_converted<From, To, wide, convert_rows>, work, convert_rows, args.most_blocks, stream);
  }
  work.steps = args.cols;
  return start(move_converted<From, To, 1, convert_rows>, work, convert_rows, args.most_blocks, stream);
}

template <typename From>
cudaError_t gather_floats(const wmk_gather_args& args, const job& work, uint64_t from, uint64_t to, cudaStream_t stream)
{
  switch (args.output_dtype) {
    case wmk::dtype_float: return gather_as<From, float>(args, work, from, to, stream);
    case wmk::dtype_half: return gather_as<From, wmk::half_bits>(args, work, from, to, stream);
    case wmk::dtype_double: return gather_as<From, double>(args, work, from, to, stream);
    default: return gather_as<From, wmk::bf16_bits>(args, work, from, to, stream);
  }
}

template <typename From>
cudaError_t gather_ints(const wmk_gather_args& args, const job& work, uint64_t from, uint64_t to, cudaStream_t stream)
{
  switch (args.output_dtype) {
    case wmk::dtype_int: return gather_as<From, int32_t>(args, work, from, to, stream);
    case wmk::dtype_int64: return gather_as<From, int64_t>(args, work, from, to, stream);
    case wmk::dtype_int16: return gather_as<From, int16_t>(args, work, from, to, stream);
    default: return gather_as<From, int8_t>(args, work, from, to, stream);
  }
}

cudaError_t gather(const wmk_gather_args& args, const job& work, cudaStream_t stream)
{
  uint64_t from = args.base_alignment_bits | args.offset_bytes | args.table_stride_bytes;
  uint64_t to   = args.output | args.output_stride_bytes;
  if (args.table_dtype == args.output_dtype) return gather_bytes(args, work, from | to, stream);
  switch (args.table_dtype) {
    case wmk::dtype_float: return gather_floats<float>(args, work, from, to, stream);
    case wmk::dtype_half: return gather_floats<wmk::half_bits>(args, work, from, to, stream);
    case wmk::dtype_double: return gather_floats<double>(args, work, from, to, stream);
    case wmk::dtype_bf16: return gather_floats<wmk::bf16_bits>(args, work, from, to, stream);
    case wmk::dtype_int: return gather_ints<int32_t>(args, work, from, to, stream);
    case wmk::dtype_int64: return gather_ints<int64_t>(args, work, from, to, stream);
    case wmk::dtype_int16: return gather_ints<int16_t>(args, work, from, to, stream);
    default: return gather_ints<int8_t>(args, work, from, to, stream);
  }
}

}  // namespace

// Enqueues the gather on the stream and returns a cudaError_t: cudaErrorInvalidValue for types that are none or of two kinds.
extern "C" int wmk_gather(const wmk_gather_args* args, cudaStream_t stream)
{
  bool known = wmk::is_dtype(args->table_dtype) && wmk::is_dtype(args->output_dtype);
  bool ids   = args->ids_dtype == wmk::dtype_int || args->ids_dtype == wmk::dtype_int64;
  if (!known || !ids || args->most_blocks == 0 ||
      wmk::is_float(args->table_dtype) != wmk::is_float(args->output_dtype)) {
    return cudaErrorInvalidValue;
  }
  if (args->count == 0 || args->cols == 0 || args->rows == 0) return cudaSuccess;
  job work    = {};
  work.table  = {args->base,         args->bases,       args->start_rows, args->ranks,
                 args->offset_bytes, args->table_stride_bytes, args->rows};
  work.wide_ids = args->ids_dtype == wmk::dtype_int64;
  work.ids    = reinterpret_cast<const void*>(args->ids);
  work.count  = args->count;
  work.output = args->output;
  work.output_stride_bytes = args->output_stride_bytes;
  return gather(*args, work, stream);
}
