//! Ranks as threads over a platform and a transport that tell what they were asked for.

use super::*;
use crate::error::{Error, Kind};
use crate::kinds::AllocationType;
use crate::memory::Partition;
use crate::ops::plan::Placement;
use crate::ops::{Buffers, Scratch};
use crate::platform::cpu::CpuPlatform;
use crate::platform::cpu::segments::threaded::{Threaded, ranks};
use crate::platform::{
    Bootstrap, Indices, Kernels, Launch, Platform, Rows, Segments, Shipment, Stream, Table, Transport,
};
use crate::tensor::Description;
use std::cell::RefCell;
use std::sync::Mutex;

/// What one rank was asked for, in order.
#[derive(Default)]
struct Log {
    launches: Mutex<Vec<&'static str>>,
    /// Bytes to each rank, of every shipment.
    shipped: Mutex<Vec<Vec<usize>>>,
    /// This launch fails.
    failing: Option<&'static str>,
}

impl Log {
    fn launch(&self, name: &'static str) -> Result<()> {
        self.launches.lock().unwrap().push(name);
        match self.failing == Some(name) {
            true => Err(Error::new(Kind::Cuda, "told to fail")),
            false => Ok(()),
        }
    }
}

impl Platform for Log {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn segments(&self) -> &dyn Segments {
        CpuPlatform.segments()
    }

    fn kernels(&self) -> &dyn Kernels {
        self
    }

    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        CpuPlatform.local_transport(boot)
    }

    fn can_reach(&self, _: Address) -> bool {
        true
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.launch("copy")?;
        CpuPlatform.copy(to, from, bytes, stream)
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }
}

impl Kernels for Log {
    fn gather(&self, table: &Table<'_>, indices: &Indices, output: &Rows, launch: Launch) -> Result<()> {
        self.launch("gather")?;
        CpuPlatform.gather(table, indices, output, launch)
    }

    fn scatter(&self, input: &Rows, indices: &Indices, table: &Table<'_>, launch: Launch) -> Result<()> {
        self.launch("scatter")?;
        CpuPlatform.scatter(input, indices, table, launch)
    }

    fn gather_selected(
        &self,
        table: &Table<'_>,
        selected: &Selected,
        output: &Rows,
        launch: Launch,
    ) -> Result<()> {
        self.launch("gather_selected")?;
        CpuPlatform.gather_selected(table, selected, output, launch)
    }

    fn scatter_selected(
        &self,
        input: &Rows,
        selected: &Selected,
        table: &Table<'_>,
        launch: Launch,
    ) -> Result<()> {
        self.launch("scatter_selected")?;
        CpuPlatform.scatter_selected(input, selected, table, launch)
    }

    fn bucket(
        &self,
        indices: &Indices,
        start_rows: &[u64],
        bucket_of_owner: &[u32],
        buckets: usize,
        ids: Address,
        positions: Address,
        launch: Launch,
    ) -> Result<Vec<u64>> {
        CpuPlatform.bucket(
            indices,
            start_rows,
            bucket_of_owner,
            buckets,
            ids,
            positions,
            launch,
        )
    }

    fn unique(&self, _: &Indices, _: u64, _: Address, _: Address, _: Launch) -> Result<u64> {
        unreachable!("an exchange drops no doubles")
    }

    fn add_row_numbers(&self, _: Address, _: usize, _: usize, _: &Rows, _: Launch) -> Result<()> {
        unreachable!("an exchange moves rows")
    }
}

/// Carries and tells; fails on all ranks alike if it is told to.
struct Carrier<'a> {
    log: &'a Log,
    inner: Box<dyn Transport>,
    fails: bool,
}

impl Transport for Carrier<'_> {
    fn ship(&self, boot: &dyn Bootstrap, shipments: &[Shipment<'_>], stream: Stream) -> Result<()> {
        let bytes = shipments.iter().map(|it| it.send_bytes.to_vec());
        self.log.shipped.lock().unwrap().extend(bytes);
        match self.fails {
            true => Err(Error::new(Kind::Communication, "told to fail")),
            false => self.inner.ship(boot, shipments, stream),
        }
    }

    fn release(&self, boot: Option<&dyn Bootstrap>) -> Result<()> {
        self.inner.release(boot)
    }
}

/// Blocks that were asked for, in words; the one of this number is not there.
#[derive(Default)]
struct Heap {
    words: RefCell<Vec<usize>>,
    fail_at: Option<usize>,
}

impl Scratch for Vec<u64> {
    fn address(&self) -> Address {
        Address(self.as_ptr() as usize)
    }
}

