#include "cached.h"

#include "device.h"

const wm_cache_kind wm_caches[WM_CACHES] = {
    {WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE, "CONTINUOUS DEVICE"}, {WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE, "CHUNKED DEVICE"},
    {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE, "DISTRIBUTED DEVICE"}, {WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, "CONTINUOUS HOST"},
    {WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_HOST, "CHUNKED HOST"}};
wholememory_embedding_cache_policy_t wm_policy(wholememory_comm_t comm, int type, int location, int access, float ratio) {
  wholememory_embedding_cache_policy_t policy;
  OK(wholememory_create_embedding_cache_policy(&policy, comm, (wholememory_memory_type_t)type, (wholememory_memory_location_t)location,
                                               (wholememory_access_type_t)access, ratio));
  return policy;
}

wm_rows wm_cached_make(wholememory_comm_t comm, wholememory_comm_t cache_comm, wm_rows_shape shape, wm_cache_kind cache, int access, float ratio) {
  shape.policy = wm_policy(cache_comm, (int)cache.type, (int)cache.location, access, ratio);
  wm_rows e = wm_rows_make(comm, shape);
  OK(wholememory_destroy_embedding_cache_policy(shape.policy));
  e.shape.policy = NULL;
  return e;
}

wholememory_cache_stats_t wm_cache_stats(const wm_rows* e) {
  wholememory_cache_stats_t stats = {.struct_size = sizeof stats};
  OK(wholememory_embedding_get_cache_stats(e->embedding, &stats));
  return stats;
}

int64_t wm_drawn(const wm_draw* d, const wm_rows* e, int64_t i) {
  uint64_t h = wm_hash(d->seed, (uint64_t)i);
  int64_t rows = e->shape.rows;
  switch (h % 8) {
    case 0: return h & 256 ? -1 - (int64_t)(h >> 44) : rows + (int64_t)(h >> 44);
    case 1: case 2: case 3: return (int64_t)((h >> 8) % (uint64_t)(rows < 9 ? rows : 9));
    default: return (int64_t)((h >> 8) % (uint64_t)rows);
  }
}

bool wm_cached_gather(const wm_rows* e, wm_draw d, const char* what) {
  wm_array ids = wm_array_make((wm_view){d.ids, 1, d.count, 1, 1, 3, 0});
  wm_array out = wm_array_make((wm_view){d.to, 2, d.count, e->shape.columns, e->shape.columns + d.pad, 1, 0});
  for (int64_t i = 0; i < d.count; i++) {
    int64_t id = wm_drawn(&d, e, i);
    wm_set_bits(d.ids, wm_array_at(&ids, i, 0), (uint64_t)id);
    for (int64_t c = 0; c < e->shape.columns && id >= 0 && id < e->shape.rows; c++)
      wm_set_bits(d.to, wm_array_at(&out, i, c), wm_convert(e->shape.dtype, d.to, wm_value(e->shape.dtype, id, c, d.salt)));
  }
  wm_array_push(&ids);
  wm_env env;
  wm_env_start(&env);
  bool good = EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, d.adjust, &env.fns, 0));
  BALANCED(&env);
  good = wm_array_matches(&out, what) && good;
  wm_array_drop(&ids);
  wm_array_drop(&out);
  return good;
}

wholememory_comm_t wm_pairs(wm_rank* r) {
  wholememory_comm_t pairs;
  OK(wholememory_split_communicator(&pairs, wm_world(r), r->size < 3 ? r->rank : r->rank / 2, r->rank));
  return pairs;
}
