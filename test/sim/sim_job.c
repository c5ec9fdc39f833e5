/* sim_job.c - see sim_job.h: models, scripts, workers. The reference is in
 * sim_reference.c. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "sim_job_internal.h"
#include "sim_save.h"
#include "test.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/plan/job_signature.h"
#include "runtime/store/table.h"

/* --- models --------------------------------------------------------------- */

static sim_model models[SIM_N_KIND];

/* A table has its own, by the number of the update, too. */
static void give_rule(fleet *f, sim_kind kind, fleet_optimizer *o)
{
    fleet_optimizer *own = kind == SIM_ADAGRAD
                               ? fleet_adam(f, 0.02f, NULL)
                               : fleet_rowwise_adagrad(f, 0.05f, NULL);

    CHECK(own != NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(own, 0.02f));
    CHECK_OK(fleet_optimizer_set_l1_decay(own, 0.03f));
    CHECK_OK(fleet_optimizer_set_exponential_decay(own, 0.8f, 1, 0));
    CHECK_OK(fleet_optimizer_set_table(o, "first", own));
}

static fleet_optimizer *make_optimizer(fleet *f, sim_kind kind)
{
    fleet_optimizer *o;

    if (kind == SIM_COUNT)
        return fleet_sgd(f, 0.25f);
    o = kind == SIM_SGD || kind == SIM_SGD_CLIP ? fleet_sgd(f, 0.1f)
        : kind == SIM_ADAGRAD                   ? fleet_adagrad(f, 0.1f, NULL)
                                                : fleet_adam(f, 0.01f, NULL);
    CHECK(o != NULL);
    if (kind == SIM_SGD_CLIP || kind == SIM_ADAM_CLIP || kind == SIM_BLOCKS)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(
            o, kind == SIM_BLOCKS ? 3.0f : 0.7f));
    if (kind == SIM_SGD || kind == SIM_ADAM)
        CHECK_OK(fleet_optimizer_set_l2_decay(o, 0.01f));
    if (kind == SIM_SGD || kind == SIM_BLOCKS)
        CHECK_OK(fleet_optimizer_set_l1_decay(o, 0.02f));
    if (kind == SIM_ADAM || kind == SIM_SGD_CLIP)
        CHECK_OK(fleet_optimizer_set_value_clip(o, 0.1f));
    /* so that it matters of which version a worker believes to be */
    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.9f, 1, 0));
    if (kind == SIM_ADAGRAD || kind == SIM_SGD_CLIP)
        give_rule(f, kind, o);
    return o;
}

static void add_param(fleet_program *p, const char *name, int64_t rows,
                      int64_t columns, fleet_initializer first)
{
    const int64_t dims[] = {rows, columns};

    CHECK(fleet_parameter(
              p, dims, 2,
              &(fleet_param_attr){.name = name,
                                  .initializer = first,
                                  .learning_rate = rows == 1 ? 2.0f : 0.0f,
                                  .no_decay = rows == 3}) != NULL);
}

static void add_table(fleet_program *p, fleet_var *ids, const char *name,
                      int64_t dim, fleet_initializer first,
                      fleet_table_options life)
{
    CHECK(fleet_sparse_embedding(
              p, ids, dim,
              &(fleet_sparse_embedding_options){
                  .table = name, .initializer = first, .life = life}) != NULL);
}

/* Where keys live: some wait for long, and full buckets let rows go. */
static void add_tables(fleet_program *p, fleet_var *ids, sim_kind kind,
                       fleet_initializer first)
{
    fleet_table_options life[SIM_N_TABLE] = {{.ttl_updates = 0}};

    if (kind == SIM_LIVES) {
        life[0].entry = (fleet_entry){.kind = FLEET_BLOOM_FILTER_ENTRY,
                                      .count = 2,
                                      .most_keys = 20,
                                      .false_positive_rate = 0.2};
        life[0].ttl_seconds = 200;
        life[1] = (fleet_table_options){
            .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 2},
            .ttl_updates = 5,
            .most_rows = 3072};
    }
    add_table(p, ids, "second", 5, first, life[0]);
    add_table(p, ids, "first", 3, first, life[1]);
}

