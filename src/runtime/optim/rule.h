/* rule.h - the update rules: one code for dense parameters, rows in this
 * process and rows on servers.
 *
 * A rule changes n weights from their gradients and n_state arrays of the same
 * length. Element by element, in IEEE's arithmetic and without contraction: the
 * bits do not depend on where a range is split.
 */
#ifndef FL_RUNTIME_OPTIM_RULE_H
#define FL_RUNTIME_OPTIM_RULE_H

#include <stdint.h>

enum { FL_MAX_STATE = 2 };

typedef enum fl_rule_kind {
    FL_RULE_SGD,
    FL_RULE_MOMENTUM,
    FL_RULE_ADAGRAD,
    FL_RULE_ADAM
} fl_rule_kind;

/* What a rule is told. The gradient it uses is
 *     ((g * scale) * clip) + decay * w */
typedef struct fl_update {
    float lr;
    float scale; /* 1 / batches in this update */
    float clip;  /* factor of the clip by global norm; 1: none */
    float decay; /* L2 */
    float apart; /* LAMB's decay, beside the moments */
    float a;     /* momentum, or beta1 */
    float b;     /* beta2 */
    float one_minus_a, one_minus_b;
    float epsilon;
    int nesterov;

    /* Adam's bias corrections 1 / (1 - beta^t): of a dense update, and by t for
     * rows, which count their own; entry n_correct - 1 is where both are 1. */
    float correct_a, correct_b;
    const float *correct_a_at, *correct_b_at;
    uint32_t n_correct;
    uint32_t version; /* for the heads of changed rows */
} fl_update;

/* Before the weights of every row; the states follow them, dim floats each. */
typedef struct fl_row_head {
    uint64_t key;
    uint32_t step;       /* updates of this row */
    uint32_t changed_at; /* the table's version at the last one */
} fl_row_head;

static inline fl_row_head *fl_row_of(float *weights)
{
    return (fl_row_head *)(void *)weights - 1;
}

typedef void fl_rule_dense(const fl_update *u, float *w, const float *g,
                           float *const *state, int64_t n);

/* Rows r in [0, n): weights at w[r], gradient at g[r], dim floats each. Their
 * step is counted up first. */
typedef void fl_rule_rows(const fl_update *u, float *const *w,
                          const float *const *g, int64_t n, int64_t dim);

/* What a rule is besides its arithmetic. */
typedef struct fl_rule {
    const char *name;
    int n_state;
    const char *state[FL_MAX_STATE]; /* their names in checkpoints */
} fl_rule;

const fl_rule *fl_rule_of(fl_rule_kind kind);

#endif
