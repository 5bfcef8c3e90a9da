//! Where kernels leave numbers for the host: small pinned blocks, kept for the next call.

use super::functions::{DEVICEMAP, PORTABLE, drive};
use super::gpu::Gpu;
use crate::error::{Result, ensure};
use crate::span::Address;
use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// The least room of a block.
const LEAST_WORDS: usize = 512;

/// Blocks that no call uses.
#[derive(Default)]
pub struct Mailboxes(Mutex<Vec<Block>>);

impl Mailboxes {
    /// A block with room for `words`, of its own until it is dropped.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR; NOT_SUPPORTED where CPU and GPU see pinned memory at different addresses.
    pub fn take(&self, gpu: &Arc<Gpu>, words: usize) -> Result<Mailbox<'_>> {
        let kept = {
            let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = free.iter().position(|block| block.words >= words);
            fits.map(|at| free.swap_remove(at))
        };
        let block = match kept {
            Some(block) => block,
            None => Block::new(gpu, words.max(LEAST_WORDS))?,
        };
        Ok(Mailbox {
            home: self,
            block: Some(block),
            was_read: false,
        })
    }
}

/// A block in use. It is kept for other calls once it was read: until then work may be under way that writes to it.
pub struct Mailbox<'a> {
    home: &'a Mailboxes,
    block: Option<Block>,
    was_read: bool,
}

impl Mailbox<'_> {
    /// What the kernels wrote, once the stream has passed them: the first `words` words.
    pub fn read(&mut self, words: usize) -> Vec<u64> {
        assert!(words <= self.words);
        self.was_read = true;
        (0..words)
            // SAFETY: inside the block; the GPU's writes are over, and were of whole words.
            .map(|i| unsafe { (self.address as *const u64).add(i).read_volatile() })
            .collect()
    }

    pub fn address(&self) -> Address {
        Address(self.address)
    }
}

impl Deref for Mailbox<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        self.block.as_ref().expect("there until the drop")
    }
}

impl Drop for Mailbox<'_> {
    fn drop(&mut self) {
        if self.was_read {
            let mut free = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
            free.extend(self.block.take());
        }
    }
}

/// Pinned memory at one address for CPU and GPU.
pub struct Block {
    gpu: Arc<Gpu>,
    address: usize,
    words: usize,
}

impl Block {
    fn new(gpu: &Arc<Gpu>, words: usize) -> Result<Block> {
        let _entered = gpu.enter()?;
        let mut host: *mut c_void = std::ptr::null_mut();
        // SAFETY: the output outlives the call, and a context is current.
        unsafe {
            drive!(
                gpu.functions,
                cuMemHostAlloc(&mut host, words * size_of::<u64>(), PORTABLE | DEVICEMAP)
            )
        }?;
        let block = Block {
            gpu: gpu.clone(),
            address: host as usize,
            words,
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
        Ok(block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A call that failed may have left work that writes here.
        if self.gpu.synchronize().is_ok()
            && let Ok(_entered) = self.gpu.enter()
        {
            // SAFETY: made by `new`; nothing uses it any more.
            unsafe { (self.gpu.functions.cuMemFreeHost)(self.address as *mut c_void) };
        }
    }
}
