use super::*;
use crate::kinds::Location;
use crate::platform::cpu::CpuPlatform;
use crate::platform::cpu::bytes::Rows;
use crate::platform::{Bootstrap, Kernels, Platform, Segments, Stream, Transport};
use crate::span::Address;
use proptest::prelude::*;

/// A platform whose memory the reader may not touch itself.
struct Remote;

impl Platform for Remote {
    fn name(&self) -> &'static str {
        "remote"
    }

    fn segments(&self) -> &dyn Segments {
        &crate::platform::cpu::segments::MemfdSegments
    }

    fn kernels(&self) -> &dyn Kernels {
        &CpuPlatform
    }

    fn local_transport(&self, boot: &dyn Bootstrap) -> Result<Box<dyn Transport>> {
        CpuPlatform.local_transport(boot)
    }

    fn can_reach(&self, _address: Address) -> bool {
        false
    }

    fn copy(&self, to: Address, from: Address, bytes: usize, stream: Stream) -> Result<()> {
        CpuPlatform.copy(to, from, bytes, stream)
    }

    fn synchronize(&self, _stream: Stream) -> Result<()> {
        Ok(())
    }
}

const UNTOUCHED: u8 = 0xA5;

/// Byte k of record e of the logical array.
fn content(record: u64, k: usize) -> u8 {
    (record as usize * 31 + k * 7 + 1) as u8
}

struct Case {
    dir: tempfile::TempDir,
    paths: Vec<PathBuf>,
    files: FileList,
    row_bytes: usize,
}

impl Case {
    fn new(counts: &[u64], row_bytes: usize) -> Case {
        let dir = tempfile::tempdir().unwrap();
        let files = FileList::new(counts.iter().copied()).unwrap();
        let mut record = 0;
        let paths = counts
            .iter()
            .enumerate()
            .map(|(i, count)| {
                let path = dir.path().join(format!("part{i}"));
                let bytes: Vec<u8> = (record..record + count)
                    .flat_map(|e| (0..row_bytes).map(move |k| content(e, k)))
                    .collect();
                record += count;
                std::fs::write(&path, bytes).unwrap();
                path
            })
            .collect();
        Case {
            dir,
            paths,
            files,
            row_bytes,
        }
    }

    /// Runs the load of one rank into fresh memory of `slots` slots.
    fn load(
        &self,
        placement: Placement,
        slots: u64,
        stride_bytes: usize,
        options: LoadOptions,
        platform: &dyn Platform,
    ) -> (Result<()>, Vec<u8>) {
        let mut memory = vec![UNTOUCHED; slots as usize * stride_bytes];
        let rows = Rows {
            first: Address(memory.as_mut_ptr() as usize),
            row_bytes: self.row_bytes,
            stride_bytes,
        };
        let job = Job {
            rank: 0,
            paths: &self.paths,
            files: &self.files,
            placement,
            target: Target::new(platform, Location::Device, rows),
            fresh: true,
            options,
        };
        (job.run(&|| None), memory)
    }

    /// The records a placement deals, in slot order, against what lies in the memory.
    fn check(&self, memory: &[u8], stride_bytes: usize, records: &[u64]) {
        for (slot, bytes) in memory.chunks(stride_bytes).enumerate() {
            let (row, rest) = bytes.split_at(self.row_bytes);
            match records.get(slot) {
                Some(e) => {
                    let expected: Vec<u8> = (0..self.row_bytes).map(|k| content(*e, k)).collect();
                    assert!(row == expected, "slot {slot} should hold record {e}");
                }
                None => assert!(row.iter().all(|b| *b == UNTOUCHED), "slot {slot} was written"),
            }
            assert!(
                rest.iter().all(|b| *b == UNTOUCHED),
                "the gap behind slot {slot} was written"
            );
        }
    }
}

