/* Few descriptors: communicators until there are none left. All ranks are refused alike, the refusal keeps none, and what
 * exists goes on working. */
#include <string.h>
#include <sys/resource.h>

#include "table.h"

enum { LIMIT = 64, MOST = 200, ROUNDS = 1000 };

/* Rank 0 makes the id, which may itself be refused. */
static int try_create(wm_rank* r, wholememory_comm_t* comm) {
  struct { int code; wholememory_unique_id_t id; } made;
  memset(&made, 0, sizeof made);
  if (r->rank == 0) made.code = (int)wholememory_create_unique_id(&made.id);
  wm_share(r, &made, sizeof made);
  WM_AT; /* the place to be named, should a rank be left waiting in create */
  return made.code ? made.code : (int)wholememory_create_communicator(comm, made.id, r->rank, r->size);
}

static void until_refused(wm_rank* r, bool all_limited) {
  struct rlimit before, limited;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  limited = before;
  limited.rlim_cur = LIMIT;
  /* One rank alone is enough to refuse all. */
  if (all_limited || r->rank == r->size - 1) REQUIRE(setrlimit(RLIMIT_NOFILE, &limited) == 0);
  wholememory_comm_t comms[MOST];
  int made = 0, code = 0;
  for (; made < MOST; made++) {
    comms[made] = NULL;
    int held = wm_holdings_now().descriptors;
    code = try_create(r, &comms[made]);
    if (code) {
      CHECK(comms[made] == NULL);
      wm_meet(r);
      CHECK(wm_descriptors_within(held) <= held);
      break;
    }
  }
  int codes[2] = {code, made};
  wm_share(r, codes, sizeof codes);
  CHECK_EQ(code, WHOLEMEMORY_SYSTEM_ERROR);
  CHECK_EQ(code, codes[0]);
  CHECK_EQ(made, codes[1]);
  REQUIRE(made > 0);
  if (r->rank != 0 || code) CHECK(*wholememory_get_last_error() != 0);
  /* The refusal left the others whole. */
  for (int i = 0; i < made; i++) OK(wholememory_communicator_barrier(comms[i]));
  /* One fewer, so that memory has a descriptor to be made with. */
  for (int i = 1; i <= 2 && made > 1; i++) OK(wholememory_destroy_communicator(comms[--made]));
  int held = wm_holdings_now().descriptors;
  for (int i = 0; i < ROUNDS; i++) {
    const wm_kind* k = &wm_kinds[i % WM_KINDS];
    if (wholememory_communicator_support_type_location(comms[0], k->type, k->location)) continue;
    wholememory_handle_t handle;
    OK(wholememory_malloc(&handle, 4096, comms[0], k->type, k->location, 16, NULL));
    OK(wholememory_free(handle));
    if (i % 100 == 99) CHECK(wm_holdings_now().descriptors <= held + 4); /* the pair of HIERARCHY stays with its parent */
  }
  while (made > 0) OK(wholememory_destroy_communicator(comms[--made]));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void body(wm_rank* r) {
  if (r->mpi) SKIP(r, "MPI needs descriptors of its own");
  until_refused(r, true);
  until_refused(r, false);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
