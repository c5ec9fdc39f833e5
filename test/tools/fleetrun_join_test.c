/* fleetrun_join_test.c - what fleetctl asks of fleetrun: servers that join a
 * job are processes as any other, and until the job knows them no loss. */
#define _GNU_SOURCE
#define SUITE fleetrun_join
#include "launch_kit.h"
#include "test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* One that joins ends with the number in the file as soon as that is there; the
 * others when the test says so. */
static const char processes[] =
    "env; if [ \"$FLEET_JOIN\" ]; then echo JOIN_PID=$$;"
    "while [ ! -s $FIFO.end ]; do sleep 0.01; done; exit $(cat $FIFO.end); "
    "fi;" LAUNCH_WAIT;

static const char *value_at_last(launch l, const char *log, const char *name)
{
    const char *value;

    while (strcmp(value = launch_value(log, name), "(unset)") == 0) {
        if (test_ends_within(l.pid, 0))
            test_fail(__FILE__, __LINE__, "the job ends without %s: %s", name,
                      launch_err());
        usleep(1000);
    }
    return value;
}

static const char *ask(launch l, const char *words)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}, own = at;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char said[2000];
    ssize_t n;

    snprintf(at.sun_path, sizeof at.sun_path, "%.80s/fleetrun",
             value_at_last(l, "workerlog.0", "FLEET_IPC_FOLDER"));
    CHECK(bind(fd, (struct sockaddr *)&own, sizeof own.sun_family) == 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(send(fd, words, strlen(words), 0) == (ssize_t)strlen(words));
    CHECK_INT(poll(&p, 1, launch_deadline_ms * TEST_SLOWNESS), 1);
    n = recv(fd, said, sizeof said - 1, 0);
    CHECK(n >= 0);
    said[n] = 0;
    close(fd);
    return test_keep(said);
}

static void await_error(launch l, const char *words)
{
    while (!strstr(launch_err(), words)) {
        if (test_ends_within(l.pid, 0))
            test_fail(__FILE__, __LINE__, "the job ends before \"%s\": %s",
                      words, launch_err());
        usleep(1000);
    }
}

static launch start_job(const char *flags)
{
    char text[900];

    launch_fifo();
    snprintf(text, sizeof text, "--server_num 1 --servers_max 2 %s", flags);
    return launch_start(text, processes);
}

/* The first time it fails before it has joined, the second time behind that. */
TEST(a_server_that_joins_is_the_jobs_from_when_it_is_known)
{
    launch l = start_job("--grace 1");
    const char *at = ask(l, "start 1");

    CHECK_CONTAINS(at, "at 127.0.0.1:");
    CHECK_TEXT(value_at_last(l, "serverlog.1", "PADDLE_PORT"),
               at + strlen("at 127.0.0.1:"));
    CHECK_TEXT(launch_value("serverlog.1", "FLEET_JOIN"), "1");
    CHECK_TEXT(launch_value("serverlog.1", "TRAINING_ROLE"), "PSERVER");
    value_at_last(l, "serverlog.1", "FLEET_LISTEN_FD");
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_JOIN"), "(unset)");
    CHECK_TEXT(ask(l, "start 1"), at); /* it runs */
    CHECK_TEXT(ask(l, "look 1"), at);
    test_file("fifo.end", "3");
    await_error(l, "ended with status 3, and had not joined the job");
    CHECK_CONTAINS(ask(l, "look 1"), "server 1 ended with status 3; see ");
    CHECK(unlink(test_path("fifo.end")) == 0);
    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    CHECK_CONTAINS(ask(l, "joined 1"), "at 127.0.0.1:");
    test_file("fifo.end", "3");
    CHECK_INT(launch_wait(l), 3);
    CHECK_CONTAINS(launch_err(), "the job has failed: server 1 (pid ");
}

