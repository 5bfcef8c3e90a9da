#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct { char what[40]; int code; double at_s; char words[WM_WORDS]; } message;

static int child_socket = -1;

wm_launch wm_launch_start(const char* scenario, int ranks) {
  wm_launch l = {.ranks = ranks, .scenario = scenario};
  for (int i = 0; i < ranks; i++) {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    l.pids[i] = fork();
    REQUIRE(l.pids[i] >= 0);
    if (l.pids[i] == 0) {
      char rank[12], size[12], fd[12];
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int kept = dup(pair[1]); /* without close-on-exec */
      snprintf(rank, sizeof rank, "%d", i), snprintf(size, sizeof size, "%d", ranks), snprintf(fd, sizeof fd, "%d", kept);
      execl("/proc/self/exe", "rank", "--rank", rank, size, scenario, fd, (char*)NULL);
      _exit(WM_FAIL);
    }
    close(pair[1]);
    l.sockets[i] = pair[0];
  }
  return l;
}

static bool receive(int fd, double seconds, message* m) {
  struct pollfd p = {fd, POLLIN, 0};
  double end = wm_now() + seconds;
  for (double left = seconds; left > 0; left = end - wm_now()) {
    if (poll(&p, 1, (int)(left * 1000) + 1) <= 0) continue;
    ssize_t got = recv(fd, m, sizeof *m, 0);
    return got == (ssize_t)sizeof *m;
  }
  return false;
}

bool wm_launch_report(wm_launch* l, int rank, const char* what, double seconds, wm_report* report) {
  message m;
  double end = wm_now() + seconds;
  while (receive(l->sockets[rank], end - wm_now(), &m)) {
    if (strcmp(m.what, what)) continue;
    if (report) {
      memcpy(report->what, m.what, sizeof m.what);
      memcpy(report->words, m.words, sizeof m.words);
      report->code = m.code;
      report->at_s = m.at_s;
    }
    return true;
  }
  FAILED("%s: rank %d did not report \"%s\" within %.1f s", l->scenario, rank, what, seconds);
  return false;
}

void wm_launch_pass_id(wm_launch* l, int from) {
  message m;
  REQUIRE(receive(l->sockets[from], 20 * wm_slower(), &m) && !strcmp(m.what, "id"));
  for (int i = 0; i < l->ranks; i++)
    if (i != from) REQUIRE(send(l->sockets[i], &m, sizeof m, MSG_NOSIGNAL) == sizeof m);
}

void wm_launch_go(wm_launch* l, int rank) {
  message m = {.what = "go"};
  CHECK(send(l->sockets[rank], &m, sizeof m, MSG_NOSIGNAL) == sizeof m);
}

void wm_launch_signal(wm_launch* l, int rank, int signal_number) {
  REQUIRE(kill(l->pids[rank], signal_number) == 0);
  if (signal_number == SIGKILL) l->killed[rank] = true;
}

void wm_launch_end(wm_launch* l) {
  double end = wm_now() + 15 * wm_slower();
  for (int i = 0; i < l->ranks; i++) {
    int state = 0;
    pid_t gone;
    while ((gone = waitpid(l->pids[i], &state, WNOHANG)) == 0 && wm_now() < end) usleep(2000);
    if (gone == 0) {
      FAILED("%s: rank %d does not end", l->scenario, i);
      kill(l->pids[i], SIGKILL);
      waitpid(l->pids[i], &state, 0);
    } else if (!l->killed[i] && !(WIFEXITED(state) && WEXITSTATUS(state) == 0)) {
      FAILED("%s: rank %d ended with %s %d", l->scenario, i, WIFEXITED(state) ? "status" : "signal",
             WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state));
    }
    close(l->sockets[i]);
  }
}

bool wm_child_start(int argc, char** argv, int* rank, int* size, const char** scenario) {
  if (argc != 6 || strcmp(argv[1], "--rank")) return false;
  *rank = atoi(argv[2]);
  *size = atoi(argv[3]);
  *scenario = argv[4];
  child_socket = atoi(argv[5]);
  wm_set_rank(*rank);
  wm_error_text = wholememory_get_last_error;
  wm_alarm(40);
  return true;
}

