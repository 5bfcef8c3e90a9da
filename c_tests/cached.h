/* Cached embeddings of the tests: made, and gathered from by ids with favourites. */
#ifndef WM_CACHED_H
#define WM_CACHED_H

#include <wholememory/cache_stats.h>

#include "rows.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct { wholememory_memory_type_t type; wholememory_memory_location_t location; const char* name; } wm_cache_kind;
enum { WM_CACHES = 5, WM_CACHES_AT_HOME = 3 };
/* The first ones fit a table's own communicator, all but DISTRIBUTED another one. */
extern const wm_cache_kind wm_caches[WM_CACHES];

/* A communicator of pairs of ranks, of each rank alone where there are only two (collective). */
wholememory_comm_t wm_pairs(wm_rank* r);
wholememory_embedding_cache_policy_t wm_policy(wholememory_comm_t comm, int type, int location, int access, float ratio);
/* The policy goes before its embedding (collective). */
wm_rows wm_cached_make(wholememory_comm_t comm, wholememory_comm_t cache_comm, wm_rows_shape shape, wm_cache_kind cache, int access, float ratio);
wholememory_cache_stats_t wm_cache_stats(const wm_rows* e);

/* A list of ids: some are favourites, every eighth names no row. The table holds wm_value(.., salt). */
typedef struct { wholememory_dtype_t ids, to; int64_t count, pad; uint64_t seed; bool adjust; int salt; } wm_draw;
int64_t wm_drawn(const wm_draw* d, const wm_rows* e, int64_t i);
/* Gathers the list and compares every byte of the output (collective where the cache is). */
bool wm_cached_gather(const wm_rows* e, wm_draw d, const char* what);

#ifdef __cplusplus
}
#endif
#endif
