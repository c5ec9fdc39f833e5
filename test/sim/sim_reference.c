/* sim_reference.c - a script computed step by step with one store. */
#define SUITE sim_kit
#include "sim_reference.h"
#include "sim_save.h"
#include "test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/life/life.h"
#include "runtime/store/table.h"

static const char *const tables[SIM_N_TABLE] = {"first", "second"};

/* --- contributions -------------------------------------------------------- */

static void add(float *sum, const float *g, int64_t n, bool first)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = first ? g[i] : sum[i] + g[i];
}

/* Half-async: each batch is clipped by itself; so is what travels in fewer
 * bytes. */
static bool clips_before(const sim_reference *r)
{
    return r->k->merged > 0 || r->o->wire.push != FL_CODEC_F32;
}

static void clip(const sim_reference *r, const sim_step *b, float *g, int64_t n)
{
    for (int64_t i = 0; i < n && clips_before(r); i++)
        g[i] *= b->clip;
}

/* --- in fewer bytes ------------------------------------------------------- */

static float *rest_at(sim_reference *r, int worker, int table, uint64_t key,
                      int64_t n)
{
    sim_rest *one = r->rests;

    while (one &&
           (one->worker != worker || one->table != table || one->key != key))
        one = one->next;
    if (!one) {
        one = fl_alloc(sizeof *one);
        *one = (sim_rest){r->rests, worker, table, key,
                          fl_alloc((size_t)n * sizeof(float))};
        r->rests = one;
    }
    return one->values;
}

/* A row or a block of a gradient, as it arrives. */
static void travel(sim_reference *r, int worker, int table, uint64_t key,
                   float *g, int64_t n)
{
    const fl_wire_options *wire = &r->o->wire;
    fl_codec codec = table < 0 ? wire->push : fl_codec_of_rows(wire->push, n);
    char *bytes = malloc((size_t)n * sizeof(float));
    float *rest;

    if (codec != FL_CODEC_F32) {
        rest = rest_at(r, worker, table, key, n);
        for (int64_t i = 0; i < n && !wire->forgets; i++)
            g[i] += rest[i];
        memcpy(rest, g, (size_t)n * sizeof *g);
        fl_codec_write(codec, bytes, rest, true, 1, n);
        fl_codec_read(codec, g, bytes, 1, n);
    }
    free(bytes);
}

/* A row or a block of weights, as a worker gets it. */
static void pulled(const sim_reference *r, bool is_row, const float *from,
                   float *to, int64_t n)
{
    fl_codec codec =
        is_row ? fl_codec_of_rows(r->o->wire.pull, n) : r->o->wire.pull;
    char *bytes = malloc((size_t)n * sizeof(float));

    memmove(to, from, (size_t)n * sizeof *to);
    fl_codec_write(codec, bytes, to, false, 1, n);
    fl_codec_read(codec, to, bytes, 1, n);
    free(bytes);
}

static int64_t block_at(const fl_param *p, int64_t first)
{
    return p->n - first < FL_BLOCK ? p->n - first : FL_BLOCK;
}

static float *gradient_of(sim_reference *r, int worker, const sim_step *b,
                          int i)
{
    const fl_param *p = r->param[i];
    float *g = fl_alloc((size_t)p->n * sizeof *g);

    for (int64_t at = 0; at < p->n; at += FL_BLOCK)
        pulled(r, false, p->flat->weight + p->offset + at, g + at,
               block_at(p, at));
    sim_gradient(r->k, b, (uint64_t)p->n, g, g, p->n);
    clip(r, b, g, p->n);
    for (int64_t at = 0; at < p->n; at += FL_BLOCK)
        travel(r, worker, -1, (uint64_t)i << 32 | (uint64_t)at, g + at,
               block_at(p, at));
    return g;
}

static void add_param(sim_reference *r, int worker, const sim_step *b, int i)
{
    const fl_param *p = r->param[i];
    float *g;

    if (!sim_pushes(r->k, b, p->name))
        return;
    g = gradient_of(r, worker, b, i);
    if (r->sum[i]) {
        add(r->sum[i], g, p->n, false);
        fl_free(g);
    } else {
        r->sum[i] = g;
    }
}

static void add_row(sim_reference *r, int worker, const sim_step *b, int table,
                    uint64_t key)
{
    fl_rows *rows = fl_store_rows(r->store, tables[table]);
    sim_row_sums *s = &r->rows[table];
    float first[SIM_MOST_DIM], g[SIM_MOST_DIM], *row;
    int i = 0;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    fl_filler_row(&rows->filler, key, first, rows->dim);
    pulled(r, true, row ? row : first, first, rows->dim);
    sim_gradient(r->k, b, key, first, g, rows->dim);
    clip(r, b, g, rows->dim);
    travel(r, worker, table, key, g, rows->dim);
    while (i < s->n && s->key[i] != key)
        i++;
    add(s->sum[i], g, rows->dim, i == s->n);
    s->key[i] = key;
    s->n += i == s->n;
}

