/* Every route that can be forced, and two nodes: the same rows whichever way they travel, and a rank whose call is
 * refused takes part with nothing, so that the others get theirs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

/* Ranks that are threads share one environment: one of them changes it while nobody reads. */
static void set_for_all(wm_rank* r, const char* name, const char* value) {
  wm_meet(r);
  if (!r->threads || r->rank == 0) value ? setenv(name, value, 1) : unsetenv(name);
  wm_meet(r);
}

static void refused_rank(wm_rank* r, wm_table* t, int who) {
  bool exchanged = t->shape.kind.type == WHOLEMEMORY_MT_DISTRIBUTED || t->shape.kind.type == WHOLEMEMORY_MT_HIERARCHY;
  for (int scatter = 0; scatter < 2; scatter++) {
    if (r->rank != who % r->size) {
      wm_lookup l = {.index_dtype = WHOLEMEMORY_DT_INT64, .user_dtype = t->shape.dtype, .count = 40, .bad_ids = true, .seed = who};
      if (!scatter) wm_gather_check(t, l);
    } else if (!scatter) {
      wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 7, 1, 1, 0, 0});
      wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 7, t->shape.columns, t->shape.columns, 0, 0});
      memset(wm_array_at(&ids, 0, 0), 0, 28);
      wm_array_push(&ids);
      wm_env env;
      wm_env_start(&env);
      EXPECT(WHOLEMEMORY_LOGIC_ERROR, wholememory_gather(t->window, ids.tensor, out.tensor, &env.fns, NULL, -1));
      BALANCED(&env);
      wm_array_matches(&out, "output of a refused gather");
      wm_array_drop(&ids);
      wm_array_drop(&out);
    }
    /* The refused rank's own rows are still served: all ranks compare them after a scatter by all but one. */
    if (scatter && exchanged) {
      wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 1, 1, 1, 0, 0});
      wm_array in = wm_array_make((wm_view){t->shape.dtype, 2, 1, t->shape.columns, t->shape.columns, 0, 0});
      wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, 0, 0), (uint64_t)r->rank);
      for (int64_t c = 0; c < t->shape.columns; c++)
        wm_set_bits(t->shape.dtype, wm_array_at(&in, 0, c), wm_value(t->shape.dtype, r->rank, t->shape.first_column + c, 5));
      wm_array_push(&ids);
      wm_array_push(&in);
      bool refused = r->rank == who % r->size;
      if (refused) wholememory_tensor_get_tensor_description(ids.tensor)->dtype = WHOLEMEMORY_DT_FLOAT;
      EXPECT(refused ? WHOLEMEMORY_LOGIC_ERROR : 0, wholememory_scatter(in.tensor, ids.tensor, t->window, NULL, NULL, -1));
      wm_finish();
      OK(wholememory_communicator_barrier(t->comm));
      unsigned char* host;
      int64_t first, own = wm_table_local(t, &host, &first);
      for (int64_t i = 0; i < own; i++) {
        int64_t row = first + i;
        int salt = row < r->size && row != who % r->size ? 5 : 0;
        uint64_t got = wm_bits(t->shape.dtype, host + (size_t)(i * t->shape.stride + t->shape.first_column) * wm_bytes_of(t->shape.dtype));
        if (!CHECK_EQ(got, wm_value(t->shape.dtype, row, t->shape.first_column, salt))) break;
      }
      free(host);
      OK(wholememory_communicator_barrier(t->comm));
      wm_table_fill(t, 0);
      wm_array_drop(&ids);
      wm_array_drop(&in);
    }
  }
}

static void all_operations(wm_rank* r, wholememory_comm_t comm, const wm_kind* k) {
  const int64_t rows[] = {57, 3, 0};
  for (int i = 0; i < 3; i++) {
    int64_t first_column = rows[i] ? 2 : 0; /* a table without rows has no windows */
    wm_table t = wm_table_make(comm, (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = rows[i], .columns = 7, .first_column = first_column, .stride = 12});
    for (int wide = 0; wide < 2; wide++) {
      wm_lookup l = {.index_dtype = wide ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_HALF,
                     .count = 200 * (r->rank % 3), .bad_ids = true, .pad = 2, .user_offset = 1, .index_offset = 3, .seed = 9 + i};
      wm_gather_check(&t, l);
      wm_scatter_check(&t, l);
    }
    if (rows[i] > r->size) refused_rank(r, &t, 0);
    if (rows[i] > r->size) refused_rank(r, &t, r->size - 1);
    wm_table_drop(&t);
  }
  wm_table t = wm_table_make(comm, (wm_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_INT64, .dim = 1, .rows = 5000});
  /* Every rank asks for the same rows over and over: what a node may fetch once. */
  wm_gather_check(&t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_INT, .count = 9000, .seed = 2 - r->rank * 64});
  wm_scatter_check(&t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT64, .user_dtype = WHOLEMEMORY_DT_INT16});
  wm_table_drop(&t);
}

