/* sim_cold_test.c - jobs whose lanes have their rows in files, but for those
 * that are wanted: pulls and steps wait for rows that come at one of the next
 * looks. The bits and the pushes are those of one process, with saves, loads
 * and faults, too.
 */
#define SUITE sim_cold
#include "cold_kit.h"
#include "sim_seeds.h"
#include "test.h"

#include "base/memory.h"

static const char *run(uint64_t seed, bool sync)
{
    const char *bad;
    sim_options o;
    sim_script k;

    sim_make(seed, sync, &o, &k);
    cold_kit_cap.folder = test_folder();
    cold_kit_cap.by_hand = 1 + sim_pick(seed, 900, 4);
    cold_kit_cap.hurries = true;
    o.make_rows = cold_kit_make;
    bad = sim_complete(&o, &k);
    cold_kit_cap = (fl_rows_cap){.bytes = 1 << 20};
    return bad;
}

static const char *sync_run(uint64_t seed)
{
    return run(seed, true);
}

static const char *async_run(uint64_t seed)
{
    return run(seed, false);
}

TEST_LIMIT(sync_jobs_with_cold_rows_give_the_bits_of_one_process, 7200)
{
    SIM_SEEDS(sync_run, 60);
}

TEST_LIMIT(async_jobs_with_cold_rows_apply_every_push_once, 7200)
{
    SIM_SEEDS(async_run, 60);
}
