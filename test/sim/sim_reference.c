/* sim_reference.c - a script computed step by step with one store, and the
 * comparison with what a run has left on its lanes. */
#define SUITE sim_kit
#include "sim_job_internal.h"
#include "test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/table.h"

enum {
    MOST_SUM = SIM_MOST_WORKER * SIM_MOST_KEY,
    MOST_PARAM = 8,
    MOST_DIM = 8
};

static const char *const tables[SIM_N_TABLE] = {"first", "second"};

/* Sums over the workers of a step. */
typedef struct row_sums {
    uint64_t key[MOST_SUM];
    float sum[MOST_SUM][MOST_DIM];
    int n;
} row_sums;

typedef struct reference {
    const sim_script *k;
    const sim_options *o;
    fl_store *store;
    fl_param *param[MOST_PARAM]; /* by name */
    float *sum[MOST_PARAM];      /* NULL: no gradient */
    row_sums rows[SIM_N_TABLE];
    int n_batch;
    float clip;
    fl_text log[SIM_MOST_WORKER];
    uint64_t steps[SIM_MOST_WORKER]; /* of the stream, LEAVE included */
} reference;

/* --- contributions -------------------------------------------------------- */

static void add(float *sum, const float *g, int64_t n, bool first)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = first ? g[i] : sum[i] + g[i];
}

static void add_param(reference *r, const sim_step *b, int i)
{
    const fl_param *p = r->param[i];
    float *g;

    if (!sim_pushes(r->k, b, p->name))
        return;
    g = fl_alloc((size_t)p->n * sizeof *g);
    sim_gradient(r->k, b, (uint64_t)p->n, p->flat->weight + p->offset, g, p->n);
    if (r->sum[i]) {
        add(r->sum[i], g, p->n, false);
        fl_free(g);
    } else {
        r->sum[i] = g;
    }
}

static void add_row(reference *r, const sim_step *b, int table, uint64_t key)
{
    fl_rows *rows = fl_store_rows(r->store, tables[table]);
    row_sums *s = &r->rows[table];
    float first[MOST_DIM], g[MOST_DIM], *row;
    int i = 0;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    fl_filler_row(&rows->filler, key, first, rows->dim);
    sim_gradient(r->k, b, key, row ? row : first, g, rows->dim);
    while (i < s->n && s->key[i] != key)
        i++;
    add(s->sum[i], g, rows->dim, i == s->n);
    s->key[i] = key;
    s->n += i == s->n;
}

static void contribute(reference *r, int worker, int pass, int step)
{
    sim_step b;
    int table;

    sim_batch(r->k, worker, pass, step, &b);
    if (sim_asks(r->k, &b, &table) && r->o->sync) {
        uint64_t rows = 0, sum = sim_rows_hash(r->store, tables[table], &rows);

        fl_text_add(&r->log[worker], "hash %d: %llx of %llu\n", table,
                    (unsigned long long)sum, (unsigned long long)rows);
    }
    for (int i = 0; i < MOST_PARAM && r->param[i]; i++)
        add_param(r, &b, i);
    for (int t = 0; t < SIM_N_TABLE; t++)
        for (int i = 0; i < b.keys[t].n; i++)
            add_row(r, &b, t, b.keys[t].key[i]);
    r->n_batch += b.n_batch;
    r->clip = b.clip;
    r->steps[worker]++;
}

/* --- clip: contracts.md, section 2 ---------------------------------------- */

static double squares(const float *g, int64_t n, float scale)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)(g[i] * scale);

        sum += x * x;
    }
    return sum;
}

static int row_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    int p = fl_bucket_of(fl_mix(x)), q = fl_bucket_of(fl_mix(y));

    return p != q ? (p > q) - (p < q) : (x > y) - (x < y);
}

static int find(const row_sums *s, uint64_t key)
{
    int i = 0;

    while (s->key[i] != key)
        i++;
    return i;
}

/* Buckets are added up each for itself. */
static double rows_norm(const reference *r, int table, double sum, float scale)
{
    int64_t dim = fl_store_rows(r->store, tables[table])->dim;
    const row_sums *s = &r->rows[table];
    uint64_t key[MOST_SUM];
    double bucket = 0;

    memcpy(key, s->key, sizeof key);
    qsort(key, (size_t)s->n, sizeof *key, row_order);
    for (int i = 0; i < s->n; i++) {
        if (i > 0 &&
            fl_bucket_of(fl_mix(key[i])) != fl_bucket_of(fl_mix(key[i - 1]))) {
            sum += bucket;
            bucket = 0;
        }
        bucket += squares(s->sum[find(s, key[i])], dim, scale);
    }
    return sum + bucket;
}

