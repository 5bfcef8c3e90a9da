//! The exchange over NCCL. Its communicator is non-blocking: every call returns at once, the ranks meet on the control plane
//! until all of them are done, so one whose NCCL fails or whose process dies never leaves another waiting.

use super::gpu::Gpu;
use super::nccl::{self, BYTES, Config, IN_PROGRESS, Nccl, SUCCESS, UNIQUE_ID_BYTES, UniqueId};
use crate::error::{Error, Kind, Result, fail};
use crate::log::say;
use crate::platform::process::spawn_quiet;
use crate::platform::{Bootstrap, Shipment, Stream, Term, Transport, agree, agree_or};
use crate::span::Address;
use cudarc::driver::sys::CUstream;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a rank looks at its own NCCL before it meets the others, and for how much of that it does not sleep: a call is
/// mostly done within it, and a sleep takes ten times as long as it should.
const LOOK: Duration = Duration::from_millis(2);
const AWAKE: Duration = Duration::from_micros(500);
const LEAST_PAUSE: Duration = Duration::from_micros(10);
/// The same for a call that failed, whose buffers NCCL may still write to until then. Calls return within 5 s of a death.
const BUFFERS_LIMIT: Duration = Duration::from_secs(3);
/// How long a rank that leaves waits for NCCL to let go; what takes longer goes on beside it.
const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// NCCL's communicator; NULL once it ended. The lock is held for single calls only, none of which blocks.
struct Handle(*mut c_void);

// SAFETY: NCCL communicators may be used by any thread, one at a time, which the mutex around it ensures.
unsafe impl Send for Handle {}

struct Inner {
    gpu: Arc<Gpu>,
    nccl: &'static Nccl,
    comm: Mutex<Handle>,
    /// Threads that are inside an abort.
    aborts: Arc<AtomicUsize>,
}

/// A transport over NCCL, for ranks that each have a GPU of their own.
pub struct NcclTransport(Arc<Inner>);

/// The right to abort a transport from any thread, without keeping it.
pub struct Abortable(Weak<Inner>);

impl Abortable {
    /// Begins to abort what the transport has enqueued; does not wait. False once the transport is gone.
    pub fn abort(&self) -> bool {
        match self.0.upgrade() {
            Some(inner) => {
                inner.abort_beside();
                true
            }
            None => false,
        }
    }

    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl NcclTransport {
    /// Collective over `boot`: all ranks get a transport, or all the same error.
    /// # Errors
    /// NOT_SUPPORTED if a rank has no usable NCCL or another version; COMMUNICATION_ERROR with NCCL's words.
    pub fn create(gpu: &Arc<Gpu>, boot: &dyn Bootstrap) -> Result<NcclTransport> {
        let found = nccl::version();
        let terms = [Term::new(
            "the NCCL version",
            found.as_ref().map_or(0, |version| *version),
        )];
        agree_or(boot, &terms, Kind::NotSupported, found)?;
        let nccl = agree(boot, &[], nccl::usable())?;
        NcclTransport::with(nccl, gpu, boot)
    }

    /// [`NcclTransport::create`] with a table of NCCL's functions.
    pub(super) fn with(nccl: &'static Nccl, gpu: &Arc<Gpu>, boot: &dyn Bootstrap) -> Result<NcclTransport> {
        let id = unique_id(nccl, boot)?;
        let inner = Arc::new(Inner {
            gpu: gpu.clone(),
            nccl,
            comm: Mutex::new(Handle(std::ptr::null_mut())),
            aborts: Arc::default(),
        });
        let begun = inner.begin(id, boot.rank(), boot.size());
        inner.complete(boot, begun).map_err(|e| {
            inner.abort_within(ABORT_LIMIT);
            e.within("making the NCCL communicator")
        })?;
        Ok(NcclTransport(inner))
    }

    pub fn abortable(&self) -> Abortable {
        Abortable(Arc::downgrade(&self.0))
    }
}

/// Rank 0's, for all. Collective.
fn unique_id(nccl: &Nccl, boot: &dyn Bootstrap) -> Result<UniqueId> {
    let mut id = UniqueId([0; UNIQUE_ID_BYTES]);
    let made = if boot.rank() == 0 {
        // SAFETY: the output outlives the call.
        let code = unsafe { (nccl.ncclGetUniqueId)(&mut id) };
        nccl.check("ncclGetUniqueId", std::ptr::null_mut(), code)
    } else {
        Ok(())
    };
    agree(boot, &[], made)?;
    let all = boot.all_gather(&id.0)?;
    match <[u8; UNIQUE_ID_BYTES]>::try_from(all[0].as_slice()) {
        Ok(bytes) => Ok(UniqueId(bytes)),
        Err(_) => fail!(Communication, "rank 0 sent an unreadable NCCL id"),
    }
}

/// How far a rank's last call is, as the ranks tell each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Pending,
    Done,
}

