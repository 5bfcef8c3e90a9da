// How an optimizer changes one element of a row, all in float. Compilers for GPUs may fuse a product and a sum, so the
// last bits may differ between platforms. src/platform/cpu/learning/rule.rs is the same in Rust; a test compares the two.
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
  return {last.beta1_power * r.beta1, last.beta2_power * r.beta2};
}

// The new value of an element `w` with the summed gradient `g`; `first` and `second` are its states (m and v of Adam; v of
// RMSProp and the sum of squares of AdaGrad are `first`), `powers` the new ones of its row.
WMK_FN float sgd(const rule &r, float w, float g) { return w - r.learning_rate * (g + r.weight_decay * w); }

WMK_FN float lazy_adam(const rule &r, row_powers powers, float w, float g, float &first, float &second) {
  if (r.adam_w) {
    w = w - r.learning_rate * r.weight_decay * w;
  } else {
    g = g + r.weight_decay * w;
  }
  first = r.beta1 * first + (1.0f - r.beta1) * g;
  second = r.beta2 * second + (1.0f - r.beta2) * g * g;
  float mean = first / (1.0f - powers.beta1_power);
  float spread = sqrtf(second / (1.0f - powers.beta2_power)) + r.epsilon;
  return w - r.learning_rate * mean / spread;
}

WMK_FN float rms_prop(const rule &r, float w, float g, float &first) {
  g = g + r.weight_decay * w;
  first = r.alpha * first + (1.0f - r.alpha) * g * g;
  return w - r.learning_rate * g / (sqrtf(first) + r.epsilon);
}

WMK_FN float ada_grad(const rule &r, float w, float g, float &first) {
  g = g + r.weight_decay * w;
  first = first + g * g;
  return w - r.learning_rate * g / (sqrtf(first) + r.epsilon);
}

}  // namespace wmk
