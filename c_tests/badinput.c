/* Every export with NULL, dead and foreign handles, wild enumerators, negative sizes and overflowing products: the
 * code of the specification, words of its own for each failure, outputs untouched. At the end, no export was forgotten. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wholememory/embedding.h>
#include <wholememory/graph_op.h>
#include <wholememory/wholegraph_op.h>
#include <wholememory/wholememory_op.h>

#include "device.h"
#include "holdings.h"
#include "table.h"

enum { OKAY = 0, LATER = WHOLEMEMORY_NOT_IMPLEMENTED, LOGIC = WHOLEMEMORY_LOGIC_ERROR, INPUT = WHOLEMEMORY_INVALID_INPUT,
       VALUE = WHOLEMEMORY_INVALID_VALUE };

/* Exported and declared nowhere. */
wholememory_error_code_t wholememory_load_hdfs_support(void);
wholememory_error_code_t wholememory_load_from_hdfs_file(wholememory_handle_t, size_t, size_t, size_t, const char*, int, const char*,
                                                         const char*, const char*);

static struct { const char* name; bool called; } exports[] = {
#define X(result, name, arguments) {#name, false},
#include "exports.inc"
#undef X
    {"wholememory_load_hdfs_support", false},
    {"wholememory_load_from_hdfs_file", false},
};
enum { EXPORTS = sizeof exports / sizeof *exports };

/* Words that no call under test may leave behind as its own. */
static char stale_words[1100];

static void spoil_words(void) {
  wholememory_create_unique_id(NULL);
  strncpy(stale_words, wholememory_get_last_error(), sizeof stale_words - 1);
}

static void called(const char* call) {
  size_t length = strcspn(call, "(");
  for (int i = 0; i < EXPORTS; i++)
    if (strlen(exports[i].name) == length && !strncmp(exports[i].name, call, length)) exports[i].called = true;
}

typedef enum { SAYS_WHY, SAYS_NOTHING, MAY_SAY } speech;

static void judge(long long want, long long got, speech says, const char* call, int line) {
  called(call);
  const char* words = wholememory_get_last_error();
  bool same = !strcmp(words, stale_words);
  if (got != want) wm_failed(__FILE__, line, "%s gives %lld, not %lld; last error \"%s\"", call, got, want, same ? "(none)" : words);
  else if (says == SAYS_WHY && (same || !*words)) wm_failed(__FILE__, line, "%s fails without words of its own", call);
  else if (says == SAYS_NOTHING && !same) wm_failed(__FILE__, line, "%s succeeds and says \"%s\"", call, words);
}

/* A call that returns a code. */
#define CODE(want, call) (WM_AT, spoil_words(), judge((want), (long long)(call), (int)(want) == OKAY ? SAYS_NOTHING : SAYS_WHY, #call, __LINE__))
/* A call without a code whose result says that it failed. */
#define RESULT(want, call) (WM_AT, spoil_words(), judge((long long)(want), (long long)(call), SAYS_WHY, #call, __LINE__))
/* A question to which any argument has an answer. */
#define ANSWER(want, call) (WM_AT, spoil_words(), judge((long long)(want), (long long)(call), MAY_SAY, #call, __LINE__))
#define VOID(call) (WM_AT, call, called(#call))

enum { UNTOUCHED_BYTE = 0x5A };
static void paint(void* p, size_t bytes) { memset(p, UNTOUCHED_BYTE, bytes); }
static bool untouched(const void* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (((const char*)p)[i] != UNTOUCHED_BYTE) return false;
  return true;
}

