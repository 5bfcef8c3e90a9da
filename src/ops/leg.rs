//! The pieces exchanges are made of: scratch cut from one block, the agreement on it, and moves between the ranks of a circle.

use super::{Buffers, Scratch};
use crate::error::{Error, Kind, Result};
use crate::kinds::{AllocationType, DType};
use crate::platform::{
    Bootstrap, Indices, Launch, Platform, Rows, Selected, Shipment, Table, Transport, Workspace, agree,
};
use crate::span::Address;

/// What an exchange works with.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub platform: &'a dyn Platform,
    pub buffers: &'a dyn Buffers,
    /// All ranks of the call.
    pub world: &'a dyn Bootstrap,
    /// Stream of the call; the width is the caller's and meant for reading the table.
    pub launch: Launch,
}

/// Ranks that exchange rows with each other, and what carries them.
#[derive(Clone, Copy)]
pub struct Circle<'a> {
    pub boot: &'a dyn Bootstrap,
    pub transport: &'a dyn Transport,
}

/// A scratch block that several arrays share; released on drop.
pub struct Arena<'a> {
    _block: Option<Box<dyn Scratch + 'a>>,
}

/// Sub-blocks begin at multiples of this from the beginning of their block.
const ALIGNMENT_BYTES: u128 = 256;

/// Bytes of `count` things of `unit_bytes`, beyond all address spaces if need be.
pub fn bytes_of(count: u64, unit_bytes: usize) -> u128 {
    u128::from(count) * unit_bytes as u128
}

impl<'a> Field<'a> {
    /// One block of device scratch for arrays of the given sizes. No block is asked for if all are empty.
    /// # Errors
    /// OUT_OF_MEMORY.
    pub fn arena<const N: usize>(&self, sizes_bytes: [u128; N]) -> Result<(Arena<'a>, [Address; N])> {
        let mut total_bytes: u128 = 0;
        let starts = sizes_bytes.map(|bytes| {
            let start = total_bytes;
            total_bytes = bytes
                .saturating_add(total_bytes)
                .saturating_add(ALIGNMENT_BYTES - 1)
                / ALIGNMENT_BYTES
                * ALIGNMENT_BYTES;
            start
        });
        if total_bytes == 0 {
            return Ok((Arena { _block: None }, [Address::NULL; N]));
        }
        if total_bytes > isize::MAX as u128 {
            let what =
                format!("the exchange needs {total_bytes} bytes of scratch, more than the address space has");
            return Err(Error::new(Kind::OutOfMemory, what));
        }
        let words = total_bytes as usize / DType::Int64.size_bytes();
        let block = self
            .buffers
            .scratch(words, DType::Int64, AllocationType::Device)?;
        let addresses = starts.map(|start| block.address().offset_bytes(start as usize));
        Ok((Arena { _block: Some(block) }, addresses))
    }

    /// Whether every rank has the room it needs; if not, all fail alike and nothing has been sent. Collective.
    /// # Errors
    /// That of the lowest rank that failed, OUT_OF_MEMORY where the caller gave no scratch.
    pub fn agree_room<T>(&self, mine: Result<T>) -> Result<T> {
        agree(self.world, &[], mine)
    }

    /// [`Kernels::gather`](crate::platform::Kernels::gather), which is not launched for no ids.
    pub fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
        if indices.count == 0 {
            return Ok(());
        }
        gather_with_workspace(self.platform, self.buffers, table, indices, output, launch)
    }

    /// [`Kernels::bucket`](crate::platform::Kernels::bucket) with what it needs.
    pub fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        buckets: usize,
        ids: Address,
        positions: Address,
    ) -> Result<Vec<u64>> {
        let kernels = self.platform.kernels();
        let bytes = kernels.bucket_workspace_bytes(indices, start_rows, buckets)?;
        with_workspace(self.buffers, bytes, self.plain_launch(), |launch| {
            kernels.bucket(
                indices,
                start_rows,
                bucket_of_owner,
                buckets,
                ids,
                positions,
                launch,
            )
        })
    }

    /// [`Kernels::unique`](crate::platform::Kernels::unique) with what it needs.
    pub fn unique(&self, indices: &Indices, rows: u64, unique: Address, slots: Address) -> Result<u64> {
        let kernels = self.platform.kernels();
        let bytes = kernels.unique_workspace_bytes(indices, rows)?;
        with_workspace(self.buffers, bytes, self.plain_launch(), |launch| {
            kernels.unique(indices, rows, unique, slots, launch)
        })
    }

    /// [`Kernels::scatter`](crate::platform::Kernels::scatter), which is not launched for no ids.
    pub fn scatter(&self, input: &Rows, indices: &Indices, table: &Table<'_>) -> Result<()> {
        if indices.count == 0 {
            return Ok(());
        }
        self.platform
            .kernels()
            .scatter(input, indices, table, self.plain_launch())
    }

    /// [`Kernels::gather_selected`](crate::platform::Kernels::gather_selected), which is not launched for no ids.
    pub fn gather_selected(&self, table: &Table<'_>, selected: &Selected, output: &Rows) -> Result<()> {
        if selected.count == 0 {
            return Ok(());
        }
        let kernels = self.platform.kernels();
        let bytes = kernels.gather_selected_workspace_bytes(table, selected, self.launch)?;
        with_workspace_if_room(self.buffers, bytes, self.launch, |launch| {
            kernels.gather_selected(table, selected, output, launch)
        })
    }

    /// [`Kernels::scatter_selected`](crate::platform::Kernels::scatter_selected), which is not launched for no ids.
    pub fn scatter_selected(&self, input: &Rows, selected: &Selected, table: &Table<'_>) -> Result<()> {
        if selected.count == 0 {
            return Ok(());
        }
        self.platform
            .kernels()
            .scatter_selected(input, selected, table, self.plain_launch())
    }

    /// The stream of the call at automatic width.
    pub fn plain_launch(&self) -> Launch {
        Launch {
            stream: self.launch.stream,
            ..Launch::default()
        }
    }
}

