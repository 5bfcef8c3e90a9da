//! The connections of one communicator: a star around rank 0 that carries small collectives between hosts, goodbyes, and
//! the news of a death.

use super::in_step;
use super::link::{Frame, Link, Receiver};
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result};
use crate::platform::Member;
use crate::platform::meeting::{Meeting, different_operations};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

const DATA: u8 = 1;
const GOODBYE: u8 = 2;
const LEFT: u8 = 3;
const GONE: u8 = 4;
const BROKEN: u8 = 5;
const LEAVING: u8 = 6;

pub struct Net {
    pub rank: usize,
    pub size: usize,
    /// Hub: a link to every rank but itself. Else: the link to the hub at 0.
    links: Mutex<Vec<Option<Arc<Link>>>>,
    state: Mutex<State>,
    bell: Condvar,
    /// Set with the first failure or departure: the quick look of healthy calls.
    troubled: AtomicBool,
    meeting: OnceLock<Weak<Meeting>>,
    /// Told when the communicator breaks: it may have waits of its own to end.
    platform: OnceLock<Arc<dyn Member>>,
    sequence: AtomicU64,
    /// "process 1234 on host x" of every rank, once known.
    who: OnceLock<Vec<String>>,
}

#[derive(Default)]
struct State {
    inbox: Vec<VecDeque<Frame>>,
    failure: Option<Error>,
    /// The first rank that left while this one had not.
    left: Option<usize>,
    /// A rank that comes to no meeting on the host any more; streams may still meet, up to the number that it says. Of several the
    /// one that says least.
    leaving: Option<(u64, usize)>,
    departed: bool,
    goodbyes: Vec<bool>,
    all_gone: bool,
}

