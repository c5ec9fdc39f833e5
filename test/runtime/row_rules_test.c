/* row_rules_test.c - rules that keep numbers of whole rows: against plain loops
 * in double, bit by bit on every instruction set; bounds of weights. */
#define SUITE row_rules
#include "test.h"

#include <math.h>
#include <string.h>

#include <fleet/fleet.h>

#include "runtime/optim/optimizer.h"
#include "runtime/simd/simd.h"

enum { MOST_DIM = 70, ROWS = 3 };

typedef struct row {
    fl_row_head head;
    float w[MOST_DIM + FL_MAX_ROW];
} row;

static fleet *handle(void)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    return f;
}

enum { N_RULE = 5 };

static fleet_optimizer *rule(fleet *f, int i)
{
    static const fleet_rowwise_adagrad_options other = {1e-2f, 0.1f, 0};
    static const fleet_rowwise_adagrad_options fleets = {0, 0.2f, 0.5f};
    static const fleet_adam_options adam = {0.8f, 0.95f, 1e-3f, 0};
    static const fleet_adam_options row_adam = {0.7f, 0.9f, 1e-3f, 1};

    switch (i) {
    case 0:
        return fleet_rowwise_adagrad(f, 0.1f, NULL);
    case 1:
        return fleet_rowwise_adagrad(f, 0.1f, &other);
    case 2:
        return fleet_rowwise_adagrad(f, 0.1f, &fleets);
    case 3:
        return fleet_shared_adam(f, 0.01f, &adam);
    default:
        return fleet_shared_adam(f, 0.01f, &row_adam);
    }
}

/* In [-1, 1). */
static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898) * 0.99f;
}

static float gradient(int r, int i, int t)
{
    return noise(1000 + 90 * r + i + 997 * t);
}

static void start(row *x, const fleet_optimizer *o, int dim)
{
    memset(x, 0, ROWS * sizeof *x);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < dim; i++)
            x[r].w[i] = noise(r * 100 + i + 1);
        for (int j = 0; j < FL_MAX_ROW; j++)
            x[r].w[dim + j] = o->number[FL_FIRST_STATE];
    }
}

/* Row r is updated in every (r + 1)-th step; which ones in step t. */
static int choose(row *x, int dim, int t, float g[ROWS][MOST_DIM], float **to,
                  const float **from)
{
    int n = 0;

    for (int r = 0; r < ROWS; r++) {
        if (t % (r + 1))
            continue;
        for (int i = 0; i < dim; i++)
            g[r][i] = gradient(r, i, t);
        to[n] = x[r].w;
        from[n++] = g[r];
    }
    return n;
}

/* Of every other update. */
static const float most = 0.125f, l1 = 0.03125f;

static void step(const fleet_optimizer *o, const fl_simd *simd, row *x, int dim,
                 int t)
{
    float g[ROWS][MOST_DIM], *to[ROWS];
    const float *from[ROWS];
    int n = choose(x, dim, t, g, to, from);
    fl_update u;

    fl_optimizer_update(o, t, 1, &u);
    u.scale = 0.5f;
    u.clip = 0.75f;
    u.decay = 0.01f;
    u.most = t % 2 ? most : 0;
    u.l1 = t % 2 ? l1 : 0;
    fl_rule_set_on(simd)->of[o->kind].rows(&u, to, from, n, dim);
}

/* --- in double ------------------------------------------------------------ */

typedef struct reference {
    double w[MOST_DIM], s[FL_MAX_ROW];
    int steps;
} reference;

static void adagrad_in_double(const fleet_optimizer *o, reference *x,
                              const double *g, int dim)
{
    double g0 = (double)FL_NUMBER_OF(o, ROWWISE_ADAGRAD, initial_g2sum);
    double e = (double)FL_NUMBER_OF(o, ROWWISE_ADAGRAD, epsilon);
    double lr = (double)o->learning_rate, was = x->s[0];

    for (int i = 0; i < dim; i++)
        x->s[0] += g[i] * g[i] / dim;
    for (int i = 0; i < dim; i++)
        x->w[i] -= g0 > 0 ? lr * g[i] * sqrt(g0 / (g0 + was))
                          : lr * g[i] / (sqrt(x->s[0]) + e);
}

