//! Ranks whose stream records a graph, or whose platform cannot be entered, on a platform that tells what becomes of each stream:
//! their calls are refused without a touch of a recording, and the others get their rows.

use crate::delegate::like_the_cpu;
use crate::grid::{Grid, Ids, describe, pointer, value};
use crate::heap::Heap;
use crate::moving::{Table, gather_and_check};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use wholegraph::comm::{Communicator, UniqueId};
use wholegraph::embedding::{Access, CachePolicy, Embedding, Optimizer, Request};
use wholegraph::error::{Error, Kind, Result};
use wholegraph::kinds::{DType, Location, MemoryType};
use wholegraph::ops;
use wholegraph::ops::sampling::{SampleContexts, Sampling};
use wholegraph::ops::{Gradients, apply_gradients};
use wholegraph::platform::caching::AfterWriteBack;
use wholegraph::platform::cpu::CpuPlatform;
use wholegraph::platform::learning::OptimizerKind;
use wholegraph::platform::{
    Bootstrap, Indices, Kernels, Launch, Member, Platform, Reach, Rows, Segments, Selected, Stream,
    Table as KernelTable,
};
use wholegraph::span::Address;

const RECORDING: Stream = Stream(77);
/// Cannot be asked while another stream records.
const UNASKABLE: Stream = Stream(78);
/// A working one, of a platform that cannot be entered meanwhile.
const SHUT: Stream = Stream(79);
const WORKING: Stream = Stream(5);
const SIDE: Stream = Stream(2);

/// The rank that is refused, for its stream, with which code.
const REFUSALS: [(usize, Stream, Kind); 4] = [
    (0, RECORDING, Kind::NotSupported),
    (2, RECORDING, Kind::NotSupported),
    (1, UNASKABLE, Kind::Cuda),
    (1, SHUT, Kind::Cuda),
];

/// The CPU platform with streams that are told apart, and how often each was used.
#[derive(Default)]
struct Streams {
    uses: Mutex<BTreeMap<usize, usize>>,
    is_shut: AtomicBool,
    /// Fails to get acquainted, by itself.
    is_shy: bool,
}

impl Streams {
    fn used(&self, stream: Stream) {
        *self.uses.lock().unwrap().entry(stream.0).or_default() += 1;
    }

    fn take(&self) -> BTreeMap<usize, usize> {
        std::mem::take(&mut self.uses.lock().unwrap())
    }

    /// What `call` returned, given `stream`, and how often it used which.
    fn watch<T>(&self, stream: Stream, call: impl FnOnce(Stream) -> T) -> (T, BTreeMap<usize, usize>) {
        self.take();
        self.is_shut.store(stream == SHUT, Ordering::Relaxed);
        let done = call(stream);
        self.is_shut.store(false, Ordering::Relaxed);
        (done, self.take())
    }
}

/// Its call failed with `kind`, and left a stream that records alone.
fn assert_refused(done: Result<()>, used: &BTreeMap<usize, usize>, (stream, kind): (Stream, Kind)) {
    let error = done.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    if kind == Kind::NotSupported {
        assert!(error.what.contains("recording"), "{error}");
    }
    if stream != SHUT {
        assert!(!used.contains_key(&stream.0), "{used:?}");
        // The scratch is the caller's again: its last use was waited for.
        assert!(used[&SIDE.0] >= 1, "{used:?}");
    }
}

impl Platform for Streams {
    like_the_cpu!();

