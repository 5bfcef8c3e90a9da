//! The Exchange route: bucket by owner, ids out, rows back (or out with the ids). The same code on every platform.
//!
//! Rows that a rank asks of itself do not travel: they go straight between the table and the caller's rows, and what they
//! would take of buffers and time is the others'. They move while the ranks agree with the transport, so the device works
//! meanwhile.

use super::announce::{Pass, Passed, Reader, Served, Sorted, Sorting, plain_rows, positions, run_passes};
use super::leg::{Circle, Field, Leg, bytes_of};
use super::plan::{Operation, Plan};
use crate::error::Result;
use crate::kinds::DType;
use crate::platform::{Selected, Workspace};
use crate::span::Address;

/// Runs a gather or scatter whose ranks cannot map each other. A rank with nothing to move, or whose own checks failed,
/// passes no plan and takes part. Collective over the circle, which is the world of `field`.
/// # Errors
/// Those of [`run_passes`]; OUT_OF_MEMORY on all ranks if one has no scratch for a pass, before anything of that pass is sent or
/// written. Ranks whose dtypes differ make several passes: where a later one is refused, the rows of the earlier ones have moved. A
/// transport that fails later finds the rows of the own part moved.
pub fn run(
    operation: Operation,
    field: &Field<'_>,
    circle: Circle<'_>,
    served: &Served<'_>,
    plan: Option<&Plan>,
) -> Result<()> {
    let (me, ranks) = (circle.boot.rank(), circle.boot.size());
    let buckets: Vec<u32> = (0..ranks).map(|owner| bucket(me, owner, ranks) as u32).collect();
    let sorting = Sorting {
        bucket_of_owner: &buckets,
        buckets: ranks,
    };
    run_passes(field, served, &sorting, Ok(()), plan, &mut |pass| {
        let travel = |asker: usize, owner: usize| match asker == owner {
            true => 0,
            false => pass.count(asker, bucket(asker, owner, ranks)),
        };
        let part = Part {
            field,
            served,
            pass,
            leg: Leg {
                circle,
                sent: (0..ranks).map(|owner| travel(me, owner)).collect(),
                received: (0..ranks).map(|asker| travel(asker, me)).collect(),
            },
            own: pass.count(me, ranks - 1),
            travels: (0..ranks).any(|asker| (0..ranks - 1).any(|bucket| pass.count(asker, bucket) > 0)),
        };
        match operation {
            Operation::Gather => part.gather(),
            Operation::Scatter => part.scatter(),
        }
    })
}

/// Where a rank sorts the ids of an owner: its own come last, so that those of the others lie side by side in rank order.
fn bucket(asker: usize, owner: usize, ranks: usize) -> usize {
    if owner == asker {
        ranks - 1
    } else {
        owner - usize::from(owner > asker)
    }
}

/// One pass at one rank, which is an asker and an owner at once.
struct Part<'a> {
    field: &'a Field<'a>,
    served: &'a Served<'a>,
    pass: &'a Pass<'a>,
    /// Of ids of others only.
    leg: Leg<'a>,
    /// Ids that this rank asks of itself.
    own: u64,
    /// Some rank asks another; the same on all.
    travels: bool,
}

