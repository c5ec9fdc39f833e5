/* fleetrun_recovery_test.c - jobs of libfleet under fleetrun --supervise whose
 * processes are killed at random moments: sync ends with the bits of a job that
 * nothing has befallen, async has each push once, nobody but the launcher
 * notices; and a server that cannot come back ends its job. */
#define _GNU_SOURCE
#define SUITE fleetrun_recovery
#include "job_kit.h"
#include "launch_kit.h"
#include "supervise_kit.h"
#include "test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/error.h"
#include "base/rng.h"

/* --- sync ----------------------------------------------------------------- */

enum { MOST_KILLS = 5000, SERVERS = 2, WORKERS = 3 };

/* fleetrun is killed, and its keeper kills all others: as far as the job can
 * tell, the machine has crashed. */
static launch kill_all_and_start(launch l, const char *flags,
                                 const char *script)
{
    kill(l.pid, SIGKILL);
    launch_wait(l);
    launch_nothing_left();
    supervise_remove("pids/*");
    return launch_start(flags, script);
}

/* A job that ends leaves its journals, so it is known how many bytes there will
 * be. In the midst of it everything is killed. */
TEST_LIMIT(sync_ends_with_the_bits_of_an_undisturbed_job, 600)
{
    supervise_victim v[SERVERS + WORKERS] = {{"server.0", 0},
                                             {"server.1", 0},
                                             {"worker.0", 0},
                                             {"worker.1", 0},
                                             {"worker.2", 0}};
    const int kills = supervise_times(5);
    const char *flags = supervise_flags("--server_num 2 --worker_num 3"), *hash;
    char script[9000];
    const int small = test_fraction() < 10 ? test_fraction() : 10;
    int64_t at[MOST_KILLS], all;
    int made = 0;
    const uint64_t seed = (uint64_t)getpid();
    launch l;

    launch_deadline_ms = 200000;
    launch_fifo();
    snprintf(script, sizeof script, SUPERVISE_TELL "%s",
             job_script(job_epochs(job_adult("\"a_sync\": false"),
                                   3 * supervise_times(1) * small)));
    CHECK(kills <= MOST_KILLS);
    CHECK_INT(launch_run(flags, script), 0);
    hash = job_hash(launch_out());
    all = supervise_bytes();
    CHECK(all > 0);
    for (int i = 0; i < kills; i++)
        at[i] =
            (int64_t)fl_rng_below(seed, 1, (uint64_t)i, (uint64_t)all * 9 / 10);
    qsort(at, (size_t)kills, sizeof *at, supervise_by_number);
    supervise_remove("journals");
    supervise_remove("pids/*");
    l = launch_start(flags, script);
    for (int i = 0; i < kills; i++) {
        const uint64_t whose =
            fl_rng_below(seed, 2, (uint64_t)i, SERVERS + WORKERS);

        if (i == kills / 2 && supervise_wait(l, at[i]))
            l = kill_all_and_start(l, flags, script);
        made += supervise_kill_at(l, &v[whose], at[i]);
    }
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(job_hash(launch_out()), hash);
    CHECK(made >= kills / 2);
    CHECK_CONTAINS(launch_err(), " restart");
    CHECK(!strstr(launch_err(), "fail"));
}

/* A server whose log has gone is another one, which its workers do not know:
 * they wait for the one that they had, for as long as they wait at all. */
TEST_LIMIT(a_server_that_cannot_come_back_ends_the_job, 120)
{
    supervise_victim v = {"server.1", 0};
    const char *flags =
        supervise_flags("--server_num 2 --worker_num 2 --grace 1");
    char script[9000];
    launch l;

    launch_deadline_ms = 60000;
    snprintf(script, sizeof script, SUPERVISE_TELL "%s",
             job_script(job_endless(job_adult(
                 "\"a_sync\": false, \"log\": \"process\", \"log_configs\": "
                 "{\"restart_deadline_ms\": 1500}"))));
    l = launch_start(flags, script);
    CHECK(supervise_wait(l, 100000));
    supervise_remove("journals/server-1");
    CHECK(supervise_kill(l, &v));
    CHECK(launch_wait(l) != 0);
    CHECK_CONTAINS(launch_err(), "1 restart: 1 of server 1\n");
    CHECK_CONTAINS(launch_err(), "the job has failed: ");
    CHECK_CONTAINS(launch_log("workerlog.0"), "server 1 at ");
    CHECK_CONTAINS(launch_log("workerlog.0"), " is gone: nothing was heard of");
}

/* --- async ---------------------------------------------------------------- */

enum { KEYS = 97, ADDERS = 2, STEPS_AT_ONCE = 20 };

/* The row of an id is the loss: each step takes 1 from it, in whatever order
 * they come. */
