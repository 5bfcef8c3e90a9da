//! Caches over plain memory: what is in the lines, what goes back to the table, and how well the cached rows follow their use.

use super::part::Part;
use crate::kinds::DType;
use crate::platform::caching::{
    AGE_ACCESSES_PER_LINE, Adjustment, AfterWriteBack, CacheKernels, CacheView, CachedGather, Geometry,
    Loads, Misses, SET_LINES, StateLines,
};
use crate::platform::cpu::CpuPlatform;
use crate::platform::{Indices, Launch, Places, Rows, Stream, Table};
use crate::span::Address;
use std::collections::HashMap;

/// A table of u32 rows and its cache, of one rank. Element c of row r is `r * 16 + c` at first.
struct Held {
    geometry: Geometry,
    tags: [Address; 1],
    lines: [Address; 1],
    memory: Memory,
    cols: usize,
    clock: (u32, u64),
}

struct Memory {
    table: Vec<u32>,
    states: Vec<u32>,
    tags: Vec<u32>,
    lines: Vec<u32>,
    state_lines: Vec<u32>,
    control: Vec<u64>,
}

const STATE_COLS: usize = 8;

/// What outputs hold before; no row has it.
const UNTOUCHED: u32 = u32::MAX;

fn at<T>(memory: &[T]) -> Address {
    Address(memory.as_ptr() as usize)
}

impl Held {
    fn new(rows: u64, coverage_rows: u64, cols: usize) -> Held {
        let geometry = Geometry {
            ranks: 1,
            rows,
            rank_rows: rows.next_multiple_of(coverage_rows),
            coverage_rows,
        };
        let (all, lines) = (geometry.rank_rows as usize, geometry.lines() as usize);
        let memory = Memory {
            table: (0..all * cols)
                .map(|i| (i / cols * 16 + i % cols) as u32)
                .collect(),
            states: vec![0; all * STATE_COLS],
            tags: vec![7; lines],
            lines: vec![u32::MAX; lines * cols],
            state_lines: vec![u32::MAX; lines * STATE_COLS],
            control: vec![u64::MAX; geometry.control_bytes() / 8],
        };
        let held = Held {
            geometry,
            tags: [at(&memory.tags)],
            lines: [at(&memory.lines)],
            memory,
            cols,
            clock: (0, 0),
        };
        CpuPlatform.reset(&held.view(), Stream::default()).unwrap();
        held
    }

    fn view(&self) -> CacheView<'_> {
        CacheView {
            geometry: self.geometry,
            rank: 0,
            tags: &self.tags,
            lines: &self.lines,
            row_stride_bytes: self.cols * 4,
            control: at(&self.memory.control),
            home: at(&self.memory.table),
            states: Some(StateLines {
                lines: at(&self.memory.state_lines),
                home: at(&self.memory.states),
                stride_bytes: STATE_COLS * 4,
            }),
        }
    }

    fn tick(&mut self, accesses: usize) -> Adjustment {
        self.clock.0 += 1;
        self.clock.1 += accesses as u64;
        let ages = self.clock.1 >= self.geometry.lines() * AGE_ACCESSES_PER_LINE;
        if ages {
            self.clock.1 = 0;
        }
        Adjustment {
            epoch: self.clock.0,
            ages,
        }
    }

    fn adjust(&mut self, ids: &[i64]) {
        let adjustment = self.tick(ids.len());
        CpuPlatform
            .adjust(&self.view(), &list(ids), adjustment, Launch::default())
            .unwrap();
    }

    fn gather(&self, ids: &[i64], misses: Misses<'_>) -> Vec<u32> {
        let output = vec![UNTOUCHED; ids.len() * self.cols];
        let gather = CachedGather {
            ids: list(ids),
            output: Rows {
                address: at(&output),
                row_stride_bytes: self.cols * 4,
                dtype: DType::Int,
            },
            cols: self.cols,
            dtype: DType::Int,
            misses,
            counts: true,
        };
        CpuPlatform
            .gather_cached(&self.view(), &gather, Launch::default())
            .unwrap();
        output
    }

    fn table(&self) -> Table<'static> {
        Table {
            places: Places::Flat(at(&self.memory.table)),
            offset_bytes: 0,
            row_stride_bytes: self.cols * 4,
            rows: self.geometry.rows,
            cols: self.cols,
            dtype: DType::Int,
        }
    }

    fn write_back(&self, then: AfterWriteBack) {
        CpuPlatform
            .write_back(&self.view(), then, Launch::default())
            .unwrap();
    }

    /// The rows in lines, each with its line; none may be there twice, or in a set that is not its own.
    fn cached(&self) -> HashMap<u64, usize> {
        let view = self.view();
        // SAFETY: the view's memory is that of `self`.
        let part = unsafe { Part::of(&view) };
        let mut rows = HashMap::new();
        for (line, tag) in self.memory.tags.iter().enumerate().filter(|(_, tag)| **tag != 0) {
            let row = u64::from(*tag) - 1;
            assert_eq!(part.home(row).set, line / SET_LINES as usize, "row {row}");
            assert_eq!(rows.insert(row, line), None, "row {row} is there twice");
        }
        rows
    }

    /// Adds 1 to a row and 3 to its state, as a gradient step would.
    fn change(&self, row: u64) {
        let view = self.view();
        // SAFETY: the view's memory is that of `self`, and the row one of its.
        unsafe {
            let (values, state) = Part::of(&view).change(row);
            for c in 0..self.cols {
                *values.cast::<u32>().add(c) += 1;
            }
            *state.unwrap().cast::<u32>() += 3;
        }
    }
}

