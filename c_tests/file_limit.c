/* A limit on the size of files (ulimit -f): memory files count as files, and growing one past the limit would end the
 * process by SIGXFSZ. Every call that needs a larger one is refused on all ranks, whoever has the limit. */
#include <string.h>
#include <sys/resource.h>

#include "device.h"
#include "table.h"

enum { NO_ROOM = WHOLEMEMORY_OUT_OF_MEMORY };

static void limited(wm_rank* r, int who) {
  struct rlimit before, small;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  small = before;
  small.rlim_cur = 1000;
  wholememory_comm_t world = wm_world(r), comm = NULL;
  wholememory_handle_t handle = NULL;
  wholememory_unique_id_t id = wm_fresh_id(r);
  if (r->rank == who) REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  wm_meet(r);
  for (int i = 0; i < WM_KINDS; i++) {
    /* Memory of GPUs is no file; but for the first table of HIERARCHY rank 0 makes what the ranks of a host meet in. */
    const bool pairs = wm_kinds[i].type == WHOLEMEMORY_MT_HIERARCHY && who == 0;
    const bool of_gpu = wm_gpu() && wm_kinds[i].location == WHOLEMEMORY_ML_DEVICE && !pairs;
    EXPECT(of_gpu ? 0 : NO_ROOM, wholememory_malloc(&handle, 8192, world, wm_kinds[i].type, wm_kinds[i].location, 16, NULL));
    CHECK((handle != NULL) == of_gpu);
    if (handle) OK(wholememory_free(handle));
    handle = NULL;
  }
  /* Rank 0 makes what ranks meet in. */
  int expected = who == 0 ? NO_ROOM : 0;
  int code = (int)wholememory_create_communicator(&comm, id, r->rank, r->size);
  CHECK_EQ(code, expected);
  if (code == 0) OK(wholememory_destroy_communicator(comm));
  comm = NULL;
  code = (int)wholememory_split_communicator(&comm, world, 0, r->rank);
  CHECK_EQ(code, expected);
  CHECK((comm != NULL) == (code == 0));
  if (comm) OK(wholememory_destroy_communicator(comm));
  if (expected) CHECK(strstr(wholememory_get_last_error(), "ulimit -f") != NULL);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  wm_meet(r);
  OK(wholememory_malloc(&handle, 8192, world, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, 16, NULL));
  OK(wholememory_free(handle));
}

static void body(wm_rank* r) {
  if (r->mpi) SKIP(r, "MPI writes files of its own");
  if (r->size < 2) SKIP(r, "one rank meets nobody");
  for (int who = 0; who < r->size; who++) limited(r, who);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
