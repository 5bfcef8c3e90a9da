//! The communicator: the ranks that share handles, and the one lock under which they meet.

use crate::error::{Error, Result, fail};
use crate::kinds::{Backend, Location, MemoryType};
use crate::platform::{Bootstrap, Platform, Transport};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, MutexGuard};

/// The rendezvous token that C callers carry between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId(pub [u8; 128]);

/// What `clique_info_t` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CliqueInfo {
    pub is_in_clique: bool,
    pub first_rank: i32,
    pub rank: i32,
    pub rank_count: i32,
    pub id: i32,
    pub count: i32,
}

/// `WHOLEMEMORY_ROUTE`, agreed over the ranks at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChoice {
    Auto,
    Direct,
    Exchange,
}

/// `WHOLEMEMORY_TRANSPORT`, agreed over the ranks at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    Auto,
    Nccl,
    Local,
}

/// An object made over a communicator that must go before it (a memory handle). Implemented above.
pub trait Dependent: Send + Sync {
    /// Releases the object. With a session the communicator is healthy and all ranks release this object now; with
    /// `None` only the local side is released.
    fn release(&self, session: Option<&Session<'_>>) -> Result<()>;

    /// True for handles that forbid a change of the distributed backend.
    fn is_distributed(&self) -> bool;
}

/// The two communicators of HIERARCHY handles: the ranks of the own node, and the ranks with the same place in every node.
#[derive(Clone)]
pub struct Hierarchy {
    pub local: Arc<Communicator>,
    pub cross: Arc<Communicator>,
}

pub struct Communicator {}

/// One collective call in progress on a communicator; holds its lock.
pub struct Session<'a> {
    comm: &'a Communicator,
    _held: MutexGuard<'a, ()>,
}

#[allow(unused_variables)]
impl Communicator {
    /// Collective: makes the communicator of `size` ranks that hold the same id. See core.md 3.2, decisions.md 3.
    pub fn create(id: &UniqueId, rank: i32, size: i32) -> Result<Arc<Communicator>> {
        fail!(NotImplemented, "not in this version")
    }

    /// Collective on self: ranks of equal colour, ordered by (key, rank); colour -1 gives `None`, below is INVALID_VALUE.
    pub fn split(self: &Arc<Self>, color: i32, key: i32) -> Result<Option<Arc<Communicator>>> {
        fail!(NotImplemented, "not in this version")
    }

    /// Collective: releases all dependents in ascending id, says goodbye, closes. Afterwards `is_alive` is false.
    /// On a broken communicator it releases the local side and returns COMMUNICATION_ERROR.
    pub fn destroy(self: &Arc<Self>) -> Result<()> {
        fail!(NotImplemented, "not in this version")
    }

    pub fn is_alive(&self) -> bool {
        unimplemented!()
    }

    pub fn rank(&self) -> usize {
        unimplemented!()
    }

    pub fn size(&self) -> usize {
        unimplemented!()
    }

    /// Ranks on the caller's node (with `WHOLEMEMORY_BOOTID` honoured).
    pub fn local_size(&self) -> usize {
        unimplemented!()
    }

    /// True if all ranks are on one node.
    pub fn is_intranode(&self) -> bool {
        unimplemented!()
    }

    pub fn is_intra_mnnvl(&self) -> bool {
        unimplemented!()
    }

    pub fn clique_info(&self) -> CliqueInfo {
        unimplemented!()
    }

    pub fn platform(&self) -> &'static dyn Platform {
        unimplemented!()
    }

    pub fn backend(&self) -> Backend {
        unimplemented!()
    }

    /// Collective. `backend` is the raw enumerator; decisions.md section 7.
    pub fn set_backend(&self, backend: u32) -> Result<()> {
        fail!(NotImplemented, "not in this version")
    }

    /// Collective.
    pub fn barrier(&self) -> Result<()> {
        fail!(NotImplemented, "not in this version")
    }

    /// Local: exactly what malloc does for the pair. NOT_SUPPORTED with the reason.
    pub fn supports(&self, memory_type: MemoryType, location: Location) -> Result<()> {
        fail!(NotImplemented, "not in this version")
    }

    pub fn route_choice(&self) -> RouteChoice {
        unimplemented!()
    }

    pub fn transport_choice(&self) -> TransportChoice {
        unimplemented!()
    }

    /// True if all ranks are on one host and share its memory (whatever their nodes).
    pub fn is_single_host(&self) -> bool {
        unimplemented!()
    }

    /// The node of every rank, numbered by first appearance, and its place among the ranks of that node.
    pub fn node_of_rank(&self, rank: usize) -> (usize, usize) {
        unimplemented!()
    }

    /// Begins a collective call named `operation`; waits for other threads' calls on this communicator to end.
    /// # Errors
    /// COMMUNICATION_ERROR naming the dead rank if the communicator is broken, INVALID_INPUT if it was destroyed.
    pub fn enter(&self, operation: &'static str) -> Result<Session<'_>> {
        fail!(NotImplemented, "not in this version")
    }

    /// Inside a collective call: keeps `dependent` until it is released, under the returned id (the same on all ranks).
    pub fn adopt(&self, session: &Session<'_>, dependent: Arc<dyn Dependent>) -> u64 {
        unimplemented!()
    }

    /// Takes a dependent out of the list (its owner releases it). `None` if it is gone already.
    pub fn disown(&self, id: u64) -> Option<Arc<dyn Dependent>> {
        unimplemented!()
    }

    /// The communicators of HIERARCHY handles, made at the first call. Collective.
    pub fn hierarchy(&self, session: &Session<'_>) -> Result<Hierarchy> {
        fail!(NotImplemented, "not in this version")
    }

    /// The transport of the Exchange route, made at the first call. Collective.
    pub fn transport(&self, session: &Session<'_>) -> Result<Arc<dyn Transport>> {
        fail!(NotImplemented, "not in this version")
    }

    /// Why the communicator is broken, if it is.
    pub fn failure(&self) -> Option<Error> {
        unimplemented!()
    }
}

impl UniqueId {
    /// Starts a rendezvous in this process and returns its token.
    pub fn create() -> Result<UniqueId> {
        fail!(NotImplemented, "not in this version")
    }
}

impl Session<'_> {
    pub fn communicator(&self) -> &Communicator {
        self.comm
    }
}

#[allow(unused_variables)]
impl Bootstrap for Session<'_> {
    fn rank(&self) -> usize {
        unimplemented!()
    }

    fn size(&self) -> usize {
        unimplemented!()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        unimplemented!()
    }

    fn barrier(&self) -> Result<()> {
        unimplemented!()
    }

    fn exchange_descriptors(&self, mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>> {
        unimplemented!()
    }

    fn failure(&self) -> Option<Error> {
        unimplemented!()
    }
}
