//! Shared memory of the ranks of one host: one sealed memfd a segment, made by rank 0, mapped whole by every rank. The
//! pages of a segment are reserved when it is made, so that later use can meet neither SIGBUS nor the OOM killer.

mod budget;
#[cfg(test)]
pub(crate) mod threaded;

use crate::error::{Error, Kind, Result, ensure};
use crate::platform::{Bootstrap, Segment, SegmentRequest, Segments, agree};
use crate::span::Address;
use budget::Budget;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Reserving goes in steps of this size, so that a signal costs the work of one step at most.
const RESERVE_STEP_BYTES: u64 = 256 << 20;

/// Segments below this size gain nothing from huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Makes segments in memory files.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemfdSegments;

impl Segments for MemfdSegments {
    fn granularity_bytes(&self) -> usize {
        rustix::param::page_size()
    }

    fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
        let plan = FilePlan::new(request, self.granularity_bytes())?;
        if plan.file_bytes == 0 {
            return Ok(Box::new(plan.into_segment(None)));
        }
        let budgets = boot
            .all_gather(&Budget::read().encode())?
            .iter()
            .map(|bytes| Budget::decode(bytes))
            .collect::<Result<Vec<_>>>()?;
        budget::verdict(&budgets, &plan.parts_bytes(), plan.file_bytes as u64)?;

        let made = (boot.rank() == 0).then(|| make_file(plan.file_bytes as u64));
        let offered = made.as_ref().and_then(|m| m.as_ref().ok()).map(AsFd::as_fd);
        let received = boot.exchange_descriptors(offered);
        let mine = match made {
            Some(Err(error)) => Err(error),
            _ => received.and_then(|all| map_and_reserve(&plan, all, boot.rank())),
        };
        let mapping = agree(boot, &[], mine)?;
        Ok(Box::new(plan.into_segment(Some(mapping))))
    }
}

/// Where the partitions lie inside the file. Pure.
#[derive(Debug, PartialEq, Eq)]
struct FilePlan {
    contiguous: bool,
    page_bytes: usize,
    file_bytes: usize,
    /// Per rank: offset and size of its partition in the file.
    places: Vec<(usize, usize)>,
}

impl FilePlan {
    fn new(request: &SegmentRequest<'_>, page_bytes: usize) -> Result<FilePlan> {
        let starts = request.starts_bytes;
        let total_bytes = starts.last().copied().unwrap_or(0);
        let too_large = || {
            Error::new(
                Kind::OutOfMemory,
                format!("{total_bytes} bytes are more than one address space can hold"),
            )
        };
        let whole_pages = |bytes: usize| bytes.checked_next_multiple_of(page_bytes).ok_or_else(too_large);
        let mut places = Vec::with_capacity(starts.len());
        let mut next: usize = 0;
        for pair in starts.windows(2) {
            let size = pair[1] - pair[0];
            let offset = if request.contiguous { pair[0] } else { next };
            places.push((offset, size));
            next = next.checked_add(whole_pages(size)?).ok_or_else(too_large)?;
        }
        let file_bytes = if request.contiguous {
            whole_pages(total_bytes.max(1))?
        } else {
            next
        };
        ensure!(file_bytes <= isize::MAX as usize, OutOfMemory, "{}", too_large());
        Ok(FilePlan {
            contiguous: request.contiguous,
            page_bytes,
            file_bytes,
            places,
        })
    }

    /// The pages that `rank` reserves, as (offset, size). The page of an empty whole is rank 0's.
    fn reserved(&self, rank: usize) -> (u64, u64) {
        let (offset, size) = self.places[rank];
        if self.contiguous && rank == 0 {
            return (0, size.max(1).next_multiple_of(self.page_bytes) as u64);
        }
        if size == 0 {
            return (offset as u64, 0);
        }
        // A page that two partitions share is reserved by the first of them that has bytes in it.
        let start = offset.next_multiple_of(self.page_bytes);
        let end = (offset + size).next_multiple_of(self.page_bytes);
        (start as u64, (end - start) as u64)
    }

    fn parts_bytes(&self) -> Vec<u64> {
        (0..self.places.len()).map(|rank| self.reserved(rank).1).collect()
    }

    fn into_segment(self, mapping: Option<Mapping>) -> MemfdSegment {
        let base = mapping.as_ref().map_or(Address::NULL, Mapping::base);
        let addresses = self
            .places
            .iter()
            .map(|(offset, size)| {
                if self.contiguous || *size > 0 {
                    base.offset_bytes(*offset)
                } else {
                    Address::NULL
                }
            })
            .collect();
        MemfdSegment {
            addresses,
            flat: self.contiguous.then_some(base),
            mapping,
        }
    }
}

/// A mapped segment; the descriptor is closed, the mapping alone keeps the memory.
struct MemfdSegment {
    addresses: Box<[Address]>,
    flat: Option<Address>,
    mapping: Option<Mapping>,
}

impl Segment for MemfdSegment {
    fn address_of_rank(&self, rank: usize) -> Address {
        self.addresses[rank]
    }

    fn flat(&self) -> Option<Address> {
        self.flat
    }

    fn release(mut self: Box<Self>, _boot: Option<&dyn Bootstrap>) -> Result<()> {
        match self.mapping.take() {
            Some(mapping) => mapping.unmap(),
            None => Ok(()),
        }
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

/// Maps the file of rank 0 and reserves the own partition. The descriptors are closed on return.
fn map_and_reserve(plan: &FilePlan, received: Vec<Option<OwnedFd>>, rank: usize) -> Result<Mapping> {
    let Some(Some(file)) = received.into_iter().next() else {
        return Err(Error::new(
            Kind::System,
            "no descriptor of the shared memory arrived from rank 0",
        ));
    };
    let bytes = plan.file_bytes as u64;
    let there = rustix::fs::fstat(&file).map_err(|e| refused("fstat", bytes, e))?;
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| refused("F_GET_SEALS", bytes, e))?;
    ensure!(
        there.st_size as u64 == bytes && seals.contains(SealFlags::SHRINK),
        System,
        "the descriptor from rank 0 is no sealed memory of {bytes} bytes (size {}, seals {:#x})",
        there.st_size,
        seals.bits()
    );
    let mapping = Mapping::new(file.as_fd(), plan.file_bytes)?;
    let (mut offset, mut rest) = plan.reserved(rank);
    while rest > 0 {
        let step = rest.min(RESERVE_STEP_BYTES);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), offset, step))
            .map_err(|e| {
                refused("fallocate", step, e).within(format!("reserving shared memory at byte {offset}"))
            })?;
        offset += step;
        rest -= step;
    }
    Ok(mapping)
}

/// A shared, writable mapping of a whole file; unmapped on drop.
struct Mapping {
    base: usize,
    bytes: usize,
}

impl Mapping {
    fn new(file: BorrowedFd<'_>, bytes: usize) -> Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }
                .map_err(|e| refused("mmap", bytes as u64, e))?;
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

#[cfg(test)]
mod tests;
