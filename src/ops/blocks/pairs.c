/* pairs.c - what is made of pairs of fields: factorization machines, dots, and
 * compressed interaction networks. */
#include <fleet/interactions.h>
#include <math.h>
#include <stdio.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

/* n_dim dimensions, of which all in front of the last are fields. */
static bool is_ready(fleet_program *p, const char *layer, const fleet_var *x,
                     int n_dim, const char *shape, int64_t least)
{
    bool good;

    if (!fl_builder_ready(p, x))
        return false;
    good = x->dtype == FLEET_FLOAT32 && !x->ragged && x->shape.n_dim == n_dim &&
           fl_shape_batched(&x->shape);
    for (int i = 1; good && i < n_dim - 1; i++)
        good = x->shape.dim[i] == x->shape.dim[1] && x->shape.dim[i] >= least;
    if (!good)
        fl_program_failed(
            p, fl_fail(FLEET_ESHAPE,
                       "%s: \"%s\" has shape %s; expected %s of float32, F at "
                       "least %lld",
                       layer, x->name, fl_shape_print(&x->shape).chars, shape,
                       (long long)least));
    return good;
}

/* The square of the sum less the sum of the squares: twice the pairs. */
static fleet_var *twice_the_pairs(fleet_program *p, fleet_var *x)
{
    fleet_var *of_sum = fleet_square(p, fleet_reduce_sum(p, x, 1, 0));
    fleet_var *of_each = fleet_reduce_sum(p, fleet_square(p, x), 1, 0);

    return fleet_sub(p, of_sum, of_each);
}

fleet_var *fleet_bi_interaction(fleet_program *p, fleet_var *x)
{
    return is_ready(p, "bi_interaction", x, 3, "[-1,F,D]", 1)
               ? fleet_scale(p, twice_the_pairs(p, x), 0.5f, 0)
               : NULL;
}

fleet_var *fleet_fm_interaction(fleet_program *p, fleet_var *x)
{
    return is_ready(p, "fm_interaction", x, 3, "[-1,F,D]", 1)
               ? fleet_scale(p,
                             fleet_reduce_sum(p, twice_the_pairs(p, x), 1, 1),
                             0.5f, 0)
               : NULL;
}

fleet_var *fleet_ffm_interaction(fleet_program *p, fleet_var *x)
{
    static const int perm[] = {0, 2, 1, 3};
    fleet_var *y;

    if (!is_ready(p, "ffm_interaction", x, 4, "[-1,F,F,D]", 2))
        return NULL;
    y = fleet_mul(p, x, fleet_transpose(p, x, perm, 4));
    y = fleet_lower_triangle(p, fleet_reduce_sum(p, y, 3, 0), 0);
    return fleet_reduce_sum(p, y, 1, 1);
}

fleet_var *fleet_pairwise_dot(fleet_program *p, fleet_var *x, int self)
{
    if (!is_ready(p, "pairwise_dot", x, 3, "[-1,F,D]", self ? 1 : 2))
        return NULL;
    return fleet_lower_triangle(p, fleet_batch_matmul(p, x, x, 0, 1), self);
}

/* --- compressed interaction networks -------------------------------------- */

enum { MOST_LAYERS = 64 };

/* Of x0 and x, turned over: [B, D, F] and [B, D, H]. */
static fleet_var *cin_layer(fleet_program *p, fleet_var *x0, fleet_var *x,
                            int64_t units, const char *name)
{
    int64_t d, f, h;
    fleet_fc_options o = {.name = name, .no_bias = 1, .num_flatten_dims = 2};
    fleet_var *z;

    if (!fl_builder_ready(p, x0) || !fl_builder_ready(p, x))
        return NULL;
    d = x0->shape.dim[1], f = x0->shape.dim[2], h = x->shape.dim[2];
    o.weight.initializer = (fleet_initializer){
        FLEET_INIT_NORMAL, 0, (float)(1 / sqrt((double)(f * h)))};
    z = fleet_mul(p, fleet_reshape(p, x0, (int64_t[]){-1, d, f, 1}, 4),
                  fleet_reshape(p, x, (int64_t[]){-1, d, 1, h}, 4));
    z = fleet_reshape(p, z, (int64_t[]){-1, d, f * h}, 3);
    return fleet_fc(p, z, units, &o);
}

fleet_var *fleet_cin(fleet_program *p, fleet_var *x, const int64_t *units,
                     int n, const char *name)
{
    static const int perm[] = {0, 2, 1};
    fleet_var *sum[MOST_LAYERS], *x0;
    char layer[80];

    if (!is_ready(p, "cin", x, 3, "[-1,F,D]", 1))
        return NULL;
    if (!units || n < 1 || n > MOST_LAYERS) {
        fl_fail(FLEET_EINVAL, "cin: %d layers, or units NULL; expected 1 to %d",
                n, MOST_LAYERS);
        return fl_program_failed(p, FLEET_EINVAL);
    }
    name = name ? name : fl_program_name(p, "cin");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    x = x0 = fleet_transpose(p, x, perm, 3);
    for (int i = 0; i < n; i++) {
        snprintf(layer, sizeof layer, "%s_%d", name, i);
        x = cin_layer(p, x0, x, units[i], layer);
        sum[i] = fleet_reduce_sum(p, x, 1, 0);
    }
    return fleet_concat(p, sum, n, 1);
}