/* Names that are not in the order in which they are made. */
static void build(fleet_program *p, sim_kind kind)
{
    fleet_initializer first = {0};
    fleet_var *ids = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);

    if (kind == SIM_COUNT)
        first = (fleet_initializer){FLEET_INIT_CONSTANT, 1, 0};
    if (kind != SIM_NO_DENSE) {
        add_param(p, "wide", 1, 7, first);
        add_param(p, "deep", 3, 5, first);
        add_param(p, "a", 2, 1, first);
        add_param(p, "last", 10, 15, first);
    }
    if (kind == SIM_BLOCKS)
        add_param(p, "large", FL_BLOCK + 100, 1, first);
    add_tables(p, ids, kind, first);
    CHECK_OK(fleet_program_status(p));
}

const sim_model *sim_model_of(sim_kind kind)
{
    sim_model *m = &models[kind];
    fl_store *s;

    if (m->f)
        return m;
    CHECK_OK(fleet_init(&m->f, &(fleet_options){.num_threads = 1,
                                                .seed = 11,
                                                .log_level = FLEET_LOG_ERROR}));
    m->p = fleet_program_create(m->f);
    build(m->p, kind);
    m->o = make_optimizer(m->f, kind);
    s = sim_store(m, fl_table_make);
    m->signature = fl_job_signature_text(s);
    CHECK(m->signature != NULL);
    fl_store_destroy(s);
    return m;
}

void sim_models_close(void)
{
    for (int i = 0; i < SIM_N_KIND; i++) {
        fl_free(models[i].signature);
        if (models[i].f)
            fleet_destroy(models[i].f);
        models[i] = (sim_model){0};
    }
}

/* --- what a seed makes --------------------------------------------------- */

enum { CHOICE = 1000, KEYS, GRADIENT, BATCHES, AHEAD, ASK, SAVE, MEET, PARAM };

static int choose(uint64_t seed, int what, int n)
{
    return (int)(sim_hash(seed, CHOICE, (uint64_t)what, 0, 0) % (uint64_t)n);
}

static void make_script(uint64_t seed, int n_worker, sim_script *k)
{
    k->seed = seed;
    k->n_pass = 1 + choose(seed, 1, SIM_MOST_PASS);
    for (int w = 0; w < n_worker; w++) {
        for (int p = 0; p < k->n_pass; p++)
            k->steps[w][p] = choose(seed, 100 + 10 * w + p, 5);
        k->leaves_in[w] =
            choose(seed, 200 + w, 6) ? SIM_MOST_PASS : choose(seed, 300 + w, 3);
    }
}

static void make_links(uint64_t seed, sim_options *o)
{
    static const int delay[] = {0, 2, 5, 40};

    o->delay_ms = delay[choose(seed, 10, 4)];
    o->in_order = choose(seed, 11, 2);
    o->lost = choose(seed, 12, 2) ? choose(seed, 13, 200) : 0;
    o->repeated = choose(seed, 14, 2) ? choose(seed, 15, 200) : 0;
    o->strange = choose(seed, 16, 3) ? 0 : choose(seed, 17, 200);
    o->slow = choose(seed, 18, 3) ? 0 : choose(seed, 19, 10);
}

static fl_push_options make_half(uint64_t seed, bool sync)
{
    if (sync || choose(seed, 29, 2))
        return (fl_push_options){0};
    return (fl_push_options){.merged = 1 + choose(seed, 30, 4),
                             .queue = 1 + choose(seed, 31, 3),
                             .recv_after = 1 + choose(seed, 32, 3),
                             .recv_beside = choose(seed, 33, 2)};
}

/* In one half of the jobs rows are kept: all of them, or as few as may be. */
static size_t make_cache(uint64_t seed)
{
    return choose(seed, 34, 2)   ? 0
           : choose(seed, 35, 2) ? SIM_SMALL_CACHE
                                 : 1 << 20;
}

