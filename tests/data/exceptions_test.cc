// Memory functions of the caller that fail: by NULL and by C++ exceptions, at every place of every operation. What was taken
// is given back, the exception reaches the caller, the code says why.
#include <wholememory/error.h>
#include <wholememory/wholememory_op.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

enum class Failure { none, null, standard, number };

// What the memory functions have done, and where they are to fail.
struct World {
  int calls = 0;
  int fail_at = -1;
  Failure failure = Failure::none;
  int contexts = 0;
  int blocks = 0;
  int mistakes = 0;
};

struct Context {
  void *block = nullptr;
  bool from_malloc = false;
};

bool fails(World *world) {
  if (world->calls++ != world->fail_at) return false;
  if (world->failure == Failure::standard) throw std::runtime_error("no room today");
  if (world->failure == Failure::number) throw 42;
  return world->failure == Failure::null;
}

size_t bytes_of(const wholememory_tensor_description_t *d) {
  size_t count = 1;
  for (int i = 0; i < d->dim; i++) count *= static_cast<size_t>(d->sizes[i]);
  return count * wholememory_dtype_get_element_size(d->dtype);
}

void create(void **context, void *global) {
  World *world = static_cast<World *>(global);
  *context = nullptr;
  if (fails(world)) return;
  *context = new Context;
  world->contexts++;
}

void destroy(void *context, void *global) {
  World *world = static_cast<World *>(global);
  Context *held = static_cast<Context *>(context);
  if (held == nullptr || held->block != nullptr) world->mistakes++;
  delete held;
  world->contexts--;
}

void *take(wholememory_tensor_description_t *description, wholememory_memory_allocation_type_t, void *context,
           void *global) {
  World *world = static_cast<World *>(global);
  Context *held = static_cast<Context *>(context);
  if (fails(world)) return nullptr;
  const size_t bytes = bytes_of(description);
  if (bytes == 0) return nullptr;
  void *block = std::malloc(bytes);
  if (held != nullptr) {
    if (held->block != nullptr) world->mistakes++;
    held->block = block;
  }
  world->blocks++;
  return block;
}

void give_back(void *context, void *global) {
  World *world = static_cast<World *>(global);
  Context *held = static_cast<Context *>(context);
  if (held == nullptr || held->block == nullptr) {
    world->mistakes++;
    return;
  }
  std::free(held->block);
  held->block = nullptr;
  world->blocks--;
}

wholememory_env_func_t functions(World *scratch, World *outputs) {
  wholememory_env_func_t env{};
  env.temporary_fns = {create, destroy, take, give_back, scratch};
  env.output_fns = {take, give_back, outputs};
  return env;
}

int failures = 0;

void expect(bool good, const std::string &what) {
  if (good) return;
  std::printf("FAILED: %s (last error: %s)\n", what.c_str(), wholememory_get_last_error());
  failures++;
}

wholememory_tensor_t tensor(void *data, wholememory_dtype_t dtype, int dim, int64_t rows, int64_t cols) {
  wholememory_tensor_description_t d;
  wholememory_initialize_tensor_desc(&d);
  d.dim = dim;
  d.dtype = dtype;
  d.sizes[0] = rows;
  if (dim == 2) {
    d.sizes[1] = cols;
    d.strides[0] = cols;
  }
  wholememory_tensor_t made = nullptr;
  expect(wholememory_make_tensor_from_pointer(&made, data, &d) == WHOLEMEMORY_SUCCESS, "a tensor");
  return made;
}

