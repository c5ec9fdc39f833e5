/* samples.h - kernels that only show what the emulated device does, right and
 * wrong ones; each function starts one and returns CUDA's text, "no error" if
 * there is none. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { SAMPLE_THREADS = 64 };

/* out[i] = the sum of x[0..63], by a tree in shared memory, in both kinds. */
const char *sample_tree_sum(float *out, const float *x, int with_barrier);

/* out[i]: lane i of each warp after shuffles and votes, eight numbers each. */
const char *sample_shuffles(int *out);

const char *sample_indices(int *out); /* 2 x 3 blocks of 4 x 2 x 2 threads */
const char *sample_atomics(int *out);
const char *sample_plain_loop(float *x, int n);

/* What is wrong is told. */
const char *sample_half_at_barrier(void);
const char *sample_mask_too_wide(void);
const char *sample_not_in_mask(void);
const char *sample_reads_outside_mask(void);
const char *sample_lanes_apart(void);
const char *sample_threads(int threads);
const char *sample_shared(int bytes);
const char *sample_no_blocks(void);

#ifdef __cplusplus
}
#endif
