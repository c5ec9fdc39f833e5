/* ranking.c - recall and NDCG of items among all items. */
#include "fleet/train/ranking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/pool.h"
#include "ops/metrics.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/feed_fetch.h"
#include "runtime/graph/program.h"

/* Items of a block are scored side by side; a task ranks TASK_ROWS rows. */
enum { BLOCK = 16, TASK_ROWS = 32, MOST_K = 1000000 };

static const char *const kind_name[] = {
    [FLEET_RECALL_AT] = "recall", [FLEET_NDCG_AT] = "ndcg"};

enum { N_KIND = sizeof kind_name / sizeof *kind_name };

/* --- names ---------------------------------------------------------------- */

void fl_ranking_name(const fleet_ranking *r, char name[FL_RANKING_NAME])
{
    snprintf(name, FL_RANKING_NAME, "%s@%lld", kind_name[r->kind],
             (long long)r->k);
}

bool fl_ranking_parse(const char *name, fleet_ranking *r)
{
    char again[FL_RANKING_NAME];
    const char *at = strchr(name, '@');

    for (int i = 0; at && i < N_KIND; i++) {
        *r = (fleet_ranking){.kind = (fleet_ranking_kind)i,
                             .k = strtoll(at + 1, NULL, 10)};
        fl_ranking_name(r, again);
        if (r->k >= 1 && r->k <= MOST_K && strcmp(again, name) == 0)
            return true;
    }
    return false;
}

/* --- items ---------------------------------------------------------------- */

/* Where a key is, or would be. */
static uint32_t *slot_of(const fl_items *t, uint64_t key)
{
    size_t at = fl_mix(key) & (t->n_slot - 1);

    while (t->slot[at] && t->key[t->slot[at] - 1] != key)
        at = (at + 1) & (t->n_slot - 1);
    return &t->slot[at];
}

/* -1: it is none of them. */
static int64_t find_item(const fl_items *t, uint64_t key)
{
    return t->n_slot > 0 ? (int64_t)*slot_of(t, key) - 1 : -1;
}

/* At most half of the slots are taken. */
static fleet_status make_slots(fl_items *t)
{
    const size_t n = t->n_slot ? 2 * t->n_slot : 1024;

    if ((size_t)t->n * 2 < t->n_slot)
        return FLEET_OK;
    fl_free(t->slot);
    t->slot = fl_alloc_array(n, sizeof *t->slot);
    t->n_slot = t->slot ? n : 0;
    if (!t->slot)
        return FLEET_ENOMEM;
    memset(t->slot, 0, n * sizeof *t->slot);
    for (int64_t i = 0; i < t->n; i++)
        *slot_of(t, t->key[i]) = (uint32_t)i + 1;
    return FLEET_OK;
}

/* The first number of item i; the next ones are a block apart. */
static float *vector_at(const fl_items *t, int64_t i)
{
    return t->vector + i / BLOCK * BLOCK * t->dim + i % BLOCK;
}

static fleet_status add_item(fl_items *t, uint64_t key, const float *vector)
{
    const size_t size = (size_t)(BLOCK * t->dim);

    FL_TRY(make_slots(t));
    if (*slot_of(t, key))
        return FLEET_OK;
    if (t->n == UINT32_MAX - 1)
        return fl_fail(FLEET_EUNSUPPORTED, "evaluation: more than %lld items",
                       (long long)UINT32_MAX - 1);
    FL_TRY(
        fl_grow(&t->key, &t->key_capacity, (size_t)t->n + 1, sizeof *t->key));
    if (t->n % BLOCK == 0) {
        FL_TRY(fl_grow(&t->vector, &t->vector_capacity,
                       (size_t)(t->n / BLOCK + 1) * size, sizeof *t->vector));
        memset(t->vector + (size_t)(t->n / BLOCK) * size, 0,
               size * sizeof *t->vector);
    }
    for (int64_t k = 0; k < t->dim; k++)
        vector_at(t, t->n)[k * BLOCK] = vector[k];
    t->key[t->n] = key;
    *slot_of(t, key) = (uint32_t)++t->n;
    return FLEET_OK;
}

/* --- what a batch has ----------------------------------------------------- */

static void add_input(fl_hasher *h, const fleet_executor *e, const fleet_var *v,
                      int64_t row)
{
    const fl_input *in = &e->input[v->id];
    const int64_t cols = in->offsets ? 1 : fl_shape_cols(&v->shape);
    const int64_t first = in->offsets ? in->offsets[row] : row * cols;
    const int64_t n = in->offsets ? in->offsets[row + 1] - first : cols;
    const size_t size = fleet_dtype_size(v->dtype);

    fl_hasher_add(h, &n, sizeof n);
    fl_hasher_add(h, (const char *)in->data + (size_t)first * size,
                  (size_t)n * size);
}

