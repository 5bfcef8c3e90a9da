//! The communicator: the ranks that share handles, and the one lock under which they meet.

use super::clique::{CliqueInfo, clique_of};
use super::control::Control;
use super::net::Net;
use super::post::Post;
use super::session::Session;
use super::topology::Topology;
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{Backend, Location, MemoryType};
pub use crate::platform::TransportChoice;
use crate::platform::locks::ForkMutex;
use crate::platform::meeting::{Called, Meeting};
use crate::platform::process::epoch;
use crate::platform::window::Window;
use crate::platform::{
    Bootstrap, Member, Platform, Reach, Stream, Term, Transport, agree, is_one_fabric, largest,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// `WHOLEMEMORY_ROUTE`, agreed over the ranks at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChoice {
    Auto,
    Direct,
    Exchange,
}

impl RouteChoice {
    pub(super) fn parse(word: &str) -> Result<RouteChoice> {
        match word.trim() {
            "auto" | "" => Ok(RouteChoice::Auto),
            "direct" => Ok(RouteChoice::Direct),
            "exchange" => Ok(RouteChoice::Exchange),
            other => fail!(
                InvalidValue,
                "WHOLEMEMORY_ROUTE is {other:?}, it must be auto, direct or exchange"
            ),
        }
    }
}

pub(super) fn parse_transport(word: &str) -> Result<TransportChoice> {
    match word.trim() {
        "auto" | "" => Ok(TransportChoice::Auto),
        "nccl" => Ok(TransportChoice::Nccl),
        "local" => Ok(TransportChoice::Local),
        other => fail!(
            InvalidValue,
            "WHOLEMEMORY_TRANSPORT is {other:?}, it must be auto, nccl or local"
        ),
    }
}

