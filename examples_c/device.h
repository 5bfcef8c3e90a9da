/* Memory that the library's operations can reach. With a CUDA driver and a GPU it is device memory, through
 * libcuda.so.1 opened at run time (nothing of CUDA is needed to build); without, or with
 * WHOLEMEMORY_PLATFORM=cpu, it is plain memory and waiting for the device is no work. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned long long device_address_t;

/* One rank's view of its device. `driver` is NULL where memory is plain. */
typedef struct {
  void *driver;
  char name[96];
  int (*context_synchronize)(void);
  int (*allocate)(device_address_t *, size_t);
  int (*release)(device_address_t);
  int (*allocate_pinned)(void **, size_t);
  int (*release_pinned)(void *);
  int (*copy)(device_address_t, device_address_t, size_t);
  int (*fill)(device_address_t, unsigned char, size_t);
  int (*stream_synchronize)(void *);
} device_t;

static inline void device_must(int status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "the CUDA driver refused %s with code %d\n", what, status);
  exit(1);
}

/* Takes one function of the driver by name; a driver without it is an error that names it. */
static inline void device_take(device_t *device, void *function, const char *name) {
  void *found = dlsym(device->driver, name);
  if (!found) {
    fprintf(stderr, "the CUDA driver has no %s: it is older than this program needs\n", name);
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

/* Binds the calling thread to GPU `rank` modulo the number of GPUs, or to plain memory. Call it in the
 * process (never before a fork) and the thread of the rank, before the communicator is made. */
static inline device_t device_open(int rank) {
  device_t device = {0};
  snprintf(device.name, sizeof device.name, "plain memory (no GPU)");
  const char *platform = getenv("WHOLEMEMORY_PLATFORM");
  if (platform && !strcmp(platform, "cpu")) return device;
  device.driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!device.driver) return device;
  int (*initialize)(unsigned), (*count_devices)(int *), (*get)(int *, int), (*get_name)(char *, int, int);
  int (*retain_context)(void **, int), (*set_context)(void *);
  device_take(&device, &initialize, "cuInit");
  device_take(&device, &count_devices, "cuDeviceGetCount");
  int count = 0;
  if (initialize(0) != 0 || count_devices(&count) != 0 || count == 0) {
    device.driver = NULL;
    return device;
  }
  device_take(&device, &get, "cuDeviceGet");
  device_take(&device, &get_name, "cuDeviceGetName");
  device_take(&device, &retain_context, "cuDevicePrimaryCtxRetain");
  device_take(&device, &set_context, "cuCtxSetCurrent");
  device_take(&device, &device.context_synchronize, "cuCtxSynchronize");
  device_take(&device, &device.allocate, "cuMemAlloc_v2");
  device_take(&device, &device.release, "cuMemFree_v2");
  device_take(&device, &device.allocate_pinned, "cuMemAllocHost_v2");
  device_take(&device, &device.release_pinned, "cuMemFreeHost");
  device_take(&device, &device.copy, "cuMemcpy");
  device_take(&device, &device.fill, "cuMemsetD8_v2");
  device_take(&device, &device.stream_synchronize, "cuStreamSynchronize");
  int ordinal;
  void *context;
  device_must(get(&ordinal, rank % count), "the GPU of this rank");
  device_must(get_name(device.name, (int)sizeof device.name, ordinal), "the name of the GPU");
  device_must(retain_context(&context, ordinal), "the GPU's primary context");
  device_must(set_context(context), "to make the context current");
  return device;
}

static inline void *device_plain(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 4096, bytes ? bytes : 1) != 0) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    exit(1);
  }
  if (bytes >= (4u << 20)) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

/* `bytes` of memory that operations read and write; never NULL (the program ends when there is none). */
static inline void *device_alloc(const device_t *device, size_t bytes) {
  if (!device->driver) return device_plain(bytes);
  device_address_t address = 0;
  device_must(device->allocate(&address, bytes ? bytes : 1), "device memory");
  return (void *)(uintptr_t)address;
}

static inline void device_free(const device_t *device, void *memory) {
  if (!memory) return;
  if (!device->driver)
    free(memory);
  else
    device_must(device->release((device_address_t)(uintptr_t)memory), "to free device memory");
}

/* Copies between any two of: this device's memory, host memory. Done on return. */
static inline void device_copy(const device_t *device, void *to, const void *from, size_t bytes) {
  if (!device->driver)
    memcpy(to, from, bytes);
  else if (bytes)
    device_must(device->copy((device_address_t)(uintptr_t)to, (device_address_t)(uintptr_t)from, bytes), "a copy");
}

static inline void device_fill(const device_t *device, void *memory, unsigned char byte, size_t bytes) {
  if (!device->driver)
    memset(memory, byte, bytes);
  else if (bytes)
    device_must(device->fill((device_address_t)(uintptr_t)memory, byte, bytes), "a fill");
}

/* Waits until everything this thread's device was given is done. */
static inline void device_wait(const device_t *device) {
  if (device->driver) device_must(device->context_synchronize(), "to finish the work it was given");
}

#endif
