/* pass_rows.h - the inside of a fleet_psgpu: the tables' rows of a pass over
 * samples in memory, in a GPU's memory while they are trained.
 *
 * A stream of its own goes over the pass ahead of the training, batch by batch,
 * and lists the ids. Where the rows of all of it do not fit the pass is cut: a
 * part is as many batches, whole merge groups, as take half of the memory.
 * While a part is trained a thread lists the next one and copies its rows from
 * their home (staged_rows.h). At the first batch behind a part they come, rows
 * of both parts stay, and all other rows go home.
 *
 * While the thread runs, from the first batch of a part to the first one of the
 * next, what is marked so is its own.
 */
#pragma once

#include "fleet/job/dataset.h"
#include "runtime/working_set/working_set.h"

/* A table whose rows the GPU has in a pass. */
typedef struct fl_pass_table {
    fl_working_set set;
    fl_staged_rows next; /* the thread's */
    fl_rows *rows;
    const fleet_var *var;
    int *slot; /* of the dataset, whose ids it looks up */
    int n_slot;
    uint64_t *key; /* of the merge group that was read last; the thread's */
    size_t n_key, key_capacity;
} fl_pass_table;

struct fleet_psgpu {
    fleet *f;
    fleet_dataset *d;     /* NULL: none yet */
    int64_t memory_bytes; /* that rows may take; 0: what the GPU has */
    int device;           /* -1: not said yet */
    char **slot;          /* that the user named; NULL: none */
    int64_t *slot_dim;    /* likewise, of these */
    int n_slot, n_slot_dim;

    /* of a pass */
    bool begun;
    const fleet_program *program;
    fl_gpu *gpu;
    fl_slot_bounds *bounds; /* by slot of the dataset */
    fl_pass_table *table;
    int n_table;
    fl_stream *stream;
    int64_t most;       /* bytes of a part; 0: any */
    int64_t first, end; /* batches of the part whose rows the GPU has */
    bool is_last;
    int part;            /* its number, from 1 on */
    bool fresh;          /* no batch has been trained with it */
    int64_t handed_over; /* its rows that the GPU had before */

    /* the thread's: of the part that is listed next */
    int64_t next_first, next_end;
    bool next_is_last;
    int64_t read;   /* batches that the stream has brought */
    bool has_group; /* a merge group was read that is in no part yet */
    fl_error why;   /* it failed, if the code is not FLEET_OK */

    pthread_t preparer;
    bool prepares;       /* the thread runs, or is to be joined */
    atomic_bool stop;    /* it shall leave */
    atomic_bool is_over; /* the next part is staged, or has failed */
    bool is_traced;      /* the part's training has begun in the trace */
};

/* Its tables are set: the rows of the first part come. On failure there is no
 * pass. */
fleet_status fl_psgpu_begin(fleet_psgpu *g);

/* The rows go home. lost: rows that fail to are given up. */
fleet_status fl_psgpu_end(fleet_psgpu *g, bool lost);

/* The executor begins to train the dataset's pass. g may be NULL: FLEET_ESTATE
 * if passes are needed. */
fleet_status fl_psgpu_enter(fleet_psgpu *g, fleet_executor *e);

/* Before the batch of that number is trained. */
fleet_status fl_psgpu_batch(fleet_psgpu *g, fleet_executor *e, int64_t number);

/* The executor has trained it, or a part, or failed. */
void fl_psgpu_leave(fleet_psgpu *g);

/* The dataset goes; and all of it does, as the handle goes. */
void fl_psgpu_forget_dataset(fleet_psgpu *g);
void fl_psgpu_destroy(fleet_psgpu *g);
