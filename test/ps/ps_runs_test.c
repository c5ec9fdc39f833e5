/* ps_runs_test.c - a job that is started again while processes of its last run
 * are alive: no run has anything of another. */
#define _GNU_SOURCE
#define SUITE ps_runs
#include "ps_kit.h"
#include "test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* Half a pass, then it waits until it may go on. */
static int stay_in_pass(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;

    (void)samples;
    if (batch != *(const int *)n->job->user)
        return 0;
    ps_tell(&n->job->held);
    ps_hear(&n->job->go);
    return 0;
}

static fleet_status train(ps_node *n)
{
    fleet_train_options o = {.on_batch = stay_in_pass, .user = n};

    FL_TRY(ps_begin(n));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    FL_TRY(ps_end(n));
    fprintf(stderr, "hash %016" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

/* What it sent to the dead server may be lost: it meets the new one with its
 * next heartbeat, a second later at most, and ends within a second of that. */
enum { AT_ONCE = 2 * PS_SECOND };

/* By tcp, and one lane each: what a worker keeps of a server is an address that
 * its successor has. Deadlines are long: nothing ends by them. */
static ps_job job_of(int servers, bool a_sync, const char *file)
{
    setenv("FLEET_TRANSPORT", "tcp", 1);
    return (ps_job){.servers = servers,
                    .workers = 1,
                    .work = train,
                    .how = {.a_sync = a_sync},
                    .file = {file}};
}

/* The same job once more, at the same addresses. */
static ps_job run_again(const ps_job *first, const char *file)
{
    ps_job j = *first;

    j.file[0] = file;
    j.held = ps_pipe_make();
    j.go = ps_pipe_make();
    for (int i = 0; i < j.n_node; i++) {
        char name[40];

        snprintf(name, sizeof name, "again-%s-%d",
                 j.node[i].server ? "server" : "worker", j.node[i].index);
        j.node[i].said = test_path(name);
        j.node[i].pid = 0;
    }
    return j;
}

static void start_nodes(ps_job *j)
{
    for (int i = 0; i < j->n_node; i++) {
        j->node[i].job = j;
        ps_start(&j->node[i]);
    }
}

static void kill_servers(ps_job *j)
{
    for (int i = 0; i < j->servers; i++) {
        ps_kill(ps_server(j, i), SIGKILL);
        CHECK_INT(ps_wait(ps_server(j, i)), 128 + SIGKILL);
    }
}

/* The first run's worker lives when the second run trains: it is at its batch
 * `at` when its servers are killed. */
static void check_second_run(int servers, bool a_sync, int at)
{
    ps_job first = job_of(servers, a_sync, scene_file("one.txt", 300, 1)),
           second;
    char hash[40];

    first.user = &at;
    ps_start_all(&first);
    ps_hear_held(&first);
    kill_servers(&first);
    second = run_again(&first, scene_file("two.txt", 300, 2));
    start_nodes(&second);
    ps_hear_held(&second);
    ps_let_go(&first);
    CHECK(ps_ends_within(ps_worker(&first, 0), AT_ONCE));
    ps_check_fails(ps_worker(&first, 0), "has been replaced: this is a worker "
                                         "of another run");
    ps_let_go(&second);
    ps_check_all_end(&second);
    CHECK_CONTAINS(ps_said(ps_server(&second, 0)), /* 300 samples */
                   ", updates 10; messages that came again 0");
    if (a_sync)
        return;
    second.work = NULL;
    snprintf(hash, sizeof hash, "hash %016" PRIx64, ps_alone(&second, 1));
    CHECK_CONTAINS(ps_said(ps_worker(&second, 0)), hash);
}

TEST(a_worker_of_the_run_before_ends_and_leaves_no_trace)
{
    check_second_run(1, false, 3);
}

TEST(so_it_does_with_two_servers)
{
    check_second_run(2, false, 3);
}

TEST(so_it_does_in_async)
{
    check_second_run(1, true, 3);
}

/* test-long does it 200 times. */
TEST_LIMIT(so_it_does_run_after_run, 900)
{
    const char *runs = getenv("FLEET_RUNS");

    for (int i = 0; i < (runs ? atoi(runs) : 3); i++)
        check_second_run(1 + i % 2, i % 3 == 2, 1 + i % 9);
}

/* Another process has its port at once, and nothing of what it had. */
static void check_replaced_of(ps_job first, int server, const char *words)
{
    ps_job second;
    int at = 3;
    char name[40];

    first.user = &at;
    ps_start_all(&first);
    ps_hear_held(&first);
    ps_kill(ps_server(&first, server), SIGKILL);
    CHECK_INT(ps_wait(ps_server(&first, server)), 128 + SIGKILL);
    second = run_again(&first, first.file[0]);
    second.node[server].job = &second;
    ps_start(ps_server(&second, server));
    ps_let_go(&first);
    CHECK(ps_ends_within(ps_worker(&first, 0), AT_ONCE));
    ps_check_fails(ps_worker(&first, 0), words);
    snprintf(name, sizeof name, "server %d at 127.0.0.1:%d", server,
             first.port[server]);
    CHECK_CONTAINS(ps_said(ps_worker(&first, 0)), name);
    ps_kill(ps_server(&second, server), SIGTERM);
    ps_wait(ps_server(&second, server));
    ps_kill(ps_server(&first, 1 - server), SIGTERM);
    ps_wait(ps_server(&first, 1 - server));
}

static void check_replaced(int server, bool a_sync, const char *words)
{
    check_replaced_of(job_of(2, a_sync, scene_file("one.txt", 300, 1)), server,
                      words);
}

TEST(a_replaced_first_server_is_noticed_at_once)
{
    check_replaced(0, false,
                   "has been replaced: this is a worker of another run");
}

TEST(so_is_a_second_one)
{
    check_replaced(1, false, "has been replaced by another process");
}

/* Pulls ask for no version there: they could read first values. */
TEST(so_are_both_in_async)
{
    check_replaced(0, true,
                   "has been replaced: this is a worker of another run");
    check_replaced(1, true, "has been replaced by another process");
}

/* Its worker could go on with rows that it has, and asks for none that come up
 * again: the others, and its pushes, have to be noticed all the same. */
TEST(so_is_one_whose_rows_a_worker_keeps)
{
    for (int server = 0; server < 2; server++) {
        ps_job j = job_of(2, true, scene_file("one.txt", 300, 1));

        j.how.cache_bytes = 1 << 20;
        j.how.cache_staleness = 1000000;
        check_replaced_of(j, server,
                          server ? "has been replaced by another process"
                                 : "has been replaced: this is a worker of "
                                   "another run");
    }
}
