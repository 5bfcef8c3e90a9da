//! The cache of an embedding: which policies fit which tables, and what such a cache takes.

use super::geometry::{Geometry, covered_rows};
use super::policy::{Access, CachePolicy};
use crate::comm::Communicator;
use crate::error::{Result, ensure, fail};
use crate::kinds::{Location, MemoryType};
use crate::memory::{MallocRequest, Memory};
use crate::ops::cached::{Cache, CachedStates};
use crate::platform::caching::{self, SET_LINES};
use crate::platform::{Platform, Stream, Term};
use std::sync::Arc;

/// Tags are numbers of 32 bits, and 0 is an empty line.
const MOST_RANK_ROWS: u64 = u32::MAX as u64 - 1;

/// Bytes of the tag of a line.
const TAG_BYTES: usize = 4;

impl CachePolicy {
    /// True for a cache that is partitioned as a table on `comm`, over the same ranks.
    pub(super) fn is_at_home(&self, comm: &Arc<Communicator>) -> bool {
        Arc::ptr_eq(&self.comm, comm)
    }

    /// Whether a table on `comm` can be cached so; enumerators raw.
    /// # Errors
    /// INVALID_INPUT for what does not go together, NOT_IMPLEMENTED for a HIERARCHY cache on another communicator, INVALID_VALUE for
    /// enumerators that are none.
    pub(super) fn check_fits(&self, comm: &Arc<Communicator>, memory_type: u32) -> Result<()> {
        let hierarchy = MemoryType::Hierarchy.raw();
        let named = |raw: u32| MemoryType::from_raw(raw).map_or_else(|| raw.to_string(), |t| t.to_string());
        ensure!(
            memory_type != hierarchy,
            InvalidInput,
            "an embedding of HIERARCHY memory cannot have a cache"
        );
        if self.is_at_home(comm) {
            ensure!(
                self.location() == Some(Location::Device),
                InvalidInput,
                "a cache on the embedding's own communicator must be in DEVICE memory, its memory_location is {}",
                self.location as i32
            );
            ensure!(
                self.memory_type >= memory_type && self.memory_type != hierarchy,
                InvalidInput,
                "an embedding of {} memory cannot have a cache of {} memory on its own communicator: the cache's type must be the \
                 same or a later one of CONTINUOUS, CHUNKED, DISTRIBUTED",
                named(memory_type),
                named(self.memory_type)
            );
            ensure!(
                self.access().is_some(),
                InvalidValue,
                "access_type is {}, it must be NONE (0), READONLY (1) or READWRITE (2)",
                self.access as i32
            );
        } else {
            ensure!(
                self.memory_type != MemoryType::Distributed.raw(),
                InvalidInput,
                "a cache on another communicator than the embedding's cannot be of DISTRIBUTED memory"
            );
            ensure!(
                self.access() == Some(Access::ReadOnly),
                InvalidInput,
                "a cache on another communicator than the embedding's must be READONLY (1), its access_type is {}",
                self.access as i32
            );
            if self.memory_type == hierarchy {
                fail!(
                    NotImplemented,
                    "a cache of HIERARCHY memory on another communicator than the embedding's"
                );
            }
        }
        ensure!(
            MemoryType::from_raw(self.memory_type).is_some() && self.location().is_some(),
            InvalidValue,
            "the cache's memory_type is {} and its memory_location {}; known are 1 to 4 and 1 to 2",
            self.memory_type as i32,
            self.location as i32
        );
        Ok(())
    }

    /// What all ranks must pass alike.
    pub(super) fn term(&self) -> Term {
        let value = format!(
            "type {}, location {}, access {}, ratio {}",
            self.memory_type as i32, self.location as i32, self.access as i32, self.ratio
        );
        Term::new("cache_policy", value)
    }
}

/// How a cache of `ranks` spreads the rows of a table.
/// # Errors
/// NOT_SUPPORTED for more rows a rank than tags can tell.
pub(super) fn geometry(rows: &Geometry, ratio: f32, ranks: usize) -> Result<caching::Geometry> {
    let geometry = caching::Geometry {
        ranks,
        rows: rows.named_rows(),
        rank_rows: rows.allocated_rows / ranks as u64,
        coverage_rows: covered_rows(ratio),
    };
    ensure!(
        geometry.rank_rows <= MOST_RANK_ROWS,
        NotSupported,
        "a cache over {ranks} ranks would stand for {} rows on each, more than {MOST_RANK_ROWS}",
        geometry.rank_rows
    );
    Ok(geometry)
}

