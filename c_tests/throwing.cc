// A callback that throws: the exception reaches the caller after the library has cleaned up, and no other rank waits.
// The headers are used here as C++ sees them: default arguments, enumerations by their bare names.
#include <stdexcept>
#include <string>

#include "rows.h"
#include "table.h"

#include <wholememory/wholememory_op.h>

namespace {

struct thrown_on_purpose : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class at { nowhere, create, malloc, output };
thread_local at throw_at = at::nowhere;
thread_local wholememory_env_func_t counting;

void create_or_throw(void** context, void* global) {
  if (throw_at == at::create) throw thrown_on_purpose("create");
  counting.temporary_fns.create_memory_context_fn(context, global);
}

void* malloc_or_throw(wholememory_tensor_description_t* desc, wholememory_memory_allocation_type_t kind, void* context, void* global) {
  if (throw_at == at::malloc) throw thrown_on_purpose("malloc");
  return counting.temporary_fns.malloc_fn(desc, kind, context, global);
}

void* output_or_throw(wholememory_tensor_description_t* desc, wholememory_memory_allocation_type_t kind, void* context, void* global) {
  if (throw_at == at::output) throw thrown_on_purpose("output");
  return counting.output_fns.malloc_fn(desc, kind, context, global);
}

wholememory_env_func_t throwing(wm_env* env) {
  wm_env_start(env);
  counting = env->fns;
  wholememory_env_func_t fns = counting;
  fns.temporary_fns.create_memory_context_fn = create_or_throw;
  fns.temporary_fns.malloc_fn = malloc_or_throw;
  fns.output_fns.malloc_fn = output_or_throw;
  return fns;
}

// Whether a call let the exception of `place` through; the code of the call otherwise.
template <typename Call>
std::string outcome(at place, Call call) {
  throw_at = place;
  std::string seen;
  try {
    seen = wm_code_name(call());
  } catch (const thrown_on_purpose& e) {
    seen = std::string("thrown: ") + e.what();
  } catch (...) {
    seen = "another exception";
  }
  throw_at = at::nowhere;
  return seen;
}

wm_view view(wholememory_dtype_t dtype, int dim, int64_t rows, int64_t columns) {
  wm_view v = {dtype, dim, rows, columns, columns, 0, 0};
  return v;
}

// False when the kind needs no scratch, so that nothing can be thrown.
bool lookups(wm_rank* r, wholememory_comm_t comm, const wm_kind& kind) {
  bool needed_scratch = true;
  enum { COUNT = 200, COLUMNS = 5 };
  wm_shape shape = {};
  shape.kind = kind;
  shape.dtype = WHOLEMEMORY_DT_FLOAT;
  shape.rows = 50;
  shape.columns = COLUMNS;
  wm_table t = wm_table_make(comm, shape);
  wm_array ids = wm_array_make(view(WHOLEMEMORY_DT_INT, 1, COUNT, 1));
  wm_array out = wm_array_make(view(WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS));
  for (int i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), uint64_t(i * 7 % 50));
  wm_array_push(&ids);
  for (at place : {at::create, at::malloc})
    for (int thrower : {-1, 0, r->size - 1}) {  // -1: every rank throws
      wm_env env;
      wholememory_env_func_t fns = throwing(&env);
      bool throws = thrower < 0 || r->rank == thrower;
      std::string seen = outcome(throws ? place : at::nowhere, [&] { return wholememory_gather(t.window, ids.tensor, out.tensor, &fns, nullptr); });
      BALANCED(&env);
      const char* words = place == at::create ? "thrown: create" : "thrown: malloc";
      bool needed_none = seen == "SUCCESS" && env.creates == 0;
      if (throws) CHECK(seen == words || needed_none);
      else CHECK(seen == "SUCCESS" || seen == "OUT_OF_MEMORY");
      if (throws && needed_none) needed_scratch = false;
      OK(wholememory_communicator_barrier(comm));
    }
  wm_array_drop(&ids);
  wm_array_drop(&out);
  wm_lookup after = {};
  after.index_dtype = WHOLEMEMORY_DT_INT64;
  after.user_dtype = WHOLEMEMORY_DT_FLOAT;
  after.count = 40;
  wm_gather_check(&t, after);
  wm_table_drop(&t);
  return needed_scratch;
}