static uint64_t key_of(const fl_ranking *r, const fleet_executor *e,
                       int64_t row)
{
    fl_hasher h;

    fl_hasher_init(&h, 0);
    for (int i = 0; i < r->n_made_of; i++)
        add_input(&h, e, r->made_of[i], row);
    return fl_hasher_end(&h);
}

/* Has it an item to find? */
static bool is_ranked(const fl_ranking *r, const fleet_executor *e, int64_t row)
{
    const void *labels = r->label ? e->input[r->label->id].data : NULL;

    return !labels ||
           fl_number_at(labels, r->label->dtype != FLEET_INT64, row) == 1.0;
}

/* Vectors [rows, dim] of a batch that was run. */
static fleet_status fetch_vectors(fleet_executor *e, const fleet_var *v,
                                  const char *whose, int64_t rows, int64_t dim,
                                  float **to, size_t *capacity)
{
    fleet_fetch f = {.var = v};

    FL_TRY(fl_grow(to, capacity, (size_t)(rows * dim), sizeof **to));
    f.data = *to;
    f.size = *capacity * sizeof **to;
    FL_TRY(fl_executor_fetch(e, &f));
    for (int64_t i = 0; i < rows * dim; i++)
        if (!isfinite((*to)[i]))
            return fl_fail(FLEET_ENUMERIC,
                           "evaluation: %s vector in row %lld of a batch is "
                           "not finite",
                           whose, (long long)(i / dim));
    return FLEET_OK;
}

static fleet_status fetch_items(fl_ranking *r, fleet_executor *e, int64_t rows)
{
    return fetch_vectors(e, r->item, "the item's", rows, r->items.dim,
                         &r->batch_item, &r->item_capacity);
}

static fleet_status note_items(void *arg, fleet_executor *e, const fl_batch *b)
{
    fl_ranking *r = arg;

    FL_TRY(fetch_items(r, e, b->rows));
    for (int64_t i = 0; i < b->rows; i++)
        FL_TRY(add_item(&r->items, key_of(r, e, i),
                        r->batch_item + i * r->items.dim));
    return FLEET_OK;
}

fleet_status fl_ranking_read_items(fl_ranking *r, fleet_executor *e,
                                   fleet_dataset *items)
{
    const fleet_train_options o = {
        .fetch_list = &r->item, .n_fetch = 1, .print_period = INT64_MAX};

    FL_TRY(fl_infer_pass(e, items, &o, note_items, r, NULL));
    return r->items.n > 0 ? FLEET_OK
                          : fl_fail(FLEET_EEND, "evaluation: the dataset of "
                                                "items has no sample");
}

/* --- places --------------------------------------------------------------- */

typedef struct ranked_rows {
    fl_ranking *r;
    const fleet_executor *e;
    int64_t rows;
} ranked_rows;

/* A sum in the order of the vectors' numbers, as score_block() makes it. */
static float own_score(const fl_ranking *r, int64_t row, int64_t own)
{
    const fl_items *t = &r->items;
    const float *u = r->batch_user + row * t->dim;
    const float *v = own < 0 ? r->batch_item + row * t->dim : vector_at(t, own);
    const int64_t step = own < 0 ? 1 : BLOCK;
    float sum = 0;

    for (int64_t k = 0; k < t->dim; k++)
        sum += u[k] * v[k * step];
    return sum;
}

static void score_block(const fl_items *t, int64_t block, const float *u,
                        float score[BLOCK])
{
    const float *v = t->vector + block * BLOCK * t->dim;

    memset(score, 0, BLOCK * sizeof *score);
    for (int64_t k = 0; k < t->dim; k++)
        for (int i = 0; i < BLOCK; i++)
            score[i] += u[k] * v[k * BLOCK + i];
}

static void rank_row(fl_ranking *r, const fleet_executor *e, int64_t row)
{
    const fl_items *t = &r->items;
    const int64_t own = find_item(t, key_of(r, e, row));
    const float at = own_score(r, row, own);
    int64_t above = 0, as_high = 1; /* itself */
    float score[BLOCK];

    for (int64_t b = 0; b * BLOCK < t->n; b++) {
        score_block(t, b, r->batch_user + row * t->dim, score);
        for (int64_t i = b * BLOCK; i < t->n && i < (b + 1) * BLOCK; i++)
            if (i != own) {
                above += score[i % BLOCK] > at;
                as_high += score[i % BLOCK] == at;
            }
    }
    r->place[2 * row] = above;
    r->place[2 * row + 1] = as_high;
}

static void rank_task(void *arg, int task, int thread)
{
    const ranked_rows *of = arg;
    const int64_t first = (int64_t)task * TASK_ROWS;

    (void)thread;
    for (int64_t i = first; i < of->rows && i < first + TASK_ROWS; i++)
        if (is_ranked(of->r, of->e, i))
            rank_row(of->r, of->e, i);
}

static void rank_rows(fl_ranking *r, const fleet_executor *e, int64_t rows)
{
    ranked_rows of = {r, e, rows};

    fl_pool_share(e->context->pool, (int)((rows + TASK_ROWS - 1) / TASK_ROWS),
                  rank_task, &of);
}

