/* Communicators: what they report, splits, backends, barriers, many at once, many in turn, two in any order. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, BAD_VALUE = WHOLEMEMORY_INVALID_VALUE };

static void check_members(wholememory_comm_t comm, int rank, int size) {
  int got = -7;
  EXPECT(0, wholememory_communicator_get_rank(&got, comm));
  CHECK_EQ(got, rank);
  EXPECT(0, wholememory_communicator_get_size(&got, comm));
  CHECK_EQ(got, size);
  EXPECT(0, wholememory_communicator_barrier(comm));
}

static void reports(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  check_members(comm, r->rank, r->size);
  int local = 0;
  EXPECT(0, wholememory_communicator_get_local_size(&local, comm));
  CHECK_EQ(local, r->size);
  CHECK(wholememory_is_intranode_communicator(comm));
  clique_info_t clique;
  memset(&clique, 0x55, sizeof clique);
  EXPECT(0, wholememory_communicator_get_clique_info(&clique, comm));
  if (!clique.is_in_clique) {
    CHECK(clique.clique_id == 0 && clique.clique_num == 1);
    CHECK(!wholememory_is_intra_mnnvl_communicator(comm));
  }
  CHECK(!wholememory_communicator_is_bind_to_nvshmem(comm));
  CHECK(!wholememory_is_build_with_nvshmem());

  /* Answers are SUCCESS or NOT_SUPPORTED, and malloc does what they say. */
  for (int type = -1; type <= 5; type++)
    for (int location = -1; location <= 3; location++) {
      int code = wholememory_communicator_support_type_location(comm, (wholememory_memory_type_t)type,
                                                               (wholememory_memory_location_t)location);
      bool known = type >= 1 && type <= 4 && location >= 1 && location <= 2;
      if (!known) CHECK_EQ(code, WHOLEMEMORY_NOT_SUPPORTED);
      wholememory_handle_t handle = NULL;
      int made = wholememory_malloc(&handle, 64, comm, (wholememory_memory_type_t)type,
                                    (wholememory_memory_location_t)location, 16, NULL);
      CHECK_EQ(made, known ? code : BAD_VALUE);
      CHECK_EQ(handle != NULL, made == 0);
      if (handle) EXPECT(0, wholememory_free(handle));
    }
  EXPECT(BAD_INPUT, wholememory_communicator_support_type_location(NULL, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST));
}

static void backends(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  CHECK_EQ(wholememory_communicator_get_distributed_backend(comm), WHOLEMEMORY_DB_NCCL);
  EXPECT(0, wholememory_communicator_set_distributed_backend(comm, WHOLEMEMORY_DB_NCCL));
  EXPECT(WHOLEMEMORY_NOT_SUPPORTED, wholememory_communicator_set_distributed_backend(comm, WHOLEMEMORY_DB_NVSHMEM));
  EXPECT(BAD_VALUE, wholememory_communicator_set_distributed_backend(comm, WHOLEMEMORY_DB_NONE));
  EXPECT(BAD_VALUE, wholememory_communicator_set_distributed_backend(comm, (wholememory_distributed_backend_t)99));
  wholememory_handle_t handle;
  OK(wholememory_malloc(&handle, 256, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL));
  EXPECT(WHOLEMEMORY_LOGIC_ERROR, wholememory_communicator_set_distributed_backend(comm, WHOLEMEMORY_DB_NCCL));
  OK(wholememory_free(handle));
  EXPECT(0, wholememory_communicator_set_distributed_backend(comm, WHOLEMEMORY_DB_NCCL));
  CHECK_EQ(wholememory_communicator_get_distributed_backend(comm), WHOLEMEMORY_DB_NCCL);
}

static void splits(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r), half, none, back;
  /* Two colours, ranks in reverse order. */
  OK(wholememory_split_communicator(&half, comm, r->rank % 2, -r->rank));
  int members = (r->size - r->rank % 2 + 1) / 2;
  check_members(half, members - 1 - r->rank / 2, members);
  /* A child is a communicator like any other: memory, splits of its own. */
  wm_table t = wm_table_make(half, (wm_shape){.kind = wm_kinds[5], .dtype = WHOLEMEMORY_DT_INT64, .rows = 9, .columns = 3});
  wm_gather_check(&t, (wm_lookup){.index_dtype = WHOLEMEMORY_DT_INT, .user_dtype = WHOLEMEMORY_DT_INT64, .count = 12});
  wm_table_drop(&t);
  OK(wholememory_split_communicator(&back, half, 5, 0));
  check_members(back, members - 1 - r->rank / 2, members);
  OK(wholememory_destroy_communicator(back));
  /* Equal keys keep the parent's order; rank 0 stays out. */
  none = comm;
  OK(wholememory_split_communicator(&none, comm, r->rank == 0 ? WHOLEMEMORY_SPILT_NO_COLOR : 1000000, 3));
  CHECK_EQ(none == NULL, r->rank == 0);
  if (none) {
    check_members(none, r->rank - 1, r->size - 1);
    OK(wholememory_destroy_communicator(none));
  }
  none = comm;
  EXPECT(BAD_VALUE, wholememory_split_communicator(&none, comm, -2, 0));
  /* One bad colour: an error for all, and the parent goes on. */
  EXPECT(BAD_VALUE, wholememory_split_communicator(&none, comm, r->rank == r->size - 1 ? -5 : 0, 0));
  if (r->size > 1) CHECK_HAS(wholememory_get_last_error(), "-5");
  EXPECT(0, wholememory_communicator_barrier(comm));
  OK(wholememory_destroy_communicator(half));
  /* The child outlives the parent. */
  wholememory_comm_t parent;
  OK(wholememory_create_communicator(&parent, wm_fresh_id(r), r->rank, r->size));
  OK(wholememory_split_communicator(&half, parent, 0, r->rank));
  OK(wholememory_destroy_communicator(parent));
  check_members(half, r->rank, r->size);
  OK(wholememory_destroy_communicator(half));
}

