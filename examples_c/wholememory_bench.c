/* Benchmark of any library with the WholeMemory C ABI. The library is opened by path at run time; every case
 * is verified, then timed; one table comes out. See --help. */
#include "bench.h"
#include "options.h"

enum { LIST_MAX = 32, MIB = 1 << 20 };

typedef struct {
  const char *name;
  int value;
} word_t;

static const word_t op_words[] = {{"gather", OP_GATHER},
                                  {"scatter", OP_SCATTER},
                                  {"small", OP_SMALL},
                                  {"malloc", OP_MALLOC},
                                  {"load", OP_LOAD},
                                  {"load-fresh", OP_LOAD_FRESH},
                                  {"barrier", OP_BARRIER},
                                  {"communicator", OP_COMMUNICATOR},
                                  {"meet", OP_MEET},
                                  {"replay", OP_REPLAY},
                                  {"copy", OP_COPY},
                                  {"embedding", OP_EMBEDDING},
                                  {"step", OP_STEP},
                                  {"sample", OP_SAMPLE},
                                  {"weighted", OP_WEIGHTED},
                                  {"unique", OP_UNIQUE},
                                  {NULL, 0}};
static const word_t type_words[] = {{"continuous", WHOLEMEMORY_MT_CONTINUOUS},
                                    {"chunked", WHOLEMEMORY_MT_CHUNKED},
                                    {"distributed", WHOLEMEMORY_MT_DISTRIBUTED},
                                    {"hierarchy", WHOLEMEMORY_MT_HIERARCHY},
                                    {NULL, 0}};
static const word_t location_words[] = {{"device", WHOLEMEMORY_ML_DEVICE}, {"host", WHOLEMEMORY_ML_HOST}, {NULL, 0}};
static const word_t dtype_words[] = {
    {"float", WHOLEMEMORY_DT_FLOAT}, {"half", WHOLEMEMORY_DT_HALF}, {"double", WHOLEMEMORY_DT_DOUBLE},
    {"bf16", WHOLEMEMORY_DT_BF16},   {"int", WHOLEMEMORY_DT_INT},   {"int64", WHOLEMEMORY_DT_INT64},
    {"int16", WHOLEMEMORY_DT_INT16}, {"int8", WHOLEMEMORY_DT_INT8}, {NULL, 0}};
static const word_t index_words[] = {{"int", WHOLEMEMORY_DT_INT}, {"int64", WHOLEMEMORY_DT_INT64}, {NULL, 0}};
static const word_t output_words[] = {{"same", WHOLEMEMORY_DT_UNKNOWN}, {"float", WHOLEMEMORY_DT_FLOAT},
                                      {"half", WHOLEMEMORY_DT_HALF},    {"double", WHOLEMEMORY_DT_DOUBLE},
                                      {"bf16", WHOLEMEMORY_DT_BF16},    {"int", WHOLEMEMORY_DT_INT},
                                      {"int64", WHOLEMEMORY_DT_INT64},  {"int16", WHOLEMEMORY_DT_INT16},
                                      {"int8", WHOLEMEMORY_DT_INT8},    {NULL, 0}};
static const word_t optimizer_words[] = {{"sgd", WHOLEMEMORY_OPT_SGD},
                                         {"adam", WHOLEMEMORY_OPT_LAZY_ADAM},
                                         {"rmsprop", WHOLEMEMORY_OPT_RMSPROP},
                                         {"adagrad", WHOLEMEMORY_OPT_ADAGRAD},
                                         {NULL, 0}};
static const word_t order_words[] = {
    {"random", ORDER_RANDOM}, {"sorted", ORDER_SORTED}, {"sequential", ORDER_SEQUENTIAL}, {"next", ORDER_NEXT}, {NULL, 0}};

typedef struct {
  int64_t value[LIST_MAX];
  int count;
} list_t;

