//! Memory over the ranks of a communicator: on their GPUs, every partition on its own but for pages that two share; or in
//! the memory of their host, registered with every GPU.

use super::CudaPlatform;
use super::gpu::Gpu;
use super::handover::{Handover, Ticket, exchange};
use super::host::HostSegment;
use super::undecided;
use super::vmm::{Physical, Range};
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::Location;
use crate::platform::pages::PagePlan;
use crate::platform::{Bootstrap, Segment, SegmentRequest, Segments, agree, largest};
use crate::span::Address;
use std::sync::Arc;

impl Segments for CudaPlatform {
    fn granularity_bytes(&self) -> usize {
        self.gpu.facts.page_bytes
    }

    fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
        match request.location {
            Location::Host => Ok(Box::new(HostSegment::create(self, request, boot)?)),
            Location::Device => Ok(Box::new(DeviceSegment::create(self, request, boot)?)),
        }
    }
}

/// Memory of the ranks' GPUs as this rank maps it: all of it, or where ranks cannot map each other its own part.
pub struct DeviceSegment {
    gpu: Arc<Gpu>,
    addresses: Box<[Address]>,
    flat: Option<Address>,
    /// `None` if there is nothing to map.
    range: Option<Range>,
    /// Where the own memory lies in the range, if there is any.
    own_offset_bytes: Option<usize>,
}

/// What a rank makes by itself before the ranks meet.
struct Own {
    range: Option<Range>,
    memory: Option<Physical>,
    ticket: Option<Ticket>,
}

impl DeviceSegment {
    fn create(
        platform: &CudaPlatform,
        request: &SegmentRequest<'_>,
        boot: &dyn Bootstrap,
    ) -> Result<DeviceSegment> {
        let (gpu, rank) = (&platform.gpu, boot.rank());
        let handover = platform.handover();
        let shared = platform.maps_others() && boot.size() > 1;
        ensure!(
            shared || boot.size() == 1 || !request.contiguous,
            NotSupported,
            "one range of device memory over ranks that cannot map each other's"
        );
        // The size unit that suits the GPUs of all ranks.
        let page_bytes = largest(boot, gpu.facts.page_bytes as u64)? as usize;
        let plan = PagePlan::new(request, page_bytes)?;
        let (own_start, own_bytes) = plan.provided(rank);
        // Alone, the own pages are the whole range.
        let (range_bytes, own_offset) = if shared || request.contiguous {
            (plan.total_bytes, own_start)
        } else {
            (own_bytes, 0)
        };
        let make = || -> Result<Own> {
            let _entered = gpu.enter()?;
            let range = (range_bytes > 0)
                .then(|| Range::reserve(gpu, range_bytes, page_bytes))
                .transpose()?;
            let memory = (own_bytes > 0)
                .then(|| create_physical(gpu, own_bytes, handover))
                .transpose()?;
            let ticket = match &memory {
                Some(memory) if shared => Some(memory.export()?),
                _ => None,
            };
            Ok(Own {
                range,
                memory,
                ticket,
            })
        };
        let Own {
            mut range,
            memory,
            ticket,
        } = agree(boot, &[], make())?;
        let tickets = match shared {
            true => exchange(boot, handover, ticket.as_ref())?,
            false => Vec::new(),
        };
        drop(ticket);
        let mut map = || -> Result<()> {
            let Some(range) = &mut range else {
                return Ok(());
            };
            let _entered = gpu.enter()?;
            if let Some(memory) = &memory {
                range.map(own_offset, memory)?;
            }
            for (peer, ticket) in tickets.iter().enumerate().filter(|(peer, _)| *peer != rank) {
                let (start, bytes) = plan.provided(peer);
                if bytes == 0 {
                    continue;
                }
                let Some(ticket) = ticket else {
                    let what = format!("no handle of its device memory arrived from rank {peer}");
                    return Err(Error::new(Kind::System, what));
                };
                Physical::import(gpu, ticket, bytes)
                    .and_then(|memory| range.map(start, &memory))
                    .map_err(|e| e.within(format!("mapping the device memory of rank {peer}")))?;
            }
            Ok(())
        };
        agree(boot, &[], map())?;
        let base = range.as_ref().map_or(Address::NULL, Range::base);
        let addresses = if shared || request.contiguous {
            plan.addresses(base)
        } else {
            let mut own = vec![Address::NULL; boot.size()];
            own[rank] = base;
            own.into()
        };
        Ok(DeviceSegment {
            gpu: gpu.clone(),
            addresses,
            flat: plan.flat(base),
            range,
            own_offset_bytes: memory.map(|_| own_offset),
        })
    }
}

/// Free scratch of the library's own is given back before there counts as no memory.
fn create_physical(gpu: &Arc<Gpu>, bytes: usize, handover: Handover) -> Result<Physical> {
    match Physical::create(gpu, bytes, handover) {
        Err(error) if error.kind == Kind::OutOfMemory => {
            super::trim_scratch();
            Physical::create(gpu, bytes, handover)
        }
        created => created,
    }
}

impl DeviceSegment {
    fn keep_range(&mut self) {
        if let Some(range) = self.range.take() {
            undecided::keep(&self.gpu, Box::new(range));
        }
    }
}

impl Segment for DeviceSegment {
    fn address_of_rank(&self, rank: usize) -> Address {
        self.addresses[rank]
    }

    fn flat(&self) -> Option<Address> {
        self.flat
    }

    /// Unmapping does not wait for kernels, so every GPU is done before any memory goes; and memory goes after the others
    /// have let go of it. A rank that cannot tell whether its GPU is done keeps its mapping until it can ([`undecided`]).
    fn release(mut self: Box<Self>, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let settled = self.gpu.settle();
        if settled.may_be_at_work {
            self.keep_range();
        }
        let mut outcome = settled.outcome;
        if let Some(boot) = boot {
            outcome = outcome.and(boot.barrier());
        }
        if let Some(range) = &mut self.range {
            outcome = outcome.and(range.unmap_but(self.own_offset_bytes));
        }
        if let Some(boot) = boot {
            outcome = outcome.and(boot.barrier());
        }
        drop(self.range.take());
        outcome
    }

    fn release_settled(mut self: Box<Self>) -> Result<()> {
        let Some(mut range) = self.range.take() else {
            return Ok(());
        };
        let _entered = self.gpu.enter()?;
        range.unmap_but(None)
    }
}

impl Drop for DeviceSegment {
    fn drop(&mut self) {
        if self.range.is_some() && self.gpu.settle().may_be_at_work {
            self.keep_range();
        }
    }
}
