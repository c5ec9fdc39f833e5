/* fleetrun_ends_test.c - how a job under fleetrun ends: well, by a failure, by
 * a signal, or because fleetrun itself is killed. Whatever way, nothing is
 * left: the fifo is held open by every process and whatever it starts. */
#define _GNU_SOURCE
#define SUITE fleetrun_ends
#include "launch_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(gives_the_status_of_a_worker_that_fails)
{
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --grace 0",
                         LAUNCH_WORKER(1) " && { seq 100 130; exit 7; };"
                                          "exec sleep 1000"),
              7);
    CHECK_CONTAINS(launch_err(), "fleetrun: worker 1 (pid ");
    CHECK_CONTAINS(launch_err(), ") ended with status 7; ");
    CHECK_CONTAINS(launch_err(), "/log/workerlog.1 ends with:\n111\n112\n");
    CHECK_CONTAINS(launch_err(), "\n130\nfleetrun: 2 other processes have 0 s");
}

TEST(gives_the_status_of_a_server_that_fails)
{
    CHECK_INT(launch_run("--server_num 1 --grace 0",
                         LAUNCH_SERVER " && exit 9; exec sleep 1000"),
              9);
    CHECK_CONTAINS(launch_err(), "fleetrun: server 0 (pid ");
    CHECK_CONTAINS(launch_err(), "serverlog.0 is empty");
}

TEST(gives_128_and_the_signal_that_killed_one)
{
    int fifo = launch_fifo(), victim;
    launch l = launch_start("--server_num 1 --worker_num 2 --grace 0",
                            LAUNCH_HOLD "exec sleep 1000");

    victim = launch_hear_all(fifo, 3, "TRAINER1").self;
    CHECK(kill(victim, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(launch_err(), "worker 1 (pid ");
    CHECK_CONTAINS(launch_err(), "was killed by SIGKILL; ");
    launch_silence(fifo);
}

static bool is_zombie(int pid)
{
    char path[40], text[512] = "";
    const char *after;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    CHECK(f && fgets(text, sizeof text, f));
    fclose(f);
    after = strrchr(text, ')');
    return after && after[2] == 'Z';
}

static void wait_for_zombie(int pid)
{
    while (!is_zombie(pid)) /* the test has a time limit */
        usleep(1000);
}

/* The keeper sees both ends at once, and worker 0 is the older child. */
TEST(names_who_was_killed_before_who_failed_of_it)
{
    int fifo = launch_fifo(), self[2] = {0}, parent = 0;
    launch l = launch_start("--server_num 1 --worker_num 2 --grace 0",
                            LAUNCH_HOLD LAUNCH_WORKER(0) " && { " LAUNCH_WAIT
                                                         " exit 5; };"
                                                         "exec sleep 1000");

    for (int i = 0; i < 3; i++) {
        char who[40];
        int pid;

        CHECK(sscanf(launch_hear(fifo), "%39s %d %d", who, &parent, &pid) == 3);
        if (strncmp(who, "TRAINER", 7) == 0)
            self[who[7] - '0'] = pid;
    }
    CHECK(self[0] > 1 && self[1] > 1 && parent > 1);
    CHECK(kill(l.pid, SIGSTOP) == 0); /* it lets no stopped keeper be */
    CHECK(kill(parent, SIGSTOP) == 0 && kill(self[1], SIGKILL) == 0);
    launch_go();
    wait_for_zombie(self[0]);
    wait_for_zombie(self[1]);
    CHECK(kill(parent, SIGCONT) == 0 && kill(l.pid, SIGCONT) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(launch_err(), "the job has failed: worker 1 (pid ");
    CHECK_CONTAINS(launch_err(), "worker 0 (pid ");
    launch_silence(fifo);
}

/* The others end once worker 1 was waited for: its status is the first. */
TEST(gives_the_others_time_to_end_by_themselves)
{
    setenv("DOWN", test_path("down"), 1);
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --grace 1000",
                         LAUNCH_OUTLIVE(1) "echo in peace;" LAUNCH_SERVER
                                           " || exit 5"),
              7);
    CHECK_CONTAINS(launch_log("serverlog.0"), "in peace");
    CHECK_CONTAINS(launch_log("workerlog.0"), "in peace");
    CHECK_CONTAINS(launch_err(), ") ended with status 5, too; see ");
    CHECK(!strstr(launch_err(), "SIGTERM"));
}

TEST(takes_the_grace_time_from_the_peer_deadline)
{
    setenv("FLEET_PEER_DEADLINE_MS", "2500", 1);
    CHECK_INT(launch_run("--server_num 1", LAUNCH_SERVER " || exit 7"), 7);
    setenv("FLEET_PEER_DEADLINE_MS", "soon", 1);
    CHECK_INT(launch_run("--server_num 1", "true"), 2);
    CHECK_CONTAINS(launch_err(), "FLEET_PEER_DEADLINE_MS: expected an integer");
    setenv("FLEET_PEER_DEADLINE_MS", "1", 1);
    CHECK_INT(launch_run("--server_num 1",
                         LAUNCH_SERVER " && exec sleep 1000; exit 7"),
              7);
    CHECK_CONTAINS(launch_err(), "has 5.001 s to end");
}

TEST(terminates_and_then_kills_what_hangs)
{
    int fifo = launch_fifo();
    launch l = launch_start(
        "--server_num 1 --grace 0",
        "trap 'echo no >&9' TERM;" LAUNCH_HOLD LAUNCH_WAIT LAUNCH_SERVER
        " || exit 7; while :; do sleep 1000; done");

    launch_hear_all(fifo, 2, "");
    launch_go();
    CHECK_INT(launch_wait(l), 7);
    CHECK_CONTAINS(launch_err(), "of the failure: SIGTERM");
    CHECK_CONTAINS(launch_err(),
                   "has not ended within 5 s of SIGTERM: SIGKILL");
    launch_silence(fifo);
}

TEST(wakes_what_is_stopped_to_end_it)
{
    int fifo = launch_fifo(), stopped;
    launch l =
        launch_start("--server_num 1 --grace 0", LAUNCH_HOLD LAUNCH_SERVER
                     " && exec sleep 1000;" LAUNCH_WAIT "exit 7");

    stopped = launch_hear_all(fifo, 2, "PSERVER").self;
    CHECK(kill(stopped, SIGSTOP) == 0);
    launch_go();
    CHECK_INT(launch_wait(l), 7);
    CHECK(!strstr(launch_err(), "SIGKILL"));
}

TEST(names_a_server_that_does_not_end)
{
    CHECK_INT(launch_run("--server_num 2 --grace 0",
                         LAUNCH_SERVER " && exec sleep 1000; exit 0"),
              1);
    CHECK_CONTAINS(launch_err(), "fleetrun: server 0 (pid ");
    CHECK_CONTAINS(launch_err(), "fleetrun: server 1 (pid ");
    CHECK_CONTAINS(launch_err(), "of the last worker's end: SIGTERM");
}

TEST(lets_servers_serve_workers_of_other_nodes)
{
    int fifo = launch_fifo();
    char flags[200];
    launch l;

    snprintf(flags, sizeof flags,
             "--insecure --servers 127.0.0.77:%d --host 127.0.0.77 "
             "--workers 127.0.0.77:1,127.0.0.78:1 --grace 0",
             launch_free_port("127.0.0.77"));
    l = launch_start(flags, LAUNCH_HOLD LAUNCH_SERVER " || exit 0;" LAUNCH_WAIT
                                                      "echo served >&9");
    launch_hear_all(fifo, 2, "");
    launch_go();
    CHECK_TEXT(launch_hear(fifo), "served");
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(launch_err(), "");
}

/* --- signals -------------------------------------------------------------- */

static const char obey[] = "trap 'echo bye; exit 0' TERM;" LAUNCH_HOLD
                           "while :; do sleep 1000 & wait; done";

static void ends_the_job(int signal)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --worker_num 2", obey);

    launch_hear_all(fifo, 3, "");
    CHECK(kill(l.pid, signal) == 0);
    CHECK_INT(launch_wait(l), 128 + signal);
    CHECK_CONTAINS(launch_log("serverlog.0"), "bye");
    CHECK_CONTAINS(launch_log("workerlog.1"), "bye");
    CHECK_CONTAINS(launch_err(), ": ending the job");
    launch_silence(fifo);
}

