/* What the parts of the benchmark share: the library under test, a rank, a case and what was measured. */
#ifndef EXAMPLES_BENCH_H
#define EXAMPLES_BENCH_H

#include <wholememory/cache_stats.h>
#include <wholememory/embedding.h>
#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>
#include <wholememory/wholememory.h>
#include <wholememory/wholememory_op.h>
#include <wholememory/wholememory_tensor.h>

#include "device.h"
#include "ranks.h"

/* Every function of the library that the benchmark calls. They are found by name at run time, so the same
 * program drives any library with this ABI; nothing here is linked. */
#define BENCH_FUNCTIONS(use)                                                                                           \
  use(wholememory_init) use(wholememory_finalize) use(wholememory_create_unique_id)                                    \
      use(wholememory_create_communicator) use(wholememory_destroy_communicator) use(wholememory_communicator_barrier) \
          use(wholememory_communicator_support_type_location) use(wholememory_malloc) use(wholememory_free)            \
              use(wholememory_create_tensor) use(wholememory_destroy_tensor) use(wholememory_make_tensor_from_pointer) \
                  use(wholememory_tensor_get_memory_handle) use(wholememory_get_local_memory)                          \
                  use(wholememory_get_global_pointer)                                                              \
                      use(wholememory_load_from_file) use(wholememory_gather) use(wholememory_scatter) BENCH_LEARNING(use) \
                          BENCH_GRAPHS(use)
#define BENCH_LEARNING(use)                                                                            \
  use(wholememory_create_embedding_cache_policy) use(wholememory_destroy_embedding_cache_policy)       \
      use(wholememory_create_embedding_optimizer) use(wholememory_destroy_embedding_optimizer)         \
          use(wholememory_create_embedding) use(wholememory_destroy_embedding)                         \
              use(wholememory_embedding_get_embedding_tensor) use(wholememory_embedding_set_optimizer) \
                  use(wholememory_embedding_gather) use(wholememory_embedding_gather_gradient_apply)
#define BENCH_GRAPHS(use)                                      \
  use(wholegraph_csr_unweighted_sample_without_replacement)    \
      use(wholegraph_csr_weighted_sample_without_replacement) use(graph_append_unique)

typedef struct {
  void *library;
#define BENCH_DECLARE(name) __typeof__(&name) name;
  BENCH_FUNCTIONS(BENCH_DECLARE)
#undef BENCH_DECLARE
  const char *(*last_error)(void);                                                    /* NULL in a library without it */
  wholememory_error_code_t (*cache_stats)(wholememory_embedding_t, wholememory_cache_stats_t *); /* likewise */
} bench_api_t;

typedef enum {
  OP_GATHER,
  OP_SCATTER,
  OP_SMALL,
  OP_MALLOC,
  OP_LOAD,
  OP_LOAD_FRESH,
  OP_BARRIER,
  OP_COMMUNICATOR,
  OP_MEET,
  OP_REPLAY,
  OP_COPY,
  OP_EMBEDDING,
  OP_STEP,
  OP_SAMPLE,
  OP_WEIGHTED,
  OP_UNIQUE,
  OP_COUNT
} bench_op_t;

typedef enum { ORDER_RANDOM, ORDER_SORTED, ORDER_SEQUENTIAL, ORDER_NEXT } bench_order_t;

/* One line of the table to come. Sizes that a case does not use are 0. */
typedef struct {
  bench_op_t op;
  wholememory_memory_type_t type;
  wholememory_memory_location_t location;
  wholememory_dtype_t dtype;
  wholememory_dtype_t output_dtype;
  wholememory_dtype_t index_dtype;
  int64_t columns;
  int64_t table_rows;
  int64_t call_rows;
  size_t table_bytes;
  double skew;                             /* exponent of the power law of the ids of embeddings; 0: all rows alike */
  double cache_ratio;                      /* of an embedding; 0: no cache */
  wholememory_optimizer_type_t optimizer;  /* of a gradient step */
  int fanout;                              /* neighbours sampled */
} bench_case_t;

typedef struct {
  int repetitions;
  long iterations; /* 0: as many as make a repetition last 50 ms */
  int width;       /* gather_sms and scatter_sms, -1 is automatic */
  int verify;
  bench_order_t order;
  int reader_count; /* threads of the reference reads of a load, per rank */
  int batches;      /* different batches of an embedding, in turn */
  int still;        /* gathers from embeddings do not adjust the cache while they are timed */
  const char *directory;
} bench_settings_t;

