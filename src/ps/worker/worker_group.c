/* worker_group.c - half-async: sums of a group's gradients, its push, and the
 * weights that are asked for after a push; see worker_group.h. */
#include "ps/worker/worker_group.h"

#include <string.h>

#include "base/memory.h"
#include "ps/worker/worker_internal.h"
#include "runtime/simd/simd.h"

enum { PREFETCH = 16 }; /* keys whose places in a set are needed soon */

/* --- adding --------------------------------------------------------------- */

static int param_at(const fl_worker *w, const fl_param *p)
{
    int i = 0;

    while (i < w->layout.n_param && w->layout.param[i] != p)
        i++;
    return i; /* n_param: ranks keep it */
}

static int table_at(const fl_worker *w, const fl_rows *rows)
{
    int i = 0;

    while (i < w->layout.n_table && w->layout.table[i] != rows)
        i++;
    return i;
}

static fleet_status make_room(fl_worker *w, const fl_push *p)
{
    fl_push_sums *g = &w->group;

    for (int i = 0; i < p->n_param; i++) {
        int at = param_at(w, p->param[i].param);

        if (at < w->layout.n_param && !g->dense[at].sum)
            FL_TRY(FL_NEW(&g->dense[at].sum,
                          (size_t)p->param[i].param->n * sizeof(float)));
    }
    for (int i = 0; i < p->n_table; i++) {
        int at = table_at(w, p->table[i].rows);
        int64_t n = 0;

        for (int j = 0; j < FL_N_PART; j++)
            n += p->table[i].part[j].n;
        if (at < w->layout.n_table)
            FL_TRY(fl_row_sums_room(&g->table[at].sums, n, p->table[i].rows));
    }
    return FLEET_OK;
}

static void add_param(fl_param_sum *to, const fl_push_param *p, float factor)
{
    const fl_simd *simd = fl_simd_best();
    int64_t n = p->param->n;

    if (to->has && factor == 1.0f)
        simd->add(to->sum, to->sum, p->grad, n);
    else if (to->has)
        simd->add_scaled(to->sum, p->grad, factor, 0.0f, n);
    else
        simd->scale(to->sum, p->grad, factor, 0.0f, n);
    to->has = true;
}

static uint64_t key_at(const fl_push_part *part, int64_t i)
{
    return part->key[part->which ? part->which[i] : i];
}

static void add_rows(fl_row_sums *to, const fl_push_rows *p, float factor)
{
    for (int j = 0; j < FL_N_PART; j++) {
        const fl_push_part *part = &p->part[j];

        for (int64_t i = 0; i < part->n; i++) {
            if (i + PREFETCH < part->n)
                fl_key_set_prefetch(&to->keys, key_at(part, i + PREFETCH));
            fl_row_sums_add(to, key_at(part, i), part->grad[i], factor,
                            p->rows);
        }
    }
}

/* Each batch with its own clip, and without the scale of its loss. */
static void add_all(fl_worker *w, const fl_push *p)
{
    fl_push_sums *g = &w->group;
    float scale = fl_push_factor(p);

    for (int i = 0; i < p->n_param; i++) {
        const fl_param *param = p->param[i].param;
        int at = param_at(w, param);

        if (at < w->layout.n_param)
            add_param(&g->dense[at], &p->param[i],
                      scale * fl_push_param_factor(p, param, p->clip));
    }
    for (int i = 0; i < p->n_table; i++) {
        int at = table_at(w, p->table[i].rows);

        if (at < w->layout.n_table)
            add_rows(&g->table[at].sums, &p->table[i], scale * p->clip);
    }
    g->n++;
    g->n_batch += p->n_batch;
    g->settings = p->settings;
}

/* --- pushing -------------------------------------------------------------- */

static fleet_status list_tables(fl_worker *w)
{
    fl_push_sums *g = &w->group;

    for (int t = 0; t < w->layout.n_table; t++) {
        fl_table_sum *from = &g->table[t];
        int64_t n = from->sums.keys.n;
        int64_t width = fl_rows_pushed(w->layout.table[t]);

        FL_TRY(fl_grow(&from->grad, &from->grad_capacity, (size_t)n,
                       sizeof *from->grad));
        for (int64_t i = 0; i < n; i++)
            from->grad[i] = from->sums.sum + i * width;
        g->rows[t] = (fl_push_rows){.rows = w->layout.table[t]};
        g->rows[t].part[0] =
            (fl_push_part){n, from->sums.keys.key, NULL, from->grad};
    }
    return FLEET_OK;
}

