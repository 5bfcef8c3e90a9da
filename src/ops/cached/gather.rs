//! `wholememory_embedding_gather` of a cached table.

use super::{Cache, Leases, apart, meet};
use crate::comm::Session;
use crate::error::{Error, Kind, Result};
use crate::kinds::{AllocationType, DType};
use crate::memory::Route;
use crate::ops::announce::Served;
use crate::ops::leg::{Circle, Field, bytes_of, with_workspace};
use crate::ops::operand::Data;
use crate::ops::owners::{Delivery, Parcel, deliver, keep};
use crate::ops::plan::{Holder, Operation, Plan, Request, plan};
use crate::ops::route::{Call, deal, lease};
use crate::ops::{Buffers, Scratch, exchange};
use crate::platform::caching::{CachedGather, Loads, Misses};
use crate::platform::learning::RoundRobin;
use crate::platform::{Indices, Launch, Places, Platform, Rows, Stream, Table};
use crate::span::Address;
use crate::tensor::{Description, Operand, Storage};

const NAME: &str = "wholememory_embedding_gather";

/// The table as ids name its rows.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub table: &'a Operand,
    /// Where the rows that ids name are, if rows are dealt to the ranks in turn.
    pub dealt: Option<&'a RoundRobin>,
}

/// `output[i] = convert(table[indices[i]])` through the cache; ids below 0 and not below the table's rows leave their row of the output
/// alone. With `adjust` the accesses are counted, and rows that deserve it are brought in first.
///
/// Collective over the cache's communicator if it adjusts or is DISTRIBUTED; a cache apart from its table also over the table's, if that is
/// DISTRIBUTED or HIERARCHY. A rank whose own checks fail takes part with nothing and alone returns its error.
/// # Errors
/// INVALID_INPUT for wrong shapes and types, unreachable data, dead tables; NOT_SUPPORTED in a recording stream; OUT_OF_MEMORY (on all
/// ranks); COMMUNICATION_ERROR.
pub fn gather(
    cache: &Cache,
    named: Named<'_>,
    indices: &Operand,
    output: &Operand,
    adjust: bool,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let platform = cache.comm.platform();
    let recording = platform.is_capturing(stream)?;
    let _leases = (lease(indices), lease(output));
    platform.within(&mut || {
        if !recording {
            return run(cache, named, Ok(indices), output, adjust, buffers, stream);
        }
        // The others are served on a stream that does its work now, so that the recording stays whole.
        let refused = Error::new(
            Kind::NotSupported,
            "a cached table is ordered among several streams, which a recording stream (graph capture) cannot take part in",
        );
        let aside = platform.side_stream();
        let outcome = run(cache, named, Err(refused), output, adjust, buffers, aside);
        platform.synchronize(aside)?;
        outcome
    })
}

fn run(
    cache: &Cache,
    named: Named<'_>,
    indices: Result<&Operand>,
    output: &Operand,
    adjust: bool,
    buffers: &dyn Buffers,
    stream: Stream,
) -> Result<()> {
    let call = CachedCall {
        cache,
        named,
        output,
        buffers,
        platform: cache.comm.platform(),
        launch: Launch {
            stream,
            ..Launch::default()
        },
    };
    let leases = cache.leases();
    let planned = indices.and_then(|indices| {
        leases.as_ref().map_err(Error::clone)?;
        call.plan(indices)
    });
    let (planned, own_failure) = apart(planned);
    let (plan, _ids) = planned.unwrap_or((None, None));
    let leases = leases.ok();
    let moved = match (cache.at_home, cache.is_mapped()) {
        (true, true) => call.mapped(leases.as_ref(), plan.as_ref(), adjust),
        (true, false) => call.exchanged(leases.as_ref(), plan.as_ref(), adjust),
        (false, _) => call.apart(leases.as_ref(), plan.as_ref(), adjust),
    };
    own_failure.and(moved)
}

/// A checked request, and the block that its ids lie in if they are not the caller's.
type Planned<'a> = (Option<Plan>, Option<Box<dyn Scratch + 'a>>);

struct CachedCall<'a> {
    cache: &'a Cache,
    named: Named<'a>,
    output: &'a Operand,
    buffers: &'a dyn Buffers,
    platform: &'a dyn Platform,
    launch: Launch,
}

