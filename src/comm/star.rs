//! The connections of a new communicator: every rank to rank 0, shown to be a member by the cookie.

use super::join::{connect, connection_error};
use super::place::{COOKIE_BYTES, Cookie, Place};
use crate::error::{Error, Result, fail};
use crate::settings;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PROOF_BYTES: usize = COOKIE_BYTES + 4;
/// A connection that has not shown the cookie by then is dropped.
const PROOF: Duration = Duration::from_secs(5);

/// A member: connects to rank 0's listener and shows the cookie. Does not wait for rank 0 to take the connection.
pub fn connect_to_hub(cookie: &Cookie, rank: usize, hub: &Place) -> Result<TcpStream> {
    let lost = |e: std::io::Error| connection_error(&e, &format!("connecting rank {rank} to rank 0"));
    let mut stream = connect(&hub.candidates()).map_err(lost)?;
    let mut proof = [0u8; PROOF_BYTES];
    proof[..COOKIE_BYTES].copy_from_slice(cookie);
    proof[COOKIE_BYTES..].copy_from_slice(&(rank as u32).to_le_bytes());
    stream
        .set_nodelay(true)
        .and_then(|()| stream.write_all(&proof))
        .map_err(lost)?;
    Ok(stream)
}

/// Rank 0: takes the connections of ranks 1 to size - 1; by rank, none at 0. `watch` tells of a failure noticed elsewhere.
pub fn accept_members(
    cookie: &Cookie,
    size: usize,
    listener: &TcpListener,
    watch: &dyn Fn() -> Option<Error>,
) -> Result<Vec<Option<TcpStream>>> {
    let mut members: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
    listener
        .set_nonblocking(true)
        .map_err(|e| Error::system("making a listener non-blocking", e))?;
    let deadline = Instant::now() + settings::rendezvous_timeout();
    while let Some(missing) = members.iter().skip(1).position(Option::is_none) {
        if let Some(error) = watch() {
            return Err(error);
        }
        if Instant::now() > deadline {
            let waited = settings::rendezvous_timeout().as_secs();
            let rank = missing + 1;
            fail!(
                Communication,
                "rank {rank} did not connect to rank 0 within {waited} s (WHOLEMEMORY_TIMEOUT_S)"
            );
        }
        let mut waits = [PollFd::new(listener, PollFlags::IN)];
        let tick = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let _ = poll(&mut waits, Some(&tick));
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Some((rank, stream)) = prove(cookie, size, stream) {
                        members[rank].get_or_insert(stream);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => return Err(Error::system("taking the connection of a rank", e)),
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
