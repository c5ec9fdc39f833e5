/* cold_kit.h - tables with a cap, and a disk for them that can fail, be full
 * and damage what it has. */
#pragma once

#include "ps_kit.h"

#include "runtime/cold/cold_table.h"

/* Of the tables that are made from now on: 1 MB, with a thread, in the test's
 * folder. */
extern fl_rows_cap cold_kit_cap;

fl_rows_maker cold_kit_make;

/* From now on; all zero: the system's disk. */
typedef struct cold_kit_faults {
    int64_t room; /* bytes that may still be written, if `full` */
    bool full;
    int flip;         /* the n-th read from now on has a bit changed; 0: none */
    bool stays;       /* and each read after it */
    bool no_tmpfile;  /* files cannot be made without a name */
    bool nothing_now; /* no read is answered from memory */
} cold_kit_faults;

void cold_kit_disk(const cold_kit_faults *f);
int cold_kit_reads_left(void); /* of `flip` */

/* --- a model -------------------------------------------------------------- */

/* Rows of dimension 64 in table "t", four ids of a sample, a layer behind
 * them; Adam. All-zero fields are defaults. */
typedef struct cold_how {
    int64_t cap; /* of memory, of "t"; 0: none */
    const char *folder;
    bool a_sync;
    int64_t geo; /* in async: updates between exchanges */
    int merge;   /* batches of an update; 0: 1 */
    float clip;
    fleet_accessor accessor; /* of "t" */
    fleet_durability log;
    fleet_log_configs log_configs;
    int replicas; /* 0: 1 */
} cold_how;

enum { COLD_DIM = 64, COLD_IDS = 4, COLD_KEYS = 13000 };

/* The program in a handle, minimized; the ids' variable. */
fleet_var *cold_kit_build(fleet *f, fleet_program **p, const cold_how *how);

/* Of a job, or of one process: job.user is a cold_how, job.file ids. */
void cold_kit_open_node(ps_node *n, const fleet_options *o);

/* Lines of COLD_IDS ids below COLD_KEYS, in the test's folder. */
const char *cold_kit_ids(const char *name, int lines, bool skewed);
