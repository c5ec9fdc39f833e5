/* ps_lease_test.c - real jobs whose data are shared out in leases: each line is
 * trained once, a straggler and a worker that comes late train fewer; a pass
 * that was stopped goes on; modes that cannot have leases say so. */
#define SUITE ps_lease
#include "job_kit.h"
#include "launch_kit.h"
#include "ps_kit.h"
#include "sums_kit.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { LINES = 4000, BATCHES = LINES / SUMS_BATCH };

static void open_sums(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const char *const file = n->job->user;

    s.a_sync = n->job->how.a_sync;
    if (n->job->how.merged > 0)
        s.a_sync_configs.max_merge_var_num = n->job->how.merged;
    if (n->job->how.geo > 0)
        s.a_sync_configs.k_steps = n->job->how.geo;
    sums_read(n, sums_build(n, o, &s), &file, 1, SUMS_BATCH);
}

static ps_job job_of(int workers)
{
    return (ps_job){.servers = 2,
                    .workers = workers,
                    .passes = 2,
                    .how = {.a_sync = true},
                    .user = (void *)(uintptr_t)sums_file(LINES),
                    .open = open_sums};
}

/* --- who is slow ---------------------------------------------------------- */

static ps_pipe most_is_done;

/* Of the last worker the first batch takes as long as nine tenths of the pass
 * take all others together. */
static int on_batch(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;

    (void)samples;
    n->number[0]++;
    if (n->index == 0 && n->number[1] == 0 && batch == BATCHES * 9 / 10)
        ps_tell(&most_is_done);
    if (n->index == 1 && n->number[1] == 0 && batch == 1)
        ps_hear(&most_is_done);
    return 0;
}

static fleet_status passes_of(ps_node *n)
{
    const fleet_train_options o = {.on_batch = on_batch, .user = n};

    for (; n->number[1] < n->job->passes; n->number[1]++) {
        n->number[0] = 0;
        FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, &n->result));
        fprintf(stderr, "pass %g: %g batches of %" PRId64 " in all\n",
                n->number[1], n->number[0], n->result.batches);
    }
    return FLEET_OK;
}

static fleet_status work(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(passes_of(n));
    FL_TRY(ps_end(n));
    if (n->index == 0)
        fprintf(stderr, "hash %" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

static double batches_of(const ps_node *n)
{
    const char *at = strstr(ps_said(n), "pass 0: ");

    CHECK(at);
    return atof(at + strlen("pass 0: "));
}

TEST_LIMIT(each_line_is_trained_once_and_a_straggler_trains_fewer, 120)
{
    ps_job j = job_of(2), fixed = job_of(2);
    char text[60];

    ps_hash(&fixed);
    most_is_done = ps_pipe_make();
    sums_lease_lines = 10 * SUMS_BATCH;
    j.work = work;
    ps_start_all(&j);
    ps_check_all_end(&j);
    snprintf(text, sizeof text, "hash %" PRIx64 "\n",
             ps_worker(&fixed, 0)->hash);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), text);
    snprintf(text, sizeof text, " of %d in all", BATCHES);
    for (int i = 0; i < 2; i++)
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), text);
    CHECK_INT(batches_of(ps_worker(&j, 0)) + batches_of(ps_worker(&j, 1)),
              BATCHES);
    CHECK(batches_of(ps_worker(&j, 0)) >= BATCHES * 9 / 10);
    CHECK(batches_of(ps_worker(&j, 1)) >= 10); /* a lease, at least */
}

/* --- modes ---------------------------------------------------------------- */

/* What a worker of geo adds depends on when others exchanged, and the weight of
 * a batch in half-async on how many were gathered with it. */
static void same_as_fixed_shares(const ps_job *how, int64_t lease_lines)
{
    ps_job fixed = *how, leased = *how;
    uint64_t want = ps_hash(&fixed);

    sums_lease_lines = lease_lines;
    CHECK(ps_hash(&leased) == want || how->how.geo > 0 || how->how.merged > 0);
    CHECK_INT(ps_worker(&leased, 0)->result.samples, LINES);
    if (how->workers > 1)
        CHECK_CONTAINS(ps_worker(&leased, 1)->log, "this worker had ");
    sums_lease_lines = 0;
}

TEST_LIMIT(half_async_and_geo_have_each_line_once_too, 120)
{
    ps_job j = job_of(3);

    j.how.merged = 4;
    same_as_fixed_shares(&j, 7);
    j.how.merged = 0;
    j.how.geo = 5;
    same_as_fixed_shares(&j, 30);
}

