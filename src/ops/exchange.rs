//! The Exchange route: bucket by owner, ids out, rows back (or out with the ids). The same code on every platform.

use super::announce::{Pass, Passed, Served, Sorting, plain_rows, positions, run_passes};
use super::leg::{Circle, Field, Leg, bytes_of};
use super::plan::{Operation, Plan};
use crate::error::Result;
use crate::platform::Workspace;
use crate::span::Address;

/// Runs a gather or scatter whose ranks cannot map each other. A rank with nothing to move, or whose own checks failed,
/// passes no plan and takes part. Collective over the circle, which is the world of `field`.
/// # Errors
/// Those of [`run_passes`]; OUT_OF_MEMORY on all ranks if one has no scratch, before anything is sent.
pub fn run(
    operation: Operation,
    field: &Field<'_>,
    circle: Circle<'_>,
    served: &Served<'_>,
    plan: Option<&Plan>,
) -> Result<()> {
    let ranks = circle.boot.size();
    let by_owner: Vec<u32> = (0..ranks as u32).collect();
    let sorting = Sorting {
        bucket_of_owner: &by_owner,
        buckets: ranks,
    };
    run_passes(field, served, &sorting, Ok(()), plan, &mut |pass| {
        let me = circle.boot.rank();
        let leg = Leg {
            circle,
            sent: (0..ranks).map(|owner| pass.count(me, owner)).collect(),
            received: (0..ranks).map(|asker| pass.count(asker, me)).collect(),
        };
        match operation {
            Operation::Gather => gather(field, &leg, served, pass),
            Operation::Scatter => scatter(field, &leg, served, pass),
        }
    })
}

fn gather(field: &Field<'_>, leg: &Leg<'_>, served: &Served<'_>, pass: &Pass<'_>) -> Passed {
    let shape = &pass.shape;
    let (sent, received) = (leg.sent_count(), leg.received_count());
    let table = served.table(shape);
    let needed = match served.through {
        Some(reader) => reader.needs_bytes(
            &table,
            &shape.ids(Address::NULL, received),
            &shape.rows(Address::NULL),
        ),
        None => Ok(0),
    };
    let room = needed.and_then(|bytes| {
        let (scratch, places) = field.arena([
            bytes_of(received, shape.id_bytes()),
            bytes_of(received, shape.row_bytes()),
            bytes_of(sent, shape.row_bytes()),
            bytes as u128,
        ])?;
        Ok((scratch, places, bytes))
    });
    let (_scratch, [ids, rows_out, rows_in, address], bytes) = field.agree_room(room)?;
    leg.forward(field, pass.sorted_ids(), ids, shape.id_bytes())?;
    let (wanted, found) = (shape.ids(ids, received), shape.rows(rows_out));
    let read = match served.through {
        Some(reader) => reader.read(&table, &wanted, &found, Workspace { address, bytes }),
        None => field.gather(&table, &wanted, &found, field.launch),
    };
    leg.back(field, rows_out, rows_in, shape.row_bytes())?;
    Ok(read.and_then(|()| match pass.mine {
        Some(mine) => field.scatter(
            &shape.rows(rows_in),
            &positions(mine.positions, sent),
            &plain_rows(mine.plan),
        ),
        None => Ok(()),
    }))
}

fn scatter(field: &Field<'_>, leg: &Leg<'_>, served: &Served<'_>, pass: &Pass<'_>) -> Passed {
    let shape = &pass.shape;
    let (sent, received) = (leg.sent_count(), leg.received_count());
    let (_scratch, [ids, rows_out, rows_in]) = field.agree_room(field.arena([
        bytes_of(received, shape.id_bytes()),
        bytes_of(sent, shape.row_bytes()),
        bytes_of(received, shape.row_bytes()),
    ]))?;
    leg.forward(field, pass.sorted_ids(), ids, shape.id_bytes())?;
    let read = match pass.mine {
        Some(mine) => field.gather(
            &plain_rows(mine.plan),
            &positions(mine.positions, sent),
            &shape.rows(rows_out),
            field.plain_launch(),
        ),
        None => Ok(()),
    };
    leg.forward(field, rows_out, rows_in, shape.row_bytes())?;
    Ok(read.and_then(|()| {
        field.scatter(
            &shape.rows(rows_in),
            &shape.ids(ids, received),
            &served.table(shape),
        )
    }))
}
