/* fleetrun_keys_test.c - keys under fleetrun: made for a job and gone with it,
 * or a folder for several nodes; and how to do without. */
#define _GNU_SOURCE
#define SUITE fleetrun_keys
#include "launch_kit.h"
#include "net/keys.h"
#include "test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* As the log of server 0 has it, which the keeper writes. */
static const char *job_folder(void)
{
    const char *folder = launch_value("serverlog.0", "FLEET_KEYS");

    for (int i = 0; i < 1000 && *folder != '/'; i++) {
        poll(NULL, 0, 10);
        folder = launch_value("serverlog.0", "FLEET_KEYS");
    }
    CHECK_CONTAINS(folder, "/tmp/fleetrun-");
    return folder;
}

TEST(a_job_has_keys_of_its_own_that_go_with_it)
{
    static const char say[] =
        "echo FLEET_KEYS=$FLEET_KEYS; echo off=$FLEET_INSECURE;"
        "echo mode=$(stat -c %a $FLEET_KEYS);"
        "echo file=$(stat -c %a $FLEET_KEYS/worker-1.secret);"
        "echo lines=$(wc -l <$FLEET_KEYS/public)";

    CHECK_INT(launch_run("--server_num 2 --worker_num 2", say), 0);
    CHECK_TEXT(launch_value("workerlog.1", "FLEET_KEYS"), job_folder());
    CHECK_TEXT(launch_value("serverlog.1", "FLEET_KEYS"), job_folder());
    CHECK_TEXT(launch_value("serverlog.0", "mode"), "700");
    CHECK_TEXT(launch_value("serverlog.0", "file"), "600");
    CHECK_TEXT(launch_value("serverlog.0", "lines"), "6");
    CHECK_TEXT(launch_value("serverlog.0", "off"), "");
    CHECK(!exists(job_folder()));
}

TEST(two_jobs_have_different_keys)
{
    static const char say[] = "echo key=$(cat $FLEET_KEYS/server-0.secret)";
    const char *first;

    CHECK_INT(launch_run("--server_num 1", say), 0);
    first = launch_value("serverlog.0", "key");
    CHECK_INT((int64_t)strlen(first), 40);
    CHECK_INT(launch_run("--server_num 1", say), 0);
    CHECK(strcmp(first, launch_value("serverlog.0", "key")) != 0);
}

TEST(a_job_of_one_worker_has_no_keys)
{
    CHECK_INT(launch_run("", "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_KEYS"), "(unset)");
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_INSECURE"), "(unset)");
    CHECK_INT(launch_run("--devices 0", "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_KEYS"), "(unset)");
}

/* --- ranks ---------------------------------------------------------------- */

static const char say_ranks_keys[] =
    "echo FLEET_KEYS=$FLEET_KEYS; echo off=$FLEET_INSECURE;"
    "echo file=$(stat -c %a $FLEET_KEYS/worker-1.secret);"
    "echo lines=$(wc -l <$FLEET_KEYS/public)";

static void check_ranks_have_keys(const char *flags)
{
    const char *folder;

    CHECK_INT(launch_run(flags, say_ranks_keys), 0);
    folder = launch_value("workerlog.0", "FLEET_KEYS");
    CHECK_CONTAINS(folder, "/tmp/fleetrun-");
    for (int i = 0; i < 2; i++) {
        const char *log = i ? "workerlog.1" : "workerlog.0";

        CHECK_TEXT(launch_value(log, "FLEET_KEYS"), folder);
        CHECK_TEXT(launch_value(log, "off"), "");
        CHECK_TEXT(launch_value(log, "file"), "600");
        CHECK_TEXT(launch_value(log, "lines"), "3");
    }
    CHECK(!exists(folder));
}

TEST(ranks_on_gpus_have_keys)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    check_ranks_have_keys("--devices 0,1");
}

/* They may be on GPUs: fleetrun does not know. */
TEST(ranks_of_mpirun_have_keys)
{
    launch_need_mpirun();
    check_ranks_have_keys("--nproc_per_node 2");
}

