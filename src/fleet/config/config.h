/* config.h - the configuration of fleet-train, read and checked; see
 * docs/fleet-train.md. */
#pragma once

#include "base/memory.h"
#include "base/json/json.h"
#include "fleet/job/handle.h"

enum { FL_CONFIG_MOST_CLASSES = 1 << 20 };

typedef struct fl_model_kind fl_model_kind; /* models.h */

/* A slot: how it is read, and what the model does with it. */
typedef struct fl_config_slot {
    fleet_slot slot;
    bool label, weight;   /* of samples */
    bool log_q;           /* of their items */
    bool draw;            /* the weights by which samples are drawn */
    fleet_slot_role role; /* of ids */
    double loss_weight;   /* of a label's task; 0: 1 */
    double pos_weight;    /* the same, of its label 1 */
    fleet_combiner combiner;
    const char *table; /* NULL: the model's */
    fleet_ps ps;       /* of its table */
} fl_config_slot;

/* A number of a validation; larger is better of some. */
typedef enum fl_metric_kind {
    FL_METRIC_LOSS,
    FL_METRIC_AUC,
    FL_METRIC_LOGLOSS,
    FL_METRIC_ACCURACY,
    FL_METRIC_RANKING /* one of `metrics` */
} fl_metric_kind;

/* How the optimizer is said. */
typedef struct fl_config_optimizer {
    int type; /* fl_rule_kind */
    double learning_rate, l2_decay, l1_decay, clip_global_norm, clip_value,
        clip_norm;
    float number[FL_MAX_NUMBER]; /* the rule's own, by their places */
    fleet_schedule schedule;
    bool has_plateau;
    fleet_plateau_options plateau;
    bool bounds; /* of rows, low to high */
    double low, high;
    const char *name; /* of the table that it is of, or the pattern of a group's
                         parameters; NULL: of none alone */
    bool is_group;
    struct fl_config_optimizer *own; /* of tables, then of groups: n_own */
    int n_own;
} fl_config_optimizer;

/* How samples in memory are shuffled before each epoch. */
typedef enum fl_memory_shuffle {
    FL_MEMORY_IN_ORDER,
    FL_MEMORY_LOCAL,
    FL_MEMORY_GLOBAL
} fl_memory_shuffle;

typedef struct fl_config {
    fl_arena arena; /* of all arrays; texts are the JSON's */
    fl_json *json;

    const fl_model_kind *model;
    fleet_ctr_options ctr;     /* what single models have of it */
    fleet_mlp_options mlp;     /* the same */
    fleet_lenet_options lenet; /* its images */
    int64_t rows;              /* of each table; 0: unbounded */
    bool check_ids;
    fleet_fresh fresh;
    int64_t default_id;
    fleet_table_options life;
    int64_t memory_cap_bytes;
    const char *cold_folder; /* the configuration's */
    fleet_row_storage storage;
    fl_at model_ps; /* by name of a layer, parameter or table; may be absent */

    fl_config_optimizer optimizer;
    fleet_distributed_strategy strategy;
    fleet_place device;
    bool own_gpu; /* "gpu": each worker's; device is not used then */
    int64_t epochs, seed, trainer_threads;
    bool hogwild;
    fleet_dataset_options dataset;
    bool in_memory;     /* the training's; memory_limit is its own */
    int memory_shuffle; /* before each epoch; 0: none */
    int64_t memory_limit;
    int64_t ps_gpu_bytes; /* of strategy's use_ps_gpu; 0: what the GPU has */
    const char **train, **test, **validation, **items;
    int n_train, n_test, n_validation, n_items;
    fleet_ranking ranking[FLEET_MOST_RANKINGS]; /* `metrics`: n_ranking */
    int n_ranking;
    bool validates;         /* between batches of the first worker; */
    int64_t validate_steps; /* 0: between passes */
    fl_metric_kind metric;  /* by which validations are judged; */
    int judge;              /* FL_METRIC_RANKING: by which of `ranking` */
    double min_delta;
    int64_t patience;            /* 0: none, it never stops early */
    const char *save_best;       /* NULL: none */
    const char *metrics_log;     /* NULL: none */
    const char *metrics_columns; /* of a CSV; NULL: it is JSON */
    const char *tensorboard;     /* folder of event files; NULL: none */
    int64_t metrics_steps;       /* 0: the default */
    int64_t histogram_steps;     /* 0: there are no histograms */
    fl_config_slot *slot;
    fleet_slot *data_slot; /* the same in a row, as a dataset takes them */
    int n_slot;
    const char *save, *load; /* NULL: none */
    fleet_save_mode save_mode;
    fleet_load_options load_options;
    fleet_save_every save_every;        /* folder NULL: nothing says where */
    int64_t deadline_ms[FL_N_DEADLINE]; /* 0: not given */
    bool has_deadlines;                 /* any of them */
} fl_config;

fleet_status fl_config_read(fl_config *c, const char *text, size_t size,
                            const char *name);

/* With what n_set texts "path=value" put in first, in turn. */
fleet_status fl_config_read_with(fl_config *c, const char *text, size_t size,
                                 const char *name, const char *const *set,
                                 int n_set);
void fl_config_done(fl_config *c);
