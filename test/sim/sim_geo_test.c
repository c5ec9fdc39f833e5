/* sim_geo_test.c - geo mode in simulated jobs: workers train copies and
 * exchange what has changed. Updates are small integers, so that sums are exact
 * in any order: whatever is lost or repeated, the servers have the mean of what
 * the workers have made, and after a last exchange all copies are the servers',
 * to the bit; as is what a subscriber has heard.
 */
#define SUITE sim_geo
#include "sim_feed.h"
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/worker/geo_internal.h"

enum { KEYS = 60, AT_ONCE = 7, TABLES = 2, MOST_DIM = 5, PARAMS = 4 };
enum { PICK_KEY = 1, PICK_GRADIENT, PICK_N };

static const char *const tables[TABLES] = {"first", "second"};
static const char *const params[PARAMS] = {"wide", "deep", "a", "last"};

/* What all workers have made, divided by their number. */
typedef struct tally {
    int64_t steps;
    int leaves; /* worker that leaves halfway; -1: none */
    int looks;  /* every so many steps a worker looks as a test does */
    bool prefetches, meets; /* meets: a barrier halfway */
    int step_ms;            /* that a step takes at least */
    double row[TABLES][KEYS];
    bool made[TABLES][KEYS]; /* updated by anybody */
    double param[PARAMS][256];
    double own[SIM_MOST_WORKER][TABLES][KEYS]; /* of each worker alone */
    const char *wrong;
} tally;

typedef struct hand {
    sim_worker *w;
    tally *t;
    fl_remote *x;
    uint64_t key[FL_N_SLOT][TABLES][AT_ONCE];
    int n[FL_N_SLOT][TABLES];
    const float *row[FL_N_SLOT][TABLES][AT_ONCE];
    fl_pull_rows pull[FL_N_SLOT][TABLES];
    uint64_t seen[TABLES]; /* bits of keys that were looked up */
} hand;

static uint64_t key_of(int number)
{
    return (uint64_t)number * 0x9E3779B97F4A7C15;
}

static int number_of(uint64_t key)
{
    int i = 0;

    while (key_of(i) != key)
        i++;
    return i;
}

static uint64_t draw(const hand *h, int what, int64_t step, int table, int i)
{
    return sim_hash(h->w->s->o.seed, (uint64_t)what << 32 | (uint64_t)step,
                    (uint64_t)h->w->index, (uint64_t)table, (uint64_t)i);
}

/* Different keys in the order of parts. */
static void choose_keys(hand *h, int slot, int64_t step, int table)
{
    uint64_t *key = h->key[slot][table];
    int n = (int)(draw(h, PICK_N, step, table, 0) % AT_ONCE), made = 0;

    for (int i = 0; i < n; i++) {
        int number = (int)(draw(h, PICK_KEY, step, table, i) % KEYS), j;
        uint64_t one = key_of(number);
        bool twice = false;

        for (j = 0; j < made; j++)
            twice = twice || key[j] == one;
        if (twice)
            continue;
        for (j = made++;
             j > 0 && fl_part_of(fl_mix(key[j - 1])) > fl_part_of(fl_mix(one));
             j--)
            key[j] = key[j - 1];
        key[j] = one;
        h->seen[table] |= 1ull << number;
    }
    h->n[slot][table] = made;
}

static void part_keys(hand *h, int slot, int table)
{
    fl_pull_rows *to = &h->pull[slot][table];
    int i = 0;

    *to = (fl_pull_rows){.rows = fl_store_rows(h->w->store, tables[table])};
    for (int p = 0; p < FL_N_PART; p++) {
        int first = i;

        while (i < h->n[slot][table] &&
               fl_part_of(fl_mix(h->key[slot][table][i])) == p)
            i++;
        to->part[p] = (fl_pull_part){h->key[slot][table] + first, i - first,
                                     h->row[slot][table] + first};
    }
}

static fleet_status ask(hand *h, int slot, int64_t step, bool prefetch)
{
    for (int t = 0; t < TABLES; t++) {
        choose_keys(h, slot, step, t);
        part_keys(h, slot, t);
    }
    return h->x->methods->pull(h->x, slot, h->pull[slot], TABLES, true,
                               prefetch, false);
}

