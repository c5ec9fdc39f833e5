/* lars_lamb.c - what the passes lars and lamb share: dense parameters of this
 * process, each with a rate of its own (layer_rule.h), in steps by blocks.
 * Servers do it where they keep a parameter (ps/aggregate/aggregate_layers.c).
 */
#include "runtime/passes/lars_lamb.h"

#include "runtime/plan/gradients.h"

/* Of every step but layer.ratio. */
enum { UPDATE_NOW, GRADIENT, WEIGHT, SQUARES, RATIOS = SQUARES, STATE };

fl_layer_work fl_layer_work_of(const fl_instance *in, const fl_range *r)
{
    const fl_layers *all = in->step->config;
    int64_t at = all->begin + r->begin;
    const fl_layer_block *b = &all->block[at];
    const fl_update_now *now = fl_ptr(in, UPDATE_NOW);
    fl_update u = now->u;

    fl_update_change(&u, &all->layer[b->layer].rates);
    return (fl_layer_work){
        .all = all,
        .block = b,
        .layer = &all->layer[b->layer],
        .squares = (fl_squares *)fl_ptr(in, SQUARES) + at,
        .u = u,
        .skip = now->skip,
        .w = (float *)fl_ptr(in, WEIGHT) + (b->offset - all->weight),
        .g = (float *)fl_ptr(in, GRADIENT) + (b->offset - all->gradient),
    };
}

float *fl_layer_state(const fl_instance *in, const fl_layer_work *k, int i)
{
    return (float *)fl_ptr(in, STATE + i) + (k->block->offset - k->all->first);
}

float fl_layer_ratio_at(const fl_instance *in, const fl_layer_work *k)
{
    return ((const float *)fl_ptr(in, RATIOS))[k->block->layer];
}

fleet_status fl_split_layers(fl_instance *in)
{
    const fl_layers *all = in->step->config;

    in->n_part = all->end - all->begin;
    return FLEET_OK;
}

/* --- layer.ratio --------------------------------------------------------- */

/* Operands: squares, ratios. */
static fleet_status ratio_run(const fl_instance *in, const fl_range *r)
{
    const fl_layers *all = in->step->config;
    const fl_squares *square = fl_ptr(in, 0);
    float *out = fl_ptr(in, 1);

    (void)r;
    for (int i = 0; i < all->n_layer; i++)
        out[i] = fl_layer_ratio(&all->how, &all->layer[i], square);
    return FLEET_OK;
}

const fl_kernel fl_kernel_layer_ratio = {
    .name = "layer.ratio",
    .split = FL_SPLIT_PARTS,
    .run = ratio_run,
};

/* --- the passes ---------------------------------------------------------- */

static void add_layer(fl_layers *all, const fl_param *p)
{
    fl_layer *one = &all->layer[all->n_layer];

    *one = fl_layer_of(&all->how, &p->attr);
    one->first = all->n_block;
    one->n = (int)((p->n + FL_BLOCK - 1) / FL_BLOCK);
    for (int64_t at = 0; at < p->n; at += FL_BLOCK)
        all->block[all->n_block++] = (fl_layer_block){
            .offset = p->offset + at,
            .n = p->n - at < FL_BLOCK ? p->n - at : FL_BLOCK,
            .layer = all->n_layer,
        };
    all->n_layer++;
}

/* The parameters of a group that have a gradient in this plan. */
static const fl_layers *make_layers(fl_lowering *l, const fl_dense *d)
{
    const fl_flat *g = d->flat;
    const fl_map *params = &l->plan->store->params;
    size_t most = params->n + (size_t)(g->n / FL_BLOCK);
    fl_layers all = {
        .how = l->program->training.layerwise,
        .layer = fl_arena_alloc(&l->plan->arena, params->n * sizeof(fl_layer)),
        .block = fl_arena_alloc(&l->plan->arena, most * sizeof(fl_layer_block)),
    };

    if (!all.layer || !all.block) {
        l->status = FLEET_ENOMEM;
        return NULL;
    }
    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == g && fl_is_updated_locally(l, p))
            add_layer(&all, p);
    }
    all.end = all.n_block;
    all.first = g->first;
    all.gradient = d->first;
    all.weight = d->first_weight;
    return fl_config(l, &all, sizeof all);
}

/* Of the group's own part: what steps with states work on. */
static const fl_layers *own_layers(fl_lowering *l, const fl_flat *g,
                                   const fl_layers *all)
{
    fl_layers own = *all;

    while (own.begin < own.end && own.block[own.begin].offset < g->first)
        own.begin++;
    while (own.begin < own.end && own.block[own.end - 1].offset >= g->end)
        own.end--;
    return fl_config(l, &own, sizeof own);
}

static void emit_group(fl_lowering *l, fl_dense *d, fl_layers_emitter *emit)
{
    const fl_layers *all = make_layers(l, d);
    const fl_layers *own = all ? own_layers(l, d->flat, all) : NULL;
    int norms, ratios;
    fl_shape shape;

    d->updated = true;
    if (!own || all->n_layer == 0) /* servers keep the whole group */
        return;
    norms = fl_object(l, "norms", (size_t)all->n_block * sizeof(fl_squares));
    shape = fl_shape_1(all->n_layer);
    ratios = fl_temp(l, "ratios", FLEET_FLOAT32, &shape);
    emit(l, d, all, own, norms, ratios);
}

fleet_status fl_pass_layers(fl_lowering *l, fl_layer_rule rule,
                            fl_layers_emitter *emit, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || l->program->training.layerwise.rule != rule)
        return FLEET_OK;
    if (plan->store->remote && !plan->store->dense_local)
        return FLEET_OK;
    l->phase = FL_UPDATE;
    fl_update_value(l);
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            emit_group(l, &plan->dense[i], emit);
            *applied = true;
        }
    return l->status;
}
