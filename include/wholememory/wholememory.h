/* Communicators, memory handles and files. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_WHOLEMEMORY_H_
#define WHOLEMEMORY_WHOLEMEMORY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <wholememory/global_reference.h>

/** Evaluates a call that returns a code; on failure prints where and returns the code from the enclosing function. */
#define WHOLEMEMORY_RETURN_ON_FAIL(call)                                                          \
  do {                                                                                            \
    wholememory_error_code_t wholememory_code_ = (call);                                          \
    if (wholememory_code_ != WHOLEMEMORY_SUCCESS) {                                               \
      fprintf(stderr, "%s:%d: %s failed with code %d\n", __FILE__, __LINE__, #call, (int)wholememory_code_); \
      return wholememory_code_;                                                                   \
    }                                                                                             \
  } while (0)

/**
 * The color that makes a rank member of no new communicator.
 */
#define WHOLEMEMORY_SPILT_NO_COLOR -1

/**
 * Size of a unique id in bytes.
 */
#define WHOLEMEMORY_UNIQUE_ID_BYTES 128

/**
 * What a call came to. The sentence that belongs to a failure is `wholememory_get_last_error()` (`wholememory/error.h`).
 */
typedef enum wholememory_error_code_t {
  WHOLEMEMORY_SUCCESS = 0,
  /**
   * A defect of the library (a panic was caught).
   */
  WHOLEMEMORY_UNKNOW_ERROR = 1,
  /**
   * This version does not have it: a function, a dtype, a kind of optimizer.
   */
  WHOLEMEMORY_NOT_IMPLEMENTED = 2,
  /**
   * The call contradicts the state of the library or another argument, or lists of files differ between ranks.
   */
  WHOLEMEMORY_LOGIC_ERROR = 3,
  /**
   * The CUDA driver refused.
   */
  WHOLEMEMORY_CUDA_ERROR = 4,
  /**
   * Another rank died or cannot be reached.
   */
  WHOLEMEMORY_COMMUNICATION_ERROR = 5,
  /**
   * A NULL, dead or foreign object, a name or file that is not there, a shape, an offset or a dtype that does not fit.
   */
  WHOLEMEMORY_INVALID_INPUT = 6,
  /**
   * A number or enumerator out of range, or a value that differs between ranks.
   */
  WHOLEMEMORY_INVALID_VALUE = 7,
  /**
   * There is not enough memory, or a function of the caller gave none.
   */
  WHOLEMEMORY_OUT_OF_MEMORY = 8,
  /**
   * These ranks, this machine or this object in its state cannot do it.
   */
  WHOLEMEMORY_NOT_SUPPORTED = 9,
  /**
   * The operating system refused.
   */
  WHOLEMEMORY_SYSTEM_ERROR = 10,
} wholememory_error_code_t;

/**
 * Levels of the messages on stderr, from silent to chatty.
 */
typedef enum LogLevel {
  LEVEL_FATAL = 0,
  LEVEL_ERROR = 1,
  LEVEL_WARN = 2,
  LEVEL_INFO = 3,
  LEVEL_DEBUG = 4,
  LEVEL_TRACE = 5,
} LogLevel;

/**
 * How the partitions of a handle can be reached.
 */
typedef enum wholememory_memory_type_t {
  WHOLEMEMORY_MT_NONE = 0,
  /**
   * One address range over all ranks, readable and writable by each.
   */
  WHOLEMEMORY_MT_CONTINUOUS = 1,
  /**
   * An address range a rank, all readable and writable by each.
   */
  WHOLEMEMORY_MT_CHUNKED = 2,
  /**
   * Each rank reaches its own part; gather and scatter reach the others.
   */
  WHOLEMEMORY_MT_DISTRIBUTED = 3,
  /**
   * As DISTRIBUTED, with traffic gathered inside each node before it crosses to others.
   */
  WHOLEMEMORY_MT_HIERARCHY = 4,
} wholememory_memory_type_t;

/**
 * Where the bytes are. On the CPU platform both are memory of the host.
 */
typedef enum wholememory_memory_location_t {
  WHOLEMEMORY_ML_NONE = 0,
  WHOLEMEMORY_ML_DEVICE = 1,
  WHOLEMEMORY_ML_HOST = 2,
} wholememory_memory_location_t;

/**
 * Who moves the rows of DISTRIBUTED handles.
 */
typedef enum wholememory_distributed_backend_t {
  WHOLEMEMORY_DB_NONE = 0,
  WHOLEMEMORY_DB_NCCL = 1,
  WHOLEMEMORY_DB_NVSHMEM = 2,
} wholememory_distributed_backend_t;

/**
 * A communicator: the ranks that share handles. A number in the dress of a pointer, never to be dereferenced.
 */
typedef struct wholememory_comm_ wholememory_comm_;

/**
 * A memory handle: one logical range of bytes over the ranks of a communicator. A number in the dress of a pointer, never to
 * be dereferenced.
 */
typedef struct wholememory_handle_ wholememory_handle_;

/**
 * The meeting place of the ranks of one new communicator, to be carried to them byte by byte (MPI, a file, a socket).
 */
typedef struct wholememory_unique_id_t {
  char internal[WHOLEMEMORY_UNIQUE_ID_BYTES];
} wholememory_unique_id_t;

typedef struct wholememory_comm_ *wholememory_comm_t;

/**
 * The NVLink clique (ranks whose GPUs share a fabric) of the own rank. Where the GPUs are in no fabric, all ranks count as one: 0, 0, own rank, number of
 * ranks, 0, 1. Where nothing is known of the own GPU (no NVML, the CPU platform): 0, -1, -1, 0, 0, 1.
 */
typedef struct clique_info_t {
  /**
   * 1 if the own GPU is part of a fabric, else 0.
   */
  int is_in_clique;
  /**
   * The first rank of the own clique.
   */
  int clique_first_rank;
  /**
   * The own place in the clique.
   */
  int clique_rank;
  /**
   * Ranks in the own clique.
   */
  int clique_rank_num;
  /**
   * Number of the own clique.
   */
  int clique_id;
  /**
   * Number of cliques.
   */
  int clique_num;
} clique_info_t;

typedef struct wholememory_handle_ *wholememory_handle_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Begins the use of the library in this process (once for all its ranks) and sets the log level. Local.
 *
 * Makes no CUDA context and selects no device, so it may come before the caller chooses one. No other function needs it;
 * only `get_device_prop` answers NULL before it.
 * `flags` is ignored. `log_level` above TRACE means TRACE; the environment variable `WHOLEMEMORY_LOG` overrides it. C++: default LEVEL_INFO.
 *
 * Errors: LOGIC_ERROR if the process is initialised already (a forked child is if its parent was); INVALID_VALUE for an unknown
 * `WHOLEMEMORY_PLATFORM`; CUDA_ERROR if the driver fails, or finds no device although
 * `WHOLEMEMORY_PLATFORM=cuda` asks for one.
 */
enum wholememory_error_code_t wholememory_init(unsigned int flags,
                                               enum LogLevel log_level);

/**
 * Ends the use of the library: destroys every live communicator of the process with its handles. Collective over all of them:
 * the other processes of these communicators finalize or destroy them too. Ranks that are threads of one process need one call.
 *
 * Handles and communicators are dead afterwards (using them is INVALID_INPUT); tensors, embeddings, optimizers and cache policies remain and may still be
 * destroyed. The library may be initialised again. Always SUCCESS, also without init and after the death of a rank.
 */
enum wholememory_error_code_t wholememory_finalize(void);

/**
 * Sets a flag of the process that asks for allocation through RMM. This library does not use RMM: the flag is kept and
 * reported, allocation is not changed. Always SUCCESS.
 */
enum wholememory_error_code_t wholememory_set_rmm_enabled(bool enabled);

/**
 * The flag of `wholememory_set_rmm_enabled`; false at first.
 */
bool wholememory_is_rmm_enabled(void);

/**
 * True if the library was built with NVSHMEM. This version: false.
 */
bool wholememory_is_build_with_nvshmem(void);

/**
 * The number of CUDA devices, learned in a short-lived child process so that CUDA stays uninitialised in this one.
 * 0 without a driver or a device, -1 when fork, pipe or the driver fails. A count above 0 is remembered.
 */
int fork_get_device_count(void);

/**
 * Starts the rendezvous of one new communicator in this process and writes its id. Local. One id serves one communicator.
 *
 * The process must live until all ranks have connected. An id that is never used is dropped after
 * `WHOLEMEMORY_TIMEOUT_S` (300) seconds, or by finalize.
 *
 * Errors: INVALID_INPUT if `unique_id` is NULL; SYSTEM_ERROR if no socket can be opened.
 */
enum wholememory_error_code_t wholememory_create_unique_id(struct wholememory_unique_id_t *unique_id);

/**
 * Makes a communicator of `size` ranks, this one being `rank`. Collective over the `size` callers that hold the same id, be they
 * processes or threads. `*comm` is the caller's until `wholememory_destroy_communicator` or finalize. On the CUDA platform it uses the
 * device that is current for its caller here (`cudaSetDevice`); which one is current in later calls does not matter to it.
 *
 * Errors: INVALID_INPUT for NULL; INVALID_VALUE for a rank outside [0, size), a rank that is there twice, sizes that differ, an id used
 * before (also by a call that failed), WHOLEMEMORY_PLATFORM, _ROUTE or _TRANSPORT with an unknown value, a _ROUTE or _TRANSPORT that
 * differs between ranks; COMMUNICATION_ERROR if a rank does not come or dies; NOT_SUPPORTED for ranks that cannot work together (the text
 * says why).
 */
enum wholememory_error_code_t wholememory_create_communicator(wholememory_comm_t *comm,
                                                              struct wholememory_unique_id_t unique_id,
                                                              int rank,
                                                              int size);

/**
 * Splits a communicator: ranks of equal `color` make a new one, ordered by (`key`, parent rank). Collective over the parent,
 * also for ranks with `WHOLEMEMORY_SPILT_NO_COLOR`, which get `*new_comm = NULL`. The new communicator may outlive its parent.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for a color below -1; COMMUNICATION_ERROR
 * and LOGIC_ERROR as `wholememory_communicator_barrier`.
 */
enum wholememory_error_code_t wholememory_split_communicator(wholememory_comm_t *new_comm,
                                                             wholememory_comm_t comm,
                                                             int color,
                                                             int key);

/**
 * Destroys a communicator and frees its handles. Collective. Tensors over its handles remain and are to be destroyed.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign communicators and for the local and cross communicators of a
 * HIERARCHY handle, which belong to their parent; COMMUNICATION_ERROR if a rank is dead or finalizes (the local side is
 * released all the same and the communicator is gone); LOGIC_ERROR if ranks are found in different calls or one left a call out that others made
 * (nothing is released).
 */
enum wholememory_error_code_t wholememory_destroy_communicator(wholememory_comm_t comm);

/**
 * SUCCESS if `wholememory_malloc` on this communicator accepts the type at the location, else NOT_SUPPORTED (also
 * for unknown enumerators). Local; all ranks get the same answer. INVALID_INPUT for NULL, dead or foreign communicators.
 */
enum wholememory_error_code_t wholememory_communicator_support_type_location(wholememory_comm_t comm,
                                                                             enum wholememory_memory_type_t memory_type,
                                                                             enum wholememory_memory_location_t memory_location);

/**
 * Writes the caller's rank. Local. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_communicator_get_rank(int *rank, wholememory_comm_t comm);

/**
 * Writes the number of ranks. Local. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_communicator_get_size(int *size, wholememory_comm_t comm);

/**
 * Writes the number of ranks on the caller's node. Local. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_communicator_get_local_size(int *local_size,
                                                                      wholememory_comm_t comm);

/**
 * Writes the NVLink clique of the caller's rank. Local. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_communicator_get_clique_info(struct clique_info_t *clique_info,
                                                                       wholememory_comm_t comm);

/**
 * True if the communicator moves DISTRIBUTED memory by NVSHMEM. This version: false. `comm` is not looked at.
 */
bool wholememory_communicator_is_bind_to_nvshmem(wholememory_comm_t comm);

/**
 * Sets who moves the rows of DISTRIBUTED handles made later. Collective, the same value on all ranks.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign communicators; INVALID_VALUE for NONE, unknown values and values that
 * differ; LOGIC_ERROR while a DISTRIBUTED handle lives; NOT_SUPPORTED for NVSHMEM in a build without it; COMMUNICATION_ERROR and
 * LOGIC_ERROR as `wholememory_communicator_barrier`.
 */
enum wholememory_error_code_t wholememory_communicator_set_distributed_backend(wholememory_comm_t comm,
                                                                               enum wholememory_distributed_backend_t distributed_backend);

/**
 * The backend of the communicator, NCCL at first. Local. NONE for NULL, dead or foreign communicators.
 */
enum wholememory_distributed_backend_t wholememory_communicator_get_distributed_backend(wholememory_comm_t comm);

/**
 * Waits until all ranks are here. Collective. It does not wait for work on CUDA streams: synchronise those first.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign communicators; COMMUNICATION_ERROR if a rank is dead; LOGIC_ERROR
 * if ranks are found in different calls, or one left a call out that others made.
 */
enum wholememory_error_code_t wholememory_communicator_barrier(wholememory_comm_t comm);

/**
 * True if all ranks are on one node. Local. False for NULL, dead or foreign communicators.
 */
bool wholememory_is_intranode_communicator(wholememory_comm_t comm);

/**
 * True if all ranks are in one multi-node NVLink domain. Local. False for NULL, dead or foreign communicators.
 */
bool wholememory_is_intra_mnnvl_communicator(wholememory_comm_t comm);

/**
 * Allocates `total_size` bytes over the ranks of `comm`. Collective, the same arguments on all ranks.
 *
 * The whole consists of granules of `data_granularity` bytes, which are never divided between ranks (a row, usually).
 * `rank_entry_partition` gives the granules of each rank (world size values above 0 that sum to the whole); NULL (the
 * default in C++) gives every rank `ceil(granules / ranks)` in rank order, so the last ones may have less or nothing.
 * Content is zero for HOST and on the CPU platform, else undefined. The handle is the caller's until
 * `wholememory_free`; it dies with its communicator. `*wholememory_handle_ptr` is written only on success. A size of 0 gives a handle without memory.
 *
 * Errors, the same on every rank: INVALID_INPUT for a NULL output; INVALID_VALUE for a granularity of 0 or one that does not divide the
 * size, a bad partition, unknown type or location, values that differ between ranks; NOT_SUPPORTED where
 * `wholememory_communicator_support_type_location` says so; OUT_OF_MEMORY; COMMUNICATION_ERROR; LOGIC_ERROR for ranks found in different
 * calls. A rank whose communicator is NULL, dead or foreign gets INVALID_INPUT alone and takes no part.
 */
enum wholememory_error_code_t wholememory_malloc(wholememory_handle_t *wholememory_handle_ptr,
                                                 size_t total_size,
                                                 wholememory_comm_t comm,
                                                 enum wholememory_memory_type_t memory_type,
                                                 enum wholememory_memory_location_t memory_location,
                                                 size_t data_granularity,
                                                 size_t *rank_entry_partition);

/**
 * Frees a handle. Collective, the same handle on all ranks, whose use of it must have ended (streams synchronised).
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign handles; COMMUNICATION_ERROR if a rank is dead or finalizes (the local side is
 * released all the same and the handle is gone); LOGIC_ERROR if ranks are found in different calls or one left a call out that
 * others made (nothing is freed).
 */
enum wholememory_error_code_t wholememory_free(wholememory_handle_t wholememory_handle);

/**
 * Writes the communicator passed to malloc (the same value; not a new reference). INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_communicator(wholememory_comm_t *comm,
                                                           wholememory_handle_t wholememory_handle);

/**
 * Writes the communicator of the ranks on the own node that a HIERARCHY handle uses. It belongs to the communicator of the
 * handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_local_communicator(wholememory_comm_t *comm,
                                                                 wholememory_handle_t wholememory_handle);

/**
 * Writes the communicator of the ranks with the same place in every node that a HIERARCHY handle uses. It belongs to the
 * communicator of the handle and dies with it. NOT_SUPPORTED for other types, INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_cross_communicator(wholememory_comm_t *comm,
                                                                 wholememory_handle_t wholememory_handle);

/**
 * The type passed to malloc. NONE for NULL, dead or foreign handles.
 */
enum wholememory_memory_type_t wholememory_get_memory_type(wholememory_handle_t wholememory_handle);

/**
 * The location passed to malloc. NONE for NULL, dead or foreign handles.
 */
enum wholememory_memory_location_t wholememory_get_memory_location(wholememory_handle_t wholememory_handle);

/**
 * The backend the handle was made with. NONE for NULL, dead or foreign handles.
 */
enum wholememory_distributed_backend_t wholememory_get_distributed_backend(wholememory_handle_t wholememory_handle);

/**
 * The size passed to malloc in bytes. 0 for NULL, dead or foreign handles.
 */
size_t wholememory_get_total_size(wholememory_handle_t wholememory_handle);

/**
 * The granularity passed to malloc in bytes. 0 for NULL, dead or foreign handles.
 */
size_t wholememory_get_data_granularity(wholememory_handle_t wholememory_handle);

/**
 * Writes address, size and offset in the whole (bytes) of the caller's own partition. Each output may be NULL. The address
 * of an empty partition may be NULL. INVALID_INPUT for NULL, dead or foreign handles.
 */
enum wholememory_error_code_t wholememory_get_local_memory(void **local_ptr,
                                                           size_t *local_size,
                                                           size_t *local_offset,
                                                           wholememory_handle_t wholememory_handle);

/**
 * Writes the size of the caller's own partition in bytes. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_local_size(size_t *local_size,
                                                         wholememory_handle_t wholememory_handle);

/**
 * Writes the offset of the caller's own partition in the whole, in bytes. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_local_offset(size_t *local_offset,
                                                           wholememory_handle_t wholememory_handle);

/**
 * Writes address, size and offset in the whole (bytes) of the partition of `rank` as this process sees it. Each output may be NULL.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign handles and ranks outside the world (outputs untouched), and for DISTRIBUTED and
 * HIERARCHY handles, whose partitions cannot be reached (outputs become NULL, 0, 0).
 */
enum wholememory_error_code_t wholememory_get_rank_memory(void **rank_memory_ptr,
                                                          size_t *rank_memory_size,
                                                          size_t *rank_memory_offset,
                                                          int rank,
                                                          wholememory_handle_t wholememory_handle);

/**
 * Writes `ceil(total_entry_count / world_size)`: the entries a rank owns by default (the last ranks may own less).
 *
 * Errors: INVALID_INPUT if `per_rank_entry` is NULL; INVALID_VALUE if `world_size` is below 1.
 */
enum wholememory_error_code_t wholememory_equal_entry_partition_plan(size_t *per_rank_entry,
                                                                     size_t total_entry_count,
                                                                     int world_size);

/**
 * Writes the base of the one address range of a CONTINUOUS handle in either location, or of a CHUNKED one in HOST memory, as this process sees it.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects, and for other handles (NULL is written).
 */
enum wholememory_error_code_t wholememory_get_global_pointer(void **global_ptr,
                                                             wholememory_handle_t wholememory_handle);

/**
 * Writes what device code needs to reach every partition (`wholememory/global_reference.h`, `device_reference.cuh`).
 * The arrays in it belong to the handle.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects (output untouched), and for DISTRIBUTED and HIERARCHY handles (the
 * struct is filled, its pointer is NULL).
 */
enum wholememory_error_code_t wholememory_get_global_reference(wholememory_gref_t *wholememory_gref,
                                                               wholememory_handle_t wholememory_handle);

/**
 * Writes the size of every rank's partition in bytes: world size values. INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_rank_partition_sizes(size_t *rank_sizes,
                                                                   wholememory_handle_t wholememory_handle);

/**
 * Writes where every rank's partition begins in the whole, in bytes, and the total size: world size + 1 values.
 * INVALID_INPUT for NULL, dead or foreign objects.
 */
enum wholememory_error_code_t wholememory_get_rank_partition_offsets(size_t *rank_offsets,
                                                                     wholememory_handle_t wholememory_handle);

/**
 * Fills a handle from files. Collective, the same arguments on all ranks.
 *
 * The files, in list order, are one array of records of `file_entry_size` bytes; a record never straddles files. The handle is an array of slots of
 * `memory_entry_size` bytes; each rank's partition is a whole number of them. Record e
 * goes to bytes [slot * `memory_entry_size` + `memory_offset`, + `file_entry_size`) of the handle; other bytes are not touched.
 * With `round_robin_size` 0 the slot of record e is e, and fewer records than slots are allowed. With R =
 * `round_robin_size` above 0, block b = e / R belongs to rank b mod W, at record (b / W) * R + e mod R of its own partition.
 *
 * Environment, read on each call: `WG_LOAD_BUFFER_SIZE_MB`, `WG_LOAD_THREADS_PER_RANK`, `WG_LOAD_USE_DIRECTIO`.
 *
 * Errors, the same on every rank: INVALID_INPUT for freed handles, a record of 0 bytes or one that does not fit its slot, a slot that does
 * not divide the granularity, a count outside [0, 65535], a file that is NULL, missing, unreadable, a directory, or not a multiple of the
 * record; INVALID_VALUE for more records than slots and for a negative `round_robin_size`; LOGIC_ERROR for file lists that differ and
 * ranks found in different calls; SYSTEM_ERROR for a failed read; COMMUNICATION_ERROR. A rank whose handle is NULL or foreign, or gone
 * with its communicator, gets INVALID_INPUT alone and takes no part.
 */
enum wholememory_error_code_t wholememory_load_from_file(wholememory_handle_t wholememory_handle,
                                                         size_t memory_offset,
                                                         size_t memory_entry_size,
                                                         size_t file_entry_size,
                                                         const char **file_names,
                                                         int file_count,
                                                         int round_robin_size);

/**
 * Writes the own partition of every rank to its own file. Collective; each rank names its own file, which is created or truncated.
 *
 * The file holds, for each slot of `memory_entry_stride` bytes in order, the `file_entry_size` bytes at `memory_offset`.
 * The files in rank order, loaded again, restore the array. A rank without slots writes an empty file.
 *
 * Errors, the same on every rank: as `wholememory_load_from_file`; INVALID_INPUT for a NULL name; SYSTEM_ERROR for a file that
 * cannot be created or written.
 */
enum wholememory_error_code_t wholememory_store_to_file(wholememory_handle_t wholememory_handle,
                                                        size_t memory_offset,
                                                        size_t memory_entry_stride,
                                                        size_t file_entry_size,
                                                        const char *local_file_name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* Default arguments for C++, by a second declaration. */
#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#endif
extern "C" {
wholememory_error_code_t wholememory_init(unsigned int flags, LogLevel log_level = LEVEL_INFO);
wholememory_error_code_t wholememory_malloc(wholememory_handle_t *wholememory_handle_ptr,
                                            size_t total_size,
                                            wholememory_comm_t comm,
                                            wholememory_memory_type_t memory_type,
                                            wholememory_memory_location_t memory_location,
                                            size_t data_granularity,
                                            size_t *rank_entry_partition = nullptr);
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif  /* WHOLEMEMORY_WHOLEMEMORY_H_ */