TEST(ends_the_job_at_SIGINT)
{
    ends_the_job(SIGINT);
}

TEST(ends_the_job_at_SIGTERM)
{
    ends_the_job(SIGTERM);
}

TEST(ends_the_job_at_SIGHUP)
{
    ends_the_job(SIGHUP);
}

TEST(leaves_SIGHUP_to_nohup)
{
    int fifo = launch_fifo();
    launch l;

    setenv("TEST_NOHUP", "1", 1);
    l = launch_start("", LAUNCH_HOLD LAUNCH_WAIT);
    launch_hear_all(fifo, 1, "");
    CHECK(kill(l.pid, SIGHUP) == 0);
    launch_go();
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(launch_err(), "");
}

TEST(kills_at_the_second_signal)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --grace 1000",
                            "trap 'echo no >&9' TERM;" LAUNCH_HOLD
                            "while :; do sleep 1000 & wait; done");

    launch_hear_all(fifo, 2, "");
    CHECK(kill(l.pid, SIGINT) == 0);
    CHECK_TEXT(launch_hear(fifo), "no"); /* the worker: the server is spared */
    CHECK(kill(l.pid, SIGINT) == 0);
    CHECK_INT(launch_wait(l), 130);
    CHECK_CONTAINS(launch_err(), "SIGINT: killing what is left");
    launch_silence(fifo);
}

TEST(ends_at_a_signal_while_its_output_is_full)
{
    int fifo = launch_fifo(), ends[2];
    launch l;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    l = launch_start_to(ends[1], "--grace 1",
                        LAUNCH_HOLD "while :; do echo much and more; done");
    launch_hear_all(fifo, 1, "");
    CHECK(kill(l.pid, SIGTERM) == 0);
    CHECK_INT(launch_wait(l), 143);
    launch_silence(fifo);
    close(ends[0]);
    close(ends[1]);
}