/* What the command line says, as text and then as lists. NULL text means: what suits the platform. */
typedef struct {
  const char *library, *ops, *types, *locations, *dtypes, *outputs, *indexes, *order, *columns, *rows, *table_mib;
  const char *directory, *skews, *caches, *optimizers, *fanouts;
  long repetitions, iterations, width, readers, batches;
  int skip_verify, still;
} request_t;

typedef struct {
  request_t request;
  bench_api_t api;
  bench_settings_t settings;
} plan_t;

static const char *name_of(const word_t *words, int value) {
  for (; words->name; words++)
    if (words->value == value) return words->name;
  return "-";
}

/* Reads a,b,c by name ("all": every name); a name that is not there ends the program with the names that are. */
static list_t read_names(ranks_t *ranks, const char *option, const char *text, const word_t *words) {
  list_t list = {{0}, 0};
  char copy[512], *rest = copy;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *item = strsep(&rest, ","); item && list.count < LIST_MAX; item = strsep(&rest, ",")) {
    int found = 0;
    for (const word_t *w = words; w->name; w++)
      if (!strcmp(item, w->name) || (!strcmp(item, "all") && list.count < LIST_MAX)) {
        list.value[list.count++] = w->value;
        found = 1;
      }
    if (found) continue;
    if (ranks->rank == 0) {
      fprintf(stderr, "%s does not know \"%s\"; it knows:", option, item);
      for (const word_t *w = words; w->name; w++) fprintf(stderr, " %s", w->name);
      fprintf(stderr, " all\n");
    }
    list.count = 0;
    return list;
  }
  return list;
}

/* `most` keeps products of sizes within 64 bits. */
static list_t read_numbers(ranks_t *ranks, const char *option, const char *text, long least, long most) {
  list_t list = {{0}, 0};
  char copy[512], *rest = copy;
  snprintf(copy, sizeof copy, "%s", text);
  for (char *item = strsep(&rest, ","); item && list.count < LIST_MAX; item = strsep(&rest, ",")) {
    long value = 0;
    int good = options_number(ranks->rank, option, item, &value);
    if (good && value < least) good = options_refuse(ranks->rank, "%s %ld: it must be at least %ld", option, value, least);
    if (good && value > most) good = options_refuse(ranks->rank, "%s %ld: it must be at most %ld", option, value, most);
    if (!good) {
      list.count = 0;
      return list;
    }
    list.value[list.count++] = value;
  }
  return list;
}

static int op_has_rows(int64_t op) {
  return op == OP_GATHER || op == OP_SCATTER || op == OP_SMALL || op == OP_REPLAY;
}
static int op_learns(int64_t op) { return op == OP_EMBEDDING || op == OP_STEP; }
static int op_samples(int64_t op) { return op == OP_SAMPLE || op == OP_WEIGHTED || op == OP_UNIQUE; }
static int op_has_table(int64_t op) { return op != OP_BARRIER && op != OP_COMMUNICATOR && op != OP_MEET; }

static bench_result_t measure(bench_rank_t *rank, const bench_case_t *what) {
  switch (what->op) {
    case OP_MALLOC:
      return bench_allocation(rank, what);
    case OP_LOAD:
    case OP_LOAD_FRESH:
      return bench_load(rank, what);
    case OP_BARRIER:
      return bench_barrier(rank, what);
    case OP_COMMUNICATOR:
      return bench_communicator(rank, what);
    case OP_EMBEDDING:
    case OP_STEP:
      return bench_embedding(rank, what);
    case OP_SAMPLE:
    case OP_WEIGHTED:
    case OP_UNIQUE:
      return bench_graph(rank, what);
    case OP_MEET:
      return bench_meeting(rank, what);
    case OP_COPY:
      return bench_copying(rank, what);
    default:
      return bench_rows(rank, what);
  }
}

typedef struct {
  int cases, unsupported, wrong;
} tally_t;

