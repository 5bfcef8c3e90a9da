// The gradient step: which kernel, and how many blocks of it.

#include "step_launch.cuh"
#include "told.cuh"

namespace wmk {

namespace {

constexpr int kFlight = 8;
constexpr int kTeamRows = 4;
// Blocks of a multiprocessor: what registers allow.
constexpr int blocks_for(Kind kind) { return kind == Kind::kSgd ? 4 : 3; }

struct Choice {
  Kernel kernel = nullptr;
  uint32_t elements = 0;  // of a piece
};

template <Kind kKind, class T, class G>
Choice choice() {
  return {step_kernel<kKind, T, G, kFlight, kTeamRows, blocks_for(kKind)>, kPieceElements<T, G>};
}

template <Kind kKind, class T>
Choice choose(uint32_t gradient_dtype) {
  switch (gradient_dtype) {
    case dtype_float:
      return choice<kKind, T, float>();
    case dtype_half:
      return choice<kKind, T, half_bits>();
    case dtype_bf16:
      return choice<kKind, T, bf16_bits>();
  }
  return {};
}

template <Kind kKind>
Choice choose(uint32_t table_dtype, uint32_t gradient_dtype) {
  switch (table_dtype) {
    case dtype_float:
      return choose<kKind, float>(gradient_dtype);
    case dtype_half:
      return choose<kKind, half_bits>(gradient_dtype);
    case dtype_bf16:
      return choose<kKind, bf16_bits>(gradient_dtype);
  }
  return {};
}

Choice choose(uint32_t optimizer, uint32_t table_dtype, uint32_t gradient_dtype) {
  switch (optimizer) {
    case optimizer_sgd:
      return choose<Kind::kSgd>(table_dtype, gradient_dtype);
    case optimizer_lazy_adam:
      return choose<Kind::kAdam>(table_dtype, gradient_dtype);
    case optimizer_rms_prop:
    case optimizer_ada_grad:
      return choose<Kind::kOneState>(table_dtype, gradient_dtype);
  }
  return {};
}

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  for (uint32_t optimizer : {optimizer_sgd, optimizer_lazy_adam, optimizer_rms_prop}) {
    for (uint32_t table : {dtype_float, dtype_half, dtype_bf16}) {
      for (uint32_t gradient : {dtype_float, dtype_half, dtype_bf16}) {
        const Kernel kernel = choose(optimizer, table, gradient).kernel;
        const cudaError_t code = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void *>(kernel));
        if (code != cudaSuccess) return code;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t step(const wmk_step_args *args, cudaStream_t stream) {
  if (args == nullptr) return load_kernels();
  const Choice chosen = choose(args->rule.optimizer, args->table_dtype, args->gradient_dtype);
  if (chosen.kernel == nullptr) return cudaErrorInvalidValue;
  return launch_step(*args, chosen.kernel, chosen.elements, kTeamRows, stream);
}

}  // namespace

}  // namespace wmk

int wmk_step(const wmk_step_args *args, wmk_stream stream) { return wmk::told(wmk::step(args, stream)); }
