//! How ranks that hold one unique id find each other: the side of the process that made the id. It collects every rank's
//! (rank, size, listener), hands the table to all, hears from each whether it could connect to rank 0, tells all what came of
//! it, and closes. `join` is the ranks' side.

use super::control::{Control, Ready};
use super::link::{Frame, Link, Receiver};
use super::place::{Cookie, Place, Token, UniqueId, listen, new_cookie};
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result};
use crate::platform::process::{Descriptor, epoch, spare};
use crate::settings;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(super) const HELLO: u8 = 16;
pub(super) const TABLE: u8 = 17;
/// A rank's word on whether it is connected to rank 0, and the answer for all.
pub(super) const VERDICT: u8 = 18;
pub(super) const RESULT: u8 = 19;
/// A connection that has not shown the cookie by then is dropped.
const PROOF: Duration = Duration::from_secs(5);

struct Guest {
    link: Arc<Link>,
    since: Instant,
    rank: Option<i32>,
}

struct Room {
    guests: HashMap<usize, Guest>,
    places: HashMap<i32, Place>,
    size: Option<i32>,
    next_tag: usize,
    deadline: Instant,
    /// The answer once it is known: the table, or why there is none.
    answer: Option<Vec<u8>>,
    answered: usize,
    /// Ranks that said they are connected, once the table is out; and what came of it.
    connected: BTreeSet<i32>,
    result: Option<Vec<u8>>,
    /// Too many open files: guests are taken one at a time, with every tick.
    short_of_files: bool,
    listener: Option<Descriptor>,
    control: Option<Control>,
}

/// The creator's side of one unique id.
struct Rendezvous {
    cookie: Cookie,
    token: u64,
    me: Weak<Rendezvous>,
    room: Mutex<Room>,
}

static PENDING: Mutex<Vec<(u32, Cookie, Arc<Rendezvous>)>> = Mutex::new(Vec::new());

fn pending() -> MutexGuard<'static, Vec<(u32, Cookie, Arc<Rendezvous>)>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_of(result: &Result<Vec<Place>>) -> Vec<u8> {
    match result {
        Err(error) => Writer::default().u32(error.kind.code()).text(&error.what).0,
        Ok(places) => places.iter().fold(Writer::default().u32(0), |w, p| p.write(w)).0,
    }
}

pub(super) fn read_answer(bytes: &[u8], size: usize) -> Result<Vec<Place>> {
    let unreadable = || Error::new(Kind::Communication, "the rendezvous sent an unreadable answer");
    let mut reader = Reader(bytes);
    match reader.u32().ok_or_else(unreadable)? {
        0 => (0..size)
            .map(|_| Place::read(&mut reader).ok_or_else(unreadable))
            .collect(),
        code => Err(Error::new(
            Kind::from_code(code),
            reader.text().ok_or_else(unreadable)?,
        )),
    }
}

pub(super) fn verdict_of(result: &Result<()>) -> Vec<u8> {
    let (code, text) = result
        .as_ref()
        .err()
        .map_or((0, ""), |e| (e.kind.code(), e.what.as_str()));
    Writer::default().u32(code).text(text).0
}

pub(super) fn read_verdict(bytes: &[u8]) -> Option<Result<()>> {
    let mut reader = Reader(bytes);
    let (code, text) = (reader.u32()?, reader.text()?);
    Some(if code == 0 {
        Ok(())
    } else {
        Err(Error::new(Kind::from_code(code), text))
    })
}

impl UniqueId {
    /// Starts a rendezvous in this process and returns its token. Unused, it is dropped after `WHOLEMEMORY_TIMEOUT_S` or by
    /// finalize. The process must live until all ranks have met.
    /// # Errors
    /// SYSTEM_ERROR.
    pub fn create() -> Result<UniqueId> {
        let control = Control::acquire()?;
        let listener = listen()?;
        listener
            .set_nonblocking(true)
            .map_err(|e| Error::system("making a listener non-blocking", e))?;
        let (cookie, place) = (new_cookie()?, Place::of(&listener)?);
        let token = control.shared().new_token();
        let room = Room {
            guests: HashMap::new(),
            places: HashMap::new(),
            size: None,
            next_tag: 0,
            deadline: Instant::now() + settings::rendezvous_timeout(),
            answer: None,
            answered: 0,
            connected: BTreeSet::new(),
            result: None,
            short_of_files: false,
            listener: Some(Descriptor::new(OwnedFd::from(listener))),
            control: Some(control),
        };
        let meeting = Arc::new_cyclic(|me| Rendezvous {
            cookie,
            token,
            me: me.clone(),
            room: Mutex::new(room),
        });
        {
            let room = meeting.room();
            let (control, listener) = (
                room.control.as_ref().expect("set"),
                room.listener.as_ref().expect("set"),
            );
            control
                .shared()
                .watch(token, listener.as_fd(), meeting.clone(), true)?;
        }
        pending().push((epoch(), cookie, meeting));
        Ok(Token { cookie, place }.encode())
    }
}

