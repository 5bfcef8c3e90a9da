/* What training refuses: optimizers that do not fit, gradients of wrong shapes and types, scratch that is not there. Refused
 * steps change nothing and leave no rank waiting. */
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "rows.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR };

static void set_optimizer_codes(wm_rank* r, const wm_kind* k) {
  bool odd = r->rank == r->size - 1;
  wholememory_embedding_optimizer_t sgd, adam;
  OK(wholememory_create_embedding_optimizer(&sgd, WHOLEMEMORY_OPT_SGD));
  OK(wholememory_create_embedding_optimizer(&adam, WHOLEMEMORY_OPT_LAZY_ADAM));
  wm_rows ints = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_DOUBLE, .rows = 20, .columns = 4});
  for (int i = 0; i < 2; i++) EXPECT(WHOLEMEMORY_NOT_IMPLEMENTED, wholememory_embedding_set_optimizer(ints.embedding, sgd));
  CHECK(wholememory_embedding_get_optimizer_state_names(ints.embedding) == NULL);
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 20, .columns = 4});
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, NULL));
  CHECK(wholememory_embedding_get_optimizer_state_names(e.embedding) == NULL);
  if (r->size > 1) {
    EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_embedding_set_optimizer(e.embedding, odd ? adam : sgd));
    CHECK_HAS(wholememory_get_last_error(), "LazyAdam");
    EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_embedding_set_optimizer(e.embedding, odd ? NULL : sgd));
    EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_embedding_set_optimizer(odd ? e.embedding : ints.embedding, NULL));
    EXPECT(BAD_INPUT, wholememory_embedding_set_optimizer(e.embedding, odd ? (wholememory_embedding_optimizer_t)e.embedding : sgd));
  }
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, sgd));
  const char* const* names = wholememory_embedding_get_optimizer_state_names(e.embedding);
  CHECK(names != NULL && names[0] == NULL);
  EXPECT(WHOLEMEMORY_NOT_SUPPORTED, wholememory_embedding_set_optimizer(e.embedding, adam));
  float one = 1;
  EXPECT(BAD_INPUT, wholememory_optimizer_set_parameter(sgd, "epsilon", &one));
  EXPECT(BAD_INPUT, wholememory_optimizer_set_parameter(adam, "alpha", &one));
  EXPECT(BAD_INPUT, wholememory_optimizer_set_parameter(adam, NULL, &one));
  EXPECT(BAD_INPUT, wholememory_optimizer_set_parameter(adam, "beta1", NULL));
  wholememory_destroy_embedding_optimizer(sgd);
  EXPECT(BAD_INPUT, wholememory_optimizer_set_parameter(sgd, "weight_decay", &one));
  wholememory_destroy_embedding_optimizer(adam);
  wm_rows_drop(&ints);
  wm_rows_drop(&e);
}

/* Refused steps change nothing and leave no rank waiting. */
static void step_codes(wm_rank* r, const wm_kind* k) {
  enum { COUNT = 6, COLUMNS = 7 };
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_HALF, .rows = 20, .columns = COLUMNS});
  wm_rows_fill(&e, wm_first_value, 0);
  size_t bytes;
  unsigned char* before = wm_local_copy(e.tensor, &bytes);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0});
  wm_array grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i);
  wm_array_push(&ids);
#define STEP(ids, grads) wholememory_embedding_gather_gradient_apply(e.embedding, ids, grads, false, 0.5f, NULL, 0)
  EXPECT(BAD_INPUT, STEP(ids.tensor, grads.tensor));
  CHECK_HAS(wholememory_get_last_error(), "no optimizer");
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_SGD));
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  wholememory_tensor_description_t *i = wholememory_tensor_get_tensor_description(ids.tensor),
                                   *g = wholememory_tensor_get_tensor_description(grads.tensor), ids_good = *i, grads_good = *g;
