/* rule_formulas.h - the arithmetic of the update rules, once for the vectors of
 * CPUs (rule_simd.c) and the threads of GPUs (rule_cuda.h), so that both have
 * the same bits.
 *
 * The file that includes it has defined FL_FORMULA, which begins each function,
 * and from vec.h vf, v_set, v_add, v_sub, v_mul, v_div, v_sqrt, v_min and
 * v_max: a GPU's vector has one lane. fl_formula_NAME is the rule NAME of
 * rules.def: it turns a weight and its states into the new ones. Rules of whole
 * rows come in three pieces, see below.
 */
#pragma once

#include <math.h>

#include "runtime/optim/rule.h"

/* The scalars of an update, each in all lanes. What formulas derive from
 * numbers is in it, too: compilers do not move all of that out of a loop. */
typedef struct fl_spread {
    vf lr, scale, clip, decay, apart, correct_a, correct_b;
    bool shaped; /* by what follows */
    vf most, least, l1;
    vf number[FL_MAX_NUMBER];
    vf rest[FL_MAX_NUMBER]; /* 1 - number */
    bool flag[FL_MAX_NUMBER];
} fl_spread;

/* Weights with their states. */
typedef struct fl_rule_cell {
    vf w, s[FL_MAX_STATE];
} fl_rule_cell;

FL_FORMULA fl_spread fl_spread_of(const fl_update *u)
{
    fl_spread all;

    all.lr = v_set(u->lr);
    all.scale = v_set(u->scale);
    all.clip = v_set(u->clip);
    all.decay = v_set(u->decay);
    all.apart = v_set(u->apart);
    all.correct_a = v_set(u->correct_a);
    all.correct_b = v_set(u->correct_b);
    all.shaped = fl_update_is_shaped(u);
    all.most = v_set(u->most > 0.0f ? u->most : INFINITY);
    all.least = v_sub(v_set(0.0f), all.most);
    all.l1 = v_set(u->l1);
    for (int i = 0; i < FL_MAX_NUMBER; i++) {
        all.number[i] = v_set(u->number[i]);
        all.rest[i] = v_set(1.0f - u->number[i]);
        all.flag[i] = u->number[i] != 0.0f;
    }
    return all;
}

/* -1, 0 or 1: the least number above 0 times 2^200 is above 1. */
FL_FORMULA vf fl_formula_sign(vf w)
{
    vf large = v_mul(v_mul(w, v_set(0x1p100f)), v_set(0x1p100f));

    return v_min(v_set(1.0f), v_max(v_set(-1.0f), large));
}

/* The gradient that a rule uses. One that is NaN stays it. */
FL_FORMULA vf fl_formula_gradient_as(const fl_spread *u, vf g, vf w,
                                     bool shaped)
{
    vf d = v_mul(v_mul(g, u->scale), u->clip);

    if (shaped)
        d = v_min(u->most, v_max(u->least, d));
    d = v_add(d, v_mul(u->decay, w));
    return shaped ? v_add(d, v_mul(u->l1, fl_formula_sign(w))) : d;
}

FL_FORMULA vf fl_formula_gradient(const fl_spread *u, vf g, vf w)
{
    return fl_formula_gradient_as(u, g, w, u->shaped);
}

FL_FORMULA void fl_formula_sgd(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);

    x->w = v_sub(x->w, v_mul(u->lr, d));
}

FL_FORMULA void fl_formula_momentum(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf mu = FL_NUMBER_OF(u, MOMENTUM, momentum);
    vf v = v_add(v_mul(mu, x->s[0]), d);

    x->s[0] = v;
    if (u->flag[FL_AT_MOMENTUM_nesterov])
        v = v_add(d, v_mul(mu, v));
    x->w = v_sub(x->w, v_mul(u->lr, v));
}

FL_FORMULA void fl_formula_adagrad(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf sum = v_add(x->s[0], v_mul(d, d));
    vf below = v_add(v_sqrt(sum), FL_NUMBER_OF(u, ADAGRAD, epsilon));

    x->s[0] = sum;
    x->w = v_sub(x->w, v_div(v_mul(u->lr, d), below));
}

/* Adam's step: what the rate is multiplied by, and what divides it. */
typedef struct fl_fraction {
    vf above, below;
} fl_fraction;

FL_FORMULA fl_fraction fl_formula_moments(const fl_spread *u, fl_rule_cell *x,
                                          vf d)
{
    vf beta1 = FL_NUMBER_OF(u, ADAM, beta1);
    vf beta2 = FL_NUMBER_OF(u, ADAM, beta2);
    vf m = v_add(v_mul(beta1, x->s[0]), v_mul(u->rest[FL_AT_ADAM_beta1], d));
    vf v = v_add(v_mul(beta2, x->s[1]),
                 v_mul(u->rest[FL_AT_ADAM_beta2], v_mul(d, d)));
    fl_fraction f;

    x->s[0] = m;
    x->s[1] = v;
    f.above = v_mul(m, u->correct_a);
    f.below =
        v_add(v_sqrt(v_mul(v, u->correct_b)), FL_NUMBER_OF(u, ADAM, epsilon));
    return f;
}

