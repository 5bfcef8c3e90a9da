//! The pieces of memory over several GPUs: physical memory, ranges of addresses, mappings of the one in the other. Each gives
//! itself back on drop, as far as the driver still allows.

use super::functions::drive;
use super::gpu::Gpu;
use super::handover::{FABRIC_HANDLE_BYTES, Handover, Ticket};
use crate::error::{Error, Result, ensure};
use crate::span::Address;
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

/// Pinned memory of `device` that can be handed to others.
pub fn properties(device: CUdevice, handover: Handover) -> CUmemAllocationProp {
    // SAFETY: plain integers and pointers, for which zero is "nothing said".
    let nothing_said: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handover.kind(),
        location: location(device),
        ..nothing_said
    }
}

/// A hold on physical memory. Mappings keep the memory too, so the hold may go once all are made.
pub struct Physical {
    gpu: Arc<Gpu>,
    handle: CUmemGenericAllocationHandle,
    handover: Handover,
    pub bytes: usize,
}

impl Physical {
    /// New memory of `gpu`; `bytes` is a multiple of its page.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub fn create(gpu: &Arc<Gpu>, bytes: usize, handover: Handover) -> Result<Physical> {
        let mut handle = 0;
        // SAFETY: output and properties outlive the call.
        unsafe {
            drive!(
                gpu.functions,
                cuMemCreate(&mut handle, bytes, &properties(gpu.device, handover), 0)
            )
        }
        .map_err(|e| e.within(format!("{bytes} bytes of memory of {}", gpu.facts.name)))?;
        Ok(Physical {
            gpu: gpu.clone(),
            handle,
            handover,
            bytes,
        })
    }

    /// What stands for the memory, in this process and others.
    /// # Errors
    /// CUDA_ERROR (also when the process has no descriptors left, or may not use the fabric), SYSTEM_ERROR.
    pub fn export(&self) -> Result<Ticket> {
        let kind = self.handover.kind();
        let mut fd: c_int = -1;
        let mut handle = [0u8; FABRIC_HANDLE_BYTES];
        let to: *mut c_void = match self.handover {
            Handover::Descriptors => (&raw mut fd).cast(),
            Handover::Fabric => handle.as_mut_ptr().cast(),
        };
        // SAFETY: the driver writes one int, or a handle of that size.
        unsafe {
            drive!(
                self.gpu.functions,
                cuMemExportToShareableHandle(to, self.handle, kind, 0)
            )
        }?;
        if self.handover == Handover::Fabric {
            return Ok(Ticket::Fabric(handle));
        }
        ensure!(
            fd >= 0,
            Cuda,
            "cuMemExportToShareableHandle gave the descriptor {fd}"
        );
        // SAFETY: the driver opened it for the caller, who closes it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|e| Error::system("marking a descriptor close-on-exec", e))?;
        Ok(Ticket::Descriptor(fd))
    }

    /// The memory that a ticket stands for, `bytes` of it.
    /// # Errors
    /// CUDA_ERROR where this process or GPU cannot use it.
    pub fn import(gpu: &Arc<Gpu>, ticket: &Ticket, bytes: usize) -> Result<Physical> {
        let (handover, shareable) = match ticket {
            Ticket::Descriptor(fd) => (Handover::Descriptors, fd.as_raw_fd() as usize as *mut c_void),
            Ticket::Fabric(handle) => (Handover::Fabric, handle.as_ptr().cast_mut().cast()),
        };
        let mut handle = 0;
        // SAFETY: the output outlives the call; the driver takes a descriptor's number in place of an address, of a handle
        // of the fabric it reads the bytes.
        unsafe {
            drive!(
                gpu.functions,
                cuMemImportFromShareableHandle(&mut handle, shareable, handover.kind())
            )
        }?;
        Ok(Physical {
            gpu: gpu.clone(),
            handle,
            handover,
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
