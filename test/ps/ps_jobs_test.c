/* ps_jobs_test.c - jobs with servers as processes of their own, over tcp and
 * ipc: bits, quality under fleetrun, how a job ends. */
#define _GNU_SOURCE
#define SUITE ps_jobs
#include "job_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* --- bits ----------------------------------------------------------------- */

/* A worker that tells its hash. */
static fleet_status train_and_tell(ps_node *n)
{
    FL_TRY(ps_work(n));
    fprintf(stderr, "hash %016llx\n", (unsigned long long)n->hash);
    return FLEET_OK;
}

static void check_hash(ps_job *j, uint64_t want)
{
    char text[64];

    j->work = train_and_tell;
    ps_start_all(j);
    ps_check_all_end(j);
    snprintf(text, sizeof text, "hash %016llx\n", (unsigned long long)want);
    CHECK_CONTAINS(ps_said(ps_worker(j, 0)), text);
}

/* What one process gives, worked out in a process of its own: ours must not
 * have used the library before it forks. */
static uint64_t alone_elsewhere(const ps_job *j, int merge)
{
    ps_pipe p = ps_pipe_make();
    uint64_t hash = 0;
    pid_t child = test_fork();

    if (child == 0) {
        hash = ps_alone(j, merge);
        _exit(write(p.fd[1], &hash, sizeof hash) != sizeof hash);
    }
    CHECK(close(p.fd[1]) == 0);
    CHECK(read(p.fd[0], &hash, sizeof hash) == sizeof hash);
    close(p.fd[0]);
    return hash;
}

TEST(processes_over_ipc_and_tcp_have_the_bits_of_one)
{
    ps_job j = {.workers = 2,
                .passes = 2,
                .shuffle = 100,
                .file = {scene_file("a.txt", 450, 1)}};
    uint64_t want = alone_elsewhere(&j, 2);

    for (j.servers = 1; j.servers <= 2; j.servers++) {
        check_hash(&j, want);
        j.lanes = 2;
        setenv("FLEET_TRANSPORT", "tcp", 1);
        check_hash(&j, want);
        unsetenv("FLEET_TRANSPORT");
    }
}

TEST(a_server_leaves_by_itself_and_its_folder_goes_with_it)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .work = ps_hold,
                .file = {scene_file("a.txt", 100, 1)}};
    const char *folder[2];

    ps_start_all(&j);
    ps_hear_held(&j);
    for (int i = 0; i < 2; i++) {
        folder[i] = ps_folder(ps_server(&j, i));
        CHECK(access(folder[i], F_OK) == 0);
    }
    ps_let_go(&j);
    ps_check_all_end(&j);
    for (int i = 0; i < 2; i++)
        CHECK(access(folder[i], F_OK) != 0);
}

/* --- saves ---------------------------------------------------------------- */

/* A server whose disk is full. */
static fleet_status serve_without_room(ps_node *n)
{
    const struct rlimit little = {8192, 8192};

    if (n->index == 1) {
        signal(SIGXFSZ, SIG_IGN);
        CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    }
    return ps_serve(n);
}

static fleet_status save_in_vain(ps_node *n)
{
    fleet_status status;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    status = fleet_save_persistables(n->s.f, n->job->user);
    if (n->index == 0 && status == FLEET_OK)
        return fleet_params_hash(NULL, NULL); /* that must not be */
    if (n->index == 0)
        fprintf(stderr, "the save: %s\n", fleet_last_error());
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_server_that_cannot_write_its_part_is_named_and_nothing_is_left)
{
    const char *folder = test_path("saves");
    ps_job j = {.servers = 2,
                .workers = 2,
                .serve = serve_without_room,
                .work = save_in_vain,
                .file = {scene_file("a.txt", 100, 1)},
                .user = (void *)test_path("saves/save")};

    CHECK(mkdir(folder, 0700) == 0);
    ps_start_all(&j);
    ps_check_all_end(&j);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "the save: ");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "server 1 at 127.0.0.1:");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "part-001-00");
    CHECK(rmdir(folder) == 0); /* it is empty */
}

