/* report.h - how good a model is, and the line that a training ends with.
 *
 * Threads: as the executors and datasets they are given.
 */
#ifndef FLEET_REPORT_H
#define FLEET_REPORT_H

#include <fleet/applications.h>
#include <fleet/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same of a task. */
typedef struct fleet_task_evaluation {
    const char *label; /* its name, the program's */
    double auc, logloss, accuracy;
} fleet_task_evaluation;

/* Metrics of retrieval: each sample has one item that is to be found among all
 * items; its place is 1 and how many of them have a larger dot with the
 * sample's user vector, those of an equal one in an order by chance. */
typedef enum fleet_ranking_kind {
    FLEET_RECALL_AT, /* share of samples whose item is in one of k places */
    FLEET_NDCG_AT    /* mean of 1 / log2(place + 1); behind place k 0 */
} fleet_ranking_kind;

typedef struct fleet_ranking {
    fleet_ranking_kind kind;
    int64_t k;    /* 1 to 1,000,000 */
    double value; /* that an evaluation found */
} fleet_ranking;

enum { FLEET_MOST_RANKINGS = 8 };

/* What an evaluation found. auc and logloss are NAN unless there are two
 * classes. Of a model of several tasks auc, logloss and accuracy are the first
 * one's; of one without a label they are NAN. */
typedef struct fleet_evaluation {
    int64_t samples;
    double auc;      /* of 65,536 buckets */
    double logloss;  /* mean natural-log loss of the probabilities */
    double accuracy; /* two classes: at a probability above 0.5 */
    double loss;     /* mean of the loss that the program is trained with; NAN:
                        there is none */
    int64_t n_task;  /* 0: the model has one label */
    fleet_task_evaluation task[FLEET_MOST_TASKS]; /* the first n_task */
    int n_ranking;                                /* 0: none was asked for */
    fleet_ranking ranking[FLEET_MOST_RANKINGS];   /* the first n_ranking */
    int64_t items; /* among which an item was to be found */
} fleet_evaluation;

/* fleet_evaluate - run all of a dataset through an executor for test, and
 * compare the model's predictions with its labels.
 *
 * All of the dataset, in the worker that calls it, of whatever the servers, or
 * all ranks, have now: call it between passes, or from on_batch of a training
 * pass, in one worker or in several. In sync the others then wait for the next
 * update of the one that evaluates, up to step_deadline_ms.
 *
 *   FLEET_EEND      the dataset has no sample
 *   FLEET_ENUMERIC  a prediction is not finite
 *   FLEET_EINVAL    one of two classes is neither 0 nor 1
 *   and the codes of fleet_infer_from_dataset()
 */
FLEET_API fleet_status fleet_evaluate(fleet_executor *executor,
                                      fleet_dataset *dataset,
                                      const fleet_model *model,
                                      fleet_evaluation *evaluation);

/* fleet_evaluate_ranking - the same, and n metrics of retrieval, of a model
 * that has vectors of users and items (model->user, model->item).
 *
 * All items are those of the samples of `items`, a dataset of the same slots,
 * each once: an item is what its vector is made of, the values of the slots on
 * which model->item depends. They are scored in each call. An item of `dataset`
 * that is not among them is one more for its sample. Of a model with a label,
 * which need not have one here, samples of label 1 alone have an item to find.
 *
 *   FLEET_EINVAL  no vectors, or of different lengths; n, k or a kind out of
 *                 range
 *   FLEET_EEND    also: `items` has no sample; no label is 1
 *   FLEET_ENUMERIC  also: a vector is not finite
 */
FLEET_API fleet_status fleet_evaluate_ranking(
    fleet_executor *executor, fleet_dataset *dataset, fleet_dataset *items,
    const fleet_model *model, const fleet_ranking *metrics, int n,
    fleet_evaluation *evaluation);

/* What the closing line says besides what the handle knows. */
typedef struct fleet_report {
    const char *model;                  /* "wide_deep" */
    const fleet_evaluation *evaluation; /* NULL: not evaluated */
    double loss;          /* mean training loss of the last epoch */
    double samples_per_s; /* of all workers, start and evaluation excluded */
    double seconds;       /* 0: since fleet_init() */
    uint64_t params_hash;
    int64_t bad_lines; /* left out of the last epoch; 0: the line has no number
                          of them */
} fleet_report;

/* fleet_report_line - one JSON object without a newline, for stdout; mode is
 * "local", "ps-sync", "ps-async", "ps-geo", "collective" or "hybrid", device
 * "cpu", or "cuda:" and the GPU's name where fleet_program_place() put the
 * program on one (a guard or an executor's place does not count), workers and
 * servers are the job's:
 * {"model":"wide_deep","mode":"local","device":"cpu","workers":1,"servers":0,
 *  "auc":0.9061,"logloss":0.3171,"accuracy":0.8549,"loss":...,
 *  "samples_per_s":...,"seconds":...,"params_hash":"..."}
 * and for an evaluation of several tasks, behind the accuracy, "tasks":
 * [{"label":"income","auc":...,"logloss":...,"accuracy":...}, ...], and for one
 * with metrics of retrieval these by name: "recall@10":...,"ndcg@10":...
 * Text for fleet_free(); NULL: see fleet_last_error(). */
