/* run_internal.h - a training by a configuration: its datasets, its model, its
 * executors. */
#pragma once

#include "fleet/config/config.h"
#include "fleet/watch/event_log.h"
#include "fleet/watch/metric_log.h"

/* Where a run was as its last line was written to `metrics_log`. */
typedef struct fl_run_line {
    int64_t n; /* lines in the file, behind the first one of the run */
    int64_t step;
    double loss_sum; /* the executor's, of the pass */
    int64_t loss_samples;
} fl_run_line;

/* What this worker has seen of its training, before a --resume, too. */
typedef struct fl_run_state {
    int64_t step, samples;   /* batches, and what is in them */
    int64_t since;           /* batches since the last validation */
    fleet_evaluation newest; /* validation of this process; samples 0: none */
    int64_t metric;     /* 1 more than its kind: what these are of; 0: none */
    double best, beats; /* the best number; and what the next one has to beat by
                           min_delta. NAN: none yet */
    int64_t bad;        /* validations in a row that did not */
    uint64_t run;       /* that lines are of; 0: there are none yet */
    fl_run_line line;
    int64_t pass, batch; /* of a checkpoint: its position */
} fl_run_state;

typedef struct fl_config_run {
    const fl_config *c;
    const fleet_config_options *o;
    fleet *f;
    fleet_program *program;
    fleet_model model;
    fleet_dataset *train, *test;
    fleet_dataset *items;     /* with `metrics`, where it evaluates */
    fleet_dataset *validated; /* in the first worker: what validations evaluate,
                                 which may be `test`; NULL: there are none */
    fl_run_state seen;
    bool keeps_seen; /* in its checkpoints */
    fl_metric_log lines;
    fl_event_log events;
    int64_t line_ns;         /* when the last one was written, or it began */
    int64_t line_samples;    /* seen.samples then */
    double line_validated_s; /* that validations took since */
    bool looks; /* one of the newest batches has histograms behind it */
    fleet_executor *trainer, *tester;
    const char *load; /* what is loaded, and how; NULL: nothing */
    fleet_load_options load_options;
    char *newest; /* checkpoint, where that is what is loaded */
    fleet_save_every every;
    int64_t started_ns; /* the process, as good as we know */

    /* progress */
    int64_t epoch, epoch_samples, last_ns;
    int64_t before;       /* this process's samples of finished epochs */
    int64_t skipped;      /* samples of before a resume, which `before` has */
    double done_before;   /* of all epochs, when this process first said so */
    int64_t trained;      /* all workers' samples of them */
    double trained_s;     /* and their seconds */
    double validated_s;   /* that validations took in this pass */
    bool trains;          /* there is an epoch left to train */
    int64_t reported;     /* losses of passes before the first of these */
    fleet_train_result r; /* of the last epoch */
} fl_config_run;

/* A server has no data but what makes the model, which may depend on what is in
 * the files; the test data is the first worker's. */
fleet_status fl_run_make_datasets(fl_config_run *t);
fleet_status fl_run_make_model(fl_config_run *t);

/* A dataset, with `metrics` if there are some. */
fleet_status fl_run_evaluate(fl_config_run *t, fleet_dataset *d,
                             fleet_evaluation *found);

/* And load what is to be loaded. */
fleet_status fl_run_make_executors(fl_config_run *t);

/* If the training is from memory: read its samples, which a stop ends: then the
 * run is a stopped one; shuffle them, as the configuration says. */
fleet_status fl_run_memory_load(fl_config_run *t);
fleet_status fl_run_memory_shuffle(fl_config_run *t);

/* Around a training pass: with use_ps_gpu its rows come and go. */
fleet_status fl_run_begin_pass(fl_config_run *t);
fleet_status fl_run_end_pass(fl_config_run *t);

/* FLEET_CONFIG_CHECK. */
fleet_status fl_run_check(fl_config_run *t, char **line);
