//! Marks in streams: events.

use super::functions::drive;
use super::gpu::Gpu;
use crate::error::{Error, Kind, Result};
use crate::platform::{Mark, Stream};
use cudarc::driver::sys::{CUevent, CUstream};
use std::sync::Arc;

/// An event that tells time to nobody.
pub(super) const DISABLE_TIMING: u32 = 2;

/// An event of the device. It may go while streams wait for it: they wait for the work, not for the object.
pub struct EventMark {
    gpu: Arc<Gpu>,
    event: usize,
}

impl EventMark {
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn new(gpu: &Arc<Gpu>) -> Result<EventMark> {
        let _entered = gpu.enter()?;
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: the output outlives the call, and a context is current.
        unsafe { drive!(gpu.functions, cuEventCreate(&mut event, DISABLE_TIMING)) }?;
        if event.is_null() {
            return Err(Error::new(Kind::Cuda, "cuEventCreate gave no event"));
        }
        Ok(EventMark {
            gpu: gpu.clone(),
            event: event as usize,
        })
    }

    /// Waits until what the mark was last set behind is done; one never set counts as done.
    /// # Errors
    /// CUDA_ERROR, also for a fault of work that ran before.
    pub fn wait(&self) -> Result<()> {
        self.gpu.synchronize_event(self.event as CUevent)
    }
}

impl Mark for EventMark {
    fn set(&self, stream: Stream) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the event is this object's; the caller vouches for the stream.
        unsafe {
            drive!(
                self.gpu.functions,
                cuEventRecord(self.event as CUevent, stream.0 as CUstream)
            )
        }
    }

    fn hold_back(&self, stream: Stream) -> Result<()> {
        let _entered = self.gpu.enter()?;
        // SAFETY: as above.
        unsafe {
            drive!(
                self.gpu.functions,
                cuStreamWaitEvent(stream.0 as CUstream, self.event as CUevent, 0)
            )
        }
    }

    fn is_passed(&self) -> bool {
        let Ok(_entered) = self.gpu.enter() else {
            return false;
        };
        // SAFETY: as above.
        unsafe { (self.gpu.functions.cuEventQuery)(self.event as CUevent) == 0 }
    }
}

impl Drop for EventMark {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `new`, destroyed once.
            unsafe { (self.gpu.functions.cuEventDestroy_v2)(self.event as CUevent) };
        }
    }
}
