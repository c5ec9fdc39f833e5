/* sim_job.h - what the simulator's workers do: scripts that a seed makes, and
 * the same job computed step by step with one store, to compare with.
 */
#pragma once

#include "sim.h"

enum { SIM_MOST_PASS = 3, SIM_N_TABLE = 2, SIM_MOST_KEY = 13 };

typedef enum sim_kind {
    SIM_SGD,
    SIM_ADAGRAD,
    SIM_ADAM,
    SIM_SGD_CLIP,
    SIM_ADAM_CLIP,
    SIM_BLOCKS,   /* a parameter of two blocks; Adam, clip */
    SIM_NO_DENSE, /* tables alone */
    SIM_COUNT,    /* sums of small integers, exact in any order */
    SIM_N_KIND
} sim_kind;

/* One for each kind, made once. */
const sim_model *sim_model_of(sim_kind kind);
void sim_models_close(void);

/* What the workers do, by the seed. */
typedef struct sim_script {
    uint64_t seed;
    sim_kind kind;
    int n_pass;
    int steps[SIM_MOST_WORKER][SIM_MOST_PASS];
    int leaves_in[SIM_MOST_WORKER]; /* a pass; SIM_MOST_PASS: none */
} sim_script;

/* A job by its seed: options and script. */
void sim_make(uint64_t seed, bool sync, sim_options *o, sim_script *script);

/* A worker's body; w->own is the script. */
fleet_status sim_work(sim_worker *w);

/* NULL: all workers and lanes ended well, with what the script makes of one
 * store. Otherwise what differs. */
const char *sim_check(sim *s, const sim_script *script);

/* The same where somebody fell silent at o.dead_ms: everybody else has ended by
 * then, well or with the name of who it was. */
const char *sim_check_failure(sim *s, const sim_script *script);
