/* How device code reaches the partitions of a handle. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_GLOBAL_REFERENCE_H_
#define WHOLEMEMORY_GLOBAL_REFERENCE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * How code on a device or the host reaches all partitions of a handle (`device_reference.cuh` reads it).
 *
 * `stride` 0: `pointer` is the base of one range. Else `pointer` is an array of `world_size` base pointers and `rank_memory_offsets` an
 * array of `world_size` + 1 byte offsets, both readable where kernels run (on the CUDA platform that is device memory, which the host must
 * not read); with `same_chunk` every rank but the last non-empty ones holds exactly `stride` bytes, so rank = byte offset / `stride`.
 */
typedef struct wholememory_gref_t {
  void *pointer;
  size_t *rank_memory_offsets;
  int world_size;
  size_t stride;
  bool same_chunk;
} wholememory_gref_t;

/**
 * The same for memory of NVSHMEM, where peers are reached by rank.
 */
typedef struct wholememory_nvshmem_ref_t {
  void *pointer;
  size_t *rank_memory_offsets;
  size_t stride;
  int world_rank;
  int world_size;
  bool same_chunk;
} wholememory_nvshmem_ref_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A reference to plain memory at `ptr`: stride 0, world size 1, no offsets.
 */
struct wholememory_gref_t wholememory_create_continuous_global_reference(void *ptr);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_GLOBAL_REFERENCE_H_ */
