//! Shared memory of the ranks of one host: one sealed memfd a segment, made by rank 0, mapped whole by every rank. The
//! pages of a segment are reserved when it is made, so that later use can meet neither SIGBUS nor the OOM killer.

mod budget;
mod huge;
mod numa;
#[cfg(test)]
pub(crate) mod threaded;

use crate::error::{Error, Kind, Result, ensure, fail};
use crate::platform::pages::PagePlan;
use crate::platform::{Bootstrap, Segment, SegmentRequest, Segments, agree};
use crate::span::Address;
use budget::Budget;
use huge::HUGE_PAGE_BYTES;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Reserving goes in steps of this size, so that a signal costs the work of one step at most; and, after signals, in shorter
/// ones down to the smallest.
const RESERVE_STEP_BYTES: u64 = 256 << 20;
const SMALLEST_STEP_BYTES: u64 = 64 << 10;

/// Makes segments in memory files.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemfdSegments;

impl Segments for MemfdSegments {
    fn granularity_bytes(&self) -> usize {
        rustix::param::page_size()
    }

    fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
        Ok(Box::new(create_shared(request, None, boot)?))
    }
}

/// One file over all ranks of a host, mapped whole by each. The pages that this rank provides come from `numa_node`, if
/// given and while it has any. Collective over `boot`.
/// # Errors
/// OUT_OF_MEMORY, SYSTEM_ERROR, COMMUNICATION_ERROR; the same on all ranks.
pub fn create_shared(
    request: &SegmentRequest<'_>,
    numa_node: Option<u32>,
    boot: &dyn Bootstrap,
) -> Result<MemfdSegment> {
    let plan = PagePlan::new(request, rustix::param::page_size())?;
    if plan.total_bytes == 0 {
        return Ok(MemfdSegment::new(&plan, None));
    }
    let budgets = all_budgets(boot)?;
    budget::verdict(&budgets, &plan.parts_bytes(), plan.total_bytes as u64)?;

    let made = (boot.rank() == 0).then(|| make_file(plan.total_bytes as u64));
    let offered = made.as_ref().and_then(|m| m.as_ref().ok()).map(AsFd::as_fd);
    let received = boot.exchange_descriptors(offered);
    let mine = match made {
        Some(Err(error)) => Err(error),
        _ => received.and_then(|all| match all.into_iter().next().flatten() {
            Some(file) => map_and_reserve(&plan, &file, boot.rank(), numa_node),
            None => fail!(System, "no descriptor of the shared memory arrived from rank 0"),
        }),
    };
    let mapping = agree(boot, &[], mine)?;
    Ok(MemfdSegment::new(&plan, Some(mapping)))
}

/// A file a rank, mapped by it alone, for ranges of their own over several hosts. `host_of` numbers the host of every rank.
/// Collective over `boot`.
/// # Errors
/// Those of [`create_shared`].
pub fn create_alone(
    request: &SegmentRequest<'_>,
    numa_node: Option<u32>,
    host_of: &[usize],
    boot: &dyn Bootstrap,
) -> Result<MemfdSegment> {
    let rank = boot.rank();
    let starts = request.starts_bytes;
    let own_bytes = starts[rank + 1] - starts[rank];
    let budgets = all_budgets(boot)?;
    let (here, parts): (Vec<Budget>, Vec<u64>) = budgets
        .into_iter()
        .enumerate()
        .filter(|(peer, _)| host_of[*peer] == host_of[rank])
        .map(|(peer, budget)| (budget, (starts[peer + 1] - starts[peer]) as u64))
        .unzip();
    let own_range = [0, own_bytes];
    let own = SegmentRequest {
        starts_bytes: &own_range,
        contiguous: false,
        ..*request
    };
    let make = || -> Result<(PagePlan, Option<Mapping>)> {
        let plan = PagePlan::new(&own, rustix::param::page_size())?;
        budget::verdict(&here, &parts, own_bytes as u64)?;
        if own_bytes == 0 {
            return Ok((plan, None));
        }
        let file = make_file(plan.total_bytes as u64)?;
        let mapping = map_and_reserve(&plan, &file, 0, numa_node)?;
        Ok((plan, Some(mapping)))
    };
    let (plan, mapping) = agree(boot, &[], make())?;
    let mut segment = MemfdSegment::new(&plan, mapping);
    let mut addresses = vec![Address::NULL; boot.size()];
    addresses[rank] = segment.addresses[0];
    segment.addresses = addresses.into();
    Ok(segment)
}

