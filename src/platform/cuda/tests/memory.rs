use super::*;
use crate::error::Kind;
use crate::kinds::Location;
use crate::platform::{Bootstrap, Platform, Segment, SegmentRequest, Segments, Stream};
use crate::span::Address;

const PAGE: usize = fake::PAGE;

fn create(
    platform: &CudaPlatform,
    boot: &dyn Bootstrap,
    location: Location,
    starts_bytes: &[usize],
    contiguous: bool,
) -> Result<Box<dyn Segment>> {
    let request = SegmentRequest {
        location,
        starts_bytes,
        contiguous,
    };
    platform.create(&request, boot)
}

fn poke(address: Address, bytes: usize, value: u8) {
    if bytes == 0 {
        return;
    }
    // SAFETY: the tests write inside partitions they made.
    unsafe { std::ptr::write_bytes(address.0 as *mut u8, value, bytes) };
}

fn holds(address: Address, bytes: usize, value: u8) -> bool {
    if bytes == 0 {
        return true;
    }
    // SAFETY: the tests read inside partitions they made.
    let seen = unsafe { std::slice::from_raw_parts(address.0 as *const u8, bytes) };
    seen.iter().all(|b| *b == value)
}

#[test]
fn every_rank_sees_what_the_others_write_on_gpus_and_on_the_host() {
    let plans: [&[usize]; 4] = [
        &[0, 3 * PAGE, 3 * PAGE + 100, 7 * PAGE],
        &[0, 0, 100, 100],
        &[0, PAGE / 2, PAGE, PAGE + 1],
        &[0, 5000, 5000, 5000],
    ];
    for location in [Location::Device, Location::Host] {
        for starts in plans {
            for contiguous in [true, false] {
                let (_, world) = on_gpus(
                    3,
                    |_| {},
                    |platform, boot| {
                        acquainted(platform, boot).unwrap();
                        let segment = create(platform, boot, location, starts, contiguous).unwrap();
                        let size = |rank: usize| starts[rank + 1] - starts[rank];
                        let me = boot.rank();
                        poke(segment.address_of_rank(me), size(me), me as u8 + 1);
                        boot.barrier().unwrap();
                        for (peer, start) in starts[..3].iter().enumerate() {
                            let address = segment.address_of_rank(peer);
                            assert!(holds(address, size(peer), peer as u8 + 1));
                            match segment.flat() {
                                Some(base) => assert_eq!(address, base.offset_bytes(*start)),
                                None => assert_eq!(address.is_null(), size(peer) == 0),
                            }
                        }
                        assert_eq!(segment.flat().is_some(), contiguous);
                        boot.barrier().unwrap();
                        segment.release(Some(boot)).unwrap();
                    },
                );
                assert_eq!(world.alive(), "", "{location} {starts:?} {contiguous}");
            }
        }
    }
}

#[test]
fn each_rank_provides_its_own_pages_but_for_shared_ones() {
    let starts = [0, 2 * PAGE + 5, 4 * PAGE, 6 * PAGE];
    let (_, world) = on_gpus(
        3,
        |_| {},
        |platform, boot| {
            acquainted(platform, boot).unwrap();
            drop(create(platform, boot, Location::Device, &starts, true).unwrap());
        },
    );
    assert_eq!(world.alive(), "");
    let created = |rank| {
        world
            .log()
            .iter()
            .filter(|(r, call, _)| *r == rank && *call == "cuMemCreate")
            .count()
    };
    // One for the acquaintance, one for the board of the meetings, one for the segment.
    assert_eq!([created(0), created(1), created(2)], [3, 3, 3]);
}

#[test]
fn nothing_at_all_is_a_segment_too() {
    for size in [1, 3] {
        let (_, world) = on_gpus(
            size,
            |_| {},
            |platform, boot| {
                acquainted(platform, boot).unwrap();
                let starts = vec![0; size + 1];
                for location in [Location::Device, Location::Host] {
                    let flat = create(platform, boot, location, &starts, true).unwrap();
                    assert!(!flat.flat().unwrap().is_null());
                    let apart = create(platform, boot, location, &starts, false).unwrap();
                    assert!(apart.flat().is_none() && apart.address_of_rank(size - 1).is_null());
                    apart.release(Some(boot)).unwrap();
                    flat.release(Some(boot)).unwrap();
                }
            },
        );
        assert_eq!(world.alive(), "");
    }
}

