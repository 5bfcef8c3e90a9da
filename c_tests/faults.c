/* Deaths: kill -9 of one of four ranks at a named point. The others hear of it within five seconds, by code and name;
 * what needs nobody still works, everything can be released, and the machine holds nothing new afterwards. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "launcher.h"
#include "rows.h"
#include "table.h"

enum { RANKS = 4, BROKEN = WHOLEMEMORY_COMMUNICATION_ERROR, INPUT = WHOLEMEMORY_INVALID_INPUT };
static const double DEADLINE_S = 5;

/* ---- the ranks ---- */
typedef struct { int rank, size, victim; wholememory_comm_t comm; wm_table shared, spread; wm_rows learner; } member;

static void wait_for_death(const char* point) {
  wm_child_say(point, 0);
  for (;;) pause();
}

static bool is(const char* scenario, const char* name) { return !strcmp(scenario, name); }

/* Two ranks: on two GPUs each has its own, so that they meet on the GPUs or exchange over NCCL. */
static bool is_pair(const char* scenario) { return is(scenario, "pair") || is(scenario, "pair-exchange"); }

static int victim_of(const char* scenario) {
  if (is_pair(scenario)) return 1;
  return is(scenario, "hub") || is(scenario, "sweep-hub") ? 0 : 2;
}

static int ranks_of(const char* scenario) { return is_pair(scenario) ? 2 : RANKS; }

/* What a broken communicator still does, and what it refuses at once. */
static void aftermath(member* m) {
  int value;
  double start = wm_now();
  EXPECT(BROKEN, wholememory_communicator_barrier(m->comm));
  wholememory_handle_t handle = NULL;
  wholememory_comm_t child = NULL;
  EXPECT(BROKEN, wholememory_malloc(&handle, 64, m->comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, 16, NULL));
  EXPECT(BROKEN, wholememory_split_communicator(&child, m->comm, 0, 0));
  CHECK(handle == NULL && child == NULL);
  EXPECT(0, wholememory_communicator_get_size(&value, m->comm));
  CHECK_EQ(value, m->size);
  if (m->shared.root) {
    wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 9, 1, 1, 0, 0}), out = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 9, 4, 4, 0, 0});
    for (int i = 0; i < 9; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i * 10);
    wm_array_push(&ids);
    EXPECT(BROKEN, wholememory_gather(m->spread.root, ids.tensor, out.tensor, NULL, NULL, -1));
    wm_array_matches(&out, "output of a gather on a broken communicator");
    EXPECT(0, wholememory_gather(m->shared.root, ids.tensor, out.tensor, NULL, NULL, -1));
    for (int i = 0; i < 9; i++)
      for (int c = 0; c < 4; c++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&out, i, c), wm_value(WHOLEMEMORY_DT_INT, i * 10, c, 0));
    wm_array_matches(&out, "mapped gather after a death");
    wm_array_drop(&ids);
    wm_array_drop(&out);
    EXPECT(BROKEN, wholememory_destroy_tensor(m->spread.root));
    EXPECT(INPUT, wholememory_destroy_tensor(m->spread.root));
  }
  EXPECT(BROKEN, wholememory_destroy_communicator(m->comm));
  EXPECT(INPUT, wholememory_destroy_communicator(m->comm));
  EXPECT(INPUT, wholememory_communicator_barrier(m->comm));
  if (m->shared.root) EXPECT(0, wholememory_destroy_tensor(m->shared.root));
  CHECK(wm_now() - start < 2);
}

static void signal_and_stop(void* point) { wait_for_death(point); }

static int gather_some(member* m, wm_env* env) {
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 50, 1, 1, 0, 0}), out = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 50, 4, 4, 0, 0});
  for (int i = 0; i < 50; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i * 2);
  wm_array_push(&ids);
  int code = wholememory_gather(m->spread.root, ids.tensor, out.tensor, env ? &env->fns : NULL, NULL, -1);
  wm_array_drop(&ids);
  wm_array_drop(&out);
  return code;
}

