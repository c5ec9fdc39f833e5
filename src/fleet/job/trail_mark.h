/* trail_mark.h - what a worker's trail has of its training: with each push
 * where the dataset is behind it, and of each pass the positions of all
 * datasets; and how a worker that was started again takes them. */
#pragma once

#include "fleet/job/position.h"
#include "ps/trail/trail.h"

/* As it lies in the trail. */
typedef struct fl_trail_mark {
    int64_t dataset; /* which of the list of positions it is of, from 1 */
    int64_t from_batch, from_samples; /* where the pass began, in this job */
    fl_position at;                   /* its loss_sum: since then */
    int64_t loss_samples;             /* that it is of */
    /* What reports before the pass have left of a plateau; reports 0: none. */
    double learning_rate, best;
    int64_t bad, cooling, reports;
} fl_trail_mark;

fl_trail_host fl_trail_mark_host(fleet *f);

/* If this worker was started again: from now on the positions of datasets, and
 * its optimizer's plateau, are what its trail has, as if they had been
 * loaded. */
fleet_status fl_trail_mark_take(fleet *f);

/* A training pass of the dataset begins, by that executor. If the worker goes
 * on with it the pushes before are on the servers then, and the losses before
 * are the executor's. FLEET_ESTATE: it goes on with another dataset. */
fleet_status fl_trail_mark_begin(fleet_dataset *d, fleet_executor *e);
