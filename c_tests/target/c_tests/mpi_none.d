target/c_tests/mpi_none.o: mpi_none.c mpi_ranks.h
mpi_ranks.h:
