/* ps_restart_test.c - worker processes that are killed, at any moment and
 * several times, and started again by the same command: the job goes on, and
 * ends with the bits of one that nothing has befallen. */
#define _GNU_SOURCE
#define SUITE ps_restart
#include "ps_kit.h"
#include "sums_kit.h"
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/graph/program.h"

enum { FAR_MS = 60000 * TEST_SLOWNESS, NUMBER_AT = 8 };

/* --- jobs ----------------------------------------------------------------- */

static bool rate_falls; /* with each pass but the first */

/* Passes by the dataset's position, as a program that may be started again has
 * them; what each has come to is told. */
static fleet_status work_on(ps_node *n)
{
    const fleet_plateau_options at_once = {.factor = 0.5f, .patience = -1};
    fleet_optimizer *o = n->s.p->training.optimizer;
    int64_t pass, batch;
    fleet_status status;

    if (rate_falls)
        FL_TRY(fleet_optimizer_set_plateau(o, &at_once));
    n->s.e = fleet_executor_create(n->s.p, NULL);
    status = fleet_init_worker(n->s.f);
    if (status == FLEET_EEND) {
        fprintf(stderr, "had left\n");
        return FLEET_OK;
    }
    FL_TRY(status);
    FL_TRY(fleet_dataset_position(n->s.data, &pass, &batch));
    for (; pass < n->job->passes; pass++) {
        FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, NULL, &n->result));
        fprintf(stderr, "pass %" PRId64 ": loss %a of %" PRId64 "\n", pass,
                n->result.loss, n->result.samples);
        if (rate_falls)
            FL_TRY(fleet_optimizer_report_metric(o, 1, NULL));
    }
    FL_TRY(ps_end(n));
    if (n->index == 0 && n->pid)
        fprintf(stderr, "hash %" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

static ps_job job_of(bool a_sync)
{
    return (ps_job){.servers = 2,
                    .workers = 3,
                    .lanes = 2,
                    .passes = 8,
                    .shuffle = 100,
                    .id = "restart",
                    .connect_ms = FAR_MS,
                    .request_ms = FAR_MS,
                    .peer_ms = PS_SECOND / 2,
                    .work = work_on,
                    .how = {.a_sync = a_sync,
                            .decay = true,
                            .log = FLEET_DURABLE_PROCESS,
                            .log_configs = {.folder = test_path("log"),
                                            .restart_deadline_ms = FAR_MS}},
                    .file = {scene_file("a.txt", 4000, 1)}};
}

/* The same job, of threads, without a log and with nobody who is killed, or
 * may not be heard of for a while. */
static ps_job undisturbed(const ps_job *j)
{
    ps_job other = *j;

    other.peer_ms = 0;
    other.how.log = FLEET_DURABLE_NONE;
    other.how.log_configs = (fleet_log_configs){0};
    ps_hash(&other);
    return other;
}

/* --- kills ---------------------------------------------------------------- */

/* How many pushes a worker's trail has. */
static uint64_t pushes_of(const ps_job *j, int worker)
{
    uint64_t most = 0;

    for (int i = 0; i < 2; i++) {
        uint64_t number = 0;
        char path[300];
        int fd;

        snprintf(path, sizeof path, "%s/worker-%d/push-%d",
                 j->how.log_configs.folder, worker, i);
        fd = open(path, O_RDONLY);
        if (fd >= 0 &&
            pread(fd, &number, sizeof number, NUMBER_AT) == sizeof number)
            most = number > most ? number : most;
        if (fd >= 0)
            close(fd);
    }
    return most;
}

/* False: it has ended before. */
static bool makes_pushes(ps_job *j, int worker, uint64_t n)
{
    const struct timespec moment = {.tv_nsec = 50000};
    int64_t end_ms = fl_now_ms() + FAR_MS;

    while (pushes_of(j, worker) < n) {
        if (ps_ends_within(ps_worker(j, worker), 0))
            return false;
        if (fl_now_ms() > end_ms)
            test_fail(__FILE__, __LINE__,
                      "worker %d has made %" PRIu64 " pushes of %" PRIu64
                      "; it said: %s",
                      worker, pushes_of(j, worker), n,
                      ps_said(ps_worker(j, worker)));
        nanosleep(&moment, NULL);
    }
    return true;
}

static void await_pushes(ps_job *j, int worker, uint64_t n)
{
    if (!makes_pushes(j, worker, n))
        test_fail(__FILE__, __LINE__,
                  "worker %d has ended with %" PRIu64 " pushes of %" PRIu64
                  "; it said: %s",
                  worker, pushes_of(j, worker), n,
                  ps_said(ps_worker(j, worker)));
}

static void kill_it(ps_node *n)
{
    ps_kill(n, SIGKILL);
    CHECK_INT(ps_wait(n), 128 + SIGKILL);
}

/* One worker after the other, each some pushes later: wherever it is then.
 * With leases it may be that the two before it have had all that was left. */
static void disturb(ps_job *j, int kills, int pushes)
{
    for (int i = 0; i < kills; i++) {
        int worker = i % j->workers;
        uint64_t n = pushes_of(j, worker) + (uint64_t)(pushes + i % 3);

        if (sums_lease_lines && i >= j->workers) {
            if (!makes_pushes(j, worker, n) ||
                ps_ends_within(ps_worker(j, worker), 0))
                return;
        } else {
            await_pushes(j, worker, n);
        }
        CHECK(!ps_ends_within(ps_worker(j, worker), 0));
        kill_it(ps_worker(j, worker));
        ps_start(ps_worker(j, worker));
    }
}

static void check_pass(ps_job *j, const ps_job *want)
{
    char text[100];

    ps_check_all_end(j);
    for (int i = 0; i < j->workers; i++) {
        const fleet_train_result *r = &want->node[want->servers + i].result;

        snprintf(text, sizeof text, "pass %d: loss %a of %" PRId64 "\n",
                 j->passes - 1, r->loss, r->samples);
        CHECK_CONTAINS(ps_said(ps_worker(j, i)), text);
    }
}

static void check_hash(ps_job *j, const ps_job *want)
{
    char text[40];

    snprintf(text, sizeof text, "hash %" PRIx64 "\n",
             want->node[want->servers].hash);
    CHECK_CONTAINS(ps_said(ps_worker(j, 0)), text);
}

TEST_LIMIT(workers_that_are_killed_go_on_and_sync_has_the_same_bits, 120)
{
    ps_job j = job_of(false), want = undisturbed(&j);

    ps_start_all(&j);
    disturb(&j, 6, 7);
    check_pass(&j, &want);
    check_hash(&j, &want);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)),
                   "worker 0 was started again: it goes on in pass ");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "worker 0 was started again: ");
}

TEST_LIMIT(a_worker_that_is_killed_goes_on_at_the_rate_that_reports_left, 120)
{
    ps_job j = job_of(false), want;

    j.how.decay = false; /* which would be fast */
    rate_falls = true;
    want = undisturbed(&j);
    ps_start_all(&j);
    disturb(&j, 4, 45); /* a pass has 41 of a worker's pushes */
    check_pass(&j, &want);
    check_hash(&j, &want);
}

/* A server is killed while a worker is dead. */
TEST_LIMIT(a_worker_and_a_server_may_be_dead_at_once, 120)
{
    ps_job j = job_of(false), want = undisturbed(&j);

    ps_start_all(&j);
    await_pushes(&j, 1, 9);
    kill_it(ps_worker(&j, 1));
    kill_it(ps_server(&j, 1));
    ps_start(ps_worker(&j, 1));
    ps_start(ps_server(&j, 1));
    await_pushes(&j, 1, 15);
    kill_it(ps_server(&j, 0));
    kill_it(ps_worker(&j, 0));
    ps_start(ps_server(&j, 0));
    ps_start(ps_worker(&j, 0));
    check_pass(&j, &want);
    check_hash(&j, &want);
}

/* --- async ---------------------------------------------------------------- */

enum { LINES = 6000 };

static void open_sums(ps_node *n, const fleet_options *o)
{
    const scene_training *how = &n->job->how;
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const char *const file = n->job->user;
    fleet_var *id;

    s.a_sync = 1;
    s.log = (int)how->log;
    if (how->log != FLEET_DURABLE_NONE) {
        s.log_configs.folder = how->log_configs.folder;
        s.log_configs.restart_deadline_ms =
            how->log_configs.restart_deadline_ms;
    }
    id = sums_build(n, o, &s);
    sums_read(n, id, &file, 1, SUMS_BATCH);
}

TEST_LIMIT(workers_that_are_killed_go_on_and_async_has_each_push_once, 120)
{
    ps_job j = job_of(true), want;

    j.file[0] = NULL;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    want = undisturbed(&j);
    ps_start_all(&j);
    disturb(&j, 9, 20);
    ps_check_all_end(&j);
    check_hash(&j, &want);
}

/* A lease is asked for once more by the process that goes on, and is not
 * trained again: as many lines of each id as a job with fixed shares trains. */
