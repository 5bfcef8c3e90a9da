#include "device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static struct {
  void* library;
  int devices;
  int (*set_current)(void*);
  int (*retain)(void**, int);
  int (*allocate)(uintptr_t*, size_t);
  int (*release)(uintptr_t);
  int (*allocate_host)(void**, size_t, unsigned);
  int (*release_host)(void*);
  int (*copy)(uintptr_t, uintptr_t, size_t);
  int (*fill)(uintptr_t, unsigned char, size_t);
  int (*synchronise)(void);
} driver;

static pthread_once_t looked = PTHREAD_ONCE_INIT;

static void look_for_driver(void) {
  const char* platform = getenv("WHOLEMEMORY_PLATFORM");
  if (platform && !strcmp(platform, "cpu")) return;
  void* lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
  int (*count)(int*) = (int (*)(int*))dlsym(lib, "cuDeviceGetCount");
  *(void**)&driver.set_current = dlsym(lib, "cuCtxSetCurrent");
  *(void**)&driver.retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
  *(void**)&driver.allocate = dlsym(lib, "cuMemAlloc_v2");
  *(void**)&driver.release = dlsym(lib, "cuMemFree_v2");
  *(void**)&driver.allocate_host = dlsym(lib, "cuMemHostAlloc");
  *(void**)&driver.release_host = dlsym(lib, "cuMemFreeHost");
  *(void**)&driver.copy = dlsym(lib, "cuMemcpy");
  *(void**)&driver.fill = dlsym(lib, "cuMemsetD8_v2");
  *(void**)&driver.synchronise = dlsym(lib, "cuCtxSynchronize");
  driver.library = lib;
  int devices = 0;
  if (init && count && init(0) == 0 && count(&devices) == 0) driver.devices = devices;
}

bool wm_gpu(void) {
  pthread_once(&looked, look_for_driver);
  return driver.devices > 0;
}

int wm_gpus(void) { return wm_gpu() ? driver.devices : 0; }

static void need(int driver_code, const char* call) {
  if (driver_code == 0) return;
  wm_say("FAILED: %s gives driver error %d", call, driver_code);
  wm_end(WM_FAIL);
}

void* wm_driver_function(const char* name) {
  if (!wm_gpu()) return NULL;
  void* found = dlsym(driver.library, name);
  if (!found) {
    wm_say("FAILED: libcuda.so.1 has no %s", name);
    wm_end(WM_FAIL);
  }
  return found;
}

void wm_device_bind(int rank) {
  if (!wm_gpu()) return;
  void* context;
  need(driver.retain(&context, rank % driver.devices), "cuDevicePrimaryCtxRetain");
  need(driver.set_current(context), "cuCtxSetCurrent");
}

static void* plain(size_t bytes) {
  void* p = malloc(bytes ? bytes : 1);
  if (!p) wm_end(WM_FAIL);
  return p;
}

void* wm_alloc(size_t bytes) {
  if (!wm_gpu()) return plain(bytes);
  uintptr_t p;
  need(driver.allocate(&p, bytes ? bytes : 1), "cuMemAlloc");
  return (void*)p;
}

void wm_release(void* p) {
  if (wm_gpu()) need(driver.release((uintptr_t)p), "cuMemFree");
  else free(p);
}

void* wm_alloc_pinned(size_t bytes) {
  if (!wm_gpu()) return plain(bytes);
  void* p;
  need(driver.allocate_host(&p, bytes ? bytes : 1, 1), "cuMemHostAlloc");
  return p;
}

void wm_release_pinned(void* p) {
  if (wm_gpu()) need(driver.release_host(p), "cuMemFreeHost");
  else free(p);
}

void wm_copy(void* to, const void* from, size_t bytes) {
  if (!bytes) return;
  if (!wm_gpu()) {
    memcpy(to, from, bytes);
    return;
  }
  need(driver.copy((uintptr_t)to, (uintptr_t)from, bytes), "cuMemcpy");
  wm_finish();
}

void wm_fill(void* to, unsigned char byte, size_t bytes) {
  if (!bytes) return;
  if (!wm_gpu()) {
    memset(to, byte, bytes);
    return;
  }
  need(driver.fill((uintptr_t)to, byte, bytes), "cuMemsetD8");
  wm_finish();
}

void wm_finish(void) {
  if (wm_gpu()) need(driver.synchronise(), "cuCtxSynchronize");
}