fn all_budgets(boot: &dyn Bootstrap) -> Result<Vec<Budget>> {
    boot.all_gather(&Budget::read().encode())?
        .iter()
        .map(|bytes| Budget::decode(bytes))
        .collect()
}

/// A mapped segment; the descriptor is closed, the mapping alone keeps the memory.
pub struct MemfdSegment {
    addresses: Box<[Address]>,
    flat: Option<Address>,
    mapping: Option<Mapping>,
}

impl MemfdSegment {
    /// Everything this rank maps, as base and size; `None` if that is nothing.
    pub fn range(&self) -> Option<(Address, usize)> {
        self.mapping.as_ref().map(|m| (m.base(), m.bytes))
    }

    fn new(plan: &PagePlan, mapping: Option<Mapping>) -> MemfdSegment {
        let base = mapping.as_ref().map_or(Address::NULL, Mapping::base);
        MemfdSegment {
            addresses: plan.addresses(base),
            flat: plan.flat(base),
            mapping,
        }
    }
}

impl MemfdSegment {
    /// # Errors
    /// SYSTEM_ERROR; the mapping is gone from this object either way.
    pub fn unmap(mut self) -> Result<()> {
        match self.mapping.take() {
            Some(mapping) => mapping.unmap(),
            None => Ok(()),
        }
    }
}

impl Segment for MemfdSegment {
    fn address_of_rank(&self, rank: usize) -> Address {
        self.addresses[rank]
    }

    fn flat(&self) -> Option<Address> {
        self.flat
    }

    fn release(self: Box<Self>, _boot: Option<&dyn Bootstrap>) -> Result<()> {
        self.unmap()
    }
}

/// Errors of calls that take memory: what says "no room" is OUT_OF_MEMORY, the rest SYSTEM_ERROR.
fn refused(call: &str, bytes: u64, errno: Errno) -> Error {
    let kind = match errno {
        Errno::NOMEM | Errno::NOSPC | Errno::FBIG | Errno::OVERFLOW => Kind::OutOfMemory,
        _ => Kind::System,
    };
    Error::new(kind, format!("{call} of {bytes} bytes: {errno}"))
}

/// A memory file that can neither shrink nor grow, without a name in any file system.
fn make_file(bytes: u64) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create("wholememory", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("wholememory", flags),
        other => other,
    }
    .map_err(|e| refused("memfd_create", bytes, e))?;
    rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&file, bytes))
        .map_err(|e| refused("ftruncate", bytes, e))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
        .map_err(|e| refused("sealing (F_ADD_SEALS)", bytes, e))?;
    Ok(file)
}

/// Maps the file and reserves the pages that `rank` provides.
fn map_and_reserve(plan: &PagePlan, file: &OwnedFd, rank: usize, numa_node: Option<u32>) -> Result<Mapping> {
    let bytes = plan.total_bytes as u64;
    let there = rustix::fs::fstat(file).map_err(|e| refused("fstat", bytes, e))?;
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|e| refused("F_GET_SEALS", bytes, e))?;
    ensure!(
        there.st_size as u64 == bytes && seals.contains(SealFlags::SHRINK),
        System,
        "the descriptor from rank 0 is no sealed memory of {bytes} bytes (size {}, seals {:#x})",
        there.st_size,
        seals.bits()
    );
    let mapping = Mapping::new(file.as_fd(), plan.total_bytes)?;
    let (offset, rest) = plan.provided(rank);
    if let Some(node) = numa_node {
        numa::prefer(mapping.base().offset_bytes(offset), rest, node);
    }
    huge::provide(file, mapping.base(), offset, rest);
    // What is there already stays; the rest comes in small pages, or it turns out that there is no room.
    reserve(offset as u64, rest as u64, |offset, step| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, step)
    })?;
    Ok(mapping)
}