FLEET_API char *fleet_report_line(fleet *fleet, const fleet_report *report);

/* A training's progress in this process, for on_progress(): in a job, of this
 * worker alone. Epochs are counted from 1. */
typedef struct fleet_progress {
    int64_t epoch, epochs;
    int64_t samples;      /* in this epoch so far */
    double samples_per_s; /* since the training began */
    double loss;          /* mean over what is known of this epoch; NAN: nothing
                             is, as at first on a GPU */
    double done;          /* share of the whole training, 0 .. 1 */
    double seconds_left;  /* NAN while unknown */
    const fleet_evaluation *validation; /* the newest of `validate_every`, until
                                           the call returns; NULL: none yet, or
                                           not the first worker */
} fleet_progress;

/* What is done with a configuration. */
typedef enum fleet_config_action {
    FLEET_CONFIG_TRAIN,    /* train, evaluate, save */
    FLEET_CONFIG_EVALUATE, /* evaluate what `load`, or the newest checkpoint,
                              has on `dataset.test`; nothing is trained or
                              saved, servers write and read no log, and loss
                              and samples_per_s are null */
    FLEET_CONFIG_CHECK,    /* do all that comes before the first batch is
                              trained, but talk to no other process: read the
                              configuration and the first batch of each dataset,
                              look for the log's folder, make the model and load
                              it, in one process also compute its prediction.
                              The line says what there is: {"model":"wide_deep",
                              "mode":"local","workers":1,"servers":0,
                              "parameters":10,"numbers":52713,
                              "tables":["embedding"],"train_files":1,
                              "test_files":1} */
    FLEET_CONFIG_PRINT,    /* only read it: the line is its text, with newlines,
                              as it is after `set` */
    FLEET_CONFIG_DUMP      /* only make the model: the line is its program, or
                              its plan for batches of dataset.batch_size, as
                              `dump` says (fleet_program_dump()), with
                              newlines. Data are read only if the model depends
                              on them */
} fleet_config_action;

/* All-zero fields are defaults. */
typedef struct fleet_config_options {
    fleet_log_callback *log; /* NULL: lines go to stderr */
    void *log_user;
    fleet_log_level log_level;
    /* Called about twice a second, at the end of each epoch, and after each
     * validation. */
    void (*on_progress)(void *user, const fleet_progress *progress);
    void *user;
    int resume; /* nonzero: go on from the newest checkpoint of `save_every` in
                     place of `load`, if there is one */
    int *stopped; /* set to 1 by a call that fleet_train_stop() has stopped in
                    the middle of the training, else to 0; NULL: it is not said
                    */
    fleet_config_action action;
    /* n_set texts "path=value" that change the configuration in turn, before it
     * is read: "epochs=3", "optimizer.learning_rate=0.01",
     * "dataset.train[0]=more.txt". A value is JSON; what is none is a string.
     * Objects on the path that the configuration lacks are made; an element of
     * an array is there already. */
    const char *const *set;
    int n_set;
    fleet_dump dump; /* the form of FLEET_CONFIG_DUMP */
} fleet_config_options;

/* fleet_train_from_config - what fleet-train does: read a JSON configuration
 * (docs/fleet-train.md) and do the part of the process that the environment
 * says this is: a worker trains; the first one then evaluates, saves, and gets
 * the closing line in *line, for fleet_free(); a server makes the model and
 * serves until all workers have left. options->action asks for less. *line is
 * NULL with FLEET_OK in a server and in the other workers, after
 * fleet_train_stop(), and NULL after a failure. options may be NULL.
 *
 * fleet_train_stop() stops the training; it is then saved in the folder of
 * `save_every`, by default beside `save`, and nothing is evaluated.
 *
 *   FLEET_ECONFIG  a key that does not exist, a value that cannot be: its path
 *                  in the configuration, what was expected and what came; an
 *                  evaluation without `dataset.test`, or with nothing to load
 *   FLEET_EINVAL   an action that does not exist; set, or one of its texts, is
 *                  NULL
 *   and everything that training, evaluating, loading and saving can give
 */
FLEET_API fleet_status fleet_train_from_config(
    const char *path, const fleet_config_options *options, char **line);

/* fleet_config_schema - the configurations that fleet_train_from_config()
 * reads, as a JSON Schema (draft 2020-12), for editors and checks before a
 * training: keys, types, ranges, choices, and what is always required. It is
 * made of what the reader asks; what it refuses the reader refuses, too. Of two
 * keys that contradict each other, or that one format or model alone has, only
 * the reader knows. Text for fleet_free(), with newlines; NULL: see
 * fleet_last_error(). */
FLEET_API char *fleet_config_schema(void);

#ifdef __cplusplus
}
#endif

#endif
