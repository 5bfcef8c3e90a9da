//! Loading and storing handles from and to files.

mod options;
mod plan;
mod read;
mod store;
mod target;

use super::handle::Memory;
use super::mapping::MappedBases;
use crate::error::{Error, Kind, Result, ensure, fail};
use crate::platform::cpu::bytes::Rows;
use crate::platform::{Bootstrap, Term, agree};
use options::LoadOptions;
use plan::{FileList, Placement};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use store::store_to_file;
use target::Target;

const MOST_FILES: usize = 65_535;

/// The arguments of `wholememory_load_from_file`; `files` is the failure of reading the caller's names, if it failed.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    pub memory_offset_bytes: usize,
    pub memory_entry_bytes: usize,
    pub file_entry_bytes: usize,
    pub files: Result<Vec<PathBuf>>,
    pub round_robin_records: i32,
}

/// The arguments of `wholememory_store_to_file`.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    pub memory_offset_bytes: usize,
    pub memory_entry_bytes: usize,
    pub file_entry_bytes: usize,
    pub file: Result<PathBuf>,
}

/// Collective: fills record slots of the handle from the files, taken in list order as one array of records. Bytes of a
/// slot outside the record are not touched. Partial content may remain when reading fails.
/// # Errors
/// INVALID_INPUT for a window that does not fit a slot, slots that do not divide the granularity, more than 65535 files, a
/// name that is no readable file of whole records; INVALID_VALUE for more records than slots (in round robin: than slots of
/// one rank), a negative round, or arguments that differ between ranks; LOGIC_ERROR for file counts or sizes that differ;
/// SYSTEM_ERROR for a file that shrinks, vanishes or fails while it is read. The same on all ranks.
pub fn load_from_file(memory: &Arc<Memory>, request: &LoadRequest) -> Result<()> {
    let comm = memory.communicator();
    let session = comm.enter("wholememory_load_from_file")?;
    let terms = [
        Term::new("the handle", memory.number()),
        Term::new("memory_offset", request.memory_offset_bytes),
        Term::new("memory_entry_size", request.memory_entry_bytes),
        Term::new("file_entry_size", request.file_entry_bytes),
        Term::new("round_robin_size", request.round_robin_records),
    ];
    let load = agree(&session, &terms, Load::prepare(memory, request))?;
    agree_on_sizes(&session, &load.sizes_bytes)?;
    let job = read::Job {
        rank: comm.rank(),
        paths: &load.paths,
        files: &load.files,
        placement: load.placement,
        target: load.window.target(memory),
        fresh: load.window.lease.first_fill(),
        options: LoadOptions::from_environment(comm.rank(), comm.local_size()),
    };
    agree(&session, &[], job.run(&|| session.failure()))
}

/// The part of every slot that a record fills, over the own partition.
struct Window {
    rows: Rows,
    first_slot: u64,
    slots: u64,
    lease: MappedBases,
}

impl Window {
    /// The checks that load and store share; `slot_name` is what the caller calls the bytes of a slot.
    fn new(
        memory: &Memory,
        offset_bytes: usize,
        (slot_name, slot_bytes): (&str, usize),
        record_bytes: usize,
    ) -> Result<Window> {
        ensure!(
            record_bytes > 0,
            InvalidInput,
            "file_entry_size is 0, it must be at least 1 byte"
        );
        let fits = offset_bytes
            .checked_add(record_bytes)
            .is_some_and(|end| end <= slot_bytes);
        ensure!(
            fits,
            InvalidInput,
            "memory_offset {offset_bytes} + file_entry_size {record_bytes} reach past {slot_name} {slot_bytes}"
        );
        let granule_bytes = memory.partition().granule_bytes;
        ensure!(
            granule_bytes.is_multiple_of(slot_bytes),
            InvalidInput,
            "{slot_name} {slot_bytes} does not divide the handle's granularity of {granule_bytes} bytes"
        );
        let lease = memory.mapped_bases()?;
        let local = memory.local()?;
        Ok(Window {
            rows: Rows {
                first: local.address.offset_bytes(offset_bytes),
                row_bytes: record_bytes,
                stride_bytes: slot_bytes,
            },
            first_slot: (local.offset_bytes / slot_bytes) as u64,
            slots: (local.size_bytes / slot_bytes) as u64,
            lease,
        })
    }

    fn target<'a>(&self, memory: &'a Memory) -> Target<'a> {
        Target::new(memory.communicator().platform(), memory.location(), self.rows)
    }
}

/// A load that this rank can do.
struct Load {
    window: Window,
    paths: Vec<PathBuf>,
    sizes_bytes: Vec<u64>,
    files: FileList,
    placement: Placement,
}

