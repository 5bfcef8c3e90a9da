//! The pieces of memory over several GPUs: physical memory, ranges of addresses, mappings of the one in the other. Each gives
//! itself back on drop, as far as the driver still allows.
//!
//! Memory travels between ranks as file descriptors, which stop at the host. Handles of the FABRIC kind would go further; the
//! place for them is [`KIND`] with [`Physical::export`] and [`Physical::import`]: nothing else knows how memory is handed over.

use super::functions::drive;
use super::gpu::Gpu;
use crate::error::{Error, Result, ensure};
use crate::span::Address;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

const KIND: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

/// Pinned memory of `device` that can be handed to others.
pub fn properties(device: CUdevice) -> CUmemAllocationProp {
    // SAFETY: plain integers and pointers, for which zero is "nothing said".
    let nothing_said: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: KIND,
        location: location(device),
        ..nothing_said
    }
}

/// A hold on physical memory. Mappings keep the memory too, so the hold may go once all are made.
pub struct Physical {
    gpu: Arc<Gpu>,
    handle: CUmemGenericAllocationHandle,
    pub bytes: usize,
}

impl Physical {
    /// New memory of `gpu`; `bytes` is a multiple of its page.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn create(gpu: &Arc<Gpu>, bytes: usize) -> Result<Physical> {
        let mut handle = 0;
        // SAFETY: output and properties outlive the call.
        unsafe {
            drive!(
                gpu.functions,
                cuMemCreate(&mut handle, bytes, &properties(gpu.device), 0)
            )
        }
        .map_err(|e| e.within(format!("{bytes} bytes of memory of {}", gpu.facts.name)))?;
        Ok(Physical {
            gpu: gpu.clone(),
            handle,
            bytes,
        })
    }

    /// A descriptor that stands for the memory, in this process and others.
    /// # Errors
    /// CUDA_ERROR (also when the process has no descriptors left), SYSTEM_ERROR.
    pub fn export(&self) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        // SAFETY: for this kind of handle the driver writes one int.
        unsafe {
            drive!(
                self.gpu.functions,
                cuMemExportToShareableHandle((&raw mut fd).cast(), self.handle, KIND, 0)
            )
        }?;
        ensure!(
            fd >= 0,
            Cuda,
            "cuMemExportToShareableHandle gave the descriptor {fd}"
        );
        // SAFETY: the driver opened it for the caller, who closes it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|e| Error::system("marking a descriptor close-on-exec", e))?;
        Ok(fd)
    }

    /// The memory that a descriptor stands for, `bytes` of it.
    /// # Errors
    /// CUDA_ERROR where this process or GPU cannot use it.
    pub fn import(gpu: &Arc<Gpu>, fd: BorrowedFd<'_>, bytes: usize) -> Result<Physical> {
        let mut handle = 0;
        let number = fd.as_raw_fd() as usize;
        // SAFETY: the output outlives the call; for this kind the "handle" is the descriptor's number.
        unsafe {
            drive!(
                gpu.functions,
                cuMemImportFromShareableHandle(&mut handle, number as *mut _, KIND)
            )
        }?;
        Ok(Physical {
            gpu: gpu.clone(),
            handle,
            bytes,
        })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if self.gpu.check_alive().is_ok() {
            // SAFETY: the one hold that `create` or `import` took.
            unsafe { (self.gpu.functions.cuMemRelease)(self.handle) };
        }
    }
}

/// A range of addresses, with memory mapped into parts of it that do not overlap.
pub struct Range {
    gpu: Arc<Gpu>,
    base: CUdeviceptr,
    bytes: usize,
    /// Mapped parts as (offset, size).
    mapped: Vec<(usize, usize)>,
}

impl Range {
    /// Reserves `bytes` addresses, a multiple of `page_bytes`.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn reserve(gpu: &Arc<Gpu>, bytes: usize, page_bytes: usize) -> Result<Range> {
        let mut base = 0;
        // SAFETY: the output outlives the call.
        unsafe {
            drive!(
                gpu.functions,
                cuMemAddressReserve(&mut base, bytes, page_bytes, 0, 0)
            )
        }
        .map_err(|e| e.within(format!("{bytes} addresses")))?;
        Ok(Range {
            gpu: gpu.clone(),
            base,
            bytes,
            mapped: Vec::new(),
        })
    }

    pub fn base(&self) -> Address {
        Address(self.base as usize)
    }

    /// Maps all of `memory` at `offset_bytes`, to be read and written by this range's GPU.
    /// # Errors
    /// CUDA_ERROR where the GPU cannot reach the memory, OUT_OF_MEMORY.
    pub fn map(&mut self, offset_bytes: usize, memory: &Physical) -> Result<()> {
        let bytes = memory.bytes;
        let at = self.base + offset_bytes as u64;
        ensure!(
            offset_bytes <= self.bytes && bytes <= self.bytes - offset_bytes,
            Logic,
            "mapping {bytes} bytes at {offset_bytes} in a range of {} bytes",
            self.bytes
        );
        // SAFETY: a free part of the reserved range, and memory of that size.
        unsafe { drive!(self.gpu.functions, cuMemMap(at, bytes, 0, memory.handle, 0)) }?;
        self.mapped.push((offset_bytes, bytes));
        let access = CUmemAccessDesc {
            location: location(self.gpu.device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the part just mapped; the description outlives the call.
        unsafe { drive!(self.gpu.functions, cuMemSetAccess(at, bytes, &access, 1)) }
    }

    /// Unmaps every part but the one at `kept_offset_bytes`. No work may use them any more.
    /// # Errors
    /// CUDA_ERROR, the first one; the other parts are unmapped all the same, the one that failed stays.
    pub fn unmap_but(&mut self, kept_offset_bytes: Option<usize>) -> Result<()> {
        self.gpu.check_alive()?;
        let parts = std::mem::take(&mut self.mapped);
        let mut outcome = Ok(());
        for (offset_bytes, bytes) in parts {
            if Some(offset_bytes) == kept_offset_bytes {
                self.mapped.push((offset_bytes, bytes));
                continue;
            }
            let at = self.base + offset_bytes as u64;
            // SAFETY: exactly what one `map` mapped.
            let unmapped = unsafe { drive!(self.gpu.functions, cuMemUnmap(at, bytes)) };
            if unmapped.is_err() {
                self.mapped.push((offset_bytes, bytes));
            }
            outcome = outcome.and(unmapped);
        }
        outcome
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.unmap_but(None).is_ok() {
            // SAFETY: the range that `reserve` made, with nothing mapped in it.
            unsafe { (self.gpu.functions.cuMemAddressFree)(self.base, self.bytes) };
        }
    }
}
