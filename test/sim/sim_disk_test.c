/* sim_disk_test.c - simulated jobs that save and load, on a disk that is full,
 * that fails, or whose machine crashes: a save that was said to be done loads
 * to the bit, one that has failed is named and the old one loads, and a new run
 * goes on with it.
 */
#define SUITE sim
#include "sim_disk.h"
#include "sim_save.h"
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "runtime/store/table.h"
#include "sim_reference.h"

static char wrong[1400];

#define WRONG(...)                                                             \
    (snprintf(wrong, sizeof wrong, __VA_ARGS__), (const char *)wrong)

static void make_job(uint64_t seed, sim_options *o, sim_script *k)
{
    sim_make(seed, sim_pick(seed, 1, 3) > 0, o, k);
    k->path = test_path("disk/save");
    k->twin = test_path("twin");
}

/* May the save after that pass lie on the disk? The last one that was said to
 * be done must, unless one came after it that was under way when the machine
 * crashed, or was in place and could not be flushed. */
static bool may_be(const sim_script *k, int pass, bool crashed)
{
    return pass == sim_last_saved(k, SIM_MOST_PASS - 1) ||
           (k->begun[pass] && !k->saved[pass] && crashed) || k->in_doubt[pass];
}

/* Is the last one only in place, so that a crash may bring back the one before
 * it, or none? */
static int least_saved(const sim_script *k)
{
    int pass = sim_last_saved(k, SIM_MOST_PASS - 1);

    while (pass >= 0 && k->in_doubt[pass])
        pass = sim_last_saved(k, pass - 1);
    return pass;
}

/* Which save of the reference's it is. */
static const char *find_save(const sim_options *o, const sim_script *k,
                             bool crashed, int *found)
{
    int saved = least_saved(k);
    fl_store *got = sim_store(o->model, fl_table_make);
    fleet_status status = sim_load_store(got, k->path);
    const char *bad = NULL;

    *found = -1;
    for (int p = saved < 0 ? 0 : saved; p < SIM_MOST_PASS && !status; p++) {
        fl_store *want = sim_store(o->model, fl_table_make);
        char twin[300];

        sim_twin_path(k, p, twin);
        if (p == saved || may_be(k, p, crashed)) {
            CHECK_OK(sim_load_store(want, twin));
            *found = sim_same_store(got, want) ? p : *found;
        }
        fl_store_destroy(want);
    }
    if (status != FLEET_OK && saved >= 0)
        bad = WRONG("the save after pass %d is gone: %s", saved,
                    fleet_last_error());
    else if (status == FLEET_OK && *found < 0)
        bad = WRONG("the disk has another save than that after pass %d", saved);
    fl_store_destroy(got);
    return bad;
}

/* --- a job with a disk ---------------------------------------------------- */

/* A link is cut, or a process sleeps, for so short a time that nobody minds. */
static sim_fault brief_fault(uint64_t seed, const sim_options *o)
{
    sim_fault f = {.kind = sim_pick(seed, 65, 2) ? SIM_CUT : SIM_SLEEPS,
                   .worker = SIM_NOBODY,
                   .server = SIM_NOBODY,
                   .count = sim_pick(seed, 66, 1 << sim_pick(seed, 67, 10)),
                   .ms = 1 + sim_pick(seed, 68, 700),
                   .directions = 1 + sim_pick(seed, 69, 3),
                   .holds = sim_pick(seed, 70, 2)};

    if (sim_pick(seed, 71, 2))
        f.worker = sim_pick(seed, 72, o->n_worker);
    else
        f.server = sim_pick(seed, 72, o->n_server);
    return f;
}

static const char *saves_and_loads(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    int found;

    make_job(seed, &o, &k);
    if (sim_pick(seed, 73, 2)) {
        o.lost = o.slow = 0;
        o.fault[0] = brief_fault(seed, &o);
    }
    sim_disk_open(test_path("disk"));
    bad = sim_complete(&o, &k);
    if (!bad)
        sim_disk_crash(seed);
    if (!bad)
        bad = find_save(&o, &k, false, &found);
    sim_disk_close();
    return bad;
}

TEST_LIMIT(what_was_saved_loads_to_the_bit_and_what_was_not_is_named, 7200)
{
    SIM_SEEDS(saves_and_loads, 500);
}

/* A process dies in the middle: the save that was done last is what lies there,
 * whatever was begun after it. */
