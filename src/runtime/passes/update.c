/* update.c - pass update: an optimizer's rule changes the weights of dense
 * parameters by their gradients, and rows by theirs; servers do that where they
 * keep the parameters. */
#include "runtime/optim/own_optimizers.h"
#include "runtime/optim/update_gpu.h"
#include "runtime/optim/update_ranges.h"
#include "runtime/lookup/lookup.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/hogwild.h"
#include "runtime/plan/pass.h"
#include "runtime/plan/remote.h"
#include "runtime/reduce/dgc.h"

enum { UPDATE_NOW, GRADIENT, WEIGHT, STATE };

static fleet_status update_prepare(fl_instance *in)
{
    const fl_update_ranges *all = in->step->config;

    in->n_part = all->n;
    return FLEET_OK;
}

/* An update of a range of the group. */
typedef struct change {
    const fl_instance *in;
    fl_update u;
    fl_rule_dense *rule;
} change;

/* Floats [at, end) of the group. */
static void change_floats(const change *by, int64_t at, int64_t end)
{
    const fl_instance *in = by->in;
    const fl_update_ranges *all = in->step->config;
    float *state[FL_MAX_STATE] = {NULL};

    for (int i = 0; i < in->step->n_operand - STATE; i++)
        state[i] = (float *)fl_ptr(in, STATE + i) + (at - all->first);
    by->rule(&by->u, (float *)fl_ptr(in, WEIGHT) + (at - all->weight),
             (const float *)fl_ptr(in, GRADIENT) + (at - all->gradient), state,
             end - at);
}

/* The same while other threads do: block by block. */
static void change_locked(const change *by, int64_t at, int64_t end)
{
    const fl_update_now *now = fl_ptr(by->in, UPDATE_NOW);

    for (int64_t next; at < end; at = next) {
        pthread_mutex_t *lock = fl_hogwild_block(now->hogwild, at);

        next = fl_hogwild_block_end(at, end);
        pthread_mutex_lock(lock);
        change_floats(by, at, next);
        pthread_mutex_unlock(lock);
    }
}

static fleet_status update_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_ranges *all = in->step->config;
    const fl_update_range *p = &all->block[r->begin];
    const fl_update_now *now = fl_ptr(in, UPDATE_NOW);
    fl_rule_kind rule = fl_rule_with(p->rule, &p->rates);
    change by = {in, now->u, fl_rule_set_best()->of[rule].dense};

    if (now->skip)
        return FLEET_OK;
    if (p->optimizer)
        fl_update_take_own(&by.u, p->optimizer, (int64_t)now->u.version - 1);
    fl_update_change(&by.u, &p->rates);
    if (p->dgc && now->density > 0) { /* was done before it was sent */
        by.u.scale = 1.0f;
        FL_NUMBER_OF(&by.u, MOMENTUM, momentum) = 0.0f;
        FL_NUMBER_OF(&by.u, MOMENTUM, nesterov) = 0.0f;
    }
    (now->hogwild ? change_locked : change_floats)(&by, p->offset,
                                                   p->offset + p->n);
    return FLEET_OK;
}

static const fl_kernel kernel_update = {
    .name = "update.dense",
    .split = FL_SPLIT_PARTS,
    .prepare = update_prepare,
    .run = update_run,
};

static bool can_follow(const fl_update_range *a, const fl_update_range *b)
{
    return a->offset + a->n == b->offset &&
           a->rates.learning_rate == b->rates.learning_rate &&
           a->rates.decay == b->rates.decay &&
           a->rates.average == b->rates.average &&
           a->optimizer == b->optimizer && a->dgc == b->dgc;
}

/* Cut what `like` has of the group's own part into blocks, appended to all. */
static void cut_blocks(fl_update_ranges *all, const fl_flat *g,
                       const fl_update_range *like)
{
    int64_t end = like->offset + like->n, at = like->offset;

    end = end < g->end ? end : g->end;
    for (at = at > g->first ? at : g->first; at < end; at += FL_BLOCK) {
        fl_update_range *p = &all->block[all->n++];

        *p = *like;
        p->offset = at;
        p->n = end - at < FL_BLOCK ? end - at : FL_BLOCK;
    }
}

/* The stretches of a group whose parameters have a gradient in this plan. */
static const fl_update_ranges *make_ranges(fl_lowering *l, const fl_dense *d)
{
    const fl_flat *g = d->flat;
    const fl_store *s = l->plan->store;
    size_t most = s->params.n + (size_t)(g->n / FL_BLOCK) + 1;
    fl_update_ranges all = {
        .block =
            fl_arena_alloc(&l->plan->arena, most * sizeof(fl_update_range)),
        .first = g->first,
        .gradient = d->first,
        .weight = d->first_weight};
    fl_update_range run = {0};

    if (!all.block)
        return NULL;
    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;

        if (p->flat != g || !fl_is_updated_locally(l, p))
            continue;
        fl_update_range q = {
            .offset = p->offset,
            .n = (p->n + 15) / 16 * 16,
            .rates = fl_update_rates_of(&p->attr),
            .rule = fl_param_optimizer(s, p)->kind,
            .own = 1 + fl_optimizer_own_number(s->optimizer, p->name, true),
            .optimizer = p->optimizer,
            .dgc = fl_dgc_takes(l, p)};
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
    const int n_state = fl_flat_states(l->plan->store, d->flat);
    const fl_update_ranges *all = make_ranges(l, d);
    fl_operand o[STATE + FL_MAX_STATE] = {FL_R(l->plan->update),
                                          FL_R(d->gradient), FL_RW(d->weight)};

    if (!all) {
        l->status = FLEET_ENOMEM;
        return;
    }
    for (int i = 0; i < n_state; i++)
        o[STATE + i] = (fl_operand)FL_RW(fl_state_value(l, d->flat, i));
    fl_emit(l, &kernel_update, NULL, all, o, STATE + n_state);
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
