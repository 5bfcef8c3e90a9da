//! The operations on graphs, on the threads of this host. Done on return.

mod choice;
mod loops;
mod sample;
mod spans;
#[cfg(test)]
mod tests;
mod unique;

use super::CpuPlatform;
use super::address::Ids;
use crate::error::{Error, Kind, Result};
use crate::platform::call;
use crate::platform::graph::{Counted, Draw, GraphKernels, Neighbours, SelfLoops, Take};
use crate::platform::{Indices, Launch};
use crate::span::Address;
use std::sync::{Mutex, PoisonError};

/// Reads at any alignment.
/// # Safety
/// There are more than `i` values from `at` on.
#[inline(always)]
unsafe fn get<T: Copy>(at: Address, i: usize) -> T {
    // SAFETY: by the contract of this function.
    unsafe { (at.0 as *const T).add(i).read_unaligned() }
}

/// Writes at any alignment.
/// # Safety
/// There is room for more than `i` values from `at` on.
#[inline(always)]
unsafe fn put<T>(at: Address, i: usize, value: T) {
    // SAFETY: by the contract of this function.
    unsafe { (at.0 as *mut T).add(i).write_unaligned(value) }
}

/// What a job's parts failed with: the first that says so.
#[derive(Default)]
struct Failure(Mutex<Option<Error>>);

impl Failure {
    fn keep(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
        }
    }

    fn outcome(self) -> Result<()> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Makes room in an empty or used vector for `count` values in all.
/// # Errors
/// OUT_OF_MEMORY.
fn reserve<T>(vec: &mut Vec<T>, count: usize) -> Result<()> {
    vec.try_reserve(count.saturating_sub(vec.len())).map_err(|_| {
        Error::new(
            Kind::OutOfMemory,
            format!("no room for {count} working values of {} bytes", size_of::<T>()),
        )
    })
}

/// The part `k` of `parts` of [0, count).
fn part(k: usize, parts: usize, count: usize) -> std::ops::Range<usize> {
    let each = count.div_ceil(parts);
    (k * each).min(count)..((k + 1) * each).min(count)
}

impl GraphKernels for CpuPlatform {
    fn span_ids(
        &self,
        centers: &Indices,
        nodes: u64,
        first: u64,
        ids: Address,
        spans: Address,
        _: Launch,
    ) -> Result<()> {
        let input = Ids::new(centers);
        for i in 0..centers.count {
            // SAFETY: the caller vouches for `count` centers and room for two values of each.
            unsafe {
                let center = input.get(i);
                let id = if center < nodes {
                    (first + center) as i64
                } else {
                    -1
                };
                put(ids, 2 * i, id);
                put(ids, 2 * i + 1, if id < 0 { -1 } else { id + 1 });
                put(spans, 2 * i, -1i64);
                put(spans, 2 * i + 1, -1i64);
            }
        }
        Ok(())
    }

    fn shift(&self, edges: Address, count: u64, by: i64, shifted: Address, _: Launch) -> Result<()> {
        for i in 0..count as usize {
            // SAFETY: the caller vouches for `count` values at both addresses.
            unsafe { put(shifted, i, get::<i64>(edges, i).wrapping_add(by)) };
        }
        Ok(())
    }

    fn sample_offsets(
        &self,
        neighbours: &Neighbours<'_>,
        edges: u64,
        take: Take,
        offsets: Address,
        _: Launch,
    ) -> Result<Counted> {
        call::check_own()?;
        spans::offsets(neighbours, edges, take, offsets)
    }

    fn sample(&self, draw: &Draw<'_>, _: Launch) -> Result<()> {
        call::check_own()?;
        sample::sample(draw)
    }

    fn append_unique_workspace_bytes(&self, targets: &Indices, neighbours: &Indices) -> Result<usize> {
        unique::workspace_bytes(targets.count, neighbours.count)
    }

    fn append_unique_count(&self, targets: &Indices, neighbours: &Indices, launch: Launch) -> Result<u64> {
        Ok(unique::Lists::new(targets, neighbours, launch.workspace)?.count())
    }

    fn append_unique_write(
        &self,
        targets: &Indices,
        neighbours: &Indices,
        _new_ids: u64,
        unique: Address,
        map: Address,
        launch: Launch,
    ) -> Result<()> {
        call::check_own()?;
        unique::Lists::new(targets, neighbours, launch.workspace)?.write(unique, map);
        Ok(())
    }

    fn add_self_loops(&self, loops: &SelfLoops, _: Launch) -> Result<()> {
        call::check_own()?;
        loops::add(loops)
    }
}
