/* run_file.h - the runs that a metrics_log has, of JSON lines or of CSV. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "series.h"

/* Numbers of a line that can be drawn; column_name[] are their keys. */
typedef enum column {
    LOSS,
    VALIDATION_LOSS,
    VALIDATION_AUC,
    VALIDATION_LOGLOSS,
    VALIDATION_ACCURACY,
    LEARNING_RATE,
    SAMPLES_PER_S,
    N_COLUMN
} column;
extern const char *const column_name[N_COLUMN + 1]; /* NULL-ended */

/* What they are drawn over. */
typedef enum axis { BY_STEP, BY_SAMPLES, BY_TIME, N_AXIS } axis;
extern const char *const axis_name[N_AXIS + 1]; /* NULL-ended */

typedef struct run {
    char *label;
    char id[20];  /* what the file calls it */
    double begun; /* its first time */
    bool has_begun;
    double newest; /* the newest line's step, or samples */
    int64_t lines;
    series of[N_COLUMN];
} run;

typedef struct run_list {
    run *run;
    size_t n, capacity;
} run_list;

/* The runs of a file, or of standard input ("-"), behind those that are in the
 * list: all of them, or the last one. A last line that is not whole yet is left
 * out, which is said, as is how many runs are. FLEET_EIO; FLEET_EFORMAT: the
 * file and its line are named. */
fleet_status runs_read(run_list *l, const char *path, const char *label,
                       axis by, bool all);
void runs_done(run_list *l);
