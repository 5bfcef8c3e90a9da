/* Embeddings without a cache: what they are made of, gathers by every row they hold, who owns what, how they go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "rows.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, VALUE = WHOLEMEMORY_INVALID_VALUE };

/* Every row once, and ids that name none, in an order of this rank's own. */
static void gather_all(wm_rows* e, wholememory_dtype_t ids_dtype, wholememory_dtype_t to, const char* what) {
  const int64_t rows = e->shape.rows, count = rows + 6;
  wm_array ids = wm_array_make((wm_view){ids_dtype, 1, count, 1, 1, 2, 0});
  wm_array out = wm_array_make((wm_view){to, 2, count, e->shape.columns, e->shape.columns + 3, 1, 0});
  const int64_t outside[6] = {-1, rows, rows + 1, ids_dtype == WHOLEMEMORY_DT_INT ? INT32_MIN : INT64_MIN,
                              ids_dtype == WHOLEMEMORY_DT_INT ? INT32_MAX : INT64_MAX, rows * 2 + 40};
  for (int64_t i = 0; i < count; i++) {
    int64_t id = i < 6 ? outside[i] : ((i - 6) * 7 + e->rank * 3) % rows;
    wm_set_bits(ids_dtype, wm_array_at(&ids, i, 0), (uint64_t)id);
    for (int64_t c = 0; c < e->shape.columns && id >= 0 && id < rows; c++)
      wm_set_bits(to, wm_array_at(&out, i, c), wm_convert(e->shape.dtype, to, wm_value(e->shape.dtype, id, c, 0)));
  }
  wm_array_push(&ids);
  wm_env env;
  wm_env_start(&env);
  EXPECT(0, wholememory_embedding_gather(e->embedding, ids.tensor, out.tensor, e->rank % 2, &env.fns, 0));
  BALANCED(&env);
  wm_array_matches(&out, what);
  wm_array_drop(&ids);
  wm_array_drop(&out);
}

/* The lent tensor: N x D in rows of a multiple of 16 bytes, its root all that is allocated. */
static void parts(const wm_rows* e) {
  const wholememory_tensor_description_t* d = wholememory_tensor_get_tensor_description(e->tensor);
  int64_t rows = e->shape.rows, block = e->shape.round_robin;
  if (block) {
    int64_t turn = block * e->size, rest = rows % turn;
    rows = (rows / turn * block + (rest < block ? rest : block)) * e->size;
  }
  CHECK_EQ(d->dim, 2);
  CHECK_EQ(d->sizes[0], rows);
  CHECK_EQ(d->sizes[1], e->shape.columns);
  CHECK_EQ(d->strides[0], e->stride);
  CHECK_EQ(d->strides[1], 1);
  CHECK_EQ(d->storage_offset, 0);
  CHECK_EQ(d->dtype, e->shape.dtype);
  wholememory_tensor_t root = wholememory_tensor_get_root(e->tensor);
  CHECK(root != NULL && root != e->tensor);
  CHECK_EQ(wholememory_tensor_get_tensor_description(root)->sizes[0], rows);
  wholememory_handle_t handle = wholememory_tensor_get_memory_handle(e->tensor);
  CHECK_EQ(wholememory_get_total_size(handle), (size_t)rows * (size_t)e->stride * wm_bytes_of(e->shape.dtype));
  CHECK_EQ(wholememory_get_memory_type(handle), e->shape.kind.type);
  CHECK_EQ(wholememory_get_memory_location(handle), e->shape.kind.location);
  CHECK(wholememory_embedding_get_embedding_tensor(e->embedding) == e->tensor);
  size_t own;
  OK(wholememory_tensor_get_local_entry_count(&own, e->tensor));
  if (e->shape.partition_rows) CHECK_EQ(own, e->shape.partition_rows[e->rank]);
  else if (block) CHECK_EQ(own, rows / e->size);
  /* What the embedding owns is not the caller's to destroy. */
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(e->tensor));
  CHECK_HAS(wholememory_get_last_error(), "belongs to embedding");
  EXPECT(BAD_INPUT, wholememory_destroy_tensor(root));
  EXPECT(BAD_INPUT, wholememory_free(handle));
  CHECK_HAS(wholememory_get_last_error(), "belongs to embedding");
}

