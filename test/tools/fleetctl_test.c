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

#include "net/socket.h"
#include "ps/control/control.h"
#include "ps/server/lane.h"

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

static int pid_of(const char *name)
{
    int pid = 0;
    FILE *f = fopen(test_path(name), "r");

    CHECK(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    return pid;
}

static const char *of_process(const char *name, const char *arguments)
{
    char text[1000];

    snprintf(text, sizeof text, "--pid %d %s", pid_of(name), arguments);
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

/* Until worker 0 has read its first pass. */
static launch start_held(const char *flags, const char *config)
{
    char script[9000];
    launch l;

    setenv("PIDS", test_path("pid"), 1);
    snprintf(script, sizeof script, "%s%s", save_pid, job_script(config));
    l = launch_start(flags, script);
    await_file(l, test_path("passed.0"));
    return l;
}

/* Servers have the tables; ranks, which know of no move, all else. */
TEST_LIMIT(a_lane_of_a_hybrid_job_moves_to_the_same_bits, 240)
{
    const char *want;
    char said[20000];
    launch l;

    launch_need_mpirun();
    test_use_fraction(20);
    want = job_hash(job_train("--server_num 2 --worker_num 2",
                              job_epochs(job_adult("\"a_sync\": false"), 2)));
    l = start_held("--server_num 2 --worker_num 2 --collective",
                   held_config("\"is_collective\": true, \"a_sync\": false"));
    CHECK_INT(run(of_server("move 1:0 0"), said), 0);
    CHECK_CONTAINS(said, "server 1, lane 0: from server 1 to server 0");
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_out(), "\"mode\":\"hybrid\"");
    CHECK_CONTAINS(launch_out(), want);
}

/* --- a server that joins -------------------------------------------------- */

/* With the environment of server 0, by hand, at another address; what it has
 * said, and how it has ended, are in files of that name. */
static void start_joined(const char *name, int port, const char *also,
                         const char *config)
{
    char command[9000], path[200];

    snprintf(path, sizeof path, "%s.json", name);
    snprintf(command, sizeof command,
             "bash -c 'mapfile -d \"\" v </proc/%d/environ;"
             "(env \"${v[@]}\" FLEET_JOIN=2 POD_IP=127.0.0.2 PADDLE_PORT=%d %s "
             "%s %s >%s.said 2>&1; echo $? >%s.new; mv %s.new %s.ended) "
             "</dev/null >/dev/null 2>&1 &'",
             pid_of("pid.default.server.0"), port, also,
             test_beside("fleet-train"), test_file(path, config),
             test_path(name), test_path(name), test_path(name),
             test_path(name));
    CHECK_INT(system(command), 0);
}

static const char *read_file(const char *name, const char *end)
{
    char path[200], text[9000];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s%s", name, end);
    f = fopen(test_path(path), "r");
    if (f)
        n = fread(text, 1, sizeof text - 1, f);
    if (f)
        fclose(f);
    text[n] = 0;
    return test_keep(text);
}

static void check_ended(const char *name, const char *status, const char *words)
{
    char path[200];

    snprintf(path, sizeof path, "%s.ended", name);
    for (int i = 0; access(test_path(path), F_OK) != 0; i++) {
        if (i > 30000 * TEST_SLOWNESS)
            test_fail(__FILE__, __LINE__, "%s has not ended", name);
        usleep(1000);
    }
    CHECK_CONTAINS(read_file(name, ".said"), words);
    CHECK_TEXT(read_file(name, ".ended"), status);
}

static int add(int port, char said[20000])
{
    char words[100];

    snprintf(words, sizeof words, "add 127.0.0.2:%d", port);
    return run(of_server(words), said);
}

/* Two servers are three, and two again: one that joined for one that was there
 * from the start. With keys, by tcp. */
TEST_LIMIT(a_server_joins_a_job_that_trains_to_the_same_bits, 240)
{
    const char *config, *want;
    char said[20000];
    int port = launch_free_port("127.0.0.2");
    launch l;

    test_use_fraction(20);
    setenv("FLEET_SERVER_LANES", "2", 1);
    setenv("FLEET_TRANSPORT", "tcp", 1);
    setenv("FLEET_PEER_DEADLINE_MS", TEST_SLOWNESS > 1 ? "10000" : "2000", 1);
    config = job_epochs(job_adult("\"a_sync\": false"), 2);
    want = job_hash(job_train("--server_num 2 --worker_num 2", config));
    config = held_config("\"a_sync\": false");
    l = start_held("--server_num 2 --servers_max 3 --worker_num 2", config);
    start_joined("other", port, "", job_at_rate(config, "0.002"));
    CHECK_INT(add(port, said), 2);
    CHECK_CONTAINS(said, "has another program, strategy or number of workers");
    start_joined("alone", launch_free_port("127.0.0.2"),
                 "FLEET_CONNECT_DEADLINE_MS=100", config);
    check_ended("alone", "1\n", "no lane has come to it within 0.1 s");
    port = launch_free_port("127.0.0.2");
    start_joined("anywhere", port, "POD_IP=0.0.0.0", config);
    CHECK_INT(add(port, said), 2);
    CHECK_CONTAINS(said, "workers are told that it is at 0.0.0.0:");
    port = launch_free_port("127.0.0.2");
    start_joined("joined", port, "", config);
    CHECK_INT(add(port, said), 0);
    CHECK_CONTAINS(said, " has 1 lane\n");
    CHECK_INT(run(of_server("drain 1"), said), 0);
    CHECK_CONTAINS(said, "from server 1 to server 2");
    CHECK_INT(run(of_server("status"), said), 0);
    CHECK_INT(count(said, "serves, by server 2 ("), 2);
    CHECK_INT(run(of_server("drain 2"), said), 0);
    check_ended("joined", "0\n", "");
    port = launch_free_port("127.0.0.2");
    start_joined("again", port, "", config); /* there is no fourth key */
    CHECK_INT(add(port, said), 0);
    CHECK_CONTAINS(said, "server 2 at 127.0.0.2:");
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_out(), want);
    check_ended("again", "0\n", "");
}