/// Calls `work` with scratch of `bytes` to work in; none asks for no block.
/// # Errors
/// OUT_OF_MEMORY, and those of `work`.
pub fn with_workspace<T>(
    buffers: &dyn Buffers,
    bytes: usize,
    launch: Launch,
    work: impl FnOnce(Launch) -> Result<T>,
) -> Result<T> {
    if bytes == 0 {
        return work(launch);
    }
    let words = bytes.div_ceil(DType::Int64.size_bytes());
    let block = buffers.scratch(words, DType::Int64, AllocationType::Device)?;
    let workspace = Workspace {
        address: block.address(),
        bytes,
    };
    work(Launch { workspace, ..launch })
}

/// [`Kernels::gather`](crate::platform::Kernels::gather) with what makes it faster, if there is room for that.
pub fn gather_with_workspace(
    platform: &dyn Platform,
    buffers: &dyn Buffers,
    table: &Table<'_>,
    indices: &Indices,
    output: &Rows,
    launch: Launch,
) -> Result<()> {
    let kernels = platform.kernels();
    let mut bytes = kernels.gather_workspace_bytes(table, indices, launch)?;
    if bytes > 0 && !buffers.outlasts_recording() && platform.is_capturing(launch.stream)? {
        bytes = 0;
    }
    with_workspace_if_room(buffers, bytes, launch, |launch| {
        kernels.gather(table, indices, output, launch)
    })
}

/// [`with_workspace`] for what can do without.
fn with_workspace_if_room(
    buffers: &dyn Buffers,
    bytes: usize,
    launch: Launch,
    work: impl Fn(Launch) -> Result<()>,
) -> Result<()> {
    let mut started = false;
    let outcome = with_workspace(buffers, bytes, launch, |launch| {
        started = true;
        work(launch)
    });
    match started {
        true => outcome,
        false => work(launch),
    }
}

/// Things that go from every rank of a circle to every other, counted; the answers go back the same way.
pub struct Leg<'a> {
    pub circle: Circle<'a>,
    /// To each rank of the circle.
    pub sent: Vec<u64>,
    /// From each rank of the circle.
    pub received: Vec<u64>,
}

impl Leg<'_> {
    pub fn sent_count(&self) -> u64 {
        self.sent.iter().sum()
    }

    pub fn received_count(&self) -> u64 {
        self.received.iter().sum()
    }

    /// Moves `unit_bytes` for everything counted, densely in rank order on both sides. Collective over the circle.
    pub fn forward(&self, field: &Field<'_>, from: Address, to: Address, unit_bytes: usize) -> Result<()> {
        self.circle
            .carry(field, from, &self.sent, to, &self.received, unit_bytes)
    }

    /// [`Leg::forward`] of several things with the same counts at once: where they come from, where they go, and bytes of each.
    pub fn forward_all(&self, field: &Field<'_>, things: &[(Address, Address, usize)]) -> Result<()> {
        let sizes: Vec<_> = things
            .iter()
            .map(|(_, _, unit_bytes)| (bytes(&self.sent, *unit_bytes), bytes(&self.received, *unit_bytes)))
            .collect();
        let shipments: Vec<_> = things
            .iter()
            .zip(&sizes)
            .map(|((from, to, _), (sent, received))| Shipment {
                send: *from,
                send_bytes: sent,
                receive: *to,
                receive_bytes: received,
            })
            .collect();
        let circle = &self.circle;
        circle
            .transport
            .ship(circle.boot, &shipments, field.launch.stream)
    }

    /// Moves the other way: an answer of `unit_bytes` to everything counted.
    pub fn back(&self, field: &Field<'_>, from: Address, to: Address, unit_bytes: usize) -> Result<()> {
        self.circle
            .carry(field, from, &self.received, to, &self.sent, unit_bytes)
    }
}

/// The arenas on both sides hold these products, so they fit.
fn bytes(counts: &[u64], unit_bytes: usize) -> Vec<usize> {
    counts.iter().map(|n| *n as usize * unit_bytes).collect()
}

impl<'a> Circle<'a> {
    fn carry(
        &self,
        field: &Field<'_>,
        from: Address,
        sent: &[u64],
        to: Address,
        received: &[u64],
        unit_bytes: usize,
    ) -> Result<()> {
        self.transport.all_to_all_v(
            self.boot,
            from,
            &bytes(sent, unit_bytes),
            to,
            &bytes(received, unit_bytes),
            field.launch.stream,
        )
    }

    /// A leg from each rank's own counts. Collective over the circle.
    pub fn leg(self, sent: Vec<u64>) -> Result<Leg<'a>> {
        let me = self.boot.rank();
        let received = self
            .boot
            .all_gather(&encode_words(&sent))?
            .iter()
            .enumerate()
            .map(|(rank, bytes)| {
                decode_words(bytes).get(me).copied().ok_or_else(|| {
                    let what = format!("rank {rank} of the exchange sent {} bytes of counts", bytes.len());
                    Error::new(Kind::Communication, what)
                })
            })
            .collect::<Result<_>>()?;
        Ok(Leg {
            circle: self,
            sent,
            received,
        })
    }
}

/// Numbers as ranks send them to each other.
pub fn encode_words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn decode_words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