static float clip_factor(const reference *r, float scale)
{
    double most = (double)r->store->optimizer->clip_norm, sum = 0;

    for (int i = 0; i < MOST_PARAM && r->param[i]; i++)
        for (int64_t b = 0; r->sum[i] && b < r->param[i]->n; b += FL_BLOCK) {
            int64_t left = r->param[i]->n - b;

            sum += squares(r->sum[i] + b, left < FL_BLOCK ? left : FL_BLOCK,
                           scale);
        }
    for (int t = 0; t < SIM_N_TABLE; t++)
        sum = rows_norm(r, t, sum, scale);
    return sqrt(sum) > most ? (float)(most / sqrt(sum)) : 1.0f;
}

/* --- an update ------------------------------------------------------------ */

static fl_update for_attr(const fl_update *all, const fleet_param_attr *a)
{
    fl_update u = *all;

    u.lr *= a->learning_rate > 0 ? a->learning_rate : 1.0f;
    if (a->l2_decay > 0)
        u.decay = a->l2_decay;
    if (a->no_decay)
        u.decay = 0;
    return u;
}

static void update_param(reference *r, const fl_update *all, int i)
{
    const fl_param *p = r->param[i];
    fl_update u = for_attr(all, &p->attr);
    float *state[FL_MAX_STATE] = {NULL};

    for (int j = 0; j < FL_MAX_STATE; j++)
        if (p->flat->state[j])
            state[j] = p->flat->state[j] + p->offset;
    fl_optimizer_dense(r->store->optimizer)(&u, p->flat->weight + p->offset,
                                            r->sum[i], state, p->n);
    fl_free(r->sum[i]);
    r->sum[i] = NULL;
}

static void update_rows(reference *r, const fl_update *all, int table)
{
    fl_rows *rows = fl_store_rows(r->store, tables[table]);
    fl_update u = for_attr(all, &rows->attr);
    row_sums *s = &r->rows[table];

    for (int i = 0; i < s->n; i++) {
        const float *g = s->sum[i];
        float *row;

        CHECK_OK(rows->methods->make(rows, &s->key[i], 1, &row));
        fl_optimizer_rows(r->store->optimizer)(&u, &row, &g, 1, rows->dim);
    }
    s->n = 0;
}

static void update(reference *r)
{
    const fleet_optimizer *o = r->store->optimizer;
    fl_update u;

    fl_optimizer_update(o, r->store->updates, r->n_batch, &u);
    u.clip = o->clip_norm > 0 ? clip_factor(r, u.scale) : r->clip;
    for (int i = 0; i < MOST_PARAM && r->param[i]; i++)
        if (r->sum[i])
            update_param(r, &u, i);
    for (int t = 0; t < SIM_N_TABLE; t++)
        update_rows(r, &u, t);
    r->store->updates++;
    r->n_batch = 0;
}

/* --- a job ---------------------------------------------------------------- */

static bool is_there(const reference *r, int worker, int pass)
{
    return worker < r->o->n_worker && pass <= r->k->leaves_in[worker];
}

/* And says so at the pass's end. */
static bool stays(const reference *r, int worker, int pass)
{
    return worker < r->o->n_worker && pass < r->k->leaves_in[worker];
}

static void train_step(reference *r, int pass, int step)
{
    bool any = false;

    for (int w = 0; w < r->o->n_worker; w++) {
        if (!is_there(r, w, pass) || step >= r->k->steps[w][pass])
            continue;
        contribute(r, w, pass, step);
        any = true;
        if (!r->o->sync)
            update(r);
    }
    if (any && r->o->sync)
        update(r);
}

/* how: 0 sum, 1 max, 2 min. */
static void join_numbers(reference *r, int pass, int how, const char *name)
{
    double all[2] = {0, 0}, x[2];
    bool first = true;

    for (int w = 0; w < r->o->n_worker; w++) {
        if (!stays(r, w, pass))
            continue;
        sim_number(w, pass, x);
        for (int i = 0; i < 2; i++)
            all[i] = first      ? x[i]
                     : how == 0 ? all[i] + x[i]
                     : how == 1 ? fmax(all[i], x[i])
                                : fmin(all[i], x[i]);
        first = false;
    }
    for (int w = 0; w < r->o->n_worker; w++)
        if (stays(r, w, pass))
            fl_text_add(&r->log[w], "%s %a %a\n", name, all[0], all[1]);
}

