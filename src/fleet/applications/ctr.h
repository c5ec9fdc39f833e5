/* ctr.h - click models: what each is behind its slots, and which options it
 * has of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <fleet/applications.h>

typedef enum fl_option_type {
    FL_OPTION_BOOL,  /* an int */
    FL_OPTION_INT,   /* an int64_t; 0: the model's default */
    FL_OPTION_LAYERS /* a pointer to int64_t, and an int, how many */
} fl_option_type;

/* An option of fleet_ctr_options that some models have. */
typedef struct fl_ctr_option {
    const char *name; /* of its member, and its key in configurations */
    fl_option_type type;
    size_t at, n_at;   /* its member; of layers also that of their number */
    int64_t low, high; /* of an int */
} fl_ctr_option;

extern const fl_ctr_option fl_ctr_options[]; /* a name NULL ends them */

typedef struct fl_ctr fl_ctr;

enum { FL_MOST_OWN_OPTIONS = 8 };

/* A model of fleet_ctr_options. */
typedef struct fl_ctr_model {
    const char *name;                         /* in errors */
    const char *own[FL_MOST_OWN_OPTIONS + 1]; /* names; NULL ends them */
    bool classes;                             /* its label is one: int64 */
    int least_tasks, most_tasks;              /* 0: it has one label */
    int64_t embedding_dim;                    /* the default */
    void (*build)(fl_ctr *c, fleet_model *m);
} fl_ctr_model;

#define FL_CTR_MODEL(title) extern const fl_ctr_model fl_model_##title;
#define FL_MODEL(title)
#include "fleet/applications/model_list.def"
#undef FL_CTR_MODEL
#undef FL_MODEL

/* What the public builder does; returns the loss. */
fleet_var *fl_ctr_build(fleet_program *p, const fleet_ctr_options *options,
                        fleet_model *out, const fl_ctr_model *model);
