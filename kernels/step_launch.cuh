// From the arguments of a gradient step to the launch of a kernel for it.
#pragma once

#include "common/dtype.h"
#include "common/launch.h"
#include "scratch.h"
#include "step.cuh"

namespace wmk {

using Kernel = void (*)(Step);

// A kernel and what it was compiled for.
struct Choice {
  Kernel kernel = nullptr;
  uint32_t elements = 0;  // of a piece
  uint32_t team_rows = 0;
};

// Whether gradients can be read by pieces of so many elements.
inline bool aligned_for(const wmk_step_args &args, uint32_t elements) {
  const uint64_t bits = args.gradients | args.gradient_stride_bytes;
  return bits % (elements * dtype_bytes(args.gradient_dtype)) == 0 && args.cols % elements == 0;
}

// Everything but where the sums of runs are.
inline Step step_of(const wmk_step_args &args, const Choice &choice) {
  Step step{};
  step.keys = reinterpret_cast<const void *>(args.sorted_rows);
  step.positions = reinterpret_cast<const uint32_t *>(args.positions);
  step.count = static_cast<uint32_t>(args.count);
  step.wide_keys = args.rows > UINT32_MAX;
  step.rows = args.rows;
  step.gradients = args.gradients;
  step.gradient_stride_bytes = args.gradient_stride_bytes;
  step.table = args.table;
  step.table_stride_bytes = args.table_stride_bytes;
  step.states = args.states[0];
  step.second_bytes = args.states[1] - args.states[0];
  step.state_stride_bytes = args.state_stride_bytes;
  step.powers = reinterpret_cast<row_powers *>(args.beta_powers);
  step.row_places = args.row_places;
  step.state_sources = args.state_sources;
  step.state_targets = args.state_targets;
  step.home_heads = args.home_heads;
  step.home_count = args.home_count;
  step.home_blocks = args.home_heads == nullptr ? 0 : args.home_blocks;
  step.arrivals = reinterpret_cast<uint32_t *>(args.zeros);
  const wmk_rule &rule = args.rule;
  step.how = {rule.optimizer, rule.adam_w, rule.learning_rate, rule.weight_decay,
              rule.epsilon,   rule.beta1,  rule.beta2,         rule.alpha};
  step.cols = static_cast<uint32_t>(args.cols);
  const uint32_t unit = access_limit / dtype_bytes(args.table_dtype);
  step.pieces = (step.cols + unit - 1) / unit * unit / choice.elements;
  step.chunks = (step.cols + 31) / 32;
  while (step.team_log < 5 && 1u << step.team_log < step.pieces) step.team_log++;
  const uint32_t tile = (kThreads >> step.team_log) * choice.team_rows;
  step.tiles = (step.count + tile - 1) / tile;
  step.bf16_row = args.table_dtype == dtype_bf16;
  step.bf16_gradient = args.gradient_dtype == dtype_bf16;
  return step;
}

// Does nothing but count the scratch where that only counts.
inline cudaError_t launch_step(const wmk_step_args &args, const Choice &choice, cudaStream_t stream) {
  const uint64_t bits =
      args.table | args.table_stride_bytes | args.states[0] | args.states[1] | args.state_stride_bytes;
  if (args.count == 0 || args.count > INT32_MAX || args.cols == 0 || args.cols >= 1u << 28 ||
      bits % access_limit != 0 || args.blocks == 0 ||
      (args.home_heads != nullptr && (args.row_places == nullptr || args.home_blocks == 0))) {
    return cudaErrorInvalidValue;
  }
  Step step = step_of(args, choice);
  Scratch scratch(args.scratch, args.scratch_bytes);
  const uint64_t windows = (step.count - 1) / kWindow + 1;
  if (step.count > kManyGradients) {
    step.run_blocks = static_cast<uint32_t>((windows + kBlockWindows - 1) / kBlockWindows);
  }
  step.run_sum_floats = uint64_t{step.pieces} * choice.elements;
  step.run_sums = scratch.take<float>(step.run_blocks == 0 ? 1 : windows * 2 * step.run_sum_floats);
  if (scratch.counts_only()) {
    *args.needed_bytes = scratch.taken_bytes();
    return cudaSuccess;
  }
  if (!scratch.suffices()) return cudaErrorInvalidValue;
  const uint32_t blocks = step.run_blocks + step.home_blocks + (args.blocks < step.tiles ? args.blocks : step.tiles);
  return launch_kernel(may_begin_early(stream), choice.kernel, blocks, kThreads, 0, stream, step);
}

}  // namespace wmk