    fn segments(&self) -> &dyn Segments {
        CpuPlatform.segments()
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.used(stream);
        CpuPlatform.copy(to, from, bytes, stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.used(stream);
        Ok(())
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool> {
        match stream {
            UNASKABLE => Err(Error::new(Kind::Cuda, "another stream records")),
            other => Ok(other == RECORDING),
        }
    }

    fn side_stream(&self) -> Stream {
        SIDE
    }

    fn within(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        match self.is_shut.load(Ordering::Relaxed) {
            true => Err(Error::new(Kind::Cuda, "the device is lost")),
            false => work(),
        }
    }
}

impl Kernels for Streams {
    fn gather(
        &self,
        table: &KernelTable<'_>,
        indices: &Indices,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        self.used(launch.stream);
        CpuPlatform.gather(table, indices, output, launch)
    }

    fn scatter(
        &self,
        input: &Rows,
        indices: &Indices,
        table: &KernelTable<'_>,
        launch: Launch,
    ) -> Result<()> {
        self.used(launch.stream);
        CpuPlatform.scatter(input, indices, table, launch)
    }

    fn gather_selected(
        &self,
        table: &KernelTable<'_>,
        selected: &Selected,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        self.used(launch.stream);
        CpuPlatform.gather_selected(table, selected, output, launch)
    }

    fn scatter_selected(
        &self,
        input: &Rows,
        selected: &Selected,
        table: &KernelTable<'_>,
        launch: Launch,
    ) -> Result<()> {
        self.used(launch.stream);
        CpuPlatform.scatter_selected(input, selected, table, launch)
    }

    fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        bucket_count: usize,
        ids: Address,
        positions: Address,
        launch: Launch,
    ) -> Result<Vec<u64>> {
        self.used(launch.stream);
        CpuPlatform.bucket(
            indices,
            start_rows,
            bucket_of_owner,
            bucket_count,
            ids,
            positions,
            launch,
        )
    }

    fn unique(
        &self,
        indices: &Indices,
        rows: u64,
        unique: Address,
        slots: Address,
        launch: Launch,
    ) -> Result<u64> {
        self.used(launch.stream);
        CpuPlatform.unique(indices, rows, unique, slots, launch)
    }

    fn add_row_numbers(
        &self,
        input: Address,
        rows: usize,
        cols: usize,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        CpuPlatform.add_row_numbers(input, rows, cols, output, launch)
    }
}

impl Member for Streams {
    fn identity(&self) -> String {
        CpuPlatform.identity()
    }

    fn rebind(&self) -> Result<Arc<dyn Member>> {
        Ok(Arc::new(Streams::default()))
    }

