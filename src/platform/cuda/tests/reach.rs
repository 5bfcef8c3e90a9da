use super::*;
use crate::error::Kind;
use crate::kinds::Location;
use crate::platform::{Bootstrap, Fabric, Platform, SegmentRequest, Segments, TransportChoice};
use std::sync::Mutex;

#[test]
fn ranks_with_working_memory_reach_each_other() {
    let (reaches, world) = on_gpus(3, |_| {}, |platform, boot| acquainted(platform, boot).unwrap());
    for reach in reaches {
        assert_eq!(reach.unreachable, None);
        assert!(!reach.shares_device);
    }
    assert_eq!(world.alive(), "");
    let (alone, world) = on_gpus(1, |_| {}, |platform, boot| acquainted(platform, boot).unwrap());
    assert!(alone[0].unreachable.is_none() && !alone[0].shares_device);
    assert_eq!(world.alive(), "");
}

#[test]
fn ranks_on_one_gpu_are_known_by_its_identity() {
    let (reaches, world) = on_gpus(
        3,
        |desk| desk.uuid = [7, 9, 7][desk.rank],
        |platform, boot| {
            let reach = acquainted(platform, boot).unwrap();
            // NCCL refuses them, so local copies are taken; forced, that is an error on all.
            platform.make_transport(TransportChoice::Auto, boot).unwrap();
            let error = platform
                .make_transport(TransportChoice::Nccl, boot)
                .err()
                .unwrap();
            assert_eq!(error.kind, Kind::NotSupported);
            assert!(platform.abort_word().is_none(), "they never wait on it");
            reach
        },
    );
    assert!(reaches.iter().all(|r| r.shares_device && r.unreachable.is_none()));
    assert_eq!(world.alive(), "");
}

#[test]
fn threads_that_share_gpus_wait_on_them_for_one_communicator_at_most() {
    let world = Arc::new(World::default());
    // Two ranks, on the GPUs 1 and 2; whether they wait there, while `inside` runs and after it, if made anew.
    let pair = |inside: &(dyn Fn() + Sync)| {
        ranks(2, |boot| {
            let mut desk = Desk::new(&world, boot.rank());
            desk.uuid = boot.rank() as u8 + 1;
            desk.sit();
            let waits = |platform: &CudaPlatform| {
                let reach = acquainted(platform, &boot).unwrap();
                let reaches = reach.unreachable.is_none() && !reach.shares_device;
                (
                    reaches,
                    platform.meets_on_streams(),
                    platform.abort_word().is_some(),
                    !reach.crowded,
                )
            };
            let bound = || CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
            let first = bound();
            let alone = waits(&first);
            boot.barrier().unwrap();
            if boot.rank() == 0 {
                inside();
            }
            boot.barrier().unwrap();
            // The same thread stands in nobody's way.
            let again = waits(&bound());
            boot.barrier().unwrap();
            [alone, again]
        })
    };
    let within = Mutex::new(Vec::new());
    let outer = pair(&|| within.lock().unwrap().extend(pair(&|| ())));
    let (waiting, meeting) = ((true, true, true, true), (true, false, false, false));
    assert_eq!(outer, [[waiting; 2]; 2]);
    assert_eq!(*within.lock().unwrap(), [[meeting; 2]; 2]);
    assert_eq!(pair(&|| ()), [[waiting; 2]; 2], "the others are gone");
    assert_eq!(world.alive(), "");
}

/// Two pairs of ranks with their GPUs, the second there while the first is: whether they share one, are crowded, and wait there.
fn one_pair_beside_another(gpus: [[u8; 2]; 2]) -> [Vec<(bool, bool, bool)>; 2] {
    let world = Arc::new(World::default());
    let pair = |gpus: [u8; 2], inside: &(dyn Fn() + Sync)| {
        ranks(2, |boot| {
            let mut desk = Desk::new(&world, boot.rank());
            desk.uuid = gpus[boot.rank()];
            desk.sit();
            let platform = CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
            let reach = acquainted(&platform, &boot).unwrap();
            boot.barrier().unwrap();
            if boot.rank() == 0 {
                inside();
            }
            boot.barrier().unwrap();
            (reach.shares_device, reach.crowded, platform.meets_on_streams())
        })
    };
    let second = Mutex::new(Vec::new());
    let first = pair(gpus[0], &|| second.lock().unwrap().extend(pair(gpus[1], &|| ())));
    [first, second.into_inner().unwrap()]
}

#[test]
fn a_crowded_gpu_of_one_rank_is_everyones() {
    let [first, second] = one_pair_beside_another([[1, 2], [2, 3]]);
    assert_eq!(first, [(false, false, true); 2]);
    assert_eq!(second, [(false, true, false); 2]);
}

