#include <cuda_runtime.h>

#include "args.h"

const char *wmk_words(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