/// An object made over a communicator that must go before it (a memory handle). Implemented above.
pub trait Dependent: Send + Sync {
    /// Releases the object. With a session the communicator is healthy and all ranks release this object now; with
    /// `None` only the local side is released.
    fn release(&self, session: Option<&Session<'_>>) -> Result<()>;

    /// True for handles that forbid a change of the distributed backend.
    fn is_distributed(&self) -> bool;

    /// True for objects that every rank releases for itself, so that some ranks may still have them when others have not.
    fn is_freed_alone(&self) -> bool {
        false
    }
}

/// The two communicators of HIERARCHY handles: the ranks of the own node, and the ranks with the same place in every node.
#[derive(Clone)]
pub struct Hierarchy {
    pub local: Arc<Communicator>,
    pub cross: Arc<Communicator>,
}

#[derive(Default)]
pub(super) struct Dependents {
    next: u64,
    pub(super) list: BTreeMap<u64, Arc<dyn Dependent>>,
}

/// What a collective call needs of the ranks of this host; gone once the communicator is closed.
#[derive(Default)]
pub(super) struct Ties {
    /// `None` unless several ranks, all on one host.
    pub(super) meeting: Option<Arc<Meeting>>,
    pub(super) post: Option<Post>,
}

pub struct Communicator {
    name: u64,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The process (of a chain of forks) that made it.
    pub(super) epoch: u32,
    pub(super) platform: Arc<dyn Member>,
    /// Set before the communicator is handed out.
    pub(super) reach: OnceLock<Reach>,
    pub(super) topology: Topology,
    pub(super) route: RouteChoice,
    pub(super) transport_choice: TransportChoice,
    /// `None` for a single rank.
    pub(super) net: Option<Arc<Net>>,
    pub(super) control: Mutex<Option<Control>>,
    pub(super) exchanges: AtomicU64,
    pub(super) collective: Mutex<Ties>,
    pub(super) alive: AtomicBool,
    pub(super) backend: AtomicU32,
    pub(super) dependents: ForkMutex<Dependents>,
    pub(super) hierarchy: Mutex<Option<Hierarchy>>,
    pub(super) transport: Mutex<Option<Arc<dyn Transport>>>,
    /// Embeddings that learn, as far as this rank has not destroyed them.
    learners: AtomicUsize,
    /// This rank's part of the window is to go when the collective call under way ends.
    owes_window: AtomicBool,
}

/// What a new communicator is made of.
pub(super) struct Core {
    /// See [`Communicator::name`].
    pub(super) name: u64,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) platform: Arc<dyn Member>,
    pub(super) topology: Topology,
    pub(super) choices: (RouteChoice, TransportChoice),
    pub(super) net: Option<Arc<Net>>,
    pub(super) ties: Ties,
    pub(super) control: Option<Control>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Communicator {
    pub(super) fn over(core: Core) -> Arc<Communicator> {
        Arc::new(Communicator {
            name: core.name,
            rank: core.rank,
            size: core.size,
            epoch: epoch(),
            platform: core.platform,
            reach: OnceLock::new(),
            topology: core.topology,
            route: core.choices.0,
            transport_choice: core.choices.1,
            net: core.net,
            control: Mutex::new(core.control),
            exchanges: AtomicU64::new(0),
            collective: Mutex::new(core.ties),
            alive: AtomicBool::new(true),
            backend: AtomicU32::new(Backend::Nccl.raw()),
            dependents: ForkMutex::default(),
            hierarchy: Mutex::default(),
            transport: Mutex::default(),
            learners: AtomicUsize::new(0),
            owes_window: AtomicBool::new(false),
        })
    }

    /// False once destroyed (also by finalize).
    /// Every lock of the communicator, held.
    #[cfg(test)]
    pub fn hold_locks(&self) -> impl Sized + '_ {
        (
            locked(&self.control),
            locked(&self.collective),
            self.dependents.lock(),
            locked(&self.hierarchy),
            locked(&self.transport),
        )
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The same number on all its ranks, another one for every other communicator.
    pub fn name(&self) -> u64 {
        self.name
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Ranks on the caller's node (with `WHOLEMEMORY_BOOTID` honoured).
    pub fn local_size(&self) -> usize {
        self.topology.node_size(self.rank)
    }

    /// True if all ranks are on one node.
    pub fn is_intranode(&self) -> bool {
        self.topology.is_single_node()
    }

    /// True if all ranks are in one NVLink clique that may span hosts; never on the CPU platform.
    pub fn is_intra_mnnvl(&self) -> bool {
        is_one_fabric(&self.reach().fabrics)
    }

    /// Without fabric information: in no clique, one clique in all.
    pub fn clique_info(&self) -> CliqueInfo {
        clique_of(self.rank, &self.reach().fabrics)
    }

    /// How things are done for this rank: on the device that was its caller's when the communicator was made.
    pub fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    /// What the ranks found out about each other when the communicator was made; the same on all of them.
    pub fn reach(&self) -> &Reach {
        self.reach
            .get()
            .expect("found out before the communicator is handed out")
    }

    /// Collective, once: fills [`Communicator::reach`].
    pub(super) fn acquaint(&self, operation: &'static str) -> Result<()> {
        // Not entered: a quicker rank may have left again already, and its ranks have met here.
        let session = Session {
            comm: self,
            called: operation.into(),
            held: locked(&self.collective),
        };
        let reach = self.platform.acquaint(&session, &self.topology.host_of)?;
        let _ = self.reach.set(reach);
        Ok(())
    }

    pub fn backend(&self) -> Backend {
        Backend::from_raw(self.backend.load(Ordering::Relaxed)).unwrap_or(Backend::Nccl)
    }

    /// Collective. `backend` is the raw enumerator.
    /// # Errors
    /// INVALID_VALUE for NONE, unknown or different values, NOT_SUPPORTED for NVSHMEM (not in this build), LOGIC_ERROR if
    /// DISTRIBUTED handles live, COMMUNICATION_ERROR.
    pub fn set_backend(&self, backend: u32) -> Result<()> {
        let session = self.enter("set_distributed_backend")?;
        let mine = || {
            let Some(wanted) = Backend::from_raw(backend) else {
                fail!(
                    InvalidValue,
                    "distributed backend {backend} is none of NCCL (1), NVSHMEM (2)"
                );
            };
            ensure!(
                wanted == Backend::Nccl,
                NotSupported,
                "this build has no NVSHMEM; the distributed backend must be NCCL"
            );
            let distributed = self
                .dependents
                .lock()?
                .list
                .values()
                .filter(|d| d.is_distributed())
                .count();
            ensure!(
                distributed == 0,
                Logic,
                "{distributed} DISTRIBUTED handles live; free them before changing the backend"
            );
            Ok(wanted)
        };
        let wanted = agree(&session, &[Term::new("backend", backend)], mine())?;
        self.backend.store(wanted.raw(), Ordering::Relaxed);
        Ok(())
    }

    /// Collective: returns when every rank has called it. Does not wait for work on any stream.
    pub fn barrier(&self) -> Result<()> {
        self.enter("barrier")?.barrier()
    }

    /// Local: exactly what malloc does for the pair.
    /// # Errors
    /// NOT_SUPPORTED with the reason.
    pub fn supports(&self, memory_type: MemoryType, location: Location) -> Result<()> {
        match memory_type {
            MemoryType::Distributed => Ok(()),
            MemoryType::Continuous | MemoryType::Chunked => {
                ensure!(
                    self.is_intranode() || (location == Location::Device && self.maps_over_hosts()),
                    NotSupported,
                    "{memory_type} {location} memory needs all ranks on one node; {} of the {} ranks are on this one",
                    self.local_size(),
                    self.size
                );
                if let (Location::Device, Some(why)) = (location, &self.reach().unreachable) {
                    fail!(
                        NotSupported,
                        "{memory_type} {location} memory needs ranks that can map each other's device memory: {why}"
                    );
                }
                Ok(())
            }
            MemoryType::Hierarchy => {
                ensure!(
                    self.topology.equal_nodes().is_some(),
                    NotSupported,
                    "HIERARCHY memory needs the same number of ranks on every node"
                );
                Ok(())
            }
        }
    }

    /// True if the ranks are on several hosts and map each other's device memory all the same.
    fn maps_over_hosts(&self) -> bool {
        !self.is_single_host() && self.reach().unreachable.is_none()
    }

    pub fn route_choice(&self) -> RouteChoice {
        self.route
    }

    pub fn transport_choice(&self) -> TransportChoice {
        self.transport_choice
    }

    /// True if all ranks are on one host and share its memory (whatever their nodes).
    pub fn is_single_host(&self) -> bool {
        self.topology.is_single_host()
    }

    /// The node of a rank, numbered by first appearance, and the rank's place among the ranks of that node.
    pub fn node_of_rank(&self, rank: usize) -> (usize, usize) {
        (self.topology.node_of[rank], self.topology.place_of[rank])
    }

    /// Begins a collective call named `operation`; waits for other threads' calls on this communicator to end.
    /// # Errors
    /// COMMUNICATION_ERROR naming the dead rank if the communicator is broken or this process is a forked child,
    /// INVALID_INPUT if it was destroyed.
    pub fn enter(&self, operation: &'static str) -> Result<Session<'_>> {
        self.enter_as(operation.into())
    }

    /// [`enter`](Communicator::enter) for a call that has several ways to meet.
    /// # Errors
    /// Those of `enter`.
    pub fn enter_as(&self, called: Called) -> Result<Session<'_>> {
        let operation = called.operation;
        self.check_ours(operation)?;
        let held = locked(&self.collective);
        ensure!(
            self.is_alive(),
            InvalidInput,
            "{operation}: the communicator was destroyed"
        );
        if let Some(error) = self.failure_to_begin() {
            return Err(error);
        }
        let session = Session {
            comm: self,
            called,
            held,
        };
        session.tell_step();
        Ok(session)
    }

    /// # Errors
    /// COMMUNICATION_ERROR in a forked child.
    pub fn check_ours(&self, operation: &str) -> Result<()> {
        ensure!(
            self.is_ours(),
            Communication,
            "{operation}: this process was forked from rank {} of the communicator; only that rank can make its collective calls and write to its memory",
            self.rank
        );
        Ok(())
    }

    /// Inside a collective call: keeps `dependent` until it is released, under the returned id (the same on all ranks).
    /// # Errors
    /// COMMUNICATION_ERROR where the call went on in a forked child.
    pub fn adopt(&self, _session: &Session<'_>, dependent: Arc<dyn Dependent>) -> Result<u64> {
        let mut dependents = self.dependents.lock()?;
        let id = dependents.next;
        dependents.next += 1;
        dependents.list.insert(id, dependent);
        Ok(id)
    }

    /// Takes a dependent out of the list (its owner releases it). `None` if it is gone already, or not to be had in a forked child.
    pub fn disown(&self, id: u64) -> Option<Arc<dyn Dependent>> {
        self.dependents.lock().ok()?.list.remove(&id)
    }

    /// The communicators of HIERARCHY handles, made at the first call and destroyed with this one. Collective.
    /// # Errors
    /// NOT_SUPPORTED for nodes of different sizes; those of split.
    pub fn hierarchy(&self, session: &Session<'_>) -> Result<Hierarchy> {
        if let Some(pair) = locked(&self.hierarchy).clone() {
            return Ok(pair);
        }
        ensure!(
            self.topology.equal_nodes().is_some(),
            NotSupported,
            "HIERARCHY memory needs the same number of ranks on every node"
        );
        let (node, place) = self.node_of_rank(self.rank);
        let made = |c: Option<Arc<Communicator>>| {
            c.ok_or_else(|| Error::new(Kind::Unknown, "a split without colour"))
        };
        let local = made(self.split_within(session, node as i32, place as i32)?)?;
        let cross = match self
            .split_within(session, place as i32, node as i32)
            .and_then(made)
        {
            Ok(cross) => cross,
            Err(error) => {
                let _ = local.destroy();
                return Err(error);
            }
        };
        let pair = Hierarchy { local, cross };
        *locked(&self.hierarchy) = Some(pair.clone());
        Ok(pair)
    }

    /// The transport of the Exchange route, made at the first call. Collective.
    pub fn transport(&self, session: &Session<'_>) -> Result<Arc<dyn Transport>> {
        if let Some(transport) = locked(&self.transport).clone() {
            return Ok(transport);
        }
        let made = self.platform.transport(self.transport_choice, session)?;
        let transport: Arc<dyn Transport> = Arc::from(made);
        *locked(&self.transport) = Some(transport.clone());
        Ok(transport)
    }

    fn window(&self) -> Option<Arc<dyn Window>> {
        locked(&self.transport)
            .as_ref()
            .and_then(|transport| transport.window())
    }

    /// Gives back what ranks leave gradients for each other in, until the next step needs it; false on all ranks if none held
    /// any. Collective.
    /// # Errors
    /// COMMUNICATION_ERROR, CUDA_ERROR, SYSTEM_ERROR; the same on all ranks.
    pub fn give_back_window(&self, session: &Session<'_>) -> Result<bool> {
        let window = self.window();
        let held_bytes = window.as_ref().map_or(0, |window| window.held_bytes());
        if largest(session, held_bytes as u64)? == 0 {
            return Ok(false);
        }
        agree(session, &[], window.map_or(Ok(()), |window| window.give_back()))?;
        Ok(true)
    }

    /// An embedding over the communicator learns from now on.
    pub fn learner_joined(&self) {
        self.learners.fetch_add(1, Ordering::Relaxed);
    }

    /// This rank has destroyed such an embedding. With the last one it gives back what it holds of the window, at the end of the
    /// collective call if one is under way. Local.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR.
    pub fn learner_left(&self) -> Result<()> {
        if self.learners.fetch_sub(1, Ordering::AcqRel) != 1 || !self.is_ours() {
            return Ok(());
        }
        // Told first: who ends a call meanwhile sees it, or has let the lock go.
        self.owes_window.store(true, Ordering::Release);
        match self.collective.try_lock() {
            Ok(_no_call) => self.settle_window(),
            Err(TryLockError::Poisoned(_no_call)) => self.settle_window(),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Inside a collective call that left gradients in the window: nobody may be learning any more.
    pub fn window_was_used(&self) {
        if self.learners.load(Ordering::Acquire) == 0 {
            self.owes_window.store(true, Ordering::Release);
        }
    }

    /// By who holds the collective lock.
    pub(super) fn settle_window(&self) -> Result<()> {
        // Nearly always nothing is owed. A forked child touches no lock that its parent's threads may have held.
        let owed = self.owes_window.load(Ordering::Relaxed) && self.owes_window.swap(false, Ordering::AcqRel);
        if !owed || self.learners.load(Ordering::Acquire) != 0 || !self.is_ours() {
            return Ok(());
        }
        self.window().map_or(Ok(()), |window| window.give_back())
    }

    /// Why collective calls cannot succeed any more, if so: a rank died or left.
    pub fn failure(&self) -> Option<Error> {
        self.net.as_ref().and_then(|n| n.failure())
    }

    /// [`failure`](Communicator::failure), or why the next call cannot be one that all ranks make.
    fn failure_to_begin(&self) -> Option<Error> {
        self.net.as_ref().and_then(|n| n.failure_to_begin())
    }

    /// For a call that has waited for its work on the stream.
    /// # Errors
    /// COMMUNICATION_ERROR if a rank did not come to a meeting of streams that ended all the same; CUDA_ERROR.
    pub fn check_all_came(&self, stream: Stream) -> Result<()> {
        match self.failure_to_come() {
            Some(error) if !self.platform.all_came(stream)? => Err(error),
            _ => Ok(()),
        }
    }

    /// [`failure`](Communicator::failure), or why a rank does not come to where ranks meet on the host any more.
    pub(super) fn failure_to_come(&self) -> Option<Error> {
        self.net.as_ref().and_then(|n| n.failure_to_come())
    }

    pub(super) fn next_exchange(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed) + 1
    }
}
