//! The Hierarchy route: rows cross the slow links between nodes once a node. A request goes to the rank of the own node
//! that has the owner's place; that rank asks the owner, over the ranks of the same place in every node.

use super::announce::{Pass, Passed, Served, Sorting, plain_rows, positions, run_passes};
use super::leg::{Circle, Field, Leg, bytes_of};
use super::plan::{Operation, Plan};
use crate::comm::Communicator;
use crate::error::Result;
use crate::kinds::DType;
use crate::span::Address;

/// The two circles a rank is in; a rank's number is its place in the first, its node in the second.
#[derive(Clone, Copy)]
pub struct Circles<'a> {
    pub local: Circle<'a>,
    pub cross: Circle<'a>,
}

/// Node and place of every rank of the world. Nodes have equal numbers of ranks.
#[derive(Clone, Debug)]
pub struct Nodes {
    node_of: Vec<u32>,
    place_of: Vec<u32>,
}

impl Nodes {
    pub fn of(comm: &Communicator) -> Nodes {
        Nodes::new((0..comm.size()).map(|rank| comm.node_of_rank(rank)))
    }

    pub fn new(nodes_and_places: impl Iterator<Item = (usize, usize)>) -> Nodes {
        let (node_of, place_of) = nodes_and_places
            .map(|(node, place)| (node as u32, place as u32))
            .unzip();
        Nodes { node_of, place_of }
    }

    /// The ranks of the node of `rank`, by place.
    fn neighbours(&self, rank: usize) -> Vec<usize> {
        let mut ranks: Vec<usize> = (0..self.node_of.len())
            .filter(|peer| self.node_of[*peer] == self.node_of[rank])
            .collect();
        ranks.sort_by_key(|peer| self.place_of[*peer]);
        ranks
    }
}

/// Runs a gather or scatter over both circles. `circles` may be the failure to make them, which all ranks are then told.
/// A rank with nothing to move, or whose own checks failed, passes no plan and takes part. Collective over the world of `field`.
/// # Errors
/// Those of [`run_passes`]; OUT_OF_MEMORY on all ranks if one has no scratch, before any row is sent.
pub fn run(
    operation: Operation,
    field: &Field<'_>,
    circles: Result<Circles<'_>>,
    nodes: &Nodes,
    served: &Served<'_>,
    plan: Option<&Plan>,
) -> Result<()> {
    let neighbours = nodes.neighbours(served.rank);
    let place = nodes.place_of[served.rank] as usize;
    let sorting = Sorting {
        bucket_of_owner: &nodes.place_of,
        buckets: neighbours.len(),
    };
    let (circles, ready) = match circles {
        Ok(circles) => (Some(circles), Ok(())),
        Err(error) => (None, Err(error)),
    };
    run_passes(field, served, &sorting, ready, plan, &mut |pass| {
        let Some(circles) = circles else { return Ok(Ok(())) };
        let leg = Leg {
            circle: circles.local,
            sent: (0..neighbours.len())
                .map(|to| pass.count(served.rank, to))
                .collect(),
            received: neighbours.iter().map(|from| pass.count(*from, place)).collect(),
        };
        let errand = Errand {
            field,
            nodes,
            served,
            pass,
            local: leg,
            cross: circles.cross,
        };
        match operation {
            Operation::Gather => errand.gather(),
            Operation::Scatter => errand.scatter(),
        }
    })
}

/// One pass at one rank, which is an asker, a middleman for its node and an owner at once.
struct Errand<'a> {
    field: &'a Field<'a>,
    nodes: &'a Nodes,
    served: &'a Served<'a>,
    pass: &'a Pass<'a>,
    local: Leg<'a>,
    cross: Circle<'a>,
}

