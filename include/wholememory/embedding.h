/* Tables that can be cached and trained. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_EMBEDDING_H_
#define WHOLEMEMORY_EMBEDDING_H_

#include <wholememory/env_func_ptrs.h>
#include <wholememory/wholememory_tensor.h>

/**
 * Optimizers of the gradient step.
 */
typedef enum wholememory_optimizer_type_t {
  WHOLEMEMORY_OPT_NONE = 0,
  WHOLEMEMORY_OPT_SGD = 1,
  WHOLEMEMORY_OPT_LAZY_ADAM = 2,
  WHOLEMEMORY_OPT_RMSPROP = 3,
  WHOLEMEMORY_OPT_ADAGRAD = 4,
} wholememory_optimizer_type_t;

/**
 * What a cache is used for.
 */
typedef enum wholememory_access_type_t {
  WHOLEMEMORY_AT_NONE = 0,
  WHOLEMEMORY_AT_READONLY = 1,
  WHOLEMEMORY_AT_READWRITE = 2,
} wholememory_access_type_t;

/**
 * A table that can be cached and trained. A number in the dress of a pointer, never to be dereferenced.
 */
typedef struct wholememory_embedding_ wholememory_embedding_;

/**
 * How an embedding is cached. A number in the dress of a pointer, never to be dereferenced.
 */
typedef struct wholememory_embedding_cache_policy_ wholememory_embedding_cache_policy_;

/**
 * An optimizer and its parameters. A number in the dress of a pointer, never to be dereferenced.
 */
typedef struct wholememory_embedding_optimizer_ wholememory_embedding_optimizer_;

typedef struct wholememory_embedding_optimizer_ *wholememory_embedding_optimizer_t;

typedef struct wholememory_embedding_cache_policy_ *wholememory_embedding_cache_policy_t;

typedef struct wholememory_embedding_ *wholememory_embedding_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes an optimizer, the caller's until `wholememory_destroy_embedding_optimizer`. Local. It may serve many embeddings.
 *
 * Errors: INVALID_INPUT if `optimizer` is NULL; NOT_IMPLEMENTED for NONE and values that are no optimizer.
 */
wholememory_error_code_t wholememory_create_embedding_optimizer(wholememory_embedding_optimizer_t *optimizer,
                                                                enum wholememory_optimizer_type_t optimizer_type);

/**
 * Sets a parameter of an optimizer; `value` points at a `float`. Local. Counts from the next step of every embedding on.
 *
 * Parameters (defaults): `weight_decay` (0) of all; `epsilon` (1e-8) of LAZY_ADAM, RMSPROP, ADAGRAD; `beta1` (0.9), `beta2` (0.999) and
 * `adam_w` (0; AdamW above 0.5) of LAZY_ADAM; `alpha` (0.99) of RMSPROP. The learning rate is an argument of the step.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign objects and for names that the optimizer does not have.
 */
wholememory_error_code_t wholememory_optimizer_set_parameter(wholememory_embedding_optimizer_t optimizer,
                                                             const char *parameter_name,
                                                             void *value);

/**
 * Destroys an optimizer. Local. Embeddings that have it go on with the parameters it had. NULL is left alone; dead and foreign
 * optimizers too, and `wholememory_get_last_error` says so.
 */
void wholememory_destroy_embedding_optimizer(wholememory_embedding_optimizer_t optimizer);

/**
 * Makes a cache policy: a cache of `cache_ratio` of the rows on `cache_level_comm`. Local. Embeddings copy it when they are made. Type,
 * location and access are checked there.
 *
 * Errors: INVALID_INPUT if `cache_policy` is NULL and for NULL, dead or foreign communicators; INVALID_VALUE for a ratio
 * outside [1/512, 1], NaN included.
 */
wholememory_error_code_t wholememory_create_embedding_cache_policy(wholememory_embedding_cache_policy_t *cache_policy,
                                                                   wholememory_comm_t cache_level_comm,
                                                                   wholememory_memory_type_t memory_type,
                                                                   wholememory_memory_location_t memory_location,
                                                                   enum wholememory_access_type_t access_type,
                                                                   float cache_ratio);

/**
 * Destroys a cache policy. Local. NULL is SUCCESS; INVALID_INPUT for dead or foreign policies.
 */
wholememory_error_code_t wholememory_destroy_embedding_cache_policy(wholememory_embedding_cache_policy_t cache_policy);