static void print_heading(const plan_t *plan, const bench_rank_t *rank) {
  printf("# library %s, %d ranks (%s), rank 0 on %s\n", plan->request.library, rank->ranks->size,
         ranks_kind_name(rank->ranks->kind), rank->device.name);
  printf(
      "# us: median of %d repetitions, of the slowest rank; GB/s: payload; ratio: reference / library (more is "
      "better)\n",
      plan->settings.repetitions);
  if (rank->settings->order != ORDER_RANDOM) printf("# order of the rows: %s\n", plan->request.order);
  printf("%-12s %-11s %-6s %-6s %-6s %-5s %-26s %6s %9s %9s %11s %9s %9s %11s %6s  %-22s %-22s %s\n", "op", "type", "loc", "dtype",
         "values", "index", "case", "cols", "table_MiB", "rows/call", "us/call", "GB/s/rank", "GB/s", "ref_us", "ratio",
         "reference", "note", "check");
}

/* What sets a case apart beside the columns of the table, without blanks. */
static void say_case(const bench_case_t *what, char *text, size_t room) {
  snprintf(text, room, "-");
  if (op_samples(what->op)) snprintf(text, room, "fanout=%d", what->fanout);
  if (what->op == OP_EMBEDDING) snprintf(text, room, "skew=%.2f,cache=%.3f", what->skew, what->cache_ratio);
  if (what->op == OP_STEP)
    snprintf(text, room, "%s,skew=%.2f,cache=%.3f", name_of(optimizer_words, (int)what->optimizer), what->skew,
             what->cache_ratio);
}

static void print_case(const bench_case_t *what, const bench_result_t *r, int size, int verified) {
  int rows = op_has_rows(what->op) || op_learns(what->op), table = op_has_table(what->op);
  char apart[64];
  say_case(what, apart, sizeof apart);
  char cols[24] = "-", table_mib[24] = "-", call_rows[24] = "-", each[24] = "-", all[24] = "-", ref[24] = "-",
       ratio[24] = "-";
  if (rows) snprintf(cols, sizeof cols, "%lld", (long long)what->columns);
  if (rows) snprintf(call_rows, sizeof call_rows, "%lld", (long long)what->call_rows);
  if (table && !op_samples(what->op)) snprintf(table_mib, sizeof table_mib, "%.1f", (double)what->table_bytes / MIB);
  if (r->payload_bytes > 0) snprintf(each, sizeof each, "%.3f", r->payload_bytes / r->call_us / 1e3);
  if (r->payload_bytes > 0) snprintf(all, sizeof all, "%.3f", r->payload_bytes * size / r->call_us / 1e3);
  if (r->reference_us > 0) snprintf(ref, sizeof ref, "%.2f", r->reference_us);
  if (r->reference_us > 0) snprintf(ratio, sizeof ratio, "%.2f", r->reference_us / r->call_us);
  char check[48];
  snprintf(check, sizeof check, r->wrong_values > 0 ? "%.0f-WRONG" : verified ? "ok" : "unchecked", r->wrong_values);
  printf("%-12s %-11s %-6s %-6s %-6s %-5s %-26s %6s %9s %9s %11.2f %9s %9s %11s %6s  %-22s %-22s %s\n",
         name_of(op_words, (int)what->op), table ? name_of(type_words, (int)what->type) : "-",
         table ? name_of(location_words, (int)what->location) : "-",
         rows ? name_of(dtype_words, (int)what->dtype) : "-",
         rows ? name_of(dtype_words, (int)what->output_dtype) : "-",
         rows ? name_of(dtype_words, (int)what->index_dtype) : "-", apart, cols, table_mib, call_rows, r->call_us, each,
         all, ref, ratio, r->reference ? r->reference : "-", r->note[0] ? r->note : "-", check);
  fflush(stdout);
}

