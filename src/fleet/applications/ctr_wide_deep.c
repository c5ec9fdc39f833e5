/* ctr_wide_deep.c - wide & deep, and ctr-dnn: a tower on embeddings and
 * numbers. */
#include <math.h>

#include "fleet/applications/ctr_internal.h"

static const int64_t paddle[] = {512, 256, 128, 32};

/* One weight per id, summed over the slots. */
static fleet_var *wide_of_ids(fl_ctr *c)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};

    return fleet_reduce_sum(c->p, fl_ctr_rows(c, 1, "_wide", zero, NULL), 1, 1);
}

static void wide_deep(fl_ctr *c, fleet_model *m)
{
    fleet_fc_options o = {.name = "wide"};
    fleet_var *logit = fl_ctr_tower(c, fl_ctr_input(c), paddle, 4, 1);

    if (c->numbers) {
        o.weight.initializer =
            (fleet_initializer){FLEET_INIT_TRUNCATED_NORMAL, 0,
                                (float)(1 / sqrt((double)c->dense_dim))};
        logit = fleet_add(c->p, logit, fleet_fc(c->p, c->numbers, 1, &o));
    }
    if (c->o.wide_ids)
        logit = fleet_add(c->p, logit, wide_of_ids(c));
    fl_model_finish_binary(c->p, logit, &c->weights, m);
}

static void ctr_dnn(fl_ctr *c, fleet_model *m)
{
    fl_model_finish_classes(
        c->p, fl_ctr_tower(c, fl_ctr_input(c), paddle, 4, 2), &c->weights, m);
}

const fl_ctr_model fl_model_wide_deep = {
    .name = "wide_deep",
    .own = {"embedding_dim", "hidden", "wide_ids", "pos_weight"},
    .embedding_dim = 9,
    .build = wide_deep};
const fl_ctr_model fl_model_ctr_dnn = {
    .name = "ctr_dnn",
    .own = {"embedding_dim", "hidden", "class_weights"},
    .classes = true,
    .embedding_dim = 9,
    .build = ctr_dnn};
