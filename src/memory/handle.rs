//! Handles: one logical range of bytes over the ranks of a communicator.

use super::partition::Partition;
use crate::comm::Communicator;
use crate::error::{Result, fail};
use crate::kinds::{Backend, Location, MemoryType};
use crate::span::{Address, Span};
use std::sync::Arc;

/// The arguments of `wholememory_malloc` as the caller gave them (enumerators raw, checked inside so that a rank with bad
/// arguments still takes part).
#[derive(Clone, Debug)]
pub struct MallocRequest {
    pub total_bytes: usize,
    pub memory_type: u32,
    pub location: u32,
    pub granule_bytes: usize,
    /// Granules per rank; `None` is the default plan.
    pub rank_granules: Option<Vec<usize>>,
}

/// How gather and scatter reach the rows of a handle; chosen at malloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Kernels read the other ranks' memory; nobody waits.
    Mapped,
    /// Mutually mapped ranks of a DISTRIBUTED or HIERARCHY handle: meet, mapped kernel, meet.
    Direct,
    /// Bucket by owner, ids out, rows back.
    Exchange,
    /// Exchange inside the node, dedup, exchange across nodes.
    Hierarchy,
}

/// What `wholememory_gref_t` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalReference {
    pub pointer: Address,
    pub rank_memory_offsets: Address,
    pub world_size: i32,
    pub stride_bytes: usize,
    pub same_chunk: bool,
}

pub struct Memory {}

#[allow(unused_variables)]
impl Memory {
    /// Collective. `prior` carries a failure of the caller's own checks (it still takes part). Core.md 4.1.
    pub fn malloc(comm: &Arc<Communicator>, request: Result<MallocRequest>) -> Result<Arc<Memory>> {
        fail!(NotImplemented, "not in this version")
    }

    /// Collective. Core.md 4.6. Dead handles of a live communicator take part and give INVALID_INPUT.
    pub fn free(self: &Arc<Self>) -> Result<()> {
        fail!(NotImplemented, "not in this version")
    }

    /// False once freed (or gone with its communicator).
    pub fn is_live(&self) -> bool {
        unimplemented!()
    }

    pub fn communicator(&self) -> &Arc<Communicator> {
        unimplemented!()
    }

    /// NOT_SUPPORTED for types other than HIERARCHY.
    pub fn hierarchy(&self) -> Result<crate::comm::Hierarchy> {
        unimplemented!()
    }

    pub fn memory_type(&self) -> MemoryType {
        unimplemented!()
    }

    pub fn location(&self) -> Location {
        unimplemented!()
    }

    pub fn backend(&self) -> Backend {
        unimplemented!()
    }

    pub fn route(&self) -> Route {
        unimplemented!()
    }

    pub fn total_bytes(&self) -> usize {
        unimplemented!()
    }

    pub fn partition(&self) -> &Partition {
        unimplemented!()
    }

    /// The own partition. INVALID_INPUT if the handle is dead.
    pub fn local(&self) -> Result<Span> {
        unimplemented!()
    }

    /// The partition of `rank` as C callers may see it: INVALID_INPUT for ranks outside the world and for DISTRIBUTED and HIERARCHY.
    pub fn of_rank(&self, rank: i32) -> Result<Span> {
        unimplemented!()
    }

    /// CONTINUOUS, CHUNKED HOST: the base; else INVALID_INPUT.
    pub fn global_pointer(&self) -> Result<Address> {
        unimplemented!()
    }

    /// Core.md section 5; the struct is filled also where the pointer is NULL (then ffi returns INVALID_INPUT).
    pub fn global_reference(&self) -> Result<GlobalReference> {
        unimplemented!()
    }

    /// For the library's own kernels: the base of every rank's partition as mapped here (also of DISTRIBUTED and HIERARCHY
    /// handles where the ranks map each other), NULL where it is not. INVALID_INPUT if the handle is dead.
    pub fn mapped_bases(&self) -> Result<&[Address]> {
        unimplemented!()
    }
}
