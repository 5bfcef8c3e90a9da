/* Descriptions: pure functions, against vectors. */
#include <string.h>

#include "table.h"

enum { F = WHOLEMEMORY_DT_FLOAT };

typedef wholememory_tensor_description_t desc_t;

/* An initialised description with the sizes and strides given. */
static desc_t make(int dim, const int64_t* sizes, const int64_t* strides) {
  desc_t d;
  wholememory_initialize_tensor_desc(&d);
  d.dim = dim;
  d.dtype = WHOLEMEMORY_DT_FLOAT;
  for (int i = 0; i < dim && i < 8; i++) d.sizes[i] = sizes[i], d.strides[i] = strides[i];
  return d;
}
#define L(...) ((const int64_t[]){__VA_ARGS__})

static void dtypes(void) {
  static const size_t none = (size_t)-1;
  const size_t sizes[] = {none, 0, 4, 2, 8, 2, 4, 8, 2, 1, none, none};
  for (int id = -1; id <= 10; id++) {
    wholememory_dtype_t dtype = (wholememory_dtype_t)id;
    CHECK_EQ(wholememory_dtype_get_element_size(dtype), sizes[id + 1]);
    CHECK_EQ(wholememory_dtype_is_floating_number(dtype), id >= 1 && id <= 4);
    CHECK_EQ(wholememory_dtype_is_integer_number(dtype), id >= 5 && id <= 8);
  }
  CHECK_EQ(wholememory_dtype_get_element_size((wholememory_dtype_t)100), none);
}

static void counts(void) {
  for (int dim = -1; dim <= 10; dim++) {
    desc_t d = make(0, NULL, NULL);
    d.sizes[0] = 3, d.strides[0] = 5, d.dim = dim;
    CHECK_EQ(wholememory_get_memory_element_count_from_tensor(&d), dim == 0 ? 1 : dim >= 1 && dim <= 8 ? 15 : -1);
    CHECK_EQ(wholememory_get_memory_size_from_tensor(&d), dim == 0 ? 4 : dim >= 1 && dim <= 8 ? 60 : -1);
  }
  const int dtypes[] = {0, 9, -1, 100};
  for (int i = 0; i < 4; i++) {
    desc_t d = make(1, L(3), L(1));
    d.dtype = (wholememory_dtype_t)dtypes[i];
    wholememory_array_description_t a = wholememory_create_array_desc(3, 0, d.dtype);
    wholememory_matrix_description_t m = wholememory_create_matrix_desc((int64_t[]){3, 1}, 1, 0, d.dtype);
    CHECK_EQ(wholememory_get_memory_element_count_from_tensor(&d), 3);
    CHECK_EQ(wholememory_get_memory_size_from_tensor(&d), i == 0 ? 0 : -1);
    CHECK_EQ(wholememory_get_memory_size_from_array(&a), i == 0 ? 0 : -1);
    CHECK_EQ(wholememory_get_memory_size_from_matrix(&m), i == 0 ? 0 : -1);
  }
  /* Products that do not fit in 64 bits. */
  desc_t d = make(2, L(INT64_MAX / 2, 3), L(3, 1));
  CHECK_EQ(wholememory_get_memory_element_count_from_tensor(&d), -1);
  CHECK_EQ(wholememory_get_memory_size_from_tensor(&d), -1);
  wholememory_array_description_t a = wholememory_create_array_desc(INT64_MAX / 2, 0, WHOLEMEMORY_DT_FLOAT);
  CHECK_EQ(wholememory_get_memory_element_count_from_array(&a), INT64_MAX / 2);
  CHECK_EQ(wholememory_get_memory_size_from_array(&a), -1);
  wholememory_matrix_description_t m =
      wholememory_create_matrix_desc((int64_t[]){INT64_MAX / 2, 3}, 3, 0, WHOLEMEMORY_DT_FLOAT);
  CHECK_EQ(wholememory_get_memory_element_count_from_matrix(&m), -1);
  m = wholememory_create_matrix_desc((int64_t[]){4, 6}, 8, 5, WHOLEMEMORY_DT_FLOAT);
  CHECK_EQ(wholememory_get_memory_element_count_from_matrix(&m), 32);
  CHECK_EQ(wholememory_get_memory_size_from_matrix(&m), 128);
}

