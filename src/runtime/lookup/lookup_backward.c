/* lookup_backward.c - the backward steps of a lookup; see lookup.h. */
#include <string.h>

#include "base/memory.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/life/accessor.h"
#include "runtime/life/life.h"
#include "runtime/store/norm.h"
#include "runtime/store/table.h"
#include "runtime/plan/plan.h"
#include "runtime/simd/simd.h"
#include "runtime/lookup/lookup_backward.h"

enum {
    THE_LOOKUP,
    THE_UPDATE,
    THE_TABLE,
    THE_NORMS = 2,
    THE_SUMS = 2 /* absent: in the lookup */
};

/* --- rows.sum ------------------------------------------------------------ */

typedef struct contribution {
    const float *g; /* NULL: none */
    float factor;
    const uint32_t *winner; /* of a maximum: which positions won, by column */
} contribution;

static contribution contribution_of(const fl_instance *in, const fl_lookup *k,
                                    uint32_t position)
{
    const fl_lookup_config *c = in->step->config;
    uint32_t cell = c->ragged ? k->cell[position] : position;
    uint32_t sample = cell / (uint32_t)c->n_feature;
    uint32_t at = cell - sample * (uint32_t)c->n_feature;
    const fl_feature *feature = &c->feature[at];
    const fl_arg *a = &in->arg[feature->out];
    contribution r = {NULL, 1.0f, NULL};

    if (a->base)
        r.g = (const float *)fl_ptr(in, feature->out) + sample * a->ld +
              feature->out_column;
    if (feature->combiner != FLEET_SUM)
        r.factor =
            fl_combiner_factor(feature->combiner, k->offsets[at][sample + 1] -
                                                      k->offsets[at][sample]);
    if (feature->weights)
        r.factor *= k->weight[position];
    if (feature->most > 0 && r.g)
        r.g += k->place[position] * k->rows->dim;
    if (feature->combiner == FLEET_MAX)
        r.winner = k->winner + ((int64_t)sample * c->n_max + feature->nth_max) *
                                   k->rows->dim;
    return r;
}

/* What a position gives that did not win all columns. */
static void add_won(float *sum, const contribution *c, uint32_t position,
                    bool first, int64_t dim)
{
    for (int64_t i = 0; i < dim; i++) {
        float x = c->winner[i] == position ? c->factor * c->g[i] : 0.0f;

        sum[i] = first ? x : sum[i] + x;
    }
}

/* The gradient of one key. With a single plain contribution it is that one,
 * where it lies; else a sum in *sum. NULL: no contribution. */
static const float *sum_chain(const fl_instance *in, const fl_lookup *k,
                              uint32_t at, float *sum)
{
    const fl_simd *simd = fl_simd_best();
    int64_t dim = k->rows->dim;
    const float *one = NULL;
    bool summed = false;

    for (; at; at = k->next[at - 1]) {
        contribution c = contribution_of(in, k, at - 1);

        if (!c.g)
            continue;
        if (!one && c.factor == 1.0f && !c.winner) {
            one = c.g;
            continue;
        }
        if (!summed && one)
            memcpy(sum, one, (size_t)dim * sizeof *sum);
        if (c.winner)
            add_won(sum, &c, at - 1, !one, dim);
        else if (!one)
            simd->scale(sum, c.g, c.factor, 0.0f, dim);
        else
            simd->add_scaled(sum, c.g, c.factor, 0.0f, dim);
        summed = true;
        one = sum;
    }
    return one;
}

static fleet_status grad_room(fl_lookup_part *p, int64_t n)
{
    size_t capacity[3] = {p->grad_capacity, p->grad_capacity, p->grad_capacity};

    FL_TRY(fl_grow(&p->which, &capacity[0], (size_t)n, sizeof *p->which));
    FL_TRY(fl_grow(&p->grad, &capacity[1], (size_t)n, sizeof *p->grad));
    FL_TRY(fl_grow(&p->target, &capacity[2], (size_t)n, sizeof *p->target));
    p->grad_capacity = capacity[0];
    return FLEET_OK;
}

