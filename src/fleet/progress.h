/* progress.h - the log lines of a pass, with what a training is asked to print.
 *
 * A line of nothing but the training's loss is not waited for: on a GPU it is
 * written when the loss is known, two batches later, or as the pass ends. What
 * else is printed is fetched, and so waits for its batch. */
#ifndef FL_FLEET_LINES_H
#define FL_FLEET_LINES_H

#include <fleet/train.h>

#include "runtime/exec/executor.h"

/* A line whose loss is not known yet. */
typedef struct fl_late {
    int64_t n_run, batch;
    char time[20];
} fl_late;

typedef struct fl_lines {
    fleet_executor *e;
    const fleet_train_options *o;
    fl_late late[FL_LOSSES + 1];
    int n_late;
    float *shown; /* room for what is printed */
    size_t shown_size;
} fl_lines;

/* A batch is queued, or done: its line, if it has one, and those of earlier
 * ones that can be written now. */
fleet_status fl_lines_batch(fl_lines *l, int64_t batch);
fleet_status fl_lines_late(fl_lines *l);
void fl_lines_close(fl_lines *l);

#endif