/**
 * Makes an embedding, the caller's until `wholememory_destroy_embedding`: a table of `sizes[0]` rows of `sizes[1]` columns (one dimension:
 * one column) of any dtype. With two dimensions `strides[1]` must be 1; `strides[0]` and the offset are of no account. Rows are padded to a multiple of
 * 16 bytes: the table's tensor tells their stride. Collective over `comm` and the policy's communicator, the same arguments on all ranks.
 *
 * `cache_policy` may be NULL (no cache). A cache on `comm` itself lies in DEVICE memory and may have the type CONTINUOUS, CHUNKED or DISTRIBUTED for a
 * CONTINUOUS table, CHUNKED or DISTRIBUTED for a CHUNKED one, DISTRIBUTED for a DISTRIBUTED one. A cache on another communicator, which consists of
 * ranks of `comm`, is READONLY and CONTINUOUS or CHUNKED, in either location. HIERARCHY tables have none. Capacity is rounded up to sets of 32 lines a rank.
 * `embedding_entry_partition` (NULL, the default in C++: the default plan of malloc) gives the
 * rows of each rank, world size values above 0 that sum to the rows; it is ignored with a cache, and without one switches round
 * robin off. `user_defined_sms` (-1, the default in C++, is automatic) is the launch width of gathers without a cache; useless values warn and mean -1.
 * `round_robin_size` R (0, the default in C++: none) deals blocks of R rows to the ranks in turn, as `wholememory_load_from_file` does: row g
 * lies on rank (g / R) % ranks, and the table gets the same number of rows on every rank. Ids name rows before they were dealt.
 *
 * Errors, the same on every rank: INVALID_INPUT for NULL, dead or foreign objects, descriptions that are no matrix, no rows or columns, caches
 * that do not fit; INVALID_VALUE for a negative round robin size, values that differ between ranks; else as `wholememory_malloc`. A rank whose `comm` is
 * NULL, dead or foreign gets INVALID_INPUT alone and takes no part.
 */
wholememory_error_code_t wholememory_create_embedding(wholememory_embedding_t *wholememory_embedding,
                                                      wholememory_tensor_description_t *embedding_tensor_description,
                                                      wholememory_comm_t comm,
                                                      wholememory_memory_type_t memory_type,
                                                      wholememory_memory_location_t memory_location,
                                                      wholememory_embedding_cache_policy_t cache_policy,
                                                      size_t *embedding_entry_partition,
                                                      int user_defined_sms,
                                                      int round_robin_size);

/**
 * Destroys an embedding with its table, cache and states. Local: ranks may destroy theirs in any order, also after the communicator is gone or the
 * library finalized. The memory is free when all ranks have. The tensors it lent are dead.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign embeddings; CUDA_ERROR, SYSTEM_ERROR (the embedding is gone all the same).
 */
wholememory_error_code_t wholememory_destroy_embedding(wholememory_embedding_t wholememory_embedding);

/**
 * The table of an embedding: [rows, columns], its root the rows as they are allocated. It belongs to the embedding and goes with it; destroying it is
 * INVALID_INPUT. Under round robin it has the same number of rows of each rank. Its rows are `strides[0]` elements apart, a multiple of 16 bytes: for files
 * that is the `memory_entry_size`, and `file_entry_size` the bytes of the columns (6 floats: 32 and 24). NULL for NULL, dead or foreign embeddings.
 */
wholememory_tensor_t wholememory_embedding_get_embedding_tensor(wholememory_embedding_t wholememory_embedding);

/**
 * Gives an embedding an optimizer and makes its states: those of the size of a row begin with 0, `beta12t` with 1. Collective, the same
 * optimizer type on all ranks. A NULL optimizer (on all ranks) changes nothing. The embedding keeps the optimizer.
 *
 * Errors, the same on every rank: NOT_SUPPORTED if it has one already; NOT_IMPLEMENTED for tables that are not FLOAT, HALF or
 * BF16; INVALID_INPUT for dead or foreign objects and for caches that are not READWRITE; INVALID_VALUE for optimizers that differ; else as
 * `wholememory_malloc`. A rank with a NULL or foreign embedding alone gets INVALID_INPUT.
 */
wholememory_error_code_t wholememory_embedding_set_optimizer(wholememory_embedding_t wholememory_embedding,
                                                             wholememory_embedding_optimizer_t optimizer);

/**
 * `output[i] = row indices[i]` of the embedding, as `wholememory_gather` with its rules, errors and completion. Ids below 0 and
 * not below the rows of the embedding leave their output row untouched. The output must not overlap the memory of the table or the cache.
 * `adjust_cache`: the ids count as uses, and rows that were missed may enter the cache; ignored without one.
 * `stream_int`: a `cudaStream_t` as an integer, 0 the default stream; ignored on the CPU platform.
 *
 * Collective over the embedding's communicator where the table or its cache is DISTRIBUTED, and for HIERARCHY tables; where there is a cache and
 * `adjust_cache` is true also over the cache's communicator. Else local. All these ranks pass the same embedding and `adjust_cache`: where
 * they do not, they are told (LOGIC_ERROR) if they meet on one communicator; on two they wait for each other.
 *
 * Where ranks exchange ids or rows and one has no memory or descriptor for that: OUT_OF_MEMORY or SYSTEM_ERROR on all of them.
 *
 * A NULL or foreign embedding names no ranks, nor does one that went with its communicator: that rank takes no part, and the others wait for its
 * next collective call.
 */
wholememory_error_code_t wholememory_embedding_gather(wholememory_embedding_t wholememory_embedding,
                                                      wholememory_tensor_t indices,
                                                      wholememory_tensor_t output,
                                                      bool adjust_cache,
                                                      wholememory_env_func_t *p_env_fns,
                                                      int64_t stream_int);

