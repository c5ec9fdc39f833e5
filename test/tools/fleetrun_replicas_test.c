/* fleetrun_replicas_test.c - jobs under fleetrun --replicas 2: a server that is
 * killed does not end them, and what it kept is nowhere lost; one more does,
 * with words. */
#define _GNU_SOURCE
#define SUITE fleetrun_replicas
#include "job_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"

/* --- scripts -------------------------------------------------------------- */

#define SERVER(i) LAUNCH_SERVER " && [ ${POD_NAME##*.} = " #i " ]"

static void check_refused(const char *flags, const char *words)
{
    CHECK_INT(launch_run(flags, "exit 0"), 2);
    CHECK_CONTAINS(launch_err(), words);
}

TEST(replicas_are_refused_where_they_are_no_use)
{
    unsetenv("FLEET_REPLICAS");
    check_refused("--replicas 2 --server_num 1",
                  "--replicas 2 (or FLEET_REPLICAS): the second copy of what a "
                  "server keeps is in another server: expected two or more, "
                  "got 1");
    check_refused("--replicas 2 --servers 127.0.0.1:7001",
                  "expected two or more, got 1");
    check_refused("--replicas 2 --supervise --journals j --server_num 2",
                  "--replicas 2 (or FLEET_REPLICAS) and --journals: give one");
    check_refused("--replicas 3 --server_num 3",
                  "--replicas: expected an integer from 1 to 2, got \"3\"");
    setenv("FLEET_REPLICAS", "two", 1);
    check_refused("--server_num 2", "FLEET_REPLICAS: expected an integer from "
                                    "1 to 2, got \"two\"");
}

