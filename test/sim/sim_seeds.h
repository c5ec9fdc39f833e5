/* sim_seeds.h - runs of the simulator, seed after seed.
 *
 * A seed that fails is printed, with what runs it again. FLEET_SIM_SEED=n runs
 * it alone, FLEET_SIM_TRACE=1 shows each event; FLEET_SIM_SEEDS=k runs k times
 * as many.
 */
#pragma once

#include "sim_job.h"

/* Of a run in which nothing stays away for good, in virtual time: a hang is
 * longer. */
enum { SIM_LONGEST_MS = 600000 };

/* NULL, or what was wrong. */
typedef const char *sim_one_run(uint64_t seed);

/* Seeds 1 to n, fewer in slow variants; test is the name of the function that
 * the seeds are for. How many were run. */
uint64_t sim_run_seeds(const char *test, sim_one_run *run, uint64_t n);
#define SIM_SEEDS(run, n) sim_run_seeds(__func__, run, n)

/* All of it is one thread, on several stacks: skips the test where that cannot
 * be. */
void sim_need_fibers(void);

/* A number in [0, n) for that seed. */
int sim_pick(uint64_t seed, int what, int n);

/* Requests, by lanes with few bytes: were there any in sim_complete()? */
bool sim_has_deferred_and_dropped(void);

/* Its servers write journals, and die as they write, at most so often, all by
 * the seed. */
void sim_give_journals(uint64_t seed, int most_deaths, sim_options *o);

/* A run of that script; NULL if it ends well. */
const char *sim_complete(const sim_options *o, sim_script *k);