#[test]
fn ranks_that_cannot_map_each_other_keep_to_their_own() {
    let starts = [0, 2 * PAGE, 2 * PAGE, 5 * PAGE];
    let (_, world) = on_gpus(
        3,
        |_| {},
        |platform, boot| {
            let reach = platform.acquaint(boot, &[0, 1, 1]).unwrap();
            assert!(reach.unreachable.unwrap().contains("rank 1 is on another host"));
            for location in [Location::Device, Location::Host] {
                let error = create(platform, boot, location, &starts, true).err().unwrap();
                assert_eq!(error.kind, Kind::NotSupported);
                let segment = create(platform, boot, location, &starts, false).unwrap();
                for peer in 0..3 {
                    let mine = peer == boot.rank() && peer != 1;
                    assert_eq!(!segment.address_of_rank(peer).is_null(), mine);
                }
                poke(
                    segment.address_of_rank(boot.rank()),
                    starts[boot.rank() + 1] - starts[boot.rank()],
                    1,
                );
                segment.release(Some(boot)).unwrap();
            }
        },
    );
    assert_eq!(world.alive(), "");
}

#[test]
fn a_gpu_that_is_full_is_out_of_memory_on_every_rank() {
    let huge = [0, PAGE, PAGE + (1 << 41), 2 * PAGE + (1 << 41)];
    for contiguous in [true, false] {
        let (errors, world) = on_gpus(
            3,
            |_| {},
            |platform, boot| {
                acquainted(platform, boot).unwrap();
                create(platform, boot, Location::Device, &huge, contiguous)
                    .err()
                    .unwrap()
            },
        );
        for (rank, error) in errors.iter().enumerate() {
            assert_eq!(error.kind, Kind::OutOfMemory);
            assert_eq!(error.what.starts_with("rank 1: "), rank != 1, "{error}");
        }
        assert_eq!(world.alive(), "");
    }
}

#[test]
fn whatever_call_fails_on_one_rank_all_fail_alike_and_nothing_stays() {
    let starts = [0, PAGE, 3 * PAGE, 5 * PAGE - 1];
    let device = [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemMap",
        "cuMemSetAccess",
        "cuCtxPushCurrent_v2",
    ];
    let host = [
        "cuMemHostRegister_v2",
        "cuMemHostGetDevicePointer_v2",
        "cuCtxPushCurrent_v2",
    ];
    let cases = [
        (Location::Device, &device[..], fake::UNKNOWN, Kind::Cuda),
        (
            Location::Device,
            &device[2..3],
            fake::OPERATING_SYSTEM,
            Kind::System,
        ),
        (Location::Host, &host[..], fake::UNKNOWN, Kind::Cuda),
    ];
    for (location, calls, code, kind) in cases {
        for contiguous in [true, false] {
            let tried = sweep(
                calls,
                code,
                |platform, boot| {
                    let made = create(platform, boot, location, &starts, contiguous);
                    desk(|desk| desk.failure = None);
                    made.err()
                },
                |what, errors| {
                    for (rank, error) in errors.into_iter().enumerate() {
                        let error = error.unwrap_or_else(|| panic!("{what}: rank {rank} succeeded"));
                        assert_eq!(error.kind, kind, "{what}: {error}");
                        assert_eq!(error.what.starts_with("rank 1: "), rank != 1, "{what}: {error}");
                    }
                },
            );
            assert!(tried >= calls.len());
        }
    }
}

#[test]
fn memory_goes_even_when_the_device_is_lost() {
    for call in ["cuCtxSynchronize", "cuMemUnmap", "cuMemHostUnregister"] {
        for location in [Location::Device, Location::Host] {
            let (outcomes, world) = on_gpus(
                2,
                |_| {},
                |platform, boot| {
                    acquainted(platform, boot).unwrap();
                    let segment = create(platform, boot, location, &[0, PAGE, 2 * PAGE], true).unwrap();
                    if boot.rank() == 1 {
                        desk(|d| d.failure = Some((call, 0, fake::UNKNOWN)));
                    }
                    (segment.release(Some(boot)), desk(|d| d.failed))
                },
            );
            assert!(outcomes[0].0.is_ok());
            assert_eq!(outcomes[1].0.is_err(), outcomes[1].1);
            // What the driver refused to take back is the driver's.
            let left = world.alive();
            assert!(left.is_empty() || call != "cuCtxSynchronize", "{left}");
        }
    }
}

