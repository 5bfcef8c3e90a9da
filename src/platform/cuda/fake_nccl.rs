//! An NCCL for tests: the ranks of a communicator are threads that leave their messages in a common box. Calls return at
//! once, as with the real one in non-blocking mode; what was enqueued completes while its state is asked for.

use super::nccl::{IN_PROGRESS, Nccl, SUCCESS, UniqueId};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub const FAILS: c_int = 3;
/// What arrives while a communicator is aborted.
pub const LATE: u8 = 0xAB;

/// What the ranks of all communicators of a test share.
#[derive(Default)]
pub struct Exchange(Mutex<Shared>);

#[derive(Default)]
struct Shared {
    /// Messages by (communicator, from, to).
    letters: HashMap<(u8, c_int, c_int), VecDeque<Vec<u8>>>,
    joined: HashMap<u8, c_int>,
    ids: u8,
    alive: usize,
    aborted: usize,
}

impl Exchange {
    fn state(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Communicators that neither ended nor were aborted, and how many were aborted.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.alive, state.aborted)
    }
}

/// One thread's place.
#[derive(Clone)]
pub struct Seat {
    pub exchange: Arc<Exchange>,
    /// The call of this name gives [`FAILS`].
    pub failing: Option<&'static str>,
    /// Its enqueued work never gets done, as if the peer were dead.
    pub stuck: bool,
    /// Aborting takes so long, and until then what is awaited may still arrive.
    pub slow_abort: Duration,
    group: Vec<Work>,
}

impl Seat {
    pub fn new(exchange: &Arc<Exchange>) -> Seat {
        Seat {
            exchange: exchange.clone(),
            failing: None,
            stuck: false,
            slow_abort: Duration::ZERO,
            group: Vec::new(),
        }
    }

    pub fn sit(self) {
        SEAT.with(|seat| *seat.borrow_mut() = Some(self));
    }
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

pub fn seat<T>(see: impl FnOnce(&mut Seat) -> T) -> T {
    SEAT.with(|seat| see(seat.borrow_mut().as_mut().expect("a test seats its threads")))
}

#[derive(Clone, Copy)]
enum Work {
    Send(usize, usize, c_int, *mut Comm),
    Receive(usize, usize, c_int, *mut Comm),
}

struct Comm {
    exchange: Arc<Exchange>,
    id: u8,
    rank: c_int,
    ranks: c_int,
    stuck: bool,
    slow_abort: Duration,
    awaited: Vec<(usize, usize, c_int)>,
    finalized: bool,
}

fn fails(call: &'static str) -> bool {
    seat(|seat| seat.failing == Some(call))
}

fn comm<'a>(comm: *mut c_void) -> &'a mut Comm {
    // SAFETY: a communicator of this fake, used by one thread at a time.
    unsafe { &mut *comm.cast::<Comm>() }
}

#[allow(non_snake_case)]
mod calls {
    use super::*;

    pub unsafe extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
        match code {
            FAILS => c"the fake fails".as_ptr(),
            _ => std::ptr::null(),
        }
    }

    pub unsafe extern "C" fn ncclGetLastError(_comm: *mut c_void) -> *const c_char {
        c"as it was told".as_ptr()
    }

    pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
        if fails("ncclGetUniqueId") {
            return FAILS;
        }
        let exchange = seat(|s| s.exchange.clone());
        let mut state = exchange.state();
        state.ids += 1;
        // SAFETY: the caller's output.
        unsafe { id.write(UniqueId([state.ids; 128])) };
        SUCCESS
    }

    pub unsafe extern "C" fn ncclCommInitRankConfig(
        made: *mut *mut c_void,
        ranks: c_int,
        id: UniqueId,
        rank: c_int,
        config: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller's configuration: size, magic, version, blocking.
        let words = unsafe { std::slice::from_raw_parts(config.cast::<u32>(), 5) };
        assert_eq!(words, [48, 0, 0xcafe_beef, 21800, 0]);
        if fails("ncclCommInitRankConfig") {
            return FAILS;
        }
        let (exchange, stuck, slow_abort) = seat(|s| (s.exchange.clone(), s.stuck, s.slow_abort));
        let mut state = exchange.state();
        *state.joined.entry(id.0[0]).or_default() += 1;
        state.alive += 1;
        drop(state);
        let comm = Box::new(Comm {
            exchange,
            id: id.0[0],
            rank,
            ranks,
            stuck,
            slow_abort,
            awaited: Vec::new(),
            finalized: false,
        });
        // SAFETY: the caller's output.
        unsafe { made.write(Box::into_raw(comm).cast()) };
        IN_PROGRESS
    }

    pub unsafe extern "C" fn ncclCommGetAsyncError(handle: *mut c_void, state: *mut c_int) -> c_int {
        let comm = comm(handle);
        let exchange = comm.exchange.clone();
        let mut shared = exchange.state();
        let joined = shared.joined[&comm.id] == comm.ranks;
        if !comm.stuck {
            comm.awaited.retain(|(to, bytes, peer)| {
                let letters = shared.letters.entry((comm.id, *peer, comm.rank)).or_default();
                let Some(letter) = letters.pop_front() else {
                    return true;
                };
                assert_eq!(letter.len(), *bytes);
                // SAFETY: the receiver's buffer.
                unsafe { std::ptr::copy_nonoverlapping(letter.as_ptr(), *to as *mut u8, letter.len()) };
                false
            });
        }
        let busy = !joined || !comm.awaited.is_empty();
        let now = match (fails("ncclCommGetAsyncError"), busy) {
            (true, _) => FAILS,
            (false, true) => IN_PROGRESS,
            (false, false) => SUCCESS,
        };
        // SAFETY: the caller's output.
        unsafe { state.write(now) };
        SUCCESS
    }

    pub unsafe extern "C" fn ncclCommFinalize(handle: *mut c_void) -> c_int {
        comm(handle).finalized = true;
        if fails("ncclCommFinalize") {
            FAILS
        } else {
            IN_PROGRESS
        }
    }

    fn end(handle: *mut c_void, aborted: bool) -> c_int {
        // SAFETY: the box that `ncclCommInitRankConfig` leaked, ended once.
        let comm = unsafe { Box::from_raw(handle.cast::<Comm>()) };
        assert!(aborted || comm.finalized, "destroyed without being finalized");
        if !comm.slow_abort.is_zero() {
            std::thread::sleep(comm.slow_abort);
            for (to, bytes, _) in &comm.awaited {
                // SAFETY: the receiver's buffer, which it keeps until the communicator is gone.
                unsafe { std::ptr::write_bytes(*to as *mut u8, LATE, *bytes) };
            }
        }
        let mut state = comm.exchange.state();
        state.alive -= 1;
        state.aborted += usize::from(aborted);
        SUCCESS
    }

    pub unsafe extern "C" fn ncclCommDestroy(handle: *mut c_void) -> c_int {
        end(handle, false)
    }

    pub unsafe extern "C" fn ncclCommAbort(handle: *mut c_void) -> c_int {
        end(handle, true)
    }

    pub unsafe extern "C" fn ncclGroupStart() -> c_int {
        seat(|s| assert!(s.group.is_empty()));
        SUCCESS
    }

    pub unsafe extern "C" fn ncclGroupEnd() -> c_int {
        let group = seat(|s| std::mem::take(&mut s.group));
        if fails("ncclGroupEnd") {
            return FAILS;
        }
        for work in group {
            match work {
                Work::Send(from, bytes, peer, handle) => {
                    let comm = comm(handle.cast());
                    // SAFETY: the sender's buffer.
                    let letter = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
                    let key = (comm.id, comm.rank, peer);
                    comm.exchange
                        .state()
                        .letters
                        .entry(key)
                        .or_default()
                        .push_back(letter);
                }
                Work::Receive(to, bytes, peer, handle) => {
                    comm(handle.cast()).awaited.push((to, bytes, peer));
                }
            }
        }
        IN_PROGRESS
    }

    pub unsafe extern "C" fn ncclSend(
        from: usize,
        count: usize,
        kind: c_int,
        peer: c_int,
        comm: *mut c_void,
        _stream: usize,
    ) -> c_int {
        assert!(kind == 1 && count > 0);
        if fails("ncclSend") {
            return FAILS;
        }
        seat(|s| s.group.push(Work::Send(from, count, peer, comm.cast())));
        SUCCESS
    }

    pub unsafe extern "C" fn ncclRecv(
        to: usize,
        count: usize,
        kind: c_int,
        peer: c_int,
        comm: *mut c_void,
        _stream: usize,
    ) -> c_int {
        assert!(kind == 1 && count > 0);
        seat(|s| s.group.push(Work::Receive(to, count, peer, comm.cast())));
        SUCCESS
    }
}

/// The table of the fake NCCL.
pub fn nccl() -> &'static Nccl {
    static TABLE: OnceLock<Nccl> = OnceLock::new();
    TABLE.get_or_init(|| {
        Nccl::from_functions(&|name| {
            Some(match name {
                "ncclGetErrorString" => calls::ncclGetErrorString as *const (),
                "ncclGetLastError" => calls::ncclGetLastError as *const (),
                "ncclGetUniqueId" => calls::ncclGetUniqueId as *const (),
                "ncclCommInitRankConfig" => calls::ncclCommInitRankConfig as *const (),
                "ncclCommGetAsyncError" => calls::ncclCommGetAsyncError as *const (),
                "ncclCommFinalize" => calls::ncclCommFinalize as *const (),
                "ncclCommDestroy" => calls::ncclCommDestroy as *const (),
                "ncclCommAbort" => calls::ncclCommAbort as *const (),
                "ncclGroupStart" => calls::ncclGroupStart as *const (),
                "ncclGroupEnd" => calls::ncclGroupEnd as *const (),
                "ncclSend" => calls::ncclSend as *const (),
                "ncclRecv" => calls::ncclRecv as *const (),
                _ => return None,
            })
        })
    })
}
