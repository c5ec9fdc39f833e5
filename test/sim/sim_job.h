/* sim_job.h - what the simulator's workers do: scripts that a seed makes, and
 * the same job computed step by step with one store, to compare with.
 */
#pragma once

#include "sim.h"

enum { SIM_MOST_PASS = 3, SIM_N_TABLE = 2, SIM_MOST_KEY = 13 };

/* A cache of 8 rows of each table: as small as one may be. */
enum { SIM_SMALL_CACHE = 1024 };

typedef enum sim_kind {
    SIM_SGD,
    SIM_ADAGRAD,
    SIM_ADAM,
    SIM_SGD_CLIP,
    SIM_ADAM_CLIP,
    SIM_BLOCKS,   /* a parameter of two blocks; Adam, clip */
    SIM_NO_DENSE, /* tables alone */
    SIM_COUNT,    /* sums of small integers, exact in any order */
    SIM_LIVES,    /* keys become rows by filters, and rows go; no seed makes it:
                     sim_give_lives() */
    SIM_N_KIND
} sim_kind;

/* One for each kind, made once. */
const sim_model *sim_model_of(sim_kind kind);
void sim_models_close(void);

/* What the workers do, by the seed. */
typedef struct sim_script {
    uint64_t seed;
    sim_kind kind;
    int merged; /* batches of a push in half-async; 0: each is a step */
    int n_pass;
    int steps[SIM_MOST_WORKER][SIM_MOST_PASS];
    int leaves_in[SIM_MOST_WORKER]; /* a pass; SIM_MOST_PASS: none */

    /* what the job has seen of its workers, where staleness is bounded: the
     * pass, and how many pushes they have begun in it */
    int pass[SIM_MOST_WORKER], begun_steps[SIM_MOST_WORKER];
    bool has_ended[SIM_MOST_WORKER], has_left[SIM_MOST_WORKER];

    /* of a job that saves: where, on the disk (NULL: it does not), and before
     * what the reference's saves begin, elsewhere, a number each */
    const char *path, *twin;
    bool load_first;   /* workers begin with the save at the path */
    const char *first; /* and the reference with this one of its own, also if
                          servers begin with a save */

    /* of a job in async whose worker 0 saves in the middle of its first pass:
     * where, and after which of its steps */
    const char *beside;
    int beside_after;

    /* what the job has seen of its saves, by the pass that they came after */
    bool begun[SIM_MOST_PASS], saved[SIM_MOST_PASS];
    bool in_doubt[SIM_MOST_PASS]; /* in place, and could not be flushed */
} sim_script;

/* The pass after which the last save was done, of those up to that one; -1. */
int sim_last_saved(const sim_script *k, int pass);
void sim_twin_path(const sim_script *k, int pass, char path[300]);

/* A job by its seed: options and script. */
void sim_make(uint64_t seed, bool sync, sim_options *o, sim_script *script);

/* The same job in sync, but for the model. */
void sim_give_lives(sim_options *o, sim_script *script);

/* A worker's body; w->own is the script. */
fleet_status sim_work(sim_worker *w);

/* NULL: all workers and lanes ended well, with what the script makes of one
 * store. Otherwise what differs. */
const char *sim_check(sim *s, const sim_script *script);
bool sim_is_well(const sim *s); /* by what they say of themselves */

/* The same of a run with a fault. One that is fatal may have ended the job:
 * then every process that is left has ended in time and names whose fault it
 * is, and a lane that all workers have left has what the script makes of it. */
const char *sim_check_fault(sim *s, const sim_script *script, bool fatal);