/// A rank that is refused the wait for its GPU, by the system or since another thread records, cannot know whether a
/// kernel uses the memory.
#[test]
fn memory_that_may_be_in_use_stays_mapped() {
    let refusals = [(fake::OPERATING_SYSTEM, Kind::System), (900, Kind::Cuda)];
    let places = [Location::Device, Location::Host];
    for ((code, kind), location, releases) in refusals
        .into_iter()
        .flat_map(|refusal| places.map(|place| (refusal, place)))
        .flat_map(|(refusal, place)| [true, false].map(|releases| (refusal, place, releases)))
    {
        let (outcomes, world) = on_gpus(
            2,
            |_| {},
            |platform, boot| {
                acquainted(platform, boot).unwrap();
                let segment = create(platform, boot, location, &[0, PAGE, 2 * PAGE], true).unwrap();
                boot.barrier().unwrap();
                let mark = world_log_length();
                boot.barrier().unwrap();
                desk(|d| d.waits_give = if d.rank == 1 { code } else { 0 });
                let outcome = match releases {
                    true => segment.release(Some(boot)),
                    false => {
                        drop(segment);
                        Ok(())
                    }
                };
                let end = world_log_length();
                desk(|d| d.waits_give = 0);
                boot.barrier().unwrap();
                let waited = platform.gpu.synchronize();
                waited.unwrap();
                (outcome, mark..end, end..world_log_length())
            },
        );
        assert!(outcomes[0].0.is_ok());
        assert_eq!(
            outcomes[1].0.as_ref().err().map(|error| error.kind),
            releases.then_some(kind)
        );
        let taken = |rank: usize, span: &std::ops::Range<usize>| {
            let log = world.log();
            let calls = log[span.clone()].iter().filter(|(by, _, _)| *by == rank);
            calls
                .filter(|(_, call, _)| ["cuMemUnmap", "cuMemHostUnregister"].contains(call))
                .count()
        };
        assert!(taken(0, &outcomes[0].1) > 0);
        assert_eq!(taken(1, &outcomes[1].1), 0, "{code} {location:?}");
        // Once the GPU is known to be done.
        assert!(taken(1, &outcomes[1].2) > 0, "{code} {location:?}");
        assert_eq!(world.alive(), "", "{code} {location:?}");
    }
}

#[test]
fn imports_are_let_go_before_any_memory_goes() {
    let (bases, world) = on_gpus(
        3,
        |_| {},
        |platform, boot| {
            acquainted(platform, boot).unwrap();
            let starts = [0, PAGE, 2 * PAGE, 3 * PAGE];
            let segment = create(platform, boot, Location::Device, &starts, true).unwrap();
            let own = segment.address_of_rank(boot.rank()).0;
            let mark = world_log_length();
            boot.barrier().unwrap();
            segment.release(Some(boot)).unwrap();
            let end = world_log_length();
            boot.barrier().unwrap();
            (own, mark, end)
        },
    );
    let begin = bases.iter().map(|(_, mark, _)| *mark).min().unwrap();
    let end = bases.iter().map(|(_, _, end)| *end).max().unwrap();
    let log = world.log()[begin..end].to_vec();
    let unmaps: Vec<_> = log.iter().filter(|(_, call, _)| *call == "cuMemUnmap").collect();
    assert_eq!(unmaps.len(), 9);
    let is_own = |(rank, _, address): &&(usize, &str, usize)| bases[*rank].0 == *address;
    let first_own = unmaps.iter().position(is_own).unwrap();
    assert_eq!(first_own, 6, "{unmaps:?}");
    let calls: Vec<&str> = log.iter().map(|(_, call, _)| *call).collect();
    let first_unmap = calls.iter().position(|call| *call == "cuMemUnmap").unwrap();
    let waits = calls[..first_unmap]
        .iter()
        .filter(|call| **call == "cuCtxSynchronize");
    assert_eq!(waits.count(), 3);
}

/// Waiting for the whole device would spoil a graph that another thread records.
#[test]
fn memory_that_nothing_uses_goes_without_waiting() {
    let (_, world) = on_gpus(
        2,
        |_| {},
        |platform, boot| {
            acquainted(platform, boot).unwrap();
            let segment = create(platform, boot, Location::Device, &[0, PAGE, 2 * PAGE], true).unwrap();
            boot.barrier().unwrap();
            let mark = world_log_length();
            boot.barrier().unwrap();
            segment.release_settled().unwrap();
            boot.barrier().unwrap();
            let log = desk(|desk| desk.world.clone()).log();
            let calls: Vec<&str> = log[mark..].iter().map(|(_, call, _)| *call).collect();
            assert!(!calls.contains(&"cuCtxSynchronize"), "{calls:?}");
            assert_eq!(calls.iter().filter(|call| **call == "cuMemUnmap").count(), 4);
            boot.barrier().unwrap();
        },
    );
    assert_eq!(world.alive(), "");
}

