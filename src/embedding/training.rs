//! An embedding's optimizer and what it remembers of every row.

use super::cache;
use super::geometry::Geometry;
use super::optimizer::{BETA_POWERS, Optimizer};
use super::policy::Access;
use super::table::{Embedding, Part};
use crate::comm::Communicator;
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::{DType, Location, MemoryType};
use crate::memory::{MallocRequest, Memory};
use crate::platform::{Stream, Term, agree};
use crate::tensor::{Description, shape};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Columns of the state that keeps beta1^t and beta2^t of every row.
const POWERS: usize = 2;

pub struct Training {
    pub optimizer: Arc<Optimizer>,
    /// FLOAT, as many rows as the table has in memory: one block of columns a state of the size of a row.
    pub elements: Option<Arc<Memory>>,
    /// FLOAT [rows in memory, 2].
    pub powers: Option<Arc<Memory>>,
    /// Counted among the learners of its communicator.
    learns: AtomicBool,
}

/// Elements from one row of the element states to the next, and from one state to the next.
pub fn state_strides(geometry: &Geometry, states: usize) -> (usize, usize) {
    (states * geometry.stride, geometry.stride)
}

impl Embedding {
    /// Collective: gives the embedding its optimizer and makes its states; element states begin with 0, the powers of the betas with
    /// 1. Without an optimizer nothing changes. A failed `mine` carries a failure of the caller's own checks.
    /// # Errors
    /// The same on all ranks: NOT_SUPPORTED if it has one already; NOT_IMPLEMENTED for tables that are not FLOAT, HALF or BF16;
    /// INVALID_INPUT for caches that are not READWRITE on the embedding's communicator, and for dead embeddings;
    /// INVALID_VALUE if ranks pass different optimizers; else as malloc.
    pub fn set_optimizer(&self, mine: Result<Option<Arc<Optimizer>>>) -> Result<()> {
        let mut trained = self.training.lock()?;
        let session = self.comm.enter("wholememory_embedding_set_optimizer")?;
        let checked = mine.and_then(|optimizer| {
            if optimizer.is_some() {
                self.check_trainable(trained.is_some())?;
            }
            Ok(optimizer)
        });
        let named = match &checked {
            Ok(Some(optimizer)) => format!("{:?}", optimizer.kind()),
            _ => "none".into(),
        };
        let terms = [
            Term::new("the embedding", self.table.number()),
            Term::new("the optimizer", named),
        ];
        let Some(optimizer) = agree(&session, &terms, checked)? else {
            return Ok(());
        };
        if self.comm.size() > 1 {
            agree(&session, &[], self.comm.transport(&session).map(drop))?;
        }
        drop(session);
        let training = self.make_states(optimizer)?;
        let filled = self.fill_states(&training);
        let session = self.comm.enter("wholememory_embedding_set_optimizer");
        if let Err(error) = session.and_then(|session| agree(&session, &[], filled)) {
            let _ = training.release(&self.comm);
            return Err(error);
        }
        if let (Some(cache), Some(policy), Some(elements)) = (&self.cache, &self.policy, &training.elements)
            && let Err(error) = cache::add_states(cache, policy, elements, self.state_row_bytes(&training))
        {
            let _ = training.release(&self.comm);
            return Err(error);
        }
        training.learns.store(true, Ordering::Relaxed);
        self.comm.learner_joined();
        *trained = Some(Arc::new(training));
        Ok(())
    }

    fn state_row_bytes(&self, training: &Training) -> usize {
        let states = training.optimizer.kind().element_states();
        state_strides(&self.geometry, states).0 * DType::Float.size_bytes()
    }

    fn check_trainable(&self, has_optimizer: bool) -> Result<()> {
        ensure!(
            self.is_live(),
            InvalidInput,
            "the embedding was destroyed, or went with its communicator"
        );
        ensure!(
            !has_optimizer,
            NotSupported,
            "the embedding has an optimizer already, which cannot be changed"
        );
        if let (Some(cache), Some(policy)) = (&self.cache, &self.policy) {
            ensure!(
                cache.at_home && policy.access() == Some(Access::ReadWrite),
                InvalidInput,
                "the embedding's cache must be READWRITE (2) to be trained, its access_type is {}",
                policy.access as i32
            );
        }
        ensure!(
            matches!(self.geometry.dtype, DType::Float | DType::Half | DType::Bf16),
            NotImplemented,
            "tables of {} cannot be trained, only FLOAT, HALF and BF16",
            self.geometry.dtype
        );
        Ok(())
    }

    fn make_states(&self, optimizer: Arc<Optimizer>) -> Result<Training> {
        let kind = optimizer.kind();
        let elements = match kind.element_states() {
            0 => None,
            states => {
                let (row, _) = state_strides(&self.geometry, states);
                Some(self.make_state(row, self.table.memory_type(), self.table.location())?)
            }
        };
        let powers = kind
            .has_beta_powers()
            .then(|| self.make_state(POWERS, MemoryType::Distributed, Location::Device));
        match powers.transpose() {
            Ok(powers) => Ok(Training {
                optimizer,
                elements,
                powers,
                learns: AtomicBool::new(false),
            }),
            Err(error) => {
                let _ = elements.map_or(Ok(()), |memory| memory.free_alone());
                Err(error)
            }
        }
    }