/* --- updates -------------------------------------------------------------- */

typedef struct gradients {
    float row[TABLES][AT_ONCE][MOST_DIM], param[PARAMS][256];
    const float *at[TABLES][AT_ONCE];
    fl_push_rows rows[TABLES];
    fl_push_param params[PARAMS];
} gradients;

/* 1 to 3, in all columns: the learning rate is 0.25. */
static void make_rows(hand *h, int slot, int64_t step, int t, gradients *g)
{
    int64_t dim = g->rows[t].rows->dim;
    int n = h->w->s->o.n_worker;

    for (int i = 0; i < h->n[slot][t]; i++) {
        int by = 1 + (int)(draw(h, PICK_GRADIENT, step, t, i) % 3);
        int number = number_of(h->key[slot][t][i]);

        for (int64_t d = 0; d < dim; d++)
            g->row[t][i][d] = -4.0f * (float)by;
        g->at[t][i] = g->row[t][i];
        h->t->row[t][number] += (double)by / n;
        h->t->own[h->w->index][t][number] += (double)by / n;
        h->t->made[t][number] = true;
    }
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_pull_part *part = &h->pull[slot][t].part[p];

        g->rows[t].part[p] = (fl_push_part){
            part->n, part->key, NULL, g->at[t] + (part->key - h->key[slot][t])};
    }
}

static void make_param(hand *h, int64_t step, int i, gradients *g)
{
    fl_param *p = fl_store_param(h->w->store, params[i]);
    float rate = p->attr.learning_rate > 0 ? p->attr.learning_rate : 1;

    for (int64_t j = 0; j < p->n; j++) {
        int by = (int)(draw(h, PICK_GRADIENT, step, TABLES + i, (int)j) % 5);

        g->param[i][j] = -4.0f * (float)by;
        h->t->param[i][j] += (double)((float)by * rate) / h->w->s->o.n_worker;
    }
    g->params[i] = (fl_push_param){p, g->param[i]};
}

static fleet_status update(hand *h, int slot, int64_t step)
{
    const fleet_optimizer *o = h->w->store->optimizer;
    gradients g = {0};
    fl_update u;

    for (int t = 0; t < TABLES; t++) {
        g.rows[t].rows = fl_store_rows(h->w->store, tables[t]);
        make_rows(h, slot, step, t, &g);
    }
    for (int i = 0; i < PARAMS; i++)
        make_param(h, step, i, &g);
    fl_optimizer_update(o, 0, 1, &u);
    return h->x->methods->push(
        h->x, &(fl_push){.table = g.rows,
                         .n_table = TABLES,
                         .param = g.params,
                         .n_param = PARAMS,
                         .n_batch = 1,
                         .settings = fl_update_settings_of(o, &u),
                         .clip = 1});
}

/* --- steps ---------------------------------------------------------------- */

static void wrong(hand *h, const char *what)
{
    static char text[200];

    snprintf(text, sizeof text, "worker %d: %s", h->w->index, what);
    h->t->wrong = text;
}

/* A test sees at least what this worker has made, and makes no copies. */
static fleet_status look(hand *h, int slot)
{
    int64_t before = h->w->core.geo->table[0].rows->methods->count(
        h->w->core.geo->table[0].rows);

    for (int t = 0; t < TABLES; t++) {
        h->n[slot][t] = 0;
        for (int i = 0; i < KEYS && h->n[slot][t] < AT_ONCE - 1; i += 11)
            h->key[slot][t][h->n[slot][t]++] = key_of(i);
        h->pull[slot][t] =
            (fl_pull_rows){.rows = fl_store_rows(h->w->store, tables[t])};
        h->pull[slot][t].part[0] =
            (fl_pull_part){h->key[slot][t], h->n[slot][t], h->row[slot][t]};
    }
    FL_TRY(h->x->methods->pull(h->x, slot, h->pull[slot], TABLES, true, false,
                               true));
    FL_TRY(h->x->methods->wait_pull(h->x, slot));
    for (int t = 0; t < TABLES; t++)
        for (int i = 0; i < h->n[slot][t]; i++)
            if ((double)h->row[slot][t][i][0] <
                1 + h->t->own[h->w->index][t][number_of(h->key[slot][t][i])])
                wrong(h, "a test has not seen its worker's updates");
    h->x->methods->drop(h->x, slot);
    if (h->w->core.geo->table[0].rows->methods->count(
            h->w->core.geo->table[0].rows) != before)
        wrong(h, "a test has made copies");
    return FLEET_OK;
}

