//! How ranks that hold one unique id find each other: the side of the process that made the id. One listener of the process
//! serves all its ids. For each it collects every rank's (rank, size, listener), hands the table to all, hears from each
//! whether it could connect to rank 0, and tells all what came of it. `join` is the ranks' side.

use super::control::{Control, Loop, Ready};
use super::link::{Frame, Link, MOST_STRANGER_BYTES, Receiver};
use super::place::{Cookie, Place, Token, UniqueId, listen, new_cookie};
use super::wire::{Reader, Writer};
use super::words::gaps;
use crate::error::{Error, Kind, Result, ensure};
use crate::platform::process::{Descriptor, PerProcess, Watched, spare};
use crate::settings;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(super) const HELLO: u8 = 16;
pub(super) const TABLE: u8 = 17;
/// A rank's word on whether it is connected to rank 0, and the answer for all.
pub(super) const VERDICT: u8 = 18;
pub(super) const RESULT: u8 = 19;
/// A connection that has not shown the cookie by then is dropped.
const PROOF: Duration = Duration::from_secs(5);
/// Used ids that are remembered, so that a second use is told from an unknown one.
const MOST_USED: usize = 4096;

struct Guest {
    link: Arc<Link>,
    since: Instant,
    /// The id it came for and its rank, once it has shown the cookie.
    whose: Option<(Cookie, i32)>,
}

/// One unique id.
struct Room {
    places: HashMap<i32, Place>,
    size: Option<i32>,
    deadline: Instant,
    /// The answer once it is known: the table, or why there is none.
    answer: Option<Vec<u8>>,
    answered: usize,
    /// Ranks that said they are connected, once the table is out; and what came of it.
    connected: BTreeSet<i32>,
    result: Option<Vec<u8>>,
    control: Control,
}

struct Desk {
    listener: Option<Descriptor>,
    guests: HashMap<usize, Guest>,
    rooms: HashMap<Cookie, Room>,
    next_tag: usize,
    /// Too many open files: guests are taken one at a time, and told so.
    short_of_files: bool,
}

/// The listener of the process and everybody who came to it.
struct Reception {
    shared: Arc<Loop>,
    token: u64,
    place: Place,
    me: Weak<Reception>,
    desk: Mutex<Desk>,
}

static RECEPTION: PerProcess<Mutex<Option<Arc<Reception>>>> =
    PerProcess::new(Mutex::new(None), Mutex::default);
static USED: PerProcess<Mutex<VecDeque<Cookie>>> =
    PerProcess::new(Mutex::new(VecDeque::new()), Mutex::default);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn current() -> Option<Arc<Reception>> {
    locked(RECEPTION.get()).clone()
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
        let reception = Reception::open(&control)?;
        let token = Token {
            cookie: new_cookie()?,
            place: reception.place.clone(),
        };
        let room = Room {
            places: HashMap::new(),
            size: None,
            deadline: Instant::now() + settings::rendezvous_timeout(),
            answer: None,
            answered: 0,
            connected: BTreeSet::new(),
            result: None,
            control,
        };
        reception.desk().rooms.insert(token.cookie, room);
        reception.shared.ring();
        Ok(token.encode())
    }
}

/// Drops the rendezvous of an id of this process that needs none (a communicator of one rank), if it is here.
/// # Errors
/// INVALID_VALUE if this process knows that the id was used, or that ranks of a larger communicator came with it (they are
/// told).
pub fn take_alone(cookie: &Cookie) -> Result<()> {
    if let Some(reception) = current() {
        let mut desk = reception.desk();
        let came = desk
            .rooms
            .get(cookie)
            .map(|room| (room.size, room.answer.is_some()));
        match came {
            Some((_, true)) => return Err(used()),
            Some((Some(size), false)) => {
                let error = Error::new(
                    Kind::InvalidValue,
                    format!("the size differs between ranks: {size} and 1"),
                );
                reception.settle(&mut desk, cookie, answer_of(&Err(error.clone())));
                return Err(error);
            }
            Some((None, false)) => {
                let room = desk.rooms.remove(cookie);
                drop(desk);
                drop(room);
            }
            None => {}
        }
    }
    let mut known = locked(USED.get());
    if known.contains(cookie) {
        return Err(used());
    }
    remember(&mut known, cookie);
    Ok(())
}

