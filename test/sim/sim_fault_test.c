/* sim_fault_test.c - simulated jobs in which a process dies, sleeps, hangs or
 * is cut off, at any message. A job that keeps all its processes ends well,
 * with the bits of one process. One that loses a process ends on every other
 * one in time, with the name of whose fault it was; another process at the
 * address of one that is gone is never taken for it; and what is whole has the
 * right bits.
 */
#define SUITE sim
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>

enum { BRIEF_MS = 700 }; /* no deadline notices */

static int n_failed; /* runs that did not survive the fault */

/* At the beginning of a job, or anywhere in it; in every second run with a
 * message of a certain kind. */
static sim_fault fault_at(uint64_t seed, sim_fault_kind kind)
{
    static const int kinds[] = {FL_MSG_HELLO,  FL_MSG_STEP,   FL_MSG_PULL,
                                FL_MSG_REDUCE, FL_MSG_CLIP,   FL_MSG_HEARTBEAT,
                                FL_MSG_ANSWER, FL_MSG_QUERY,  FL_MSG_BYE,
                                FL_MSG_STEP,   FL_MSG_NO_KIND};
    sim_fault f = {.kind = kind, .worker = SIM_NOBODY, .server = SIM_NOBODY};
    int which = sim_pick(seed, 10, 11);

    f.count = sim_pick(seed, 11, 1 << sim_pick(seed, 12, 10));
    if (sim_pick(seed, 13, 2))
        return f;
    f.message = kinds[which];
    f.leaving = which == 9;
    f.count = sim_pick(seed, 14, f.leaving ? 2 : 1 << sim_pick(seed, 15, 5));
    return f;
}

static const char *run_fault(const sim_options *o, sim_script *k, bool fatal)
{
    const char *bad;
    sim s;

    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check_fault(&s, k, fatal);
    n_failed += !sim_is_well(&s);
    sim_close(&s);
    return bad;
}

static void make_job(uint64_t seed, sim_options *o, sim_script *k)
{
    sim_make(seed, sim_pick(seed, 1, 3) > 0, o, k);
}

/* Many a job is over before; the jobs that are not must be many, too. */
static void run_fatal(const char *test, sim_one_run *run, uint64_t n)
{
    n_failed = 0;
    n = sim_run_seeds(test, run, n);
    CHECK(n_failed >= (int)n / 4);
}

/* --- processes die -------------------------------------------------------- */

/* When another process comes at the address, if one does. */
static int64_t comes_after(uint64_t seed)
{
    static const int ms[] = {1, 50, 1000, 6000};

    return sim_pick(seed, 20, 5) ? sim_pick(seed, 21, ms[sim_pick(seed, 22, 4)])
                                 : -1;
}

static const char *worker_dies(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.fault[0] = fault_at(seed, SIM_DIES);
    o.fault[0].worker = sim_pick(seed, 4, o.n_worker);
    o.fault[0].ms = comes_after(seed);
    return run_fault(&o, &k, true);
}

static const char *server_dies(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.fault[0] = fault_at(seed, SIM_DIES);
    o.fault[0].server = sim_pick(seed, 4, o.n_server);
    o.fault[0].ms = comes_after(seed);
    return run_fault(&o, &k, true);
}

TEST_LIMIT(a_worker_that_dies_is_named_and_another_one_is_not_taken_for_it,
           7200)
{
    run_fatal(__func__, worker_dies, 1200);
}

TEST_LIMIT(a_server_that_dies_is_named_and_another_one_is_not_taken_for_it,
           7200)
{
    run_fatal(__func__, server_dies, 1200);
}

/* --- processes sleep, or hang --------------------------------------------- */

static sim_fault sleep_of(uint64_t seed, const sim_options *o, int64_t ms)
{
    sim_fault f = fault_at(seed, SIM_SLEEPS);

    f.ms = ms;
    if (sim_pick(seed, 30, 2))
        f.worker = sim_pick(seed, 4, o->n_worker);
    else
        f.server = sim_pick(seed, 4, o->n_server);
    return f;
}

