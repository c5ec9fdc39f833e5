/* ctr_dcn.c - deep & cross networks, of the first and the second version. */
#include <stdio.h>

#include <fleet/interactions.h>

#include "fleet/applications/ctr_internal.h"

static int64_t n_cross(const fl_ctr *c)
{
    return c->o.cross_layers ? c->o.cross_layers : 2;
}

static void finish_beside(fl_ctr *c, fleet_var *deep, fleet_var *cross,
                          fleet_model *m)
{
    fleet_var *both[] = {deep, cross};
    fleet_var *x = fleet_concat(c->p, both, 2, 1);

    x = fl_model_layer(c->p, x, "tower_out", 1, FLEET_LINEAR);
    fl_model_finish_binary(c->p, x, &c->weights, m);
}

static void dcn(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {512, 256, 128};
    fleet_var *x0 = fl_ctr_input(c), *x = x0;
    char name[32];

    for (int64_t i = 0; i < n_cross(c); i++) {
        snprintf(name, sizeof name, "cross_%lld", (long long)i);
        x = fleet_cross_layer(c->p, x0, x, name);
    }
    finish_beside(c, fl_ctr_hidden(c, x0, hidden, 3), x, m);
}

/* The numbers become as many vectors by a layer. */
static fleet_var *input_of_vectors(fl_ctr *c)
{
    const fleet_initializer first = {FLEET_INIT_DEFAULT, 0, 0};
    int64_t dim = c->o.embedding_dim;
    fleet_var *numbers = NULL;

    if (c->numbers)
        numbers = fl_model_layer(c->p, c->numbers, "dense", c->dense_dim * dim,
                                 FLEET_LINEAR);
    return fl_ctr_rows(c, dim, "", first, numbers);
}

static void dcn_v2(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {768, 768};
    fleet_cross_options o = {.low_rank = c->o.low_rank,
                             .experts = c->o.experts};
    fleet_var *x0 = input_of_vectors(c), *x = x0;
    char name[32];

    o.name = name;
    for (int64_t i = 0; i < n_cross(c); i++) {
        snprintf(name, sizeof name, "cross_%lld", (long long)i);
        x = fleet_cross_layer_v2(c->p, x0, x, &o);
    }
    if (c->o.parallel)
        finish_beside(c, fl_ctr_hidden(c, x0, hidden, 2), x, m);
    else
        fl_model_finish_binary(c->p, fl_ctr_tower(c, x, hidden, 2, 1),
                               &c->weights, m);
}

const fl_ctr_model fl_model_dcn = {
    .name = "dcn",
    .own = {"embedding_dim", "hidden", "cross_layers", "pos_weight"},
    .embedding_dim = 9,
    .build = dcn};
const fl_ctr_model fl_model_dcn_v2 = {
    .name = "dcn_v2",
    .own = {"embedding_dim", "hidden", "cross_layers", "low_rank", "experts",
            "parallel", "pos_weight"},
    .embedding_dim = 40,
    .build = dcn_v2};
