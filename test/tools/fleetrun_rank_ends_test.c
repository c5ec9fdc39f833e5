/* fleetrun_rank_ends_test.c - how a job of ranks under fleetrun and mpirun
 * ends: who is named, with which status, and that nothing is left, whoever is
 * killed.
 */
#define _GNU_SOURCE
#define SUITE fleetrun_rank_ends
#include "launch_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *last_line(const char *text)
{
    const char *at = text + strlen(text);

    CHECK(at > text && at[-1] == '\n');
    for (at--; at > text && at[-1] != '\n';)
        at--;
    return at;
}

/* Once fleetrun has heard of the other one, which may begin later. */
TEST(gives_the_status_of_a_rank_that_fails)
{
    launch_need_mpirun();
    setenv("FIRST", test_path("log/workerlog.0"), 1);
    CHECK_INT(launch_run("--nproc_per_node 2 --grace 0",
                         LAUNCH_WORKER(1) " && { until grep -qs up \"$FIRST\"; "
                                          "do sleep 0.02; done; echo oh; exit "
                                          "7; }; echo up; exec sleep 1000"),
              7);
    CHECK_CONTAINS(launch_err(), ") ended with status 7; ");
    CHECK_CONTAINS(launch_err(), "/log/workerlog.1 ends with:\noh\nfleetrun: 1 "
                                 "other process has 0 s to end");
    CHECK_CONTAINS(last_line(launch_err()),
                   "fleetrun: the job has failed: worker 1 (pid ");
}