void sim_make(uint64_t seed, bool sync, sim_options *o, sim_script *k)
{
    static const size_t pieces[] = {64, 300, 2000, FL_MSG_PIECE_BYTES};

    *k = (sim_script){0};
    k->kind = !sync ? SIM_COUNT
              : choose(seed, 20, 12) == 0
                  ? SIM_BLOCKS
                  : (sim_kind)choose(seed, 21, SIM_COUNT);
    if (k->kind == SIM_BLOCKS && choose(seed, 22, 4))
        k->kind = SIM_ADAM_CLIP;
    *o = (sim_options){
        .seed = seed,
        .model = sim_model_of(k->kind),
        .sync = sync,
        .bounds_staleness = !sync && choose(seed, 27, 2),
        .max_staleness = choose(seed, 28, 4),
        .half = make_half(seed, sync),
        .cache_bytes = make_cache(seed),
        .cache_staleness = sync ? 0 : (uint32_t)choose(seed, 36, 5),
        .n_worker =
            1 + choose(seed, 2, choose(seed, 9, 8) ? 4 : SIM_MOST_WORKER),
        .n_server = 1 + choose(seed, 3, SIM_MOST_SERVER),
        .n_lane = 1 + choose(seed, 4, 3),
        .piece_bytes = pieces[choose(seed, 5, 4)],
        .window = choose(seed, 6, 2) ? 700 : 0,
        .most_open = (size_t)(choose(seed, 7, 3) ? 1 << 30 : 140 << 10),
        .most_parked = (size_t)(choose(seed, 25, 4) ? 0 : 20 << 10),
        .most_unread = (size_t)(choose(seed, 26, 4) ? 0 : 4 << 10),
        .servers_ms = choose(seed, 23, 3) ? 50 : 3000,
        .workers_ms = choose(seed, 24, 3) ? 100 : 3000,
        .heartbeat_ms = 100,
        .connect_ms = 10000,
        .request_ms = 5000,
        .peer_ms = 2000,
        .step_ms = 20000};
    if (o->bounds_staleness) { /* weights come with each push */
        o->half.recv_after = 1;
        o->half.recv_beside = false;
    }
    k->merged = o->half.merged;
    make_links(seed, o);
    make_script(seed, o->n_worker, k);
}

void sim_give_lives(sim_options *o, sim_script *k)
{
    k->kind = SIM_LIVES;
    o->model = sim_model_of(SIM_LIVES);
    o->cache_bytes *= 2; /* of twice as many tables */
}

/* --- what is trained with ------------------------------------------------- */

static const char *const tables[SIM_N_TABLE] = {"first", "second"};

static uint64_t point(int worker, int pass, int step)
{
    return (uint64_t)worker << 32 | (uint64_t)pass << 16 | (uint64_t)step;
}

static bool has_key(const sim_keys *k, uint64_t key)
{
    for (int i = 0; i < k->n; i++)
        if (k->key[i] == key)
            return true;
    return false;
}

/* Of keys that live eight buckets have five each, in those of all lanes. */
static uint64_t key_of(const sim_script *k, uint64_t id, int table)
{
    if (k->kind != SIM_LIVES)
        return id * 0x9E3779B97F4A7C15 + (uint64_t)table;
    return fl_unmix(id % 8 << 61 | id << 1 | (uint64_t)table);
}

/* Few enough that workers share some; in the order of parts, as table_api.h
 * wants it. */
static void make_keys(const sim_script *k, uint64_t at, int table, sim_keys *to)
{
    int n = (int)(sim_hash(k->seed, KEYS, at, (uint64_t)table, 0) %
                  (SIM_MOST_KEY + 1));

    to->n = 0;
    for (int i = 0; i < n; i++) {
        uint64_t id =
            sim_hash(k->seed, KEYS, at, (uint64_t)table, (uint64_t)i + 1) % 40;
        uint64_t key = key_of(k, id, table);
        int j = to->n;

        if (has_key(to, key))
            continue;
        for (; j > 0 &&
               fl_part_of(fl_mix(to->key[j - 1])) > fl_part_of(fl_mix(key));
             j--)
            to->key[j] = to->key[j - 1];
        to->key[j] = key;
        to->n++;
    }
}

static bool asks_at(const sim_script *k, int worker, int pass, int step)
{
    sim_step b = {.at = point(worker, pass, step)};
    int table;

    return sim_asks(k, &b, &table);
}

