/* sim_replica_test.c - simulated jobs whose lanes have a second copy each.
 * Processes of either copy die or sleep, links between any two are cut: no
 * worker sees an error, and the job ends with the bits of one that nothing has
 * befallen, on the copy that leads and on the one that follows. */
#define SUITE sim_replica
#include "ps/server/lane_replica.h"
#include "sim_seeds.h"
#include "test.h"

static int n_checked; /* jobs; a fault of all others came early */
static int n_taken, n_alone, n_both; /* their lanes, as they ended */

static void count_copies(const sim *s)
{
    for (int i = 0; i < s->all_lanes; i++) {
        fl_replica_role role =
            s->lane[i].core ? fl_lane_replica(s->lane[i].core) : FL_NO_REPLICA;

        n_taken += i >= s->n_lane && role == FL_REPLICA_ALONE;
        n_alone += i < s->n_lane && role == FL_REPLICA_ALONE;
        n_both += i < s->n_lane && role == FL_REPLICA_LEADS;
    }
}

/* A fault while workers still join: a server that they do not know yet has no
 * replica for them. */
static bool is_early(const sim *s)
{
    bool early = false;

    for (int i = 0; i < SIM_MOST_FAULT; i++)
        early = early || (s->fault[i].begun && !s->fault[i].all_joined);
    return early;
}

static const char *run_job(sim_options *o, const sim_script *k)
{
    const char *bad = NULL;
    sim s;

    o->bounds_staleness = false; /* clocks are in no record */
    o->replicas = true;
    o->connect_ms = 60000;
    sim_open(&s, o, sim_work, (void *)(uintptr_t)k);
    sim_run(&s, SIM_LONGEST_MS);
    if (!is_early(&s)) {
        bad = sim_check(&s, k);
        count_copies(&s);
        n_checked++;
    }
    sim_close(&s);
    return bad;
}

static const char *quiet_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, seed % 2, &o, &k);
    return run_job(&o, &k);
}

/* Of a process, or of a link between any two, a lane that follows among them;
 * it lasts most_ms at most, or it is the end of a process. */
static sim_fault fault_of(uint64_t seed, const sim_options *o, int at,
                          int64_t most_ms)
{
    int n_process = 2 * o->n_server, kind = sim_pick(seed, at, 3);
    int end = sim_pick(seed, at + 1, o->n_worker + 2);
    sim_fault f = {.worker = SIM_NOBODY,
                   .server = sim_pick(seed, at + 2, n_process),
                   .count =
                       16 * o->n_worker * o->n_lane +
                       sim_pick(seed, at + 3, 1 << sim_pick(seed, at + 4, 10)),
                   .ms = sim_pick(seed, at + 5, (int)most_ms),
                   .directions = 1 + sim_pick(seed, at + 6, 3),
                   .holds = sim_pick(seed, at + 7, 2)};

    f.kind = kind == 0 ? SIM_DIES : kind == 1 ? SIM_SLEEPS : SIM_CUT;
    if (f.kind == SIM_DIES)
        f.ms = -1;
    if (f.kind != SIM_CUT)
        return f;
    f.worker = end < o->n_worker ? end : SIM_NOBODY;
    if (end > o->n_worker) { /* the two copies of a lane */
        f.server %= o->n_server;
        f.worker = SIM_MOST_PROCESS + f.server * o->n_lane +
                   sim_pick(seed, at + 8, o->n_lane);
    }
    return f;
}

static const char *fault_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, seed % 2, &o, &k);
    o.fault[0] = fault_of(seed, &o, 50, 6 * o.peer_ms);
    o.fault[1] = fault_of(seed, &o, 60, o.peer_ms);
    if (o.fault[1].kind == SIM_DIES && o.fault[0].kind == SIM_DIES)
        o.fault[1].kind = SIM_NO_FAULT; /* both copies of a lane, say */
    else if (o.fault[1].kind == SIM_DIES)
        o.fault[0].ms %= o.peer_ms / 2; /* or it counts as dead, too */
    else if (o.fault[0].kind == SIM_DIES)
        o.fault[1].ms %= o.peer_ms / 2;
    return run_job(&o, &k);
}