/* It wakes when all others have ended, and hears why; nothing strange comes
 * between what they said last. */
static const char *process_sleeps(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.lost = 0;
    o.fault[0] = sleep_of(seed, &o, 2 * o.peer_ms + o.request_ms);
    return run_fault(&o, &k, true);
}

TEST_LIMIT(who_has_slept_itself_blames_nobody_else, 7200)
{
    run_fatal(__func__, process_sleeps, 600);
}

/* It lives, and never brings its step. */
static const char *worker_sticks(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.fault[0] = fault_at(seed, SIM_STUCK);
    o.fault[0].worker = sim_pick(seed, 4, o.n_worker);
    return run_fault(&o, &k, true);
}

TEST_LIMIT(the_step_deadline_names_who_keeps_the_others_waiting, 7200)
{
    run_fatal(__func__, worker_sticks, 200);
}

/* --- links are cut -------------------------------------------------------- */

static sim_fault cut_of(uint64_t seed, const sim_options *o, int64_t ms)
{
    sim_fault f = fault_at(seed, SIM_CUT);

    if (sim_pick(seed, 40, 4))
        f.worker = sim_pick(seed, 4, o->n_worker);
    if (sim_pick(seed, 41, 4))
        f.server = sim_pick(seed, 5, o->n_server);
    f.directions = 1 + sim_pick(seed, 42, 3);
    f.holds = sim_pick(seed, 43, 2);
    f.ms = ms;
    return f;
}

static const char *brief_faults(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.lost = 0;
    o.slow = 0;
    for (int i = 0; i < SIM_MOST_FAULT; i++) {
        uint64_t one = sim_hash(seed, (uint64_t)i, 0, 0, 0);
        int64_t ms = 1 + sim_pick(one, 44, BRIEF_MS);

        o.fault[i] =
            sim_pick(one, 45, 3) ? cut_of(one, &o, ms) : sleep_of(one, &o, ms);
    }
    return run_fault(&o, &k, false);
}

TEST_LIMIT(links_that_are_cut_and_processes_that_sleep_for_a_while_do_no_harm,
           7200)
{
    SIM_SEEDS(brief_faults, 1500);
}

static const char *cut_off(uint64_t seed)
{
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    o.fault[0] = cut_of(seed, &o, 0);
    o.fault[0].ms = sim_pick(seed, 46, 3)
                        ? SIM_LONGEST_MS
                        : o.peer_ms + sim_pick(seed, 47, 9999);
    return run_fault(&o, &k, true);
}

TEST_LIMIT(who_is_cut_off_is_named_by_both_sides, 7200)
{
    run_fatal(__func__, cut_off, 1000);
}

/* From its farewell on no server hears it, and it hears none: all that it had
 * to do is done. */
static const char *cut_off_at_its_farewell(uint64_t seed)
{
    static char wrong[1100];
    const char *bad;
    sim_options o;
    sim_script k;
    int who;
    sim s;

    make_job(seed, &o, &k);
    who = sim_pick(seed, 4, o.n_worker);
    o.strange = 0; /* a damaged packet may look like a farewell */
    o.fault[0] = (sim_fault){.kind = SIM_CUT,
                             .worker = who,
                             .server = SIM_NOBODY,
                             .message = FL_MSG_STEP,
                             .leaving = true,
                             .count = sim_pick(seed, 48, o.n_server * o.n_lane),
                             .ms = SIM_LONGEST_MS,
                             .directions = SIM_TO_LANES | SIM_TO_WORKERS};
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check_fault(&s, &k, true);
    if (!bad && s.worker[who].status != FLEET_OK) {
        snprintf(wrong, sizeof wrong, "worker %d: %s", who, s.worker[who].text);
        bad = wrong;
    }
    sim_close(&s);
    return bad;
}

TEST_LIMIT(a_worker_that_is_cut_off_at_its_farewell_ends_well, 7200)
{
    SIM_SEEDS(cut_off_at_its_farewell, 300);
}
