//! The object: a table of rows, perhaps with a cache, perhaps with an optimizer and its states.

use super::cache;
use super::geometry::{Geometry, Wish, usable_sms};
use super::policy::CachePolicy;
use super::training::Training;
use crate::comm::Communicator;
use crate::error::{Error, Kind, Result};
use crate::memory::{MallocRequest, Memory};
use crate::ops::cached::{self, Cache, Named};
use crate::ops::{self, Buffers};
use crate::platform::caching::{AfterWriteBack, CacheCounters};
use crate::platform::locks::ForkMutex;
use crate::platform::{Stream, Term, agree};
use crate::tensor::{Description, Operand, Storage, shape};
use std::sync::Arc;

/// The arguments of `wholememory_create_embedding`; enumerators raw, checked inside so that a rank with bad ones takes part.
pub struct Request {
    pub description: Description,
    pub memory_type: u32,
    pub location: u32,
    pub policy: Option<CachePolicy>,
    /// Rows of each rank, one value a rank; `None` is the default plan.
    pub partition: Option<Vec<usize>>,
    pub sms: i32,
    pub round_robin_size: i32,
    /// The process-wide flag of `wholememory_set_rmm_enabled`.
    pub rmm_enabled: bool,
}

/// A table that can be cached and trained. It lives from create until [`Embedding::release`]; its memory goes with its
/// communicator at the latest. A dead one still answers what it was.
pub struct Embedding {
    pub(super) comm: Arc<Communicator>,
    pub(super) geometry: Geometry,
    pub(super) table: Arc<Memory>,
    pub(super) policy: Option<CachePolicy>,
    pub(super) cache: Option<Cache>,
    sms: i32,
    pub(super) training: ForkMutex<Option<Arc<Training>>>,
}

/// The calling rank's part of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheState {
    pub counters: CacheCounters,
    pub capacity_rows: u64,
    /// Of a row with its padding.
    pub row_bytes: usize,
}

/// A tensor of an embedding: all that is allocated, and the part of it that callers see.
#[derive(Clone)]
pub struct Part {
    pub memory: Arc<Memory>,
    pub whole: Description,
    pub seen: Description,
}