fn list(ids: &[i64]) -> Indices {
    Indices {
        address: at(ids),
        dtype: DType::Int64,
        count: ids.len(),
    }
}

/// A fixed stream of bits.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ (x >> 29)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 32)
}

/// Random accesses, changes, write-backs and drops against a plain array: values are always right, a change is never lost,
/// and after a write-back the table has them all.
#[test]
fn values_are_right_whatever_happens() {
    for (rows, coverage_rows, cols) in [(3000, 160, 4), (64, 64, 8), (500, 32, 4), (5, 16384, 4)] {
        let mut held = Held::new(rows, coverage_rows, cols);
        let mut twin: Vec<(u32, u32)> = vec![(0, 0); rows as usize];
        let mut noise = Noise(rows + 88172645463325252);
        for round in 0..400 {
            let ids: Vec<i64> = (0..40)
                .map(|_| match noise.below(6) {
                    0 => -1 - noise.below(1 << 40) as i64,
                    1 => (rows + noise.below(1 << 40)) as i64,
                    2 => noise.below(rows.min(7)) as i64,
                    _ => noise.below(rows) as i64,
                })
                .collect();
            if round % 3 != 0 {
                held.adjust(&ids);
            }
            let table = held.table();
            let got = held.gather(&ids, Misses::Table(&table));
            for (i, id) in ids.iter().enumerate() {
                for c in 0..cols {
                    let want = match twin.get(*id as usize) {
                        Some((changes, _)) if *id >= 0 => (*id as u32) * 16 + c as u32 + changes,
                        _ => UNTOUCHED,
                    };
                    assert_eq!(got[i * cols + c], want, "round {round}, row {id}");
                }
            }
            let missed = vec![5i64; ids.len()];
            let hits = held.gather(&ids, Misses::List(at(&missed)));
            let cached = held.cached();
            for (i, id) in ids.iter().enumerate() {
                let names = *id >= 0 && (*id as u64) < rows;
                let hit = names && cached.contains_key(&(*id as u64));
                assert_eq!(missed[i], if names && !hit { *id } else { -1 });
                assert_eq!(hits[i * cols] != UNTOUCHED, hit);
            }
            for _ in 0..10 {
                let row = noise.below(rows);
                held.change(row);
                twin[row as usize].0 += 1;
                twin[row as usize].1 += 3;
            }
            if round % 50 == 49 {
                let drops = round % 100 == 99;
                held.write_back(match drops {
                    true => AfterWriteBack::Drop,
                    false => AfterWriteBack::Keep,
                });
                assert_eq!(held.cached().is_empty(), drops);
                for (row, (changes, states)) in twin.iter().enumerate() {
                    assert_eq!(
                        held.memory.table[row * cols],
                        row as u32 * 16 + changes,
                        "row {row}"
                    );
                    assert_eq!(held.memory.states[row * STATE_COLS], *states, "state {row}");
                }
                let before = CpuPlatform.counters(&held.view(), Stream::default()).unwrap();
                held.write_back(AfterWriteBack::Keep);
                let after = CpuPlatform.counters(&held.view(), Stream::default()).unwrap();
                assert_eq!(before, after, "nothing is left to write back");
            }
        }
        let counters = CpuPlatform.counters(&held.view(), Stream::default()).unwrap();
        assert!(
            counters.loads >= counters.evictions && counters.lookups > counters.hits && counters.hits > 0
        );
        assert!(counters.write_backs > 0 && counters.bytes_written >= counters.write_backs * 16);
    }
}