impl Inner {
    fn comm(&self) -> MutexGuard<'_, Handle> {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` on the live communicator.
    fn on_comm<T>(&self, call: impl FnOnce(*mut c_void) -> Result<T>) -> Result<T> {
        self.gpu.check_alive()?;
        let comm = self.comm();
        if comm.0.is_null() {
            fail!(
                Communication,
                "the NCCL communicator was aborted after an earlier failure"
            );
        }
        call(comm.0)
    }

    fn begin(&self, id: UniqueId, rank: usize, size: usize) -> Result<()> {
        let _entered = self.gpu.enter()?;
        let mut config = Config::non_blocking();
        let mut comm = self.comm();
        // SAFETY: output and configuration outlive the call.
        let code = unsafe {
            (self.nccl.ncclCommInitRankConfig)(&mut comm.0, size as c_int, id, rank as c_int, &mut config)
        };
        self.nccl.check("ncclCommInitRankConfig", comm.0, code)
    }

    /// Asks how far the last call is.
    fn progress(&self) -> Result<Progress> {
        self.on_comm(|comm| {
            let mut state = SUCCESS;
            // SAFETY: the communicator lives while the lock is held; the output outlives the call.
            let code = unsafe { (self.nccl.ncclCommGetAsyncError)(comm, &mut state) };
            self.nccl.check("ncclCommGetAsyncError", comm, code)?;
            self.nccl.check("an operation", comm, state)?;
            Ok(match state {
                IN_PROGRESS => Progress::Pending,
                _ => Progress::Done,
            })
        })
    }

    /// Looks until the last call is done or [`LOOK`] is over.
    fn watch(&self) -> Result<Progress> {
        let start = Instant::now();
        let mut pause = LEAST_PAUSE;
        loop {
            let progress = self.progress()?;
            let looked = start.elapsed();
            if progress == Progress::Done || looked >= LOOK {
                return Ok(progress);
            }
            if looked < AWAKE {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK / 8);
        }
    }

    /// Meets the others until the last call is done on all ranks; if one failed (`begun` is this rank's own start), all get
    /// its error. Collective.
    fn complete(&self, boot: &dyn Bootstrap, begun: Result<()>) -> Result<()> {
        let mut mine = begun.map(|()| Progress::Pending);
        loop {
            if matches!(mine, Ok(Progress::Pending)) {
                mine = self.watch();
            }
            let told = match &mine {
                Ok(Progress::Pending) => vec![0],
                Ok(Progress::Done) => vec![1],
                Err(error) => [
                    &[2u8][..],
                    &error.kind.code().to_le_bytes(),
                    error.what.as_bytes(),
                ]
                .concat(),
            };
            let all = boot.all_gather(&told)?;
            if let Some((rank, words)) = all.iter().enumerate().find(|(_, w)| w.first() == Some(&2)) {
                return match mine {
                    Err(own) if rank == boot.rank() => Err(own),
                    _ => {
                        let code = words.get(1..5).and_then(|c| <[u8; 4]>::try_from(c).ok());
                        let kind =
                            code.map_or(Kind::Communication, |c| Kind::from_code(u32::from_le_bytes(c)));
                        let said = String::from_utf8_lossy(words.get(5..).unwrap_or_default()).into_owned();
                        Err(Error::new(kind, format!("rank {rank}: {said}")))
                    }
                };
            }
            if all.iter().all(|words| words.as_slice() == [1]) {
                return Ok(());
            }
        }
    }

    fn end(&self) {
        let mut comm = self.comm();
        let ended = std::mem::replace(&mut comm.0, std::ptr::null_mut());
        if ended.is_null() || self.gpu.check_alive().is_err() {
            return;
        }
        // SAFETY: taken out of its place, so this is the last call on it.
        let code = unsafe { (self.nccl.ncclCommAbort)(ended) };
        if let Err(error) = self.nccl.check("ncclCommAbort", std::ptr::null_mut(), code) {
            say!(Debug, "{error}");
        }
    }

    /// Does not wait: while a call holds the communicator it counts as alive.
    fn is_ended(&self) -> bool {
        self.gpu.check_alive().is_err() || self.comm.try_lock().is_ok_and(|comm| comm.0.is_null())
    }

