//! What the library does to its process: descriptors that a forked child must not keep, threads that take no signals,
//! the addresses of this machine.

use crate::error::{Error, Result, ensure};
use crate::platform::reserve;
use once_cell::race::OnceBox;
use std::cell::UnsafeCell;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;

static EPOCH: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that loaded the library and this one. Objects remember the epoch they were made
/// in; in a later epoch they belong to an ancestor process.
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

static OPEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The registry, while no signal comes: a handler that forks would wait for the registry that its own thread holds.
struct Registry {
    open: MutexGuard<'static, Vec<RawFd>>,
    _signals: BlockedSignals,
}

fn registry() -> Registry {
    let signals = BlockedSignals::block();
    Registry {
        open: OPEN.lock().unwrap_or_else(PoisonError::into_inner),
        _signals: signals,
    }
}

struct Held(UnsafeCell<Option<Registry>>);
// SAFETY: touched only between `before_fork` and its counterpart, by the one thread that forks and holds `OPEN`.
unsafe impl Sync for Held {}
static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let held = registry();
    // SAFETY: this thread holds `OPEN`, so no other fork is between the handlers.
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: as in `before_fork`; the guard is dropped only after the cell was left.
    drop(unsafe { (*HELD.0.get()).take() });
}

/// Closes (never shuts down) what the library holds open: the parent's connections must end with the parent.
extern "C" fn after_fork_in_child() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the child has this thread alone.
    let Some(mut held) = (unsafe { (*HELD.0.get()).take() }) else {
        return;
    };
    for fd in held.open.drain(..) {
        // SAFETY: the registry lists descriptors owned by `Descriptor`s, whose drop leaves them alone in this epoch.
        unsafe { libc::close(fd) };
    }
}

extern "C" fn watch_forks() {
    // SAFETY: the handlers live as long as the library, which is never unloaded (-z nodelete).
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        )
    };
}

/// When the library is loaded: later, a thread could be in there while another one forks, and the child would find it half done.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_FORKS: extern "C" fn() = watch_forks;

/// A value that every process of a chain of forks has for itself. A child must not touch the locks it inherited: one may be
/// held by a thread that only its parent has.
pub struct PerProcess<T: 'static> {
    own: T,
    fresh: fn() -> T,
    child: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// `own` is the value of the process that loaded the library, `fresh` makes the one a child begins with.
    pub const fn new(own: T, fresh: fn() -> T) -> PerProcess<T> {
        PerProcess {
            own,
            fresh,
            child: OnceBox::new(),
        }
    }

    /// The value of this process.
    pub fn get(&self) -> &T {
        let mut process = self;
        for _ in 0..epoch() {
            let next = || Box::new(PerProcess::new((process.fresh)(), process.fresh));
            process = process.child.get_or_init(next);
        }
        &process.own
    }
}

/// An open descriptor of the library that outlives a call. A forked child closes it at once.
#[derive(Debug)]
pub struct Descriptor {
    fd: Option<OwnedFd>,
    epoch: u32,
}

impl Descriptor {
    pub fn new(fd: OwnedFd) -> Descriptor {
        registry().open.push(fd.as_raw_fd());
        Descriptor {
            fd: Some(fd),
            epoch: epoch(),
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("only drop takes it").as_fd()
    }
}

/// The end of a registered descriptor with its `owner`; one of an ancestor's process is closed already.
fn close_registered<T>(owner: T, fd: RawFd, made_in: u32) {
    if made_in != epoch() {
        std::mem::forget(owner);
        return;
    }
    let mut registry = registry();
    if let Some(i) = registry.open.iter().position(|f| *f == fd) {
        registry.open.swap_remove(i);
    }
    drop(owner);
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(owner) = self.fd.take() {
            let fd = owner.as_raw_fd();
            close_registered(owner, fd, self.epoch);
        }
    }
}

/// A socket that is not a [`Descriptor`] yet. A forked child closes it at once too: else the others would not see this process die
/// as long as the child lives.
#[derive(Debug)]
pub struct Watched<T> {
    socket: Option<T>,
    fd: RawFd,
    epoch: u32,
}

impl<T: AsFd + Into<OwnedFd>> Watched<T> {
    pub fn new(socket: T) -> Watched<T> {
        match Watched::open(|| Ok::<T, std::convert::Infallible>(socket)) {
            Ok(watched) => watched,
            Err(never) => match never {},
        }
    }

    /// What `open` makes; nobody forks before it is known. `open` must not wait.
    /// # Errors
    /// Those of `open`.
    pub fn open<E>(open: impl FnOnce() -> std::result::Result<T, E>) -> std::result::Result<Watched<T>, E> {
        let mut registry = registry();
        let socket = open()?;
        let fd = socket.as_fd().as_raw_fd();
        registry.open.push(fd);
        drop(registry);
        Ok(Watched {
            socket: Some(socket),
            fd,
            epoch: epoch(),
        })
    }

    pub fn into_descriptor(mut self) -> Descriptor {
        Descriptor {
            fd: self.socket.take().map(Into::into),
            epoch: self.epoch,
        }
    }
}

impl<T> std::ops::Deref for Watched<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.socket.as_ref().expect("only its end takes it")
    }
}

impl<T> std::ops::DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.socket.as_mut().expect("only its end takes it")
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            close_registered(socket, self.fd, self.epoch);
        }
    }
}

static EXITING: AtomicBool = AtomicBool::new(false);

extern "C" fn at_exit() {
    EXITING.store(true, Ordering::Release);
}

/// Makes [`exit_has_begun`] tell the exit of this process. To be called after a foreign library has set itself up: handlers
/// run in the opposite order, so the mark is made before that library takes itself down.
pub fn watch_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to a static, and the library is never unloaded (-z nodelete).
        unsafe { libc::atexit(at_exit) };
    });
}