impl Part<'_> {
    fn gather(&self) -> Passed {
        let Part {
            field,
            served,
            pass,
            leg,
            ..
        } = self;
        let shape = &pass.shape;
        if !self.travels && served.through.is_none() {
            return Ok(self.gather_own());
        }
        let (wanted, asked) = (leg.sent_count(), leg.received_count());
        let table = served.table(shape);
        // A reader sees all ids at once: the own ones lie behind those of the others.
        let (read_own, needed) = match served.through {
            Some(reader) => {
                let ids = shape.ids(Address::NULL, asked + self.own);
                (
                    self.own,
                    reader.needs_bytes(&table, &ids, &shape.rows(Address::NULL)),
                )
            }
            None => (0, Ok(0)),
        };
        let room = needed.and_then(|bytes| {
            let (scratch, places) = field.arena([
                bytes_of(asked + read_own, shape.id_bytes()),
                bytes_of(asked + read_own, shape.row_bytes()),
                bytes_of(wanted, shape.row_bytes()),
                bytes as u128,
            ])?;
            Ok((scratch, places, bytes))
        });
        let (_scratch, [ids, rows_out, rows_in, address], bytes) = field.agree_room(room)?;
        let moved = match served.through {
            Some(_) => Ok(()),
            None => self.gather_own(),
        };
        if self.travels {
            leg.forward(field, pass.sorted_ids(), ids, shape.id_bytes())?;
        }
        let read = match served.through {
            Some(reader) => self.read_all(reader, ids, rows_out, Workspace { address, bytes }),
            None => field.gather(
                &table,
                &shape.ids(ids, asked),
                &shape.rows(rows_out),
                field.launch,
            ),
        };
        if self.travels {
            leg.back(field, rows_out, rows_in, shape.row_bytes())?;
        }
        let own_rows = rows_out.offset_bytes(asked as usize * shape.row_bytes());
        Ok(moved
            .and(read)
            .and_then(|()| self.place(rows_in, 0, wanted))
            .and_then(|()| self.place(own_rows, wanted, read_own)))
    }

    /// Reads what the others asked for, whose ids are at `ids`, and behind it what this rank asks of itself.
    fn read_all(&self, reader: &dyn Reader, ids: Address, rows: Address, workspace: Workspace) -> Result<()> {
        let (field, shape) = (self.field, &self.pass.shape);
        let (asked, wanted) = (self.leg.received_count(), self.leg.sent_count());
        let behind = |ids: Address, count: u64| ids.offset_bytes(count as usize * shape.id_bytes());
        let copied = match self.own {
            0 => Ok(()),
            own => field.platform.copy(
                behind(ids, asked),
                behind(self.pass.sorted_ids(), wanted),
                own as usize * shape.id_bytes(),
                field.launch.stream,
            ),
        };
        // Others wait for their rows all the same.
        let count = asked + copied.as_ref().map_or(0, |()| self.own);
        let read = reader.read(
            &self.served.table(shape),
            &shape.ids(ids, count),
            &shape.rows(rows),
            workspace,
        );
        copied.and(read)
    }

    /// Rows as they travel to where the caller wants them: those of `count` sorted ids from `first` on.
    fn place(&self, rows: Address, first: u64, count: u64) -> Result<()> {
        match self.pass.mine {
            Some(mine) => self.field.scatter(
                &self.pass.shape.rows(rows),
                &positions(position(mine.positions, first), count),
                &plain_rows(mine.plan),
            ),
            None => Ok(()),
        }
    }

    fn scatter(&self) -> Passed {
        let Part {
            field,
            served,
            pass,
            leg,
            ..
        } = self;
        let shape = &pass.shape;
        if !self.travels {
            return Ok(self.scatter_own());
        }
        let (sent, received) = (leg.sent_count(), leg.received_count());
        let (_scratch, [ids, rows_out, rows_in]) = field.agree_room(field.arena([
            bytes_of(received, shape.id_bytes()),
            bytes_of(sent, shape.row_bytes()),
            bytes_of(received, shape.row_bytes()),
        ]))?;
        let read = match pass.mine {
            Some(mine) => field.gather(
                &plain_rows(mine.plan),
                &positions(mine.positions, sent),
                &shape.rows(rows_out),
                field.plain_launch(),
            ),
            None => Ok(()),
        };
        let moved = self.scatter_own();
        let things = [
            (pass.sorted_ids(), ids, shape.id_bytes()),
            (rows_out, rows_in, shape.row_bytes()),
        ];
        leg.forward_all(field, &things)?;
        Ok(read.and(moved).and_then(|()| {
            field.scatter(
                &shape.rows(rows_in),
                &shape.ids(ids, received),
                &served.table(shape),
            )
        }))
    }

    fn gather_own(&self) -> Result<()> {
        let table = self.served.table(&self.pass.shape);
        match self.pass.mine {
            Some(mine) => self
                .field
                .gather_selected(&table, &self.own_ids(mine), &mine.plan.rows),
            None => Ok(()),
        }
    }

    fn scatter_own(&self) -> Result<()> {
        let table = self.served.table(&self.pass.shape);
        match self.pass.mine {
            Some(mine) => self
                .field
                .scatter_selected(&mine.plan.rows, &self.own_ids(mine), &table),
            None => Ok(()),
        }
    }

    /// The caller's ids that this rank owns.
    fn own_ids(&self, mine: &Sorted<'_>) -> Selected {
        Selected {
            indices: mine.plan.indices,
            positions: position(mine.positions, self.leg.sent_count()),
            count: self.own as usize,
        }
    }
}

/// Where position number `index` is.
fn position(positions: Address, index: u64) -> Address {
    positions.offset_bytes(index as usize * DType::Int64.size_bytes())
}

#[cfg(test)]
mod tests;
