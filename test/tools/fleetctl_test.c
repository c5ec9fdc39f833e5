/* fleetctl_test.c - bin/fleetctl: what it says of a job that runs. */
#define _GNU_SOURCE
#define SUITE fleetctl
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All that it says; how it ends. */
static int run(const char *arguments, char said[20000])
{
    char command[9000];

    snprintf(command, sizeof command, "'%s' %s 2>&1", test_beside("fleetctl"),
             arguments);
    return test_shell(command, said, 20000);
}

static void await_log(launch l, const char *log, const char *words)
{
    while (!strstr(launch_log(log), words)) {
        if (test_ends_within(l.pid, 0))
            test_fail(__FILE__, __LINE__, "the job has ended before \"%s\": %s",
                      words, launch_err());
        usleep(1000);
    }
}

/* Its number goes into a file of its name. */
static const char save_pid[] =
    "echo $$ >$PIDS.$POD_NAME.new; mv $PIDS.$POD_NAME.new $PIDS.$POD_NAME; ";

static launch start_job(const char *flags, const char *strategy)
{
    char script[9000];
    launch l;

    setenv("FLEET_SERVER_LANES", "2", 1);
    setenv("PIDS", test_path("pid"), 1);
    snprintf(script, sizeof script, "%s%s", save_pid,
             job_script(job_endless(job_adult(strategy))));
    l = launch_start(flags, script);
    await_log(l, "workerlog.0", ", mode ");
    return l;
}

static const char *of_process(const char *name, const char *arguments)
{
    char text[1000];
    int pid = 0;
    FILE *f = fopen(test_path(name), "r");

    CHECK(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    snprintf(text, sizeof text, "--pid %d %s", pid, arguments);
    return test_keep(text);
}

static const char *of_worker(const char *arguments)
{
    return of_process("pid.default.worker.0", arguments);
}

static const char *of_server(const char *arguments)
{
    return of_process("pid.default.server.0", arguments);
}

static void end_job(launch l)
{
    CHECK(kill(l.pid, SIGTERM) == 0);
    launch_wait(l);
}

static int count(const char *text, const char *words)
{
    int n = 0;

    for (const char *at = strstr(text, words); at; at = strstr(at + 1, words))
        n++;
    return n;
}

static void check_json(const char *said)
{
    CHECK_INT(count(said, "\"at_server\":"), 4);
    CHECK_INT(count(said, "\"copy\":\t\"only\""), 4);
    CHECK_INT(count(said, "\"at_server\":\t1"), 2);
    CHECK_INT(count(said, "\"mode\":\t\"ps-async\""), 4);
    CHECK_INT(count(said, "\"worker\":\t1"), 4);
    CHECK_INT(count(said, "\"buckets\":\t256"), 4);
}

/* By the keys that fleetrun has made; without them no server says a word. */
TEST_LIMIT(status_tells_lanes_and_workers, 120)
{
    char said[20000];
    launch l = start_job("--server_num 2 --worker_num 2", "\"a_sync\": true");

    CHECK_INT(run(of_worker("status"), said), 0);
    CHECK_CONTAINS(said, "job \"default\", 2 servers");
    CHECK_INT(count(said, "serves, by server 0 ("), 2);
    CHECK_INT(count(said, "serves, by server 1 ("), 2);
    CHECK_INT(count(said, " ms ago  "), 2);
    CHECK_INT(run(of_worker("--json status"), said), 0);
    check_json(said);
    CHECK_INT(run(of_worker("--keys '' --timeout 1000 status"), said), 1);
    CHECK_INT(count(said, " does not answer"), 2);
    end_job(l);
}

/* Of each server its lanes, which lead, and the copies of another one's. */
TEST_LIMIT(status_tells_copies, 120)
{
    char said[20000];
    launch l = start_job("--replicas 2 --server_num 2 --worker_num 1",
                         "\"a_sync\": false");

    CHECK_INT(run(of_worker("--json status"), said), 0);
    CHECK_INT(count(said, "\"copy\":\t\"leads\""), 4);
    CHECK_INT(count(said, "\"copy\":\t\"follows\""), 4);
    end_job(l);
}

/* Of each worker the first pass goes through; then the data has no end until
 * the file is there that it waits for. */
static const char *held_config(const char *strategy)
{
    static const char key[] = "\"dataset\": {";
    const char *config = job_epochs(job_adult(strategy), 2);
    const char *at = strstr(config, key), *passed = test_path("passed");
    char text[9000];

    CHECK(at);
    at += sizeof key - 1;
    snprintf(
        text, sizeof text,
        "%.*s\"pipe_command\": \"cat; if [ -e %s.$PADDLE_TRAINER_ID ]; then "
        "while [ ! -e %s ]; do sleep 0.01; done; fi; "
        "touch %s.$PADDLE_TRAINER_ID\", %s",
        (int)(at - config), config, passed, test_path("go"), passed, at);
    return test_keep(text);
}

static void await_file(launch l, const char *path)
{
    while (access(path, F_OK) != 0) {
        if (test_ends_within(l.pid, 0))
            test_fail(__FILE__, __LINE__, "the job has ended without %s: %s",
                      path, launch_err());
        usleep(1000);
    }
}

/* Servers have the tables; ranks, which know of no move, all else. */
TEST_LIMIT(a_lane_of_a_hybrid_job_moves_to_the_same_bits, 240)
{
    const char *config, *want, *script;
    char said[20000];
    launch l;

    launch_need_mpirun();
    test_use_fraction(20);
    want = job_hash(job_train("--server_num 2 --worker_num 2",
                              job_epochs(job_adult("\"a_sync\": false"), 2)));
    config = held_config("\"is_collective\": true, \"a_sync\": false");
    setenv("PIDS", test_path("pid"), 1);
    script = job_script(config);
    snprintf(said, sizeof said, "%s%s", save_pid, script);
    l = launch_start("--server_num 2 --worker_num 2 --collective", said);
    await_file(l, test_path("passed.0"));
    CHECK_INT(run(of_server("move 1:0 0"), said), 0);
    CHECK_CONTAINS(said, "server 1, lane 0: from server 1 to server 0");
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_out(), "\"mode\":\"hybrid\"");
    CHECK_CONTAINS(launch_out(), want);
}

TEST(words_for_wrong_calls)
{
    char said[20000];

    unsetenv("PADDLE_PSERVERS_IP_PORT_LIST");
    CHECK_INT(run("status", said), 2);
    CHECK_CONTAINS(said, "there are no servers to ask: expected --servers");
    CHECK_INT(run("--servers 127.0.0.1:1 dance", said), 2);
    CHECK_CONTAINS(said, "usage: fleetctl");
    setenv("PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:1", 1); /* another job */
    CHECK_INT(run("--pid $PPID status", said), 2);
    CHECK_CONTAINS(said, "has no PADDLE_PSERVERS_IP_PORT_LIST in its");
    unsetenv("PADDLE_PSERVERS_IP_PORT_LIST");
    CHECK_INT(run("--pid 999999999 status", said), 2);
    CHECK_CONTAINS(said, "cannot read the environment of process 999999999");
    CHECK_INT(run("--servers 127.0.0.1:1 --timeout 50 status", said), 1);
    CHECK_CONTAINS(said, "server 0 at 127.0.0.1:1 does not answer");
}
