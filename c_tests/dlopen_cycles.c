/* 200 rounds of dlopen, init, communicator, gather from a worker thread, finalize, dlclose: nothing grows. Then one
 * round that never says finalize, with a worker that outlives dlclose. */
#include <pthread.h>

#include "api.h"
#include "holdings.h"

enum { ROUNDS = 200, SETTLED = 40, RANKS = 2 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void* job_then_wait(void* rank) {
  wm_api_job(rank);
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return NULL;
}

/* One round; a worker that lingers ends only after the library was closed. */
static void one_round(bool finalize, bool linger) {
  static wm_api api;
  wm_api_open(&api);
  wm_error_text = api.wholememory_get_last_error;
  OK(api.wholememory_init(0, LEVEL_WARN));
  wholememory_unique_id_t id;
  OK(api.wholememory_create_unique_id(&id));
  wm_api_rank ranks[RANKS];
  pthread_t threads[RANKS];
  if (linger) pthread_mutex_lock(&gate);
  for (int i = 0; i < RANKS; i++) {
    ranks[i] = (wm_api_rank){&api, id, i, RANKS};
    REQUIRE(pthread_create(&threads[i], NULL, linger && i == 0 ? job_then_wait : wm_api_job, &ranks[i]) == 0);
  }
  for (int i = linger; i < RANKS; i++) pthread_join(threads[i], NULL);
  wholememory_comm_t left_alive;
  if (finalize) {
    EXPECT(0, api.wholememory_finalize());
  } else {
    OK(api.wholememory_create_unique_id(&id));
    OK(api.wholememory_create_communicator(&left_alive, id, 0, 1));
  }
  wm_error_text = NULL;
  CHECK(dlclose(api.library) == 0);
  if (linger) {
    pthread_mutex_unlock(&gate);
    pthread_join(threads[0], NULL);
  }
}

int main(void) {
  wm_alarm(120);
  wm_holdings settled = {0};
  for (int i = 0; i < ROUNDS; i++) {
    one_round(true, i % 10 == 3);
    if (i == SETTLED) settled = wm_holdings_now();
  }
  wm_holdings after = wm_holdings_now();
  CHECK_EQ(after.descriptors, settled.descriptors);
  CHECK_EQ(after.threads, settled.threads);
  CHECK_EQ(after.shared_mappings, settled.shared_mappings);
  if (after.mappings > settled.mappings + 2) CHECK_EQ(after.mappings, settled.mappings);
  if (after.resident_kib > settled.resident_kib + 4096) CHECK_EQ(after.resident_kib, settled.resident_kib);
  one_round(false, true);
  return wm_failures() ? WM_FAIL : WM_PASS;
}
