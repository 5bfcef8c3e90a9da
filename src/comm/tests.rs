//! Ranks as threads of this process, over the real sockets and the real shared memory.

use super::*;
use crate::error::{Kind, Result};
use crate::kinds::{Location, MemoryType};
use crate::platform::{Bootstrap, Term, agree};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A finalize drops all ids of the process that nobody has used yet: tests with one read, those that hold ids for long write.
static FINALIZE: RwLock<()> = RwLock::new(());

fn ranks<T: Send>(size: i32, body: impl Fn(Arc<Communicator>) -> T + Sync) -> Vec<T> {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let body = &body;
                s.spawn(move || body(Communicator::create(&id, rank, size, Ok(())).unwrap()))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn ranks_meet_gather_and_leave() {
    for size in [1, 2, 4, 7] {
        ranks(size, |comm| {
            assert_eq!((comm.size(), comm.local_size()), (size as usize, size as usize));
            assert!(comm.is_intranode() && comm.is_single_host());
            for _ in 0..20 {
                comm.barrier().unwrap();
            }
            let session = comm.enter("test").unwrap();
            let all = session.all_gather(&[comm.rank() as u8; 3]).unwrap();
            assert_eq!(all, (0..size as u8).map(|r| vec![r; 3]).collect::<Vec<_>>());
            drop(session);
            comm.destroy().unwrap();
            assert!(!comm.is_alive());
            assert_eq!(comm.barrier().unwrap_err().kind, Kind::InvalidInput);
            assert_eq!(comm.destroy().unwrap_err().kind, Kind::InvalidInput);
        });
    }
}

#[test]
fn the_lowest_failing_rank_speaks_for_all() {
    ranks(4, |comm| {
        let session = comm.enter("test").unwrap();
        let mine: Result<()> = match comm.rank() {
            1 => Err(crate::error::Error::new(Kind::OutOfMemory, "no room for 7 bytes")),
            3 => Err(crate::error::Error::new(Kind::InvalidInput, "other")),
            _ => Ok(()),
        };
        let error = agree(&session, &[], mine).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfMemory);
        assert!(error.what.contains("no room for 7 bytes"));
        let terms = [Term::new("total_size", if comm.rank() == 2 { 9 } else { 8 })];
        let error = agree(&session, &terms, Ok(())).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidValue);
        assert!(
            error.what.contains("rank 0 passed 8, rank 2 passed 9"),
            "{}",
            error.what
        );
        drop(session);
        comm.destroy().unwrap();
    });
}

#[test]
fn splits_order_by_key_and_outlive_their_parent() {
    ranks(5, |comm| {
        let rank = comm.rank() as i32;
        let color = if rank == 4 { -1 } else { rank % 2 };
        let child = comm.split(color, -rank, Ok(())).unwrap();
        assert_eq!(child.is_none(), rank == 4);
        comm.destroy().unwrap();
        if let Some(child) = child {
            assert_eq!(child.size(), 2);
            assert_eq!(child.rank(), usize::from(rank < 2));
            child.barrier().unwrap();
            let grandchild = child.split(0, 0, Ok(())).unwrap().unwrap();
            child.destroy().unwrap();
            grandchild.barrier().unwrap();
            grandchild.destroy().unwrap();
        }
    });
}

#[test]
fn a_bad_colour_on_one_rank_fails_all_and_leaves_the_communicator_usable() {
    ranks(3, |comm| {
        let color = if comm.rank() == 1 { -2 } else { 0 };
        assert_eq!(
            comm.split(color, 0, Ok(())).err().unwrap().kind,
            Kind::InvalidValue
        );
        comm.barrier().unwrap();
        comm.destroy().unwrap();
    });
}

#[test]
fn an_id_serves_once_and_duplicates_are_refused_on_all_ranks() {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                assert_eq!(
                    Communicator::create(&id, 0, 3, Ok(())).err().unwrap().kind,
                    Kind::InvalidValue
                )
            });
        }
    });
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        for rank in 0..2 {
            s.spawn(move || {
                let comm = Communicator::create(&id, rank, 2, Ok(())).unwrap();
                comm.barrier().unwrap();
                std::thread::sleep(Duration::from_millis(300));
                let again = Communicator::create(&id, rank, 2, Ok(())).err().unwrap();
                assert_eq!(again.kind, Kind::InvalidValue, "{}", again.what);
                comm.destroy().unwrap();
            });
        }
    });
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        for (rank, size) in [(0, 2), (5, 2)] {
            s.spawn(move || {
                assert_eq!(
                    Communicator::create(&id, rank, size, Ok(())).err().unwrap().kind,
                    Kind::InvalidValue
                )
            });
        }
    });
}

#[test]
fn a_rank_that_leaves_frees_the_waiting() {
    let _finalizes = FINALIZE.read().unwrap_or_else(PoisonError::into_inner);
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        for rank in 0..3 {
            s.spawn(move || {
                let comm = Communicator::create(&id, rank, 3, Ok(())).unwrap();
                let start = Instant::now();
                if rank == 1 {
                    std::thread::sleep(Duration::from_millis(50));
                } else {
                    let error = comm.barrier().unwrap_err();
                    assert_eq!(error.kind, Kind::Communication);
                    assert!(error.what.contains("rank 1"), "{}", error.what);
                }
                depart_all(std::slice::from_ref(&comm));
                assert!(start.elapsed() < Duration::from_secs(3));
            });
        }
    });
}