impl<'a> CachedCall<'a> {
    fn plan(&self, indices: &Operand) -> Result<Planned<'a>> {
        let (platform, memory) = (self.platform, &self.cache.table);
        platform.check_stream(self.launch.stream)?;
        let planned = plan(&Request {
            operation: Operation::Gather,
            table: &self.named.table.description,
            holder: Holder::Handle {
                memory_type: memory.memory_type(),
                partition: memory.partition(),
                flat: None,
            },
            indices: &indices.description,
            indices_data: Data::of(indices, "indices")?,
            rows: &self.output.description,
            rows_data: Data::of(self.output, "output")?,
            sms: -1,
            can_reach: &|address| platform.can_reach(address),
        });
        // A cached table has one code for all that does not fit.
        let mut plan = match planned {
            Ok(Some(plan)) => plan,
            Ok(None) => return Ok((None, None)),
            Err(error) if error.kind == Kind::Logic => {
                return Err(Error::new(Kind::InvalidInput, error.what));
            }
            Err(error) => return Err(error),
        };
        let Some(dealt) = self.named.dealt else {
            return Ok((Some(plan), None));
        };
        let block = self
            .buffers
            .scratch(plan.indices.count, DType::Int64, AllocationType::Device)?;
        plan.indices = deal(
            platform,
            &plan.indices,
            dealt,
            block.address(),
            self.launch.stream,
        )?;
        Ok((Some(plan), Some(block)))
    }

    fn field<'s>(&'s self, session: &'s Session<'_>) -> Field<'s> {
        Field {
            platform: self.platform,
            buffers: self.buffers,
            world: session,
            launch: self.launch,
        }
    }

    /// The ids of all ranks whose rows this rank caches, with what an adjustment needs to work in; `None` if there are none.
    fn deliver<'s>(
        &self,
        field: &Field<'s>,
        session: &Session<'_>,
        plan: Option<&Plan>,
        leases: Option<&Leases>,
    ) -> Result<(Option<Delivery<'s>>, Result<()>)> {
        let cache = self.cache;
        let parcel = plan.map(|plan| Parcel {
            ids: plan.indices,
            rows: None,
            cols: 0,
        });
        let needs = |parcel: &Parcel| match leases {
            Some(leases) if parcel.ids.count > 0 => self
                .platform
                .caching()
                .adjust_workspace_bytes(&cache.view(leases), parcel.ids.count),
            _ => Ok(0),
        };
        if cache.comm.size() == 1 {
            let kept = parcel.map(|parcel| keep(field, parcel, &needs)).transpose()?;
            return Ok((kept, Ok(())));
        }
        let transport = cache.comm.transport(session)?;
        let circle = Circle {
            boot: session,
            transport: &*transport,
        };
        let start_rows = cache.start_rows();
        let owners = cache.owners(&start_rows, leases.is_some());
        deliver(field, circle, &owners, parcel, &needs)
    }

    /// Every line can be read from here.
    fn mapped(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
        let (cache, stream) = (self.cache, self.launch.stream);
        let meets = cache.is_distributed();
        if !adjust && !meets {
            return self.read_mapped(leases, plan, true);
        }
        let session = cache.comm.enter(NAME)?;
        if cache.comm.size() == 1 {
            return self.read_alone(leases, plan);
        }
        let adjusted = if adjust {
            cache.turns.change(self.platform, stream, |ordered| {
                meet(&session, stream)?;
                let field = self.field(&session);
                let (delivery, sent) = self.deliver(&field, &session, plan, leases)?;
                let adjusted = ordered.and_then(|()| match (leases, &delivery) {
                    (Some(leases), Some(delivery)) => cache.adjust_to(&cache.view(leases), delivery, stream),
                    _ => Ok(()),
                });
                meet(&session, stream)?;
                Ok(sent.and(adjusted))
            })?
        } else {
            meet(&session, stream)?;
            Ok(())
        };
        let read = self.read_mapped(leases, plan, !adjust);
        if meets {
            meet(&session, stream)?;
        }
        adjusted.and(read)
    }

    /// Adjusts and reads, for the only rank.
    fn read_alone(&self, leases: Option<&Leases>, plan: Option<&Plan>) -> Result<()> {
        let (Some(leases), Some(plan)) = (leases, plan) else {
            return Ok(());
        };
        if plan.indices.count == 0 {
            return Ok(());
        }
        let (cache, kernels) = (self.cache, self.platform.caching());
        let bases = plan.bases(&leases.table);
        let table = plan.table(&bases);
        let view = cache.view(leases);
        let gather = CachedGather {
            ids: plan.indices,
            output: plan.rows,
            cols: plan.cols,
            dtype: cache.dtype,
            misses: Misses::Table(&table),
            counts: false,
        };
        let bytes = kernels.read_workspace_bytes(&view, &gather)?;
        cache.turns.change(self.platform, self.launch.stream, |ordered| {
            ordered?;
            with_workspace(self.buffers, bytes, self.launch, |launch| {
                kernels.read(&view, &gather, cache.tick(gather.ids.count), launch)
            })
        })
    }

    fn read_mapped(&self, leases: Option<&Leases>, plan: Option<&Plan>, counts: bool) -> Result<()> {
        let (Some(leases), Some(plan)) = (leases, plan) else {
            return Ok(());
        };
        let bases = plan.bases(&leases.table);
        let table = plan.table(&bases);
        let turns = &self.cache.turns;
        turns.read(self.platform, self.launch.stream, || {
            self.look_up(
                leases,
                plan.indices,
                plan.rows,
                plan.cols,
                Misses::Table(&table),
                counts,
            )
        })
    }

    /// In a turn.
    fn look_up(
        &self,
        leases: &Leases,
        ids: Indices,
        output: Rows,
        cols: usize,
        misses: Misses<'_>,
        counts: bool,
    ) -> Result<()> {
        if ids.count == 0 {
            return Ok(());
        }
        let (kernels, view) = (self.platform.caching(), self.cache.view(leases));
        let gather = CachedGather {
            ids,
            output,
            cols,
            dtype: self.cache.dtype,
            misses,
            counts,
        };
        let bytes = kernels.gather_cached_workspace_bytes(&view, &gather)?;
        with_workspace(self.buffers, bytes, self.launch, |launch| {
            kernels.gather_cached(&view, &gather, launch)
        })
    }

    /// Ids go to the owners, who look them up and send rows back.
    fn exchanged(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
        let (cache, stream) = (self.cache, self.launch.stream);
        let session = cache.comm.enter(NAME)?;
        let transport = cache.comm.transport(&session)?;
        let circle = Circle {
            boot: &session,
            transport: &*transport,
        };
        let field = self.field(&session);
        let rank = cache.comm.rank();
        let reader = |table: &Table<'_>, ids: &Indices, rows: &Rows| match leases {
            Some(leases) => {
                if adjust {
                    let parcel = Parcel {
                        ids: *ids,
                        rows: None,
                        cols: 0,
                    };
                    let needs = |parcel: &Parcel| {
                        let kernels = self.platform.caching();
                        kernels.adjust_workspace_bytes(&cache.view(leases), parcel.ids.count)
                    };
                    let kept = keep(&field, parcel, &needs)?;
                    cache.adjust_to(&cache.view(leases), &kept, stream)?;
                }
                self.look_up(leases, *ids, *rows, table.cols, Misses::Table(table), !adjust)
            }
            None => Ok(()),
        };
        let served = Served {
            partition: cache.table.partition(),
            rank,
            own: leases.and_then(|leases| leases.table.get(rank).copied()),
            identity: cache.lines.number(),
            through: Some(&reader),
        };
        cache.turns.change(self.platform, stream, |ordered| {
            let moved = exchange::run(Operation::Gather, &field, circle, &served, plan);
            ordered.and(moved)
        })
    }

    /// Hits from the cache, misses from the table as from any other.
    fn apart(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
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
            return adjusted.and(self.read_mapped(leases, plan, !adjust));
        }
        let listed = match (leases, plan) {
            (Some(leases), Some(plan)) => self.list_misses(leases, plan, !adjust).map(Some),
            _ => Ok(None),
        };
        let (missed, listed) = apart(listed);
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
        let session = match cache.comm.enter(NAME) {
            Ok(session) => session,
            Err(error) => return self.read_nothing().and(Err(error)),
        };
        cache.turns.change(self.platform, stream, |ordered| {
            let field = self.field(&session);
            let wanted = self.wanted(&field, &session, leases, plan, ordered);
            let (admitted, failure) = match wanted {
                Ok((admitted, failure)) => (admitted, failure),
                Err(error) => (None, Err(error)),
            };
            let filled = match (leases, &admitted) {
                (Some(leases), Some(admitted)) => {
                    let rows = list_of(admitted.loads.rows, admitted.count, DType::Int64);
                    let brought = self.rows_of(admitted.buffer, admitted.count);
                    self.read_table(&rows, &brought)
                        .and_then(|()| self.fill(&field, leases, admitted))
                }
                _ => self.read_nothing(),
            };
            let met = meet(&session, stream);
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
        meet(session, self.launch.stream)?;
        let (delivery, sent) = self.deliver(field, session, plan, leases)?;
        let admitted = ordered.and_then(|()| match (leases, &delivery) {
            (Some(leases), Some(delivery)) if delivery.parcel.ids.count > 0 => {
                self.admit(field, leases, delivery).map(Some)
            }
            _ => Ok(None),
        });
        let (admitted, failure) = apart(admitted);
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
    _scratch: crate::ops::leg::Arena<'a>,
}

fn list_of(address: Address, count: usize, dtype: DType) -> Operand {
    Operand {
        description: Description::array(count as i64, 0, dtype.raw()),
        storage: Storage::Pointer(address),
    }
}