/* --- quality, under fleetrun ---------------------------------------------- */

#define PS(n) "--server_num " #n " --worker_num 2"
#define SYNC  "\"a_sync\": false"

TEST_LIMIT(adult_in_sync, 120)
{
    const char *line = job_train(PS(1), job_adult(SYNC)), *hash;

    CHECK_CONTAINS(line, "\"mode\":\"ps-sync\"");
    CHECK_CONTAINS(line, "\"workers\":2,\"servers\":1");
    job_at_least(line, "auc", 0.903);
    hash = strstr(line, "\"params_hash\"");
    CHECK(hash);
    setenv("FLEET_TRANSPORT", "tcp", 1);
    line = job_train(PS(2), job_adult(SYNC));
    CHECK_CONTAINS(line, "\"workers\":2,\"servers\":2");
    CHECK_CONTAINS(line, hash);
}

TEST_LIMIT(adult_in_async, 120)
{
    const char *line = job_train(PS(1), job_adult("\"a_sync\": true"));

    CHECK_CONTAINS(line, "\"mode\":\"ps-async\"");
    job_at_least(line, "auc", 0.898);
}

#define GATHERED                                                               \
    "\"a_sync\": true, \"a_sync_configs\": {\"max_merge_var_num\": 4}"

/* A quarter of the pushes. */
TEST_LIMIT(adult_in_half_async, 120)
{
    const char *line = job_train(PS(1), job_adult(GATHERED));

    CHECK_CONTAINS(line, "\"mode\":\"ps-half-async\"");
    job_at_least(line, "auc", 0.898);
}

#define BOUNDED "\"a_sync\": true, \"a_sync_configs\": {\"max_staleness\": 4}"

/* Workers of which none is far ahead of the other ones. */
TEST_LIMIT(adult_in_async_with_bounded_staleness, 120)
{
    const char *line =
        job_train("--server_num 2 --worker_num 4", job_adult(BOUNDED));

    CHECK_CONTAINS(line, "\"mode\":\"ps-async\"");
    job_at_least(line, "auc", 0.898);
}

TEST_LIMIT(criteo_attr_in_sync, 120)
{
    job_at_least(job_train(PS(2), job_criteo(SYNC)), "auc", 0.643);
}

TEST_LIMIT(criteo_attr_in_async_with_bounded_staleness, 120)
{
    job_at_least(job_train(PS(2), job_criteo(BOUNDED)), "auc", 0.643);
}

/* An update of four batches, at four times the rate. */
TEST_LIMIT(criteo_attr_in_half_async, 120)
{
    const char *config = job_at_rate(job_criteo(GATHERED), "0.004");

    job_at_least(job_train(PS(2), config), "auc", 0.643);
}

TEST_LIMIT(fashion_mnist_in_sync, 240)
{
    job_at_least(job_train(PS(1), job_fashion(SYNC)), "accuracy", 0.870);
}

/* As large as jobs get in a test: 73 processes and 32 lanes, the same bits. */
TEST_LIMIT(sixty_four_workers_on_eight_servers_of_four_lanes, 240)
{
    const char *line, *hash;
    int64_t began;

    test_use_fraction(4);
    line = job_train("--server_num 1 --worker_num 64", job_adult(SYNC));
    CHECK_CONTAINS(line, "\"workers\":64,\"servers\":1");
    hash = job_hash(line);
    setenv("FLEET_SERVER_LANES", "4", 1);
    began = fl_now_ms();
    line = job_train("--server_num 8 --worker_num 64", job_adult(SYNC));
    CHECK(fl_now_ms() - began < 60000 * TEST_SLOWNESS);
    CHECK_CONTAINS(line, "\"workers\":64,\"servers\":8");
    CHECK_CONTAINS(line, hash);
}
