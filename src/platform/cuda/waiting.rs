//! Waits for a GPU.

use super::functions::CUDA_ERROR_OPERATING_SYSTEM;
use super::gpu::Gpu;
use super::undecided;
use crate::error::{Kind, Result};
use crate::platform::Stream;
use cudarc::driver::sys::{CUevent, CUstream};
use rustix::process::{Resource, getrlimit};
use std::ffi::c_int;

/// What says nothing of the work that was waited for: the system refused the driver something, or a stream records a graph (900 to
/// 908).
fn is_refusal(code: c_int) -> bool {
    code == CUDA_ERROR_OPERATING_SYSTEM || (900..=908).contains(&code)
}

/// The driver does not say what the system refused it. Its own thread looks at its descriptors with poll(2), which refuses to look
/// at more than the limit allows; then the driver waits for nothing any more in this process, and answers so from then on, whatever
/// the limit.
fn about_descriptors() -> String {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or("no limit".into(), |most| format!("{most}"));
    format!(
        "; descriptors that this process may have (RLIMIT_NOFILE): {limit}; one whose limit was below what it had open, even for a \
         moment, cannot use its GPU any more"
    )
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
        let before = undecided::so_far();
        // SAFETY: a context is current.
        let code = unsafe { (self.functions.cuCtxSynchronize)() };
        let may_be_at_work = is_refusal(code);
        if !may_be_at_work {
            undecided::let_go(self, before);
        }
        Settled {
            outcome: self.waited("cuCtxSynchronize", code),
            may_be_at_work,
        }
    }

    /// Waits until the stream has done its work.
    /// # Errors
    /// CUDA_ERROR, also for a fault of work that ran before; SYSTEM_ERROR as for [`synchronize`](Gpu::synchronize).
    pub fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for the stream.
        let code = unsafe { (self.functions.cuStreamSynchronize)(stream.0 as CUstream) };
        self.waited("cuStreamSynchronize", code)
    }

    /// Waits until what stands before the event is done; an event never recorded counts as done.
    /// # Errors
    /// Those of [`synchronize_stream`](Gpu::synchronize_stream).
    pub(super) fn synchronize_event(&self, event: CUevent) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller owns the event.
        let code = unsafe { (self.functions.cuEventSynchronize)(event) };
        self.waited("cuEventSynchronize", code)
    }

    fn waited(&self, call: &str, code: c_int) -> Result<()> {
        self.functions.check(call, code).map_err(|mut error| {
            if error.kind == Kind::System {
                error.what.push_str(&about_descriptors());
            }
            error
        })
    }
}
