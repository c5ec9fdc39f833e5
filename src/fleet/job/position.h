/* position.h - where the training of a dataset is, as saves hold it: how many
 * passes are over, how many batches of the next one are trained, and what data
 * that is of. The order of a shuffle is a function of (seed, pass), so this is
 * all that a pass needs to go on. */
#pragma once

#include "base/json/json.h"
#include "fleet/job/handle.h"

typedef struct fl_position {
    int64_t pass;     /* training passes that are over */
    int64_t batch;    /* of the pass after them: this worker's batches */
    int64_t samples;  /* in these */
    double loss_sum;  /* over these, as an executor adds it up */
    double last_loss; /* result of the pass before: mean loss of all workers */
} fl_position;

/* What a save says of a dataset, until a dataset goes on from it. */
typedef struct fl_saved_position {
    fl_position at;
    fl_json *data;  /* what it is of, see position_data.h */
    fl_json *order; /* of samples in memory; NULL: that of the files */
    char *inexact;  /* why a training that goes on differs; NULL: it does not */
    bool taken;     /* by a dataset that has trained */
} fl_saved_position;

/* Let a dataset that has not trained yet go on where the load says.
 * FLEET_EINVAL if that is the middle of a pass over other data: what differs is
 * named. */
fleet_status fl_position_take(fleet_dataset *d);

/* Is what two JSONs say the same? NULL is like no other. */
bool fl_position_same(const fl_json *a, const fl_json *b);

/* Where the next pass goes on, and of a dataset in memory in which order a pass
 * that was stopped had begun; NULL: that of the files. */
fleet_status fl_position_next(fleet_dataset *d, fl_position *at,
                              const fl_json **order);

/* For a save: a list of the datasets that have trained, in the order in which
 * they began; NULL if none has. */
fleet_status fl_positions_save(const fleet *f, fl_json **list);

/* The same, and behind them the positions of a load that no dataset has taken
 * yet; the list is made also by a call that fails. */
fleet_status fl_positions_all(const fleet *f, fl_json **list);

/* From a manifest's list, which may be absent, into a list for
 * fl_positions_done(). */
fleet_status fl_positions_read(const fl_at *list, fl_saved_position **saved,
                               int *n);

/* The handle's from now on. begins: its datasets go on from these, or begin,
 * and are no more where they are; a save from before 0.1.0 has none. */
void fl_positions_set(fleet *f, fl_saved_position *saved, int n, bool begins);
/* Is a training pass under way? */
bool fl_positions_pass(const fleet *f);
void fl_positions_done(fl_saved_position *saved, int n);

/* FLEET_EINVAL if worker 0's load is in the middle of a pass, `first`, and this
 * worker's is not in the same. */
fleet_status fl_positions_check(const fleet *f, const fl_position *first);

/* Batch and pass in the middle of which the handle's load is; 0, 0: between
 * two. */
fl_position fl_positions_middle(const fleet *f);
