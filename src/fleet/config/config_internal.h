/* config_internal.h - what the files that read a configuration share. */
#pragma once

#include "fleet/config/config.h"
#include "fleet/train/ranking.h"

fleet_status fl_config_read_model(fl_config *c, const fl_at *at);
fleet_status fl_config_read_dataset(fl_config *c, const fl_at *at);
fleet_status fl_config_read_slots(fl_config *c, const fl_at *at); /* after it */

/* A text that is not empty. */
fleet_status fl_config_path(const fl_at *at, const char **path);

/* How often "-", standard input, is among the files. */
int fl_config_has_stdin(const char *const *files, int n);

/* Of what validations are judged by, into the text. */
void fl_config_metric_name(const fl_config *c, char name[FL_RANKING_NAME]);

/* Metrics of retrieval. After the dataset, before the slots. */
fleet_status fl_config_read_metrics(fl_config *c, const fl_at *root);

/* What is looked at while it trains: validations. After the dataset. */
fleet_status fl_config_read_watch(fl_config *c, const fl_at *root);

/* How many slots are what. */
typedef struct fl_config_counts {
    int labels, weights, log_q;
    int numbers, ids; /* that are neither */
    int real;         /* the last label of floats; -1: none */
} fl_config_counts;

/* For models: there is one label; it is a class. */
fleet_status fl_config_one_label(const fl_config_counts *n, const char *path);
fleet_status fl_config_class_label(const fl_config *c,
                                   const fl_config_counts *n, const char *path);

/* What model.accessor names are slots of the configuration that count. */
fleet_status fl_config_check_shown(const fl_config *c, const fl_at *model);

/* Set in the program, not trained yet, what the configuration says of where a
 * parameter or a table is kept. FLEET_ECONFIG: a name that the program does not
 * have, or two entries that contradict. */
fleet_status fl_config_set_param_home(const fl_config *c, fleet_program *p);

fl_config_optimizer fl_config_optimizer_default(void);
fleet_status fl_config_read_optimizer(fl_config *c, const fl_at *at);

/* NULL, with the reason as the last error. */
fleet_optimizer *fl_config_make_optimizer(fleet *f,
                                          const fl_config_optimizer *o);

/* Give the program's tables and groups the optimizers that the configuration
 * says, beside `o`. FLEET_ECONFIG: a name that the program does not have. */
fleet_status fl_config_set_own(const fl_config *c, fleet *f,
                               const fleet_program *p, fleet_optimizer *o);

/* A failure of what is at the path. */
static inline fleet_status fl_config_in(fleet_status status, const char *path)
{
    return status == FLEET_OK ? status : fl_fail_in(FLEET_ECONFIG, "%s", path);
}

/* An array of texts, in the arena. Absent: 0 of them. */
fleet_status fl_config_texts(fl_config *c, const fl_at *at, const char ***text,
                             int *n);

/* Units of layers, in the arena. Absent: as they were. */
fleet_status fl_config_layers(fl_config *c, const fl_at *at,
                              const int64_t **units, int *n);

/* Likewise an array of up to 512 numbers from low to high. */
fleet_status fl_config_floats(fl_config *c, const fl_at *at, double low,
                              double high, const float **numbers, int *n);

/* The same, if its files have no columns. */
fleet_status fl_config_columns_alone(const fl_config *c, const fl_at *at,
                                     const char *const *keys);

/* Fails if the format is not csv and the object has any of those keys. */
fleet_status fl_config_csv_alone(const fl_config *c, const fl_at *at,
                                 const char *const *keys);
