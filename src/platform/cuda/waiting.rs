//! Waits for a GPU. A driver that finds no descriptor for what it waits with answers CUDA_ERROR_OPERATING_SYSTEM. Where the work
//! goes on all the same its end can be asked for, and so it is: results should not depend on how many files a client has open.
//! But questions have been refused as well, for as long as there was no descriptor; such a wait fails after some seconds.

use super::functions::{CUDA_ERROR_NOT_READY, CUDA_ERROR_OPERATING_SYSTEM};
use super::gpu::Gpu;
use crate::error::{Kind, Result};
use crate::platform::Stream;
use cudarc::driver::sys::{CUevent, CUstream};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// Between two questions: far less than a wait that a driver would sleep in.
const PAUSE: Duration = Duration::from_micros(20);
/// How long the system may go on refusing: longer than what one enqueues takes, and less than ranks wait for one that died.
const MOST_REFUSAL: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 3_000 });

/// A call of the driver, and its code.
struct Outcome(&'static str, c_int);

/// Asks until the answer is neither "not ready" nor, for [`MOST_REFUSAL`] without a "not ready", a refusal for want of something.
fn ask(mut question: impl FnMut() -> c_int) -> c_int {
    let mut refused = None;
    loop {
        match question() {
            CUDA_ERROR_NOT_READY => refused = None,
            CUDA_ERROR_OPERATING_SYSTEM
                if refused.get_or_insert_with(Instant::now).elapsed() < MOST_REFUSAL => {}
            code => return code,
        }
        std::thread::sleep(PAUSE);
    }
}

/// What says nothing of the work that was waited for: the system refused something, or a stream records a graph (900 to 908).
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
    /// CUDA_ERROR, also while a stream records; SYSTEM_ERROR where the driver is refused what it waits with, and the work is not
    /// done 3 s later.
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
        // Whether a whole context is done cannot be asked; but once it is, the driver needs nothing to wait with.
        // SAFETY: a context is current.
        let code = ask(|| unsafe { (self.functions.cuCtxSynchronize)() });
        Settled {
            outcome: self.functions.check("cuCtxSynchronize", code),
            may_be_at_work: is_refusal(code),
        }
    }

    /// Waits until the stream has done its work.
    /// # Errors
    /// CUDA_ERROR, also for a fault of work that ran before.
    pub fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let _entered = self.enter()?;
        let (functions, stream) = (self.functions, stream.0 as CUstream);
        // SAFETY: the caller vouches for the stream.
        let waited = Outcome("cuStreamSynchronize", unsafe {
            (functions.cuStreamSynchronize)(stream)
        });
        // SAFETY: as above.
        self.or_ask(waited, "cuStreamQuery", || unsafe {
            (functions.cuStreamQuery)(stream)
        })
    }

    /// Waits until what stands before the event is done; an event never recorded counts as done.
    /// # Errors
    /// CUDA_ERROR, also for a fault of work that ran before.
    pub(super) fn synchronize_event(&self, event: CUevent) -> Result<()> {
        let _entered = self.enter()?;
        let functions = self.functions;
        // SAFETY: the caller owns the event.
        let waited = Outcome("cuEventSynchronize", unsafe {
            (functions.cuEventSynchronize)(event)
        });
        // SAFETY: as above.
        self.or_ask(waited, "cuEventQuery", || unsafe {
            (functions.cuEventQuery)(event)
        })
    }

    fn or_ask(&self, waited: Outcome, call: &str, question: impl FnMut() -> c_int) -> Result<()> {
        match waited {
            Outcome(_, CUDA_ERROR_OPERATING_SYSTEM) => self.functions.check(call, ask(question)),
            Outcome(call, code) => self.functions.check(call, code),
        }
    }
}
