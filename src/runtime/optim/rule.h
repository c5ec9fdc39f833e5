/* rule.h - the update rules: one code for dense parameters, rows in this
 * process and rows on servers.
 *
 * A rule changes n weights from their gradients and n_state arrays of the same
 * length. Element by element, in IEEE's arithmetic and without contraction: the
 * bits do not depend on where a range is split.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

/* Of a rule: states of a weight and of a row, and numbers; the number at
 * FL_FIRST_STATE is what its states start with. */
enum { FL_MAX_STATE = 2, FL_MAX_ROW = 2, FL_MAX_NUMBER = 6 };
enum { FL_MAX_NAME = FL_MAX_STATE + FL_MAX_ROW, FL_FIRST_STATE = 4 };

typedef enum fl_rule_kind {
#define FL_RULE(KIND, ...) FL_RULE_##KIND,
#include "runtime/optim/rules.def"
} fl_rule_kind;

enum {
    FL_N_RULE = 0
#define FL_RULE(...) +1
#include "runtime/optim/rules.def"
};

/* FL_NUMBER_OF(u, ADAM, beta1): Adam's beta1, of whatever has numbers. */
#define FL_NUMBER_OF(x, KIND, name) ((x)->number[FL_AT_##KIND##_##name])

enum {
#define FL_NUMBER(KIND, name, place, ...) FL_AT_##KIND##_##name = (place),
#define FL_FLAG(KIND, name, place)        FL_AT_##KIND##_##name = (place),
#include "runtime/optim/rules.def"
};

/* The scalars of an update. The gradient that a rule uses is
 *     ((g * scale) * clip) + decay * w
 * or, where the update is shaped,
 *     clamp((g * scale) * clip) + decay * w + l1 * sign(w),
 * the clamp being to [-most, most]. */
typedef struct fl_update {
    float lr;
    float scale; /* 1 / batches in this update; 1 where they are summed */
    float mean;  /* 1 / batches, always: of moving averages */
    float clip;  /* factor of the clip by global norm; 1: none */
    float decay; /* L2 */
    float apart; /* LAMB's decay, beside the moments */
    float most;  /* of the clip by value; 0: none */
    float l1;    /* L1 */
    float number[FL_MAX_NUMBER]; /* the rule's own, see FL_NUMBER_OF */

    /* Adam's bias corrections 1 / (1 - beta^t): of the update, and by t for
     * rows whose own steps are t (row_steps; else n_correct is 0); entry
     * n_correct - 1 is where both are 1. */
    float correct_a, correct_b;
    const float *correct_a_at, *correct_b_at;
    uint32_t n_correct;
    uint64_t version;               /* for the heads of changed rows */
    const struct fl_row_hash *hash; /* of the rows, kept as they change; NULL:
                                       none is */
} fl_update;

/* What a parameter or a table changes of an update. */
typedef struct fl_update_rates {
    float learning_rate, decay; /* a factor; below 0: the optimizer's, 0: no
                                   decay, of L1 neither */
    float average; /* above 0: it is a moving average of its gradients */
} fl_update_rates;

/* w = average w + (1 - average) mean g is SGD's step of the rate 1 - average
 * along w - mean g. */
FL_EVERYWHERE void fl_update_average(fl_update *u, float average)
{
    u->lr = 1.0f - average;
    u->scale = -u->mean;
    u->clip = u->decay = 1.0f;
    u->most = u->l1 = 0;
}

FL_EVERYWHERE void fl_update_change(fl_update *u, const fl_update_rates *by)
{
    if (by->average > 0) {
        fl_update_average(u, by->average);
        return;
    }
    u->lr *= by->learning_rate;
    if (by->decay >= 0)
        u->decay = by->decay;
    if (by->decay == 0) /* no_decay: none of them */
        u->l1 = u->number[FL_AT_ADAMW_weight_decay] = 0;
}

/* The rule that changes it, of the one that trains. */
FL_EVERYWHERE fl_rule_kind fl_rule_with(fl_rule_kind kind,
                                        const fl_update_rates *by)
{
    return by->average > 0 ? FL_RULE_SGD : kind;
}

/* Most updates are not, and their loops ask once. */
FL_EVERYWHERE bool fl_update_is_shaped(const fl_update *u)
{
    return u->most > 0 || u->l1 > 0;
}

/* Of a clip by norm: what a gradient with these squares is multiplied by. */
FL_EVERYWHERE float fl_clip_factor(double squares, float most)
{
    double norm = sqrt(squares), limit = (double)most;

    return norm > limit ? (float)(limit / norm) : 1.0f;
}

/* Before the weights of every row; the states follow them, dim floats each,
 * then the floats of the whole row. It has what an update changes: a row's key
 * is kept apart from it. */
typedef struct fl_row_head {
    uint64_t changed_at; /* the version of the row's last update; 0: none since
                            it was made or loaded */
    uint32_t step;       /* updates of this row */
    uint32_t erased;     /* 1: a hole in a table's memory, not a row */
} fl_row_head;

static inline fl_row_head *fl_row_of(float *weights)
{
    return (fl_row_head *)(void *)weights - 1;
}

/* A rule of whole rows has none of these. */
typedef void fl_rule_dense(const fl_update *u, float *w, const float *g,
                           float *const *state, int64_t n);

/* Rows r in [0, n): weights at w[r], gradient at g[r], dim floats each. Their
 * step is counted up first. */
typedef void fl_rule_rows(const fl_update *u, float *const *w,
                          const float *const *g, int64_t n, int64_t dim);

/* Rows whose weights come back to [low, high]; what is NaN stays it. */
typedef void fl_row_bounds(float low, float high, float *const *w, int64_t n,
                           int64_t dim);

/* The rules of an instruction set, by kind; and two for single layers. */
typedef struct fl_rule_set {
    struct {
        fl_rule_dense *dense;
        fl_rule_rows *rows;
    } of[FL_N_RULE];
    fl_rule_dense *lars; /* lr: the layer's own */
    fl_rule_dense *lamb; /* w stays; state[2] is the step, may be g */
    fl_row_bounds *bound;
} fl_rule_set;

extern const fl_rule_set fl_rule_set_plain, fl_rule_set_avx2,
    fl_rule_set_avx512;

struct fl_simd;
const fl_rule_set *fl_rule_set_on(const struct fl_simd *simd);

/* The rules of the best instruction set that may be used. */
const fl_rule_set *fl_rule_set_best(void);

/* A number of a rule: see rules.def. */
typedef struct fl_rule_number {
    const char *name; /* NULL: the rule has none at this place */
    bool flag;
    float otherwise;
    double below, low, high;
} fl_rule_number;

/* What a rule is besides its arithmetic. */
typedef struct fl_rule {
    const char *name;
    int n_state, n_row;
    const char *state[FL_MAX_NAME]; /* their names in checkpoints: n_state of
                                       weights, then n_row of rows */
    fl_rule_number number[FL_MAX_NUMBER];
} fl_rule;

const fl_rule *fl_rule_of(fl_rule_kind kind);

/* Has it Adam's numbers, at Adam's places, and its bias corrections? */
bool fl_rule_has_moments(fl_rule_kind kind);