#[test]
fn what_another_thread_splits_off_is_its_makers() {
    let (crowded, world) = on_gpus(
        2,
        |_| {},
        |platform, boot| {
            let first = acquainted(platform, boot).unwrap().crowded;
            let desk = desk(|desk| desk.clone());
            let split = || {
                desk.clone().sit();
                let part = platform.rebind().unwrap();
                part.acquaint(boot, &[0, 0]).unwrap().crowded
            };
            let split = std::thread::scope(|scope| scope.spawn(split).join().unwrap());
            [first, split]
        },
    );
    assert_eq!(crowded, [[false; 2]; 2]);
    assert_eq!(world.alive(), "");
}

#[test]
fn ranks_that_meet_on_the_host_are_in_nobodys_way() {
    let [first, second] = one_pair_beside_another([[1, 1], [1, 2]]);
    // That they are in each other's company makes no difference to the first ones.
    assert!(first.iter().all(|(shares, _, waits)| *shares && !waits));
    assert_eq!(second, [(false, false, true); 2]);
}

#[test]
fn groups_that_come_and_go_at_once_agree_and_one_at_most_waits_on_a_gpu() {
    let world = Arc::new(World::default());
    let (waiting, wrong) = (
        Mutex::new(Vec::<(u8, usize)>::new()),
        Mutex::new(Vec::<String>::new()),
    );
    // The group's GPUs are some neighbouring ones of four in a circle.
    let group = |group: usize| {
        ranks(2 + group % 2, |boot| {
            let mut desk = Desk::new(&world, boot.rank() + group * 10);
            desk.uuid = ((boot.rank() + group) % 4) as u8;
            let gpu = desk.uuid;
            desk.sit();
            for turn in 0..100 {
                if (turn + group).is_multiple_of(3) {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                let platform = CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
                let reach = acquainted(&platform, &boot).unwrap();
                let all = boot.all_gather(&[reach.crowded.into()]).unwrap();
                if all.iter().any(|one| one != &all[0]) || platform.meets_on_streams() == reach.crowded {
                    wrong.lock().unwrap().push(format!("group {group}: {all:?}"));
                }
                if !reach.crowded {
                    let mut waiting = waiting.lock().unwrap();
                    if waiting.iter().any(|(other, of)| *other == gpu && *of != group) {
                        wrong
                            .lock()
                            .unwrap()
                            .push(format!("group {group} on GPU {gpu}: {waiting:?}"));
                    }
                    waiting.push((gpu, group));
                }
                boot.barrier().unwrap();
                waiting.lock().unwrap().retain(|one| *one != (gpu, group));
            }
        })
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let group = &group;
            scope.spawn(move || group(number));
        }
    });
    assert!(wrong.lock().unwrap().is_empty(), "{:?}", wrong.lock().unwrap());
    assert_eq!(world.alive(), "");
}

#[test]
fn what_one_rank_cannot_do_no_rank_does() {
    type Harm = fn(&mut Desk);
    let cases: [(&str, Harm); 6] = [
        ("reads back wrong", |d| d.reads_garbage = true),
        ("no peer access", |d| d.can_access_peers = false),
        ("cuMemCreate", |d| {
            d.failure = Some(("cuMemCreate", 0, fake::UNKNOWN))
        }),
        ("cuMemExportToShareableHandle", |d| {
            d.failure = Some(("cuMemExportToShareableHandle", 0, fake::UNKNOWN))
        }),
        ("cuMemImportFromShareableHandle", |d| {
            d.failure = Some(("cuMemImportFromShareableHandle", 1, fake::UNKNOWN))
        }),
        ("cuMemSetAccess", |d| {
            d.failure = Some(("cuMemSetAccess", 1, fake::UNKNOWN))
        }),
    ];
    for (words, harm) in cases {
        let (reaches, world) = on_gpus(
            3,
            |desk| {
                if desk.rank == 1 {
                    harm(desk);
                }
            },
            |platform, boot| platform.acquaint(boot, &[0; 3]).unwrap(),
        );
        for reach in &reaches {
            let why = reach.unreachable.as_ref().expect(words);
            assert!(why.starts_with("rank ") && why.contains(words), "{why}");
            assert_eq!(reach, &reaches[0]);
        }
        assert_eq!(world.alive(), "");
    }
}

