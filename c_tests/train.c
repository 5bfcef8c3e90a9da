/* Gradient steps against the formulas in double: every optimizer and type, three steps, duplicates inside and across
 * ranks, ids that name no row, ranks without gradients, a rank that fails; the order of the sums bit for bit; the states. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "rows.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, ROWS = 41, MOST_COLUMNS = 20, STEPS = 3 };

static const char* const optimizer_names[] = {"NONE", "SGD", "LAZY_ADAM", "RMSPROP", "ADAGRAD"};
static const char* const state_names[][4] = {{0}, {0}, {"m", "v", "beta12t"}, {"v"}, {"state_sum"}};

typedef struct {
  wm_kind kind;
  wholememory_dtype_t dtype, gradients;
  wholememory_optimizer_type_t optimizer;
  float decay, adam_w;
  int round_robin;
  int64_t columns;
  float cache; /* its ratio; 0 is none */
} job;

/* First values and gradients are exact in every type. */
static double gradient(int rank, int step, int64_t i, int64_t column) {
  return ((double)(wm_hash(wm_hash((uint64_t)rank * 8 + (uint64_t)step, (uint64_t)i), (uint64_t)column) % 33) - 16) / 8;
}

/* Rank 1 has nothing in the first step, all have in the second, only the last rank has in the third. */
static int64_t count_of(int rank, int size, int step) {
  if (step == 0 && rank == 1) return 0;
  if (step == 2 && rank != size - 1) return 0;
  return 90 + 7 * rank;
}

static int64_t id_of(int rank, int step, int64_t i) {
  uint64_t h = wm_hash((uint64_t)(rank * 31 + step), (uint64_t)i);
  switch (h % 8) {
    case 0: return -1 - (int64_t)(h >> 40);
    case 1: return ROWS + (int64_t)(h >> 40);
    case 2: return 7; /* a row that all name often */
    default: return (int64_t)((h >> 8) % ROWS);
  }
}

typedef struct { double w[ROWS][MOST_COLUMNS], m[ROWS][MOST_COLUMNS], v[ROWS][MOST_COLUMNS]; int steps[ROWS]; } reference;

static void update(reference* ref, const job* j, int64_t row, const double* sums, float lr, double decay) {
  int t = ++ref->steps[row];
  for (int64_t c = 0; c < j->columns; c++) {
    double *w = &ref->w[row][c], *m = &ref->m[row][c], *v = &ref->v[row][c], g = sums[c], rate = (double)lr;
    const double b1 = (double)0.9f, b2 = (double)0.999f, alpha = (double)0.99f, epsilon = (double)1e-8f;
    bool adam_w = j->optimizer == WHOLEMEMORY_OPT_LAZY_ADAM && j->adam_w > 0.5f;
    if (!adam_w) g += decay * *w;
    switch (j->optimizer) {
      case WHOLEMEMORY_OPT_SGD: *w -= rate * g; break;
      case WHOLEMEMORY_OPT_LAZY_ADAM:
        if (adam_w) *w -= rate * decay * *w;
        *m = b1 * *m + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        *w -= rate * (*m / (1 - pow(b1, t))) / (sqrt(*v / (1 - pow(b2, t))) + epsilon);
        break;
      case WHOLEMEMORY_OPT_RMSPROP:
        *m = alpha * *m + (1 - alpha) * g * g;
        *w -= rate * g / (sqrt(*m) + epsilon);
        break;
      default:
        *m += g * g;
        *w -= rate * g / (sqrt(*m) + epsilon);
    }
    /* What the table's type rounds away is gone for the next step too. */
    *w = wm_number(j->dtype, wm_rounded(j->dtype, *w));
  }
}

/* `failing` takes part with nothing; -1 is none. */
static void reference_step(reference* ref, const job* j, int size, int step, int failing, float lr, double decay) {
  static const double zero[MOST_COLUMNS];
  double sums[ROWS][MOST_COLUMNS];
  bool named[ROWS] = {false};
  for (int row = 0; row < ROWS; row++) memcpy(sums[row], zero, sizeof zero);
  for (int rank = 0; rank < size; rank++)
    for (int64_t i = 0; i < count_of(rank, size, step) && rank != failing; i++) {
      int64_t id = id_of(rank, step, i);
      if (id < 0 || id >= ROWS) continue;
      named[id] = true;
      for (int64_t c = 0; c < j->columns; c++) sums[id][c] += gradient(rank, step, i, c);
    }
  for (int row = 0; row < ROWS; row++)
    if (named[row]) update(ref, j, row, sums[row], lr, decay);
}

