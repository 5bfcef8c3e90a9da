/* Command lines of the programs of this folder: `--name VALUE` options and plain words, explained by --help. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <stdarg.h>

#include "ranks.h"

/* One option. Exactly one of `text`, `number`, `flag` is not NULL and receives the value. */
typedef struct {
  const char *name;
  const char *value_name;
  const char *meaning;
  const char **text;
  long *number;
  int *flag;
} option_t;

typedef struct {
  const char *about;    /* what the program does, a sentence or more */
  const char *words;    /* what the plain words are, "" when it takes none */
  const option_t *list; /* ends with a NULL name */
} program_t;

typedef struct {
  long process_count; /* --nproc, 0 when not given */
  long thread_count;  /* --threads, 0 when not given */
  int word_count;
  char **words; /* in argv */
} command_t;

static inline void options_explain(FILE *out, const program_t *program, const char *called) {
  const char *name = strrchr(called, '/') ? strrchr(called, '/') + 1 : called;
  fprintf(out, "usage: %s [options] %s\n\n%s\n\noptions:\n", name, program->words, program->about);
  for (const option_t *o = program->list; o->name; o++) {
    char left[64];
    snprintf(left, sizeof left, "%s %s", o->name, o->flag ? "" : o->value_name);
    fprintf(out, "  %-22s %s\n", left, o->meaning);
  }
  fprintf(out, "  %-22s %s\n", "--nproc N", "start N ranks as processes (without mpirun)");
  fprintf(out, "  %-22s %s\n", "--threads N", "start N ranks as threads of one process (without mpirun)");
  fprintf(out, "  %-22s %s\n", "--help", "this text");
}

/* Says what is wrong with the command line (on rank 0, for all ranks read the same one) and returns 0. */
__attribute__((format(printf, 2, 3))) static inline int options_refuse(int rank, const char *format, ...) {
  if (rank != 0) return 0;
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
  return 0;
}

static inline int options_number(int rank, const char *name, const char *text, long *number) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end) return options_refuse(rank, "%s takes a whole number, not \"%s\"", name, text);
  *number = value;
  return 1;
}

static inline int options_read(const program_t *program, command_t *command, int rank, int argc, char **argv) {
  option_t own[] = {{"--nproc", "N", "", NULL, &command->process_count, NULL},
                    {"--threads", "N", "", NULL, &command->thread_count, NULL},
                    {NULL, NULL, NULL, NULL, NULL, NULL}};
  int plain_only = 0;
  for (int i = 1; i < argc; i++) {
    if (plain_only || strncmp(argv[i], "--", 2) != 0) {
      command->words[command->word_count++] = argv[i];
      continue;
    }
    if (!argv[i][2]) {
      plain_only = 1;
      continue;
    }
    const option_t *found = NULL;
    for (const option_t *o = own; !found && o->name; o++)
      if (!strcmp(o->name, argv[i])) found = o;
    for (const option_t *o = program->list; !found && o->name; o++)
      if (!strcmp(o->name, argv[i])) found = o;
    if (!found) return options_refuse(rank, "%s is not an option of this program; --help lists them", argv[i]);
    if (found->flag) {
      *found->flag = 1;
      continue;
    }
    if (++i == argc)
      return options_refuse(rank, "%s needs a value: %s %s", found->name, found->name, found->value_name);
    if (found->text) *found->text = argv[i];
    if (found->number && !options_number(rank, found->name, argv[i], found->number)) return 0;
    int counts_ranks = found->number == &command->process_count || found->number == &command->thread_count;
    if (counts_ranks && (*found->number < 1 || *found->number > RANKS_MAX))
      return options_refuse(rank, "%s %s: the number of ranks is from 1 to %d", found->name, argv[i], RANKS_MAX);
  }
  if (command->word_count && !program->words[0])
    return options_refuse(rank, "\"%s\" is not understood: this program takes options only; --help lists them",
                          command->words[0]);
  const char *which = command->thread_count ? "--threads" : "--nproc";
  if ((command->thread_count || command->process_count) && ranks_under_mpirun())
    return options_refuse(rank, "%s does not go with mpirun, which has started the ranks already", which);
  if (command->thread_count && command->process_count)
    return options_refuse(rank, "--nproc and --threads exclude each other: ranks are processes or threads");
  return 1;
}

/* Joins mpirun's job where there is one and reads the command line. On a mistake rank 0 says what is wrong
 * and every rank leaves with status 2; --help leaves with 0. */
static inline command_t options_begin(const program_t *program, int argc, char **argv) {
  int rank = ranks_begin(&argc, &argv);
  command_t command = {0, 0, 0, argv + 1}; /* words move to the front of argv as it is read */
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--")) break;
    if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h")) continue;
    if (rank == 0) options_explain(stdout, program, argv[0]);
    fflush(stdout);
    ranks_quit(0);
  }
  if (!options_read(program, &command, rank, argc, argv)) ranks_quit(2);
  return command;
}

#endif
