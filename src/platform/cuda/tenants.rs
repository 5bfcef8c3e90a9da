//! Threads of this process whose communicators have ranks that wait for each other on one GPU, in meetings or in NCCL.
//!
//! A kernel that waits for the other ranks of one communicator keeps what comes behind it in its stream waiting too, and threads
//! that share a GPU may share streams (the default stream above all). With two communicators over the same two GPUs that can
//! go round in a circle: on one GPU the first one's wait stands before the second one's, on the other GPU behind it. So where a
//! GPU has such a thread, the ranks of other threads' communicators meet on the host, where each waits for itself. One thread's
//! communicators are used in one order, as calls must be on every rank.

use crate::platform::process::PerProcess;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

static TENANTS: PerProcess<Mutex<Vec<(String, ThreadId)>>> =
    PerProcess::new(Mutex::new(Vec::new()), Mutex::default);

fn tenants() -> MutexGuard<'static, Vec<(String, ThreadId)>> {
    TENANTS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rank that waits for others on its GPU, or is about to find out whether it does, and the thread that made its communicator
/// or the one that this was split from.
pub struct Tenant {
    gpu: String,
    thread: ThreadId,
}

impl Tenant {
    /// A rank of `thread` on the GPU of this identity.
    pub fn enter(gpu: &str, thread: ThreadId) -> Tenant {
        let tenant = Tenant {
            gpu: gpu.into(),
            thread,
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
