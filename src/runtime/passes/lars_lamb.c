/* lars_lamb.c - LARS and LAMB: each dense parameter has a rate of its own, by
 * the ratio of the norms of its weights and of its step.
 *
 *   LARS  v = mu v + rate (g + decay w);  w -= v
 *         rate = lr coeff |w| / (|g| + decay |w| + epsilon)
 *         (You, Gitman, Ginsburg 2017, arXiv:1708.03888)
 *   LAMB  r = Adam's step + decay w;  w -= lr |w| / |r| r
 *         (You et al. 2019, arXiv:1904.00962, with corrected moments)
 *
 * g is the gradient that a rule uses, rule.h. Without weights or without a step
 * the ratio is 1. Squares are added up as those of the clip by global norm are:
 * in double, per block in index order, blocks in their order.
 */
#include <math.h>

#include "runtime/graph/layerwise.h"
#include "runtime/store/norm.h"
#include "runtime/plan/pass.h"
#include "runtime/passes/update.h"

/* Of every step here but the ratio; others follow. */
enum { UPDATE_NOW, GRADIENT, WEIGHT, SQUARES, RATIOS = SQUARES, STATE };

/* What a part works on: a block. */
typedef struct work {
    const fl_layers *all;
    const fl_layer_block *block;
    fl_squares *squares; /* the block's */
    fl_update u;         /* the layer's own */
    bool skip;           /* nothing is to be updated */
    float *w, *g;
} work;

static fl_update update_of(const fl_update *u, const fl_layer *l)
{
    fl_update own = *u;

    own.lr *= l->learning_rate;
    if (l->l2_decay >= 0)
        own.decay = l->l2_decay;
    return own;
}

static work work_of(const fl_instance *in, const fl_range *r)
{
    const fl_layers *all = in->step->config;
    int64_t at = all->begin + r->begin;
    const fl_layer_block *b = &all->block[at];
    const fl_update_now *now = fl_ptr(in, UPDATE_NOW);

    return (work){
        .all = all,
        .block = b,
        .squares = (fl_squares *)fl_ptr(in, SQUARES) + at,
        .u = update_of(&now->u, &all->layer[b->layer]),
        .skip = now->skip,
        .w = (float *)fl_ptr(in, WEIGHT) + b->offset,
        .g = (float *)fl_ptr(in, GRADIENT) + b->offset,
    };
}

static float *state_of(const fl_instance *in, const work *k, int i)
{
    return (float *)fl_ptr(in, STATE + i) + (k->block->offset - k->all->first);
}

static float ratio_of(const fl_instance *in, const work *k)
{
    return ((const float *)fl_ptr(in, RATIOS))[k->block->layer];
}

static fleet_status by_blocks(fl_instance *in)
{
    const fl_layers *all = in->step->config;

    in->n_part = all->end - all->begin;
    return FLEET_OK;
}

/* --- LARS ---------------------------------------------------------------- */

/* The sum of the squares of the gradient as the rule uses it. */
static double square_sum_used(const work *k)
{
    const fl_update *u = &k->u;
    double sum = 0;

    for (int64_t i = 0; i < k->block->n; i++) {
        double x = (double)(k->g[i] * u->scale * u->clip + u->decay * k->w[i]);

        sum += x * x;
    }
    return sum;
}

static fleet_status lars_norm_run(const fl_instance *in, const fl_range *r)
{
    work k = work_of(in, r);

    *k.squares =
        (fl_squares){fl_square_sum(k.w, k.block->n, 1), square_sum_used(&k)};
    return FLEET_OK;
}

static const fl_kernel kernel_lars_norm = {
    .name = "lars.norm",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = lars_norm_run,
};

static fleet_status lars_update_run(const fl_instance *in, const fl_range *r)
{
    work k = work_of(in, r);
    float *velocity = state_of(in, &k, 0);

    if (k.skip)
        return FLEET_OK;
    k.u.lr *= ratio_of(in, &k);
    k.u.decay += k.all->layer[k.block->layer].decay;
    fl_simd_best()->lars(&k.u, k.w, k.g, &velocity, k.block->n);
    return FLEET_OK;
}

static const fl_kernel kernel_lars_update = {
    .name = "update.lars",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = lars_update_run,
};

/* --- LAMB ---------------------------------------------------------------- */

/* The step takes the place of the gradient, which nobody needs any more. */
static fleet_status lamb_step_run(const fl_instance *in, const fl_range *r)
{
    work k = work_of(in, r);
    float *state[] = {state_of(in, &k, 0), state_of(in, &k, 1), k.g};
    int64_t n = k.block->n;

    if (k.skip)
        return FLEET_OK;
    k.u.apart = k.all->layer[k.block->layer].decay;
    fl_simd_best()->lamb(&k.u, k.w, k.g, state, n);
    *k.squares =
        (fl_squares){fl_square_sum(k.w, n, 1), fl_square_sum(k.g, n, 1)};
    return FLEET_OK;
}

static const fl_kernel kernel_lamb_step = {
    .name = "lamb.step",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = lamb_step_run,
};

static fleet_status lamb_update_run(const fl_instance *in, const fl_range *r)
{
    work k = work_of(in, r);

    if (k.skip)
        return FLEET_OK;
    fl_simd_best()->add_scaled(k.w, k.g, -(k.u.lr * ratio_of(in, &k)), 0,
                               k.block->n);
    return FLEET_OK;
}

static const fl_kernel kernel_lamb_update = {
    .name = "update.lamb",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = lamb_update_run,
};

/* --- the ratios ---------------------------------------------------------- */

