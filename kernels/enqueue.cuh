// Enqueueing a kernel with as little between caller and driver as there can be: by the driver's own handle of the kernel,
// which its loading found out. The runtime, which looks that up at every launch, is the way for kernels not loaded yet.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

namespace wmk {

// cuLaunchKernel; its codes are the runtime's.
using DriverLaunch = int (*)(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                             void **parameters, void **extra);

inline std::atomic<DriverLaunch> driver_launch{nullptr};

// What the driver calls a kernel, in every context; NULL until it is loaded.
using Handle = std::atomic<void *>;

template <auto kKernel>
inline Handle handle_of{nullptr};

// Loads a kernel for the current device and keeps its handle.
inline cudaError_t load_kernel(const void *kernel, Handle &handle) {
  cudaFuncAttributes attributes;
  cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
  if (code != cudaSuccess) return code;
  if (driver_launch.load(std::memory_order_relaxed) == nullptr) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    code = cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000, cudaEnableDefault, &result);
    if (code != cudaSuccess) return code;
    if (result == cudaDriverEntryPointSuccess) driver_launch.store(reinterpret_cast<DriverLaunch>(found));
  }
  cudaKernel_t loaded = nullptr;
  code = cudaGetKernel(&loaded, kernel);
  if (code == cudaSuccess) handle.store(loaded, std::memory_order_release);
  return code;
}

inline cudaError_t enqueue(const void *kernel, const Handle &handle, unsigned blocks, unsigned threads,
                           void **parameters, cudaStream_t stream) {
  void *const known = handle.load(std::memory_order_acquire);
  const DriverLaunch launch = driver_launch.load(std::memory_order_relaxed);
  if (known != nullptr && launch != nullptr) {
    return static_cast<cudaError_t>(launch(known, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr));
  }
  return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), parameters, 0, stream);
}

}  // namespace wmk
