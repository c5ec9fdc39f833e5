/* pass_rows.h - the inside of a fleet_psgpu: the tables' rows of a pass over
 * samples in memory, in a GPU's memory while they are trained.
 *
 * Where the rows of all of a pass do not fit it is cut into parts
 * (pass_list.h). While a part is trained a thread lists the next one and copies
 * its rows from their home (staged_rows.h); while the last one is, it does so
 * with the first part of the next pass (next_pass.h). At the first batch behind
 * a part, or at the end of the pass, these come, rows of both parts stay, and
 * all other rows go home.
 *
 * While the thread runs, from the first batch of a part to the first one of the
 * next, or to the end of the pass, what is marked so is its own.
 */
#pragma once

#include "fleet/pass/next_pass.h"
#include "fleet/pass/pass_list.h"
#include "fleet/pass/pass_note.h"

struct fleet_psgpu {
    fleet *f;
    fleet_dataset *d;     /* NULL: none yet */
    int64_t memory_bytes; /* that rows may take; 0: what the GPU has */
    int device;           /* -1: not said yet */
    char **slot;          /* that the user named; NULL: none */
    int64_t *slot_dim;    /* likewise, of these */
    int n_slot, n_slot_dim;
    fl_pass_note note;

    /* of a pass that has begun, or whose first part the GPU has */
    bool begun;
    const fleet_program *program;
    fl_gpu *gpu;
    fl_slot_bounds *bounds; /* by slot of the dataset */
    fl_pass_table *table;
    int n_table;
    fl_pass_list list;  /* of this pass; but for the last part the thread's */
    int64_t first, end; /* batches of the part whose rows the GPU has */
    bool is_last;
    int part;            /* its number in the pass, from 1 on */
    int n_part;          /* the same over all passes: its number in a trace */
    bool fresh;          /* no batch has been trained with it */
    int64_t handed_over; /* its rows that the GPU had before */
    fl_next_pass next;   /* in the last part the thread's, but for its flags */

    pthread_t preparer;
    bool prepares;       /* the thread runs, or is to be joined */
    atomic_bool stop;    /* it shall leave */
    atomic_bool is_over; /* what it prepares is staged, or has failed */
    fl_error why;        /* it failed, if the code is not FLEET_OK */
    bool is_traced;      /* the part's training has begun in the trace */
};

/* Its tables are set: the rows of the first part come. On failure there is no
 * pass. */
fleet_status fl_psgpu_begin(fleet_psgpu *g);

/* The GPU has the rows of the pass that begins (fl_next_pass_is_here()). On
 * failure all is as it was. */
fleet_status fl_psgpu_begin_here(fleet_psgpu *g);

/* The rows go home, but for rows of the next pass, if that is known. */
fleet_status fl_psgpu_end(fleet_psgpu *g);

/* All rows go home, also rows of a next pass. lost: rows that fail to are
 * given up. */
fleet_status fl_psgpu_drop(fleet_psgpu *g, bool lost);

/* The executor begins to train the dataset's pass. g may be NULL: FLEET_ESTATE
 * if passes are needed. */
fleet_status fl_psgpu_enter(fleet_psgpu *g, fleet_executor *e);

/* Before the batch of that number is trained. */
fleet_status fl_psgpu_batch(fleet_psgpu *g, fleet_executor *e, int64_t number);

/* The executor has trained it, or a part, or failed. */
void fl_psgpu_leave(fleet_psgpu *g);

/* What was listed last is copied from home, but for rows that the GPU has.
 * Beside training; *g's stop ends it. */
fleet_status fl_psgpu_stage(fleet_psgpu *g);

/* The dataset goes; and all of it does, as the handle goes. */
void fl_psgpu_forget_dataset(fleet_psgpu *g);
void fl_psgpu_destroy(fleet_psgpu *g);
