/* The first program: start the library, join the ranks, ask what this machine can do. */
#include "common.h"

static const char *const type_names[] = {"", "CONTINUOUS", "CHUNKED", "DISTRIBUTED", "HIERARCHY"};
static const char *const location_names[] = {"", "DEVICE", "HOST"};

static void print_capabilities(ranks_t *ranks, wholememory_comm_t communicator) {
  printf("\n%-12s %8s %8s\n", "memory type", location_names[1], location_names[2]);
  for (int type = WHOLEMEMORY_MT_CONTINUOUS; type <= WHOLEMEMORY_MT_HIERARCHY; type++) {
    printf("%-12s", type_names[type]);
    for (int location = WHOLEMEMORY_ML_DEVICE; location <= WHOLEMEMORY_ML_HOST; location++) {
      wholememory_error_code_t answer = wholememory_communicator_support_type_location(
          communicator, (wholememory_memory_type_t)type, (wholememory_memory_location_t)location);
      if (answer != WHOLEMEMORY_SUCCESS && answer != WHOLEMEMORY_NOT_SUPPORTED) TRY(ranks, answer);
      printf(" %8s", answer == WHOLEMEMORY_SUCCESS ? "yes" : "no");
    }
    printf("\n");
  }
}

static int hello(ranks_t *ranks, void *unused) {
  (void)unused;
  device_t device = device_open(ranks->rank);

  /* init belongs to the process, the communicator to the rank; with --threads one process holds many ranks. */
  if (ranks->leads_process) TRY(ranks, wholememory_init(0, LEVEL_WARN));

  /* One rank makes the id. How the others get it is the program's business: MPI, a file, a socket. */
  wholememory_unique_id_t id;
  if (ranks->rank == 0) TRY(ranks, wholememory_create_unique_id(&id));
  ranks_broadcast(ranks, &id, sizeof id);

  wholememory_comm_t communicator;
  TRY(ranks, wholememory_create_communicator(&communicator, id, ranks->rank, ranks->size));

  int rank, size, local_size;
  TRY(ranks, wholememory_communicator_get_rank(&rank, communicator));
  TRY(ranks, wholememory_communicator_get_size(&size, communicator));
  TRY(ranks, wholememory_communicator_get_local_size(&local_size, communicator));
  if (rank == 0) {
    printf("%d %s of one communicator, %d on this node; rank 0 uses %s\n", size, ranks_kind_name(ranks->kind),
           local_size, device.name);
    print_capabilities(ranks, communicator);
    fflush(stdout);
  }
  TRY(ranks, wholememory_communicator_barrier(communicator));

  TRY(ranks, wholememory_destroy_communicator(communicator));
  ranks_meet(ranks);
  if (ranks->leads_process) TRY(ranks, wholememory_finalize());
  return 0;
}

int main(int argc, char **argv) {
  static const option_t options[] = {{NULL, NULL, NULL, NULL, NULL, NULL}};
  static const program_t program = {
      "Joins all ranks in one communicator and prints which tables can live where on this machine.", "", options};
  command_t command = options_begin(&program, argc, argv);
  return ranks_run((int)command.process_count, (int)command.thread_count, hello, NULL);
}
