//! Memory that was given back while its GPU could not be waited for, so that nobody knew whether work used it still. It stays
//! mapped until a wait for all of the GPU's work in this process ends, whosever that is.

use super::gpu::Gpu;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

struct Kept {
    context: usize,
    number: u64,
    /// Unmaps the memory when it drops, and waits for nothing.
    memory: Box<dyn Send>,
}

#[cfg(not(test))]
fn with_list<T>(use_it: impl FnOnce(&mut Vec<Kept>) -> T) -> T {
    use std::sync::{Mutex, PoisonError};
    static LIST: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    use_it(&mut LIST.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Threads of tests have drivers of their own.
#[cfg(test)]
fn with_list<T>(use_it: impl FnOnce(&mut Vec<Kept>) -> T) -> T {
    thread_local!(static LIST: std::cell::RefCell<Vec<Kept>> = const { std::cell::RefCell::new(Vec::new()) });
    LIST.with_borrow_mut(use_it)
}

/// Keeps what unmaps memory when it drops.
pub(super) fn keep(gpu: &Gpu, memory: Box<dyn Send>) {
    let context = gpu.context();
    with_list(|list| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        list.push(Kept {
            context,
            number,
            memory,
        });
    });
}

/// Taken before a wait: what is kept later may be used by work that the wait does not cover.
pub(super) fn so_far() -> u64 {
    with_list(|_| NEXT.load(Ordering::Relaxed))
}

/// Lets go of what was kept before `before`, when a wait for all work of the GPU began that has ended.
pub(super) fn let_go(gpu: &Gpu, before: u64) {
    let context = gpu.context();
    let covered = |kept: &mut Kept| kept.context == context && kept.number < before;
    let gone: Vec<Kept> = with_list(|list| list.extract_if(.., covered).collect());
    gone.into_iter().for_each(|kept| drop(kept.memory));
}
