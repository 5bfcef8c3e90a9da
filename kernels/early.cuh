// Kernels that begin while the one before them in the stream still runs (programmatic dependent launch, see the CUDA
// programming guide): their blocks are there already when it ends, which hides most of a launch. Such a kernel calls
// wait_for_before first of all, before it reads or writes memory, and only then let_next_begin: so at most two kernels of a
// stream are there at once, and what the one before wrote or saw is visible to the next. (A cache's admissions, which run
// beside the gather before them, say themselves what they do.) In kernels that were enqueued as usual both do nothing.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <utility>

namespace wmk {

// Of the code that was loaded for the devices so far: whether some of it can wait, and whether some cannot.
inline std::atomic<bool> early_serves{false}, early_misses{false};

// Loads a kernel's code for the current device. Code for older devices, also where a newer one translates it, has no wait in it.
inline cudaError_t load_code(const void *kernel) {
  cudaFuncAttributes attributes;
  const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
  if (code != cudaSuccess) return code;
  (attributes.ptxVersion >= 90 ? early_serves : early_misses).store(true, std::memory_order_relaxed);
  return code;
}

// Whether kernels can begin early here, outside of graphs. Those of a graph begin as usual: there a launch is cheap, the node
// before can be anything, and whoever reads the graph's edges need not know of others than full ones.
inline bool can_begin_early() {
  return early_serves.load(std::memory_order_relaxed) && !early_misses.load(std::memory_order_relaxed);
}

inline bool records(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  // Whatever it is, the launch will tell.
  cudaGetLastError();
  return true;
}

inline bool may_begin_early(cudaStream_t stream) { return can_begin_early() && !records(stream); }

#ifdef __CUDACC__

// Launches a kernel that calls wait_for_before first of all, early where `early`.
template <class... Parameters, class... Arguments>
inline cudaError_t launch_kernel(bool early, void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads,
                                 size_t shared_bytes, cudaStream_t stream, Arguments &&...arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

__device__ __forceinline__ void wait_for_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may begin once all blocks have called this; it waits for the end of this one itself.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif  // __CUDACC__

}  // namespace wmk
