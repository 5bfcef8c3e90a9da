use super::threaded::{Threaded, alone, ranks};
use super::*;
use crate::kinds::Location;
use proptest::prelude::*;
use std::cell::RefCell;

const PAGE: usize = 4096;

fn create(starts: &[usize], contiguous: bool, boot: &Threaded) -> Result<Box<dyn Segment>> {
    let request = SegmentRequest {
        location: Location::Host,
        starts_bytes: starts,
        contiguous,
    };
    MemfdSegments.create(&request, boot)
}

fn poke(address: Address, bytes: &[u8]) {
    // SAFETY: the tests write inside partitions they made.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.0 as *mut u8, bytes.len()) };
}

fn peek(address: Address, bytes: usize) -> Vec<u8> {
    // SAFETY: the tests read inside partitions they made.
    unsafe { std::slice::from_raw_parts(address.0 as *const u8, bytes) }.to_vec()
}

/// Mappings of memory files and descriptors of the process, by name.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|l| l.contains("memfd:wholememory ")).count();
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok())
        .filter(|to| to.to_string_lossy().contains("memfd:wholememory"))
        .count();
    (mapped, open)
}

#[test]
fn every_rank_sees_what_the_others_write() {
    alone!(every_rank_sees_what_the_others_write);
    let starts = [0, 5000, 5000, 12001, 12288];
    for contiguous in [true, false] {
        let offsets = ranks(4, |boot| {
            let segment = create(&starts, contiguous, &boot).unwrap();
            let rank = boot.rank();
            let size = starts[rank + 1] - starts[rank];
            assert!(peek(segment.address_of_rank(0), 5000).iter().all(|b| *b == 0));
            boot.barrier().unwrap();
            poke(segment.address_of_rank(rank), &vec![rank as u8 + 1; size]);
            boot.barrier().unwrap();
            for peer in 0..4 {
                let size = starts[peer + 1] - starts[peer];
                let address = segment.address_of_rank(peer);
                if size > 0 {
                    assert!(peek(address, size).iter().all(|b| *b == peer as u8 + 1));
                }
                match segment.flat() {
                    Some(base) => assert_eq!(address, base.offset_bytes(starts[peer])),
                    None if size == 0 => assert!(address.is_null()),
                    None => assert!(address.0.is_multiple_of(PAGE)),
                }
            }
            assert_eq!(segment.flat().is_some(), contiguous);
            let (mapped, open) = held();
            assert!(mapped > 0);
            assert_eq!(open, 0, "descriptors are closed once mapped");
            boot.barrier().unwrap();
            segment.release(Some(&boot)).unwrap();
        });
        assert_eq!(offsets.len(), 4);
    }
    assert_eq!(held(), (0, 0));
}

/// Bytes in huge pages of the mapping at `base`, and whether every page of it is there, as the kernel tells.
fn huge_bytes(base: Address) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = text
        .lines()
        .skip_while(|l| !l.starts_with(&format!("{:x}-", base.0)));
    lines.next().expect("the mapping is listed by its base");
    lines
        .find_map(|l| l.strip_prefix("ShmemPmdMapped:"))
        .map(|l| l.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() << 10)
        .unwrap()
}

/// True where this system makes huge pages of shared memory when it is asked to.
fn makes_huge_pages() -> bool {
    let file = make_file(2 * HUGE_PAGE_BYTES as u64).unwrap();
    let mapping = Mapping::new(file.as_fd(), 2 * HUGE_PAGE_BYTES).unwrap();
    huge::provide(&file, mapping.base(), 0, 2 * HUGE_PAGE_BYTES) > 0
}

#[test]
fn large_partitions_lie_in_huge_pages() {
    alone!(large_partitions_lie_in_huge_pages);
    // The third huge page belongs to both ranks, the last is not whole.
    let starts = [0, 5 * HUGE_PAGE_BYTES / 2, 11 * HUGE_PAGE_BYTES / 2 + 12345];
    ranks(2, |boot| {
        let segment = create(&starts, true, &boot).unwrap();
        let base = segment.flat().unwrap();
        assert!(base.0.is_multiple_of(HUGE_PAGE_BYTES), "{:#x}", base.0);
        let rank = boot.rank();
        let (own, size) = (segment.address_of_rank(rank), starts[rank + 1] - starts[rank]);
        assert!(peek(base, starts[2]).iter().all(|b| *b == 0));
        boot.barrier().unwrap();
        if makes_huge_pages() {
            // Two whole pages of rank 0, two of rank 1.
            assert_eq!(huge_bytes(base), 4 * HUGE_PAGE_BYTES);
        } else {
            eprintln!("skipped: this system makes no huge pages of shared memory");
        }
        poke(own, &vec![rank as u8 + 1; size]);
        boot.barrier().unwrap();
        for peer in 0..2 {
            let there = peek(segment.address_of_rank(peer), starts[peer + 1] - starts[peer]);
            assert!(there.iter().all(|b| *b == peer as u8 + 1));
        }
        boot.barrier().unwrap();
        segment.release(Some(&boot)).unwrap();
    });
    assert_eq!(held(), (0, 0));
}

