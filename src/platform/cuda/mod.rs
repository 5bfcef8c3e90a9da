//! The CUDA platform: one GPU through its driver. The driver is probed without a context; a context is made when a
//! communicator binds its device, and never before.

mod abort;
mod board;
mod cache;
mod collective;
pub mod driver;
mod fabric;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_nccl;
mod functions;
mod gpu;
mod graph;
mod graph_args;
mod handover;
mod host;
mod kernels;
mod launch;
#[cfg(test)]
mod layouts;
mod learning;
mod loader;
mod mailbox;
mod mark;
pub mod nccl;
mod probe;
mod properties;
mod row_lists;
mod rows;
mod scratch;
mod segments;
mod side;
mod tenants;
#[cfg(test)]
mod tests;
mod transport;
mod undecided;
mod vmm;
mod waiting;
mod words;

pub use gpu::forget_current;
pub use loader::Unusable;
pub use properties::device_properties;

use super::caching::CacheKernels;
use super::graph::GraphKernels;
use super::learning::LearningKernels;
use super::{
    Bootstrap, Fabric, Kernels, Mark, Member, Platform, Reach, Segments, Stream, StreamName, Transport,
    TransportChoice, Words,
};
use crate::error::{Result, ensure, fail};
use crate::log::say;
use crate::span::Address;
use abort::AbortWord;
use board::Boards;
use collective::Abortable;
use gpu::Gpu;
use handover::Handover;
use mailbox::Mailboxes;
use scratch::ScratchPool;
use side::SideStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use tenants::Tenant;

/// A GPU as one rank of one communicator uses it.
pub struct CudaPlatform {
    gpu: Arc<Gpu>,
    /// The thread that made the communicator, or the first of those that it comes from.
    maker: ThreadId,
    /// Set by the ranks' acquaintance; a platform without a communicator has none.
    world: OnceLock<World>,
    /// Transports that must be aborted when the communicator breaks.
    abortables: Mutex<Vec<Abortable>>,
    /// Where NCCL's kernels wait.
    exchanges: OnceLock<Tenant>,
    /// Where kernels leave counts for the host.
    mailboxes: Mailboxes,
    /// Where the ranks meet in the order of their streams; none where they do not. Goes after the abort word, whose end ends
    /// the waits.
    boards: OnceLock<Boards>,
    /// Made when a call first needs it; none where the driver has no pools.
    scratch: OnceLock<Option<Arc<ScratchPool>>>,
    /// For several ranks made with the communicator; for one when a thread first needs it.
    side: OnceLock<SideStream>,
}

/// What the ranks of the communicator know of each other.
struct World {
    reach: Reach,
    host_of: Vec<usize>,
    handover: Handover,
    /// For waits on the GPU; `None` where ranks never wait there.
    abort_word: Option<AbortWord>,
    /// None for a rank that meets others on the host, and so is in nobody's way.
    _tenant: Option<Tenant>,
}

/// The platform bound to the caller's current device, for a rank of a new communicator.
/// # Errors
/// NOT_SUPPORTED for a GPU or driver that is too old, and for a library built without kernels; CUDA_ERROR.
pub fn bind() -> Result<Arc<dyn Member>> {
    check_built()?;
    let functions = gpu::functions()?;
    let device = gpu::current_device(functions)?;
    let platform = CudaPlatform::new(Arc::new(Gpu::bind(functions, device)?));
    platform.load_kernels()?;
    Ok(Arc::new(platform))
}

/// Devices that calls without a communicator can be bound to; CUDA shows a process fewer.
const MOST_DEVICES: usize = 128;

/// The devices of calls without a communicator.
static BOUND: [OnceLock<CudaPlatform>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];

/// The platform on the caller's current device, for calls that belong to no communicator. The device stays bound.
/// # Errors
/// Those of [`bind`].
pub fn current() -> Result<&'static dyn Platform> {
    check_built()?;
    let functions = gpu::functions()?;
    let device = gpu::current_device(functions)?;
    let place = usize::try_from(device).ok().and_then(|device| BOUND.get(device));
    let Some(place) = place else {
        fail!(
            NotSupported,
            "device {device} is beyond the {MOST_DEVICES} that the library counts on"
        );
    };
    if place.get().is_none() {
        let made = CudaPlatform::new(Arc::new(Gpu::bind(functions, device)?));
        // Of two threads that come first at once, one wins.
        let _ = place.set(made);
    }
    Ok(place.get().expect("set above"))
}

/// Gives free scratch of all devices back to the system.
pub fn trim_scratch() {
    for platform in BOUND.iter().filter_map(OnceLock::get) {
        if let Some(Some(pool)) = platform.scratch.get() {
            pool.trim();
        }
    }
}

