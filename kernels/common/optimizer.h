// How an optimizer changes one element of a row, all in float, every operation rounded by itself: a fused product and sum
// would differ in the last bits, and so platforms would. (Where the host has such an instruction its compiler is to be told:
// -ffp-contract=off.) src/platform/cpu/learning/rule.rs is the same in Rust; a test compares the two.
#pragma once

#include <math.h>

#include "define.h"

namespace wmk {

// The enumerators of wholememory_optimizer_type_t.
enum optimizer : uint32_t {
  optimizer_sgd = 1,
  optimizer_lazy_adam = 2,
  optimizer_rms_prop = 3,
  optimizer_ada_grad = 4,
};

WMK_FN float times(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

WMK_FN float plus(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

WMK_FN float minus(float a, float b) { return plus(a, -b); }

// An optimizer and its parameters at the time of a step.
struct rule {
  uint32_t optimizer;
  uint32_t adam_w;  // 1 for AdamW, else 0
  float learning_rate;
  float weight_decay;
  float epsilon;
  float beta1;
  float beta2;
  float alpha;
};

// Adam's factors of one row in one step: what the row keeps of its betas' powers, and what follows from them.
struct row_powers {
  float beta1_power;
  float beta2_power;
};

WMK_FN row_powers next_powers(const rule &r, row_powers last) {
  return {times(last.beta1_power, r.beta1), times(last.beta2_power, r.beta2)};
}

// The gradient with the weight's decay in it.
WMK_FN float decayed(const rule &r, float w, float g) { return plus(g, times(r.weight_decay, w)); }

// What is kept of an average that takes in `x`: keep * average + (1 - keep) * x.
WMK_FN float averaged(float keep, float average, float x) {
  return plus(times(keep, average), times(minus(1.0f, keep), x));
}

// The same of x * x, the new part multiplied from the left.
WMK_FN float averaged_square(float keep, float average, float x) {
  return plus(times(keep, average), times(times(minus(1.0f, keep), x), x));
}

// The new value of an element `w` with the summed gradient `g`; `first` and `second` are its states (m and v of Adam; v of
// RMSProp and the sum of squares of AdaGrad are `first`), `powers` the new ones of its row.
WMK_FN float sgd(const rule &r, float w, float g) { return minus(w, times(r.learning_rate, decayed(r, w, g))); }

WMK_FN float lazy_adam(const rule &r, row_powers powers, float w, float g, float &first, float &second) {
  if (r.adam_w) {
    w = minus(w, times(times(r.learning_rate, r.weight_decay), w));
  } else {
    g = decayed(r, w, g);
  }
  first = averaged(r.beta1, first, g);
  second = averaged_square(r.beta2, second, g);
  // The divisions of a row, so that an element has only one.
  const float rate = r.learning_rate / minus(1.0f, powers.beta1_power);
  const float unbiased = 1.0f / minus(1.0f, powers.beta2_power);
  const float spread = plus(sqrtf(times(second, unbiased)), r.epsilon);
  return minus(w, times(rate, first) / spread);
}

WMK_FN float rms_prop(const rule &r, float w, float g, float &first) {
  g = decayed(r, w, g);
  first = averaged_square(r.alpha, first, g);
  return minus(w, times(r.learning_rate, g) / plus(sqrtf(first), r.epsilon));
}

WMK_FN float ada_grad(const rule &r, float w, float g, float &first) {
  g = decayed(r, w, g);
  first = plus(first, times(g, g));
  return minus(w, times(r.learning_rate, g) / plus(sqrtf(first), r.epsilon));
}

}  // namespace wmk
