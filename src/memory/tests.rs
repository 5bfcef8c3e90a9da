//! Handles and files over real communicators, whose ranks are threads of this process.

mod processes;

use super::*;
use crate::comm::{Communicator, UniqueId};
use crate::error::{Error, Kind, Result};
use crate::kinds::{Location, MemoryType};
use crate::platform::cpu::bytes::Rows;
use crate::span::{Address, Span};
use std::path::PathBuf;
use std::sync::Arc;

const TYPES: [MemoryType; 4] = [
    MemoryType::Continuous,
    MemoryType::Chunked,
    MemoryType::Distributed,
    MemoryType::Hierarchy,
];
const LOCATIONS: [Location; 2] = [Location::Device, Location::Host];

fn ranks<T: Send>(size: i32, body: impl Fn(&Arc<Communicator>) -> T + Sync) -> Vec<T> {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let body = &body;
                s.spawn(move || {
                    let comm = Communicator::create(&id, rank, size, Ok(())).unwrap();
                    let out = body(&comm);
                    if comm.is_alive() {
                        comm.destroy().unwrap();
                    }
                    out
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn request(
    memory_type: MemoryType,
    location: Location,
    total_bytes: usize,
    granule_bytes: usize,
) -> MallocRequest {
    MallocRequest {
        total_bytes,
        memory_type: memory_type.raw(),
        location: location.raw(),
        granule_bytes,
        rank_granules: None,
        rmm_enabled: false,
    }
}

fn bytes_at(address: Address, bytes: usize) -> Rows {
    Rows {
        first: address,
        row_bytes: bytes.max(1),
        stride_bytes: bytes.max(1),
    }
}

fn poke(span: Span, value: u8) {
    bytes_at(span.address, span.size_bytes).put(0, &vec![value; span.size_bytes]);
}

fn peek(span: Span) -> Vec<u8> {
    let mut out = vec![0; span.size_bytes];
    bytes_at(span.address, span.size_bytes).take(0, &mut out);
    out
}

fn word_at(array: Address, index: usize) -> usize {
    let mut out = [0; 8];
    bytes_at(array.offset_bytes(8 * index), 8).take(0, &mut out);
    usize::from_ne_bytes(out)
}

fn check_what_is_shown(memory: &Memory, comm: &Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let partition = memory.partition().clone();
    let local = memory.local().unwrap();
    assert_eq!(local.offset_bytes, partition.offset_bytes(rank));
    assert_eq!(local.size_bytes, partition.size_bytes(rank));
    let bases = memory.mapped_bases().unwrap();
    assert_eq!(bases[rank], local.address);
    let reference = memory.global_reference().unwrap();
    assert_eq!(reference.world_size as usize, size);
    let shown = matches!(memory.memory_type(), MemoryType::Continuous | MemoryType::Chunked);
    for peer in 0..size {
        let span = Span {
            address: bases[peer],
            size_bytes: partition.size_bytes(peer),
            offset_bytes: partition.offset_bytes(peer),
        };
        assert_eq!(peek(span), vec![peer as u8 + 1; span.size_bytes]);
        match memory.of_rank(peer as i32) {
            Ok(seen) => assert!(shown && seen == span),
            Err(error) => assert!(!shown && error.kind == Kind::InvalidInput),
        }
    }
    for outside in [-1, size as i32, i32::MAX, i32::MIN] {
        assert_eq!(memory.of_rank(outside).unwrap_err().kind, Kind::InvalidInput);
    }
    let flat = memory.memory_type() == MemoryType::Continuous
        || (memory.memory_type() == MemoryType::Chunked && memory.location() == Location::Host);
    match memory.global_pointer() {
        Ok(base) => {
            assert!(flat && base == reference.pointer);
            assert!((0..size).all(|peer| bases[peer] == base.offset_bytes(partition.offset_bytes(peer))));
        }
        Err(error) => assert!(!flat && error.kind == Kind::InvalidInput),
    }
    if flat || !shown {
        assert_eq!(reference.pointer.is_null(), !flat);
        assert!(reference.rank_memory_offsets.is_null());
        assert_eq!((reference.stride_bytes, reference.same_chunk), (0, false));
    } else {
        assert_eq!(reference.stride_bytes, partition.stride_bytes);
        assert_eq!(reference.same_chunk, partition.same_chunk);
        for peer in 0..size {
            assert_eq!(word_at(reference.pointer, peer), bases[peer].0);
        }
        for (i, start) in partition.starts_bytes.iter().enumerate() {
            assert_eq!(word_at(reference.rank_memory_offsets, i), *start);
        }
    }
    let pair = memory.hierarchy();
    match memory.memory_type() {
        MemoryType::Hierarchy => assert_eq!(pair.unwrap().local.size(), size),
        _ => assert_eq!(pair.err().unwrap().kind, Kind::NotSupported),
    }
}

#[test]
fn every_type_and_location_shows_what_it_should() {
    for size in [1, 3] {
        ranks(size, |comm| {
            for memory_type in TYPES {
                for location in LOCATIONS {
                    for rows in [0, 1, 2, 5, 1000] {
                        let asked = request(memory_type, location, rows * 24, 24);
                        let memory = Memory::malloc(comm, Ok(asked)).unwrap();
                        assert_eq!(memory.total_bytes(), rows * 24);
                        let local = memory.local().unwrap();
                        assert!(peek(local).iter().all(|b| *b == 0), "fresh memory is zero");
                        comm.barrier().unwrap();
                        poke(local, comm.rank() as u8 + 1);
                        comm.barrier().unwrap();
                        check_what_is_shown(&memory, comm);
                        let expected = match memory_type {
                            MemoryType::Continuous | MemoryType::Chunked => Route::Mapped,
                            _ => Route::Direct,
                        };
                        assert_eq!(memory.route(), expected);
                        comm.barrier().unwrap();
                        memory.free().unwrap();
                        assert!(!memory.is_live());
                    }
                }
            }
        });
    }
}

#[test]
fn custom_partitions_hold_and_find_their_owner() {
    ranks(3, |comm| {
        for memory_type in TYPES {
            let asked = MallocRequest {
                rank_granules: Some(vec![1, 5, 2]),
                ..request(memory_type, Location::Device, 8 * 4096, 4096)
            };
            let memory = Memory::malloc(comm, Ok(asked)).unwrap();
            assert_eq!(memory.local().unwrap().size_bytes, [1, 5, 2][comm.rank()] * 4096);
            poke(memory.local().unwrap(), comm.rank() as u8 + 1);
            comm.barrier().unwrap();
            check_what_is_shown(&memory, comm);
            comm.barrier().unwrap();
            memory.free().unwrap();
        }
    });
}

#[test]
fn one_rank_with_bad_arguments_fails_all_and_leaves_nothing() {
    ranks(3, |comm| {
        let good = || request(MemoryType::Continuous, Location::Host, 960, 24);
        let bad: [(Result<MallocRequest>, Kind, &str); 8] = [
            (
                Err(Error::new(Kind::InvalidInput, "handle output is NULL")),
                Kind::InvalidInput,
                "NULL",
            ),
            (
                Ok(MallocRequest {
                    total_bytes: 961,
                    ..good()
                }),
                Kind::InvalidValue,
                "961",
            ),
            (
                Ok(MallocRequest {
                    total_bytes: 984,
                    ..good()
                }),
                Kind::InvalidValue,
                "rank 1 passed 984",
            ),
            (
                Ok(MallocRequest {
                    memory_type: 3,
                    ..good()
                }),
                Kind::InvalidValue,
                "rank 1 passed DISTRIBUTED",
            ),
            (
                Ok(MallocRequest {
                    location: 77,
                    ..good()
                }),
                Kind::InvalidValue,
                "77",
            ),
            (
                Ok(MallocRequest {
                    granule_bytes: 0,
                    ..good()
                }),
                Kind::InvalidValue,
                "data_granularity",
            ),
            (
                Ok(MallocRequest {
                    rank_granules: Some(vec![20, 10, 10]),
                    ..good()
                }),
                Kind::InvalidValue,
                "rank 1 passed 3 counts",
            ),
            (
                Ok(MallocRequest {
                    rank_granules: Some(vec![20, 0, 20]),
                    ..good()
                }),
                Kind::InvalidValue,
                "rank_entry_partition[1] is 0",
            ),
        ];
        for (wrong, kind, words) in bad {
            let mine = if comm.rank() == 1 { wrong } else { Ok(good()) };
            let error = Memory::malloc(comm, mine).err().unwrap();
            assert_eq!(error.kind, kind);
            assert!(error.what.contains(words), "{error}");
        }
        let huge = request(MemoryType::Distributed, Location::Host, 1 << 50, 1 << 20);
        assert_eq!(
            Memory::malloc(comm, Ok(huge)).err().unwrap().kind,
            Kind::OutOfMemory
        );
        Memory::malloc(comm, Ok(good())).unwrap().free().unwrap();
    });
}

#[test]
fn freeing_twice_or_apart_is_refused_and_nobody_waits() {
    ranks(2, |comm| {
        let make =
            || Memory::malloc(comm, Ok(request(MemoryType::Chunked, Location::Device, 96, 8))).unwrap();
        let (a, b) = (make(), make());
        let mine = if comm.rank() == 0 { &a } else { &b };
        let error = mine.free().unwrap_err();
        assert_eq!(error.kind, Kind::InvalidValue);
        assert!(a.is_live() && b.is_live());
        a.free().unwrap();
        for dead in [a.free(), if comm.rank() == 0 { a.free() } else { b.free() }] {
            assert_eq!(dead.unwrap_err().kind, Kind::InvalidInput);
        }
        assert!(b.is_live(), "another rank's dead handle frees nothing here");
        assert_eq!(a.local().unwrap_err().kind, Kind::InvalidInput);
        assert_eq!(a.mapped_bases().err().unwrap().kind, Kind::InvalidInput);
        assert_eq!(a.total_bytes(), 96);
        comm.destroy().unwrap();
        assert!(!b.is_live(), "handles go with their communicator");
        assert_eq!(b.free().unwrap_err().kind, Kind::InvalidInput);
    });
}

#[test]
fn memory_in_use_outlives_its_free() {
    ranks(2, |comm| {
        let memory = Memory::malloc(
            comm,
            Ok(request(MemoryType::Distributed, Location::Host, 8192, 8)),
        )
        .unwrap();
        poke(memory.local().unwrap(), 9);
        comm.barrier().unwrap();
        let lease = (comm.rank() == 0).then(|| memory.mapped_bases().unwrap());
        memory.free().unwrap();
        if let Some(bases) = lease {
            for base in bases.iter() {
                let span = Span {
                    address: *base,
                    size_bytes: 4096,
                    offset_bytes: 0,
                };
                assert_eq!(peek(span), vec![9; 4096]);
            }
        }
        comm.barrier().unwrap();
    });
}

/// A file of `records` records of `record_bytes` bytes, byte k of record e being `e + 3 k`.
fn record_file(path: &PathBuf, records: std::ops::Range<usize>, record_bytes: usize) {
    let bytes: Vec<u8> = records
        .flat_map(|e| (0..record_bytes).map(move |k| (e + 3 * k) as u8))
        .collect();
    std::fs::write(path, bytes).unwrap();
}

fn load(
    memory: &Arc<Memory>,
    (offset, slot, record): (usize, usize, usize),
    files: &[PathBuf],
    round: i32,
) -> Result<()> {
    let request = LoadRequest {
        memory_offset_bytes: offset,
        memory_entry_bytes: slot,
        file_entry_bytes: record,
        files: Ok(files.to_vec()),
        round_robin_records: round,
    };
    load_from_file(memory, &request)
}

fn store(memory: &Arc<Memory>, (offset, slot, record): (usize, usize, usize), file: &PathBuf) -> Result<()> {
    let request = StoreRequest {
        memory_offset_bytes: offset,
        memory_entry_bytes: slot,
        file_entry_bytes: record,
        file: Ok(file.clone()),
    };
    store_to_file(memory, &request)
}

#[test]
fn what_is_stored_can_be_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: String| dir.path().join(name);
    let sources = [at("a".into()), at("empty".into()), at("b".into())];
    record_file(&sources[0], 0..11, 20);
    record_file(&sources[1], 0..0, 20);
    record_file(&sources[2], 11..17, 20);
    ranks(3, |comm| {
        for memory_type in TYPES {
            for location in LOCATIONS {
                // 19 slots of 24 bytes; 17 records of 20 bytes go to bytes [2, 22) of each.
                let memory = Memory::malloc(comm, Ok(request(memory_type, location, 19 * 24, 24))).unwrap();
                poke(memory.local().unwrap(), 0xEE);
                load(&memory, (2, 24, 20), &sources, 0).unwrap();
                let local = memory.local().unwrap();
                for (i, slot) in peek(local).chunks(24).enumerate() {
                    let e = local.offset_bytes / 24 + i;
                    let expected: Vec<u8> = (0..24)
                        .map(|k| {
                            if e < 17 && (2..22).contains(&k) {
                                (e + 3 * (k - 2)) as u8
                            } else {
                                0xEE
                            }
                        })
                        .collect();
                    assert_eq!(slot, expected, "slot {e}");
                }
                let name = |rank: usize| at(format!("out-{memory_type}-{location}-{rank}"));
                store(&memory, (0, 24, 24), &name(comm.rank())).unwrap();
                poke(local, 0);
                let parts: Vec<_> = (0..3).map(name).collect();
                load(&memory, (0, 24, 24), &parts, 0).unwrap();
                let first_file = std::fs::read(&parts[comm.rank()]).unwrap();
                assert_eq!(peek(local), first_file);
                memory.free().unwrap();
            }
        }
    });
}

#[test]
fn round_robin_needs_room_on_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ten");
    record_file(&file, 0..10, 8);
    ranks(2, |comm| {
        let of_rows = |rows: usize| {
            Memory::malloc(
                comm,
                Ok(request(MemoryType::Distributed, Location::Device, rows * 8, 8)),
            )
            .unwrap()
        };
        let tight = of_rows(10);
        let error = load(&tight, (0, 8, 8), std::slice::from_ref(&file), 3).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidValue);
        assert!(
            error
                .what
                .contains("deals 6 of 10 records to rank 0, which has 5 slots"),
            "{error}"
        );
        let roomy = of_rows(12);
        load(&roomy, (0, 8, 8), std::slice::from_ref(&file), 3).unwrap();
        let records: &[usize] = if comm.rank() == 0 {
            &[0, 1, 2, 6, 7, 8]
        } else {
            &[3, 4, 5, 9]
        };
        let held = peek(roomy.local().unwrap());
        for (slot, e) in records.iter().enumerate() {
            assert_eq!(held[slot * 8], *e as u8);
        }
        assert_eq!(
            load(&roomy, (0, 8, 8), &[], -1).unwrap_err().kind,
            Kind::InvalidValue
        );
    });
}

