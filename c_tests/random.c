/* The two generators of the CPU: numbers against vectors, any length, refusals. */
#include <stdlib.h>
#include <string.h>
#include <wholememory/wholegraph_op.h>

#include "table.h"

enum { BAD_INPUT = WHOLEMEMORY_INVALID_INPUT, KNOWN = 10 };

typedef struct { int64_t seed, subsequence; int32_t narrow[KNOWN]; int64_t wide[KNOWN]; uint32_t floats[KNOWN]; } vector;
static const vector vectors[] = {
#include "vectors_rng.inc"
};

/* The caller's host memory, whatever the platform. */
static wholememory_tensor_t over(void* memory, int dtype, int dim, int64_t count, int64_t offset) {
  wholememory_tensor_description_t d = wm_desc((wholememory_dtype_t)dtype, dim, count, 1, 1, offset);
  wholememory_tensor_t t;
  OK(wholememory_make_tensor_from_pointer(&t, memory, &d));
  return t;
}

static void known(const vector* v) {
  for (int offset = 0; offset < 3; offset += 2) {
    int32_t narrow[KNOWN + 3];
    int64_t wide[KNOWN + 3];
    uint32_t floats[KNOWN + 3];
    memset(narrow, 0x7F, sizeof narrow), memset(wide, 0x7F, sizeof wide), memset(floats, 0x7F, sizeof floats);
    wholememory_tensor_t t = over(narrow, WHOLEMEMORY_DT_INT, 1, KNOWN, offset);
    EXPECT(0, generate_random_positive_int_cpu(v->seed, v->subsequence, t));
    OK(wholememory_destroy_tensor(t));
    t = over(wide, WHOLEMEMORY_DT_INT64, 1, KNOWN, offset);
    EXPECT(0, generate_random_positive_int_cpu(v->seed, v->subsequence, t));
    OK(wholememory_destroy_tensor(t));
    t = over(floats, WHOLEMEMORY_DT_FLOAT, 1, KNOWN, offset);
    EXPECT(0, generate_exponential_distribution_negative_float_cpu(v->seed, v->subsequence, t));
    OK(wholememory_destroy_tensor(t));
    for (int i = 0; i < KNOWN; i++) {
      CHECK_EQ(narrow[offset + i], v->narrow[i]);
      CHECK_EQ(wide[offset + i], v->wide[i]);
      CHECK_EQ(floats[offset + i], v->floats[i]);
    }
    CHECK_EQ(narrow[offset + KNOWN], 0x7F7F7F7F);
    CHECK_EQ(floats[offset + KNOWN], 0x7F7F7F7F);
  }
}

static void refusals(void) {
  int64_t memory[4] = {1, 2, 3, 4};
  const struct { int dtype, dim; int ints, floats; } cases[] = {
      {WHOLEMEMORY_DT_INT, 2, BAD_INPUT, BAD_INPUT},   {WHOLEMEMORY_DT_FLOAT, 2, BAD_INPUT, BAD_INPUT},
      {WHOLEMEMORY_DT_FLOAT, 1, BAD_INPUT, 0},         {WHOLEMEMORY_DT_DOUBLE, 1, BAD_INPUT, BAD_INPUT},
      {WHOLEMEMORY_DT_INT16, 1, BAD_INPUT, BAD_INPUT}, {WHOLEMEMORY_DT_INT, 1, 0, BAD_INPUT}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    wholememory_tensor_t t = over(memory, cases[i].dtype, cases[i].dim, 2, 0);
    int64_t before[4];
    memcpy(before, memory, sizeof before);
    EXPECT(cases[i].ints, generate_random_positive_int_cpu(1, 2, t));
    if (cases[i].ints) CHECK(!memcmp(before, memory, sizeof before));
    memcpy(before, memory, sizeof before);
    EXPECT(cases[i].floats, generate_exponential_distribution_negative_float_cpu(1, 2, t));
    if (cases[i].floats) CHECK(!memcmp(before, memory, sizeof before));
    OK(wholememory_destroy_tensor(t));
  }
  wholememory_tensor_t none = over(NULL, WHOLEMEMORY_DT_INT, 1, 0, 0), missing = over(NULL, WHOLEMEMORY_DT_INT, 1, 3, 0);
  EXPECT(0, generate_random_positive_int_cpu(1, 2, none));
  EXPECT(BAD_INPUT, generate_random_positive_int_cpu(1, 2, missing));
  EXPECT(BAD_INPUT, generate_random_positive_int_cpu(1, 2, NULL));
  EXPECT(BAD_INPUT, generate_exponential_distribution_negative_float_cpu(1, 2, NULL));
  OK(wholememory_destroy_tensor(none));
  OK(wholememory_destroy_tensor(missing));
}

/* A long run begins like a short one, and keeps to its ranges. */
static void long_run(void) {
  enum { LONG = 100000 };
  int32_t* ints = malloc(LONG * sizeof *ints);
  float* floats = malloc(LONG * sizeof *floats);
  REQUIRE(ints && floats);
  wholememory_tensor_t t = over(ints, WHOLEMEMORY_DT_INT, 1, LONG, 0), f = over(floats, WHOLEMEMORY_DT_FLOAT, 1, LONG, 0);
  EXPECT(0, generate_random_positive_int_cpu(vectors[1].seed, vectors[1].subsequence, t));
  EXPECT(0, generate_exponential_distribution_negative_float_cpu(vectors[1].seed, vectors[1].subsequence, f));
  int bad = 0;
  for (int i = 0; i < LONG; i++) bad += ints[i] < 0 || !(floats[i] <= 0);
  CHECK_EQ(bad, 0);
  CHECK(!memcmp(ints, vectors[1].narrow, sizeof vectors[1].narrow));
  CHECK(!memcmp(floats, vectors[1].floats, sizeof vectors[1].floats));
  OK(wholememory_destroy_tensor(t));
  OK(wholememory_destroy_tensor(f));
  free(ints);
  free(floats);
}

static void body(wm_rank* r) {
  (void)r;
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) known(&vectors[i]);
  refusals();
  long_run();
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