static void adam_in_double(const fleet_optimizer *o, reference *x,
                           const double *g, int dim, int t)
{
    double a = (double)o->number[0], b = (double)o->number[1];
    double e = (double)o->number[2], m = x->s[0], v = x->s[1];

    x->s[0] = x->s[1] = 0;
    for (int i = 0; i < dim; i++) {
        double mi = a * m + (1 - a) * g[i];
        double vi = b * v + (1 - b) * g[i] * g[i];

        x->w[i] -= (double)o->learning_rate * (mi / (1 - pow(a, t))) /
                   (sqrt(vi / (1 - pow(b, t))) + e);
        x->s[0] += mi / dim;
        x->s[1] += vi / dim;
    }
}

static void step_in_double(const fleet_optimizer *o, reference *x, int r,
                           int dim, int t)
{
    double g[MOST_DIM];
    bool own = fl_optimizer_has_row_steps(o);

    x->steps++;
    for (int i = 0; i < dim; i++) {
        double w = x->w[i];

        g[i] = (double)gradient(r, i, t) * 0.5 * 0.75;
        if (t % 2)
            g[i] = fmax(-(double)most, fmin((double)most, g[i])) +
                   (double)l1 * ((w > 0) - (w < 0));
        g[i] += (double)0.01f * w;
    }
    if (o->kind == FL_RULE_ROWWISE_ADAGRAD)
        adagrad_in_double(o, x, g, dim);
    else
        adam_in_double(o, x, g, dim, own ? x->steps : t + 1);
}

static void check_row(const fleet_optimizer *o, const row *x,
                      const reference *want, int dim)
{
    for (int i = 0; i < dim; i++)
        if (!(fabs((double)x->w[i] - want->w[i]) < 4e-5))
            test_fail(
                __FILE__, __LINE__, "%s, dim %d, weight %d: %.9g not %.9g",
                fl_rule_of(o->kind)->name, dim, i, (double)x->w[i], want->w[i]);
    for (int j = 0; j < fl_rule_of(o->kind)->n_row; j++)
        CHECK(fabs((double)x->w[dim + j] - want->s[j]) <
              1e-5 * (1 + fabs(want->s[j])));
    CHECK_INT(x->head.step, want->steps);
}

static void check_against_double(const fleet_optimizer *o, const fl_simd *simd,
                                 int dim)
{
    enum { STEPS = 60 };
    reference ref[ROWS] = {0};
    row x[ROWS];

    start(x, o, dim);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < dim; i++)
            ref[r].w[i] = (double)x[r].w[i];
        ref[r].s[0] = ref[r].s[1] = (double)o->number[FL_FIRST_STATE];
    }
    for (int t = 0; t < STEPS; t++) {
        step(o, simd, x, dim, t);
        for (int r = 0; r < ROWS; r++)
            if (t % (r + 1) == 0)
                step_in_double(o, &ref[r], r, dim, t);
    }
    for (int r = 0; r < ROWS; r++) {
        check_row(o, &x[r], &ref[r], dim);
        CHECK_INT(x[r].head.changed_at, STEPS / (r + 1) * (r + 1) - r);
    }
}

TEST(each_does_what_its_formula_says_over_many_steps)
{
    static const int dims[] = {1, 3, 8, 9, 16, 33, MOST_DIM};
    fleet *f = handle();

    for (int i = 0; i < N_RULE; i++)
        for (const fl_simd *const *t = fl_simd_all(); *t; t++)
            for (int d = 0; d < 7; d++)
                check_against_double(rule(f, i), *t, dims[d]);
    fleet_destroy(f);
}

/* --- bits ----------------------------------------------------------------- */