static void after_pass(reference *r, int pass)
{
    sim_act act = sim_act_after(r->k, pass);
    sim_meeting m = sim_meeting_after(r->k, pass);

    join_numbers(r, pass, 0, "sum");
    if (stays(r, 0, pass) && act == SIM_FULL)
        fl_text_add(&r->log[0], "not saved\n");
    if (stays(r, 0, pass) && act == SIM_SAVE && r->o->sync)
        fl_text_add(&r->log[0], "saved %lld\n", (long long)r->store->updates);
    if (stays(r, 0, pass) && act != SIM_NO_ACT)
        r->steps[0]++;
    if (m == SIM_MAX || m == SIM_MIN)
        join_numbers(r, pass, m == SIM_MAX ? 1 : 2,
                     m == SIM_MAX ? "max" : "min");
    for (int w = 0; w < r->o->n_worker; w++)
        if (stays(r, w, pass))
            r->steps[w] += m == SIM_BARRIER && r->o->sync ? 2 : 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(fl_param *const *)a)->name, (*(fl_param *const *)b)->name);
}

static void open_reference(reference *r, const sim *s, const sim_script *k)
{
    *r = (reference){.k = k, .o = &s->o};
    r->store = sim_store(s->o.model, fl_table_make);
    for (size_t i = 0; i < r->store->params.n; i++)
        r->param[i] = r->store->params.entry[i].value;
    qsort(r->param, r->store->params.n, sizeof *r->param, by_name);
    for (int p = 0; p < k->n_pass; p++) {
        for (int i = 0; i < 8; i++)
            train_step(r, p, i);
        after_pass(r, p);
    }
    for (int w = 0; w < s->o.n_worker; w++)
        r->steps[w]++; /* LEAVE */
}

static void close_reference(reference *r)
{
    fl_store_destroy(r->store);
    for (int w = 0; w < SIM_MOST_WORKER; w++)
        fl_text_done(&r->log[w]);
}

/* --- comparing
 * ----------------------------------------------------------------
 */

static char difference[2000];

#define DIFFERS(...)                                                           \
    (snprintf(difference, sizeof difference, __VA_ARGS__),                     \
     (const char *)difference)

static bool same_block(const fl_param *p, const fl_param *q, int64_t block)
{
    int64_t at = fl_block_offset(p, block), want = fl_block_offset(q, block);
    size_t bytes = (size_t)fl_block_size(p, block) * sizeof(float);

    if (memcmp(p->flat->weight + at, q->flat->weight + want, bytes) != 0)
        return false;
    for (int i = 0; i < FL_MAX_STATE; i++)
        if (p->flat->state[i] && memcmp(p->flat->state[i] + at,
                                        q->flat->state[i] + want, bytes) != 0)
            return false;
    return true;
}

/* Blocks of the lane are the reference's, and it keeps no others. */
static const char *check_blocks(const reference *r, const sim_lane *l,
                                int *n_block)
{
    const fl_bucket_set *own = &l->core->aggregate.own;

    for (int i = 0; i < MOST_PARAM && r->param[i]; i++)
        for (int64_t b = 0; b < fl_blocks_of(r->param[i]); b++) {
            const fl_param *p = fl_store_param(l->store, r->param[i]->name);
            bool ours = fl_bucket_set_has(own, fl_block_bucket(l->store, p, b));

            *n_block += ours;
            if (ours != (fl_block_offset(p, b) >= 0) ||
                (ours && !same_block(p, r->param[i], b)))
                return DIFFERS("block %" PRId64 " of \"%s\" on lane %d", b,
                               p->name, l->number);
        }
    return NULL;
}

typedef struct row_check {
    fl_rows *want;
    const sim_lane *l;
    int n_bad;
} row_check;

static fleet_status check_row(void *arg, int bucket, const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    row_check *c = arg;
    uint64_t key = head->key;
    size_t n = (size_t)(c->want->dim * (1 + c->want->n_state));
    float *want;

    CHECK_OK(c->want->methods->find(c->want, &key, 1, &want));
    if (!want || !fl_bucket_set_has(&c->l->core->aggregate.own, bucket) ||
        memcmp(want, row, n * sizeof *row) != 0 ||
        fl_row_of(want)->step != head->step)
        c->n_bad++;
    return FLEET_OK;
}

static const char *check_tables(const reference *r, const sim_lane *l,
                                int64_t count[SIM_N_TABLE])
{
    for (int t = 0; t < SIM_N_TABLE; t++) {
        const fl_rows *rows = fl_store_rows(l->store, tables[t]);
        row_check c = {fl_store_rows(r->store, tables[t]), l, 0};

        count[t] += rows->methods->count(rows);
        CHECK_OK(rows->methods->each(rows, check_row, &c));
        if (c.n_bad)
            return DIFFERS("%d rows of \"%s\" on lane %d", c.n_bad, tables[t],
                           l->number);
    }
    return NULL;
}

