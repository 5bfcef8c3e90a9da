//! How one row moves from one place to another: as bytes, converted, past the caches, or staged.

use super::convert::RowConverter;
use super::stores::{LINE_BYTES, Lines, fence, stream};
use std::mem::MaybeUninit;

/// Moves rows one by one. Rows do not overlap and need no alignment.
pub trait Mover {
    /// # Safety
    /// Both addresses are valid for the mover's row.
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8);

    /// After the last row: everything is written, and visible to whoever synchronises with this thread afterwards.
    /// # Safety
    /// The targets of the rows moved are still valid.
    #[inline(always)]
    unsafe fn finish(&mut self) {}
}

/// Rows of N bytes.
pub struct Fixed<const N: usize>;

impl<const N: usize> Mover for Fixed<N> {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: passed on.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, N) };
    }
}

/// Rows of any length but 0.
pub struct Any {
    pub bytes: usize,
}

impl Mover for Any {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: passed on.
        unsafe { copy(dst, src, self.bytes) };
    }
}

/// Copies `bytes`, at least 1.
#[inline(always)]
unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the pieces lie inside the `bytes` bytes that the caller vouches for.
    unsafe {
        match bytes {
            64.. => pieces::<64>(dst, src, bytes),
            32.. => pieces::<32>(dst, src, bytes),
            16.. => pieces::<16>(dst, src, bytes),
            8.. => pieces::<8>(dst, src, bytes),
            4.. => pieces::<4>(dst, src, bytes),
            2.. => pieces::<2>(dst, src, bytes),
            _ => pieces::<1>(dst, src, bytes),
        }
    }
}

/// Copies in pieces of N bytes; the last one overlaps its predecessor where N does not divide `bytes`, which is at least N.
#[inline(always)]
unsafe fn pieces<const N: usize>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - N;
    let mut at = 0;
    // SAFETY: `at + N` stays within `bytes`.
    unsafe {
        while at < last {
            std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), N);
            at += N;
        }
        std::ptr::copy_nonoverlapping(src.add(last), dst.add(last), N);
    }
}

/// Rows whose element type changes.
pub struct Convert {
    pub convert: RowConverter,
    pub cols: usize,
}

impl Mover for Convert {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: both rows have `cols` elements of their types.
        unsafe { (self.convert)(dst, src, self.cols) };
    }
}

/// Rows of whole lines: written past the caches.
pub struct Whole<L> {
    pub row_lines: usize,
    pub _lines: L,
}

impl<L: Lines> Mover for Whole<L> {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: passed on.
        unsafe { L::write(dst, src, self.row_lines) };
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        fence();
    }
}

/// Long rows: written past the caches but for their ends.
pub struct Stream<L> {
    pub bytes: usize,
    pub _lines: L,
}

impl<L: Lines> Mover for Stream<L> {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: passed on.
        unsafe { stream::<L>(dst, src, self.bytes) };
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        fence();
    }
}

/// Rows of at least a line that follow each other in the target: whole lines go past the caches straight from their row;
/// only the line that two rows share is put together on the side. A gap in the target (a skipped id) is left as it is.
pub struct Joined<L> {
    bytes: usize,
    _lines: L,
    /// Three lines; the shared one is the middle one, what lies beside it is of no account.
    side: Side,
    /// Where the row that would share its first line with the one before begins.
    next: *mut u8,
    /// Bytes of the shared line that came with the row before.
    have: usize,
}

#[repr(C, align(64))]
struct Side([MaybeUninit<u8>; 3 * LINE_BYTES]);

impl<L: Lines> Joined<L> {
    /// `bytes`: of a row, at least a line.
    #[inline(always)]
    pub fn new(lines: L, bytes: usize) -> Joined<L> {
        debug_assert!(bytes >= LINE_BYTES);
        let side = Side([MaybeUninit::uninit(); 3 * LINE_BYTES]);
        Joined {
            bytes,
            _lines: lines,
            side,
            next: std::ptr::null_mut(),
            have: 0,
        }
    }

    #[inline(always)]
    fn shared(&mut self) -> *mut u8 {
        self.side.0.as_mut_ptr().cast::<u8>().wrapping_add(LINE_BYTES)
    }

    /// Writes what was kept for a row that did not come.
    unsafe fn settle(&mut self) {
        if self.have > 0 {
            // SAFETY: the kept bytes are the last ones of a row whose target the caller vouched for.
            unsafe { std::ptr::copy_nonoverlapping(self.shared(), self.next.sub(self.have), self.have) };
            self.have = 0;
        }
    }
}

