//! What stands at the rendezvous of a process: the ids that it made, and who came for them.

use super::control::Control;
use super::link::{Frame, Link};
use super::place::{Cookie, Place};
use super::seat::Seat;
use super::words::gaps;
use crate::error::{Error, Kind};
use crate::platform::process::{Descriptor, Watched};
use crate::settings;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// How the rendezvous reaches a guest: ranks of this process need no connection.
pub enum Door {
    Link(Arc<Link>),
    Seat(Arc<Seat>),
}

impl Door {
    pub fn send(&self, kind: u8, body: &[u8]) {
        let frame = Frame {
            kind,
            sequence: 0,
            body: body.to_vec(),
        };
        match self {
            Door::Link(link) => link.send(&frame),
            Door::Seat(seat) => seat.put(&frame),
        }
    }

    pub fn close(&self) {
        match self {
            Door::Link(link) => link.close(),
            Door::Seat(seat) => seat.close(),
        }
    }
}

pub struct Guest {
    pub door: Door,
    pub since: Instant,
    /// The id it came for and its rank, once it has shown the cookie.
    pub whose: Option<(Cookie, i32)>,
    /// It was taken by the reserve since there was no other descriptor: it cannot stay, only be told why.
    pub shortage: Option<Errno>,
}

/// One unique id.
pub struct Room {
    pub places: HashMap<i32, Place>,
    pub size: Option<i32>,
    pub deadline: Instant,
    /// The answer once it is known: the table, or why there is none.
    pub answer: Option<Vec<u8>>,
    pub answered: usize,
    /// Who has the answer: a rank that comes again is told apart from one that comes late.
    pub told: BTreeSet<i32>,
    /// Ranks that said they are connected, once the table is out; and what came of it.
    pub connected: BTreeSet<i32>,
    pub result: Option<Vec<u8>>,
    pub control: Control,
}

pub struct Desk {
    pub listener: Option<Descriptor>,
    pub guests: HashMap<usize, Guest>,
    pub rooms: HashMap<Cookie, Room>,
    pub next_tag: usize,
    /// A descriptor that is given up to take one guest where there is no other. Made again when it has gone.
    pub reserve: Option<Descriptor>,
    /// Set while guests wait that cannot be taken in; then the listener is not watched.
    pub short: Option<Shortage>,
}

/// The system gives no descriptor, or no memory, for another connection.
#[derive(Clone, Copy)]
pub struct Shortage {
    pub why: Errno,
    pub since: Instant,
}

impl Shortage {
    pub fn error(why: Errno) -> Error {
        Error::system(
            "the process that made the unique id cannot take the connections of the ranks",
            std::io::Error::from(why),
        )
    }
}

impl Desk {
    /// Makes the reserve where there is none.
    /// # Errors
    /// The system's, where it gives no descriptor.
    pub fn refill(&mut self) -> std::result::Result<(), Errno> {
        if self.reserve.is_none() {
            self.reserve = Some(Watched::open(|| eventfd(0, EventfdFlags::CLOEXEC))?.into_descriptor());
        }
        Ok(())
    }

    /// `shortage`: it was taken by the reserve.
    pub fn add(&mut self, tag: usize, door: Door, shortage: Option<Errno>) {
        let guest = Guest {
            door,
            since: Instant::now(),
            whose: None,
            shortage,
        };
        self.guests.insert(tag, guest);
    }

    pub fn new_tag(&mut self) -> usize {
        self.next_tag += 1;
        self.next_tag
    }

    /// Who came for the id, and as which rank.
    pub fn guests_of(&self, cookie: &Cookie) -> impl Iterator<Item = (&Guest, i32)> {
        let its = move |g: &Guest| g.whose.filter(|w| w.0 == *cookie).map(|w| w.1);
        self.guests
            .values()
            .filter_map(move |g| its(g).map(|rank| (g, rank)))
    }
}

impl Room {
    /// Who did not come in time.
    pub fn missing(&self) -> Error {
        let size = self.size.unwrap_or(0);
        let waited = settings::rendezvous_timeout().as_secs();
        let what = format!(
            "only {} of {size} ranks came within {waited} s (WHOLEMEMORY_TIMEOUT_S); missing: {}",
            self.places.len(),
            gaps(self.places.keys().copied().collect(), size)
        );
        Error::new(Kind::Communication, what)
    }

    /// Ranks have not been answered yet.
    pub fn is_awaited(&self) -> bool {
        self.size.is_none_or(|s| self.answered < s.max(1) as usize)
    }

    pub fn new(control: Control) -> Room {
        Room {
            places: HashMap::new(),
            size: None,
            deadline: Instant::now() + settings::rendezvous_timeout(),
            answer: None,
            answered: 0,
            told: BTreeSet::new(),
            connected: BTreeSet::new(),
            result: None,
            control,
        }
    }
}