/// Addresses of this process that are in use, in bytes.
fn address_space_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').next().unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

#[test]
fn a_mapping_takes_its_own_addresses_only() {
    alone!(a_mapping_takes_its_own_addresses_only);
    for bytes in [PAGE, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + PAGE] {
        let file = make_file(bytes as u64).unwrap();
        let before = address_space_bytes();
        let mapping = Mapping::new(file.as_fd(), bytes).unwrap();
        assert_eq!(address_space_bytes(), before + bytes);
        drop(mapping);
        assert_eq!(address_space_bytes(), before);
        // A file that cannot be mapped leaves nothing either.
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert!(Mapping::new(reader.as_fd(), bytes).is_err());
        assert_eq!(address_space_bytes(), before);
    }
}

#[test]
fn nothing_at_all_is_a_segment_too() {
    alone!(nothing_at_all_is_a_segment_too);
    ranks(3, |boot| {
        let flat = create(&[0, 0, 0, 0], true, &boot).unwrap();
        assert!(!flat.flat().unwrap().is_null());
        assert_eq!(flat.address_of_rank(2), flat.flat().unwrap());
        let apart = create(&[0, 0, 0, 0], false, &boot).unwrap();
        assert_eq!(apart.flat(), None);
        assert!(apart.address_of_rank(1).is_null());
        boot.barrier().unwrap();
        drop(flat);
        apart.release(None).unwrap();
    });
    assert_eq!(held(), (0, 0));
}

#[test]
fn what_no_host_holds_is_out_of_memory_on_all_ranks() {
    alone!(what_no_host_holds_is_out_of_memory_on_all_ranks);
    let available = Budget::read().available_bytes.unwrap() as usize;
    // Each part alone would fit; together they do not.
    let part = available / 3;
    let starts = [0, part, 2 * part, 3 * part, 4 * part];
    for contiguous in [true, false] {
        let errors = ranks(4, |boot| create(&starts, contiguous, &boot).err().unwrap());
        for error in &errors {
            assert_eq!(error.kind, Kind::OutOfMemory);
            assert!(
                error.what.contains("available") || error.what.contains("control group"),
                "{error}"
            );
        }
    }
    let huge = [0, 1 << 62, usize::MAX];
    for error in ranks(2, |boot| create(&huge, false, &boot).err().unwrap()) {
        assert_eq!(error.kind, Kind::OutOfMemory);
        assert!(error.what.contains(&usize::MAX.to_string()));
    }
    assert_eq!(held(), (0, 0));
}

#[test]
fn a_descriptor_lost_on_one_rank_fails_all_and_leaves_nothing() {
    alone!(a_descriptor_lost_on_one_rank_fails_all_and_leaves_nothing);
    for unlucky in 0..3 {
        let errors = ranks(3, |boot| {
            let rank = boot.rank();
            let boot = boot.losing_descriptors(rank == unlucky);
            create(&[0, PAGE, 2 * PAGE, 3 * PAGE], true, &boot).err().unwrap()
        });
        for error in errors {
            assert_eq!(error.kind, Kind::System);
            assert!(error.what.contains("lost in transit"), "{error}");
        }
        assert_eq!(held(), (0, 0));
    }
}