fn check_built() -> Result<()> {
    ensure!(
        cfg!(any(wholememory_kernels, test)),
        NotSupported,
        "this library was built without nvcc and has no kernels for GPUs; build it with nvcc (scripts/get-cuda \
         fetches one), or set WHOLEMEMORY_PLATFORM=cpu to do without GPUs"
    );
    Ok(())
}

impl CudaPlatform {
    fn new(gpu: Arc<Gpu>) -> CudaPlatform {
        CudaPlatform::of_maker(gpu, thread::current().id())
    }

    fn of_maker(gpu: Arc<Gpu>, maker: ThreadId) -> CudaPlatform {
        CudaPlatform {
            gpu,
            maker,
            world: OnceLock::new(),
            abortables: Mutex::default(),
            side: OnceLock::new(),
            exchanges: OnceLock::new(),
            mailboxes: Mailboxes::default(),
            boards: OnceLock::new(),
            scratch: OnceLock::new(),
        }
    }

    /// None is loaded later, while a rank may be waiting for this one.
    fn load_kernels(&self) -> Result<()> {
        let _entered = self.gpu.enter()?;
        kernels::load()
    }

    /// True if this rank maps the device memory of all ranks of its communicator.
    fn maps_others(&self) -> bool {
        self.world
            .get()
            .is_some_and(|world| world.reach.unreachable.is_none())
    }

    /// How memory is handed to the other ranks.
    fn handover(&self) -> Handover {
        self.world
            .get()
            .map_or(Handover::Descriptors, |world| world.handover)
    }

    fn shares_device(&self) -> bool {
        self.world.get().is_some_and(|world| world.reach.shares_device)
    }

    /// A waiting rank of this communicator.
    fn tenant(&self) -> Tenant {
        Tenant::enter(&self.gpu.facts.identity, self.maker)
    }

    /// The host of every rank.
    fn hosts(&self) -> Option<&[usize]> {
        self.world.get().map(|world| world.host_of.as_slice())
    }

    fn is_single_host(&self) -> bool {
        self.hosts()
            .is_none_or(|hosts| hosts.iter().all(|host| *host == hosts[0]))
    }

    /// The word that kernels poll while they wait for other ranks (not 0: give up); `None` where no rank waits on a GPU.
    pub fn abort_word(&self) -> Option<Address> {
        self.world.get()?.abort_word.as_ref().map(AbortWord::address)
    }

    /// Multiprocessors of the GPU.
    pub fn multiprocessors(&self) -> u32 {
        self.gpu.facts.multiprocessors
    }

    fn scratch_pool(&self) -> Result<Option<&Arc<ScratchPool>>> {
        if self.scratch.get().is_none() {
            let made = self.gpu.facts.has_pools.then(|| ScratchPool::new(&self.gpu));
            // Of two threads that come first at once, one wins.
            let _ = self.scratch.set(made.transpose()?.map(Arc::new));
        }
        Ok(self.scratch.get().and_then(Option::as_ref))
    }

    fn watch_over(&self, transport: Abortable) {
        let mut abortables = self.abortables.lock().unwrap_or_else(PoisonError::into_inner);
        abortables.retain(|old| !old.is_gone());
        abortables.push(transport);
    }
}

impl Platform for CudaPlatform {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn segments(&self) -> &dyn Segments {
        self
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn graph(&self) -> &dyn GraphKernels {
        self
    }

    fn learning(&self) -> &dyn LearningKernels {
        self
    }

    fn caching(&self) -> &dyn CacheKernels {
        self
    }

    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        self.make_local_transport(boot)
    }

