// Checks the kernels on the current device and prints `N passed, N failed`.
//   check_kernels [rounds] [few|quick|all] [section]
//     rounds of the cases made at random (default 6); quick leaves out what is large, few takes about a tenth of quick's
//     time, for checkers that slow kernels down; with a section only that one
//   check_kernels sections [few|quick|all]
//     the names of the sections, a line each

#include "check.h"
#include "../args_learning.h"

namespace {

struct Section {
  const char *name;
  void (*check)(Tally &, int rounds, Size);
  // The least size it is in.
  Size from;
};

const Section sections[] = {
    {"rows in tight memory", [](Tally &t, int, Size size) { check_rows_in_tight_memory(t, size); }, Size::few},
    {"graphs", [](Tally &t, int, Size size) { check_graph(t, size); }, Size::few},
    {"lists", [](Tally &t, int, Size size) { check_lists(t, size); }, Size::few},
    {"ids", [](Tally &t, int, Size size) { check_ids(t, size); }, Size::few},
    {"rows", check_rows, Size::few},
    {"counts", [](Tally &t, int, Size size) { check_counts(t, size); }, Size::few},
    {"caches", check_caches, Size::few},
    {"learning", check_learning, Size::few},
    {"dealt rows", [](Tally &t, int, Size size) { check_dealt(t, size); }, Size::few},
    {"meetings", [](Tally &t, int, Size size) { check_meetings(t, size); }, Size::few},
    {"a large gather", [](Tally &t, int, Size) { check_large(t); }, Size::all},
};

Size size_named(const char *name) {
  if (strcmp(name, "few") == 0) return Size::few;
  if (strcmp(name, "quick") == 0) return Size::quick;
  if (strcmp(name, "all") == 0) return Size::all;
  fprintf(stderr, "there is no size \"%s\"; there are few, quick and all\n", name);
  exit(2);
}

}  // namespace

int main(int argc, char **argv) {
  // Streams that wait for each other must not share a queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  const Size size = argc > 2 ? size_named(argv[2]) : Size::all;
  if (argc > 1 && strcmp(argv[1], "sections") == 0) {
    for (const Section &section : sections) {
      if (size >= section.from) printf("%s\n", section.name);
    }
    return 0;
  }
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
  CUDA(wmk_group(nullptr, nullptr));
  CUDA(wmk_step(nullptr, nullptr));
  CUDA(wmk_map_rows(nullptr, nullptr));
  CUDA(wmk_set(nullptr, nullptr));
  Tally tally;
  for (const Section &section : sections) {
    if (argc > 3 ? strcmp(argv[3], section.name) != 0 : size < section.from) continue;
    const Tally before = tally;
    section.check(tally, rounds, size);
    printf("%s: %d passed, %d failed\n", section.name, tally.passed - before.passed, tally.failed - before.failed);
    fflush(stdout);
  }
  printf("%d passed, %d failed\n", tally.passed, tally.failed);
  return tally.failed == 0 && tally.passed > 0 ? 0 : 1;
}
