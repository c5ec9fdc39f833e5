/* in_batch_softmax.h - the configuration of the kernels of in_batch_softmax.c,
 * for both their halves.
 *
 *   in_batch.items           items transposed <- items
 *   in_batch_softmax         loss, p <- users, items transposed, ids, log q
 *   in_batch_softmax.users   d users <- g, p, items
 *   in_batch_softmax.items   d items <- g, p, users
 */
#pragma once

#include <stdint.h>

typedef struct fl_in_batch {
    int64_t dim, most; /* numbers of a vector; samples of a full batch */
    float scale;       /* of products */
} fl_in_batch;
