//! From a checked call to moved rows: what gather and scatter share. Every rank of a collective route takes part, whatever
//! its own checks said (a rank whose checks fail moves nothing and alone returns its error).

use super::announce::Served;
use super::hierarchy::{Circles, Nodes};
use super::leg::{Circle, Field, gather_with_workspace};
use super::meet::{meet, meet_before_rows};
use super::operand::Data;
use super::plan::{Holder, Operation, Plan, Request, plan};
use super::serving::take_part;
use super::{Buffers, Scratch, exchange, hierarchy};
use crate::comm::{Communicator, Session};
use crate::error::{Result, ensure};
use crate::kinds::{AllocationType, DType};
use crate::log::say_rank;
use crate::memory::{MappedBases, Memory, Route};
use crate::platform::learning::RoundRobin;
use crate::platform::meeting::Called;
use crate::platform::{self, Indices, Launch, Platform, Stream, Transport};
use crate::span::Address;
use crate::tensor::{Operand, Storage};
use std::sync::Arc;

/// The arguments of one call; `rows` is the output of a gather, the input of a scatter.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub operation: Operation,
    /// What ranks that meet another call are told this one is.
    pub name: &'static str,
    pub table: &'a Operand,
    /// Where the rows that ids name are, if rows are dealt to the ranks in turn. For tables on a handle.
    pub dealt: Option<&'a RoundRobin>,
    pub indices: &'a Operand,
    pub rows: &'a Operand,
    pub buffers: &'a dyn Buffers,
    pub stream: Stream,
    pub sms: i32,
}

