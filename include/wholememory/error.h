/* Why a call failed, in words. Generated from src/ffi by `make headers`; do not edit.
 *
 * A failing call says why in wholememory_get_last_error() (wholememory/error.h). Outputs are written only on success,
 * where nothing else is said. All functions may be called from any thread.
 */

#ifndef WHOLEMEMORY_ERROR_H_
#define WHOLEMEMORY_ERROR_H_

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Why the last failing call of this thread failed: one sentence, at most 1023 bytes, with the values that were wrong.
 *
 * Never NULL; "" before the first failure. Calls that return NULL, 0, false or NONE because something was wrong set it too; a call that
 * succeeds leaves it. The text belongs to the library and stands until the next failing call of the thread.
 */
const char *wholememory_get_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLEMEMORY_ERROR_H_ */
