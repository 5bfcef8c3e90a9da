//! The connections of a new communicator: every rank to rank 0, shown to be a member by the cookie.

use super::join::{connect, connection_error};
use super::place::{COOKIE_BYTES, Cookie, Place};
use crate::error::{Error, Result, fail};
use crate::platform::process::Watched;
use crate::settings;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PROOF_BYTES: usize = COOKIE_BYTES + 4;
/// A connection that has not shown the cookie by then is dropped.
const PROOF: Duration = Duration::from_secs(5);
/// So many connections that have shown nothing yet are kept besides those of the ranks.
const MOST_STRANGERS: usize = 64;

/// A member: connects to rank 0's listener and shows the cookie. Does not wait for rank 0 to take the connection.
pub fn connect_to_hub(cookie: &Cookie, rank: usize, hub: &Place) -> Result<Watched<TcpStream>> {
    let lost = |e: std::io::Error| connection_error(&e, &format!("connecting rank {rank} to rank 0"));
    let mut stream = connect(&hub.candidates()?).map_err(lost)?;
    let mut proof = [0u8; PROOF_BYTES];
    proof[..COOKIE_BYTES].copy_from_slice(cookie);
    proof[COOKIE_BYTES..].copy_from_slice(&(rank as u32).to_le_bytes());
    stream
        .set_nodelay(true)
        .and_then(|()| stream.write_all(&proof))
        .map_err(lost)?;
    Ok(stream)
}

/// A connection to rank 0 that has not shown the cookie yet.
struct Stranger {
    stream: Watched<TcpStream>,
    proof: [u8; PROOF_BYTES],
    shown_bytes: usize,
    since: Instant,
}

impl Stranger {
    /// Reads what is there. True once the proof is whole.
    /// # Errors
    /// The stream's, or that its time is over.
    fn show(&mut self) -> std::io::Result<bool> {
        while self.shown_bytes < PROOF_BYTES {
            match self.stream.read(&mut self.proof[self.shown_bytes..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(came) => self.shown_bytes += came,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.since.elapsed() < PROOF => {
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// The rank of the proof, if it is one.
    fn rank(&self, cookie: &Cookie, size: usize) -> Option<usize> {
        let rank = u32::from_le_bytes(*self.proof.last_chunk()?) as usize;
        (self.proof[..COOKIE_BYTES] == cookie[..] && (1..size).contains(&rank)).then_some(rank)
    }
}

/// Rank 0: takes the connections of ranks 1 to size - 1; by rank, none at 0. `watch` gets the first rank that is missing and
/// tells of a failure noticed elsewhere. Strangers delay nobody: all are heard at the same time.
pub fn accept_members(
    cookie: &Cookie,
    size: usize,
    listener: &TcpListener,
    watch: &dyn Fn(usize) -> Option<Error>,
) -> Result<Vec<Option<Watched<TcpStream>>>> {
    let mut members: Vec<Option<Watched<TcpStream>>> = (0..size).map(|_| None).collect();
    let mut strangers: VecDeque<Stranger> = VecDeque::new();
    listener
        .set_nonblocking(true)
        .map_err(|e| Error::system("making a listener non-blocking", e))?;
    let deadline = Instant::now() + settings::rendezvous_timeout();
    while let Some(missing) = members.iter().skip(1).position(Option::is_none) {
        let rank = missing + 1;
        if let Some(error) = watch(rank) {
            return Err(error);
        }
        if Instant::now() > deadline {
            let waited = settings::rendezvous_timeout().as_secs();
            fail!(
                Communication,
                "rank {rank} did not connect to rank 0 within {waited} s (WHOLEMEMORY_TIMEOUT_S)"
            );
        }
        await_news(listener, &strangers);
        take_strangers(listener, &mut strangers, size + MOST_STRANGERS)?;
        for mut stranger in std::mem::take(&mut strangers) {
            match stranger.show() {
                Ok(false) => strangers.push_back(stranger),
                Ok(true) => {
                    if let Some(rank) = stranger.rank(cookie, size) {
                        members[rank].get_or_insert(stranger.stream);
                    }
                }
                Err(_) => {}
            }
        }
    }
    Ok(members)
}

/// Waits a moment for a new connection or for bytes of a stranger.
fn await_news(listener: &TcpListener, strangers: &VecDeque<Stranger>) {
    let mut waits: Vec<PollFd<'_>> = strangers
        .iter()
        .map(|s| PollFd::new(&*s.stream, PollFlags::IN))
        .collect();
    waits.push(PollFd::new(listener, PollFlags::IN));
    let tick = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let _ = poll(&mut waits, Some(&tick));
}

/// Takes what waits at the listener; of more than `most`, the oldest go.
fn take_strangers(listener: &TcpListener, strangers: &mut VecDeque<Stranger>, most: usize) -> Result<()> {
    for _ in 0..most {
        match Watched::open(|| listener.accept().map(|(stream, _)| stream)) {
            Ok(stream) => {
                stream
                    .set_nonblocking(true)
                    .map_err(|e| Error::system("making a socket non-blocking", e))?;
                strangers.push_back(Stranger {
                    stream,
                    proof: [0; PROOF_BYTES],
                    shown_bytes: 0,
                    since: Instant::now(),
                });
                if strangers.len() > most {
                    strangers.pop_front();
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(e) => return Err(Error::system("taking the connection of a rank", e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::place::{listen, new_cookie};
    use super::*;

    #[test]
    fn strangers_delay_nobody() {
        let listener = listen().unwrap();
        let (cookie, place) = (new_cookie().unwrap(), Place::of(&listener).unwrap());
        let silent: Vec<Watched<TcpStream>> = (0..9)
            .map(|_| connect(&place.candidates().unwrap()).unwrap())
            .collect();
        let mut liar = connect(&place.candidates().unwrap()).unwrap();
        liar.write_all(&[7; PROOF_BYTES + 4]).unwrap();
        let mut slow = connect(&place.candidates().unwrap()).unwrap();
        slow.write_all(&cookie[..5]).unwrap();
        let start = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| connect_to_hub(&cookie, 1, &place).map(drop));
            s.spawn(|| {
                // A member whose proof comes in pieces is none the less one.
                std::thread::sleep(Duration::from_millis(100));
                slow.write_all(&cookie[5..]).unwrap();
                slow.write_all(&2u32.to_le_bytes()).unwrap();
            });
            let members = accept_members(&cookie, 3, &listener, &|_| None).unwrap();
            assert_eq!(members.iter().filter(|m| m.is_some()).count(), 2);
        });
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        drop(silent);
    }
}
