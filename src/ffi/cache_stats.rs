//! `cache_stats.h`: what the cache of an embedding did.

#![allow(non_camel_case_types)]

use super::embedding::wholememory_embedding_t;
use super::embedding_objects::embedding;
use super::guard;
use super::wholememory::library::wholememory_error_code_t;
use crate::error::{Result, ensure};

/// What the calling rank's part of a cache holds, and what it did since the embedding was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct wholememory_cache_stats_t {
    /// To be set before the call: `sizeof(wholememory_cache_stats_t)` of the caller's header. No more is written.
    pub struct_size: u32,
    /// Bytes of a cached row, its padding included.
    pub row_bytes: u32,
    /// Rows that fit.
    pub capacity_rows: u64,
    /// Valid ids that were looked up: by calls that adjust the cache those of all ranks whose rows the calling rank caches; by other gathers the
    /// calling rank's own (in a DISTRIBUTED cache whose memory ranks cannot map, those it serves).
    pub lookups: u64,
    /// Lookups whose row was in the cache before the call.
    pub hits: u64,
    /// Rows brought into the cache.
    pub loads: u64,
    /// Rows that had to leave for others.
    pub evictions: u64,
    /// Changed rows written to the table: when they had to leave, and when that was asked for.
    pub write_backs: u64,
    /// From the table into the cache, whole rows with their padding and optimizer states. What misses read is not in it.
    pub bytes_read: u64,
    /// From the cache to the table, likewise.
    pub bytes_written: u64,
}

/// Fills `stats` for the calling rank. Local; waits for what the rank's cache was given to do so far.
///
/// Errors: INVALID_INPUT for NULL, dead or foreign embeddings, embeddings without a cache, and a NULL `stats`; INVALID_VALUE for a `struct_size` below 8;
/// CUDA_ERROR. `stats` is written on success only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholememory_embedding_get_cache_stats(
    wholememory_embedding: wholememory_embedding_t,
    stats: *mut wholememory_cache_stats_t,
) -> wholememory_error_code_t {
    guard::code(|| {
        let (object, alive) = embedding(wholememory_embedding as usize)?;
        alive?;
        ensure!(!stats.is_null(), InvalidInput, "stats is NULL");
        // SAFETY: the caller's struct begins with its size.
        let struct_size = unsafe { (&raw const (*stats).struct_size).read_unaligned() };
        let known = size_of::<wholememory_cache_stats_t>();
        ensure!(
            struct_size >= 8,
            InvalidValue,
            "stats->struct_size is {struct_size}, it must be sizeof(wholememory_cache_stats_t), {known}"
        );
        let filled = fill(&object.embedding, struct_size)?;
        let bytes = known.min(struct_size as usize);
        // SAFETY: the caller's struct has `struct_size` bytes.
        unsafe { std::ptr::copy_nonoverlapping((&raw const filled).cast::<u8>(), stats.cast::<u8>(), bytes) };
        Ok(())
    })
}

fn fill(embedding: &crate::embedding::Embedding, struct_size: u32) -> Result<wholememory_cache_stats_t> {
    let held = embedding.cache_state()?;
    let counted = held.counters;
    Ok(wholememory_cache_stats_t {
        struct_size,
        row_bytes: u32::try_from(held.row_bytes).unwrap_or(u32::MAX),
        capacity_rows: held.capacity_rows,
        lookups: counted.lookups,
        hits: counted.hits,
        loads: counted.loads,
        evictions: counted.evictions,
        write_backs: counted.write_backs,
        bytes_read: counted.bytes_read,
        bytes_written: counted.bytes_written,
    })
}
