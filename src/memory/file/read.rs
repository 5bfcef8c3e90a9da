//! The readers of one rank: threads that fill the rank's slots from the files. They meet no other rank.

use super::options::LoadOptions;
use super::plan::{FileList, Piece, Placement};
use super::target::Target;
use crate::error::{Error, Kind, Result, fail};
use crate::log::say_rank;
use crate::platform::process;
use rustix::fs::{Advice, OFlags};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Offsets, lengths and addresses of direct reads are multiples of this.
const DIRECT_ALIGNMENT_BYTES: usize = 4096;
/// A staging window of buffered reads stays in the core's cache.
const BUFFERED_WINDOW_BYTES: usize = 256 << 10;
/// Skipping this much of a file costs more as a call of its own than as bytes read in vain.
const READ_THROUGH_BYTES: u64 = 8 << 10;
/// The most one call reads straight into place, so that a failure elsewhere is noticed soon.
const STEP_BYTES: usize = 4 << 20;
/// Below this a load is not worth a second thread.
const SHARE_BYTES: u64 = 4 << 20;
const SMALLEST_CHUNK_BYTES: u64 = 1 << 20;
const LARGEST_CHUNK_BYTES: u64 = 16 << 20;
/// A helper keeps nothing large on its stack.
const HELPER_STACK_BYTES: usize = 512 << 10;
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// What one rank has to read.
pub struct Job<'a> {
    pub rank: usize,
    pub paths: &'a [PathBuf],
    pub files: &'a FileList,
    pub placement: Placement,
    pub target: Target<'a>,
    /// The memory was not written yet.
    pub fresh: bool,
    pub options: LoadOptions,
}

/// What the threads of a job share.
struct Shared {
    next_slot: AtomicU64,
    chunk_slots: u64,
    done_bytes: AtomicU64,
    stop: AtomicBool,
    first_error: Mutex<Option<Error>>,
}

impl Shared {
    fn fail(&self, error: Error) {
        let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Job<'_> {
    pub fn bytes(&self) -> u64 {
        self.placement.count() * self.target.row_bytes() as u64
    }

    /// Fills the slots; `failure` is asked now and then whether it still makes sense.
    /// # Errors
    /// SYSTEM_ERROR for a file that cannot be read to the size it had, OUT_OF_MEMORY without a staging buffer.
    pub fn run(&self, failure: &dyn Fn() -> Option<Error>) -> Result<()> {
        let begun = Instant::now();
        let bytes = self.bytes();
        let row_bytes = self.target.row_bytes() as u64;
        let threads = match bytes {
            0 => return Ok(()),
            small if small < SHARE_BYTES => 1,
            _ => self.options.threads.max(1),
        };
        let chunk_bytes = (bytes / (threads as u64 * 4)).clamp(SMALLEST_CHUNK_BYTES, LARGEST_CHUNK_BYTES);
        let shared = Shared {
            next_slot: AtomicU64::new(0),
            chunk_slots: (chunk_bytes / row_bytes).max(1),
            done_bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            first_error: Mutex::new(None),
        };
        let mut told = begun;
        let mut supervise = || {
            if let Some(error) = failure() {
                shared.fail(error);
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                self.tell_progress(shared.done_bytes.load(Ordering::Relaxed), begun.elapsed());
            }
        };
        std::thread::scope(|scope| {
            let helpers: Vec<_> = (1..threads)
                .filter(|_| process::has_room_for_thread(HELPER_STACK_BYTES))
                .filter_map(|_| {
                    std::thread::Builder::new()
                        .name("wm-load".into())
                        .stack_size(HELPER_STACK_BYTES)
                        .spawn_scoped(scope, || Reader::new(self, &shared).work(&mut || ()))
                        .ok()
                })
                .collect();
            Reader::new(self, &shared).work(&mut supervise);
            for helper in helpers {
                if helper.join().is_err() {
                    shared.fail(Error::new(Kind::Unknown, "a reader thread panicked"));
                }
            }
        });
        let first_error = shared
            .first_error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match first_error {
            Some(error) => Err(error),
            None => {
                if begun.elapsed() >= PROGRESS_EVERY {
                    self.tell_progress(bytes, begun.elapsed());
                }
                Ok(())
            }
        }
    }

    fn tell_progress(&self, done_bytes: u64, spent: Duration) {
        const GIB: f64 = (1u64 << 30) as f64;
        let (done, all) = (done_bytes as f64 / GIB, self.bytes() as f64 / GIB);
        say_rank!(
            Info,
            self.rank,
            "loaded {done:.2} of {all:.2} GiB from {} files ({:.0} %, {:.2} GiB/s)",
            self.paths.len(),
            100.0 * done / all,
            done / spent.as_secs_f64().max(1e-9)
        );
    }
}

struct OpenFile {
    index: usize,
    file: File,
    direct: bool,
}

/// One thread's side of a job.
struct Reader<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared,
    open: Option<OpenFile>,
    staging: Vec<u8>,
    group: Vec<Piece>,
}