/* More workers than leases: some have none. */
TEST_LIMIT(a_worker_may_have_no_lease_and_one_worker_has_all, 120)
{
    ps_job j = job_of(3);

    same_as_fixed_shares(&j, LINES);
    j.workers = 1;
    same_as_fixed_shares(&j, 10);
}

TEST(sync_refuses_leases_by_name)
{
    ps_job j = job_of(2);

    j.how.a_sync = false;
    sums_lease_lines = 8;
    ps_run(&j);
    for (int i = 0; i < 2; i++)
        CHECK_INT(ps_worker(&j, i)->status == FLEET_EUNSUPPORTED ||
                      ps_worker(&j, i)->status == FLEET_EPEER,
                  1);
    CHECK(strstr(ps_worker(&j, 0)->error,
                 "lease_lines 8 in mode ps-sync: expected 0, or workers that "
                 "update apart, in ps-async, ps-half-async or ps-geo") ||
          strstr(ps_worker(&j, 1)->error, "lease_lines 8 in mode ps-sync"));
}

/* --- stopped -------------------------------------------------------------- */

/* Worker 1 ends its first pass early; all others, which have the rest of it,
 * hear so at its end. */
static int stop_early(void *user, int64_t batch, int64_t samples)
{
    const ps_node *n = user;

    (void)samples;
    if (n->index == 1 && n->number[0] == 0 && batch == 23)
        fleet_train_stop();
    return 0;
}

static fleet_status stop_and_go_on(ps_node *n)
{
    const fleet_train_options o = {.on_batch = stop_early, .user = n};
    int64_t pass = 0, batch;

    FL_TRY(ps_begin(n));
    for (; pass < n->job->passes; n->number[0]++) {
        FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, &n->result));
        FL_TRY(fleet_dataset_position(n->s.data, &pass, &batch));
        fprintf(stderr, "stopped %d at %" PRId64 "\n", n->result.stopped,
                n->index == 1 ? batch : 0);
    }
    FL_TRY(ps_end(n));
    if (n->index == 0)
        fprintf(stderr, "hash %" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

TEST_LIMIT(a_pass_that_was_stopped_goes_on_with_its_leases, 120)
{
    ps_job j = job_of(2), fixed = job_of(2);
    char text[60];

    ps_hash(&fixed);
    sums_lease_lines = 10 * SUMS_BATCH;
    j.work = stop_and_go_on;
    ps_start_all(&j);
    ps_check_all_end(&j);
    snprintf(text, sizeof text, "hash %" PRIx64 "\n",
             ps_worker(&fixed, 0)->hash);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), text);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "stopped 1 at 0\n");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 1)), "stopped 1 at 23\n");
}

/* --- real data ------------------------------------------------------------ */

/* What a worker of fleet-train had, by its log. */
static int64_t samples_of(const char *log)
{
    const char *at = strstr(launch_log(log), " leases, of ");

    if (!at)
        test_fail(__FILE__, __LINE__, "%s: %s", log, launch_log(log));
    return atoll(at + strlen(" leases, of "));
}

static const char *leased(const char *config)
{
    static const char key[] = "\"batch_size\"";
    const char *at = strstr(config, key);
    char all[9000];

    CHECK(at);
    snprintf(all, sizeof all, "%.*s\"lease_lines\": 128, %s",
             (int)(at - config), config, at);
    return test_keep(all);
}

/* Worker 1 is stopped by SIGSTOP for nine tenths of the time. */
#define SLOWED                                                                 \
    LAUNCH_WORKER(1)                                                           \
    " && ! " LAUNCH_SERVER " && { me=$$; { "                                   \
    "while read p n state r </proc/$me/stat && [ $state != Z ]; do "           \
    "kill -STOP $me; sleep 0.045; kill -CONT $me; sleep 0.005; done; }"        \
    " 2>/dev/null & };"

TEST_LIMIT(adult_is_shared_out_and_a_worker_ten_times_slower_trains_less, 300)
{
    const char *config = leased(job_epochs(job_adult("\"a_sync\": true"), 1));
    int64_t lines = 32561 / test_fraction(), fast, slow;
    char script[9500];

    launch_deadline_ms = 200000;
    snprintf(script, sizeof script, SLOWED "%s", job_script(config));
    if (launch_run("--server_num 1 --worker_num 2", script) != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_err());
    fast = samples_of("workerlog.0");
    slow = samples_of("workerlog.1");
    CHECK_INT(fast + slow, lines);
    /* A fraction of Adult is three leases, over before a worker stops. */
    if (test_fraction() == 1)
        CHECK(slow < fast);
}