/* Steps until one fails. */
static int train(member* m, wm_env* env) {
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 50, 1, 1, 0, 0}), grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 50, 4, 4, 0, 0});
  for (int i = 0; i < 50; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i * 2);
    for (int c = 0; c < 4; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&grads, i, c), 0);
  }
  wm_array_push(&ids);
  wm_array_push(&grads);
  int code;
  do code = wholememory_embedding_gather_gradient_apply(m->learner.embedding, ids.tensor, grads.tensor, false, 0.1f, &env->fns, 0);
  while (code == 0);
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  return code;
}

static int said(int code) {
  wm_child_say("done", code);
  return code;
}

/* The call during which, or before which, the victim dies: tells the launcher its code and words, returns the code. */
static int last_call(member* m, const char* scenario) {
  bool victim = m->rank == m->victim;
  wholememory_handle_t handle = NULL;
  wm_env env;
  wm_env_start(&env);
  int code = 0;
  if (is(scenario, "gather")) {
    if (victim) env.on_malloc = signal_and_stop, env.argument = (void*)"point";
    code = said(gather_some(m, &env));
    BALANCED(&env);
    return code;
  }
  if (is(scenario, "gathers") || is(scenario, "gathers-exchange") || is_pair(scenario)) {
    if (victim) wm_child_say("point", 0);
    while ((code = gather_some(m, &env)) == 0) {}
    said(code);
    BALANCED(&env);
    return code;
  }
  if (is(scenario, "steps")) {
    if (victim) wm_child_say("point", 0);
    code = said(train(m, &env));
    BALANCED(&env);
    return code;
  }
  if (victim && is(scenario, "exit")) {
    wm_child_say("point", 0);
    wm_child_wait();
    exit(0);
  }
  if (victim && is(scenario, "forked")) {
    pid_t child = fork();
    if (child == 0) {
      sleep(25);
      _exit(0);
    }
    wm_child_say("forked", (int)child);
  }
  if (victim) wait_for_death("point");
  if (is(scenario, "idle")) {
    wm_child_wait();
    double start = wm_now();
    code = wholememory_communicator_barrier(m->comm);
    CHECK(wm_now() - start < 0.5);
    return said(code);
  }
  if (is(scenario, "malloc")) return said(wholememory_malloc(&handle, 4096, m->comm, WHOLEMEMORY_MT_CONTINUOUS, WHOLEMEMORY_ML_HOST, 16, NULL));
  if (is(scenario, "destroy")) {
    code = said(wholememory_destroy_communicator(m->comm));
    EXPECT(INPUT, wholememory_destroy_communicator(m->comm));
    EXPECT(0, wholememory_destroy_tensor(m->shared.root));
    EXPECT(0, wholememory_destroy_tensor(m->spread.root));
    m->comm = NULL;
    return code;
  }
  if (is(scenario, "free")) {
    code = said(wholememory_destroy_tensor(m->spread.root));
    EXPECT(BROKEN, wholememory_destroy_tensor(m->shared.root));
    m->shared.root = m->spread.root = NULL;
    return code;
  }
  if (is(scenario, "finalize")) {
    code = said(wholememory_finalize());
    EXPECT(0, wholememory_destroy_tensor(m->shared.root));
    EXPECT(0, wholememory_destroy_tensor(m->spread.root));
    m->comm = NULL;
    return code;
  }
  return said(wholememory_communicator_barrier(m->comm));
}

static void with_communicator(member* m, const char* scenario) {
  OK(wholememory_create_communicator(&m->comm, wm_child_id(m->rank, 0), m->rank, m->size));
  m->shared = wm_table_make(m->comm, (wm_shape){.kind = wm_kinds[1], .dtype = WHOLEMEMORY_DT_INT, .rows = 100, .columns = 4});
  m->spread = wm_table_make(m->comm, (wm_shape){.kind = wm_kinds[4], .dtype = WHOLEMEMORY_DT_INT, .rows = 100, .columns = 4});
  if (is(scenario, "steps")) {
    m->learner = wm_rows_make(m->comm, (wm_rows_shape){.kind = wm_kinds[5], .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 100, .columns = 4});
    wholememory_embedding_optimizer_t optimizer;
    OK(wholememory_create_embedding_optimizer(&optimizer, WHOLEMEMORY_OPT_LAZY_ADAM));
    OK(wholememory_embedding_set_optimizer(m->learner.embedding, optimizer));
    wholememory_destroy_embedding_optimizer(optimizer);
  }
  wm_child_say("ready", 0);
  int code = last_call(m, scenario);
  if (code == BROKEN && m->comm) aftermath(m);
  /* Destroying an embedding needs nobody. */
  if (m->learner.embedding) EXPECT(0, wholememory_destroy_embedding(m->learner.embedding));
}