/// # Errors
/// INVALID_VALUE where no communicator of `size` ranks has a rank `rank`.
pub(super) fn check_rank(rank: i32, size: i32) -> Result<()> {
    ensure!(
        size >= 1 && (0..size).contains(&rank),
        InvalidValue,
        "rank {rank} is not in [0, {size}) of a communicator of {size} ranks"
    );
    Ok(())
}

pub(super) fn used() -> Error {
    Error::new(
        Kind::InvalidValue,
        "this unique id was used already (an id serves one communicator)",
    )
}

fn remember(used: &mut VecDeque<Cookie>, cookie: &Cookie) {
    if used.len() == MOST_USED {
        used.pop_front();
    }
    used.push_back(*cookie);
}

/// True if this process knows that the id was used.
pub fn is_used(cookie: &Cookie) -> bool {
    locked(USED.get()).contains(cookie)
}

/// Waits a moment until the rendezvous of a failed creation, if it is of this process, has closed its connections.
pub fn await_end(cookie: &Cookie) {
    for _ in 0..200 {
        let busy = current().is_some_and(|r| {
            r.desk()
                .guests
                .values()
                .any(|g| g.whose.is_none_or(|w| w.0 == *cookie))
        });
        if !busy {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops every unused id of this process; part of finalize. Ranks that wait on one are told.
pub fn drop_all() {
    let Some(reception) = current() else { return };
    let mut desk = reception.desk();
    let cookies: Vec<Cookie> = desk.rooms.keys().copied().collect();
    let what = "the process that made the unique id was finalized";
    for cookie in &cookies {
        reception.settle(
            &mut desk,
            cookie,
            answer_of(&Err(Error::new(Kind::Communication, what))),
        );
    }
    let rooms: Vec<Room> = cookies.iter().filter_map(|c| desk.rooms.remove(c)).collect();
    drop(desk);
    drop(rooms);
}

/// Closes the listener; called when the control thread ends.
pub(super) fn close() {
    let Some(reception) = locked(RECEPTION.get()).take() else {
        return;
    };
    let mut desk = reception.desk();
    if let Some(listener) = desk.listener.take() {
        reception.shared.forget(reception.token, listener.as_fd());
    }
    let guests: Vec<Guest> = desk.guests.drain().map(|(_, g)| g).collect();
    drop(desk);
    guests.iter().for_each(|g| g.link.close());
}

impl Reception {
    /// The reception of the process; `control` keeps its thread alive meanwhile.
    fn open(control: &Control) -> Result<Arc<Reception>> {
        let mut current = locked(RECEPTION.get());
        if let Some(open) = current
            .as_ref()
            .filter(|r| Arc::ptr_eq(&r.shared, control.shared()))
        {
            return Ok(open.clone());
        }
        let listener = listen()?;
        listener
            .set_nonblocking(true)
            .map_err(|e| Error::system("making a listener non-blocking", e))?;
        let (shared, place) = (control.shared().clone(), Place::of(&listener)?);
        let token = shared.new_token();
        let desk = Desk {
            listener: Some(listener.into_descriptor()),
            guests: HashMap::new(),
            rooms: HashMap::new(),
            next_tag: 0,
            short_of_files: false,
        };
        let opened = Arc::new_cyclic(|me| Reception {
            shared,
            token,
            place,
            me: me.clone(),
            desk: Mutex::new(desk),
        });
        {
            let desk = opened.desk();
            let listener = desk.listener.as_ref().expect("just made").as_fd();
            opened.shared.watch(token, listener, opened.clone())?;
        }
        *current = Some(opened.clone());
        Ok(opened)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        locked(&self.desk)
    }

    fn accept(&self, desk: &mut Desk) {
        while let Some(listener) = &desk.listener {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let accept = || rustix::net::accept_with(listener, flags).map(TcpStream::from);
            let stream = match Watched::open(accept) {
                Ok(stream) => stream,
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Nobody can be kept, but everybody can be told, one after another.
                    if !desk.short_of_files {
                        desk.short_of_files = true;
                        self.shared.watch_reading(self.token, listener.as_fd(), false);
                        spare::release();
                        continue;
                    }
                    return;
                }
                Err(_) => return,
            };
            let tag = desk.next_tag;
            desk.next_tag += 1;
            let receiver: Weak<dyn Receiver> = self.me.clone();
            if let Ok(link) = Link::start(&self.shared, stream, tag, receiver, MOST_STRANGER_BYTES) {
                desk.guests.insert(
                    tag,
                    Guest {
                        link,
                        since: Instant::now(),
                        whose: None,
                    },
                );
            }
        }
    }

    /// Gives `body` to all guests of the id as their answer, unless they have one.
    fn settle(&self, desk: &mut Desk, cookie: &Cookie, body: Vec<u8>) {
        let Some(room) = desk.rooms.get_mut(cookie) else {
            return;
        };
        if room.answer.is_some() {
            return;
        }
        for guest in desk
            .guests
            .values()
            .filter(|g| g.whose.is_some_and(|w| w.0 == *cookie))
        {
            guest.link.send(&Frame {
                kind: TABLE,
                sequence: 0,
                body: body.clone(),
            });
            room.answered += 1;
        }
        room.answer = Some(body);
    }

    fn hello(&self, desk: &mut Desk, tag: usize, body: &[u8]) -> Option<()> {
        let mut reader = Reader(body);
        let cookie = Cookie::try_from(reader.bytes()?).ok()?;
        let (rank, size) = (reader.u32()? as i32, reader.u32()? as i32);
        let prior = (reader.u32()?, reader.text()?);
        let place = Place::read(&mut reader)?;
        let guest = desk.guests.get_mut(&tag)?;
        let Some(room) = desk.rooms.get_mut(&cookie) else {
            // Strangers learn nothing; who knows an old secret learns that it is old.
            locked(USED.get()).contains(&cookie).then_some(())?;
            guest.whose = Some((cookie, rank));
            guest.link.send(&Frame {
                kind: TABLE,
                sequence: 0,
                body: answer_of(&Err(used())),
            });
            return Some(());
        };
        guest.whose = Some((cookie, rank));
        if let Some(body) = room.answer.clone() {
            guest.link.send(&Frame {
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
        let wrong = if desk.short_of_files {
            Some(Error::new(
                Kind::System,
                "the process that made the unique id has too many open files",
            ))
        } else if prior.0 != 0 {
            Some(Error::new(
                Kind::from_code(prior.0),
                format!("rank {rank}: {}", prior.1),
            ))
        } else if size != known {
            invalid(format!("the size differs between ranks: {known} and {size}"))
        } else if let Err(error) = check_rank(rank, size) {
            Some(error)
        } else if room.places.contains_key(&rank) {
            invalid(format!(
                "two ranks came as rank {rank} with one unique id (an id serves one communicator)"
            ))
        } else {
            None
        };
        if let Some(error) = wrong {
            self.settle(desk, &cookie, answer_of(&Err(error)));
            return Some(());
        }
        room.places.insert(rank, place);
        if room.places.len() == known as usize {
            let table = (0..known).map(|r| room.places[&r].clone()).collect();
            self.settle(desk, &cookie, answer_of(&Ok(table)));
        }
        Some(())
    }

    /// A rank is connected to rank 0, or cannot be. The first failure, or the last success, is everybody's result.
    fn verdict(&self, desk: &mut Desk, tag: usize, body: &[u8]) -> Option<()> {
        let (cookie, rank) = desk.guests.get(&tag)?.whose?;
        let room = desk.rooms.get_mut(&cookie)?;
        match read_verdict(body)? {
            Ok(()) => {
                room.connected.insert(rank);
                if room.connected.len() == room.places.len() {
                    self.conclude(desk, &cookie, Ok(()));
                }
            }
            Err(error) => self.conclude(desk, &cookie, Err(error.within(format!("rank {rank}")))),
        }
        Some(())
    }

    fn conclude(&self, desk: &mut Desk, cookie: &Cookie, result: Result<()>) {
        let Some(room) = desk.rooms.get_mut(cookie).filter(|r| r.result.is_none()) else {
            return;
        };
        let body = verdict_of(&result);
        for guest in desk
            .guests
            .values()
            .filter(|g| g.whose.is_some_and(|w| w.0 == *cookie))
        {
            guest.link.send(&Frame {
                kind: RESULT,
                sequence: 0,
                body: body.clone(),
            });
        }
        room.result = Some(body);
    }

    /// Ends what is over: everybody was told and has gone, or nobody will come any more.
    fn tidy(&self) {
        let mut desk = self.desk();
        let now = Instant::now();
        let over: Vec<Cookie> = desk
            .rooms
            .iter()
            .filter(|(cookie, room)| {
                let all_told = room.size.is_some_and(|s| room.answered >= s.max(1) as usize)
                    && !desk
                        .guests
                        .values()
                        .any(|g| g.whose.is_some_and(|w| w.0 == **cookie));
                room.answer.is_some() && (all_told || now > room.deadline)
            })
            .map(|(cookie, _)| *cookie)
            .collect();
        over.iter().for_each(|c| remember(&mut locked(USED.get()), c));
        let rooms: Vec<Room> = over.iter().filter_map(|c| desk.rooms.remove(c)).collect();
        drop(desk);
        // The last use of the control thread may go here: outside all locks.
        rooms.into_iter().for_each(|r| drop(r.control));
    }

    fn gone(&self, tag: usize, why: &str) {
        let mut desk = self.desk();
        let Some(guest) = desk.guests.remove(&tag) else {
            return;
        };
        drop(guest.link);
        if desk.short_of_files {
            // The descriptor that is free now serves the next one in the queue.
            self.accept(&mut desk);
        } else {
            spare::restore();
        }
        let Some((cookie, rank)) = guest.whose else { return };
        let Some(room) = desk.rooms.get(&cookie) else {
            return;
        };
        let dead = |when: &str| {
            Error::new(
                Kind::Communication,
                format!("rank {rank} died {when}: its connection {why}"),
            )
        };
        if room.answer.is_none() {
            self.settle(
                &mut desk,
                &cookie,
                answer_of(&Err(dead("before all ranks had come"))),
            );
        } else if room.places.len() == room.size.unwrap_or(0) as usize && !room.connected.contains(&rank) {
            self.conclude(&mut desk, &cookie, Err(dead("while the ranks connected")));
        }
    }
}

impl Ready for Reception {
    fn ready(&self) {
        self.accept(&mut self.desk());
    }

    fn wants_ticks(&self) -> bool {
        let desk = self.desk();
        desk.short_of_files || !desk.rooms.is_empty() || !desk.guests.is_empty()
    }

    fn tick(&self) {
        {
            let mut desk = self.desk();
            if std::mem::take(&mut desk.short_of_files) {
                if let Some(listener) = &desk.listener {
                    self.shared.watch_reading(self.token, listener.as_fd(), true);
                }
                self.accept(&mut desk);
            }
            desk.guests.retain(|_, g| {
                let keep = g.whose.is_some() || g.since.elapsed() < PROOF;
                if !keep {
                    g.link.close();
                }
                keep
            });
            let late = |room: &Room| Instant::now() > room.deadline && room.answer.is_none();
            let late: Vec<Cookie> = desk
                .rooms
                .iter()
                .filter(|(_, r)| late(r))
                .map(|(c, _)| *c)
                .collect();
            for cookie in late {
                let error = missing(&desk.rooms[&cookie]);
                self.settle(&mut desk, &cookie, answer_of(&Err(error)));
            }
        }
        self.tidy();
    }
}

fn missing(room: &Room) -> Error {
    let size = room.size.unwrap_or(0);
    let waited = settings::rendezvous_timeout().as_secs();
    let what = format!(
        "only {} of {size} ranks came within {waited} s (WHOLEMEMORY_TIMEOUT_S); missing: {}",
        room.places.len(),
        gaps(room.places.keys().copied().collect(), size)
    );
    Error::new(Kind::Communication, what)
}

impl Receiver for Reception {
    fn frame(&self, tag: usize, frame: Frame) {
        let mut desk = self.desk();
        let understood = match frame.kind {
            HELLO => self.hello(&mut desk, tag, &frame.body),
            VERDICT => self.verdict(&mut desk, tag, &frame.body),
            _ => None,
        };
        if understood.is_none()
            && let Some(guest) = desk.guests.remove(&tag)
        {
            guest.link.close();
        }
    }

    fn closed(&self, tag: usize, why: String) {
        self.gone(tag, &why);
        self.tidy();
    }
}
