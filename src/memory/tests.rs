//! Handles over real communicators, whose ranks are threads of this process.

mod files;
mod processes;

use super::*;
use crate::comm::{Communicator, UniqueId};
use crate::error::{Error, Kind, Result};
use crate::kinds::{Location, MemoryType};
use crate::platform::cpu::bytes::Rows;
use crate::span::{Address, Span};
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
        freed_alone: false,
        described_by: Vec::new(),
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
