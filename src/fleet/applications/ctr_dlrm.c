/* ctr_dlrm.c - DLRM: layers on the numbers, dots of all pairs of vectors,
 * layers on both. */
#include <fleet/interactions.h>

#include "fleet/applications/ctr_internal.h"

/* The numbers as one vector more. */
static fleet_var *bottom(fl_ctr *c)
{
    static const int64_t paddle[] = {512, 256, 64};
    fleet_var *x;

    if (!c->numbers)
        return NULL;
    x = fl_model_hidden(c->p, c->numbers, "bottom",
                        c->o.bottom ? c->o.bottom : paddle,
                        c->o.bottom ? c->o.n_bottom : 3, FLEET_RELU);
    return fl_model_layer(c->p, x, "bottom_out", c->o.embedding_dim,
                          FLEET_RELU);
}

static void dlrm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {512, 256};
    const fleet_initializer first = {FLEET_INIT_DEFAULT, 0, 0};
    int64_t dim = c->o.embedding_dim, n = c->n_field + (c->numbers != NULL);
    fleet_var *x[2] = {bottom(c), NULL};
    fleet_var *e = fl_ctr_rows(c, dim, "", first, x[0]);

    e = fleet_reshape(c->p, e, (int64_t[]){-1, n, dim}, 3);
    x[1] = fleet_pairwise_dot(c->p, e, c->o.self_interaction);
    e = x[0] ? fleet_concat(c->p, x, 2, 1) : x[1];
    fl_model_finish_binary(c->p, fl_ctr_tower(c, e, hidden, 2, 1), &c->weights,
                           m);
}

const fl_ctr_model fl_model_dlrm = {.name = "dlrm",
                                    .own = {"embedding_dim", "hidden", "bottom",
                                            "self_interaction", "pos_weight"},
                                    .embedding_dim = 16,
                                    .build = dlrm};
