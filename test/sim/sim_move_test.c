/* sim_move_test.c - simulated jobs whose lanes go from process to process, and
 * back, at any moment, while links are cut, and while either process dies. No
 * worker sees an error, and the job ends with the bits of one in which nothing
 * has moved; or a process has died that had the only place of a lane, and
 * whoever is left names it. */
#define SUITE sim_move
#include "ps/server/lane_replica.h"
#include "sim_seeds.h"
#include "test.h"

static int n_checked, n_moved, n_lost, n_outlived;

static void count_moved(const sim *s)
{
    for (int i = 0; i < s->all_lanes; i++)
        n_moved += s->lane[i].core &&
                   fl_lane_replica(s->lane[i].core) == FL_REPLICA_GONE;
}

static void make(uint64_t seed, sim_options *o, sim_script *k)
{
    sim_make(seed, seed % 2, o, k);
    o->moves = 1 + sim_pick(seed, 90, 8);
    o->slowness = 30;
    o->move_ms = 1 + sim_pick(seed, 91, 1500);
}

static const char *run_job(const sim_options *o, const sim_script *k)
{
    const char *bad;
    sim s;

    sim_open(&s, o, sim_work, (void *)(uintptr_t)k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check_fault(&s, k, s.lost_lane);
    count_moved(&s);
    n_checked++;
    n_lost += s.lost_lane && !sim_is_well(&s);
    n_outlived += s.fault[0].begun && sim_is_well(&s);
    sim_close(&s);
    return bad;
}

/* One that has gone keeps nothing; and where one was about to go hears of the
 * job's end. */
static const char *check_places(const sim *s)
{
    int64_t end_ms = 0;
    bool quick =
        s->o.lost + s->o.strange + s->o.slow == 0 && s->o.delay_ms < 10;

    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].ended_ms > end_ms)
            end_ms = s->worker[i].ended_ms;
    for (int i = 0; i < s->all_lanes; i++) {
        const sim_lane *l = &s->lane[i];
        fl_replica_role role =
            l->core ? fl_lane_replica(l->core) : FL_NO_REPLICA;

        for (int t = 0; role == FL_REPLICA_GONE && t < l->layout.n_table; t++)
            if (l->layout.table[t]->methods->count(l->layout.table[t]) > 0)
                return "a lane that has gone has rows";
        if (role == FL_REPLICA_FOLLOWS && l->core->replica->attached &&
            l->core->replica->view == FL_VIEW_NONE && quick &&
            l->ended_ms - end_ms > s->o.peer_ms / 2)
            return "a taker waits though the job is over";
    }
    return NULL;
}

static const char *quiet_run(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    sim s;

    make(seed, &o, &k);
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, &k);
    if (!bad)
        bad = check_places(&s);
    count_moved(&s);
    sim_close(&s);
    return bad;
}

TEST_LIMIT(lanes_move_and_the_job_has_its_bits, 7200)
{
    int n = (int)SIM_SEEDS(quiet_run, 600);

    CHECK(n < 100 || n_moved * 8 >= n);
    CHECK(n_lost == 0);
}

static const char *death_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make(seed, &o, &k);
    o.n_server = 1 + sim_pick(seed, 92, 2);
    o.n_lane = 1;
    o.fault[0] =
        (sim_fault){.kind = SIM_DIES,
                    .worker = SIM_NOBODY,
                    .server = sim_pick(seed, 93, 2 * o.n_server),
                    .when_moving = sim_pick(seed, 107, 8) > 0,
                    .count = sim_pick(seed, 94, 1 << sim_pick(seed, 95, 9)),
                    .ms = -1};
    return run_job(&o, &k);
}

TEST_LIMIT(a_process_that_dies_ends_the_job_by_its_name_or_not_at_all, 7200)
{
    int n = (int)SIM_SEEDS(death_run, 800);

    CHECK(n < 100 || n_moved * 8 >= n);
    CHECK(n < 100 || (n_lost * 16 >= n && n_outlived * 16 >= n));
}

/* Shorter than deadlines: between a worker and a process, or between the two
 * places of a lane; or a process sleeps. */
static const char *cut_run(uint64_t seed)
{
    sim_options o;
    sim_script k;
    int end;

    make(seed, &o, &k);
    end = sim_pick(seed, 96, o.n_worker + 2);
    o.fault[0] =
        (sim_fault){.kind = sim_pick(seed, 97, 4) ? SIM_CUT : SIM_SLEEPS,
                    .worker = end < o.n_worker ? end : SIM_NOBODY,
                    .server = sim_pick(seed, 98, 2 * o.n_server),
                    .count = sim_pick(seed, 99, 1 << sim_pick(seed, 100, 9)),
                    .ms = sim_pick(seed, 101, (int)o.peer_ms / 2),
                    .directions = 1 + sim_pick(seed, 102, 3),
                    .holds = sim_pick(seed, 103, 2)};
    if (o.fault[0].kind == SIM_SLEEPS)
        o.fault[0].worker = SIM_NOBODY;
    else if (end > o.n_worker) { /* of any length */
        o.fault[0].server %= o.n_server;
        o.fault[0].worker = SIM_MOST_PROCESS + o.fault[0].server * o.n_lane +
                            sim_pick(seed, 104, o.n_lane);
        o.fault[0].server += sim_pick(seed, 105, 2) * o.n_server;
        o.fault[0].ms *= 1 + sim_pick(seed, 106, 20);
    }
    return run_job(&o, &k);
}

TEST_LIMIT(lanes_move_though_links_are_cut, 7200)
{
    int n = (int)SIM_SEEDS(cut_run, 600);

    CHECK(n < 100 || n_moved * 8 >= n);
    CHECK(n_lost == 0);
}
