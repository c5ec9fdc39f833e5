/* statistics.h - mean and deviation of the columns whose slots standardize:
 * their copies and their JSON. stream_statistics.c computes them. */
#pragma once

#include "base/error.h"
#include "base/json/json.h"

/* Where the numbers of standardize come from: one pass over all the training
 * files. One entry per csv column that wants it, in the order of slots and,
 * inside a slot, of columns. */
typedef struct fl_statistics {
    int n;
    double *mean;
    double *deviation; /* of the population; 1 where it would be 0 */
} fl_statistics;

/* n means and deviations, all 0. */
fleet_status fl_statistics_create(fl_statistics *s, int n);
fleet_status fl_statistics_copy(fl_statistics *s, const fl_statistics *from);
void fl_statistics_done(fl_statistics *s);
fleet_status fl_statistics_save(const fl_statistics *s, fl_json **json);
fleet_status fl_statistics_load(fl_statistics *s, const fl_at *at);