TEST_LIMIT(workers_that_are_killed_train_the_rest_of_their_leases, 120)
{
    ps_job j = job_of(true), want;

    j.file[0] = NULL;
    j.passes = 3;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    want = undisturbed(&j);
    sums_lease_lines = 5 * SUMS_BATCH;
    ps_start_all(&j);
    disturb(&j, 6, 20);
    ps_check_all_end(&j);
    check_hash(&j, &want);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "this worker had ");
}

/* Its log has who got which lease. */
TEST_LIMIT(a_server_that_is_killed_gives_no_lease_twice, 120)
{
    ps_job j = job_of(true), want;

    j.file[0] = NULL;
    j.passes = 3;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    want = undisturbed(&j);
    sums_lease_lines = SUMS_BATCH;
    ps_start_all(&j);
    for (int i = 0; i < 4; i++) {
        await_pushes(&j, 0, pushes_of(&j, 0) + 60);
        kill_it(ps_server(&j, 0));
        if (i == 2)
            kill_it(ps_worker(&j, 1));
        ps_start(ps_server(&j, 0));
        if (i == 2)
            ps_start(ps_worker(&j, 1));
    }
    ps_check_all_end(&j);
    check_hash(&j, &want);
}

/* --- at each point of a program ------------------------------------------- */

typedef enum moment {
    BEFORE_TRAINING,
    WITHIN_A_PASS,
    BEHIND_A_PASS,
    BEHIND_A_SAVE,
    BEHIND_A_BARRIER,
    BEHIND_THE_LAST_PASS,
    BEHIND_ITS_END,
    MOMENTS
} moment;

/* The process that comes after it goes on. */
static void die_once(const ps_node *n)
{
    char path[300];
    int fd;

    snprintf(path, sizeof path, "%s-has-died", n->job->how.log_configs.folder);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0)
        return;
    raise(SIGKILL);
}

static void die_at(const ps_node *n, moment m)
{
    if (n->index == 0 && n->pid && *(const moment *)n->job->user == m)
        die_once(n);
}

static int on_batch(void *user, int64_t batch, int64_t samples)
{
    (void)samples;
    if (batch == 3)
        die_at(user, WITHIN_A_PASS);
    return 0;
}

static fleet_status one_pass(ps_node *n, int64_t pass)
{
    const fleet_train_options o = {.on_batch = on_batch, .user = n};
    char path[300];
    double one = 1;

    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, &n->result));
    fprintf(stderr, "pass %" PRId64 ": loss %a of %" PRId64 "\n", pass,
            n->result.loss, n->result.samples);
    if (pass == 0)
        n->number[0] = n->result.loss;
    die_at(n, pass == 0 ? BEHIND_A_PASS : BEHIND_THE_LAST_PASS);
    snprintf(path, sizeof path, "%s-saved-%d", n->job->file[0], (int)pass);
    if (n->index == 0)
        FL_TRY(fleet_save_persistables(n->s.f, path));
    die_at(n, BEHIND_A_SAVE);
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(fleet_metrics_sum(n->s.f, &one, 1));
    if (one != n->job->workers)
        return fl_fail(FLEET_EINVAL, "%g workers", one);
    die_at(n, BEHIND_A_BARRIER);
    return FLEET_OK;
}

/* Commands of all workers, done by worker 0. */
static fleet_status write_rows(fleet *f)
{
    const uint64_t key[] = {1, 2};
    const float row[] = {0.5f, 0.25f};

    FL_TRY(fleet_table_set(f, "embedding_wide", key, 2, 1, row, NULL));
    return fleet_table_set(f, "embedding_wide", key + 1, 1, 1, row, NULL);
}

static fleet_status work_through(ps_node *n)
{
    int64_t pass, batch;
    fleet_status status;

    n->s.e = fleet_executor_create(n->s.p, NULL);
    status = fleet_init_worker(n->s.f);
    if (status == FLEET_EEND)
        return FLEET_OK;
    FL_TRY(status);
    FL_TRY(write_rows(n->s.f));
    FL_TRY(fleet_barrier_worker(n->s.f));
    die_at(n, BEFORE_TRAINING);
    FL_TRY(fleet_dataset_position(n->s.data, &pass, &batch));
    for (; pass < n->job->passes; pass++)
        FL_TRY(one_pass(n, pass));
    if (n->index == 0) {
        FL_TRY(fleet_params_hash(n->s.f, &n->hash));
        fprintf(stderr, "hash %" PRIx64 "\n", n->hash);
    }
    FL_TRY(fleet_stop_worker(n->s.f));
    die_at(n, BEHIND_ITS_END);
    return FLEET_OK;
}