/* What lies behind a row's numbers is not its own. */
TEST(bits_are_the_same_on_every_instruction_set)
{
    fleet *f = handle();
    row want[ROWS], got[ROWS];

    for (int i = 0; i < N_RULE; i++)
        for (int dim = 1; dim <= MOST_DIM; dim++) {
            const fleet_optimizer *o = rule(f, i);
            int end = dim + fl_rule_of(o->kind)->n_row;

            start(want, o, dim);
            for (int t = 0; t < 5; t++)
                step(o, fl_simd_best(), want, dim, t);
            for (int r = 0; r < ROWS; r++)
                for (int k = end; k < MOST_DIM + FL_MAX_ROW; k++)
                    CHECK(
                        want[r].w[k] ==
                        (k < dim + FL_MAX_ROW ? o->number[FL_FIRST_STATE] : 0));
            for (const fl_simd *const *t = fl_simd_all(); *t; t++) {
                start(got, o, dim);
                for (int s = 0; s < 5; s++)
                    step(o, *t, got, dim, s);
                CHECK(memcmp(got, want, sizeof got) == 0);
            }
        }
    fleet_destroy(f);
}

TEST(a_gradient_that_is_no_number_reaches_the_row)
{
    fleet *f = handle();

    for (int i = 0; i < N_RULE; i++) {
        const fleet_optimizer *o = rule(f, i);
        float g[] = {0, NAN, 0}, *to;
        const float *from = g;
        row x[ROWS];
        fl_update u;

        start(x, o, 3);
        to = x[0].w;
        fl_optimizer_update(o, 0, 1, &u);
        fl_rule_set_best()->of[o->kind].rows(&u, &to, &from, 1, 3);
        CHECK(isnan(x[0].w[1]) && isnan(x[0].w[3]));
    }
    fleet_destroy(f);
}

/* --- bounds --------------------------------------------------------------- */

TEST(bounds_bring_weights_back_and_nothing_else)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (int dim = 1; dim <= MOST_DIM - 1; dim++) {
            float w[ROWS][MOST_DIM + 1], *at[ROWS];

            for (int r = 0; r < ROWS; r++) {
                at[r] = w[r];
                for (int i = 0; i <= dim; i++)
                    w[r][i] = i == dim ? 9 : 2 * noise(r * 50 + i);
            }
            w[1][dim / 2] = NAN;
            w[2][0] = -0.0f;
            fl_rule_set_on(*t)->bound(-0.5f, 1.25f, at, ROWS, dim);
            for (int r = 0; r < ROWS; r++)
                for (int i = 0; i < dim; i++) {
                    float was = 2 * noise(r * 50 + i);

                    if (r == 1 && i == dim / 2)
                        CHECK(isnan(w[r][i]));
                    else if (r == 2 && i == 0)
                        CHECK(w[r][i] == 0 && signbit(w[r][i]));
                    else
                        CHECK(w[r][i] == fminf(1.25f, fmaxf(-0.5f, was)));
                }
            CHECK(w[0][dim] == 9 && w[2][dim] == 9);
        }
}

/* Fleet's form has no epsilon: one that is set would do nothing. */
TEST(fleets_form_takes_no_epsilon)
{
    static const fleet_rowwise_adagrad_options both = {.epsilon = 0.5f,
                                                       .initial_g2sum = 3};
    fleet *f = handle();

    CHECK(fleet_rowwise_adagrad(f, 0.1f, &both) == NULL);
    CHECK_CONTAINS(fleet_last_error(),
                   "rowwise_adagrad: epsilon 0.5 beside initial_g2sum 3");
    fleet_destroy(f);
}

/* In a call 0 is the default; a configuration that says 0 means 0. */
TEST(a_configuration_cannot_say_0_where_0_is_another_number)
{
    for (int k = 0; k < FL_N_RULE; k++)
        for (int i = 0; i < FL_MAX_NUMBER; i++) {
            const fl_rule_number *n = &fl_rule_of((fl_rule_kind)k)->number[i];

            CHECK(!n->name || n->flag || n->otherwise == 0 || n->low > 0);
        }
}