impl Embedding {
    /// Collective over `comm` (and the cache's communicator). A failed `request` carries a failure of the caller's own checks
    /// (the rank still takes part).
    /// # Errors
    /// The same on all ranks, and nothing remains: INVALID_INPUT for descriptions that are no matrix or empty and for caches
    /// that do not fit the table; INVALID_VALUE for a negative round robin size; else as malloc.
    pub fn create(comm: &Arc<Communicator>, request: Result<Request>) -> Result<Embedding> {
        let request = request.and_then(|request| match &request.policy {
            Some(policy) => policy.check_fits(comm, request.memory_type).map(|()| request),
            None => Ok(request),
        });
        let policy = request.as_ref().ok().and_then(|request| request.policy.as_ref());
        let cache_ranks = cache::agree_on_ranks(comm, policy)?;
        let prepared = request.and_then(|request| {
            let geometry = Geometry::new(&Wish {
                description: &request.description,
                partition: request.partition.clone(),
                round_robin_size: request.round_robin_size,
                ranks: comm.size(),
                cache: request.policy.as_ref().map(|policy| (policy.ratio, cache_ranks)),
            })?;
            if let Some(policy) = &request.policy {
                cache::geometry(&geometry, policy.ratio, policy.comm.size())?;
            }
            Ok((request, geometry))
        });
        let asked = prepared
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|(request, geometry)| {
                let policy = request.policy.as_ref();
                let terms = vec![
                    Term::new("sizes[0]", geometry.logical_rows),
                    Term::new("sizes[1]", geometry.cols),
                    Term::new("dtype", geometry.dtype),
                    Term::new("round_robin_size", request.round_robin_size),
                    policy.map_or_else(|| Term::new("cache_policy", "none"), CachePolicy::term),
                ];
                let size = shape::allocation(&geometry.allocated())?;
                Ok(MallocRequest {
                    total_bytes: size.total_bytes,
                    memory_type: request.memory_type,
                    location: request.location,
                    granule_bytes: size.granule_bytes,
                    rank_granules: geometry.partition.clone(),
                    rmm_enabled: request.rmm_enabled,
                    freed_alone: true,
                    described_by: terms,
                })
            });
        let table = Memory::malloc(comm, asked)?;
        let (request, geometry) = prepared?;
        let cache = match &request.policy {
            Some(policy) => match Embedding::make_cache(comm, policy, &geometry, &table) {
                Ok(cache) => Some(cache),
                Err(error) => {
                    let _ = table.free_alone();
                    return Err(error);
                }
            },
            None => None,
        };
        Ok(Embedding {
            comm: comm.clone(),
            geometry,
            table,
            policy: request.policy,
            cache,
            sms: usable_sms(request.sms),
            training: ForkMutex::new(None),
        })
    }

    /// Collective over `comm` and the policy's communicator; ranks of other such communicators make theirs at the same time, and
    /// all succeed or all fail.
    fn make_cache(
        comm: &Arc<Communicator>,
        policy: &CachePolicy,
        geometry: &Geometry,
        table: &Arc<Memory>,
    ) -> Result<Cache> {
        let made = cache::create(comm, policy, geometry, table);
        let cleared = made.as_ref().map_err(Error::clone).and_then(cache::clear);
        let outcome = comm
            .enter("wholememory_create_embedding")
            .and_then(|session| agree(&session, &[], cleared));
        match (outcome, made) {
            (Ok(()), made) => made,
            (Err(error), made) => {
                if let Ok(cache) = made {
                    let _ = cache.release();
                }
                Err(error)
            }
        }
    }

    /// The table's rows and the rows of it that callers see.
    pub fn table(&self) -> Part {
        Part {
            memory: self.table.clone(),
            whole: self.geometry.allocated(),
            seen: self.geometry.user(),
        }
    }

    /// How it is cached.
    pub fn policy(&self) -> Option<&CachePolicy> {
        self.policy.as_ref()
    }

    pub fn communicator(&self) -> &Arc<Communicator> {
        &self.comm
    }

    /// The table as operations see it.
    pub(super) fn operand(&self) -> Operand {
        Operand {
            description: self.geometry.named(),
            storage: Storage::Memory(self.table.clone()),
        }
    }

    /// Every lock of the embedding, its cache and their memory, held.
    #[cfg(test)]
    pub fn hold_locks(&self) -> impl Sized + '_ {
        let cache = self.cache.as_ref().map(Cache::hold_locks);
        (self.training.lock(), self.table.hold_locks(), cache)
    }

    /// `output[i] = table[indices[i]]`; as [`ops::gather`] without a cache and [`cached::gather`] with one, also in what is collective.
    /// # Errors
    /// Those of these.
    pub fn gather(
        &self,
        indices: &Operand,
        output: &Operand,
        adjust_cache: bool,
        buffers: &dyn Buffers,
        stream: Stream,
    ) -> Result<()> {
        let (table, dealt) = (self.operand(), self.geometry.round_robin.as_ref());
        if let Some(cache) = &self.cache {
            let named = Named { table: &table, dealt };
            return cached::gather(cache, named, indices, output, adjust_cache, buffers, stream);
        }
        ops::gather_dealt(&table, dealt, indices, output, buffers, stream, self.sms)
    }

    /// Writes changed rows of the cache to the table, and empties it if asked to. Collective with a cache, else nothing. A rank whose own
    /// checks failed (`mine`) takes part and alone returns its error.
    /// # Errors
    /// Those of [`Cache::write_back`].
    pub fn write_back(&self, mine: Result<()>, then: AfterWriteBack, stream: Stream) -> Result<()> {
        let operation = match then {
            AfterWriteBack::Keep => "wholememory_embedding_writeback_cache",
            AfterWriteBack::Drop => "wholememory_embedding_drop_all_cache",
        };
        match &self.cache {
            Some(cache) => cache.write_back(mine, operation, then, stream),
            None => mine,
        }
    }

    /// What this rank's part of the cache holds and did.
    /// # Errors
    /// INVALID_INPUT without a cache and for dead embeddings; CUDA_ERROR.
    pub fn cache_state(&self) -> Result<CacheState> {
        match &self.cache {
            Some(cache) => Ok(CacheState {
                counters: cache.counters()?,
                capacity_rows: cache.geometry.lines(),
                row_bytes: cache.row_stride_bytes,
            }),
            None => Err(Error::new(Kind::InvalidInput, "the embedding has no cache")),
        }
    }

    /// Gives the memory of table, cache and states back. Local: what other ranks still use of it stays until they release
    /// it too, so ranks may destroy their embeddings in any order. Nothing to do for memory that went with its communicator.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR where the system refuses; the rest is released all the same.
    pub fn release(&self) -> Result<()> {
        // It stays: a rank that goes on with a destroyed embedding takes part in the steps of the others.
        let states = self.training.lock().map(|training| training.clone());
        let states =
            states.and_then(|training| training.map_or(Ok(()), |training| training.release(&self.comm)));
        let cache = self.cache.as_ref().map_or(Ok(()), Cache::release);
        self.table.free_alone().and(cache).and(states)
    }

    /// False once released, or gone with its communicator.
    pub fn is_live(&self) -> bool {
        self.table.is_live()
    }
}
