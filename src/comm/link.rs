//! One TCP connection between two ranks: frames out without blocking, frames in through the control thread.

use super::control::{Loop, Ready};
use crate::error::{Error, Result};
use crate::platform::process::{Descriptor, Watched};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A message: its kind, the number of the collective step it belongs to, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub sequence: u64,
    pub body: Vec<u8>,
}

const MAGIC: u32 = 0x574d_4c31;
pub const HEADER_BYTES: usize = 17;
/// Above this a length is taken for garbage, from anybody and from one who has not shown yet that he belongs here.
pub const MOST_BODY_BYTES: usize = 256 << 20;
pub const MOST_STRANGER_BYTES: usize = 1 << 20;
/// One link is read this often before the others have their turn.
const READS_AT_A_TIME: usize = 64;

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.body.len());
        out.extend(MAGIC.to_le_bytes());
        out.push(self.kind);
        out.extend(self.sequence.to_le_bytes());
        out.extend((self.body.len() as u32).to_le_bytes());
        out.extend(&self.body);
        out
    }

    /// Takes one frame off the front of `bytes`; `None` if it is not whole yet.
    pub fn take(bytes: &mut Vec<u8>, most_body_bytes: usize) -> std::result::Result<Option<Frame>, String> {
        let Some((kind, sequence, len)) = Frame::header(bytes, most_body_bytes)? else {
            return Ok(None);
        };
        if bytes.len() < HEADER_BYTES + len {
            return Ok(None);
        }
        let body = bytes[HEADER_BYTES..HEADER_BYTES + len].to_vec();
        bytes.drain(..HEADER_BYTES + len);
        Ok(Some(Frame { kind, sequence, body }))
    }

    /// Kind, sequence and body length of the header at the front of `bytes`.
    pub fn header(
        bytes: &[u8],
        most_body_bytes: usize,
    ) -> std::result::Result<Option<(u8, u64, usize)>, String> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let word = |i: usize| u32::from_le_bytes(header[i..i + 4].try_into().expect("4 bytes"));
        let len = word(13) as usize;
        if word(0) != MAGIC || len > most_body_bytes {
            return Err("it sent bytes that are no message of this library".into());
        }
        Ok(Some((
            header[4],
            u64::from(word(5)) | u64::from(word(9)) << 32,
            len,
        )))
    }
}

/// Who gets what a link brings; called from the control thread.
pub trait Receiver: Send + Sync {
    fn frame(&self, tag: usize, frame: Frame);

    /// The connection ended; `why` completes the sentence "the connection ...".
    fn closed(&self, tag: usize, why: String);
}

