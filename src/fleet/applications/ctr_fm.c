/* ctr_fm.c - models of factorization machines: DeepFM. */
#include <math.h>

#include "fleet/applications/ctr_internal.h"

/* Half of (the square of the sum - the sum of squares), summed over the vector:
 * all products of two fields. */
static fleet_var *second_order(fl_ctr *c, fleet_var *e, int64_t n, int64_t dim)
{
    fleet_program *p = c->p;
    fleet_var *x = fleet_reshape(p, e, (int64_t[]){-1, n, dim}, 3);
    fleet_var *of_sum = fleet_square(p, fleet_reduce_sum(p, x, 1, 0));
    fleet_var *of_each = fleet_reduce_sum(p, fleet_square(p, x), 1, 0);
    fleet_var *both = fleet_sub(p, of_sum, of_each);

    return fleet_scale(p, fleet_reduce_sum(p, both, 1, 1), 0.5f, 0);
}

static void deepfm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {400, 400, 400};
    int64_t dim = c->o.embedding_dim;
    fleet_initializer first = {FLEET_INIT_TRUNCATED_NORMAL, 0,
                               (float)(0.1 / sqrt((double)dim))};
    fleet_var *linear = fleet_reduce_sum(
        c->p, fl_ctr_fields(c, 1, "_first", "dense_first", first), 1, 1);
    fleet_var *e = fl_ctr_fields(c, dim, "", "dense_second", first);
    fleet_var *logit = fl_ctr_tower(c, e, hidden, 3, 1);

    logit = fleet_add(c->p, logit, second_order(c, e, fl_ctr_n_field(c), dim));
    fl_model_finish_binary(c->p, fleet_add(c->p, logit, linear), c->weight, m);
}

const fl_ctr_model fl_model_deepfm = {.name = "deepfm",
                                      .own = {"embedding_dim", "hidden"},
                                      .embedding_dim = 9,
                                      .build = deepfm};
