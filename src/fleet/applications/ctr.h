/* ctr.h - click models: what each is behind its slots, and which options it
 * has of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <fleet/applications.h>

typedef enum fl_option_type {
    FL_OPTION_BOOL,   /* an int */
    FL_OPTION_INT,    /* an int64_t; 0: the model's default */
    FL_OPTION_FLOAT,  /* likewise */
    FL_OPTION_LAYERS, /* a pointer to int64_t, and an int, how many */
    FL_OPTION_FLOATS  /* likewise to float */
} fl_option_type;

/* An option of fleet_ctr_options that some models have. */
typedef struct fl_ctr_option {
    const char *name; /* of its member, and its key in configurations */
    fl_option_type type;
    size_t at, n_at;  /* its member; of lists also that of their number */
    double low, high; /* of a number, or of each */
} fl_ctr_option;

extern const fl_ctr_option fl_ctr_options[]; /* a name NULL ends them */

typedef struct fl_ctr fl_ctr;

/* How many slots of a role a model has. */
typedef struct fl_role_range {
    int least, most; /* most 0: none */
} fl_role_range;

#define FL_N_SLOT_ROLE (FLEET_SLOT_NEGATIVE + 1)
extern const char *const fl_slot_role_names[]; /* by role; NULL ends them */

enum { FL_MOST_OWN_OPTIONS = 8 };

/* A model of fleet_ctr_options. */
typedef struct fl_ctr_model {
    const char *name;                         /* in errors */
    const char *own[FL_MOST_OWN_OPTIONS + 1]; /* names; NULL ends them */
    bool classes;                             /* its label is one: int64 */
    int least_tasks, most_tasks;              /* 0: it has one label */
    int64_t embedding_dim;                    /* the default */
    fl_role_range role[FL_N_SLOT_ROLE];       /* features: most 0 is any */
    bool pairs;               /* as many items as histories, of one id each */
    bool one_id;              /* an item has one, without histories, too */
    bool no_features;         /* nor numbers */
    bool label_may_lack;      /* samples may be pairs */
    bool in_batch;            /* it has log_q */
    const fleet_id_slot *ids; /* PaddleRec's; NULL: Criteo's */
    int n_ids;
    void (*build)(fl_ctr *c, fleet_model *m);
} fl_ctr_model;

#define FL_CTR_MODEL(title) extern const fl_ctr_model fl_model_##title;
#define FL_MODEL(title)
#include "fleet/applications/model_list.def"
#undef FL_CTR_MODEL
#undef FL_MODEL

/* Is the role of a slot one that the model has, and what else is said of it
 * possible? */
fleet_status fl_ctr_check_role(const fl_ctr_model *m, const fleet_id_slot *s);

/* Are slots of each role as many as the model wants? n_dense slots of numbers
 * are features, too. */
fleet_status fl_ctr_check_roles(const fl_ctr_model *m, const fleet_id_slot *s,
                                int n, int n_dense);

/* What the public builder does; returns the loss. */
fleet_var *fl_ctr_build(fleet_program *p, const fleet_ctr_options *options,
                        fleet_model *out, const fl_ctr_model *model);