impl<'a> Errand<'a> {
    /// What fails in a circle is known to the ranks of that circle alone; those of others wait for them in theirs.
    fn for_all<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            for boot in [self.local.circle.boot, self.cross.boot, self.field.world] {
                boot.break_off(error);
            }
        }
        outcome
    }

    /// Sorts ids by their owner's node: ids to `sorted`, their positions to `slots`. The counts a node.
    fn sort_by_node(&self, ids: Address, count: u64, sorted: Address, slots: Address) -> Result<Vec<u64>> {
        let nodes = self.cross.boot.size();
        if count == 0 {
            return Ok(vec![0; nodes]);
        }
        self.field.bucket(
            &self.pass.shape.ids(ids, count),
            &self.served.start_rows(&self.pass.shape),
            &self.nodes.node_of,
            nodes,
            sorted,
            slots,
        )
    }

    /// The leg between the nodes. A rank that could not sort takes part with nothing and fails the agreement that follows.
    fn cross_leg(&self, counts: &Result<Vec<u64>>) -> Result<Leg<'a>> {
        let none = || vec![0; self.cross.boot.size()];
        self.cross
            .leg(counts.as_ref().map_or_else(|_| none(), Vec::clone))
    }

    fn gather(&self) -> Passed {
        let (field, shape, local) = (self.field, &self.pass.shape, &self.local);
        let (id_bytes, row_bytes) = (shape.id_bytes(), shape.row_bytes());
        let position_bytes = DType::Int64.size_bytes();
        let (asked, wanted) = (local.received_count(), local.sent_count());
        let (_near, [ids, unique, slots, sorted, sorted_slots, answers, rows_in]) =
            field.agree_room(field.arena([
                bytes_of(asked, id_bytes),
                bytes_of(asked, id_bytes),
                bytes_of(asked, position_bytes),
                bytes_of(asked, id_bytes),
                bytes_of(asked, position_bytes),
                bytes_of(asked, row_bytes),
                bytes_of(wanted, row_bytes),
            ]))?;
        self.for_all(local.forward(field, self.pass.sorted_ids(), ids, id_bytes))?;
        let counts = if asked == 0 {
            self.sort_by_node(ids, 0, sorted, sorted_slots)
        } else {
            field
                .unique(&shape.ids(ids, asked), self.served.rows(shape), unique, slots)
                .and_then(|distinct| self.sort_by_node(unique, distinct, sorted, sorted_slots))
        };
        let cross = self.for_all(self.cross_leg(&counts))?;
        let (served, distinct) = (cross.received_count(), cross.sent_count());
        let room = counts.and_then(|_| {
            field.arena([
                bytes_of(served, id_bytes),
                bytes_of(served, row_bytes),
                bytes_of(distinct, row_bytes),
                bytes_of(distinct, row_bytes),
            ])
        });
        let (_far, [owner_ids, owner_rows, sorted_rows, unique_rows]) = field.agree_room(room)?;
        self.for_all(cross.forward(field, sorted, owner_ids, id_bytes))?;
        let read = field.gather(
            &self.served.table(shape),
            &shape.ids(owner_ids, served),
            &shape.rows(owner_rows),
            field.launch,
        );
        self.for_all(cross.back(field, owner_rows, sorted_rows, row_bytes))?;
        let spread = field
            .scatter(
                &shape.rows(sorted_rows),
                &positions(sorted_slots, distinct),
                &shape.rows_as_table(unique_rows, distinct),
            )
            .and_then(|()| {
                field.gather(
                    &shape.rows_as_table(unique_rows, distinct),
                    &positions(slots, asked),
                    &shape.rows(answers),
                    field.launch,
                )
            });
        self.for_all(local.back(field, answers, rows_in, row_bytes))?;
        Ok(read.and(spread).and_then(|()| match self.pass.mine {
            Some(mine) => field.scatter(
                &shape.rows(rows_in),
                &positions(mine.positions, wanted),
                &plain_rows(mine.plan),
            ),
            None => Ok(()),
        }))
    }

    fn scatter(&self) -> Passed {
        let (field, shape, local) = (self.field, &self.pass.shape, &self.local);
        let (id_bytes, row_bytes) = (shape.id_bytes(), shape.row_bytes());
        let (carried, given) = (local.received_count(), local.sent_count());
        let (_near, [ids, sorted, sorted_slots, rows_out, rows_in, sorted_rows]) =
            field.agree_room(field.arena([
                bytes_of(carried, id_bytes),
                bytes_of(carried, id_bytes),
                bytes_of(carried, DType::Int64.size_bytes()),
                bytes_of(given, row_bytes),
                bytes_of(carried, row_bytes),
                bytes_of(carried, row_bytes),
            ]))?;
        self.for_all(local.forward(field, self.pass.sorted_ids(), ids, id_bytes))?;
        let counts = self.sort_by_node(ids, carried, sorted, sorted_slots);
        let cross = self.for_all(self.cross_leg(&counts))?;
        let owned = cross.received_count();
        let room = counts.and_then(|_| field.arena([bytes_of(owned, id_bytes), bytes_of(owned, row_bytes)]));
        let (_far, [owner_ids, owner_rows]) = field.agree_room(room)?;
        let read = match self.pass.mine {
            Some(mine) => field.gather(
                &plain_rows(mine.plan),
                &positions(mine.positions, given),
                &shape.rows(rows_out),
                field.plain_launch(),
            ),
            None => Ok(()),
        };
        self.for_all(local.forward(field, rows_out, rows_in, row_bytes))?;
        let sorted_read = field.gather(
            &shape.rows_as_table(rows_in, carried),
            &positions(sorted_slots, carried),
            &shape.rows(sorted_rows),
            field.plain_launch(),
        );
        self.for_all(cross.forward(field, sorted, owner_ids, id_bytes))?;
        self.for_all(cross.forward(field, sorted_rows, owner_rows, row_bytes))?;
        Ok(read.and(sorted_read).and_then(|()| {
            field.scatter(
                &shape.rows(owner_rows),
                &shape.ids(owner_ids, owned),
                &self.served.table(shape),
            )
        }))
    }
}