static void one(wm_rank* r, wm_rows_shape shape) {
  char what[160];
  snprintf(what, sizeof what, "%s %s %lld x %lld, round robin %d%s", shape.kind.name, wm_dtype_name(shape.dtype),
           (long long)shape.rows, (long long)shape.columns, shape.round_robin, shape.partition_rows ? ", own partition" : "");
  wm_rows e = wm_rows_make(wm_world(r), shape);
  if (shape.partition_rows) e.shape.round_robin = shape.round_robin = 0;
  parts(&e);
  wm_rows_fill(&e, wm_value, 0);
  gather_all(&e, WHOLEMEMORY_DT_INT64, shape.dtype, what);
  bool floating = shape.dtype == WHOLEMEMORY_DT_FLOAT || shape.dtype == WHOLEMEMORY_DT_HALF ||
                  shape.dtype == WHOLEMEMORY_DT_DOUBLE || shape.dtype == WHOLEMEMORY_DT_BF16;
  gather_all(&e, WHOLEMEMORY_DT_INT, floating ? WHOLEMEMORY_DT_HALF : WHOLEMEMORY_DT_INT16, what);
  /* Nothing to do without a cache. */
  EXPECT(0, wholememory_embedding_writeback_cache(e.embedding, 0));
  EXPECT(0, wholememory_embedding_drop_all_cache(e.embedding, 0));
  CHECK(wholememory_embedding_get_optimizer_state_names(e.embedding) == NULL);
  CHECK(wholememory_embedding_get_optimizer_state(e.embedding, "m") == NULL);
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
}

static void tables(wm_rank* r, const wm_kind* k) {
  for (int d = 0; d < WM_DTYPES; d++) {
    wm_rows_shape shape = {.kind = *k, .dtype = wm_dtypes[d].id, .rows = 53, .columns = 11};
    one(r, shape);
    shape.round_robin = 3;
    one(r, shape);
  }
  /* Few rows: some ranks have none. */
  const int64_t rows[] = {1, 2, 3, 10};
  for (size_t i = 0; i < 4; i++)
    for (int block = 0; block < 5; block += 2)
      one(r, (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = rows[i], .columns = 5, .round_robin = block, .sms = 2});
  size_t partition[64];
  int64_t total = 0;
  for (int i = 0; i < r->size; i++) total += (int64_t)(partition[i] = (size_t)(1 + (i * 5) % 7));
  one(r, (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_HALF, .rows = total, .columns = 9, .partition_rows = partition, .round_robin = 2});
}

/* A file of all rows, dense, loaded into a table whose rows are dealt alike: ids then name the rows of the file. */
static void dealt_from_file(wm_rank* r, const wm_kind* k) {
  enum { ROWS = 61, COLUMNS = 3, BLOCK = 4 };
  char path[64];
  snprintf(path, sizeof path, "/tmp/wm_embedding_XXXXXX");
  if (r->rank == 0) {
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    for (int64_t row = 0; row < ROWS; row++)
      for (int64_t c = 0; c < COLUMNS; c++) {
        uint64_t bits = wm_value(WHOLEMEMORY_DT_FLOAT, row, c, 0);
        REQUIRE(write(file, &bits, 4) == 4);
      }
    close(file);
  }
  wm_share(r, path, sizeof path);
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = ROWS, .columns = COLUMNS, .round_robin = BLOCK});
  const char* name = path;
  EXPECT(0, wholememory_load_from_file(wholememory_tensor_get_memory_handle(e.tensor), 0, (size_t)e.stride * 4, COLUMNS * 4, &name, 1, BLOCK));
  OK(wholememory_communicator_barrier(e.comm));
  gather_all(&e, WHOLEMEMORY_DT_INT64, WHOLEMEMORY_DT_FLOAT, "rows dealt from a file");
  wm_meet(r);
  if (r->rank == 0) remove(path);
  wm_rows_drop(&e);
}