static fleet_status build_sums(fleet *f, fleet_program *p)
{
    const fleet_sparse_embedding_options zero = {
        .table = "t", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *id = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *loss = fleet_mean(p, fleet_sparse_embedding(p, id, 1, &zero));

    s.a_sync = 1;
    return fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 1.0f), &s), loss);
}

static int64_t id_of(int worker, int64_t step)
{
    return (step * 7 + worker * 3) % KEYS;
}

/* Until there have been enough kills. */
static fleet_status take_steps(fleet_executor *e, int worker)
{
    const int64_t dims[] = {1, 1};
    fleet_status status = FLEET_OK;
    int64_t n = 0;

    while (status == FLEET_OK && access(getenv("ENOUGH"), F_OK) != 0)
        for (int i = 0; i < STEPS_AT_ONCE && status == FLEET_OK; i++, n++) {
            int64_t id = id_of(worker, n);
            const fleet_feed feed = {"id", FLEET_INT64, &id, dims, 2, NULL};

            status = fleet_executor_run(e, &feed, 1, NULL, 0);
        }
    printf("STEPS=%lld\n", (long long)n);
    return status;
}

static fleet_status print_sums(fleet *f)
{
    uint64_t key[KEYS];
    float sum[KEYS];

    for (int i = 0; i < KEYS; i++)
        key[i] = (uint64_t)i;
    FL_TRY(fleet_table_get(f, "t", key, KEYS, 1, sum, NULL, NULL));
    for (int i = 0; i < KEYS; i++)
        printf("SUM%d=%g\n", i, sum[i]);
    return FLEET_OK;
}

static fleet_status add_up(fleet *f, fleet_program *p)
{
    const int worker = fleet_worker_index(f);
    fleet_executor *e;
    fleet_status status;

    FL_TRY(build_sums(f, p));
    if (fleet_is_server(f)) {
        FL_TRY(fleet_init_server(f, NULL));
        return fleet_run_server(f);
    }
    e = fleet_executor_create(p, NULL);
    status = fleet_init_worker(f);
    if (status == FLEET_OK)
        status = take_steps(e, worker);
    if (status == FLEET_OK)
        status = fleet_barrier_worker(f);
    if (status == FLEET_OK && worker == 0)
        status = print_sums(f);
    if (status == FLEET_OK)
        status = fleet_stop_worker(f);
    fleet_executor_destroy(e);
    return status;
}

/* What a process of the test below is: this program, once more. */
__attribute__((constructor)) static void be_an_adder(void)
{
    fleet *f = NULL;
    fleet_program *p;
    fleet_status status;

    if (!getenv("ENOUGH"))
        return;
    status = fleet_init(&f, NULL);
    p = status == FLEET_OK ? fleet_program_create(f) : NULL;
    if (p)
        status = add_up(f, p);
    if (status != FLEET_OK)
        fprintf(stderr, "%s\n", fleet_last_error());
    fleet_program_destroy(p);
    fleet_destroy(f);
    fflush(NULL);
    _exit(status != FLEET_OK);
}

static void check_sums(void)
{
    int64_t want[KEYS] = {0};

    for (int w = 0; w < ADDERS; w++) {
        char log[20];
        int64_t steps;

        snprintf(log, sizeof log, "workerlog.%d", w);
        steps = atoll(launch_value(log, "STEPS"));
        CHECK(steps > 0);
        for (int64_t i = 0; i < steps; i++)
            want[id_of(w, i)]--;
    }
    for (int i = 0; i < KEYS; i++) {
        char name[12];

        snprintf(name, sizeof name, "SUM%d", i);
        CHECK_INT(atoll(launch_value("workerlog.0", name)), want[i]);
    }
}

/* Worker 0 has said it. */
static void await_words(launch l, const char *words)
{
    while (!strstr(launch_log("workerlog.0"), words)) {
        if (!supervise_goes_on(l))
            test_fail(__FILE__, __LINE__, "the job ends before \"%s\": %s",
                      words, launch_err());
        usleep(1000);
    }
}

/* Sums below 2^24 are exact, in whatever order they come. */
TEST_LIMIT(async_has_each_push_once, 600)
{
    supervise_victim v[] = {{"server.0", 0}, {"server.1", 0}};
    const int kills = supervise_times(TEST_SLOWNESS > 1 ? 5 : 20);
    const uint64_t seed = (uint64_t)getpid();
    char script[300];
    launch l;

    launch_deadline_ms = 60000;
    snprintf(script, sizeof script, SUPERVISE_TELL "ENOUGH=%s exec %s",
             test_path("enough"), test_program());
    l = launch_start(supervise_flags("--server_num 2 --worker_num 2"), script);
    for (int i = 0; i < kills; i++)
        if (!supervise_kill_at(
                l, &v[fl_rng_below(seed, 1, (uint64_t)i, 2)],
                supervise_bytes() +
                    (int64_t)fl_rng_below(seed, 2, (uint64_t)i, 40000)))
            test_fail(__FILE__, __LINE__, "the job ends after %d kills: %s", i,
                      launch_err());
    test_file("enough", "");
    CHECK_INT(launch_wait(l), 0);
    check_sums();
}

