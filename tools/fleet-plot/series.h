/* series.h - the numbers of a curve, in memory that does not grow with them: a
 * bin has one number, or, of a long curve, what two, four, eight have had. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { MOST_BINS = 1 << 14 };

typedef struct bin {
    double from, to; /* where its first number is, and its last one */
    double first, last, least, most;
    bool behind_gap; /* what is before it does not lead to it */
} bin;

typedef struct series {
    bin *bin;
    size_t n, capacity;
    int64_t in_last, in_bin; /* numbers of the last one; of a full one */
    bool gap;                /* since the last number */
    int64_t n_number, n_lost;
    double last_x, last, least, least_x, most, most_x; /* of all numbers */
} series;

fleet_status series_add(series *s, double x, double y);
/* A number is expected, and is not known, or not finite. */
void series_lose(series *s);
void series_done(series *s);