/* What one rank measured. `payload_bytes` are what a call moves for this rank. */
typedef struct {
  double call_us;
  double payload_bytes;
  double wrong_values;
  double reference_us; /* 0: there is none */
  const char *reference;
  char note[64]; /* what else is to be said, without blanks; "" is nothing */
} bench_result_t;

/* Blocks of memory that operations asked for and gave back, kept for the next call as a framework keeps them. */
typedef struct bench_pool bench_pool_t;

typedef struct {
  const bench_api_t *api;
  const bench_settings_t *settings;
  ranks_t *ranks;
  device_t device;
  wholememory_comm_t communicator;
  bench_pool_t *pool;
  wholememory_env_func_t callbacks; /* scratch memory for the operations, from the pool */
} bench_rank_t;

typedef struct {
  void (*call)(void *);
  void *argument;
} bench_action_t;

/* Calls the library under test; when it refuses, says why and ends the program. */
#define BENCH_TRY(rank_, call_)                                                                                  \
  do {                                                                                                           \
    int bench_code = (int)(call_);                                                                               \
    if (bench_code != 0) {                                                                                       \
      fprintf(stderr, "rank %d: %s\n  failed with code %d%s%s\n", (rank_)->ranks->rank, #call_, bench_code,      \
              (rank_)->api->last_error ? ": " : "", (rank_)->api->last_error ? (rank_)->api->last_error() : ""); \
      ranks_give_up((rank_)->ranks);                                                                             \
    }                                                                                                            \
  } while (0)

/* Opens the library; ends the program with the reason when it cannot or when a function is missing. */
bench_api_t bench_open(const char *path);

/* Makes the pool of a rank whose device is open, and its callbacks. */
void bench_make_pool(bench_rank_t *rank);
void bench_drop_pool(bench_rank_t *rank);

size_t bench_element_bytes(wholememory_dtype_t dtype);

double bench_now_us(void);

/* All ranks are here and the device is idle: the start and the end of everything timed. */
void bench_line_up(bench_rank_t *rank);

/* Median time of one call of `action` on this rank, over the repetitions, all ranks calling alike. */
double bench_time(bench_rank_t *rank, bench_action_t action);

double bench_median(double *values, int count);

/* Rows of a table and the values they must have: a hash of row and column, whole numbers that every dtype holds exactly. */
wholememory_tensor_description_t bench_shape(int64_t rows, int64_t columns, wholememory_dtype_t dtype); /* 0 columns: 1-D */
void bench_write_rows(bench_rank_t *rank, void *to, wholememory_dtype_t dtype, int64_t columns, const int64_t *rows,
                      int64_t first, int64_t count, unsigned version);
double bench_wrong_in_rows(bench_rank_t *rank, const void *from, wholememory_dtype_t dtype, int64_t columns,
                           const int64_t *rows, int64_t count, unsigned version);
uint32_t bench_mix(uint64_t x);

/* The memory that an operation allocated for the context `output` (zeroed before its first use), until its next use. */
typedef struct {
  void *block, *home;
  int64_t count;
} bench_output_t;
void *bench_output_memory(const bench_output_t *output);
/* The block may be given out again. */
void bench_output_end(bench_rank_t *rank, bench_output_t *output);

/* The cases, by kind. Each verifies before it times; they run on every rank together. */
bench_result_t bench_rows(bench_rank_t *rank, const bench_case_t *what);         /* gather, scatter, small, replay */
bench_result_t bench_meeting(bench_rank_t *rank, const bench_case_t *what);      /* meet */
bench_result_t bench_copying(bench_rank_t *rank, const bench_case_t *what);      /* copy */
bench_result_t bench_embedding(bench_rank_t *rank, const bench_case_t *what);    /* embedding, step */
bench_result_t bench_graph(bench_rank_t *rank, const bench_case_t *what);        /* sample, weighted, unique */
bench_result_t bench_allocation(bench_rank_t *rank, const bench_case_t *what);   /* malloc */
bench_result_t bench_load(bench_rank_t *rank, const bench_case_t *what);         /* load, load-fresh */
bench_result_t bench_barrier(bench_rank_t *rank, const bench_case_t *what);      /* barrier */
bench_result_t bench_communicator(bench_rank_t *rank, const bench_case_t *what); /* communicator */

#endif