    /// Aborts on a thread of its own: NCCL frees device memory then, which waits for whatever the GPU is doing.
    fn abort_beside(self: &Arc<Self>) {
        if self.is_ended() {
            return;
        }
        let (inner, running) = (self.clone(), self.aborts.clone());
        running.fetch_add(1, Ordering::AcqRel);
        let started = spawn_quiet("wm-abort", move || {
            inner.end();
            let running = inner.aborts.clone();
            // The GPU is let go before anybody who waits goes on.
            drop(inner);
            running.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = started {
            running.fetch_sub(1, Ordering::AcqRel);
            say!(Warn, "the NCCL communicator is not aborted: {error}");
        }
    }

    /// Aborts, and waits for NCCL to be done with it, also where somebody else began.
    fn abort_within(self: &Arc<Self>, most: Duration) {
        self.abort_beside();
        let start = Instant::now();
        while self.aborts.load(Ordering::Acquire) > 0 {
            if start.elapsed() > most {
                say!(
                    Warn,
                    "NCCL has not ended its communicator within {} s",
                    most.as_secs()
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Enqueues the sends and receives of all shipments as one group, and the own parts as copies.
    fn enqueue(&self, shipments: &[Shipment<'_>], rank: usize, stream: Stream) -> Result<()> {
        let _entered = self.gpu.enter()?;
        for it in shipments {
            let (to, from) = (
                part(it.receive, it.receive_bytes, rank),
                part(it.send, it.send_bytes, rank),
            );
            self.gpu.copy(to, from, it.send_bytes[rank], stream)?;
        }
        self.on_comm(|comm| {
            // SAFETY: a group that was started is ended whatever happens in it; the communicator lives while the lock is held.
            unsafe {
                self.nccl
                    .check("ncclGroupStart", comm, (self.nccl.ncclGroupStart)())?
            };
            let outcome = shipments
                .iter()
                .try_for_each(|it| self.send_and_receive(comm, it, rank, stream));
            // SAFETY: as above.
            let ended = unsafe { self.nccl.check("ncclGroupEnd", comm, (self.nccl.ncclGroupEnd)()) };
            outcome.and(ended)
        })
    }

    /// In a group.
    fn send_and_receive(
        &self,
        comm: *mut c_void,
        it: &Shipment<'_>,
        rank: usize,
        stream: Stream,
    ) -> Result<()> {
        let (nccl, handle) = (self.nccl, stream.0 as CUstream);
        for peer in (0..it.send_bytes.len()).filter(|peer| *peer != rank) {
            let (out_bytes, in_bytes) = (it.send_bytes[peer], it.receive_bytes[peer]);
            if out_bytes > 0 {
                let from = part(it.send, it.send_bytes, peer).0 as *const c_void;
                // SAFETY: the caller of `ship` vouches for buffers, sizes and stream; the communicator is live.
                let code = unsafe { (nccl.ncclSend)(from, out_bytes, BYTES, peer as c_int, comm, handle) };
                nccl.check("ncclSend", comm, code)?;
            }
            if in_bytes > 0 {
                let to = part(it.receive, it.receive_bytes, peer).0 as *mut c_void;
                // SAFETY: as above.
                let code = unsafe { (nccl.ncclRecv)(to, in_bytes, BYTES, peer as c_int, comm, handle) };
                nccl.check("ncclRecv", comm, code)?;
            }
        }
        Ok(())
    }
}

/// Where the part of a rank begins.
fn part(base: Address, bytes: &[usize], rank: usize) -> Address {
    base.offset_bytes(bytes[..rank].iter().sum())
}

impl Transport for NcclTransport {
    /// The bytes are there when the stream has got so far; after a failure nothing touches the buffers any more. Counts that do
    /// not fit hang the streams until the communicator breaks; the operations above have agreed on theirs.
    fn ship(&self, boot: &dyn Bootstrap, shipments: &[Shipment<'_>], stream: Stream) -> Result<()> {
        let begun = self.0.enqueue(shipments, boot.rank(), stream);
        self.0.complete(boot, begun).inspect_err(|_| {
            // Some ranks may have enqueued what others never will: the streams are freed on all of them, and what has begun
            // is over before the callers give the buffers back.
            self.0.abort_within(BUFFERS_LIMIT);
        })
    }

    fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let Some(boot) = boot else {
            self.0.abort_within(ABORT_LIMIT);
            return Ok(());
        };
        let nccl = self.0.nccl;
        let begun = self.0.on_comm(|comm| {
            // SAFETY: the communicator lives while the lock is held.
            let code = unsafe { (nccl.ncclCommFinalize)(comm) };
            nccl.check("ncclCommFinalize", comm, code)
        });
        if let Err(error) = self.0.complete(boot, begun) {
            self.0.abort_within(ABORT_LIMIT);
            return Err(error.within("ending the NCCL communicator"));
        }
        let comm = std::mem::replace(&mut self.0.comm().0, std::ptr::null_mut());
        if comm.is_null() {
            return Ok(());
        }
        // SAFETY: taken out of its place, so this is the last call on it.
        let code = unsafe { (nccl.ncclCommDestroy)(comm) };
        nccl.check("ncclCommDestroy", std::ptr::null_mut(), code)
    }
}

impl Drop for NcclTransport {
    fn drop(&mut self) {
        self.0.abort_within(ABORT_LIMIT);
    }
}
