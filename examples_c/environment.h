/* The caller's side of operations whose outputs have sizes that only the operation knows: it asks for their memory through
 * these functions. An output's context is an `output_t`; after the call it holds the memory and how much there is. */
#ifndef EXAMPLES_ENVIRONMENT_H
#define EXAMPLES_ENVIRONMENT_H

#include <wholememory/env_func_ptrs.h>

#include "device.h"

/* A block: of the library's scratch, or of an output. */
typedef struct {
  void *memory;
  int64_t count; /* elements */
  wholememory_memory_allocation_type_t kind;
} output_t;

static inline void *environment_take(wholememory_tensor_description_t *shape, wholememory_memory_allocation_type_t kind,
                                     void *context, void *global) {
  const device_t *device = global;
  output_t *block = context;
  size_t bytes = (size_t)shape->sizes[0] * wholememory_dtype_get_element_size(shape->dtype);
  block->count = shape->sizes[0];
  block->kind = kind;
  if (kind == WHOLEMEMORY_MA_DEVICE)
    block->memory = device_alloc(device, bytes);
  else if (kind == WHOLEMEMORY_MA_PINNED && device->driver)
    device_must(device->allocate_pinned(&block->memory, bytes ? bytes : 1), "pinned memory");
  else
    block->memory = device_plain(bytes);
  return block->memory;
}

static inline void environment_give_back(void *context, void *global) {
  const device_t *device = global;
  output_t *block = context;
  if (block->kind == WHOLEMEMORY_MA_DEVICE)
    device_free(device, block->memory); /* waits for the work that uses it */
  else if (block->kind == WHOLEMEMORY_MA_PINNED && device->driver)
    device_must(device->release_pinned(block->memory), "to free pinned memory");
  else
    free(block->memory);
  block->memory = NULL;
}

static inline void environment_begin(void **context, void *global) {
  (void)global;
  *context = calloc(1, sizeof(output_t));
}

static inline void environment_end(void *context, void *global) {
  (void)global;
  free(context);
}

/* Functions that take memory of this device, which must outlive them. */
static inline wholememory_env_func_t environment_of(device_t *device) {
  wholememory_env_func_t functions = {
      {environment_begin, environment_end, environment_take, environment_give_back, device},
      {environment_take, environment_give_back, device}};
  return functions;
}

#endif