TEST_LIMIT(a_copy_takes_over_and_no_worker_sees_an_error, 7200)
{
    int n = (int)SIM_SEEDS(fault_run, 400);

    CHECK(n < 100 || n_checked * 4 >= n);
    CHECK(n < 100 || (n_taken * 100 >= n && n_alone * 100 >= n));
}

/* --- copies that are made again ------------------------------------------- */

static int n_again, n_second; /* lanes made again, whose other copy dies then */

/* The process of either copy of a server's lanes dies and is started again;
 * then, when what it has are copies, the other one, and maybe that one, too. */
static void two_deaths(uint64_t seed, sim_options *o)
{
    int server = sim_pick(seed, 80, o->n_server);
    int which = sim_pick(seed, 81, 2);

    for (int i = 0; i < SIM_MOST_FAULT; i++)
        o->fault[i] = (sim_fault){
            .kind = SIM_DIES,
            .worker = SIM_NOBODY,
            .server = server + ((which + i) % 2) * o->n_server,
            .when_copied = i > 0,
            .count = i > 0 ? sim_pick(seed, 82, 20)
                           : 16 * o->n_worker * o->n_lane +
                                 sim_pick(seed, 83, 1 << sim_pick(seed, 84, 6)),
            .ms = i > 0 && sim_pick(seed, 85, 2)
                      ? -1
                      : sim_pick(seed, 86 + i, (int)o->peer_ms)};
}

static void count_again(const sim *s)
{
    for (int i = 0; i < s->all_lanes; i++) {
        const fl_ps_lane *l = s->lane[i].core;

        n_again += l && fl_view_epoch(l->replica->view) > 0 &&
                   l->replica->view != FL_VIEW_NONE &&
                   fl_lane_replica(l) != FL_REPLICA_FOLLOWS;
    }
    n_second += s->fault[1].begun;
}

static const char *again_run(uint64_t seed)
{
    const char *bad = NULL;
    sim_options o;
    sim_script k;
    sim s;

    sim_make(seed, seed % 2, &o, &k);
    two_deaths(seed, &o);
    o.bounds_staleness = false;
    o.replicas = true;
    o.connect_ms = 60000;
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    if (!is_early(&s)) {
        bad = sim_check(&s, &k);
        count_again(&s);
        n_checked++;
    }
    sim_close(&s);
    return bad;
}

TEST_LIMIT(a_copy_that_was_lost_is_made_again_and_outlives_the_other_one, 7200)
{
    int n = (int)SIM_SEEDS(again_run, 200);

    CHECK(n < 100 || n_checked * 4 >= n);
    CHECK(n < 100 || (n_again * 8 >= n && n_second * 16 >= n));
}

/* A leader without its replica and without one of the workers: both are at
 * work, and only one of the two copies may go on. */
static const char *partition_run(uint64_t seed)
{
    sim_options o;
    sim_script k;
    int server, lane;

    sim_make(seed, false, &o, &k);
    server = sim_pick(seed, 70, o.n_server);
    lane = server * o.n_lane + sim_pick(seed, 71, o.n_lane);
    for (int i = 0; i < SIM_MOST_FAULT; i++)
        o.fault[i] = (sim_fault){.kind = SIM_CUT,
                                 .worker = i == 0 ? SIM_MOST_PROCESS + lane
                                                  : o.n_worker - 1,
                                 .server = server,
                                 .count = i == 0 ? 20 : 16 * o.n_lane,
                                 .ms = 5 * o.peer_ms,
                                 .directions = SIM_TO_LANES | SIM_TO_WORKERS};
    return run_job(&o, &k);
}

TEST_LIMIT(a_leader_that_is_cut_off_never_goes_on_beside_its_replica, 7200)
{
    int n = (int)SIM_SEEDS(partition_run, 100);

    CHECK(n < 100 || n_checked * 4 >= n);
}

TEST_LIMIT(two_copies_of_a_lane_have_the_same_bits, 7200)
{
    int n = (int)SIM_SEEDS(quiet_run, 150);

    CHECK(n_checked >= n);
    CHECK(n_both > 0 && n_both > n_taken + n_alone);
}