#define REFUSED(want, change) \
  do { change; EXPECT(want, STEP(ids.tensor, grads.tensor)); *i = ids_good, *g = grads_good; } while (0)
  REFUSED(BAD_INPUT, (i->dim = 2, i->strides[1] = 1));
  REFUSED(BAD_INPUT, i->strides[0] = 2);
  REFUSED(BAD_INPUT, i->dtype = WHOLEMEMORY_DT_INT16);
  REFUSED(BAD_INPUT, i->dtype = WHOLEMEMORY_DT_FLOAT);
  REFUSED(BAD_INPUT, g->dim = 1);
  REFUSED(BAD_INPUT, g->dim = 3);
  REFUSED(BAD_INPUT, g->strides[1] = 2);
  REFUSED(BAD_INPUT, g->dtype = WHOLEMEMORY_DT_DOUBLE);
  REFUSED(BAD_INPUT, g->dtype = WHOLEMEMORY_DT_INT);
  REFUSED(LOGIC, g->sizes[0] = COUNT - 1);
  REFUSED(LOGIC, i->sizes[0] = COUNT - 1);
  REFUSED(BAD_INPUT, g->sizes[1] = COLUMNS + 1);
  REFUSED(BAD_INPUT, (g->sizes[1] = 9, g->strides[0] = 9));
  REFUSED(BAD_INPUT, g->sizes[1] = 0);
  REFUSED(BAD_INPUT, g->strides[0] = COLUMNS - 1);
  EXPECT(BAD_INPUT, STEP(NULL, grads.tensor));
  EXPECT(BAD_INPUT, STEP(ids.tensor, NULL));
  wholememory_tensor_t nothing;
  OK(wholememory_make_tensor_from_pointer(&nothing, NULL, &grads_good));
  EXPECT(BAD_INPUT, STEP(ids.tensor, nothing));
  OK(wholememory_destroy_tensor(nothing));
  /* Nothing of all this reached the table; nor do steps without gradients, with NULL for them. */
  wholememory_tensor_description_t none = wm_desc(WHOLEMEMORY_DT_INT64, 1, 0, 1, 1, 0), no_rows = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 0, COLUMNS, COLUMNS, 0);
  wholememory_tensor_t no_ids, no_grads;
  OK(wholememory_make_tensor_from_pointer(&no_ids, NULL, &none));
  OK(wholememory_make_tensor_from_pointer(&no_grads, NULL, &no_rows));
  EXPECT(0, STEP(no_ids, no_grads));
  OK(wholememory_destroy_tensor(no_ids));
  OK(wholememory_destroy_tensor(no_grads));
  OK(wholememory_communicator_barrier(e.comm));
  unsigned char* after = wm_local_copy(e.tensor, &bytes);
  CHECK(!memcmp(before, after, bytes));
  free(after);
  /* Fewer columns of the same padding update only those. */
  OK(wholememory_communicator_barrier(e.comm));
  for (int row = 0; row < COUNT; row++)
    for (int c = 0; c < COLUMNS; c++) {
      float two = 2;
      memcpy(wm_array_at(&grads, row, c), &two, 4);
    }
  wm_array_push(&grads);
  g->sizes[1] = COLUMNS - 2;
  if (r->rank != 0) i->sizes[0] = g->sizes[0] = 0;
  EXPECT(0, STEP(ids.tensor, grads.tensor));
  *i = ids_good, *g = grads_good;
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  after = wm_local_copy(e.tensor, &bytes);
  for (int64_t local = 0; local < (int64_t)(bytes / 16); local++) {
    int64_t row = wm_rows_held(&e, local);
    for (int64_t c = 0; c < COLUMNS && row >= 0; c++) {
      double want = wm_number(WHOLEMEMORY_DT_HALF, wm_first_value(WHOLEMEMORY_DT_HALF, row, c, 0)) - (row < COUNT && c < COLUMNS - 2 ? 1 : 0);
      CHECK_EQ(wm_bits(WHOLEMEMORY_DT_HALF, after + local * 16 + c * 2), wm_rounded(WHOLEMEMORY_DT_HALF, want));
    }
  }
  free(before);
  free(after);
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  /* A destroyed embedding. */
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
  EXPECT(BAD_INPUT, STEP(NULL, NULL));
#undef STEP
}

/* Scratch that is refused to one rank or to all: OUT_OF_MEMORY on all ranks before any row changes. */
static void refused_scratch(wm_rank* r, const wm_kind* k) {
  enum { ROWS = 41, COLUMNS = 4, COUNT = 50 };
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS, .round_robin = 2});
  wm_rows_fill(&e, wm_zero_value, 0);
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_SGD));
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0});
  wm_array grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int i = 0; i < COUNT; i++) {
    wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)(i % ROWS));
    for (int c = 0; c < COLUMNS; c++) wm_set_bits(WHOLEMEMORY_DT_FLOAT, wm_array_at(&grads, i, c), wm_rounded(WHOLEMEMORY_DT_FLOAT, 1));
  }
  wm_array_push(&ids);
  wm_array_push(&grads);
  wm_env env;
  wm_env_start(&env);
  EXPECT(0, wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 1, &env.fns, 0));
  BALANCED(&env);
  int most = env.mallocs;
  wm_share(r, &most, sizeof most);
  if (r->size > 1) CHECK(most > 0);
  int steps = 1;
  for (int at = 1; at <= most; at++)
    for (int one_rank = 0; one_rank < 2; one_rank++) {
      wm_env_start(&env);
      env.fail_at = !one_rank || r->rank == 0 ? at : 0;
      int code = wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 1, &env.fns, 0);
      BALANCED(&env);
      bool mine = env.fail_at && env.mallocs >= at, of_first = mine;
      wm_share(r, &of_first, sizeof of_first);
      if (mine || of_first || code) wm_check_code(WHOLEMEMORY_OUT_OF_MEMORY, code, __FILE__, __LINE__, "a step where scratch was refused");
      steps += !code;
      OK(wholememory_communicator_barrier(e.comm));
    }
  wm_finish();
  OK(wholememory_communicator_barrier(e.comm));
  size_t bytes;
  unsigned char* changed = wm_local_copy(e.tensor, &bytes);
  for (int64_t local = 0; local < (int64_t)(bytes / (e.stride * 4)); local++) {
    int64_t row = wm_rows_held(&e, local);
    /* Every rank has 1 for every row in a step, and for the first ones twice. */
    double want = -(double)steps * r->size * (row < COUNT - ROWS ? 2 : 1);
    for (int64_t c = 0; c < COLUMNS && row >= 0; c++)
      CHECK_EQ(wm_bits(WHOLEMEMORY_DT_FLOAT, changed + (local * e.stride + c) * 4), wm_rounded(WHOLEMEMORY_DT_FLOAT, want));
  }
  free(changed);
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  wm_rows_drop(&e);
}

