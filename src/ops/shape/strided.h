/* strided.h - the configuration of the kernel "strided", for both its halves:
 * out <- in, of each row dim[] elements from in to out by their strides. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/program.h>

#include "runtime/graph/strides.h"

/* A side's row: its elements, where the first one lies, strides by dim. */
typedef struct fl_strided_side {
    int64_t size, at;
    int64_t stride[FLEET_MAX_DIM];
} fl_strided_side;

typedef struct fl_strided_config {
    int n_dim;
    int64_t dim[FLEET_MAX_DIM], count; /* their product */
    fl_strided_side to, from;
    bool fills; /* what is not copied to becomes `fill` */
    float fill;
} fl_strided_config;

/* Where element i of dim[] lies in a row. */
FL_EVERYWHERE int64_t fl_strided_at(const fl_strided_config *c,
                                    const fl_strided_side *s, int64_t i)
{
    return s->at + fl_strides_at(c->n_dim, c->dim, s->stride, i);
}
