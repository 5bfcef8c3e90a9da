/* What cached embeddings refuse: caches that do not fit, wrong arguments of one rank, refused scratch, caches that may not be trained
 * or are gone; and what the other ranks get meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cached.h"
#include "device.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, VALUE = WHOLEMEMORY_INVALID_VALUE };
/* More blocks of scratch than a call asks for. */
enum { MOST_BLOCKS = 14 };

/* ---- which wm_caches fit: the table of the contract, row by row ---- */

typedef struct { int table, cache, location, access, want; const char* why; } fit;

static int try_fit(wholememory_comm_t comm, wholememory_comm_t cache_comm, fit f) {
  wholememory_embedding_cache_policy_t policy = wm_policy(cache_comm, f.cache, f.location, f.access, 0.25f);
  wholememory_tensor_description_t d = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 300, 8, 8, 0);
  wholememory_embedding_t made = NULL;
  int code = wholememory_create_embedding(&made, &d, comm, (wholememory_memory_type_t)f.table, WHOLEMEMORY_ML_HOST, policy, NULL, -1, 0);
  if (code == 0) EXPECT(0, wholememory_destroy_embedding(made));
  else CHECK(made == NULL);
  OK(wholememory_destroy_embedding_cache_policy(policy));
  return code;
}

static void fits(wm_rank* r, wholememory_comm_t other) {
  enum { CON = 1, CHU = 2, DIS = 3, HIE = 4, DEV = 1, HOST = 2, NONE = 0, RO = 1, RW = 2, NOT_IMPLEMENTED = WHOLEMEMORY_NOT_IMPLEMENTED };
  wholememory_comm_t comm = wm_world(r);
  const fit home[] = {
      {HIE, HIE, DEV, RW, BAD_INPUT, "HIERARCHY"}, {HIE, DIS, DEV, RW, BAD_INPUT, "HIERARCHY"},
      {CON, CON, HOST, RW, BAD_INPUT, "DEVICE"},   {DIS, DIS, HOST, RO, BAD_INPUT, "DEVICE"},
      {CHU, CON, DEV, RW, BAD_INPUT, "CHUNKED"},   {DIS, CON, DEV, RW, BAD_INPUT, "DISTRIBUTED"},
      {DIS, CHU, DEV, RW, BAD_INPUT, "CHUNKED"},   {CON, HIE, DEV, RW, BAD_INPUT, "HIERARCHY"},
      {CON, NONE, DEV, RW, BAD_INPUT, "0"},        {CON, 99, DEV, RW, VALUE, "99"},
      {CON, CON, DEV, 99, VALUE, "99"},            {CON, CON, DEV, RW, 0, ""},
      {CON, CHU, DEV, RO, 0, ""},                  {CON, DIS, DEV, NONE, 0, ""},
      {CHU, CHU, DEV, RW, 0, ""},                  {CHU, DIS, DEV, RW, 0, ""},
      {DIS, DIS, DEV, RW, 0, ""}};
  const fit apart[] = {
      {HIE, CON, DEV, RO, BAD_INPUT, "HIERARCHY"}, {CON, DIS, DEV, RO, BAD_INPUT, "DISTRIBUTED"},
      {CON, CON, DEV, RW, BAD_INPUT, "READONLY"},  {CON, CON, DEV, NONE, BAD_INPUT, "READONLY"},
      {CON, HIE, DEV, RW, BAD_INPUT, "READONLY"},  {CON, HIE, DEV, RO, NOT_IMPLEMENTED, "HIERARCHY"},
      {CON, NONE, DEV, RO, VALUE, "0"},            {CON, CON, 7, RO, VALUE, "7"},
      {CON, CON, DEV, RO, 0, ""},                  {CHU, CHU, HOST, RO, 0, ""},
      {DIS, CON, HOST, RO, 0, ""},                 {DIS, CHU, DEV, RO, 0, ""}};
  for (size_t i = 0; i < sizeof home / sizeof *home; i++) {
    if (!wm_kind_here(r, comm, &wm_kinds[0]) && home[i].want == 0 && home[i].table != DIS) continue;
    if (!EXPECT(home[i].want, try_fit(comm, comm, home[i]))) wm_say("row %zu of the wm_caches at home", i);
    if (home[i].want) CHECK_HAS(wholememory_get_last_error(), home[i].why);
  }
  for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
    if (!EXPECT(apart[i].want, try_fit(comm, other, apart[i]))) wm_say("row %zu of the wm_caches apart", i);
    if (apart[i].want) CHECK_HAS(wholememory_get_last_error(), apart[i].why);
  }
  /* A policy that differs on one rank is every rank's error. */
  if (r->size > 1) {
    fit f = {CON, CHU, DEV, r->rank == 1 ? RO : RW, VALUE, "cache_policy"};
    EXPECT(VALUE, try_fit(comm, comm, f));
    CHECK_HAS(wholememory_get_last_error(), "cache_policy");
  }
  wholememory_embedding_cache_policy_t policy = (wholememory_embedding_cache_policy_t)1;
  const float ratios[] = {0.0f, -1.0f, 1.0f / 513, 1.0001f, 0.0f / 0.0f};
  for (size_t i = 0; i < 5; i++)
    EXPECT(VALUE, wholememory_create_embedding_cache_policy(&policy, comm, WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE, WHOLEMEMORY_AT_READONLY, ratios[i]));
  CHECK(policy == (wholememory_embedding_cache_policy_t)1);
  OK(wholememory_communicator_barrier(comm));
}