impl Call<'_> {
    pub fn run(&self) -> Result<()> {
        let _leases = (lease(self.indices), lease(self.rows));
        match &self.table.storage {
            Storage::Pointer(address) => {
                let platform = platform::current()?;
                platform.within_on(self.stream, &mut || match self
                    .plan(platform, Holder::Pointer(*address))?
                {
                    Some(plan) => self.launch(platform, &plan, &[], self.width(Some(&plan))),
                    None => Ok(()),
                })
            }
            Storage::Memory(memory) => match memory.route() {
                Route::Mapped => self.mapped(memory),
                // One rank has nobody to meet.
                Route::Direct if memory.communicator().size() == 1 => self.mapped(memory),
                Route::Direct | Route::Exchange | Route::Hierarchy => self.together(memory),
            },
        }
    }

    /// Routes on which ranks meet on the host cannot be recorded.
    fn check_recording(&self, memory: &Memory) -> Result<()> {
        let platform = memory.communicator().platform();
        let on_streams = memory.route() == Route::Direct && platform.meets_on_streams();
        // Also where it may record: beside another stream's recording the driver may take no work for this one.
        let records = platform.is_capturing(self.stream)?;
        ensure!(
            on_streams || !records,
            NotSupported,
            "{} on {} memory by the {:?} route meets the other ranks on the host, which a recording stream (graph capture) cannot do; \
             DISTRIBUTED tables can be used there if no other rank and no other thread's communicator works with a GPU of these ranks",
            self.name,
            memory.memory_type(),
            memory.route()
        );
        Ok(())
    }

    fn plan(&self, platform: &dyn Platform, holder: Holder<'_>) -> Result<Option<Plan>> {
        platform.check_stream(self.stream)?;
        plan(&Request {
            operation: self.operation,
            table: &self.table.description,
            holder,
            indices: &self.indices.description,
            indices_data: Data::of(self.indices, "indices")?,
            rows: &self.rows.description,
            rows_data: match self.operation {
                Operation::Gather => Data::written(self.rows, self.operation.rows_name())?,
                Operation::Scatter => Data::of(self.rows, self.operation.rows_name())?,
            },
            sms: self.sms,
            can_reach: &|address| platform.can_reach(address),
        })
    }

    fn plan_on(&self, memory: &Memory, held: Holder<'_>) -> Result<Planned<'_>> {
        let comm = memory.communicator();
        let mut planned = self.plan(comm.platform(), held)?;
        if let Some(plan) = &planned {
            say_rank!(Trace, comm.rank(), "{plan}, {:?} route", memory.route());
        }
        let mut mapped = None;
        if let (Some(plan), Some(dealt)) = (&mut planned, self.dealt) {
            ensure!(
                self.buffers.outlasts_recording() || !comm.platform().is_capturing(self.stream)?,
                NotSupported,
                "{} under round robin needs scratch that lives as long as the graph that is recorded; p_env_fns is NULL",
                self.name
            );
            let block = self
                .buffers
                .scratch(plan.indices.count, DType::Int64, AllocationType::Device)?;
            plan.indices = deal(
                comm.platform(),
                &plan.indices,
                dealt,
                block.address(),
                self.stream,
            )?;
            mapped = Some(block);
        }
        Ok((planned, mapped))
    }

    fn launch(&self, platform: &dyn Platform, plan: &Plan, bases: &[Address], launch: Launch) -> Result<()> {
        let table = plan.table(bases);
        let (indices, rows) = (&plan.indices, &plan.rows);
        match self.operation {
            Operation::Gather => gather_with_workspace(platform, self.buffers, &table, indices, rows, launch),
            Operation::Scatter => platform.kernels().scatter(rows, indices, &table, launch),
        }
    }

    fn width(&self, plan: Option<&Plan>) -> Launch {
        Launch {
            stream: self.stream,
            sms: plan.and_then(|plan| plan.sms),
            ..Launch::default()
        }
    }

    /// Nobody waits for anybody. A forked child may read what its parent has mapped, and write nothing.
    fn mapped(&self, memory: &Memory) -> Result<()> {
        if self.operation == Operation::Scatter {
            memory.communicator().check_ours(self.name)?;
        }
        let partitions = memory.mapped_bases()?;
        let platform = memory.communicator().platform();
        let mut held = holder(memory, &partitions);
        if let (Holder::Handle { alone, .. }, [base]) = (&mut held, &*partitions) {
            *alone = Some(*base);
        }
        platform.within_on(self.stream, &mut || match self.plan_on(memory, held)? {
            (Some(plan), _ids) => {
                self.launch(platform, &plan, &plan.bases(&partitions), self.width(Some(&plan)))
            }
            (None, _) => Ok(()),
        })
    }

    /// A rank whose own checks fail moves nothing and serves the others.
    fn together(&self, memory: &Memory) -> Result<()> {
        let platform = memory.communicator().platform();
        let own = self.check_recording(memory);
        take_part(platform, self.stream, own, &mut |own, stream| {
            Call { stream, ..*self }.together_unless(memory, own)
        })
    }

    fn together_unless(&self, memory: &Memory, prior: Result<()>) -> Result<()> {
        let comm = memory.communicator();
        // The lease keeps the memory mapped until the call is over, also for the requests of others.
        let lease = memory.mapped_bases();
        let planned = prior.and_then(|()| match &lease {
            Ok(lease) => self.plan_on(memory, holder(memory, lease)),
            Err(dead) => Err(dead.clone()),
        });
        let ((plan, _ids), own_failure) = match planned {
            Ok(planned) => (planned, None),
            Err(error) => ((None, None), Some(error)),
        };
        let session = comm.enter_as(Called {
            operation: self.name,
            way: memory.route().words(),
        })?;
        let partitions = lease.as_deref().unwrap_or(&[]);
        let moved = match memory.route() {
            Route::Exchange => {
                let served = served(memory, partitions);
                comm.transport(&session).and_then(|transport| {
                    let circle = Circle {
                        boot: &session,
                        transport: &*transport,
                    };
                    let field = self.field(&session, plan.as_ref());
                    exchange::run(self.operation, &field, circle, &served, plan.as_ref())
                })
            }
            Route::Hierarchy => {
                let served = served(memory, partitions);
                self.over_nodes(&session, &served, plan.as_ref())
            }
            Route::Mapped | Route::Direct => self.direct(&session, partitions, plan.as_ref()),
        };
        // Rows that came to this rank are in its table when it meets the others next.
        let moved = moved.and_then(|()| match self.operation {
            Operation::Scatter => self.settle(comm),
            Operation::Gather => Ok(()),
        });
        own_failure.map_or(moved, Err)
    }

    /// Waits for the rows, but for those of a recording.
    fn settle(&self, comm: &Communicator) -> Result<()> {
        let platform = comm.platform();
        if platform.is_capturing(self.stream)? {
            return Ok(());
        }
        platform.synchronize(self.stream)?;
        // The wait for a rank that died, or never came, ends like others.
        comm.check_all_came(self.stream)
    }

    /// Meet, so that what the others wrote before is there; move; meet, so that they may write again. Where the GPUs can, the
    /// streams meet; else the ranks do, on the host.
    fn direct(&self, session: &Session<'_>, partitions: &[Address], plan: Option<&Plan>) -> Result<()> {
        let platform = session.communicator().platform();
        let width = Launch {
            after_meeting: platform.meets_on_streams(),
            ..self.width(plan)
        };
        let met = meet_before_rows(session, self.stream)?;
        let moved = met.and_then(|()| match plan {
            Some(plan) => self.launch(platform, plan, &plan.bases(partitions), width),
            None => Ok(()),
        });
        moved.and(meet(session, self.stream)?)
    }

    fn over_nodes(&self, session: &Session<'_>, served: &Served<'_>, plan: Option<&Plan>) -> Result<()> {
        let comm = session.communicator();
        let nodes = Nodes::of(comm);
        let field = self.field(session, plan);
        let pair = comm.hierarchy(session)?;
        let opened = open(&pair.local, self.name).and_then(|local| {
            let cross = open(&pair.cross, self.name)?;
            Ok((local, cross))
        });
        let circles = match &opened {
            Ok((local, cross)) => Ok(Circles {
                local: local.circle(),
                cross: cross.circle(),
            }),
            Err(error) => Err(error.clone()),
        };
        hierarchy::run(self.operation, &field, circles, &nodes, served, plan)
    }

    fn field<'a>(&'a self, session: &'a Session<'_>, plan: Option<&Plan>) -> Field<'a> {
        Field {
            platform: session.communicator().platform(),
            buffers: self.buffers,
            world: session,
            launch: self.width(plan),
        }
    }
}

