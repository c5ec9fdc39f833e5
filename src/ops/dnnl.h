/* dnnl.h - matrix products and convolutions by oneDNN, the only user of
 * <dnnl.h>: 2.6 (Debian 12) and 3.x behind one face.
 *
 * A product has fixed sizes and runs on one thread, so that its bits depend on
 * nothing else; parallelism lies above it. Several threads may run one product
 * at a time, each with its own number and scratch.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* c[m, n] = activation(a[m, k] . b[k, n] + bias[n]); ta: a is stored [k, m]. */
typedef struct fl_matmul_spec {
    int64_t m, n, k;
    bool ta, tb, bias;
    int activation; /* fleet_activation that fl_matmul_activates() */
    int64_t lda, ldb, ldc;
    int64_t batch;       /* not 0: that many matrices, side by side, each by its
                      own; without a bias */
    bool bf16, bf16_out; /* a and b are of bfloat16; c is. Sums are of float */
} fl_matmul_spec;

typedef struct fl_matmul fl_matmul;

/* Can a product apply it? FLEET_LINEAR, and what oneDNN computes without hiding
 * NaN, as its relu does: that would hide it from the check of the loss, and
 * spoil the weights. */
bool fl_matmul_activates(int activation);

fleet_status fl_matmul_create(fl_matmul **matmul, const fl_matmul_spec *spec,
                              int n_thread);
void fl_matmul_destroy(fl_matmul *m);
size_t fl_matmul_scratch(const fl_matmul *m);
fleet_status fl_matmul_run(fl_matmul *m, int thread, const void *a,
                           const void *b, const float *bias, void *c,
                           void *scratch);

/* --- convolutions --------------------------------------------------------- */

/* Images [in, x], weights [out, in / groups, kernel], results [out, y], all
 * without gaps; of pairs the first is the height, and y is (x + 2 padding -
 * dilation (kernel - 1) - 1) / stride + 1. */
typedef struct fl_conv_shape {
    int64_t groups, in, out; /* channels, of all groups */
    int64_t x[2], y[2], kernel[2], stride[2], padding[2], dilation[2];
} fl_conv_shape;

/* What is computed, and of what, as fl_matmul_run() takes it:
 *
 *   FORWARD  c: results <- a: images, b: weights, bias [out]
 *   DX       c: gradient of images <- a: that of results, b: weights
 *   DW       c: gradient of weights <- a: images, b: gradient of results
 */
typedef enum fl_conv_kind {
    FL_CONV_FORWARD,
    FL_CONV_DX,
    FL_CONV_DW
} fl_conv_kind;

/* One of `images` at a time; a bias is of FORWARD alone. It is run, and gone
 * about in all else, as a product is. */
fleet_status fl_conv_create(fl_matmul **conv, fl_conv_kind kind,
                            const fl_conv_shape *shape, int64_t images,
                            bool bias, int n_thread);