static int try_comm(wholememory_comm_t comm, wholememory_comm_t cache_comm, int location) {
  return try_fit(comm, cache_comm, (fit){.table = WHOLEMEMORY_MT_DISTRIBUTED, .cache = WHOLEMEMORY_MT_CONTINUOUS, .location = location, .access = WHOLEMEMORY_AT_READONLY});
}

/* A cache apart is shared by ranks that make the same embedding, all of them; how many they are may differ. */
static void whose_caches(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r), copy, half, uneven;
  OK(wholememory_split_communicator(&copy, comm, 0, r->rank));
  OK(wholememory_split_communicator(&half, comm, r->rank / 2, r->rank));
  OK(wholememory_split_communicator(&uneven, comm, r->rank == r->size - 1, r->rank));
  EXPECT(0, try_comm(comm, copy, WHOLEMEMORY_ML_HOST));
  if (r->size > 1) {
    fit home = {.table = WHOLEMEMORY_MT_CONTINUOUS, .cache = WHOLEMEMORY_MT_CONTINUOUS, .location = WHOLEMEMORY_ML_DEVICE, .access = WHOLEMEMORY_AT_READONLY};
    EXPECT(VALUE, try_fit(comm, r->rank == 0 ? comm : copy, home));
    CHECK_HAS(wholememory_get_last_error(), "differs between ranks");
  }
  if (r->size > 2) {
    EXPECT(BAD_INPUT, try_comm(half, comm, WHOLEMEMORY_ML_HOST));
    CHECK_HAS(wholememory_get_last_error(), "ranks of the embedding's communicator");
    EXPECT(BAD_INPUT, try_comm(comm, r->rank < 2 ? copy : half, WHOLEMEMORY_ML_HOST));
  }
  for (int rows = 192; rows < 210; rows += 8) {
    wm_kind table = {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"};
    for (int block = 0; block < 4; block += 3) {
      wm_rows e = wm_cached_make(comm, uneven, (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = rows, .columns = 4, .round_robin = block}, wm_caches[0], WHOLEMEMORY_AT_READONLY, 0.5f);
      wm_rows_fill(&e, wm_value, 0);
      for (int i = 0; i < 3; i++)
        wm_cached_gather(&e, (wm_draw){.ids = WHOLEMEMORY_DT_INT, .to = WHOLEMEMORY_DT_FLOAT, .count = 130, .seed = (uint64_t)i, .adjust = true}, "caches of different numbers of ranks");
      OK(wholememory_communicator_barrier(comm));
      wm_rows_drop(&e);
    }
  }
  OK(wholememory_destroy_communicator(copy));
  OK(wholememory_destroy_communicator(half));
  OK(wholememory_destroy_communicator(uneven));
}

