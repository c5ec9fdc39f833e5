/* sim_trail_test.c - simulated jobs whose workers leave trails and die, at any
 * message, several times and twice in a row, and servers with them: each is
 * started again and goes on, and the job ends with the bits of one that nothing
 * has befallen. */
#define SUITE sim_trail
#include "sim_seeds.h"
#include "sim_trail.h"
#include "test.h"

static int n_died; /* workers */

static const char *run_job(uint64_t seed, sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    o->bounds_staleness = false; /* trails know nothing of clocks */
    o->half = (fl_push_options){0};
    k->merged = 0;
    o->trail = test_path("trails");
    o->trail_deaths = 1 + sim_pick(seed, 60, 6);
    o->trail_every = 4 << sim_pick(seed, 61, 7);
    o->restart_ms = 30000;
    o->connect_ms = 60000; /* in which it may die several times */
    sim_trail_clear(o->trail);
    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, k);
    n_died += s.n_worker_died;
    sim_close(&s);
    return bad;
}

static const char *sync_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    return run_job(seed, &o, &k);
}

static const char *async_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, false, &o, &k);
    return run_job(seed, &o, &k);
}

/* Servers die, too, as they write. */
static const char *both_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, sim_pick(seed, 62, 2), &o, &k);
    sim_give_journals(seed, 3, &o);
    return run_job(seed, &o, &k);
}

TEST_LIMIT(workers_that_die_are_started_again_and_sync_has_the_same_bits, 7200)
{
    uint64_t n = SIM_SEEDS(sync_run, 150);

    CHECK(n_died >= (int)n);
}

TEST_LIMIT(workers_that_die_are_started_again_and_async_has_each_push_once,
           7200)
{
    uint64_t n = SIM_SEEDS(async_run, 100);

    CHECK(n_died >= (int)n);
}

TEST_LIMIT(workers_and_servers_may_be_dead_at_once, 7200)
{
    uint64_t n = SIM_SEEDS(both_run, 100);

    CHECK(n_died >= (int)n / 2);
}
