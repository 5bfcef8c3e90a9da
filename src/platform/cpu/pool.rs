//! The thread pool of the process: made at the first large call, shared by all ranks that live here. The caller works
//! along, so a pool of n threads' worth of work has n - 1 threads of its own, and nobody depends on them: where they cannot
//! be had (few cores, no threads left, a forked child) the caller does everything.

use crate::log::say;
use crate::platform::process::{epoch, spawn_quiet};
use crate::settings;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Calls that move fewer bytes than this run on the caller: waking a thread costs more than they do.
pub const LARGE_BYTES: usize = 64 << 10;

static LOCAL_PROCESSES: AtomicUsize = AtomicUsize::new(1);

/// How many processes share this host's cores; the cores a process takes when `WHOLEMEMORY_NUM_THREADS` is not set are its
/// share. Has no effect once the pool is made.
pub fn set_local_processes(count: usize) {
    LOCAL_PROCESSES.store(count.max(1), Ordering::Relaxed);
}

struct Pool {
    /// None where the caller is to work alone.
    helpers: Option<ThreadPool>,
    /// The process that has the threads; a forked child inherits the object but not them. In another namespace it may have the same
    /// number, and one that was made without `fork` (by `clone`, say) has the same epoch.
    process: (u32, i32),
}

/// Made once and never freed. No lock guards it: a process forked in the middle of its making must not wait for ever.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
static BEGUN: AtomicBool = AtomicBool::new(false);

fn wanted_threads() -> usize {
    settings::num_threads().unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        (cores / LOCAL_PROCESSES.load(Ordering::Relaxed)).max(1)
    })
}

fn make(threads: usize) -> Option<ThreadPool> {
    if threads < 2 {
        return None;
    }
    let built = ThreadPoolBuilder::new()
        .num_threads(threads - 1)
        .spawn_handler(|thread| {
            let name = format!("wm-pool-{}", thread.index());
            spawn_quiet(&name, move || thread.run())
                .map(drop)
                .map_err(|error| std::io::Error::other(error.what))
        })
        .build();
    match built {
        Ok(pool) => Some(pool),
        Err(error) => {
            say!(
                Warn,
                "cannot start {} threads ({error}); calls run on the calling thread",
                threads - 1
            );
            None
        }
    }
}

fn this_process() -> (u32, i32) {
    (epoch(), rustix::process::getpid().as_raw_nonzero().get())
}

/// The helpers of this process, made now if need be; `None` where the caller works alone.
fn helpers() -> Option<&'static ThreadPool> {
    let mut pool = POOL.load(Ordering::Acquire);
    if pool.is_null() {
        if BEGUN.swap(true, Ordering::Relaxed) {
            return None;
        }
        pool = Box::into_raw(Box::new(Pool {
            helpers: make(wanted_threads()),
            process: this_process(),
        }));
        POOL.store(pool, Ordering::Release);
    }
    // SAFETY: a published pool is never changed or freed.
    let pool = unsafe { &*pool };
    pool.helpers.as_ref().filter(|_| pool.process == this_process())
}

/// How many parts of a job of `bytes` may run at the same time.
pub fn width(bytes: usize) -> usize {
    if bytes < LARGE_BYTES {
        return 1;
    }
    helpers().map_or(1, |pool| pool.current_num_threads() + 1)
}

/// Calls `part(k)` once for every k in [0, parts), on the caller and, for jobs of many bytes, on the pool. Returns when all
/// are done. Parts must not wait for each other.
pub fn run(parts: usize, bytes: usize, part: &(dyn Fn(usize) + Sync)) {
    let helpers = if parts > 1 && bytes >= LARGE_BYTES {
        helpers()
    } else {
        None
    };
    let Some(pool) = helpers else {
        (0..parts).for_each(part);
        return;
    };
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            if k >= parts {
                return;
            }
            part(k);
        }
    };
    pool.in_place_scope(|scope| {
        for _ in 0..pool.current_num_threads().min(parts - 1) {
            scope.spawn(|_| work());
        }
        work();
    });
}

/// Runs `work` inside the pool, for work that divides itself by rayon's means; `None` (and nothing run) where the caller is
/// to work alone.
pub fn on_helpers<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    if bytes < LARGE_BYTES {
        return None;
    }
    helpers().map(|pool| pool.install(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::process::in_a_forked_child;

    #[test]
    fn every_part_runs_once() {
        for (parts, bytes) in [(0, 0), (1, 1 << 20), (7, 10), (1000, 1 << 20)] {
            let ran: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
            run(parts, bytes, &|k| {
                ran[k].fetch_add(1, Ordering::Relaxed);
            });
            assert!(ran.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_forked_child_works_alone() {
        run(4, LARGE_BYTES, &|_| {});
        in_a_forked_child(|| {
            let count = AtomicUsize::new(0);
            run(100, 1 << 20, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            count.load(Ordering::Relaxed) == 100 && width(1 << 20) == 1
        });
    }
}
