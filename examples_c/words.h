/* Lists of words: a file of one word a line, row i the word of line i. */
#ifndef EXAMPLES_WORDS_H
#define EXAMPLES_WORDS_H

#include <ctype.h>
#include <limits.h>
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

enum { CLOSE_LETTERS = 3, CLOSENESS_OF_A_LETTER = 64 };

/* How close two words are: by the letters they begin with alike, then by how many follow. Case, spaces, hyphens and
 * underscores make no difference. */
static inline int closeness(const char *one, const char *other) {
  static const char separators[] = " -_";
  int alike = 0, left = 0, parted = 0;
  for (;; one += !!*one, other += !!*other) {
    one += strspn(one, separators);
    other += strspn(other, separators);
    if (!*one && !*other) break;
    parted |= tolower((unsigned char)*one) != tolower((unsigned char)*other);
    alike += !parted;
    left += parted;
  }
  return alike * CLOSENESS_OF_A_LETTER - (left < CLOSENESS_OF_A_LETTER ? left : CLOSENESS_OF_A_LETTER - 1);
}

/* Writes some words that begin like one that is not there, the closest first, with commas between. */
static inline void near_words(const words_t *words, const char *asked, char *near, size_t size) {
  enum { LENGTH_MAX = 30 };
  near[0] = 0;
  for (int bound = INT_MAX, best;; bound = best) {
    best = 0;
    for (int64_t row = 0; row < words->count; row++) {
      int close = closeness(words->list[row], asked);
      if (close < bound && close > best) best = close;
    }
    if (best <= (CLOSE_LETTERS - 1) * CLOSENESS_OF_A_LETTER) return;
    for (int64_t row = 0; row < words->count; row++) {
      const char *word = words->list[row];
      if (closeness(word, asked) != best || strlen(word) >= LENGTH_MAX) continue;
      if (row_of(words, word) != row) continue; /* several rows may have one name */
      size_t used = strlen(near);
      if (used + LENGTH_MAX + 2 > size) return;
      snprintf(near + used, size - used, "%s%s", used ? ", " : "", word);
    }
  }
}

/* Finds the words asked for; 0 after a friendly sentence about the first that is not there. */
static inline int find_rows(const words_t *words, char **asked, int asked_count, const char *file, int rank,
                            int64_t *rows) {
  for (int i = 0; i < asked_count; i++) {
    rows[i] = row_of(words, asked[i]);
    if (rows[i] >= 0) continue;
    char near[112];
    near_words(words, asked[i], near, sizeof near);
    return options_refuse(rank, "I do not know the word \"%s\": it is not among the %lld words of %s.%s%s%s", asked[i],
                          (long long)words->count, file, near[0] ? " I do know " : "", near, near[0] ? "." : "");
  }
  return 1;
}

#endif
