//! HOW IT IS DONE HERE: the only room that knows CUDA, NCCL, NVSHMEM, memfd and threads pools.
//! A platform is chosen once per process; the rooms above speak to it through the traits below.

pub mod bootstrap;
pub mod caching;
pub mod call;
mod choice;
pub mod cpu;
pub mod cuda;
pub mod graph;
pub mod learning;
pub mod locks;
pub mod meeting;
pub mod pages;
pub mod process;
pub mod random;
pub mod reserve;
pub mod staging;
pub mod window;

use crate::error::{Result, ensure, fail};
use crate::kinds::{DType, Location};
use crate::span::Address;
pub use bootstrap::{Bootstrap, Term, agree, agree_or, largest};
pub use choice::{at_init, bind, current, device_properties, fork_device_count, trim_scratch};
pub use cuda::forget_current;
use std::sync::Arc;
use std::thread::ThreadId;

/// A CUDA stream as the caller gave it (0 is the default stream). The CPU platform ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stream(pub usize);

/// How a kernel is to be started: on which stream, how wide (`sms` of gather; `None` is automatic), and with what to work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Launch {
    pub stream: Stream,
    pub sms: Option<u32>,
    pub workspace: Workspace,
    /// What is before it in the stream is [`meet_before_rows`](Platform::meet_before_rows).
    pub after_meeting: bool,
}

/// Device memory that an operation may overwrite until the stream has passed it; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Workspace {
    pub address: Address,
    pub bytes: usize,
}

/// One way of doing things: a GPU through CUDA, or this host's memory and cores.
pub trait Platform: Send + Sync {
    /// `"cpu"` or `"cuda"`; ranks of one communicator must agree on it.
    fn name(&self) -> &'static str;

    /// Shared memory over the ranks of a communicator.
    fn segments(&self) -> &dyn Segments;

    /// Loops and kernels that move rows.
    fn kernels(&self) -> &dyn Kernels;

    /// Loops and kernels on graphs. A platform without gives ones that refuse (NOT_SUPPORTED).
    fn graph(&self) -> &dyn graph::GraphKernels {
        &graph::NoGraphs
    }

    /// What tables that learn need beyond that.
    fn learning(&self) -> &dyn learning::LearningKernels {
        &learning::CannotLearn
    }

    /// What caches of tables need beyond that.
    fn caching(&self) -> &dyn caching::CacheKernels {
        &caching::CannotCache
    }

    /// Makes the transport that moves bytes between the ranks of one host by local copies. Collective over `boot`.
    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>>;

    /// True if the data pointer of a caller can be reached by kernels and copies of this platform.
    fn can_reach(&self, address: Address) -> bool;

