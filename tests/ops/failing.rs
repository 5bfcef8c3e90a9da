//! Ranks whose call fails: the others are not left waiting, and see what they should.

use crate::grid::{Grid, Ids, value};
use crate::heap::Heap;
use crate::moving::{TYPES, Table, gather_and_check, scatter_and_check};
use crate::world;
use std::sync::Arc;
use wholegraph::comm::Communicator;
use wholegraph::error::{Kind, Result};
use wholegraph::kinds::{DType, Location};
use wholegraph::memory::Route;
use wholegraph::ops;
use wholegraph::platform::Stream;

const ROWS: i64 = 21;

fn tables(comm: &Arc<Communicator>) -> impl Iterator<Item = Table> {
    TYPES
        .into_iter()
        .filter(|t| comm.supports(*t, Location::Host).is_ok())
        .map(|t| Table::new(comm, (t, Location::Host), DType::Float, ROWS, (4, 4, 0), None))
}

/// A gather of all rows by every rank; `change` spoils the output's description.
fn gather_all(
    table: &Table,
    heap: &Heap,
    change: impl Fn(&mut wholegraph::tensor::Operand),
) -> (Result<()>, Grid) {
    let ids: Vec<i64> = (0..ROWS).rev().collect();
    let mut output = Grid::new(DType::Float, ids.len(), 4, 4, 0);
    let mut operand = output.operand();
    change(&mut operand);
    let done = ops::gather(
        &table.operand(),
        &Ids::new(DType::Int, &ids, 0).operand(),
        &operand,
        heap,
        Stream(0),
        -1,
    );
    (done, output)
}

fn all_rows() -> Grid {
    let mut want = Grid::new(DType::Float, ROWS as usize, 4, 4, 0);
    (0..ROWS as usize).for_each(|i| want.set(i, |col| value(0, ROWS - 1 - i as i64, col)));
    want
}

/// A rank with bad arguments alone gets its error; the others get their rows, also those it owns.
fn bad_arguments(comm: &Arc<Communicator>) {
    for table in tables(comm) {
        for culprit in 0..comm.size() {
            let bad = comm.rank() == culprit;
            let (done, output) = gather_all(&table, &Heap::default(), |operand| {
                if bad {
                    operand.description.sizes[1] = 5;
                }
            });
            if bad {
                assert_eq!(done.unwrap_err().kind, Kind::InvalidInput);
                output.assert_same(&Grid::new(DType::Float, ROWS as usize, 4, 4, 0), "untouched");
            } else {
                done.unwrap();
                output.assert_same(&all_rows(), "the others");
            }
        }
        gather_and_check(comm, &table, DType::Float, DType::Int, "after bad arguments");
        scatter_and_check(comm, &table, DType::Float, DType::Int, "after bad arguments");
        table.memory.free().unwrap();
    }
}

#[test]
fn a_rank_with_bad_arguments_fails_alone() {
    world::ranks(3, bad_arguments);
}

/// Where rows travel, a rank without scratch fails the call for all before anything moved.
fn no_scratch(comm: &Arc<Communicator>) {
    for table in tables(comm) {
        let travels = matches!(table.memory.route(), Route::Exchange | Route::Hierarchy);
        // How many blocks a call takes; all of them are tried in turn.
        let heap = Heap::default();
        gather_all(&table, &heap, |_| {}).0.unwrap();
        let blocks = heap.calls.get();
        assert_eq!(blocks > 0, travels);
        for culprit in 0..comm.size() {
            for call in 0..4 {
                let heap = if comm.rank() == culprit {
                    Heap::failing_at(call)
                } else {
                    Heap::default()
                };
                let (done, output) = gather_all(&table, &heap, |_| {});
                let asked = heap.calls.get();
                let session = comm.enter("test").unwrap();
                let hit = wholegraph::platform::Bootstrap::all_gather(
                    &session,
                    &[u8::from(comm.rank() == culprit && asked > call)],
                )
                .unwrap();
                drop(session);
                if hit.iter().any(|h| h[0] == 1) {
                    let error = done.unwrap_err();
                    assert_eq!(error.kind, Kind::OutOfMemory);
                    if comm.rank() != culprit {
                        assert!(error.what.contains(&format!("rank {culprit}")), "{error}");
                    }
                    output.assert_same(&Grid::new(DType::Float, ROWS as usize, 4, 4, 0), "untouched");
                } else {
                    done.unwrap();
                    output.assert_same(&all_rows(), "no scratch needed");
                }
            }
        }
        gather_and_check(comm, &table, DType::Float, DType::Int64, "after missing scratch");
        scatter_and_check(comm, &table, DType::Float, DType::Int64, "after missing scratch");
        table.memory.free().unwrap();
    }
}

#[test]
fn a_rank_without_scratch_fails_all() {
    world::ranks(3, no_scratch);
}

fn freed(comm: &Arc<Communicator>) {
    for table in tables(comm) {
        table.memory.free().unwrap();
        let (done, _) = gather_all(&table, &Heap::default(), |_| {});
        assert_eq!(done.unwrap_err().kind, Kind::InvalidInput);
    }
    comm.barrier().unwrap();
}

#[test]
fn freed_tables_are_refused_together() {
    world::ranks(3, freed);
}

#[test]
fn tables_that_differ_between_ranks_are_found_where_rows_travel() {
    world::ranks(2, |comm| {
        let both: Vec<Table> = tables(comm)
            .filter(|t| t.memory.route() == Route::Exchange)
            .collect();
        let more: Vec<Table> = tables(comm)
            .filter(|t| t.memory.route() == Route::Exchange)
            .collect();
        if let ([one], [other]) = (&both[..], &more[..]) {
            let mine = if comm.rank() == 0 { one } else { other };
            let (done, _) = gather_all(mine, &Heap::default(), |_| {});
            assert_eq!(done.unwrap_err().kind, Kind::Logic);
            gather_and_check(comm, one, DType::Float, DType::Int, "after");
        }
    });
}

#[test]
fn after_the_communicator_went_every_call_fails_and_none_waits() {
    let tables = world::ranks(2, |comm| tables(comm).collect::<Vec<_>>());
    for table in tables.iter().flatten() {
        let (done, _) = gather_all(table, &Heap::default(), |_| {});
        assert_eq!(done.unwrap_err().kind, Kind::InvalidInput);
    }
}

#[test]
#[ignore = "run as ranks by over_nodes_of_different_shapes"]
fn over_nodes_rank() {
    world::as_process(|comm| {
        bad_arguments(comm);
        no_scratch(comm);
        freed(comm);
    });
}