/* What is passed where a handle of one kind should be: none, dead ones, live ones of other kinds, and any other address. */
typedef struct { void* all[12]; int count; } strangers;
static char somewhere[256];
static strangers strange(void* dead, void* other, void* another) {
  strangers s = {{NULL, dead, other, another, somewhere, (void*)1, (void*)-1, (void*)(intptr_t)&strange, &s}, 9};
  return s;
}
#define EACH(p, type, set) \
  for (int i_##p = 0; i_##p < (set).count; i_##p++) \
    for (type p = (type)(set).all[i_##p], *once_##p = &p; once_##p; once_##p = NULL)

typedef wholememory_comm_t comm_t;
typedef wholememory_handle_t handle_t;
typedef wholememory_tensor_t tensor_t;
typedef wholememory_tensor_description_t desc_t;
typedef wholememory_memory_type_t type_t;
typedef wholememory_memory_location_t location_t;
#define DISTRIBUTED WHOLEMEMORY_MT_DISTRIBUTED
#define HOST WHOLEMEMORY_ML_HOST

static comm_t comm;
static handle_t handle;
static tensor_t tensor;
static wm_array ids, user;
static desc_t good;
static strangers bad_comms, bad_handles, bad_tensors;
static char* outputs; /* untouched at the end of each part */
enum { OUTPUT_BYTES = 4096 };

static void whole_library(void) {
  CODE(LOGIC, wholememory_init(0, LEVEL_WARN));
  CODE(LOGIC, wholememory_init(0, (LogLevel)99));
  ANSWER(0, wholememory_is_build_with_nvshmem());
  CODE(OKAY, wholememory_set_rmm_enabled(true));
  ANSWER(1, wholememory_is_rmm_enabled());
  CODE(OKAY, wholememory_set_rmm_enabled(false));
  ANSWER(0, wholememory_is_rmm_enabled());
  CODE(LATER, wholememory_load_hdfs_support());
  CODE(LATER, wholememory_load_from_hdfs_file(NULL, 0, 0, 0, NULL, -1, NULL, NULL, NULL));
  ANSWER(3, get_wholememory_tensor_count()); /* tensor, ids, user */
  const int devices[] = {INT32_MIN, -2, 500, INT32_MAX};
  for (int i = 0; i < 4; i++) RESULT(0, (intptr_t)get_device_prop(devices[i]));
  called("get_device_prop");
  if (!wm_gpu()) CHECK(get_device_prop(0) == NULL && get_device_prop(-1) == NULL);
  size_t* per = (size_t*)outputs;
  CODE(INPUT, wholememory_equal_entry_partition_plan(NULL, 4, 2));
  CODE(VALUE, wholememory_equal_entry_partition_plan(per, 4, 0));
  CODE(VALUE, wholememory_equal_entry_partition_plan(per, 4, INT32_MIN));
  EXPECT(INPUT, wholememory_create_unique_id(NULL));
  called("wholememory_create_unique_id");
}

static void pure_functions(void) {
  for (int id = -1; id <= 99; id += 100) {
    ANSWER(-1, wholememory_dtype_get_element_size((wholememory_dtype_t)id));
    ANSWER(0, wholememory_dtype_is_floating_number((wholememory_dtype_t)id));
    ANSWER(0, wholememory_dtype_is_integer_number((wholememory_dtype_t)id));
  }
  wholememory_array_description_t array = wholememory_create_array_desc(-3, -1, (wholememory_dtype_t)99), *array_out = (void*)outputs;
  wholememory_matrix_description_t matrix = wholememory_create_matrix_desc(NULL, 1, 0, WHOLEMEMORY_DT_INT), *matrix_out = (void*)outputs;
  called("wholememory_create_array_desc"), called("wholememory_create_matrix_desc");
  CHECK(array.size == -3 && array.dtype == 99 && matrix.stride == 1);
  desc_t* d = (desc_t*)outputs;
  VOID(wholememory_initialize_tensor_desc(NULL));
  VOID(wholememory_copy_array_desc_to_matrix(NULL, &array));
  VOID(wholememory_copy_array_desc_to_matrix(matrix_out, NULL));
  VOID(wholememory_copy_array_desc_to_tensor(NULL, &array));
  VOID(wholememory_copy_array_desc_to_tensor(d, NULL));
  VOID(wholememory_copy_matrix_desc_to_tensor(NULL, &matrix));
  VOID(wholememory_copy_matrix_desc_to_tensor(d, NULL));
  desc_t wild = good;
  for (int dim = -1; dim <= 99; dim += 100) {
    wild.dim = dim;
    ANSWER(0, wholememory_convert_tensor_desc_to_array(array_out, &wild));
    ANSWER(0, wholememory_convert_tensor_desc_to_matrix(matrix_out, &wild));
    ANSWER(-1, wholememory_get_memory_element_count_from_tensor(&wild));
    ANSWER(-1, wholememory_get_memory_size_from_tensor(&wild));
  }
  ANSWER(0, wholememory_convert_tensor_desc_to_array(array_out, NULL));
  ANSWER(0, wholememory_convert_tensor_desc_to_array(NULL, &good));
  ANSWER(0, wholememory_convert_tensor_desc_to_matrix(matrix_out, NULL));
  ANSWER(0, wholememory_convert_tensor_desc_to_matrix(NULL, &good));
  ANSWER(-1, wholememory_get_memory_element_count_from_array(NULL));
  ANSWER(-1, wholememory_get_memory_element_count_from_matrix(NULL));
  ANSWER(-1, wholememory_get_memory_element_count_from_tensor(NULL));
  ANSWER(-1, wholememory_get_memory_size_from_array(NULL));
  ANSWER(-1, wholememory_get_memory_size_from_array(&array));
  ANSWER(-1, wholememory_get_memory_size_from_matrix(NULL));
  ANSWER(-1, wholememory_get_memory_size_from_tensor(NULL));
  const int wild_dims[] = {-1, INT32_MIN, INT32_MAX, 8};
  for (int i = 0; i < 4; i++) {
    ANSWER(0, wholememory_squeeze_tensor(&good, wild_dims[i]));
    ANSWER(0, wholememory_unsqueeze_tensor(&good, wild_dims[i]));
  }
  wild.dim = 99;
  ANSWER(0, wholememory_squeeze_tensor(&wild, 50));
  ANSWER(0, wholememory_unsqueeze_tensor(&wild, 50));
  wholememory_gref_t ref = wholememory_create_continuous_global_reference(NULL);
  called("wholememory_create_continuous_global_reference");
  CHECK(ref.pointer == NULL && ref.stride == 0);
}

static void communicators(void) {
  int* number = (int*)outputs;
  comm_t* made = (comm_t*)outputs;
  wholememory_unique_id_t id;
  const int descriptors = wm_holdings_now().descriptors;
  OK(wholememory_create_unique_id(&id));
  CODE(INPUT, wholememory_create_communicator(NULL, id, 0, 1));
  CODE(VALUE, wholememory_create_communicator(made, id, 0, INT32_MIN));
  CODE(VALUE, wholememory_create_communicator(made, id, -1, 1));
  CODE(VALUE, wholememory_create_communicator(made, id, 1, 1));
  CHECK(wm_descriptors_within(descriptors) <= descriptors);
  EACH(c, comm_t, bad_comms) {
    CODE(INPUT, wholememory_split_communicator(made, c, 0, 0));
    CODE(INPUT, wholememory_destroy_communicator(c));
    CODE(INPUT, wholememory_communicator_support_type_location(c, DISTRIBUTED, HOST));
    CODE(INPUT, wholememory_communicator_get_rank(number, c));
    CODE(INPUT, wholememory_communicator_get_size(number, c));
    CODE(INPUT, wholememory_communicator_get_local_size(number, c));
    CODE(INPUT, wholememory_communicator_get_clique_info((clique_info_t*)outputs, c));
    CODE(INPUT, wholememory_communicator_set_distributed_backend(c, WHOLEMEMORY_DB_NCCL));
    RESULT(WHOLEMEMORY_DB_NONE, wholememory_communicator_get_distributed_backend(c));
    CODE(INPUT, wholememory_communicator_barrier(c));
    RESULT(0, wholememory_is_intranode_communicator(c));
    RESULT(0, wholememory_is_intra_mnnvl_communicator(c));
    ANSWER(0, wholememory_communicator_is_bind_to_nvshmem(c));
    CODE(INPUT, wholememory_malloc((handle_t*)outputs, 64, c, DISTRIBUTED, HOST, 16, NULL));
    CODE(INPUT, wholememory_create_tensor((tensor_t*)outputs, &good, c, DISTRIBUTED, HOST, NULL));
  }
  CODE(INPUT, wholememory_split_communicator(NULL, comm, 0, 0));
  CODE(INPUT, wholememory_communicator_get_rank(NULL, comm));
  CODE(INPUT, wholememory_communicator_get_size(NULL, comm));
  CODE(INPUT, wholememory_communicator_get_local_size(NULL, comm));
  CODE(INPUT, wholememory_communicator_get_clique_info(NULL, comm));
  CODE(VALUE, wholememory_split_communicator(made, comm, INT32_MIN, 0));
  for (int wild = -1; wild <= 99; wild += 100) {
    CODE(WHOLEMEMORY_NOT_SUPPORTED, wholememory_communicator_support_type_location(comm, (type_t)wild, HOST));
    CODE(WHOLEMEMORY_NOT_SUPPORTED, wholememory_communicator_support_type_location(comm, DISTRIBUTED, (location_t)wild));
    CODE(VALUE, wholememory_communicator_set_distributed_backend(comm, (wholememory_distributed_backend_t)wild));
  }
}

static void handles(void) {
  size_t* number = (size_t*)outputs;
  handle_t* made = (handle_t*)outputs;
  void** pointer = (void**)outputs;
  CODE(INPUT, wholememory_malloc(NULL, 64, comm, DISTRIBUTED, HOST, 16, NULL));
  CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, HOST, 0, NULL));
  CODE(VALUE, wholememory_malloc(made, 65, comm, DISTRIBUTED, HOST, 16, NULL));
  for (int wild = -1; wild <= 99; wild += 100) {
    CODE(VALUE, wholememory_malloc(made, 64, comm, (type_t)wild, HOST, 16, NULL));
    CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, (location_t)wild, 16, NULL));
  }
  CODE(VALUE, wholememory_malloc(made, 64, comm, WHOLEMEMORY_MT_NONE, HOST, 16, NULL));
  CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, WHOLEMEMORY_ML_NONE, 16, NULL));
  for (int k = 0; k < WM_KINDS; k++)
    if (wholememory_communicator_support_type_location(comm, wm_kinds[k].type, wm_kinds[k].location) == 0) {
      CODE(WHOLEMEMORY_OUT_OF_MEMORY, wholememory_malloc(made, SIZE_MAX, comm, wm_kinds[k].type, wm_kinds[k].location, 1, NULL));
      CODE(WHOLEMEMORY_OUT_OF_MEMORY, wholememory_malloc(made, (size_t)1 << 62, comm, wm_kinds[k].type, wm_kinds[k].location, 16, NULL));
    }
  size_t zero[1] = {0}, short_one[1] = {3}, huge[1] = {SIZE_MAX / 16 + 5};
  CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, HOST, 16, zero));
  CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, HOST, 16, short_one));
  CODE(VALUE, wholememory_malloc(made, 64, comm, DISTRIBUTED, HOST, 16, huge)); /* 4 granules, were it to wrap */
  /* malloc may write NULL before it fails; nothing else. */
  CHECK(*made == NULL || untouched(made, sizeof *made));
  paint(outputs, OUTPUT_BYTES);
  EACH(h, handle_t, bad_handles) {
    CODE(INPUT, wholememory_free(h));
    CODE(INPUT, wholememory_get_communicator((comm_t*)outputs, h));
    CODE(INPUT, wholememory_get_local_communicator((comm_t*)outputs, h));
    CODE(INPUT, wholememory_get_cross_communicator((comm_t*)outputs, h));
    RESULT(0, wholememory_get_memory_type(h));
    RESULT(0, wholememory_get_memory_location(h));
    RESULT(0, wholememory_get_distributed_backend(h));
    RESULT(0, wholememory_get_total_size(h));
    RESULT(0, wholememory_get_data_granularity(h));
    CODE(INPUT, wholememory_get_local_memory(pointer, number + 1, number + 2, h));
    CODE(INPUT, wholememory_get_local_size(number, h));
    CODE(INPUT, wholememory_get_local_offset(number, h));
    CODE(INPUT, wholememory_get_rank_memory(pointer, number + 1, number + 2, 0, h));
    CODE(INPUT, wholememory_get_global_pointer(pointer, h));
    CODE(INPUT, wholememory_get_global_reference((wholememory_gref_t*)outputs, h));
    CODE(INPUT, wholememory_get_rank_partition_sizes(number, h));
    CODE(INPUT, wholememory_get_rank_partition_offsets(number, h));
    CODE(INPUT, wholememory_load_from_file(h, 0, 16, 16, NULL, 0, 0));
    CODE(INPUT, wholememory_store_to_file(h, 0, 16, 16, "/tmp/never-written"));
    CODE(INPUT, wholememory_make_tensor_from_handle((tensor_t*)outputs, h, &good));
  }
  CODE(INPUT, wholememory_get_communicator(NULL, handle));
  CODE(INPUT, wholememory_get_local_communicator(NULL, handle));
  CODE(INPUT, wholememory_get_cross_communicator(NULL, handle));
  CODE(INPUT, wholememory_get_local_size(NULL, handle));
  CODE(INPUT, wholememory_get_local_offset(NULL, handle));
  CODE(INPUT, wholememory_get_global_pointer(NULL, handle));
  CODE(INPUT, wholememory_get_global_reference(NULL, handle));
  CODE(INPUT, wholememory_get_rank_partition_sizes(NULL, handle));
  CODE(INPUT, wholememory_get_rank_partition_offsets(NULL, handle));
  CODE(INPUT, wholememory_get_rank_memory(pointer, number + 1, number + 2, 1, handle));
  CODE(INPUT, wholememory_get_rank_memory(pointer, number + 1, number + 2, INT32_MIN, handle));
  CODE(INPUT, wholememory_load_from_file(handle, SIZE_MAX, 16, 16, NULL, 0, 0));
  CODE(INPUT, wholememory_load_from_file(handle, 0, 0, 16, NULL, 0, 0));
  CODE(INPUT, wholememory_store_to_file(handle, SIZE_MAX, 16, 16, "/tmp/never-written"));
  CODE(INPUT, wholememory_store_to_file(handle, 0, 0, 0, "/tmp/never-written"));
  CODE(INPUT, wholememory_store_to_file(handle, 0, 16, 16, NULL));
}

