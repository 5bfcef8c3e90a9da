/* What the cache of an embedding did. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_CACHE_STATS_H_
#define WHOLEMEMORY_CACHE_STATS_H_

#include <stdint.h>

#include <wholememory/embedding.h>

/**
 * What the calling rank's part of a cache holds, and what it did since the embedding was made.
 */
typedef struct wholememory_cache_stats_t {
  /**
   * To be set before the call: `sizeof(wholememory_cache_stats_t)` of the caller's header. No more is written.
   */
  uint32_t struct_size;
  /**
   * Bytes of a cached row, its padding included.
   */
  uint32_t row_bytes;
  /**
   * Rows that fit.
   */
  uint64_t capacity_rows;
  /**
   * Valid ids that were looked up: by calls that adjust the cache those of all ranks whose rows the calling rank caches; by other gathers the
   * calling rank's own (in a DISTRIBUTED cache whose memory ranks cannot map, those it serves).
   */
  uint64_t lookups;
  /**
   * Lookups whose row was in the cache before the call.
   */
  uint64_t hits;
  /**
   * Rows brought into the cache.
   */
  uint64_t loads;
  /**
   * Rows that had to leave for others.
   */
  uint64_t evictions;
  /**
   * Changed rows written to the table: when they had to leave, and when that was asked for.
   */
  uint64_t write_backs;
  /**
   * From the table into the cache, whole rows with their padding and optimizer states. What misses read is not in it.
   */
  uint64_t bytes_read;
  /**
   * From the cache to the table, likewise.
   */
  uint64_t bytes_written;
} wholememory_cache_stats_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Fills `stats` for the calling rank. Local; waits for what the rank's cache was given to do so far.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign embeddings, embeddings without a cache, and a NULL `stats`; INVALID_VALUE for a `struct_size` below 8;
 * CUDA_ERROR. `stats` is written on success only.
 */
wholememory_error_code_t wholememory_embedding_get_cache_stats(wholememory_embedding_t wholememory_embedding,
                                                               struct wholememory_cache_stats_t *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_CACHE_STATS_H_ */
