/* sim_test.c - whole jobs with parameter servers, simulated, each from a seed:
 * whatever links, lanes and workers do, every push is applied exactly once; a
 * job completes with the same bits, or ends in time with the name of who is
 * gone.
 *
 * A seed that fails is printed. FLEET_SIM_SEED=n runs it alone,
 * FLEET_SIM_TRACE=1 shows each event; FLEET_SIM_SEEDS=k runs k times as many.
 */
#define SUITE sim
#include "sim_job.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Of a run without a permanent failure, in virtual time: a hang is longer. */
enum { LONGEST_MS = 600000 };

/* All of it is one thread, on several stacks. */
static void need_fibers(void)
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

typedef const char *one_run(uint64_t seed);

static void run_one(one_run *run, uint64_t seed)
{
    const char *bad = run(seed);

    if (bad)
        test_fail(__FILE__, __LINE__, "seed %llu: %s", (unsigned long long)seed,
                  bad);
}

/* Seeds of different tests are different jobs anyway. */
static void run_seeds(one_run *run, uint64_t n)
{
    uint64_t only = number_in("FLEET_SIM_SEED", 0);

    need_fibers();
    n = n * number_in("FLEET_SIM_SEEDS", 1) / TEST_SLOWNESS;
    if (only)
        run_one(run, only);
    for (uint64_t seed = 1; !only && seed <= n; seed++)
        run_one(run, seed);
    sim_models_close();
}

static void begin(sim *s, const sim_options *o, sim_script *k)
{
    sim_open(s, o, sim_work);
    for (int i = 0; i < o->n_worker; i++)
        s->worker[i].own = k;
}

static uint64_t n_deferred, n_dropped; /* requests, by lanes with few bytes */

static void count_requests(const sim *s)
{
    for (int i = 0; i < s->n_lane; i++) {
        fl_lane_counts n = fl_lane_counted(s->lane[i].core);

        n_deferred += n.deferred;
        n_dropped += n.dropped;
    }
}

static const char *complete(const sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    begin(&s, o, k);
    sim_run(&s, LONGEST_MS);
    bad = sim_check(&s, k);
    count_requests(&s);
    sim_close(&s);
    return bad;
}

static const char *sync_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    return complete(&o, &k);
}

static const char *async_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, false, &o, &k);
    return complete(&o, &k);
}

/* --- somebody falls silent ------------------------------------------------ */

/* Beyond the deadlines: the longest pause, a beat, and the way of a message. */
enum { SLACK_MS = 500 };

static int n_failed; /* runs that somebody did not survive */

static const char *fail(sim_options *o, sim_script *k, int64_t within_ms)
{
    const char *bad;
    bool failed = false;
    sim s;

    begin(&s, o, k);
    sim_run(&s, o->dead_ms + within_ms + SLACK_MS);
    if (o->dead_worker >= 0 && !s.worker[o->dead_worker].dead)
        sim_run(&s, LONGEST_MS); /* it had left: nobody is missed */
    bad = sim_check_failure(&s, k);
    for (int i = 0; i < o->n_worker; i++)
        failed = failed || s.worker[i].status != FLEET_OK;
    for (int i = 0; i < s.n_lane; i++)
        failed = failed || s.lane[i].failed_ms >= 0;
    n_failed += failed;
    sim_close(&s);
    return bad;
}

static uint64_t pick(uint64_t seed, int what, int n)
{
    return sim_hash(seed, 77, (uint64_t)what, 0, 0) % (uint64_t)n;
}

static void make_failure(uint64_t seed, sim_options *o, sim_script *k)
{
    sim_make(seed, pick(seed, 1, 3) > 0, o, k);
    o->dead_ms = (int64_t)pick(seed, 2, pick(seed, 3, 2) ? 200 : 2000);
}

static const char *worker_dies(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_failure(seed, &o, &k);
    o.dead_worker = (int)pick(seed, 4, o.n_worker);
    return fail(&o, &k, o.peer_ms + o.request_ms);
}

static const char *server_dies(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_failure(seed, &o, &k);
    o.dead_server = (int)pick(seed, 4, o.n_server);
    return fail(&o, &k, o.peer_ms + o.request_ms);
}

/* It lives, and never brings its step. */
static const char *worker_sticks(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_failure(seed, &o, &k);
    o.stuck_worker = (int)pick(seed, 4, o.n_worker);
    return fail(&o, &k, LONGEST_MS);
}

/* Many a job is over before; the others must be many, too. */
static void run_failures(one_run *run, uint64_t n)
{
    n_failed = 0;
    run_seeds(run, n);
    CHECK(getenv("FLEET_SIM_SEED") || n_failed >= (int)n / TEST_SLOWNESS / 3);
}

TEST_LIMIT(all_end_in_time_and_name_a_worker_that_is_gone, 7200)
{
    run_failures(worker_dies, 1000);
}