static void copies(void) {
  wholememory_array_description_t a = wholememory_create_array_desc(5, 3, WHOLEMEMORY_DT_HALF), a2;
  CHECK(a.size == 5 && a.storage_offset == 3 && a.dtype == WHOLEMEMORY_DT_HALF);
  wholememory_matrix_description_t m = wholememory_create_matrix_desc((int64_t[]){4, 6}, 8, 2, WHOLEMEMORY_DT_INT64), m2;
  CHECK(m.sizes[0] == 4 && m.sizes[1] == 6 && m.stride == 8 && m.storage_offset == 2 && m.dtype == WHOLEMEMORY_DT_INT64);
  desc_t t;
  memset(&t, 0x55, sizeof t);
  wholememory_initialize_tensor_desc(&t);
  CHECK(t.dim == 0 && t.storage_offset == 0 && t.dtype == WHOLEMEMORY_DT_UNKNOWN);
  for (int i = 0; i < 8; i++) CHECK(t.sizes[i] == 1 && t.strides[i] == 1);
  wholememory_copy_array_desc_to_matrix(&m2, &a);
  CHECK(m2.sizes[0] == 5 && m2.sizes[1] == 1 && m2.stride == 1 && m2.storage_offset == 3 && m2.dtype == WHOLEMEMORY_DT_HALF);
  memset(&t, 0x55, sizeof t);
  wholememory_copy_array_desc_to_tensor(&t, &a);
  CHECK(t.dim == 1 && t.sizes[0] == 5 && t.strides[0] == 1 && t.storage_offset == 3 && t.dtype == WHOLEMEMORY_DT_HALF);
  CHECK(t.sizes[7] == 1 && t.strides[7] == 1);
  CHECK(wholememory_convert_tensor_desc_to_array(&a2, &t));
  CHECK(a2.size == 5 && a2.storage_offset == 3 && a2.dtype == WHOLEMEMORY_DT_HALF);
  memset(&t, 0x55, sizeof t);
  wholememory_copy_matrix_desc_to_tensor(&t, &m);
  CHECK(t.dim == 2 && t.sizes[0] == 4 && t.sizes[1] == 6 && t.strides[0] == 8 && t.strides[1] == 1);
  CHECK(t.storage_offset == 2 && t.dtype == WHOLEMEMORY_DT_INT64 && t.sizes[2] == 1);
  CHECK(wholememory_convert_tensor_desc_to_matrix(&m2, &t));
  CHECK(m2.sizes[0] == 4 && m2.sizes[1] == 6 && m2.stride == 8 && m2.storage_offset == 2);
}

typedef struct { int dim; int64_t sizes[3], strides[3]; int dtype; bool good; int64_t rows, columns, stride; } conversion;

static void conversions(void) {
  const conversion to_array[] = {{1, {5}, {1}, F, true, 5, 0, 0}, {1, {5}, {2}, F, false, 0, 0, 0}, {0, {1}, {1}, F, false, 0, 0, 0},
                                 {2, {5, 1}, {1, 1}, F, false, 0, 0, 0}, {1, {5}, {1}, 0, false, 0, 0, 0}, {1, {5}, {1}, 9, false, 0, 0, 0},
                                 {1, {5}, {1}, -1, false, 0, 0, 0}};
  for (size_t i = 0; i < sizeof to_array / sizeof *to_array; i++) {
    const conversion* c = &to_array[i];
    desc_t d = make(c->dim, c->sizes, c->strides);
    d.dtype = (wholememory_dtype_t)c->dtype;
    wholememory_array_description_t a, untouched;
    memset(&a, 0x55, sizeof a), memset(&untouched, 0x55, sizeof a);
    CHECK_EQ(wholememory_convert_tensor_desc_to_array(&a, &d), c->good);
    if (c->good) CHECK_EQ(a.size, c->rows);
    else CHECK(!memcmp(&a, &untouched, sizeof a));
  }
  const conversion to_matrix[] = {{1, {5}, {2}, F, true, 5, 1, 1}, {2, {5, 2}, {7, 1}, F, true, 5, 2, 7},
                                  {2, {5, 2}, {7, 2}, F, false, 0, 0, 0}, {3, {2, 2, 2}, {4, 2, 1}, F, false, 0, 0, 0},
                                  {0, {1}, {1}, F, false, 0, 0, 0}, {2, {5, 2}, {7, 1}, 0, false, 0, 0, 0},
                                  {2, {5, 2}, {7, 1}, 9, false, 0, 0, 0}};
  for (size_t i = 0; i < sizeof to_matrix / sizeof *to_matrix; i++) {
    const conversion* c = &to_matrix[i];
    desc_t d = make(c->dim, c->sizes, c->strides);
    d.dtype = (wholememory_dtype_t)c->dtype;
    wholememory_matrix_description_t m, untouched;
    memset(&m, 0x55, sizeof m), memset(&untouched, 0x55, sizeof m);
    CHECK_EQ(wholememory_convert_tensor_desc_to_matrix(&m, &d), c->good);
    if (c->good) CHECK(m.sizes[0] == c->rows && m.sizes[1] == c->columns && m.stride == c->stride);
    else CHECK(!memcmp(&m, &untouched, sizeof m));
  }
}

typedef struct { int dim; int64_t sizes[3], strides[3]; int at; bool good; int new_dim; int64_t new_sizes[4], new_strides[4]; } reshape;

