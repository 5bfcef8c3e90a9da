//! What a malloc asks for, checked, and the route its rows will take. Local: nothing here meets other ranks.

use super::partition::Partition;
use crate::comm::{Communicator, RouteChoice};
use crate::error::{Error, Kind, Result, ensure};
use crate::kinds::{Location, MemoryType};
use crate::platform::Term;

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
    /// The process-wide flag of `wholememory_set_rmm_enabled`.
    pub rmm_enabled: bool,
    /// Every rank gives its side back by itself ([`Memory::free_alone`](super::Memory::free_alone)), never together.
    pub freed_alone: bool,
    /// Further values that must be the same on all ranks (a tensor's description); compared first.
    pub described_by: Vec<Term>,
}

impl MallocRequest {
    /// What must be the same on all ranks. The counts of a custom partition are one term each: one long term would be cut.
    pub(super) fn terms(&self) -> Vec<Term> {
        let named = |raw: u32, name: Option<String>| name.unwrap_or_else(|| raw.to_string());
        let memory_type = MemoryType::from_raw(self.memory_type).map(|t| t.to_string());
        let location = Location::from_raw(self.location).map(|l| l.to_string());
        let partition = match &self.rank_granules {
            None => "NULL".into(),
            Some(counts) => format!("{} counts", counts.len()),
        };
        let mut terms = self.described_by.clone();
        terms.extend([
            Term::new("total_size", self.total_bytes),
            Term::new("memory_type", named(self.memory_type, memory_type)),
            Term::new("memory_location", named(self.location, location)),
            Term::new("data_granularity", self.granule_bytes),
            Term::new("the RMM flag", self.rmm_enabled),
            Term::new("rank_entry_partition", partition),
        ]);
        for (rank, count) in self.rank_granules.iter().flatten().enumerate() {
            terms.push(Term::new("rank_entry_partition", format!("[{rank}] = {count}")));
        }
        terms
    }
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

impl Route {
    /// What ranks that meet by another one are told.
    pub fn words(self) -> &'static str {
        match self {
            Route::Mapped => "nobody waits",
            Route::Direct => "direct route",
            Route::Exchange => "exchange route",
            Route::Hierarchy => "hierarchy route",
        }
    }

    /// A forced `direct` holds where the ranks can map each other (for HIERARCHY: inside one node); elsewhere the exchanging
    /// route is taken, so that malloc refuses nothing that the capability answer promised.
    pub(super) fn choose(
        memory_type: MemoryType,
        choice: RouteChoice,
        mutually_mapped: bool,
        one_node: bool,
    ) -> Route {
        let direct = mutually_mapped && choice != RouteChoice::Exchange;
        match memory_type {
            MemoryType::Continuous | MemoryType::Chunked => Route::Mapped,
            MemoryType::Distributed if direct => Route::Direct,
            MemoryType::Distributed => Route::Exchange,
            MemoryType::Hierarchy if direct && one_node => Route::Direct,
            MemoryType::Hierarchy => Route::Hierarchy,
        }
    }
}

/// A request that this rank can fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) memory_type: MemoryType,
    pub(super) location: Location,
    pub(super) partition: Partition,
}

impl Plan {
    /// The checks that need no communicator, in the order of the contract.
    /// # Errors
    /// INVALID_VALUE.
    pub(super) fn new(request: &MallocRequest, world_ranks: usize) -> Result<Plan> {
        let partition = match &request.rank_granules {
            None => Partition::equal(request.total_bytes, request.granule_bytes, world_ranks)?,
            Some(counts) => {
                ensure!(
                    counts.len() == world_ranks,
                    InvalidValue,
                    "rank_entry_partition has {} counts for {world_ranks} ranks",
                    counts.len()
                );
                Partition::custom(request.total_bytes, request.granule_bytes, counts)?
            }
        };
        let unknown = |what: &str, raw: u32, known: &str| {
            Error::new(
                Kind::InvalidValue,
                format!("{what} is {}, known are {known}", raw as i32),
            )
        };
        let memory_type = MemoryType::from_raw(request.memory_type).ok_or_else(|| {
            unknown(
                "memory_type",
                request.memory_type,
                "1 CONTINUOUS, 2 CHUNKED, 3 DISTRIBUTED, 4 HIERARCHY",
            )
        })?;
        let location = Location::from_raw(request.location)
            .ok_or_else(|| unknown("memory_location", request.location, "1 DEVICE, 2 HOST"))?;
        Ok(Plan {
            memory_type,
            location,
            partition,
        })
    }

    /// [`Plan::new`], and what `wholememory_communicator_support_type_location` answers for the pair.
    pub(super) fn supported(request: &MallocRequest, comm: &Communicator) -> Result<Plan> {
        let plan = Plan::new(request, comm.size())?;
        comm.supports(plan.memory_type, plan.location)?;
        Ok(plan)
    }

