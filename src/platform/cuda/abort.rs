//! The word that ends waits on a GPU: host memory that kernels poll while they wait for another rank, set when the
//! communicator breaks.

use super::functions::{DEVICEMAP, PORTABLE, drive};
use super::gpu::Gpu;
use crate::error::{Result, ensure};
use crate::span::Address;
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit word in pinned memory at one address for CPU and GPUs: 0, or 1 once set.
pub struct AbortWord {
    gpu: Arc<Gpu>,
    address: usize,
}

impl AbortWord {
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR; NOT_SUPPORTED where CPU and GPU see the memory at different addresses.
    pub fn new(gpu: &Arc<Gpu>) -> Result<AbortWord> {
        let _entered = gpu.enter()?;
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: the output outlives the call, and a context is current.
        unsafe {
            drive!(
                gpu.functions,
                cuMemHostAlloc(&mut host, size_of::<u32>(), PORTABLE | DEVICEMAP)
            )
        }?;
        let word = AbortWord {
            gpu: gpu.clone(),
            address: host as usize,
        };
        let mut device: CUdeviceptr = 0;
        // SAFETY: the output outlives the call; the memory was made for it.
        unsafe { drive!(gpu.functions, cuMemHostGetDevicePointer_v2(&mut device, host, 0)) }?;
        ensure!(
            device == host as u64,
            NotSupported,
            "{} sees pinned host memory at another address than the CPU",
            gpu.facts.name
        );
        word.word().store(0, Ordering::Release);
        Ok(word)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: pinned memory of this object, aligned by the driver; the CPU and the GPUs use it as one atomic word.
        unsafe { AtomicU32::from_ptr(self.address as *mut u32) }
    }

    pub fn address(&self) -> Address {
        Address(self.address)
    }

    pub fn set(&self) {
        // In a forked child the memory is not there.
        if !self.gpu.is_inherited() {
            self.word().store(1, Ordering::Release);
        }
    }
}

impl Drop for AbortWord {
    fn drop(&mut self) {
        // Kernels that still poll the word end first.
        self.set();
        if self.gpu.synchronize().is_ok()
            && let Ok(_entered) = self.gpu.enter()
        {
            // SAFETY: made by `new`; nothing uses it any more.
            unsafe { (self.gpu.functions.cuMemFreeHost)(self.address as *mut c_void) };
        }
    }
}
