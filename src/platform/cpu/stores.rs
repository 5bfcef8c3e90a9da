//! Stores that go past the caches, a line at a time. Narrower ones than 32 bytes were measured to be slower than plain
//! stores, so processors without them have none.

pub const LINE_BYTES: usize = 64;

/// A way of writing whole lines past the caches.
pub trait Lines: Copy + Send + Sync {
    /// Writes `lines` lines to `dst`, which is aligned to a line.
    /// # Safety
    /// Both addresses are valid for the lines, and the processor has what the implementation needs.
    unsafe fn write(dst: *mut u8, src: *const u8, lines: usize);
}

/// Copies `bytes`: whole lines of the target past the caches, what is left at both ends by plain stores.
/// # Safety
/// Both addresses are valid for `bytes`, and the processor has what L needs.
#[inline(always)]
pub unsafe fn stream<L: Lines>(dst: *mut u8, src: *const u8, bytes: usize) {
    let head = (dst as usize).wrapping_neg() % LINE_BYTES;
    // SAFETY: head, lines and tail make up the `bytes` bytes.
    unsafe {
        if head >= bytes {
            std::ptr::copy_nonoverlapping(src, dst, bytes);
            return;
        }
        if head > 0 {
            std::ptr::copy_nonoverlapping(src, dst, head);
        }
        let lines = (bytes - head) / LINE_BYTES;
        L::write(dst.add(head), src.add(head), lines);
        let done = head + lines * LINE_BYTES;
        if done < bytes {
            std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), bytes - done);
        }
    }
}

/// Orders the stores of this module before everything that follows.
#[inline(always)]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    use super::{LINE_BYTES, Lines};
    use std::arch::x86_64::*;

    /// 64 bytes at a time; needs avx512f.
    #[derive(Clone, Copy)]
    pub struct Wide;

    /// 32 bytes at a time; needs avx2.
    #[derive(Clone, Copy)]
    pub struct Narrow;

    impl Lines for Wide {
        #[inline(always)]
        unsafe fn write(dst: *mut u8, src: *const u8, lines: usize) {
            // SAFETY: passed on.
            unsafe { write_wide(dst, src, lines) }
        }
    }

    impl Lines for Narrow {
        #[inline(always)]
        unsafe fn write(dst: *mut u8, src: *const u8, lines: usize) {
            // SAFETY: passed on.
            unsafe { write_narrow(dst, src, lines) }
        }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn write_wide(dst: *mut u8, src: *const u8, lines: usize) {
        for line in 0..lines {
            let at = line * LINE_BYTES;
            // SAFETY: inside the lines; the target is aligned.
            unsafe { _mm512_stream_si512(dst.add(at).cast(), _mm512_loadu_si512(src.add(at).cast())) };
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn write_narrow(dst: *mut u8, src: *const u8, lines: usize) {
        for line in 0..lines {
            let at = line * LINE_BYTES;
            // SAFETY: inside the lines; the target is aligned.
            unsafe {
                let low = _mm256_loadu_si256(src.add(at).cast());
                let high = _mm256_loadu_si256(src.add(at + 32).cast());
                _mm256_stream_si256(dst.add(at).cast(), low);
                _mm256_stream_si256(dst.add(at + 32).cast(), high);
            }
        }
    }
}