fn options(buffer_bytes: usize, threads: usize, direct: bool) -> LoadOptions {
    LoadOptions {
        buffer_bytes,
        threads,
        direct,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_record_lands_in_its_slot(
        counts in prop::collection::vec(0u64..400, 1..4),
        row_bytes in 1usize..200,
        gap in prop::sample::select(vec![0usize, 1, 56]),
        block in 0u64..5,
        world in 1u64..4,
        buffer_bytes in prop::sample::select(vec![64usize, 4096, 1 << 20]),
        direct: bool,
        remote: bool,
    ) {
        let case = Case::new(&counts, row_bytes);
        let total = case.files.total_records();
        let stride_bytes = row_bytes + gap;
        let per_rank = total.div_ceil(world);
        for rank in 0..world {
            let (placement, records): (_, Vec<u64>) = if block == 0 {
                let first = rank * per_rank;
                (Placement::sequential(first, per_rank, total), (first..total.min(first + per_rank)).collect())
            } else {
                let mine = (0..total).filter(|e| e / block % world == rank).collect();
                (Placement::round_robin(block, world, rank, total), mine)
            };
            let platform: &dyn Platform = if remote { &Remote } else { &CpuPlatform };
            let slots = placement.count() + 2;
            let (done, memory) = case.load(placement, slots, stride_bytes, options(buffer_bytes, 2, direct), platform);
            done.unwrap();
            case.check(&memory, stride_bytes, &records);
        }
    }
}

#[test]
fn threads_share_a_large_load() {
    let case = Case::new(&[9_000, 1, 21_000], 512);
    let total = case.files.total_records();
    let all: Vec<u64> = (0..total).collect();
    for (stride_bytes, direct) in [(512, false), (640, false), (512, true), (640, true)] {
        let placement = Placement::sequential(0, total, total);
        let (done, memory) = case.load(
            placement,
            total,
            stride_bytes,
            options(1 << 20, 4, direct),
            &CpuPlatform,
        );
        done.unwrap();
        case.check(&memory, stride_bytes, &all);
    }
    let mine: Vec<u64> = (0..total).filter(|e| e / 3 % 4 == 2).collect();
    let placement = Placement::round_robin(3, 4, 2, total);
    let (done, memory) = case.load(
        placement,
        placement.count(),
        512,
        options(1 << 20, 3, false),
        &CpuPlatform,
    );
    done.unwrap();
    case.check(&memory, 512, &mine);
}

#[test]
fn a_record_may_be_larger_than_the_buffer() {
    let case = Case::new(&[3], 300_000);
    for direct in [false, true] {
        let placement = Placement::sequential(0, 3, 3);
        let (done, memory) = case.load(placement, 3, 300_001, options(8192, 1, direct), &CpuPlatform);
        done.unwrap();
        case.check(&memory, 300_001, &[0, 1, 2]);
    }
}

#[test]
fn files_that_shrink_or_vanish_are_system_errors() {
    for (gap, direct) in [(0, false), (8, false), (0, true)] {
        let case = Case::new(&[100, 50_000], 128);
        let placement = Placement::sequential(0, 50_100, 50_100);
        let load = || {
            case.load(
                placement,
                50_100,
                128 + gap,
                options(1 << 20, 2, direct),
                &CpuPlatform,
            )
            .0
        };
        load().unwrap();
        let shrunk = std::fs::OpenOptions::new()
            .write(true)
            .open(&case.paths[1])
            .unwrap();
        shrunk.set_len(128 * 49_999).unwrap();
        let error = load().unwrap_err();
        assert_eq!(error.kind, Kind::System);
        assert!(
            error.what.contains("part1") && error.what.contains(&(128 * 49_999).to_string()),
            "{error}"
        );
        std::fs::remove_file(case.dir.path().join("part0")).unwrap();
        let error = load().unwrap_err();
        assert_eq!(error.kind, Kind::System);
        assert!(error.what.contains("part"), "{error}");
    }
}

#[test]
fn a_broken_communicator_ends_a_load() {
    let case = Case::new(&[80_000], 512);
    let mut memory = vec![0u8; 80_000 * 512];
    let rows = Rows {
        first: Address(memory.as_mut_ptr() as usize),
        row_bytes: 512,
        stride_bytes: 512,
    };
    let job = Job {
        rank: 0,
        paths: &case.paths,
        files: &case.files,
        placement: Placement::sequential(0, 80_000, 80_000),
        target: Target::new(&CpuPlatform, Location::Host, rows),
        fresh: false,
        options: options(1 << 20, 1, false),
    };
    let error = job
        .run(&|| Some(Error::new(Kind::Communication, "rank 3 died")))
        .unwrap_err();
    assert_eq!(error.kind, Kind::Communication);
    assert!(memory.ends_with(&[0; 512]), "the load went on to the end");
}
