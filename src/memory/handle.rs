//! Handles: one logical range of bytes over the ranks of a communicator.

use super::mapping::{MappedBases, Mapping};
use super::partition::Partition;
use super::plan::{MallocRequest, Plan, Route};
use crate::comm::{Communicator, Dependent, Hierarchy, Session};
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::kinds::{Backend, Location, MemoryType};
use crate::platform::locks::ForkMutex;
use crate::platform::{Bootstrap, SegmentRequest, Term, agree};
use crate::span::{Address, Span};
use std::sync::{Arc, OnceLock};

/// What `wholememory_gref_t` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalReference {
    pub pointer: Address,
    pub rank_memory_offsets: Address,
    pub world_size: i32,
    pub stride_bytes: usize,
    pub same_chunk: bool,
}

/// A handle. It is live from malloc until free (or the end of its communicator); dead ones still answer what they were.
pub struct Memory {
    comm: Arc<Communicator>,
    memory_type: MemoryType,
    location: Location,
    route: Route,
    partition: Partition,
    hierarchy: Option<Hierarchy>,
    freed_alone: bool,
    /// Its number among the communicator's dependents, the same on all ranks.
    id: OnceLock<u64>,
    /// `None` once dead.
    mapping: ForkMutex<Option<Arc<Mapping>>>,
}

impl Memory {
    /// Collective. A failed `request` carries a failure of the caller's own checks (the rank still takes part).
    /// # Errors
    /// INVALID_VALUE for bad or differing arguments, NOT_SUPPORTED exactly where `Communicator::supports` says so,
    /// OUT_OF_MEMORY, SYSTEM_ERROR, COMMUNICATION_ERROR; the same on all ranks, and nothing remains.
    pub fn malloc(comm: &Arc<Communicator>, request: Result<MallocRequest>) -> Result<Arc<Memory>> {
        let session = comm.enter("wholememory_malloc")?;
        let freed_alone = request.as_ref().is_ok_and(|r| r.freed_alone);
        let terms = request.as_ref().map_or_else(|_| Vec::new(), MallocRequest::terms);
        let plan = request.and_then(|r| Plan::supported(&r, comm));
        let plan = agree(&session, &terms, plan)?;
        let contiguous = plan.contiguous();
        let Plan {
            memory_type,
            location,
            partition,
        } = plan;
        let mutually_mapped = match location {
            Location::Host => comm.is_single_host(),
            Location::Device => comm.reach().unreachable.is_none(),
        };
        let route = Route::choose(
            memory_type,
            comm.route_choice(),
            mutually_mapped,
            comm.is_intranode(),
        );
        let hierarchy = match memory_type {
            MemoryType::Hierarchy => Some(comm.hierarchy(&session)?),
            _ => None,
        };
        make_transports(&session, route, hierarchy.as_ref())?;
        let asked = SegmentRequest {
            location,
            starts_bytes: &partition.starts_bytes,
            contiguous,
        };
        let create = || comm.platform().segments().create(&asked, &session);
        let segment = create().or_else(|error| match error.kind {
            Kind::OutOfMemory if comm.give_back_window(&session)? => create(),
            _ => Err(error),
        })?;
        let with_chunks = memory_type == MemoryType::Chunked && location == Location::Device;
        let mapping = Mapping::new(
            segment,
            &partition,
            route,
            comm.rank(),
            comm.platform(),
            with_chunks,
        );
        let mapping = if with_chunks {
            agree(&session, &[], mapping)?
        } else {
            mapping?
        };
        let memory = Arc::new(Memory {
            comm: comm.clone(),
            memory_type,
            location,
            route,
            partition,
            hierarchy,
            freed_alone,
            id: OnceLock::new(),
            mapping: ForkMutex::new(Some(Arc::new(mapping))),
        });
        let id = comm.adopt(&session, memory.clone())?;
        let _ = memory.id.set(id);
        Ok(memory)
    }

    /// Collective. Operations of other threads that already run on the memory keep it mapped until they end.
    /// # Errors
    /// INVALID_INPUT for a dead handle (while its communicator lives, the rank still takes part), INVALID_VALUE if ranks
    /// free different handles; then nothing is freed. COMMUNICATION_ERROR on a broken communicator: the local side is
    /// released and the handle is dead.
    pub fn free(self: &Arc<Self>) -> Result<()> {
        let session = match self.comm.enter("wholememory_free") {
            Ok(session) => session,
            Err(error) => return Err(self.abandon(error)),
        };
        let mine = if self.is_live() { Ok(()) } else { Err(self.dead()) };
        if let Err(error) = agree(&session, &[Term::new("the handle", self.number())], mine) {
            let broken = error.kind == Kind::Communication && session.failure().is_some();
            drop(session);
            return Err(if broken { self.abandon(error) } else { error });
        }
        self.comm.disown(self.number());
        self.release(Some(&session))
    }

    /// Gives back this rank's side of memory that was made `freed_alone`. Local: what others still map stays there for
    /// them. Nothing to do if it is dead already.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR.
    pub fn free_alone(&self) -> Result<()> {
        self.comm.disown(self.number());
        self.release(None)
    }

    /// Releases the local side of a handle whose communicator is broken; the error the caller gets.
    fn abandon(&self, broken: Error) -> Error {
        if !self.is_live() {
            return self.dead();
        }
        self.comm.disown(self.number());
        let _ = self.release(None);
        broken
    }

    /// Its number among the objects of its communicator: equal on all ranks for the same handle, for no other.
    pub fn number(&self) -> u64 {
        self.id.get().copied().unwrap_or(u64::MAX)
    }

