/* sim_staleness_test.c - bounded staleness in simulated jobs: rows say how many
 * steps of each worker a pull has seen, and none has seen fewer than the bound
 * allows; no deadline ends a wait for a worker that is slow. Jobs with faults
 * and bounds are among those of sim_test.c and sim_fault_test.c.
 */
#define SUITE sim_staleness
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>

#include "base/memory.h"

enum { MOST = 8, BOUND = 4, SLOWER = 10 };

/* Worker w adds 1 to all columns of row w in each of its steps, so that a row
 * is 1 more than the steps that it has seen. */
typedef struct race {
    int64_t steps;        /* of each worker */
    int64_t own_ms[MOST]; /* that a step takes */
    bool prefetches;
    int leaves; /* worker that leaves halfway; -1: none */

    bool is_over[MOST];
    int64_t pulls, most; /* staleness that was seen */
    int64_t at_most;     /* pulls that have seen it */
} race;

typedef struct runner {
    sim_worker *w;
    race *race;
    fl_remote *x;
    uint64_t key[MOST];
    const float *row[FL_N_SLOT][MOST];
    fl_pull_rows pull[FL_N_SLOT];
} runner;

/* Keys in the order of parts, and where worker w's row is among them. */
static void make_keys(runner *r, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t key = (uint64_t)i;
        int j = i;

        for (; j > 0 &&
               fl_part_of(fl_mix(r->key[j - 1])) > fl_part_of(fl_mix(key));
             j--)
            r->key[j] = r->key[j - 1];
        r->key[j] = key;
    }
}

static fleet_status ask(runner *r, int slot, bool prefetch)
{
    fl_pull_rows *to = &r->pull[slot];
    int n = r->w->s->o.n_worker, i = 0;

    *to = (fl_pull_rows){.rows = fl_store_rows(r->w->store, "first")};
    for (int p = 0; p < FL_N_PART; p++) {
        int first = i;

        while (i < n && fl_part_of(fl_mix(r->key[i])) == p)
            i++;
        to->part[p] =
            (fl_pull_part){r->key + first, i - first, r->row[slot] + first};
    }
    return r->x->methods->pull(r->x, slot, to, 1, false, prefetch, false);
}

/* What has come for the step after `done` steps of its own. */
static fleet_status look(runner *r, int slot, int64_t done)
{
    race *all = r->race;
    int64_t staleness = 0;

    for (int i = 0; i < r->w->s->o.n_worker; i++) {
        int64_t seen = (int64_t)r->row[slot][i][0] - 1;
        int worker = (int)r->key[i];

        if (worker == r->w->index || all->is_over[worker])
            continue;
        staleness = done - seen > staleness ? done - seen : staleness;
    }
    all->pulls++;
    all->at_most = staleness > all->most ? 0 : all->at_most;
    all->most = staleness > all->most ? staleness : all->most;
    all->at_most += staleness == all->most;
    return FLEET_OK;
}

static fleet_status add_one(runner *r)
{
    static const float four[3] = {-4, -4, -4}; /* the rate is 0.25 */
    const float *grad = four;
    const uint64_t key = (uint64_t)r->w->index;
    fl_push_rows rows = {.rows = fl_store_rows(r->w->store, "first")};
    fl_update u;

    rows.part[fl_part_of(fl_mix(key))] = (fl_push_part){1, &key, NULL, &grad};
    fl_optimizer_update(r->w->store->optimizer, 0, 1, &u);
    return r->x->methods->push(
        r->x, &(fl_push){.table = &rows,
                         .n_table = 1,
                         .n_batch = 1,
                         .settings =
                             fl_update_settings_of(r->w->store->optimizer, &u),
                         .clip = 1});
}

/* As an executor does it, which asks for the next batch's rows before it
 * pushes. */
static fleet_status one_step(runner *r, int64_t step)
{
    race *all = r->race;
    int slot = (int)(step & 1);
    bool last = step + 1 == all->steps;

    if (step == 0 || !all->prefetches)
        FL_TRY(ask(r, slot, false));
    if (all->prefetches && !last)
        FL_TRY(ask(r, !slot, true));
    FL_TRY(r->x->methods->wait_pull(r->x, slot));
    FL_TRY(look(r, slot, step));
    sim_compute(r->w, all->own_ms[r->w->index]);
    FL_TRY(add_one(r));
    r->x->methods->drop(r->x, slot);
    return r->x->methods->wait_update(r->x);
}

