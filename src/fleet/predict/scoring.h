/* scoring.h - lines and the model that scores them: which slots are read, which
 * input each feeds, and the label among them. */
#pragma once

#include <pthread.h>

#include <fleet/predict.h>

#include "base/memory.h"
#include "data/layout/batch.h"
#include "data/layout/spec.h"
#include "fleet/train/tally.h"

/* For one use of the label; it does not change once it is made, but for its
 * idle parts. */
typedef struct fl_scoring {
    fleet_predictor *predictor;
    fl_arena arena;      /* of all below */
    fl_stream_spec spec; /* without files, threads and batch size */
    fl_statistics statistics;
    int *slot_of; /* of each input of the predictor; weights have their ids' */
    int label;    /* which slot is compared with scores; -1: none */

    pthread_mutex_t lock;     /* of what follows */
    struct fl_text_run *idle; /* what a call for text needs, in no call now */
} fl_scoring;

/* That of the predictor, made by the first call that asks for it. */
fleet_status fl_scoring_of(fleet_predictor *p, fleet_label_use use,
                           const char *call, fl_scoring **scoring);

/* A batch of spec's slots through the predictor, outputs as for
 * fleet_predictor_run(). */
fleet_status fl_scoring_run(const fl_scoring *s, const fl_batch *b,
                            void *const *out, const size_t *size);

/* Of the options of `call`, 0 being a default. FLEET_EINVAL. */
fleet_status fl_scoring_check_numbers(int threads, int64_t batch_size,
                                      const char *call);

/* FLEET_EINVAL: the model was trained through a command, and none is given. */
fleet_status fl_scoring_check_command(const fl_scoring *s, const char *command,
                                      const char *call);

/* Can the label be compared with the first output? FLEET_EDTYPE,
 * FLEET_ESHAPE. */
fleet_status fl_scoring_check_label(const fl_scoring *s, const char *call);

/* Compare the first output of a batch with its labels. */
fleet_status fl_scoring_compare(const fl_scoring *s, fl_tally *j,
                                const float *p, const fl_batch *b);

/* Values of one sample in an output, and bytes of them. */
int64_t fl_scoring_cols(const fl_scoring *s, int output);
size_t fl_scoring_row_size(const fl_scoring *s, int output);
