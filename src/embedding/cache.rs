//! The cache of an embedding: which policies fit which tables, and what such a cache takes.

use super::geometry::{Geometry, covered_rows};
use super::policy::{Access, CachePolicy};
use crate::comm::Communicator;
use crate::error::{Result, ensure, fail};
use crate::kinds::{Location, MemoryType};
use crate::memory::{MallocRequest, Memory};
use crate::ops::cached::{Cache, CachedStates};
use crate::platform::caching::{self, SET_LINES};
use crate::platform::{Bootstrap, Platform, Stream, Term};
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
        let named = MemoryType::name_of;
        ensure!(
            memory_type != hierarchy,
            InvalidInput,
            "an embedding of HIERARCHY memory cannot have a cache"
        );
        if self.is_at_home(comm) {
            ensure!(
                self.location() == Some(Location::Device),
                InvalidInput,
                "a cache on the embedding's own communicator must be in DEVICE memory (1), its memory_location is {} (HOST is 2)",
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

/// What a rank says of its policy before anything is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    at_home: bool,
    /// The name of the cache's communicator, and its ranks.
    comm: u64,
    ranks: u64,
}

const CHOICE_BYTES: usize = 17;

impl Choice {
    fn encode(&self) -> Vec<u8> {
        let words = [self.comm, self.ranks].into_iter().flat_map(u64::to_le_bytes);
        std::iter::once(u8::from(self.at_home)).chain(words).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Choice> {
        let bytes: &[u8; CHOICE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|raw| u64::from_le_bytes(*raw));
        Some(Choice {
            at_home: bytes[0] != 0,
            comm: word(1)?,
            ranks: word(9)?,
        })
    }
}

/// Whether the policies of all ranks go together: all at home, or each cache's communicator whole among the ranks of the table. Returns
/// the most ranks of one of them. Ranks without a policy, and those whose own checks failed, are told of by the making of the table.
/// # Errors
/// The same on all ranks: INVALID_VALUE if some caches are at home and some are not, INVALID_INPUT for communicators with other ranks.
fn check_together(choices: &[Option<Choice>]) -> Result<u64> {
    let Some(choices) = choices.iter().copied().collect::<Option<Vec<Choice>>>() else {
        return Ok(1);
    };
    let place = |choice: &Choice| match choice.at_home {
        true => "the embedding's",
        false => "another one",
    };
    for (rank, choice) in choices.iter().enumerate() {
        ensure!(
            choice.at_home == choices[0].at_home,
            InvalidValue,
            "the communicator of cache_policy differs between ranks: rank 0 passed {}, rank {rank} passed {}",
            place(&choices[0]),
            place(choice)
        );
    }
    for (rank, choice) in choices.iter().enumerate() {
        let found = choices.iter().filter(|other| other.comm == choice.comm).count();
        ensure!(
            found as u64 == choice.ranks,
            InvalidInput,
            "the communicator of the cache_policy of rank {rank} has {} ranks, {found} of which make this embedding with it: it must \
             consist of ranks of the embedding's communicator, and all of them must pass it",
            choice.ranks
        );
    }
    Ok(choices.iter().map(|choice| choice.ranks).max().unwrap_or(1))
}

/// [`check_together`] over the ranks of the table; `mine` is `None` for a rank without a policy or with a failure of its own. Collective
/// over `comm`, and before anything on the caches' communicators.
pub(super) fn agree_on_ranks(comm: &Arc<Communicator>, mine: Option<&CachePolicy>) -> Result<usize> {
    let session = comm.enter("wholememory_create_embedding")?;
    let choice = mine.map(|policy| Choice {
        at_home: policy.is_at_home(comm),
        comm: policy.comm.name(),
        ranks: policy.comm.size() as u64,
    });
    let told = session.all_gather(&choice.map_or_else(Vec::new, |choice| choice.encode()))?;
    let choices: Vec<Option<Choice>> = told.iter().map(|bytes| Choice::decode(bytes)).collect();
    Ok(check_together(&choices)? as usize)
}

/// How a cache of `ranks` spreads the rows of a table.
/// # Errors
/// NOT_SUPPORTED for more rows a rank than tags can tell.
pub(super) fn geometry(rows: &Geometry, ratio: f32, ranks: usize) -> Result<caching::Geometry> {
    let coverage_rows = covered_rows(ratio);
    let geometry = caching::Geometry {
        ranks,
        rows: rows.named_rows(),
        // At home that is what a rank has of the table.
        rank_rows: rows
            .named_rows()
            .div_ceil(ranks as u64)
            .next_multiple_of(coverage_rows),
        coverage_rows,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn home(ranks: u64) -> Option<Choice> {
        Some(Choice {
            at_home: true,
            comm: 1,
            ranks,
        })
    }

    fn apart(comm: u64, ranks: u64) -> Option<Choice> {
        Some(Choice {
            at_home: false,
            comm,
            ranks,
        })
    }

    #[test]
    fn choices_survive_the_wire() {
        for choice in [home(4), apart(u64::MAX, 1 << 40)].into_iter().flatten() {
            assert_eq!(Choice::decode(&choice.encode()), Some(choice));
        }
        assert_eq!(Choice::decode(&[]), None);
    }

    #[test]
    fn caches_consist_of_ranks_of_the_table() {
        let most = |choices: &[Option<Choice>]| check_together(choices).unwrap();
        assert_eq!(most(&[home(2), home(2)]), 2);
        assert_eq!(most(&[apart(5, 3), apart(5, 3), apart(5, 3), apart(6, 1)]), 3);
        assert_eq!(most(&[apart(5, 2), apart(6, 2), apart(6, 2), apart(5, 2)]), 2);
        // Told of elsewhere.
        assert_eq!(most(&[apart(5, 2), None]), 1);
        let refused = |choices: &[Option<Choice>]| check_together(choices).unwrap_err();
        assert_eq!(refused(&[home(2), apart(5, 2)]).kind, Kind::InvalidValue);
        assert_eq!(refused(&[apart(5, 2), home(2)]).kind, Kind::InvalidValue);
        // A communicator with ranks of another table, and ranks that mean two of them.
        for choices in [
            vec![apart(5, 4), apart(5, 4)],
            vec![apart(5, 2), apart(6, 2)],
            vec![apart(5, 4), apart(5, 4), apart(6, 4), apart(6, 4)],
        ] {
            let error = refused(&choices);
            assert_eq!(error.kind, Kind::InvalidInput);
            assert!(
                error.what.contains("ranks of the embedding's communicator"),
                "{error}"
            );
        }
    }
}
