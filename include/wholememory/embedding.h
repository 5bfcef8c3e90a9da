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
 * Makes an optimizer. Local. **Not in this version**: NOT_IMPLEMENTED for every type. INVALID_INPUT if `optimizer` is NULL.
 */
wholememory_error_code_t wholememory_create_embedding_optimizer(wholememory_embedding_optimizer_t *optimizer,
                                                                enum wholememory_optimizer_type_t optimizer_type);

/**
 * Sets a parameter of an optimizer; `value` points at a `float`. Local. INVALID_INPUT for NULL, dead or foreign objects and unknown names.
 */
wholememory_error_code_t wholememory_optimizer_set_parameter(wholememory_embedding_optimizer_t optimizer,
                                                             const char *parameter_name,
                                                             void *value);

/**
 * Destroys an optimizer. Local. NULL is left alone.
 */
void wholememory_destroy_embedding_optimizer(wholememory_embedding_optimizer_t optimizer);

/**
 * Makes a cache policy: a cache on `cache_level_comm` of `cache_ratio` of the rows. Local. **Not in this version**: the arguments are
 * checked, then NOT_IMPLEMENTED. INVALID_INPUT if `cache_policy` is NULL; INVALID_VALUE for a ratio outside [1/512, 1].
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
 * Makes an embedding. **Not in this version**: the arguments are checked, then NOT_IMPLEMENTED (local). INVALID_INPUT for NULL, dead or foreign
 * objects and descriptions that are no matrix.
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
 * Destroys an embedding. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
 */
wholememory_error_code_t wholememory_destroy_embedding(wholememory_embedding_t wholememory_embedding);

/**
 * The table of an embedding, which owns it. NULL for NULL, dead or foreign embeddings (in this version every one).
 */
wholememory_tensor_t wholememory_embedding_get_embedding_tensor(wholememory_embedding_t wholememory_embedding);

/**
 * Gives an embedding an optimizer. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
 */
wholememory_error_code_t wholememory_embedding_set_optimizer(wholememory_embedding_t wholememory_embedding,
                                                             wholememory_embedding_optimizer_t optimizer);

/**
 * As `wholememory_gather` from the table of an embedding. INVALID_INPUT for NULL, dead or foreign objects (in this version every embedding).
 */
wholememory_error_code_t wholememory_embedding_gather(wholememory_embedding_t wholememory_embedding,
                                                      wholememory_tensor_t indices,
                                                      wholememory_tensor_t output,
                                                      bool adjust_cache,
                                                      wholememory_env_func_t *p_env_fns,
                                                      int64_t stream_int);

/**
 * Applies a step of the optimizer to the rows of an embedding. INVALID_INPUT for NULL, dead or foreign objects (in this version every embedding).
 */
wholememory_error_code_t wholememory_embedding_gather_gradient_apply(wholememory_embedding_t wholememory_embedding,
                                                                     wholememory_tensor_t indices,
                                                                     wholememory_tensor_t grads,
                                                                     bool adjust_cache,
                                                                     float lr,
                                                                     wholememory_env_func_t *p_env_fns,
                                                                     int64_t stream_int);

/**
 * The names of the optimizer's states, ended by NULL. NULL for NULL, dead or foreign embeddings (in this version every one).
 */
const char *const *wholememory_embedding_get_optimizer_state_names(wholememory_embedding_t wholememory_embedding);

/**
 * The state `name`, owned by the embedding. NULL for NULL, dead or foreign embeddings (in this version every one) and unknown names.
 */
wholememory_tensor_t wholememory_embedding_get_optimizer_state(wholememory_embedding_t wholememory_embedding,
                                                               const char *name);

/**
 * Writes changed rows of the cache back to the table. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
 */
wholememory_error_code_t wholememory_embedding_writeback_cache(wholememory_embedding_t wholememory_embedding,
                                                               int64_t stream_int);

/**
 * Writes back and empties the cache. INVALID_INPUT for NULL, dead or foreign embeddings (in this version every one).
 */
wholememory_error_code_t wholememory_embedding_drop_all_cache(wholememory_embedding_t wholememory_embedding,
                                                              int64_t stream_int);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* Default arguments for C++, by a second declaration. */
#ifdef __cplusplus
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
#endif

#endif  /* WHOLEMEMORY_EMBEDDING_H_ */