    /// Copies `bytes` from `from` to `to` on the stream, whatever the kinds of memory.
    /// # Errors
    /// CUDA_ERROR where the driver refuses.
    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// A copy of `words` where kernels read them, for as long as the returned value lives.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    fn words(&self, words: &[usize]) -> Result<Box<dyn Words>> {
        Ok(Box::new(Box::<[usize]>::from(words)))
    }

    /// Scratch for a caller who gives no memory functions, where plain host memory will not do (`None`: it will). The block may
    /// be dropped when the operation has been enqueued on `stream`: its next user comes behind it. With no stream named the
    /// drop waits for the work that uses it.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    fn scratch(&self, _bytes: usize, _stream: Option<Stream>) -> Result<Option<Box<dyn Words>>> {
        Ok(None)
    }

    /// Tells how many processes of this host share its cores (for the number of threads).
    fn set_local_processes(&self, _processes: usize) {}

    /// Waits until the work of the stream is done.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// A mark for the order of several streams; `None` where work is done on return.
    /// # Errors
    /// OUT_OF_MEMORY, CUDA_ERROR.
    fn mark(&self) -> Result<Option<Box<dyn Mark>>> {
        Ok(None)
    }

    /// # Errors
    /// INVALID_INPUT if the stream belongs to another device than this platform works on.
    fn check_stream(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }

    /// What tells the stream from all others there have been, also where its handle is used again or means another in each thread.
    fn name_of(&self, stream: Stream) -> StreamName {
        StreamName::Number(stream.0 as u64)
    }

    /// True while the stream records a graph instead of working: nothing that waits, loads or allocates may be done then.
    /// # Errors
    /// CUDA_ERROR where the driver refuses the question (the default stream while another stream records).
    fn is_capturing(&self, _stream: Stream) -> Result<bool> {
        Ok(false)
    }

    /// A stream that the calling thread may use and that records nothing, for work that others wait for while the caller's records.
    fn side_stream(&self) -> Stream {
        Stream::default()
    }

    /// Runs the steps of one operation with what each of them would have to set up, set up once.
    /// # Errors
    /// Those of `work`, CUDA_ERROR; COMMUNICATION_ERROR in a forked child of a process that uses the GPU.
    fn within(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        work()
    }

    /// [`within`](Platform::within) for steps that only enqueue work on a stream, or ask: costs next to nothing.
    fn within_on(&self, _stream: Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        work()
    }

    /// True if the ranks of the communicator [`meet`](Platform::meet) in the order of their streams; else they meet on the host.
    fn meets_on_streams(&self) -> bool {
        false
    }

    /// How many meetings on streams this rank has come to. `None` where that says nothing: the ranks meet on the host, or some
    /// meetings were recorded, and nobody counts how often they are replayed. Must not block.
    fn meetings_so_far(&self) -> Option<u64> {
        None
    }

    /// Of meetings on streams that have ended: whether all ranks came to all of them; else some ended because ranks were awaited in
    /// vain. Waits for the stream.
    /// # Errors
    /// CUDA_ERROR.
    fn all_came(&self, _stream: Stream) -> Result<bool> {
        Ok(true)
    }

    /// Enqueues a meeting of all ranks of the communicator, which the host does not wait for: what their streams did before it,
    /// all of them see behind it. A broken communicator ends the wait. Can be recorded in a graph.
    /// # Errors
    /// CUDA_ERROR; LOGIC_ERROR where ranks meet on the host.
    fn meet(&self, _stream: Stream) -> Result<()> {
        fail!(
            Logic,
            "the ranks of the {} platform meet on the host",
            self.name()
        )
    }

    /// [`meet`](Platform::meet) that lets a small gather or scatter with [`Launch::after_meeting`] get ready while it waits.
    /// # Errors
    /// Those of [`meet`](Platform::meet).
    fn meet_before_rows(&self, stream: Stream) -> Result<()> {
        self.meet(stream)
    }
}

/// Two that are equal name one stream; one stream may have several, for different threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// Given once in the life of the process.
    Number(u64),
    /// The handle as the thread uses it, where there are no numbers.
    Handle(Stream, ThreadId),
}

/// A point in the work of a stream that other streams can wait for. Nobody waits on the host.
pub trait Mark: Send + Sync {
    /// Moves the mark behind what the stream was given so far.
    /// # Errors
    /// CUDA_ERROR.
    fn set(&self, stream: Stream) -> Result<()>;

    /// What the stream is given from now on begins after the mark.
    /// # Errors
    /// CUDA_ERROR.
    fn hold_back(&self, stream: Stream) -> Result<()>;

    /// True if the stream has passed the mark; false also where that is not known.
    fn is_passed(&self) -> bool;
}

/// Words that kernels can read.
pub trait Words: Send + Sync {
    fn address(&self) -> Address;
}

impl Words for Box<[usize]> {
    fn address(&self) -> Address {
        Address(self.as_ptr() as usize)
    }
}

/// `WHOLEMEMORY_TRANSPORT`, the same on all ranks of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    Auto,
    Nccl,
    Local,
}

