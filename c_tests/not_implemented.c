/* Functions of later versions: they check their arguments in the order of the specification, then say that they are
 * not in this version, and write nothing. */
#include <wholememory/embedding.h>

#include "table.h"

enum { INPUT = WHOLEMEMORY_INVALID_INPUT, LOGIC = WHOLEMEMORY_LOGIC_ERROR, VALUE = WHOLEMEMORY_INVALID_VALUE, LATER = WHOLEMEMORY_NOT_IMPLEMENTED };
static void embedding(wm_rank* r) {
  wholememory_comm_t comm = wm_world(r);
  wholememory_embedding_optimizer_t optimizer = NULL;
  for (int type = WHOLEMEMORY_OPT_SGD; type <= WHOLEMEMORY_OPT_ADAGRAD; type++) {
    EXPECT(LATER, wholememory_create_embedding_optimizer(&optimizer, (wholememory_optimizer_type_t)type));
    CHECK_HAS(wholememory_get_last_error(), "not in this version");
  }
  CHECK(optimizer == NULL);
  wholememory_embedding_cache_policy_t policy = NULL;
  EXPECT(LATER, wholememory_create_embedding_cache_policy(&policy, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST,
                                                          WHOLEMEMORY_AT_READONLY, 0.25f));
  CHECK_HAS(wholememory_get_last_error(), "not in this version");
  EXPECT(VALUE, wholememory_create_embedding_cache_policy(&policy, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST,
                                                          WHOLEMEMORY_AT_READONLY, 2));
  CHECK(policy == NULL);
  wholememory_embedding_t made = NULL;
  wholememory_tensor_description_t desc = wm_desc(WHOLEMEMORY_DT_FLOAT, 2, 100, 16, 16, 0);
  EXPECT(LATER, wholememory_create_embedding(&made, &desc, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, NULL, NULL, -1, 0));
  CHECK_HAS(wholememory_get_last_error(), "not in this version");
  CHECK(made == NULL);
  OK(wholememory_communicator_barrier(comm));
}

static void body(wm_rank* r) {
  embedding(r);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_PROCESSES); }
