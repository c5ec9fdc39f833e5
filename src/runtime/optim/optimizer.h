/* optimizer.h - the inside of an optimizer: a rule, its numbers, and how they
 * change with the updates done. */
#pragma once

#include <fleet/optimizer.h>

#include "runtime/device/context.h"
#include "runtime/optim/plateau.h"
#include "runtime/optim/rule.h"
#include "runtime/optim/schedule.h"

/* A table, or a dense parameter of a group, that has an optimizer of its
 * own. */
typedef struct fl_own_optimizer {
    char *name;
    bool is_param;
    fleet_optimizer *optimizer;
} fl_own_optimizer;

struct fleet_optimizer {
    fl_context *context;
    const struct fleet *handle; /* whose it is; NULL: no handle's */
    fl_rule_kind kind;
    float learning_rate;
    float first_rate;            /* before what was reported lowered it */
    float number[FL_MAX_NUMBER]; /* the rule's own, see FL_NUMBER_OF */
    float l2_decay;
    float l1_decay;
    float clip_norm;  /* 0: none */
    float value_clip; /* 0: none */
    float norm_clip;  /* of each parameter and table; 0: none */
    bool bounds;      /* rows have weights in [low, high] */
    float low, high;
    bool residuals;      /* parameters have dgc's residuals, too */
    _Atomic bool in_use; /* plans with or without a clip have been made */
    _Atomic int passes;  /* over datasets, that train with it now */
    bool serves; /* on a server: workers say how their updates are made */

    fl_own_optimizer *own; /* n_own of them */
    size_t n_own, own_capacity;
    int n_user;    /* tables and parameters whose optimizer it is: it updates
                      nothing else */
    int n_group;   /* that many of them parameters */
    bool is_fixed; /* a program has been minimized: its tables stay, and of a
                      table's optimizer all that is set */

    fl_schedule schedule;
    fl_plateau plateau;

    float *correct_a, *correct_b; /* Adam's corrections by t, see rule.h */
    uint32_t n_correct;
    fleet_optimizer *next; /* the handle's list */
};

/* Has a number that another one leaves without effect: FLEET_EINVAL. */
fleet_status fl_optimizer_check_numbers(fl_rule_kind kind,
                                        const float number[FL_MAX_NUMBER]);

/* number: the rule's own, by their places, checked; 0 is a number's default.
 * NULL, with the reason as the last error. */
fleet_optimizer *fl_optimizer_create(fl_context *context, fl_rule_kind kind,
                                     float learning_rate,
                                     const float number[FL_MAX_NUMBER]);
void fl_optimizer_destroy(fleet_optimizer *o);

/* May `call` set something of it now? A setter takes effect with the next
 * update, of the same number in all processes of a job: so not in a pass. */
fleet_status fl_optimizer_check_setter(const fleet_optimizer *o,
                                       const char *call);

/* What a checkpoint has; if it has no report, as it was before the first one.
 * An optimizer without a plateau minds nothing. */
void fl_optimizer_resume_plateau(fleet_optimizer *o, const fl_plateau_state *s);

/* The scalars of the update after `done` updates, for a mean over `batches`. */
void fl_optimizer_update(const fleet_optimizer *o, int64_t done, int batches,
                         fl_update *u);

/* FTRL divides by its learning rate, which schedules and plateaus bring down to
 * 0: FLEET_ENUMERIC if it, or a table's, cannot make the update after `done`
 * updates. */
fleet_status fl_optimizer_check_rates(const fleet_optimizer *o, int64_t done);

/* Has its rule Adam's moments? Do the bias corrections of a row follow the
 * row's own steps? */
bool fl_optimizer_has_moments(const fleet_optimizer *o);
bool fl_optimizer_has_row_steps(const fleet_optimizer *o);

/* What a parameter or table with these attributes changes of that, and the
 * scalars with its changes. */
fl_update_rates fl_update_rates_of(const fleet_param_attr *attr);
fl_update fl_update_with(const fl_update *u, const fleet_param_attr *attr);

/* Of a parameter with these attributes; of a table's rows. */
fl_rule_dense *fl_optimizer_dense(const fleet_optimizer *o,
                                  const fleet_param_attr *attr);
fl_rule_rows *fl_optimizer_rows(const fleet_optimizer *o);