#[test]
fn a_lost_descriptor_is_an_error_on_all() {
    let world = Arc::new(World::default());
    let errors = ranks(2, |boot| {
        Desk::new(&world, boot.rank()).sit();
        let platform = CudaPlatform::new(Arc::new(Gpu::bind(fake::functions(), 0).unwrap()));
        let boot = boot.losing_descriptors(true);
        platform.acquaint(&boot, &[0, 0]).unwrap_err()
    });
    assert!(errors.iter().all(|e| e.kind == Kind::System));
    assert_eq!(world.alive(), "");
}

#[test]
fn the_word_of_a_broken_communicator_is_set_once_it_breaks() {
    let (_, world) = on_gpus(
        2,
        |_| {},
        |platform, boot| {
            platform.abort();
            acquainted(platform, boot).unwrap();
            let word = platform.abort_word().unwrap().0 as *const u32;
            // SAFETY: the word lives as long as the platform.
            let value = || unsafe { word.read_volatile() };
            assert_eq!(value(), 0);
            platform.abort();
            assert_eq!(value(), 1);
        },
    );
    assert_eq!(world.alive(), "");
}

/// A place in a fabric that is up.
fn place(clique: u32) -> Option<Fabric> {
    Some(Fabric {
        cluster: [3; 16],
        clique,
        is_ready: true,
    })
}

/// Ranks 0 and 1 on one host, rank 2 on another, all in one clique: they reach each other by handles of the fabric, and make
/// their memory so.
#[test]
fn hosts_of_one_fabric_map_each_others_memory() {
    let (reaches, world) = on_gpus(
        3,
        |_| {},
        |platform, boot| {
            let reach = platform.acquaint_in(place(7), boot, &[0, 0, 1]).unwrap();
            let starts: Vec<usize> = (0..4).map(|rank| rank * fake::PAGE).collect();
            let request = SegmentRequest {
                location: Location::Device,
                starts_bytes: &starts,
                contiguous: true,
            };
            let segment = platform.create(&request, boot).unwrap();
            let word = |rank: usize| segment.address_of_rank(rank).0 as *mut u64;
            // SAFETY: the segment's own memory, a page a rank; each rank writes its own.
            unsafe { word(boot.rank()).write_volatile(100 + boot.rank() as u64) };
            boot.barrier().unwrap();
            // SAFETY: as above, nobody writes any more.
            let seen: Vec<u64> = (0..3).map(|rank| unsafe { word(rank).read_volatile() }).collect();
            assert_eq!(seen, [100, 101, 102]);
            segment.release(Some(boot)).unwrap();
            reach
        },
    );
    assert!(
        reaches
            .iter()
            .all(|r| r.unreachable.is_none() && r.fabrics == [place(7); 3])
    );
    assert_eq!(world.alive(), "");
    let kinds: Vec<usize> = world
        .log()
        .iter()
        .filter(|(_, call, _)| *call == "cuMemExportToShareableHandle")
        .map(|(.., kind)| *kind)
        .collect();
    assert!(kinds.iter().all(|kind| *kind == fake::FABRIC as usize) && !kinds.is_empty());
}

#[test]
fn a_fabric_that_does_not_do_is_no_reach() {
    type Harm = fn(&mut Desk);
    let cases: [(&str, [u32; 2], Harm); 4] = [
        ("is on another host", [7, 8], |_| {}),
        ("800", [7, 7], |d| d.may_use_fabric = false),
        ("cuMemImportFromShareableHandle", [7, 7], |d| {
            d.failure = Some(("cuMemImportFromShareableHandle", 0, fake::UNKNOWN))
        }),
        ("reads back wrong", [7, 7], |d| d.reads_garbage = true),
    ];
    for (words, cliques, harm) in cases {
        let (reaches, world) = on_gpus(
            2,
            |desk| {
                if desk.rank == 1 {
                    harm(desk);
                }
            },
            |platform, boot| {
                let reach = platform
                    .acquaint_in(place(cliques[boot.rank()]), boot, &[0, 1])
                    .unwrap();
                desk(|d| d.failure = None);
                // Each has its own part all the same.
                let request = SegmentRequest {
                    location: Location::Device,
                    starts_bytes: &[0, fake::PAGE, 2 * fake::PAGE],
                    contiguous: false,
                };
                let segment = platform.create(&request, boot).unwrap();
                assert_eq!(
                    segment.address_of_rank(1 - boot.rank()),
                    crate::span::Address::NULL
                );
                segment.release(Some(boot)).unwrap();
                reach
            },
        );
        for reach in &reaches {
            let why = reach.unreachable.as_ref().expect(words);
            assert!(why.contains("another host") && why.contains(words), "{why}");
            assert_eq!(reach, &reaches[0]);
        }
        assert_eq!(world.alive(), "");
    }
}
