//! How an optimizer changes one element of a row: kernels/common/optimizer.h in Rust; a test compares the two bit for bit.

use crate::platform::learning::{OptimizerKind, Rule};

/// What a row keeps of its betas' powers: beta1^t, beta2^t.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct RowPowers {
    pub beta1: f32,
    pub beta2: f32,
}

impl RowPowers {
    pub fn next(self, rule: &Rule) -> RowPowers {
        RowPowers {
            beta1: self.beta1 * rule.beta1,
            beta2: self.beta2 * rule.beta2,
        }
    }
}

#[inline(always)]
fn sgd(r: &Rule, w: f32, g: f32) -> f32 {
    w - r.learning_rate * (g + r.weight_decay * w)
}

#[inline(always)]
fn lazy_adam<const ADAM_W: bool>(
    r: &Rule,
    powers: RowPowers,
    w: f32,
    g: f32,
    first: &mut f32,
    second: &mut f32,
) -> f32 {
    let (w, g) = match ADAM_W {
        true => (w - r.learning_rate * r.weight_decay * w, g),
        false => (w, g + r.weight_decay * w),
    };
    *first = r.beta1 * *first + (1.0 - r.beta1) * g;
    *second = r.beta2 * *second + (1.0 - r.beta2) * g * g;
    // The divisions of a row, so that an element has only one.
    let rate = r.learning_rate / (1.0 - powers.beta1);
    let unbiased = 1.0 / (1.0 - powers.beta2);
    let spread = (*second * unbiased).sqrt() + r.epsilon;
    w - rate * *first / spread
}

#[inline(always)]
fn rms_prop(r: &Rule, w: f32, g: f32, first: &mut f32) -> f32 {
    let g = g + r.weight_decay * w;
    *first = r.alpha * *first + (1.0 - r.alpha) * g * g;
    w - r.learning_rate * g / (first.sqrt() + r.epsilon)
}

#[inline(always)]
fn ada_grad(r: &Rule, w: f32, g: f32, first: &mut f32) -> f32 {
    let g = g + r.weight_decay * w;
    *first += g * g;
    w - r.learning_rate * g / (first.sqrt() + r.epsilon)
}

/// Updates a row of values by its summed gradients; all slices have its length, `first` and `second` are the states that the
/// optimizer has, `powers` those of this step.
pub fn apply(
    r: &Rule,
    powers: RowPowers,
    row: &mut [f32],
    sums: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    match (r.optimizer, r.adam_w) {
        (OptimizerKind::Sgd, _) => {
            for (w, g) in row.iter_mut().zip(sums) {
                *w = sgd(r, *w, *g);
            }
        }
        (OptimizerKind::LazyAdam, 0) => adam_row::<false>(r, powers, row, sums, first, second),
        (OptimizerKind::LazyAdam, _) => adam_row::<true>(r, powers, row, sums, first, second),
        (OptimizerKind::RmsProp, _) => {
            for ((w, g), s) in row.iter_mut().zip(sums).zip(first) {
                *w = rms_prop(r, *w, *g, s);
            }
        }
        (OptimizerKind::AdaGrad, _) => {
            for ((w, g), s) in row.iter_mut().zip(sums).zip(first) {
                *w = ada_grad(r, *w, *g, s);
            }
        }
    }
}

fn adam_row<const ADAM_W: bool>(
    r: &Rule,
    powers: RowPowers,
    row: &mut [f32],
    sums: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    for (((w, g), m), v) in row.iter_mut().zip(sums).zip(first).zip(second) {
        *w = lazy_adam::<ADAM_W>(r, powers, *w, *g, m, v);
    }
}