TEST(insecure_ranks_have_no_keys)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_INT(launch_run("--insecure --devices 0,1", "env"), 0);
    CHECK_TEXT(launch_value("workerlog.1", "FLEET_KEYS"), "(unset)");
    CHECK_TEXT(launch_value("workerlog.1", "FLEET_INSECURE"), "1");
}

TEST(ranks_on_gpus_of_several_nodes_need_a_folder_of_keys)
{
    static const char words[] = "ranks on GPUs of a job on several nodes need "
                                "keys that all nodes have";
    char flags[200], more[300];

    unsetenv("CUDA_VISIBLE_DEVICES");
    snprintf(flags, sizeof flags,
             "--devices 0,1 --nnodes 2 --node_rank 0 --master 127.0.0.1:%d",
             launch_free_port("127.0.0.1"));
    CHECK_INT(launch_run(flags, "true"), 2);
    CHECK_CONTAINS(launch_err(), words);
    snprintf(more, sizeof more, "--insecure %s", flags);
    CHECK_INT(launch_run(more, "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_INSECURE"), "1");
}

/* --- whatever way it ends ------------------------------------------------- */

static const char hold[] =
    "echo FLEET_KEYS=$FLEET_KEYS;" LAUNCH_HOLD "exec sleep 1000";

static void check_gone(const char *folder)
{
    for (int i = 0; exists(folder); i++) { /* the other one removes it */
        CHECK(i < 1000);
        poll(NULL, 0, 10);
    }
}

static void end_by_killing(bool keeper)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --worker_num 1", hold);
    int parent = launch_hear_all(fifo, 2, "").parent;
    const char *folder = job_folder();

    CHECK(exists(folder));
    CHECK(kill(keeper ? parent : l.pid, SIGKILL) == 0);
    launch_wait(l);
    launch_silence(fifo);
    check_gone(folder);
}

TEST(no_key_outlives_a_fleetrun_that_is_killed)
{
    end_by_killing(false);
}

TEST(no_key_outlives_a_keeper_that_is_killed)
{
    end_by_killing(true);
}

TEST(no_key_outlives_a_job_that_fails_or_is_ended)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --grace 0", hold);
    const char *folder;

    launch_hear_all(fifo, 2, "");
    folder = job_folder();
    CHECK(exists(folder));
    CHECK(kill(l.pid, SIGTERM) == 0);
    launch_wait(l);
    CHECK(!exists(folder));
    /* the server fails: the worker may be ended before it has said anything */
    CHECK_INT(launch_run("--server_num 1 --grace 0",
                         "env; [ $TRAINING_ROLE = TRAINER ] && exec sleep 1000;"
                         "exit 3"),
              3);
    CHECK(!exists(job_folder()));
}

/* --- by the user ---------------------------------------------------------- */

TEST(insecure_jobs_have_no_keys)
{
    setenv("FLEET_KEYS", "/of/the/environment", 1);
    CHECK_INT(launch_run("--insecure --server_num 1", "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_KEYS"), "(unset)");
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_INSECURE"), "1");
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_INSECURE"), "1");
    unsetenv("FLEET_KEYS");
    setenv("FLEET_INSECURE", "1", 1);
    CHECK_INT(launch_run("--server_num 1", "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_INSECURE"), "1");
}

TEST(a_folder_of_keys_is_used_and_stays)
{
    const char *folder = test_path("keys");
    char flags[400];
    char *make[] = {(char *)"keys", (char *)folder, NULL};

    CHECK_INT(launch_command(make), 0);
    snprintf(flags, sizeof flags, "--keys %s --server_num 1", folder);
    CHECK_INT(launch_run(flags, "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_KEYS"), folder);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_INSECURE"), "(unset)");
    CHECK(exists(folder));
    setenv("FLEET_KEYS", folder, 1);
    CHECK_INT(launch_run("--server_num 1", "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_KEYS"), folder);
}

TEST(keys_and_no_keys_exclude_each_other)
{
    CHECK_INT(launch_run("--insecure --keys k --server_num 1", "true"), 2);
    CHECK_CONTAINS(launch_err(), "--keys and --insecure");
    setenv("FLEET_KEYS", "k", 1);
    setenv("FLEET_INSECURE", "1", 1);
    CHECK_INT(launch_run("--server_num 1", "true"), 2);
    CHECK_CONTAINS(launch_err(), "FLEET_KEYS and FLEET_INSECURE");
}