    fn acquaint(&self, boot: &dyn Bootstrap, host_of: &[usize]) -> Result<Reach> {
        match self.is_shy {
            true => Err(Error::new(Kind::Cuda, "no wish to know anybody")),
            false => CpuPlatform.acquaint(boot, host_of),
        }
    }
}

const ROWS: i64 = 30;

fn gather_all(table: &Table, stream: Stream) -> (Result<()>, Grid) {
    let ids: Vec<i64> = (0..ROWS).rev().collect();
    let mut output = Grid::new(DType::Float, ids.len(), 4, 4, 0);
    let operand = output.operand();
    let mut ids = Ids::new(DType::Int, &ids, 0);
    let done = ops::gather(
        &table.operand(),
        &ids.operand(),
        &operand,
        &Heap::default(),
        stream,
        -1,
    );
    (done, output)
}

fn one_records(comm: &Arc<Communicator>, streams: &Streams, memory_type: MemoryType) {
    let table = Table::new(
        comm,
        (memory_type, Location::Host),
        DType::Float,
        ROWS,
        (4, 4, 0),
        None,
    );
    let untouched = Grid::new(DType::Float, ROWS as usize, 4, 4, 0);
    let mut want = Grid::new(DType::Float, ROWS as usize, 4, 4, 0);
    (0..ROWS as usize).for_each(|i| want.set(i, |col| value(0, ROWS - 1 - i as i64, col)));
    for (culprit, stream, kind) in REFUSALS {
        let refused = comm.rank() == culprit;
        let own = if refused { stream } else { WORKING };
        let ((done, output), used) = streams.watch(own, |own| gather_all(&table, own));
        if refused {
            assert_refused(done, &used, (stream, kind));
            output.assert_same(&untouched, "the output of a refused gather");
        } else {
            done.unwrap();
            output.assert_same(&want, "the rows of a gather beside a refused one");
            assert_eq!(used.keys().copied().collect::<Vec<_>>(), [WORKING.0]);
        }
    }
    // All is well for the next calls, recorded by nobody.
    gather_and_check(comm, &table, DType::Half, DType::Int64, "after refused ones");
    table.memory.free().unwrap();
}

/// Every node has three neighbours: node v, by edges 3 v to 3 v + 2, the nodes (7 e) mod 30.
fn one_records_a_sample(comm: &Arc<Communicator>, streams: &Streams, memory_type: MemoryType) {
    let part = |dtype, count: i64, what: fn(i64) -> i64| {
        let table = Table::new(comm, (memory_type, Location::Host), dtype, count, (1, 1, 0), None);
        table.visit(|row, _, element| {
            element.copy_from_slice(&match dtype {
                DType::Int64 => what(row).to_ne_bytes().to_vec(),
                DType::Int => (what(row) as i32).to_ne_bytes().to_vec(),
                _ => (what(row) as f32).to_ne_bytes().to_vec(),
            });
        });
        comm.barrier().unwrap();
        table
    };
    let row_pointers = part(DType::Int64, ROWS + 1, |node| 3 * node);
    let columns = part(DType::Int, 3 * ROWS, |edge| 7 * edge % ROWS);
    let weights = part(DType::Float, 3 * ROWS, |edge| 1 + edge % 5);
    let array = |table: &Table, count: i64| table.described(describe(&[count], &[1], 0, table.dtype));
    for weighted in [false, true] {
        for (culprit, stream, kind) in REFUSALS {
            let refused = comm.rank() == culprit;
            let mut centers = Ids::new(DType::Int, &(0..ROWS).collect::<Vec<_>>(), 0);
            let mut offsets = vec![-7i32; ROWS as usize + 1];
            let heap = Heap::default();
            let sampling = Sampling {
                row_pointers: array(&row_pointers, ROWS + 1),
                columns: array(&columns, 3 * ROWS),
                weights: weighted.then(|| array(&weights, 3 * ROWS)),
                centers: centers.operand(),
                offsets: pointer(
                    describe(&[ROWS + 1], &[1], 0, DType::Int),
                    offsets.as_mut_ptr() as usize,
                ),
                most: 2,
                seed: 5,
                contexts: SampleContexts {
                    dest: Address(1),
                    edge_gid: Address(2),
                    ..SampleContexts::default()
                },
            };
            let own = if refused { stream } else { WORKING };
            let (done, used) = streams.watch(own, |own| sampling.run(Ok(()), Ok(()), &heap, own));
            let offsets = std::hint::black_box(offsets);
            let outputs = heap.outputs.borrow();
            if refused {
                assert_refused(done, &used, (stream, kind));
                assert!(offsets.iter().all(|offset| *offset == -7));
                assert!(outputs.is_empty());
                continue;
            }
            done.unwrap();
            assert!(used.keys().all(|stream| *stream == WORKING.0), "{used:?}");
            assert!((0..=ROWS as usize).all(|i| offsets[i] == 2 * i as i32));
            // Edges first: the graph lies apart.
            assert_eq!((outputs[0].context, outputs[1].context), (Address(2), Address(1)));
            for x in 0..2 * ROWS as usize {
                let edge = outputs[0].words[x] as i64;
                let dest = (outputs[1].words[x / 2] >> (32 * (x % 2))) as i32;
                assert_eq!(edge / 3, x as i64 / 2, "an edge of another center");
                assert_eq!(i64::from(dest), 7 * edge % ROWS);
                assert!(
                    x % 2 == 0 || edge != outputs[0].words[x - 1] as i64,
                    "an edge twice"
                );
            }
        }
    }
    for part in [row_pointers, columns, weights] {
        part.memory.free().unwrap();
    }
}

/// Every rank has a gradient of ones for every row; a step of SGD at rate 1/4 takes a quarter off for each rank that takes part.
fn one_records_a_step(comm: &Arc<Communicator>, streams: &Streams, memory_type: MemoryType) {
    let whole = |row: i64, col: usize| (row * 16 + col as i64) as f32;
    let place = (memory_type, Location::Host);
    let table = Table::new(comm, place, DType::Float, ROWS, (4, 4, 0), None);
    table.visit(|row, col, element| element.copy_from_slice(&whole(row, col as usize).to_ne_bytes()));
    comm.barrier().unwrap();
    let learner = table.learner(0.25);
    let mut steps = 0.0;
    for (culprit, stream, kind) in REFUSALS {
        let refused = comm.rank() == culprit;
        let mut ids = Ids::new(DType::Int64, &(0..ROWS).collect::<Vec<_>>(), 0);
        let mut ones = vec![1f32; ROWS as usize * 4];
        let gradients = pointer(
            describe(&[ROWS, 4], &[4, 1], 0, DType::Float),
            ones.as_mut_ptr() as usize,
        );
        let mine = Gradients {
            indices: &ids.operand(),
            gradients: &gradients,
        };
        let own = if refused { stream } else { WORKING };
        let step = |own| apply_gradients(&learner, Ok(mine), &Heap::default(), own);
        let (done, used) = streams.watch(own, step);
        std::hint::black_box(&ones);
        if refused {
            assert_refused(done, &used, (stream, kind));
        } else {
            done.unwrap();
        }
        steps += 1.0;
        comm.barrier().unwrap();
        table.visit(|row, col, element| {
            let got = f32::from_ne_bytes((&*element).try_into().unwrap());
            assert_eq!(
                got,
                whole(row, col as usize) - 0.5 * steps,
                "row {row} column {col}"
            );
        });
        comm.barrier().unwrap();
    }
    table.memory.free().unwrap();
}

/// Every rank asks for all rows through a cache with room for them, and then empties the cache.
fn one_records_a_cached_gather(comm: &Arc<Communicator>, streams: &Streams) {
    const ROWS: i64 = 96;
    let request = Request {
        description: describe(&[ROWS, 4], &[4, 1], 0, DType::Float),
        memory_type: MemoryType::Distributed.raw(),
        location: Location::Host.raw(),
        policy: Some(CachePolicy {
            comm: comm.clone(),
            memory_type: MemoryType::Distributed.raw(),
            location: Location::Device.raw(),
            access: Access::ReadWrite as u32,
            ratio: 1.0,
        }),
        partition: None,
        sms: -1,
        round_robin_size: 0,
        rmm_enabled: false,
    };
    let embedding = Embedding::create(comm, Ok(request)).unwrap();
    let mut loads_before = 0;
    let mut loaded = || {
        let loads = embedding.cache_state().unwrap().counters.loads;
        loads - std::mem::replace(&mut loads_before, loads)
    };
    for (culprit, stream, kind) in REFUSALS {
        let refused = comm.rank() == culprit;
        let own = if refused { stream } else { WORKING };
        let settle = |(done, used): (Result<()>, BTreeMap<usize, usize>)| match refused {
            true => assert_refused(done, &used, (stream, kind)),
            false => {
                done.unwrap();
                assert!(used.keys().all(|stream| *stream == WORKING.0), "{used:?}");
            }
        };
        let mut ids = Ids::new(DType::Int64, &(0..ROWS).collect::<Vec<_>>(), 0);
        let mut output = Grid::new(DType::Float, ROWS as usize, 4, 4, 0);
        let (ids, rows) = (ids.operand(), output.operand());
        let gather = |own| embedding.gather(&ids, &rows, true, &Heap::default(), own);
        settle(streams.watch(own, gather));
        assert_eq!(
            loaded(),
            32,
            "also a refused rank brings in what the others ask it for"
        );
        for then in [AfterWriteBack::Keep, AfterWriteBack::Drop] {
            settle(streams.watch(own, |own| embedding.write_back(Ok(()), then, own)));
        }
        gather(WORKING).unwrap();
        assert_eq!(
            loaded(),
            if refused { 0 } else { 32 },
            "only the others were emptied"
        );
        embedding
            .write_back(Ok(()), AfterWriteBack::Drop, WORKING)
            .unwrap();
    }
    embedding.release().unwrap();
}

/// Three ranks make a communicator, the shy ones on a platform that fails them alone.
fn three_ranks(shy: Option<i32>, body: impl Fn(i32, Result<Arc<Communicator>>, &Streams) + Sync) {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|scope| {
        for rank in 0..3 {
            let (id, body) = (&id, &body);
            scope.spawn(move || {
                crate::world::or_end_the_process(rank as usize, || {
                    let streams = Arc::new(Streams {
                        is_shy: shy == Some(rank),
                        ..Streams::default()
                    });
                    let bound: Arc<dyn Member> = streams.clone();
                    body(rank, Communicator::create_on(id, rank, 3, || Ok(bound)), &streams);
                });
            });
        }
    });
}