static const char *dies_between_saves(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    int found;
    sim s;

    make_job(seed, &o, &k);
    o.fault[0] = brief_fault(seed, &o);
    o.fault[0].kind = SIM_DIES;
    o.fault[0].ms = sim_pick(seed, 74, 2) ? sim_pick(seed, 75, 3000) : -1;
    sim_disk_open(test_path("disk"));
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = sim_check_fault(&s, &k, true);
    sim_close(&s);
    if (!bad)
        sim_disk_crash(seed);
    if (!bad)
        bad = find_save(&o, &k, true, &found);
    sim_disk_close();
    return bad;
}

TEST_LIMIT(a_process_that_dies_takes_no_save_with_it, 7200)
{
    SIM_SEEDS(dies_between_saves, 400);
}

/* --- the machine crashes -------------------------------------------------- */

/* At any message, or with any call for the disk. */
static void crash(uint64_t seed, const sim_options *o, sim_script *k)
{
    sim_reference r;
    sim s;

    sim_open(&s, o, sim_work, k);
    if (sim_pick(seed, 60, 4))
        sim_disk_stop_after(1 + sim_pick(seed, 61, 1 << sim_pick(seed, 62, 9)));
    sim_run(&s, SIM_LONGEST_MS);
    sim_disk_stop();
    sim_close(&s);
    sim_disk_crash(seed);
    sim_reference_open(&r, &s, k);
    sim_reference_close(&r);
}

/* The next run of the job, with other processes and another script. */
static const char *next_run(uint64_t seed, const sim_options *o,
                            const sim_script *before, int found)
{
    sim_options other = *o;
    sim_script k;
    char first[300];

    sim_make(sim_hash(seed, 1, 0, 0, 0), o->sync, &other, &k);
    other.model = o->model;
    k.kind = before->kind;
    k.path = before->path;
    k.twin = test_path("twin-of-next");
    sim_twin_path(before, found, first);
    k.load_first = true;
    k.first = first;
    k.saved[0] = k.begun[0] = false;
    return sim_complete(&other, &k);
}

static const char *crashes(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    int found;

    make_job(seed, &o, &k);
    o.fault[0] = (sim_fault){.kind = SIM_CRASH,
                             .worker = SIM_NOBODY,
                             .server = SIM_NOBODY,
                             .count = sim_pick(seed, 63, 2000)};
    sim_disk_open(test_path("disk"));
    crash(seed, &o, &k);
    bad = find_save(&o, &k, true, &found);
    if (!bad && found >= 0)
        bad = next_run(seed, &o, &k, found);
    sim_disk_close();
    return bad;
}

TEST_LIMIT(after_a_crash_of_the_machine_a_new_run_goes_on_with_the_last_save,
           7200)
{
    SIM_SEEDS(crashes, 400);
}

/* --- a disk that is lost, or damaged -------------------------------------- */

/* Worker 0 says which save it is, and what is wrong with it; everybody ends. */
static const char *check_refusal(const sim *s, const sim_script *k)
{
    const sim_worker *first = &s->worker[0];

    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].phase != SIM_ENDED || s->worker[i].status == FLEET_OK)
            return WRONG("worker %d has not failed", i);
    for (int i = 0; i < s->n_lane; i++)
        if (fl_lane_state_of(s->lane[i].core) == FL_LANE_RUNS)
            return WRONG("lane %d has not ended", i);
    if (first->status != FLEET_ENOENT && first->status != FLEET_ECORRUPT)
        return WRONG("worker 0: %s: %s", fleet_status_name(first->status),
                     first->text);
    return strstr(first->text, k->path)
               ? NULL
               : WRONG("worker 0 does not name the save: %s", first->text);
}

static const char *loads_in_vain(const sim_options *o, sim_script *k)
{
    const char *bad;
    sim s;

    k->load_first = true;
    sim_open(&s, o, sim_work, k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = check_refusal(&s, k);
    sim_close(&s);
    return bad;
}

static const char *loses_its_disk(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;

    make_job(seed, &o, &k);
    sim_disk_open(test_path("disk"));
    bad = sim_complete(&o, &k);
    if (!bad && (sim_pick(seed, 64, 2) || !sim_disk_flip(k.path, seed)))
        sim_disk_wipe();
    if (!bad)
        bad = loads_in_vain(&o, &k);
    sim_disk_close();
    return bad;
}

TEST_LIMIT(a_save_that_is_lost_or_damaged_ends_the_run_that_loads_it, 7200)
{
    SIM_SEEDS(loses_its_disk, 300);
}
