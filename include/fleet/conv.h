/* conv.h - convolutions and pooling: of images [B, C, H, W], and of signals
 * [B, C, L]. fleet_reshape() makes images of rows.
 *
 * Sizes of windows, strides, paddings and dilations are at most 2^20. Of one
 * dimension they have one number, and the second one is 0. Failures are those
 * of nn.h.
 */
#ifndef FLEET_CONV_H
#define FLEET_CONV_H

#include <fleet/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet_conv_options {
    const char *name;    /* prefix of the parameters' names; NULL: "conv2d_<n>",
                            "conv1d_<n>", n from 0 */
    int64_t stride[2];   /* height, width; 0: 1 */
    int64_t padding[2];  /* zeros on both sides */
    int64_t dilation[2]; /* from one weight to the next; 0: 1 */
    int64_t groups;      /* channels and filters are in so many groups, and a
                            filter sees the channels of its own; 0: 1 */
    fleet_activation activation; /* applied to out; 0: none */
    fleet_param_attr weight;     /* default: Kaiming normal, "<name>.w". Fans
                                    are those of a filter: C / groups h w */
    fleet_param_attr bias;       /* default: zeros, "<name>.b" */
    int no_bias;                 /* nonzero leaves b out */
} fleet_conv_options;

/* fleet_conv2d - a convolution (to be exact a correlation), as PyTorch and
 * Paddle have it.
 *
 *   x    [B, C, H, W]
 *   w    [O, C / groups, h, w]  new parameter
 *   b    [O]                    new parameter
 *   out  [B, O, H', W'], H' = (H + 2 padding - dilation (h - 1) - 1) / stride
 *        + 1, rounded down
 *
 * filters is O; kernel has h and w. A kernel that is larger than x with its
 * padding, and groups that do not divide C and O, are FLEET_ESHAPE. options may
 * be NULL. */
FLEET_API fleet_var *fleet_conv2d(fleet_program *program, fleet_var *x,
                                  int64_t filters, const int64_t *kernel,
                                  const fleet_conv_options *options);

/* fleet_conv1d - the same of one dimension: x [B, C, L], w [O, C / groups,
 * kernel], out [B, O, L']. */
FLEET_API fleet_var *fleet_conv1d(fleet_program *program, fleet_var *x,
                                  int64_t filters, int64_t kernel,
                                  const fleet_conv_options *options);

typedef enum fleet_pool_kind {
    FLEET_POOL_MAX = 0, /* of equal numbers the first has the gradient; NaN is
                           larger than any other */
    FLEET_POOL_AVERAGE = 1
} fleet_pool_kind;

typedef struct fleet_pool_options {
    fleet_pool_kind kind;
    int64_t size[2];    /* of a window: height, width; required */
    int64_t stride[2];  /* 0: the size */
    int64_t padding[2]; /* on both sides, below the size */
    int count_padding;  /* nonzero: an average counts padding as zeros
                           (count_include_pad, which PyTorch's default is, and
                           Paddle's exclusive=False); 0: it does not count */
} fleet_pool_options;

/* fleet_pool2d - the largest number or the mean of each window.
 *
 *   x    [B, C, H, W]
 *   out  [B, C, H', W'], H' = (H + 2 padding - size) / stride + 1, rounded down
 *
 * Over all of H and W: fleet_reduce_max(), fleet_reduce_mean(). count_padding
 * of a maximum is FLEET_EINVAL. */
FLEET_API fleet_var *fleet_pool2d(fleet_program *program, fleet_var *x,
                                  const fleet_pool_options *options);

/* fleet_pool1d - the same of x [B, C, L]. */
FLEET_API fleet_var *fleet_pool1d(fleet_program *program, fleet_var *x,
                                  const fleet_pool_options *options);

#ifdef __cplusplus
}
#endif

#endif
