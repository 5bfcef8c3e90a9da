// Calls the caller's memory functions and holds back the C++ exceptions they throw, which must not pass through the
// library's Rust frames. The library ends its operation, gives back what it took, and throws the exception on as its last
// act. A forced unwind (pthread_exit) cannot be held back and passes.

#include <cxxabi.h>

#include <cstdio>
#include <exception>
#include <new>

namespace {

using Create = void (*)(void **, void *);
using Destroy = void (*)(void *, void *);
using Malloc = void *(*)(void *description, unsigned kind, void *context, void *global);

// Keeps the exception in flight in *kept, unless one is there already, and its words in text. What is no C++ exception
// cannot be kept: the call then ends with its code alone.
int keep(void **kept, char *text, std::size_t text_bytes) noexcept {
  const std::exception_ptr current = std::current_exception();
  std::snprintf(text, text_bytes, "an exception without text");
  if (current == nullptr) return 1;
  try {
    std::rethrow_exception(current);
  } catch (const std::exception &error) {
    std::snprintf(text, text_bytes, "%s", error.what());
  } catch (...) {
  }
  if (*kept == nullptr) *kept = new (std::nothrow) std::exception_ptr(current);
  return 1;
}

template <typename Call>
int guarded(Call call, void **kept, char *text, std::size_t text_bytes) {
  try {
    call();
    return 0;
  } catch (abi::__forced_unwind &) {
    throw;
  } catch (...) {
    return keep(kept, text, text_bytes);
  }
}

}  // namespace

extern "C" {

int wholememory_shim_create(Create function, void **context, void *global, void **kept, char *text, std::size_t text_bytes) {
  return guarded([&] { function(context, global); }, kept, text, text_bytes);
}

// The destroy and free functions of the caller have the same shape.
int wholememory_shim_give_back(Destroy function, void *context, void *global, void **kept, char *text,
                               std::size_t text_bytes) {
  return guarded([&] { function(context, global); }, kept, text, text_bytes);
}

int wholememory_shim_malloc(Malloc function, void *description, unsigned kind, void *context, void *global, void **block,
                            void **kept, char *text, std::size_t text_bytes) {
  return guarded([&] { *block = function(description, kind, context, global); }, kept, text, text_bytes);
}

// Throws a kept exception on and releases what kept it.
void wholememory_shim_rethrow(void *kept) {
  auto *held = static_cast<std::exception_ptr *>(kept);
  std::exception_ptr exception = *held;
  delete held;
  std::rethrow_exception(exception);
}

}  // extern "C"
