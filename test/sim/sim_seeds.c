/* sim_seeds.c - see sim_seeds.h. */
#define SUITE sim_kit
#include "sim_seeds.h"
#include "sim_journal.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

void sim_need_fibers(void)
{
#ifdef __SANITIZE_THREAD__
    test_skip("one thread on several stacks is nothing for ThreadSanitizer");
#endif
}

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void run_one(const char *test, sim_one_run *run, uint64_t seed)
{
    const char *bad = run(seed);

    if (!bad)
        return;
    test += strncmp(test, "sim_", 4) == 0 ? 4 : 0; /* the suite */
    test_fail(__FILE__, __LINE__,
              "seed %llu: %s\nAgain: FLEET_SIM_SEED=%llu FLEET_SIM_TRACE=1 "
              "make suite TEST_ARGS='--filter sim/%s'",
              (unsigned long long)seed, bad, (unsigned long long)seed, test);
}

uint64_t sim_run_seeds(const char *test, sim_one_run *run, uint64_t n)
{
    uint64_t only = number_in("FLEET_SIM_SEED", 0);

    sim_need_fibers();
    n = n * number_in("FLEET_SIM_SEEDS", 1) / TEST_SLOWNESS;
    if (only)
        run_one(test, run, only);
    for (uint64_t seed = 1; !only && seed <= n; seed++)
        run_one(test, run, seed);
    sim_models_close();
    return only ? 0 : n;
}

int sim_pick(uint64_t seed, int what, int n)
{
    return (int)(sim_hash(seed, 77, (uint64_t)what, 0, 0) % (uint64_t)n);
}

void sim_give_journals(uint64_t seed, int most_deaths, sim_options *o)
{
    o->journal = test_path("journals");
    o->journal_deaths = 1 + sim_pick(seed, 50, most_deaths);
    o->journal_every = 1 << sim_pick(seed, 51, 7);
    sim_journal_clear(o->journal);
}

static uint64_t n_deferred, n_dropped;

bool sim_has_deferred_and_dropped(void)
{
    return n_deferred > 0 && n_dropped > 0;
}

static void count_requests(const sim *s)
{
    for (int i = 0; i < s->n_lane; i++)
        if (s->lane[i].core) {
            fl_lane_counts n = fl_lane_counted(s->lane[i].core);

            n_deferred += n.deferred;
            n_dropped += n.dropped;
        }
}

const char *sim_complete(const sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, k);
    count_requests(&s);
    sim_close(&s);
    return bad;
}
