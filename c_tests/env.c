#include "env.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "table.h"

static void note(wm_env* env, char letter) {
  if (env->on_call) env->on_call(env->argument);
  if (env->order_used + 1 < sizeof env->order) env->order[env->order_used++] = letter;
}

size_t wm_desc_bytes(const wholememory_tensor_description_t* desc) {
  int64_t elements = desc->dim == 0 ? 1 : desc->sizes[0] * desc->strides[0];
  return (size_t)elements * wm_bytes_of(desc->dtype);
}

static void* take(wm_context* context, wholememory_memory_allocation_type_t kind) {
  size_t bytes = wm_desc_bytes(&context->desc);
  context->kind = kind;
  if (bytes == 0) return NULL;
  context->pointer = kind == WHOLEMEMORY_MA_DEVICE   ? wm_alloc(bytes)
                     : kind == WHOLEMEMORY_MA_PINNED ? wm_alloc_pinned(bytes)
                                                     : malloc(bytes);
  /* What a caller's allocator hands out is never clean. */
  if (kind == WHOLEMEMORY_MA_DEVICE) wm_fill(context->pointer, 0xA5, bytes);
  else memset(context->pointer, 0xA5, bytes);
  return context->pointer;
}

static void give(wm_context* context) {
  if (context->kind == WHOLEMEMORY_MA_DEVICE) wm_finish(), wm_release(context->pointer);
  else if (context->kind == WHOLEMEMORY_MA_PINNED) wm_finish(), wm_release_pinned(context->pointer);
  else free(context->pointer);
  context->pointer = NULL;
}

static void create_context(void** context, void* global) {
  wm_env* env = (wm_env*)global;
  env->creates++;
  note(env, 'c');
  wm_context* made = (wm_context*)calloc(1, sizeof *made);
  made->env = env;
  *context = made;
}

static void destroy_context(void* context, void* global) {
  wm_env* env = (wm_env*)global;
  env->destroys++;
  note(env, 'd');
  REQUIRE(context != NULL);
  CHECK(((wm_context*)context)->env == env);
  CHECK(((wm_context*)context)->pointer == NULL);
  free(context);
}

static void* malloc_temporary(wholememory_tensor_description_t* desc, wholememory_memory_allocation_type_t kind,
                              void* context, void* global) {
  wm_env* env = (wm_env*)global;
  wm_context* c = (wm_context*)context;
  if (env->mallocs < WM_SHAPES_KEPT) env->shapes[env->mallocs] = *desc;
  env->mallocs++;
  note(env, 'm');
  REQUIRE(c != NULL);
  CHECK(c->pointer == NULL);
  CHECK_EQ(desc->dim, 1);
  CHECK_EQ(desc->strides[0], 1);
  CHECK_EQ(desc->storage_offset, 0);
  CHECK(desc->dtype >= WHOLEMEMORY_DT_FLOAT && desc->dtype < WHOLEMEMORY_DT_COUNT);
  CHECK(kind == WHOLEMEMORY_MA_DEVICE || kind == WHOLEMEMORY_MA_HOST || kind == WHOLEMEMORY_MA_PINNED);
  if (env->on_malloc) env->on_malloc(env->argument);
  c->desc = *desc;
  void* p = env->mallocs == env->fail_at ? NULL : take(c, kind);
  env->null_mallocs += p == NULL;
  return p;
}

static void free_temporary(void* context, void* global) {
  wm_env* env = (wm_env*)global;
  wm_context* c = (wm_context*)context;
  env->frees++;
  note(env, 'f');
  REQUIRE(c != NULL);
  CHECK(c->pointer != NULL);
  give(c);
}

static void* malloc_output(wholememory_tensor_description_t* desc, wholememory_memory_allocation_type_t kind,
                           void* context, void* global) {
  wm_env* env = (wm_env*)global;
  wm_context* c = (wm_context*)context;
  env->output_mallocs++;
  note(env, kind == WHOLEMEMORY_MA_DEVICE ? 'D' : kind == WHOLEMEMORY_MA_PINNED ? 'P' : 'H');
  REQUIRE(c != NULL);
  CHECK_EQ(c->mallocs, 0);
  c->mallocs++;
  c->desc = *desc;
  return env->output_mallocs == env->fail_output_at ? NULL : take(c, kind);
}

static void free_output(void* context, void* global) {
  (void)context, (void)global;
  FAILED("the library freed an output, which belongs to the caller");
}

void wm_env_start(wm_env* env) {
  memset(env, 0, sizeof *env);
  env->fns.temporary_fns.create_memory_context_fn = create_context;
  env->fns.temporary_fns.destroy_memory_context_fn = destroy_context;
  env->fns.temporary_fns.malloc_fn = malloc_temporary;
  env->fns.temporary_fns.free_fn = free_temporary;
  env->fns.temporary_fns.global_context = env;
  env->fns.output_fns.malloc_fn = malloc_output;
  env->fns.output_fns.free_fn = free_output;
  env->fns.output_fns.global_context = env;
}

void wm_env_check(const wm_env* env, const char* file, int line) {
  if (env->creates != env->destroys || env->mallocs - env->null_mallocs != env->frees)
    wm_failed(file, line, "callbacks do not balance: %d creates, %d destroys, %d mallocs (%d gave NULL), %d frees; order %s",
              env->creates, env->destroys, env->mallocs, env->null_mallocs, env->frees, env->order);
}

void wm_context_start(wm_context* context, wm_env* env) {
  memset(context, 0, sizeof *context);
  context->env = env;
}

void wm_context_drop(wm_context* context) {
  if (context->pointer) give(context);
}