TEST_LIMIT(a_worker_may_die_at_any_point_of_its_program, 120)
{
    moment m = MOMENTS;
    ps_job j = job_of(false), want;

    j.workers = 2;
    j.passes = 2;
    j.servers = j.lanes = 1;
    j.work = work_through;
    j.file[0] = scene_file("short.txt", 500, 1);
    j.user = &m;
    want = undisturbed(&j);
    for (m = 0; m < MOMENTS; m++) {
        ps_job one = j;
        char folder[300];

        snprintf(folder, sizeof folder, "%s-%d", j.how.log_configs.folder,
                 (int)m);
        one.how.log_configs.folder = folder;
        one.connect_ms = PS_SECOND; /* servers that have ended do not answer */
        ps_start_all(&one);
        CHECK_INT(ps_wait(ps_worker(&one, 0)), 128 + SIGKILL);
        ps_start(ps_worker(&one, 0));
        if (m == BEHIND_ITS_END) {
            ps_check_all_end(&one);
            continue;
        }
        check_pass(&one, &want);
        check_hash(&one, &want);
        snprintf(folder, sizeof folder, "pass 0: loss %a of ",
                 ps_worker(&want, 0)->number[0]);
        if (m < BEHIND_THE_LAST_PASS) /* its second process says so */
            CHECK_CONTAINS(ps_said(ps_worker(&one, 0)), folder);
        if (m == BEHIND_A_SAVE || m == BEHIND_A_BARRIER)
            CHECK_CONTAINS(ps_said(ps_worker(&one, 0)),
                           "was saved before worker 0 was started again");
    }
}

/* Its leases are of a pass that is over for the lane. */
static fleet_status leases_with_a_death_between(ps_node *n)
{
    int64_t pass, batch;

    n->s.e = fleet_executor_create(n->s.p, NULL);
    FL_TRY(fleet_init_worker(n->s.f));
    FL_TRY(fleet_dataset_position(n->s.data, &pass, &batch));
    for (; pass < n->job->passes; pass++) {
        FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, NULL, &n->result));
        if (n->index == 1 && n->pid && pass == 0)
            die_once(n);
    }
    FL_TRY(ps_end(n));
    if (n->index == 0 && n->pid)
        fprintf(stderr, "hash %" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

TEST_LIMIT(a_worker_that_dies_between_two_passes_of_leases_goes_on, 120)
{
    ps_job j = job_of(true), want;

    j.file[0] = NULL;
    j.passes = 2;
    j.request_ms = 10 * PS_SECOND;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    j.work = leases_with_a_death_between;
    want = undisturbed(&j);
    sums_lease_lines = 5 * SUMS_BATCH;
    ps_start_all(&j);
    CHECK_INT(ps_wait(ps_worker(&j, 1)), 128 + SIGKILL);
    ps_start(ps_worker(&j, 1));
    ps_check_all_end(&j);
    check_hash(&j, &want);
}

/* --- who cannot ----------------------------------------------------------- */

/* By hand: the library does not know which batch comes next. */
static fleet_status by_hand(ps_node *n)
{
    const int64_t dims[] = {1, 1};
    fleet_status status = ps_begin(n);

    for (int64_t i = 0; i < 100000 && status == FLEET_OK; i++) {
        int64_t id = i % SUMS_KEYS;
        const fleet_feed feed = {"id", FLEET_INT64, &id, dims, 2, NULL};

        status = fleet_executor_run(n->s.e, &feed, 1, NULL, 0);
    }
    return status;
}

TEST_LIMIT(a_worker_whose_batches_no_dataset_has_is_refused_by_name, 120)
{
    ps_job j = job_of(true);

    j.workers = j.servers = j.lanes = 1;
    j.file[0] = NULL;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    j.work = by_hand;
    ps_start_all(&j);
    await_pushes(&j, 0, 3);
    kill_it(ps_worker(&j, 0));
    ps_start(ps_worker(&j, 0));
    ps_check_fails(
        ps_worker(&j, 0),
        "worker 0 was started again and cannot go on: it has trained "
        "batches of which its log does not say where they come from");
    ps_check_fails(ps_server(&j, 0), "worker 0 has given up");
}

TEST_LIMIT(where_workers_cannot_be_started_again_the_last_words_say_so, 120)
{
    ps_job j = job_of(true);

    j.workers = j.servers = j.lanes = 1;
    j.how.merged = 4;
    j.how.decay = false;
    j.passes = 1000;
    ps_start_all(&j);
    while (!strstr(ps_said(ps_worker(&j, 0)), "pass 0:"))
        CHECK(!ps_ends_within(ps_worker(&j, 0), 1));
    kill_it(ps_worker(&j, 0));
    ps_check_fails(ps_server(&j, 0),
                   "(peer deadline); in ps-half-async a worker cannot be "
                   "started again: pushes that it gathers are in no log");
}
