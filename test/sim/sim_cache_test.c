/* sim_cache_test.c - workers that keep rows, in simulated jobs: what a batch
 * sees is never older than it may be; what may be kept does not travel. Jobs
 * with caches, of all kinds and with faults, are among those of sim_test.c,
 * sim_fault_test.c and sim_disk_test.c: in sync they have the bits of one
 * process.
 */
#define SUITE sim_cache
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/worker/hot_pull.h"

enum { KEYS = 20, MOST_BATCH = 60 };

/* What one worker does, and what it has seen. All rows begin with 1; each push
 * of a row adds 1 to it. */
typedef struct scene {
    int batches, keys; /* of a batch: the first ones */
    bool prefetches, pushes, tests;
    int meets; /* a barrier before that batch; 0: none */
    uint32_t staleness;
    const char *wrong;
    fl_hot_counts counts;
    uint64_t sent; /* rows */
} scene;

typedef struct hand {
    sim_worker *w;
    scene *c;
    fl_remote *x;
    uint64_t key[KEYS];
    const float *row[FL_N_SLOT][KEYS];
    fl_pull_rows pull[FL_N_SLOT];
    double then[MOST_BATCH + 1]; /* row 0, when the pull for it was made */
} hand;

static void list_keys(hand *h)
{
    for (int i = 0; i < h->c->keys; i++) {
        uint64_t key = (uint64_t)i * 0x9E3779B97F4A7C15;
        int j = i;

        for (; j > 0 &&
               fl_part_of(fl_mix(h->key[j - 1])) > fl_part_of(fl_mix(key));
             j--)
            h->key[j] = h->key[j - 1];
        h->key[j] = key;
    }
}

/* Row 0 as the servers have it. */
static double row_now(const hand *h)
{
    uint64_t key = 0;
    const sim *s = h->w->s;

    for (int l = 0; l < s->n_lane; l++) {
        fl_rows *rows = fl_store_rows(s->lane[l].store, "first");
        float *row;

        CHECK_OK(rows->methods->find(rows, &key, 1, &row));
        if (row)
            return (double)row[0];
    }
    return 1;
}

/* As a load makes them. */
static void make_rows(const hand *h)
{
    const sim *s = h->w->s;

    for (int l = 0; l < s->n_lane; l++)
        for (int i = 0; i < h->c->keys; i++) {
            fl_rows *rows = fl_store_rows(s->lane[l].store, "first");
            float *row;

            if (fl_bucket_set_has(&s->lane[l].own,
                                  fl_bucket_of(fl_mix(h->key[i]))))
                CHECK_OK(rows->methods->make(rows, &h->key[i], 1, &row));
        }
}

static fleet_status ask(hand *h, int slot, int batch, bool ahead, bool now)
{
    fl_pull_rows *to = &h->pull[slot];
    int i = 0;

    *to = (fl_pull_rows){.rows = fl_store_rows(h->w->store, "first")};
    for (int p = 0; p < FL_N_PART; p++) {
        int first = i;

        while (i < h->c->keys && fl_part_of(fl_mix(h->key[i])) == p)
            i++;
        to->part[p] =
            (fl_pull_part){h->key + first, i - first, h->row[slot] + first};
    }
    h->then[batch] = row_now(h);
    return h->x->methods->pull(h->x, slot, to, 1, true, ahead, now);
}

static double row_0(const hand *h, int slot)
{
    int i = 0;

    while (h->key[i] != 0)
        i++;
    return (double)h->row[slot][i][0];
}

static fleet_status push(hand *h)
{
    static const float four[3] = {-4, -4, -4}; /* the rate is 0.25 */
    const float *grad[KEYS];
    fl_push_rows rows = {.rows = fl_store_rows(h->w->store, "first")};
    fl_update u;

    for (int i = 0; i < KEYS; i++)
        grad[i] = four;
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_pull_part *of = &h->pull[0].part[p];

        rows.part[p] = (fl_push_part){of->n, of->key, NULL, grad};
    }
    fl_optimizer_update(h->w->store->optimizer, 0, 1, &u);
    return h->x->methods->push(
        h->x, &(fl_push){.table = &rows,
                         .n_table = h->c->pushes,
                         .n_batch = 1,
                         .settings =
                             fl_update_settings_of(h->w->store->optimizer, &u),
                         .clip = 1});
}

