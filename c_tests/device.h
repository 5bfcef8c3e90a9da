/* Device memory for the tests: through libcuda.so.1, opened at run time, where the library uses a GPU; plain
 * memory on the CPU platform. The same programs run on both. */
#ifndef WM_DEVICE_H
#define WM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library works on GPUs here: there is a driver with a device, and WHOLEMEMORY_PLATFORM is not `cpu`. */
bool wm_gpu(void);
/* How many GPUs it may use. */
int wm_gpus(void);
/* Makes GPU `rank % count` the calling thread's device; nothing on the CPU platform. */
void wm_device_bind(int rank);
/* Memory that operations may read and write; never NULL. */
void* wm_alloc(size_t bytes);
void wm_release(void* p);
/* Page-locked host memory on a GPU, plain memory without. */
void* wm_alloc_pinned(size_t bytes);
void wm_release_pinned(void* p);
/* Copies between any two kinds of memory, done on return. */
void wm_copy(void* to, const void* from, size_t bytes);
void wm_fill(void* to, unsigned char byte, size_t bytes);
/* A function of the driver by its name in libcuda.so.1; NULL without a GPU. Ends the program where the driver lacks it. */
void* wm_driver_function(const char* name);
/* Waits for all work of this thread's device. */
void wm_finish(void);

#ifdef __cplusplus
}
#endif
#endif
