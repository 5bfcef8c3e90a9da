// Enqueueing a kernel with as little between caller and driver as there can be: by the driver's own handle of the kernel,
// which its loading found out. The runtime, which looks that up at every launch, is the way for kernels not loaded yet.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>

#include "early.cuh"

namespace wmk {

// cuLaunchKernel; its codes are the runtime's.
using DriverLaunch = int (*)(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                             void **parameters, void **extra);

inline std::atomic<DriverLaunch> driver_launch{nullptr};

// cuLaunchKernelEx, which can begin a kernel early.
using DriverLaunchEx = CUresult (*)(const CUlaunchConfig *config, void *kernel, void **parameters, void **extra);

inline std::atomic<DriverLaunchEx> driver_launch_ex{nullptr};

// What the driver calls a kernel, in every context; NULL until it is loaded.
using Handle = std::atomic<void *>;

template <auto kKernel>
inline Handle handle_of{nullptr};

// Loads a kernel for the current device and keeps its handle.
inline cudaError_t load_kernel(const void *kernel, Handle &handle) {
  cudaError_t code = load_code(kernel);
  if (code != cudaSuccess) return code;
  if (driver_launch.load(std::memory_order_relaxed) == nullptr) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    code = cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000, cudaEnableDefault, &result);
    if (code != cudaSuccess) return code;
    if (result == cudaDriverEntryPointSuccess) driver_launch.store(reinterpret_cast<DriverLaunch>(found));
    code = cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &found, 12000, cudaEnableDefault, &result);
    if (code != cudaSuccess) return code;
    if (result == cudaDriverEntryPointSuccess) driver_launch_ex.store(reinterpret_cast<DriverLaunchEx>(found));
  }
  cudaKernel_t loaded = nullptr;
  code = cudaGetKernel(&loaded, kernel);
  if (code == cudaSuccess) handle.store(loaded, std::memory_order_release);
  return code;
}

// `early`: the kernel calls wait_for_before first of all, and may_begin_early.
inline cudaError_t enqueue(const void *kernel, const Handle &handle, unsigned blocks, unsigned threads,
                           void **parameters, cudaStream_t stream, bool early = false) {
  void *const known = handle.load(std::memory_order_acquire);
  const DriverLaunch launch = driver_launch.load(std::memory_order_relaxed);
  const DriverLaunchEx launch_ex = driver_launch_ex.load(std::memory_order_relaxed);
  if (early && known != nullptr && launch_ex != nullptr) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {blocks, 1, 1, threads, 1, 1, 0, stream, &attribute, 1};
    return static_cast<cudaError_t>(launch_ex(&config, known, parameters, nullptr));
  }
  if (known != nullptr && launch != nullptr) {
    return static_cast<cudaError_t>(launch(known, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr));
  }
  return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), parameters, 0, stream);
}

}  // namespace wmk