/* A rank that fails alone leaves the others what they asked for. */
static void one_rank_fails(wm_rank* r, const wm_kind* table, wholememory_comm_t cache_comm, wm_cache_kind cache) {
  wholememory_comm_t comm = wm_world(r);
  wm_rows e = wm_cached_make(comm, cache_comm, (wm_rows_shape){.kind = *table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 200, .columns = 8}, cache, WHOLEMEMORY_AT_READONLY, 0.2f);
  wm_rows_fill(&e, wm_value, 0);
  for (int adjust = 0; adjust < 2; adjust++) {
    if (r->rank == r->size - 1) {
      wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 4, 1, 1, 0, 0}), wrong_ids = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 1, 4, 1, 1, 0, 0});
      wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 4, 8, 8, 0, 0}), narrow = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 4, 7, 8, 0, 0});
      wm_array few = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 3, 8, 8, 0, 0}), whole = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 4, 8, 8, 0, 0});
      wm_array_push(&ids);
      struct { wholememory_tensor_t ids, out; } wrong[] = {{NULL, out.tensor}, {ids.tensor, NULL}, {wrong_ids.tensor, out.tensor}, {ids.tensor, narrow.tensor},
                                                           {ids.tensor, few.tensor}, {ids.tensor, whole.tensor}, {out.tensor, out.tensor}};
      for (size_t i = 0; i < 7; i++) {
        wm_env env;
        wm_env_start(&env);
        EXPECT(BAD_INPUT, wholememory_embedding_gather(e.embedding, wrong[i].ids, wrong[i].out, adjust, &env.fns, 0));
        BALANCED(&env);
      }
      wm_array_matches(&out, "the output of a failed gather");
      wm_array* all[] = {&ids, &wrong_ids, &out, &narrow, &few, &whole};
      for (size_t i = 0; i < 6; i++) wm_array_drop(all[i]);
    } else {
      for (int i = 0; i < 7; i++)
        wm_cached_gather(&e, (wm_draw){.ids = WHOLEMEMORY_DT_INT64, .to = WHOLEMEMORY_DT_FLOAT, .count = 90, .seed = (uint64_t)i, .adjust = adjust}, "beside a rank that fails");
    }
  }
  OK(wholememory_communicator_barrier(comm));
  wm_rows_drop(&e);
}

/* The k-th block of scratch of one rank is refused, for every k there is: nobody waits, who fails has no rows, and what is read later
 * is right. */
static void refused_blocks(wm_rank* r, wholememory_comm_t comm, const wm_kind* table, wholememory_comm_t cache_comm, wm_cache_kind cache) {
  wm_rows e = wm_cached_make(comm, cache_comm, (wm_rows_shape){.kind = *table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 200, .columns = 8}, cache, WHOLEMEMORY_AT_READONLY, 0.2f);
  wm_rows_fill(&e, wm_value, 0);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 80, 1, 1, 0, 0});
  for (int64_t i = 0; i < 80; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)((i * i + 7 * e.rank) % 200));
  wm_array_push(&ids);
  for (int adjust = 0; adjust < 2; adjust++) {
    wm_env env;
    for (int k = 1; k <= MOST_BLOCKS; k++) {
      wm_env_start(&env);
      env.fail_at = r->rank == r->size - 1 ? k : 0;
      wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 80, 8, 8, 0, 0});
      int code = wholememory_embedding_gather(e.embedding, ids.tensor, out.tensor, adjust, &env.fns, 0);
      wm_finish();
      BALANCED(&env);
      /* Where a block only makes things faster (on GPUs), its refusal is no failure. */
      bool refused = env.fail_at && env.mallocs >= k;
      if (code != 0 || (refused && !wm_gpu())) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, code, __FILE__, __LINE__, "a cached gather beside refused scratch");
      if (k == MOST_BLOCKS) CHECK(!refused);
      /* Through a cache apart hits are there before rows are exchanged, which a DISTRIBUTED table's may be. */
      bool at_once = cache_comm == comm || table->type != WHOLEMEMORY_MT_DISTRIBUTED;
      if (code != 0 && at_once) wm_array_matches(&out, "the output of a cached gather beside refused scratch");
      wm_array_drop(&out);
      OK(wholememory_communicator_barrier(comm));
    }
    wm_cached_gather(&e, (wm_draw){.ids = WHOLEMEMORY_DT_INT, .to = WHOLEMEMORY_DT_FLOAT, .count = 120, .seed = 5, .adjust = adjust}, "after refused scratch");
  }
  wm_array_drop(&ids);
  OK(wholememory_communicator_barrier(comm));
  wm_rows_drop(&e);
}

