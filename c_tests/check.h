/* Checks of the C tests: they print file:line, the rank, the values and the library's last error, count
 * failures, and end the process when a set-up step fails. No function of the library is referenced here. */
#ifndef WM_CHECK_H
#define WM_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WM_PASS = 0, WM_FAIL = 1, WM_SKIP = 77, WM_ERROR_CODES = 11 };

/* Gives the text of the calling thread's last library error; NULL leaves it out of reports. */
extern const char* (*wm_error_text)(void);

/* Names the calling thread's rank in reports; -1 is no rank. */
void wm_set_rank(int rank);
int wm_get_rank(void);

/* How many times slower than by itself a program may run here: WM_TEST_SLOWER, 1 without it. What only guards against
 * hanging waits that much longer; deadlines that are a promise of the library stay as they are. */
unsigned wm_slower(void);

/* Ends the process with a failure and the place of every rank's last check after `seconds` times wm_slower(). */
void wm_alarm(unsigned seconds);

/* For a process forked from one with threads: what they held is no leak of its own. */
void wm_forked(void);

int wm_failures(void);
const char* wm_code_name(int code);

/* One line on standard error, prefixed by the rank. */
void wm_say(const char* format, ...) __attribute__((format(printf, 1, 2)));
/* Counts and reports a failure that no macro words well. */
void wm_failed(const char* file, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));
void wm_end(int status) __attribute__((noreturn));

bool wm_check(bool good, const char* file, int line, const char* what);
bool wm_check_eq(long long a, long long b, const char* file, int line, const char* what_a, const char* what_b);
bool wm_check_has(const char* text, const char* part, const char* file, int line, const char* what);
bool wm_check_code(int want, int got, const char* file, int line, const char* call);
void wm_here(const char* file, int line);

#define WM_AT (wm_here(__FILE__, __LINE__))
#define FAILED(...) wm_failed(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(good) wm_check((good), __FILE__, __LINE__, #good)
#define CHECK_EQ(a, b) wm_check_eq((long long)(a), (long long)(b), __FILE__, __LINE__, #a, #b)
#define CHECK_HAS(text, part) wm_check_has((text), (part), __FILE__, __LINE__, #text)
/* The call returns exactly this code; a failing call must also leave words behind. */
#define EXPECT(want, call) (WM_AT, wm_check_code((want), (int)(call), __FILE__, __LINE__, #call))
/* A step the rest of the program stands on: anything but success ends the process. */
#define OK(call) \
  do { if (!EXPECT(0, call)) wm_end(WM_FAIL); } while (0)
#define REQUIRE(good) \
  do { WM_AT; if (!CHECK(good)) wm_end(WM_FAIL); } while (0)

#ifdef __cplusplus
}
#endif
#endif