void wm_child_say(const char* what, int code) {
  message m = {.code = code, .at_s = wm_now()};
  snprintf(m.what, sizeof m.what, "%s", what);
  snprintf(m.words, sizeof m.words, "%s", wholememory_get_last_error());
  if (send(child_socket, &m, sizeof m, MSG_NOSIGNAL) != sizeof m) _exit(WM_FAIL);
}

void wm_child_wait(void) {
  message m;
  if (recv(child_socket, &m, sizeof m, 0) != sizeof m || strcmp(m.what, "go")) _exit(WM_FAIL);
}

wholememory_unique_id_t wm_child_id(int rank, int from) {
  message m = {.what = "id"};
  wholememory_unique_id_t id;
  if (rank == from) {
    OK(wholememory_create_unique_id(&id));
    memcpy(m.words, &id, sizeof id);
    REQUIRE(send(child_socket, &m, sizeof m, MSG_NOSIGNAL) == sizeof m);
  } else {
    REQUIRE(recv(child_socket, &m, sizeof m, 0) == sizeof m && !strcmp(m.what, "id"));
    memcpy(&id, m.words, sizeof id);
  }
  return id;
}

/* Other programs use /tmp while tests run, MPI both folders: of /tmp only what a library leaves there counts, sockets,
 * pipes and names that tell of it; of /dev/shm everything but MPI's own. */
static bool counts(const char* folder, const char* name) {
  static const char* const mpi[] = {"vader_segment.", "ompi.", "pmix"}, *const ours[] = {"wm", "wholememory", "wholegraph"};
  for (int i = 0; i < 3; i++)
    if (!strncmp(name, mpi[i], strlen(mpi[i]))) return false;
  if (strcmp(folder, "/tmp")) return true;
  for (int i = 0; i < 3; i++)
    if (strstr(name, ours[i])) return true;
  char path[400];
  struct stat s;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return lstat(path, &s) == 0 && (S_ISSOCK(s.st_mode) || S_ISFIFO(s.st_mode));
}

static void append(char** text, const char* kind, const char* name) {
  size_t used = strlen(*text), more = strlen(kind) + strlen(name) + 4;
  *text = realloc(*text, used + more);
  REQUIRE(*text != NULL);
  snprintf(*text + used, more, "\n%s/%s\n", kind, name);
}

wm_leftovers wm_leftovers_now(void) {
  wm_leftovers l = {calloc(1, 1)};
  const char* const folders[] = {"/dev/shm", "/tmp"};
  for (int f = 0; f < 2; f++) {
    DIR* d = opendir(folders[f]);
    for (struct dirent* e; d && (e = readdir(d));)
      if (e->d_name[0] != '.' && counts(folders[f], e->d_name)) append(&l.names, folders[f], e->d_name);
    if (d) closedir(d);
  }
  char line[300];
  FILE* segments = fopen("/proc/sysvipc/shm", "r");
  while (segments && fgets(line, sizeof line, segments)) {
    long key, id;
    if (sscanf(line, "%ld %ld", &key, &id) == 2) snprintf(line, sizeof line, "segment %ld", id), append(&l.names, "sysvipc", line);
  }
  if (segments) fclose(segments);
  return l;
}

static bool holds_more(const wm_leftovers* after, const wm_leftovers* before) {
  for (const char* at = after->names; *at;) {
    size_t length = strcspn(at + 1, "\n") + 2; /* a name with the newlines around it */
    char whole[600];
    snprintf(whole, sizeof whole, "%.*s", (int)length, at);
    if (!strstr(before->names, whole)) return true;
    at += length;
  }
  return false;
}

void wm_leftovers_check(const wm_leftovers* before) {
  wm_leftovers after = wm_leftovers_now();
  /* What programs at its side hold goes with them; what was left behind stays. */
  for (double end = wm_now() + 20 * (wm_slower() - 1); wm_now() < end && holds_more(&after, before); after = wm_leftovers_now()) {
    free(after.names);
    usleep(50000);
  }
  for (char* line = strtok(after.names, "\n"); line; line = strtok(NULL, "\n")) {
    char whole[600];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(before->names, whole)) FAILED("left behind: %s", line);
  }
  free(after.names);
}