impl Buffers for Heap {
    fn scratch(&self, count: usize, _: DType, _: AllocationType) -> Result<Box<dyn Scratch + '_>> {
        let mut words = self.words.borrow_mut();
        words.push(count);
        match self.fail_at == Some(words.len() - 1) {
            true => Err(Error::new(Kind::OutOfMemory, "told to fail")),
            false => Ok(Box::new(vec![0xA5A5_A5A5_A5A5_A5A5u64; count])),
        }
    }

    fn output(&self, _: &Description, _: AllocationType, _: Address) -> Result<Address> {
        unreachable!("an exchange has no outputs of its own")
    }
}

const PART_ROWS: u64 = 5;
const COLS: usize = 3;
const UNTOUCHED: i64 = 77;

/// One rank's side of a call over a table of INT.
#[derive(Default)]
struct Case {
    scatter: bool,
    row_dtype: Option<DType>,
    ids: Vec<i64>,
    fail_at: Option<usize>,
    failing: Option<&'static str>,
    carrier_fails: bool,
    reads_through: bool,
}

/// What became of it.
struct Outcome {
    done: Result<()>,
    /// Values of the plain rows, and of the own part of the table.
    rows: Vec<i64>,
    part: Vec<i64>,
    launches: Vec<&'static str>,
    shipped: Vec<Vec<usize>>,
    scratch_words: Vec<usize>,
    /// Ids that the reader saw.
    read: usize,
}

fn encode(dtype: DType, values: impl Iterator<Item = i64>) -> Vec<u64> {
    let mut bytes: Vec<u8> = values
        .flat_map(|value| value.to_le_bytes()[..dtype.size_bytes()].to_vec())
        .collect();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|b| u64::from_le_bytes(*b))
        .collect()
}

fn decode(dtype: DType, words: &[u64], count: usize) -> Vec<i64> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let element = |bytes: &[u8]| {
        let mut wide = [if bytes[bytes.len() - 1] & 0x80 != 0 {
            0xff
        } else {
            0
        }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    };
    bytes
        .chunks(dtype.size_bytes())
        .take(count)
        .map(element)
        .collect()
}

/// The value of the table, and of input row `i` of a rank.
fn value(row: i64, col: usize) -> i64 {
    row * 10 + col as i64 - 4
}

fn input(rank: usize, i: usize, col: usize) -> i64 {
    -1000 * (rank as i64 + 1) - 10 * i as i64 - col as i64
}

struct Through<'a>(&'a Log, Mutex<usize>);

impl Reader for Through<'_> {
    fn needs_bytes(&self, _: &Table<'_>, ids: &Indices, _: &Rows) -> Result<usize> {
        Ok(ids.count * 8)
    }

    fn read(&self, table: &Table<'_>, ids: &Indices, rows: &Rows, workspace: Workspace) -> Result<()> {
        assert!(workspace.bytes >= ids.count * 8);
        *self.1.lock().unwrap() += ids.count;
        self.0.gather(table, ids, rows, Launch::default())
    }
}