/* Fleet's LARS leaves alone what has no decay. */
static double ratio(const fl_layers *all, int i, double weights, double step)
{
    const fl_layerwise *how = &all->how;

    if (!(weights > 0 && step > 0))
        return 1;
    if (how->rule == FL_LAMB)
        return weights / step;
    if (all->layer[i].no_decay)
        return 1;
    return (double)how->coeff * weights /
           (step + (double)how->decay * weights + (double)how->epsilon);
}

/* Operands: squares, ratios. */
static fleet_status ratio_run(const fl_instance *in, const fl_range *r)
{
    const fl_layers *all = in->step->config;
    const fl_squares *square = fl_ptr(in, 0);
    float *out = fl_ptr(in, 1);

    (void)r;
    for (int i = 0; i < all->n_layer; i++) {
        const fl_layer *one = &all->layer[i];
        fl_squares sum = {0};

        for (int j = one->first; j < one->first + one->n; j++) {
            sum.weights += square[j].weights;
            sum.step += square[j].step;
        }
        out[i] = (float)ratio(all, i, sqrt(sum.weights), sqrt(sum.step));
    }
    return FLEET_OK;
}

static const fl_kernel kernel_ratio = {
    .name = "layer.ratio",
    .split = FL_SPLIT_PARTS,
    .run = ratio_run,
};

/* --- the passes ---------------------------------------------------------- */

static int blocks_of(const fl_param *p)
{
    return (int)((p->n + FL_BLOCK - 1) / FL_BLOCK);
}

static void add_layer(fl_layers *all, const fl_param *p)
{
    const fleet_param_attr *a = &p->attr;

    all->layer[all->n_layer] = (fl_layer){
        .learning_rate = a->learning_rate > 0 ? a->learning_rate : 1.0f,
        .l2_decay = a->no_decay       ? 0
                    : a->l2_decay > 0 ? a->l2_decay
                                      : -1.0f,
        .decay = a->no_decay ? 0 : all->how.decay,
        .no_decay = a->no_decay != 0,
        .first = all->n_block,
        .n = blocks_of(p),
    };
    for (int64_t at = 0; at < p->n; at += FL_BLOCK)
        all->block[all->n_block++] = (fl_layer_block){
            .offset = p->offset + at,
            .n = p->n - at < FL_BLOCK ? p->n - at : FL_BLOCK,
            .layer = all->n_layer,
        };
    all->n_layer++;
}

/* The parameters of a group that have a gradient in this plan. */
static const fl_layers *make_layers(fl_lowering *l, const fl_flat *g)
{
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

        if (p->flat == g && fl_is_updated_here(l, p))
            add_layer(&all, p);
    }
    all.end = all.n_block;
    all.first = g->first;
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

static void emit_lars(fl_lowering *l, const fl_dense *d, const fl_layers *all,
                      const fl_layers *own, int norms, int ratios)
{
    const fl_operand now = FL_R(l->plan->update), g = FL_R(d->gradient);

    FL_EMIT(l, &kernel_lars_norm, NULL, all, now, g, FL_R(d->weight),
            FL_W(norms));
    FL_EMIT(l, &kernel_ratio, NULL, all, FL_R(norms), FL_W(ratios));
    FL_EMIT(l, &kernel_lars_update, NULL, own, now, g, FL_RW(d->weight),
            FL_R(ratios), FL_RW(fl_state_value(l, d->flat, 0)));
}

static void emit_lamb(fl_lowering *l, const fl_dense *d, const fl_layers *all,
                      const fl_layers *own, int norms, int ratios)
{
    const fl_operand now = FL_R(l->plan->update);

    FL_EMIT(l, &kernel_lamb_step, NULL, own, now, FL_RW(d->gradient),
            FL_R(d->weight), FL_W(norms), FL_RW(fl_state_value(l, d->flat, 0)),
            FL_RW(fl_state_value(l, d->flat, 1)));
    if (fl_store_is_sharded(l->plan->store))
        fl_emit_share_squares(l, norms, 2 * own->begin, 2 * own->end);
    FL_EMIT(l, &kernel_ratio, NULL, all, FL_R(norms), FL_W(ratios));
    FL_EMIT(l, &kernel_lamb_update, NULL, own, now, FL_R(d->gradient),
            FL_RW(d->weight), FL_R(ratios));
}

static void emit_group(fl_lowering *l, fl_dense *d)
{
    const fl_layers *all = make_layers(l, d->flat);
    const fl_layers *own = all ? own_layers(l, d->flat, all) : NULL;
    int norms, ratios;
    fl_shape shape;

    if (!own)
        return;
    norms = fl_object(l, "norms", (size_t)all->n_block * sizeof(fl_squares));
    shape = fl_shape_1(all->n_layer);
    ratios = fl_temp(l, "ratios", FLEET_FLOAT32, &shape);
    if (all->how.rule == FL_LARS)
        emit_lars(l, d, all, own, norms, ratios);
    else
        emit_lamb(l, d, all, own, norms, ratios);
    d->updated = true;
}

static fleet_status layers_by(fl_lowering *l, fl_layer_rule rule, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || l->program->training.layerwise.rule != rule)
        return FLEET_OK;
    if (plan->store->remote && !plan->store->dense_local)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.%s: servers do not have it in this version",
                       rule == FL_LARS ? "lars" : "lamb");
    l->phase = FL_UPDATE;
    fl_update_value(l);
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            emit_group(l, &plan->dense[i]);
            *applied = true;
        }
    return l->status;
}

fleet_status fl_pass_lars(fl_lowering *l, bool *applied)
{
    return layers_by(l, FL_LARS, applied);
}

fleet_status fl_pass_lamb(fl_lowering *l, bool *applied)
{
    return layers_by(l, FL_LAMB, applied);
}
