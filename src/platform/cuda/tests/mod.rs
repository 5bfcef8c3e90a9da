//! The CUDA platform over a driver of the tests' own: what it asks of the driver, and that nothing stays when a call fails.

mod binding;
mod exchange;
mod memory;
mod nccl;
mod reach;
mod real;
#[cfg(wholememory_kernels)]
mod real_graph;
#[cfg(wholememory_kernels)]
mod real_learning;
#[cfg(wholememory_kernels)]
mod real_rows;
mod vendors;

use super::CudaPlatform;
use super::fake::{self, Desk, World, desk};
use super::gpu::Gpu;
use crate::error::Result;
use crate::platform::cpu::segments::threaded::{Threaded, ranks};
use crate::platform::{Member, Reach};
use std::sync::Arc;

/// Runs `body` as `size` ranks, each with a GPU of its own unless `prepare` says otherwise; returns their results and the world.
fn on_gpus<T: Send>(
    size: usize,
    prepare: impl Fn(&mut Desk) + Sync,
    body: impl Fn(&CudaPlatform, &Threaded) -> T + Sync,
) -> (Vec<T>, Arc<World>) {
    let world = Arc::new(World::default());
    let results = ranks(size, |boot| {
        let mut desk = Desk::new(&world, crate::platform::Bootstrap::rank(&boot));
        prepare(&mut desk);
        desk.sit();
        let platform = CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
        body(&platform, &boot)
    });
    (results, world)
}

/// The ranks get acquainted as ranks of one host, before any failure that the desk has in store.
fn acquainted(platform: &CudaPlatform, boot: &Threaded) -> Result<Reach> {
    let failure = desk(|desk| desk.failure.take());
    let size = crate::platform::Bootstrap::size(boot);
    let reach = platform.acquaint(boot, &vec![0; size]);
    desk(|desk| desk.failure = failure);
    reach
}

/// Runs `attempt` with every call of every function in `calls` failing in turn on rank 1: `judge` sees the results of the
/// ranks. Nothing may stay alive. Returns how many failures were tried.
fn sweep<T: Send>(
    calls: &[&'static str],
    code: i32,
    attempt: impl Fn(&CudaPlatform, &Threaded) -> T + Sync,
    judge: impl Fn(&str, Vec<T>),
) -> usize {
    let mut tried = 0;
    for call in calls {
        for nth in 0.. {
            let (results, world) = on_gpus(
                3,
                |desk| {
                    if desk.rank == 1 {
                        desk.failure = Some((call, nth, code));
                    }
                },
                |platform, boot| {
                    acquainted(platform, boot).unwrap();
                    let result = attempt(platform, boot);
                    (result, desk(|desk| desk.failed))
                },
            );
            let came = results[1].1;
            assert_eq!(world.alive(), "", "after call {nth} of {call} failed");
            if !came {
                assert!(nth > 0, "{call} is never called");
                break;
            }
            judge(
                &format!("call {nth} of {call}"),
                results.into_iter().map(|r| r.0).collect(),
            );
            tried += 1;
        }
    }
    tried
}