TEST(names_the_rank_that_was_killed)
{
    int fifo;
    launch_heard rank;
    launch l;

    launch_need_mpirun();
    fifo = launch_fifo();
    l = launch_start("--nproc_per_node 3 --grace 1",
                     LAUNCH_HOLD "exec sleep 1000");
    rank = launch_hear_all(fifo, 3, "TRAINER1");
    CHECK(kill(rank.self, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(last_line(launch_err()), "worker 1 (pid ");
    CHECK_CONTAINS(last_line(launch_err()), ") was killed by SIGKILL");
    launch_silence(fifo);
    launch_nothing_left();
}

TEST(names_the_rank_that_crashed)
{
    launch_need_mpirun();
    CHECK_INT(launch_run("--nproc_per_node 2 --grace 0",
                         LAUNCH_WORKER(1) " && kill -SEGV $$; exec sleep 1000"),
              139);
    CHECK_CONTAINS(last_line(launch_err()), "worker 1 (pid ");
    CHECK_CONTAINS(last_line(launch_err()), "was killed by SIGSEGV");
}

/* More than the second that mpirun itself would give them. */
TEST(gives_the_other_ranks_time_to_end_by_themselves)
{
    launch_need_mpirun();
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(
        launch_run("--server_num 1 --nproc_per_node 2 --grace 1000",
                   LAUNCH_OUTLIVE(1) "sleep 2; echo in peace; " LAUNCH_SERVER
                                     " || exit 5"),
        7);
    CHECK_CONTAINS(launch_log("serverlog.0"), "in peace");
    CHECK_CONTAINS(launch_log("workerlog.0"), "in peace");
    CHECK_CONTAINS(launch_err(), ") ended with status 5, too; see ");
    CHECK(!strstr(launch_err(), "SIGTERM"));
    CHECK_CONTAINS(last_line(launch_err()), "worker 1 (pid ");
}

TEST(terminates_and_then_kills_ranks_that_hang)
{
    int fifo;
    launch l;

    launch_need_mpirun();
    fifo = launch_fifo();
    l = launch_start("--nproc_per_node 2 --grace 0",
                     "trap '' TERM;" LAUNCH_HOLD LAUNCH_WAIT LAUNCH_WORKER(
                         1) " && exit 7; while :; do sleep 1000; done");
    launch_hear_all(fifo, 2, "TRAINER1");
    launch_go();
    CHECK_INT(launch_wait(l), 7);
    CHECK_CONTAINS(launch_err(), "of the failure: SIGTERM");
    CHECK_CONTAINS(launch_err(),
                   "has not ended within 5 s of SIGTERM: SIGKILL");
    launch_silence(fifo);
    launch_nothing_left();
}

TEST(a_signal_reaches_the_ranks)
{
    int fifo;
    launch l;

    launch_need_mpirun();
    fifo = launch_fifo();
    l = launch_start("--nproc_per_node 2",
                     "trap 'echo bye; exit 0' TERM;" LAUNCH_HOLD
                     "while :; do sleep 1000 & wait; done");
    launch_hear_all(fifo, 2, "TRAINER1");
    CHECK(kill(l.pid, SIGINT) == 0);
    CHECK_INT(launch_wait(l), 130);
    CHECK_CONTAINS(launch_log("workerlog.0"), "bye");
    CHECK_CONTAINS(launch_log("workerlog.1"), "bye");
    launch_silence(fifo);
    launch_nothing_left();
}

/* --- an mpirun that does not do its work ---------------------------------- */

static void be_mpirun(const char *script)
{
    const char *path = test_file("mpirun", script);
    char all[4300];

    CHECK(chmod(path, 0700) == 0);
    snprintf(all, sizeof all, "%s:%s", test_folder(), getenv("PATH"));
    setenv("PATH", all, 1);
}

TEST(names_an_mpirun_that_fails)
{
    be_mpirun("#!/bin/sh\necho no slots; exit 3\n");
    CHECK_INT(launch_run("--nproc_per_node 2", "true"), 3);
    CHECK_CONTAINS(launch_err(), "fleetrun: mpirun (pid ");
    CHECK_CONTAINS(launch_err(), "/log/mpirun.log ends with:\nno slots\n");
}

TEST(names_an_mpirun_that_starts_nothing)
{
    be_mpirun("#!/bin/sh\nexit 0\n");
    CHECK_INT(launch_run("--nproc_per_node 2", "true"), 1);
    CHECK_CONTAINS(launch_err(), "fleetrun: mpirun (pid ");
}

TEST(names_the_ranks_that_do_not_come)
{
    be_mpirun("#!/bin/sh\nexec sleep 1000\n");
    setenv("FLEET_CONNECT_DEADLINE_MS", "150", 1);
    CHECK_INT(launch_run("--nproc_per_node 2", "true"), 1);
    CHECK_CONTAINS(launch_err(),
                   "mpirun has not started worker 0 within 0.15 s: SIGTERM");
    CHECK_CONTAINS(launch_err(), "mpirun has not started worker 1 within");
}

TEST(turns_away_who_does_not_know_the_jobs_word)
{
    be_mpirun("#!/bin/sh\nshift 2\n"
              "OMPI_COMM_WORLD_RANK=0 FLEETRUN_TOKEN=guess \"$@\"\n");
    CHECK_INT(launch_run("--nproc_per_node 2", "true"), 1);
    CHECK_CONTAINS(launch_log("mpirun.log"), "cannot be reached here");
}

/* --- nothing is left ------------------------------------------------------ */

/* One in its group, one that has left it, and the rank. */
static const char family[] =
    "[ $PADDLE_TRAINER_ID$TRAINING_ROLE = 0TRAINER ] && env >$FIFO.env;"
    "sleep 1000 & setsid sleep 1000 & " LAUNCH_HOLD
    "sleep 1000 & setsid sleep 1000 & wait";

/* The kept ones of the servers' sockets and of MPI's. */
static void check_folders(void)
{
    const char *log = "../fifo.env"; /* beside the logs */

    CHECK_CONTAINS(launch_value(log, "FLEET_IPC_FOLDER"), "/tmp/fleetrun-");
    CHECK(access(launch_value(log, "FLEET_IPC_FOLDER"), F_OK) != 0);
    CHECK_CONTAINS(launch_value(log, "OMPI_MCA_orte_tmpdir_base"),
                   "/fleetrun-");
    CHECK(access(launch_value(log, "OMPI_MCA_orte_tmpdir_base"), F_OK) != 0);
}

typedef enum victim { FLEETRUN, KEEPER, MPIRUN, WATCHER } victim;

static void leaves_nothing_without(victim who, const char *words)
{
    pid_t victims[4];
    launch_heard rank;
    launch l;
    int fifo;

    launch_need_mpirun();
    fifo = launch_fifo();
    l = launch_start("--server_num 1 --nproc_per_node 2 --grace 1", family);
    rank = launch_hear_all(fifo, 3, "TRAINER1");
    victims[FLEETRUN] = l.pid;
    victims[WATCHER] = rank.parent;
    victims[MPIRUN] = launch_parent(rank.parent);
    victims[KEEPER] = launch_parent(victims[MPIRUN]);
    CHECK(launch_parent(victims[KEEPER]) == l.pid);
    CHECK(kill(victims[who], SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(launch_err(), words);
    launch_silence(fifo);
    launch_nothing_left();
    check_folders();
}

TEST(leaves_nothing_when_it_is_killed)
{
    leaves_nothing_without(FLEETRUN, "");
}

TEST(leaves_nothing_when_its_keeper_is_killed)
{
    leaves_nothing_without(KEEPER, "was killed by SIGKILL");
}

TEST(leaves_nothing_when_mpirun_is_killed)
{
    leaves_nothing_without(MPIRUN, "the job has failed: mpirun (pid ");
}

TEST(leaves_nothing_when_who_watches_a_rank_is_killed)
{
    leaves_nothing_without(WATCHER, "the job has failed: worker 1 (pid ");
}

TEST(leaves_nothing_after_success)
{
    int fifo;
    launch l;

    launch_need_mpirun();
    fifo = launch_fifo();
    l = launch_start("--server_num 1 --nproc_per_node 2",
                     LAUNCH_HOLD "sleep 1000 & setsid sleep 1000 & exit 0");
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(launch_err(), "");
    launch_silence(fifo);
    launch_nothing_left();
}