static void run_case(bench_rank_t *rank, const bench_case_t *what, tally_t *tally) {
  tally->cases++;
  if (what->op == OP_REPLAY && !rank->device.driver) {
    tally->unsupported++;
    if (rank->ranks->rank == 0) printf("%-12s needs a GPU: there are no graphs without one\n", "replay");
    return;
  }
  if (op_has_table(what->op) && rank->api->wholememory_communicator_support_type_location(
                                    rank->communicator, what->type, what->location) != WHOLEMEMORY_SUCCESS) {
    tally->unsupported++;
    if (rank->ranks->rank == 0)
      printf("%-12s %-11s %-6s not supported here\n", name_of(op_words, (int)what->op),
             name_of(type_words, (int)what->type), name_of(location_words, (int)what->location));
    return;
  }
  if (what->op == OP_COPY && what->type != WHOLEMEMORY_MT_CONTINUOUS) {
    tally->unsupported++;
    if (rank->ranks->rank == 0) printf("%-12s needs a CONTINUOUS table: other ones are not at one address\n", "copy");
    return;
  }
  bench_result_t r = measure(rank, what);
  r.call_us = ranks_max(rank->ranks, r.call_us);
  r.reference_us = ranks_max(rank->ranks, r.reference_us);
  r.wrong_values = ranks_sum(rank->ranks, r.wrong_values);
  if (r.wrong_values > 0) tally->wrong++;
  int checks = op_has_rows(what->op) || op_learns(what->op) || op_samples(what->op);
  int verified = checks ? rank->settings->verify : 1;
  if (rank->ranks->rank == 0) print_case(what, &r, rank->ranks->size, verified);
}

typedef struct {
  list_t ops, types, locations, dtypes, outputs, indexes, columns, rows, table_mib, skews, caches, optimizers, fanouts;
} grid_t;

/* Gives a case its sizes: a table of whole rows, and by default as many rows a call as make 64 MiB. */
static bench_case_t sized(bench_case_t what, int64_t table_mib, int64_t rows) {
  what.table_bytes = (size_t)table_mib * MIB;
  if (!op_has_rows(what.op) && !op_learns(what.op)) return what;
  if (what.output_dtype == WHOLEMEMORY_DT_UNKNOWN) what.output_dtype = what.dtype;
  size_t row_bytes = (size_t)what.columns * bench_element_bytes(what.dtype);
  what.table_rows = (int64_t)(what.table_bytes / row_bytes);
  if (what.table_rows < 1) what.table_rows = 1;
  what.table_bytes = (size_t)what.table_rows * row_bytes;
  int64_t default_rows = 64 * MIB / (what.columns * (int64_t)bench_element_bytes(what.output_dtype));
  what.call_rows = what.op == OP_SMALL ? 1 : rows > 0 ? rows : default_rows > 0 ? default_rows : 1;
  return what;
}

static void run_rows(bench_rank_t *rank, const grid_t *g, bench_case_t what, int64_t table_mib, tally_t *tally) {
  for (int d = 0; d < g->dtypes.count; d++)
    for (int o = 0; o < g->outputs.count; o++)
      for (int i = 0; i < g->indexes.count; i++)
        for (int c = 0; c < g->columns.count; c++)
          for (int n = 0; n < (what.op == OP_SMALL ? 1 : g->rows.count); n++) {
            what.dtype = (wholememory_dtype_t)g->dtypes.value[d];
            what.output_dtype = (wholememory_dtype_t)g->outputs.value[o];
            what.index_dtype = (wholememory_dtype_t)g->indexes.value[i];
            what.columns = g->columns.value[c];
            bench_case_t full = sized(what, table_mib, g->rows.value[n]);
            run_case(rank, &full, tally);
          }
}

static void run_learning(bench_rank_t *rank, const grid_t *g, bench_case_t what, int64_t table_mib, tally_t *tally) {
  what.index_dtype = WHOLEMEMORY_DT_INT64;
  for (int d = 0; d < g->dtypes.count; d++)
    for (int c = 0; c < g->columns.count; c++)
      for (int n = 0; n < g->rows.count; n++)
        for (int skew = 0; skew < g->skews.count; skew++)
          for (int cache = 0; cache < g->caches.count; cache++)
            for (int o = 0; o < (what.op == OP_STEP ? g->optimizers.count : 1); o++) {
              what.dtype = what.output_dtype = (wholememory_dtype_t)g->dtypes.value[d];
              what.columns = g->columns.value[c];
              what.skew = (double)g->skews.value[skew] / 100;
              what.cache_ratio = (double)g->caches.value[cache] / 1000;
              what.optimizer = (wholememory_optimizer_type_t)g->optimizers.value[o];
              bench_case_t full = sized(what, table_mib, g->rows.value[n]);
              run_case(rank, &full, tally);
            }
}