static void tensors(void) {
  size_t* number = (size_t*)outputs;
  tensor_t* made = (tensor_t*)outputs;
  int64_t starts[2] = {0, 0}, ends[2] = {1, 1};
  CODE(INPUT, wholememory_create_tensor(NULL, &good, comm, DISTRIBUTED, HOST, NULL));
  CODE(INPUT, wholememory_create_tensor(made, NULL, comm, DISTRIBUTED, HOST, NULL));
  desc_t wild = good;
  const int wild_numbers[] = {-1, 99, INT32_MIN, INT32_MAX};
  for (int i = 0; i < 4; i++) {
    wild = good, wild.dim = wild_numbers[i];
    CODE(INPUT, wholememory_create_tensor(made, &wild, comm, DISTRIBUTED, HOST, NULL));
    CODE(INPUT, wholememory_make_tensor_from_pointer(made, somewhere, &wild));
    CODE(INPUT, wholememory_make_tensor_from_handle(made, handle, &wild));
    wild = good, wild.dtype = (wholememory_dtype_t)wild_numbers[i];
    CODE(INPUT, wholememory_create_tensor(made, &wild, comm, DISTRIBUTED, HOST, NULL));
    CODE(INPUT, wholememory_make_tensor_from_pointer(made, somewhere, &wild));
    CODE(INPUT, wholememory_make_tensor_from_handle(made, handle, &wild));
  }
  CHECK(*made == NULL || untouched(made, sizeof *made));
  CODE(INPUT, wholememory_make_tensor_from_pointer(NULL, somewhere, &good));
  CODE(INPUT, wholememory_make_tensor_from_pointer(made, somewhere, NULL));
  CODE(INPUT, wholememory_make_tensor_from_pointer(made, NULL, NULL));
  CODE(INPUT, wholememory_make_tensor_from_handle(NULL, handle, &good));
  CODE(INPUT, wholememory_make_tensor_from_handle(made, handle, NULL));
  CHECK(*made == NULL || untouched(made, sizeof *made));
  wild = good, wild.sizes[0] = INT64_MAX / 2, wild.strides[0] = INT64_MAX / 2;
  CODE(VALUE, wholememory_create_tensor(made, &wild, comm, DISTRIBUTED, HOST, NULL));
  wild = good, wild.sizes[0] = -1;
  CODE(VALUE, wholememory_create_tensor(made, &wild, comm, DISTRIBUTED, HOST, NULL));
  wild = good, wild.strides[0] = INT64_MIN;
  CODE(VALUE, wholememory_create_tensor(made, &wild, comm, DISTRIBUTED, HOST, NULL));
  for (int i = -1; i <= 99; i += 100) {
    CODE(VALUE, wholememory_create_tensor(made, &good, comm, (type_t)i, HOST, NULL));
    CODE(VALUE, wholememory_create_tensor(made, &good, comm, DISTRIBUTED, (location_t)i, NULL));
  }
  CHECK(*made == NULL || untouched(made, sizeof *made));
  paint(outputs, OUTPUT_BYTES);
  EACH(t, tensor_t, bad_tensors) {
    CODE(INPUT, wholememory_destroy_tensor(t));
    RESULT(0, wholememory_tensor_has_handle(t));
    RESULT(0, wholememory_tensor_get_memory_handle(t));
    RESULT(0, wholememory_tensor_get_tensor_description(t));
    CODE(INPUT, wholememory_tensor_get_global_reference(t, (wholememory_gref_t*)outputs));
    CODE(INPUT, wholememory_tensor_map_local_tensor(t, made));
    RESULT(0, wholememory_tensor_get_data_pointer(t));
    CODE(INPUT, wholememory_tensor_get_entry_offsets(number, t));
    CODE(INPUT, wholememory_tensor_get_entry_partition_sizes(number, t));
    CODE(INPUT, wholememory_tensor_get_local_entry_count(number, t));
    CODE(INPUT, wholememory_tensor_get_local_entry_start(number, t));
    CODE(INPUT, wholememory_tensor_get_subtensor(t, starts, ends, made));
    RESULT(0, wholememory_tensor_get_root(t));
  }
  CODE(INPUT, wholememory_tensor_get_global_reference(tensor, NULL));
  CODE(INPUT, wholememory_tensor_map_local_tensor(tensor, NULL));
  CODE(INPUT, wholememory_tensor_get_entry_offsets(NULL, tensor));
  CODE(INPUT, wholememory_tensor_get_entry_partition_sizes(NULL, tensor));
  CODE(INPUT, wholememory_tensor_get_local_entry_count(NULL, tensor));
  CODE(INPUT, wholememory_tensor_get_local_entry_start(NULL, tensor));
  CODE(INPUT, wholememory_tensor_get_subtensor(tensor, NULL, ends, made));
  CODE(INPUT, wholememory_tensor_get_subtensor(tensor, starts, NULL, made));
  CODE(INPUT, wholememory_tensor_get_subtensor(tensor, starts, ends, NULL));
}

