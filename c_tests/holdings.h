/* What this process holds, to compare before and after. */
#ifndef WM_HOLDINGS_H
#define WM_HOLDINGS_H

typedef struct { int descriptors, threads, mappings, shared_mappings; long resident_kib; } wm_holdings;

#ifdef __cplusplus
extern "C" {
#endif
wm_holdings wm_holdings_now(void);
#ifdef __cplusplus
}
#endif
#endif
