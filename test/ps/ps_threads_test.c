/* ps_threads_test.c - trainer threads of workers with servers: in order they
 * have the bits of a gradient merge over as many batches, in every mode; with
 * hogwild each batch is a push, and none is lost; what they cannot do is
 * refused by name.
 */
#define SUITE ps_threads
#include "base/memory.h"
#include "ps/worker/worker_internal.h"
#include "ps_kit.h"
#include "sums_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

enum { LINES = 40 }; /* of each of two files */

static ps_job job_of(bool a_sync)
{
    return (ps_job){.servers = 2,
                    .lanes = 2,
                    .passes = 2,
                    .how = {.a_sync = a_sync},
                    .file = {scene_file("a.txt", 9 * PS_BATCH + 5, 1)}};
}

/* n threads, as one thread that merges n batches; both of so many more. */
static void check_as_merged(ps_job j, int threads)
{
    ps_job merged = j;
    int merge = j.how.merge > 1 ? j.how.merge : 1;

    j.thread = threads;
    merged.how.merge = merge * threads;
    CHECK(ps_hash(&j) == ps_hash(&merged));
    CHECK_INT(ps_worker(&j, 0)->result.batches,
              ps_worker(&merged, 0)->result.batches);
    if (!j.how.a_sync) /* else rows have seen more, or fewer, updates */
        CHECK(ps_worker(&j, 0)->result.loss ==
              ps_worker(&merged, 0)->result.loss);
}

/* --- in order ------------------------------------------------------------- */

/* Workers with unequal files, whose last rounds are smaller. */
TEST_LIMIT(in_sync_threads_have_the_bits_of_a_gradient_merge, 120)
{
    ps_job j = job_of(false);

    j.workers = 2;
    j.file[1] = scene_file("b.txt", 6 * PS_BATCH, 2);
    check_as_merged(j, 2);
    j.how.merge = 2;
    j.how.clip = 0.05f;
    check_as_merged(j, 3);
}

/* All batches of an update in one process. */
TEST_LIMIT(in_sync_threads_have_the_bits_of_one_process, 120)
{
    ps_job j = job_of(false);

    j.thread = 4;
    CHECK(ps_hash(&j) == ps_alone(&j, 4));
}

/* --- sums ----------------------------------------------------------------- */

/* A batch is a line. */
static void open_sums(ps_node *n, const fleet_options *o)
{
    const scene_training *how = &n->job->how;
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.a_sync_configs.k_steps = how->geo;
    s.a_sync_configs.max_merge_var_num = how->merged > 0 ? how->merged : 1;
    s.a_sync_configs.vocab_cache_size = how->cache_bytes;
    if (how->bounds_staleness)
        s.a_sync_configs.max_staleness = how->max_staleness;
    s.gradient_merge = how->merge > 1;
    s.gradient_merge_configs.k_steps = how->merge > 1 ? how->merge : 1;
    sums_read(n, sums_build(n, o, &s), n->job->file, 2, 1);
}

static ps_job sums_of(int workers)
{
    char text[LINES * 8] = "";

    for (int i = 0; i < LINES; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "1 %d\n",
                 i * i % 7);
    return (ps_job){
        .servers = 2,
        .workers = workers,
        .lanes = 2,
        .how = {.a_sync = true},
        .file = {test_file("a.txt", text), test_file("b.txt", text)},
        .open = open_sums};
}

static void check_sums(ps_job j, int threads)
{
    ps_job one = j;

    j.thread = threads;
    CHECK(ps_hash(&j) == ps_hash(&one));
    CHECK_INT(ps_worker(&j, 0)->result.batches, 2 * LINES);
}

TEST_LIMIT(with_hogwild_each_batch_is_an_update_and_none_is_lost, 120)
{
    ps_job j = sums_of(2);

    j.hogwild = 1;
    check_sums(j, 4);
    j.how.geo = 3;
    check_sums(j, 4);
    j.how.geo = 0;
    j.how.merged = 4; /* half-async: pushes of 4 batches, as without threads */
    check_sums(j, 4);
}

/* Sums of halves, exact in any order. */
TEST_LIMIT(in_order_other_modes_have_the_sums_of_a_gradient_merge, 120)
{
    ps_job j = sums_of(2);

    check_as_merged(j, 2);
    j.how.bounds_staleness = true;
    j.how.max_staleness = 1;
    check_as_merged(j, 2);
    j.how.merged = 2; /* half-async */
    check_as_merged(j, 2);
    j.how.bounds_staleness = false;
    j.how.merged = 0;
    j.how.geo = 3;
    check_as_merged(j, 2);
}

/* --- passes --------------------------------------------------------------- */

static fleet_status stop_in_a_pass(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK && n->index == 1)
        fleet_train_stop();
    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    fprintf(stderr, "stopped %d\n", n->result.stopped);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* One of them was told to: both stop behind the same round. */
TEST_LIMIT(in_sync_workers_with_threads_stop_together, 120)
{
    ps_job j = job_of(false);

    j.workers = 2;
    j.file[1] = scene_file("b.txt", 9 * PS_BATCH, 2);
    j.thread = 2;
    j.work = stop_in_a_pass;
    ps_start_all(&j);
    ps_check_all_end(&j);
    for (int i = 0; i < 2; i++)
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), "stopped 1");
}

/* --- without memory ------------------------------------------------------- */

/* A slot of a thread is made by its first pull, which may be made again. */
TEST(keys_of_a_slot_are_all_made_or_none)
{
    static fl_worker w = {.n_lane = 2, .layout = {.n_table = 1}};
    fl_lane_keys *keys = NULL;

    for (int n = 1; n <= 3; n++) {
        fl_memory_fail_at(n, false);
        CHECK_INT(fl_worker_make_keys(&w, &keys), FLEET_ENOMEM);
        CHECK(keys == NULL);
    }
    fl_memory_fail_at(0, false);
    CHECK_OK(fl_worker_make_keys(&w, &keys));
    for (int i = 0; i < w.n_lane; i++) {
        CHECK(keys[i].first != NULL);
        fl_free(keys[i].first);
    }
    fl_free(keys);
}

/* --- what is refused ------------------------------------------------------ */

static void check_refused(ps_job j, const char *words)
{
    j.thread = 2;
    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EUNSUPPORTED);
    CHECK_CONTAINS(ps_worker(&j, 0)->error, words);
}

TEST_LIMIT(what_threads_of_a_worker_cannot_do_is_refused_by_name, 120)
{
    ps_job j = job_of(false);

    j.servers = 1;
    j.hogwild = 1;
    check_refused(j, "trainer threads with hogwild do not train with servers "
                     "in sync");
    j.how.a_sync = j.how.bounds_staleness = true;
    j.how.max_staleness = 3;
    check_refused(j, "max_staleness is 3: the last would be staler");
    j = job_of(true);
    j.servers = 1;
    j.how.cache_bytes = 1 << 20;
    check_refused(j, "2 trainer threads pull rows past a worker's cache, and "
                     "strategy.a_sync_configs.vocab_cache_size is 1048576");
}