// Runs an operation once in peace and then with a failure at each call of a memory function.
template <typename Operation>
void try_all(const char *name, int least_calls, Operation operation) {
  World peace_scratch, peace_outputs;
  Context peace_context;
  wholememory_env_func_t peace = functions(&peace_scratch, &peace_outputs);
  expect(operation(&peace, &peace_context) == WHOLEMEMORY_SUCCESS, std::string(name) + " in peace");
  expect(peace_scratch.contexts == 0 && peace_scratch.blocks == 0, std::string(name) + " gives everything back");
  expect(peace_scratch.mistakes == 0, std::string(name) + " follows the protocol");
  std::free(peace_context.block);
  const int all = peace_scratch.calls + peace_outputs.calls;
  expect(all >= least_calls, std::string(name) + " asks for memory");
  for (Failure failure : {Failure::null, Failure::standard, Failure::number}) {
    for (int at = 0; at < all; at++) {
      World scratch, outputs;
      (at < peace_scratch.calls ? scratch : outputs).fail_at = at < peace_scratch.calls ? at : at - peace_scratch.calls;
      scratch.failure = outputs.failure = failure;
      Context context;
      wholememory_env_func_t env = functions(&scratch, &outputs);
      const std::string where = std::string(name) + ", failure " + std::to_string(static_cast<int>(failure)) + " at call " + std::to_string(at);
      std::string caught = "nothing";
      wholememory_error_code_t code = WHOLEMEMORY_SUCCESS;
      try {
        code = operation(&env, &context);
      } catch (const std::runtime_error &error) {
        caught = error.what();
      } catch (int number) {
        caught = std::to_string(number);
      }
      const char *expected = failure == Failure::standard ? "no room today" : failure == Failure::number ? "42" : "nothing";
      expect(caught == expected, where + ": caught " + caught);
      // A create function that gives no context is no failure: the block is asked for without one.
      const bool silent = failure == Failure::null && code == WHOLEMEMORY_SUCCESS;
      if (failure == Failure::null && !silent) {
        expect(code == WHOLEMEMORY_OUT_OF_MEMORY, where + ": code " + std::to_string(code));
        expect(std::strstr(wholememory_get_last_error(), "malloc_fn") != nullptr, where + ": the words");
      }
      if (failure == Failure::standard) {
        expect(std::strstr(wholememory_get_last_error(), "no room today") != nullptr, where + ": the words");
      }
      expect(scratch.contexts == 0, where + ": contexts left");
      expect(scratch.blocks <= (silent ? 1 : 0), where + ": blocks left");
      expect(scratch.mistakes <= (silent ? 1 : 0), where + ": protocol");
      std::free(context.block);
    }
  }
}

void env_test() {
  float input[3] = {1, 2, 3};
  float output[6];
  wholememory_tensor_t in = tensor(input, WHOLEMEMORY_DT_FLOAT, 1, 3, 0);
  wholememory_tensor_t out = tensor(output, WHOLEMEMORY_DT_FLOAT, 2, 2, 3);
  try_all("env_test_op", 3, [&](wholememory_env_func_t *env, Context *context) {
    return wholememory_env_test_op(in, out, context, nullptr, nullptr, 2, env, nullptr);
  });
  wholememory_destroy_tensor(in);
  wholememory_destroy_tensor(out);
}

void gather(wholememory_memory_type_t type) {
  wholememory_unique_id_t id;
  wholememory_comm_t comm = nullptr;
  expect(wholememory_create_unique_id(&id) == WHOLEMEMORY_SUCCESS, "an id");
  expect(wholememory_create_communicator(&comm, id, 0, 1) == WHOLEMEMORY_SUCCESS, "a communicator");
  wholememory_tensor_description_t d;
  wholememory_initialize_tensor_desc(&d);
  d.dim = 2;
  d.dtype = WHOLEMEMORY_DT_FLOAT;
  d.sizes[0] = 10;
  d.sizes[1] = 4;
  d.strides[0] = 4;
  wholememory_tensor_t table = nullptr;
  expect(wholememory_create_tensor(&table, &d, comm, type, WHOLEMEMORY_ML_HOST) == WHOLEMEMORY_SUCCESS, "a table");
  int64_t ids[5] = {9, 0, -1, 3, 9};
  float rows[20] = {};
  wholememory_tensor_t indices = tensor(ids, WHOLEMEMORY_DT_INT64, 1, 5, 0);
  wholememory_tensor_t output = tensor(rows, WHOLEMEMORY_DT_FLOAT, 2, 5, 4);
  try_all("gather", 1, [&](wholememory_env_func_t *env, Context *) {
    return wholememory_gather(table, indices, output, env, nullptr);
  });
  try_all("scatter", 1, [&](wholememory_env_func_t *env, Context *) {
    return wholememory_scatter(output, indices, table, env, nullptr);
  });
  wholememory_destroy_tensor(table);
  wholememory_destroy_tensor(indices);
  wholememory_destroy_tensor(output);
  expect(wholememory_destroy_communicator(comm) == WHOLEMEMORY_SUCCESS, "destroy");
}

}  // namespace

int main() {
  setenv("WHOLEMEMORY_ROUTE", "exchange", 1);
  env_test();
  gather(WHOLEMEMORY_MT_DISTRIBUTED);
  gather(WHOLEMEMORY_MT_HIERARCHY);
  expect(get_wholememory_tensor_count() == 0, "no tensor is left");
  if (failures == 0) std::printf("all right\n");
  return failures == 0 ? 0 : 1;
}
