/* Two nodes, faked by WHOLEMEMORY_BOOTID: grouping, capabilities, the communicators of HIERARCHY. */
#include <stdlib.h>
#include <string.h>

#include "table.h"

static void body(wm_rank* r) {
  if (r->size < 2) SKIP(r, "needs two ranks or more");
  int node = r->rank >= r->size / 2, on_node = node ? r->size - r->size / 2 : r->size / 2;
  setenv("WHOLEMEMORY_BOOTID", node ? "second" : "first", 1);
  wholememory_comm_t comm = wm_world(r), local, cross;
  int got;
  OK(wholememory_communicator_get_local_size(&got, comm));
  CHECK_EQ(got, on_node);
  CHECK(!wholememory_is_intranode_communicator(comm));
  const bool equal = r->size % 2 == 0;
  for (int k = 0; k < WM_KINDS; k++) {
    bool may = wm_kinds[k].type == WHOLEMEMORY_MT_DISTRIBUTED || (wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY && equal);
    EXPECT(may ? 0 : WHOLEMEMORY_NOT_SUPPORTED,
           wholememory_communicator_support_type_location(comm, wm_kinds[k].type, wm_kinds[k].location));
    wholememory_handle_t handle = NULL;
    EXPECT(may ? 0 : WHOLEMEMORY_NOT_SUPPORTED,
           wholememory_malloc(&handle, 1024, comm, wm_kinds[k].type, wm_kinds[k].location, 16, NULL));
    CHECK_EQ(handle != NULL, may);
    if (!handle) continue;
    bool hierarchy = wm_kinds[k].type == WHOLEMEMORY_MT_HIERARCHY;
    local = cross = comm;
    EXPECT(hierarchy ? 0 : WHOLEMEMORY_NOT_SUPPORTED, wholememory_get_local_communicator(&local, handle));
    EXPECT(hierarchy ? 0 : WHOLEMEMORY_NOT_SUPPORTED, wholememory_get_cross_communicator(&cross, handle));
    if (!hierarchy) {
      CHECK(local == comm && cross == comm);
    } else {
      OK(wholememory_communicator_get_size(&got, local));
      CHECK_EQ(got, on_node);
      OK(wholememory_communicator_get_rank(&got, local));
      CHECK_EQ(got, r->rank % on_node);
      OK(wholememory_communicator_get_size(&got, cross));
      CHECK_EQ(got, 2);
      OK(wholememory_communicator_get_rank(&got, cross));
      CHECK_EQ(got, node);
      /* One pair a parent, owned by it. */
      wholememory_handle_t other;
      wholememory_comm_t other_local, other_cross;
      OK(wholememory_malloc(&other, 1024, comm, wm_kinds[k].type, wm_kinds[k].location, 16, NULL));
      OK(wholememory_get_local_communicator(&other_local, other));
      OK(wholememory_get_cross_communicator(&other_cross, other));
      CHECK(other_local == local && other_cross == cross);
      OK(wholememory_free(other));
      EXPECT(WHOLEMEMORY_INVALID_INPUT, wholememory_destroy_communicator(local));
      EXPECT(WHOLEMEMORY_INVALID_INPUT, wholememory_destroy_communicator(cross));
      OK(wholememory_communicator_barrier(local));
      OK(wholememory_communicator_barrier(cross));
    }
    OK(wholememory_free(handle));
  }
  /* A split of one node is a node of its own, with all kinds. */
  OK(wholememory_split_communicator(&local, comm, node, 0));
  CHECK(wholememory_is_intranode_communicator(local));
  for (int k = 0; k < WM_KINDS; k++)
    EXPECT(0, wholememory_communicator_support_type_location(local, wm_kinds[k].type, wm_kinds[k].location));
  OK(wholememory_destroy_communicator(local));
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