pub struct Link {
    fd: Descriptor,
    tag: usize,
    token: u64,
    shared: Arc<Loop>,
    receiver: Weak<dyn Receiver>,
    most_body_bytes: usize,
    outgoing: Mutex<VecDeque<u8>>,
    incoming: Mutex<Vec<u8>>,
    closed: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Gives the connection to the control thread. `tag` is handed back with everything the link reports. A message with a
    /// longer body than `most_body_bytes` ends the connection.
    pub fn start(
        shared: &Arc<Loop>,
        stream: Watched<TcpStream>,
        tag: usize,
        receiver: Weak<dyn Receiver>,
        most_body_bytes: usize,
    ) -> Result<Arc<Link>> {
        tune(&stream)?;
        stream
            .set_nonblocking(true)
            .map_err(|e| Error::system("making a socket non-blocking", e))?;
        let token = shared.new_token();
        let link = Arc::new(Link {
            fd: stream.into_descriptor(),
            tag,
            token,
            shared: shared.clone(),
            receiver,
            most_body_bytes,
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        shared.watch(token, link.fd.as_fd(), link.clone())?;
        Ok(link)
    }

    /// Queues a frame and sends what the system takes at once. A dead peer is noticed by the reading side, not here.
    pub fn send(&self, frame: &Frame) {
        let mut outgoing = locked(&self.outgoing);
        let idle = outgoing.is_empty();
        outgoing.extend(frame.encode());
        if idle {
            self.flush(&mut outgoing);
            if !outgoing.is_empty() {
                self.shared.watch_writing(self.token, self.fd.as_fd(), true);
            }
        }
    }

    fn flush(&self, outgoing: &mut VecDeque<u8>) {
        while !outgoing.is_empty() {
            match send(
                &self.fd,
                outgoing.as_slices().0,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(sent) => drop(outgoing.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => outgoing.clear(),
            }
        }
    }

    /// Waits until everything queued has been handed to the system, `most` at the longest.
    pub fn drain(&self, most: Duration) {
        let start = Instant::now();
        while !locked(&self.outgoing).is_empty() && start.elapsed() < most {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the connection from the control thread; the socket closes when the last reference goes.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.shared.forget(self.token, self.fd.as_fd());
        }
    }

    fn receive(&self) -> std::result::Result<(), String> {
        let mut buffer = [0u8; 16 << 10];
        for _ in 0..READS_AT_A_TIME {
            if self.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            match recv(&self.fd, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err("closed".into()),
                Ok((_, got)) => {
                    let mut incoming = locked(&self.incoming);
                    incoming.extend(&buffer[..got]);
                    while let Some(frame) = Frame::take(&mut incoming, self.most_body_bytes)? {
                        if let Some(receiver) = self.receiver.upgrade() {
                            receiver.frame(self.tag, frame);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(e) => return Err(format!("failed: {e}")),
            }
        }
        // The rest is reported again.
        Ok(())
    }
}

impl Ready for Link {
    fn ready(&self) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        if let Err(why) = self.receive() {
            self.close();
            if let Some(receiver) = self.receiver.upgrade() {
                receiver.closed(self.tag, why);
            }
            return;
        }
        let mut outgoing = locked(&self.outgoing);
        if !outgoing.is_empty() {
            self.flush(&mut outgoing);
            if outgoing.is_empty() {
                self.shared.watch_writing(self.token, self.fd.as_fd(), false);
            }
        }
    }
}

/// No delay; and for peers on other hosts keep-alive probes that find a dead host within 5 s.
fn tune(stream: &TcpStream) -> Result<()> {
    let failed = |e: Errno| Error::system("setting socket options", e);
    sockopt::set_tcp_nodelay(stream, true).map_err(failed)?;
    let local = stream
        .peer_addr()
        .map(|a| a.ip().to_canonical().is_loopback())
        .unwrap_or(true);
    if !local {
        sockopt::set_socket_keepalive(stream, true).map_err(failed)?;
        sockopt::set_tcp_keepidle(stream, Duration::from_secs(1)).map_err(failed)?;
        sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1)).map_err(failed)?;
        sockopt::set_tcp_keepcnt(stream, 3).map_err(failed)?;
        sockopt::set_tcp_user_timeout(stream, 5_000).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_cut() {
        let frames: Vec<Frame> = (0..5u8)
            .map(|i| Frame {
                kind: i,
                sequence: u64::MAX - u64::from(i),
                body: vec![i; 1000 * i as usize],
            })
            .collect();
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for piece in [1, 7, 16, 17, 18, 4096] {
            let (mut buffer, mut got) = (Vec::new(), Vec::new());
            for chunk in bytes.chunks(piece) {
                buffer.extend(chunk);
                while let Some(frame) = Frame::take(&mut buffer, MOST_BODY_BYTES).unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, frames);
            assert!(buffer.is_empty());
        }
        assert!(Frame::take(&mut vec![0x55; 100], MOST_BODY_BYTES).is_err());
        let mut long = frames[2].encode();
        assert!(Frame::take(&mut long.clone(), 1999).is_err());
        assert!(Frame::take(&mut long, 2000).unwrap().is_some());
    }
}
