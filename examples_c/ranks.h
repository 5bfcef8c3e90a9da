/* Ranks for the programs of this folder: started by mpirun, or by the program itself as processes
 * (--nproc N) or as threads of one process (--threads N). Beside starting them it carries what ranks
 * must tell each other before a communicator exists (the unique id) and the verdict at the end.
 *
 * Compiled with -DWITH_MPI the program takes part in an mpirun job; without, it needs no MPI at all. */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#define RANKS_MAX 64
#define RANKS_MESSAGE_BYTES 256

enum ranks_kind { RANKS_MPI, RANKS_PROCESSES, RANKS_THREADS };

/* One page that all self-started ranks see. */
typedef struct {
  pthread_barrier_t meeting;
  char message[RANKS_MESSAGE_BYTES];
  double number[RANKS_MAX];
} ranks_page_t;

typedef struct {
  enum ranks_kind kind;
  int rank;
  int size;
  /* True on exactly one rank of each process: the one that calls what belongs to a process (init, finalize). */
  int leads_process;
  ranks_page_t *page;
} ranks_t;

typedef int (*ranks_body_t)(ranks_t *ranks, void *argument);

static inline int ranks_under_mpirun(void) {
  return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

static inline const char *ranks_kind_name(enum ranks_kind kind) {
  return kind == RANKS_MPI ? "processes under mpirun" : kind == RANKS_PROCESSES ? "processes" : "threads";
}

#ifdef WITH_MPI
/* Waits without burning the core that a slower rank may need. */
static inline void ranks_wait_mpi(MPI_Request *request) {
  int done = 0;
  for (MPI_Test(request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(request, &done, MPI_STATUS_IGNORE)) usleep(100);
}
#endif

/* All ranks come here before any goes on. */
static inline void ranks_meet(ranks_t *ranks) {
#ifdef WITH_MPI
  if (ranks->kind == RANKS_MPI) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    ranks_wait_mpi(&request);
    return;
  }
#endif
  pthread_barrier_wait(&ranks->page->meeting);
}

/* Gives every rank the bytes of rank 0; at most RANKS_MESSAGE_BYTES. */
static inline void ranks_broadcast(ranks_t *ranks, void *data, size_t bytes) {
#ifdef WITH_MPI
  if (ranks->kind == RANKS_MPI) {
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    ranks_wait_mpi(&request);
    return;
  }
#endif
  if (ranks->rank == 0) memcpy(ranks->page->message, data, bytes);
  ranks_meet(ranks);
  if (ranks->rank != 0) memcpy(data, ranks->page->message, bytes);
  ranks_meet(ranks);
}

static inline double ranks_reduce(ranks_t *ranks, double mine, int want_sum) {
  double all = 0;
#ifdef WITH_MPI
  if (ranks->kind == RANKS_MPI) {
    MPI_Request request;
    MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, want_sum ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD, &request);
    ranks_wait_mpi(&request);
    return all;
  }
#endif
  ranks->page->number[ranks->rank] = mine;
  ranks_meet(ranks);
  all = ranks->page->number[0];
  for (int peer = 1; peer < ranks->size; peer++) {
    double theirs = ranks->page->number[peer];
    all = want_sum ? all + theirs : theirs > all ? theirs : all;
  }
  ranks_meet(ranks);
  return all;
}

static inline double ranks_max(ranks_t *ranks, double mine) { return ranks_reduce(ranks, mine, 0); }
static inline double ranks_sum(ranks_t *ranks, double mine) { return ranks_reduce(ranks, mine, 1); }

/* Ends the program after an error that the other ranks do not know of. */
static inline void ranks_give_up(ranks_t *ranks) {
  fflush(NULL);
#ifdef WITH_MPI
  if (ranks->kind == RANKS_MPI) MPI_Abort(MPI_COMM_WORLD, 1);
#endif
  (void)ranks;
  _exit(1);
}

typedef struct {
  ranks_t ranks;
  ranks_body_t body;
  void *argument;
  int status;
} ranks_thread_t;

static inline void *ranks_thread_main(void *raw) {
  ranks_thread_t *thread = raw;
  thread->status = thread->body(&thread->ranks, thread->argument);
  return NULL;
}