static fleet_status one_step(hand *h, int64_t step, int64_t steps)
{
    int slot = (int)(step & 1);

    if (step == 0 || !h->t->prefetches)
        FL_TRY(ask(h, slot, step, false));
    if (h->t->prefetches && step + 1 < steps)
        FL_TRY(ask(h, !slot, step + 1, true));
    FL_TRY(h->x->methods->wait_pull(h->x, slot));
    sim_compute(h->w,
                h->t->step_ms + 1 + (int64_t)(draw(h, PICK_N, step, 9, 9) % 3));
    FL_TRY(update(h, slot, step));
    h->x->methods->drop(h->x, slot);
    FL_TRY(h->x->methods->wait_update(h->x));
    if (h->t->looks && !h->t->prefetches && step % h->t->looks == 0)
        FL_TRY(look(h, slot));
    if (h->t->meets && step == h->t->steps / 4)
        FL_TRY(fl_worker_barrier(&h->w->core));
    return FLEET_OK;
}

static void check_copies(hand *h)
{
    const fl_geo *g = h->w->core.geo;

    for (int t = 0; t < TABLES; t++) {
        fl_rows *rows = g->table[t].rows;
        int64_t n = 0;

        for (int i = 0; i < KEYS; i++) {
            uint64_t key = key_of(i);
            float *row;

            if (rows->methods->find(rows, &key, 1, &row) != FLEET_OK || !row)
                continue;
            n++;
            for (int64_t d = 0; d < rows->dim; d++)
                if ((double)row[d] != 1 + h->t->row[t][i])
                    wrong(h, "a row's copy is not what the servers have");
        }
        if (n != __builtin_popcountll(h->seen[t]))
            wrong(h, "it has copies of other rows than it has looked up");
    }
    for (int i = 0; i < PARAMS; i++) {
        const fl_param *p = fl_store_param(h->w->store, params[i]);

        for (int64_t j = 0; j < p->n; j++)
            if ((double)p->flat->weight[p->offset + j] != 1 + h->t->param[i][j])
                wrong(h, "a weight is not what the servers have");
    }
}

static fleet_status train(sim_worker *w)
{
    hand h = {.w = w, .t = w->own, .x = &w->core.remote};
    bool leaves = w->index == h.t->leaves;
    int64_t steps = leaves ? h.t->steps / 2 : h.t->steps;
    double sum = 1;

    FL_TRY(fl_worker_barrier(&w->core));
    for (int64_t i = 0; i < steps; i++)
        FL_TRY(one_step(&h, i, steps));
    if (!leaves) {
        FL_TRY(h.x->methods->end_pass(h.x, &sum, 1));
        check_copies(&h);
        FL_TRY(fl_worker_barrier(&w->core)); /* nobody has pushed meanwhile */
    }
    return fl_worker_leave(&w->core);
}

/* --- runs ----------------------------------------------------------------- */

static sim_options options_of(uint64_t seed)
{
    return (sim_options){.seed = seed,
                         .model = sim_model_of(SIM_COUNT),
                         .geo_every = 100,
                         .n_worker = 4,
                         .n_server = 2,
                         .n_lane = 2,
                         .piece_bytes = FL_MSG_PIECE_BYTES,
                         .servers_ms = 10,
                         .workers_ms = 10,
                         .heartbeat_ms = 100,
                         .connect_ms = 10000,
                         .request_ms = 30000,
                         .peer_ms = 10000,
                         .step_ms = 60000};
}

