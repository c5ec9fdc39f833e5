/* stages_kit.h - a program in stages, each in a handle of its own, as each
 * would be in a process of its own; what one gives to the next goes by a call.
 * And the whole program beside them, with all that it computes. */
#pragma once

#include "fleet/heter/stage_program.h"
#include "train_kit.h"

enum { STAGES_MOST = 8 };

typedef fleet_var *stages_builder(fleet_program *p,
                                  const fleet_ctr_options *options,
                                  fleet_model *model);

/* How the model is built and trained. */
typedef struct stages_model {
    stages_builder *build;
    fleet_ctr_options ctr;
    kit_options how;
} stages_model;

/* The label, three numbers, slots "a", "b" of one id and "c" of any number. */
stages_model stages_model_of(stages_builder *build);
kit_batch *stages_batch(int64_t rows, int seed);

/* --- the whole ------------------------------------------------------------ */

typedef struct stages_whole {
    fleet *f;
    fleet_program *p;
    fleet_model m;
    fleet_executor *e;
} stages_whole;

/* A handle, the model, fleet_minimize(); no executor yet. */
void stages_whole_build(stages_whole *w, const stages_model *how);
void stages_whole_close(stages_whole *w);

/* --- stages --------------------------------------------------------------- */

enum { STAGES_FLIGHT = 4 };

/* A batch for the next stage, until what comes of it is asked for. */
typedef struct stages_sent {
    fleet_feed feed[KIT_MOST_FEEDS];
    int64_t dims[KIT_MOST_FEEDS][FLEET_MAX_DIM];
    int n;
} stages_sent;

typedef struct stages_one {
    fl_stage_link link; /* to the next one; first */
    struct stages *all;
    int number;
    fleet *f;
    fleet_program *p;
    fleet_var *loss;
    fleet_executor *e;
    stages_sent sent[STAGES_FLIGHT]; /* in flight */
    int n_sent, n_received;          /* of these */
} stages_one;

/* Is told of what is sent, and of what has come back. */
typedef void stages_watcher(void *arg, int boundary, const fl_stage_batch *b);

typedef struct stages {
    stages_one one[STAGES_MOST];
    int n;
    stages_watcher *watch; /* NULL: nobody */
    void *arg;
} stages;

/* Stages of a cut of a program, whose handle lives on. */
void stages_open(stages *s, const fl_cut *cut, const stages_model *how);
void stages_close(stages *s);

/* One iteration; the loss, as stage 0 has it. */
fleet_status stages_run(stages *s, const kit_batch *b, float *loss);

/* Parameters and tables of all stages are the whole's, to the bit. */
void stages_check_kept(const stages *s, const fleet *whole);