/// What the ranks of a communicator found out about each other; the same on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Why not every rank can map the DEVICE memory of every other, naming the ranks; `None` where all can.
    pub unreachable: Option<String>,
    /// Some ranks work on one device: they must not wait for each other on it, and NCCL refuses them.
    pub shares_device: bool,
    /// Another thread of a process has a communicator that waits on a device of these: they must not wait on it either.
    pub crowded: bool,
    /// Where every rank's GPU is in an NVLink fabric, where that is known; none on a platform without such.
    pub fabrics: Vec<Option<Fabric>>,
}

/// Where a GPU is in an NVLink fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// All zero: in none.
    pub cluster: [u8; 16],
    pub clique: u32,
    /// The GPU has joined it and can share memory over it.
    pub is_ready: bool,
}

/// True if all of these GPUs are in one clique of a fabric that is up, so that they can map each other's memory over hosts.
pub fn is_one_fabric(fabrics: &[Option<Fabric>]) -> bool {
    let Some(Some(first)) = fabrics.first() else {
        return false;
    };
    fabrics.iter().all(|fabric| {
        fabric.is_some_and(|f| f.is_ready && (f.cluster, f.clique) == (first.cluster, first.clique))
    })
}

/// A platform as one rank of one communicator uses it, bound to the rank's device for the communicator's life.
pub trait Member: Platform {
    /// Names the device; equal for two ranks exactly if they share it.
    fn identity(&self) -> String;

    /// The same device for another communicator of this rank.
    /// # Errors
    /// CUDA_ERROR.
    fn rebind(&self) -> Result<Arc<dyn Member>>;

    /// Collective over `boot`, once, when the communicator is made: finds out who reaches whose memory. What one rank finds
    /// missing is missing for all. `host_of` numbers the host of every rank; ranks of one host share its memory.
    /// # Errors
    /// COMMUNICATION_ERROR, SYSTEM_ERROR (no descriptors left); the same on all ranks. A lacking ability is no error.
    fn acquaint(&self, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach>;

    /// Makes the transport of the exchanging routes. Collective over `boot`: all ranks get one, or all the same error.
    /// # Errors
    /// NOT_SUPPORTED where the choice cannot be had, OUT_OF_MEMORY, CUDA_ERROR, COMMUNICATION_ERROR.
    fn transport(&self, choice: TransportChoice, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        ensure!(
            choice != TransportChoice::Nccl,
            NotSupported,
            "WHOLEMEMORY_TRANSPORT=nccl, but the {} platform has no NCCL transport",
            self.name()
        );
        self.local_transport(boot)
    }

    /// The communicator broke: ends what waits for other ranks on a device. Called by the control thread, any number of
    /// times, while the rank may be in any other call; must not block.
    fn abort(&self) {}

    /// This rank is about to leave: waits until what other ranks have to meet on a device for calls of this one has been met, or
    /// [`abort`](Member::abort) or [`peer_left`](Member::peer_left) ends it.
    fn finish(&self) {}

    /// Another rank has left, having [`finish`](Member::finish)ed: what still waits for it on a device waits in vain. Called as
    /// [`abort`](Member::abort) is.
    fn peer_left(&self) {}
}

/// What a handle needs from the platform: one partition a rank.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRequest<'a> {
    pub location: Location,
    /// Byte offsets of the partitions in the whole, world size + 1 values, ascending from 0.
    pub starts_bytes: &'a [usize],
    /// One range over all partitions (CONTINUOUS, CHUNKED HOST); else a range a rank, each aligned for itself.
    pub contiguous: bool,
}

/// Makes memory that all ranks of a host (or of an NVLink domain) can map.
pub trait Segments: Send + Sync {
    /// Alignment and size unit of allocations in bytes.
    fn granularity_bytes(&self) -> usize;

    /// Collective over `boot`: reserves, shares and maps. All ranks succeed or all fail alike; nothing remains of a failure.
    /// Content is zero on the CPU platform and for HOST, undefined else.
    /// # Errors
    /// OUT_OF_MEMORY, SYSTEM_ERROR, CUDA_ERROR, NOT_SUPPORTED, COMMUNICATION_ERROR.
    fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>>;
}