/// Takes `rest` bytes from `offset` on in steps. A signal undoes the step it comes into on many kernels: the next one is
/// shorter, so that a caller with a fast timer gets on too.
fn reserve(mut offset: u64, mut rest: u64, take: impl Fn(u64, u64) -> rustix::io::Result<()>) -> Result<()> {
    let mut longest_bytes = RESERVE_STEP_BYTES;
    while rest > 0 {
        let step = rest.min(longest_bytes);
        match take(offset, step) {
            Ok(()) => {
                offset += step;
                rest -= step;
            }
            Err(Errno::INTR) => longest_bytes = (step / 2).max(SMALLEST_STEP_BYTES),
            Err(e) => {
                return Err(
                    refused("fallocate", step, e).within(format!("reserving shared memory at byte {offset}"))
                );
            }
        }
    }
    Ok(())
}

/// A shared, writable mapping of a whole file; unmapped on drop.
struct Mapping {
    base: usize,
    bytes: usize,
}

impl Mapping {
    fn new(file: BorrowedFd<'_>, bytes: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = if bytes < HUGE_PAGE_BYTES {
            // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }
                .map_err(|e| refused("mmap", bytes as u64, e))?
        } else {
            let place = Place::reserve(bytes)?;
            // SAFETY: replaces a part of a reservation that nothing else refers to.
            unsafe {
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                rustix::mm::mmap(place.base as *mut _, bytes, protection, flags, file, 0)
            }
            .map_err(|e| refused("mmap", bytes as u64, e))?;
            place.keep(bytes) as *mut _
        };
        if bytes >= HUGE_PAGE_BYTES {
            // SAFETY: advice on the mapping just made; it changes no content, and a refusal changes nothing.
            let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
        }
        Ok(Mapping {
            base: base as usize,
            bytes,
        })
    }

    fn base(&self) -> Address {
        Address(self.base)
    }

    fn unmap(self) -> Result<()> {
        let unmapped = self.unmap_in_place();
        std::mem::forget(self);
        unmapped
    }

    fn unmap_in_place(&self) -> Result<()> {
        // SAFETY: base and size are those of `Mapping::new`, and this is called once, when the owner gives the mapping up.
        unsafe { rustix::mm::munmap(self.base as *mut _, self.bytes) }
            .map_err(|e| refused("munmap", self.bytes as u64, e))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.unmap_in_place();
    }
}

/// Addresses set aside around the first multiple of a huge page in them; given back on drop.
struct Place {
    base: usize,
    start: usize,
    bytes: usize,
}

impl Place {
    fn reserve(wanted_bytes: usize) -> Result<Place> {
        let bytes = wanted_bytes
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or_else(|| refused("reserving addresses", wanted_bytes as u64, Errno::NOMEM))?;
        // SAFETY: a new range at an address of the kernel's choice, without access and without memory.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags)
        }
        .map_err(|e| refused("reserving addresses", bytes as u64, e))? as usize;
        Ok(Place {
            base: start.next_multiple_of(HUGE_PAGE_BYTES),
            start,
            bytes,
        })
    }

    /// Gives back all but `bytes` from the base on, which belong to the caller from now on.
    fn keep(mut self, bytes: usize) -> usize {
        let (base, end) = (self.base, self.start + self.bytes);
        let kept_end = base + bytes.next_multiple_of(rustix::param::page_size());
        self.bytes = base - self.start;
        drop(self);
        drop(Place {
            base: kept_end,
            start: kept_end,
            bytes: end - kept_end,
        });
        base
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: a part of a reservation that holds nothing.
            let _ = unsafe { rustix::mm::munmap(self.start as *mut _, self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests;
