/* strategy_fields.h - each field of a strategy once: its name, its place, what
 * it is for, and so what becomes of it in each mode. */
#ifndef FL_FLEET_STRATEGY_STRATEGY_FIELDS_H
#define FL_FLEET_STRATEGY_STRATEGY_FIELDS_H

#include "fleet/handle.h"

typedef enum fl_strategy_field_type {
    FL_FIELD_BOOL,
    FL_FIELD_INT,
    FL_FIELD_INT64,
    FL_FIELD_FLOAT,
    FL_FIELD_WORDS
} fl_strategy_field_type;

/* What a field is for; with the mode, that is what becomes of it. */
typedef enum fl_purpose {
    FL_FOR_STEP,    /* how a step is computed */
    FL_FOR_SCALING, /* how a loss of float16 is scaled */
    FL_FOR_PURE,    /* for training in float16 without float */
    FL_FOR_LAYERS,  /* how dense parameters that are kept here are updated */
    FL_FOR_ASYNC,   /* the choice between the modes of servers */
    FL_FOR_SERVERS, /* how workers and servers talk */
    FL_FOR_ORDER,   /* a fixed order of sums over workers */
    FL_FOR_RANKS,   /* ranks in place of servers */
    FL_FOR_SUMS,    /* what ranks reduce */
    FL_FOR_WEIGHTS, /* means of weights in place of that */
    FL_FOR_STAGE,   /* has one value where they do */
    FL_FOR_NCCL,    /* the same on GPUs */
    FL_FOR_LATER,   /* not in this version */
    FL_N_PURPOSE
} fl_purpose;

typedef enum fl_support {
    FL_ACTIVE,
    FL_NO_SERVERS,    /* nothing to act on */
    FL_NO_COLLECTIVE, /* nothing to act on */
    FL_NO_GPU,        /* nothing to act on */
    FL_NO_SCALING,    /* nothing to act on */
    FL_NO_PURE,       /* nothing to act on */
    FL_SWITCHED_OFF,  /* a field that turns it on is 0 */
    FL_FIXED,  /* the default is what happens, another value is refused */
    FL_REFUSED /* any value but the default */
} fl_support;

typedef struct fl_strategy_field {
    const char *name;
    fl_strategy_field_type type;
    size_t offset;
    fl_purpose purpose;
    double low, high; /* without effect, too: it must be one that could be */
} fl_strategy_field;

enum { FL_N_FIELD = 62 };
extern const fl_strategy_field fl_fields[FL_N_FIELD];

/* Names, NULL if there are none; and any other field's value. */
const char *fl_strategy_field_words(const fleet_distributed_strategy *s,
                                    const fl_strategy_field *f);
double fl_strategy_field_value(const fleet_distributed_strategy *s,
                               const fl_strategy_field *f);
void fl_strategy_field_set(fleet_distributed_strategy *s,
                           const fl_strategy_field *f, double x);

/* Is it not at its default? */
bool fl_strategy_field_is_asked(const fleet_distributed_strategy *s,
                                const fl_strategy_field *f);

/* A switch that is off, without which the field does nothing: its group's, dgc
 * of dgc_configs, or its way's. NULL: there is none. */
const fl_strategy_field *fl_strategy_field_off_by(
    const fleet_distributed_strategy *s, const fl_strategy_field *f);

fl_support fl_strategy_field_fate(const fleet_distributed_strategy *s,
                                  const fl_strategy_field *f, fl_job_mode mode);

/* strategy.c: FLEET_EINVAL and FLEET_EUNSUPPORTED, by name. Without a role,
 * local: what no mode has is refused. */
fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode);

/* strategy_report.c: what is asked for in vain is in the log. */
void fl_strategy_warn(fleet *f);

#endif
