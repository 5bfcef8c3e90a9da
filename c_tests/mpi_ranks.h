/* The little of MPI that the harness uses: it carries unique ids and the verdict. Programs linked without
 * mpi_ranks.o get the answers of a program that was not started by MPI. */
#ifndef WM_MPI_RANKS_H
#define WM_MPI_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* True when mpirun started this process. */
bool wm_mpi_start(int* argc, char*** argv);
int wm_mpi_rank(void);
int wm_mpi_size(void);
void wm_mpi_meet(void);
void wm_mpi_share(void* data, size_t bytes);
/* Agrees on the worst status of all ranks and ends MPI. */
int wm_mpi_end(int status);

#endif