/* One id serves one communicator; ranks must be in range and unlike. */
static void bad_creates(wm_rank* r) {
  wholememory_comm_t none = NULL, comm;
  wholememory_unique_id_t id = wm_fresh_id(r);
  EXPECT(BAD_VALUE, wholememory_create_communicator(&none, wm_fresh_id(r), 0, 0));
  EXPECT(BAD_VALUE, wholememory_create_communicator(&none, wm_fresh_id(r), -1, r->size));
  EXPECT(BAD_VALUE, wholememory_create_communicator(&none, wm_fresh_id(r), r->size, r->size));
  EXPECT(BAD_INPUT, wholememory_create_communicator(NULL, wm_fresh_id(r), r->rank, r->size));
  EXPECT(BAD_INPUT, wholememory_create_unique_id(NULL));
  CHECK(none == NULL);
  OK(wholememory_create_communicator(&comm, id, r->rank, r->size));
  if (r->size > 1) {
    wholememory_unique_id_t twice = wm_fresh_id(r);
    /* Two ranks with one number. */
    EXPECT(BAD_VALUE, wholememory_create_communicator(&none, twice, r->rank == r->size - 1 ? 0 : r->rank, r->size));
    CHECK(none == NULL);
  }
  OK(wholememory_destroy_communicator(comm));
  wholememory_unique_id_t noise;
  memset(&noise, 0x5A, sizeof noise);
  int code = wholememory_create_communicator(&none, noise, r->rank, r->size);
  CHECK(code == BAD_VALUE || code == BAD_INPUT);
  CHECK(none == NULL);
}

static void many(wm_rank* r) {
  enum { AT_ONCE = 50 };
  wholememory_comm_t all[AT_ONCE];
  for (int i = 0; i < AT_ONCE; i++) OK(wholememory_create_communicator(&all[i], wm_fresh_id(r), r->rank, r->size));
  for (int i = 0; i < AT_ONCE; i++) OK(wholememory_communicator_barrier(all[(i * 7) % AT_ONCE]));
  for (int i = 0; i < AT_ONCE; i++) OK(wholememory_destroy_communicator(all[(i * 11) % AT_ONCE]));
}

/* Created and destroyed in turn: nothing of them stays. */
static void in_turn(wm_rank* r) {
  enum { ROUNDS = 500, SETTLED = 20 };
  wm_holdings settled = wm_holdings_now();
  for (int i = 0; i < ROUNDS; i++) {
    if (i == SETTLED) {
      wm_meet(r);
      settled = wm_holdings_now();
      wm_meet(r);
    }
    wholememory_comm_t comm;
    OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
    OK(wholememory_destroy_communicator(comm));
  }
  wm_meet(r);
  wm_holdings after = wm_holdings_now();
  wm_meet(r);
  /* The last of them may still be on its way out. */
  if (!r->mpi) CHECK(after.descriptors <= settled.descriptors + 3);
  CHECK(after.shared_mappings <= settled.shared_mappings + 2);
  CHECK(after.threads <= settled.threads);
#ifndef __SANITIZE_ADDRESS__ /* it keeps what was freed */
  CHECK(after.resident_kib < settled.resident_kib + 8 * 1024);
#endif
}

typedef struct { wholememory_comm_t comm; int rank, rounds; } caller;

static void* call_in_a_loop(void* argument) {
  caller* c = (caller*)argument;
  wm_set_rank(c->rank);
  for (int i = 0; i < c->rounds; i++) {
    OK(wholememory_communicator_barrier(c->comm));
    wholememory_handle_t handle;
    OK(wholememory_malloc(&handle, 4096, c->comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL));
    OK(wholememory_free(handle));
  }
  return NULL;
}

/* Two communicators over the same ranks: each thread works on one, and ranks meet them in different order. */
static void two_orders(wm_rank* r) {
  wholememory_comm_t a, b;
  OK(wholememory_create_communicator(&a, wm_fresh_id(r), r->rank, r->size));
  OK(wholememory_split_communicator(&b, a, 0, r->rank));
  caller first = {r->rank % 2 ? a : b, r->rank, 100}, second = {r->rank % 2 ? b : a, r->rank, 100};
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, call_in_a_loop, &first) == 0);
  usleep(1000 * (unsigned)r->rank);
  call_in_a_loop(&second);
  pthread_join(thread, NULL);
  OK(wholememory_destroy_communicator(a));
  OK(wholememory_destroy_communicator(b));
}

static void body(wm_rank* r) {
  reports(r);
  backends(r);
  splits(r);
  bad_creates(r);
  many(r);
  in_turn(r);
  two_orders(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
