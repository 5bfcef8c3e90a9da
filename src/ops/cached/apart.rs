//! Gathers through a cache that is apart from its table: a copy of some of its rows, for the ranks of another communicator.

use super::gather::{CachedCall, NAME};
use super::{Leases, kept_apart};
use crate::comm::Session;
use crate::error::Result;
use crate::kinds::{AllocationType, DType};
use crate::memory::Route;
use crate::ops::Scratch;
use crate::ops::leg::{Arena, Field, bytes_of};
use crate::ops::meet::meet;
use crate::ops::owners::Delivery;
use crate::ops::plan::{Operation, Plan};
use crate::ops::route::Call;
use crate::platform::caching::{AfterWriteBack, Loads, Misses};
use crate::platform::meeting::Called;
use crate::platform::{Indices, Launch, Places, Rows, Table};
use crate::span::Address;
use crate::tensor::{Description, Operand, Storage};

impl CachedCall<'_> {
    /// Hits from the cache, misses from the table as from any other.
    pub(super) fn apart(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
        let cache = self.cache;
        // Whatever failed for the ranks of this cache, those of the table count on this one.
        let adjusted = match adjust {
            true => self.bring_in(leases, plan),
            false => Ok(()),
        };
        let table = &cache.table;
        let reads_alone = table.route() == Route::Mapped
            || table.route() == Route::Direct && table.communicator().size() == 1;
        if reads_alone {
            return adjusted.and_then(|()| self.read_mapped(leases, plan, !adjust));
        }
        // Who fails gets no rows.
        let listed = match (&adjusted, leases, plan) {
            (Ok(()), Some(leases), Some(plan)) => self.list_misses(leases, plan, !adjust).map(Some),
            _ => Ok(None),
        };
        let (missed, listed) = kept_apart(listed);
        let read = match &missed.flatten() {
            Some((list, _block)) => self.read_table(list, self.output),
            None => self.read_nothing(),
        };
        adjusted.and(listed).and(read)
    }

    /// Copies hits; the ids of misses, -1 in the place of hits.
    fn list_misses(
        &self,
        leases: &Leases,
        plan: &Plan,
        counts: bool,
    ) -> Result<(Operand, Box<dyn Scratch + '_>)> {
        let ids = plan.indices;
        let block = self
            .buffers
            .scratch(ids.count, ids.dtype, AllocationType::Device)?;
        let turns = &self.cache.turns;
        turns.read(self.platform, self.launch.stream, || {
            let misses = Misses::List(block.address());
            self.look_up(leases, ids, plan.rows, plan.cols, misses, counts)
        })?;
        Ok((list_of(block.address(), ids.count, ids.dtype), block))
    }

    /// A plain gather from the table, which all ranks of the table call where it is collective.
    fn read_table(&self, ids: &Operand, output: &Operand) -> Result<()> {
        Call {
            operation: Operation::Gather,
            name: NAME,
            table: self.named.table,
            dealt: None,
            indices: ids,
            rows: output,
            buffers: self.buffers,
            stream: self.launch.stream,
            sms: -1,
        }
        .run()
    }

    /// [`read_table`](CachedCall::read_table) for a rank that wants nothing from it.
    fn read_nothing(&self) -> Result<()> {
        let nothing = list_of(Address::NULL, 0, DType::Int64);
        self.read_table(&nothing, &self.rows_of(Address::NULL, 0))
    }

    /// `count` rows as lines have them.
    fn rows_of(&self, address: Address, count: usize) -> Operand {
        let cache = self.cache;
        let stride = cache.row_stride_bytes / cache.dtype.size_bytes();
        Operand {
            description: Description::matrix(
                [count as i64, cache.cols as i64],
                stride as i64,
                0,
                cache.dtype.raw(),
            ),
            storage: Storage::Pointer(address),
        }
    }

    /// Counts accesses at the ranks that cache their rows, and brings in from the table what deserves it. Takes part in the reading of
    /// the table exactly once, whatever fails.
    fn bring_in(&self, leases: Option<&Leases>, plan: Option<&Plan>) -> Result<()> {
        let (cache, stream) = (self.cache, self.launch.stream);
        let called = Called {
            operation: NAME,
            way: "adjusts a copy",
        };
        let session = match cache.comm.enter_as(called) {
            Ok(session) => session,
            Err(error) => return self.read_nothing().and(Err(error)),
        };
        cache.turns.change(self.platform, stream, |ordered| {
            let field = self.field(&session);
            let wanted = self.wanted(&field, &session, leases, plan, ordered);
            let agreed = wanted.is_ok();
            let (admitted, failure) = match wanted {
                Ok((admitted, failure)) => (admitted, failure),
                Err(error) => (None, Err(error)),
            };
            let filled = match (leases, &admitted) {
                (Some(leases), Some(admitted)) => {
                    let rows = list_of(admitted.loads.rows, admitted.count, DType::Int64);
                    let brought = self.rows_of(admitted.buffer, admitted.count);
                    let filled = self
                        .read_table(&rows, &brought)
                        .and_then(|()| self.fill(&field, leases, admitted));
                    // Lines that have their tags and not their rows must not be found.
                    filled.or_else(|error| self.empty(leases).and(Err(error)))
                }
                _ => self.read_nothing(),
            };
            // What all ranks fail with has changed nothing, on none of them.
            let met = if agreed { meet(&session, stream)? } else { Ok(()) };
            failure.and(filled).and(met)
        })
    }

    /// What the accesses of all ranks want in the own lines; and the own failure of a rank that goes on taking part.
    fn wanted<'s>(
        &self,
        field: &Field<'s>,
        session: &Session<'_>,
        leases: Option<&Leases>,
        plan: Option<&Plan>,
        ordered: Result<()>,
    ) -> Result<(Option<Admitted<'s>>, Result<()>)> {
        let (delivery, sent) = self.deliver(field, session, plan, leases)?;
        let met = meet(session, self.launch.stream)?;
        let admitted = ordered.and(met).and_then(|()| match (leases, &delivery) {
            (Some(leases), Some(delivery)) if delivery.parcel.ids.count > 0 => {
                self.admit(field, leases, delivery).map(Some)
            }
            _ => Ok(None),
        });
        let (admitted, failure) = kept_apart(admitted);
        Ok((admitted.flatten(), sent.and(failure)))
    }

    fn admit<'s>(&self, field: &Field<'s>, leases: &Leases, delivery: &Delivery<'_>) -> Result<Admitted<'s>> {
        let (cache, ids) = (self.cache, &delivery.parcel.ids);
        let words = bytes_of(ids.count as u64, DType::Int64.size_bytes());
        let (scratch, [rows, lines, buffer]) =
            field.arena([words, words, bytes_of(ids.count as u64, cache.row_stride_bytes)])?;
        let loads = Loads { rows, lines };
        let launch = Launch {
            workspace: delivery.workspace,
            ..self.launch
        };
        let kernels = self.platform.caching();
        kernels.admit(&cache.view(leases), ids, cache.tick(ids.count), loads, launch)?;
        Ok(Admitted {
            loads,
            buffer,
            count: ids.count,
            _scratch: scratch,
        })
    }

    fn empty(&self, leases: &Leases) -> Result<()> {
        let view = self.cache.view(leases);
        self.platform
            .caching()
            .write_back(&view, AfterWriteBack::Drop, self.launch)
    }

    /// Moves what was read into its lines.
    fn fill(&self, field: &Field<'_>, leases: &Leases, admitted: &Admitted<'_>) -> Result<()> {
        let cache = self.cache;
        let lines = Table {
            places: Places::Flat(cache.view(leases).lines[cache.comm.rank()]),
            offset_bytes: 0,
            row_stride_bytes: cache.row_stride_bytes,
            rows: cache.geometry.lines(),
            cols: cache.cols,
            dtype: cache.dtype,
        };
        let brought = Rows {
            address: admitted.buffer,
            row_stride_bytes: cache.row_stride_bytes,
            dtype: cache.dtype,
        };
        let slots = Indices {
            address: admitted.loads.lines,
            dtype: DType::Int64,
            count: admitted.count,
        };
        field.scatter(&brought, &slots, &lines)
    }
}

/// What an adjustment wants from the table, and where it is put meanwhile.
struct Admitted<'a> {
    loads: Loads,
    buffer: Address,
    count: usize,
    _scratch: Arena<'a>,
}

fn list_of(address: Address, count: usize, dtype: DType) -> Operand {
    Operand {
        description: Description::array(count as i64, 0, dtype.raw()),
        storage: Storage::Pointer(address),
    }
}