static fleet_status run_race(sim_worker *w)
{
    race *all = w->own;
    runner r = {.w = w, .race = all, .x = &w->core.remote};
    bool leaves = w->index == all->leaves;
    int64_t steps = leaves ? all->steps / 2 : all->steps;

    make_keys(&r, w->s->o.n_worker);
    FL_TRY(fl_worker_barrier(&w->core));
    for (int64_t i = 0; i < steps; i++)
        FL_TRY(one_step(&r, i));
    all->is_over[w->index] = true;
    if (!leaves)
        FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

static sim_options options_of(uint64_t seed, int n_server, int n_lane)
{
    return (sim_options){.seed = seed,
                         .model = sim_model_of(SIM_COUNT),
                         .bounds_staleness = true,
                         .max_staleness = BOUND,
                         .n_worker = MOST,
                         .n_server = n_server,
                         .n_lane = n_lane,
                         .piece_bytes = FL_MSG_PIECE_BYTES,
                         .servers_ms = 10,
                         .workers_ms = 10,
                         .heartbeat_ms = 1000,
                         .connect_ms = 10000,
                         .request_ms = 30000,
                         .peer_ms = 10000,
                         .step_ms = 60000};
}

/* Worker 0 is SLOWER times as slow as the other ones. */
static race race_of(int64_t steps, int64_t own_ms, bool prefetches)
{
    race r = {.steps = steps, .prefetches = prefetches, .leaves = -1};

    for (int i = 0; i < MOST; i++)
        r.own_ms[i] = i == 0 ? SLOWER * own_ms : own_ms;
    return r;
}

static fl_lane_counts counts_of(const sim *s)
{
    fl_lane_counts all = {0};

    for (int i = 0; i < s->n_lane; i++) {
        fl_lane_counts one = fl_lane_counted(s->lane[i].core);

        fl_lane_counts_add(&all, &one);
    }
    return all;
}

/* It ends well, and no pull is staler than the bound. */
static int n_died, n_cut; /* servers, as they wrote; journals */

static const char *run(const sim_options *o, race *r, fl_lane_counts *counts)
{
    static char wrong[1200];
    const char *bad = NULL;
    sim s;

    sim_open(&s, o, run_race, r);
    sim_run(&s, INT64_MAX / 2);
    for (int i = 0; i < o->n_worker; i++)
        if (s.worker[i].phase != SIM_ENDED || s.worker[i].status != FLEET_OK) {
            snprintf(wrong, sizeof wrong, "worker %d: %s", i, s.worker[i].text);
            bad = wrong;
        }
    if (!sim_is_well(&s) && !bad)
        bad = "a lane has not ended well";
    if (!bad && r->most > o->max_staleness) {
        snprintf(wrong, sizeof wrong,
                 "a pull has seen staleness %d, the bound is %d", (int)r->most,
                 o->max_staleness);
        bad = wrong;
    }
    if (!bad && counts)
        *counts = counts_of(&s);
    n_died += s.n_died;
    n_cut += s.n_cut;
    sim_close(&s);
    return bad;
}

/* --- a slow worker -------------------------------------------------------- */

static void check(const char *bad)
{
    if (bad)
        test_fail(__FILE__, __LINE__, "%s", bad);
}

TEST_LIMIT(in_a_million_pulls_none_is_staler_than_the_bound, 7200)
{
    sim_options o = options_of(1, 1, 1);
    race r = race_of(1000000 / MOST / TEST_SLOWNESS, 1, true);
    fl_lane_counts n = {0};

    sim_need_fibers();
    check(run(&o, &r, &n));
    CHECK_INT(r.pulls, MOST * r.steps);
    CHECK_INT(r.most, BOUND);
    CHECK(r.at_most > r.pulls / 2); /* most pulls wait for the slow one */
    CHECK(n.held > (uint64_t)r.pulls / 2);
    CHECK(n.pulls < (uint64_t)r.pulls + 100); /* none was asked again */
    CHECK(n.stale_3_to_4 > (uint64_t)r.pulls / 2);
    CHECK_INT(n.stale_5_to_8 + n.stale_9_to_16 + n.stale_17_to_32 +
                  n.stale_33_to_64 + n.stale_over_64,
              0);
    sim_models_close();
}

/* Other bounds, lanes and links, with losses. */
static const char *some_race(uint64_t seed)
{
    sim_options o = options_of(seed, 1 + sim_pick(seed, 1, SIM_MOST_SERVER),
                               1 + sim_pick(seed, 2, 3));
    race r = race_of(30, 1 + sim_pick(seed, 3, 30), sim_pick(seed, 4, 2));

    o.max_staleness = sim_pick(seed, 5, 6);
    o.n_worker = 2 + sim_pick(seed, 6, MOST - 1);
    o.heartbeat_ms = 100;
    o.delay_ms = sim_pick(seed, 7, 2) ? 20 : 0;
    o.lost = sim_pick(seed, 8, 2) ? 100 : 0;
    o.repeated = sim_pick(seed, 9, 2) ? 100 : 0;
    if (sim_pick(seed, 10, 2))
        r.leaves = 1 + sim_pick(seed, 11, o.n_worker - 1);
    return run(&o, &r, NULL);
}

TEST_LIMIT(whatever_is_lost_no_pull_is_staler_than_the_bound, 7200)
{
    SIM_SEEDS(some_race, 400);
}

/* Servers die as they write. Steps are as long as lanes take to cut their
 * journals. */
static const char *some_dying_race(uint64_t seed)
{
    sim_options o =
        options_of(seed, 1 + sim_pick(seed, 1, 2), 1 + sim_pick(seed, 2, 2));
    race r =
        race_of(20 + sim_pick(seed, 3, 20), 50 << sim_pick(seed, 4, 4), true);

    r.prefetches = sim_pick(seed, 5, 2);
    o.max_staleness = sim_pick(seed, 6, 5);
    o.n_worker = 2 + sim_pick(seed, 7, 3);
    o.heartbeat_ms = 100;
    o.delay_ms = 20;
    o.lost = sim_pick(seed, 8, 2) ? 100 : 0;
    if (sim_pick(seed, 10, 2))
        r.leaves = 1 + sim_pick(seed, 11, o.n_worker - 1);
    sim_give_journals(seed, 4, &o);
    return run(&o, &r, NULL);
}

TEST_LIMIT(servers_that_die_come_back_and_no_pull_is_staler_than_the_bound,
           7200)
{
    uint64_t n = SIM_SEEDS(some_dying_race, 100);

    CHECK(n_died >= (int)n);
    CHECK(n_cut > 0);
}

/* A step of it takes longer than the request and the peer deadline; the other
 * workers wait for longer than the step deadline, while it gets on. */
TEST_LIMIT(no_deadline_ends_a_wait_for_a_worker_that_gets_on, 600)
{
    sim_options o = options_of(1, 2, 2);
    race r = race_of(20, 300, true);

    sim_need_fibers();
    o.heartbeat_ms = 50;
    o.request_ms = 1000;
    o.peer_ms = 500;
    o.step_ms = 4000;
    o.max_staleness = 0;
    check(run(&o, &r, NULL));
    CHECK_INT(r.pulls, MOST * r.steps);
    sim_models_close();
}

/* --- steps that are skipped ----------------------------------------------- */

/* Both prefetch for the step after the next one, which neither makes, as when
 * gradients in float16 are not finite. */
static fleet_status skip(sim_worker *w)
{
    race all = {.steps = 100, .prefetches = true, .leaves = -1};
    runner r = {.w = w, .race = &all, .x = &w->core.remote};

    make_keys(&r, w->s->o.n_worker);
    FL_TRY(fl_worker_barrier(&w->core));
    FL_TRY(one_step(&r, 0));
    for (int step = 1; step < 6; step++) {
        int slot = step & 1;

        FL_TRY(ask(&r, !slot, true));
        FL_TRY(r.x->methods->wait_pull(r.x, slot)); /* step 0's, or in vain */
        r.x->methods->drop(r.x, slot);
        sim_compute(w, 1 + w->index);
    }
    r.x->methods->drop(r.x, 0);
    FL_TRY(add_one(&r));
    FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

TEST(workers_that_skip_a_step_do_not_wait_for_each_other)
{
    sim_options o = options_of(1, 1, 2);
    sim s;

    sim_need_fibers();
    o.max_staleness = 0;
    o.n_worker = 2;
    o.step_ms = 5000;
    sim_open(&s, &o, skip, NULL);
    sim_run(&s, SIM_LONGEST_MS);
    for (int i = 0; i < o.n_worker; i++)
        if (s.worker[i].status != FLEET_OK || s.worker[i].phase != SIM_ENDED)
            test_fail(__FILE__, __LINE__, "worker %d: %s", i, s.worker[i].text);
    CHECK(sim_is_well(&s));
    CHECK(s.now_ms < 2000); /* nobody waited for a heartbeat of an hour */
    sim_close(&s);
    sim_models_close();
}

/* --- pulls that nothing is trained with ----------------------------------- */

enum { LATE_MS = 5000 };

/* Worker 0 comes late to its first step; worker 1 is as far ahead as it may be,
 * and looks at the rows. */
static fleet_status look_at_rows(sim_worker *w)
{
    race all = {.steps = 100, .leaves = -1};
    runner r = {.w = w, .race = &all, .x = &w->core.remote};

    make_keys(&r, w->s->o.n_worker);
    FL_TRY(fl_worker_barrier(&w->core));
    if (w->index == 0)
        sim_compute(w, LATE_MS);
    for (int i = 0; i <= BOUND; i++)
        FL_TRY(one_step(&r, i));
    if (w->index == 1) {
        FL_TRY(r.x->methods->pull(r.x, 0, &r.pull[0], 1, false, false, true));
        FL_TRY(r.x->methods->wait_pull(r.x, 0));
        sim_note(w, "%d", (int)w->s->now_ms);
        FL_TRY(one_step(&r, BOUND + 1));
        sim_note(w, " %d", (int)w->s->now_ms);
    }
    FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

TEST(who_looks_without_training_waits_for_nobody)
{
    sim_options o = options_of(1, 1, 2);
    int looked_ms = 0, trained_ms = 0;
    sim s;

    sim_need_fibers();
    o.n_worker = 2;
    sim_open(&s, &o, look_at_rows, NULL);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK(sim_is_well(&s));
    CHECK_INT(sscanf(s.worker[1].log, "%d %d", &looked_ms, &trained_ms), 2);
    CHECK(looked_ms < LATE_MS);
    CHECK(trained_ms >= LATE_MS);
    sim_close(&s);
    sim_models_close();
}

/* --- waits of another kind ------------------------------------------------ */

/* Numbers of all workers, after steps without number: who waits for them is not
 * waited for. */
static fleet_status meet_early(sim_worker *w)
{
    race all = {.steps = 100, .leaves = -1};
    runner r = {.w = w, .race = &all, .x = &w->core.remote};
    double x = 1;

    make_keys(&r, w->s->o.n_worker);
    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < 3 + 20 * w->index; i++)
        FL_TRY(one_step(&r, i));
    FL_TRY(fl_worker_reduce(&w->core, FL_REDUCTION_SUM, &x, 1));
    sim_note(w, "%g", x);
    for (int i = 0; i < 23 - 20 * w->index; i++)
        FL_TRY(one_step(&r, i));
    FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

TEST(who_waits_for_numbers_of_all_workers_is_not_waited_for)
{
    sim_options o = options_of(1, 2, 2);
    sim s;

    sim_need_fibers();
    o.n_worker = 2;
    o.step_ms = 5000;
    sim_open(&s, &o, meet_early, NULL);
    sim_run(&s, SIM_LONGEST_MS);
    for (int i = 0; i < o.n_worker; i++) {
        if (s.worker[i].status != FLEET_OK || s.worker[i].phase != SIM_ENDED)
            test_fail(__FILE__, __LINE__, "worker %d: %s", i, s.worker[i].text);
        CHECK_TEXT(s.worker[i].log, "2");
    }
    CHECK(sim_is_well(&s));
    sim_close(&s);
    sim_models_close();
}

/* --- a worker that hangs -------------------------------------------------- */

/* It lives, and trains no more: the step deadline names it, in its own
 * words. */
static fleet_status hang(sim_worker *w)
{
    race all = {.steps = 100, .leaves = -1};
    runner r = {.w = w, .race = &all, .x = &w->core.remote};

    make_keys(&r, w->s->o.n_worker);
    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < 100; i++) {
        if (w->index == 1 && i == 3)
            sim_compute(w, INT32_MAX);
        FL_TRY(one_step(&r, i));
    }
    return fl_worker_leave(&w->core);
}

TEST(a_worker_that_hangs_is_named_by_the_step_deadline)
{
    sim_options o = options_of(1, 1, 2);
    sim s;

    sim_need_fibers();
    o.n_worker = 3;
    o.step_ms = 5000;
    o.peer_ms = 2000;
    o.heartbeat_ms = 200;
    sim_open(&s, &o, hang, NULL);
    sim_run(&s, 60000);
    for (int i = 0; i < o.n_worker; i += 2) {
        CHECK_INT(s.worker[i].phase, SIM_ENDED);
        CHECK_INT(s.worker[i].status, FLEET_ETIMEDOUT);
        CHECK_CONTAINS(s.worker[i].text, "for worker 1, without progress");
        CHECK(s.worker[i].ended_ms < 12000);
    }
    sim_close(&s);
    sim_models_close();
}
