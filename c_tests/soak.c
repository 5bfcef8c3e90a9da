/* Random operations for WM_SOAK_S seconds (3 by default) from WM_SOAK_SEED: tables of every kind, size and type on the
 * communicator of all ranks, on others made for a while, and on parts of it; every value is checked on every rank, and
 * what the process holds stays flat. */
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "table.h"

typedef struct {
  uint64_t seed, steps; /* alike on all ranks */
  long tables, gathers, scatters, communicators;
} course;

static uint64_t draw(course* c, uint64_t below) { return wm_hash(c->seed, ++c->steps) % below; }

static double number_of(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text ? atof(text) : otherwise;
}

static wholememory_dtype_t partner(course* c, wholememory_dtype_t dtype) {
  bool floating = false;
  for (int i = 0; i < WM_DTYPES; i++)
    if (wm_dtypes[i].id == dtype) floating = wm_dtypes[i].floating;
  for (;;) {
    const wm_dtype* d = &wm_dtypes[draw(c, WM_DTYPES)];
    if (d->floating == floating) return d->id;
  }
}

/* A table of a random kind and shape and a few operations on it (collective over `comm`). */
static void one_table(course* c, wholememory_comm_t comm, const bool* kind_here) {
  int k;
  do k = (int)draw(c, WM_KINDS);
  while (!kind_here[k]);
  const int64_t widths[] = {1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 100, 127, 128, 256, 300};
  wm_shape shape = {.kind = wm_kinds[k], .dtype = wm_dtypes[draw(c, WM_DTYPES)].id, .columns = widths[draw(c, 15)]};
  const int64_t lengths[] = {1, 5, 60, 700, 3000};
  shape.rows = 1 + (int64_t)draw(c, (uint64_t)lengths[draw(c, 5)]);
  if (draw(c, 8) == 0) {
    shape.dim = 1;
    shape.columns = 1;
  } else {
    shape.first_column = (int64_t)draw(c, 3);
    shape.stride = shape.first_column + shape.columns + (int64_t)draw(c, 4);
  }
  wm_table t = wm_table_make(comm, shape);
  c->tables++;
  int operations = 1 + (int)draw(c, 4);
  for (int i = 0; i < operations; i++) {
    wm_lookup l = {.index_dtype = draw(c, 2) ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT,
                   .user_dtype = partner(c, shape.dtype),
                   .pad = (int64_t)draw(c, 3),
                   .user_offset = (int64_t)draw(c, 3),
                   .index_offset = (int64_t)draw(c, 3),
                   .bad_ids = draw(c, 2) != 0,
                   .no_env = draw(c, 4) == 0,
                   .seed = (int)draw(c, 1 << 20)};
    uint64_t most = draw(c, 4) ? 300 : 4000;
    if (draw(c, 3)) {
      /* Every rank asks for its own number of rows, some for none. */
      int64_t count = (int64_t)(wm_hash(c->seed + (uint64_t)t.rank, c->steps) % most);
      l.count = count % 5 ? count : 0;
      wm_gather_check(&t, l);
      c->gathers++;
    } else {
      /* Nobody waits for anybody in a gather from mapped memory: the others may still read. */
      OK(wholememory_communicator_barrier(comm));
      wm_scatter_check(&t, l);
      OK(wholememory_communicator_barrier(comm));
      c->scatters++;
    }
  }
  wm_table_drop(&t);
}

static void some_tables(course* c, wholememory_comm_t comm, int count) {
  bool here[WM_KINDS];
  for (int k = 0; k < WM_KINDS; k++)
    here[k] = wholememory_communicator_support_type_location(comm, wm_kinds[k].type, wm_kinds[k].location) == 0;
  for (int i = 0; i < count; i++) one_table(c, comm, here);
}

