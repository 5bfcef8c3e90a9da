//! How ranks that hold one unique id find each other: the side of the process that made the id. One listener of the process
//! serves all its ids. For each it collects every rank's (rank, size, listener), hands the table to all, hears from each
//! whether it could connect to rank 0, and tells all what came of it. `join` is the ranks' side.

use super::answers::{HELLO, RESULT, TABLE, VERDICT, answer_of, read_answer, read_verdict, verdict_of};
use super::control::{Control, Loop, Ready};
use super::desk::{Desk, Door, Guest, Room, Shortage};
use super::link::{Frame, Link, MOST_STRANGER_BYTES, Receiver};
use super::place::{Cookie, Place, Token, UniqueId, listen, new_cookie};
use super::seat::{Chair, Seat};
use super::used::{remember, use_up, used, word_for};
use super::wire::Reader;
use crate::error::{Error, Kind, Result, ensure};
use crate::platform::process::{PerProcess, Watched, spare};
use crate::settings;
use rustix::io::Errno;
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A connection that has not shown the cookie by then is dropped.
const PROOF: Duration = Duration::from_secs(5);
/// And one that was taken by the reserve by then, whatever it has shown: others wait for its place.
const HURRY: Duration = Duration::from_secs(1);
/// A rank that failed leaves the others so long to go, and to come.
const FAREWELL: Duration = Duration::from_millis(200);
const LATECOMERS: Duration = Duration::from_secs(1);
/// So long no connection can be taken before those who are here learn of it.
const DRY: Duration = Duration::from_millis(500);

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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn current() -> Option<Arc<Reception>> {
    locked(RECEPTION.get()).clone()
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
        reception.desk().rooms.insert(token.cookie, Room::new(control));
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
    use_up(cookie)
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

/// A seat for a rank of this process at the rendezvous of the id, if that is here.
pub(super) fn sit_down(cookie: &Cookie) -> Option<Chair> {
    let reception = current()?;
    let mut desk = reception.desk();
    if !desk.rooms.contains_key(cookie) {
        return None;
    }
    let (tag, seat) = (desk.new_tag(), Arc::new(Seat::default()));
    desk.add(tag, Door::Seat(seat.clone()), None);
    drop(desk);
    Some(Chair {
        seat,
        rendezvous: reception,
        tag,
    })
}

/// Waits a moment until the rendezvous of a failed creation, if it is of this process, has closed its connections; where this
/// process lacks something and may end for it, also until the ranks came that have not heard so.
pub fn await_end(cookie: &Cookie, error: &Error) {
    let patient = !matches!(
        error.kind,
        Kind::InvalidValue | Kind::InvalidInput | Kind::Communication
    );
    let begun = Instant::now();
    while let Some(reception) = current() {
        let desk = reception.desk();
        let its = |g: &Guest| g.whose.is_none_or(|w| w.0 == *cookie);
        let guests_stay = desk.guests.values().any(its);
        let ranks_miss = patient && desk.rooms.get(cookie).is_some_and(Room::is_awaited);
        drop(desk);
        let most = match (guests_stay, ranks_miss) {
            (false, false) => return,
            (_, true) => LATECOMERS,
            (true, false) => FAREWELL,
        };
        if begun.elapsed() > most {
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
    desk.reserve = None;
    let guests: Vec<Guest> = desk.guests.drain().map(|(_, g)| g).collect();
    drop(desk);
    guests.iter().for_each(|g| g.door.close());
}

impl Reception {
    /// The reception of the process; `control` keeps its thread alive meanwhile.
    fn open(control: &Control) -> Result<Arc<Reception>> {
        let no_reserve = |e| Error::system("keeping a descriptor in reserve", std::io::Error::from(e));
        let mut current = locked(RECEPTION.get());
        if let Some(open) = current
            .as_ref()
            .filter(|r| Arc::ptr_eq(&r.shared, control.shared()))
        {
            open.desk().refill().map_err(no_reserve)?;
            return Ok(open.clone());
        }
        let listener = listen()?;
        listener
            .set_nonblocking(true)
            .map_err(|e| Error::system("making a listener non-blocking", e))?;
        let (shared, place) = (control.shared().clone(), Place::of(&listener)?);
        let token = shared.new_token();
        let mut desk = Desk {
            listener: Some(listener.into_descriptor()),
            guests: HashMap::new(),
            rooms: HashMap::new(),
            next_tag: 0,
            reserve: None,
            short: None,
        };
        desk.refill().map_err(no_reserve)?;
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

    /// Takes in who waits. Where there is no descriptor for that, one at a time by the reserve: everybody can be told.
    fn accept(&self, desk: &mut Desk) {
        let _ = desk.refill();
        let mut by_reserve = None;
        while let Some(listener) = &desk.listener {
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let accept = || rustix::net::accept_with(listener, flags).map(TcpStream::from);
            match Watched::open(accept) {
                Ok(stream) => {
                    let tag = desk.new_tag();
                    let receiver: Weak<dyn Receiver> = self.me.clone();
                    if let Ok(link) = Link::start(&self.shared, stream, tag, receiver, MOST_STRANGER_BYTES) {
                        desk.add(tag, Door::Link(link), by_reserve);
                    }
                    if by_reserve.is_some() {
                        return;
                    }
                }
                Err(why @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    let since = Instant::now();
                    desk.short.get_or_insert(Shortage { why, since });
                    self.shared.watch_reading(self.token, listener.as_fd(), false);
                    if by_reserve.is_some() || desk.reserve.take().is_none() {
                        return;
                    }
                    by_reserve = Some(why);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    if desk.short.take().is_some() {
                        self.shared.watch_reading(self.token, listener.as_fd(), true);
                    }
                    let _ = desk.refill();
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// During a shortage: who waits is tried again. If nobody can be taken in even to be told, those who are here learn of it; what
    /// they give back then serves the others.
    fn try_again(&self, desk: &mut Desk) {
        if desk.short.is_none() || desk.guests.values().any(|g| g.shortage.is_some()) {
            return;
        }
        self.accept(desk);
        let Some(short) = desk.short.filter(|s| s.since.elapsed() > DRY) else {
            return;
        };
        if desk.guests.values().all(|g| g.shortage.is_none()) {
            let begun = desk.rooms.iter().filter(|(_, room)| room.size.is_some());
            let begun: Vec<Cookie> = begun.map(|(cookie, _)| *cookie).collect();
            for cookie in &begun {
                self.settle(desk, cookie, answer_of(&Err(Shortage::error(short.why))));
            }
        }
    }

    /// Gives `body` to all guests of the id as their answer, unless they have one.
    fn settle(&self, desk: &mut Desk, cookie: &Cookie, body: Vec<u8>) {
        if desk.rooms.get(cookie).is_none_or(|room| room.answer.is_some()) {
            return;
        }
        let here = desk.guests_of(cookie).map(|(guest, rank)| {
            guest.door.send(TABLE, &body);
            rank
        });
        let here: Vec<i32> = here.collect();
        if let Some(room) = desk.rooms.get_mut(cookie) {
            room.answered += here.len();
            room.told.extend(here);
            room.answer = Some(body);
        }
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
            let word = word_for(&cookie, rank)?;
            guest.whose = Some((cookie, rank));
            guest.door.send(TABLE, &answer_of(&Err(word)));
            return Some(());
        };
        guest.whose = Some((cookie, rank));
        if let Some(body) = &room.answer {
            guest.door.send(TABLE, body);
            room.answered += 1;
            room.told.insert(rank);
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
        } else if let Some(why) = guest.shortage {
            Some(Shortage::error(why))
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
        room.result = Some(body.clone());
        desk.guests_of(cookie)
            .for_each(|(guest, _)| guest.door.send(RESULT, &body));
    }

    /// Ends what is over: everybody was told and has gone, or nobody will come any more.
    fn tidy(&self) {
        let mut desk = self.desk();
        let now = Instant::now();
        let over: Vec<Cookie> = desk
            .rooms
            .iter()
            .filter(|(cookie, room)| {
                let all_told = !room.is_awaited() && desk.guests_of(cookie).next().is_none();
                room.answer.is_some() && (all_told || now > room.deadline)
            })
            .map(|(cookie, _)| *cookie)
            .collect();
        let mut rooms: Vec<Room> = Vec::new();
        for cookie in &over {
            rooms.extend(desk.rooms.remove(cookie).map(|mut room| {
                let failure = room.answer.as_ref().and_then(|a| read_answer(a, 0).err());
                remember(cookie, failure, std::mem::take(&mut room.told));
                room
            }));
        }
        drop(desk);
        // The last use of the control thread may go here: outside all locks.
        rooms.into_iter().for_each(|r| drop(r.control));
    }

    fn gone(&self, tag: usize, why: &str) {
        let mut desk = self.desk();
        let Some(guest) = desk.guests.remove(&tag) else {
            return;
        };
        drop(guest.door);
        match &desk.listener {
            // The descriptor that is free in a moment serves the next one in the queue.
            Some(listener) if desk.short.is_some() => {
                self.shared.watch_reading(self.token, listener.as_fd(), true)
            }
            _ => spare::restore(),
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
        desk.short.is_some() || !desk.rooms.is_empty() || !desk.guests.is_empty()
    }

    fn tick(&self) {
        {
            let mut desk = self.desk();
            desk.guests.retain(|_, g| {
                let keep = match g.shortage {
                    Some(_) => g.since.elapsed() < HURRY,
                    None => g.whose.is_some() || g.since.elapsed() < PROOF,
                };
                if !keep {
                    g.door.close();
                }
                keep
            });
            self.try_again(&mut desk);
            let late = |room: &Room| Instant::now() > room.deadline && room.answer.is_none();
            let late: Vec<Cookie> = desk
                .rooms
                .iter()
                .filter(|(_, r)| late(r))
                .map(|(c, _)| *c)
                .collect();
            for cookie in late {
                let error = desk.rooms[&cookie].missing();
                self.settle(&mut desk, &cookie, answer_of(&Err(error)));
            }
        }
        self.tidy();
    }
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
            guest.door.close();
        }
    }

    fn closed(&self, tag: usize, why: String) {
        self.gone(tag, &why);
        self.tidy();
    }
}
