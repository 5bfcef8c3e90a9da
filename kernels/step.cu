// The gradient step: which kernel.

#include "step_launch.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr int kFlight = 4;
constexpr int kTeamRows = 8;
constexpr bool kPrepares = false;
constexpr int kBlocks = 4;

template <Kind kKind, bool kFloatRow, bool kFloatGradient, bool kAligned>
Choice choice() {
  using S = Shape<kKind, kFloatRow, kFloatGradient, kAligned>;
  return {step_kernel<S, kFlight, kTeamRows, kPrepares, kBlocks>, S::kCount, kTeamRows};
}

template <Kind kKind, bool kFloatRow>
Choice choose(bool float_gradient, bool aligned) {
  if (float_gradient) return aligned ? choice<kKind, kFloatRow, true, true>() : choice<kKind, kFloatRow, true, false>();
  return aligned ? choice<kKind, kFloatRow, false, true>() : choice<kKind, kFloatRow, false, false>();
}

template <Kind kKind>
Choice choose(bool float_row, bool float_gradient, bool aligned) {
  return float_row ? choose<kKind, true>(float_gradient, aligned) : choose<kKind, false>(float_gradient, aligned);
}

Choice choose(uint32_t optimizer, bool float_row, bool float_gradient, bool aligned) {
  switch (optimizer) {
    case optimizer_sgd:
      return choose<Kind::kSgd>(float_row, float_gradient, aligned);
    case optimizer_lazy_adam:
      return choose<Kind::kAdam>(float_row, float_gradient, aligned);
    case optimizer_rms_prop:
    case optimizer_ada_grad:
      return choose<Kind::kOneState>(float_row, float_gradient, aligned);
  }
  return {};
}

cudaError_t load_kernels() {
  for (uint32_t optimizer : {optimizer_sgd, optimizer_lazy_adam, optimizer_rms_prop}) {
    for (uint32_t way = 0; way < 8; way++) {
      const Kernel kernel = choose(optimizer, way & 1, way & 2, way & 4).kernel;
      const cudaError_t code = load_code(reinterpret_cast<const void *>(kernel));
      if (code != cudaSuccess) return code;
    }
  }
  return cudaSuccess;
}

bool learns(uint32_t dtype) { return dtype == dtype_float || dtype == dtype_half || dtype == dtype_bf16; }

cudaError_t step(const wmk_step_args *args, cudaStream_t stream) {
  if (args == nullptr) return load_kernels();
  if (!learns(args->table_dtype) || !learns(args->gradient_dtype)) return cudaErrorInvalidValue;
  const bool float_row = args->table_dtype == dtype_float, float_gradient = args->gradient_dtype == dtype_float;
  Choice chosen = choose(args->rule.optimizer, float_row, float_gradient, true);
  if (chosen.kernel == nullptr) return cudaErrorInvalidValue;
  if (!aligned_for(*args, chosen.elements)) chosen = choose(args->rule.optimizer, float_row, float_gradient, false);
  return launch_step(*args, chosen, stream);
}

}  // namespace

}  // namespace wmk

int wmk_step(const wmk_step_args *args, wmk_stream stream) { return wmk::told(wmk::step(args, stream)); }