static void check_reshape(const reshape* c, bool (*change)(desc_t*, int)) {
  desc_t d = make(c->dim, c->sizes, c->strides);
  d.storage_offset = 11;
  desc_t before = d;
  CHECK_EQ(change(&d, c->at), c->good);
  if (!c->good) {
    CHECK(!memcmp(&d, &before, sizeof d));
    return;
  }
  CHECK_EQ(d.dim, c->new_dim);
  CHECK_EQ(d.storage_offset, 11);
  for (int i = 0; i < c->new_dim; i++) CHECK(d.sizes[i] == c->new_sizes[i] && d.strides[i] == c->new_strides[i]);
}

static void squeezes(void) {
  const reshape squeeze[] = {
      {2, {1, 5}, {5, 1}, 0, false, 0, {0}, {0}},
      {2, {1, 5}, {1, 1}, 0, true, 1, {5}, {1}},
      {2, {5, 1}, {7, 1}, 1, true, 1, {5}, {7}},
      {1, {1}, {1}, 0, true, 0, {0}, {0}},
      {3, {2, 1, 3}, {3, 3, 1}, 1, false, 0, {0}, {0}},
      {3, {2, 1, 3}, {3, 1, 1}, 1, true, 2, {2, 3}, {3, 1}},
      {2, {2, 3}, {3, 1}, 0, false, 0, {0}, {0}},
      {2, {2, 1}, {3, 1}, -1, false, 0, {0}, {0}},
      {2, {2, 1}, {3, 1}, 2, false, 0, {0}, {0}},
  };
  for (size_t i = 0; i < sizeof squeeze / sizeof *squeeze; i++) check_reshape(&squeeze[i], wholememory_squeeze_tensor);
  const reshape unsqueeze[] = {
      {2, {4, 6}, {8, 1}, 0, true, 3, {1, 4, 6}, {8, 8, 1}},
      {2, {4, 6}, {8, 1}, 1, true, 3, {4, 1, 6}, {8, 1, 1}},
      {2, {4, 6}, {8, 1}, 2, true, 3, {4, 6, 1}, {8, 1, 1}},
      {1, {5}, {1}, 0, true, 2, {1, 5}, {1, 1}},
      {1, {5}, {1}, 1, true, 2, {5, 1}, {1, 1}},
      {0, {0}, {0}, 0, true, 1, {1}, {1}},
      {1, {5}, {1}, -1, false, 0, {0}, {0}},
      {1, {5}, {1}, 2, false, 0, {0}, {0}},
  };
  for (size_t i = 0; i < sizeof unsqueeze / sizeof *unsqueeze; i++) check_reshape(&unsqueeze[i], wholememory_unsqueeze_tensor);
  const int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  desc_t d = make(7, ones, ones);
  CHECK(wholememory_unsqueeze_tensor(&d, 3));
  CHECK_EQ(d.dim, 8);
  desc_t before = d;
  CHECK(!wholememory_unsqueeze_tensor(&d, 3));
  CHECK(!memcmp(&d, &before, sizeof d));
  CHECK(wholememory_squeeze_tensor(&d, 7));
  CHECK_EQ(d.dim, 7);
  CHECK(!wholememory_unsqueeze_tensor(NULL, 0));
  CHECK(!wholememory_squeeze_tensor(NULL, 0));
}

static void plans(void) {
  const struct { size_t total; int ranks; size_t want; } plan[] = {
      {0, 4, 0}, {1, 4, 1}, {5, 4, 2}, {8, 4, 2}, {9, 4, 3}, {SIZE_MAX, 8, (size_t)1 << 61}, {7, 1, 7}};
  for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
    size_t got = 12345;
    EXPECT(0, wholememory_equal_entry_partition_plan(&got, plan[i].total, plan[i].ranks));
    CHECK_EQ(got, plan[i].want);
  }
  size_t untouched = 12345;
  EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_equal_entry_partition_plan(&untouched, 5, 0));
  EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_equal_entry_partition_plan(&untouched, 0, 0));
  EXPECT(WHOLEMEMORY_INVALID_VALUE, wholememory_equal_entry_partition_plan(&untouched, 5, -1));
  CHECK_EQ(untouched, 12345);
  EXPECT(WHOLEMEMORY_INVALID_INPUT, wholememory_equal_entry_partition_plan(NULL, 5, 2));
  int target;
  wholememory_gref_t ref = wholememory_create_continuous_global_reference(&target);
  CHECK(ref.pointer == &target && ref.rank_memory_offsets == NULL && ref.world_size == 1 && ref.stride == 0 && !ref.same_chunk);
}

static void body(wm_rank* r) {
  (void)r;
  dtypes();
  counts();
  copies();
  conversions();
  squeezes();
  plans();
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
