//! Partitions laid out in whole pages: the same for memory files and for the address ranges of GPUs.

use super::SegmentRequest;
use crate::error::{Error, Kind, Result, ensure};
use crate::span::Address;

/// Where the partitions of a segment lie in one file or address range, and which whole pages each rank provides. Pure.
#[derive(Debug, PartialEq, Eq)]
pub struct PagePlan {
    contiguous: bool,
    page_bytes: usize,
    /// Whole pages over all partitions; 0 only for ranges of their own that are all empty.
    pub total_bytes: usize,
    /// Per rank: offset and size of its partition.
    pub places: Vec<(usize, usize)>,
}

impl PagePlan {
    /// # Errors
    /// OUT_OF_MEMORY for what no address space can hold.
    pub fn new(request: &SegmentRequest<'_>, page_bytes: usize) -> Result<PagePlan> {
        let starts = request.starts_bytes;
        let wanted_bytes = starts.last().copied().unwrap_or(0);
        let too_large = || {
            Error::new(
                Kind::OutOfMemory,
                format!("{wanted_bytes} bytes are more than one address space can hold"),
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
        let total_bytes = if request.contiguous {
            whole_pages(wanted_bytes.max(1))?
        } else {
            next
        };
        ensure!(total_bytes <= isize::MAX as usize, OutOfMemory, "{}", too_large());
        Ok(PagePlan {
            contiguous: request.contiguous,
            page_bytes,
            total_bytes,
            places,
        })
    }

    /// The pages that `rank` provides, as (offset, size). The page of an empty whole is rank 0's.
    pub fn provided(&self, rank: usize) -> (usize, usize) {
        let (offset, size) = self.places[rank];
        if size == 0 {
            let nothing_at_all = self.contiguous && self.places.iter().all(|(_, size)| *size == 0);
            return (
                offset,
                if nothing_at_all && rank == 0 {
                    self.page_bytes
                } else {
                    0
                },
            );
        }
        // A page that two partitions share is provided by the first of them that has bytes in it.
        let start = offset.next_multiple_of(self.page_bytes);
        let end = (offset + size).next_multiple_of(self.page_bytes);
        (start, end - start)
    }

    pub fn parts_bytes(&self) -> Vec<u64> {
        (0..self.places.len())
            .map(|rank| self.provided(rank).1 as u64)
            .collect()
    }

    /// Where each rank's partition is in a mapping at `base`: NULL for an empty one that has no place in one range.
    pub fn addresses(&self, base: Address) -> Box<[Address]> {
        self.places
            .iter()
            .map(|(offset, size)| {
                if self.contiguous || *size > 0 {
                    base.offset_bytes(*offset)
                } else {
                    Address::NULL
                }
            })
            .collect()
    }

    /// The base of the one range over all partitions, if there is one.
    pub fn flat(&self, base: Address) -> Option<Address> {
        self.contiguous.then_some(base)
    }
}