/* What ranks leave gradients for each other in goes with the last embedding that learns. */
static void nothing_stays(wm_rank* r, const wm_kind* k) {
  enum { ROWS = 60, COLUMNS = 64, COUNT = 3000 };
  wm_holdings before = {0};
  /* The first time without steps. */
  for (int round = 0; round < 3; round++) {
    wm_rows e[2];
    for (int i = 0; i < 2; i++) {
      e[i] = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS});
      wm_rows_fill(&e[i], wm_zero_value, 0);
      wholememory_embedding_optimizer_t made;
      OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_ADAGRAD));
      EXPECT(0, wholememory_embedding_set_optimizer(e[i].embedding, made));
      wholememory_destroy_embedding_optimizer(made);
    }
    wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, COUNT, 1, 1, 0, 0}), grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
    for (int i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT64, wm_array_at(&ids, i, 0), (uint64_t)(i * 7 % ROWS));
    wm_array_push(&ids);
    wm_array_push(&grads);
    for (int i = 0; i < 2 && round; i++) EXPECT(0, wholememory_embedding_gather_gradient_apply(e[i].embedding, ids.tensor, grads.tensor, false, 1, NULL, 0));
    OK(wholememory_communicator_barrier(e[0].comm));
    wm_rows_drop(&e[0]);
    if (round) EXPECT(0, wholememory_embedding_gather_gradient_apply(e[1].embedding, ids.tensor, grads.tensor, false, 1, NULL, 0));
    OK(wholememory_communicator_barrier(e[1].comm));
    wm_rows_drop(&e[1]);
    wm_array_drop(&ids);
    wm_array_drop(&grads);
    wm_meet(r);
    wm_holdings now = wm_holdings_now();
    wm_meet(r);
    if (round == 0) before = now;
    CHECK_EQ(now.shared_mappings, before.shared_mappings);
  }
}

/* One rank goes on with an embedding that it has destroyed: it alone fails while there is nothing for it to take, else all do, since
 * its rows cannot be reached; nobody waits. */
static void destroyed_on_one_rank(wm_rank* r, const wm_kind* k) {
  enum { COUNT = 40, COLUMNS = 4 };
  if (r->size == 1) return;
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = COUNT, .columns = COLUMNS});
  wm_rows_fill(&e, wm_first_value, 0);
  wholememory_embedding_optimizer_t made;
  OK(wholememory_create_embedding_optimizer(&made, WHOLEMEMORY_OPT_ADAGRAD));
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, made));
  wholememory_destroy_embedding_optimizer(made);
  wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, COUNT, 1, 1, 0, 0}), grads = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS, COLUMNS, 0, 0});
  for (int i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), (uint64_t)i);
  wm_array_push(&ids);
  bool odd = r->rank == r->size - 1;
  if (odd) wm_rows_drop(&e);
  OK(wholememory_communicator_barrier(e.comm));
  for (int moving = 0; moving < 2; moving++) {
    wholememory_tensor_get_tensor_description(ids.tensor)->sizes[0] = wholememory_tensor_get_tensor_description(grads.tensor)->sizes[0] = moving ? COUNT : 0;
    int code = wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, grads.tensor, false, 0.5f, NULL, 0);
    wm_check_code(odd ? BAD_INPUT : moving ? LOGIC : 0, code, __FILE__, __LINE__, "a step with an embedding that one rank has destroyed");
    /* A control call fails on all ranks alike. */
    EXPECT(BAD_INPUT, wholememory_embedding_set_optimizer(e.embedding, NULL));
    OK(wholememory_communicator_barrier(e.comm));
  }
  wm_array_drop(&ids);
  wm_array_drop(&grads);
  if (!odd) wm_rows_drop(&e);
}

static void body(wm_rank* r) {
  for (int i = 0; i < WM_KINDS; i++) {
    if (!wm_kind_here(r, wm_world(r), &wm_kinds[i])) continue;
    set_optimizer_codes(r, &wm_kinds[i]);
    step_codes(r, &wm_kinds[i]);
    refused_scratch(r, &wm_kinds[i]);
    nothing_stays(r, &wm_kinds[i]);
    destroyed_on_one_rank(r, &wm_kinds[i]);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