/* --- metrics -------------------------------------------------------------- */

/* The mean over the places that the item may have: as many from `above` on. */
static double value_of(const fleet_ranking *m, int64_t above, int64_t as_high)
{
    const int64_t end = above + as_high < m->k ? above + as_high : m->k;
    double sum = 0;

    for (int64_t place = above; place < end; place++)
        sum += m->kind == FLEET_RECALL_AT ? 1 : 1 / log2((double)place + 2);
    return sum / (double)as_high;
}

fleet_status fl_ranking_add(fl_ranking *r, fleet_executor *e, int64_t rows)
{
    FL_TRY(fetch_items(r, e, rows));
    FL_TRY(fetch_vectors(e, r->user, "the user's", rows, r->items.dim,
                         &r->batch_user, &r->user_capacity));
    FL_TRY(fl_grow(&r->place, &r->place_capacity, 2 * (size_t)rows,
                   sizeof *r->place));
    rank_rows(r, e, rows);
    for (int64_t i = 0; i < rows; i++) {
        if (!is_ranked(r, e, i))
            continue;
        for (int m = 0; m < r->n; m++)
            r->sum[m] +=
                value_of(&r->of[m], r->place[2 * i], r->place[2 * i + 1]);
        r->samples++;
    }
    return FLEET_OK;
}

fleet_status fl_ranking_result(const fl_ranking *r, fleet_evaluation *out)
{
    if (r->samples == 0)
        return fl_fail(FLEET_EEND, "evaluation: no sample has label 1, so that "
                                   "there is no item to find");
    out->items = r->items.n;
    out->n_ranking = r->n;
    for (int i = 0; i < r->n; i++) {
        out->ranking[i] = r->of[i];
        out->ranking[i].value = r->sum[i] / (double)r->samples;
    }
    return FLEET_OK;
}

/* --- open, close ---------------------------------------------------------- */

static fleet_status check_metrics(const fleet_ranking *metrics, int n)
{
    if (n < 1 || n > FLEET_MOST_RANKINGS || !metrics)
        return fl_fail(FLEET_EINVAL,
                       "fleet_evaluate_ranking: %d metrics; expected 1 to %d",
                       n, (int)FLEET_MOST_RANKINGS);
    for (int i = 0; i < n; i++)
        if ((int)metrics[i].kind < 0 || (int)metrics[i].kind >= N_KIND ||
            metrics[i].k < 1 || metrics[i].k > MOST_K)
            return fl_fail(FLEET_EINVAL,
                           "fleet_evaluate_ranking: metric %d: kind %d, k "
                           "%lld; expected kind 0 to %d, k 1 to %d",
                           i, (int)metrics[i].kind, (long long)metrics[i].k,
                           (int)N_KIND - 1, (int)MOST_K);
    return FLEET_OK;
}

static fleet_status check_vectors(const fleet_model *m)
{
    int64_t users, items;

    if (!m->user || !m->item)
        return fl_fail(FLEET_EINVAL, "fleet_evaluate_ranking: the model has no "
                                     "vectors of users and items");
    users = fl_shape_cols(&m->user->shape);
    items = fl_shape_cols(&m->item->shape);
    if (users != items)
        return fl_fail(FLEET_EINVAL,
                       "fleet_evaluate_ranking: vectors of %lld numbers of "
                       "users, of %lld of items; expected as many",
                       (long long)users, (long long)items);
    return FLEET_OK;
}

static fleet_status find_inputs(fl_ranking *r, fleet_var *item)
{
    const fleet_program *p = item->program;
    bool *marked = fl_alloc(p->n_node + 1);

    r->made_of = fl_alloc_array(p->n_var + 1, sizeof *r->made_of);
    if (!marked || !r->made_of) {
        fl_free(marked);
        return FLEET_ENOMEM;
    }
    fl_program_mark(p, &item, 1, marked);
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_DATA &&
            fl_program_reads(p, marked, p->var[i]))
            r->made_of[r->n_made_of++] = p->var[i];
    fl_free(marked);
    return FLEET_OK;
}

fleet_status fl_ranking_open(fl_ranking *r, const fleet_model *m,
                             const fleet_ranking *metrics, int n)
{
    *r = (fl_ranking){.user = m->user, .item = m->item, .label = m->label};
    FL_TRY(check_metrics(metrics, n));
    FL_TRY(check_vectors(m));
    r->items.dim = fl_shape_cols(&m->item->shape);
    r->n = n;
    memcpy(r->of, metrics, (size_t)n * sizeof *metrics);
    return find_inputs(r, m->item);
}

void fl_ranking_close(fl_ranking *r)
{
    fl_free(r->made_of);
    fl_free(r->items.vector);
    fl_free(r->items.slot);
    fl_free(r->items.key);
    fl_free(r->batch_user);
    fl_free(r->batch_item);
    fl_free(r->place);
    *r = (fl_ranking){0};
}