static void contribute(sim_reference *r, int worker, int pass, int step)
{
    sim_step b;
    int table;

    sim_batch(r->k, worker, pass, step, &b);
    if (sim_asks(r->k, &b, &table) && r->o->sync) {
        uint64_t rows = 0, sum = sim_rows_hash(r->store, tables[table], &rows);

        fl_text_add(&r->log[worker], "hash %d: %llx of %llu\n", table,
                    (unsigned long long)sum, (unsigned long long)rows);
    }
    for (int i = 0; i < SIM_MOST_PARAM && r->param[i]; i++)
        add_param(r, worker, &b, i);
    for (int t = 0; t < SIM_N_TABLE; t++)
        for (int i = 0; i < b.keys[t].n; i++)
            add_row(r, worker, &b, t, b.keys[t].key[i]);
    r->n_batch += b.n_batch;
    r->clip = clips_before(r) ? 1.0f : b.clip;
    r->steps[worker] += r->k->merged == 0;
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

static int find(const sim_row_sums *s, uint64_t key)
{
    int i = 0;

    while (s->key[i] != key)
        i++;
    return i;
}

/* Buckets are added up each for itself. */
static double rows_norm(const sim_reference *r, int table, double sum,
                        float scale)
{
    int64_t dim = fl_store_rows(r->store, tables[table])->dim;
    const sim_row_sums *s = &r->rows[table];
    uint64_t key[SIM_MOST_SUM];
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

static float clip_factor(const sim_reference *r, float scale)
{
    double most = (double)r->store->optimizer->clip_norm, sum = 0;

    for (int i = 0; i < SIM_MOST_PARAM && r->param[i]; i++)
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
        u.decay = u.l1 = 0;
    return u;
}

static void update_param(sim_reference *r, const fl_update *all, int i)
{
    const fl_param *p = r->param[i];
    fl_update u = for_attr(all, &p->attr);
    float *state[FL_MAX_STATE] = {NULL};

    for (int j = 0; j < FL_MAX_STATE; j++)
        if (p->flat->state[j])
            state[j] = p->flat->state[j] + p->offset;
    fl_optimizer_dense(r->store->optimizer, &(fleet_param_attr){0})(
        &u, p->flat->weight + p->offset, r->sum[i], state, p->n);
    fl_free(r->sum[i]);
    r->sum[i] = NULL;
}

/* The rows of the sums' keys; NULL: it has none. */
static void find_rows(const sim_reference *r, fl_rows *rows, sim_row_sums *s,
                      float **row)
{
    fl_life_update u = {.rows = rows,
                        .key = s->key,
                        .n = s->n,
                        .version = (uint64_t)r->store->updates + 1};

    if (!rows->life) {
        CHECK_OK(rows->methods->make(rows, s->key, s->n, row));
        return;
    }
    CHECK_OK(rows->methods->find(rows, s->key, s->n, row));
    CHECK_OK(fl_life_admit(&u, row));
}

static void update_rows(sim_reference *r, const fl_update *all, int table)
{
    const fleet_param_attr none = {0};
    fl_rows *rows = fl_store_rows(r->store, tables[table]);
    fl_update own =
        fl_own_update(rows->optimizer, &none, all, r->store->updates);
    fl_update u = for_attr(&own, &rows->attr);
    sim_row_sums *s = &r->rows[table];
    float *row[SIM_MOST_SUM];

    find_rows(r, rows, s, row);
    for (int i = 0; i < s->n; i++) {
        const float *g = s->sum[i];

        if (row[i])
            fl_rows_change(rows, r->store->optimizer, &u, &s->key[i], &row[i],
                           &g, 1);
    }
    s->n = 0;
}

static void update(sim_reference *r)
{
    const fleet_optimizer *o = r->store->optimizer;
    fl_update u;

    fl_optimizer_update(o, r->store->updates, r->n_batch, &u);
    u.clip = o->clip_norm > 0 ? clip_factor(r, u.scale) : r->clip;
    for (int i = 0; i < SIM_MOST_PARAM && r->param[i]; i++)
        if (r->sum[i])
            update_param(r, &u, i);
    for (int t = 0; t < SIM_N_TABLE; t++)
        update_rows(r, &u, t);
    r->store->updates++;
    r->n_batch = 0;
}

/* --- a job ---------------------------------------------------------------- */

static bool is_there(const sim_reference *r, int worker, int pass)
{
    return worker < r->o->n_worker && pass <= r->k->leaves_in[worker];
}

/* And says so at the pass's end. */
static bool stays(const sim_reference *r, int worker, int pass)
{
    return worker < r->o->n_worker && pass < r->k->leaves_in[worker];
}

static bool is_beyond(const sim_reference *r, int worker)
{
    return r->limit && r->steps[worker] >= r->limit[worker];
}

static void train_step(sim_reference *r, int pass, int step)
{
    bool any = false;

    for (int w = 0; w < r->o->n_worker; w++) {
        if (!is_there(r, w, pass) || step >= r->k->steps[w][pass])
            continue;
        if (is_beyond(r, w)) {
            r->steps[w]++;
        } else {
            contribute(r, w, pass, step);
            any = true;
        }
        if (any && !r->o->sync)
            update(r);
        any = any && r->o->sync;
        r->steps[w] += sim_saves_beside(r->k, w, pass, step);
    }
    if (any)
        update(r);
}

/* Sums are exact, in whatever order workers push. */
static void gather_pass(sim_reference *r, int pass)
{
    for (int w = 0; w < r->o->n_worker; w++) {
        int steps = is_there(r, w, pass) ? r->k->steps[w][pass] : 0;

        for (int i = 0; i < steps; i++) {
            bool last = i + 1 == steps;

            contribute(r, w, pass, i);
            if (!last && sim_gathered(r->k, w, pass, i + 1) > 0)
                continue;
            update(r);
            r->steps[w]++;
        }
    }
}

/* how: 0 sum, 1 max, 2 min. */
static void join_numbers(sim_reference *r, int pass, int how, const char *name)
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

/* Is a barrier the end of a pass? */
static bool ends_at_barriers(const sim_reference *r)
{
    return r->o->sync || r->o->bounds_staleness;
}

static void wait_for_all(sim_reference *r, int pass)
{
    for (int w = 0; w < r->o->n_worker && ends_at_barriers(r); w++)
        r->steps[w] += stays(r, w, pass);
}

/* What the job says of its saves is believed, and whether it is so is looked at
 * afterwards. */
static void save_twin(sim_reference *r, int pass)
{
    char path[300];

    sim_twin_path(r->k, pass, path);
    CHECK_OK(sim_save_store(r->store, path));
    r->steps[0]++;
    if (r->k->begun[pass] && (!r->k->saved[pass] || r->k->in_doubt[pass]))
        fl_text_add(&r->log[0], "not saved\n");
}

static void use_disk(sim_reference *r, int pass)
{
    sim_disk_act act = sim_disk_act_after(r->k, pass);
    char path[300];

    if (act == SIM_TO_DISK || act == SIM_TO_BAD_DISK) {
        wait_for_all(r, pass);
        wait_for_all(r, pass);
        if (stays(r, 0, pass))
            save_twin(r, pass);
    }
    if (!sim_loads_after(r->k, pass))
        return;
    sim_twin_path(r->k, sim_last_saved(r->k, pass), path);
    CHECK_OK(sim_load_store(r->store, path));
    r->steps[0]++;
    wait_for_all(r, pass);
    if (r->o->bounds_staleness) /* the sum before it, too */
        wait_for_all(r, pass);
}

static void begin(sim_reference *r)
{
    bool waits = (r->k->load_first && r->o->sync) || r->o->bounds_staleness;

    if (r->k->first)
        CHECK_OK(sim_load_store(r->store, r->k->first));
    if (r->k->load_first) /* else servers do, and no step is needed */
        r->steps[0]++;
    for (int w = 0; w < r->o->n_worker && waits; w++)
        r->steps[w]++;
}

static void after_pass(sim_reference *r, int pass)
{
    sim_act act = sim_act_after(r->k, pass);
    sim_meeting m = sim_meeting_after(r->k, pass);

    join_numbers(r, pass, 0, "sum");
    if (r->k->path)
        act = SIM_NO_ACT;
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
            r->steps[w]++;
    if (m == SIM_BARRIER ||
        (r->o->bounds_staleness && (m == SIM_MAX || m == SIM_MIN)))
        wait_for_all(r, pass);
    if (r->k->path)
        use_disk(r, pass);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(fl_param *const *)a)->name, (*(fl_param *const *)b)->name);
}