static inline int ranks_run_threads(ranks_page_t *page, int size, ranks_body_t body, void *argument) {
  pthread_t threads[RANKS_MAX];
  ranks_thread_t records[RANKS_MAX];
  int status = 0;
  for (int rank = 0; rank < size; rank++) {
    records[rank] = (ranks_thread_t){{RANKS_THREADS, rank, size, rank == 0, page}, body, argument, 0};
    int failure = pthread_create(&threads[rank], NULL, ranks_thread_main, &records[rank]);
    if (failure) {
      fprintf(stderr, "the thread of rank %d cannot be started: %s\n", rank, strerror(failure));
      exit(1);
    }
  }
  for (int rank = 0; rank < size; rank++) {
    pthread_join(threads[rank], NULL);
    if (records[rank].status > status) status = records[rank].status;
  }
  return status;
}

/* Waits for the ranks. When one fails the others get 10 s to say what they saw, then they are ended. */
static inline int ranks_await_processes(const pid_t *children, int size) {
  int status = 0, left = size, ended[RANKS_MAX] = {0};
  time_t deadline = 0;
  while (left > 0) {
    for (int rank = 0; rank < size; rank++) {
      int how;
      if (ended[rank] || waitpid(children[rank], &how, deadline ? WNOHANG : (left == 1 ? 0 : WNOHANG)) <= 0) continue;
      ended[rank] = 1;
      left--;
      if (WIFSIGNALED(how))
        fprintf(stderr, "rank %d was ended by signal %d (%s)\n", rank, WTERMSIG(how), strsignal(WTERMSIG(how)));
      int code = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
      if (code > status) status = code;
      if (code && !deadline) deadline = time(NULL) + 10;
    }
    if (deadline && time(NULL) > deadline)
      for (int rank = 0; rank < size; rank++)
        if (!ended[rank]) kill(children[rank], SIGKILL);
    if (left) usleep(2000);
  }
  return status;
}

static inline int ranks_run_processes(ranks_page_t *page, int size, ranks_body_t body, void *argument) {
  pid_t children[RANKS_MAX];
  fflush(NULL);
  for (int rank = 0; rank < size; rank++) {
    children[rank] = fork();
    if (children[rank] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ranks_t mine = {RANKS_PROCESSES, rank, size, 1, page};
      exit(body(&mine, argument));
    }
    if (children[rank] < 0) {
      fprintf(stderr, "the process of rank %d cannot be started: %s\n", rank, strerror(errno));
      for (int started = 0; started < rank; started++) kill(children[started], SIGKILL);
      exit(1);
    }
  }
  return ranks_await_processes(children, size);
}

/* Runs `body` on every rank and returns the highest of their exit statuses. `process_count` and
 * `thread_count` are what the user asked for (0: did not ask); under mpirun both must be 0. */
static inline int ranks_run(int process_count, int thread_count, ranks_body_t body, void *argument) {
#ifdef WITH_MPI
  if (ranks_under_mpirun()) {
    ranks_t mine = {RANKS_MPI, 0, 1, 1, NULL};
    MPI_Comm_rank(MPI_COMM_WORLD, &mine.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mine.size);
    int status = body(&mine, argument);
    status = (int)ranks_max(&mine, status);
    MPI_Finalize();
    return status;
  }
#endif
  int size = thread_count > 0 ? thread_count : process_count > 0 ? process_count : 1;
  ranks_page_t *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    fprintf(stderr, "no memory for the page the ranks share: %s\n", strerror(errno));
    return 1;
  }
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&page->meeting, &shared, (unsigned)size);
  int status = thread_count > 0 ? ranks_run_threads(page, size, body, argument)
                                : ranks_run_processes(page, size, body, argument);
  munmap(page, sizeof *page);
  return status;
}

/* Joins the mpirun job, if the program was started by one. Call it first in main. Returns this rank. */
static inline int ranks_begin(int *argc, char ***argv) {
  int rank = 0;
#ifdef WITH_MPI
  if (ranks_under_mpirun()) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  }
#else
  if (ranks_under_mpirun()) {
    fprintf(stderr, "%s was built without MPI: start it with --nproc N instead of mpirun\n", (*argv)[0]);
    exit(2);
  }
  (void)argc;
#endif
  return rank;
}

/* Leaves before any rank was started, on all ranks alike (bad options, --help). */
static inline void ranks_quit(int status) {
#ifdef WITH_MPI
  if (ranks_under_mpirun()) MPI_Finalize();
#endif
  exit(status);
}

#endif