#[test]
fn a_bad_load_on_one_rank_is_the_same_error_on_all() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    record_file(&at("good"), 0..4, 8);
    record_file(&at("short"), 0..3, 8);
    record_file(&at("odd"), 0..1, 12);
    record_file(&at("long"), 0..100, 8);
    ranks(3, |comm| {
        let memory = Memory::malloc(
            comm,
            Ok(request(MemoryType::Chunked, Location::Host, 12 * 16, 16)),
        )
        .unwrap();
        let window = (0, 16, 8);
        let good = (window, vec![at("good")], 0);
        let cases = [
            (
                (0, 16, 0),
                vec![at("good")],
                0,
                Kind::InvalidInput,
                "file_entry_size is 0",
            ),
            ((9, 16, 8), vec![at("good")], 0, Kind::InvalidInput, "reach past"),
            (
                (usize::MAX, 16, 8),
                vec![at("good")],
                0,
                Kind::InvalidInput,
                "reach past",
            ),
            (
                (0, 24, 8),
                vec![at("good")],
                0,
                Kind::InvalidInput,
                "does not divide",
            ),
            (
                (1, 16, 8),
                vec![at("good")],
                0,
                Kind::InvalidValue,
                "memory_offset differs",
            ),
            (window, vec![at("missing")], 0, Kind::InvalidInput, "missing"),
            (window, vec![at("odd")], 0, Kind::InvalidInput, "no multiple"),
            (
                window,
                vec![dir.path().to_path_buf()],
                0,
                Kind::InvalidInput,
                "a directory",
            ),
            (window, vec![at("long")], 0, Kind::InvalidValue, "12 records"),
            (
                window,
                vec![at("good")],
                -5,
                Kind::InvalidValue,
                "round_robin_size is -5",
            ),
            (
                window,
                vec![at("good")],
                7,
                Kind::InvalidValue,
                "round_robin_size differs",
            ),
            (
                window,
                vec![at("short")],
                0,
                Kind::Logic,
                "rank 0 sees 32 bytes, rank 2 sees 24",
            ),
            (
                window,
                vec![at("good"), at("good")],
                0,
                Kind::Logic,
                "rank 0 passed 1, rank 2 passed 2",
            ),
        ];
        for (bad_window, files, round, kind, words) in cases {
            let mine = if comm.rank() == 2 {
                (bad_window, files, round)
            } else {
                good.clone()
            };
            let error = load(&memory, mine.0, &mine.1, mine.2).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.what.contains(words), "{error}");
        }
        assert!(
            peek(memory.local().unwrap()).iter().all(|b| *b == 0),
            "a refused load writes nothing"
        );
        load(&memory, window, &[at("good")], 0).unwrap();
        load(&memory, window, &[], 0).unwrap();
        memory.free().unwrap();
        let dead = load(&memory, window, &[at("good")], 0).unwrap_err();
        assert_eq!(dead.kind, Kind::InvalidInput);
    });
}