static int walk(const sim_script *k, int worker, int pass, int step, bool asked,
                int *groups)
{
    int n = 0;

    *groups = 0;
    for (int i = 0; i <= step; i++) {
        if (n > 0 && (i < step || asked) && asks_at(k, worker, pass, i)) {
            ++*groups;
            n = 0;
        }
        if (i < step && ++n == k->merged) {
            ++*groups;
            n = 0;
        }
    }
    return n;
}

int sim_gathered(const sim_script *k, int worker, int pass, int step)
{
    int groups;

    return walk(k, worker, pass, step, true, &groups);
}

int sim_groups(const sim_script *k, int worker, int pass, int step, bool asked)
{
    int groups;

    if (k->merged == 0)
        return step;
    walk(k, worker, pass, step, asked, &groups);
    return groups;
}

void sim_batch(const sim_script *k, int worker, int pass, int step, sim_step *b)
{
    static const int counts[] = {1, 2, 4};
    uint64_t h = sim_hash(k->seed, BATCHES, point(worker, pass, step), 0, 0);

    b->at = point(worker, pass, step);
    b->n_batch = counts[h % 3];
    if (k->merged > 0) { /* so that any group has 1, 2, 4 or 8 */
        int before = sim_gathered(k, worker, pass, step);

        b->n_batch = before > 0 ? 1 << (before - 1) : 1;
    }
    b->clip = k->kind == SIM_COUNT && h >> 8 & 1 ? 0.5f : 1.0f;
    for (int t = 0; t < SIM_N_TABLE; t++)
        make_keys(k, b->at, t, &b->keys[t]);
}

/* A worker pushes most of the parameters in a step. */
bool sim_pushes(const sim_script *k, const sim_step *b, const char *param)
{
    return sim_hash(k->seed, PARAM, b->at, fl_hash(param, strlen(param), 0),
                    0) %
               8 >
           0;
}

/* A function of where it is and, but for integers, of what was pulled. */
void sim_gradient(const sim_script *k, const sim_step *b, uint64_t of,
                  const float *pulled, float *grad, int64_t n)
{
    uint64_t seed = sim_hash(k->seed, GRADIENT, b->at, of, 0);

    for (int64_t i = 0; i < n; i++) {
        uint64_t h = fl_mix(seed + (uint64_t)i);

        if (k->kind == SIM_COUNT)
            grad[i] = (float)((int)(h % 7) - 3) * 8.0f;
        else
            grad[i] = (float)(int32_t)(uint32_t)(h >> 32) * 0x1p-32f +
                      pulled[i] * 0.125f;
    }
}

bool sim_asks(const sim_script *k, const sim_step *b, int *table)
{
    uint64_t h = sim_hash(k->seed, ASK, b->at, 0, 0);

    *table = (int)(h >> 8 & 1);
    return h % 16 == 0;
}

bool sim_saves_beside(const sim_script *k, int worker, int pass, int step)
{
    return k->beside && worker == 0 && pass == 0 && step == k->beside_after;
}

sim_act sim_act_after(const sim_script *k, int pass)
{
    return (sim_act)(sim_hash(k->seed, SAVE, (uint64_t)pass, 0, 0) % SIM_ACTS);
}

sim_disk_act sim_disk_act_after(const sim_script *k, int pass)
{
    return (sim_disk_act)(sim_hash(k->seed, SAVE, (uint64_t)pass, 1, 0) %
                          SIM_DISK_ACTS);
}

sim_meeting sim_meeting_after(const sim_script *k, int pass)
{
    return (sim_meeting)(sim_hash(k->seed, MEET, (uint64_t)pass, 0, 0) %
                         SIM_MEETINGS);
}

void sim_number(int worker, int pass, double x[2])
{
    x[0] = 10 * worker + pass + 1;
    x[1] = 1.0 / (worker + 3);
}

/* --- a worker ------------------------------------------------------------- */