fn call(boot: &Threaded, case: &Case) -> Outcome {
    let (me, size) = (boot.rank(), boot.size());
    let log = Log {
        failing: case.failing,
        ..Log::default()
    };
    let carrier = Carrier {
        log: &log,
        inner: CpuPlatform.local_transport(boot).unwrap(),
        fails: case.carrier_fails,
    };
    let heap = Heap {
        fail_at: case.fail_at,
        ..Heap::default()
    };
    let row_bytes = COLS * DType::Int.size_bytes();
    let partition = Partition::equal(size * PART_ROWS as usize * row_bytes, row_bytes, size).unwrap();
    let first = me as i64 * PART_ROWS as i64;
    let own_rows = first..first + PART_ROWS as i64;
    let part = encode(
        DType::Int,
        own_rows.flat_map(|row| (0..COLS).map(move |col| value(row, col))),
    );
    let dtype = case.row_dtype.unwrap_or(DType::Int);
    let cells = (0..case.ids.len()).flat_map(|i| (0..COLS).map(move |col| (i, col)));
    let rows = encode(
        dtype,
        cells.map(|(i, col)| match case.scatter {
            true => input(me, i, col),
            false => UNTOUCHED,
        }),
    );
    let starts: Vec<u64> = (0..=size as u64).map(|rank| rank * PART_ROWS).collect();
    let operation = match case.scatter {
        true => Operation::Scatter,
        false => Operation::Gather,
    };
    let plan = Plan {
        operation,
        placement: Placement::Ranks {
            start_rows: starts.clone(),
            first_row: 0,
            partition_rows: starts,
            offset_bytes: 0,
        },
        table_rows: size as u64 * PART_ROWS,
        cols: COLS,
        table_row_stride_bytes: row_bytes,
        table_dtype: DType::Int,
        indices: Indices {
            address: Address(case.ids.as_ptr() as usize),
            dtype: DType::Int64,
            count: case.ids.len(),
        },
        rows: Rows {
            address: rows.address(),
            row_stride_bytes: COLS * dtype.size_bytes(),
            dtype,
        },
        sms: None,
    };
    let through = Through(&log, Mutex::new(0));
    let served = Served {
        partition: &partition,
        rank: me,
        own: Some(part.address()),
        identity: 1,
        through: match case.reads_through {
            true => Some(&through),
            false => None,
        },
    };
    let field = Field {
        platform: &log,
        buffers: &heap,
        world: boot,
        launch: Launch::default(),
    };
    let circle = Circle {
        boot,
        transport: &carrier,
    };
    let done = run(operation, &field, circle, &served, Some(&plan));
    carrier.release(Some(boot)).unwrap();
    let rows = std::hint::black_box(&rows);
    let part = std::hint::black_box(&part);
    Outcome {
        done,
        rows: decode(dtype, rows, case.ids.len() * COLS),
        part: decode(DType::Int, part, PART_ROWS as usize * COLS),
        launches: log.launches.lock().unwrap().clone(),
        shipped: log.shipped.lock().unwrap().clone(),
        scratch_words: heap.words.borrow().clone(),
        read: *through.1.lock().unwrap(),
    }
}

/// What a gather of these ids gives.
fn wanted(ids: &[i64], ranks: usize) -> Vec<i64> {
    let rows = 0..(ranks as i64 * PART_ROWS as i64);
    ids.iter()
        .flat_map(|id| {
            (0..COLS).map(|col| {
                if rows.contains(id) {
                    value(*id, col)
                } else {
                    UNTOUCHED
                }
            })
        })
        .collect()
}

/// Ids of the part of `rank`, one of them twice.
fn of(rank: usize) -> Vec<i64> {
    let first = (rank as u64 * PART_ROWS) as i64;
    vec![first + 4, first, first + 2, first + 2]
}

/// Ids of all parts and of none, in turns.
fn of_all(ranks: usize) -> Vec<i64> {
    (0..20)
        .map(|i| i * 7 % (ranks as i64 * PART_ROWS as i64 + 2) - 1)
        .collect()
}

