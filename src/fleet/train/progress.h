/* progress.h - the log lines of a pass, with the values that the user wants
 * printed.
 *
 * The host does not wait for a line of the training's loss alone: on a GPU the
 * line is written when the loss is known, two batches later, or at the end of
 * the pass. Other values are fetched, and so wait for their batch. */
#pragma once

#include <fleet/train.h>

#include "runtime/exec/executor.h"

/* A line whose loss is not known yet. */
typedef struct fl_progress_pending {
    int64_t n_run, batch;
    char time[20];
} fl_progress_pending;

typedef struct fl_progress {
    fleet_executor *e;
    const fleet_train_options *o;
    fl_progress_pending pending[FL_LOSSES + 1];
    int n_pending;
    float *shown; /* room for what is printed */
    size_t shown_size;
} fl_progress;

/* A batch is queued, or done: its line, if it has one, and the lines of earlier
 * batches that can be written now. */
fleet_status fl_progress_batch(fl_progress *l, int64_t batch);
fleet_status fl_progress_late(fl_progress *l);
void fl_progress_close(fl_progress *l);