static int apply(wm_rows* e, const job* j, int step, bool wrong, float lr) {
  int64_t n = count_of(e->rank, e->size, step);
  /* Ranks differ in the types of ids and gradients. */
  wholememory_dtype_t ids_dtype = (e->rank + step) % 3 ? WHOLEMEMORY_DT_INT64 : WHOLEMEMORY_DT_INT;
  wm_array ids = wm_array_make((wm_view){ids_dtype, 1, n, 1, 1, 1, 0});
  wholememory_dtype_t type = j->round_robin && e->rank % 2 ? WHOLEMEMORY_DT_FLOAT : j->gradients;
  wm_array grads = wm_array_make((wm_view){wrong ? WHOLEMEMORY_DT_DOUBLE : type, 2, n, j->columns, j->columns + 1, 2, 0});
  for (int64_t i = 0; i < n; i++) {
    wm_set_bits(ids_dtype, wm_array_at(&ids, i, 0), (uint64_t)id_of(e->rank, step, i));
    for (int64_t c = 0; c < j->columns; c++)
      wm_set_bits(grads.view.dtype, wm_array_at(&grads, i, c), wm_rounded(grads.view.dtype, gradient(e->rank, step, i, c)));
  }
  wm_array_push(&ids);
  wm_array_push(&grads);
  wm_env env;
  wm_env_start(&env);
  int64_t tensors = get_wholememory_tensor_count();
  int code = wholememory_embedding_gather_gradient_apply(e->embedding, ids.tensor, grads.tensor, step % 2, lr, &env.fns, 0);
  BALANCED(&env);
  CHECK_EQ(env.output_mallocs, 0);
  /* Threads make tensors of their own meanwhile. */
  if (e->size == 1) CHECK_EQ(get_wholememory_tensor_count(), tensors);
  wm_array_matches(&grads, "gradients after a step");
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  OK(wholememory_communicator_barrier(e->comm));
  return code;
}

static bool close_to(double got, double want, double bound) { return fabs(got - want) <= bound * (1 + fabs(want)); }

static int64_t stored_row(const wm_rows* e, int64_t row) {
  int64_t block = e->shape.round_robin;
  if (!block || e->size == 1) return row;
  wholememory_tensor_t root = wholememory_tensor_get_root(e->tensor);
  int64_t turn = block * e->size, rank_rows = wholememory_tensor_get_tensor_description(root)->sizes[0] / e->size;
  return row / block % e->size * rank_rows + row / turn * block + row % block;
}

/* Every row of a FLOAT tensor that belongs to the embedding, through a gather (collective where its memory is). */
static void compare_state(const wm_rows* e, wholememory_tensor_t state, const double (*want)[MOST_COLUMNS], int64_t columns, const char* what) {
  REQUIRE(state != NULL);
  const wholememory_tensor_description_t* d = wholememory_tensor_get_tensor_description(state);
  const wholememory_tensor_description_t* table = wholememory_tensor_get_tensor_description(e->tensor);
  CHECK(d->dim == 2 && d->sizes[0] == table->sizes[0] && d->sizes[1] == columns && d->dtype == WHOLEMEMORY_DT_FLOAT);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, ROWS, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, ROWS, columns, columns, 0, 0});
  for (int64_t i = 0; i < ROWS; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)stored_row(e, i));
  wm_array_push(&ids);
  EXPECT(0, wholememory_gather(state, ids.tensor, out.tensor, NULL, NULL, -1));
  wm_finish();
  wm_copy(out.host, out.device, out.bytes);
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t c = 0; c < columns; c++) {
      double got = wm_number(WHOLEMEMORY_DT_FLOAT, wm_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&out, i, c)));
      if (!close_to(got, want[i][c], 2e-5)) FAILED("%s: row %lld column %lld is %.9g, not %.9g", what, (long long)i, (long long)c, got, want[i][c]);
    }
  wm_array_drop(&ids);
  wm_array_drop(&out);
  OK(wholememory_communicator_barrier(e->comm));
}