/// What a table on a handle lies on.
pub fn holder<'a>(memory: &'a Memory, lease: &MappedBases) -> Holder<'a> {
    Holder::Handle {
        memory_type: memory.memory_type(),
        partition: memory.partition(),
        flat: lease.flat(),
        alone: None,
    }
}

/// The plan, and the block that its ids lie in if they are not the caller's.
type Planned<'a> = (Option<Plan>, Option<Box<dyn Scratch + 'a>>);

/// The rows of the table that ids of a dealt one name, written to `mapped`, which has room for as many INT64.
pub fn deal(
    platform: &dyn Platform,
    indices: &Indices,
    dealt: &RoundRobin,
    mapped: Address,
    stream: Stream,
) -> Result<Indices> {
    let launch = Launch {
        stream,
        ..Launch::default()
    };
    platform.learning().map_rows(indices, dealt, mapped, launch)?;
    Ok(Indices {
        address: mapped,
        dtype: DType::Int64,
        count: indices.count,
    })
}

/// A communicator inside a collective call of its parent.
struct Opened<'a> {
    session: Session<'a>,
    transport: Arc<dyn Transport>,
}

impl Opened<'_> {
    fn circle(&self) -> Circle<'_> {
        Circle {
            boot: &self.session,
            transport: &*self.transport,
        }
    }
}

/// The transport stands since malloc, so nobody is waited for here.
fn open<'a>(comm: &'a Communicator, name: &'static str) -> Result<Opened<'a>> {
    let session = comm.enter(name)?;
    let transport = comm.transport(&session)?;
    Ok(Opened { session, transport })
}

fn served<'a>(memory: &'a Memory, partitions: &[Address]) -> Served<'a> {
    let rank = memory.communicator().rank();
    Served {
        partition: memory.partition(),
        rank,
        own: partitions.get(rank).copied(),
        identity: memory.number(),
        through: None,
    }
}

/// Keeps the memory under an operand mapped while the call runs.
pub fn lease(operand: &Operand) -> Option<MappedBases> {
    match &operand.storage {
        Storage::Memory(memory) => memory.mapped_bases().ok(),
        Storage::Pointer(_) => None,
    }
}