impl Load {
    fn prepare(memory: &Memory, request: &LoadRequest) -> Result<Load> {
        let window = Window::new(
            memory,
            request.memory_offset_bytes,
            ("memory_entry_size", request.memory_entry_bytes),
            request.file_entry_bytes,
        )?;
        let record_bytes = request.file_entry_bytes as u64;
        let Ok(block_records) = u64::try_from(request.round_robin_records) else {
            fail!(
                InvalidValue,
                "round_robin_size is {}, it must be 0 (sequential) or more",
                request.round_robin_records
            );
        };
        let paths = request.files.clone()?;
        ensure!(
            paths.len() <= MOST_FILES,
            InvalidInput,
            "{} files are given, at most {MOST_FILES} can be loaded at once",
            paths.len()
        );
        let sizes_bytes = paths
            .iter()
            .map(|path| size_of_records(path, record_bytes))
            .collect::<Result<Vec<_>>>()?;
        let all_slots = (memory.total_bytes() / request.memory_entry_bytes) as u64;
        let files = FileList::new(sizes_bytes.iter().map(|size| size / record_bytes))
            .filter(|files| files.total_records() <= all_slots);
        let Some(files) = files else {
            fail!(
                InvalidValue,
                "the files hold {} bytes, the handle has room for {all_slots} records of {record_bytes} bytes",
                sizes_bytes.iter().map(|s| u128::from(*s)).sum::<u128>()
            );
        };
        let total_records = files.total_records();
        let placement = if block_records == 0 {
            Placement::sequential(window.first_slot, window.slots, total_records)
        } else {
            let comm = memory.communicator();
            Placement::round_robin(
                block_records,
                comm.size() as u64,
                comm.rank() as u64,
                total_records,
            )
        };
        ensure!(
            placement.count() <= window.slots,
            InvalidValue,
            "round_robin_size {block_records} deals {} of {total_records} records to rank {}, which has {} slots",
            placement.count(),
            memory.communicator().rank(),
            window.slots
        );
        Ok(Load {
            window,
            paths,
            sizes_bytes,
            files,
            placement,
        })
    }
}

/// The size of a readable, regular file of whole records.
fn size_of_records(path: &Path, record_bytes: u64) -> Result<u64> {
    let shown = path.display();
    // Opening a pipe must not wait for its writer.
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|e| Error::new(kind_of_bad_name(&e), format!("{shown} cannot be read: {e}")))?;
    let meta = file
        .metadata()
        .map_err(|e| Error::new(Kind::InvalidInput, format!("{shown} cannot be examined: {e}")))?;
    ensure!(
        meta.is_file(),
        InvalidInput,
        "{shown} is {}, a regular file is needed",
        if meta.is_dir() {
            "a directory"
        } else {
            "no regular file"
        }
    );
    ensure!(
        meta.len().is_multiple_of(record_bytes),
        InvalidInput,
        "{shown} has {} bytes, which is no multiple of file_entry_size {record_bytes}",
        meta.len()
    );
    Ok(meta.len())
}

/// A name the caller can mend is INVALID_INPUT; a system that has run out of something is SYSTEM_ERROR.
fn kind_of_bad_name(error: &std::io::Error) -> Kind {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EIO | libc::ENOSPC | libc::EDQUOT) => {
            Kind::System
        }
        _ if error.kind() == ErrorKind::OutOfMemory => Kind::System,
        _ => Kind::InvalidInput,
    }
}

/// All ranks must see the same number of files with the same sizes. Collective; the same verdict on all ranks.
fn agree_on_sizes(boot: &dyn Bootstrap, sizes_bytes: &[u64]) -> Result<()> {
    let mine: Vec<u8> = sizes_bytes.iter().flat_map(|size| size.to_le_bytes()).collect();
    let all = boot.all_gather(&mine)?;
    let (words, _) = all[0].as_chunks::<8>();
    for (rank, theirs) in all.iter().enumerate().skip(1) {
        let (other_words, _) = theirs.as_chunks::<8>();
        ensure!(
            words.len() == other_words.len(),
            Logic,
            "the number of files differs between ranks: rank 0 passed {}, rank {rank} passed {}",
            words.len(),
            other_words.len()
        );
        if let Some(i) = words.iter().zip(other_words).position(|(a, b)| a != b) {
            fail!(
                Logic,
                "the size of file {i} differs between ranks: rank 0 sees {} bytes, rank {rank} sees {}",
                u64::from_le_bytes(words[i]),
                u64::from_le_bytes(other_words[i])
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::cpu::segments::threaded::ranks;
    use std::fs;

    #[test]
    fn only_readable_regular_files_of_whole_records_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("good"), [0; 12]).unwrap();
        fs::write(at("empty"), []).unwrap();
        assert_eq!(size_of_records(&at("good"), 4).unwrap(), 12);
        assert_eq!(size_of_records(&at("empty"), 4).unwrap(), 0);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for (name, record_bytes, words) in [
            ("missing", 4, "cannot be read"),
            ("good", 5, "no multiple"),
            ("good", 24, "no multiple"),
            ("pipe", 4, "no regular file"),
            ("", 4, "a directory"),
            ("good/x", 4, "cannot be read"),
        ] {
            let error = size_of_records(&at(name), record_bytes).unwrap_err();
            assert_eq!(error.kind, Kind::InvalidInput, "{error}");
            assert!(error.what.contains(words), "{error}");
        }
        let error = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(kind_of_bad_name(&error), Kind::System);
    }

    #[test]
    fn file_lists_that_differ_are_a_logic_error_everywhere() {
        let verdicts = |lists: [&'static [u64]; 3]| {
            ranks(3, |boot| {
                agree_on_sizes(&boot, lists[boot.rank()]).map_err(|e| (e.kind, e.what))
            })
        };
        assert!(verdicts([&[4, 8], &[4, 8], &[4, 8]]).iter().all(|v| v.is_ok()));
        assert!(verdicts([&[], &[], &[]]).iter().all(|v| v.is_ok()));
        for (lists, words) in [
            (
                [&[4u64, 8][..], &[4, 8], &[4]],
                "rank 0 passed 2, rank 2 passed 1",
            ),
            (
                [&[4, 8], &[4, 12], &[4, 8]],
                "size of file 1 differs between ranks: rank 0 sees 8 bytes, rank 1 sees 12",
            ),
        ] {
            for verdict in verdicts(lists) {
                let (kind, what) = verdict.unwrap_err();
                assert_eq!(kind, Kind::Logic);
                assert!(what.contains(words), "{what}");
            }
        }
    }
}
