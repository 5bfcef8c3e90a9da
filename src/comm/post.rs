//! How descriptors travel between the ranks of a host: datagrams on abstract Unix sockets, with cookie and user checked.
//! Nothing has a name in the file system; what is in flight when a process dies, the kernel drops.

use super::place::{COOKIE_BYTES, Cookie, hash};
use crate::error::{Error, Result, fail};
use crate::platform::process::{Descriptor, Watched, take_only_letters_that_begin_with};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr,
    socket_with, sockopt,
};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// Letters a box may hold at a time; the kernel's default queue takes 10.
const BATCH: usize = 8;
const LETTER_BYTES: usize = COOKIE_BYTES + 4 + 8;

/// The letter box of one rank of a communicator.
pub struct Post {
    socket: Descriptor,
    cookie: Cookie,
    rank: usize,
    /// Descriptors that came ahead of their turn, by (exchange, sender).
    early: Mutex<BTreeMap<(u64, usize), OwnedFd>>,
}

/// Everybody on the host can see the names of sockets: this one does not give the cookie away.
fn address(cookie: &Cookie, rank: usize) -> Result<SocketAddrUnix> {
    let name = format!("wholememory-{:016x}-{rank}", hash(cookie));
    SocketAddrUnix::new_abstract_name(name.as_bytes())
        .map_err(|e| Error::system("naming an abstract Unix socket", e))
}

