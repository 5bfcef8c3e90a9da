//! Ranks whose platform has little memory: what steps keep for the next one gives way to what the caller wants.

use crate::delegate::like_the_cpu;
use crate::grid::{Ids, describe, pointer};
use crate::heap::Heap;
use crate::moving::Table;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wholegraph::comm::{Communicator, UniqueId};
use wholegraph::error::{Error, Kind, Result};
use wholegraph::kinds::{DType, Location, MemoryType};
use wholegraph::memory::{MallocRequest, Memory};
use wholegraph::ops::{Gradients, apply_gradients};
use wholegraph::platform::cpu::CpuPlatform;
use wholegraph::platform::{
    Bootstrap, Kernels, Member, Platform, Reach, Segment, SegmentRequest, Segments, Stream,
};
use wholegraph::span::Address;

const MOST_BYTES: usize = 1 << 20;
const ROWS: i64 = 60;
const COLS: i64 = 16;

/// The CPU platform of one rank, which has no memory for more than [`MOST_BYTES`] over all ranks.
#[derive(Clone, Default)]
struct Crowded {
    live_bytes: Arc<AtomicUsize>,
}

struct Counted {
    inner: Box<dyn Segment>,
    bytes: usize,
    live_bytes: Arc<AtomicUsize>,
}

impl Segment for Counted {
    fn address_of_rank(&self, rank: usize) -> Address {
        self.inner.address_of_rank(rank)
    }

    fn flat(&self) -> Option<Address> {
        self.inner.flat()
    }

    fn release(self: Box<Self>, boot: Option<&dyn Bootstrap>) -> Result<()> {
        let released = self.inner.release(boot);
        self.live_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        released
    }
}

impl Segments for Crowded {
    fn granularity_bytes(&self) -> usize {
        CpuPlatform.segments().granularity_bytes()
    }

    fn create(&self, request: &SegmentRequest<'_>, boot: &dyn Bootstrap) -> Result<Box<dyn Segment>> {
        let bytes = *request.starts_bytes.last().unwrap();
        let live_bytes = self.live_bytes.load(Ordering::Relaxed);
        if live_bytes + bytes > MOST_BYTES {
            let what = format!("{bytes} bytes beside {live_bytes}");
            return Err(Error::new(Kind::OutOfMemory, what));
        }
        let inner = CpuPlatform.segments().create(request, boot)?;
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Box::new(Counted {
            inner,
            bytes,
            live_bytes: self.live_bytes.clone(),
        }))
    }
}

impl Platform for Crowded {
    like_the_cpu!();

    fn segments(&self) -> &dyn Segments {
        self
    }

    fn kernels(&self) -> &dyn Kernels {
        CpuPlatform.kernels()
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        CpuPlatform.copy(to, from, bytes, stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        CpuPlatform.synchronize(stream)
    }
}

impl Member for Crowded {
    fn identity(&self) -> String {
        CpuPlatform.identity()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        Ok(Arc::new(self.clone()))
    }

    fn acquaint(&self, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach> {
        CpuPlatform.acquaint(boot, host_of)
    }
}

/// Every rank has a gradient of 1 for every row.
fn step(table: &Table) -> Result<()> {
    let mut ids = Ids::new(DType::Int64, &(0..ROWS).collect::<Vec<_>>(), 0);
    let mut ones = vec![1f32; (ROWS * COLS) as usize];
    let description = describe(&[ROWS, COLS], &[COLS, 1], 0, DType::Float);
    let gradients = pointer(description, ones.as_mut_ptr() as usize);
    let mine = Gradients {
        indices: &ids.operand(),
        gradients: &gradients,
    };
    let done = apply_gradients(&table.learner(1.0), Ok(mine), &Heap::default(), Stream(0));
    std::hint::black_box(&ones);
    done
}

fn malloc(comm: &Arc<Communicator>, bytes: usize) -> Result<Arc<Memory>> {
    Memory::malloc(
        comm,
        Ok(MallocRequest {
            total_bytes: bytes,
            memory_type: MemoryType::Distributed.raw(),
            location: Location::Host.raw(),
            granule_bytes: 1,
            rank_granules: None,
            rmm_enabled: false,
            freed_alone: false,
            described_by: Vec::new(),
        }),
    )
}

fn one_rank(comm: &Arc<Communicator>, crowded: &Crowded) {
    let live_bytes = || crowded.live_bytes.load(Ordering::Relaxed);
    let place = (MemoryType::Distributed, Location::Host);
    let table = Table::new(comm, place, DType::Float, ROWS, (COLS, COLS, 0), None);
    table.visit(|_, _, element| element.copy_from_slice(&0f32.to_ne_bytes()));
    comm.barrier().unwrap();
    let table_bytes = live_bytes();
    comm.learner_joined();
    step(&table).unwrap();
    assert!(
        live_bytes() > table_bytes,
        "a step keeps what the ranks left gradients in"
    );
    // More than there is, even without that.
    let refused = malloc(comm, MOST_BYTES - table_bytes + 1).err().unwrap();
    assert_eq!(refused.kind, Kind::OutOfMemory);
    step(&table).unwrap();
    assert!(live_bytes() > table_bytes);
    let rest = malloc(comm, MOST_BYTES - table_bytes).unwrap();
    assert_eq!(live_bytes(), MOST_BYTES);
    // There is no room for it now.
    step(&table).unwrap();
    assert_eq!(live_bytes(), MOST_BYTES);
    rest.free().unwrap();
    comm.barrier().unwrap();
    table.visit(|row, col, element| {
        let got = f32::from_ne_bytes((&*element).try_into().unwrap());
        assert_eq!(got, -3.0 * comm.size() as f32, "row {row} column {col}");
    });
    comm.barrier().unwrap();
    // There is room again, which is asked for after a while.
    let asked = (0..100).find(|_| {
        step(&table).unwrap();
        live_bytes() > table_bytes
    });
    assert!(asked.is_some());
    // A rank's part of what steps keep goes with the last that learns.
    comm.learner_left().unwrap();
    assert_eq!(live_bytes(), table_bytes);
    // Who goes on all the same keeps nothing.
    step(&table).unwrap();
    assert_eq!(live_bytes(), table_bytes);
    table.memory.free().unwrap();
    assert_eq!(live_bytes(), 0);
}

#[test]
fn what_steps_keep_gives_way_to_memory_that_is_wanted() {
    let (id, size) = (UniqueId::create().unwrap(), 3);
    std::thread::scope(|scope| {
        for rank in 0..size {
            let id = &id;
            scope.spawn(move || {
                crate::world::or_end_the_process(rank as usize, || {
                    let crowded = Crowded::default();
                    let bound: Arc<dyn Member> = Arc::new(crowded.clone());
                    let comm = Communicator::create_on(id, rank, size, || Ok(bound)).unwrap();
                    one_rank(&comm, &crowded);
                    comm.destroy().unwrap();
                });
            });
        }
    });
}