static void operations(void) {
  wm_env env;
  wm_env_start(&env);
  EACH(t, tensor_t, bad_tensors) {
    CODE(INPUT, wholememory_gather(t, ids.tensor, user.tensor, NULL, NULL, -1));
    CODE(INPUT, wholememory_gather(tensor, t, user.tensor, NULL, NULL, -1));
    CODE(INPUT, wholememory_gather(tensor, ids.tensor, t, NULL, NULL, -1));
    CODE(INPUT, wholememory_scatter(t, ids.tensor, tensor, NULL, NULL, -1));
    CODE(INPUT, wholememory_scatter(user.tensor, t, tensor, NULL, NULL, -1));
    CODE(INPUT, wholememory_scatter(user.tensor, ids.tensor, t, NULL, NULL, -1));
    CODE(INPUT, wholememory_env_test_op(t, user.tensor, NULL, NULL, NULL, 4, &env.fns, NULL));
    CODE(INPUT, wholememory_env_test_op(ids.tensor, t, NULL, NULL, NULL, 4, &env.fns, NULL));
    CODE(INPUT, generate_random_positive_int_cpu(1, 1, t));
    CODE(INPUT, generate_exponential_distribution_negative_float_cpu(1, 1, t));
    CODE(INPUT, graph_append_unique(t, ids.tensor, outputs, ids.tensor, &env.fns, NULL));
    CODE(INPUT, graph_append_unique(ids.tensor, t, outputs, ids.tensor, &env.fns, NULL));
    CODE(INPUT, graph_append_unique(ids.tensor, ids.tensor, outputs, t, &env.fns, NULL));
    CODE(INPUT, csr_add_self_loop(t, ids.tensor, ids.tensor, ids.tensor, NULL));
    CODE(INPUT, csr_add_self_loop(ids.tensor, ids.tensor, ids.tensor, t, NULL));
    CODE(INPUT, wholegraph_csr_unweighted_sample_without_replacement(t, ids.tensor, ids.tensor, 3, ids.tensor, outputs, NULL, NULL, 1, &env.fns, NULL));
    CODE(INPUT, wholegraph_csr_weighted_sample_without_replacement(ids.tensor, t, ids.tensor, ids.tensor, 3, ids.tensor, outputs, NULL, NULL, 1, &env.fns, NULL));
  }
  BALANCED(&env);
  CHECK_EQ(env.output_mallocs, 0);
  wm_array_matches(&user, "the user's array after refused calls");
}