    fn dead(&self) -> Error {
        Error::new(
            Kind::InvalidInput,
            format!(
                "this {} {} handle of {} bytes is dead: it was freed, alone or with its communicator",
                self.memory_type,
                self.location,
                self.total_bytes()
            ),
        )
    }

    fn mapping(&self) -> Result<Arc<Mapping>> {
        self.mapping.lock()?.clone().ok_or_else(|| self.dead())
    }

    /// False once freed (or gone with its communicator).
    pub fn is_live(&self) -> bool {
        // Where a forked child cannot tell, what it asks next fails in words.
        self.mapping.lock().map_or(true, |mapping| mapping.is_some())
    }

    /// Its locks, held.
    #[cfg(test)]
    pub fn hold_locks(&self) -> impl Sized + '_ {
        self.mapping.lock()
    }

    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.comm
    }

    /// NOT_SUPPORTED for types other than HIERARCHY.
    pub fn hierarchy(&self) -> Result<Hierarchy> {
        match &self.hierarchy {
            Some(pair) => Ok(pair.clone()),
            None => fail!(
                NotSupported,
                "a {} handle has no local and cross communicators, only HIERARCHY has",
                self.memory_type
            ),
        }
    }

    pub fn memory_type(&self) -> MemoryType {
        self.memory_type
    }

    pub fn location(&self) -> Location {
        self.location
    }

    /// NCCL for every handle of this build.
    pub fn backend(&self) -> Backend {
        Backend::Nccl
    }

    pub fn route(&self) -> Route {
        self.route
    }

    pub fn total_bytes(&self) -> usize {
        self.partition.total_bytes()
    }

    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    fn span(&self, rank: usize) -> Result<Span> {
        Ok(Span {
            address: self.mapping()?.address_of_rank(rank),
            size_bytes: self.partition.size_bytes(rank),
            offset_bytes: self.partition.offset_bytes(rank),
        })
    }

    /// The own partition. INVALID_INPUT if the handle is dead.
    pub fn local(&self) -> Result<Span> {
        self.span(self.comm.rank())
    }

    /// The partition of `rank` as C callers may see it: INVALID_INPUT for ranks outside the world and for DISTRIBUTED and HIERARCHY.
    pub fn of_rank(&self, rank: i32) -> Result<Span> {
        let world_ranks = self.partition.world_ranks();
        let inside = usize::try_from(rank).ok().filter(|r| *r < world_ranks);
        let Some(peer) = inside else {
            fail!(
                InvalidInput,
                "rank is {rank}, the handle has ranks 0 to {}",
                world_ranks - 1
            );
        };
        ensure!(
            matches!(self.memory_type, MemoryType::Continuous | MemoryType::Chunked),
            InvalidInput,
            "the memory of single ranks of a {} handle cannot be reached",
            self.memory_type
        );
        self.span(peer)
    }

    /// CONTINUOUS, CHUNKED HOST: the base; else INVALID_INPUT.
    pub fn global_pointer(&self) -> Result<Address> {
        match self.mapping()?.flat() {
            Some(base) => Ok(base),
            None => fail!(
                InvalidInput,
                "a {} {} handle has no global pointer, CONTINUOUS and CHUNKED HOST have",
                self.memory_type,
                self.location
            ),
        }
    }

    /// The struct is filled also where the pointer is NULL (then ffi returns INVALID_INPUT).
    pub fn global_reference(&self) -> Result<GlobalReference> {
        let mapping = self.mapping()?;
        let plain = GlobalReference {
            pointer: mapping.flat().unwrap_or(Address::NULL),
            world_size: self.partition.world_ranks() as i32,
            ..GlobalReference::default()
        };
        if mapping.flat().is_some() || self.memory_type != MemoryType::Chunked {
            return Ok(plain);
        }
        let (pointer, rank_memory_offsets) = mapping.chunk_arrays();
        Ok(GlobalReference {
            pointer,
            rank_memory_offsets,
            stride_bytes: self.partition.stride_bytes,
            same_chunk: self.partition.same_chunk,
            ..plain
        })
    }

    /// For the library's own kernels: the base of every rank's partition as mapped here (also of DISTRIBUTED and HIERARCHY
    /// handles where the ranks map each other), NULL where it is not. INVALID_INPUT if the handle is dead.
    pub fn mapped_bases(&self) -> Result<MappedBases> {
        Ok(MappedBases(self.mapping()?))
    }
}

/// Makes what the exchanging routes need, one agreed step after the other.
fn make_transports(session: &Session<'_>, route: Route, hierarchy: Option<&Hierarchy>) -> Result<()> {
    let comm = session.communicator();
    if route == Route::Exchange {
        agree(session, &[], comm.transport(session).map(drop))?;
    }
    if let (Route::Hierarchy, Some(pair)) = (route, hierarchy) {
        for part in [&pair.local, &pair.cross] {
            let made = part
                .enter("wholememory_malloc")
                .and_then(|inner| part.transport(&inner).map(drop));
            agree(session, &[], made)?;
        }
    }
    Ok(())
}

impl Dependent for Memory {
    fn release(&self, session: Option<&Session<'_>>) -> Result<()> {
        let taken = self.mapping.lock()?.take();
        let session = session.filter(|_| !self.freed_alone);
        match taken {
            Some(mapping) => mapping.give_back(session.map(|s| s as &dyn Bootstrap)),
            None => Ok(()),
        }
    }

    fn is_distributed(&self) -> bool {
        self.memory_type == MemoryType::Distributed
    }

    fn is_freed_alone(&self) -> bool {
        self.freed_alone
    }
}
