/* cross.c - cross layers, which are made of products and sums. */
#include <fleet/interactions.h>
#include <stdio.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

/* x0 and x are one matrix's shape, with a batch. */
static bool are_ready(fleet_program *p, const char *layer, const fleet_var *x0,
                      const fleet_var *x)
{
    if (!fl_builder_ready(p, x0) || !fl_builder_ready(p, x))
        return false;
    if (x0->dtype == FLEET_FLOAT32 && !x0->ragged && x0->shape.n_dim == 2 &&
        fl_shape_batched(&x0->shape) && fl_shape_equal(&x0->shape, &x->shape))
        return true;
    fl_program_failed(p,
                      fl_fail(FLEET_ESHAPE,
                              "%s: expected x0 and x [-1,N] of one shape, "
                              "got \"%s\" %s and \"%s\" %s",
                              layer, x0->name, fl_shape_print(&x0->shape).chars,
                              x->name, fl_shape_print(&x->shape).chars));
    return false;
}

static fleet_var *weights(fleet_program *p, const char *layer,
                          const char *suffix, int64_t rows, int64_t cols)
{
    const fl_shape shape = fl_shape_2(rows, cols);

    return fl_program_param(
        p, layer, suffix, &shape, NULL,
        (fleet_initializer){FLEET_INIT_XAVIER_UNIFORM, 0, 0});
}

static fleet_var *bias(fleet_program *p, const char *layer, int64_t n)
{
    const fl_shape shape = fl_shape_1(n);

    return fl_program_param(p, layer, "b", &shape, NULL,
                            (fleet_initializer){FLEET_INIT_CONSTANT, 0, 0});
}

fleet_var *fleet_cross_layer(fleet_program *p, fleet_var *x0, fleet_var *x,
                             const char *name)
{
    fleet_var *w, *b, *dot;
    int64_t n;

    if (!are_ready(p, "cross_layer", x0, x))
        return NULL;
    name = name ? name : fl_program_name(p, "cross");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    n = x->shape.dim[1];
    w = weights(p, name, "w", n, 1);
    b = bias(p, name, n);
    dot = fleet_matmul(p, x, w);
    return fleet_add(p, fleet_add(p, fleet_mul(p, x0, dot), b), x);
}

/* --- with a matrix -------------------------------------------------------- */

enum { MOST_EXPERTS = 64 };

static fleet_var *numbered(fleet_program *p, const char *name, char what,
                           int64_t i, int64_t rows, int64_t cols)
{
    char suffix[32];

    snprintf(suffix, sizeof suffix, "%c_%d", what, (int)i);
    return weights(p, name, suffix, rows, cols);
}

/* g_i tanh(tanh(x V_i) C_i), side by side. */
static fleet_var *of_experts(fleet_program *p, const char *name, fleet_var *x,
                             int64_t rank, int64_t n)
{
    int64_t in = x->shape.dim[1];
    fleet_var *part[MOST_EXPERTS];
    fleet_var *gates =
        fleet_softmax(p, fleet_matmul(p, x, weights(p, name, "gate", in, n)));

    for (int64_t i = 0; i < n; i++) {
        fleet_var *v = numbered(p, name, 'v', i, in, rank);
        fleet_var *y = fleet_tanh(p, fleet_matmul(p, x, v));

        v = numbered(p, name, 'c', i, rank, rank);
        y = fleet_tanh(p, fleet_matmul(p, y, v));
        part[i] = fleet_mul(p, y, fleet_slice(p, gates, 1, i, i + 1));
    }
    return fleet_concat(p, part, (int)n, 1);
}

/* x W, whole or of low rank. */
static fleet_var *product(fleet_program *p, const char *name, fleet_var *x,
                          const fleet_cross_options *o)
{
    int64_t n = x->shape.dim[1], rank = o->low_rank;

    if (rank == 0)
        return fleet_matmul(p, x, weights(p, name, "w", n, n));
    if (o->experts > 0) {
        x = of_experts(p, name, x, rank, o->experts);
        return fleet_matmul(p, x, weights(p, name, "u", o->experts * rank, n));
    }
    x = fleet_matmul(p, x, weights(p, name, "v", n, rank));
    return fleet_matmul(p, x, weights(p, name, "u", rank, n));
}

static fleet_status check_options(const fleet_cross_options *o, int64_t n)
{
    if (o->low_rank < 0 || o->low_rank > n)
        return fl_fail(FLEET_EINVAL,
                       "cross_layer_v2: low_rank %lld; expected 1 to %lld, or "
                       "0 for a whole matrix",
                       (long long)o->low_rank, (long long)n);
    if (o->experts != 0 && (o->experts < 2 || o->experts > MOST_EXPERTS))
        return fl_fail(FLEET_EINVAL,
                       "cross_layer_v2: experts %lld; expected 2 to %d, or 0 "
                       "for no mixture",
                       (long long)o->experts, MOST_EXPERTS);
    return o->experts > 0 && o->low_rank == 0
               ? fl_fail(FLEET_EINVAL,
                         "cross_layer_v2: experts %lld without low_rank: "
                         "experts are of low rank",
                         (long long)o->experts)
               : FLEET_OK;
}

fleet_var *fleet_cross_layer_v2(fleet_program *p, fleet_var *x0, fleet_var *x,
                                const fleet_cross_options *options)
{
    static const fleet_cross_options defaults;
    const fleet_cross_options *o = options ? options : &defaults;
    const char *name;
    fleet_var *y;
    int64_t n;

    if (!are_ready(p, "cross_layer_v2", x0, x))
        return NULL;
    n = x->shape.dim[1];
    if (check_options(o, n) != FLEET_OK)
        return fl_program_failed(p, FLEET_EINVAL);
    name = o->name ? o->name : fl_program_name(p, "cross");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    y = fleet_add(p, product(p, name, x, o), bias(p, name, n));
    return fleet_add(p, fleet_mul(p, x0, y), x);
}