static void embeddings(void) {
  wholememory_embedding_t* made = (wholememory_embedding_t*)outputs;
  wholememory_embedding_cache_policy_t* policy_made = (wholememory_embedding_cache_policy_t*)outputs;
  wholememory_embedding_optimizer_t* optimizer_made = (wholememory_embedding_optimizer_t*)outputs;
  wm_env env;
  wm_env_start(&env);
  float one = 1;
  strangers bad = strange(handle, tensor, comm);
  EACH(e, wholememory_embedding_t, bad) {
    CODE(INPUT, wholememory_destroy_embedding(e));
    RESULT(0, wholememory_embedding_get_embedding_tensor(e));
    CODE(INPUT, wholememory_embedding_set_optimizer(e, NULL));
    CODE(INPUT, wholememory_embedding_gather(e, ids.tensor, user.tensor, true, &env.fns, 0));
    CODE(INPUT, wholememory_embedding_gather_gradient_apply(e, ids.tensor, user.tensor, true, 0.1f, &env.fns, 0));
    RESULT(0, wholememory_embedding_get_optimizer_state_names(e));
    RESULT(0, wholememory_embedding_get_optimizer_state(e, "m"));
    RESULT(0, wholememory_embedding_get_optimizer_state(e, NULL));
    CODE(INPUT, wholememory_embedding_writeback_cache(e, 0));
    CODE(INPUT, wholememory_embedding_drop_all_cache(e, 0));
  }
  EACH(o, wholememory_embedding_optimizer_t, bad) {
    CODE(INPUT, wholememory_optimizer_set_parameter(o, "weight_decay", &one));
    VOID(wholememory_destroy_embedding_optimizer(o));
  }
  CODE(INPUT, wholememory_optimizer_set_parameter(NULL, NULL, NULL));
  EACH(p, wholememory_embedding_cache_policy_t, bad)
    if (p) CODE(INPUT, wholememory_destroy_embedding_cache_policy(p));
  CODE(OKAY, wholememory_destroy_embedding_cache_policy(NULL));
  CODE(INPUT, wholememory_create_embedding_optimizer(NULL, WHOLEMEMORY_OPT_SGD));
  CODE(LATER, wholememory_create_embedding_optimizer(optimizer_made, WHOLEMEMORY_OPT_NONE));
  CODE(LATER, wholememory_create_embedding_optimizer(optimizer_made, (wholememory_optimizer_type_t)99));
  CODE(LATER, wholememory_create_embedding_optimizer(optimizer_made, (wholememory_optimizer_type_t)-1));
#define POLICY(out, ratio) \
  wholememory_create_embedding_cache_policy(out, comm, WHOLEMEMORY_MT_DISTRIBUTED, WHOLEMEMORY_ML_HOST, WHOLEMEMORY_AT_READONLY, ratio)
  CODE(INPUT, POLICY(NULL, 0.5f));
  const float ratios[] = {1.0001f, 0.0019f, 0, -1, INFINITY, -INFINITY, NAN, FLT_MAX};
  for (int i = 0; i < 8; i++) CODE(VALUE, POLICY(policy_made, ratios[i]));
  called("wholememory_create_embedding_cache_policy");
#define EMBEDDING(out, desc, comm) wholememory_create_embedding(out, desc, comm, DISTRIBUTED, HOST, NULL, NULL, -1, 0)
  CODE(INPUT, EMBEDDING(NULL, &good, comm));
  CODE(INPUT, EMBEDDING(made, NULL, comm));
  EACH(c, comm_t, bad_comms) CODE(INPUT, EMBEDDING(made, &good, c));
  desc_t wild = good;
  wild.dim = 3;
  CODE(INPUT, EMBEDDING(made, &wild, comm));
  wild = good, wild.strides[1] = 2;
  CODE(INPUT, EMBEDDING(made, &wild, comm));
  wild = good, wild.dtype = (wholememory_dtype_t)99;
  CODE(INPUT, EMBEDDING(made, &wild, comm));
  called("wholememory_create_embedding");
  wm_array_matches(&user, "the user's array after refused calls");
}

