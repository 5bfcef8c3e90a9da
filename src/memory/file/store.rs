//! Storing: every rank writes the records of its own partition to its own file.

use super::target::Target;
use super::{StoreRequest, Window};
use crate::error::{Error, Result, ensure, fail};
use crate::memory::Memory;
use crate::platform::cpu::bytes;
use crate::platform::{Bootstrap, Term, agree};
use crate::span::Address;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

const STAGING_BYTES: usize = 1 << 20;
const STEP_BYTES: usize = 16 << 20;

/// Collective: each rank writes its slots' records in order to its own file (truncated or created). The files in rank order
/// are the logical array; `load_from_file` of that list restores it. A file that this call created is removed if any rank
/// fails.
/// # Errors
/// INVALID_INPUT for a window that does not fit a slot or slots that do not divide the granularity; INVALID_VALUE for
/// arguments that differ between ranks or two ranks with the same file; SYSTEM_ERROR for a file that cannot be created or
/// written. The same on all ranks.
pub fn store_to_file(memory: &Arc<Memory>, request: &StoreRequest) -> Result<()> {
    let comm = memory.communicator();
    let session = comm.enter("wholememory_store_to_file")?;
    let terms = [
        Term::new("the handle", memory.number()),
        Term::new("memory_offset", request.memory_offset_bytes),
        Term::new("memory_entry_stride", request.memory_entry_bytes),
        Term::new("file_entry_size", request.file_entry_bytes),
    ];
    let prepared = prepare(memory, request);
    let mut created = Created(prepared.as_ref().ok().and_then(|(_, sink)| sink.created_path()));
    let (window, sink) = agree(&session, &terms, prepared)?;
    if comm.is_single_host() {
        one_file_a_rank(&session, &sink)?;
    }
    let written = sink.write(&window.target(memory), window.slots, &|| session.failure());
    agree(&session, &[], written)?;
    created.keep();
    Ok(())
}

fn prepare<'a>(memory: &Memory, request: &'a StoreRequest) -> Result<(Window, Sink<'a>)> {
    let window = Window::new(
        memory,
        request.memory_offset_bytes,
        ("memory_entry_stride", request.memory_entry_bytes),
        request.file_entry_bytes,
    )?;
    let path = request.file.as_ref().map_err(Error::clone)?;
    let bytes = window.slots.saturating_mul(request.file_entry_bytes as u64);
    // Growing past the limit would raise SIGXFSZ in the caller's process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    ensure!(
        limit.is_none_or(|limit| bytes <= limit),
        System,
        "{} would have {bytes} bytes, the file-size limit (ulimit -f) is {} bytes",
        path.display(),
        limit.unwrap_or(u64::MAX)
    );
    Ok((window, Sink::open(path)?))
}

/// A file made by this call; removed on drop unless kept.
struct Created<'a>(Option<&'a Path>);

impl Created<'_> {
    fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The open file of this rank.
struct Sink<'a> {
    path: &'a Path,
    file: File,
    created: bool,
}

impl<'a> Sink<'a> {
    /// Opens without truncating: nothing is lost while another rank may still refuse.
    fn open(path: &'a Path) -> Result<Sink<'a>> {
        let mut options = OpenOptions::new();
        // Opening a pipe must not wait for its reader.
        let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32;
        options.write(true).custom_flags(flags);
        let (opened, created) = match options.clone().create_new(true).open(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                (options.create(true).truncate(false).open(path), false)
            }
            other => (other, true),
        };
        let file = opened.map_err(|e| Error::system(format!("opening {} for writing", path.display()), e))?;
        Ok(Sink { path, file, created })
    }