/* No process gives its only lane: nothing is started. */
TEST_LIMIT(a_server_that_would_get_nothing_is_not_started, 120)
{
    char said[20000];
    launch l;

    test_use_fraction(20);
    setenv("FLEET_SERVER_LANES", "1", 1);
    l = start_held("--server_num 2 --servers_max 3 --worker_num 1",
                   held_config("\"a_sync\": false"));
    CHECK_INT(run(of_server("add"), said), 2);
    CHECK_CONTAINS(said, "the server that joins gets nothing: no process has");
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK(access(test_path("log/serverlog.2"), F_OK) != 0);
}

/* As fleetctl does it, which dies before it has moved a lane. */
static void make_known(int server, int port)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_ADMIN,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_msg_job("default", 0),
                              .stream = FL_CONTROL_STREAM,
                              .request = 1};
    char address[40], words[100];
    fl_packet_pool *pool;
    fl_socket *socket;
    fl_msg_writer w;
    fl_packet *p;

    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    snprintf(words, sizeof words, FL_CONTROL_KNOW "%d %s", server, address);
    CHECK_OK(fl_packet_pool_create(&pool, 1 << 20));
    CHECK_OK(fl_socket_connect_to(&socket, address, NULL, 0));
    fl_msg_begin(&w, pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, words);
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_socket_send(socket, NULL, p);
    fl_packet_drop(p);
    for (p = NULL; !p;) {
        CHECK_OK(fl_socket_wait(&socket, 1, NULL, 100));
        CHECK_OK(fl_socket_receive(socket, NULL, &p));
    }
    fl_packet_drop(p);
    fl_socket_close(socket, 0);
    fl_packet_pool_destroy(pool);
}

/* The job trains on with all its lanes. */
TEST_LIMIT(a_server_that_has_joined_and_gets_no_lane_ends_well, 60)
{
    const int port = launch_free_port("127.0.0.1");
    char command[9000];

    test_use_fraction(20);
    snprintf(command, sizeof command,
             "(TRAINING_ROLE=PSERVER PADDLE_TRAINERS_NUM=1 FLEET_JOIN=1 "
             "PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:%d POD_IP=127.0.0.1 "
             "PADDLE_PORT=%d FLEET_CONNECT_DEADLINE_MS=%d %s %s >%s 2>&1; "
             "echo $? >%s; mv %s %s) &",
             launch_free_port("127.0.0.1"), port, 3000 * TEST_SLOWNESS,
             test_beside("fleet-train"),
             test_file("c.json", job_adult("\"a_sync\": false")),
             test_path("known.said"), test_path("known.new"),
             test_path("known.new"), test_path("known.ended"));
    CHECK_INT(system(command), 0);
    make_known(1, port);
    check_ended("known", "0\n", "server 1, which has joined: no lane has come");
}

/* --- a job that is supervised --------------------------------------------- */

/* Of who serves lanes, or trains: behind those words, "(node:pid)". */
static int process_of(const char *words)
{
    char said[20000];
    const char *at;
    int pid = 0;

    CHECK_INT(run(of_server("status"), said), 0);
    at = strstr(said, words);
    at = at ? strchr(at + strlen(words), ':') : NULL;
    CHECK(at && sscanf(at + 1, "%d", &pid) == 1);
    return pid;
}

/* A server on its way back is asked again. */
static void run_at_last(const char *arguments, const char *words)
{
    char said[20000] = "";

    for (int i = 0; i < 200; i++) {
        if (run(of_server(arguments), said) == 0 && strstr(said, words))
            return;
        usleep(50000);
    }
    test_fail(__FILE__, __LINE__, "%s: %s", arguments, said);
}

/* Two servers are three, and two again, and each process dies once while a lane
 * is away: that which has joined is started again by hand, fleetrun's by it. */
