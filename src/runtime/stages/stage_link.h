/* stage_link.h - the next stage, as a stage's program sees it: in another
 * process, or in this one. */
#pragma once

#include "runtime/graph/program.h"

typedef struct fl_stage_link fl_stage_link;

/* A variable of the stage's program in a batch: `rows` rows of `cols` elements,
 * `ld` elements from one row to the next. */
typedef struct fl_stage_value {
    const fleet_var *var;
    void *data;
    const int64_t *offsets; /* of ragged data, whose rows are samples and whose
                               data lie without gaps; else NULL */
    int64_t rows, cols, ld;
} fl_stage_value;

/* What an iteration gives to the next stage, and gets from it. */
typedef struct fl_stage_batch {
    int64_t batch;    /* samples */
    int64_t capacity; /* that the plan is made for */
    int number;       /* of the batches that are in flight, from 0 on */
    bool last;        /* of them */
    bool alone;       /* of an executor that is no member of a crew */
    bool trains;
    const fl_stage_value *value; /* to be sent, in the order of the boundary's
                                    crossings */
    int n_value;
    fl_stage_value *gradient; /* to be written, likewise; none unless it
                                 trains */
    int n_gradient;
    float *loss; /* to be written */
} fl_stage_batch;

/* Both are called by the thread that runs the executor. */
struct fl_stage_link {
    /* The values go to the stages behind this one; does not wait. Batches in
     * flight are sent in their order. */
    fleet_status (*send)(fl_stage_link *link, const fl_stage_batch *b);

    /* Forward and backward of those stages are over: the loss, and all
     * gradients. What it waits for has a deadline. */
    fleet_status (*receive)(fl_stage_link *link, const fl_stage_batch *b);

    int n_in_flight; /* batches of the round that is computed, by a crew */
};
