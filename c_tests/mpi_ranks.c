#include "mpi_ranks.h"

#include <mpi.h>
#include <stdlib.h>

#include "check.h"

bool wm_mpi_start(int* argc, char*** argv) {
  if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMI_RANK") && !getenv("PMIX_RANK")) return false;
  int level;
  return MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS;
}

int wm_mpi_rank(void) {
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int wm_mpi_size(void) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void wm_mpi_meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

void wm_mpi_share(void* data, size_t bytes) { MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }

int wm_mpi_end(int status) {
  /* Worst first: a failure, then a pass, then a skip. */
  int weight = status == WM_SKIP ? 0 : status == WM_PASS ? 1 : 2, worst;
  MPI_Allreduce(&weight, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst == 0 ? WM_SKIP : worst == 1 ? WM_PASS : WM_FAIL;
}