static void compare_table(const wm_rows* e, const reference* ref, int64_t columns, const char* what) {
  double bound = e->shape.dtype == WHOLEMEMORY_DT_FLOAT ? 1e-5 : e->shape.dtype == WHOLEMEMORY_DT_HALF ? 5e-3 : 2e-2;
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, ROWS, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){e->shape.dtype, 2, ROWS, columns, columns, 0, 0});
  for (int64_t i = 0; i < ROWS; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i);
  wm_array_push(&ids);
  EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, false, NULL, 0));
  wm_finish();
  wm_copy(out.host, out.device, out.bytes);
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t c = 0; c < columns; c++) {
      double got = wm_number(e->shape.dtype, wm_bits(e->shape.dtype, wm_array_at(&out, i, c)));
      if (!close_to(got, ref->w[i][c], bound)) FAILED("%s: row %lld column %lld is %.9g, not %.9g", what, (long long)i, (long long)c, got, ref->w[i][c]);
    }
  wm_array_drop(&ids);
  wm_array_drop(&out);
  OK(wholememory_communicator_barrier(e->comm));
}

static void compare_states(const wm_rows* e, const job* j, const reference* ref, const char* what) {
  const char* const* names = wholememory_embedding_get_optimizer_state_names(e->embedding);
  REQUIRE(names != NULL);
  int count = 0;
  for (; names[count]; count++) {
    CHECK(state_names[j->optimizer][count] && !strcmp(names[count], state_names[j->optimizer][count]));
    wholememory_tensor_t state = wholememory_embedding_get_optimizer_state(e->embedding, names[count]);
    CHECK(state == wholememory_embedding_get_optimizer_state(e->embedding, names[count]));
    EXPECT(BAD_INPUT, wholememory_destroy_tensor(state));
    if (!strcmp(names[count], "beta12t")) {
      double powers[ROWS][MOST_COLUMNS];
      for (int i = 0; i < ROWS; i++) powers[i][0] = pow((double)0.9f, ref->steps[i]), powers[i][1] = pow((double)0.999f, ref->steps[i]);
      wholememory_handle_t handle = wholememory_tensor_get_memory_handle(state);
      CHECK_EQ(wholememory_get_memory_type(handle), WHOLEMEMORY_MT_DISTRIBUTED);
      CHECK_EQ(wholememory_get_memory_location(handle), WHOLEMEMORY_ML_DEVICE);
      compare_state(e, state, powers, 2, what);
    } else {
      bool second = j->optimizer == WHOLEMEMORY_OPT_LAZY_ADAM && count == 1;
      compare_state(e, state, second ? ref->v : ref->m, j->columns, what);
    }
  }
  CHECK(state_names[j->optimizer][count] == NULL);
  CHECK(wholememory_embedding_get_optimizer_state(e->embedding, "weights") == NULL);
  CHECK(wholememory_embedding_get_optimizer_state(e->embedding, "") == NULL);
}

static wholememory_embedding_optimizer_t optimizer(const job* j) {
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, j->optimizer));
  float decay = j->decay, adam_w = j->adam_w;
  EXPECT(0, wholememory_optimizer_set_parameter(made, "weight_decay", &decay));
  if (j->optimizer == WHOLEMEMORY_OPT_LAZY_ADAM) EXPECT(0, wholememory_optimizer_set_parameter(made, "adam_w", &adam_w));
  return made;
}

