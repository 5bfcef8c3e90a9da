//! Tables that are read through a cache. A cache is *at home* where it is partitioned as the table, over the same ranks: each
//! rank caches rows it owns, and may change them. Else it is *apart*: a copy of rows for the ranks of another communicator.

mod apart;
mod gather;
mod served;
mod turns;

pub use gather::{Named, gather};
pub use turns::Turns;

use super::owners::{Delivery, Owners};
use super::serving::{not_recording, take_part};
use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::kinds::DType;
use crate::memory::{MappedBases, Memory, Route};
use crate::platform::caching::{
    AGE_ACCESSES_PER_LINE, Adjustment, AfterWriteBack, CacheCounters, CacheView, Geometry, StateLines,
};
use crate::platform::{Bootstrap, Launch, Stream};
use crate::span::Address;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What a cache consists of.
pub struct Cache {
    pub comm: Arc<Communicator>,
    pub geometry: Geometry,
    pub dtype: DType,
    pub cols: usize,
    pub row_stride_bytes: usize,
    /// The table; partitioned as the cache if that is at home.
    pub table: Arc<Memory>,
    pub at_home: bool,
    pub tags: Arc<Memory>,
    pub lines: Arc<Memory>,
    pub control: Arc<Memory>,
    pub states: OnceLock<CachedStates>,
    pub turns: Turns,
    pub clock: Mutex<Clock>,
}

/// Lines for the optimizer states of cached rows, and the table of these states.
pub struct CachedStates {
    pub lines: Arc<Memory>,
    pub table: Arc<Memory>,
    pub stride_bytes: usize,
}

/// Counts adjustments and what they looked at.
#[derive(Default)]
pub struct Clock {
    epoch: u32,
    accesses: u64,
}

impl Clock {
    fn tick(&mut self, accesses: u64, lines: u64) -> Adjustment {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.accesses = self.accesses.saturating_add(accesses);
        let age = lines * AGE_ACCESSES_PER_LINE;
        let ages = self.accesses >= age;
        if ages {
            self.accesses = 0;
        }
        Adjustment {
            epoch: self.epoch,
            ages,
        }
    }
}

/// Keeps a cache and its table mapped while an operation runs, and says where they are.
pub struct Leases {
    tags: MappedBases,
    lines: MappedBases,
    control: MappedBases,
    pub(super) table: MappedBases,
    states: Option<(MappedBases, MappedBases)>,
}

fn own(bases: &[Address], rank: usize) -> Address {
    bases.get(rank).copied().unwrap_or(Address::NULL)
}

impl Cache {
    /// # Errors
    /// INVALID_INPUT if any of it was freed.
    pub fn leases(&self) -> Result<Leases> {
        let states = self.states.get().map(|states| {
            let lines = states.lines.mapped_bases()?;
            Ok((lines, states.table.mapped_bases()?))
        });
        Ok(Leases {
            tags: self.tags.mapped_bases()?,
            lines: self.lines.mapped_bases()?,
            control: self.control.mapped_bases()?,
            table: self.table.mapped_bases()?,
            states: states.transpose()?,
        })
    }

