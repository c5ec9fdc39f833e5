/* sequence.h - the configuration of the kernels of sequence.c, for both their
 * halves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

/* sequence_pad     out <- x
 * sequence_mask    out <- x, whose values are not read */
typedef struct fl_sequence_config {
    int64_t most;   /* values that a sample keeps */
    bool keep_last; /* the last ones */
    float value;    /* behind them */
} fl_sequence_config;

/* What a sample keeps of its values, which lie between two offsets: n of them,
 * from the value `first` on. */
typedef struct fl_sequence_part {
    int64_t first, n;
} fl_sequence_part;

FL_EVERYWHERE fl_sequence_part fl_sequence_kept(const fl_sequence_config *c,
                                                const int64_t *offset)
{
    fl_sequence_part part = {offset[0], offset[1] - offset[0]};

    part.n = part.n < c->most ? part.n : c->most;
    if (c->keep_last)
        part.first = offset[1] - part.n;
    return part;
}
