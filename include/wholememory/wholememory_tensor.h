/* Tensors over handles and over the caller's memory. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_WHOLEMEMORY_TENSOR_H_
#define WHOLEMEMORY_WHOLEMEMORY_TENSOR_H_

#include <wholememory/tensor_description.h>
#include <wholememory/wholememory.h>

/** Says that get_wholememory_tensor_count is there. */
#define WM_TENSOR_COUNT_DEBUG

/**
 * A tensor: a description over a handle or over the caller's memory. A number in the dress of a pointer, never to be dereferenced.
 */
typedef struct wholememory_tensor_ wholememory_tensor_;

typedef struct wholememory_tensor_ *wholememory_tensor_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Allocates memory for a tensor of one or two dimensions and makes the tensor, which owns it. Collective over `comm`.
 *
 * Rows take `strides[0]` elements and are never divided between ranks. `tensor_entry_partition` gives the rows of each rank (world size
 * values above 0, summing to the rows); NULL (the default in C++) is the default plan of `wholememory_malloc`. `*wholememory_tensor` is
 * the caller's until `wholememory_destroy_tensor`; it is written only on success. Tensors of 0 rows are allowed.
 *
 * Errors, the same on every rank: INVALID_INPUT for a NULL output or description, a dim not 1 or 2, an offset not 0, a last stride not
 * 1, a dtype that is none; INVALID_VALUE for rows longer than their stride, negative sizes, sizes that
 * overflow; else as `wholememory_malloc`, also for a rank with a NULL, dead or foreign communicator.
 */
wholememory_error_code_t wholememory_create_tensor(wholememory_tensor_t *wholememory_tensor,
                                                   wholememory_tensor_description_t *tensor_description,
                                                   wholememory_comm_t comm,
                                                   wholememory_memory_type_t memory_type,
                                                   wholememory_memory_location_t memory_location,
                                                   size_t *tensor_entry_partition);

/**
 * Destroys a tensor, and frees its memory if it owns it (collective then, else local). Subtensors of it stay valid objects and
 * are destroyed for themselves, but their memory is gone.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign tensors and for tensors that belong to an embedding; COMMUNICATION_ERROR if
 * a rank is dead (the tensor is gone all the same). A tensor whose memory went with its communicator: SUCCESS.
 */
wholememory_error_code_t wholememory_destroy_tensor(wholememory_tensor_t wholememory_tensor);

/**
 * Makes a tensor over the caller's memory, which must outlive it. Local. `storage_ptr` is the begin of the storage: the first
 * element is `storage_offset` elements further on. With `storage_ptr` NULL or dim 0 any description is accepted ("no tensor").
 *
 * Errors: INVALID_INPUT for a NULL output or description, a dim outside [0, 8], a last stride not 1, a dtype that is none.
 */
wholememory_error_code_t wholememory_make_tensor_from_pointer(wholememory_tensor_t *wholememory_tensor,
                                                              void *storage_ptr,
                                                              wholememory_tensor_description_t *tensor_description);

/**
 * Makes a tensor of one or two dimensions over a handle, which stays the caller's. Local.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects, a dim not 1 or 2, a last stride not 1, a dtype that is none.
 */
wholememory_error_code_t wholememory_make_tensor_from_handle(wholememory_tensor_t *wholememory_tensor,
                                                             wholememory_handle_t wholememory_handle,
                                                             wholememory_tensor_description_t *tensor_description);

/**
 * True for tensors over a handle and their subtensors. False for NULL, dead or foreign tensors.
 */
bool wholememory_tensor_has_handle(wholememory_tensor_t wholememory_tensor);

/**
 * The handle under the tensor (not a new reference). NULL for tensors over plain memory and NULL, dead or foreign tensors.
 */
wholememory_handle_t wholememory_tensor_get_memory_handle(wholememory_tensor_t wholememory_tensor);

/**
 * The description inside the tensor: what is written there counts from the next call on. It lives as long as the tensor.
 * NULL for NULL, dead or foreign tensors.
 */