FL_FORMULA void fl_formula_adam(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    fl_fraction f = fl_formula_moments(u, x, d);

    x->w = v_sub(x->w, v_div(v_mul(u->lr, f.above), f.below));
}

/* Loshchilov, Hutter 2019, with their alpha in the rate: what the weight loses
 * by itself is not in the moments. */
FL_FORMULA void fl_formula_adamw(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    fl_fraction f = fl_formula_moments(u, x, d);
    vf lost = v_mul(FL_NUMBER_OF(u, ADAMW, weight_decay), x->w);

    x->w = v_sub(x->w, v_mul(u->lr, v_add(v_div(f.above, f.below), lost)));
}

/* The largest gradient, fading, in place of their mean square. Epsilon is added
 * behind the maximum, so that a state of 0 stays 0; PyTorch adds it before. */
FL_FORMULA void fl_formula_adamax(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf m = v_add(v_mul(FL_NUMBER_OF(u, ADAMAX, beta1), x->s[0]),
                 v_mul(u->rest[FL_AT_ADAMAX_beta1], d));
    vf size = v_max(v_sub(v_set(0.0f), d), d);
    vf most = v_max(v_mul(FL_NUMBER_OF(u, ADAMAX, beta2), x->s[1]), size);
    vf below = v_add(most, FL_NUMBER_OF(u, ADAMAX, epsilon));

    x->s[0] = m;
    x->s[1] = most;
    x->w = v_sub(x->w, v_div(v_mul(u->lr, v_mul(m, u->correct_a)), below));
}

/* The mean square of gradients, or of steps: what was, fading, and x. */
FL_FORMULA vf fl_formula_fade(vf keeps, vf rest, vf was, vf x)
{
    return v_add(v_mul(keeps, was), v_mul(rest, x));
}

FL_FORMULA void fl_formula_adadelta(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf rho = FL_NUMBER_OF(u, ADADELTA, rho);
    vf rest = u->rest[FL_AT_ADADELTA_rho];
    vf epsilon = FL_NUMBER_OF(u, ADADELTA, epsilon);
    vf square = fl_formula_fade(rho, rest, x->s[0], v_mul(d, d));
    vf step = v_mul(
        v_div(v_sqrt(v_add(x->s[1], epsilon)), v_sqrt(v_add(square, epsilon))),
        d);

    x->s[0] = square;
    x->s[1] = fl_formula_fade(rho, rest, x->s[1], v_mul(step, step));
    x->w = v_sub(x->w, v_mul(u->lr, step));
}

FL_FORMULA void fl_formula_rmsprop(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf square =
        fl_formula_fade(FL_NUMBER_OF(u, RMSPROP, alpha),
                        u->rest[FL_AT_RMSPROP_alpha], x->s[0], v_mul(d, d));
    vf below = v_add(v_sqrt(square), FL_NUMBER_OF(u, RMSPROP, epsilon));

    x->s[0] = square;
    x->w = v_sub(x->w, v_div(v_mul(u->lr, d), below));
}

FL_FORMULA void fl_formula_rmsprop_momentum(const fl_spread *u, fl_rule_cell *x,
                                            vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf square = fl_formula_fade(FL_NUMBER_OF(u, RMSPROP_MOMENTUM, alpha),
                                u->rest[FL_AT_RMSPROP_MOMENTUM_alpha], x->s[0],
                                v_mul(d, d));
    vf below =
        v_add(v_sqrt(square), FL_NUMBER_OF(u, RMSPROP_MOMENTUM, epsilon));

    x->s[0] = square;
    x->s[1] = v_add(v_mul(FL_NUMBER_OF(u, RMSPROP_MOMENTUM, momentum), x->s[1]),
                    v_div(d, below));
    x->w = v_sub(x->w, v_mul(u->lr, x->s[1]));
}

/* A variance that rounding leaves below 0 is 0; a NaN stays one. */
FL_FORMULA void fl_formula_rmsprop_centered(const fl_spread *u, fl_rule_cell *x,
                                            vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf alpha = FL_NUMBER_OF(u, RMSPROP_CENTERED, alpha);
    vf rest = u->rest[FL_AT_RMSPROP_CENTERED_alpha];
    vf square = fl_formula_fade(alpha, rest, x->s[0], v_mul(d, d));
    vf mean = fl_formula_fade(alpha, rest, x->s[1], d);
    vf variance = v_max(v_set(0.0f), v_sub(square, v_mul(mean, mean)));
    vf below =
        v_add(v_sqrt(variance), FL_NUMBER_OF(u, RMSPROP_CENTERED, epsilon));

    x->s[0] = square;
    x->s[1] = mean;
    x->w = v_sub(x->w, v_div(v_mul(u->lr, d), below));
}

/* The sum before this gradient divides: the first step is not cut. */
FL_FORMULA void fl_formula_std_adagrad(const fl_spread *u, fl_rule_cell *x,
                                       vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf first = FL_NUMBER_OF(u, STD_ADAGRAD, initial_g2sum);
    vf cut = v_sqrt(v_div(first, v_add(first, x->s[0])));

    x->s[0] = v_add(x->s[0], v_mul(d, d));
    x->w = v_sub(x->w, v_mul(v_mul(u->lr, d), cut));
}

