/* sim_reference.h - a script as one store computes it: what sim_reference.c
 * makes, and sim_check.c compares a run with. */
#pragma once

#include "sim_job_internal.h"

enum {
    SIM_MOST_SUM = SIM_MOST_WORKER * SIM_MOST_KEY,
    SIM_MOST_PARAM = 8,
    SIM_MOST_DIM = 8
};

/* Sums over the workers of a step. */
typedef struct sim_row_sums {
    uint64_t key[SIM_MOST_SUM];
    float sum[SIM_MOST_SUM][SIM_MOST_DIM];
    int n;
} sim_row_sums;

/* What a worker's pushes of a row or a block have rounded away. */
typedef struct sim_rest {
    struct sim_rest *next;
    int worker, table; /* table -1: a block */
    uint64_t key;
    float *values;
} sim_rest;

typedef struct sim_reference {
    const sim_script *k;
    const sim_options *o;
    fl_store *store;
    fl_param *param[SIM_MOST_PARAM]; /* by name */
    float *sum[SIM_MOST_PARAM];      /* NULL: no gradient */
    sim_row_sums rows[SIM_N_TABLE];
    int n_batch;
    float clip;
    fl_text log[SIM_MOST_WORKER];
    uint64_t steps[SIM_MOST_WORKER]; /* of the stream, LEAVE included */
    sim_rest *rests;
    const uint64_t *limit; /* NULL, or the last step of each stream that is
                              trained */
} sim_reference;

void sim_reference_open(sim_reference *r, const sim *s, const sim_script *k);

/* As far as each stream had come then; in async. */
void sim_reference_open_until(sim_reference *r, const sim *s,
                              const sim_script *k, const uint64_t *limit);
void sim_reference_close(sim_reference *r);