TEST(servers_on_several_nodes_need_a_folder_of_keys)
{
    static const char words[] =
        "servers of a job on several nodes need keys that all nodes have: "
        "\"fleetrun keys FOLDER\" makes them, and --keys FOLDER uses them; "
        "--insecure does without";
    static const char nodes[] =
        "--servers 127.0.0.1:%d,127.0.0.2:9 --workers 127.0.0.1:8,127.0.0.2:8";
    char flags[300], more[400];
    const char *folder;

    snprintf(flags, sizeof flags, nodes, launch_free_port("127.0.0.1"));
    CHECK_INT(launch_run(flags, "true"), 2);
    CHECK_CONTAINS(launch_err(), words);
    snprintf(more, sizeof more, "--insecure %s", flags);
    CHECK_INT(launch_run(more, "true"), 0);
    folder = test_path("k");
    CHECK_OK(fl_keys_make(folder, 2, 2));
    snprintf(more, sizeof more, "--keys %s %s", folder, flags);
    CHECK_INT(launch_run(more, "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_KEYS"), folder);
}

/* No process starts without its key: the others would wait for it. */
TEST(a_folder_that_lacks_a_key_is_refused_before_the_start)
{
    const char *folder = test_path("few");
    char flags[400];

    CHECK_INT(launch_run("--keys nowhere --server_num 1", "env"), 1);
    CHECK_CONTAINS(launch_err(), "nowhere");
    CHECK_OK(fl_keys_make(folder, 1, 1));
    snprintf(flags, sizeof flags, "--keys %s --server_num 2", folder);
    CHECK_INT(launch_run(flags, "env"), 1);
    CHECK_CONTAINS(launch_err(), "server-1.secret");
    snprintf(flags, sizeof flags, "--keys %s --server_num 1 --worker_num 2",
             folder);
    CHECK_INT(launch_run(flags, "env"), 1);
    CHECK_CONTAINS(launch_err(), "worker-1.secret");
}

/* --- fleetrun keys -------------------------------------------------------- */

static int run_keys(const char *a, const char *b, const char *c)
{
    char *arguments[] = {(char *)"keys", (char *)a, (char *)b, (char *)c, NULL};

    return launch_command(arguments);
}

static bool has_file(const char *name)
{
    char path[100];

    snprintf(path, sizeof path, "keys/%s", name);
    return exists(test_path(path));
}

TEST(makes_a_folder_of_keys)
{
    const char *folder = test_path("keys");

    CHECK_INT(run_keys(folder, NULL, NULL), 0);
    CHECK(has_file("public") && has_file("server-15.secret") &&
          has_file("worker-63.secret"));
    CHECK(!has_file("server-16.secret") && !has_file("worker-64.secret"));
    CHECK_INT(run_keys(folder, NULL, NULL), 1);
    CHECK_CONTAINS(launch_err(), "is not empty");
}

TEST(makes_as_many_keys_as_are_asked_for)
{
    CHECK_INT(run_keys("--server_num=2", "--worker_num=3", test_path("keys")),
              0);
    CHECK(has_file("server-1.secret") && has_file("worker-2.secret"));
    CHECK(!has_file("server-2.secret") && !has_file("worker-3.secret"));
}

TEST(says_how_keys_are_made)
{
    CHECK_INT(run_keys("--help", NULL, NULL), 0);
    CHECK_CONTAINS(launch_out(), "usage: fleetrun keys FOLDER [FLAGS]");
    CHECK_INT(run_keys(NULL, NULL, NULL), 2);
    CHECK_CONTAINS(launch_err(), "expected one folder, got 0 words");
    CHECK_INT(run_keys("a", "b", NULL), 2);
    CHECK_INT(run_keys("a", "--many", NULL), 2);
    CHECK_CONTAINS(launch_err(), "unknown flag --many");
    CHECK_INT(run_keys("a", "--worker_num", "0"), 2);
    CHECK_CONTAINS(launch_err(), "--worker_num: expected an integer from 1");
}