static void part(void (*run)(void), const char* name) {
  paint(outputs, OUTPUT_BYTES);
  run();
  if (!untouched(outputs, OUTPUT_BYTES)) FAILED("%s: a refused call wrote to an output", name);
}

static void body(wm_rank* r) {
  CHECK(wholememory_get_last_error() != NULL);
  if (r->size != 1) SKIP(r, "one rank is all it needs");
  comm = wm_world(r);
  outputs = malloc(OUTPUT_BYTES);
  REQUIRE(outputs != NULL);
  comm_t dead_comm;
  handle_t dead_handle;
  tensor_t dead_tensor;
  good = wm_desc(WHOLEMEMORY_DT_INT, 2, 6, 4, 4, 0);
  OK(wholememory_create_communicator(&dead_comm, wm_fresh_id(r), 0, 1));
  OK(wholememory_destroy_communicator(dead_comm));
  OK(wholememory_malloc(&dead_handle, 64, comm, DISTRIBUTED, HOST, 16, NULL));
  OK(wholememory_free(dead_handle));
  OK(wholememory_make_tensor_from_pointer(&dead_tensor, somewhere, &good));
  OK(wholememory_destroy_tensor(dead_tensor));
  OK(wholememory_malloc(&handle, 96, comm, DISTRIBUTED, HOST, 16, NULL));
  OK(wholememory_create_tensor(&tensor, &good, comm, DISTRIBUTED, HOST, NULL));
  ids = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 1, 4, 1, 1, 0, 0});
  user = wm_array_make((wm_view){WHOLEMEMORY_DT_INT, 2, 4, 4, 4, 0, 0});
  bad_comms = strange(dead_comm, handle, tensor);
  bad_handles = strange(dead_handle, comm, tensor);
  bad_tensors = strange(dead_tensor, comm, handle);
  part(whole_library, "library");
  part(pure_functions, "descriptions");
  part(communicators, "communicators");
  part(handles, "handles");
  part(tensors, "tensors");
  part(operations, "operations");
  part(embeddings, "embeddings");
  OK(wholememory_communicator_barrier(comm));
  OK(wholememory_destroy_tensor(tensor));
  OK(wholememory_free(handle));
  wm_array_drop(&ids);
  wm_array_drop(&user);
  free(outputs);
  /* Its own program tries these with objects alive; here they are known to exist. */
  called("fork_get_device_count"), called("wholememory_finalize");
  for (int i = 0; i < EXPORTS; i++)
    if (!exports[i].called) FAILED("%s was not tried", exports[i].name);
}

int main(int argc, char** argv) { return wm_test_main(argc, argv, body, WM_ONE_RANK); }