/* fleetctl, which is asked again while servers are on their way back. */
static void control_at_last(launch l, const char *words, const char *says)
{
    char command[2000], said[20000];

    snprintf(command, sizeof command,
             "'%s' --pid $(cat %s/default.worker.0) %s 2>&1",
             test_beside("fleetctl"), test_path("pids"), words);
    while (test_shell(command, said, sizeof said) != 0 || !strstr(said, says)) {
        if (!supervise_goes_on(l))
            test_fail(__FILE__, __LINE__, "the job ends before \"%s\": %s; %s",
                      says, said, launch_err());
        usleep(20000);
    }
}

/* It dies while lanes go to it; and add goes on when it is said again. */
static void kill_as_it_joins(launch l, supervise_victim *v)
{
    static const char is_at[] = "is started at ";
    char words[2000], said[200];
    const char *at;

    snprintf(words, sizeof words,
             "timeout 1 '%s' --pid $(cat %s/default.worker.0) add >/dev/null "
             "2>&1 &",
             test_beside("fleetctl"), test_path("pids"));
    test_shell(words, said, sizeof said);
    CHECK(supervise_kill(l, v));
    at = strstr(launch_err(), is_at);
    CHECK(at != NULL);
    at += strlen(is_at);
    snprintf(words, sizeof words, "add %.*s", (int)strcspn(at, ","), at);
    control_at_last(l, words, "server 2 at 127.0.0.1:");
}

/* Two servers of the list and one that has joined, which has a lane of each. */
TEST_LIMIT(async_has_each_push_once_where_a_server_has_joined, 600)
{
    supervise_victim v[] = {{"server.0", 0}, {"server.1", 0}, {"server.2", 0}};
    const int kills = supervise_times(TEST_SLOWNESS > 1 ? 3 : 4);
    const uint64_t seed = (uint64_t)getpid();
    char script[300];
    launch l;

    launch_deadline_ms = 60000;
    setenv("FLEET_SERVER_LANES", "3", 1);
    snprintf(script, sizeof script, SUPERVISE_TELL "ENOUGH=%s exec %s",
             test_path("enough"), test_program());
    l = launch_start(
        supervise_flags("--server_num 2 --servers_max 3 --worker_num 2"),
        script);
    await_words(l, ", mode ps-async");
    kill_as_it_joins(l, &v[2]);
    for (int i = 0; i < kills; i++)
        if (!supervise_kill_at(
                l, &v[i < 2 ? 2 : fl_rng_below(seed, 1, (uint64_t)i, 3)],
                supervise_bytes() +
                    (int64_t)fl_rng_below(seed, 2, (uint64_t)i, 40000)))
            test_fail(__FILE__, __LINE__, "the job ends after %d kills: %s", i,
                      launch_err());
    control_at_last(l, "drain 2", "from server 2 to server");
    test_file("enough", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_err(), "of server 2");
    check_sums();
}

/* With replicas in place of logs: nobody is started again, and a server is
 * killed once. */
TEST_LIMIT(async_has_each_push_once_on_the_copies_that_are_left, 300)
{
    const uint64_t seed = (uint64_t)getpid();
    supervise_victim v[] = {{"server.0", 0}, {"server.1", 0}};
    char script[300], deadline[20];
    launch l;

    CHECK(mkdir(test_path("pids"), 0700) == 0);
    setenv("PIDS", test_path("pids"), 1);
    snprintf(deadline, sizeof deadline, "%d", 2000 * TEST_SLOWNESS);
    setenv("FLEET_PEER_DEADLINE_MS", deadline, 1);
    launch_deadline_ms = 60000;
    snprintf(script, sizeof script, SUPERVISE_TELL "ENOUGH=%s exec %s",
             test_path("enough"), test_program());
    l = launch_start("--replicas 2 --server_num 2 --worker_num 2", script);
    await_words(l, ", mode ps-async");
    usleep((useconds_t)fl_rng_below(seed, 1, 0, 300000));
    CHECK(supervise_kill(l, &v[fl_rng_below(seed, 1, 1, 2)]));
    await_words(l, "is led by its replica now");
    test_file("enough", "");
    CHECK_INT(launch_wait(l), 0);
    check_sums();
}
