//! How ranks that hold one unique id find each other. The process that made the id collects every rank's (rank, size,
//! own listener), hands the table to all, and closes. decisions.md section 3.

use super::control::{Control, Ready};
use super::link::{Frame, HEADER_BYTES, Link, Receiver};
use super::place::{COOKIE_BYTES, Cookie, Place, Token, UniqueId, listen, new_cookie};
use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result, fail};
use crate::platform::process::{Descriptor, epoch};
use crate::settings;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

const HELLO: u8 = 16;
const TABLE: u8 = 17;
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

fn read_answer(bytes: &[u8], size: usize) -> Result<Vec<Place>> {
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
        pending().retain(|(_, cookie, _)| *cookie != self.cookie);
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
        control
    }

    fn accept(&self, room: &mut Room) {
        while let Some(listener) = &room.listener {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let Ok(fd) = rustix::net::accept_with(listener, flags) else {
                return;
            };
            let Some(control) = &room.control else { return };
            let (tag, me) = (room.next_tag, self.me.clone());
            room.next_tag += 1;
            let receiver: Weak<dyn Receiver> = me;
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

    fn refuse(&self, error: Error) {
        let mut room = self.room();
        if room.answer.is_none() {
            self.answer(&mut room, answer_of(&Err(error)));
        }
    }

    fn answer(&self, room: &mut Room, body: Vec<u8>) {
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
            self.answer(room, answer_of(&Err(error)));
            return Some(());
        }
        room.places.insert(rank, place);
        if room.places.len() == known as usize {
            let table = (0..known).map(|r| room.places[&r].clone()).collect();
            self.answer(room, answer_of(&Ok(table)));
        }
        Some(())
    }
}

impl Ready for Rendezvous {
    fn ready(&self) {
        self.accept(&mut self.room());
    }