void sim_reference_open_until(sim_reference *r, const sim *s,
                              const sim_script *k, const uint64_t *limit)
{
    *r = (sim_reference){.k = k, .o = &s->o, .limit = limit};
    r->store = sim_store(s->o.model, fl_table_make);
    for (size_t i = 0; i < r->store->params.n; i++)
        r->param[i] = r->store->params.entry[i].value;
    qsort(r->param, r->store->params.n, sizeof *r->param, by_name);
    begin(r);
    for (int p = 0; p < k->n_pass; p++) {
        for (int i = 0; i < 8 && k->merged == 0; i++)
            train_step(r, p, i);
        if (k->merged > 0)
            gather_pass(r, p);
        after_pass(r, p);
    }
    for (int w = 0; w < s->o.n_worker; w++)
        r->steps[w]++; /* LEAVE */
}

void sim_reference_open(sim_reference *r, const sim *s, const sim_script *k)
{
    sim_reference_open_until(r, s, k, NULL);
}

void sim_reference_close(sim_reference *r)
{
    while (r->rests) {
        sim_rest *next = r->rests->next;

        fl_free(r->rests->values);
        fl_free(r->rests);
        r->rests = next;
    }
    fl_store_destroy(r->store);
    for (int w = 0; w < SIM_MOST_WORKER; w++)
        fl_text_done(&r->log[w]);
}
