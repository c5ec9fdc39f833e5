/* pooling.h - the configuration of the kernels of pooling.c, and their windows,
 * for both their halves.
 *
 *   pool.max       out <- x         pool.max.grad      dx <- g, x
 *   pool.average   out <- x         pool.average.grad  dx <- g
 *
 * A plane is a channel of an image: x[0] by x[1] numbers become y[0] by y[1].
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

typedef struct fl_pooling {
    int64_t channels, x[2], y[2], size[2], stride[2], padding[2];
    bool count_padding;
} fl_pooling;

/* Where a window is in its plane, without its padding. */
typedef struct fl_pooling_window {
    int64_t first[2], end[2];
} fl_pooling_window;

FL_EVERYWHERE fl_pooling_window fl_pooling_window_at(const fl_pooling *c,
                                                     int64_t i, int64_t j)
{
    int64_t at[2] = {i * c->stride[0] - c->padding[0],
                     j * c->stride[1] - c->padding[1]};
    fl_pooling_window w;

    for (int d = 0; d < 2; d++) {
        int64_t end = at[d] + c->size[d];

        w.first[d] = at[d] < 0 ? 0 : at[d];
        w.end[d] = end > c->x[d] ? c->x[d] : end;
    }
    return w;
}

/* Of its largest number, of equal ones the first; or of the first NaN. */
FL_EVERYWHERE int64_t fl_pooling_largest(const fl_pooling *c,
                                         const float *plane,
                                         const fl_pooling_window *w)
{
    int64_t best = w->first[0] * c->x[1] + w->first[1];

    for (int64_t i = w->first[0]; i < w->end[0]; i++)
        for (int64_t j = w->first[1]; j < w->end[1]; j++) {
            int64_t at = i * c->x[1] + j;
            float is = plane[best], x = plane[at];

            if (is == is && !(x <= is))
                best = at;
        }
    return best;
}

/* What an average is divided by. */
FL_EVERYWHERE float fl_pooling_count(const fl_pooling *c,
                                     const fl_pooling_window *w)
{
    if (c->count_padding)
        return (float)(c->size[0] * c->size[1]);
    return (float)((w->end[0] - w->first[0]) * (w->end[1] - w->first[1]));
}
