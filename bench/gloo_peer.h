/* gloo_peer.h - Gloo's sum of floats over ranks, for a program in C. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gloo_peer gloo_peer;

/* The ranks meet in that folder, which is empty. */
gloo_peer *gloo_open(int rank, int size, const char *folder);

/* The names of its algorithms; NULL ends them. */
extern const char *const gloo_algorithms[];

/* In place. The third algorithm keeps what it has made for a buffer. */
void gloo_sum(gloo_peer *g, int algorithm, float *x, size_t n);

#ifdef __cplusplus
}
#endif