/* Some ranks pass nothing, with NULL data; then all do; then one fails alone. */
static void uneven_ranks(wm_rank* r, const wm_kind* k) {
  wm_rows e = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 90, .columns = 8, .round_robin = 4});
  wm_rows_fill(&e, wm_value, 0);
  wholememory_tensor_description_t none = wm_desc(WHOLEMEMORY_DT_INT64, 1, 0, 1, 1, 0), no_rows = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 0, 8, 8, 0);
  wholememory_tensor_t ids, out;
  OK(wholememory_make_tensor_from_pointer(&ids, NULL, &none));
  OK(wholememory_make_tensor_from_pointer(&out, NULL, &no_rows));
  for (int round = 0; round < 3; round++) {
    if (round == 2 || r->rank % 2 == round) EXPECT(0, wholememory_embedding_gather(e.embedding, ids, out, true, NULL, 0));
    else gather_all(&e, WHOLEMEMORY_DT_INT64, WHOLEMEMORY_DT_FLOAT, "beside ranks that ask for nothing");
  }
  if (r->rank == r->size - 1) EXPECT(BAD_INPUT, wholememory_embedding_gather(e.embedding, NULL, out, true, NULL, 0));
  else gather_all(&e, WHOLEMEMORY_DT_INT64, WHOLEMEMORY_DT_FLOAT, "beside a rank that fails");
  OK(wholememory_destroy_tensor(ids));
  OK(wholememory_destroy_tensor(out));
  OK(wholememory_communicator_barrier(e.comm));
  wm_rows_drop(&e);
}

/* Ranks destroy theirs in different order and go on at once; the memory comes back. */
static void destroyed_in_any_order(wm_rank* r, const wm_kind* k) {
  enum { MANY = 5 };
  wm_rows e[MANY];
  wm_meet(r);
  int64_t tensors = get_wholememory_tensor_count();
  wm_holdings before = wm_holdings_now();
  wm_meet(r);
  for (int i = 0; i < MANY; i++) e[i] = wm_rows_make(wm_world(r), (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 40 + i, .columns = 8});
  for (int i = 0; i < MANY; i++) {
    wm_rows* gone = &e[(i * 2 + r->rank) % MANY];
    wholememory_handle_t handle = wholememory_tensor_get_memory_handle(gone->tensor);
    wm_rows_drop(gone);
    EXPECT(BAD_INPUT, wholememory_destroy_embedding(gone->embedding));
    CHECK(wholememory_embedding_get_embedding_tensor(gone->embedding) == NULL);
    CHECK(wholememory_tensor_get_tensor_description(gone->tensor) == NULL);
    EXPECT(BAD_INPUT, wholememory_destroy_tensor(gone->tensor));
    CHECK_EQ(wholememory_get_total_size(handle), 0);
    /* A collective call in between, and a new embedding: nobody waits for destroys. */
    OK(wholememory_communicator_barrier(wm_world(r)));
    wm_rows fresh = wm_rows_make(wm_world(r), e[i].shape);
    wm_rows_fill(&fresh, wm_value, 0);
    gather_all(&fresh, WHOLEMEMORY_DT_INT64, WHOLEMEMORY_DT_FLOAT, "a new embedding between destroys");
    OK(wholememory_communicator_barrier(wm_world(r)));
    wm_rows_drop(&fresh);
  }
  wm_meet(r);
  wm_holdings after = wm_holdings_now();
  CHECK_EQ(get_wholememory_tensor_count(), tensors);
  CHECK_EQ(after.shared_mappings, before.shared_mappings);
  CHECK_EQ(after.descriptors, before.descriptors);
  wm_meet(r);
}

/* The communicator goes first, while some ranks have destroyed theirs and others have not. */
static void communicator_first(wm_rank* r, const wm_kind* k) {
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  wm_rows e = wm_rows_make(comm, (wm_rows_shape){.kind = *k, .dtype = WHOLEMEMORY_DT_FLOAT, .rows = 40, .columns = 8});
  bool early = r->rank % 2 == 0;
  if (early) wm_rows_drop(&e);
  EXPECT(0, wholememory_destroy_communicator(comm));
  if (!early) {
    wm_array ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT64, 1, 1, 1, 1, 0, 0});
    wm_array out = wm_array_make((wm_view){WHOLEMEMORY_DT_FLOAT, 2, 1, 8, 8, 0, 0});
    EXPECT(BAD_INPUT, wholememory_embedding_gather(e.embedding, ids.tensor, out.tensor, false, NULL, 0));
    wm_array_drop(&ids);
    wm_array_drop(&out);
    wm_rows_drop(&e);
  }
  EXPECT(BAD_INPUT, wholememory_destroy_embedding(e.embedding));
}