TEST_LIMIT(a_supervised_job_has_a_third_server_for_a_while, 240)
{
    const char *config, *want;
    char words[100];
    int port = launch_free_port("127.0.0.2");
    launch l;

    test_use_fraction(20);
    setenv("FLEET_SERVER_LANES", "2", 1);
    setenv("FLEET_PEER_DEADLINE_MS", TEST_SLOWNESS > 1 ? "10000" : "2000", 1);
    config = job_epochs(job_adult("\"a_sync\": false"), 2);
    want = job_hash(job_train("--server_num 2 --worker_num 2", config));
    config = held_config("\"a_sync\": false");
    l = start_held("--server_num 2 --servers_max 3 --worker_num 2 --supervise "
                   "--restart_delay 0",
                   config);
    start_joined("joined", port, "", config);
    snprintf(words, sizeof words, "add 127.0.0.2:%d", port);
    run_at_last(words, " has 1 lane\n");
    run_at_last("drain 2", "from server 2 to server");
    check_ended("joined", "0\n", "");
    start_joined("again", port, "", config);
    run_at_last(words, " has 1 lane\n");
    CHECK(kill(process_of("serves, by server 2 ("), SIGKILL) == 0);
    check_ended("again", "137\n", "");
    start_joined("third", port, "", config);
    run_at_last("status", "serves, by server 2 (");
    CHECK(kill(process_of("serves, by server 0 ("), SIGKILL) == 0);
    run_at_last("status", "serves, by server 0 (");
    CHECK(kill(process_of("trains ("), SIGKILL) == 0);
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_out(), want);
    check_ended("third", "0\n", "");
}

/* --- servers that fleetrun starts ----------------------------------------- */

static void kill_server_2(void)
{
    CHECK(kill(pid_of("pid.default.server.2"), SIGKILL) == 0);
}

/* Another process has taken the place of that one. */
static void await_server_2_after(launch l, int pid)
{
    while (pid_of("pid.default.server.2") == pid) {
        if (test_ends_within(l.pid, 0))
            test_fail(__FILE__, __LINE__, "the job ends: %s", launch_err());
        usleep(1000);
    }
}

static launch kill_all_and_start(launch l, const char *flags,
                                 const char *config)
{
    char script[9000];

    kill(l.pid, SIGKILL); /* its keeper kills all others */
    launch_wait(l);
    launch_nothing_left();
    snprintf(script, sizeof script, "%s%s", save_pid, job_script(config));
    return launch_start(flags, script);
}

/* It dies twice in a row, and once with all of the job. */
TEST_LIMIT(fleetrun_starts_a_server_that_has_joined_again_as_any_other, 240)
{
    const char *config, *want, *flags;
    char text[500], said[20000];
    launch l;
    int pid;

    test_use_fraction(20);
    launch_fifo();
    setenv("FLEET_SERVER_LANES", "2", 1);
    setenv("FLEET_PEER_DEADLINE_MS", TEST_SLOWNESS > 1 ? "10000" : "3000", 1);
    config = job_epochs(job_adult("\"a_sync\": false"), 2);
    want = job_hash(job_train("--server_num 2 --worker_num 2", config));
    config = held_config("\"a_sync\": false");
    snprintf(text, sizeof text,
             "--server_num 2 --servers_max 3 --worker_num 2 --supervise "
             "--restart_delay 0 --journals %s",
             test_path("journals"));
    flags = test_keep(text);
    l = start_held(flags, config);
    run_at_last("add", " has 1 lane\n");
    run_at_last("drain 2", "from server 2 to server");
    CHECK_INT(run(of_server("add"), said), 0); /* at once */
    CHECK_CONTAINS(said, " has 1 lane\n");
    for (int i = 0; i < 2; i++) {
        pid = pid_of("pid.default.server.2");
        kill_server_2();
        await_server_2_after(l, pid);
    }
    run_at_last("status", "serves, by server 2 (");
    CHECK_CONTAINS(launch_err(), "server 2 (pid ");
    l = kill_all_and_start(l, flags, config);
    run_at_last("status", "serves, by server 2 (");
    kill_server_2();
    test_file("go", "");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_out(), want);
    CHECK_CONTAINS(launch_err(), "1 restart: 1 of server 2\n");
    CHECK_CONTAINS(launch_log("serverlog.2"), " is back, at update ");
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
    CHECK_INT(run("--servers 127.0.0.1:1 drain 999", said), 2);
    CHECK_CONTAINS(said,
                   "there is no server 999: expected 0 to 0, or one that");
    CHECK_INT(run("--servers 127.0.0.1:1 add 127.0.0.1:1", said), 2);
    CHECK_CONTAINS(said, "127.0.0.1:1 is server 0, with which the job began");
    unsetenv("FLEET_IPC_FOLDER");
    CHECK_INT(run("--servers 127.0.0.1:1 add", said), 2);
    CHECK_CONTAINS(said, "add: FLEET_IPC_FOLDER is not set, so no fleetrun");
    setenv("FLEET_IPC_FOLDER", test_folder(), 1);
    CHECK_INT(run("--servers 127.0.0.1:1 add", said), 2);
    CHECK_CONTAINS(said, "no fleetrun can be asked at ");
    CHECK_INT(run("--servers 127.0.0.1:1 add a b", said), 2);
    CHECK_CONTAINS(said, "usage: fleetctl");
}