/// True once the process runs its exit handlers: foreign libraries may be half gone, what they gave is left to the system.
pub fn exit_has_begun() -> bool {
    EXITING.load(Ordering::Acquire)
}

/// All signals blocked on this thread, and on threads and processes it starts; the former mask comes back on drop.
pub struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub fn block() -> BlockedSignals {
        // SAFETY: both sets outlive the calls; an all-zero set is a valid value to be overwritten.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// A descriptor kept in reserve while the control thread runs: a process that has no other left can still tell the other
/// ranks so.
pub mod spare {
    use super::{Descriptor, PerProcess};
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    #[derive(Default)]
    struct Reserve {
        wanted: bool,
        held: Option<Descriptor>,
    }

    const NONE: Reserve = Reserve {
        wanted: false,
        held: None,
    };
    static RESERVE: PerProcess<Mutex<Reserve>> = PerProcess::new(Mutex::new(NONE), Mutex::default);

    fn reserve() -> MutexGuard<'static, Reserve> {
        RESERVE.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on there is one, if the system lets it.
    pub fn begin() {
        reserve().wanted = true;
        restore();
    }

    pub fn end() {
        *reserve() = NONE;
    }

    /// Gives the reserve up; false if there was none.
    pub fn release() -> bool {
        reserve().held.take().is_some()
    }

    /// Makes it again where it was given up.
    pub fn restore() {
        let mut reserve = reserve();
        if reserve.wanted && reserve.held.is_none() {
            reserve.held = eventfd(0, EventfdFlags::CLOEXEC).ok().map(Descriptor::new);
        }
    }
}

/// From now on the datagram socket drops what does not begin with `secret`, before it takes up room in the queue. A system that
/// knows no socket filters takes everything, as before.
pub fn take_only_letters_that_begin_with(socket: BorrowedFd<'_>, secret: &[u8; 16]) {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const WORDS: usize = 4;
    let step = |code: u16, unequal: u8, k: u32| libc::sock_filter {
        code,
        jt: 0,
        jf: unequal,
        k,
    };
    let mut program = Vec::with_capacity(2 * WORDS + 2);
    for (i, word) in secret.as_chunks::<4>().0.iter().enumerate() {
        program.push(step(LOAD_WORD, 0, 4 * i as u32));
        // Past the other words to the step that drops.
        program.push(step(
            SKIP_UNLESS_EQUAL,
            (2 * (WORDS - 1 - i) + 1) as u8,
            u32::from_be_bytes(*word),
        ));
    }
    program.push(step(RETURN, 0, u32::MAX));
    program.push(step(RETURN, 0, 0));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which outlives the call.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
}

const STACK_BYTES: usize = 256 << 10;

/// What a thread needs beside its stack before it runs. The C library ends a process whose new thread finds no memory for that.
const THREAD_BYTES: usize = 4 << 20;

/// Whether a thread with such a stack can be started.
pub fn has_room_for_thread(stack_bytes: usize) -> bool {
    reserve::has_room(stack_bytes + THREAD_BYTES)
}

/// Starts a thread that no signal of the program is delivered to.
/// # Errors
/// SYSTEM_ERROR if the system gives no thread, OUT_OF_MEMORY if it has none for one.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    ensure!(
        has_room_for_thread(STACK_BYTES),
        OutOfMemory,
        "starting thread {name}: there is no memory for it"
    );
    let _quiet = BlockedSignals::block();
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map_err(|e| Error::system(format!("starting thread {name}"), e))
}

/// The addresses of the interfaces that are up, without loopback and link-local ones, each with its interface's name.
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills `head` with a list that freeifaddrs releases; entries are read only in between.
    unsafe {
        if libc::getifaddrs(&mut head) != 0 {
            return found;
        }
        let mut at = head;
        while !at.is_null() {
            let entry = &*at;
            at = entry.ifa_next;
            if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as u32 == 0 {
                continue;
            }
            let ip = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes())
                }
                libc::AF_INET6 => {
                    IpAddr::from((*entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr)
                }
                _ => continue,
            };
            let local = match ip {
                IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
                IpAddr::V6(v6) => v6.is_loopback() || (v6.segments()[0] & 0xffc0) == 0xfe80,
            };
            if !local {
                let name = std::ffi::CStr::from_ptr(entry.ifa_name)
                    .to_string_lossy()
                    .into_owned();
                found.push((name, ip));
            }
        }
        libc::freeifaddrs(head);
    }
    found
}

/// Runs `work` in a forked child; panics where it answers false, ends in another way or takes a minute.
#[cfg(test)]
pub fn in_a_forked_child(work: impl FnOnce() -> bool) {
    use std::time::{Duration, Instant};
    // SAFETY: the child runs `work` and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!good.unwrap_or(false))) };
    }
    let (begun, mut status) = (Instant::now(), -1);
    // SAFETY: our own child.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > Duration::from_secs(60) {
            // SAFETY: our own child, which hangs.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            panic!("the forked child hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let good = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    assert!(good, "the forked child ended with status {status:#x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// The other end sees that this process let go of its socket, whether it was a descriptor by then or not.
    #[test]
    fn a_forked_child_keeps_no_socket() {
        for registered in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let watched = Watched::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (mut other, _) = listener.accept().unwrap();
            let held: Box<dyn std::any::Any> = match registered {
                true => Box::new(watched.into_descriptor()),
                false => Box::new(watched),
            };
            // SAFETY: the child sleeps until it is killed.
            let child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
            }
            drop(held);
            other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let seen = other.read(&mut [0; 1]);
            // SAFETY: our own child.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            assert_eq!(seen.unwrap(), 0, "registered {registered}");
        }
    }
}
