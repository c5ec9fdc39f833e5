/* sim_feed_test.c - simulated jobs with a subscriber that is killed at any
 * batch, over links that lose, repeat and damage messages, beside servers that
 * die and come back from their journals: where it has heard the last of a lane
 * it has the lane's rows and weights, to the bit, and was told each change
 * once. */
#define SUITE sim_feed
#include "sim_feed.h"
#include "sim_seeds.h"
#include "test.h"

static sim_feed_counts all;

static const char *run_job(uint64_t seed, sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    o->subscriber = true;
    o->subscriber_deaths = sim_pick(seed, 70, 8);
    o->most_told = 1 << sim_pick(seed, 71, 11);
    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, k);
    if (!bad)
        bad = sim_feed_check(&s, &all);
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

static const char *death_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, sim_pick(seed, 72, 2), &o, &k);
    sim_give_journals(seed, 4, &o);
    return run_job(seed, &o, &k);
}

/* Keys become rows by filters, and rows go. */
static const char *life_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    sim_give_lives(&o, &k);
    return run_job(seed, &o, &k);
}

/* Most lanes wait until it has heard their last batch: one does not if three
 * questions in a row are lost, or it comes when all is over. */
static void check_counts(uint64_t n)
{
    CHECK(n == 0 || (all.over * 2 > all.lanes && all.deaths > (int)n));
}

TEST_LIMIT(a_subscriber_of_sync_jobs_has_what_lanes_have, 7200)
{
    check_counts(SIM_SEEDS(sync_run, 100));
}

TEST_LIMIT(a_subscriber_of_async_jobs_has_what_lanes_have, 7200)
{
    check_counts(SIM_SEEDS(async_run, 100));
}

TEST_LIMIT(a_subscriber_hears_which_rows_have_gone, 7200)
{
    uint64_t n = SIM_SEEDS(life_run, 100);

    check_counts(n);
    CHECK(n < 100 || all.gone > 0);
}

TEST_LIMIT(a_subscriber_of_servers_that_die_has_what_lanes_have, 7200)
{
    check_counts(SIM_SEEDS(death_run, 100));
}