/* Its hands: what an iteration of a plan has. */
typedef struct hands {
    sim_worker *w;
    const sim_script *k;
    fl_remote *x;
    sim_step step[FL_N_SLOT];
    fl_pull_rows pull[FL_N_SLOT][SIM_N_TABLE];
    const float *row[FL_N_SLOT][SIM_N_TABLE][SIM_MOST_KEY];
    bool ahead; /* the other slot was pulled */
    float grad[SIM_N_TABLE][SIM_MOST_KEY][8];
    const float *at[SIM_N_TABLE][SIM_MOST_KEY];
    fl_push_rows push[SIM_N_TABLE];
} hands;

static void list_parts(hands *h, int slot, int table)
{
    const sim_keys *k = &h->step[slot].keys[table];
    fl_pull_rows *to = &h->pull[slot][table];
    int i = 0;

    *to = (fl_pull_rows){.rows = fl_store_rows(h->w->store, tables[table])};
    for (int p = 0; p < FL_N_PART; p++) {
        int first = i;

        while (i < k->n && fl_part_of(fl_mix(k->key[i])) == p)
            i++;
        to->part[p] = (fl_pull_part){k->key + first, i - first,
                                     h->row[slot][table] + first};
    }
}

static fleet_status pull(hands *h, int slot, int pass, int step, bool ahead,
                         bool now)
{
    sim_batch(h->k, h->w->index, pass, step, &h->step[slot]);
    for (int t = 0; t < SIM_N_TABLE; t++)
        list_parts(h, slot, t);
    return h->x->methods->pull(h->x, slot, h->pull[slot], SIM_N_TABLE, true,
                               ahead, now);
}

static void make_rows(hands *h, int slot)
{
    for (int t = 0; t < SIM_N_TABLE; t++) {
        const fl_rows *rows = h->pull[slot][t].rows;
        int at = 0;

        h->push[t] = (fl_push_rows){.rows = rows};
        for (int i = 0; i < h->step[slot].keys[t].n; i++) {
            uint64_t key = h->step[slot].keys[t].key[i];

            sim_gradient(h->k, &h->step[slot], key, h->row[slot][t][i],
                         h->grad[t][i], rows->dim);
            h->at[t][i] = h->grad[t][i];
        }
        for (int p = 0; p < FL_N_PART; p++) {
            const fl_pull_part *part = &h->pull[slot][t].part[p];

            h->push[t].part[p] =
                (fl_push_part){part->n, part->key, NULL, h->at[t] + at};
            at += (int)part->n;
        }
    }
}

/* The dense gradients, in memory of the run's. */
static int make_params(hands *h, int slot, fl_push_param *to)
{
    const fl_map *params = &h->w->store->params;
    int n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;
        float *grad;

        if (!sim_pushes(h->k, &h->step[slot], p->name))
            continue;
        grad = malloc((size_t)p->n * sizeof *grad); /* never fails by wish */
        sim_gradient(h->k, &h->step[slot], (uint64_t)p->n,
                     p->flat->weight + p->offset, grad, p->n);
        to[n++] = (fl_push_param){p, grad};
    }
    return n;
}

static fleet_status push(hands *h, int slot)
{
    fl_push_param param[8];
    fl_update u;
    fleet_status status;
    int n = make_params(h, slot, param);

    make_rows(h, slot);
    fl_optimizer_update(h->w->store->optimizer, h->x->updates, 1, &u);
    status =
        h->x->methods->push(h->x, &(fl_push){.param = param,
                                             .n_param = n,
                                             .table = h->push,
                                             .n_table = SIM_N_TABLE,
                                             .n_batch = h->step[slot].n_batch,
                                             .settings = fl_update_settings_of(
                                                 h->w->store->optimizer, &u),
                                             .clip = h->step[slot].clip});
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)param[i].grad);
    return status;
}

static fleet_status ask(hands *h, int table)
{
    uint64_t sum, rows;

    FL_TRY(fl_worker_hash(&h->w->core,
                          fl_partition_table(&h->w->core.layout, tables[table]),
                          &sum, &rows));
    if (h->x->sync)
        sim_note(h->w, "hash %d: %llx of %llu\n", table,
                 (unsigned long long)sum, (unsigned long long)rows);
    return FLEET_OK;
}

