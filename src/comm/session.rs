//! One collective call in progress on a communicator.

use super::communicator::{Communicator, Ties};
use super::in_step;
use crate::error::{Error, Kind, Result, ensure};
use crate::log::say_rank;
use crate::platform::meeting::Called;
use crate::platform::{Bootstrap, agree};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::MutexGuard;

/// Holds the communicator's lock: two threads of a rank make their collective calls one after the other. A child that is forked in
/// the middle of a call (by a callback of the caller) and goes on with it meets nobody: its parent does.
pub struct Session<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) called: Called,
    pub(super) held: MutexGuard<'a, Ties>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.leave_note(false);
        if let Err(error) = self.comm.settle_window() {
            say_rank!(
                Debug,
                self.comm.rank(),
                "what gradients were left in stays: {error}"
            );
        }
    }
}

impl Session<'_> {
    pub fn communicator(&self) -> &Communicator {
        self.comm
    }

    /// Where streams meet: lets the others know of the call, and how many meetings this rank has come to.
    pub fn tell_step(&self) {
        self.leave_note(true);
        if let Some(net) = &self.comm.net {
            net.end_vain_waits();
        }
    }

    fn leave_note(&self, in_call: bool) {
        if let Some(meeting) = &self.held.meeting
            && self.comm.platform.meets_on_streams()
            && self.comm.is_ours()
        {
            meeting.leave_note(in_step::note(&*self.comm.platform, in_call));
        }
    }

    /// Why the ranks cannot meet on the host, if so. One that waits there for a rank that waits for it on its GPU ends both waits.
    fn failure_to_come(&self, behind: &in_step::Behind) -> Option<Error> {
        let known = self.comm.failure_to_come();
        let meeting = self.held.meeting.as_ref();
        if known.is_some() || !self.comm.platform.meets_on_streams() {
            return known;
        }
        let ahead = behind.for_too_long(&*self.comm.platform, meeting?.notes())?;
        let what = format!(
            "{} waits for rank {ahead}, whose GPU may wait for a call on this communicator that this rank left out",
            self.called
        );
        self.break_off(&Error::new(Kind::Logic, what));
        self.comm.failure()
    }

    fn gather_of_all(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let behind = in_step::Behind::default();
        let failure = || self.failure_to_come(&behind);
        match (&self.held.meeting, &self.comm.net) {
            (Some(meeting), _) => meeting.all_gather(self.called, mine, &failure),
            (None, Some(net)) => net.all_gather(&self.called.to_string(), mine),
            (None, None) => Ok(vec![mine.to_vec()]),
        }
    }
}

impl Bootstrap for Session<'_> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.comm.check_ours(self.called.operation)?;
        let platform = &*self.comm.platform;
        if platform.meets_on_streams() {
            let values = self.gather_of_all(&in_step::with_count(platform, mine))?;
            return in_step::checked(self.called.operation, values);
        }
        self.gather_of_all(mine)
    }

    fn barrier(&self) -> Result<()> {
        if self.comm.platform.meets_on_streams() {
            return self.all_gather(&[]).map(drop);
        }
        self.comm.check_ours(self.called.operation)?;
        let behind = in_step::Behind::default();
        let failure = || self.failure_to_come(&behind);
        match (&self.held.meeting, &self.comm.net) {
            (Some(meeting), _) => meeting.barrier(self.called, &failure),
            (None, Some(net)) => net.all_gather(&self.called.to_string(), &[]).map(drop),
            (None, None) => Ok(()),
        }
    }

    fn exchange_descriptors(&self, mine: Option<BorrowedFd<'_>>) -> Result<Vec<Option<OwnedFd>>> {
        ensure!(
            self.comm.is_single_host(),
            NotSupported,
            "descriptors cannot be handed to ranks of another host"
        );
        let givers: Vec<bool> = self
            .all_gather(&[u8::from(mine.is_some())])?
            .iter()
            .map(|b| b[0] == 1)
            .collect();
        let Some(post) = &self.held.post else {
            let own = mine.map(|fd| {
                fd.try_clone_to_owned()
                    .map_err(|e| Error::system("duplicating a descriptor", e))
            });
            return Ok(vec![own.transpose()?]);
        };
        let exchange = self.comm.next_exchange();
        let got = post.exchange(exchange, mine, &givers, &|mine| agree(self, &[], mine));
        post.forget(exchange);
        got
    }

    fn failure(&self) -> Option<Error> {
        self.comm.failure_to_come()
    }

    /// A forked child is nobody whom the others wait for.
    fn break_off(&self, error: &Error) {
        if let (Some(net), true) = (&self.comm.net, self.comm.is_ours()) {
            net.break_off(error);
        }
    }
}
