/* What this process holds, to compare before and after. */
#ifndef WM_HOLDINGS_H
#define WM_HOLDINGS_H

typedef struct { int descriptors, threads, mappings, shared_mappings; long resident_kib; } wm_holdings;

#ifdef __cplusplus
extern "C" {
#endif
wm_holdings wm_holdings_now(void);

/* Resident memory in KiB, what allocators keep given back: the least of ten looks in a fifth of a second, since a single look may
 * fall on memory that is about to go. */
long wm_resident_at_rest_kib(void);

/* The descriptors of the process once they are `most` or fewer, or after five seconds: connections that ended are closed a
 * little later, by a thread of the library. */
int wm_descriptors_within(int most);
#ifdef __cplusplus
}
#endif
#endif
