//! Memory that was given back while its GPU could not be waited for, so that nobody knew whether work used it still. It stays
//! mapped until a wait for all of the GPU's work in this process ends, whosever that is.

use super::gpu::Gpu;

struct Kept {
    context: usize,
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
    with_list(|list| list.push(Kept { context, memory }));
}

/// Lets go of what was kept before a wait for all work of the GPU, which ended.
pub(super) fn let_go(gpu: &Gpu) {
    let context = gpu.context();
    let gone: Vec<Kept> = with_list(|list| list.extract_if(.., |kept| kept.context == context).collect());
    gone.into_iter().for_each(|kept| drop(kept.memory));
}