static const char *check_lane(const reference *r, const sim_lane *l)
{
    if (fl_lane_state_of(l->core) != FL_LANE_LEFT)
        return DIFFERS("lane %d is in state %d: %s", l->number,
                       fl_lane_state_of(l->core), fl_lane_error(l->core)->text);
    if (fl_lane_version(l->core) != r->store->updates)
        return DIFFERS("lane %d has version %" PRId64 ", not %" PRId64,
                       l->number, fl_lane_version(l->core), r->store->updates);
    for (int w = 0; w < r->o->n_worker; w++)
        if (l->core->stream[w].done != r->steps[w])
            return DIFFERS("lane %d has %" PRIu64 " steps of worker %d, not "
                           "%" PRIu64,
                           l->number, l->core->stream[w].done, w, r->steps[w]);
    return NULL;
}

static const char *check_worker(const reference *r, const sim_worker *w)
{
    if (!w->ended || w->status != FLEET_OK)
        return DIFFERS("worker %d %s: %s", w->index,
                       w->ended ? "failed" : "has not ended", w->text);
    if (strcmp(w->log, fl_text_chars(&r->log[w->index])) != 0)
        return DIFFERS("worker %d saw\n%snot\n%s", w->index, w->log,
                       fl_text_chars(&r->log[w->index]));
    return NULL;
}

static const char *check_counts(const reference *r, int n_block,
                                const int64_t count[SIM_N_TABLE])
{
    for (int t = 0; t < SIM_N_TABLE; t++) {
        const fl_rows *rows = fl_store_rows(r->store, tables[t]);

        if (rows->methods->count(rows) != count[t])
            return DIFFERS("%" PRId64 " rows of \"%s\", not %" PRId64, count[t],
                           tables[t], rows->methods->count(rows));
    }
    for (int i = 0; i < MOST_PARAM && r->param[i]; i++)
        n_block -= (int)fl_blocks_of(r->param[i]);
    return n_block ? DIFFERS("%d blocks too many", n_block) : NULL;
}

static const char *compare(const sim *s, const reference *r)
{
    int64_t count[SIM_N_TABLE] = {0};
    const char *bad = NULL;
    int n_block = 0;

    for (int w = 0; w < s->o.n_worker && !bad; w++)
        bad = check_worker(r, &s->worker[w]);
    for (int i = 0; i < s->n_lane && !bad; i++)
        bad = check_lane(r, &s->lane[i]);
    for (int i = 0; i < s->n_lane && !bad; i++)
        bad = check_blocks(r, &s->lane[i], &n_block);
    for (int i = 0; i < s->n_lane && !bad; i++)
        bad = check_tables(r, &s->lane[i], count);
    return bad ? bad : check_counts(r, n_block, count);
}

const char *sim_check(sim *s, const sim_script *k)
{
    reference r;
    const char *bad;

    open_reference(&r, s, k);
    bad = compare(s, &r);
    close_reference(&r);
    return bad;
}

/* --- when somebody fell silent
 * -------------------------------------------------
 */

/* It says who; or has nothing to complain of. */
static const char *check_end(const char *who, int i, bool ended, bool well,
                             fleet_status code, const char *text,
                             const char *culprit)
{
    if (!ended)
        return DIFFERS("%s %d has not ended", who, i);
    if (well)
        return NULL;
    if (code != FLEET_EPEER && code != FLEET_ETIMEDOUT)
        return DIFFERS("%s %d: %s: %s", who, i, fleet_status_name(code), text);
    return strstr(text, culprit)
               ? NULL
               : DIFFERS("%s %d does not name %s: %s", who, i, culprit, text);
}

const char *sim_check_failure(sim *s, const sim_script *k)
{
    int dead = s->o.dead_worker >= 0 ? s->o.dead_worker : s->o.stuck_worker;
    char culprit[40];
    const char *bad = NULL;
    bool all = true;

    snprintf(culprit, sizeof culprit, "%s %d", dead >= 0 ? "worker" : "server",
             dead >= 0 ? dead : s->o.dead_server);
    for (int i = 0; i < s->o.n_worker && !bad; i++) {
        const sim_worker *w = &s->worker[i];

        all = all &&
              ((w->ended && w->status == FLEET_OK) || i == s->o.stuck_worker);
        if (!w->dead && i != s->o.stuck_worker)
            bad = check_end("worker", i, w->ended, w->status == FLEET_OK,
                            w->status, w->text, culprit);
    }
    if (all && s->o.stuck_worker >= 0)
        return bad; /* nobody waited for it */
    for (int i = 0; i < s->n_lane && !bad; i++) {
        fl_lane_state state = fl_lane_state_of(s->lane[i].core);
        const fl_error *error = fl_lane_error(s->lane[i].core);

        if (!s->lane[i].dead)
            bad = check_end("lane", i, state != FL_LANE_RUNS,
                            state == FL_LANE_LEFT, error->code, error->text,
                            culprit);
    }
    /* who ended well did all there was to do */
    return !bad && all && s->o.dead_server < 0 ? sim_check(s, k) : bad;
}
