//! Locks of objects that a forked child may use after its parent: where a thread that only the parent has held one at the fork, it
//! stays held in the child for ever. The process that made the object waits for a lock; a child waits a while, then gets an error.

use super::process::epoch;
use crate::error::{Error, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

/// A thread of the child itself is through long before; even one that waits for its core.
const MOST_WAIT: Duration = Duration::from_millis(200);
const YIELDS: usize = 100;

/// What a child gets of a lock that it did not make: `None` if a thread of its parent seems to hold it.
pub fn tried<G>(attempt: impl Fn() -> TryLockResult<G>) -> Option<G> {
    let start = Instant::now();
    for round in 0.. {
        match attempt() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if round < YIELDS => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) if start.elapsed() < MOST_WAIT => {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(TryLockError::WouldBlock) => break,
        }
    }
    None
}

fn held_for_ever() -> Error {
    Error::new(
        Kind::Communication,
        "this process was forked while another thread of its parent was at work on the object; a forked child can use what it makes itself",
    )
}

#[derive(Debug)]
pub struct ForkMutex<T> {
    lock: Mutex<T>,
    /// The epoch of the process that made it.
    made_in: u32,
    /// A child that waited in vain once does not wait again.
    lost: AtomicBool,
}

impl<T> ForkMutex<T> {
    pub fn new(value: T) -> ForkMutex<T> {
        ForkMutex {
            lock: Mutex::new(value),
            made_in: epoch(),
            lost: AtomicBool::new(false),
        }
    }

    /// # Errors
    /// COMMUNICATION_ERROR in a forked child whose parent's thread seems to hold it.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>> {
        if self.made_in == epoch() {
            return Ok(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let found = match self.lost.load(Ordering::Relaxed) {
            true => None,
            false => tried(|| self.lock.try_lock()),
        };
        found.ok_or_else(|| {
            self.lost.store(true, Ordering::Relaxed);
            held_for_ever()
        })
    }
}

impl<T: Default> Default for ForkMutex<T> {
    fn default() -> ForkMutex<T> {
        ForkMutex::new(T::default())
    }
}