/**
 * One step of the embedding's optimizer with learning rate `lr`. Gradients of a row are summed over all ranks, then the optimizer
 * is applied to the row once. Rows that no rank names do not change. Collective, also with no indices.
 *
 * Shapes: indices [n] of INT or INT64; grads [n, D] of FLOAT, HALF or BF16, any row stride, D the columns of the embedding (fewer within the same
 * 16 bytes of padding update only those). Ids below 0 and not below the rows are left out. Sums are in float, in the order of the ranks and of
 * their gradients, in runs of 512 whose sums are summed in turn. `p_env_fns` may be NULL. The work is ordered on the stream and may still run on
 * return; other ranks see the rows after a barrier that follows its end. `adjust_cache` and `stream_int` are those of `wholememory_embedding_gather`.
 *
 * Errors (on the failing rank alone; the others go on without it): INVALID_INPUT for NULL, dead or foreign objects, an embedding without
 * optimizer, wrong shapes or dtypes, data that cannot be reached, gradients with other columns than those of the lowest rank that has
 * some; LOGIC_ERROR for gradients that are not as many as indices and for data that is not aligned to its elements; INVALID_VALUE for
 * spans that leave the address space; CUDA_ERROR. On all ranks: OUT_OF_MEMORY; SYSTEM_ERROR for want of descriptors; LOGIC_ERROR if they
 * pass different embeddings or one that a rank has destroyed; COMMUNICATION_ERROR. A NULL or foreign embedding, or one without an
 * optimizer, names no ranks: that rank takes no part, and the others wait for its next collective call.
 */
wholememory_error_code_t wholememory_embedding_gather_gradient_apply(wholememory_embedding_t wholememory_embedding,
                                                                     wholememory_tensor_t indices,
                                                                     wholememory_tensor_t grads,
                                                                     bool adjust_cache,
                                                                     float lr,
                                                                     wholememory_env_func_t *p_env_fns,
                                                                     int64_t stream_int);

/**
 * The names of the optimizer's states, ended by NULL (LAZY_ADAM: m, v, beta12t; RMSPROP: v; ADAGRAD: state_sum; SGD: none). They are constants.
 * NULL without an optimizer, and for NULL, dead or foreign embeddings.
 */
const char *const *wholememory_embedding_get_optimizer_state_names(wholememory_embedding_t wholememory_embedding);

/**
 * The state `name` as a FLOAT tensor: [rows, columns], or [rows, 2] for beta12t (beta1^t and beta2^t of each row; DISTRIBUTED, DEVICE). It
 * can be loaded and stored, belongs to the embedding and goes with it. States may share a handle: `storage_offset` and `strides[0]` of the
 * tensor say where its rows are. For files: `memory_offset` is storage_offset * 4, `memory_entry_size` strides[0] * 4, `file_entry_size`
 * columns * 4 (in an embedding of 6 columns with m and v, v has storage_offset 8 and strides[0] 16, so 32, 64 and 24). NULL for unknown
 * names, without an optimizer, and for NULL, dead or foreign embeddings.
 */
wholememory_tensor_t wholememory_embedding_get_optimizer_state(wholememory_embedding_t wholememory_embedding,
                                                               const char *name);

/**
 * Writes changed rows of the cache (and their optimizer states) back to the table, which all ranks see there when it returns. Collective over the
 * embedding's communicator (a cache on another one: over that). `stream_int` as for `wholememory_embedding_gather`. Without a cache SUCCESS and
 * nothing to do.
 *
 * Errors: INVALID_INPUT for NULL, dead or foreign embeddings; CUDA_ERROR, COMMUNICATION_ERROR.
 */
wholememory_error_code_t wholememory_embedding_writeback_cache(wholememory_embedding_t wholememory_embedding,
                                                               int64_t stream_int);

/**
 * As `wholememory_embedding_writeback_cache`, and empties the cache. To be called before the table is changed by other means (loaded from files,
 * scattered to), which the cache does not notice; the cache is used again only after the change. Called after the change it overwrites those rows of
 * the table that a gradient step had changed in the cache. Where there are none (READONLY, or just written back), it may be called after as well.
 */
wholememory_error_code_t wholememory_embedding_drop_all_cache(wholememory_embedding_t wholememory_embedding,
                                                              int64_t stream_int);

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
wholememory_error_code_t wholememory_create_embedding(wholememory_embedding_t *wholememory_embedding,
                                                      wholememory_tensor_description_t *embedding_tensor_description,
                                                      wholememory_comm_t comm,
                                                      wholememory_memory_type_t memory_type,
                                                      wholememory_memory_location_t memory_location,
                                                      wholememory_embedding_cache_policy_t cache_policy,
                                                      size_t *embedding_entry_partition = nullptr,
                                                      int user_defined_sms = -1,
                                                      int round_robin_size = 0);
}
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif

#endif  /* WHOLEMEMORY_EMBEDDING_H_ */
