//! The gradient step.

use super::table::Embedding;
use super::training::state_strides;
use crate::error::{Error, Kind, Result};
use crate::ops::{self, Buffers, Cached, Gradients, Learner};
use crate::platform::Stream;
use crate::tensor::Operand;

impl Embedding {
    /// One step of the optimizer: row `indices[i]` has gradient i. See [`ops::apply_gradients`], also for what is collective.
    /// # Errors
    /// INVALID_INPUT without an optimizer; else those of [`ops::apply_gradients`].
    pub fn apply_gradients(
        &self,
        mine: Result<(&Operand, &Operand)>,
        adjust_cache: bool,
        learning_rate: f32,
        buffers: &dyn Buffers,
        stream: Stream,
    ) -> Result<()> {
        let training = self.training.lock()?.clone().ok_or_else(|| {
            let what = match self.is_live() {
                true => "the embedding has no optimizer: wholememory_embedding_set_optimizer gives it one",
                false => "the embedding was destroyed, or went with its communicator",
            };
            Error::new(Kind::InvalidInput, what)
        })?;
        let rule = training.optimizer.rule(learning_rate);
        let states = rule.optimizer.element_states();
        let (elements_stride, state_stride) = state_strides(&self.geometry, states);
        let offsets: Vec<usize> = (0..states).map(|state| state * state_stride).collect();
        let learner = Learner {
            table: &self.table,
            dtype: self.geometry.dtype,
            cols: self.geometry.cols,
            stride: self.geometry.stride,
            rows: self.geometry.named_rows(),
            dealt: self.geometry.round_robin.as_ref(),
            rule,
            elements: training.elements.as_deref(),
            element_offsets: &offsets,
            elements_stride,
            powers: training.powers.as_deref(),
            cache: self.cache.as_ref().map(|cache| Cached {
                cache,
                adjust: adjust_cache,
            }),
        };
        let mine = mine.map(|(indices, gradients)| Gradients { indices, gradients });
        ops::apply_gradients(&learner, mine, buffers, stream)
    }
}