/* Creation. "create": for one rank more than there are, so that all wait in it, connected, when the victim dies.
 * "sweep": the victim dies somewhere on the way. */
static void create_only(member* m, const char* scenario) {
  wholememory_unique_id_t id = wm_child_id(m->rank, 0);
  wm_child_say("ready", 0);
  int code = wholememory_create_communicator(&m->comm, id, m->rank, m->size + is(scenario, "create"));
  if (m->rank == m->victim) wait_for_death("point");
  if (code != 0) {
    said(code);
    return;
  }
  code = said(wholememory_communicator_barrier(m->comm));
  EXPECT(code, wholememory_destroy_communicator(m->comm));
}

static int a_rank(int rank, int size, const char* scenario) {
  wm_device_bind(rank);
  member m = {.rank = rank, .size = size, .victim = victim_of(scenario)};
  OK(wholememory_init(0, LEVEL_FATAL));
  is(scenario, "create") || !strncmp(scenario, "sweep", 5) ? create_only(&m, scenario) : with_communicator(&m, scenario);
  EXPECT(0, wholememory_finalize());
  CHECK_EQ(get_wholememory_tensor_count(), 0);
  return wm_failures() ? WM_FAIL : 0;
}

/* ---- the launcher ---- */
static void expect_broken(wm_launch* l, int rank, int victim, double died_at, bool named) {
  wm_report report;
  if (!wm_launch_report(l, rank, "done", DEADLINE_S + 1, &report)) return;
  char name[20];
  snprintf(name, sizeof name, "rank %d", victim);
  if (report.code != BROKEN || (named && !strstr(report.words, name)) || report.at_s - died_at > DEADLINE_S)
    FAILED("%s: rank %d got %s after %.2f s, \"%s\"; it should be COMMUNICATION_ERROR within %.0f s, naming %s", l->scenario, rank,
           wm_code_name(report.code), report.at_s - died_at, report.words, DEADLINE_S, name);
}

static void one_death(const char* scenario) {
  int victim = victim_of(scenario), ranks = ranks_of(scenario);
  double started = wm_now();
  if (is(scenario, "gather") || is(scenario, "gathers-exchange") || is(scenario, "pair-exchange")) setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  wm_launch l = wm_launch_start(scenario, ranks);
  unsetenv("WHOLEMEMORY_ROUTE");
  wm_launch_pass_id(&l, 0);
  for (int i = 0; i < ranks; i++) wm_launch_report(&l, i, "ready", 20 * wm_slower(), NULL);
  wm_report forked = {.code = 0};
  if (is(scenario, "forked")) wm_launch_report(&l, victim, "forked", 10 * wm_slower(), &forked);
  wm_launch_report(&l, victim, "point", 10 * wm_slower(), NULL);
  usleep(200000); /* the others are inside their call by now */
  if (is(scenario, "exit")) wm_launch_go(&l, victim);
  else wm_launch_signal(&l, victim, SIGKILL);
  double died_at = wm_now();
  if (is(scenario, "idle")) {
    sleep(1);
    died_at = wm_now();
    for (int i = 0; i < ranks; i++)
      if (i != victim) wm_launch_go(&l, i);
  }
  for (int i = 0; i < ranks; i++) {
    if (i == victim) continue;
    if (!is(scenario, "finalize")) {
      expect_broken(&l, i, victim, died_at, true);
      continue;
    }
    wm_report report;
    if (wm_launch_report(&l, i, "done", DEADLINE_S + 1, &report)) CHECK_EQ(report.code, 0);
  }
  wm_launch_end(&l);
  if (forked.code > 0) kill(forked.code, SIGKILL);
  printf("%s: %.2f s\n", scenario, wm_now() - started);
}

static void death_in_create(void) {
  wm_launch l = wm_launch_start("create", RANKS);
  wm_launch_pass_id(&l, 0);
  for (int i = 0; i < RANKS; i++) wm_launch_report(&l, i, "ready", 20 * wm_slower(), NULL);
  usleep(500000);
  wm_launch_signal(&l, 2, SIGKILL);
  double died_at = wm_now();
  for (int i = 0; i < RANKS; i++)
    if (i != 2) expect_broken(&l, i, 2, died_at, true);
  wm_launch_end(&l);
}