TEST(processes_hear_how_many_copies_there_are)
{
    static const char say[] = "env";

    unsetenv("FLEET_REPLICAS");
    CHECK_INT(launch_run("--replicas 2 --server_num 2", say), 0);
    CHECK_TEXT(launch_value("serverlog.1", "FLEET_REPLICAS"), "2");
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_REPLICAS"), "2");
    CHECK_INT(launch_run("--server_num 2", say), 0);
    CHECK_TEXT(launch_value("serverlog.1", "FLEET_REPLICAS"), "1");
    setenv("FLEET_REPLICAS", "2", 1);
    CHECK_INT(launch_run("--server_num 2", say), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_REPLICAS"), "2");
    CHECK_INT(launch_run("--replicas 1 --server_num 2", say), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_REPLICAS"), "1");
}

/* The others end once it was waited for. */
TEST(the_job_outlives_a_server)
{
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(launch_run("--replicas 2 --server_num 3 --worker_num 2",
                         SERVER(1) " && { echo $$ >$DOWN.new; mv $DOWN.new "
                                   "$DOWN; kill -9 $$; };"
                                   "while [ ! -e $DOWN ]; do sleep 0.01; done;"
                                   "while kill -0 $(cat $DOWN) 2>/dev/null; do "
                                   "sleep 0.01; done"),
              0);
    CHECK_CONTAINS(launch_err(), "fleetrun: server 1 (pid ");
    CHECK_CONTAINS(launch_err(),
                   ") was killed by SIGKILL: the job goes on without it, as "
                   "server 2 has a copy of what it kept (--replicas 2); see ");
    CHECK_CONTAINS(launch_err(), "/log/serverlog.1\n");
    CHECK(!strstr(launch_err(), "failed"));
}

/* Without journals, which such servers have not; the worker is not. */
TEST(a_supervised_server_is_started_again)
{
    unsetenv("FLEET_LOG");
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(launch_run("--replicas 2 --supervise --server_num 2",
                         "echo log=$FLEET_LOG$FLEET_LOG_FOLDER;" SERVER(
                             1) " && { [ -e $DOWN ] && touch $DOWN.again || { "
                                "touch $DOWN; kill -9 $$; }; };"
                                "while [ ! -e $DOWN.again ]; do sleep 0.01; "
                                "done"),
              0);
    CHECK_CONTAINS(launch_err(), ") was killed by SIGKILL: it is started "
                                 "again, 1 of 10 times within 600 s; see ");
    CHECK_CONTAINS(launch_err(), "1 restart: 1 of server 1");
    CHECK_TEXT(launch_value("serverlog.0", "log"), "");
}

/* It finds nobody, as where the job has ended on all other nodes. The others
 * end once it was waited for. */
TEST(a_server_that_was_started_again_and_fails_is_no_failure)
{
    unsetenv("FLEET_LOG");
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(launch_run("--replicas 2 --supervise --server_num 2",
                         SERVER(1) " && { [ -e $DOWN ] && { echo $$ >$DOWN.new;"
                                   "mv $DOWN.new $DOWN.again; exit 1; };"
                                   "touch $DOWN; kill -9 $$; };"
                                   "while [ ! -e $DOWN.again ]; do sleep 0.01; "
                                   "done;"
                                   "while kill -0 $(cat $DOWN.again) "
                                   "2>/dev/null; do sleep 0.01; done"),
              0);
    CHECK_CONTAINS(launch_err(), ") was killed by SIGKILL: it is started ");
    CHECK_CONTAINS(launch_err(), ") ended with status 1: the job goes on "
                                 "without it, as server 0 has a copy ");
    CHECK(!strstr(launch_err(), "failed"));
}

TEST(a_supervised_worker_with_replicas_ends_the_job)
{
    CHECK_INT(launch_run("--replicas 2 --supervise --server_num 2 --grace 0",
                         "[ $TRAINING_ROLE = TRAINER ] && kill -9 $$;"
                         "exec sleep 1000"),
              137);
    CHECK(!strstr(launch_err(), "started again"));
}

TEST(a_server_that_fails_by_itself_ends_the_job)
{
    CHECK_INT(launch_run("--replicas 2 --server_num 2 --grace 0",
                         SERVER(0) " && exit 3; exec sleep 1000"),
              3);
    CHECK(!strstr(launch_err(), "goes on"));
}

/* One that sleeps, say, or that was started again as the others left. */
TEST(a_server_that_is_left_behind_is_no_failure)
{
    CHECK_INT(launch_run("--replicas 2 --server_num 2 --grace 0",
                         SERVER(1) " && exec sleep 1000; sleep 0.1"),
              0);
    CHECK_CONTAINS(launch_err(), ") has not ended within 0 s of the last "
                                 "worker's end: SIGTERM");
    CHECK(!strstr(launch_err(), "failed"));
}

TEST(two_neighbours_end_the_job)
{
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(launch_run("--replicas 2 --server_num 3 --grace 0",
                         SERVER(2) " && { echo $$ >$DOWN.new; mv $DOWN.new "
                                   "$DOWN; kill -9 $$; };" SERVER(
                                       0) " && { "
                                          "while [ ! -e $DOWN ]; do sleep "
                                          "0.01; done;"
                                          "while kill -0 $(cat $DOWN) "
                                          "2>/dev/null; do sleep 0.01; done;"
                                          "kill -9 $$; }; exec sleep 1000"),
              137);
    CHECK_CONTAINS(launch_err(), "as server 0 has a copy");
    CHECK_CONTAINS(launch_err(), "the job has failed: server 0 (pid ");
    CHECK_CONTAINS(launch_err(),
                   "was killed by SIGKILL, after server 2: both copies of some "
                   "of their lanes are gone");
}

/* --- libfleet ------------------------------------------------------------- */

/* The server's shell tells its pid before it becomes the program. */
#define TELL_PID                                                               \
    "echo $$ >$PIDS.$POD_NAME.new; mv $PIDS.$POD_NAME.new $PIDS.$POD_NAME;"

static const char *with_replicas(const char *flags)
{
    char text[200];

    setenv("PIDS", test_path("pid"), 1);
    snprintf(text, sizeof text, "%d", 2000 * TEST_SLOWNESS);
    setenv("FLEET_PEER_DEADLINE_MS", text, 1);
    launch_deadline_ms = 200000;
    snprintf(text, sizeof text, "--replicas 2 %s", flags);
    return test_keep(text);
}

static int pid_of(int server)
{
    char name[40];
    int pid = 0;
    FILE *f;

    snprintf(name, sizeof name, "pid.default.server.%d", server);
    f = fopen(test_path(name), "r");
    CHECK(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    return pid;
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

/* Any of them, within most_ms after all processes have found one another. */
static int kill_any(launch l, int servers, uint64_t most_ms)
{
    const uint64_t seed = (uint64_t)getpid();
    int victim = (int)fl_rng_below(seed, 1, 0, (uint64_t)servers);

    await_log(l, "workerlog.0", ", mode ");
    usleep((useconds_t)(1000 * fl_rng_below(seed, 1, 1, most_ms)));
    CHECK(kill(pid_of(victim), SIGKILL) == 0);
    return victim;
}

/* With the keys that fleetrun makes. */
TEST_LIMIT(sync_outlives_a_server_with_the_same_bits, 300)
{
    const int small = test_fraction() < 10 ? test_fraction() : 10;
    const char *flags = with_replicas("--server_num 3 --worker_num 2");
    const char *hash;
    char script[9000];
    launch l;

    snprintf(script, sizeof script, TELL_PID "%s",
             job_script(job_epochs(job_adult("\"a_sync\": false"), 3 * small)));
    CHECK_INT(launch_run("--server_num 3 --worker_num 2", script), 0);
    hash = job_hash(launch_out());
    CHECK(unlink(test_path("log/workerlog.0")) == 0); /* of that run */
    l = launch_start(flags, script);
    kill_any(l, 3, 500);
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(job_hash(launch_out()), hash);
    CHECK_CONTAINS(launch_err(), ": the job goes on without it, as server ");
    CHECK(!strstr(launch_err(), "failed"));
    CHECK_CONTAINS(launch_log("workerlog.0"), "is led by its replica now");
}

/* Each of both servers, in turn, once the other one has all copies again: the
 * job trains on, until it is told to end. */
TEST_LIMIT(a_supervised_job_outlives_its_servers_in_turn, 300)
{
    const char *flags = with_replicas("--supervise --server_num 2");
    char script[9000];
    launch l;

    unsetenv("FLEET_LOG");
    snprintf(script, sizeof script, TELL_PID "%s",
             job_script(job_endless(job_adult("\"a_sync\": false"))));
    l = launch_start(flags, script);
    await_log(l, "workerlog.0", ", mode ");
    for (int i = 0; i < 2; i++) {
        const char *other = i ? "serverlog.0" : "serverlog.1";

        CHECK(kill(pid_of(i), SIGKILL) == 0);
        await_log(l, other, "server 0, lane 0: it has a replica again");
        await_log(l, other, "server 1, lane 0: it has a replica again");
    }
    CHECK(!strstr(launch_err(), "failed"));
    CHECK(kill(l.pid, SIGTERM) == 0);
    launch_wait(l);
    CHECK_CONTAINS(launch_err(), "2 restarts: 1 of server 0, 1 of server 1");
}