/// Drops the rendezvous of an id of this process that needs none (a communicator of one rank), if it is here.
pub fn drop_rendezvous(cookie: &Cookie) {
    let found = pending()
        .iter()
        .find(|(e, c, _)| *e == epoch() && c == cookie)
        .map(|(_, _, r)| r.clone());
    if let Some(found) = found {
        drop(found.end(true));
    }
}

/// Waits a moment until the rendezvous of a failed creation, if it is of this process, has closed its descriptors.
pub fn await_end(cookie: &Cookie) {
    for _ in 0..200 {
        if !pending().iter().any(|(e, c, _)| *e == epoch() && c == cookie) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops every unused id of this process; part of finalize. Ranks that wait on one are told.
pub fn drop_all() {
    let all: Vec<_> = pending()
        .iter()
        .filter(|(e, _, _)| *e == epoch())
        .map(|(_, _, r)| r.clone())
        .collect();
    for rendezvous in all {
        rendezvous.refuse(Error::new(
            Kind::Communication,
            "the process that made the unique id was finalized",
        ));
        drop(rendezvous.end(true));
    }
}

impl Rendezvous {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes everything; the returned use of the control thread is dropped by the caller, outside all locks.
    /// Not waiting for unsent answers is for the control thread, which is the one that sends them.
    fn end(&self, wait: bool) -> Option<Control> {
        let mut room = self.room();
        let control = room.control.take();
        if let (Some(control), Some(listener)) = (&control, room.listener.take()) {
            control.shared().forget(self.token, listener.as_fd());
        }
        let guests: Vec<_> = room.guests.drain().map(|(_, g)| g.link).collect();
        drop(room);
        for link in guests {
            if wait {
                link.drain(Duration::from_secs(1));
            }
            link.close();
        }
        let own = pending()
            .extract_if(.., |(_, cookie, _)| *cookie == self.cookie)
            .collect::<Vec<_>>();
        drop(own);
        control
    }

    fn accept(&self, room: &mut Room) {
        while let Some(listener) = &room.listener {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let fd = match rustix::net::accept_with(listener, flags) {
                Ok(fd) => fd,
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Nobody can be kept, but everybody can be told, one after another.
                    if !room.short_of_files {
                        room.short_of_files = true;
                        self.watch_listener(room, false);
                        let what = "the process that made the unique id has too many open files";
                        self.settle(room, answer_of(&Err(Error::new(Kind::System, what))));
                        spare::release();
                        continue;
                    }
                    return;
                }
                Err(_) => return,
            };
            let Some(control) = &room.control else { return };
            let tag = room.next_tag;
            room.next_tag += 1;
            let receiver: Weak<dyn Receiver> = self.me.clone();
            if let Ok(link) = Link::start(control.shared(), TcpStream::from(fd), tag, receiver) {
                room.guests.insert(
                    tag,
                    Guest {
                        link,
                        since: Instant::now(),
                        rank: None,
                    },
                );
            }
        }
    }

    fn watch_listener(&self, room: &Room, wanted: bool) {
        if let (Some(control), Some(listener)) = (&room.control, &room.listener) {
            control
                .shared()
                .watch_reading(self.token, listener.as_fd(), wanted);
        }
    }

    fn refuse(&self, error: Error) {
        self.settle(&mut self.room(), answer_of(&Err(error)));
    }

    fn settle(&self, room: &mut Room, body: Vec<u8>) {
        if room.answer.is_some() {
            return;
        }
        for guest in room.guests.values().filter(|g| g.rank.is_some()) {
            guest.link.send(&Frame {
                kind: TABLE,
                sequence: 0,
                body: body.clone(),
            });
        }
        room.answered = room.guests.values().filter(|g| g.rank.is_some()).count();
        room.answer = Some(body);
    }

    fn hello(&self, room: &mut Room, tag: usize, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        if reader.bytes()? != self.cookie {
            return None;
        }
        let (rank, size) = (reader.u32()? as i32, reader.u32()? as i32);
        let prior = (reader.u32()?, reader.text()?);
        let place = Place::read(&mut reader)?;
        room.guests.get_mut(&tag)?.rank = Some(rank);
        if let Some(body) = room.answer.clone() {
            room.guests[&tag].link.send(&Frame {
                kind: TABLE,
                sequence: 0,
                body,
            });
            room.answered += 1;
            return Some(());
        }
        if room.places.is_empty() {
            room.deadline = Instant::now() + settings::rendezvous_timeout();
        }
        let known = *room.size.get_or_insert(size);
        let invalid = |what: String| Some(Error::new(Kind::InvalidValue, what));
        let wrong = if prior.0 != 0 {
            Some(Error::new(
                Kind::from_code(prior.0),
                format!("rank {rank}: {}", prior.1),
            ))
        } else if size != known {
            invalid(format!("the size differs between ranks: {known} and {size}"))
        } else if size < 1 || rank < 0 || rank >= size {
            invalid(format!(
                "rank {rank} is not in [0, {size}) of a communicator of {size} ranks"
            ))
        } else if room.places.contains_key(&rank) {
            invalid(format!(
                "two ranks came as rank {rank} with one unique id (an id serves one communicator)"
            ))
        } else {
            None
        };
        if let Some(error) = wrong {
            self.settle(room, answer_of(&Err(error)));
            return Some(());
        }
        room.places.insert(rank, place);
        if room.places.len() == known as usize {
            let table = (0..known).map(|r| room.places[&r].clone()).collect();
            self.settle(room, answer_of(&Ok(table)));
        }
        Some(())
    }
}

impl Rendezvous {
    /// A rank is connected to rank 0, or cannot be. The first failure, or the last success, is everybody's result.
    fn verdict(&self, room: &mut Room, tag: usize, body: &[u8]) -> Option<()> {
        let rank = room.guests.get(&tag)?.rank?;
        match read_verdict(body)? {
            Ok(()) => {
                room.connected.insert(rank);
                if room.connected.len() == room.places.len() {
                    self.conclude(room, Ok(()));
                }
            }
            Err(error) => self.conclude(room, Err(error.within(format!("rank {rank}")))),
        }
        Some(())
    }

    /// Ends when everybody has been told and has gone, or nobody will come any more.
    fn end_if_over(&self) {
        let over = {
            let room = self.room();
            let all_told =
                room.size.is_some_and(|s| room.answered >= s.max(1) as usize) && room.guests.is_empty();
            room.answer.is_some() && (all_told || Instant::now() > room.deadline)
        };
        if over {
            drop(self.end(false));
        }
    }

    fn conclude(&self, room: &mut Room, result: Result<()>) {
        if room.result.is_none() {
            let body = verdict_of(&result);
            for guest in room.guests.values().filter(|g| g.rank.is_some()) {
                guest.link.send(&Frame {
                    kind: RESULT,
                    sequence: 0,
                    body: body.clone(),
                });
            }
            room.result = Some(body);
        }
    }
}

impl Ready for Rendezvous {
    fn ready(&self) {
        self.accept(&mut self.room());
    }

    fn tick(&self) {
        let late = {
            let mut room = self.room();
            if std::mem::take(&mut room.short_of_files) {
                self.watch_listener(&room, true);
                self.accept(&mut room);
            }
            room.guests.retain(|_, g| {
                let keep = g.rank.is_some() || g.since.elapsed() < PROOF;
                if !keep {
                    g.link.close();
                }
                keep
            });
            Instant::now() > room.deadline && room.answer.is_none()
        };
        if late {
            let room = self.room();
            let size = room.size.unwrap_or(0);
            let missing: Vec<String> = (0..size)
                .filter(|r| !room.places.contains_key(r))
                .map(|r| r.to_string())
                .collect();
            let waited = settings::rendezvous_timeout().as_secs();
            let what = format!(
                "only {} of {size} ranks came within {waited} s (WHOLEMEMORY_TIMEOUT_S); missing: {}",
                room.places.len(),
                missing.join(" ")
            );
            drop(room);
            self.refuse(Error::new(Kind::Communication, what));
        }
        self.end_if_over();
    }
}

impl Receiver for Rendezvous {
    fn frame(&self, tag: usize, frame: Frame) {
        let mut room = self.room();
        let understood = match frame.kind {
            HELLO => self.hello(&mut room, tag, &frame.body),
            VERDICT => self.verdict(&mut room, tag, &frame.body),
            _ => None,
        };
        if understood.is_none() {
            if let Some(guest) = room.guests.remove(&tag) {
                guest.link.close();
            }
        }
    }

    fn closed(&self, tag: usize, why: String) {
        self.gone(tag, &why);
        self.end_if_over();
    }
}

impl Rendezvous {
    fn gone(&self, tag: usize, why: &str) {
        let mut room = self.room();
        let Some(guest) = room.guests.remove(&tag) else {
            return;
        };
        if room.short_of_files {
            // The descriptor that is free now serves the next one in the queue.
            self.accept(&mut room);
        } else {
            spare::restore();
        }
        let Some(rank) = guest.rank else { return };
        let dead = |when: &str| {
            Error::new(
                Kind::Communication,
                format!("rank {rank} died {when}: its connection {why}"),
            )
        };
        if room.answer.is_none() {
            self.settle(&mut room, answer_of(&Err(dead("before all ranks had come"))));
        } else if room.places.len() == room.size.unwrap_or(0) as usize && !room.connected.contains(&rank) {
            self.conclude(&mut room, Err(dead("while the ranks connected")));
        }
    }
}
