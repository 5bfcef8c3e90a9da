//! The object: a table of rows, perhaps with a cache, perhaps with an optimizer and its states.

use super::geometry::{Geometry, Wish, usable_sms};
use super::policy::CachePolicy;
use super::training::Training;
use crate::comm::Communicator;
use crate::error::{Result, fail};
use crate::memory::{MallocRequest, Memory};
use crate::ops::{self, Buffers};
use crate::platform::{Stream, Term};
use crate::tensor::{Description, Operand, Storage, shape};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    policy: Option<CachePolicy>,
    sms: i32,
    pub(super) training: Mutex<Option<Arc<Training>>>,
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
        let prepared = request.and_then(|request| {
            if request.policy.is_some() {
                fail!(NotImplemented, "a cached embedding is not in this version");
            }
            let geometry = Geometry::new(&Wish {
                description: &request.description,
                partition: request.partition.clone(),
                round_robin_size: request.round_robin_size,
                ranks: comm.size(),
                cache: None,
            })?;
            Ok((request, geometry))
        });
        let asked = prepared
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|(request, geometry)| {
                let mut terms = vec![
                    Term::new("round_robin_size", request.round_robin_size),
                    Term::new("sizes[0]", geometry.logical_rows),
                ];
                terms.extend(shape::terms(&geometry.allocated()));
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
        Ok(Embedding {
            comm: comm.clone(),
            geometry,
            table,
            policy: request.policy,
            sms: usable_sms(request.sms),
            training: Mutex::new(None),
        })
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

    pub(super) fn trained(&self) -> MutexGuard<'_, Option<Arc<Training>>> {
        self.training.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `output[i] = table[indices[i]]`; as [`ops::gather`], also in what is collective.
    /// # Errors
    /// As [`ops::gather`].
    pub fn gather(
        &self,
        indices: &Operand,
        output: &Operand,
        adjust_cache: bool,
        buffers: &dyn Buffers,
        stream: Stream,
    ) -> Result<()> {
        let _ = adjust_cache;
        ops::gather_dealt(
            &self.operand(),
            self.geometry.round_robin.as_ref(),
            indices,
            output,
            buffers,
            stream,
            self.sms,
        )
    }

    /// Gives the memory of table, cache and states back. Local: what other ranks still use of it stays until they release
    /// it too, so ranks may destroy their embeddings in any order. Nothing to do for memory that went with its communicator.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR where the system refuses; the rest is released all the same.
    pub fn release(&self) -> Result<()> {
        // It stays: a rank that goes on with a destroyed embedding takes part in the steps of the others.
        let states = self.trained().clone();
        let states = states.map_or(Ok(()), |training| training.release());
        self.table.free_alone().and(states)
    }

    /// False once released, or gone with its communicator.
    pub fn is_live(&self) -> bool {
        self.table.is_live()
    }
}