/* --- nothing is left ------------------------------------------------------ */

/* One in its group, one that has left it, and what the shell waits in. */
static const char family[] = "sleep 1000 & setsid sleep 1000 & " LAUNCH_HOLD
                             "sleep 1000 & setsid sleep 1000 & echo up >&9;"
                             "wait";

static launch start_family(int fifo, int *keeper)
{
    launch l = launch_start("--server_num 1 --worker_num 2", family);

    *keeper = 0;
    for (int n_up = 0; n_up < 3;) {
        const char *line = launch_hear(fifo);

        if (strcmp(line, "up") == 0)
            n_up++;
        else
            CHECK(sscanf(line, "%*s %d", keeper) == 1);
    }
    CHECK(*keeper > 1);
    return l;
}

TEST(leaves_nothing_when_it_is_killed)
{
    int fifo = launch_fifo(), keeper;
    launch l = start_family(fifo, &keeper);

    CHECK(kill(l.pid, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    launch_silence(fifo);
}

TEST(leaves_nothing_when_its_keeper_is_killed)
{
    int fifo = launch_fifo(), keeper;
    launch l = start_family(fifo, &keeper);

    CHECK(keeper != l.pid && kill(keeper, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(launch_err(), "was killed by SIGKILL");
    launch_silence(fifo);
}

/* Nobody has a reason to stop it alone: it goes on, and so does the job. */
TEST(a_keeper_that_was_stopped_goes_on)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --worker_num 2",
                            LAUNCH_HOLD LAUNCH_WAIT "echo of a worker");
    int keeper = launch_hear_all(fifo, 3, "").parent;

    CHECK(keeper != l.pid && kill(keeper, SIGSTOP) == 0);
    launch_go();
    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(launch_out(), "of a worker\n");
    CHECK_CONTAINS(launch_err(), "was stopped by SIGSTOP: it goes on");
    launch_silence(fifo);
}

TEST(leaves_nothing_after_a_signal_when_its_keeper_is_stopped)
{
    int fifo = launch_fifo(), keeper;
    launch l = start_family(fifo, &keeper);

    CHECK(kill(keeper, SIGSTOP) == 0);
    CHECK(kill(l.pid, SIGTERM) == 0);
    CHECK_INT(launch_wait(l), 143);
    launch_silence(fifo);
}

TEST(a_worker_that_is_killed_is_named_by_a_keeper_that_was_stopped)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --worker_num 2 --grace 1",
                            LAUNCH_HOLD "sleep 1000 & wait");
    launch_heard worker = launch_hear_all(fifo, 3, "TRAINER1");

    CHECK(kill(worker.parent, SIGSTOP) == 0);
    CHECK(kill(worker.self, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 137);
    CHECK_CONTAINS(launch_err(), "worker 1");
    CHECK_CONTAINS(launch_err(), "was killed by SIGKILL");
    launch_silence(fifo);
}

/* As a debugger holds it, or a frozen group of processes. */
TEST(kills_its_keeper_after_the_second_signal)
{
    int fifo = launch_fifo(), keeper, status;
    launch l = start_family(fifo, &keeper);

    if (ptrace(PTRACE_SEIZE, keeper, NULL, NULL) != 0) {
        kill(l.pid, SIGKILL);
        launch_wait(l);
        launch_silence(fifo);
        test_skip("no process may be traced here: %s", strerror(errno));
    }
    CHECK(ptrace(PTRACE_INTERRUPT, keeper, NULL, NULL) == 0);
    CHECK(waitpid(keeper, &status, __WALL) == keeper && WIFSTOPPED(status));
    CHECK(kill(l.pid, SIGINT) == 0 && kill(l.pid, SIGTERM) == 0);
    CHECK(waitpid(keeper, &status, __WALL) == keeper && WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGKILL);
    CHECK_INT(launch_wait(l), 130);
    CHECK_CONTAINS(launch_err(), "it had not ended after the second signal");
    launch_silence(fifo);
}

TEST(leaves_nothing_after_a_signal)
{
    int fifo = launch_fifo(), keeper;
    launch l = start_family(fifo, &keeper);

    CHECK(kill(l.pid, SIGINT) == 0);
    CHECK_INT(launch_wait(l), 130);
    launch_silence(fifo);
}

TEST(leaves_nothing_after_success)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1 --worker_num 2", LAUNCH_HOLD
                            "sleep 1000 & setsid sleep 1000 & exit 0");

    CHECK_INT(launch_wait(l), 0);
    CHECK_TEXT(launch_err(), "");
    launch_silence(fifo);
}

TEST(does_not_listen_to_what_a_process_left_behind)
{
    int fifo = launch_fifo();
    launch l = launch_start("--server_num 1", LAUNCH_HOLD LAUNCH_SERVER
                            " && exit; setsid sh -c 'while :; do echo chatter; "
                            "done' & exit 0");

    CHECK_INT(launch_wait(l), 0);
    launch_silence(fifo);
}