/* A sample's number of a slot that the accessor names. */
static float number_of(const fl_instance *in, int operand, uint32_t sample,
                       float without)
{
    const fl_arg *a = &in->arg[operand];

    if (operand == 0)
        return without;
    if (a->dtype == FLEET_INT64)
        return (float)((const int64_t *)fl_ptr(in, operand))[sample * a->ld];
    return ((const float *)fl_ptr(in, operand))[sample * a->ld];
}

/* What an accessor hears of a key: of each position that has a gradient. */
static void count_shown(const fl_instance *in, const fl_lookup *k, uint32_t at,
                        float *pushed)
{
    const fl_lookup_config *c = in->step->config;

    pushed[FL_AT_SHOW] = pushed[FL_AT_CLICK] = 0;
    pushed[FL_AT_SLOT] = FL_MOST_SLOT;
    for (; at; at = k->next[at - 1]) {
        uint32_t cell = c->ragged ? k->cell[at - 1] : at - 1;
        uint32_t sample = cell / (uint32_t)c->n_feature;
        int out = c->feature[cell - sample * (uint32_t)c->n_feature].out;
        float slot = (float)(out - FL_FIRST_OUT);

        if (!in->arg[out].base)
            continue;
        pushed[FL_AT_SHOW] += number_of(in, c->show, sample, 1.0f);
        pushed[FL_AT_CLICK] += number_of(in, c->click, sample, 0.0f);
        if (slot < pushed[FL_AT_SLOT])
            pushed[FL_AT_SLOT] = slot;
    }
}

/* With an accessor each gradient is a sum of its own, which has room for what
 * that counts. */
static const float *sum_shown(const fl_instance *in, const fl_lookup *k,
                              uint32_t at, float *sum)
{
    const float *g = sum_chain(in, k, at, sum);

    if (!g || !fl_rows_has_accessor(k->rows))
        return g;
    if (g != sum)
        memcpy(sum, g, (size_t)k->rows->dim * sizeof *sum);
    count_shown(in, k, at, sum + k->rows->dim);
    return sum;
}

