/* rule_cuda.h - the update rules on a GPU: each thread runs the formulas of
 * rule_formulas.h on a weight. The plug-in is compiled without contraction, so
 * the results have the same bits as on a CPU. */
#pragma once

#include "runtime/device/cuda/cuda.h"
#include "runtime/optim/update_gpu.h"

#define FL_FORMULA __device__ static inline
#define FL_WORD    FL_FORMULA

typedef float vf;

#include "runtime/simd/one_lane.h"
#include "runtime/optim/rule_formulas.h"

/* Nothing is to be updated. */
__device__ static inline bool fl_update_is_off(const fl_device_update *now)
{
    return now->skip || (now->stop && *now->stop);
}

/* The numbers of an optimizer of a table's or a parameter's own, of which it is
 * the number from 1 on; scale, clip and version stay as they are. */
__device__ static inline void fl_update_take_own(fl_update *u,
                                                 const fl_device_update *now,
                                                 int own)
{
    const fl_device_own &o = now->own[own - 1];
    fl_device_rates r = o.after[now->more];

    u->lr = r.lr;
    u->decay = o.decay;
    u->most = o.most;
    u->l1 = o.l1;
    for (int i = 0; i < FL_MAX_NUMBER; i++)
        u->number[i] = o.number[i];
    u->correct_a = r.correct_a;
    u->correct_b = r.correct_b;
    u->correct_a_at = o.correct_a_at;
    u->correct_b_at = o.correct_b_at;
    u->n_correct = o.n_correct;
}

/* What changes from weight to weight: states are read and written in place. */
typedef struct fl_weight {
    float *w, *s0, *s1;
    float g;
} fl_weight;

/* A weight, and those states that its rule has. */
__device__ static inline fl_rule_cell fl_cell_load(const fl_weight &x,
                                                   int n_state)
{
    fl_rule_cell c;

    c.w = *x.w;
    c.s[0] = n_state > 0 ? *x.s0 : 0.0f;
    c.s[1] = n_state > 1 ? *x.s1 : 0.0f;
    return c;
}

__device__ static inline void fl_cell_store(const fl_rule_cell &c,
                                            const fl_weight &x, int n_state)
{
    if (n_state > 0)
        *x.s0 = c.s[0];
    if (n_state > 1)
        *x.s1 = c.s[1];
    *x.w = c.w;
}

/* Without a default, so that a kind without its case does not compile. */
__device__ static inline void fl_rule_apply(fl_rule_kind rule,
                                            const fl_update &u,
                                            const fl_weight &x)
{
    fl_spread all = fl_spread_of(&u);
    fl_rule_cell c;

    switch (rule) {
#define FL_RULE(KIND, name, n_state, n_row, ...)                               \
    case FL_RULE_##KIND:                                                       \
        c = fl_cell_load(x, n_state);                                          \
        fl_formula_##name(&all, &c, x.g);                                      \
        fl_cell_store(c, x, n_state);                                          \
        break;
#define FL_ROW_RULE(KIND, name, ...)                                           \
    case FL_RULE_##KIND: /* of whole rows: below */                            \
        break;
#include "runtime/optim/rules.def"
    }
}

/* --- rules of whole rows -------------------------------------------------- */

/* A row as it was: its weights, its gradient, dim floats each. */
typedef struct fl_whole_row {
    const float *w, *g;
    int64_t dim;
} fl_whole_row;

__device__ static inline float fl_row_mean(float part[FL_ROW_LANES],
                                           int64_t dim)
{
    for (int n = FL_ROW_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] += part[i + n];
    return part[0] / (float)dim;
}

#define FL_RULE(KIND, name, n_state, n_row, ...)
#define FL_ROW_RULE(KIND, name, n_row, ...)                                    \
    __device__ static inline void fl_numbers_##name(                           \
        const fl_spread &all, const fl_whole_row &x, fl_row_numbers *r)        \
    {                                                                          \
        float part[FL_MAX_ROW][FL_ROW_LANES] = {};                             \
                                                                               \
        for (int j = 0; j < (n_row); j++)                                      \
            r->was[j] = x.w[x.dim + j];                                        \
        for (int64_t i = 0; i < x.dim; i++) {                                  \
            vf d = fl_formula_gradient(&all, x.g[i], x.w[i]);                  \
            fl_row_terms t = fl_terms_##name(&all, r, d);                      \
                                                                               \
            for (int j = 0; j < (n_row); j++)                                  \
                part[j][i % FL_ROW_LANES] += t.of[j];                          \
        }                                                                      \
        for (int j = 0; j < (n_row); j++)                                      \
            r->mean[j] = fl_row_mean(part[j], x.dim);                          \
        fl_state_##name(r);                                                    \
    }
#include "runtime/optim/rules.def"

/* What the row's numbers become; how many there are. */
__device__ static inline int fl_row_rule_numbers(fl_rule_kind rule,
                                                 const fl_spread &all,
                                                 const fl_whole_row &x,
                                                 fl_row_numbers *r)
{
    switch (rule) {
#define FL_RULE(KIND, ...)                                                     \
    case FL_RULE_##KIND:                                                       \
        break;
#define FL_ROW_RULE(KIND, name, n_row, ...)                                    \
    case FL_RULE_##KIND:                                                       \
        fl_numbers_##name(all, x, r);                                          \
        return n_row;
#include "runtime/optim/rules.def"
    }
    return 0;
}

__device__ static inline float fl_row_rule_weight(fl_rule_kind rule,
                                                  const fl_spread &all,
                                                  const fl_row_numbers &r,
                                                  float w, float g)
{
    float d = fl_formula_gradient(&all, g, w);

    switch (rule) {
#define FL_RULE(KIND, ...)                                                     \
    case FL_RULE_##KIND:                                                       \
        break;
#define FL_ROW_RULE(KIND, name, n_row, ...)                                    \
    case FL_RULE_##KIND:                                                       \
        return fl_weight_##name(&all, &r, w, d);
#include "runtime/optim/rules.def"
    }
    return w;
}
