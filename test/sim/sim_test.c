/* sim_test.c - whole jobs with parameter servers, simulated, each from a seed:
 * whatever links, servers and workers do, as long as all of them live, every
 * push is applied exactly once, and the job completes with the bits of one
 * process. Faults are in sim_fault_test.c, disks in sim_disk_test.c.
 */
#define SUITE sim
#include "sim_seeds.h"
#include "test.h"

#include "base/memory.h"

static const char *sync_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    return sim_complete(&o, &k);
}

static const char *async_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, false, &o, &k);
    return sim_complete(&o, &k);
}

TEST_LIMIT(sync_jobs_give_the_bits_of_one_process, 7200)
{
    if (SIM_SEEDS(sync_run, 2000) > 0)
        CHECK(sim_has_deferred_and_dropped());
}

TEST_LIMIT(async_jobs_apply_every_push_once, 7200)
{
    if (SIM_SEEDS(async_run, 1500) > 0)
        CHECK(sim_has_deferred_and_dropped());
}

/* Slurm suspends the job, or its machine sleeps. */
static const char *all_stop(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, sim_pick(seed, 1, 2) > 0, &o, &k);
    o.all_stop_at_ms =
        (int64_t)sim_pick(seed, 2, sim_pick(seed, 3, 2) ? 400 : 4000);
    o.all_stop_ms = 3 * o.step_ms;
    return sim_complete(&o, &k);
}

TEST_LIMIT(a_job_that_is_stopped_as_a_whole_goes_on_as_if_nothing_had_been,
           7200)
{
    SIM_SEEDS(all_stop, 500);
}

/* --- memory runs out ------------------------------------------------------ */

static const char *all_ended(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].phase != SIM_ENDED)
            return "a worker has not ended";
    for (int i = 0; i < s->n_lane; i++)
        if (fl_lane_state_of(s->lane[i].core) == FL_LANE_RUNS)
            return "a lane has not ended";
    return NULL;
}

/* All processes are there, and have said hello. */
static bool has_begun(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].phase == SIM_ABSENT || s->worker[i].phase == SIM_JOINS)
            return false;
    return true;
}

/* A job whose n-th allocation after that fails; how many there were. */
static int64_t starve(uint64_t seed, bool sync, int64_t n)
{
    const char *bad;
    int64_t count;
    sim_options o;
    sim_script k;
    sim s;

    sim_make(seed, sync, &o, &k);
    sim_open(&s, &o, sim_work, &k);
    for (int64_t ms = 0; ms < SIM_LONGEST_MS && !has_begun(&s); ms += 10)
        sim_run(&s, ms);
    fl_memory_fail_at(n, false);
    sim_run(&s, SIM_LONGEST_MS);
    count = fl_memory_count();
    fl_memory_fail_at(0, false);
    bad = sim_is_well(&s) ? sim_check(&s, &k) : all_ended(&s);
    sim_close(&s);
    if (bad)
        test_fail(__FILE__, __LINE__, "seed %llu, allocation %lld: %s",
                  (unsigned long long)seed, (long long)n, bad);
    return count;
}

TEST_LIMIT(without_memory_a_job_ends_or_is_right, 7200)
{
    int most = 200 / TEST_SLOWNESS; /* of a job */

    sim_need_fibers();
    for (uint64_t seed = 1; seed <= 8; seed++) {
        int64_t count = starve(seed, seed & 1, 0);

        for (int64_t n = 1; n <= count;
             n +=
             1 + (int64_t)sim_pick(seed, (int)n, 1 + 2 * (int)count / most))
            starve(seed, seed & 1, n);
    }
    sim_models_close();
}
