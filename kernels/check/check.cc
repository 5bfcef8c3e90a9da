// Checks the kernels on the current device and prints `N passed, N failed`.
//   check_kernels [rounds] [quick|all] [section]     rounds of the cases made at random (default 6); quick leaves out what
//   is large; with a section only that one

#include "check.h"
#include "../args_learning.h"

int main(int argc, char **argv) {
  // Streams that wait for each other must not share a queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  const int rounds = argc > 1 ? atoi(argv[1]) : 6;
  cudaDeviceProp device;
  CUDA(cudaGetDeviceProperties(&device, 0));
  printf("%s, %d multiprocessors\n", device.name, device.multiProcessorCount);
  // As the library does when it binds a device: some kernels need more shared memory than is granted unasked.
  CUDA(wmk_gather(nullptr, nullptr));
  CUDA(wmk_scatter(nullptr, nullptr));
  CUDA(wmk_bucket(nullptr, nullptr));
  CUDA(wmk_meet(nullptr, nullptr));
  CUDA(wmk_cache_adjust(nullptr, nullptr));
  CUDA(wmk_cache_lookup(nullptr, nullptr));
  CUDA(wmk_cache_gather(nullptr, nullptr));
  CUDA(wmk_cache_flush(nullptr, nullptr));
  CUDA(wmk_cache_locate(nullptr, nullptr));
  CUDA(wmk_sample(nullptr, nullptr));
  const bool quick = argc > 2 && strcmp(argv[2], "quick") == 0;
  CUDA(wmk_group(nullptr, nullptr));
  CUDA(wmk_step(nullptr, nullptr));
  CUDA(wmk_map_rows(nullptr, nullptr));
  CUDA(wmk_set(nullptr, nullptr));
  Tally tally;
  auto section = [&](const char *name, auto body) {
    if (argc > 3 && strcmp(argv[3], name) != 0) return;
    const Tally before = tally;
    body();
    printf("%s: %d passed, %d failed\n", name, tally.passed - before.passed, tally.failed - before.failed);
    fflush(stdout);
  };
  section("rows in tight memory", [&] { check_rows_in_tight_memory(tally); });
  section("graphs", [&] { check_graph(tally, quick); });
  section("lists", [&] { check_lists(tally, quick); });
  section("ids", [&] { check_ids(tally); });
  section("rows", [&] { check_rows(tally, rounds); });
  section("counts", [&] { check_counts(tally); });
  section("caches", [&] { check_caches(tally, rounds); });
  section("learning", [&] { check_learning(tally, rounds); });
  section("dealt rows", [&] { check_dealt(tally); });
  section("meetings", [&] { check_meetings(tally); });
  if (!quick) section("a large gather", [&] { check_large(tally); });
  printf("%d passed, %d failed\n", tally.passed, tally.failed);
  return tally.failed == 0 && tally.passed > 0 ? 0 : 1;
}