static void steps(wm_rank* r, job j) {
  char what[200];
  snprintf(what, sizeof what, "%s %s %s gradients %s decay %g adam_w %g round robin %d cache %g", j.kind.name, optimizer_names[j.optimizer],
           wm_dtype_name(j.dtype), wm_dtype_name(j.gradients), (double)j.decay, (double)j.adam_w, j.round_robin,
           (double)j.cache);
  wm_rows_shape shape = {.kind = j.kind, .dtype = j.dtype, .rows = ROWS, .columns = j.columns, .round_robin = j.round_robin};
  if (j.cache > 0)
    OK(wholememory_create_embedding_cache_policy(&shape.policy, wm_world(r), WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_DEVICE,
                                                 WHOLEMEMORY_AT_READWRITE, j.cache));
  wm_rows e = wm_rows_make(wm_world(r), shape);
  OK(wholememory_destroy_embedding_cache_policy(shape.policy));
  wm_rows_fill(&e, wm_first_value, 0);
  reference* ref = calloc(1, sizeof *ref);
  REQUIRE(ref != NULL);
  for (int row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < j.columns; c++) ref->w[row][c] = wm_number(j.dtype, wm_first_value(j.dtype, row, c, 0));
  wholememory_embedding_optimizer_t made = optimizer(&j);
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  float decay = j.decay;
  for (int step = 0; step < STEPS; step++) {
    if (step == 2) { /* a parameter is read at each step */
      decay = j.decay / 2;
      EXPECT(0, wholememory_optimizer_set_parameter(made, "weight_decay", &decay));
    }
    float lr = 0.05f / (float)(step + 1);
    int failing = step == 1 && r->size > 1 ? r->size - 1 : -1;
    EXPECT(r->rank == failing ? BAD_INPUT : 0, apply(&e, &j, step, r->rank == failing, lr));
    reference_step(ref, &j, r->size, step, failing, lr, (double)decay);
    compare_table(&e, ref, j.columns, what);
  }
  /* The embedding keeps its optimizer. */
  wholememory_destroy_embedding_optimizer(made);
  /* The raw tables of a cached embedding are right after a write-back. */
  EXPECT(0, wholememory_embedding_writeback_cache(e.embedding, 0));
  compare_states(&e, &j, ref, what);
  EXPECT(0, wholememory_embedding_drop_all_cache(e.embedding, 0));
  compare_table(&e, ref, j.columns, what);
  free(ref);
  wm_rows_drop(&e);
}

/* Row 3 gets 5000 gradients over all ranks, others 512 and 513: with SGD, rate 1 and a table of zeros the row is minus the
 * sum in the order of the contract, bit for bit. */
static float hot_gradient(int rank, int64_t i, int64_t column) {
  return (float)(wm_hash(wm_hash((uint64_t)rank, (uint64_t)i), (uint64_t)column) >> 40) / 4096.0f - 1500.0f;
}
static int64_t hot_id(int64_t i) { return i < 5000 ? 3 : i < 5512 ? 5 : i < 6025 ? 8 : 9; }

static void sum_order(wm_rank* r, const wm_kind* k) {
  enum { COLUMNS = 5, TOTAL = 6100 };
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 11, .columns = COLUMNS});
  wm_rows_fill(&e, wm_zero_value, 0);
  job j = {.optimizer = WHOLEMEMORY_OPT_SGD};
  wholememory_embedding_optimizer_t made = optimizer(&j);
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  /* Gradient i belongs to rank i % size, whose own order is that of i. */
  int64_t n = (TOTAL - r->rank + r->size - 1) / r->size;
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, n, 1, 1, 0, 0});
  wm_array grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, n, COLUMNS, COLUMNS, 0, 0});
  for (int64_t i = 0; i < n; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)hot_id(i * r->size + r->rank));
    for (int64_t c = 0; c < COLUMNS; c++) {
      float value = hot_gradient(r->rank, i, c);
      memcpy(wm_array_at(&grads, i, c), &value, 4);
    }
  }
  wm_array_push(&ids);
  wm_array_push(&grads);
  EXPECT(0, wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 1.0f, NULL, 0));
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  wm_array all = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 11, 1, 1, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 11, COLUMNS, COLUMNS, 0, 0});
  for (int64_t row = 0; row < 11; row++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&all, row, 0), (uint64_t)row);
  wm_array_push(&all);
  EXPECT(0, wholememory_embedding_gather(e.embedding, all.tensor, out.tensor, false, NULL, 0));
  for (int64_t row = 0; row < 11; row++)
    for (int64_t c = 0; c < COLUMNS; c++) {
      volatile float sum = 0, run = 0;
      int64_t in_run = 0, runs = 0;
      for (int rank = 0; rank < r->size; rank++)
        for (int64_t i = 0; i * r->size + rank < TOTAL; i++) {
          if (hot_id(i * r->size + rank) != row) continue;
          if (in_run == 512) sum = runs++ ? sum + run : run, in_run = 0;
          run = in_run++ ? run + hot_gradient(rank, i, c) : hot_gradient(rank, i, c);
        }
      if (in_run) sum = runs++ ? sum + run : run;
      float want = runs ? 0.0f - sum : 0.0f;
      memcpy(wm_array_at(&out, row, c), &want, 4);
    }
  wm_array_matches(&out, k->name);
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  wm_array_drop(&all);
  wm_array_drop(&out);
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
}