/* w = (clamp(z) - z) / ...: a z within l1 is its own clamp, so that w is
 * exactly 0, and a NaN stays one. */
FL_FORMULA void fl_formula_ftrl(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf l1 = FL_NUMBER_OF(u, FTRL, l1);
    vf n = v_add(x->s[1], v_mul(d, d)), root = v_sqrt(n);
    vf sigma = v_div(v_sub(root, v_sqrt(x->s[1])), u->lr);
    vf z = v_add(x->s[0], v_sub(d, v_mul(sigma, x->w)));
    vf clamped = v_min(v_max(z, v_sub(v_set(0.0f), l1)), l1);
    vf below = v_add(v_div(v_add(FL_NUMBER_OF(u, FTRL, beta), root), u->lr),
                     FL_NUMBER_OF(u, FTRL, l2));

    x->s[0] = z;
    x->s[1] = n;
    x->w = v_div(v_sub(clamped, z), below);
}

/* --- rules of whole rows --------------------------------------------------
 *
 * fl_terms_NAME makes of each gradient d what is averaged over the row,
 * fl_state_NAME of the means the row's new numbers, and fl_weight_NAME then the
 * weights. The mean is the sum of FL_ROW_LANES partial sums, of columns that
 * are as many apart, halves added until one is left, divided by dim: the same
 * on all instruction sets and on GPUs. */

enum { FL_ROW_LANES = 16 };

/* A row's numbers before and after the update, and the means of its terms. */
typedef struct fl_row_numbers {
    float was[FL_MAX_ROW], mean[FL_MAX_ROW], now[FL_MAX_ROW];
} fl_row_numbers;

typedef struct fl_row_terms {
    vf of[FL_MAX_ROW];
} fl_row_terms;

FL_FORMULA fl_row_terms fl_terms_rowwise_adagrad(const fl_spread *u,
                                                 const fl_row_numbers *r, vf d)
{
    fl_row_terms t;

    (void)u;
    (void)r;
    t.of[0] = v_mul(d, d);
    return t;
}

FL_FORMULA void fl_state_rowwise_adagrad(fl_row_numbers *r)
{
    r->now[0] = r->was[0] + r->mean[0];
}

FL_FORMULA vf fl_weight_rowwise_adagrad(const fl_spread *u,
                                        const fl_row_numbers *r, vf w, vf d)
{
    vf first = FL_NUMBER_OF(u, ROWWISE_ADAGRAD, initial_g2sum);
    vf step = v_mul(u->lr, d);

    if (u->flag[FL_AT_ROWWISE_ADAGRAD_initial_g2sum])
        return v_sub(
            w,
            v_mul(step, v_sqrt(v_div(first, v_add(first, v_set(r->was[0]))))));
    return v_sub(w,
                 v_div(step, v_add(v_sqrt(v_set(r->now[0])),
                                   FL_NUMBER_OF(u, ROWWISE_ADAGRAD, epsilon))));
}

/* Adam's moments of a weight whose moments before are the row's. */
FL_FORMULA fl_row_terms fl_terms_shared_adam(const fl_spread *u,
                                             const fl_row_numbers *r, vf d)
{
    fl_rule_cell x;
    fl_row_terms t;

    x.s[0] = v_set(r->was[0]);
    x.s[1] = v_set(r->was[1]);
    fl_formula_moments(u, &x, d);
    t.of[0] = x.s[0];
    t.of[1] = x.s[1];
    return t;
}

FL_FORMULA void fl_state_shared_adam(fl_row_numbers *r)
{
    r->now[0] = r->mean[0];
    r->now[1] = r->mean[1];
}

FL_FORMULA vf fl_weight_shared_adam(const fl_spread *u, const fl_row_numbers *r,
                                    vf w, vf d)
{
    fl_rule_cell x;
    fl_fraction f;

    x.s[0] = v_set(r->was[0]);
    x.s[1] = v_set(r->was[1]);
    f = fl_formula_moments(u, &x, d);
    return v_sub(w, v_div(v_mul(u->lr, f.above), f.below));
}

/* --- what strategy.lars and strategy.lamb make of momentum and adam ------- */

/* The rate, which is a layer's own, goes into the velocity. */
FL_FORMULA void fl_formula_lars(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    vf v = v_add(v_mul(FL_NUMBER_OF(u, MOMENTUM, momentum), x->s[0]),
                 v_mul(u->lr, d));

    x->s[0] = v;
    x->w = v_sub(x->w, v);
}

/* w becomes the direction of the step; its length is known once the directions
 * of the whole layer are. */
FL_FORMULA void fl_formula_lamb(const fl_spread *u, fl_rule_cell *x, vf g)
{
    vf d = fl_formula_gradient(u, g, x->w);
    fl_fraction f = fl_formula_moments(u, x, d);

    x->w = v_add(v_div(f.above, f.below), v_mul(u->apart, x->w));
}
