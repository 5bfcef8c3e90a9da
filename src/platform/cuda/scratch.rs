//! Scratch of the library's own on a GPU: the driver's stream-ordered pool, kept for the next call. A block that one stream
//! gives back is used again at once behind it, by other streams when the work that used it is done.

use super::functions::drive;
use super::gpu::Gpu;
use crate::error::Result;
use crate::platform::{Stream, Words};
use crate::span::Address;
use cudarc::driver::sys::{
    CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute as PoolAttribute, CUmemPoolProps, CUmemoryPool, CUstream,
};
use std::sync::Arc;

/// A pool of memory of one GPU.
pub struct ScratchPool {
    gpu: Arc<Gpu>,
    /// A `CUmemoryPool`; an address that is only ever handed back to the driver.
    pool: usize,
}

impl ScratchPool {
    /// # Errors
    /// CUDA_ERROR, OUT_OF_MEMORY.
    pub fn new(gpu: &Arc<Gpu>) -> Result<ScratchPool> {
        let _entered = gpu.enter()?;
        // SAFETY: plain integers and pointers, for which zero is "nothing said".
        let nothing_said: CUmemPoolProps = unsafe { std::mem::zeroed() };
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: gpu.device,
            },
            ..nothing_said
        };
        let mut pool: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: output and properties outlive the call.
        unsafe { drive!(gpu.functions, cuMemPoolCreate(&mut pool, &properties)) }?;
        let made = ScratchPool {
            gpu: gpu.clone(),
            pool: pool as usize,
        };
        // Else every wait for a stream would give free memory back to the system.
        let mut kept_bytes = u64::MAX;
        let threshold = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool just made; the value is of the attribute's type and outlives the call.
        unsafe {
            drive!(
                gpu.functions,
                cuMemPoolSetAttribute(pool, threshold, (&raw mut kept_bytes).cast())
            )
        }?;
        Ok(made)
    }

    /// A block for work on `stream`, given back in the stream's order on drop.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn take(self: &Arc<Self>, bytes: usize, stream: Stream) -> Result<PooledBlock> {
        let _entered = self.gpu.enter()?;
        let mut base: CUdeviceptr = 0;
        let (pool, handle) = (self.pool as CUmemoryPool, stream.0 as CUstream);
        // SAFETY: the output outlives the call; the caller vouches for the stream.
        unsafe {
            drive!(
                self.gpu.functions,
                cuMemAllocFromPoolAsync(&mut base, bytes.max(1), pool, handle)
            )
        }?;
        Ok(PooledBlock {
            pool: self.clone(),
            base,
            stream,
        })
    }

    /// Gives what is free back to the system.
    pub fn trim(&self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: the pool lives as long as `self`; what is in use stays.
            unsafe { (self.gpu.functions.cuMemPoolTrimTo)(self.pool as CUmemoryPool, 0) };
        }
    }
}

impl Drop for ScratchPool {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: no block is left (each keeps the pool); what streams still use goes when they are done.
            unsafe { (self.gpu.functions.cuMemPoolDestroy)(self.pool as CUmemoryPool) };
        }
    }
}

/// A block of a pool.
pub struct PooledBlock {
    pool: Arc<ScratchPool>,
    base: CUdeviceptr,
    stream: Stream,
}

impl Words for PooledBlock {
    fn address(&self) -> Address {
        Address(self.base as usize)
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let gpu = &self.pool.gpu;
        if let Ok(_entered) = gpu.enter() {
            // SAFETY: taken from the pool by `take`; the caller's stream still lives.
            unsafe { (gpu.functions.cuMemFreeAsync)(self.base, self.stream.0 as CUstream) };
        }
    }
}