/* The states go through files into another embedding, which then steps like the first. */
static void states_travel(wm_rank* r, const wm_kind* k) {
  job j = {.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .gradients = WHOLEMEMORY_DT_FLOAT, .optimizer = WHOLEMEMORY_OPT_LAZY_ADAM, .columns = 6};
  wm_rows e[2];
  wholememory_embedding_optimizer_t made = optimizer(&j);
  reference* ref = calloc(1, sizeof *ref);
  REQUIRE(ref != NULL);
  for (int row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < j.columns; c++) ref->w[row][c] = wm_number(j.dtype, wm_first_value(j.dtype, row, c, 0));
  for (int i = 0; i < 2; i++) {
    e[i] = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = j.dtype, .rows = ROWS, .columns = j.columns});
    wm_rows_fill(&e[i], i ? wm_zero_value : wm_first_value, 0);
    EXPECT(0, wholememory_embedding_set_optimizer(e[i].embedding, made));
  }
  EXPECT(0, apply(&e[0], &j, 0, false, 0.05f));
  reference_step(ref, &j, r->size, 0, -1, 0.05f, 0);
  char folder[64];
  snprintf(folder, sizeof folder, "/tmp/wm_train_XXXXXX");
  if (r->rank == 0) REQUIRE(mkdtemp(folder) != NULL);
  wm_share(r, folder, sizeof folder);
  for (int part = 0; part < 4; part++) {
    const char* name = part < 3 ? state_names[WHOLEMEMORY_OPT_LAZY_ADAM][part] : "table";
    wholememory_tensor_t from = part < 3 ? wholememory_embedding_get_optimizer_state(e[0].embedding, name) : e[0].tensor;
    wholememory_tensor_t to = part < 3 ? wholememory_embedding_get_optimizer_state(e[1].embedding, name) : e[1].tensor;
    const wholememory_tensor_description_t d = *wholememory_tensor_get_tensor_description(from);
    size_t offset = (size_t)d.storage_offset * 4, stride = (size_t)d.strides[0] * 4, entry = (size_t)d.sizes[1] * 4;
    char paths[64][100];
    const char* names[64];
    for (int i = 0; i < r->size; i++) {
      snprintf(paths[i], sizeof paths[i], "%s/%s_%d", folder, name, i);
      names[i] = paths[i];
    }
    EXPECT(0, wholememory_store_to_file(wholememory_tensor_get_memory_handle(from), offset, stride, entry, paths[r->rank]));
    OK(wholememory_communicator_barrier(e[0].comm));
    EXPECT(0, wholememory_load_from_file(wholememory_tensor_get_memory_handle(to), offset, stride, entry, names, r->size, 0));
    OK(wholememory_communicator_barrier(e[0].comm));
    remove(paths[r->rank]);
  }
  wm_meet(r);
  if (r->rank == 0) remove(folder);
  compare_states(&e[1], &j, ref, "states from files");
  EXPECT(0, apply(&e[1], &j, 1, false, 0.05f));
  reference_step(ref, &j, r->size, 1, -1, 0.05f, 0);
  compare_table(&e[1], ref, j.columns, "a step with states from files");
  compare_states(&e[1], &j, ref, "states after such a step");
  wholememory_destroy_embedding_optimizer(made);
  free(ref);
  for (int i = 0; i < 2; i++) wm_rows_drop(&e[i]);
}