    /// One range over all partitions; else a range a rank.
    pub(super) fn contiguous(&self) -> bool {
        match self.memory_type {
            MemoryType::Continuous => true,
            MemoryType::Chunked => self.location == Location::Host,
            MemoryType::Distributed | MemoryType::Hierarchy => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> MallocRequest {
        MallocRequest {
            total_bytes: 64,
            memory_type: 1,
            location: 2,
            granule_bytes: 8,
            rank_granules: None,
            rmm_enabled: false,
            freed_alone: false,
            described_by: Vec::new(),
        }
    }

    #[test]
    fn bad_requests_are_invalid_values_that_name_the_value() {
        let cases: [(MallocRequest, &str); 8] = [
            (
                MallocRequest {
                    granule_bytes: 0,
                    ..request()
                },
                "data_granularity is 0",
            ),
            (
                MallocRequest {
                    total_bytes: 63,
                    ..request()
                },
                "63",
            ),
            (
                MallocRequest {
                    memory_type: 0,
                    ..request()
                },
                "memory_type is 0",
            ),
            (
                MallocRequest {
                    memory_type: 99,
                    ..request()
                },
                "memory_type is 99",
            ),
            (
                MallocRequest {
                    location: 0,
                    ..request()
                },
                "memory_location is 0",
            ),
            (
                MallocRequest {
                    location: u32::MAX,
                    ..request()
                },
                "memory_location is -1",
            ),
            (
                MallocRequest {
                    rank_granules: Some(vec![8]),
                    ..request()
                },
                "1 counts for 2",
            ),
            (
                MallocRequest {
                    rank_granules: Some(vec![8, 0]),
                    ..request()
                },
                "[1] is 0",
            ),
        ];
        for (bad, words) in cases {
            let error = Plan::new(&bad, 2).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidValue);
            assert!(error.what.contains(words), "{error}");
        }
        assert_eq!(Plan::new(&request(), 2).unwrap().partition.stride_bytes, 32);
    }

    #[test]
    fn terms_differ_wherever_a_request_does() {
        let custom = |counts: &[usize]| MallocRequest {
            rank_granules: Some(counts.to_vec()),
            ..request()
        };
        let others = [
            MallocRequest {
                total_bytes: 72,
                ..request()
            },
            MallocRequest {
                memory_type: 2,
                ..request()
            },
            MallocRequest {
                location: 1,
                ..request()
            },
            MallocRequest {
                granule_bytes: 4,
                ..request()
            },
            MallocRequest {
                rmm_enabled: true,
                ..request()
            },
            custom(&[4, 4]),
            custom(&[5, 3]),
        ];
        for (i, a) in others.iter().enumerate() {
            assert_ne!(a.terms(), request().terms());
            for b in &others[..i] {
                assert_ne!(a.terms(), b.terms());
            }
        }
        let words: Vec<String> = others[1].terms().into_iter().map(|t| t.value).collect();
        assert!(words.contains(&"CHUNKED".to_string()));
    }

    #[test]
    fn routes() {
        use MemoryType::*;
        use RouteChoice::*;
        let table = [
            (Continuous, Exchange, true, true, Route::Mapped),
            (Chunked, Auto, true, true, Route::Mapped),
            (Distributed, Auto, true, true, Route::Direct),
            (Distributed, Auto, true, false, Route::Direct),
            (Distributed, Direct, true, true, Route::Direct),
            (Distributed, Exchange, true, true, Route::Exchange),
            (Distributed, Auto, false, false, Route::Exchange),
            (Distributed, Direct, false, false, Route::Exchange),
            (Hierarchy, Auto, true, true, Route::Direct),
            (Hierarchy, Direct, true, true, Route::Direct),
            (Hierarchy, Exchange, true, true, Route::Hierarchy),
            (Hierarchy, Auto, true, false, Route::Hierarchy),
            (Hierarchy, Direct, true, false, Route::Hierarchy),
        ];
        for (memory_type, choice, mapped, one_node, route) in table {
            assert_eq!(
                Route::choose(memory_type, choice, mapped, one_node),
                route,
                "{memory_type} {choice:?} mapped {mapped} one node {one_node}"
            );
        }
    }

    #[test]
    fn one_range_for_continuous_and_shared_host_chunks() {
        let flat = |memory_type, location| {
            let asked = MallocRequest {
                memory_type,
                location,
                ..request()
            };
            Plan::new(&asked, 2).unwrap().contiguous()
        };
        assert!(flat(1, 1) && flat(1, 2) && flat(2, 2));
        assert!(!flat(2, 1) && !flat(3, 1) && !flat(3, 2) && !flat(4, 1) && !flat(4, 2));
    }
}
