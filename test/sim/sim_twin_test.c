/* sim_twin_test.c - simulated jobs in which one worker is started twice. One of
 * the two processes gets the place, on all servers, and the job ends with its
 * bits; the other one is told who has it, and leaves nothing behind.
 */
#define SUITE sim
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static char wrong[1400];

#define WRONG(...)                                                             \
    (snprintf(wrong, sizeof wrong, __VA_ARGS__), (const char *)wrong)

static int n_told, n_twin; /* who was told; twins that got the place */

/* All the lanes may have ended before it comes. */
static const char *check_loser(const sim *s, const sim_worker *w)
{
    char words[60];

    snprintf(words, sizeof words, "says that it is worker %d, and so does",
             s->o.twin - 1);
    if (w->phase != SIM_ENDED)
        return WRONG("process %d has not ended", w->process);
    if (w->status == FLEET_EEXIST && strstr(w->text, words)) {
        n_told++;
        return NULL;
    }
    if (w->status == FLEET_ESTATE && strstr(w->text, "has left this job"))
        return NULL;
    if (w->status == FLEET_ETIMEDOUT || w->status == FLEET_EPEER)
        for (int i = 0; i < s->o.n_server; i++)
            if (s->server[i].ended_ms > 0)
                return NULL;
    return WRONG("process %d: %s: %s", w->process, fleet_status_name(w->status),
                 w->text);
}

/* Of the two the one that has trained stands at the worker's place then. */
static const char *check_twins(sim *s)
{
    sim_worker *first = &s->worker[s->o.twin - 1];
    sim_worker *twin = &s->worker[s->o.n_worker];
    sim_worker other = *first;

    if (twin->status == FLEET_OK && first->status == FLEET_OK)
        return "both say that they have trained";
    if (twin->status != FLEET_OK)
        return check_loser(s, twin);
    n_twin++;
    *first = *twin;
    *twin = other;
    return check_loser(s, twin);
}

static const char *two_live(uint64_t seed)
{
    const char *bad;
    sim_options o;
    sim_script k;
    sim s;

    sim_make(seed, sim_pick(seed, 1, 3) > 0, &o, &k);
    o.twin = 1 + sim_pick(seed, 100, o.n_worker);
    if (sim_pick(seed, 101, 2)) {
        o.lost = o.slow = 0;
        o.fault[0] = (sim_fault){.kind = SIM_SLEEPS,
                                 .worker = sim_pick(seed, 102, 2) ? o.twin - 1
                                                                  : o.n_worker,
                                 .server = SIM_NOBODY,
                                 .count = sim_pick(seed, 103, 60),
                                 .ms = 1 + sim_pick(seed, 104, 700)};
    }
    sim_open(&s, &o, sim_work, &k);
    sim_run(&s, SIM_LONGEST_MS);
    bad = check_twins(&s);
    if (!bad)
        bad = sim_check(&s, &k);
    sim_close(&s);
    return bad;
}

TEST_LIMIT(of_two_live_processes_of_one_worker_one_trains_and_one_is_told, 7200)
{
    uint64_t n = SIM_SEEDS(two_live, 600);

    CHECK(n_told >= (int)n / 3);
    CHECK(n_twin >= (int)n / 5);
}
