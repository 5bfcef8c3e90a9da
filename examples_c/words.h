/* Lists of words: a file of one word a line, row i the word of line i. */
#ifndef EXAMPLES_WORDS_H
#define EXAMPLES_WORDS_H

#include <sys/stat.h>

#include "options.h"

typedef struct {
  char *text; /* the file, its line ends turned into string ends */
  char **list;
  int64_t count;
} words_t;

/* Reads one word a line; NULL list after saying why not. */
static inline words_t read_words(const char *file, int rank) {
  words_t words = {NULL, NULL, 0};
  FILE *in = fopen(file, "rb");
  struct stat about;
  if (!in || fstat(fileno(in), &about) != 0) {
    options_refuse(rank, "the words in %s cannot be read: %s", file, strerror(errno));
    if (in) fclose(in);
    return words;
  }
  size_t size = (size_t)about.st_size;
  words.text = malloc(size + 1);
  if (!words.text || fread(words.text, 1, size, in) != size) {
    options_refuse(rank, "the words in %s cannot be read whole", file);
    fclose(in);
    return words;
  }
  fclose(in);
  words.text[size] = 0;
  for (size_t i = 0; i < size; i++) words.count += words.text[i] == '\n';
  words.count += size > 0 && words.text[size - 1] != '\n';
  words.list = calloc((size_t)words.count + 1, sizeof *words.list);
  if (!words.list) return words;
  char *at = words.text;
  for (int64_t i = 0; i < words.count; i++) {
    words.list[i] = at;
    at += strcspn(at, "\n");
    *at++ = 0;
  }
  return words;
}

static inline void forget_words(words_t *words) {
  free(words->list);
  free(words->text);
}

static inline int64_t row_of(const words_t *words, const char *word) {
  for (int64_t row = 0; row < words->count; row++)
    if (!strcmp(words->list[row], word)) return row;
  return -1;
}

/* Finds the words asked for; 0 after a friendly sentence about the first that is not there. */
static inline int find_rows(const words_t *words, char **asked, int asked_count, const char *file, int rank,
                            int64_t *rows) {
  for (int i = 0; i < asked_count; i++) {
    rows[i] = row_of(words, asked[i]);
    if (rows[i] >= 0) continue;
    char near[128] = "";
    for (int64_t row = 0; row < words->count && strlen(near) < 80; row++)
      if (!strncasecmp(words->list[row], asked[i], 3) && strlen(words->list[row]) < 30) {
        strcat(near, near[0] ? ", " : "");
        strcat(near, words->list[row]);
      }
    return options_refuse(rank, "I do not know the word \"%s\": it is not among the %lld words of %s.%s%s%s", asked[i],
                          (long long)words->count, file, near[0] ? " I do know " : "", near, near[0] ? "." : "");
  }
  return 1;
}

#endif
