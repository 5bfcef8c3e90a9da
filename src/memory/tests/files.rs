//! Files over real communicators, whose ranks are threads of this process.

use super::{LOCATIONS, TYPES, peek, poke, ranks, request};
use crate::error::{Kind, Result};
use crate::kinds::{Location, MemoryType};
use crate::memory::{LoadRequest, Memory, StoreRequest, load_from_file, store_to_file};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of `records` records of `record_bytes` bytes, byte k of record e being `e + 3 k`.
pub(super) fn record_file(path: &Path, records: std::ops::Range<usize>, record_bytes: usize) {
    let bytes: Vec<u8> = records
        .flat_map(|e| (0..record_bytes).map(move |k| (e + 3 * k) as u8))
        .collect();
    std::fs::write(path, bytes).unwrap();
}

pub(super) fn load(
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

fn store(memory: &Arc<Memory>, (offset, slot, record): (usize, usize, usize), file: &Path) -> Result<()> {
    let request = StoreRequest {
        memory_offset_bytes: offset,
        memory_entry_bytes: slot,
        file_entry_bytes: record,
        file: Ok(file.to_path_buf()),
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
            ((0, 8, 8), pick(&bad), Kind::System),
            ((2, 4, 4), pick(&own), Kind::InvalidInput),
            (
                (0, 8, if comm.rank() == 0 { 0 } else { 8 }),
                pick(&old),
                Kind::InvalidInput,
            ),
            ((0, 8, 4 + comm.rank()), pick(&old), Kind::InvalidValue),
            ((0, 8, 8), dir.path().join("same"), Kind::InvalidValue),
        ] {
            let error = store(&memory, window, &file).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            // Its own name for the bytes of a slot; another one is the load's.
            assert!(!error.what.contains("memory_entry_size"), "{error}");
            comm.barrier().unwrap();
            assert!(!own.exists() && !dir.path().join("same").exists());
            assert_eq!(std::fs::read(&old).unwrap(), b"precious");
            comm.barrier().unwrap();
        }
        store(&memory, (0, 8, 8), &pick(&old)).unwrap();
        assert_eq!(std::fs::read(pick(&old)).unwrap(), peek(memory.local().unwrap()));
    });
}
