/* sim_journal_test.c - simulated jobs whose servers write journals and die, as
 * they write or at any message, several times: each comes back with what it had
 * committed, no worker sees an error, and the job ends with the bits of one
 * that nothing has befallen. */
#define SUITE sim_journal
#include "sim_seeds.h"
#include "test.h"

#include <stdlib.h>

static int n_died, n_cut; /* servers; journals */

static const char *run_job(uint64_t seed, sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    sim_give_journals(seed, 4, o);
    if (sim_pick(seed, 52, 2))
        o->fault[1] =
            (sim_fault){.kind = SIM_DIES,
                        .worker = SIM_NOBODY,
                        .server = sim_pick(seed, 53, o->n_server),
                        .count = sim_pick(seed, 54, 1 << sim_pick(seed, 55, 9)),
                        .ms = 1 + sim_pick(seed, 56, 500)};
    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check(&s, k);
    n_died += s.n_died + s.fault[1].begun;
    n_cut += s.n_cut;
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

static const char *lives_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    sim_give_lives(&o, &k);
    return run_job(seed, &o, &k);
}

static const char *async_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, false, &o, &k);
    return run_job(seed, &o, &k);
}

TEST_LIMIT(servers_that_die_come_back_and_sync_has_the_same_bits, 7200)
{
    uint64_t n = SIM_SEEDS(sync_run, 150);

    CHECK(n_died >= (int)n);
    CHECK(n_cut >= (int)n);
}

/* What waits to become a row, and what goes, is that of one process. */
TEST_LIMIT(servers_that_die_come_back_and_keys_live_as_in_one_process, 7200)
{
    uint64_t n = SIM_SEEDS(lives_run, 60);

    CHECK(n_died >= (int)n);
    CHECK(n_cut >= (int)n);
}

TEST_LIMIT(servers_that_die_come_back_and_async_has_each_push_once, 7200)
{
    uint64_t n = SIM_SEEDS(async_run, 150);

    CHECK(n_died >= (int)n);
    CHECK(n_cut >= (int)n);
}