/* A cache that may not be changed is not trained. */
static void untrainable(wm_rank* r, wholememory_comm_t other) {
  wm_kind table = {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"};
  wm_rows_shape shape = {.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 90, .columns = 4};
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_SGD));
  for (int i = 0; i < 3; i++) {
    wm_rows e = i == 2 ? wm_cached_make(wm_world(r), other, shape, wm_caches[1], WHOLEMEMORY_AT_READONLY, 0.5f)
                       : wm_cached_make(wm_world(r), wm_world(r), shape, wm_caches[2], i, 0.5f);
    EXPECT(BAD_INPUT, wholememory_embedding_set_optimizer(e.embedding, made));
    CHECK_HAS(wholememory_get_last_error(), "READWRITE");
    wm_rows_drop(&e);
  }
  wholememory_destroy_embedding_optimizer(made);
}

/* The communicator of a cache apart goes first: the embedding cannot be read any more, and can be destroyed. */
static void cache_first(wm_rank* r) {
  wholememory_comm_t alone;
  OK(wholememory_split_communicator(&alone, wm_world(r), r->rank, 0));
  wm_kind table = {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, "DISTRIBUTED HOST"};
  wm_rows e = wm_cached_make(wm_world(r), alone, (wm_rows_shape){.kind = table, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 90, .columns = 4}, wm_caches[1], WHOLEMEMORY_AT_READONLY, 0.5f);
  wm_rows_fill(&e, wm_value, 0);
  wm_cached_gather(&e, (wm_draw){.ids = WHOLEMEMORY_DT_INT, .to = WHOLEMEMORY_DT_FLOAT, .count = 70, .adjust = true}, "before the cache's communicator goes");
  OK(wholememory_communicator_barrier(wm_world(r)));
  OK(wholememory_destroy_communicator(alone));
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 4, 1, 1, 0, 0}), out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 4, 4, 4, 0, 0});
  wm_array_push(&ids);
  for (int adjust = 0; adjust < 2; adjust++) EXPECT(BAD_INPUT, wholememory_embedding_gather(e.embedding, ids.tensor, out.tensor, adjust, NULL, 0));
  EXPECT(BAD_INPUT, wholememory_embedding_drop_all_cache(e.embedding, 0));
  wholememory_cache_stats_t stats = {.struct_size = sizeof stats};
  EXPECT(BAD_INPUT, wholememory_embedding_get_cache_stats(e.embedding, &stats));
  wm_array_matches(&out, "the output of a failed gather");
  wm_array_drop(&ids);
  wm_array_drop(&out);
  OK(wholememory_communicator_barrier(wm_world(r)));
  wm_rows_drop(&e);
}

/* The same where rows are exchanged. */
static void exchanged(wm_rank* r) {
  if (!r->threads || r->rank == 0) setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  wm_meet(r);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  wm_meet(r);
  if (!r->threads || r->rank == 0) unsetenv("WHOLEMEMORY_ROUTE");
  wm_meet(r);
  for (int k = 0; k < WM_KINDS; k++)
    if (wm_kinds[k].type != WHOLEMEMORY_MT_HIERARCHY && wm_kind_here(r, comm, &wm_kinds[k])) refused_blocks(r, comm, &wm_kinds[k], comm, wm_caches[2]);
  OK(wholememory_destroy_communicator(comm));
}

static void body(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r), pairs = wm_pairs(r);
  fits(r, pairs);
  whose_caches(r);
  for (int k = 0; k < WM_KINDS; k++) {
    if (wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY || !wm_kind_here(r, comm, &wm_kinds[k])) continue;
    one_rank_fails(r, &wm_kinds[k], comm, wm_caches[2]);
    one_rank_fails(r, &wm_kinds[k], pairs, wm_caches[1]);
    refused_blocks(r, comm, &wm_kinds[k], comm, wm_caches[2]);
    refused_blocks(r, comm, &wm_kinds[k], pairs, wm_caches[1]);
  }
  exchanged(r);
  untrainable(r, pairs);
  cache_first(r);
  OK(wholememory_destroy_communicator(pairs));
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
