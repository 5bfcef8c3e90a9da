//! The mapped memory of a live handle, and the leases that keep it mapped while an operation runs on it.

use super::partition::Partition;
use super::plan::Route;
use crate::error::Result;
use crate::platform::{Bootstrap, Platform, Segment, Words};
use crate::span::Address;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Mapping {
    segment: Box<dyn Segment>,
    /// Where kernels of this rank may read the partition of each rank; NULL where the route does not.
    bases: Box<[Address]>,
    /// Only of CHUNKED DEVICE handles.
    chunks: Option<Chunks>,
    /// Until the first load.
    fresh: AtomicBool,
}

/// The arrays behind the global reference of a CHUNKED DEVICE handle.
struct Chunks {
    pointers: Box<dyn Words>,
    offsets_bytes: Box<dyn Words>,
}

impl Mapping {
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR where the arrays of a reference find no place.
    pub(super) fn new(
        segment: Box<dyn Segment>,
        partition: &Partition,
        route: Route,
        rank: usize,
        platform: &dyn Platform,
        with_chunks: bool,
    ) -> Result<Mapping> {
        let shared = matches!(route, Route::Mapped | Route::Direct);
        let address = |peer: usize| segment.address_of_rank(peer);
        let bases = (0..partition.world_ranks())
            .map(|peer| {
                if shared || peer == rank {
                    address(peer)
                } else {
                    Address::NULL
                }
            })
            .collect();
        let chunks = || -> Result<Chunks> {
            let pointers: Vec<usize> = (0..partition.world_ranks()).map(|peer| address(peer).0).collect();
            Ok(Chunks {
                pointers: platform.words(&pointers)?,
                offsets_bytes: platform.words(&partition.starts_bytes)?,
            })
        };
        let chunks = if with_chunks { Some(chunks()?) } else { None };
        Ok(Mapping {
            segment,
            bases,
            chunks,
            fresh: AtomicBool::new(true),
        })
    }

    pub(super) fn address_of_rank(&self, rank: usize) -> Address {
        self.segment.address_of_rank(rank)
    }

    pub(super) fn flat(&self) -> Option<Address> {
        self.segment.flat()
    }

    /// The chunk pointers (one a rank) and byte offsets (world size + 1), valid as long as the handle.
    /// NULL for handles without chunks.
    pub(super) fn chunk_arrays(&self) -> (Address, Address) {
        self.chunks
            .as_ref()
            .map_or((Address::NULL, Address::NULL), |chunks| {
                (chunks.pointers.address(), chunks.offsets_bytes.address())
            })
    }

    /// Gives the memory back: at once, or with the last lease on it. Ranks release together (with `boot`) only if no rank
    /// has a lease left; nobody waits for a lease, since its holder may be waiting for this very communicator.
    pub(super) fn give_back(self: Arc<Mapping>, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let mine = Arc::into_inner(self);
        let Some(boot) = boot else {
            return mine.map_or(Ok(()), |m| m.segment.release(None));
        };
        let unused = boot.all_gather(&[u8::from(mine.is_some())])?;
        let together = unused.iter().all(|flag| flag.as_slice() == [1]);
        mine.map_or(Ok(()), |m| m.segment.release(together.then_some(boot)))
    }
}

/// The bases of every rank's partition as kernels of this rank see them (NULL where the route does not map them). The
/// memory stays mapped while this value lives, even if the handle is freed meanwhile.
#[derive(Clone)]
pub struct MappedBases(pub(super) Arc<Mapping>);

impl MappedBases {
    /// The base of the one range over all partitions, where there is one.
    pub fn flat(&self) -> Option<Address> {
        self.0.flat()
    }

    /// True once: for the first that is about to write all of the own partition.
    pub(super) fn first_fill(&self) -> bool {
        self.0.fresh.swap(false, Ordering::Relaxed)
    }
}

impl Deref for MappedBases {
    type Target = [Address];

    fn deref(&self) -> &[Address] {
        &self.0.bases
    }
}