static void run_grid(bench_rank_t *rank, const grid_t *g, tally_t *tally) {
  for (int op = 0; op < g->ops.count; op++) {
    bench_case_t what;
    memset(&what, 0, sizeof what);
    what.op = (bench_op_t)g->ops.value[op];
    if (!op_has_table(what.op)) {
      run_case(rank, &what, tally);
      continue;
    }
    for (int type = 0; type < g->types.count; type++)
      for (int location = 0; location < g->locations.count; location++)
        for (int size = 0; size < g->table_mib.count; size++) {
          what.type = (wholememory_memory_type_t)g->types.value[type];
          what.location = (wholememory_memory_location_t)g->locations.value[location];
          if (op_learns(what.op)) {
            run_learning(rank, g, what, g->table_mib.value[size], tally);
            continue;
          }
          if (op_samples(what.op)) {
            for (int f = 0; size == 0 && f < g->fanouts.count; f++) {
              what.fanout = (int)g->fanouts.value[f];
              run_case(rank, &what, tally);
            }
            continue;
          }
          if (op_has_rows(what.op)) {
            run_rows(rank, g, what, g->table_mib.value[size], tally);
            continue;
          }
          bench_case_t full = sized(what, g->table_mib.value[size], 0);
          run_case(rank, &full, tally);
        }
  }
}

/* Turns the request into lists; 0 after saying what is wrong with it. */
static int make_grid(bench_rank_t *rank, const request_t *r, grid_t *g) {
  int gpu = rank->device.driver != NULL;
  ranks_t *ranks = rank->ranks;
  g->ops = read_names(ranks, "--op", r->ops, op_words);
  g->types = read_names(ranks, "--type", r->types, type_words);
  g->locations = read_names(ranks, "--loc", r->locations ? r->locations : gpu ? "device" : "host", location_words);
  g->dtypes = read_names(ranks, "--dtype", r->dtypes, dtype_words);
  g->outputs = read_names(ranks, "--values", r->outputs, output_words);
  g->indexes = read_names(ranks, "--index", r->indexes, index_words);
  g->columns = read_numbers(ranks, "--cols", r->columns, 1, 1L << 22);
  g->table_mib = read_numbers(ranks, "--table-mib", r->table_mib ? r->table_mib : gpu ? "4096" : "256", 1, 1L << 30);
  g->skews = read_numbers(ranks, "--skew", r->skews, 0, 100000);
  g->caches = read_numbers(ranks, "--cache", r->caches, 0, 1000);
  g->fanouts = read_numbers(ranks, "--fanout", r->fanouts, 1, 1L << 30);
  g->optimizers = read_names(ranks, "--optimizer", r->optimizers, optimizer_words);
  g->rows = r->rows ? read_numbers(ranks, "--rows", r->rows, 1, 1L << 36) : (list_t){{0}, 1};
  return g->ops.count && g->types.count && g->locations.count && g->dtypes.count && g->outputs.count &&
         g->indexes.count && g->columns.count && g->table_mib.count && g->rows.count && g->skews.count &&
         g->caches.count && g->fanouts.count && g->optimizers.count;
}