TEST_LIMIT(all_end_in_time_and_name_a_server_that_is_gone, 7200)
{
    run_failures(server_dies, 1000);
}

TEST_LIMIT(the_step_deadline_names_who_keeps_the_others_waiting, 7200)
{
    run_failures(worker_sticks, 300);
}

/* --- nobody does ---------------------------------------------------------- */

TEST_LIMIT(sync_jobs_give_the_bits_of_one_process, 7200)
{
    run_seeds(sync_run, 2000);
    CHECK(getenv("FLEET_SIM_SEED") || (n_deferred > 0 && n_dropped > 0));
}

TEST_LIMIT(async_jobs_apply_every_push_once, 7200)
{
    run_seeds(async_run, 2000);
    CHECK(getenv("FLEET_SIM_SEED") || (n_deferred > 0 && n_dropped > 0));
}

/* --- some do not run for a while ------------------------------------------ */

/* Slurm suspends the job, or its machine sleeps. */
static const char *all_stop(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, pick(seed, 1, 2) > 0, &o, &k);
    o.all_stop = true;
    o.stop_at_ms = (int64_t)pick(seed, 2, pick(seed, 3, 2) ? 200 : 2000);
    o.stop_ms = 3 * o.step_ms;
    return complete(&o, &k);
}

TEST_LIMIT(a_job_that_is_stopped_as_a_whole_goes_on_as_if_nothing_had_been,
           7200)
{
    run_seeds(all_stop, 1000);
}

/* It wakes when all others have ended, and hears why. */
static const char *worker_stops(uint64_t seed)
{
    static char bad[1200];
    char name[20];
    sim_options o;
    sim_script k;
    sim s;
    int who;

    sim_make(seed, pick(seed, 1, 2) > 0, &o, &k);
    who = (int)pick(seed, 4, o.n_worker);
    o.stopped_worker = who + 1;
    o.stop_at_ms = (int64_t)pick(seed, 2, 200);
    o.stop_ms = 2 * o.peer_ms;
    o.lost = 0;
    snprintf(name, sizeof name, "worker %d ", who);
    *bad = 0;
    begin(&s, &o, &k);
    sim_run(&s, LONGEST_MS);
    for (int i = 0; i < o.n_worker; i++)
        if (!s.worker[i].ended)
            snprintf(bad, sizeof bad, "worker %d has not ended", i);
        else if (s.worker[i].status != FLEET_OK &&
                 strncmp(s.worker[i].text, name, strlen(name)) != 0)
            snprintf(bad, sizeof bad,
                     "worker %d stopped, and worker %d says: %s", who, i,
                     s.worker[i].text);
    n_failed += s.worker[who].status != FLEET_OK;
    sim_close(&s);
    return *bad ? bad : NULL;
}

TEST_LIMIT(who_was_stopped_itself_blames_nobody_else, 7200)
{
    run_failures(worker_stops, 300);
}

/* --- memory runs out ------------------------------------------------------ */

static bool all_well(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].status != FLEET_OK)
            return false;
    for (int i = 0; i < s->n_lane; i++)
        if (fl_lane_state_of(s->lane[i].core) != FL_LANE_LEFT)
            return false;
    return true;
}

static const char *all_ended(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (!s->worker[i].ended)
            return "a worker has not ended";
    for (int i = 0; i < s->n_lane; i++)
        if (fl_lane_state_of(s->lane[i].core) == FL_LANE_RUNS)
            return "a lane has not ended";
    return NULL;
}

/* A job whose n-th allocation fails; how many there were. */
static int64_t starve(uint64_t seed, bool sync, int64_t n)
{
    const char *bad;
    int64_t count;
    sim_options o;
    sim_script k;
    sim s;

    sim_make(seed, sync, &o, &k);
    begin(&s, &o, &k);
    fl_memory_fail_at(n, false);
    sim_run(&s, LONGEST_MS);
    count = fl_memory_count();
    fl_memory_fail_at(0, false);
    bad = all_well(&s) ? sim_check(&s, &k) : all_ended(&s);
    sim_close(&s);
    if (bad)
        test_fail(__FILE__, __LINE__, "seed %llu, allocation %lld: %s",
                  (unsigned long long)seed, (long long)n, bad);
    return count;
}

TEST_LIMIT(without_memory_a_job_ends_or_is_right, 7200)
{
    int most = 200 / TEST_SLOWNESS; /* of a job */

    need_fibers();
    for (uint64_t seed = 1; seed <= 8; seed++) {
        int64_t count = starve(seed, seed & 1, 0);

        for (int64_t n = 1; n <= count;
             n += 1 + (int64_t)pick(seed, (int)n, 1 + 2 * (int)count / most))
            starve(seed, seed & 1, n);
    }
    sim_models_close();
}
