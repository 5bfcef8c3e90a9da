//! Handles over ranks that are processes, each with an environment, limits and a death of its own.

use super::files::{load, record_file};
use super::{TYPES, peek, request};
use crate::comm::{Communicator, UniqueId};
use crate::error::Kind;
use crate::kinds::{Location, MemoryType};
use crate::memory::{Memory, Route};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RANK: &str = "WHOLEMEMORY_TEST_RANK";
const ID: &str = "WHOLEMEMORY_TEST_ID";

/// Runs `body` in one process a rank; `variables` are those of each rank. In the test's own process it returns how the
/// ranks ended, in a rank's process `None`.
fn as_processes(
    test: &str,
    variables: &[&[(&str, &str)]],
    body: impl Fn(&Arc<Communicator>),
) -> Option<Vec<ExitStatus>> {
    let size = variables.len() as i32;
    if let (Ok(rank), Ok(id)) = (std::env::var(RANK), std::env::var(ID)) {
        let mut bytes = [0; 128];
        for (byte, digits) in bytes.iter_mut().zip(id.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        }
        let comm = Communicator::create(&UniqueId(bytes), rank.parse().unwrap(), size, Ok(())).unwrap();
        body(&comm);
        return None;
    }
    let id = UniqueId::create().unwrap();
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = test.split_once("::").unwrap().1;
    let children: Vec<_> = variables
        .iter()
        .enumerate()
        .map(|(rank, own)| {
            Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--nocapture", "--test-threads=1"])
                .env(RANK, rank.to_string())
                .env(ID, &hex)
                .envs(own.iter().copied())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let ends = children.into_iter().map(|mut child| child.wait().unwrap());
    Some(ends.collect())
}

/// [`as_processes`] under the name of the enclosing test; every rank must end well.
macro_rules! all_well {
    ($test:ident, $variables:expr, $body:expr) => {
        let name = concat!(module_path!(), "::", stringify!($test));
        for (rank, end) in as_processes(name, $variables, $body).iter().flatten().enumerate() {
            assert!(end.success(), "rank {rank}: {end}");
        }
    };
}

const NODE_A: &[(&str, &str)] = &[("WHOLEMEMORY_BOOTID", "a")];
const NODE_B: &[(&str, &str)] = &[("WHOLEMEMORY_BOOTID", "b")];
const PLAIN: &[(&str, &str)] = &[];

#[test]
fn nodes_decide_what_is_supported_and_how_hierarchies_group() {
    all_well!(
        nodes_decide_what_is_supported_and_how_hierarchies_group,
        &[NODE_A, NODE_B, NODE_A, NODE_B],
        |comm: &Arc<Communicator>| {
            for memory_type in TYPES {
                for location in [Location::Device, Location::Host] {
                    let made = Memory::malloc(comm, Ok(request(memory_type, location, 4000, 8)));
                    let promised = comm.supports(memory_type, location);
                    assert_eq!(
                        made.as_ref().err().map(|e| e.kind),
                        promised.err().map(|e| e.kind)
                    );
                    let Ok(memory) = made else {
                        assert!(matches!(
                            memory_type,
                            MemoryType::Continuous | MemoryType::Chunked
                        ));
                        continue;
                    };
                    let bases = memory.mapped_bases().unwrap();
                    let reached = bases.iter().filter(|base| !base.is_null()).count();
                    if memory_type == MemoryType::Hierarchy {
                        let pair = memory.hierarchy().unwrap();
                        assert_eq!((pair.local.size(), pair.cross.size()), (2, 2));
                        assert_eq!(
                            (pair.local.rank(), pair.cross.rank()),
                            (comm.rank() / 2, comm.rank() % 2)
                        );
                        assert_eq!((memory.route(), reached), (Route::Hierarchy, 1));
                    } else {
                        assert_eq!((memory.route(), reached), (Route::Direct, 4));
                    }
                    drop(bases);
                    memory.free().unwrap();
                }
            }
            comm.destroy().unwrap();
        }
    );
}

#[test]
fn unequal_nodes_have_no_hierarchy() {
    all_well!(
        unequal_nodes_have_no_hierarchy,
        &[NODE_A, NODE_A, NODE_B],
        |comm: &Arc<Communicator>| {
            let asked = request(MemoryType::Hierarchy, Location::Host, 4000, 8);
            assert_eq!(
                Memory::malloc(comm, Ok(asked)).err().unwrap().kind,
                Kind::NotSupported
            );
            comm.destroy().unwrap();
        }
    );
}

#[test]
fn a_forced_exchange_maps_nobody_else() {
    const EXCHANGE: &[(&str, &str)] = &[("WHOLEMEMORY_ROUTE", "exchange")];
    all_well!(
        a_forced_exchange_maps_nobody_else,
        &[EXCHANGE, EXCHANGE],
        |comm: &Arc<Communicator>| {
            for (memory_type, route, reached) in [
                (MemoryType::Continuous, Route::Mapped, 2),
                (MemoryType::Chunked, Route::Mapped, 2),
                (MemoryType::Distributed, Route::Exchange, 1),
                (MemoryType::Hierarchy, Route::Hierarchy, 1),
            ] {
                let memory =
                    Memory::malloc(comm, Ok(request(memory_type, Location::Device, 4000, 8))).unwrap();
                let bases = memory.mapped_bases().unwrap();
                assert_eq!(memory.route(), route);
                assert_eq!(bases.iter().filter(|base| !base.is_null()).count(), reached);
                assert_eq!(bases[comm.rank()], memory.local().unwrap().address);
                drop(bases);
                memory.free().unwrap();
            }
            comm.destroy().unwrap();
        }
    );
}

#[test]
fn one_rank_with_small_limits_fails_all_without_a_signal() {
    all_well!(
        one_rank_with_small_limits_fails_all_without_a_signal,
        &[PLAIN, PLAIN, PLAIN],
        |comm: &Arc<Communicator>| {
            let make = || {
                Memory::malloc(
                    comm,
                    Ok(request(MemoryType::Chunked, Location::Device, 1 << 20, 8)),
                )
            };
            for (resource, tight, kind) in [
                (Resource::Fsize, 4096, Kind::OutOfMemory),
                (Resource::Nofile, 3, Kind::System),
            ] {
                for unlucky in 0..3 {
                    let usual = getrlimit(resource);
                    if comm.rank() == unlucky {
                        let limit = Rlimit {
                            current: Some(tight),
                            ..usual
                        };
                        setrlimit(resource, limit).unwrap();
                    }
                    let error = make().err().unwrap();
                    assert_eq!(error.kind, kind, "{error}");
                    setrlimit(resource, usual).unwrap();
                    make().unwrap().free().unwrap();
                }
            }
            comm.destroy().unwrap();
        }
    );
}

#[test]
fn a_dead_rank_breaks_collectives_but_not_the_memory() {
    let name = concat!(
        module_path!(),
        "::",
        stringify!(a_dead_rank_breaks_collectives_but_not_the_memory)
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("records");
    record_file(&file, 0..8, 8);
    let ends = as_processes(name, &[PLAIN, PLAIN, PLAIN], |comm| {
        let make = || {
            Memory::malloc(
                comm,
                Ok(request(MemoryType::Distributed, Location::Host, 4800, 8)),
            )
            .unwrap()
        };
        let (freed, loaded, kept) = (make(), make(), make());
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        let begun = Instant::now();
        let error = load(&loaded, (0, 8, 8), std::slice::from_ref(&file), 0).unwrap_err();
        assert_eq!(error.kind, Kind::Communication);
        assert!(error.what.contains("rank 1"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(peek(loaded.local().unwrap()).len(), 1600);
        assert_eq!(freed.free().unwrap_err().kind, Kind::Communication);
        assert!(!freed.is_live());
        assert_eq!(freed.free().unwrap_err().kind, Kind::InvalidInput);
        let asked = request(MemoryType::Distributed, Location::Host, 4800, 8);
        assert_eq!(
            Memory::malloc(comm, Ok(asked)).err().unwrap().kind,
            Kind::Communication
        );
        assert_eq!(comm.destroy().unwrap_err().kind, Kind::Communication);
        assert!(!kept.is_live());
        assert_eq!(kept.free().unwrap_err().kind, Kind::InvalidInput);
    });
    for (rank, end) in ends.iter().flatten().enumerate() {
        assert_eq!(end.success(), rank != 1, "rank {rank}: {end}");
    }
}
