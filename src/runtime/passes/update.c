/* update.c - see update.h. */
#include "runtime/passes/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/optim/update_ranges.h"
#include "runtime/plan/remote.h"
#include "runtime/lookup/lookup.h"
#include "runtime/plan/pass.h"
#include "runtime/optim/update_gpu.h"

/* --- adding contributions ------------------------------------------------ */

static fleet_status add_rows_run(const fl_instance *in, const fl_range *r)
{
    float *total = fl_rows_f32(in, 0, r);
    const float *part = fl_rows_f32(in, 1, r);

    fl_simd_best()->add(total, total, part, fl_count(in, 0, r));
    return FLEET_OK;
}

const fl_kernel fl_kernel_add_rows = {
    .name = "gradient.add",
    .split = FL_SPLIT_ROWS,
    .run = add_rows_run,
};

static int64_t size_of(const fl_arg *a)
{
    return a->rows * a->cols;
}

static fleet_status by_blocks(fl_instance *in)
{
    in->n_part = (int)((size_of(&in->arg[0]) + FL_BLOCK - 1) / FL_BLOCK);
    return FLEET_OK;
}

/* The block of an operand that is a part's; its length in *n. */
static float *block_of(const fl_instance *in, int i, const fl_range *r,
                       int64_t *n)
{
    int64_t left = size_of(&in->arg[i]) - r->begin * FL_BLOCK;

    *n = left < FL_BLOCK ? left : FL_BLOCK;
    return (float *)fl_ptr(in, i) + r->begin * FL_BLOCK;
}

static fleet_status add_parts_run(const fl_instance *in, const fl_range *r)
{
    int64_t n;
    float *total = block_of(in, 0, r, &n);

    fl_simd_best()->add(total, total, block_of(in, 1, r, &n), n);
    return FLEET_OK;
}

const fl_kernel fl_kernel_add_parts = {
    .name = "gradient.add",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = add_parts_run,
};

/* --- merge.dense: the first batch of a group is copied, the others added ---
 */

static fleet_status merge_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, 2);
    int64_t n;
    float *sum = block_of(in, 0, r, &n);
    const float *g = block_of(in, 1, r, &n);

    if (now->micro == 0)
        memcpy(sum, g, (size_t)n * sizeof *sum);
    else
        fl_simd_best()->add(sum, sum, g, n);
    return FLEET_OK;
}

static const fl_kernel kernel_merge = {
    .name = "merge.dense",
    .split = FL_SPLIT_PARTS,
    .prepare = by_blocks,
    .run = merge_run,
};

/* --- update.dense -------------------------------------------------------- */

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
        u.a = 0.0f;
        u.nesterov = 0;
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

bool fl_gets_gradient(const fl_lowering *l, const fl_param *p)
{
    const fleet_var *v = fleet_program_var(l->program, p->name);

    return v && v->kind == FL_VAR_PARAM && l->gradient[v->id] >= 0;
}

bool fl_is_pushed(const fl_lowering *l, const fl_param *p)
{
    const fl_store *s = l->plan->store;

    return s->remote && fl_param_is_remote(s, p) && fl_gets_gradient(l, p);
}

bool fl_is_updated_here(const fl_lowering *l, const fl_param *p)
{
    return fl_gets_gradient(l, p) && !fl_is_pushed(l, p);
}

static fl_update_range piece_of(const fl_lowering *l, const fl_param *p)
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

static bool continues(const fl_update_range *a, const fl_update_range *b)
{
    return a->offset + a->n == b->offset &&
           a->learning_rate == b->learning_rate && a->decay == b->decay &&
           a->dgc == b->dgc;
}

/* Cut what `like` has of the group's own part into blocks, appended to all. */
static void cut(fl_update_ranges *all, const fl_flat *g,
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
static const fl_update_ranges *make_pieces(fl_lowering *l, const fl_flat *g)
{
    const fl_store *s = l->plan->store;
    size_t most = s->params.n + (size_t)(g->n / FL_BLOCK) + 1;
    fl_update_ranges all = {
        .range =
            fl_arena_alloc(&l->plan->arena, most * sizeof(fl_update_range)),
        .rule = (int)s->optimizer->kind,
        .first = g->first};
    fl_update_range run = {0};

    if (!all.range)
        return NULL;
    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;

        if (p->flat != g || !fl_is_updated_here(l, p))
            continue;
        fl_update_range q = piece_of(l, p);
        if (run.n && continues(&run, &q)) {
            run.n += q.n;
            continue;
        }
        cut(&all, g, &run);
        run = q;
    }
    cut(&all, g, &run);
    return fl_config(l, &all, sizeof all);
}

int fl_state_value(fl_lowering *l, const fl_flat *g, int i)
{
    fl_value like = {.name =
                         fl_rule_of(l->plan->store->optimizer->kind)->state[i],
                     .kind = FL_VALUE_PARAM,
                     .dtype = FLEET_FLOAT32,
                     .shape = fl_shape_1(g->end - g->first),
                     .root = -1,
                     .pointer = g->state[i],
                     .ld = 1};

    return fl_plan_value(l->plan, &like);
}

static void emit_update(fl_lowering *l, const fl_dense *d)
{
    const fl_rule *rule = fl_rule_of(l->plan->store->optimizer->kind);
    const fl_update_ranges *all = make_pieces(l, d->flat);
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

/* --- what a device is told -------------------------------------------------
 */

/* The rates if so many updates of those that were counted have been skipped. */
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

/* --- passes -------------------------------------------------------------- */

static bool trains(const fl_lowering *l)
{
    return l->plan->training;
}

int fl_update_value(fl_lowering *l)
{
    if (l->plan->update < 0)
        l->plan->update = fl_object(l, "update", sizeof(fl_update_now));
    return l->plan->update;
}

/* Several executors may have a merge group under way: its sums are the plan's
 * own. */
static void emit_merge(fl_lowering *l, const fl_dense *d, int64_t offset,
                       int64_t n)
{
    bool whole = n == d->flat->n;
    int sum =
        whole ? d->gradient : fl_stretch(l, d->gradient, "merged", offset, n);
    int one = whole ? d->one : fl_stretch(l, d->one, "bucket", offset, n);

    FL_EMIT(l, &kernel_merge, NULL, NULL, FL_W(sum), FL_R(one),
            FL_R(l->plan->update));
}

fleet_status fl_pass_gradient_merge(fl_lowering *l, bool *applied)
{
    if (!trains(l) || l->program->training.merge_steps == 1)
        return FLEET_OK;
    *applied = true;
    l->phase = FL_MERGE;
    fl_update_value(l);
    for (size_t i = 0; i < l->plan->n_dense; i++) {
        fl_dense *d = &l->plan->dense[i];

        if (d->gradient < 0)
            continue;
        d->one = d->gradient;
        d->gradient = fl_flat_gradient(l, d->flat, "merged gradients", false);
        if (l->plan->store->agree) {
            fl_each_bucket(l, d, emit_merge);
            fl_each_pushed(l, d, emit_merge);
        } else {
            emit_merge(l, d, 0, d->flat->n);
        }
    }
    for (size_t i = 0; i < l->plan->n_sparse; i++)
        fl_lookup_merge(l, &l->plan->sparse[i]);
    return l->status;
}

fleet_status fl_pass_update(fl_lowering *l, bool *applied)
{
    const fl_remote *x = l->plan->store->remote; /* who does it then */

    if (!trains(l) || (x && !l->plan->store->dense_local))
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