#[test]
fn a_bad_store_on_one_rank_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old1");
    std::fs::write(&old, b"precious").unwrap();
    ranks(2, |comm| {
        let memory =
            Memory::malloc(comm, Ok(request(MemoryType::Continuous, Location::Host, 64, 8))).unwrap();
        let own = dir.path().join(format!("new{}", comm.rank()));
        let bad = dir.path().join("no/such/place");
        let pick = |wrong: &PathBuf| {
            if comm.rank() == 0 {
                own.clone()
            } else {
                wrong.clone()
            }
        };
        for (window, file, kind) in [
            ((0, 8, 8), pick(&bad), Kind::InvalidInput),
            ((2, 4, 4), pick(&own), Kind::InvalidInput),
            (
                (0, 8, if comm.rank() == 0 { 0 } else { 8 }),
                pick(&old),
                Kind::InvalidInput,
            ),
            ((0, 8, 4 + comm.rank()), pick(&old), Kind::InvalidValue),
            ((0, 8, 8), dir.path().join("same"), Kind::InvalidValue),
        ] {
            assert_eq!(store(&memory, window, &file).unwrap_err().kind, kind);
            comm.barrier().unwrap();
            assert!(!own.exists() && !dir.path().join("same").exists());
            assert_eq!(std::fs::read(&old).unwrap(), b"precious");
            comm.barrier().unwrap();
        }
        store(&memory, (0, 8, 8), &pick(&old)).unwrap();
        assert_eq!(std::fs::read(pick(&old)).unwrap(), peek(memory.local().unwrap()));
    });
}
