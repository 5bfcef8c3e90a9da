//! How a rank comes to its communicator: it announces itself under the unique id, connects to rank 0, and learns whether
//! everybody could.

use super::answers::{HELLO, RESULT, TABLE, VERDICT, read_answer, read_verdict, verdict_of};
use super::link::Frame;
use super::place::{Place, Token, is_short_of_files};
use super::rendezvous::sit_down;
use super::seat::Line;
use super::used::word_for;
use super::wire::Writer;
use crate::error::{Error, Kind, Result, fail};
use crate::platform::process::{Watched, spare};
use crate::settings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long one address may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long ranks that hold the table may take to connect to rank 0 once the process that made the id has ended.
const ALONE: Duration = Duration::from_secs(4);

/// A rank that has announced itself and knows the others' places.
pub struct Guest {
    line: Line,
    /// Listeners by rank; only that of rank 0 is filled.
    pub places: Vec<Place>,
    /// The result, if it came before this rank's own verdict.
    early: RefCell<Option<Frame>>,
    /// When the process that made the id was found to have ended.
    ended: Cell<Option<Instant>>,
}

/// Connects to the first of the addresses that answers.
pub fn connect(candidates: &[SocketAddr]) -> std::io::Result<Watched<TcpStream>> {
    let mut last = std::io::Error::new(ErrorKind::AddrNotAvailable, "no address to connect to");
    for address in candidates {
        let mut tried = connect_to(address);
        if tried.as_ref().is_err_and(is_short_of_files) && spare::release() {
            tried = connect_to(address);
        }
        match tried {
            Ok(stream) => return Ok(stream),
            // The first refusal says most: the second loopback address is a mere fall-back.
            Err(e) if last.kind() != ErrorKind::ConnectionRefused => last = e,
            Err(_) => {}
        }
    }
    Err(last)
}

/// In two steps, so that a forked child knows of the socket from the first on.
fn connect_to(address: &SocketAddr) -> std::io::Result<Watched<TcpStream>> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = Watched::open(|| socket_with(family, SocketType::STREAM, flags, None).map(TcpStream::from))?;
    match rustix::net::connect(&*stream, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            let deadline = Instant::now() + ANSWER;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let wait = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
                match poll(&mut [PollFd::new(&*stream, PollFlags::OUT)], Some(&wait)) {
                    Ok(0) => return Err(ErrorKind::TimedOut.into()),
                    Ok(_) => break,
                    Err(Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            socket_error(&*stream)??;
        }
        Err(e) => return Err(e.into()),
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// COMMUNICATION_ERROR, or SYSTEM_ERROR where this process itself has no descriptor left.
pub fn connection_error(e: &std::io::Error, what: &str) -> Error {
    let kind = if is_short_of_files(e) {
        Kind::System
    } else {
        Kind::Communication
    };
    match e.kind() {
        ErrorKind::UnexpectedEof => Error::new(kind, format!("{what}: the other end closed the connection")),
        _ => Error::new(kind, format!("{what}: {e}")),
    }
}

/// A line to the rendezvous of the id.
/// # Errors
/// COMMUNICATION_ERROR where nobody answers, SYSTEM_ERROR where this process has no descriptor left to ask with.
fn call(token: &Token) -> Result<Line> {
    if let Some(chair) = sit_down(&token.cookie) {
        return Ok(Line::Chair(chair));
    }
    let candidates = token.place.candidates()?;
    let failed = |e: std::io::Error| {
        if is_short_of_files(&e) {
            return connection_error(&e, "connecting to the process that made the unique id");
        }
        let at = candidates
            .first()
            .map_or("no address".to_owned(), SocketAddr::to_string);
        let ended = if e.kind() == ErrorKind::ConnectionRefused {
            " (the process that made it has ended, or has left all its communicators)"
        } else {
            ""
        };
        connection_error(&e, &format!("nobody answers for the unique id at {at}{ended}"))
    };
    let stream = connect(&candidates).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(Line::Stream(stream))
}

/// Longer than the rendezvous itself waits, whose word says who is missing.
fn patience() -> Duration {
    settings::rendezvous_timeout() + Duration::from_secs(10)
}

/// Announces (rank, size, own listener) under the id and learns everybody's place. `prior` is a failure of the caller's own
/// checks: the rank comes all the same, so that every rank learns of it.
/// # Errors
/// INVALID_VALUE for a used id, a rank twice, sizes that differ; COMMUNICATION_ERROR for ranks that died or never came.
pub fn join(
    token: &Token,
    rank: i32,
    size: i32,
    listener: Option<Place>,
    prior: Result<()>,
) -> Result<Guest> {
    let own = || prior.clone().err().or_else(|| word_for(&token.cookie, rank));
    let line = call(token).map_err(|e| own().unwrap_or(e))?;
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
        body: listener.unwrap_or_default().write(writer).0,
    };
    let patience = patience();
    let answer = line.send(hello).and_then(|()| line.receive(patience)).map_err(|e| {
        let what = match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("the ranks did not meet within {} s", patience.as_secs())
            }
            _ => format!(
                "the process that made the unique id ended, or gave the id up, before all ranks had met: {e}"
            ),
        };
        // A rendezvous that is over closes its connections, also of one that came for an old id.
        own().unwrap_or_else(|| Error::new(Kind::Communication, what))
    })?;
    if answer.kind != TABLE {
        fail!(
            Communication,
            "the rendezvous sent an unexpected message of kind {}",
            answer.kind
        );
    }
    let places = read_answer(&answer.body, size.max(0) as usize);
    prior?;
    Ok(Guest {
        line,
        places: places?,
        early: RefCell::new(None),
        ended: Cell::new(None),
    })
}