/* Killed somewhere between the first step of create and its end: an error, or a communicator that is broken. One that never
 * connected is given up after WHOLEMEMORY_TIMEOUT_S. */
static void deaths_on_the_way(const char* scenario) {
  /* On a GPU most of the time goes to contexts. */
  const unsigned host_us[] = {0, 200, 400, 600, 800, 1000, 1300, 1600, 2000, 2500, 3000, 4000, 6000, 12000};
  const unsigned gpu_us[] = {0, 1000, 10000, 50000, 150000, 300000, 600000};
  const unsigned* delays_us = wm_gpu() ? gpu_us : host_us;
  size_t delays = wm_gpu() ? sizeof gpu_us / sizeof *gpu_us : sizeof host_us / sizeof *host_us;
  int victim = victim_of(scenario);
  double started = wm_now();
  setenv("WHOLEMEMORY_TIMEOUT_S", "1", 1);
  for (size_t d = 0; d < delays; d++) {
    wm_launch l = wm_launch_start(scenario, RANKS);
    wm_launch_pass_id(&l, 0);
    wm_launch_report(&l, victim, "ready", 20 * wm_slower(), NULL);
    usleep(delays_us[d]);
    wm_launch_signal(&l, victim, SIGKILL);
    double died_at = wm_now();
    for (int i = 0; i < RANKS; i++)
      if (i != victim) expect_broken(&l, i, victim, died_at, false);
    wm_launch_end(&l);
  }
  unsetenv("WHOLEMEMORY_TIMEOUT_S");
  printf("%s: %zu deaths in %.2f s\n", scenario, delays, wm_now() - started);
}

/* A stopped rank is late, not dead. */
static void stopped(void) {
  wm_launch l = wm_launch_start("stopped", RANKS);
  wm_launch_pass_id(&l, 0);
  for (int i = 0; i < RANKS; i++) wm_launch_report(&l, i, "ready", 20 * wm_slower(), NULL);
  wm_launch_report(&l, 2, "point", 10 * wm_slower(), NULL);
  wm_launch_signal(&l, 2, SIGSTOP);
  sleep(6);
  wm_launch_signal(&l, 2, SIGCONT);
  usleep(300000);
  wm_launch_signal(&l, 2, SIGKILL); /* dead after all: only now do the others hear of it */
  double died_at = wm_now();
  for (int i = 0; i < RANKS; i++)
    if (i != 2) expect_broken(&l, i, 2, died_at, true);
  wm_launch_end(&l);
}

static const char* const all[] = {"barrier", "hub", "idle", "gather", "gathers", "gathers-exchange", "steps", "pair", "pair-exchange", "malloc", "free",
                                  "destroy", "finalize", "forked", "exit", "create", "sweep", "sweep-hub", "stopped"};
enum { SCENARIOS = sizeof all / sizeof *all };

static void play(const char* scenario) {
  if (is(scenario, "create")) death_in_create();
  else if (!strncmp(scenario, "sweep", 5)) deaths_on_the_way(scenario);
  else if (is(scenario, "stopped")) stopped();
  else one_death(scenario);
}

/* faults [SCENARIO]: that one, or all; faults --list names them. */
int main(int argc, char** argv) {
  int rank, size, played = 0;
  const char* scenario;
  if (wm_child_start(argc, argv, &rank, &size, &scenario)) return a_rank(rank, size, scenario);
  if (argc > 1 && !strcmp(argv[1], "--list")) {
    for (int i = 0; i < SCENARIOS; i++) puts(all[i]);
    return WM_PASS;
  }
  wm_alarm(wm_gpu() ? 200 : 110);
  wm_leftovers before = wm_leftovers_now();
  for (int i = 0; i < SCENARIOS; i++) {
    if (argc > 1 && !is(argv[1], all[i])) continue;
    play(all[i]);
    played++;
  }
  if (!played) FAILED("there is no scenario %s", argv[1]);
  wm_leftovers_check(&before);
  free(before.names);
  return wm_failures() ? WM_FAIL : WM_PASS;
}