#[test]
fn pages_are_reserved_when_the_segment_is_made() {
    alone!(pages_are_reserved_when_the_segment_is_made);
    let shmem_kib = || -> u64 {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("Shmem:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    const PART: usize = 64 << 20;
    let before = shmem_kib();
    ranks(2, |boot| {
        let segment = create(&[0, PART, 2 * PART], true, &boot).unwrap();
        if boot.rank() == 0 {
            assert!(
                shmem_kib() >= before + 100 * 1024,
                "{before} KiB before, {} KiB now",
                shmem_kib()
            );
        }
        boot.barrier().unwrap();
        drop(segment);
    });
}

#[test]
fn memory_files_keep_their_size() {
    let file = make_file(3 * PAGE as u64).unwrap();
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
    assert!(rustix::fs::ftruncate(&file, 9 * PAGE as u64).is_err());
    let foreign = rustix::fs::memfd_create("wholememory-foreign", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&foreign, PAGE as u64).unwrap();
    let request = SegmentRequest {
        location: Location::Host,
        starts_bytes: &[0, PAGE],
        contiguous: true,
    };
    let plan = PagePlan::new(&request, PAGE).unwrap();
    let error = map_and_reserve(&plan, &foreign, 0, None).err().unwrap();
    assert_eq!(error.kind, Kind::System);
    assert!(error.what.contains("no sealed memory"), "{error}");
}

#[test]
fn a_file_a_rank_for_ranks_of_several_hosts() {
    let starts = [0, 5000, 5000, 12001];
    ranks(3, |boot| {
        let request = SegmentRequest {
            location: Location::Host,
            starts_bytes: &starts,
            contiguous: false,
        };
        let rank = boot.rank();
        // A node that is not there is a wish that is not met.
        let segment = create_alone(&request, Some(1000), &[0, 0, 1], &boot).unwrap();
        for peer in 0..3 {
            let here = peer == rank && rank != 1;
            assert_eq!(!segment.address_of_rank(peer).is_null(), here);
        }
        assert_eq!(segment.flat(), None);
        if rank != 1 {
            let size = starts[rank + 1] - starts[rank];
            assert_eq!(peek(segment.address_of_rank(rank), size), vec![0; size]);
            poke(segment.address_of_rank(rank), &vec![7; size]);
        }
    });
    let available = Budget::read().available_bytes.unwrap() as usize;
    let starts = [0, available / 2, available / 4 * 5];
    let request = SegmentRequest {
        location: Location::Host,
        starts_bytes: &starts,
        contiguous: false,
    };
    for error in ranks(2, |boot| {
        create_alone(&request, None, &[0, 0], &boot).err().unwrap()
    }) {
        assert_eq!(error.kind, Kind::OutOfMemory);
    }
}

proptest! {
    #[test]
    fn every_page_is_reserved_once_and_partitions_do_not_overlap(
        sizes in prop::collection::vec(0usize..20_000, 1..9),
        contiguous: bool,
    ) {
        let mut starts = vec![0];
        for size in &sizes {
            starts.push(starts.last().unwrap() + size);
        }
        let request = SegmentRequest { location: Location::Device, starts_bytes: &starts, contiguous };
        let plan = PagePlan::new(&request, PAGE).unwrap();
        prop_assert!(plan.total_bytes.is_multiple_of(PAGE));
        let mut end = 0;
        for (rank, (offset, size)) in plan.places.iter().enumerate() {
            prop_assert!(*offset >= end);
            prop_assert_eq!(*size, sizes[rank]);
            if contiguous {
                prop_assert_eq!(*offset, starts[rank]);
            } else {
                prop_assert!(offset.is_multiple_of(PAGE));
            }
            end = offset + size;
        }
        prop_assert!(end <= plan.total_bytes);
        let mut pages = vec![0; plan.total_bytes / PAGE];
        for rank in 0..sizes.len() {
            let (offset, bytes) = plan.provided(rank);
            prop_assert!(bytes.is_multiple_of(PAGE));
            for page in 0..bytes / PAGE {
                pages[offset / PAGE + page] += 1;
            }
        }
        prop_assert!(pages.iter().all(|n| *n == 1), "{:?}", pages);
    }
}

#[test]
fn reserving_gets_on_among_signals() {
    const KIB: u64 = 1 << 10;
    // A kernel that never gets a step of more than 1 MiB done between two signals.
    let taken = RefCell::new(Vec::new());
    let end = (1 << 40) + 300 * KIB * KIB + 5;
    reserve(1 << 40, end - (1 << 40), |offset, step| {
        if step > KIB * KIB {
            return Err(Errno::INTR);
        }
        taken.borrow_mut().push((offset, step));
        Ok(())
    })
    .unwrap();
    let mut at = 1 << 40;
    for (offset, step) in taken.into_inner() {
        assert_eq!(offset, at);
        at += step;
    }
    assert_eq!(at, end);
    let error = reserve(0, 10, |_, _| Err(Errno::NOSPC)).unwrap_err();
    assert_eq!(error.kind, Kind::OutOfMemory);
}
