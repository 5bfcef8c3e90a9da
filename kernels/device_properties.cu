// What the CUDA runtime knows of a device, for callers that are handed a cudaDeviceProp. Makes no context.

#include <cuda_runtime_api.h>

#include <cstring>

// Writes the properties of `device` to `out`, or, where `out` is null, only their size to `bytes`. Returns the
// runtime's error code.
extern "C" int wmk_device_properties(int device, void *out, size_t *bytes) {
  *bytes = sizeof(cudaDeviceProp);
  if (out == nullptr) return cudaSuccess;
  cudaDeviceProp properties;
  const cudaError_t code = cudaGetDeviceProperties(&properties, device);
  // An error is the caller's to tell; it is not left behind for whoever asks the runtime next.
  (void)cudaGetLastError();
  if (code == cudaSuccess) std::memcpy(out, &properties, sizeof properties);
  return code;
}
