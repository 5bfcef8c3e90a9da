//! Threads of this process that work with one GPU for different communicators.
//!
//! A kernel that waits for the other ranks of one communicator keeps what comes behind it in its stream waiting too, and threads
//! that share a GPU may share streams (the default stream above all). With two communicators over the same two GPUs that can
//! go round in a circle: on one GPU the first one's wait stands before the second one's, on the other GPU behind it. So where a
//! GPU has several such threads, ranks meet on the host, where each waits for itself.

use crate::platform::process::PerProcess;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TENANTS: PerProcess<Mutex<Vec<(String, i32)>>> =
    PerProcess::new(Mutex::new(Vec::new()), Mutex::default);

fn tenants() -> MutexGuard<'static, Vec<(String, i32)>> {
    TENANTS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rank of a communicator of several ranks, as long as it lives: its GPU and the thread that made it.
pub struct Tenant {
    gpu: String,
    thread: i32,
}

impl Tenant {
    /// A rank of the calling thread on the GPU of this identity.
    pub fn enter(gpu: &str) -> Tenant {
        let tenant = Tenant {
            gpu: gpu.into(),
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
        };
        tenants().push((tenant.gpu.clone(), tenant.thread));
        tenant
    }

    /// Whether other threads of this process have ranks on the GPU.
    pub fn has_company(&self) -> bool {
        tenants()
            .iter()
            .any(|(gpu, thread)| *gpu == self.gpu && *thread != self.thread)
    }
}

impl Drop for Tenant {
    /// A forked child does not know its parent's.
    fn drop(&mut self) {
        let mut all = tenants();
        if let Some(place) = all
            .iter()
            .position(|(gpu, thread)| *gpu == self.gpu && *thread == self.thread)
        {
            all.swap_remove(place);
        }
    }
}
