/* dropout.h - the configuration of the kernel "dropout", out <- in, the
 * update's numbers; and which elements it keeps, for both its halves. */
#pragma once

#include <stdint.h>

#include "base/rng_draw.h"

typedef struct fl_dropout {
    uint64_t seed, stream; /* the handle's; the node's */
    uint32_t below;        /* a draw below it: the element is 0 */
    float scale;           /* of what is kept */
    int64_t cols;
} fl_dropout;

enum { FL_DROPOUT_BLOCK = 4 }; /* elements of a row that are drawn at once */

/* Draws for columns 4 b to 4 b + 3 of a row of batch number `batch`. A stream
 * has room for 2^40 batches; rows begin with a block of their own, so that any
 * thread can make any row. */
FL_EVERYWHERE fl_rng4 fl_dropout_draw(const fl_dropout *c, int64_t batch,
                                      int64_t row, int64_t b)
{
    int64_t blocks = (c->cols + FL_DROPOUT_BLOCK - 1) / FL_DROPOUT_BLOCK;

    return fl_rng_block(c->seed, c->stream + (uint64_t)batch,
                        (uint64_t)(row * blocks + b));
}
