// The words of the error codes that the operations return.

#include <cuda_runtime.h>

#include "args.h"

const char *wmk_words(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
