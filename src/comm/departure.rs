//! How communicators go: destroy (all ranks together) and the departure of a whole process at finalize. A goodbye tells
//! leaving from dying.

use super::communicator::{Communicator, Dependent, Ties, locked};
use super::rendezvous::drop_all;
use super::{control, in_step, session::Session};
use crate::error::{Kind, Result};
use crate::platform::{Bootstrap, Term, agree};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Communicator {
    /// Collective: releases all dependents in ascending id, says goodbye, closes. On a broken communicator it needs
    /// nobody: the local side is released. Either way the communicator is dead afterwards.
    /// # Errors
    /// INVALID_INPUT if it was destroyed before; LOGIC_ERROR if ranks are in different operations (then nothing is
    /// released); COMMUNICATION_ERROR if a rank died.
    pub fn destroy(&self) -> Result<()> {
        match self.enter("destroy_communicator") {
            Ok(session) => {
                let together = |dependent: &&Arc<dyn Dependent>| !dependent.is_freed_alone();
                let handles = self
                    .dependents
                    .lock()
                    .map_or(0, |d| d.list.values().filter(together).count());
                match agree(
                    &session,
                    &[Term::new("the number of live handles", handles)],
                    Ok(()),
                ) {
                    // Others may know of it already and be gone: it is the same error for all, which releases nothing.
                    Err(error) if error.kind != Kind::Communication || self.failure_to_come().is_none() => {
                        Err(error)
                    }
                    agreed => {
                        let released = agreed.and_then(|()| self.release_all(Some(&session)));
                        let met = released.and_then(|()| agree(&session, &[], Ok(())));
                        drop(session);
                        self.end(met)
                    }
                }
            }
            Err(error) if !self.is_alive() => Err(error),
            Err(error) => self.end(Err(error)),
        }
    }

    /// Releases what hangs on the communicator: handles, the pair of HIERARCHY, the transport.
    fn release_all(&self, session: Option<&Session<'_>>) -> Result<()> {
        let mut outcome = Ok(());
        loop {
            let Some((_, dependent)) = self.dependents.lock()?.list.pop_first() else {
                break;
            };
            outcome = outcome.and(dependent.release(session.filter(|_| self.failure().is_none())));
        }
        if let Some(pair) = locked(&self.hierarchy).take() {
            if session.is_some() {
                outcome = outcome.and(pair.local.destroy()).and(pair.cross.destroy());
            } else {
                pair.local.leave();
                pair.cross.leave();
            }
        }
        let transport = locked(&self.transport).take();
        if let Some(transport) = transport {
            let session = session.filter(|_| self.failure().is_none());
            outcome = outcome.and(transport.release(session.map(|s| s as &dyn Bootstrap)));
        }
        outcome
    }

    /// Says goodbye and waits for the others' if all went well; closes in any case.
    fn end(&self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() && self.may_be_awaiting() {
            // Others finalize: it leaves as they do.
            self.begin_to_leave();
            self.finish();
        }
        self.depart();
        let outcome = outcome.and_then(|()| self.wait_all_gone());
        self.close();
        outcome
    }

    /// False in a forked child: its parent's threads may have held any lock of the communicator when it was made.
    pub fn is_ours(&self) -> bool {
        self.epoch == crate::platform::process::epoch()
    }

    /// Whether calls of this rank may have work on a GPU that waits for other ranks.
    fn may_be_awaiting(&self) -> bool {
        self.is_ours() && self.failure().is_none() && self.platform.meets_on_streams()
    }

    fn begin_to_leave(&self) {
        if let (Some(net), true) = (&self.net, self.is_ours()) {
            net.begin_to_leave(in_step::own_count(&*self.platform));
        }
    }

    fn finish(&self) {
        if self.may_be_awaiting() {
            self.platform.finish();
        }
    }

    fn depart(&self) {
        if let (Some(net), true) = (&self.net, self.is_ours()) {
            net.depart();
        }
    }

    fn wait_all_gone(&self) -> Result<()> {
        match &self.net {
            Some(net) if self.is_ours() => net.wait_all_gone(),
            _ => Ok(()),
        }
    }

    /// Releases the local side and marks the communicator dead.
    fn close(&self) {
        if !self.is_ours() {
            self.alive.store(false, Ordering::Release);
            return;
        }
        let _ = self.release_all(None);
        if let Some(net) = &self.net {
            net.close();
        }
        self.alive.store(false, Ordering::Release);
        // A call that another thread is in has ended by the departure, or ends now.
        *locked(&self.collective) = Ties::default();
        drop(locked(&self.control).take());
    }

    /// Leaves without waiting for anybody.
    fn leave(&self) {
        self.depart();
        self.close();
    }

    fn with_pair(self: &Arc<Self>) -> Vec<Arc<Communicator>> {
        if !self.is_ours() {
            return vec![self.clone()];
        }
        let pair = locked(&self.hierarchy).clone();
        pair.into_iter()
            .flat_map(|p| [p.local, p.cross])
            .chain([self.clone()])
            .collect()
    }
}

/// Finalize: every communicator of the process leaves. The departure of all of them is announced first, then the others'
/// goodbyes are awaited, so that ranks that are threads of one process need no threads here. Broken communicators wait for
/// nobody. Unused unique ids are dropped; the control thread ends.
pub fn depart_all(communicators: &[Arc<Communicator>]) {
    let all: Vec<_> = communicators
        .iter()
        .filter(|c| c.is_alive())
        .flat_map(Communicator::with_pair)
        .collect();
    // Who waits for this rank on the host waits in vain, as does a GPU for calls that it has not made; and who waits so may be who
    // this rank waits for on its own GPU, also for a call on another communicator.
    if all.iter().any(|c| c.may_be_awaiting()) {
        all.iter().for_each(|c| c.begin_to_leave());
    }
    // Once it is announced the others come to no meeting any more, not to one that a call of this rank waits in on its GPU either.
    all.iter().for_each(|c| c.finish());
    all.iter().for_each(|c| c.depart());
    for communicator in &all {
        // A death instead of a goodbye is no failure of finalize.
        let _ = communicator.wait_all_gone();
    }
    all.iter().for_each(|c| c.close());
    drop_all();
    control::join_ended();
}
