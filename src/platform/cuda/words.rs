//! Device memory of the library's own: constant arrays, and scratch for callers who give none.

use super::functions::drive;
use super::gpu::Gpu;
use crate::error::Result;
use crate::platform::Words;
use crate::span::Address;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// A block of device memory; freed on drop, which waits for the work that uses it.
pub struct DeviceWords {
    gpu: Arc<Gpu>,
    base: CUdeviceptr,
}

impl DeviceWords {
    /// Device memory of any content.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn room(gpu: &Arc<Gpu>, bytes: usize) -> Result<DeviceWords> {
        let _entered = gpu.enter()?;
        let mut base: CUdeviceptr = 0;
        // SAFETY: the output outlives the call, and a context is current.
        unsafe {
            drive!(
                gpu.functions,
                cuMemAlloc_v2(&mut base, bytes.max(size_of::<usize>()))
            )
        }?;
        Ok(DeviceWords {
            gpu: gpu.clone(),
            base,
        })
    }

    /// A copy of `words`.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn new(gpu: &Arc<Gpu>, words: &[usize]) -> Result<DeviceWords> {
        let made = DeviceWords::room(gpu, size_of_val(words))?;
        gpu.write(made.address(), words)?;
        Ok(made)
    }
}

impl Words for DeviceWords {
    fn address(&self) -> Address {
        Address(self.base as usize)
    }
}

impl Drop for DeviceWords {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: made by `new`; the driver waits for kernels that read it.
            unsafe { (self.gpu.functions.cuMemFree_v2)(self.base) };
        }
    }
}