static const char *check_lanes(const sim *s, const tally *t)
{
    int64_t rows = 0, made = 0;

    for (int l = 0; l < s->n_lane; l++)
        for (int i = 0; i < TABLES; i++) {
            fl_rows *r = fl_store_rows(sim_leader_of(s, l)->store, tables[i]);

            rows += r->methods->count(r);
            for (int k = 0; k < KEYS; k++) {
                uint64_t key = key_of(k);
                float *row;

                CHECK_OK(r->methods->find(r, &key, 1, &row));
                for (int64_t d = 0; row && d < r->dim; d++)
                    if ((double)row[d] != 1 + t->row[i][k])
                        return "a server's row is not the mean of the workers'";
            }
        }
    for (int i = 0; i < TABLES; i++)
        for (int k = 0; k < KEYS; k++)
            made += t->made[i][k];
    return rows == made ? NULL : "the servers have other rows";
}

static sim_feed_counts followed;
static int n_died, n_cut; /* servers, as they wrote; journals */
static int n_moved;       /* lanes */

static const char *run(const sim_options *o, tally *t, fl_lane_counts *counts)
{
    static char text[1200];
    const char *bad = NULL;
    sim s;

    sim_open(&s, o, train, t);
    sim_run(&s, SIM_LONGEST_MS);
    for (int i = 0; i < o->n_worker; i++)
        if (s.worker[i].phase != SIM_ENDED || s.worker[i].status != FLEET_OK) {
            snprintf(text, sizeof text, "worker %d: %s", i, s.worker[i].text);
            bad = text;
        }
    if (!bad && !sim_is_well(&s))
        bad = "a lane has not ended well";
    bad = bad ? bad : t->wrong ? t->wrong : check_lanes(&s, t);
    if (!bad && o->subscriber)
        bad = sim_feed_check(&s, &followed);
    n_died += s.n_died;
    n_cut += s.n_cut;
    for (int i = 0; i < s.all_lanes; i++)
        n_moved += s.lane[i].core &&
                   fl_lane_replica(s.lane[i].core) == FL_REPLICA_GONE;
    for (int i = 0; i < s.n_lane && counts; i++) {
        fl_lane_counts one = fl_lane_counted(s.lane[i].core);

        fl_lane_counts_add(counts, &one);
    }
    sim_close(&s);
    return bad;
}

/* Losses, repetitions, delays; numbers of everything. */
static const char *some_job(uint64_t seed)
{
    static const int64_t every[] = {1, 3, 100};
    sim_options o = options_of(seed);
    tally t = {.steps = 20 + sim_pick(seed, 1, 60), .leaves = -1};

    o.geo_every = every[sim_pick(seed, 2, 3)];
    o.n_worker = 1 << sim_pick(seed, 3, 4);
    o.n_server = 1 + sim_pick(seed, 4, SIM_MOST_SERVER);
    o.n_lane = 1 + sim_pick(seed, 5, 3);
    o.piece_bytes = sim_pick(seed, 6, 2) ? FL_MSG_PIECE_BYTES : 100;
    o.delay_ms = sim_pick(seed, 7, 2) ? 20 : 0;
    o.lost = sim_pick(seed, 8, 2) ? 100 : 0;
    o.repeated = sim_pick(seed, 9, 2) ? 100 : 0;
    o.most_change = sim_pick(seed, 10, 3) ? 0 : 1 + sim_pick(seed, 11, 40);
    o.changed_bytes = sim_pick(seed, 12, 2) ? 0 : 40;
    o.most_unread = sim_pick(seed, 13, 3) ? 0 : 2000;
    o.in_order = sim_pick(seed, 14, 2);
    t.prefetches = sim_pick(seed, 15, 2);
    t.looks = sim_pick(seed, 16, 2) ? 7 : 0;
    t.meets = sim_pick(seed, 17, 2);
    if (o.n_worker > 1 && sim_pick(seed, 18, 2))
        t.leaves = sim_pick(seed, 19, o.n_worker);
    o.subscriber = sim_pick(seed, 20, 2);
    o.subscriber_deaths = 2;
    return run(&o, &t, NULL);
}

