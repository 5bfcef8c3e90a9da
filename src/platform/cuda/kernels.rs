//! The kernels compiled by nvcc, as Rust calls them: enqueued on a stream, in the current context, with its errors in the
//! runtime's words. Addresses in the arguments are the callers' responsibility.

use super::cache::{
    CacheAdjustArgs, CacheFlushArgs, CacheGatherArgs, CacheLocateArgs, CacheLookupArgs, CacheReadArgs,
};
use super::graph_args::{AppendArgs, SampleArgs, SampleOffsetsArgs, SelfLoopsArgs, ShiftArgs, SpanIdsArgs};
use super::launch::{BucketArgs, FillArgs, MeetArgs, OrderArgs, RowsArgs, UniqueArgs};
use super::learning::{GroupArgs, MapRowsArgs, SetArgs, StepArgs};
use crate::error::Result;
use crate::platform::Stream;

/// Declares the operations: safe functions over `extern "C" int name(const args*, stream)`.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $rust:ident = $c:ident($args:ty), $words:literal;)+) => {
        #[cfg(wholememory_kernels)]
        mod linked {
            use super::*;
            use super::super::functions::kind_of;
            use crate::error::Error;
            use std::ffi::{CStr, c_char, c_int, c_void};

            unsafe extern "C" {
                $(fn $c(args: *const $args, stream: *mut c_void) -> c_int;)+
                fn wmk_words(code: c_int) -> *const c_char;
            }

            fn check(what: &str, code: c_int) -> Result<()> {
                if code == 0 {
                    return Ok(());
                }
                // SAFETY: the runtime has a constant string for every code, also for unknown ones.
                let words = unsafe { CStr::from_ptr(wmk_words(code)) }.to_string_lossy();
                Err(Error::new(kind_of(code), format!("{what} failed: CUDA error {code}: {words}")))
            }

            $($(#[$doc])* pub fn $rust(args: &$args, stream: Stream) -> Result<()> {
                // SAFETY: the struct is the operation's; what its addresses stand for is the callers' responsibility.
                check($words, unsafe { $c(args, stream.0 as *mut c_void) })
            })+

            /// Loads all kernels for the current context's device, so that none is loaded while a rank waits for another.
            /// # Errors
            /// CUDA_ERROR.
            pub fn load() -> Result<()> {
                $(
                    // SAFETY: without arguments an operation only loads its kernels.
                    check(concat!("loading the kernels for ", $words), unsafe { $c(std::ptr::null(), std::ptr::null_mut()) })?;
                )+
                Ok(())
            }
        }

        #[cfg(not(wholememory_kernels))]
        mod linked {
            use super::*;
            use crate::error::fail;

            $($(#[$doc])* pub fn $rust(_: &$args, _: Stream) -> Result<()> {
                fail!(NotSupported, "this library was built without nvcc, it has no kernels for GPUs ({})", $words)
            })+

            /// There is nothing to load.
            pub fn load() -> Result<()> {
                Ok(())
            }
        }
    };
}

operations! {
    /// # Errors
    /// CUDA_ERROR.
    fn gather = wmk_gather(RowsArgs), "gather";
    /// # Errors
    /// CUDA_ERROR.
    fn scatter = wmk_scatter(RowsArgs), "scatter";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn order = wmk_order(OrderArgs), "ordering ids";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn bucket = wmk_bucket(BucketArgs), "splitting ids by owner";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn unique = wmk_unique(UniqueArgs), "finding distinct ids";
    /// # Errors
    /// CUDA_ERROR.
    fn meet = wmk_meet(MeetArgs), "meeting on the GPU";
    /// # Errors
    /// CUDA_ERROR.
    fn fill = wmk_fill(FillArgs), "adding row numbers";
    /// # Errors
    /// CUDA_ERROR.
    fn span_ids = wmk_span_ids(SpanIdsArgs), "preparing the row pointers of centers";
    /// # Errors
    /// CUDA_ERROR.
    fn shift = wmk_shift(ShiftArgs), "shifting edges";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn sample_offsets = wmk_sample_offsets(SampleOffsetsArgs), "counting neighbours";
    /// Asked for what is needed, does nothing else.
    /// # Errors
    /// CUDA_ERROR.
    fn sample = wmk_sample(SampleArgs), "sampling";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn append_count = wmk_append_count(AppendArgs), "finding new ids";
    /// # Errors
    /// CUDA_ERROR.
    fn append_write = wmk_append_write(AppendArgs), "appending new ids";
    /// # Errors
    /// CUDA_ERROR.
    fn self_loops = wmk_self_loops(SelfLoopsArgs), "adding self loops";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn group = wmk_group(GroupArgs), "grouping gradients by row";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn step = wmk_step(StepArgs), "the gradient step";
    /// # Errors
    /// CUDA_ERROR.
    fn map_rows = wmk_map_rows(MapRowsArgs), "mapping rows by round robin";
    /// # Errors
    /// CUDA_ERROR.
    fn set = wmk_set(SetArgs), "setting values";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn cache_adjust = wmk_cache_adjust(CacheAdjustArgs), "adjusting a cache";
    /// Without the scratch that an order takes, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn cache_lookup = wmk_cache_lookup(CacheLookupArgs), "looking rows up in a cache";
    /// # Errors
    /// CUDA_ERROR.
    fn cache_gather = wmk_cache_gather(CacheGatherArgs), "a gather through a cache";
    /// Without scratch, only how much is needed.
    /// # Errors
    /// CUDA_ERROR.
    fn cache_read = wmk_cache_read(CacheReadArgs), "adjusting and reading a cache";
    /// # Errors
    /// CUDA_ERROR.
    fn cache_locate = wmk_cache_locate(CacheLocateArgs), "locating rows in a cache";
    /// # Errors
    /// CUDA_ERROR.
    fn cache_flush = wmk_cache_flush(CacheFlushArgs), "writing a cache back";
}

pub use linked::{
    append_count, append_write, bucket, cache_adjust, cache_flush, cache_gather, cache_locate, cache_lookup,
    cache_read, fill, gather, group, load, map_rows, meet, order, sample, sample_offsets, scatter,
    self_loops, set, shift, span_ids, step, unique,
};
