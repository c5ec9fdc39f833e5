/* update.c - pass update: an optimizer's rule changes the weights of dense
 * parameters by their gradients, and rows by theirs; servers do that where they
 * keep the parameters. */
#include "runtime/optim/update_gpu.h"
#include "runtime/optim/update_ranges.h"
#include "runtime/lookup/lookup.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/remote.h"
#include "runtime/reduce/dgc.h"
#include "runtime/passes/update.h"

enum { UPDATE_NOW, GRADIENT, WEIGHT, STATE };

static fleet_status update_prepare(fl_instance *in)
{
    const fl_update_ranges *all = in->step->config;

    in->n_part = all->n;
    return FLEET_OK;
}

static fleet_status update_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_ranges *all = in->step->config;
    const fl_update_range *p = &all->range[r->begin];
    const fl_update_now *now = fl_ptr(in, UPDATE_NOW);
    fl_update u = now->u;
    float *state[FL_MAX_STATE] = {NULL};

    if (now->skip)
        return FLEET_OK;
    u.lr *= p->learning_rate;
    if (p->decay >= 0)
        u.decay = p->decay;
    if (p->dgc && now->density > 0) { /* was done before it was sent */
        u.scale = 1.0f;
        FL_NUMBER_OF(&u, MOMENTUM, momentum) = 0.0f;
        FL_NUMBER_OF(&u, MOMENTUM, nesterov) = 0.0f;
    }
    for (int i = 0; i < in->step->n_operand - STATE; i++)
        state[i] = (float *)fl_ptr(in, STATE + i) + (p->offset - all->first);
    fl_optimizer_dense(now->optimizer)(
        &u, (float *)fl_ptr(in, WEIGHT) + p->offset,
        (const float *)fl_ptr(in, GRADIENT) + p->offset, state, p->n);
    return FLEET_OK;
}

static const fl_kernel kernel_update = {
    .name = "update.dense",
    .split = FL_SPLIT_PARTS,
    .prepare = update_prepare,
    .run = update_run,
};

static fl_update_range range_of(const fl_lowering *l, const fl_param *p)
{
    fl_update_range q = {p->offset, (p->n + 15) / 16 * 16, 1.0f, -1.0f,
                         fl_dgc_takes(l, p)};

    if (p->attr.learning_rate > 0)
        q.learning_rate = p->attr.learning_rate;
    if (p->attr.l2_decay > 0)
        q.decay = p->attr.l2_decay;
    if (p->attr.no_decay)
        q.decay = 0;
    return q;
}

static bool can_follow(const fl_update_range *a, const fl_update_range *b)
{
    return a->offset + a->n == b->offset &&
           a->learning_rate == b->learning_rate && a->decay == b->decay &&
           a->dgc == b->dgc;
}

/* Cut what `like` has of the group's own part into blocks, appended to all. */
static void cut_blocks(fl_update_ranges *all, const fl_flat *g,
                       const fl_update_range *like)
{
    int64_t end = like->offset + like->n, at = like->offset;

    end = end < g->end ? end : g->end;
    for (at = at > g->first ? at : g->first; at < end; at += FL_BLOCK) {
        fl_update_range *p = &all->range[all->n++];

        *p = *like;
        p->offset = at;
        p->n = end - at < FL_BLOCK ? end - at : FL_BLOCK;
    }
}

/* The stretches of a group whose parameters have a gradient in this plan. */
static const fl_update_ranges *make_ranges(fl_lowering *l, const fl_flat *g)
{
    const fl_store *s = l->plan->store;
    size_t most = s->params.n + (size_t)(g->n / FL_BLOCK) + 1;
    fl_update_ranges all = {
        .range =
            fl_arena_alloc(&l->plan->arena, most * sizeof(fl_update_range)),
        .rule = s->optimizer->kind,
        .first = g->first};
    fl_update_range run = {0};

    if (!all.range)
        return NULL;
    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;

        if (p->flat != g || !fl_is_updated_locally(l, p))
            continue;
        fl_update_range q = range_of(l, p);
        if (run.n && can_follow(&run, &q)) {
            run.n += q.n;
            continue;
        }
        cut_blocks(&all, g, &run);
        run = q;
    }
    cut_blocks(&all, g, &run);
    return fl_config(l, &all, sizeof all);
}

static void emit_update(fl_lowering *l, const fl_dense *d)
{
    const fl_rule *rule = fl_rule_of(l->plan->store->optimizer->kind);
    const fl_update_ranges *all = make_ranges(l, d->flat);
    fl_operand o[STATE + FL_MAX_STATE] = {FL_R(l->plan->update),
                                          FL_R(d->gradient), FL_RW(d->weight)};

    if (!all) {
        l->status = FLEET_ENOMEM;
        return;
    }
    for (int i = 0; i < rule->n_state; i++)
        o[STATE + i] = (fl_operand)FL_RW(fl_state_value(l, d->flat, i));
    fl_emit(l, &kernel_update, NULL, all, o, STATE + rule->n_state);
}

/* --- what a GPU is told -------------------------------------------------- */

/* The rates if `skipped` of the updates that were counted did not happen. */
static fl_device_rates rates_after(const fl_store *s, const fl_update_now *now,
                                   int skipped)
{
    int64_t done = s->updates > skipped ? s->updates - skipped : 0;
    fl_update u;

    fl_optimizer_update(now->optimizer, done, 1, &u);
    return (fl_device_rates){u.lr, u.correct_a, u.correct_b};
}

void fl_update_tell(const fl_store *s, const fl_update_now *now,
                    fl_device_update *to)
{
    *to = (fl_device_update){.u = now->u,
                             .clip_norm = now->optimizer->clip_norm,
                             .skip = now->skip,
                             .known_skips = s->known_skips,
                             .micro = now->micro,
                             .dgc = now->density > 0};
    to->u.correct_a_at = to->u.correct_b_at = NULL; /* rows' */
    for (int i = 0; i <= FL_MOST_UNKNOWN; i++)
        to->after[i] = rates_after(s, now, i);
}

/* --- the pass ------------------------------------------------------------ */

fleet_status fl_pass_update(fl_lowering *l, bool *applied)
{
    const fl_remote *x = l->plan->store->remote; /* does it, if there is one */

    if (!l->plan->training || (x && !l->plan->store->dense_local))
        return FLEET_OK;
    l->phase = FL_UPDATE;
    fl_update_value(l);
    for (size_t i = 0; i < l->plan->n_dense; i++)
        if (l->plan->dense[i].gradient >= 0 && !l->plan->dense[i].updated) {
            emit_update(l, &l->plan->dense[i]);
            *applied = true;
        }
    for (size_t i = 0; !x && i < l->plan->n_sparse; i++) {
        fl_lookup_update(l, &l->plan->sparse[i]);
        *applied = true;
    }
    return l->status;
}