    pub fn view<'a>(&self, leases: &'a Leases) -> CacheView<'a> {
        let rank = self.comm.rank();
        let home = |bases: &MappedBases| match self.at_home {
            true => own(bases, rank),
            false => Address::NULL,
        };
        CacheView {
            geometry: self.geometry,
            rank,
            tags: &leases.tags,
            lines: &leases.lines,
            row_stride_bytes: self.row_stride_bytes,
            control: own(&leases.control, rank),
            home: home(&leases.table),
            states: match (&leases.states, self.states.get()) {
                (Some((lines, table)), Some(states)) => Some(StateLines {
                    lines: own(lines, rank),
                    home: home(table),
                    stride_bytes: states.stride_bytes,
                }),
                _ => None,
            },
        }
    }

    /// True if the kernels of this rank may read the tags and lines of all ranks, and the rows of the table where that is at home.
    fn is_mapped(&self) -> bool {
        let exchanges = |memory: &Memory| matches!(memory.route(), Route::Exchange | Route::Hierarchy);
        self.comm.size() == 1 || !(exchanges(&self.lines) || self.at_home && exchanges(&self.table))
    }

    /// True if ranks must meet before they read each other's lines, since they do so in turn only.
    fn is_distributed(&self) -> bool {
        self.comm.size() > 1 && self.lines.route() != Route::Mapped
    }

    /// The first row of every rank and the end of all.
    fn start_rows(&self) -> Vec<u64> {
        let Geometry {
            ranks,
            rows,
            rank_rows,
            ..
        } = self.geometry;
        let start = |rank: u64| rank.saturating_mul(rank_rows).min(rows);
        (0..ranks as u64).map(start).chain([rows]).collect()
    }

    fn owners<'a>(&self, start_rows: &'a [u64], serves: bool) -> Owners<'a> {
        Owners {
            start_rows,
            identity: self.lines.number(),
            serves,
        }
    }

    fn tick(&self, accesses: usize) -> Adjustment {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.tick(accesses as u64, self.geometry.lines())
    }

    /// Counts the accesses of delivered ids, which this rank is responsible for, and brings rows in that deserve it. The delivery has what
    /// the platform needs to work in. In a change's turn.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    pub(super) fn adjust_to(
        &self,
        view: &CacheView<'_>,
        delivery: &Delivery<'_>,
        stream: Stream,
    ) -> Result<()> {
        let ids = &delivery.parcel.ids;
        if ids.count == 0 {
            return Ok(());
        }
        let launch = Launch {
            stream,
            workspace: delivery.workspace,
            ..Launch::default()
        };
        let kernels = self.comm.platform().caching();
        kernels.adjust(view, ids, self.tick(ids.count), launch)
    }

    /// Every lock of the cache and its memory, held.
    #[cfg(test)]
    pub fn hold_locks(&self) -> impl Sized + '_ {
        let memories = [&self.tags, &self.lines, &self.control].map(|memory| memory.hold_locks());
        (self.clock.lock(), self.turns.hold_locks(), memories)
    }

    /// Writes changed lines (and states) of all ranks to the table, and empties them if asked to. When it returns, every rank sees them
    /// there. Collective; a rank whose own checks failed (`mine`) takes part and alone returns its error.
    /// # Errors
    /// CUDA_ERROR on the rank it happens to; COMMUNICATION_ERROR.
    pub fn write_back(
        &self,
        mine: Result<()>,
        operation: &'static str,
        then: AfterWriteBack,
        stream: Stream,
    ) -> Result<()> {
        let platform = self.comm.platform();
        let refusal =
            format!("{operation} waits for its work, which a recording stream (graph capture) cannot do");
        let own = not_recording(platform, stream, &refusal);
        take_part(platform, stream, own, &mut |own, stream| {
            let checked = own.and(mine.clone()).and_then(|()| platform.check_stream(stream));
            self.write_back_unless(checked, operation, then, stream)
        })
    }

    fn write_back_unless(
        &self,
        mine: Result<()>,
        operation: &'static str,
        then: AfterWriteBack,
        stream: Stream,
    ) -> Result<()> {
        let platform = self.comm.platform();
        let session = self.comm.enter(operation)?;
        let leases = mine.and_then(|()| self.leases());
        self.turns.change(platform, stream, |ordered| {
            let before = platform.synchronize(stream);
            session.barrier()?;
            let written = leases.and_then(|leases| {
                ordered?;
                before?;
                let launch = Launch {
                    stream,
                    ..Launch::default()
                };
                platform.caching().write_back(&self.view(&leases), then, launch)
            });
            let after = platform.synchronize(stream);
            session.barrier()?;
            written.and(after)
        })
    }

    /// What this rank's part did since it was made; waits for what it was given so far.
    /// # Errors
    /// INVALID_INPUT if it was freed, CUDA_ERROR.
    pub fn counters(&self) -> Result<CacheCounters> {
        let (platform, stream) = (self.comm.platform(), Stream::default());
        let leases = self.leases()?;
        self.turns.change(platform, stream, |ordered| {
            ordered?;
            platform.caching().counters(&self.view(&leases), stream)
        })
    }

    /// Gives the memory of the cache back, not that of its table. Local; nothing to do where it went with its communicator.
    /// # Errors
    /// CUDA_ERROR, SYSTEM_ERROR; the rest is released all the same.
    pub fn release(&self) -> Result<()> {
        let states = self.states.get().map(|states| &states.lines);
        [&self.tags, &self.lines, &self.control]
            .into_iter()
            .chain(states)
            .map(|memory| memory.free_alone())
            .fold(Ok(()), Result::and)
    }
}

/// A failure that a rank keeps to itself while it takes part.
fn kept_apart<T>(outcome: Result<T>) -> (Option<T>, Result<()>) {
    match outcome {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err::<(), Error>(error)),
    }
}