static int run(ranks_t *ranks, void *argument) {
  const plan_t *plan = argument;
  bench_settings_t settings = plan->settings;
  bench_rank_t rank;
  memset(&rank, 0, sizeof rank);
  rank.api = &plan->api;
  rank.settings = &settings;
  rank.ranks = ranks;
  rank.device = device_open(ranks->rank);
  grid_t grid;
  list_t order = read_names(ranks, "--order", plan->request.order, order_words);
  if (!make_grid(&rank, &plan->request, &grid) || !order.count) return 2;
  if (order.count > 1) {
    options_refuse(ranks->rank, "--order takes one order, not \"%s\"", plan->request.order);
    return 2;
  }
  settings.order = (bench_order_t)order.value[0];
  for (int op = 0; settings.order != ORDER_RANDOM && op < grid.ops.count; op++)
    if (op_learns(grid.ops.value[op]) || op_samples(grid.ops.value[op])) {
      options_refuse(ranks->rank, "--order %s is for gather, scatter, small and replay; %s draws its own rows",
                     plan->request.order, name_of(op_words, (int)grid.ops.value[op]));
      return 2;
    }
  if (settings.reader_count < 1) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / ranks->size;
    settings.reader_count = cores < 1 ? 1 : cores > 8 ? 8 : (int)cores;
  }

  wholememory_unique_id_t id;
  memset(&id, 0, sizeof id);
  if (ranks->leads_process) BENCH_TRY(&rank, rank.api->wholememory_init(0, LEVEL_ERROR));
  ranks_meet(ranks);
  if (ranks->rank == 0) BENCH_TRY(&rank, rank.api->wholememory_create_unique_id(&id));
  ranks_broadcast(ranks, &id, sizeof id);
  BENCH_TRY(&rank, rank.api->wholememory_create_communicator(&rank.communicator, id, ranks->rank, ranks->size));
  bench_make_pool(&rank);

  tally_t tally = {0, 0, 0};
  if (ranks->rank == 0) print_heading(plan, &rank);
  run_grid(&rank, &grid, &tally);
  if (ranks->rank == 0)
    printf("# %d cases, %d not supported here, %d with wrong values\n", tally.cases, tally.unsupported, tally.wrong);
  fflush(stdout);

  bench_drop_pool(&rank);
  BENCH_TRY(&rank, rank.api->wholememory_destroy_communicator(rank.communicator));
  ranks_meet(ranks);
  if (ranks->leads_process) BENCH_TRY(&rank, rank.api->wholememory_finalize());
  return tally.wrong > 0;
}

