/* ctr_fm.c - models of factorization machines, from logistic regression,
 * which is their first order, on. */
#include <math.h>

#include <fleet/interactions.h>

#include "fleet/applications/ctr_internal.h"

/* A number for each id, and each number times one, summed. */
static fleet_var *first_order(fl_ctr *c, double deviation)
{
    fleet_initializer first = {FLEET_INIT_TRUNCATED_NORMAL, 0,
                               (float)deviation};

    return fleet_reduce_sum(
        c->p, fl_ctr_fields(c, 1, "_first", "dense_first", first), 1, 1);
}

static double deviation_of(int64_t dim)
{
    return 0.1 / sqrt((double)dim);
}

fleet_var *fl_ctr_linear(fl_ctr *c)
{
    return first_order(c, deviation_of(c->o.embedding_dim));
}

fleet_var *fl_ctr_vectors(fl_ctr *c, int64_t dim)
{
    fleet_initializer first = {FLEET_INIT_TRUNCATED_NORMAL, 0,
                               (float)deviation_of(c->o.embedding_dim)};

    return fl_ctr_fields(c, dim, "", "dense_second", first);
}

static fleet_var *add_bias(fl_ctr *c, fleet_var *logit)
{
    fleet_var *bias = fleet_parameter(
        c->p, (int64_t[]){1}, 1,
        &(fleet_param_attr){.name = "bias",
                            .initializer = {FLEET_INIT_CONSTANT, 0, 0}});

    return fleet_add(c->p, logit, bias);
}

static fleet_var *as_fields(fl_ctr *c, fleet_var *e)
{
    return fleet_reshape(
        c->p, e, (int64_t[]){-1, fl_ctr_n_field(c), c->o.embedding_dim}, 3);
}

/* --- the models ----------------------------------------------------------- */

static void logistic_regression(fl_ctr *c, fleet_model *m)
{
    fl_model_finish_binary(c->p, add_bias(c, first_order(c, 0.1)), &c->weights,
                           m);
}

static void fm(fl_ctr *c, fleet_model *m)
{
    fleet_var *linear = fl_ctr_linear(c);
    fleet_var *e = as_fields(c, fl_ctr_vectors(c, c->o.embedding_dim));
    fleet_var *logit = fleet_add(c->p, fleet_fm_interaction(c->p, e), linear);

    fl_model_finish_binary(c->p, add_bias(c, logit), &c->weights, m);
}

static void ffm(fl_ctr *c, fleet_model *m)
{
    int64_t n = fl_ctr_n_field(c), dim = c->o.embedding_dim;
    fleet_var *linear = fl_ctr_linear(c);
    fleet_var *e = fl_ctr_vectors(c, n * dim);
    fleet_var *logit;

    e = fleet_reshape(c->p, e, (int64_t[]){-1, n, n, dim}, 4);
    logit = fleet_add(c->p, fleet_ffm_interaction(c->p, e), linear);
    fl_model_finish_binary(c->p, add_bias(c, logit), &c->weights, m);
}

static void nfm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {64};
    fleet_var *linear = fl_ctr_linear(c);
    fleet_var *e = as_fields(c, fl_ctr_vectors(c, c->o.embedding_dim));
    fleet_var *logit =
        fl_ctr_tower(c, fleet_bi_interaction(c->p, e), hidden, 1, 1);

    fl_model_finish_binary(c->p, fleet_add(c->p, logit, linear), &c->weights,
                           m);
}

static void deepfm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {400, 400, 400};
    fleet_var *linear = fl_ctr_linear(c);
    fleet_var *e = fl_ctr_vectors(c, c->o.embedding_dim);
    fleet_var *logit = fl_ctr_tower(c, e, hidden, 3, 1);

    logit = fleet_add(c->p, logit, fleet_fm_interaction(c->p, as_fields(c, e)));
    fl_model_finish_binary(c->p, fleet_add(c->p, logit, linear), &c->weights,
                           m);
}

/* Linear and tower as DeepFM's; the compressed interactions have a layer of
 * their own behind them. */
static void xdeepfm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {400, 400}, paddle[] = {200, 200, 200};
    fleet_var *linear = fl_ctr_linear(c);
    fleet_var *e = fl_ctr_vectors(c, c->o.embedding_dim);
    fleet_var *logit = fl_ctr_tower(c, e, hidden, 2, 1);
    fleet_var *cin =
        fleet_cin(c->p, as_fields(c, e), c->o.cin ? c->o.cin : paddle,
                  c->o.cin ? c->o.n_cin : 3, "cin");

    cin = fl_model_layer(c->p, cin, "cin_out", 1, FLEET_LINEAR);
    logit = fleet_add(c->p, logit, cin);
    fl_model_finish_binary(c->p, fleet_add(c->p, logit, linear), &c->weights,
                           m);
}

const fl_ctr_model fl_model_logistic_regression = {
    .name = "logistic_regression",
    .own = {"pos_weight"},
    .build = logistic_regression};
const fl_ctr_model fl_model_fm = {.name = "fm",
                                  .own = {"embedding_dim", "pos_weight"},
                                  .embedding_dim = 9,
                                  .build = fm};
const fl_ctr_model fl_model_ffm = {.name = "ffm",
                                   .own = {"embedding_dim", "pos_weight"},
                                   .embedding_dim = 9,
                                   .build = ffm};
const fl_ctr_model fl_model_nfm = {
    .name = "nfm",
    .own = {"embedding_dim", "hidden", "pos_weight"},
    .embedding_dim = 9,
    .build = nfm};
const fl_ctr_model fl_model_deepfm = {
    .name = "deepfm",
    .own = {"embedding_dim", "hidden", "pos_weight"},
    .embedding_dim = 9,
    .build = deepfm};
const fl_ctr_model fl_model_xdeepfm = {
    .name = "xdeepfm",
    .own = {"embedding_dim", "hidden", "cin", "pos_weight"},
    .embedding_dim = 9,
    .build = xdeepfm};
