//! Waits for a GPU.

use super::functions::{CUDA_ERROR_OPERATING_SYSTEM, drive};
use super::gpu::Gpu;
use crate::error::{Kind, Result};
use crate::platform::Stream;
use cudarc::driver::sys::{CUevent, CUstream};
use std::ffi::c_int;

/// What says nothing of the work that was waited for: the system refused the driver something, or a stream records a graph (900 to
/// 908).
fn is_refusal(code: c_int) -> bool {
    code == CUDA_ERROR_OPERATING_SYSTEM || (900..=908).contains(&code)
}

/// How a wait for all work ended.
pub(super) struct Settled {
    pub outcome: Result<()>,
    /// The GPU may be at work still, so what that uses has to stay where it is. A wait that fails otherwise finds the context at
    /// its end, and no work in it.
    pub may_be_at_work: bool,
}

impl Gpu {
    /// Waits until the GPU has done all work of this process.
    /// # Errors
    /// CUDA_ERROR, also while a stream records; SYSTEM_ERROR where the system refuses the driver what it waits with.
    pub fn synchronize(&self) -> Result<()> {
        self.settle().outcome
    }

    /// [`synchronize`](Gpu::synchronize), and what is known after it.
    pub(super) fn settle(&self) -> Settled {
        let _entered = match self.enter() {
            Ok(entered) => entered,
            Err(error) => {
                return Settled {
                    may_be_at_work: error.kind == Kind::System,
                    outcome: Err(error),
                };
            }
        };
        // SAFETY: a context is current.
        let code = unsafe { (self.functions.cuCtxSynchronize)() };
        Settled {
            outcome: self.functions.check("cuCtxSynchronize", code),
            may_be_at_work: is_refusal(code),
        }
    }

    /// Waits until the stream has done its work.
    /// # Errors
    /// CUDA_ERROR, also for a fault of work that ran before; SYSTEM_ERROR as for [`synchronize`](Gpu::synchronize).
    pub fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for the stream.
        unsafe { drive!(self.functions, cuStreamSynchronize(stream.0 as CUstream)) }
    }

    /// Waits until what stands before the event is done; an event never recorded counts as done.
    /// # Errors
    /// Those of [`synchronize_stream`](Gpu::synchronize_stream).
    pub(super) fn synchronize_event(&self, event: CUevent) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller owns the event.
        unsafe { drive!(self.functions, cuEventSynchronize(event)) }
    }
}