impl<'a> Reader<'a> {
    fn new(job: &'a Job<'a>, shared: &'a Shared) -> Reader<'a> {
        Reader {
            job,
            shared,
            open: None,
            staging: Vec::new(),
            group: Vec::new(),
        }
    }

    /// Takes chunks of slots until none is left or somebody failed.
    fn work(&mut self, between: &mut dyn FnMut()) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let chunk = self.shared.chunk_slots;
            let first = self.shared.next_slot.fetch_add(chunk, Ordering::Relaxed);
            if first >= self.job.placement.count() {
                return;
            }
            if let Err(error) = self.fill(first..first + chunk, between) {
                self.shared.fail(error);
            }
            between();
        }
    }

    fn fill(&mut self, slots: Range<u64>, between: &mut dyn FnMut()) -> Result<()> {
        let job = self.job;
        if job.fresh {
            job.target
                .populate(slots.start..slots.end.min(job.placement.count()));
        }
        let pieces = job.placement.runs(slots).flat_map(|run| job.files.pieces(run));
        for piece in pieces {
            if !self.joins_group(&piece) {
                self.read_group(between)?;
            }
            self.group.push(piece);
        }
        self.read_group(between)
    }

    /// True if reading through the gap before `piece` is cheaper than another call.
    fn joins_group(&self, piece: &Piece) -> bool {
        let (Some(first), Some(last)) = (self.group.first(), self.group.last()) else {
            return true;
        };
        let row_bytes = self.job.target.row_bytes() as u64;
        let gap_bytes = piece.record.saturating_sub(last.record + last.count) * row_bytes;
        let span_bytes = (piece.record + piece.count).saturating_sub(first.record) * row_bytes;
        last.file == piece.file
            && piece.record >= last.record + last.count
            && gap_bytes <= READ_THROUGH_BYTES
            && span_bytes <= BUFFERED_WINDOW_BYTES as u64
    }

    /// Reads the pieces of the group, which lie in one file, ascending, with small gaps only.
    fn read_group(&mut self, between: &mut dyn FnMut()) -> Result<()> {
        let group = std::mem::take(&mut self.group);
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return Ok(());
        };
        let row_bytes = self.job.target.row_bytes() as u64;
        let span = first.record * row_bytes..(last.record + last.count) * row_bytes;
        let direct = self.open(first.file)?.direct;
        let done = match self.job.target.place_of_dense(first.slot) {
            Some(place) if group.len() == 1 && !direct => self.read_in_place(place, span, between),
            _ => self.read_staged(&group, span, between),
        };
        self.group = group;
        self.group.clear();
        done
    }

    fn read_in_place(
        &mut self,
        place: crate::span::Address,
        span: Range<u64>,
        between: &mut dyn FnMut(),
    ) -> Result<()> {
        let mut at = span.start;
        while at < span.end && !self.shared.stop.load(Ordering::Relaxed) {
            let step = (span.end - at).min(STEP_BYTES as u64) as usize;
            let to = place.offset_bytes((at - span.start) as usize);
            let open = self.opened()?;
            let came = crate::platform::cpu::bytes::read_at(open.file.as_fd(), at, to, step)
                .map_err(|e| self.unreadable(e))?;
            if came == 0 {
                return Err(self.ended_early(at, span.end));
            }
            at += came as u64;
            self.shared.done_bytes.fetch_add(came as u64, Ordering::Relaxed);
            between();
        }
        Ok(())
    }

    fn read_staged(&mut self, group: &[Piece], span: Range<u64>, between: &mut dyn FnMut()) -> Result<()> {
        let row_bytes = self.job.target.row_bytes() as u64;
        let mut at = span.start;
        while at < span.end && !self.shared.stop.load(Ordering::Relaxed) {
            let window = self.read_window(at, span.end)?;
            let read_to = at + window.len() as u64;
            for piece in group {
                let begin = piece.record * row_bytes;
                let from = begin.max(at);
                let to = (begin + piece.count * row_bytes).min(read_to);
                if from < to {
                    let packed = &self.staging[window.start + (from - at) as usize..][..(to - from) as usize];
                    self.job.target.put(piece.slot, (from - begin) as usize, packed)?;
                    self.shared.done_bytes.fetch_add(to - from, Ordering::Relaxed);
                }
            }
            at = read_to;
            between();
        }
        Ok(())
    }

    /// Reads from byte `at` of the open file, at most to `end`; where in the staging buffer the bytes are (at least one).
    fn read_window(&mut self, at: u64, end: u64) -> Result<Range<usize>> {
        loop {
            let direct = self.opened()?.direct;
            let wish_bytes = if direct {
                self.job.options.buffer_bytes
            } else {
                self.job.options.buffer_bytes.min(BUFFERED_WINDOW_BYTES)
            };
            let wanted_bytes = (end - at).min(wish_bytes as u64) as usize;
            let skip = if direct {
                (at % DIRECT_ALIGNMENT_BYTES as u64) as usize
            } else {
                0
            };
            let length = (skip + wanted_bytes).next_multiple_of(DIRECT_ALIGNMENT_BYTES);
            let origin = self.staging_of(length)?;
            let room = if direct { length } else { wanted_bytes };
            let start = at - skip as u64;
            let to = &mut self.staging[origin..origin + room];
            let place = crate::span::Address(to.as_mut_ptr() as usize);
            let open = self.opened()?;
            match crate::platform::cpu::bytes::read_at(open.file.as_fd(), start, place, room) {
                Ok(came) if came > skip => {
                    let useful = (came - skip).min(wanted_bytes);
                    return Ok(origin + skip..origin + skip + useful);
                }
                Ok(_) => return Err(self.ended_early(at, end)),
                Err(e) if direct && e.raw_os_error() == Some(libc::EINVAL) => self.reopen_buffered()?,
                Err(e) => return Err(self.unreadable(e)),
            }
        }
    }

    /// Makes room for `length` aligned bytes of staging and returns where they begin.
    fn staging_of(&mut self, length: usize) -> Result<usize> {
        let wanted = length + DIRECT_ALIGNMENT_BYTES;
        if self.staging.len() < wanted {
            self.staging = Vec::new();
            if self.staging.try_reserve_exact(wanted).is_err() {
                fail!(OutOfMemory, "no memory for a staging buffer of {length} bytes");
            }
            self.staging.resize(wanted, 0);
        }
        Ok(self.staging.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES))
    }

    fn open(&mut self, index: usize) -> Result<&OpenFile> {
        if self.open.as_ref().is_none_or(|open| open.index != index) {
            self.open = None;
            let path = &self.job.paths[index];
            let direct = self.job.options.direct;
            let (file, direct) = match open_file(path, direct) {
                Err(e) if direct && e.raw_os_error() == Some(libc::EINVAL) => (open_file(path, false), false),
                other => (other, direct),
            };
            let file = file.map_err(|e| Error::system(format!("opening {}", path.display()), e))?;
            self.open = Some(OpenFile { index, file, direct });
        }
        self.opened()
    }

    fn opened(&self) -> Result<&OpenFile> {
        match &self.open {
            Some(open) => Ok(open),
            None => fail!(Unknown, "no file is open"),
        }
    }

    /// The file system takes no direct reads: goes on with buffered ones.
    fn reopen_buffered(&mut self) -> Result<()> {
        let index = self.opened()?.index;
        let path = &self.job.paths[index];
        let file =
            open_file(path, false).map_err(|e| Error::system(format!("opening {}", path.display()), e))?;
        self.open = Some(OpenFile {
            index,
            file,
            direct: false,
        });
        Ok(())
    }

    fn path(&self) -> String {
        let index = self.open.as_ref().map_or(0, |open| open.index);
        self.job.paths[index].display().to_string()
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        Error::system(format!("reading {}", self.path()), error)
    }

    fn ended_early(&self, at: u64, end: u64) -> Error {
        Error::new(
            Kind::System,
            format!(
                "{} became shorter while it was read: it ends at byte {at}, {end} bytes were there before",
                self.path()
            ),
        )
    }
}

fn open_file(path: &PathBuf, direct: bool) -> std::io::Result<File> {
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    if direct {
        flags |= OFlags::DIRECT;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    if !direct {
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
