/* Calls of a rank on several streams that nothing else orders, ranks that come late, nobody waiting in between: what was written
 * before is read, and what is read later is not overwritten. */
#include <stdio.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

enum { STREAMS = 3, TURNS = 24, ROWS = 3000, COLUMNS = 16, COUNT = 400, NON_BLOCKING = 1 };

static int (*stream_create)(void**, unsigned);
static int (*stream_destroy)(void*);
static int (*stream_synchronise)(void*);

/* Several ranks with GPUs of their own, and no communicator of other threads: they meet in the order of streams. One rank meets nobody,
 * others meet on the host, where an owner's stream also reads for others: then streams are the caller's to order. */
static bool meets_on_streams(const wm_rank* r, wholememory_comm_t comm) {
  return r->size > 1 && wm_gpus() >= r->size && wholememory_communicator_support_type_location(comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_DEVICE) == 0;
}

static void turns(wm_rank* r, const wm_kind* kind) {
  wholememory_comm_t comm = wm_world(r);
  wm_table t = wm_table_make(comm, (wm_shape){.kind = *kind, .dtype = WHOLEMEMORY_DT_INT, .rows = ROWS, .columns = COLUMNS, .stride = COLUMNS});
  const bool orders = !meets_on_streams(r, comm);
  const int64_t own = ROWS / r->size, first = own * r->rank;
  void* streams[STREAMS];
  wm_array in[TURNS], out[TURNS];
  wm_array mine = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, own, 1, 1, 0, 0}), wanted = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT, 1, 1, 0, 0});
  for (int64_t i = 0; i < own; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&mine, i, 0), (uint64_t)(first + i));
  for (int64_t i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&wanted, i, 0), wm_hash((uint64_t)i, (uint64_t)r->rank) % (uint64_t)(own * r->size));
  wm_array_push(&mine);
  wm_array_push(&wanted);
  for (int turn = 0; turn < TURNS; turn++) {
    in[turn] = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, own, COLUMNS, COLUMNS, 0, 0});
    out[turn] = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
    for (int64_t i = 0; i < own; i++)
      for (int64_t c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&in[turn], i, c), wm_value(WHOLEMEMORY_DT_INT, first + i, c, turn));
    wm_array_push(&in[turn]);
    wm_array_push(&out[turn]);
  }
  for (int s = 0; s < STREAMS; s++) REQUIRE(stream_create(&streams[s], NON_BLOCKING) == 0);
  wm_finish();
  wm_meet(r);
  for (int turn = 0; turn < TURNS; turn++) {
    if (wm_hash((uint64_t)turn, (uint64_t)r->rank) % 3 == 0) usleep(3000);
    EXPECT(0, wholememory_scatter(in[turn].tensor, mine.tensor, t.window, NULL, streams[turn % STREAMS], -1));
    if (orders) wm_finish();
    EXPECT(0, wholememory_communicator_barrier(comm));
    for (int again = 1; again < STREAMS; again++) {
      if (wm_hash((uint64_t)(turn + again), (uint64_t)r->rank) % 5 == 0) usleep(2000);
      EXPECT(0, wholememory_gather(t.window, wanted.tensor, out[turn].tensor, NULL, streams[(turn + again) % STREAMS], -1));
      if (orders) CHECK_EQ(stream_synchronise(streams[(turn + again) % STREAMS]), 0);
    }
    if (orders) EXPECT(0, wholememory_communicator_barrier(comm));
  }
  for (int s = 0; s < STREAMS; s++) CHECK_EQ(stream_synchronise(streams[s]), 0);
  char what[100];
  for (int turn = 0; turn < TURNS; turn++) {
    for (int64_t i = 0; i < COUNT; i++)
      for (int64_t c = 0; c < COLUMNS; c++)
        wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&out[turn], i, c), wm_value(WHOLEMEMORY_DT_INT, (int64_t)wm_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&wanted, i, 0)), c, turn));
    snprintf(what, sizeof what, "turn %d of gathers from %s", turn, kind->name);
    wm_array_matches(&out[turn], what);
    wm_array_drop(&in[turn]);
    wm_array_drop(&out[turn]);
  }
  for (int s = 0; s < STREAMS; s++) CHECK_EQ(stream_destroy(streams[s]), 0);
  wm_array_drop(&mine);
  wm_array_drop(&wanted);
  OK(wholememory_communicator_barrier(comm));
  wm_table_drop(&t);
}

static void body(wm_rank* r) {
  if (!wm_gpu()) SKIP(r, "there are no streams without a GPU");
  *(void**)&stream_create = wm_driver_function("cuStreamCreate");
  *(void**)&stream_destroy = wm_driver_function("cuStreamDestroy_v2");
  *(void**)&stream_synchronise = wm_driver_function("cuStreamSynchronize");
  for (int k = 0; k < WM_KINDS; k++) {
    const wm_kind* kind = &wm_kinds[k];
    if (kind->type != WHOLEMEMORY_MT_DISTRIBUTED || !wm_kind_here(r, wm_world(r), kind)) continue;
    turns(r, kind);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
