//! The gradient step.

use super::table::Embedding;
use crate::error::{Result, fail};
use crate::ops::Buffers;
use crate::platform::Stream;
use crate::tensor::Operand;

impl Embedding {
    pub fn apply_gradients(
        &self,
        mine: Result<(&Operand, &Operand)>,
        adjust_cache: bool,
        learning_rate: f32,
        buffers: &dyn Buffers,
        stream: Stream,
    ) -> Result<()> {
        let _ = (adjust_cache, learning_rate, buffers, stream);
        mine?;
        fail!(NotImplemented, "the gradient step is not in this version")
    }
}