static int list_params(fl_worker *w)
{
    fl_push_sums *g = &w->group;
    int n = 0;

    for (int i = 0; i < w->layout.n_param; i++)
        if (g->dense[i].has)
            g->param[n++] =
                (fl_push_param){w->layout.param[i], g->dense[i].sum};
    return n;
}

static void forget(fl_worker *w)
{
    fl_push_sums *g = &w->group;

    for (int i = 0; i < w->layout.n_param; i++)
        g->dense[i].has = false;
    for (int t = 0; t < w->layout.n_table; t++)
        fl_row_sums_clear(&g->table[t].sums);
    g->n = 0;
    g->n_batch = 0;
}

/* Lanes answer in order: weights that are asked for after a push have it. Where
 * weights are used when they come, they have come before new ones are asked
 * for. */
static fleet_status ask_for_weights(fl_worker *w)
{
    const fl_pull_buffer *s = &w->slot[FL_DENSE_SLOT];
    fl_push_sums *g = &w->group;
    bool on_its_way = g->how.recv_beside && s->under_way && !s->arrived;

    if (w->layout.n_param == 0 || g->since < g->how.recv_after || on_its_way)
        return FLEET_OK;
    FL_TRY(fl_worker_pull_dense(w, false, false,
                                w->bounds_staleness ? w->n_push + 1 : 0));
    g->since = 0;
    return FLEET_OK;
}

fleet_status fl_group_flush(fl_worker *w)
{
    fl_push_sums *g = &w->group;
    fl_push p = {.param = g->param, .table = g->rows, .clip = 1.0f};

    if (g->n == 0)
        return FLEET_OK;
    FL_TRY(list_tables(w));
    p.n_param = list_params(w);
    p.n_table = w->layout.n_table;
    p.n_batch = g->n_batch < INT32_MAX ? (int)g->n_batch : INT32_MAX;
    p.settings = g->settings;
    FL_TRY(fl_worker_send_push(w, &p));
    forget(w);
    g->since++;
    if (ask_for_weights(w) != FLEET_OK)
        fl_error_clear(); /* asked again where they are needed */
    return FLEET_OK;
}

fleet_status fl_group_add(fl_worker *w, const fl_push *p)
{
    fl_push_sums *g = &w->group;
    fleet_status status;

    if (g->n >= g->how.merged)
        FL_TRY(fl_group_flush(w));
    FL_TRY(make_room(w, p));
    add_all(w, p);
    if (g->n < g->how.merged)
        return FLEET_OK;
    status = fl_group_flush(w);
    if (status != FLEET_ENOMEM || fl_client_status(w->client) != FLEET_OK)
        return status;
    fl_error_clear(); /* nothing is lost: the batch is in the group */
    return FLEET_OK;
}

bool fl_group_pushes_next(const fl_worker *w)
{
    return w->group.n + 1 >= w->group.how.merged;
}

/* --- weights -------------------------------------------------------------- */

fleet_status fl_group_renew(fl_worker *w)
{
    const fl_pull_buffer *s = &w->slot[FL_DENSE_SLOT];

    FL_TRY(ask_for_weights(w));
    if (w->group.how.recv_beside && s->under_way && !s->arrived) {
        if (w->host.look)
            w->host.look(w->host.arg);
        if (!fl_pull_is_answered(s))
            return fl_client_status(w->client);
    }
    return fl_worker_complete(w, FL_DENSE_SLOT);
}

/* --- life ----------------------------------------------------------------- */

fleet_status fl_worker_use_half_async(fl_worker *w, const fl_push_options *how)
{
    size_t params = (size_t)w->layout.n_param + 1;
    size_t tables = (size_t)w->layout.n_table + 1;
    fl_push_sums *g = &w->group;

    FL_TRY(FL_NEW(&g->dense, params * sizeof *g->dense));
    FL_TRY(FL_NEW(&g->param, params * sizeof *g->param));
    FL_TRY(FL_NEW(&g->table, tables * sizeof *g->table));
    FL_TRY(FL_NEW(&g->rows, tables * sizeof *g->rows));
    g->how = *how;
    w->most_under_way = how->queue;
    return FLEET_OK;
}

void fl_group_done(fl_worker *w)
{
    fl_push_sums *g = &w->group;

    for (int i = 0; g->dense && i < w->layout.n_param; i++)
        fl_free(g->dense[i].sum);
    for (int i = 0; g->table && i < w->layout.n_table; i++) {
        fl_row_sums_done(&g->table[i].sums);
        fl_free(g->table[i].grad);
    }
    fl_free(g->dense);
    fl_free(g->param);
    fl_free(g->table);
    fl_free(g->rows);
    *g = (fl_push_sums){0};
}
