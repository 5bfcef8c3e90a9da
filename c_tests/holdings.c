#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "holdings.h"

static int entries(const char* folder) {
  DIR* d = opendir(folder);
  if (!d) return -1;
  int count = 0;
  for (struct dirent* e; (e = readdir(d));) count += e->d_name[0] != '.';
  closedir(d);
  return count;
}

/* Asked one by one: a process at its limit cannot open a folder to list them. */
static int descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 4096; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* One thread at a time: what is opened to look at the process is not to be seen by another that looks. */
wm_holdings wm_holdings_now(void) {
  static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&looking);
  wm_holdings h = {descriptors(), entries("/proc/self/task"), 0, 0, 0};
  char line[4600];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) h.mappings++, h.shared_mappings += strstr(line, "memfd:") != NULL;
  if (maps) fclose(maps);
  FILE* status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &h.resident_kib);
  if (status) fclose(status);
  pthread_mutex_unlock(&looking);
  return h;
}

long wm_resident_at_rest_kib(void) {
  long least = 0;
  for (int look = 0; look < 10; look++) {
    if (look) usleep(20000);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    long now = wm_holdings_now().resident_kib;
    if (!look || now < least) least = now;
  }
  return least;
}

int wm_descriptors_within(int most) {
  int now = descriptors();
  for (int i = 0; i < 500 && now > most; i++, now = descriptors()) usleep(10000);
  return now;
}
