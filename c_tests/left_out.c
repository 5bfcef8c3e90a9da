/* A rank that leaves out a gather or scatter which the others make: all learn it where they meet on the host next, the missing call can
 * still be made, and finalize waits for nobody in vain. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "table.h"

enum { ROWS = 50, COLUMNS = 8, COUNT = 20, LATE_US = 300000, LOGIC = WHOLEMEMORY_LOGIC_ERROR, BROKEN = WHOLEMEMORY_COMMUNICATION_ERROR };

static bool forgets(const wm_rank* r) { return r->rank == r->size - 1; }

typedef struct { wholememory_comm_t comm; wm_table table; wm_array ids, rows; } asked;

static asked ask(wm_rank* r) {
  asked a;
  OK(wholememory_create_communicator(&a.comm, wm_fresh_id(r), r->rank, r->size));
  a.table = wm_table_make(a.comm, (wm_shape){.kind = {WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE, "DISTRIBUTED DEVICE"}, .dtype = WHOLEMEMORY_DT_INT, .rows = ROWS, .columns = COLUMNS, .stride = COLUMNS});
  a.ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT, 1, 1, 0, 0});
  a.rows = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int64_t i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&a.ids, i, 0), wm_hash((uint64_t)i, (uint64_t)r->rank) % ROWS);
  wm_array_push(&a.ids);
  wm_array_push(&a.rows);
  wm_finish();
  wm_meet(r);
  return a;
}

static int gather(asked* a) { return wholememory_gather(a->table.window, a->ids.tensor, a->rows.tensor, NULL, NULL, -1); }

static void told(int code) {
  CHECK_EQ(code, LOGIC);
  CHECK_HAS(wholememory_get_last_error(), "rank");
}

/* Where streams meet the gather itself cannot know yet. */
static void told_and_made_good(wm_rank* r) {
  asked a = ask(r);
  int done = -1;
  if (!forgets(r)) done = gather(&a);
  if (forgets(r) || done == 0) {
    told(wholememory_communicator_barrier(a.comm));
    if (done == 0) CHECK_HAS(wholememory_get_last_error(), "left out");
  } else {
    told(done);
  }
  wm_share(r, &done, sizeof done);
  if (done == 0) {
    told(wholememory_free(a.table.handle));
    told(wholememory_destroy_communicator(a.comm));
    if (forgets(r)) EXPECT(0, gather(&a));
  }
  EXPECT(0, wholememory_communicator_barrier(a.comm));
  EXPECT(0, gather(&a));
  wm_finish();
  for (int64_t i = 0; i < COUNT; i++)
    for (int64_t c = 0; c < COLUMNS; c++)
      wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&a.rows, i, c), wm_value(WHOLEMEMORY_DT_INT, (int64_t)wm_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&a.ids, i, 0)), c, 0));
  wm_array_matches(&a.rows, "the rows of the last gather");
  wm_array_drop(&a.ids);
  wm_array_drop(&a.rows);
  wm_table_drop(&a.table);
  OK(wholememory_destroy_communicator(a.comm));
}

/* A scatter waits for its stream: where streams meet, its ranks do not come to where the last one waits for them. */
static void scattered(wm_rank* r) {
  asked a = ask(r);
  wm_array none = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 0, 1, 1, 0, 0}), nothing = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 0, COLUMNS, COLUMNS, 0, 0});
  double begun = wm_now();
  int code;
  if (forgets(r)) code = wholememory_communicator_barrier(a.comm);
  else code = wholememory_scatter(nothing.tensor, none.tensor, a.table.window, NULL, NULL, -1);
  CHECK(code == LOGIC || code == BROKEN);
  CHECK_HAS(wholememory_get_last_error(), "rank");
  if (code == BROKEN) CHECK_HAS(wholememory_get_last_error(), "left out");
  CHECK(wm_now() - begun < 15);
  wm_finish();
  wm_meet(r);
  EXPECT(code == BROKEN ? BROKEN : 0, wholememory_destroy_communicator(a.comm));
  wm_array_drop(&none);
  wm_array_drop(&nothing);
  wm_array_drop(&a.ids);
  wm_array_drop(&a.rows);
  wm_table_drop(&a.table);
}

/* Where streams meet, gathers wait for a call that never comes; on the host they fail when the last rank leaves, or does something else. */
static void finalized(wm_rank* r) {
  asked a = ask(r);
  int code;
  if (!forgets(r)) {
    code = gather(&a);
    CHECK(code == 0 || code == BROKEN || code == LOGIC || (r->threads && code == WHOLEMEMORY_INVALID_INPUT));
    if (!r->threads) EXPECT(0, wholememory_finalize());
  } else if (r->threads) {
    usleep(LATE_US);
    EXPECT(0, wholememory_finalize());
  } else {
    code = wholememory_communicator_barrier(a.comm);
    CHECK(code == BROKEN || code == LOGIC);
    EXPECT(0, wholememory_finalize());
  }
  wm_meet(r);
  wm_finish();
  EXPECT(WHOLEMEMORY_INVALID_INPUT, wholememory_communicator_barrier(a.comm));
  wm_table_drop(&a.table);
  wm_array_drop(&a.ids);
  wm_array_drop(&a.rows);
  wm_meet(r);
}

static void body(wm_rank* r) {
  if (r->size < 2) SKIP(r, "needs two ranks or more");
  if (!r->threads || r->rank == 0) OK(wholememory_init(0, LEVEL_WARN));
  wm_meet(r);
  for (int round = 0; round < 3; round++) told_and_made_good(r);
  scattered(r);
  for (int round = 0; round < 3; round++) finalized(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_NO_INIT); }