static int make(wholememory_embedding_t* made, wholememory_comm_t comm, wholememory_tensor_description_t d, size_t* partition, int block) {
  return wholememory_create_embedding(made, &d, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL, partition, -1, block);
}

/* The codes of create, the same on every rank whoever is wrong. */
static void refused(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  wholememory_embedding_t made = NULL;
  bool odd = r->rank == r->size - 1;
  wholememory_tensor_description_t good = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 100, 16, 16, 0), d = good;
  d.sizes[0] = 0;
  EXPECT(BAD_INPUT, make(&made, comm, d, NULL, 0));
  d = good, d.sizes[1] = 0;
  EXPECT(BAD_INPUT, make(&made, comm, d, NULL, 0));
  d = good, d.dim = 3;
  EXPECT(BAD_INPUT, make(&made, comm, odd ? d : good, NULL, 0));
  d = good, d.strides[1] = 2;
  EXPECT(BAD_INPUT, make(&made, comm, d, NULL, 0));
  EXPECT(VALUE, make(&made, comm, good, NULL, -3));
  EXPECT(BAD_INPUT, make(odd ? NULL : &made, comm, good, NULL, 0));
  EXPECT(VALUE, wholememory_create_embedding(&made, &good, comm, (wholememory_memory_type_t)9, WHOLEMEMORY_ML_HOST, NULL, NULL, -1, 0));
  EXPECT(VALUE, wholememory_create_embedding(&made, &good, comm, WHOLEMEMORY_MT_CHUNKED, (wholememory_memory_location_t)9, NULL, NULL, -1, 0));
  size_t partition[64] = {0};
  EXPECT(VALUE, make(&made, comm, good, partition, 0));
  if (r->size > 1) {
    d = good, d.sizes[0] = 101;
    EXPECT(VALUE, make(&made, comm, odd ? d : good, NULL, 0));
    CHECK_HAS(wholememory_get_last_error(), "101");
    d = good, d.sizes[1] = 17;
    EXPECT(VALUE, make(&made, comm, odd ? d : good, NULL, 0));
    CHECK_HAS(wholememory_get_last_error(), "sizes[1]");
    CHECK_HAS(wholememory_get_last_error(), "17");
    d = good, d.dtype = WHOLEMEMORY_DT_HALF;
    EXPECT(VALUE, make(&made, comm, odd ? d : good, NULL, 0));
    CHECK_HAS(wholememory_get_last_error(), "HALF");
    EXPECT(VALUE, make(&made, comm, good, NULL, odd ? 7 : 5));
    CHECK_HAS(wholememory_get_last_error(), "round_robin_size");
  }
  CHECK(made == NULL);
  /* Strides and offset are of no account, and one dimension is one column. */
  d = wm_desc(WHOLEMEMORY_DT_INT8, 1, 33, 1, 1, 5);
  EXPECT(0, make(&made, comm, d, NULL, 0));
  const wholememory_tensor_description_t* lent = wholememory_tensor_get_tensor_description(wholememory_embedding_get_embedding_tensor(made));
  CHECK(lent->dim == 2 && lent->sizes[0] == 33 && lent->sizes[1] == 1 && lent->strides[0] == 16 && lent->storage_offset == 0);
  EXPECT(0, wholememory_destroy_embedding(made));
}

static void body(wm_rank* r) {
  refused(r);
  for (int i = 0; i < WM_KINDS; i++) {
    const wm_kind* k = &wm_kinds[i];
    if (!wm_kind_here(r, wm_world(r), k)) continue;
    tables(r, k);
    dealt_from_file(r, k);
    uneven_ranks(r, k);
    destroyed_in_any_order(r, k);
    communicator_first(r, k);
  }
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PLAIN); }