#[test]
fn rows_of_the_own_part_take_no_buffers_and_no_transport() {
    for scatter in [false, true] {
        ranks(3, |boot| {
            let case = Case {
                scatter,
                ids: of(boot.rank()),
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            outcome.done.unwrap();
            let launch = ["gather_selected", "scatter_selected"][usize::from(scatter)];
            assert_eq!(outcome.launches, [launch]);
            assert!(outcome.shipped.is_empty());
            // The sorted ids and their positions.
            assert_eq!(outcome.scratch_words.len(), 1);
            if !scatter {
                assert_eq!(outcome.rows, wanted(&case.ids, 3));
            } else {
                let me = boot.rank();
                let input = |i: usize| (0..COLS).map(move |col| input(me, i, col));
                assert_eq!(outcome.part[..COLS], input(1).collect::<Vec<_>>());
                assert_eq!(outcome.part[4 * COLS..], input(0).collect::<Vec<_>>());
            }
        });
    }
}

#[test]
fn nothing_of_the_own_part_is_launched_where_all_rows_are_of_others() {
    for scatter in [false, true] {
        ranks(3, |boot| {
            let case = Case {
                scatter,
                ids: of((boot.rank() + 1) % 3),
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            outcome.done.unwrap();
            assert_eq!(outcome.launches, ["gather", "scatter"]);
            if !scatter {
                assert_eq!(outcome.rows, wanted(&case.ids, 3));
            }
        });
    }
}

#[test]
fn only_rows_of_others_travel_and_in_the_narrower_dtype() {
    for size in [1, 2, 4] {
        for dtype in [DType::Int, DType::Int16, DType::Int64] {
            for reads_through in [false, true] {
                ranks(size, |boot| {
                    // One rank asks for nothing.
                    let ids = if boot.rank() == 3 {
                        Vec::new()
                    } else {
                        of_all(size)
                    };
                    let case = Case {
                        row_dtype: Some(dtype),
                        ids,
                        reads_through,
                        ..Case::default()
                    };
                    let outcome = call(&boot, &case);
                    outcome.done.unwrap();
                    assert_eq!(
                        outcome.rows,
                        wanted(&case.ids, size),
                        "{dtype} on rank {}",
                        boot.rank()
                    );
                    assert_eq!(outcome.shipped.len(), if size == 1 { 0 } else { 2 });
                    assert!(outcome.shipped.iter().all(|bytes| bytes[boot.rank()] == 0));
                    let asked_of = |rank: usize| {
                        let part = rank as i64 * PART_ROWS as i64..(rank as i64 + 1) * PART_ROWS as i64;
                        of_all(size).iter().filter(|id| part.contains(id)).count()
                    };
                    let (me, askers) = (boot.rank(), size.min(3));
                    if let [_, rows] = &outcome.shipped[..] {
                        let wire = DType::Int.size_bytes().min(dtype.size_bytes());
                        let other = (0..askers).find(|rank| *rank != me).unwrap();
                        assert_eq!(rows[other], asked_of(me) * COLS * wire);
                    }
                    if reads_through {
                        assert_eq!(outcome.read, asked_of(me) * askers);
                    }
                });
            }
        }
    }
}

#[test]
fn every_row_that_several_ranks_write_is_one_of_theirs() {
    for dtype in [DType::Int, DType::Int16, DType::Int64] {
        ranks(3, |boot| {
            let me = boot.rank();
            // Rows 1, 6 and 11 are written by all ranks, two of them twice by each, the others by one or none.
            let case = Case {
                scatter: true,
                row_dtype: Some(dtype),
                ids: vec![
                    1,
                    6,
                    11,
                    -1,
                    6,
                    11,
                    15,
                    (me as i64 + 1) % 3 * 5,
                    me as i64 * 5 + 2,
                ],
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            outcome.done.unwrap();
            let row = |place: usize| outcome.part[place * COLS..(place + 1) * COLS].to_vec();
            let input = |rank: usize, i: usize| (0..COLS).map(|col| input(rank, i, col)).collect::<Vec<_>>();
            let writers: &[usize] = [&[0][..], &[1, 4], &[2, 5]][me];
            let all = (0..3).flat_map(|rank| writers.iter().map(move |i| (rank, *i)));
            assert!(
                all.into_iter().any(|(rank, i)| row(1) == input(rank, i)),
                "{:?}",
                row(1)
            );
            assert_eq!(row(0), input((me + 2) % 3, 7));
            assert_eq!(row(2), input(me, 8));
            let first = me as i64 * PART_ROWS as i64;
            for place in [3, 4] {
                let untouched: Vec<_> = (0..COLS).map(|col| value(first + place as i64, col)).collect();
                assert_eq!(row(place), untouched);
            }
        });
    }
}

#[test]
fn a_rank_without_room_fails_all_before_anything_moves() {
    for scatter in [false, true] {
        ranks(3, |boot| {
            let case = Case {
                scatter,
                ids: of_all(3),
                fail_at: (boot.rank() == 1).then_some(1),
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            assert_eq!(outcome.done.unwrap_err().kind, Kind::OutOfMemory);
            assert_eq!((outcome.launches.len(), outcome.shipped.len()), (0, 0));
            if !scatter {
                assert!(outcome.rows.iter().all(|value| *value == UNTOUCHED));
            }
        });
    }
}

#[test]
fn a_rank_whose_own_part_fails_serves_the_others_and_fails_alone() {
    for failing in ["gather_selected", "scatter", "copy"] {
        ranks(3, |boot| {
            let unlucky = boot.rank() == 2;
            let case = Case {
                ids: of_all(3),
                failing: unlucky.then_some(failing),
                reads_through: failing == "copy",
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            match unlucky {
                true => assert_eq!(outcome.done.unwrap_err().kind, Kind::Cuda),
                false => {
                    outcome.done.unwrap();
                    assert_eq!(outcome.rows, wanted(&case.ids, 3));
                }
            }
        });
    }
}

#[test]
fn a_transport_that_fails_ends_the_call_for_all() {
    for scatter in [false, true] {
        ranks(3, |boot| {
            let case = Case {
                scatter,
                ids: of_all(3),
                carrier_fails: true,
                ..Case::default()
            };
            let outcome = call(&boot, &case);
            assert_eq!(outcome.done.unwrap_err().kind, Kind::Communication);
            // Rows of others were not placed.
            assert!(!outcome.launches.contains(&"scatter"));
        });
    }
}
