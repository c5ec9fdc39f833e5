/* ctr_autoint.c - AutoInt: self-attention over the vectors of all fields. */
#include <stdio.h>

#include <fleet/interactions.h>

#include "fleet/applications/ctr_internal.h"

/* What fields make of each other, [B, F, units]. */
static fleet_var *interact(fl_ctr *c, fleet_var *x, int64_t units, int i)
{
    fleet_program *p = c->p;
    char name[32], other[48];
    fleet_attention_options o = {.name = name,
                                 .heads = c->o.heads ? c->o.heads : 2,
                                 .units = units,
                                 .activation = FLEET_RELU,
                                 .no_bias = 1,
                                 .no_out = 1};
    fleet_fc_options rest = {.name = other,
                             .activation = FLEET_RELU,
                             .no_bias = 1,
                             .num_flatten_dims = 2};
    fleet_layer_norm_options norm = {
        .name = other, .begin_norm_axis = 2, .epsilon = 1e-8f};
    fleet_var *y;

    snprintf(name, sizeof name, "attention_%d", i);
    y = fleet_multi_head_attention(p, x, NULL, NULL, &o);
    if (!c->o.no_residual) {
        snprintf(other, sizeof other, "%s_residual", name);
        y = fleet_add(p, y, fleet_fc(p, x, units, &rest));
    }
    snprintf(other, sizeof other, "%s_norm", name);
    return fleet_layer_norm(p, fleet_relu(p, y), &norm);
}

static void autoint(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {400, 400, 400}, paddle[] = {64, 64, 64};
    const int64_t *units = c->o.attention ? c->o.attention : paddle;
    int64_t n = fl_ctr_n_field(c), dim = c->o.embedding_dim;
    int n_layer = c->o.attention ? c->o.n_attention : 3;
    fleet_var *e = fl_ctr_vectors(c, dim), *x, *logit;

    x = fleet_reshape(c->p, e, (int64_t[]){-1, n, dim}, 3);
    for (int i = 0; i < n_layer; i++) {
        dim = units[i];
        x = interact(c, x, dim, i);
    }
    x = fleet_reshape(c->p, x, (int64_t[]){-1, n * dim}, 2);
    logit = fl_model_layer(c->p, x, "attention_out", 1, FLEET_LINEAR);
    if (!c->o.hidden || c->o.n_hidden > 0)
        logit = fleet_add(c->p, logit, fl_ctr_tower(c, e, hidden, 3, 1));
    fl_model_finish_binary(c->p, logit, &c->weights, m);
}

const fl_ctr_model fl_model_autoint = {.name = "autoint",
                                       .own = {"embedding_dim", "hidden",
                                               "attention", "heads",
                                               "no_residual", "pos_weight"},
                                       .embedding_dim = 16,
                                       .build = autoint};