    fn tick(&self) {
        let late = {
            let mut room = self.room();
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
}

impl Receiver for Rendezvous {
    fn frame(&self, tag: usize, frame: Frame) {
        let mut room = self.room();
        if frame.kind != HELLO || self.hello(&mut room, tag, &frame.body).is_none() {
            if let Some(guest) = room.guests.remove(&tag) {
                guest.link.close();
            }
        }
    }

    fn closed(&self, tag: usize, why: String) {
        let mut room = self.room();
        let Some(guest) = room.guests.remove(&tag) else {
            return;
        };
        if let (Some(rank), None) = (guest.rank, &room.answer) {
            let what = format!("rank {rank} died before all ranks had come: its connection {why}");
            self.answer(&mut room, answer_of(&Err(Error::new(Kind::Communication, what))));
        }
    }
}

/// Connects to the first of the addresses that answers.
pub fn connect(candidates: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::new(ErrorKind::AddrNotAvailable, "no address to connect to");
    for address in candidates {
        match TcpStream::connect_timeout(address, PROOF) {
            Ok(stream) => return Ok(stream),
            // The first refusal says most: the second loopback address is a mere fall-back.
            Err(e) if last.kind() != ErrorKind::ConnectionRefused => last = e,
            Err(_) => {}
        }
    }
    Err(last)
}

fn read_frame(stream: &mut TcpStream) -> std::io::Result<Frame> {
    let garbage = |why: String| std::io::Error::new(ErrorKind::InvalidData, why);
    let mut header = [0u8; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let (kind, sequence, len) = Frame::header(&header).map_err(garbage)?.expect("a whole header");
    let mut body = vec![0u8; len];
    stream.read_exact(&mut body)?;
    Ok(Frame { kind, sequence, body })
}

/// A rank's side: announces (rank, size, own listener) under the id and returns everybody's place. `prior` is a failure of
/// the caller's own checks: the rank comes all the same, so that every rank learns of it.
/// # Errors
/// INVALID_VALUE for a used id, a rank twice, sizes that differ; COMMUNICATION_ERROR for ranks that died or never came.
pub fn join(
    token: &Token,
    rank: i32,
    size: i32,
    listener: &TcpListener,
    prior: Result<()>,
) -> Result<Vec<Place>> {
    let candidates = token.place.candidates();
    let mut stream = connect(&candidates).map_err(|e| {
        let at = candidates.first().map_or("no address".to_owned(), SocketAddr::to_string);
        match e.kind() {
            ErrorKind::ConnectionRefused => Error::new(
                Kind::InvalidValue,
                format!("nobody answers for this unique id at {at}: it was used already, or the process that made it has ended"),
            ),
            _ => Error::new(Kind::Communication, format!("connecting to the maker of the unique id at {at}: {e}")),
        }
    })?;
    let (code, text) = prior
        .as_ref()
        .err()
        .map_or((0, ""), |e| (e.kind.code(), e.what.as_str()));
    let writer = Writer::default()
        .bytes(&token.cookie)
        .u32(rank as u32)
        .u32(size as u32)
        .u32(code)
        .text(text);
    let hello = Frame {
        kind: HELLO,
        sequence: 0,
        body: Place::of(listener)?.write(writer).0,
    };
    let patience = settings::rendezvous_timeout() + Duration::from_secs(10);
    let answer = stream
        .set_read_timeout(Some(patience))
        .and_then(|()| stream.write_all(&hello.encode()))
        .and_then(|()| read_frame(&mut stream))
        .map_err(|e| {
            let what = match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("the ranks did not meet within {} s", patience.as_secs())
                }
                _ => format!("the process that made the unique id ended before all ranks had met: {e}"),
            };
            Error::new(Kind::Communication, what)
        })?;
    if answer.kind != TABLE {
        fail!(
            Communication,
            "the rendezvous sent an unexpected message of kind {}",
            answer.kind
        );
    }
    let places = read_answer(&answer.body, size.max(0) as usize);
    match prior {
        Err(own) => Err(own),
        Ok(()) => places,
    }
}

/// The members' connections to rank 0 of a new star.
const PROOF_BYTES: usize = COOKIE_BYTES + 4;

/// A member: connects to rank 0's listener and shows the cookie.
pub fn connect_to_hub(cookie: &Cookie, rank: usize, hub: &Place) -> Result<TcpStream> {
    let lost = |e: std::io::Error| {
        Error::new(
            Kind::Communication,
            format!("rank 0 died before rank {rank} had connected to it: {e}"),
        )
    };
    let mut stream = connect(&hub.candidates()).map_err(lost)?;
    let mut proof = [0u8; PROOF_BYTES];
    proof[..COOKIE_BYTES].copy_from_slice(cookie);
    proof[COOKIE_BYTES..].copy_from_slice(&(rank as u32).to_le_bytes());
    stream.write_all(&proof).map_err(lost)?;
    Ok(stream)
}

/// Rank 0: takes the connections of ranks 1 to size - 1. `watch` tells of a death noticed elsewhere. With `places`, every
/// rank not yet here is watched through a connection to its own listener.
pub fn accept_members(
    cookie: &Cookie,
    size: usize,
    listener: &TcpListener,
    places: Option<&[Place]>,
    watch: &dyn Fn() -> Option<Error>,
) -> Result<Vec<Option<TcpStream>>> {
    let mut members: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
    let gone = |rank: usize, e: &dyn std::fmt::Display| {
        Error::new(
            Kind::Communication,
            format!("rank {rank} died before it had connected to rank 0: {e}"),
        )
    };
    let mut guards = Vec::new();
    for (rank, place) in places.iter().flat_map(|p| p.iter().enumerate()).skip(1) {
        let guard = connect(&place.candidates()).map_err(|e| gone(rank, &e))?;
        guard
            .set_nonblocking(true)
            .map_err(|e| Error::system("making a socket non-blocking", e))?;
        guards.push((rank, guard));
    }
    listener
        .set_nonblocking(true)
        .map_err(|e| Error::system("making a listener non-blocking", e))?;
    let deadline = Instant::now() + settings::rendezvous_timeout();
    while members.iter().skip(1).any(Option::is_none) {
        if let Some(error) = watch() {
            return Err(error);
        }
        let missing = members.iter().skip(1).position(Option::is_none).expect("checked") + 1;
        if Instant::now() > deadline {
            let waited = settings::rendezvous_timeout().as_secs();
            fail!(
                Communication,
                "rank {missing} did not connect to rank 0 within {waited} s (WHOLEMEMORY_TIMEOUT_S)"
            );
        }
        let mut waits = vec![rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
        waits.extend(
            guards
                .iter()
                .map(|(_, g)| rustix::event::PollFd::new(g, rustix::event::PollFlags::IN)),
        );
        let tick = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let _ = rustix::event::poll(&mut waits, Some(&tick));
        drop(waits);
        while let Ok((stream, _)) = listener.accept() {
            if let Some((rank, stream)) = prove(cookie, size, stream) {
                members[rank].get_or_insert(stream);
            }
        }
        for (rank, guard) in &mut guards {
            let ended = match guard.read(&mut [0u8; 1]) {
                Ok(0) => Some("its process ended".to_owned()),
                Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    Some(e.to_string())
                }
                _ => None,
            };
            if let (Some(why), None) = (ended, &members[*rank]) {
                return Err(gone(*rank, &why));
            }
        }
    }
    Ok(members)
}

/// Reads the cookie and the rank; a stranger is dropped.
fn prove(cookie: &Cookie, size: usize, mut stream: TcpStream) -> Option<(usize, TcpStream)> {
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PROOF)).ok()?;
    let mut proof = [0u8; PROOF_BYTES];
    stream.read_exact(&mut proof).ok()?;
    let rank = u32::from_le_bytes(*proof.last_chunk()?) as usize;
    (proof[..COOKIE_BYTES] == cookie[..] && (1..size).contains(&rank)).then_some((rank, stream))
}
