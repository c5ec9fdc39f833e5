/* predict.h - scores of raw text: lines of the format that a model was trained
 * on, csv, Criteo, MultiSlot, slot text, JSON lines, tf.Example, libsvm or idx,
 * become scores without a handle and without a configuration. docs/predict.md
 * is the guide.
 *
 * A model knows how its lines are read if it was saved by fleet-train, or by
 * fleet_save_inference_model_with() with a dataset: format, slots, the seeds
 * that texts are hashed with, transforms with their means and deviations, and
 * which slot is the label. A line is read as it was for the training, and its
 * score has the bits of fleet_evaluate()'s prediction; but of ids that were
 * never trained the model says what they read as (fleet_fresh).
 *
 * Threads: any number of calls at the same time, of fleet_predictor_run(), too.
 */
#ifndef FLEET_PREDICT_H
#define FLEET_PREDICT_H

#include <fleet/io.h>
#include <fleet/report.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the label of a line is, which no score depends on; of several tasks it
 * is the first one's, and others stay where they are. */
typedef enum fleet_label_use {
    FLEET_LABEL_UNREAD, /* in its place, as in the training's files. In csv,
                           slot text, JSON lines and tf.Example it may be
                           anything, or nothing; in other formats it is read,
                           and checked, with the line */
    FLEET_LABEL_ABSENT, /* lines do not have it. csv whose columns are
                           positions: those behind it stand further to the
                           left; Criteo: 39 cells; MultiSlot: the slot's count
                           and values are left out; libsvm: lines begin with
                           what is behind it; idx: there is no file of labels */
    FLEET_LABEL_READ    /* in its place, and compared with the score */
} fleet_label_use;

/* fleet_predictor_run_text - score lines of text: `text` is what a file of
 * theirs has, size bytes with or without a newline at its end, for csv with its
 * header if files have one. Empty lines, and a csv's comments, are no samples.
 *
 * Output i, in the order of fleet_predictor_output(), goes to out[i], size[i]
 * bytes of the caller's, with a row for each sample: no more than there are
 * lines. *rows: how many; 0 for a text without samples, and nothing is written.
 * rows may be NULL.
 *
 *   FLEET_EFORMAT  a line is refused as in a training's file, as "text:LINE:"
 *   FLEET_ENOENT   the lines have no slot of an input: it is named
 *   FLEET_EINVAL   the model does not know how lines are read; it is of idx; it
 *                  has no label, and FLEET_LABEL_READ or FLEET_LABEL_ABSENT was
 *                  said; NULL
 *   FLEET_ESHAPE   there is no room for the samples that came
 *   and the codes of fleet_predictor_run()
 */
FLEET_API fleet_status fleet_predictor_run_text(fleet_predictor *predictor,
                                                const char *text, size_t size,
                                                fleet_label_use label,
                                                void *const *out,
                                                const size_t *out_size,
                                                int n_out, int64_t *rows);

/* All-zero fields are defaults. */
typedef struct fleet_predict_options {
    /* Where scores go: a line for each sample, in the order of the files, with
     * the numbers of all outputs, in 9 digits, which read as the same bits,
     * and tabs between. A file is there, or takes the place of an older
     * one, once it is whole. "-": standard output; that, a FIFO, or whatever is
     * no regular file, gets lines as they are scored. NULL: nowhere. */
    const char *output;
    const char *const *names; /* of the outputs that are written, n_name of
                                 them, in this order; n_name 0: all */
    int n_name;
    int header; /* nonzero: a first line with their names, those of columns
                   with the number behind: "softmax_0.out[1]" */
    fleet_label_use label;
    int threads;              /* that read, and as many that score; 0:
                                 FLEET_NUM_THREADS, or all processors; at most
                                 64. Scores do not depend on it */
    int64_t batch_size;       /* samples that are scored at once; 0: 1,024; at
                                 most 2^20 */
    const char *pipe_command; /* as that of a dataset; of a model that was
                                 trained through one it has to be given, "cat"
                                 where the files need none */
} fleet_predict_options;

typedef struct fleet_predict_result {
    int64_t samples;
    double seconds;              /* from the first file's opening on */
    fleet_evaluation evaluation; /* with FLEET_LABEL_READ, of the first output,
                                    loss NAN; else all 0 */
} fleet_predict_result;

/* fleet_predict_files - score files, in the order in which they are given, on
 * several threads: paths, no globs; names that end in .gz are unpacked; a FIFO
 * is read to its end, and so is "-", standard input. idx: the images and the
 * labels, or with FLEET_LABEL_ABSENT the images alone. options and result may
 * be NULL.
 *
 *   FLEET_EFORMAT  a line is refused as in a training, as "FILE:LINE:"
 *   FLEET_ENOENT   no such file, no output of a name that is given, or as above
 *   FLEET_EIO      the scores cannot be written: the path and the reason are
 *                  named; an older file of that name stays
 *   FLEET_EEND     FLEET_LABEL_READ, and there is no sample
 *   and the codes of fleet_predictor_run_text(), fleet_evaluate() and reading a
 *   dataset
 */
FLEET_API fleet_status fleet_predict_files(fleet_predictor *predictor,
                                           const char *const *paths, int n,
                                           const fleet_predict_options *options,
                                           fleet_predict_result *result);

/* All-zero fields are defaults. */
typedef struct fleet_importance_options {
    uint64_t seed;            /* of the orders */
    int64_t batch_size;       /* samples among which values are exchanged; 0:
                                 16,384; at most 2^20 */
    int threads;              /* as in fleet_predict_options; no number depends
                                 on it */
    const char *pipe_command; /* likewise */
} fleet_importance_options;

/* How much worse the first output becomes if a slot's values are those of
 * other samples: what the model has from the slot alone. About 0, or below:
 * nothing. auc_drop and logloss_rise are NAN unless there are two classes. */
typedef struct fleet_importance {
    const char *slot; /* the predictor's */
    double auc_drop, logloss_rise, accuracy_drop;
} fleet_importance;

/* fleet_feature_importance - by permutation (L. Breiman 2001): for each slot
 * that feeds an input, in the order of the line, all samples are scored again
 * while those of each batch_size exchange its values, all of a sample together.
 * Slots that tell the same stand in for each other. The numbers are a function
 * of the data, the seed and batch_size.
 *
 * importance: room for `room` slots; NULL: none is looked at, and *n_slot says
 * how many there are. evaluation, unless it is NULL, is that of the values as
 * they are. It takes as many passes over the predictor as there are slots, and
 * one more, and some MB for each slot.
 *
 *   FLEET_EINVAL   too little room; more than 1,000 slots; NULL
 *   and the codes of fleet_predict_files() with FLEET_LABEL_READ
 */
FLEET_API fleet_status fleet_feature_importance(
    fleet_predictor *predictor, const char *const *paths, int n,
    const fleet_importance_options *options, fleet_importance *importance,
    int room, int *n_slot, fleet_evaluation *evaluation);

#ifdef __cplusplus
}
#endif

#endif