/// Memory over the ranks of a communicator as this rank maps it. Dropping it releases the local side.
pub trait Segment: Send + Sync {
    /// Where this rank sees the partition of `rank`; NULL where it does not (or the partition is empty and has no place).
    fn address_of_rank(&self, rank: usize) -> Address;

    /// The base of the one range over all partitions; `None` for a range a rank. An empty whole has a non-NULL base too.
    fn flat(&self) -> Option<Address>;

    /// Unmaps and releases. With `boot` (a healthy collective free) it waits for the other ranks where the platform
    /// needs that; with `None` it releases the local side alone.
    fn release(self: Box<Self>, boot: Option<&dyn Bootstrap>) -> Result<()>;

    /// Releases the local side of memory that no work of this rank uses any more; nothing is waited for.
    fn release_settled(self: Box<Self>) -> Result<()> {
        self.release(None)
    }
}

/// What one rank sends to all others and receives from them, in rank order on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Shipment<'a> {
    pub send: Address,
    pub send_bytes: &'a [usize],
    pub receive: Address,
    pub receive_bytes: &'a [usize],
}

/// Moves bytes between the ranks of a communicator, on a stream.
pub trait Transport: Send + Sync {
    /// Of each shipment, every rank sends `send_bytes[r]` bytes to each rank r, taken in rank order from `send`, and receives
    /// `receive_bytes[r]` from each, laid in rank order at `receive`. Collective, also for ranks with nothing to move; as many
    /// shipments on every rank. The counts must fit: `receive_bytes[r]` here is `send_bytes[me]` there.
    /// # Errors
    /// The same on all ranks, or the communicator of `boot` is broken: LOGIC_ERROR for counts that do not fit, CUDA_ERROR,
    /// COMMUNICATION_ERROR.
    fn ship(&self, boot: &dyn Bootstrap, shipments: &[Shipment<'_>], stream: Stream) -> Result<()>;

    /// One shipment.
    fn all_to_all_v(
        &self,
        boot: &dyn Bootstrap,
        send: Address,
        send_bytes: &[usize],
        receive: Address,
        receive_bytes: &[usize],
        stream: Stream,
    ) -> Result<()> {
        let shipment = Shipment {
            send,
            send_bytes,
            receive,
            receive_bytes,
        };
        self.ship(boot, &[shipment], stream)
    }

    /// Memory of the ranks that all of them read in place; `None` where they do not map each other's.
    fn window(&self) -> Option<Arc<dyn window::Window>> {
        None
    }

    /// Gives back what the transport holds; it is not used afterwards. With `boot` all ranks do so together; with `None`
    /// (a broken communicator, a process that leaves) only the local side goes. A transport that is only dropped does the latter.
    fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()>;
}

/// Where the rows of a table are.
#[derive(Clone, Copy, Debug)]
pub enum Places<'a> {
    /// Row r begins at `base + r * row_stride_bytes`.
    Flat(Address),
    /// Row r of rank k begins at `bases[k] + (r - start_rows[k]) * row_stride_bytes`; world size bases, world size + 1 starts.
    Ranks {
        bases: &'a [Address],
        start_rows: &'a [u64],
    },
}

/// A table as kernels see it. Row ids outside [0, rows) are skipped by every kernel.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    pub places: Places<'a>,
    /// Added to every row's address: the column window.
    pub offset_bytes: usize,
    pub row_stride_bytes: usize,
    pub rows: u64,
    /// Columns moved.
    pub cols: usize,
    pub dtype: DType,
}

/// Row ids: `count` values of INT or INT64, densely from `address`.
#[derive(Clone, Copy, Debug)]
pub struct Indices {
    pub address: Address,
    pub dtype: DType,
    pub count: usize,
}

/// Some of a list of ids: those at `count` positions, no two alike (INT64, densely from `positions`).
#[derive(Clone, Copy, Debug)]
pub struct Selected {
    pub indices: Indices,
    pub positions: Address,
    pub count: usize,
}