    fn can_reach(&self, address: Address) -> bool {
        self.gpu.can_reach(address)
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.gpu.copy(to, from, bytes, stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.gpu.synchronize_stream(stream)
    }

    fn words(&self, words: &[usize]) -> Result<Box<dyn Words>> {
        Ok(Box::new(words::DeviceWords::new(&self.gpu, words)?))
    }

    fn scratch(&self, bytes: usize, stream: Option<Stream>) -> Result<Option<Box<dyn Words>>> {
        // What a recording stream is given is there when the graph is replayed, not now.
        if let Some(stream) = stream
            && matches!(self.gpu.is_capturing(stream), Ok(false))
            && let Some(pool) = self.scratch_pool()?
        {
            return Ok(Some(Box::new(pool.take(bytes, stream)?)));
        }
        Ok(Some(Box::new(words::DeviceWords::room(&self.gpu, bytes)?)))
    }

    fn mark(&self) -> Result<Option<Box<dyn Mark>>> {
        Ok(Some(Box::new(mark::EventMark::new(&self.gpu)?)))
    }

    fn check_stream(&self, stream: Stream) -> Result<()> {
        self.gpu.check_stream(stream)
    }

    fn name_of(&self, stream: Stream) -> StreamName {
        let number = self.gpu.number_of(stream).map(StreamName::Number);
        number.unwrap_or_else(|| StreamName::Handle(stream, std::thread::current().id()))
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool> {
        self.gpu.is_capturing(stream)
    }

    /// The thread's own default stream, unless that is what records.
    fn side_stream(&self) -> Stream {
        if let Ok(false) = self.gpu.is_capturing(gpu::PER_THREAD_STREAM) {
            return gpu::PER_THREAD_STREAM;
        }
        if self.side.get().is_none()
            && let Ok(made) = SideStream::new(&self.gpu)
        {
            // Of two threads that come first at once, one wins.
            let _ = self.side.set(made);
        }
        self.side.get().map_or(gpu::PER_THREAD_STREAM, SideStream::stream)
    }

    fn within(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _entered = self.gpu.enter()?;
        work()
    }

    fn within_on(&self, stream: Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _entered = self.gpu.enter_on(stream)?;
        work()
    }

    fn meets_on_streams(&self) -> bool {
        self.boards.get().is_some()
    }

    fn meetings_so_far(&self) -> Option<u64> {
        self.boards.get().and_then(Boards::met)
    }

    fn all_came(&self, stream: Stream) -> Result<bool> {
        let boards = self.boards.get();
        boards.map_or(Ok(true), |boards| boards.all_came(&self.gpu, stream))
    }

    fn meet(&self, stream: Stream) -> Result<()> {
        self.enqueue_meeting(false, stream)
    }

    fn meet_before_rows(&self, stream: Stream) -> Result<()> {
        self.enqueue_meeting(true, stream)
    }
}

impl CudaPlatform {
    fn enqueue_meeting(&self, lets_next: bool, stream: Stream) -> Result<()> {
        let (Some(boards), Some(abort)) = (self.boards.get(), self.abort_word()) else {
            fail!(Logic, "the ranks of this communicator meet on the host");
        };
        let _entered = self.gpu.enter_to_enqueue()?;
        boards.meet(abort, lets_next, stream)?;
        self.launched("a meeting of the ranks", stream)
    }
}

impl Member for CudaPlatform {
    fn identity(&self) -> String {
        self.gpu.facts.identity.clone()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        let gpu = Gpu::bind(self.gpu.functions, self.gpu.device)?;
        Ok(Arc::new(CudaPlatform::of_maker(Arc::new(gpu), self.maker)))
    }

    fn acquaint(&self, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach> {
        self.acquaint_in(fabric::fabric_of(&self.gpu), boot, host_of)
    }

    fn transport(&self, choice: TransportChoice, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        self.make_transport(choice, boot)
    }

    fn abort(&self) {
        self.end_waits();
        let mut abortables = self.abortables.lock().unwrap_or_else(PoisonError::into_inner);
        abortables.retain(Abortable::abort);
    }

    fn finish(&self) {
        if self.boards.get().is_some() {
            let _ = self.gpu.synchronize();
        }
    }

    fn peer_left(&self) {
        self.end_waits();
    }
}

impl CudaPlatform {
    fn end_waits(&self) {
        if let Some(word) = self.world.get().and_then(|world| world.abort_word.as_ref()) {
            word.set();
        }
    }

    /// [`Member::acquaint`] with what is known of the own place in a fabric.
    fn acquaint_in(&self, fabric: Option<Fabric>, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach> {
        let tenant = (boot.size() > 1).then(|| self.tenant());
        let crowded = tenant.as_ref().is_some_and(Tenant::has_company);
        let (reach, handover) = probe::acquaint(&self.gpu, fabric, crowded, boot, host_of)?;
        if reach.crowded && !reach.shares_device {
            say!(
                Info,
                "these ranks meet on the host and not on their GPUs: another thread of a process has a communicator that waits on one of them"
            );
        }
        let waits_alone = !reach.shares_device && !reach.crowded;
        let waits_on_gpu = boot.size() > 1 && reach.unreachable.is_none() && waits_alone;
        let abort_word = waits_on_gpu.then(|| AbortWord::new(&self.gpu)).transpose();
        let world = World {
            reach: reach.clone(),
            host_of: host_of.to_vec(),
            handover,
            abort_word: super::agree(boot, &[], abort_word)?,
            _tenant: tenant.filter(|_| waits_on_gpu),
        };
        ensure!(
            self.world.set(world).is_ok(),
            Logic,
            "the ranks of a communicator get acquainted once"
        );
        if boot.size() > 1 {
            // Once others count on this rank it is too late to find that there is no room for a stream.
            let _ = self
                .side
                .set(super::agree(boot, &[], SideStream::new(&self.gpu))?);
        }
        if waits_on_gpu {
            let _ = self.boards.set(Boards::create(self, boot)?);
        }
        Ok(reach)
    }
}