impl Net {
    pub fn new(rank: usize, size: usize) -> Arc<Net> {
        let state = State {
            inbox: vec![VecDeque::new(); size],
            goodbyes: vec![false; size],
            ..State::default()
        };
        Arc::new(Net {
            rank,
            size,
            links: Mutex::default(),
            state: Mutex::new(state),
            bell: Condvar::new(),
            troubled: AtomicBool::new(false),
            meeting: OnceLock::new(),
            platform: OnceLock::new(),
            sequence: AtomicU64::new(0),
            who: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_links(&self, links: Vec<Option<Arc<Link>>>) {
        *self.locked_links() = links;
        // A peer may have gone between the start of its link and this line.
        let failed = self.state().failure.clone();
        if let (Some(error), true) = (failed, self.rank == 0) {
            self.tell_broken(&error);
        }
    }

    /// The host's meeting place, so that a failure can wake those who wait there.
    pub fn set_meeting(&self, meeting: &Arc<Meeting>) {
        let _ = self.meeting.set(Arc::downgrade(meeting));
    }

    /// What has waits on a device that a failure must end.
    pub fn set_platform(&self, platform: Arc<dyn Member>) {
        let _ = self.platform.set(platform);
        // A peer may have died before this line.
        if self.state().failure.is_some() {
            self.abort();
        }
    }

    fn abort(&self) {
        if let Some(platform) = self.platform.get() {
            platform.abort();
        }
    }

    fn peer_left(&self, rank: usize) {
        if let (Some(platform), true) = (self.platform.get(), rank != self.rank) {
            platform.peer_left();
        }
    }

    pub fn set_who(&self, who: Vec<String>) {
        let _ = self.who.set(who);
    }

    fn locked_links(&self) -> MutexGuard<'_, Vec<Option<Arc<Link>>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_all(&self, frame: &Frame) {
        self.locked_links().iter().flatten().for_each(|l| l.send(frame));
    }

    /// Tells all what the frame's kind says of `rank`.
    fn tell_of(&self, kind: u8, rank: usize) {
        self.tell_all(&Frame {
            kind,
            sequence: rank as u64,
            body: Vec::new(),
        });
    }

    fn tell_broken(&self, error: &Error) {
        self.tell_all(&Frame {
            kind: BROKEN,
            sequence: 0,
            body: error.what.clone().into_bytes(),
        });
    }

    fn wake(&self) {
        self.troubled.store(true, Ordering::Release);
        self.bell.notify_all();
        if let Some(meeting) = self.meeting.get().and_then(Weak::upgrade) {
            meeting.wake();
        }
    }

    fn break_with(&self, what: String) {
        let error = Error::new(Kind::Communication, what);
        {
            let mut state = self.state();
            if state.failure.is_some() || state.all_gone {
                return;
            }
            state.failure = Some(error.clone());
        }
        if self.rank == 0 {
            self.tell_broken(&error);
        }
        self.wake();
        self.abort();
    }

    /// This rank alone ends the making of the communicator: the others learn why, where they would else see a death. Nothing new
    /// to ranks that have agreed on the failure, or that know of one.
    pub fn give_up(&self, error: &Error) {
        let what = self.end("gave up while the communicator was made", error);
        match (what, self.rank) {
            (Some(what), 0) => self.break_with(what),
            (Some(what), _) => self.tell_broken(&Error::new(Kind::Communication, what)),
            (None, _) => {}
        }
    }

    /// This rank cannot come to where the others would wait for it: the communicator breaks, here at once.
    pub fn break_off(&self, error: &Error) {
        let Some(what) = self.end("cannot meet the others any more", error) else {
            return;
        };
        if self.rank != 0 {
            self.tell_broken(&Error::new(Kind::Communication, what.clone()));
        }
        self.break_with(what);
    }

    /// What the others are told; `None` where this rank knows that there is nothing left to end.
    fn end(&self, did: &str, error: &Error) -> Option<String> {
        let who = self.named(self.rank);
        // That a rank has left ends nothing for those who wait on their GPUs.
        self.state()
            .failure
            .is_none()
            .then(|| format!("{who} {did}: {}", error.what))
    }

    /// Why collective calls cannot succeed any more, if so.
    pub fn failure(&self) -> Option<Error> {
        if !self.troubled.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        if let Some(error) = &state.failure {
            return Some(error.clone());
        }
        let gone = |what: String| Some(Error::new(Kind::Communication, what));
        match state.left {
            _ if state.departed => {
                gone("this rank has left the communicator (destroyed or finalized)".into())
            }
            Some(rank) => gone(format!(
                "rank {rank} has left the communicator (destroyed or finalized)"
            )),
            None => None,
        }
    }

    /// [`failure`](Net::failure), or why a rank does not come to where ranks meet on the host any more.
    pub fn failure_to_come(&self) -> Option<Error> {
        self.failure().or_else(|| {
            let (_, rank) = self.leaving()?;
            let what = format!("rank {rank} is about to leave the communicator (finalized)");
            Some(Error::new(Kind::Communication, what))
        })
    }

    /// [`failure`](Net::failure), or why the next call of this rank cannot be one that all make.
    pub fn failure_to_begin(&self) -> Option<Error> {
        self.failure().or_else(|| {
            let (last, _) = self.leaving()?;
            let is_done = self.platform.get().is_some_and(|p| in_step::is_at(&**p, last));
            self.failure_to_come().filter(|_| is_done)
        })
    }

    fn leaving(&self) -> Option<(u64, usize)> {
        match self.troubled.load(Ordering::Acquire) {
            true => self.state().leaving,
            false => None,
        }
    }

    /// Ends the waits of this rank's GPU for one that leaves and does not come there any more.
    pub fn end_vain_waits(&self) {
        if let (Some((last, _)), Some(platform)) = (self.leaving(), self.platform.get())
            && in_step::is_beyond(&**platform, last)
        {
            platform.peer_left();
        }
    }

    fn named(&self, rank: usize) -> String {
        let who = self
            .who
            .get()
            .map_or(String::new(), |w| format!(" ({})", w[rank]));
        format!("rank {rank}{who}")
    }

    fn dead(&self, rank: usize, why: &str) -> String {
        let who = self.named(rank);
        format!("{who} died: its connection {why} without a goodbye; the communicator is unusable")
    }

    /// The frame of `sequence` from `from`, if it is here; older ones belong to calls that failed.
    fn take_frame(&self, from: usize, sequence: u64) -> Option<Frame> {
        let mut state = self.state();
        while let Some(frame) = state.inbox[from].pop_front() {
            if frame.sequence == sequence {
                return Some(frame);
            }
        }
        None
    }

    fn wait_frame(&self, from: usize, sequence: u64) -> Result<Frame> {
        loop {
            let failure = self.failure_to_come();
            // Asked after the failure: what a rank sent before it left or died counts, it completed that step.
            if let Some(frame) = self.take_frame(from, sequence) {
                return Ok(frame);
            }
            if let Some(error) = failure {
                return Err(error);
            }
            let state = self.state();
            if state.inbox[from].is_empty() && state.failure.is_none() {
                drop(self.bell.wait_timeout(state, Duration::from_millis(100)));
            }
        }
    }

    /// The values of all ranks through the hub. Collective.
    pub fn all_gather(&self, operation: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        if let Some(error) = self.failure_to_come() {
            return Err(error);
        }
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let unreadable = || Error::new(Kind::Communication, "a rank sent an unreadable message");
        if self.rank != 0 {
            let body = Writer::default().text(operation).bytes(mine).0;
            self.tell_all(&Frame {
                kind: DATA,
                sequence,
                body,
            });
            let reply = self.wait_frame(0, sequence)?;
            let mut reader = Reader(&reply.body);
            if reader.u32().ok_or_else(unreadable)? != 0 {
                return Err(Error::new(Kind::Logic, reader.text().ok_or_else(unreadable)?));
            }
            return (0..self.size)
                .map(|_| reader.bytes().map(<[u8]>::to_vec).ok_or_else(unreadable))
                .collect();
        }
        let mut values = vec![mine.to_vec()];
        let mut mismatch = None;
        for rank in 1..self.size {
            let frame = self.wait_frame(rank, sequence)?;
            let mut reader = Reader(&frame.body);
            let called = reader.text().ok_or_else(unreadable)?;
            if called != operation && mismatch.is_none() {
                mismatch = Some(different_operations(0, operation, rank, &called));
            }
            values.push(reader.bytes().ok_or_else(unreadable)?.to_vec());
        }
        let body = match &mismatch {
            Some(error) => Writer::default().u32(1).text(&error.what).0,
            None => values.iter().fold(Writer::default().u32(0), |w, v| w.bytes(v)).0,
        };
        self.tell_all(&Frame {
            kind: DATA,
            sequence,
            body,
        });
        mismatch.map_or(Ok(values), Err)
    }

    /// Says that this rank comes to no meeting on the host any more, and to how many of streams it has come. Does not wait.
    pub fn begin_to_leave(&self, count: u64) {
        match self.rank {
            0 => self.begins_to_leave(0, count),
            rank => self.tell_all(&leaving(rank, count)),
        }
    }

    /// `rank` begins to leave; the hub tells the others.
    fn begins_to_leave(&self, rank: usize, count: u64) {
        if self.rank == 0 {
            self.tell_all(&leaving(rank, count));
        }
        if rank == self.rank {
            return;
        }
        {
            let mut state = self.state();
            let least = state
                .leaving
                .map_or((count, rank), |known| known.min((count, rank)));
            state.leaving = Some(least);
        }
        self.wake();
        self.end_vain_waits();
    }

    /// Says goodbye: from here on an end of this rank's connections is no death. Does not wait.
    pub fn depart(&self) {
        {
            let mut state = self.state();
            if std::mem::replace(&mut state.departed, true) {
                return;
            }
        }
        self.wake();
        if self.rank == 0 {
            self.goodbye(0);
        } else {
            self.tell_of(GOODBYE, self.rank);
        }
    }

    /// Hub: `rank` has said goodbye; tells the others, and all when the last one has.
    fn goodbye(&self, rank: usize) {
        let last = {
            let mut state = self.state();
            state.goodbyes[rank] = true;
            if rank != 0 && !state.departed && state.left.is_none() {
                state.left = Some(rank);
            }
            state.goodbyes.iter().all(|g| *g)
        };
        self.peer_left(rank);
        if last {
            self.tell_of(GONE, 0);
            // Told before it is true here: this rank closes its connections as soon as it is.
            self.state().all_gone = true;
        } else {
            self.tell_of(LEFT, rank);
        }
        self.wake();
    }

    /// After [`depart`](Net::depart): waits until every rank has said goodbye.
    /// # Errors
    /// COMMUNICATION_ERROR if a rank died instead.
    pub fn wait_all_gone(&self) -> Result<()> {
        let mut state = self.state();
        while !state.all_gone {
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            let waited = self.bell.wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Closes the connections. After a healthy goodbye nobody takes it for a death.
    pub fn close(&self) {
        let links = std::mem::take(&mut *self.locked_links());
        for link in links.iter().flatten() {
            link.drain(Duration::from_secs(1));
            link.close();
        }
    }
}

fn leaving(rank: usize, count: u64) -> Frame {
    Frame {
        kind: LEAVING,
        sequence: rank as u64,
        body: Writer::default().u64(count).0,
    }
}

impl Receiver for Net {
    fn frame(&self, tag: usize, frame: Frame) {
        match frame.kind {
            DATA => {
                self.state().inbox[tag].push_back(frame);
                self.bell.notify_all();
            }
            GOODBYE if self.rank == 0 => self.goodbye(tag),
            LEFT => {
                let rank = frame.sequence as usize;
                {
                    let mut state = self.state();
                    if rank != self.rank && state.left.is_none() {
                        state.left = Some(rank);
                    }
                    if let Some(said) = state.goodbyes.get_mut(rank) {
                        *said = true;
                    }
                }
                self.peer_left(rank);
                self.wake();
            }
            LEAVING => {
                let rank = if self.rank == 0 {
                    tag
                } else {
                    frame.sequence as usize
                };
                let count = Reader(&frame.body).u64();
                self.begins_to_leave(rank, count.unwrap_or(in_step::UNKNOWN));
            }
            GONE => {
                self.state().all_gone = true;
                self.wake();
            }
            BROKEN => self.break_with(String::from_utf8_lossy(&frame.body).into_owned()),
            _ => {}
        }
    }

    fn closed(&self, tag: usize, why: String) {
        let expected = {
            let mut state = self.state();
            // Without the hub nobody tells of more goodbyes.
            state.all_gone |= self.rank != 0 && state.goodbyes[tag];
            state.all_gone || state.goodbyes[tag]
        };
        match expected {
            true => self.wake(),
            false => self.break_with(self.dead(tag, &why)),
        }
    }
}