    /// FLOAT rows of `cols`, one for each row of the table in memory and where that row is.
    fn make_state(&self, cols: usize, memory_type: MemoryType, location: Location) -> Result<Arc<Memory>> {
        let description = Description::matrix(
            [self.geometry.allocated_rows as i64, cols as i64],
            cols as i64,
            0,
            DType::Float.raw(),
        );
        let request = shape::allocation(&description).map(|size| MallocRequest {
            total_bytes: size.total_bytes,
            memory_type: memory_type.raw(),
            location: location.raw(),
            granule_bytes: size.granule_bytes,
            rank_granules: self.geometry.partition.clone(),
            rmm_enabled: false,
            freed_alone: true,
            described_by: Vec::new(),
        });
        Memory::malloc(&self.comm, request)
    }

    fn fill_states(&self, training: &Training) -> Result<()> {
        let platform = self.comm.platform();
        for (memory, value) in [(&training.elements, 0.0), (&training.powers, 1.0)] {
            let Some(memory) = memory else { continue };
            // Keeps it mapped: the communicator may be destroyed meanwhile.
            let lease = memory.mapped_bases()?;
            let (rank, partition) = (self.comm.rank(), memory.partition());
            let count = partition.size_bytes(rank) / DType::Float.size_bytes();
            platform
                .learning()
                .fill(lease[rank], count, value, Stream::default())
                .and_then(|()| platform.synchronize(Stream::default()))?;
        }
        Ok(())
    }

    /// The names of the optimizer's states; `None` without an optimizer.
    /// # Errors
    /// COMMUNICATION_ERROR as [`ForkMutex::lock`](crate::platform::locks::ForkMutex::lock).
    pub fn state_names(&self) -> Result<Option<&'static [&'static CStr]>> {
        let training = self.training.lock()?;
        let named = training.as_ref();
        Ok(named.map(|training| training.optimizer.kind().state_names()))
    }

    /// The state `name`, its rows as those of the table.
    /// # Errors
    /// INVALID_INPUT without an optimizer and for names that are not among its states.
    pub fn state(&self, name: &str) -> Result<Part> {
        let training = self.training.lock()?.clone();
        let training = training.ok_or_else(|| {
            Error::new(
                Kind::InvalidInput,
                "the embedding has no optimizer, so it has no states",
            )
        })?;
        training.state(name, &self.geometry)
    }
}

/// Names as a sentence has them.
fn listed(names: &[&CStr]) -> String {
    match names {
        [] => "none".into(),
        names => {
            let words: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            words.join(", ")
        }
    }
}

impl Training {
    fn state(&self, name: &str, geometry: &Geometry) -> Result<Part> {
        let names = self.optimizer.kind().state_names();
        let place = names.iter().position(|own| own.to_bytes() == name.as_bytes());
        ensure!(
            place.is_some(),
            InvalidInput,
            "the optimizer of the embedding has no state \"{name}\"; it has {}",
            listed(names)
        );
        let float = DType::Float.raw();
        let [whole_rows, seen_rows] = [geometry.allocated_rows as i64, geometry.user_rows as i64];
        let is_powers = name.as_bytes() == BETA_POWERS.to_bytes();
        match (place, &self.elements, &self.powers) {
            (_, _, Some(powers)) if is_powers => Ok(Part {
                memory: powers.clone(),
                whole: Description::matrix([whole_rows, POWERS as i64], POWERS as i64, 0, float),
                seen: Description::matrix([seen_rows, POWERS as i64], POWERS as i64, 0, float),
            }),
            (Some(place), Some(elements), _) => {
                let (row, state) = state_strides(geometry, self.optimizer.kind().element_states());
                let offset = (place * state) as i64;
                Ok(Part {
                    memory: elements.clone(),
                    whole: Description::matrix([whole_rows, row as i64], row as i64, 0, float),
                    seen: Description::matrix([seen_rows, geometry.cols as i64], row as i64, offset, float),
                })
            }
            _ => Err(Error::new(
                Kind::Unknown,
                format!("the state \"{name}\" has no memory"),
            )),
        }
    }

    /// Gives the states' memory back, those of an embedding over `comm`. Local.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR; the rest is released all the same.
    pub fn release(&self, comm: &Communicator) -> Result<()> {
        let left = match self.learns.swap(false, Ordering::Relaxed) {
            true => comm.learner_left(),
            false => Ok(()),
        };
        let free = |memory: &Option<Arc<Memory>>| memory.as_ref().map_or(Ok(()), |m| m.free_alone());
        free(&self.elements).and(free(&self.powers)).and(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_words() {
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&[c"m", c"v"]), "m, v");
    }
}
