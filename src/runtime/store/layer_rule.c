/* layer_rule.c - the arithmetic of LARS and LAMB, see the header.
 *
 * LARS (You, Gitman, Ginsburg 2017, arXiv:1708.03888), with g as a rule uses
 * it, rule.h:
 *
 *   v = mu v + rate (g + decay w);  w -= v
 *   rate = lr coeff |w| / (|g| + decay |w| + epsilon)
 *
 * LAMB (You et al. 2019, arXiv:1904.00962, with corrected moments):
 *
 *   r = Adam's step + decay w;  w -= lr |w| / |r| r
 */
#include "runtime/store/layer_rule.h"

#include <math.h>

#include "runtime/optim/optimizer.h"
#include "runtime/simd/simd.h"
#include "runtime/store/norm.h"

/* Formulas of one element. */
#define FL_FORMULA static inline
#define FL_WORD    FL_FORMULA
typedef float vf;

#include "runtime/simd/one_lane.h"
#include "runtime/optim/rule_formulas.h"

fl_layer fl_layer_of(const fl_layerwise *how, const fleet_param_attr *attr)
{
    return (fl_layer){
        .rates = fl_update_rates_of(attr),
        .decay = attr->no_decay ? 0 : how->decay,
        .no_decay = attr->no_decay != 0,
    };
}

float fl_layer_ratio(const fl_layerwise *how, const fl_layer *l,
                     const fl_squares *block)
{
    fl_squares sum = {0};

    for (int i = l->first; i < l->first + l->n; i++) {
        sum.weights += block[i].weights;
        sum.step += block[i].step;
    }
    return (float)fl_layer_ratio_of(how, l, sqrt(sum.weights), sqrt(sum.step));
}

/* --- LARS ---------------------------------------------------------------- */

/* Of the gradient as the rule uses it. */
static double square_sum_used(const fl_update *u, const float *w,
                              const float *g, int64_t n)
{
    const fl_spread all = fl_spread_of(u);
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)fl_formula_gradient(&all, g[i], w[i]);

        sum += x * x;
    }
    return sum;
}

fl_squares fl_lars_squares(const fl_update *u, const float *w, const float *g,
                           int64_t n)
{
    return (fl_squares){fl_square_sum(w, n, 1), square_sum_used(u, w, g, n)};
}

void fl_lars_update(const fl_update *u, const fl_layer *l, float ratio,
                    float *w, const float *g, float *velocity, int64_t n)
{
    fl_update own = *u;

    if (l->rates.average > 0) {
        fl_rule_set_best()->of[FL_RULE_SGD].dense(u, w, g, &velocity, n);
        return;
    }
    own.lr *= ratio;
    own.decay += l->decay;
    fl_rule_set_best()->lars(&own, w, g, &velocity, n);
}

/* --- LAMB ---------------------------------------------------------------- */

/* SGD's, of a moving average: its ratio is 1, as it has no squares. */
static void average_step(const fl_update *u, const float *w, const float *g,
                         float *step, int64_t n)
{
    const fl_spread with = fl_spread_of(u);

    for (int64_t i = 0; i < n; i++)
        step[i] = fl_formula_gradient(&with, g[i], w[i]);
}

fl_squares fl_lamb_step(const fl_update *u, const fl_layer *l, float *w,
                        const float *g, float *const moment[2], float *step,
                        int64_t n)
{
    fl_update own = *u;

    if (l->rates.average > 0) {
        average_step(u, w, g, step, n);
        return (fl_squares){0};
    }
    own.apart = l->decay;
    fl_rule_set_best()->lamb(&own, w, g,
                             (float *[]){moment[0], moment[1], step}, n);
    return (fl_squares){fl_square_sum(w, n, 1), fl_square_sum(step, n, 1)};
}

void fl_lamb_update(const fl_update *u, float ratio, float *w,
                    const float *step, int64_t n)
{
    fl_simd_best()->add_scaled(w, step, -(u->lr * ratio), 0, n);
}