static sim_script *seen_by_all(const hands *h)
{
    return h->w->own;
}

static void note_steps(hands *h, int pass, int steps)
{
    sim_script *all = seen_by_all(h);

    all->pass[h->w->index] = pass;
    all->begun_steps[h->w->index] = steps;
    all->has_ended[h->w->index] = false;
}

/* How many pushes of the pass a worker has begun; INT_MAX: it does not
 * count. */
static int steps_of(const sim_script *all, int worker, int pass)
{
    if (all->has_left[worker] || all->pass[worker] > pass ||
        (all->pass[worker] == pass && all->has_ended[worker]))
        return INT_MAX;
    return all->pass[worker] == pass
               ? sim_groups(all, worker, pass, all->begun_steps[worker], true)
               : 0;
}

/* Its values have come, to compute that step of the pass with. */
static fleet_status check_staleness(const hands *h, int pass, int step)
{
    const sim_options *o = &h->w->s->o;
    int own = sim_groups(h->k, h->w->index, pass, step, false);

    for (int i = 0; i < o->n_worker && o->bounds_staleness; i++)
        if (own - o->max_staleness > steps_of(seen_by_all(h), i, pass))
            return fl_fail(
                FLEET_ESTATE,
                "step %d of pass %d is computed, %d pushes of worker "
                "%d were begun",
                step, pass, steps_of(seen_by_all(h), i, pass), i);
    return FLEET_OK;
}

/* Pull what is not there, compute, push. Now and then the next batch is pulled
 * ahead, in sync also while the update is made, and sometimes in vain. */
static fleet_status train_one(hands *h, int pass, int step)
{
    int slot = step & 1, table;
    uint64_t how;
    bool late;

    if (!h->ahead)
        FL_TRY(pull(h, slot, pass, step, false, false));
    how = sim_hash(h->k->seed, AHEAD, h->step[slot].at, 0, 0);
    h->ahead = how & 1;
    late = h->x->sync && how & 2;
    if (h->ahead && !late)
        FL_TRY(pull(h, !slot, pass, step + 1, true, false));
    FL_TRY(h->x->methods->wait_pull(h->x, slot));
    FL_TRY(check_staleness(h, pass, step));
    sim_compute(h->w, (int64_t)(how >> 8 & 15));
    if (sim_is_stuck(h->w->s, h->w->index))
        sim_compute(h->w, INT32_MAX);
    if (h->ahead && !late && how & 4) /* rows first, the rest as it arrives */
        h->x->methods->came(h->x, !slot);
    if (sim_asks(h->k, &h->step[slot], &table))
        FL_TRY(ask(h, table));
    note_steps(h, pass, step + 1);
    h->w->mark[0] = pass;
    h->w->mark[1] = step + 1;
    FL_TRY(push(h, slot));
    if (h->ahead && late)
        FL_TRY(pull(h, !slot, pass, step + 1, true, false));
    FL_TRY(h->x->methods->wait_update(h->x));
    h->x->methods->drop(h->x, slot);
    if (how >> 16 & 3)
        return FLEET_OK;
    h->x->methods->drop(h->x, !slot);
    h->ahead = false;
    return FLEET_OK;
}

/* Somebody looks at the model without training. */
static fleet_status look(hands *h, int pass)
{
    FL_TRY(pull(h, 0, pass, 99, false, true));
    FL_TRY(h->x->methods->wait_pull(h->x, 0));
    h->x->methods->drop(h->x, 0);
    return FLEET_OK;
}

static fleet_status end_pass(hands *h, int pass)
{
    double x[2];

    sim_number(h->w->index, pass, x);
    FL_TRY(h->x->methods->end_pass(h->x, x, 2));
    sim_note(h->w, "sum %a %a\n", x[0], x[1]);
    return FLEET_OK;
}

static fleet_status meet(hands *h, int pass)
{
    sim_meeting m = sim_meeting_after(h->k, pass);
    double x[2];

    if (m == SIM_BARRIER)
        return fl_worker_barrier(&h->w->core);
    if (m != SIM_MAX && m != SIM_MIN)
        return FLEET_OK;
    sim_number(h->w->index, pass, x);
    FL_TRY(fl_worker_reduce(&h->w->core, m == SIM_MAX ? 1 : 2, x, 2));
    sim_note(h->w, "%s %a %a\n", m == SIM_MAX ? "max" : "min", x[0], x[1]);
    return FLEET_OK;
}