/* fleetctl starts it once more then. */
TEST(who_has_ended_well_is_told_from_who_has_failed)
{
    launch l = start_job("");

    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    test_file("fifo.end", "0");
    while (strncmp(ask(l, "look 1"), "at ", 3) == 0)
        usleep(1000);
    CHECK_CONTAINS(ask(l, "look 1"), "over: server 1 ended with status 0; see");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

static launch start_supervised(const char *journals)
{
    char flags[500];

    unsetenv("FLEET_LOG");
    unsetenv("FLEET_LOG_FOLDER");
    snprintf(flags, sizeof flags, "--grace 1 --supervise --journals %s",
             test_path(journals));
    return start_job(flags);
}

TEST(who_has_not_joined_and_cannot_be_started_again_is_no_loss)
{
    launch l = start_supervised("kept");
    char away[400];

    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    value_at_last(l, "serverlog.1", "JOIN_PID");
    snprintf(away, sizeof away, "%s.away", test_path("kept"));
    CHECK(rename(test_path("kept"), away) == 0);
    CHECK(kill(atoi(launch_value("serverlog.1", "JOIN_PID")), SIGKILL) == 0);
    await_error(l, " is gone, and had not joined the job, which goes on");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

/* --- what the next fleetrun finds ----------------------------------------- */

static bool exists(const char *name)
{
    return access(test_path(name), F_OK) == 0;
}

TEST(who_has_ended_well_is_not_there_with_the_next_fleetrun)
{
    launch l = start_supervised("kept");

    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    CHECK(exists("kept/joined-1"));
    test_file("fifo.end", "0");
    while (strstr(ask(l, "look 1"), "over: ") == NULL)
        usleep(1000);
    CHECK(!exists("kept/joined-1"));
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

/* As if server 1 had been killed; the job's own server had journals, or not. */
static void leave_behind(bool of_this_job)
{
    char text[100];

    CHECK(mkdir(test_path("left"), 0700) == 0);
    CHECK(mkdir(test_path("left/server-0"), 0700) == 0);
    CHECK(mkdir(test_path("left/server-1"), 0700) == 0);
    test_file("left/server-1/identity", "");
    if (of_this_job)
        test_file("left/server-0/identity", "");
    snprintf(text, sizeof text, "%d 0 127.0.0.1\n",
             launch_free_port("127.0.0.1"));
    test_file("left/joined-1", text);
}

TEST(who_had_joined_a_job_that_was_killed_is_there_with_the_next_fleetrun)
{
    launch l;

    leave_behind(true);
    l = start_supervised("left");
    value_at_last(l, "serverlog.1", "JOIN_PID");
    CHECK_CONTAINS(ask(l, "look 1"), "at 127.0.0.1:");
    test_file("fifo.end", "0");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

TEST(who_had_joined_a_job_that_has_ended_is_not)
{
    launch l;

    leave_behind(false);
    l = start_supervised("left");
    CHECK_CONTAINS(ask(l, "look 1"), "server 1 is not this fleetrun's");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

/* --- ends ----------------------------------------------------------------- */

/* It waits for lanes that do not come any more. */
TEST(who_has_not_joined_at_the_end_is_asked_to_end)
{
    launch l = start_job("--grace 100");

    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    value_at_last(l, "serverlog.1", "JOIN_PID");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
    CHECK(!strstr(launch_err(), "fail"));
    launch_nothing_left();
}

TEST(who_has_joined_and_waits_at_the_end_is_no_failure)
{
    launch l = start_job("--grace 1");

    CHECK_CONTAINS(ask(l, "start 1"), "at 127.0.0.1:");
    CHECK_CONTAINS(ask(l, "joined 1"), "at 127.0.0.1:");
    value_at_last(l, "serverlog.1", "JOIN_PID");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_err(), "has not ended within 1 s of the last worker");
}

TEST(words_for_requests_that_cannot_be)
{
    launch l = start_job("");

    CHECK_CONTAINS(ask(l, "start 0"), "the job began with server 0");
    CHECK_CONTAINS(ask(l, "start 2"), "`fleetrun --servers_max 3`, or more");
    CHECK_CONTAINS(ask(l, "start 2147483647"), "--servers_max 2147483648`, or");
    CHECK_CONTAINS(ask(l, "look 1"), "server 1 is not this fleetrun's");
    CHECK_CONTAINS(ask(l, "joined 1"), "server 1 is not this fleetrun's");
    CHECK_CONTAINS(ask(l, "start -1"), "the job began with server -1");
    CHECK_CONTAINS(ask(l, ""), "\"\" is no request");
    CHECK_CONTAINS(ask(l, "start"), "\"start\" is no request");
    CHECK_CONTAINS(ask(l, "dance 1"), "\"dance 1\" is no request");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

TEST(a_server_without_a_key_is_not_started)
{
    char flags[500];
    launch l;

    CHECK_INT(launch_command((char *[]){"keys", "--server_num", "1",
                                        (char *)test_path("job-keys"), NULL}),
              0);
    snprintf(flags, sizeof flags, "--keys %s", test_path("job-keys"));
    l = start_job(flags);
    CHECK_CONTAINS(ask(l, "start 1"), "job-keys/server-1.secret for server 1");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}

TEST(with_replicas_no_server_joins)
{
    launch l;

    launch_fifo();
    l = launch_start("--server_num 2 --servers_max 3 --replicas 2", processes);
    CHECK_CONTAINS(ask(l, "start 2"), "with --replicas 2 no server joins");
    launch_go();
    CHECK_INT(launch_wait(l), 0);
}
