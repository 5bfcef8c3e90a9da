//! Gather and scatter over real communicators and handles: every memory type, location and route, against values that each
//! rank recomputes for itself.

mod crowded;
mod delegate;
mod env_test;
mod failing;
mod grid;
mod heap;
mod left_out;
mod moving;
mod recording;
mod stumbling;
mod world;

#[test]
fn everything_again_by_exchange() {
    world::again_with(
        &[("WHOLEMEMORY_ROUTE", "exchange")],
        &["everything_again", "over_nodes", "env_test", "left_out"],
    );
}

/// Finalize drops what other tests of the process have not used yet.
#[test]
fn left_out_one_after_the_other() {
    world::one_after_the_other("left_out::", 15);
}

#[test]
fn over_nodes_of_different_shapes() {
    for boot_ids in [&["a", "a", "b", "b"][..], &["a", "b", "b", "a", "c", "c"]] {
        world::processes("moving::over_nodes_rank", boot_ids, &[]);
        world::processes("failing::over_nodes_rank", boot_ids, &[]);
    }
    world::processes(
        "moving::over_nodes_rank",
        &["a", "b", "b", "a"],
        &[("WHOLEMEMORY_ROUTE", "exchange")],
    );
    // Nodes of unequal size have no HIERARCHY memory; DISTRIBUTED works.
    world::processes("moving::over_nodes_rank", &["a", "b", "b"], &[]);
}