impl Post {
    /// Opens the letter box of `rank` in the communicator that `cookie` belongs to.
    /// # Errors
    /// SYSTEM_ERROR.
    pub fn open(cookie: Cookie, rank: usize) -> Result<Post> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Watched::open(|| socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None))
            .map_err(|e| Error::system("opening a Unix socket", e))?;
        sockopt::set_socket_passcred(&*socket, true).map_err(|e| Error::system("SO_PASSCRED", e))?;
        // Before it has a name: strangers' letters would fill the box.
        take_only_letters_that_begin_with(socket.as_fd(), &cookie);
        bind(&*socket, &address(&cookie, rank)?)
            .map_err(|e| Error::system("binding an abstract Unix socket", e))?;
        Ok(Post {
            socket: socket.into_descriptor(),
            cookie,
            rank,
            early: Mutex::default(),
        })
    }

    /// Tries to put `fd` into the box of `to`; false if that box is full at the moment.
    /// # Errors
    /// SYSTEM_ERROR if the box cannot be reached (another network namespace, a closed one).
    fn try_send(&self, to: usize, exchange: u64, fd: BorrowedFd<'_>) -> Result<bool> {
        let mut letter = [0u8; LETTER_BYTES];
        letter[..COOKIE_BYTES].copy_from_slice(&self.cookie);
        letter[COOKIE_BYTES..COOKIE_BYTES + 4].copy_from_slice(&(self.rank as u32).to_le_bytes());
        letter[COOKIE_BYTES + 4..].copy_from_slice(&exchange.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let to_address = address(&self.cookie, to)?;
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg_addr(
                &self.socket,
                &to_address,
                &[IoSlice::new(&letter)],
                &mut ancillary,
                flags,
            ) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(e) => return Err(Error::system(format!("handing a descriptor to rank {to}"), e)),
            }
        }
    }

    /// Takes whatever lies in the box. Strangers' letters are dropped.
    /// # Errors
    /// SYSTEM_ERROR if a descriptor was lost on its way (the process has too many open).
    fn empty_box(&self) -> Result<()> {
        loop {
            let mut letter = [0u8; LETTER_BYTES];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4), ScmCredentials(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut slices = [IoSliceMut::new(&mut letter)];
            let got = match recvmsg(&self.socket, &mut slices, &mut ancillary, flags) {
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(Error::system("receiving a descriptor", e)),
            };
            let (mut fds, mut user) = (Vec::new(), None);
            for message in ancillary.drain() {
                match message {
                    RecvAncillaryMessage::ScmRights(rights) => fds.extend(rights),
                    RecvAncillaryMessage::ScmCredentials(c) => user = Some(c.uid),
                    _ => {}
                }
            }
            let known = got.bytes == LETTER_BYTES && letter[..COOKIE_BYTES] == self.cookie;
            if !known || user != Some(rustix::process::geteuid()) {
                continue;
            }
            let from = u32::from_le_bytes(*letter[COOKIE_BYTES..].first_chunk().expect("4 bytes")) as usize;
            let exchange = u64::from_le_bytes(*letter[COOKIE_BYTES + 4..].first_chunk().expect("8 bytes"));
            match fds.pop() {
                Some(fd) if !got.flags.contains(ReturnFlags::CTRUNC) => {
                    self.early
                        .lock()
                        .unwrap_or_else(|e| e.into_inner())
                        .insert((exchange, from), fd);
                }
                _ => fail!(
                    System,
                    "the descriptor of rank {from} was lost on its way: this process has too many open files"
                ),
            }
        }
    }

    /// The descriptor that `from` sent in `exchange`, if it is here.
    pub fn take(&self, exchange: u64, from: usize) -> Result<Option<OwnedFd>> {
        self.empty_box()?;
        Ok(self
            .early
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .remove(&(exchange, from)))
    }

    /// Forgets what came for `exchange` or an earlier one.
    pub fn forget(&self, exchange: u64) {
        self.early
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .retain(|(e, _), _| *e > exchange);
    }

    /// Hands `fd` to `to`, waiting a little for room in its box.
    /// # Errors
    /// SYSTEM_ERROR if the box cannot be reached or stays full.
    pub fn send(&self, to: usize, exchange: u64, fd: BorrowedFd<'_>) -> Result<()> {
        for _ in 0..2_000 {
            if self.try_send(to, exchange, fd)? {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        fail!(System, "the letter box of rank {to} stayed full for 2 s")
    }

    /// One rank's part of an exchange: every giver's descriptor reaches every rank. Letters go out a few at a time, then
    /// all ranks `agree` that theirs are out, so nobody ever waits for a letter that was not sent.
    pub fn exchange(
        &self,
        exchange: u64,
        mine: Option<BorrowedFd<'_>>,
        givers: &[bool],
        agree: &dyn Fn(Result<()>) -> Result<()>,
    ) -> Result<Vec<Option<OwnedFd>>> {
        let size = givers.len();
        let mut got: Vec<Option<OwnedFd>> = givers.iter().map(|_| None).collect();
        let mut outcome = Ok(());
        if let Some(fd) = mine {
            match fd.try_clone_to_owned() {
                Ok(own) => got[self.rank] = Some(own),
                Err(e) => outcome = Err(Error::system("duplicating a descriptor", e)),
            }
        }
        let steps: Vec<usize> = (1..size).collect();
        for batch in steps.chunks(BATCH) {
            let sent = match mine {
                Some(fd) => batch
                    .iter()
                    .try_for_each(|s| self.send((self.rank + s) % size, exchange, fd)),
                None => Ok(()),
            };
            agree(sent)?;
            for from in batch
                .iter()
                .map(|s| (self.rank + size - s) % size)
                .filter(|r| givers[*r])
            {
                match self.take(exchange, from) {
                    Ok(Some(fd)) => got[from] = Some(fd),
                    Ok(None) => {
                        outcome = outcome.and(Err(Error::system(
                            "receiving",
                            format!("the descriptor of rank {from} did not arrive"),
                        )))
                    }
                    Err(e) => outcome = outcome.and(Err(e)),
                }
            }
        }
        agree(outcome)?;
        Ok(got)
    }
}

impl AsFd for Post {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::new_cookie;
    use super::*;
    use crate::error::Kind;
    use rustix::fs::MemfdFlags;

    #[test]
    fn every_rank_gets_every_givers_descriptor() {
        let cookie = new_cookie().unwrap();
        let posts: Vec<Post> = (0..14).map(|r| Post::open(cookie, r).unwrap()).collect();
        let givers: Vec<bool> = (0..14).map(|r| r % 5 != 3).collect();
        let gate = std::sync::Barrier::new(posts.len());
        std::thread::scope(|s| {
            for (rank, post) in posts.iter().enumerate() {
                let (givers, gate) = (&givers, &gate);
                s.spawn(move || {
                    for exchange in 1..=5u64 {
                        let fd = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
                        rustix::io::write(&fd, &[rank as u8, exchange as u8]).unwrap();
                        let mine = givers[rank].then(|| fd.as_fd());
                        let all = post
                            .exchange(exchange, mine, givers, &|r| {
                                gate.wait();
                                r
                            })
                            .unwrap();
                        for (from, fd) in all.iter().enumerate() {
                            assert_eq!(fd.is_some(), givers[from]);
                            if let Some(fd) = fd {
                                let mut bytes = [0u8; 2];
                                rustix::io::pread(fd, &mut bytes[..], 0).unwrap();
                                assert_eq!(bytes, [from as u8, exchange as u8]);
                            }
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_box_that_is_not_there_is_an_error() {
        let post = Post::open(new_cookie().unwrap(), 0).unwrap();
        assert_eq!(post.try_send(1, 1, post.as_fd()).unwrap_err().kind, Kind::System);
    }

    #[test]
    fn strangers_letters_take_no_room() {
        let cookie = new_cookie().unwrap();
        let (box_of_0, box_of_1) = (Post::open(cookie, 0).unwrap(), Post::open(cookie, 1).unwrap());
        let stranger = std::os::unix::net::UnixDatagram::unbound().unwrap();
        use std::os::linux::net::SocketAddrExt;
        let name = address(&cookie, 1).unwrap();
        let name = std::os::unix::net::SocketAddr::from_abstract_name(name.abstract_name().unwrap()).unwrap();
        stranger.set_nonblocking(true).unwrap();
        for bytes in [0, 1, LETTER_BYTES, 9000] {
            for _ in 0..50 {
                stranger.send_to_addr(&vec![7; bytes], &name).unwrap();
            }
        }
        let file = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
        assert!(box_of_0.try_send(1, 3, file.as_fd()).unwrap());
        assert!(box_of_1.take(3, 0).unwrap().is_some());
        let shown = name.as_abstract_name().unwrap();
        assert!(!shown.windows(8).any(|w| cookie.windows(8).any(|c| c == w)));
    }
}