    fn created_path(&self) -> Option<&'a Path> {
        self.created.then_some(self.path)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::system(format!("writing {}", self.path.display()), error)
    }

    /// What tells files apart; `None` for what is no regular file.
    fn identity(&self) -> Option<[u8; 16]> {
        let meta = self.file.metadata().ok().filter(|m| m.is_file())?;
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&meta.dev().to_le_bytes());
        identity[8..].copy_from_slice(&meta.ino().to_le_bytes());
        Some(identity)
    }

    /// Writes `slots` records and closes the file.
    fn write(self, target: &Target<'_>, slots: u64, failure: &dyn Fn() -> Option<Error>) -> Result<()> {
        if self.identity().is_some() {
            self.file.set_len(0).map_err(|e| self.failed(e))?;
        }
        let total_bytes = slots * target.row_bytes() as u64;
        let mut staging = Vec::new();
        let mut at = 0;
        while at < total_bytes {
            if let Some(error) = failure() {
                return Err(error);
            }
            let left = total_bytes - at;
            let (from, step) = match target.place_of_dense(0) {
                Some(base) => (
                    base.offset_bytes(at as usize),
                    left.min(STEP_BYTES as u64) as usize,
                ),
                None => {
                    let step = left.min(STAGING_BYTES as u64) as usize;
                    if staging.is_empty() && staging.try_reserve_exact(step).is_err() {
                        fail!(OutOfMemory, "no memory for a staging buffer of {step} bytes");
                    }
                    staging.resize(step, 0u8);
                    let row_bytes = target.row_bytes() as u64;
                    target.take(at / row_bytes, (at % row_bytes) as usize, &mut staging)?;
                    (Address(staging.as_ptr() as usize), step)
                }
            };
            self.write_all(at, from, step)?;
            at += step as u64;
        }
        let path = self.path;
        bytes::close(self.file.into()).map_err(|e| Error::system(format!("closing {}", path.display()), e))
    }

    fn write_all(&self, mut at: u64, mut from: Address, mut bytes: usize) -> Result<()> {
        while bytes > 0 {
            let went = bytes::write_at(self.file.as_fd(), at, from, bytes).map_err(|e| self.failed(e))?;
            ensure!(
                went > 0,
                System,
                "writing {}: no byte was taken",
                self.path.display()
            );
            at += went as u64;
            from = from.offset_bytes(went);
            bytes -= went;
        }
        Ok(())
    }
}

/// Two ranks that write one file would destroy each other's records. Collective; the same verdict on all ranks.
fn one_file_a_rank(boot: &dyn Bootstrap, sink: &Sink<'_>) -> Result<()> {
    let all = boot.all_gather(sink.identity().as_ref().map_or(&[], |id| id.as_slice()))?;
    for (rank, identity) in all.iter().enumerate().filter(|(_, id)| !id.is_empty()) {
        if let Some(other) = all[..rank].iter().position(|id| id == identity) {
            fail!(
                InvalidValue,
                "rank {other} and rank {rank} name the same file, every rank needs a file of its own"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::platform::cpu::segments::threaded::ranks;

    #[test]
    fn a_file_opened_for_storing_keeps_its_content_until_all_agree() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        std::fs::write(&old, b"precious").unwrap();
        let sink = Sink::open(&old).unwrap();
        assert_eq!(sink.created_path(), None);
        drop(sink);
        assert_eq!(std::fs::read(&old).unwrap(), b"precious");
        let new = dir.path().join("new");
        drop(Created(Sink::open(&new).unwrap().created_path()));
        assert!(!new.exists());
        for bad in [dir.path().to_path_buf(), dir.path().join("no/such")] {
            let error = Sink::open(&bad).err().unwrap();
            assert_eq!(error.kind, Kind::System);
            assert!(error.what.contains("for writing"), "{error}");
        }
    }

    #[test]
    fn ranks_that_share_a_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        std::fs::write(&shared, b"").unwrap();
        let verdicts = ranks(3, |boot| {
            let own = dir.path().join(format!("own{}", boot.rank()));
            let path = if boot.rank() == 1 { &own } else { &shared };
            one_file_a_rank(&boot, &Sink::open(path).unwrap())
        });
        for verdict in verdicts {
            let error = verdict.unwrap_err();
            assert_eq!(error.kind, Kind::InvalidValue);
            assert!(error.what.contains("rank 0 and rank 2"), "{error}");
        }
        let devices = ranks(2, |boot| {
            one_file_a_rank(&boot, &Sink::open(Path::new("/dev/null")).unwrap())
        });
        assert!(devices.iter().all(Result::is_ok));
    }
}