impl Selected {
    /// The ids by where they begin, as many as are selected.
    pub fn counted(&self) -> Indices {
        Indices {
            count: self.count,
            ..self.indices
        }
    }
}

/// Plain rows (an output of gather, an input of scatter): row i begins at `address + i * row_stride_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub address: Address,
    pub row_stride_bytes: usize,
    pub dtype: DType,
}

/// The operations on rows. Arguments are checked by the callers in `ops`; the kernels check nothing but ids.
/// A platform whose operations need memory to work in says how much, and is given it by `launch`.
pub trait Kernels: Send + Sync {
    /// What a gather makes use of; it works with none as well, only slower.
    fn gather_workspace_bytes(
        &self,
        _table: &Table<'_>,
        _indices: &Indices,
        _launch: Launch,
    ) -> Result<usize> {
        Ok(0)
    }

    /// `output[i] = convert(table[indices[i]])` for ids in [0, rows); other output rows are not touched.
    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()>;

    /// `table[indices[i]] = convert(input[i])` for ids in [0, rows); which of several equal ids wins is not specified.
    fn scatter(&self, input: &Rows, indices: &Indices, table: &Table<'_>, launch: Launch) -> Result<()>;

    /// [`gather_workspace_bytes`](Kernels::gather_workspace_bytes) of [`gather_selected`](Kernels::gather_selected).
    fn gather_selected_workspace_bytes(
        &self,
        _table: &Table<'_>,
        _selected: &Selected,
        _launch: Launch,
    ) -> Result<usize> {
        Ok(0)
    }

    /// The part of a gather at some positions p: `output[p] = convert(table[indices[p]])`.
    fn gather_selected(
        &self,
        table: &Table<'_>,
        selected: &Selected,
        output: &Rows,
        launch: Launch,
    ) -> Result<()>;

    /// The part of a scatter at some positions p: `table[indices[p]] = convert(input[p])`.
    fn scatter_selected(
        &self,
        input: &Rows,
        selected: &Selected,
        table: &Table<'_>,
        launch: Launch,
    ) -> Result<()>;

    /// What [`bucket`](Kernels::bucket) needs.
    fn bucket_workspace_bytes(
        &self,
        _indices: &Indices,
        _start_rows: &[u64],
        _bucket_count: usize,
    ) -> Result<usize> {
        Ok(0)
    }

    /// Stable multi-split by owner. Owner of a row: the k with `start_rows[k] <= id < start_rows[k + 1]`; its bucket:
    /// `bucket_of_owner[k]`. Writes the ids (same dtype) bucket by bucket to `ids`, their positions in the input (INT64) to
    /// `positions`, both with room for `indices.count`; returns the counts of the `bucket_count` buckets. Ids outside
    /// [0, rows) are left out.
    #[allow(clippy::too_many_arguments)]
    fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        bucket_count: usize,
        ids: Address,
        positions: Address,
        launch: Launch,
    ) -> Result<Vec<u64>>;

    /// What [`unique`](Kernels::unique) needs.
    fn unique_workspace_bytes(&self, _indices: &Indices, _rows: u64) -> Result<usize> {
        Ok(0)
    }

    /// Removes doubles: writes the distinct ids ascending to `unique` (same dtype, room for `count`) and for every input
    /// position the slot of its id (INT64) to `slots`; returns how many are distinct. All ids are in [0, rows).
    fn unique(
        &self,
        indices: &Indices,
        rows: u64,
        unique: Address,
        slots: Address,
        launch: Launch,
    ) -> Result<u64>;

    /// `output[r][c] = input[c] + r` for `rows` rows of `cols` columns: r goes through a float, the sum is of the type itself,
    /// integers wrap. `input` is dense and of the output's dtype.
    fn add_row_numbers(
        &self,
        input: Address,
        rows: usize,
        cols: usize,
        output: &Rows,
        launch: Launch,
    ) -> Result<()>;
}