/* More than 2^32 elements (WM_TEST_LARGE, 26 GiB of device memory): the rows around every power of two that arithmetic of 32 bits would lose. */
static void large_table(wm_rank* r, const wm_kind* k) {
  enum { COLUMNS = 128, COUNT = 9 };
  const int64_t rows = ((int64_t)1 << 25) + 5000, last = rows - 1;
  const int64_t ids_wanted[COUNT] = {0, last, ((int64_t)1 << 24) - 1, (int64_t)1 << 24, ((int64_t)1 << 25) - 1, (int64_t)1 << 25, rows, 1 << 23, 17};
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_HALF, .rows = rows, .columns = COLUMNS});
  job j = {.optimizer = WHOLEMEMORY_OPT_ADAGRAD};
  wholememory_embedding_optimizer_t made = optimizer(&j);
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0});
  wm_array values = wm_array_make((wm_view){WHOLEMEMORY_DT_HALF, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  wm_array grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_HALF, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int i = 0; i < COUNT; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)ids_wanted[i]);
    for (int c = 0; c < COLUMNS; c++) {
      wm_set_bits(WHOLEMEMORY_DT_HALF, wm_array_at(&values, i, c), wm_rounded(WHOLEMEMORY_DT_HALF, i + 1));
      wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&grads, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, i % 2 ? 2 : -2));
      /* AdaGrad's first step is the rate in the direction of the gradient. */
      if (ids_wanted[i] < rows) wm_set_bits(WHOLEMEMORY_DT_HALF, wm_array_at(&out, i, c), wm_rounded(WHOLEMEMORY_DT_HALF, i + 1 - (i % 2 ? 0.5 : -0.5)));
    }
  }
  wm_array_push(&ids), wm_array_push(&values), wm_array_push(&grads);
  wholememory_tensor_description_t* n = wholememory_tensor_get_tensor_description(ids.tensor);
  if (r->rank != 0) n->sizes[0] = wholememory_tensor_get_tensor_description(values.tensor)->sizes[0] = wholememory_tensor_get_tensor_description(grads.tensor)->sizes[0] = 0;
  EXPECT(0, wholememory_scatter(values.tensor, ids.tensor, e.tensor, NULL, NULL, -1));
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  EXPECT(0, wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 0.5f, NULL, 0));
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  n->sizes[0] = COUNT;
  EXPECT(0, wholememory_embedding_gather(e.embedding, ids.tensor, out.tensor, false, NULL, 0));
  wm_array_matches(&out, "rows far apart");
  wm_array_drop(&ids), wm_array_drop(&values), wm_array_drop(&grads), wm_array_drop(&out);
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
}

static void body(wm_rank* r) {
  if (getenv("WM_TEST_LARGE")) {
    for (int i = 0; i < WM_KINDS; i += 2)
      if (wm_kinds[i].type != WHOLEMEMORY_MT_HIERARCHY && wm_kind_here(r, wm_world(r), &wm_kinds[i])) large_table(r, &wm_kinds[i]);
    return;
  }
  const wholememory_dtype_t types[] = {WHOLEMEMORY_DT_FLOAT, WHOLEMEMORY_DT_HALF, WHOLEMEMORY_DT_BF16};
  for (int i = 0; i < WM_KINDS; i++) {
    const wm_kind* k = &wm_kinds[i];
    if (!wm_kind_here(r, wm_world(r), k)) continue;
    for (int o = WHOLEMEMORY_OPT_SGD; o <= WHOLEMEMORY_OPT_ADAGRAD; o++)
      for (int t = 0; t < 9; t++) {
        job j = {.kind = *k, .dtype = types[t / 3], .gradients = types[t % 3], .optimizer = (wholememory_optimizer_type_t)o,
                 .decay = t % 2 ? 0.03f : 0, .columns = t % 2 ? 11 : 20, .round_robin = t % 4 == 3 ? 2 : 0};
        steps(r, j);
        if (o == WHOLEMEMORY_OPT_LAZY_ADAM && t % 2) {
          j.adam_w = 1;
          steps(r, j);
        }
        /* Of a set of 32 lines for more rows, and of lines for all rows. */
        j.cache = t % 2 ? 0.3f : 1;
        if (k->type != WHOLEMEMORY_MT_HIERARCHY && t % 2 == o % 2) steps(r, j);
      }
    sum_order(r, k);
    states_travel(r, k);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