static void note_save(hands *h, fleet_status status, char **answer)
{
    const char *before = NULL;

    if (status != FLEET_OK)
        sim_note(h->w, "not saved\n");
    for (int i = 0; i < h->w->core.n_lane && answer[i]; i++) {
        if (h->x->sync && (!before || strcmp(before, answer[i]) != 0))
            sim_note(h->w, "saved %s\n", answer[i]);
        before = answer[i];
    }
    for (int i = 0; i < h->w->core.n_lane; i++)
        fl_free(answer[i]);
}

/* The first worker saves; where a lane's disk is full it says so, and training
 * goes on. */
static fleet_status act(hands *h, int pass)
{
    sim_act what = sim_act_after(h->k, pass);
    char *answer[SIM_MOST_LANE] = {NULL}, text[40];
    fleet_status status;

    if (h->w->index != 0 || what == SIM_NO_ACT || h->k->path)
        return FLEET_OK;
    snprintf(text, sizeof text, "%s %d", what == SIM_FULL ? "full" : "save",
             pass % h->w->core.n_lane);
    status = fl_worker_command(&h->w->core, FL_COMMAND_SAVE, text, answer);
    note_save(h, status, answer);
    if (what == SIM_FULL && status == FLEET_EIO &&
        strstr(fleet_last_error(), "the disk is full"))
        return FLEET_OK;
    return status;
}

static fleet_status use_disk(hands *h, int pass)
{
    if (!h->k->path)
        return FLEET_OK;
    return sim_use_disk(h->w, h->w->own, pass);
}

/* As fleet_init_worker() does it; without a load or a bound nothing needs
 * it. */
static fleet_status begin(hands *h)
{
    if (!h->k->load_first && !h->w->s->o.bounds_staleness)
        return FLEET_OK;
    if (h->k->load_first && h->w->index == 0)
        FL_TRY(sim_load_job(h->w, h->k));
    return fl_worker_barrier(&h->w->core);
}

static fleet_status one_pass(hands *h, int pass, int first)
{
    for (int i = first; i < h->k->steps[h->w->index][pass]; i++) {
        FL_TRY(train_one(h, pass, i));
        if (sim_saves_beside(h->k, h->w->index, pass, i))
            FL_TRY(sim_save_job(h->w, h->k->beside));
    }
    for (int i = 0; i < FL_N_SLOT; i++)
        h->x->methods->drop(h->x, i);
    h->ahead = false;
    note_steps(h, pass, h->k->steps[h->w->index][pass]);
    seen_by_all(h)->has_ended[h->w->index] = true;
    seen_by_all(h)->has_left[h->w->index] =
        h->k->leaves_in[h->w->index] == pass;
    if (h->k->leaves_in[h->w->index] == pass)
        return FLEET_OK;
    h->w->mark[0] = pass;
    h->w->mark[1] = h->k->steps[h->w->index][pass];
    FL_TRY(end_pass(h, pass));
    FL_TRY(look(h, pass));
    FL_TRY(act(h, pass));
    FL_TRY(meet(h, pass));
    return use_disk(h, pass);
}

fleet_status sim_work(sim_worker *w)
{
    const sim_script *k = w->own;
    hands h = {.w = w, .k = k, .x = &w->core.remote};
    int pass = 0, step = 0;

    if (w->trail && fl_trail_from(w->trail)->state == FL_TRAIL_LEAVING)
        return fl_worker_leave_again(&w->core);
    FL_TRY(begin(&h));
    FL_TRY(h.x->methods->refresh(h.x));
    FL_TRY(sim_go_on(w, &pass, &step));
    for (; pass < k->n_pass && pass <= k->leaves_in[w->index]; pass++, step = 0)
        FL_TRY(one_pass(&h, pass, step));
    sim_keep_log(w);
    return fl_worker_leave(&w->core);
}
