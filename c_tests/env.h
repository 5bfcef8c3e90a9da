/* Environment callbacks that count, keep the shapes they were asked for, hold the caller's half of the protocol to
 * its rules, and fail on demand. */
#ifndef WM_ENV_H
#define WM_ENV_H

#include <wholememory/env_func_ptrs.h>

#include "check.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WM_SHAPES_KEPT = 64 };

typedef struct wm_env wm_env;

/* A memory context: of a temporary (made by the library through the callbacks) or of an output (made by a test). */
typedef struct {
  wm_env* env;
  wholememory_tensor_description_t desc;
  wholememory_memory_allocation_type_t kind;
  void* pointer;
  int mallocs;
} wm_context;

struct wm_env {
  wholememory_env_func_t fns; /* pass &env.fns */
  int creates, destroys, mallocs, frees, output_mallocs;
  int null_mallocs;      /* temporaries answered with NULL: they are not freed */
  int fail_at;           /* the k-th temporary malloc answers NULL; 0: none does */
  int fail_output_at;    /* likewise for outputs */
  void (*on_malloc)(void* argument); /* called inside every temporary malloc */
  void (*on_call)(void* argument);   /* called inside every callback */
  void* argument;
  wholememory_tensor_description_t shapes[WM_SHAPES_KEPT]; /* of temporaries, in order */
  char order[256];       /* one letter a callback: c m f d, and D P H for outputs by kind */
  size_t order_used;
};

void wm_env_start(wm_env* env);
/* creates == destroys, every block freed once; the place of the caller is reported. */
void wm_env_check(const wm_env* env, const char* file, int line);
#define BALANCED(env) wm_env_check((env), __FILE__, __LINE__)

void wm_context_start(wm_context* context, wm_env* env);
void wm_context_drop(wm_context* context);
size_t wm_desc_bytes(const wholememory_tensor_description_t* desc);

#ifdef __cplusplus
}
#endif
#endif
