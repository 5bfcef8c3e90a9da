//! A stream of the library's own, for threads whose own default stream records a graph.

use super::functions::drive;
use super::gpu::Gpu;
use crate::error::{Error, Kind, Result};
use crate::platform::Stream;
use cudarc::driver::sys::CUstream;
use std::sync::Arc;

/// `CU_STREAM_DEFAULT`: behind what the legacy default stream was given, as the threads' own default streams are.
pub(super) const BEHIND_LEGACY: u32 = 0;

pub struct SideStream {
    gpu: Arc<Gpu>,
    handle: usize,
}

impl SideStream {
    /// # Errors
    /// CUDA_ERROR, OUT_OF_MEMORY.
    pub fn new(gpu: &Arc<Gpu>) -> Result<SideStream> {
        let _entered = gpu.enter()?;
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: the output outlives the call, and a context is current.
        unsafe { drive!(gpu.functions, cuStreamCreate(&mut stream, BEHIND_LEGACY)) }?;
        if stream.is_null() {
            return Err(Error::new(Kind::Cuda, "cuStreamCreate gave no stream"));
        }
        Ok(SideStream {
            gpu: gpu.clone(),
            handle: stream as usize,
        })
    }

    pub fn stream(&self) -> Stream {
        Stream(self.handle)
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `new`, destroyed once; its work goes on to its end.
            unsafe { (self.gpu.functions.cuStreamDestroy_v2)(self.handle as CUstream) };
        }
    }
}
