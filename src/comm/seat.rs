//! A rank's line to the rendezvous: a connection, or a seat where the rank is a thread of the very process that made the id.
//! A seat takes no descriptor: the rank can come, and tell the others why it fails, where the process has none left.

use super::link::{Frame, HEADER_BYTES, MOST_BODY_BYTES, Receiver};
use crate::platform::process::Watched;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Inbox {
    frames: VecDeque<Frame>,
    closed: bool,
}

/// Where the rendezvous leaves what it sends to a rank of its process.
#[derive(Default)]
pub struct Seat {
    inbox: Mutex<Inbox>,
    bell: Condvar,
}

impl Seat {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, frame: &Frame) {
        self.inbox().frames.push_back(frame.clone());
        self.bell.notify_all();
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.inbox().closed = true;
        self.bell.notify_all();
    }

    fn take(&self, patience: Duration) -> Result<Frame> {
        let deadline = Instant::now() + patience;
        let mut inbox = self.inbox();
        loop {
            if let Some(frame) = inbox.frames.pop_front() {
                return Ok(frame);
            }
            if inbox.closed {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let woken = self.bell.wait_timeout(inbox, left);
            inbox = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A seat that is taken; the rendezvous sees the end of it as it sees the end of a connection.
pub struct Chair {
    pub seat: Arc<Seat>,
    pub rendezvous: Arc<dyn Receiver>,
    pub tag: usize,
}

impl Drop for Chair {
    fn drop(&mut self) {
        self.rendezvous.closed(self.tag, "closed".into());
    }
}

pub enum Line {
    Stream(Watched<TcpStream>),
    Chair(Chair),
}

impl Line {
    pub fn send(&self, frame: Frame) -> Result<()> {
        match self {
            Line::Stream(stream) => (&mut &**stream).write_all(&frame.encode()),
            Line::Chair(chair) => {
                chair.rendezvous.frame(chair.tag, frame);
                Ok(())
            }
        }
    }

    /// The next message.
    /// # Errors
    /// `TimedOut` or `WouldBlock` once `patience` is over; others where the line has ended.
    pub fn receive(&self, patience: Duration) -> Result<Frame> {
        match self {
            Line::Stream(stream) => stream
                .set_read_timeout(Some(patience))
                .and_then(|()| read_frame(stream)),
            Line::Chair(chair) => chair.seat.take(patience),
        }
    }

    /// The next message if it is here. Does not wait, and takes no descriptor.
    /// # Errors
    /// The line has ended.
    pub fn look(&self) -> Result<Option<Frame>> {
        let waits = |e: &Error| {
            matches!(
                e.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
            )
        };
        let came = match self {
            Line::Chair(chair) => chair.seat.take(Duration::ZERO),
            Line::Stream(stream) => {
                stream.set_nonblocking(true)?;
                let peeked = stream.peek(&mut [0u8; HEADER_BYTES]);
                stream.set_nonblocking(false)?;
                match peeked {
                    Ok(HEADER_BYTES..) => read_frame(stream),
                    Ok(1..) => return Ok(None),
                    Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                    Err(e) => Err(e),
                }
            }
        };
        match came {
            Ok(frame) => Ok(Some(frame)),
            Err(e) if waits(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn read_frame(mut stream: &TcpStream) -> Result<Frame> {
    let garbage = |why: String| Error::new(ErrorKind::InvalidData, why);
    let mut header = [0u8; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let (kind, sequence, len) = Frame::header(&header, MOST_BODY_BYTES)
        .map_err(garbage)?
        .expect("a whole header");
    let mut body = vec![0u8; len];
    stream.read_exact(&mut body)?;
    Ok(Frame { kind, sequence, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_brings_frames_in_order_and_then_its_end() {
        let seat = Arc::new(Seat::default());
        let frame = |sequence| Frame {
            kind: 17,
            sequence,
            body: Vec::new(),
        };
        let kind = |waited: Result<Frame>| waited.unwrap_err().kind();
        assert_eq!(kind(seat.take(Duration::ZERO)), ErrorKind::TimedOut);
        let begun = Instant::now();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| [(); 2].map(|()| seat.take(Duration::from_secs(60)).unwrap().sequence));
            seat.put(&frame(1));
            seat.put(&frame(2));
            assert_eq!(waiting.join().unwrap(), [1, 2]);
            let waiting = s.spawn(|| kind(seat.take(Duration::from_secs(60))));
            seat.close();
            assert_eq!(waiting.join().unwrap(), ErrorKind::UnexpectedEof);
        });
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