// Lookups and gradient steps of an embedding whose rows are dealt to the ranks, so that both need scratch.
void learning(wm_rank* r, wholememory_comm_t comm) {
  enum { COUNT = 200, COLUMNS = 5 };
  wm_rows_shape shape = {};
  shape.kind = wm_kinds[0];
  for (const wm_kind& kind : wm_kinds)
    if (kind.type == WHOLEMEMORY_MT_DISTRIBUTED && kind.location == WHOLEMEMORY_ML_HOST) shape.kind = kind;
  shape.dtype = WHOLEMEMORY_DT_FLOAT;
  shape.rows = 50;
  shape.columns = COLUMNS;
  shape.round_robin = 3;
  wm_rows e = wm_rows_make(comm, shape);
  wm_rows_fill(&e, wm_value, 0);
  wholememory_embedding_optimizer_t optimizer;
  OK(wholememory_create_embedding_optimizer(&optimizer, WHOLEMEMORY_OPT_LAZY_ADAM));
  EXPECT(0, wholememory_embedding_set_optimizer(e.embedding, optimizer));
  wholememory_destroy_embedding_optimizer(optimizer);
  wm_array ids = wm_array_make(view(WHOLEMEMORY_DT_INT, 1, COUNT, 1));
  wm_array rows = wm_array_make(view(WHOLEMEMORY_DT_FLOAT, 2, COUNT, COLUMNS));
  for (int i = 0; i < COUNT; i++) wm_set_bits(WHOLEMEMORY_DT_INT, wm_array_at(&ids, i, 0), uint64_t(i * 7 % 50));
  wm_array_push(&ids);
  for (bool step : {false, true})
    for (at place : {at::create, at::malloc})
      for (int thrower : {-1, 0, r->size - 1}) {  // -1: every rank throws
        wm_env env;
        wholememory_env_func_t fns = throwing(&env);
        bool throws = thrower < 0 || r->rank == thrower;
        std::string seen = outcome(throws ? place : at::nowhere, [&] {
          return step ? wholememory_embedding_gather_gradient_apply(e.embedding, ids.tensor, rows.tensor, false, 0.5f, &fns, 0)
                      : wholememory_embedding_gather(e.embedding, ids.tensor, rows.tensor, false, &fns, 0);
        });
        BALANCED(&env);
        bool needed_none = seen == "SUCCESS" && env.creates == 0;
        if (throws) CHECK(seen == (place == at::create ? "thrown: create" : "thrown: malloc") || (needed_none && r->size == 1));
        else CHECK(seen == "SUCCESS" || seen == "OUT_OF_MEMORY");
        OK(wholememory_communicator_barrier(comm));
      }
  wm_array_drop(&ids);
  wm_array_drop(&rows);
  wm_rows_drop(&e);
}

void outputs() {
  wm_array in = wm_array_make(view(WHOLEMEMORY_DT_FLOAT, 1, 6, 1)), out = wm_array_make(view(WHOLEMEMORY_DT_FLOAT, 2, 4, 6));
  wm_array_push(&in);
  for (at place : {at::create, at::malloc, at::output}) {
    wm_env env;
    wholememory_env_func_t fns = throwing(&env);
    wm_context device;
    wm_context_start(&device, &env);
    std::string seen = outcome(place, [&] { return wholememory_env_test_op(in.tensor, out.tensor, &device, nullptr, nullptr, 4, &fns, nullptr); });
    CHECK(seen == (place == at::create ? "thrown: create" : place == at::malloc ? "thrown: malloc" : "thrown: output"));
    BALANCED(&env);
    wm_context_drop(&device);
  }
  wm_array_drop(&in);
  wm_array_drop(&out);
}

void body(wm_rank* r) {
  outputs();
  wm_meet(r);
  if (!r->threads || r->rank == 0) setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  wm_meet(r);
  wholememory_comm_t comm;
  OK(wholememory_create_communicator(&comm, wm_fresh_id(r), r->rank, r->size));
  std::string without;
  for (const wm_kind& kind : wm_kinds)
    if (wm_kind_here(r, comm, &kind) && !lookups(r, comm, kind)) without += std::string(without.empty() ? "" : ", ") + kind.name;
  learning(r, comm);
  if (!without.empty()) wm_leave_out(r, "no scratch to throw for: %s", without.c_str());
  OK(wholememory_destroy_communicator(comm));
}

}  // namespace

int main(int argc, char** argv) {
  // Default arguments of the C++ headers leave the functions' addresses unambiguous.
  auto init = &wholememory_init;
  if (!init) return WM_FAIL;
  return wm_test_main(argc, argv, body, WM_PLAIN);
}