#[test]
fn finalize_from_one_thread_takes_all_rank_objects() {
    let _finalizes = FINALIZE.read().unwrap_or_else(PoisonError::into_inner);
    let comms = ranks(4, |comm| comm);
    depart_all(&comms);
    assert!(comms.iter().all(|c| !c.is_alive()));
}

#[test]
fn descriptors_reach_every_rank() {
    ranks(4, |comm| {
        let session = comm.enter("test").unwrap();
        for turn in 0..3usize {
            let fd = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let gives = comm.rank() != turn;
            let got = session
                .exchange_descriptors(gives.then(|| std::os::fd::AsFd::as_fd(&fd)))
                .unwrap();
            assert_eq!(
                got.iter().map(Option::is_some).collect::<Vec<_>>(),
                (0..4).map(|r| r != turn).collect::<Vec<_>>()
            );
        }
        drop(session);
        comm.destroy().unwrap();
    });
}

#[test]
fn fifty_at_once_and_in_any_order_of_threads() {
    let _unused_ids = FINALIZE.write().unwrap_or_else(PoisonError::into_inner);
    let ids: Vec<UniqueId> = (0..50).map(|_| UniqueId::create().unwrap()).collect();
    std::thread::scope(|s| {
        for rank in 0..2 {
            for id in &ids {
                s.spawn(move || {
                    let comm = Communicator::create(id, rank, 2, Ok(())).unwrap();
                    comm.barrier().unwrap();
                    comm.destroy().unwrap();
                });
            }
        }
    });
}

#[test]
fn every_pair_is_supported_on_one_node() {
    ranks(2, |comm| {
        for t in [
            MemoryType::Continuous,
            MemoryType::Chunked,
            MemoryType::Distributed,
            MemoryType::Hierarchy,
        ] {
            comm.supports(t, Location::Host).unwrap();
            comm.supports(t, Location::Device).unwrap();
        }
        let session = comm.enter("test").unwrap();
        let pair = comm.hierarchy(&session).unwrap();
        assert_eq!((pair.local.size(), pair.cross.size()), (2, 1));
        drop(session);
        comm.destroy().unwrap();
        assert!(!pair.local.is_alive() && !pair.cross.is_alive());
    });
}

#[test]
fn create_and_barrier_are_quick() {
    ranks(4, |comm| {
        let start = Instant::now();
        for _ in 0..1_000 {
            comm.barrier().unwrap();
        }
        if comm.rank() == 0 {
            println!("barrier of 4 threads: {:?}", start.elapsed() / 1_000);
        }
        comm.destroy().unwrap();
    });
    let start = Instant::now();
    ranks(4, |comm| comm.destroy().unwrap());
    println!("create and destroy of 4 threads: {:?}", start.elapsed());
}

#[test]
fn one_rank_and_several_with_one_id_are_told() {
    let id = UniqueId::create().unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| Communicator::create(&id, 1, 2, Ok(())).err().unwrap());
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..2 {
            let error = Communicator::create(&id, 0, 1, Ok(())).err().unwrap();
            assert_eq!(error.kind, Kind::InvalidValue);
        }
        let start = Instant::now();
        let error = waiting.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(error.kind, Kind::InvalidValue);
        assert!(error.what.contains("2 and 1"), "{error}");
    });
    // Refused for its rank: used all the same.
    let id = UniqueId::create().unwrap();
    let error = Communicator::create(&id, 5, 3, Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::InvalidValue);
    assert!(Communicator::create(&id, 0, 1, Ok(())).is_err());
}

#[test]
fn strangers_at_the_rendezvous_take_no_memory_and_no_time() {
    use std::io::{Read, Write};
    let id = UniqueId::create().unwrap();
    let places = super::place::Token::decode(&id)
        .unwrap()
        .place
        .candidates()
        .unwrap();
    let mut greedy = super::join::connect(&places).unwrap();
    let long = super::link::Frame {
        kind: super::answers::HELLO,
        sequence: 0,
        body: vec![0; super::link::MOST_STRANGER_BYTES + 1],
    };
    let _ = greedy.write_all(&long.encode());
    greedy.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let ended = match greedy.read(&mut [0; 1]) {
        Ok(came) => came == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(ended, "the connection is still open");
    let comms: Vec<_> = std::thread::scope(|s| {
        let threads = [0, 1].map(|rank| s.spawn(move || Communicator::create(&id, rank, 2, Ok(())).unwrap()));
        threads.map(|t| t.join().unwrap()).into()
    });
    std::thread::scope(|s| comms.iter().for_each(|c| drop(s.spawn(|| c.destroy().unwrap()))));
}

#[test]
fn who_leaves_at_once_lets_the_others_be_made() {
    let _finalizes = FINALIZE.read().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..50 {
        ranks(4, |comm| depart_all(&[comm]));
    }
}