/// An empty cache of `table`. Collective over the policy's communicator.
/// # Errors
/// The same on all its ranks, and nothing remains: those of malloc; NOT_SUPPORTED where the platform has no caches.
pub(super) fn create(
    comm: &Arc<Communicator>,
    policy: &CachePolicy,
    rows: &Geometry,
    table: &Arc<Memory>,
) -> Result<Cache> {
    let geometry = geometry(rows, policy.ratio, policy.comm.size())?;
    let row_stride_bytes = rows.stride * rows.dtype.size_bytes();
    let sets = geometry.sets() as usize;
    let allocated = |granule_bytes: usize, rank_granules: usize, (memory_type, location): (u32, u32)| {
        let granules = rank_granules.checked_mul(geometry.ranks);
        let total_bytes = granules.and_then(|granules| granules.checked_mul(granule_bytes));
        let request = match total_bytes {
            Some(total_bytes) => Ok(MallocRequest {
                total_bytes,
                memory_type,
                location,
                granule_bytes,
                rank_granules: None,
                rmm_enabled: false,
                freed_alone: true,
                described_by: Vec::new(),
            }),
            None => too_large(rank_granules, granule_bytes),
        };
        Memory::malloc(&policy.comm, request)
    };
    let place = (policy.memory_type, policy.location);
    let own_device = (MemoryType::Distributed.raw(), Location::Device.raw());
    let set_lines = SET_LINES as usize;
    let mut made: Vec<Arc<Memory>> = Vec::new();
    for (granule_bytes, rank_granules, place) in [
        (set_lines * TAG_BYTES, sets, place),
        (set_lines * row_stride_bytes, sets, place),
        (geometry.control_bytes(), 1, own_device),
    ] {
        match allocated(granule_bytes, rank_granules, place) {
            Ok(memory) => made.push(memory),
            Err(error) => {
                made.iter().for_each(|memory| drop(memory.free_alone()));
                return Err(error.within("the memory of the cache"));
            }
        }
    }
    let [tags, lines, control] = made
        .try_into()
        .unwrap_or_else(|_| unreachable!("three were made"));
    Ok(Cache {
        comm: policy.comm.clone(),
        geometry,
        dtype: rows.dtype,
        cols: rows.cols,
        row_stride_bytes,
        table: table.clone(),
        at_home: policy.is_at_home(comm),
        tags,
        lines,
        control,
        states: Default::default(),
        turns: Default::default(),
        clock: Default::default(),
    })
}

fn too_large<T>(granules: usize, granule_bytes: usize) -> Result<T> {
    fail!(
        InvalidValue,
        "a cache of {granules} times {granule_bytes} bytes on every rank is more than the address space holds"
    )
}

/// Makes the own part of a new cache an empty one.
/// # Errors
/// CUDA_ERROR; NOT_SUPPORTED where the platform has no caches.
pub(super) fn clear(cache: &Cache) -> Result<()> {
    let platform: &dyn Platform = cache.comm.platform();
    let leases = cache.leases()?;
    platform
        .caching()
        .reset(&cache.view(&leases), Stream::default())?;
    platform.synchronize(Stream::default())
}

/// Gives a cache lines for the states of its rows, which lie in `table`, `stride_bytes` apart. Collective.
/// # Errors
/// Those of malloc, the same on all ranks.
pub(super) fn add_states(
    cache: &Cache,
    policy: &CachePolicy,
    table: &Arc<Memory>,
    stride_bytes: usize,
) -> Result<()> {
    let (sets, set_bytes) = (cache.geometry.sets() as usize, SET_LINES as usize * stride_bytes);
    let total_bytes = sets
        .checked_mul(set_bytes)
        .and_then(|bytes| bytes.checked_mul(cache.geometry.ranks));
    let request = match total_bytes {
        Some(total_bytes) => Ok(MallocRequest {
            total_bytes,
            memory_type: policy.memory_type,
            location: policy.location,
            granule_bytes: set_bytes,
            rank_granules: None,
            rmm_enabled: false,
            freed_alone: true,
            described_by: Vec::new(),
        }),
        None => too_large(sets, set_bytes),
    };
    let lines = Memory::malloc(&cache.comm, request).map_err(|e| e.within("the cache of the states"))?;
    let states = CachedStates {
        lines,
        table: table.clone(),
        stride_bytes,
    };
    let _ = cache.states.set(states);
    Ok(())
}
