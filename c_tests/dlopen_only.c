/* A program that is not linked with the library: dlopen, dlsym, and ranks as threads. */
#include <pthread.h>

#include "api.h"

enum { RANKS = 2 };

int main(void) {
  wm_alarm(60);
  static wm_api api;
  wm_api_open(&api);
  wm_error_text = api.wholememory_get_last_error;
  OK(api.wholememory_init(0, LEVEL_WARN));
  wm_api_rank ranks[RANKS];
  pthread_t threads[RANKS];
  wholememory_unique_id_t id;
  OK(api.wholememory_create_unique_id(&id));
  for (int i = 0; i < RANKS; i++) {
    ranks[i] = (wm_api_rank){&api, id, i, RANKS};
    REQUIRE(pthread_create(&threads[i], NULL, wm_api_job, &ranks[i]) == 0);
  }
  for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
  CHECK_EQ(api.get_wholememory_tensor_count(), 0);
  EXPECT(0, api.wholememory_finalize());
  CHECK(dlclose(api.library) == 0);
  return wm_failures() ? WM_FAIL : WM_PASS;
}
