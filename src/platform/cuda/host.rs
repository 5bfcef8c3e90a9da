//! Memory of the host that every GPU reads at the address where the CPU does: memory files near the GPU, registered with the
//! driver as a whole.

use super::CudaPlatform;
use super::functions::{DEVICEMAP, PORTABLE, drive};
use super::gpu::Gpu;
use super::undecided;
use crate::error::{Kind, Result, ensure};
use crate::log::say;
use crate::platform::cpu::segments::{MemfdSegment, create_alone, create_shared};
use crate::platform::{Bootstrap, Segment, SegmentRequest, agree};
use crate::span::Address;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// A range that the driver refuses as a whole is registered in pieces of this size.
const PIECE_BYTES: usize = 4 << 30;

pub struct HostSegment {
    /// `None` once given back.
    held: Option<Held>,
    addresses: Box<[Address]>,
    flat: Option<Address>,
}

/// The registration goes first.
struct Held {
    registered: Registered,
    memory: MemfdSegment,
}

impl HostSegment {
    pub(super) fn create(
        platform: &CudaPlatform,
        request: &SegmentRequest<'_>,
        boot: &dyn Bootstrap,
    ) -> Result<HostSegment> {
        let gpu = &platform.gpu;
        let node = gpu.facts.numa_node;
        let memory = match platform.hosts() {
            Some(host_of) if host_of.iter().any(|host| *host != host_of[0]) => {
                ensure!(
                    !request.contiguous,
                    NotSupported,
                    "one range of host memory over ranks of several hosts"
                );
                create_alone(request, node, host_of, boot)?
            }
            _ => create_shared(request, node, boot)?,
        };
        let registered = agree(boot, &[], Registered::new(gpu, memory.range(), PIECE_BYTES))?;
        Ok(HostSegment {
            addresses: (0..boot.size())
                .map(|rank| memory.address_of_rank(rank))
                .collect(),
            flat: memory.flat(),
            held: Some(Held { registered, memory }),
        })
    }

    /// Waits for the GPU, which may use the memory, and takes it back; if it cannot tell whether the GPU is done, once it can
    /// ([`undecided`]).
    fn give_back(&mut self) -> Result<()> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        let gpu = held.registered.gpu.clone();
        let is_registered = !held.registered.pieces.is_empty();
        // A forked child never got the mapping, and at its addresses may be something of the child's; at the end of a process
        // its GPU may be at work.
        if let Err(gone) = gpu.check_alive() {
            std::mem::forget(held);
            return if is_registered { Err(gone) } else { Ok(()) };
        }
        let mut outcome = Ok(());
        if is_registered {
            let settled = gpu.settle();
            if settled.may_be_at_work {
                undecided::keep(&gpu, Box::new(held));
                return settled.outcome;
            }
            outcome = settled.outcome;
        }
        let Held {
            mut registered,
            memory,
        } = held;
        outcome.and(registered.take_back()).and(memory.unmap())
    }
}

impl Drop for HostSegment {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

impl Segment for HostSegment {
    fn address_of_rank(&self, rank: usize) -> Address {
        self.addresses[rank]
    }

    fn flat(&self) -> Option<Address> {
        self.flat
    }

    /// Local: the other ranks' mappings keep the pages that they still read.
    fn release(mut self: Box<Self>, _boot: Option<&dyn Bootstrap>) -> Result<()> {
        self.give_back()
    }
}

/// Ranges of the host's memory that the GPUs of this process may use.
pub(super) struct Registered {
    gpu: Arc<Gpu>,
    pieces: Vec<usize>,
}

impl Registered {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        range: Option<(Address, usize)>,
        piece_bytes: usize,
    ) -> Result<Registered> {
        let mut registered = Registered {
            gpu: gpu.clone(),
            pieces: Vec::new(),
        };
        let Some((base, bytes)) = range else {
            return Ok(registered);
        };
        let _entered = gpu.enter()?;
        if let Err(refusal) = registered.add(base, bytes) {
            if bytes <= piece_bytes || refusal.kind == Kind::NotSupported {
                return Err(refusal);
            }
            say!(
                Debug,
                "{bytes} bytes of host memory are registered in pieces: {refusal}"
            );
            for offset in (0..bytes).step_by(piece_bytes) {
                registered.add(base.offset_bytes(offset), piece_bytes.min(bytes - offset))?;
            }
        }
        // SAFETY: advice on a mapping of our own; a forked child has no use for memory that its CUDA cannot know.
        let advised =
            unsafe { rustix::mm::madvise(base.0 as *mut _, bytes, rustix::mm::Advice::LinuxDontFork) };
        if let Err(refusal) = advised {
            say!(
                Debug,
                "registered memory is inherited by forked children: madvise: {refusal}"
            );
        }
        Ok(registered)
    }

    /// A context is current.
    fn add(&mut self, base: Address, bytes: usize) -> Result<()> {
        let functions = self.gpu.functions;
        let host = base.0 as *mut _;
        // SAFETY: a part of a mapping that outlives the registration (`HostSegment` drops it later).
        unsafe { drive!(functions, cuMemHostRegister_v2(host, bytes, PORTABLE | DEVICEMAP)) }
            .map_err(|e| e.within(format!("registering {bytes} bytes of host memory")))?;
        self.pieces.push(base.0);
        let mut device: CUdeviceptr = 0;
        // SAFETY: the output outlives the call; the memory was registered for it.
        unsafe { drive!(functions, cuMemHostGetDevicePointer_v2(&mut device, host, 0)) }?;
        ensure!(
            device == base.0 as u64,
            NotSupported,
            "{} sees the host memory at {:#x} at another address, {device:#x}; HOST memory needs one address for both",
            self.gpu.facts.name,
            base.0
        );
        Ok(())
    }

    /// Takes the ranges from the GPU, which does not use them any more.
    /// # Errors
    /// CUDA_ERROR, the first one; all ranges are taken back all the same.
    fn take_back(&mut self) -> Result<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        let mut outcome = Ok(());
        self.gpu.check_alive()?;
        let _entered = self.gpu.enter();
        for piece in std::mem::take(&mut self.pieces) {
            // SAFETY: registered once by `add`, no work of this GPU uses it any more.
            let code = unsafe { (self.gpu.functions.cuMemHostUnregister)(piece as *mut _) };
            outcome = outcome.and(self.gpu.functions.check("cuMemHostUnregister", code));
        }
        outcome
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = self.take_back();
    }
}