static fleet_status one_batch(hand *h, int i)
{
    bool last = i + 1 == h->c->batches, met = i > 0 && i == h->c->meets;
    int slot = i & 1;

    if (met)
        FL_TRY(fl_worker_barrier(&h->w->core));
    if (i == 0 || met || !h->c->prefetches)
        FL_TRY(ask(h, slot, i, false, h->c->tests));
    if (h->c->prefetches && !last && i + 1 != h->c->meets)
        FL_TRY(ask(h, !slot, i + 1, true, false));
    FL_TRY(h->x->methods->wait_pull(h->x, slot));
    if (met || h->c->tests || h->c->staleness == 0) {
        if (row_0(h, slot) < h->then[i])
            h->c->wrong = "what was to be asked for was not";
    } else if (i >= (int)h->c->staleness &&
               row_0(h, slot) < h->then[i - (int)h->c->staleness]) {
        h->c->wrong = "a row is older than the bound";
    }
    FL_TRY(push(h));
    h->x->methods->drop(h->x, slot);
    return h->x->methods->wait_update(h->x);
}

/* Worker 0 looks; all of them push. */
static fleet_status train(sim_worker *w)
{
    scene *c = w->own;
    hand h = {.w = w, .c = c, .x = &w->core.remote};

    list_keys(&h);
    if (w->index == 0)
        make_rows(&h);
    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < c->batches; i++)
        FL_TRY(one_batch(&h, i));
    if (w->index == 0)
        c->counts = fl_hot_pull_counted(&w->core);
    FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

static void run(scene *c, bool sync, int n_worker, int delay_ms, uint64_t seed)
{
    sim_options o = {.seed = seed,
                     .model = sim_model_of(SIM_COUNT),
                     .sync = sync,
                     .n_worker = n_worker,
                     .n_server = 2,
                     .n_lane = 2,
                     .cache_bytes = 1 << 20,
                     .cache_staleness = c->staleness,
                     .piece_bytes = 300,
                     .delay_ms = delay_ms,
                     .heartbeat_ms = 100,
                     .connect_ms = 60000,
                     .request_ms = 60000,
                     .peer_ms = 60000,
                     .step_ms = 60000};
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, train, c);
    sim_run(&s, SIM_LONGEST_MS);
    for (int i = 0; i < n_worker; i++)
        if (s.worker[i].status != FLEET_OK)
            test_fail(__FILE__, __LINE__, "%s", s.worker[i].text);
    CHECK(sim_is_well(&s));
    sim_close(&s);
    sim_models_close();
    if (c->wrong)
        test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, c->wrong);
    c->sent = c->counts.rows - c->counts.unasked - c->counts.unchanged;
}

/* --- in async ------------------------------------------------------------- */

/* Ten rows in each of 60 batches, asked for again after 5 batches. */
TEST(rows_of_a_bounded_age_are_used_without_asking)
{
    scene c = {.batches = 60, .keys = 10, .pushes = true, .staleness = 6};

    run(&c, false, 1, 0, 1);
    CHECK_INT(c.counts.rows, 600);
    CHECK_INT(c.sent, 600 / 5);
    CHECK_INT(c.counts.unasked, 600 - 600 / 5);
    CHECK_INT(c.counts.saved, c.counts.unasked * (8 + 3 * 4));
    CHECK_INT(c.counts.kept, 10);
}

/* Pulled ahead the batch after one that asks takes what there is. */
TEST(pulled_ahead_no_row_is_asked_for_twice_in_a_row)
{
    scene c = {.batches = 60,
               .keys = 10,
               .pushes = true,
               .prefetches = true,
               .staleness = 6};

    run(&c, false, 1, 0, 1);
    CHECK(c.sent <= 600 / 5 + 20); /* the first two batches have nothing */
    CHECK(c.sent >= 600 / 6);
}

