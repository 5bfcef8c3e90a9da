//! `wholememory_embedding_gather` of a cached table.

use super::{Cache, Leases, kept_apart};
use crate::comm::Session;
use crate::error::{Error, Kind, Result};
use crate::kinds::{AllocationType, DType};
use crate::ops::leg::{Circle, Field, with_workspace};
use crate::ops::meet::meet;
use crate::ops::operand::Data;
use crate::ops::owners::{Delivery, Parcel, deliver, keep};
use crate::ops::plan::{Holder, Operation, Plan, Request, plan};
use crate::ops::route::{deal, lease};
use crate::ops::serving::{CACHED_RECORDING, not_recording, take_part};
use crate::ops::{Buffers, Scratch};
use crate::platform::caching::{CachedGather, Misses};
use crate::platform::learning::RoundRobin;
use crate::platform::meeting::Called;
use crate::platform::{Indices, Launch, Platform, Rows, Stream};
use crate::tensor::Operand;

pub(super) const NAME: &str = "wholememory_embedding_gather";

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
/// ranks where it is for what they exchange); COMMUNICATION_ERROR.
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
    let _leases = (lease(indices), lease(output));
    let own = not_recording(platform, stream, CACHED_RECORDING);
    take_part(platform, stream, own, &mut |own, stream| {
        let indices = own.map(|()| indices);
        run(cache, named, indices, output, adjust, buffers, stream)
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
    let (planned, own_failure) = kept_apart(planned);
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

pub(super) struct CachedCall<'a> {
    pub(super) cache: &'a Cache,
    pub(super) named: Named<'a>,
    pub(super) output: &'a Operand,
    pub(super) buffers: &'a dyn Buffers,
    pub(super) platform: &'a dyn Platform,
    pub(super) launch: Launch,
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
                alone: None,
            },
            indices: &indices.description,
            indices_data: Data::of(indices, "indices")?,
            rows: &self.output.description,
            rows_data: Data::written(self.output, "output")?,
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

    pub(super) fn field<'s>(&'s self, session: &'s Session<'_>) -> Field<'s> {
        Field {
            platform: self.platform,
            buffers: self.buffers,
            world: session,
            launch: self.launch,
        }
    }

    /// The ids of all ranks whose rows this rank caches, with what an adjustment needs to work in; `None` if there are none.
    pub(super) fn deliver<'s>(
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
        deliver(field, circle, &owners, Ok(parcel), &needs)
    }

    /// Every line can be read from here.
    fn mapped(&self, leases: Option<&Leases>, plan: Option<&Plan>, adjust: bool) -> Result<()> {
        let (cache, stream) = (self.cache, self.launch.stream);
        let meets = cache.is_distributed();
        if !adjust && !meets {
            return self.read_mapped(leases, plan, true);
        }
        let session = cache.comm.enter_as(Called {
            operation: NAME,
            way: match (adjust, meets) {
                (true, true) => "adjusts, lines read in turns",
                (true, false) => "adjusts",
                (false, _) => "lines read in turns",
            },
        })?;
        if cache.comm.size() == 1 {
            return self.read_alone(leases, plan);
        }
        let adjusted = if adjust {
            let mut adjusted = None;
            let turn = cache.turns.change(self.platform, stream, |ordered| {
                let field = self.field(&session);
                // On the host, where ranks in another call are found: before streams meet.
                let (delivery, sent) = self.deliver(&field, &session, plan, leases)?;
                let met = meet(&session, stream)?;
                let own = ordered.and(met).and_then(|()| match (leases, &delivery) {
                    (Some(leases), Some(delivery)) => cache.adjust_to(&cache.view(leases), delivery, stream),
                    _ => Ok(()),
                });
                let met = meet(&session, stream)?;
                adjusted = Some(sent.and(own).and(met));
                Ok(())
            });
            // What fails behind the last meeting concerns this rank alone, and the others meet it again.
            match adjusted {
                Some(adjusted) => adjusted.and(turn),
                None => return turn,
            }
        } else {
            meet(&session, stream)?
        };
        let read = adjusted.and_then(|()| self.read_mapped(leases, plan, !adjust));
        match meets {
            true => read.and(meet(&session, stream)?),
            false => read,
        }
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

    pub(super) fn read_mapped(
        &self,
        leases: Option<&Leases>,
        plan: Option<&Plan>,
        counts: bool,
    ) -> Result<()> {
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
    pub(super) fn look_up(
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
}