impl<L: Lines> Mover for Joined<L> {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: a row has at least a line, so the line read at either of its ends lies inside it; what is written to the
        // side stays within its three lines.
        unsafe {
            let mut done = 0;
            if dst == self.next && self.have > 0 {
                std::ptr::copy_nonoverlapping(src, self.shared().add(self.have), LINE_BYTES);
                L::write(dst.sub(self.have), self.shared(), 1);
                done = LINE_BYTES - self.have;
                self.have = 0;
            } else {
                self.settle();
                let head = (dst as usize).wrapping_neg() % LINE_BYTES;
                if head > 0 {
                    std::ptr::copy_nonoverlapping(src, dst, head);
                    done = head;
                }
            }
            let lines = (self.bytes - done) / LINE_BYTES;
            L::write(dst.add(done), src.add(done), lines);
            let rest = self.bytes - done - lines * LINE_BYTES;
            if rest > 0 {
                let last = src.add(self.bytes - LINE_BYTES);
                std::ptr::copy_nonoverlapping(last, self.shared().sub(LINE_BYTES - rest), LINE_BYTES);
            }
            self.have = rest;
            self.next = dst.add(self.bytes);
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: passed on.
        unsafe { self.settle() };
        fence();
    }
}

const STAGE_BYTES: usize = 16 << 10;

/// Rows up to this long may be staged.
pub const STAGED_ROW_BYTES: usize = STAGE_BYTES / 2;

#[repr(C, align(64))]
struct Stage([MaybeUninit<u8>; STAGE_BYTES]);

/// Rows that follow each other in the target: another mover puts them on a stage in the first cache, from where whole
/// lines go past the caches. A gap in the target (a skipped id) is left as it is.
pub struct Staged<L, M> {
    inner: M,
    bytes: usize,
    _lines: L,
    stage: Stage,
    /// The target of stage byte 0, aligned to a line.
    target: *mut u8,
    /// The staged bytes.
    begin: usize,
    end: usize,
}

impl<L: Lines, M: Mover> Staged<L, M> {
    /// `bytes`: of a target row, at most [`STAGED_ROW_BYTES`].
    #[inline(always)]
    pub fn new(lines: L, inner: M, bytes: usize) -> Staged<L, M> {
        debug_assert!(bytes <= STAGED_ROW_BYTES);
        Staged {
            inner,
            bytes,
            _lines: lines,
            stage: Stage([MaybeUninit::uninit(); STAGE_BYTES]),
            target: std::ptr::null_mut(),
            begin: 0,
            end: 0,
        }
    }

    #[inline(always)]
    fn at(&mut self, offset: usize) -> *mut u8 {
        self.stage.0.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Writes everything staged and begins anew at `dst`.
    unsafe fn restart(&mut self, dst: *mut u8) {
        // SAFETY: the staged bytes belong to rows whose targets the caller vouched for.
        unsafe {
            if self.end > self.begin {
                let (from, bytes) = (self.at(self.begin), self.end - self.begin);
                stream::<L>(self.target.add(self.begin), from, bytes);
            }
        }
        self.begin = dst as usize % LINE_BYTES;
        self.end = self.begin;
        self.target = dst.wrapping_sub(self.begin);
    }

    /// Writes all whole lines and keeps the rest.
    unsafe fn flush(&mut self) {
        let whole = self.end - self.end % LINE_BYTES;
        // SAFETY: as in `restart`; what is kept is less than a line and does not overlap its new place.
        unsafe {
            if whole > self.begin {
                let from = self.at(self.begin);
                stream::<L>(self.target.add(self.begin), from, whole - self.begin);
                std::ptr::copy(self.at(whole), self.at(0), self.end - whole);
                self.target = self.target.add(whole);
                self.begin = 0;
                self.end -= whole;
            }
        }
    }
}

impl<L: Lines, M: Mover> Mover for Staged<L, M> {
    #[inline(always)]
    unsafe fn move_row(&mut self, dst: *mut u8, src: *const u8) {
        // SAFETY: the stage has room for the row: at most a line is kept by a flush, and a row fills at most half of it.
        unsafe {
            if dst != self.target.wrapping_add(self.end) || self.target.is_null() {
                self.restart(dst);
            } else if self.end + self.bytes > STAGE_BYTES {
                self.flush();
            }
            let place = self.at(self.end);
            self.inner.move_row(place, src);
        }
        self.end += self.bytes;
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: passed on.
        unsafe { self.restart(std::ptr::null_mut()) };
        fence();
    }
}