/// Rows that no line has room for stay out of a set that is full of rows used more.
#[test]
fn a_full_cache_keeps_what_is_used_most() {
    let mut held = Held::new(64, 64, 4);
    let favourites: Vec<i64> = (0..32).collect();
    for _ in 0..5 {
        held.adjust(&favourites);
    }
    for once in 32..64 {
        held.adjust(&[once]);
    }
    let cached = held.cached();
    assert!((0..32).all(|row| cached.contains_key(&row)));
    // Once the others are used more, they take over.
    for _ in 0..40 {
        held.adjust(&(32..64).collect::<Vec<i64>>());
    }
    let cached = held.cached();
    assert!((32..64).all(|row| cached.contains_key(&row)), "{cached:?}");
}

/// A cache apart from its table names what it wants, each row once, and the lines it goes to.
#[test]
fn an_admission_names_rows_and_their_lines() {
    let mut held = Held::new(1000, 320, 4);
    let ids: Vec<i64> = (0..300).map(|i| [i % 90, -2, 5000][(i % 3) as usize]).collect();
    let (rows, lines) = (vec![0i64; 300], vec![0i64; 300]);
    let adjustment = held.tick(300);
    let loads = Loads {
        rows: at(&rows),
        lines: at(&lines),
    };
    CpuPlatform
        .admit(&held.view(), &list(&ids), adjustment, loads, Launch::default())
        .unwrap();
    let cached = held.cached();
    let named: Vec<(i64, i64)> = rows
        .iter()
        .copied()
        .zip(lines)
        .filter(|(row, _)| *row >= 0)
        .collect();
    assert_eq!(named.len(), 30);
    for (row, line) in named {
        assert_eq!(cached.get(&(row as u64)), Some(&(line as usize)));
    }
    assert!(rows.iter().all(|row| *row >= -1));
}

/// Power-law streams as the benchmark draws them, 64 batches in turn, 64 times smaller: in the third turn at least 0.95 of the
/// hits that the best fixed set of rows would have.
#[test]
fn the_hit_rate_is_near_that_of_the_best_rows() {
    const ROWS: u64 = 131_072;
    const BATCH: usize = 2048;
    for (exponent, coverage_rows) in [
        (0.80, 640),
        (0.80, 160),
        (0.99, 640),
        (0.99, 160),
        (1.10, 640),
        (1.10, 160),
    ] {
        let batches: Vec<Vec<i64>> = (0..64)
            .map(|set| {
                let mut noise = Noise(88172645463325252 + 104729 * set);
                let draw = || {
                    let u = (noise.next() >> 11) as f64 / (1u64 << 53) as f64;
                    let x =
                        (u * ((ROWS as f64).powf(1.0 - exponent) - 1.0) + 1.0).powf(1.0 / (1.0 - exponent));
                    (mix((x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u32 as u64 % ROWS) as i64
                };
                std::iter::repeat_with(draw).take(BATCH).collect()
            })
            .collect();
        let mut held = Held::new(ROWS, coverage_rows, 4);
        let mut uses = vec![0u64; ROWS as usize];
        batches.iter().flatten().for_each(|id| uses[*id as usize] += 1);
        uses.sort_unstable_by(|a, b| b.cmp(a));
        let best: u64 = uses.iter().take(held.geometry.lines() as usize).sum();
        let mut hits = 0;
        for _ in 0..3 {
            let before = CpuPlatform.counters(&held.view(), Stream::default()).unwrap();
            batches.iter().for_each(|batch| held.adjust(batch));
            let after = CpuPlatform.counters(&held.view(), Stream::default()).unwrap();
            assert_eq!(after.lookups - before.lookups, 64 * BATCH as u64);
            hits = after.hits - before.hits;
        }
        let share = hits as f64 / best as f64;
        println!("exponent {exponent}, a set for {coverage_rows} rows: {share:.3} of the best");
        assert!(
            share >= 0.95,
            "exponent {exponent}, a set for {coverage_rows} rows: {share:.3}"
        );
    }
}