wholememory_tensor_description_t *wholememory_tensor_get_tensor_description(wholememory_tensor_t wholememory_tensor);

/**
 * Writes the global reference of the handle, or a continuous one to the storage (its offset is not applied).
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects; else as `wholememory_get_global_reference`.
 */
wholememory_error_code_t wholememory_tensor_get_global_reference(wholememory_tensor_t wholememory_tensor,
                                                                 wholememory_gref_t *wholememory_gref);

/**
 * Makes a tensor over the caller's own partition of a tensor over a handle, with the rows of the tensor that lie there. Local;
 * the memory belongs to the handle, the new tensor to the caller. A rank without rows gets 0 rows.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for tensors without a handle, a dim not 1 or
 * 2, a row offset, a stride below 1; LOGIC_ERROR if the partition is not a whole number of rows.
 */
wholememory_error_code_t wholememory_tensor_map_local_tensor(wholememory_tensor_t wholememory_tensor,
                                                             wholememory_tensor_t *local_tensor);

/**
 * The address of the first element: for plain memory and CONTINUOUS handles. NULL for others (also for CHUNKED ones in HOST memory, whose one range
 * `wholememory_get_global_pointer` tells), and for NULL, dead or foreign tensors.
 */
void *wholememory_tensor_get_data_pointer(wholememory_tensor_t wholememory_tensor);

/**
 * Writes where every rank's rows begin in the root tensor, and their total: world size + 1 values (plain memory: 0 and the rows).
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects; INVALID_VALUE for a root that has not 1 or 2 dimensions or a
 * partition that is not a whole number of rows.
 */
wholememory_error_code_t wholememory_tensor_get_entry_offsets(size_t *entry_offsets,
                                                              wholememory_tensor_t wholememory_tensor);

/**
 * Writes every rank's number of rows of the root tensor: world size values (plain memory: one). Errors as
 * `wholememory_tensor_get_entry_offsets`.
 */
wholememory_error_code_t wholememory_tensor_get_entry_partition_sizes(size_t *entry_partition,
                                                                      wholememory_tensor_t wholememory_tensor);

/**
 * Writes the caller's own number of rows of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
 */
wholememory_error_code_t wholememory_tensor_get_local_entry_count(size_t *local_entry_count,
                                                                  wholememory_tensor_t wholememory_tensor);

/**
 * Writes the caller's own first row of the root tensor. Errors as `wholememory_tensor_get_entry_offsets`.
 */
wholememory_error_code_t wholememory_tensor_get_local_entry_start(size_t *local_entry_start,
                                                                  wholememory_tensor_t wholememory_tensor);

/**
 * Makes a tensor over the window [`starts`, `ends`) of a tensor of at most two dimensions: one value each a dimension,
 * relative to the tensor; start -1 is 0, end -1 is the size. Local; same storage, nothing owned; the caller destroys it.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects and empty windows; INVALID_VALUE for a start below -1 or an end
 * above the size; NOT_IMPLEMENTED for more than two dimensions.
 */
wholememory_error_code_t wholememory_tensor_get_subtensor(wholememory_tensor_t wholememory_tensor,
                                                          int64_t *starts,
                                                          int64_t *ends,
                                                          wholememory_tensor_t *sub_wholememory_tensor);

/**
 * The tensor at the top of a chain of subtensors; the tensor itself if it is none. NULL for NULL, dead or foreign tensors.
 */
wholememory_tensor_t wholememory_tensor_get_root(wholememory_tensor_t wholememory_tensor);

/**
 * The number of tensors of this process that are not destroyed yet.
 */
int64_t get_wholememory_tensor_count(void);

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
wholememory_error_code_t wholememory_create_tensor(wholememory_tensor_t *wholememory_tensor,
                                                   wholememory_tensor_description_t *tensor_description,
                                                   wholememory_comm_t comm,
                                                   wholememory_memory_type_t memory_type,
                                                   wholememory_memory_location_t memory_location,
                                                   size_t *tensor_entry_partition = nullptr);
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif  /* WHOLEMEMORY_WHOLEMEMORY_TENSOR_H_ */
