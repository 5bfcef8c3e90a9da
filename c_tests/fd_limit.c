/* Few descriptors: communicators until there are none left. All ranks are refused alike, the refusal keeps none, and what
 * exists goes on working. Then no descriptors at the rank that the others need. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device.h"
#include "rows.h"
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

/* Descriptors until the process has no free one. A limit below what is open would not do: poll(2) refuses to look at more
 * descriptors than the limit names, and drivers of GPUs wait by it. */
typedef struct { struct rlimit before; int count, held[4096]; } wm_shortage;

static void use_all_but(wm_shortage* s, int spare) {
  REQUIRE(getrlimit(RLIMIT_NOFILE, &s->before) == 0);
  int highest = 0;
  for (int fd = 0; fd < 4096; fd++) if (fcntl(fd, F_GETFD) >= 0) highest = fd;
  struct rlimit limited = s->before;
  limited.rlim_cur = (rlim_t)(highest + 1 + spare); /* so that there are as many to close again */
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limited) == 0);
  for (s->count = 0; s->count < 4096 && (s->held[s->count] = dup(0)) >= 0;) s->count++;
  REQUIRE(errno == EMFILE && s->count >= spare);
  while (spare-- > 0) close(s->held[--s->count]);
}

static void use_all(wm_shortage* s) { use_all_but(s, 0); }

static void release_all(wm_shortage* s) {
  while (s->count > 0) close(s->held[--s->count]);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &s->before) == 0);
}

/* A gradient step that leaves more than any before, where no descriptor is free for the memory that it would leave it in. */
static void steps(wm_rank* r, bool all_limited) {
  enum { ROWS = 50, COLUMNS = 32, MOST_IDS = 40000 };
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = wm_kinds[0], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS});
  wm_rows_fill(&e, wm_zero_value, 0);
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_SGD));
  OK(wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  double want = 0;
  for (int turn = 0; turn < 3; turn++) {
    int count = (int[]){100, MOST_IDS, 200}[turn];
    wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, count, 1, 1, 0, 0}), grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, count, COLUMNS, COLUMNS, 0, 0});
    for (int i = 0; i < count; i++) {
      wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)(i % ROWS));
      for (int c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&grads, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, 1));
    }
    wm_array_push(&ids);
    wm_array_push(&grads);
    bool limited = turn == 1 && (all_limited || r->rank == r->size - 1);
    wm_shortage shortage;
    if (limited) use_all(&shortage);
    OK(wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 1, NULL, 0));
    if (limited) release_all(&shortage);
    want -= (double)(count / ROWS) * r->size;
    wm_array_drop(&ids);
    wm_array_drop(&grads);
  }
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  size_t bytes;
  unsigned char* changed = wm_local_copy(e.tensor, &bytes);
  for (int64_t local = 0; local < (int64_t)(bytes / (e.stride * 4)); local++)
    for (int64_t c = 0; c < COLUMNS && wm_rows_held(&e, local) >= 0; c++)
      CHECK_EQ(wm_bits(WHOLEMEMORY_DT_FLOAT, changed + (local * e.stride + c) * 4), wm_rounded(WHOLEMEMORY_DT_FLOAT, want));
  free(changed);
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
}

/* All ranks are refused at once, alike and for the reason, whatever the code that the call gave here. */
static void refused_alike(wm_rank* r, int code, double began) {
  CHECK(wm_now() - began < 4); /* nobody waited for WHOLEMEMORY_TIMEOUT_S, which is 300 */
  int codes[2] = {code, code};
  wm_share(r, codes, sizeof codes);
  CHECK_EQ(code, codes[0]);
  if (wm_gpu()) CHECK(code != 0); /* a driver without descriptors has its own codes */
  else CHECK_EQ(code, WHOLEMEMORY_SYSTEM_ERROR);
  if (!wm_gpu()) CHECK(strstr(wholememory_get_last_error(), "Too many open files") != NULL);
}

/* The rank that made the id has no descriptor left, or few: the others cannot reach it, and learn so all the same. */
static void maker_is_short(wm_rank* r, int spare) {
  wm_shortage shortage;
  wholememory_unique_id_t id;
  wholememory_comm_t comm = NULL;
  int held = wm_holdings_now().descriptors;
  memset(&id, 0, sizeof id);
  if (r->rank == 0) OK(wholememory_create_unique_id(&id));
  wm_share(r, &id, sizeof id);
  if (r->rank == 0) use_all_but(&shortage, spare);
  wm_meet(r);
  /* In turn the maker comes first and last. */
  if (r->rank == 0 && spare % 2) usleep(100000);
  if (r->rank != 0 && spare % 2 == 0) usleep(100000);
  double began = wm_now();
  WM_AT;
  int code = (int)wholememory_create_communicator(&comm, id, r->rank, r->size);
  if (r->rank == 0) release_all(&shortage);
  CHECK(comm == NULL);
  refused_alike(r, code, began);
  CHECK(wm_descriptors_within(held) <= held);
  OK(try_create(r, &comm));
  OK(wholememory_communicator_barrier(comm));
  OK(wholememory_destroy_communicator(comm));
}

static void split_is_short(wm_rank* r, int spare) {
  wm_shortage shortage;
  wholememory_comm_t parent = wm_world(r), child = NULL;
  OK(wholememory_communicator_barrier(parent));
  int held = wm_holdings_now().descriptors;
  if (r->rank == 0) use_all_but(&shortage, spare);
  wm_meet(r);
  double began = wm_now();
  WM_AT;
  int code = (int)wholememory_split_communicator(&child, parent, 0, 0);
  if (r->rank == 0) release_all(&shortage);
  CHECK(child == NULL);
  refused_alike(r, code, began);
  CHECK(wm_descriptors_within(held) <= held);
  OK(wholememory_communicator_barrier(parent));
  OK(wholememory_split_communicator(&child, parent, 0, 0));
  OK(wholememory_destroy_communicator(child));
}

static void body(wm_rank* r) {
  if (r->mpi) SKIP(r, "MPI needs descriptors of its own");
  until_refused(r, true);
  until_refused(r, false);
  for (int spare = 0; spare < 4; spare++) maker_is_short(r, spare);
  for (int spare = 0; spare < 3; spare++) split_is_short(r, spare);
  steps(r, true);
  steps(r, false);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
