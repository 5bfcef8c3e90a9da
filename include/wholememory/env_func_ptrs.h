/* Functions of the caller that give operations memory. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_ENV_FUNC_PTRS_H_
#define WHOLEMEMORY_ENV_FUNC_PTRS_H_

#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif
#endif

#include <wholememory/tensor_description.h>

/**
 * What memory a function of the caller is asked for. On the CPU platform plain host memory serves for all.
 */
typedef enum wholememory_memory_allocation_type_t {
  WHOLEMEMORY_MA_NONE = 0,
  WHOLEMEMORY_MA_DEVICE = 1,
  WHOLEMEMORY_MA_HOST = 2,
  WHOLEMEMORY_MA_PINNED = 3,
} wholememory_memory_allocation_type_t;

/**
 * Properties of a device as the CUDA runtime declares them.
 */
typedef struct cudaDeviceProp cudaDeviceProp;

/**
 * Makes a context for one block of scratch memory and writes it to `*memory_context`.
 */
typedef void (*wholememory_create_memory_context_func_t)(void **memory_context, void *global_context);

/**
 * Destroys a context made by the create function.
 */
typedef void (*wholememory_destroy_memory_context_func_t)(void *memory_context, void *global_context);

/**
 * Gives memory of the described size and dtype. NULL is right for a size of 0, else it is OUT_OF_MEMORY. The
 * description is a temporary: copy what is needed. The memory must be usable on the stream of the operation.
 */
typedef void *(*wholememory_malloc_func_t)(wholememory_tensor_description_t *tensor_description,
                                           enum wholememory_memory_allocation_type_t memory_allocation_type,
                                           void *memory_context,
                                           void *global_context);

/**
 * Takes back the memory of a context; the context may be used again.
 */
typedef void (*wholememory_free_func_t)(void *memory_context, void *global_context);

/**
 * Scratch memory. For each block: create, malloc, free (only if malloc gave memory), destroy (only if create gave a context).
 * Blocks are given back when the call returns, perhaps before the stream has done its work. An operation that needs scratch needs all four
 * functions: INVALID_INPUT if one is NULL.
 */
typedef struct wholememory_temp_memory_func_t {
  wholememory_create_memory_context_func_t create_memory_context_fn;
  wholememory_destroy_memory_context_func_t destroy_memory_context_fn;
  wholememory_malloc_func_t malloc_fn;
  wholememory_free_func_t free_fn;
  void *global_context;
} wholememory_temp_memory_func_t;

/**
 * Memory for outputs whose size the operation finds out. The library calls only `malloc_fn`, at most once for each context of
 * the caller, with the final description, also for a size of 0. `free_fn` may be NULL.
 */
typedef struct wholememory_output_memory_func_t {
  wholememory_malloc_func_t malloc_fn;
  wholememory_free_func_t free_fn;
  void *global_context;
} wholememory_output_memory_func_t;

/**
 * The functions of the caller that give an operation memory. Read during the call only. They return, or throw C++ exceptions; to leave
 * them by `pthread_exit` or `longjmp` ends the process or spoils it. Where they throw, the operation ends, gives back its scratch, lets no
 * other rank wait, and the exception goes on to its caller.
 */
typedef struct wholememory_env_func_t {
  struct wholememory_temp_memory_func_t temporary_fns;
  struct wholememory_output_memory_func_t output_fns;
} wholememory_env_func_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Properties of device `dev_id` (-1: the current one), learned by `wholememory_init` and valid until finalize.
 * NULL before init, for a device that is not there, and on the CPU platform.
 */
struct cudaDeviceProp *get_device_prop(int dev_id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_ENV_FUNC_PTRS_H_ */
