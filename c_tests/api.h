/* The whole ABI as function pointers, for programs that open the library themselves. */
#ifndef WM_API_H
#define WM_API_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <wholememory/embedding.h>
#include <wholememory/error.h>
#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>
#include <wholememory/wholememory_op.h>

#include "check.h"

typedef struct {
  void* library;
  const char* (*wholememory_get_last_error)(void);
#define X(result, name, arguments) result(*name) arguments;
#include "exports.inc"
#undef X
} wm_api;

/* Opens the library named by WM_LIBRARY; ends the process when it or a function is missing. */
static inline void wm_api_open(wm_api* api) {
  const char* path = getenv("WM_LIBRARY");
  REQUIRE(path != NULL);
  api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!api->library) wm_say("FAILED: %s", dlerror()), wm_end(WM_FAIL);
  *(void**)&api->wholememory_get_last_error = dlsym(api->library, "wholememory_get_last_error");
  REQUIRE(api->wholememory_get_last_error != NULL);
#define X(result, name, arguments) \
  *(void**)&api->name = dlsym(api->library, #name); \
  if (!api->name) wm_say("FAILED: %s lacks %s", path, #name), wm_end(WM_FAIL);
#include "exports.inc"
#undef X
}

/* Ranks `rank` of `size` threads: a table over all, each row looked up by each rank, by the opened library alone. */
typedef struct { const wm_api* api; wholememory_unique_id_t id; int rank, size; } wm_api_rank;
void* wm_api_job(void* rank);

#endif
