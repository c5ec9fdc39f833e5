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
    int64_t batch; /* samples */
    bool trains;
    const fl_stage_value *value; /* in the order of the boundary's crossings */
    int n_value;
    fl_stage_value *gradient; /* to be written, likewise; none unless it
                                 trains */
    int n_gradient;
    float *loss; /* to be written */
} fl_stage_batch;

struct fl_stage_link {
    /* Forward and backward of the stages behind this one: the loss, and all
     * gradients. It is called by the thread that runs the executor, and what it
     * waits for has a deadline. */
    fleet_status (*exchange)(fl_stage_link *link, const fl_stage_batch *b);
};