static fleet_status sum_run(const fl_instance *in, const fl_range *r)
{
    enum { DISTANCE = 8 }; /* of the prefetch, in keys */
    fl_lookup *k = fl_lookup_of(in);
    fl_lookup_part *p = &k->part[r->begin];
    int64_t width = fl_rows_pushed(k->rows);
    float *sum;

    FL_TRY(grad_room(p, p->keys.n));
    FL_TRY(fl_grow(&p->sum, &p->sum_capacity, (size_t)(p->keys.n * width),
                   sizeof *p->sum));
    sum = p->sum;
    p->n_grad = 0;
    for (int64_t u = 0; u < p->keys.n; u++) {
        const float *g;

        if (u + DISTANCE < p->keys.n)
            __builtin_prefetch(&k->next[p->head[u + DISTANCE]]);
        g = sum_shown(in, k, p->head[u] + 1, sum);
        if (!g)
            continue;
        p->which[p->n_grad] = (uint32_t)u;
        p->grad[p->n_grad++] = g;
        if (g == sum)
            sum += width;
    }
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_sum = {
    .name = "rows.sum",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .run = sum_run,
};

/* --- rows.merge ---------------------------------------------------------- */

/* Where merged sums are. */
static fl_lookup *sums_of(const fl_instance *in)
{
    return in->arg[THE_SUMS].base ? fl_ptr(in, THE_SUMS) : fl_lookup_of(in);
}

static fleet_status merge_prepare(fl_instance *in)
{
    sums_of(in)->rows = fl_lookup_of(in)->rows;
    return FLEET_OK;
}

static void merge_finish(fl_instance *in)
{
    if (in->arg[THE_SUMS].base)
        fl_lookup_done(sums_of(in));
}

static fleet_status merge_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_lookup *k = fl_lookup_of(in);
    const fl_lookup_part *p = &k->part[r->begin];
    fl_row_sums *to = &sums_of(in)->part[r->begin].merged;

    if (now->micro == 0)
        fl_row_sums_clear(to);
    FL_TRY(fl_row_sums_room(to, p->n_grad, k->rows));
    for (int64_t i = 0; i < p->n_grad; i++)
        fl_row_sums_add(to, p->keys.key[p->which[i]], p->grad[i], 1.0f,
                        k->rows);
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_merge = {
    .name = "rows.merge",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .prepare = merge_prepare,
    .finish = merge_finish,
    .run = merge_run,
};

/* --- what is about to be changed ----------------------------------------- */

static int64_t count_changed(const fl_lookup_config *c, const fl_lookup_part *p)
{
    return c->merged ? p->merged.keys.n : p->n_grad;
}

/* The i-th key that is about to be changed, and its gradient. */
static fl_norm_row changed_row(const fl_lookup_config *c,
                               const fl_lookup_part *p, const fl_rows *rows,
                               int64_t i)
{
    return c->merged ? fl_norm_row_of(p->merged.keys.key[i],
                                      p->merged.sum + i * fl_rows_pushed(rows))
                     : fl_norm_row_of(p->keys.key[p->which[i]], p->grad[i]);
}

/* --- rows.check: is a sum not finite? ------------------------------------ */

static fleet_status check_run(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_lookup *k = fl_lookup_of(in);
    const fl_lookup_part *p = &k->part[r->begin];
    int64_t n =
        now->joins ? 0 : count_changed(c, p); /* joins: of a batch before */
    bool finite = true;

    for (int64_t i = 0; i < n && finite; i++) {
        fl_norm_row row = changed_row(c, p, k->rows, i);

        finite = fl_all_finite(row.grad, k->rows->dim);
    }
    ((float *)fl_ptr(in, THE_NORMS))[r->begin] = finite ? 0.0f : 1.0f;
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_check = {
    .name = "rows.check",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .run = check_run,
};

/* --- rows.norm: squares per bucket, rows in key order -------------------- */

static fleet_status norm_run(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    double *norm = fl_ptr(in, THE_NORMS);
    fl_lookup *k = fl_lookup_of(in);
    fl_lookup_part *p = &k->part[r->begin];
    int64_t n = count_changed(c, p), dim = k->rows->dim;

    for (int b = 0; b < FL_N_BUCKET / FL_N_PART; b++)
        norm[r->begin * (FL_N_BUCKET / FL_N_PART) + b] = 0;
    FL_TRY(
        fl_grow(&p->sorted, &p->sorted_capacity, (size_t)n, sizeof *p->sorted));
    for (int64_t i = 0; i < n; i++)
        p->sorted[i] = changed_row(c, p, k->rows, i);
    fl_norm_sort(p->sorted, n);
    for (int64_t i = 0; i < n; i++)
        norm[p->sorted[i].bucket] +=
            fl_square_sum(p->sorted[i].grad, dim, now->u.scale);
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_norm = {
    .name = "rows.norm",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .run = norm_run,
};

/* --- rows.update --------------------------------------------------------- */

/* What of an update the table's life goes by. */
static fl_life_update life_of(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);

    return (fl_life_update){.rows = fl_lookup_of(in)->rows,
                            .part = (int)r->begin,
                            .version = now->u.version};
}

/* The keys of the rows to change, of a table that needs them: *key. Where a
 * life may leave some of them out later they are a copy. */
static fleet_status list_changed(const fl_lookup_config *c, const fl_lookup *k,
                                 fl_lookup_part *p, const uint64_t **key)
{
    int64_t n = count_changed(c, p);

    *key = p->merged.keys.key;
    if (!fl_rows_need_keys(k->rows) || (c->merged && !k->rows->life))
        return FLEET_OK;
    FL_TRY(fl_grow(&p->changed, &p->changed_capacity, (size_t)n,
                   sizeof *p->changed));
    for (int64_t i = 0; i < n; i++)
        p->changed[i] =
            c->merged ? p->merged.keys.key[i] : p->keys.key[p->which[i]];
    *key = p->changed;
    return FLEET_OK;
}

/* Of n keys the ones with a row are left. */
static int64_t keep_rows(const fl_rows *rows, fl_lookup_part *p, int64_t n)
{
    return fl_life_keep(p->target, p->grad,
                        fl_rows_need_keys(rows) ? p->changed : NULL, n);
}

/* Not all of them become rows; *n: how many there are. */
static fleet_status admitted_rows(fl_lookup_part *p, fl_life_update *u,
                                  int64_t *n)
{
    for (int64_t i = 0; i < p->n_grad; i++)
        p->target[i] = p->row[p->which[i]];
    u->key = p->keys.key;
    u->which = p->which;
    u->grad = p->grad;
    u->n = p->n_grad;
    FL_TRY(fl_life_admit(u, p->target));
    *n = keep_rows(u->rows, p, p->n_grad);
    return FLEET_OK;
}

/* Rows to change: as the lookup found them, if none has gone since; the missing
 * ones are made now. */
static fleet_status rows_to_change(fl_lookup *k, fl_lookup_part *p,
                                   fl_life_update *life, int64_t *n)
{
    *n = p->n_grad;
    if (p->epoch != fl_rows_epoch(k->rows))
        FL_TRY(fl_lookup_find(k, p));
    if (k->rows->life)
        return admitted_rows(p, life, n);
    for (int64_t i = 0; i < p->n_grad; i++) {
        uint32_t u = p->which[i];

        if (!p->row[u])
            FL_TRY(k->rows->methods->make(k->rows, &p->keys.key[u], 1,
                                          &p->row[u]));
        p->target[i] = p->row[u];
    }
    return FLEET_OK;
}

fleet_status fl_lookup_point_to_sums(const fl_lookup *k, fl_lookup_part *p)
{
    FL_TRY(grad_room(p, p->merged.keys.n));
    for (int64_t i = 0; i < p->merged.keys.n; i++)
        p->grad[i] = p->merged.sum + i * fl_rows_pushed(k->rows);
    return FLEET_OK;
}

/* Looked up again: they came from several batches. */
static fleet_status merged_rows_to_change(const fl_lookup *k, fl_lookup_part *p,
                                          fl_life_update *life, int64_t *n)
{
    const fl_rows_class *methods = k->rows->methods;
    const uint64_t *key = p->merged.keys.key;

    *n = p->merged.keys.n;
    FL_TRY(fl_lookup_point_to_sums(k, p));
    fl_wanted_rows_done(&p->wanted);
    FL_TRY(fl_rows_bring(&p->wanted, k->rows, key, *n));
    if (!k->rows->life)
        return methods->make(k->rows, key, *n, p->target);
    FL_TRY(methods->find(k->rows, key, *n, p->target));
    life->key = key;
    life->grad = p->grad;
    life->n = *n;
    FL_TRY(fl_life_admit(life, p->target));
    *n = keep_rows(k->rows, p, *n);
    return FLEET_OK;
}

/* By the table's squares, the last operand of an update that clips by norm.
 * Before the mean is taken: so are parameters' gradients, and rows' on GPUs. */
static void clip_own(const fl_instance *in, fl_update *u)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const double *square;
    double sum = 0;

    if (now->optimizer->norm_clip <= 0)
        return;
    square = fl_ptr(in, in->step->n_operand - 1);
    for (int i = 0; i < FL_N_BUCKET; i++)
        sum += square[i];
    u->clip = u->scale;
    u->scale = fl_clip_factor(sum, now->optimizer->norm_clip);
}

static fleet_status change_rows(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_lookup *k = fl_lookup_of(in);
    fl_lookup_part *p = &k->part[r->begin];
    fl_life_update life = life_of(in, r);
    const uint64_t *key;
    fl_update u;
    int64_t n;

    FL_TRY(list_changed(c, k, p, &key));
    FL_TRY(c->merged ? merged_rows_to_change(k, p, &life, &n)
                     : rows_to_change(k, p, &life, &n));
    u = fl_rows_update(k->rows, &now->u, (int64_t)now->u.version - 1);
    clip_own(in, &u);
    fl_rows_change(k->rows, now->optimizer, &u, key, p->target, p->grad, n);
    if (fl_rows_has_accessor(k->rows))
        fl_accessor_update(k->rows, key, p->target, p->grad, n);
    fl_wanted_rows_done(&p->wanted);
    return FLEET_OK;
}

static fleet_status update_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const fl_lookup *k = fl_lookup_of(in);
    fleet_status status;

    if (now->skip)
        return FLEET_OK;
    fl_lookup_lock(k, (int)r->begin);
    status = change_rows(in, r);
    fl_lookup_unlock(k, (int)r->begin);
    return status;
}

const fl_kernel fl_kernel_rows_update = {
    .name = "rows.update",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .run = update_run,
};
