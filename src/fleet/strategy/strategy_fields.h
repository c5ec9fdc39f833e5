/* strategy_fields.h - the fields of a strategy, of strategy_fields.def: their
 * values, what they are for, and what becomes of them in each mode. */
#pragma once

#include "fleet/job/job_mode.h"
#include "runtime/graph/training.h"

typedef enum fl_strategy_field_type {
    FL_FIELD_BOOL,
    FL_FIELD_INT,
    FL_FIELD_INT64,
    FL_FIELD_FLOAT,
    FL_FIELD_WORDS
} fl_strategy_field_type;

/* What a field is for; with the mode, that is what becomes of it. */
typedef enum fl_purpose {
    FL_FOR_STEP,        /* how a step is computed */
    FL_FOR_SCALING,     /* how a loss of float16 is scaled */
    FL_FOR_PURE_FP16,   /* training in float16 without float */
    FL_FOR_ASYNC,       /* the choice between the modes of servers */
    FL_FOR_SERVERS,     /* how workers and servers talk */
    FL_FOR_HALF_ASYNC,  /* what workers in half-async push and pull, and when;
                           asks for that mode */
    FL_FOR_GEO,         /* how often copies are exchanged */
    FL_FOR_STALENESS,   /* how far workers in async are apart */
    FL_FOR_CACHE,       /* rows that workers keep; a_sync is no switch of it */
    FL_FOR_CACHE_AGE,   /* and for how long, in async */
    FL_FOR_WIRE,        /* as what numbers of pushes and pulls travel */
    FL_FOR_WIRE_KEYS,   /* as what their keys travel */
    FL_FOR_LOG,         /* what servers write down of what they apply */
    FL_FOR_LIVE_HASH,   /* of what lanes keep */
    FL_FOR_REPLICAS,    /* how many copies of that there are */
    FL_FOR_STAGES,      /* batches in flight between the stages of a job */
    FL_FOR_ORDER,       /* a fixed order of sums over workers */
    FL_FOR_RANKS,       /* ranks in place of servers */
    FL_FOR_ALL_REDUCE,  /* what ranks reduce */
    FL_FOR_SYNC_NORM,   /* sums of ranks in the middle of a step */
    FL_FOR_LOCALSGD,    /* means of weights in place of sums of gradients */
    FL_FOR_FIXED_RANKS, /* has one value in modes with ranks */
    FL_FOR_PS_GPU,      /* rows of a pass on a GPU, of one process's tables */
    FL_FOR_LATER,       /* not in this version */
    FL_N_PURPOSE
} fl_purpose;

/* Without effect: what is missing that it could act on. */
typedef enum fl_support {
    FL_ACTIVE,
    FL_NO_EFFECT_SERVERS,
    FL_NO_EFFECT_COLLECTIVE,
    FL_NO_EFFECT_FLOAT16,
    FL_NO_EFFECT_PURE_FP16,
    FL_NO_EFFECT_ASYNC, /* at its default: another value is another mode */
    FL_NO_EFFECT_OFF,   /* a field that turns it on is 0 */
    FL_FIXED,  /* the default is what happens, another value is refused */
    FL_REFUSED /* any value but the default */
} fl_support;

/* The type of a member of fl_training. */
typedef enum fl_target_type {
    FL_TO_BOOL,
    FL_TO_INT,
    FL_TO_INT64,
    FL_TO_FLOAT,
    FL_TO_WORDS
} fl_target_type;

typedef struct fl_strategy_field {
    const char *name;
    fl_strategy_field_type type;
    size_t offset;
    double standard;  /* the default */
    double low, high; /* without effect, too: it must be one that could be */
    fl_purpose purpose;

    size_t target; /* in fl_training, whose member gets */
    double unit;   /* times the value; 0: it has no target */
    fl_target_type target_type;

    bool needs_switch;        /* changed without its group's switch: refused */
    const char *off_by;       /* one more switch, by name; NULL: none */
    const char *why;          /* it is fixed; NULL: it is not in this version */
    const char *not_with;     /* switches that contradict it; NULL: none */
    const char *const *names; /* of its values, NULL at the end; NULL: none */
} fl_strategy_field;

enum {
    FL_N_FIELD = 0
#define FL_FIELD(...) +1
#include "fleet/strategy/strategy_fields.def"
#undef FL_FIELD
};
extern const fl_strategy_field fl_fields[FL_N_FIELD];

/* Of fleet_durability, NULL at the end. */
extern const char *const fl_durability_names[];

/* The field of that name, which ends where length says; NULL: none. */
const fl_strategy_field *fl_strategy_field_named(const char *name,
                                                 size_t length);

/* Names, NULL if there are none; and any other field's value. */
const char *fl_strategy_field_words(const fleet_distributed_strategy *s,
                                    const fl_strategy_field *f);
double fl_strategy_field_value(const fleet_distributed_strategy *s,
                               const fl_strategy_field *f);
void fl_strategy_field_set(fleet_distributed_strategy *s,
                           const fl_strategy_field *f, double x);

/* A value of a field that is no list of words, as texts have it: its name, or a
 * number with that many digits. */
enum { FL_FIELD_TEXT = 32 };
const char *fl_strategy_field_text(const fl_strategy_field *f, double x,
                                   int digits, char text[FL_FIELD_TEXT]);

/* Is it not at its default? */
bool fl_strategy_field_is_asked(const fleet_distributed_strategy *s,
                                const fl_strategy_field *f);

/* The switch of its group: dgc of dgc_configs.sparsity. NULL: none. */
const fl_strategy_field *fl_strategy_field_switch(const fl_strategy_field *f);

/* A switch that is off, without which the field does nothing. NULL: none. */
const fl_strategy_field *fl_strategy_field_off_by(
    const fleet_distributed_strategy *s, const fl_strategy_field *f);

/* Batches of a worker that are in flight between the stages of a job; 1: one is
 * under way. */
int fl_strategy_in_flight(const fleet_distributed_strategy *s);

fl_support fl_strategy_field_support(const fleet_distributed_strategy *s,
                                     const fl_strategy_field *f,
                                     fl_job_mode mode);

/* The members of a training that has none of them yet, from the fields whose
 * target they are. */
void fl_strategy_set_training(const fleet_distributed_strategy *s,
                              fl_training *t);
