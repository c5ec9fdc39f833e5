/* masked_softmax.h - the configuration of the kernel "masked_softmax", for both
 * its halves: y <- x [, mask]. A row of x is lines of `classes` numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/program.h>

#include "runtime/graph/strides.h"

typedef struct fl_masked_softmax {
    int64_t classes, lines;
    int n_dim; /* of the lines of a row */
    int64_t dim[FLEET_MAX_DIM], stride[FLEET_MAX_DIM]; /* of the mask */
    bool batched; /* the mask has rows of its own */
    bool causal;  /* lines are squares, of which numbers up to the diagonal
                     count; they need no mask */
} fl_masked_softmax;

/* Where the mask of line i begins in its row. */
FL_EVERYWHERE int64_t fl_mask_at(const fl_masked_softmax *c, int64_t i)
{
    return fl_strides_at(c->n_dim, c->dim, c->stride, i);
}