#[test]
fn free_scratch_goes_before_there_is_no_memory() {
    on_gpus(
        2,
        |_| {},
        |platform, boot| {
            acquainted(platform, boot).unwrap();
            let starts = [0, PAGE, 2 * PAGE];
            if boot.rank() == 1 {
                desk(|d| d.failure = Some(("cuMemCreate", 0, fake::OUT_OF_MEMORY)));
            }
            let segment = create(platform, boot, Location::Device, &starts, true).unwrap();
            assert_eq!(desk(|d| d.failed), boot.rank() == 1);
            segment.release(Some(boot)).unwrap();
            // One partition too large for any driver.
            let starts = [0, PAGE, PAGE + (1 << 41)];
            let refused = create(platform, boot, Location::Device, &starts, true)
                .err()
                .unwrap();
            assert_eq!(refused.kind, Kind::OutOfMemory);
        },
    );
}

fn world_log_length() -> usize {
    desk(|desk| desk.world.clone()).log().len()
}

#[test]
fn host_memory_that_is_refused_whole_is_registered_in_pieces() {
    use super::super::host::Registered;
    let (_, world) = on_gpus(
        1,
        |_| {},
        |platform, _| {
            let block = vec![0u8; 10 * PAGE];
            let base = Address((block.as_ptr() as usize).next_multiple_of(4096));
            desk(|d| d.failure = Some(("cuMemHostRegister_v2", 0, fake::INVALID_VALUE)));
            let registered = Registered::new(&platform.gpu, Some((base, 9 * PAGE + 4096)), 4 * PAGE).unwrap();
            assert_eq!(desk(|d| d.world.clone()).registrations(), 3);
            drop(registered);
            // A piece that is refused too: nothing stays.
            desk(|d| (d.failure, d.failed) = (Some(("cuMemHostGetDevicePointer_v2", 0, 1)), false));
            assert!(Registered::new(&platform.gpu, Some((base, PAGE)), 4 * PAGE).is_err());
            // A driver that shows the memory elsewhere is no use in pieces either.
            desk(|d| d.shifted = true);
            let error = Registered::new(&platform.gpu, Some((base, 9 * PAGE)), PAGE)
                .err()
                .unwrap();
            assert_eq!(error.kind, Kind::NotSupported);
        },
    );
    assert_eq!(world.alive(), "");
}

#[test]
fn scratch_is_used_again_in_the_order_of_streams() {
    let (_, world) = on_gpus(
        1,
        |_| {},
        |platform, _| {
            for stream in [0, 0x100] {
                let block = platform.scratch(1000, Some(Stream(stream))).unwrap().unwrap();
                assert!(!block.address().is_null());
            }
            // Nobody says which stream, or it records: memory whose end waits.
            for stream in [None, Some(Stream(0x300))] {
                drop(platform.scratch(1000, stream).unwrap());
            }
            desk(|d| d.failure = Some(("cuMemAllocFromPoolAsync", 0, fake::OUT_OF_MEMORY)));
            let refused = platform.scratch(1 << 40, Some(Stream(0x100)));
            assert_eq!(refused.err().unwrap().kind, Kind::OutOfMemory);
        },
    );
    assert_eq!(world.alive(), "");
    let called = |name| world.log().iter().filter(|(_, call, _)| *call == name).count();
    assert_eq!(
        [
            "cuMemPoolCreate",
            "cuMemFreeAsync",
            "cuMemAlloc_v2",
            "cuMemFree_v2"
        ]
        .map(called),
        [1, 2, 2, 2]
    );
    // Without pools, and where a pool cannot be made.
    let (_, world) = on_gpus(
        1,
        |desk| desk.has_pools = false,
        |platform, _| drop(platform.scratch(8, Some(Stream(0x100))).unwrap()),
    );
    assert_eq!(world.alive(), "");
    for call in ["cuMemPoolCreate", "cuMemPoolSetAttribute"] {
        let (_, world) = on_gpus(
            1,
            |desk| desk.failure = Some((call, 0, fake::UNKNOWN)),
            |platform, _| {
                let refused = platform.scratch(8, Some(Stream(0x100)));
                assert_eq!(refused.err().unwrap().kind, Kind::Cuda);
            },
        );
        assert_eq!(world.alive(), "", "{call}");
    }
}
