// Device memory, streams and random numbers for the programs that check and time the kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "../args.h"
#include "../common/dtype.h"
#include "../common/launch.h"
#include "../common/place.h"

using namespace wmk;

#define CUDA(call)                                                                                 \
  do {                                                                                             \
    const int code_ = static_cast<int>(call);                                                      \
    if (code_ != 0) {                                                                              \
      fprintf(stderr, "%s:%d: %s: %s (%d)\n", __FILE__, __LINE__, #call, wmk_words(code_), code_); \
      exit(3);                                                                                     \
    }                                                                                              \
  } while (0)

struct Random {
  uint64_t state;
  uint64_t next() {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
  }
  // 0 to bound - 1.
  uint64_t below(uint64_t bound) { return next() % bound; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }
};

// Device memory that frees itself.
class Device {
 public:
  explicit Device(size_t bytes) : bytes_(bytes) { CUDA(cudaMalloc(&at_, bytes < 1 ? 1 : bytes)); }
  ~Device() { cudaFree(at_); }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(at_); }
  size_t bytes() const { return bytes_; }
  template <class T>
  T *as() const {
    return static_cast<T *>(at_);
  }
  // Done on return, for streams that do not wait for the default one too: the copies and fills of the runtime may return
  // before.
  void put(const void *from, size_t bytes) {
    CUDA(cudaMemcpy(at_, from, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  }
  template <class T>
  void put(const std::vector<T> &from) {
    put(from.data(), from.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> get(size_t count) const {
    std::vector<T> to(count);
    CUDA(cudaMemcpy(to.data(), at_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
  void poison() {
    CUDA(cudaMemset(at_, 0xa5, bytes_));
    CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  }

 private:
  void *at_ = nullptr;
  size_t bytes_;
};

// A few words that host and device both see.
template <class T>
class Shared {
 public:
  explicit Shared(size_t count) { CUDA(cudaMallocHost(reinterpret_cast<void **>(&at_), count * sizeof(T))); }
  ~Shared() { cudaFreeHost(at_); }
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;
  T *get() { return at_; }
  T &operator[](size_t i) { return at_[i]; }

 private:
  T *at_ = nullptr;
};

inline const char *dtype_name(uint32_t dtype) {
  static const char *names[] = {"?", "FLOAT", "HALF", "DOUBLE", "BF16", "INT", "INT64", "INT16", "INT8"};
  return names[dtype];
}