#[test]
fn a_rank_that_records_or_cannot_work_is_refused_alone() {
    three_ranks(None, |_, comm, streams| {
        let comm = comm.unwrap();
        for memory_type in [MemoryType::Distributed, MemoryType::Hierarchy] {
            one_records(&comm, streams, memory_type);
            one_records_a_sample(&comm, streams, memory_type);
            one_records_a_step(&comm, streams, memory_type);
        }
        one_records_a_cached_gather(&comm, streams);
        comm.destroy().unwrap();
    });
}

/// Who changes a cache has a turn among streams, which a recording has not: also a single rank's step is refused, and changes
/// nothing. Without a cache it is not, where scratch lives as long as the graph.
#[test]
fn a_single_rank_records_steps_without_a_cache_alone() {
    let streams = Arc::new(Streams::default());
    let bound: Arc<dyn Member> = streams.clone();
    let comm = Communicator::create_on(&UniqueId::create().unwrap(), 0, 1, || Ok(bound)).unwrap();
    for cached in [true, false] {
        let policy = CachePolicy {
            comm: comm.clone(),
            memory_type: MemoryType::Continuous.raw(),
            location: Location::Device.raw(),
            access: Access::ReadWrite as u32,
            ratio: 0.5,
        };
        let request = Request {
            description: describe(&[ROWS, 4], &[4, 1], 0, DType::Float),
            memory_type: MemoryType::Continuous.raw(),
            location: Location::Host.raw(),
            policy: cached.then_some(policy),
            partition: None,
            sms: -1,
            round_robin_size: 0,
            rmm_enabled: false,
        };
        let embedding = Embedding::create(&comm, Ok(request)).unwrap();
        embedding
            .set_optimizer(Ok(Some(Arc::new(
                Optimizer::new(OptimizerKind::Sgd as u32).unwrap(),
            ))))
            .unwrap();
        let mut ids = Ids::new(DType::Int64, &(0..ROWS).collect::<Vec<_>>(), 0);
        let mut gradients = Grid::new(DType::Float, ROWS as usize, 4, 4, 0);
        let (ids, gradients) = (ids.operand(), gradients.operand());
        let passing = Heap::passing();
        let step =
            |own, scratch: &Heap| embedding.apply_gradients(Ok((&ids, &gradients)), true, 0.25, scratch, own);
        let (done, used) = streams.watch(RECORDING, |own| step(own, &passing));
        assert_refused(done, &used, (RECORDING, Kind::NotSupported));
        assert_eq!(passing.calls.get(), 0);
        let (done, used) = streams.watch(RECORDING, |own| step(own, &Heap::default()));
        match cached {
            true => {
                assert_refused(done, &used, (RECORDING, Kind::NotSupported));
                let state = embedding.cache_state().unwrap();
                assert_eq!((state.counters.lookups, state.counters.loads), (0, 0));
            }
            false => done.unwrap(),
        }
        step(WORKING, &passing).unwrap();
        embedding.release().unwrap();
    }
    comm.destroy().unwrap();
}

#[test]
fn a_rank_that_gives_up_alone_tells_the_others_why() {
    for shy in 0..3 {
        three_ranks(Some(shy), |rank, comm, _| {
            if rank == shy {
                assert_eq!(comm.err().unwrap().kind, Kind::Cuda);
                return;
            }
            // Others may have been through already: then it is their next call that fails.
            let error = comm.and_then(|comm| comm.barrier()).unwrap_err();
            assert_eq!(error.kind, Kind::Communication);
            let wanted = format!("rank {shy} ");
            assert!(
                error.what.starts_with(&wanted) && error.what.contains("no wish to know anybody"),
                "{error}"
            );
        });
    }
}
