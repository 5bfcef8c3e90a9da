#include "mpi_ranks.h"

bool wm_mpi_start(int* argc, char*** argv) {
  (void)argc, (void)argv;
  return false;
}
int wm_mpi_rank(void) { return 0; }
int wm_mpi_size(void) { return 1; }
void wm_mpi_meet(void) {}
void wm_mpi_share(void* data, size_t bytes) { (void)data, (void)bytes; }
int wm_mpi_end(int status) { return status; }