/* One round: all ranks together, then a communicator of its own, then the ranks in two parts. */
static void round_of(wm_rank* r, course* c) {
  some_tables(c, wm_world(r), 3);
  wm_meet(r);
  const char* route = draw(c, 2) ? "exchange" : "auto";
  if (!r->threads || r->rank == 0) setenv("WHOLEMEMORY_ROUTE", route, 1);
  wm_meet(r);
  wholememory_comm_t comm, part;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  some_tables(c, comm, 2);
  int colour = r->rank % 2;
  OK(wholememory_split_communicator(&part, comm, colour, r->rank));
  c->communicators += 2;
  course other = *c;
  other.seed += (uint64_t)colour + 1;
  some_tables(&other, part, 2);
  OK(wholememory_destroy_communicator(part));
  OK(wholememory_destroy_communicator(comm));
  wm_meet(r);
  if (!r->threads || r->rank == 0) unsetenv("WHOLEMEMORY_ROUTE");
  wm_meet(r);
}

/* What the library may keep in this process, however long this goes on: scratch for later calls up to 64 MiB, and what its latest
 * dead handles were, below 3 MiB a rank. A little more is the allocator's, and on GPUs the driver's. The address sanitizer keeps
 * what was freed for a while, and tells of leaks itself. */
static long most_growth_kib(const wm_rank* r) {
#ifdef __SANITIZE_ADDRESS__
  return LONG_MAX;
#endif
  const long scratch = 64, dead_handles = 3, others = wm_gpu() ? 28 : 4;
  return 1024 * (scratch + others + (r->threads ? r->size : 1) * dead_handles);
}

static double seconds_wanted(void) { return number_of("WM_SOAK_S", 3); }

static unsigned longest_s(void) { return (unsigned)seconds_wanted() + 120; }

static void body(wm_rank* r) {
  double seconds = seconds_wanted(), begun = wm_now();
  course c = {.seed = (uint64_t)number_of("WM_SOAK_SEED", 1)};
  wm_alarm(longest_s());
  enum { WARM_ROUNDS = 3 };
  wm_holdings before = {0};
  long rounds = 0, resident_before_kib = 0;
  for (int more = 1; more;) {
    round_of(r, &c);
    if (++rounds == WARM_ROUNDS) {
      before = wm_holdings_now();
      resident_before_kib = wm_resident_at_rest_kib();
    }
    more = rounds < 2 * WARM_ROUNDS || wm_now() - begun < seconds;
    wm_share(r, &more, sizeof more);
  }
  wm_holdings after = wm_holdings_now();
  if (!r->threads) {
    CHECK(wm_descriptors_within(before.descriptors) <= before.descriptors);
    CHECK_EQ(after.threads, before.threads);
    CHECK_EQ(after.shared_mappings, before.shared_mappings);
  }
  /* Every table and every communicator of the rounds is gone, on all ranks. */
  long resident_after_kib = wm_resident_at_rest_kib();
  long grew_kib = resident_after_kib - resident_before_kib;
  if (grew_kib > most_growth_kib(r))
    FAILED("resident memory grew by %ld KiB in %ld rounds, to %ld KiB", grew_kib, rounds - WARM_ROUNDS, resident_after_kib);
  if (r->rank == 0)
    wm_say("%ld rounds in %.1f s from seed %llu: %ld tables, %ld gathers, %ld scatters, %ld communicators on this rank; resident %ld to %ld KiB",
           rounds, wm_now() - begun, (unsigned long long)c.seed, c.tables, c.gathers, c.scatters, c.communicators,
           resident_before_kib, resident_after_kib);
}

int main(int argc, char** argv) {
  /* Else drivers of GPUs load a kernel when it is first used, and memory grows with every kind of operation. */
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
#ifdef __GLIBC__
  /* Else these grow with the largest block, and every thread's heap keeps up to 64 MiB that nobody uses. */
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  mallopt(M_TRIM_THRESHOLD, 128 * 1024);
#endif
  /* Who starts the ranks waits as long as they do. */
  char alarm_s[32];
  snprintf(alarm_s, sizeof alarm_s, "%u", longest_s());
  setenv("WM_TEST_ALARM_S", alarm_s, 1);
  return wm_test_main(argc, argv, body, WM_PLAIN);
}