static void under(wm_rank* r, const char* route) {
  set_for_all(r, "WHOLEMEMORY_ROUTE", route);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  for (int k = 0; k < WM_KINDS; k++) {
    bool ours = wm_kinds[k].type == WHOLEMEMORY_MT_DISTRIBUTED || wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY;
    if (ours && wm_kind_here(r, comm, &wm_kinds[k])) all_operations(r, comm, &wm_kinds[k]);
  }
  OK(wholememory_destroy_communicator(comm));
}

/* Pairs of ranks call at once, each on its own communicator and all on the default stream, which those that are threads on one GPU
 * share: no pair may stand in the other's way. */
static void pairs_at_once(wm_rank* r) {
  enum { CALLS = 24, IDS = 60, ROWS = 300, COLUMNS = 5 };
  wholememory_comm_t pair = NULL;
  /* One after the other, so that the first may meet on streams. */
  for (int turn = 0; turn < 2; turn++) {
    wholememory_comm_t made = NULL;
    OK(wholememory_split_communicator(&made, wm_world(r), r->rank / 2 == turn ? 0 : WHOLEMEMORY_SPILT_NO_COLOR, r->rank));
    if (r->rank / 2 == turn) pair = made;
  }
  REQUIRE(pair != NULL);
  for (int k = 0; k < WM_KINDS; k++) {
    /* All pairs have what all ranks have. */
    if (!wm_kind_here(r, wm_world(r), &wm_kinds[k]) || !wm_kind_here(r, pair, &wm_kinds[k])) continue;
    wm_table t = wm_table_make(pair, (wm_shape){.kind = wm_kinds[k], .dtype = WHOLEMEMORY_DT_FLOAT, .dim = 2, .rows = ROWS, .columns = COLUMNS, .stride = COLUMNS});
    wm_array ids[CALLS], out[CALLS];
    for (int i = 0; i < CALLS; i++) {
      ids[i] = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, IDS, 1, 1, 0, 0});
      out[i] = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, IDS, COLUMNS, COLUMNS, 0, 0});
      for (int n = 0; n < IDS; n++) {
        int64_t row = (int64_t)(wm_hash((uint64_t)(i * IDS + n), (uint64_t)r->rank) % ROWS);
        wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids[i], n, 0), (uint64_t)row);
        for (int c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&out[i], n, c), wm_value(WHOLEMEMORY_DT_FLOAT, row, c, 0));
      }
      wm_array_push(&ids[i]);
    }
    wm_finish();
    wm_meet(r);
    for (int i = 0; i < CALLS; i++) {
      /* Now the one pair is first on one GPU and the other on the other, now the other way round. */
      if ((i / 3 + r->rank / 2 + r->rank) % 2) usleep(200);
      EXPECT(0, wholememory_gather(t.window, ids[i].tensor, out[i].tensor, NULL, NULL, -1));
    }
    wm_finish();
    for (int i = 0; i < CALLS; i++) {
      wm_array_matches(&out[i], "a gather of a pair");
      wm_array_drop(&ids[i]);
      wm_array_drop(&out[i]);
    }
    OK(wholememory_communicator_barrier(pair));
    wm_table_drop(&t);
  }
  OK(wholememory_destroy_communicator(pair));
}

static void body(wm_rank* r) {
  if (r->size == 4) pairs_at_once(r);
  const char* const routes[] = {"auto", "direct", "exchange"};
  for (int i = 0; i < 3; i++) under(r, routes[i]);
  if (!r->threads && r->size > 1) {
    /* Ranks that were told different routes. */
    setenv("WHOLEMEMORY_ROUTE", r->rank == 0 ? "exchange" : "direct", 1);
    wholememory_comm_t comm = NULL;
    EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
    CHECK_HAS(wholememory_get_last_error(), "exchange");
    CHECK_HAS(wholememory_get_last_error(), "direct");
    CHECK(comm == NULL);
    for (int interleaved = 0; interleaved < 2 && r->size % 2 == 0; interleaved++) {
      bool second = interleaved ? r->rank % 2 : r->rank >= r->size / 2;
      setenv("WHOLEMEMORY_BOOTID", second ? "second" : "first", 1);
      under(r, "auto");
      under(r, "exchange");
    }
    unsetenv("WHOLEMEMORY_BOOTID");
  }
  set_for_all(r, "WHOLEMEMORY_ROUTE", NULL);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