/* Whoever pushes, however late what comes. */
TEST(no_row_is_older_than_the_bound)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        scene c = {.batches = 10 + (int)seed % 30,
                   .keys = 1 + (int)seed % KEYS,
                   .pushes = true,
                   .prefetches = seed % 2,
                   .meets = seed % 3 ? 0 : 7,
                   .staleness = (uint32_t)(seed / 2 % 7)};

        run(&c, false, 1 + (int)seed % 4, seed % 5 ? 5 : 40, seed);
        CHECK_INT(c.counts.unasked > 0, c.staleness > (c.prefetches ? 1 : 0));
    }
}

/* --- what has not changed ------------------------------------------------- */

TEST(rows_that_nobody_trains_are_sent_once)
{
    for (int sync = 0; sync < 2; sync++) {
        scene c = {.batches = 30, .keys = 10};

        run(&c, sync, 2, 0, 1);
        CHECK_INT(c.sent, 10);
        CHECK_INT(c.counts.unchanged, 290);
        CHECK_INT(c.counts.saved, 290 * (3 * 4 - 8));
    }
}

TEST(a_test_asks_for_each_row_and_so_does_the_batch_after_a_barrier)
{
    scene test = {.batches = 30, .keys = 10, .tests = true, .staleness = 9};
    scene meets = {.batches = 8,
                   .keys = 10,
                   .pushes = true,
                   .meets = 4,
                   .staleness = 1000};

    run(&test, false, 1, 0, 1);
    CHECK_INT(test.counts.unasked, 0);
    CHECK_INT(test.counts.unchanged, 290);
    run(&meets, false, 2, 0, 1);
    CHECK_INT(meets.counts.unasked, 60);
    CHECK_INT(meets.sent, 20);
}

/* Trained rows have changed: in sync nothing is said of them in vain. */
TEST(in_sync_rows_that_are_trained_are_sent_each_time)
{
    scene c = {.batches = 30, .keys = 10, .pushes = true};

    run(&c, true, 2, 0, 1);
    CHECK_INT(c.counts.unasked, 0);
    CHECK_INT(c.sent, 300);
    CHECK(c.counts.saved >= -8 * 10);
}

/* --- gradient merge in sync ----------------------------------------------- */

/* Batches of one update are of one version. */
static fleet_status merge(sim_worker *w)
{
    scene *c = w->own;
    hand h = {.w = w, .c = c, .x = &w->core.remote};

    list_keys(&h);
    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < c->batches; i++) {
        FL_TRY(ask(&h, 0, 0, false, false));
        FL_TRY(h.x->methods->wait_pull(h.x, 0));
        if (row_0(&h, 0) != 1 + w->s->o.n_worker * (i / 4))
            c->wrong = "a row is of another version";
        if (i % 4 < 3)
            continue;
        FL_TRY(push(&h));
        FL_TRY(h.x->methods->wait_update(h.x));
    }
    if (w->index == 0)
        c->counts = fl_hot_pull_counted(&w->core);
    return fl_worker_leave(&w->core);
}

TEST(in_sync_batches_of_one_update_ask_for_a_row_once)
{
    scene c = {.batches = 40, .keys = 10, .pushes = true};
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .sync = true,
                     .n_worker = 1,
                     .n_server = 2,
                     .n_lane = 1,
                     .cache_bytes = 1 << 20,
                     .piece_bytes = 300,
                     .heartbeat_ms = 100,
                     .connect_ms = 60000,
                     .request_ms = 60000,
                     .peer_ms = 60000,
                     .step_ms = 60000};
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, merge, &c);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK(sim_is_well(&s));
    sim_close(&s);
    sim_models_close();
    CHECK_TEXT(c.wrong ? c.wrong : "", "");
    CHECK_INT(c.counts.rows, 400);
    CHECK_INT(c.counts.unasked, 300);
}
