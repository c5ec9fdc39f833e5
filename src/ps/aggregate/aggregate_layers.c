/* aggregate_layers.c - blocks updated by LARS or LAMB (layer_rule.h): the lane
 * that has a block of a parameter has all of them (fl_block_bucket()), so it
 * knows the norms without a word to other lanes. */
#include "ps/aggregate/aggregate_internal.h"

#include "base/memory.h"

static bool steps_are_apart(const fl_aggregate *u)
{
    return u->layout->store->layerwise.rule == FL_LAMB;
}

fleet_status fl_aggregate_init_layers(fl_aggregate *u)
{
    if (u->layout->store->layerwise.rule == FL_NO_LAYERS)
        return FLEET_OK;
    FL_TRY(FL_NEW(&u->squares, ((size_t)u->n_block + 1) * sizeof *u->squares));
    for (int i = 0; steps_are_apart(u) && i < u->n_block; i++) {
        fl_aggregate_block *b = &u->block[i];

        FL_TRY(FL_NEW(&b->sum, (size_t)b->n * sizeof *b->sum));
    }
    return FLEET_OK;
}

/* A block with its states, as the formulas take it. */
typedef struct layer_block {
    fl_aggregate_block *b;
    float *w, *state[FL_MAX_STATE];
} layer_block;

static layer_block block_at(const fl_aggregate *u, int i)
{
    fl_aggregate_block *b = &u->block[i];
    const fl_flat *g = b->param->flat;
    int64_t at = fl_block_offset(b->param, b->block);
    layer_block k = {b, g->weight + at, {NULL}};

    for (int s = 0; s < FL_MAX_STATE; s++)
        if (g->state[s])
            k.state[s] = g->state[s] + at;
    return k;
}

/* Gradients may lie in what came, which stays as it is: LAMB's step goes where
 * sums are made. */
static fl_squares measure(const fl_aggregate *u, const fl_update *with,
                          const fl_layer *l, int i)
{
    layer_block k = block_at(u, i);

    if (!k.b->grad)
        return (fl_squares){0};
    if (!steps_are_apart(u))
        return fl_lars_squares(with, k.w, k.b->grad, k.b->n);
    return fl_lamb_step(with, l, k.w, k.b->grad, k.state, k.b->sum, k.b->n);
}

static void change(const fl_aggregate *u, const fl_update *with,
                   const fl_layer *l, float ratio, int i)
{
    layer_block k = block_at(u, i);

    if (!k.b->grad)
        return;
    if (steps_are_apart(u))
        fl_lamb_update(with, ratio, k.w, k.b->sum, k.b->n);
    else
        fl_lars_update(with, l, ratio, k.w, k.b->grad, k.state[0], k.b->n);
}

static void apply_layer(fl_aggregate *u, int param)
{
    const fleet_param_attr *attr = &u->layout->param[param]->attr;
    const fl_layerwise *how = &u->layout->store->layerwise;
    fl_update with = fl_update_with(&u->update, attr);
    fl_layer l = fl_layer_of(how, attr);
    int end = u->first_block[param + 1];
    float ratio;

    l.first = u->first_block[param];
    l.n = end - l.first;
    for (int i = l.first; i < end; i++)
        u->squares[i] = measure(u, &with, &l, i);
    ratio = fl_layer_ratio(how, &l, u->squares);
    for (int i = l.first; i < end; i++)
        change(u, &with, &l, ratio, i);
}

void fl_aggregate_apply_layers(fl_aggregate *u)
{
    for (int i = 0; i < u->layout->n_param; i++)
        apply_layer(u, i);
}