int main(int argc, char **argv) {
  plan_t plan;
  memset(&plan, 0, sizeof plan);
  request_t *r = &plan.request;
  *r = (request_t){.ops = "gather,scatter,small,malloc,load,load-fresh,barrier,communicator",
                   .types = "continuous",
                   .dtypes = "float",
                   .outputs = "same",
                   .indexes = "int64",
                   .order = "random",
                   .columns = "128",
                   .skews = "99",
                   .caches = "200",
                   .optimizers = "adam",
                   .fanouts = "10",
                   .repetitions = 7,
                   .width = -1,
                   .batches = 64};
  const option_t options[] = {
      {"--lib", "PATH", "the library to drive (needed)", &r->library, NULL, NULL},
      {"--op", "LIST", "gather scatter small malloc load load-fresh barrier communicator meet replay copy embedding step sample weighted unique, or all [the first eight]", &r->ops, NULL, NULL},
      {"--type", "LIST", "continuous chunked distributed hierarchy, or all (continuous)", &r->types, NULL, NULL},
      {"--loc", "LIST", "device host, or all (device with a GPU, else host)", &r->locations, NULL, NULL},
      {"--dtype", "LIST", "of the table: float half double bf16 int int64 int16 int8 (float)", &r->dtypes, NULL, NULL},
      {"--values", "LIST", "dtype gathered into or scattered from; same: as the table (same)", &r->outputs, NULL, NULL},
      {"--index", "LIST", "int int64 (int64)", &r->indexes, NULL, NULL},
      {"--cols", "LIST", "elements in a row (128)", &r->columns, NULL, NULL},
      {"--rows", "LIST", "rows a call of each rank (as many as make 64 MiB)", &r->rows, NULL, NULL},
      {"--table-mib", "LIST", "size of the table in MiB (256; with a GPU 4096)", &r->table_mib, NULL, NULL},
      {"--order", "ORDER", "of the rows asked for: random sorted sequential, or next: those of the next rank, one after the other (random)", &r->order, NULL, NULL},
      {"--sms", "N", "gather_sms and scatter_sms, -1 is automatic (-1)", NULL, &r->width, NULL},
      {"--reps", "N", "repetitions, of which the median counts (7)", NULL, &r->repetitions, NULL},
      {"--iters", "N", "calls in a repetition (as many as last 50 ms)", NULL, &r->iterations, NULL},
      {"--readers", "N", "reader threads a rank when loading files (the library's default)", NULL, &r->readers, NULL},
      {"--dir", "PATH", "where the file to load is written (TMPDIR, else /tmp)", &r->directory, NULL, NULL},
      {"--skew", "LIST", "exponents of the ids of embeddings in hundredths, 0 is uniform (99)", &r->skews, NULL, NULL},
      {"--cache", "LIST", "rows of an embedding that its cache holds, in thousandths, 0 is no cache (200)", &r->caches, NULL,
       NULL},
      {"--batches", "N", "different batches of an embedding, in turn (64)", NULL, &r->batches, NULL},
      {"--still", "", "gathers from embeddings do not adjust the cache while they are timed", NULL, NULL, &r->still},
      {"--optimizer", "LIST", "of gradient steps: sgd adam rmsprop adagrad (adam)", &r->optimizers, NULL, NULL},
      {"--fanout", "LIST", "neighbours sampled of a center (10)", &r->fanouts, NULL, NULL},
      {"--no-verify", "", "time gathers and scatters without checking their values first", NULL, NULL, &r->skip_verify},
      {NULL, NULL, NULL, NULL, NULL, NULL}};
  const program_t program = {
      "Times the calls of any library with the WholeMemory C ABI, each case after its values were checked.\n"
      "LIST is one or more names or numbers with commas between; every combination is a case.\n"
      "small is a gather of one row, malloc is create and free, load goes into a table written before,\n"
      "load-fresh is create and load, meet a gather of no rows from a DISTRIBUTED table (its ranks meet twice),\n"
      "replay a gather that was recorded in a CUDA graph, copy whole blocks of the next rank's memory by the driver,\n"
      "embedding a gather through a cache in its third turn over the\n"
      "batches (note: its hit rate, and with one rank that of the best fixed rows), step a gradient step, sample and\n"
      "weighted draw neighbours of 200,000 centers in a generated graph of 2 million nodes, unique appends them to\n"
      "their centers. Beside some calls stands a reference: the same work without the library.",
      "", options};
  command_t command = options_begin(&program, argc, argv);
  int rank = 0;
#ifdef WITH_MPI
  if (ranks_under_mpirun()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
  if (!r->library || r->repetitions < 1 || r->repetitions > 1000 || r->readers < 0 || r->readers > 256 ||
      r->batches < 1 || r->batches > 4096) {
    options_refuse(rank, r->library ? "--reps is from 1 to 1000, --readers from 0 to 256 and --batches from 1 to 4096"
                                    : "--lib PATH is needed: the library to drive; --help explains all options");
    ranks_quit(2);
  }
  if (!r->directory) r->directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  plan.settings = (bench_settings_t){.repetitions = (int)r->repetitions,
                                     .iterations = r->iterations,
                                     .width = (int)r->width,
                                     .verify = !r->skip_verify,
                                     .order = ORDER_RANDOM,
                                     .reader_count = (int)r->readers,
                                     .batches = (int)r->batches,
                                     .still = r->still,
                                     .directory = r->directory};
  if (r->readers > 0) {
    char readers[24];
    snprintf(readers, sizeof readers, "%ld", r->readers);
    setenv("WG_LOAD_THREADS_PER_RANK", readers, 1);
  }
  plan.api = bench_open(r->library);
  return ranks_run((int)command.process_count, (int)command.thread_count, run, &plan);
}