impl Guest {
    /// A failure of the others that is known already: then rank `missing` will not come any more. Does not wait.
    pub fn early_failure(&self, missing: usize) -> Option<Error> {
        let result = match self.line.look() {
            Ok(None) => return None,
            Ok(Some(result)) => result,
            // The process that made the id has ended. It may, ranks that live connect without it; if it was a rank
            // itself, nobody else would tell of its death.
            Err(_) => {
                let ended = self.ended.get().unwrap_or_else(Instant::now);
                self.ended.set(Some(ended));
                return (ended.elapsed() > ALONE).then(|| {
                    Error::new(
                        Kind::Communication,
                        format!(
                            "rank {missing} did not connect to rank 0, and the process that made the unique id \
                             ended meanwhile: one of them died"
                        ),
                    )
                });
            }
        };
        let failure = read_verdict(&result.body)?.err();
        *self.early.borrow_mut() = Some(result);
        failure
    }

    /// Tells the others whether this rank is connected, and learns whether all are.
    /// # Errors
    /// The first failure of all ranks, the same on all.
    pub fn conclude<T>(self, mine: Result<T>) -> Result<T> {
        let verdict = verdict_of(&mine.as_ref().map(drop).map_err(Error::clone));
        let result = match self.early.take() {
            Some(early) => Ok(early),
            None => self
                .line
                .send(Frame {
                    kind: VERDICT,
                    sequence: 0,
                    body: verdict,
                })
                .and_then(|()| self.line.receive(patience())),
        };
        match result {
            Ok(frame) if frame.kind == RESULT => {
                let unreadable =
                    || Error::new(Kind::Communication, "the rendezvous sent an unreadable result");
                read_verdict(&frame.body).ok_or_else(unreadable)?.and(mine)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                fail!(
                    Communication,
                    "not all ranks connected within {} s",
                    settings::rendezvous_timeout().as_secs()
                )
            }
            // The process that made the id may end once the ranks have met: they are connected without it.
            _ => mine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::listen;
    use super::*;

    #[test]
    fn an_ended_rendezvous_leaves_four_seconds() {
        let listener = listen().unwrap();
        let stream = connect(&Place::of(&listener).unwrap().candidates().unwrap()).unwrap();
        let (maker, _) = listener.accept().unwrap();
        let guest = Guest {
            line: Line::Stream(stream),
            places: Vec::new(),
            early: RefCell::new(None),
            ended: Cell::new(None),
        };
        assert!(guest.early_failure(2).is_none());
        drop(maker);
        let start = Instant::now();
        let error = loop {
            match guest.early_failure(2) {
                Some(error) => break error,
                None => std::thread::sleep(Duration::from_millis(50)),
            }
            assert!(start.elapsed() < Duration::from_secs(5));
        };
        assert!(start.elapsed() > Duration::from_secs(3));
        assert_eq!(error.kind, Kind::Communication);
        assert!(error.what.contains("rank 2 did not connect"), "{error}");
    }
}
