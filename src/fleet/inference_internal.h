/* inference_internal.h - a predictor, shared by inference.c (models, runs) and
 * inference_follow.c (what changes it while it runs). */
#pragma once

#include <pthread.h>

#include "fleet/inference.h"
#include "fleet/job/reading.h"
#include "runtime/store/store.h"

enum { FL_N_LABEL_USE = 3 };

typedef struct fl_spare_executor {
    fleet_executor *executor;
    struct fl_spare_executor *next;
} fl_spare_executor;

/* A lane that the predictor follows. */
typedef struct fl_lane_life {
    uint64_t life; /* how often it has begun; rows have that of their lane */
    bool begins;   /* and has not told all of its rows since */
} fl_lane_life;

struct fleet_predictor {
    fl_context context;
    fl_store *store;
    fleet_program *program;
    fleet_var **input, **output;
    int n_input, n_output;
    fl_reading reading;      /* n_slot 0: the save has none */
    pthread_mutex_t lock;    /* of what follows */
    fl_spare_executor *idle; /* executors that no call uses just now */
    bool has_run;

    /* how text is scored, by fleet_label_use; NULL: it was not asked for yet */
    struct fl_scoring *scoring[FL_N_LABEL_USE];
    void (*close_scoring)(struct fl_scoring *);

    /* a change of rows and weights waits until no call runs, and calls that
     * come meanwhile wait for it */
    int changes; /* under way or waiting, of any threads */
    int n_running;
    pthread_cond_t may_run, may_change;

    /* of the thread that applies batches */
    fl_lane_life *followed; /* by lane */
    size_t followed_capacity;
    int n_followed;
};

/* Between these no call runs, and calls that come wait, as other changes do. */
void fl_predictor_begin_change(fleet_predictor *p);
void fl_predictor_end_change(fleet_predictor *p);
