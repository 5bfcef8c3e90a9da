// How an operation ends.
#pragma once

#include <cuda_runtime_api.h>

namespace wmk {

// The code for the caller, who is the only one to be told: the runtime does not keep it for whoever asks next.
inline int told(cudaError_t code) {
  if (code != cudaSuccess) (void)cudaGetLastError();
  return code;
}

}  // namespace wmk