TEST_LIMIT(whatever_is_lost_all_copies_are_the_mean_of_all_updates, 7200)
{
    if (SIM_SEEDS(some_job, 150) > 0)
        CHECK(followed.over > 0 && followed.deaths > 0);
}

/* Servers die as they write, and come back: each change of a worker's copies is
 * in the sums once, and no worker sees an error. */
static const char *dying_job(uint64_t seed)
{
    static const int64_t every[] = {1, 4, 15};
    sim_options o = options_of(seed);
    tally t = {.steps = 20 + sim_pick(seed, 1, 60),
               .leaves = -1,
               .step_ms = 1000}; /* as long as lanes take to cut journals */

    o.geo_every = every[sim_pick(seed, 2, 3)];
    o.n_worker = 1 << sim_pick(seed, 3, 3); /* means are exact */
    o.n_server = 1 + sim_pick(seed, 4, 2);
    o.delay_ms = 20;
    o.slow = sim_pick(seed, 5, 2) ? 50 : 0;
    o.lost = sim_pick(seed, 8, 2) ? 100 : 0;
    o.most_change = sim_pick(seed, 10, 3) ? 0 : 1 + sim_pick(seed, 11, 40);
    t.prefetches = sim_pick(seed, 15, 2);
    t.meets = sim_pick(seed, 17, 2);
    sim_give_journals(seed, 4, &o);
    return run(&o, &t, NULL);
}

TEST_LIMIT(servers_that_die_come_back_and_have_each_change_once, 7200)
{
    uint64_t n = SIM_SEEDS(dying_job, 60);

    CHECK(n_died >= (int)n);
    CHECK(n_cut > 0);
}

/* A lane goes from process to process, and back. */
static const char *moving_job(uint64_t seed)
{
    static const int64_t every[] = {1, 4, 15};
    sim_options o = options_of(seed);
    tally t = {.steps = 20 + sim_pick(seed, 1, 60),
               .leaves = -1,
               .step_ms = 50 + sim_pick(seed, 2, 200)};

    o.geo_every = every[sim_pick(seed, 3, 3)];
    o.n_worker = 1 << sim_pick(seed, 4, 3); /* means are exact */
    o.delay_ms = 20;
    o.lost = sim_pick(seed, 5, 2) ? 50 : 0;
    o.most_change = sim_pick(seed, 6, 3) ? 0 : 1 + sim_pick(seed, 7, 40);
    o.moves = 1 + sim_pick(seed, 8, 8);
    o.move_ms = 1 + sim_pick(seed, 9, 1500);
    t.prefetches = sim_pick(seed, 10, 2);
    t.meets = sim_pick(seed, 11, 2);
    if (sim_pick(seed, 12, 2))
        t.leaves = sim_pick(seed, 13, o.n_worker);
    return run(&o, &t, NULL);
}

TEST_LIMIT(lanes_move_and_have_each_change_once, 7200)
{
    uint64_t n = SIM_SEEDS(moving_job, 60);

    CHECK(n_moved >= (int)n / 2);
}

/* Of 100 updates: one push, and one pull of each lane's weights and of each
 * table. */
TEST_LIMIT(a_worker_talks_to_servers_once_in_k_updates, 600)
{
    sim_options o = options_of(1);
    tally t = {.steps = 1000 / TEST_SLOWNESS, .leaves = -1};
    fl_lane_counts n = {0};
    const char *bad;
    uint64_t exchanges =
        (uint64_t)(o.n_worker * 2 * 2) * ((uint64_t)t.steps / 100 + 4);

    sim_need_fibers();
    o.lost = o.repeated = 50;
    o.delay_ms = 5;
    bad = run(&o, &t, &n);
    if (bad)
        test_fail(__FILE__, __LINE__, "%s", bad);
    CHECK(n.steps <= exchanges);
    /* rows that are new to a worker, too, and repeated requests */
    CHECK(n.pulls <
          3 * exchanges * (TABLES + 1) + (uint64_t)(o.n_worker * 2 * 2 * KEYS));
    sim_models_close();
}
