/* fleetrun_supervise_test.c - under --supervise a process that dies is started
 * again, as it was, so often and no more; whoever ends with a status is not,
 * and nobody is once the job has to end. */
#define _GNU_SOURCE
#define SUITE fleetrun_supervise
#include "launch_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parts of scripts: which run of its process is this, from 1? */
#define RUN                                                                    \
    " n=$(($(cat $COUNT$PADDLE_PORT 2>/dev/null || echo 0) + 1));"             \
    "echo $n >$COUNT$PADDLE_PORT;"
#define DIE_UP_TO(k) "[ $n -le " #k " ] && kill -9 $$;"

/* Until a process says that it is the last one. */
#define WAIT_FOR_LAST "while [ ! -e $COUNT.last ]; do sleep 0.01; done;"
#define LAST          ">$COUNT.last;"

static void count_runs(void)
{
    setenv("COUNT", test_path("count"), 1);
}

static const char *read_count(const char *what)
{
    static char text[2][1 << 14];
    static int next;
    char path[300];
    FILE *f;
    size_t n;

    next = !next;
    snprintf(path, sizeof path, "count%s", what);
    f = fopen(test_path(path), "r");
    CHECK(f);
    n = fread(text[next], 1, sizeof *text - 1, f);
    text[next][n] = 0;
    fclose(f);
    return text[next];
}

TEST(a_server_that_was_killed_is_the_same_again)
{
    count_runs();
    CHECK_INT(launch_run("--supervise --server_num 2 --worker_num 2",
                         LAUNCH_SERVER
                         " && { [ $POD_NAME = default.server.1 ] || exit 0;" RUN
                         "{ env | sort; readlink /proc/$$/fd/$FLEET_LISTEN_FD;"
                         "ls /proc/$$/fd; tr '\\0' ' ' </proc/$$/cmdline; }"
                         ">$COUNT.$n; printf \"run $n\";" DIE_UP_TO(2) LAST
                         "exit 0; };" WAIT_FOR_LAST),
              0);
    CHECK_CONTAINS(read_count(".1"), "FLEET_LISTEN_FD=");
    CHECK_CONTAINS(read_count(".1"), "\nsocket:[");
    CHECK_CONTAINS(read_count(".1"), "sh -c "); /* the command */
    CHECK_TEXT(read_count(".2"), read_count(".1"));
    CHECK_TEXT(read_count(".3"), read_count(".1"));
    CHECK_CONTAINS(launch_log("serverlog.1"),
                   "run 1\nfleetrun: server 1 (pid ");
    CHECK_CONTAINS(launch_log("serverlog.1"),
                   ") was killed by SIGKILL: started again (pid ");
    CHECK_CONTAINS(launch_log("serverlog.1"), ")\nrun 2\nfleetrun: ");
    CHECK_CONTAINS(launch_err(), "fleetrun: server 1 (pid ");
    CHECK_CONTAINS(launch_err(), ") was killed by SIGKILL: it is started "
                                 "again, 1 of 10 times within 600 s; see ");
    CHECK_CONTAINS(launch_err(), "/log/serverlog.1\n");
    CHECK_CONTAINS(launch_err(), "again in 0.1 s, 2 of 10 times");
    CHECK_CONTAINS(launch_err(), "fleetrun: 2 restarts: 2 of server 1\n");
    CHECK(!strstr(launch_err(), "failed"));
}

TEST(without_it_a_server_that_was_killed_ends_the_job)
{
    count_runs();
    CHECK_INT(launch_run("--server_num 1 --grace 0", LAUNCH_SERVER
                         " && {" RUN "kill -9 $$; };" LAUNCH_WAIT),
              137);
    CHECK(!strstr(launch_err(), "again"));
    CHECK(!strstr(launch_err(), "restart"));
}

/* --- how often ------------------------------------------------------------ */

TEST(the_job_ends_with_words_after_so_many_restarts)
{
    count_runs();
    CHECK_INT(launch_run("--supervise --restarts 3 --server_num 1 --grace 0",
                         LAUNCH_SERVER " && {" RUN
                                       "echo run $n; kill -SEGV $$; };"
                                       "exec sleep 1000"),
              139);
    CHECK_CONTAINS(launch_err(), "again in 0.2 s, 3 of 3 times within 600 s");
    CHECK_CONTAINS(launch_err(), "was killed by SIGSEGV, after 3 restarts "
                                 "within 0.");
    CHECK_CONTAINS(launch_err(), "serverlog.0 ends with:\nrun 1\n");
    CHECK_CONTAINS(launch_err(), "\nrun 4\nfleetrun: 1 other process has 0 s");
    CHECK_CONTAINS(launch_err(), "fleetrun: 3 restarts: 3 of server 0\n");
    CHECK_CONTAINS(launch_err(), "the job has failed: server 0 (pid ");
}

TEST(restarts_of_long_ago_do_not_count)
{
    count_runs();
    CHECK_INT(launch_run("--supervise --restarts 1 --restart_window 1 "
                         "--restart_delay 1 --server_num 1",
                         LAUNCH_SERVER
                         " && {" RUN
                         "[ $n -le 2 ] && { sleep 1.01; kill -9 $$; };" LAST
                         "exit 0; };" WAIT_FOR_LAST),
              0);
    CHECK_CONTAINS(launch_err(), "2 restarts");
    CHECK(!strstr(launch_err(), " in 0.")); /* each had got up */
}

TEST(each_process_has_its_own_restarts)
{
    count_runs();
    CHECK_INT(launch_run(
                  "--supervise --restarts 2 --server_num 3", LAUNCH_SERVER
                  " && {" RUN DIE_UP_TO(2) "echo up >>$COUNT.up; exit 0; };"
                                           "while ! [ -e $COUNT.up ] ||"
                                           " [ $(wc -l <$COUNT.up) -lt 3 ]; do "
                                           "sleep 0.01; done"),
              0);
    CHECK_CONTAINS(launch_err(), "6 restarts: 2 of server 0, 2 of server 1, "
                                 "2 of server 2\n");
}

/* --- who is not started again --------------------------------------------- */

static void ends_with(const char *how, int status, bool again)
{
    char script[400];

    unlink(test_path("count"));
    snprintf(script, sizeof script,
             LAUNCH_SERVER " && { "
                           "[ -e $COUNT ] && { " LAST " exit 0; };"
                           ">$COUNT; %s; };"
                           "while [ ! -e $COUNT.last ]; do sleep 0.01; done",
             how);
    unlink(test_path("count.last"));
    CHECK_INT(launch_run(again ? "--supervise --server_num 1"
                               : "--supervise --server_num 1 --grace 0",
                         script),
              again ? 0 : status);
    CHECK((strstr(launch_err(), "restart") != NULL) == again);
}

TEST(who_ends_with_a_status_has_told_why)
{
    count_runs();
    ends_with("exit 1", 1, false);
    ends_with("exit 2", 2, false);
    ends_with("exit 78", 78, false);
    ends_with("exit 127", 127, false);
    ends_with("exit 128", 128, false);
    ends_with("exit 255", 255, false);
}

TEST(who_was_asked_to_end_has_ended)
{
    count_runs();
    ends_with("kill -TERM $$", 143, false);
    ends_with("kill -INT $$", 130, false);
    ends_with("exit 143", 143, false); /* as a shell says it */
}

TEST(who_died_is_started_again)
{
    count_runs();
    ends_with("kill -ABRT $$", 134, true);
    ends_with("exit 137", 137, true);
    ends_with("exit 75", 75, true); /* EX_TEMPFAIL */
}

/* All that it says is shown, in order, whichever process says it. */
TEST(a_worker_that_was_killed_is_started_again)
{
    count_runs();
    CHECK_INT(launch_run("--supervise --server_num 1 --worker_num 2",
                         RUN LAUNCH_WORKER(
                             0) " || { " WAIT_FOR_LAST " exit 0; };"
                                "seq $n 3 2000; printf end$n;" DIE_UP_TO(2)
                                    LAST),
              0);
    CHECK_CONTAINS(launch_err(), "2 restarts: 2 of worker 0\n");
    CHECK(strncmp(launch_out(), "1\n4\n7\n", 6) == 0);
    CHECK_CONTAINS(launch_out(), "\n1999\nend12\n5\n");
    CHECK_CONTAINS(launch_out(), "\n2000\nend23\n6\n");
    CHECK_CONTAINS(launch_out(), "\n1998\nend3");
    CHECK_CONTAINS(launch_log("workerlog.0"), "end1\nfleetrun: worker 0 (pid ");
}

/* While worker 0 is due all others end: the job is not over, and nobody has
 * to end within the grace time. */
TEST(a_worker_that_is_still_to_come_has_not_ended)
{
    count_runs();
    CHECK_INT(
        launch_run(
            "--supervise --server_num 1 --worker_num 2 --grace 0", LAUNCH_SERVER
            " && exit 0; PADDLE_PORT=;" LAUNCH_WORKER(0) " && {" RUN DIE_UP_TO(
                3) "exit 0; };"
                   "until [ \"$(cat $COUNT)\" = 3 ]; do sleep 0.01; "
                   "done"),
        0);
    CHECK_CONTAINS(launch_err(), "again in 0.2 s, 3 of 10");
}

/* Workers have ended well, and their servers have until the grace is over. */
TEST(a_server_is_started_again_after_the_last_worker)
{
    int fifo = launch_fifo();
    launch l;

    count_runs();
    l = launch_start("--supervise --server_num 1", RUN LAUNCH_HOLD LAUNCH_SERVER
                     " || exit 0; [ $n = 2 ] && exit 0; exec sleep 1000");
    CHECK(kill(launch_hear_all(fifo, 2, "PSERVER").self, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_err(), "1 restart: 1 of server 0\n");
    launch_silence(fifo);
}

/* --- the end of the job --------------------------------------------------- */

/* A server and a worker that run until they are told, the server for the
 * second time. */
static const char hold[] = LAUNCH_HOLD "trap 'exit 0' TERM;"
                                       "while :; do sleep 1000 & wait; done";

static void wait_for_words(const char *words)
{
    int ms = launch_deadline_ms * TEST_SLOWNESS;

    for (; !strstr(launch_err(), words); ms -= 2) {
        if (ms <= 0)
            test_fail(__FILE__, __LINE__, "\"%s\" did not come; stderr: %s",
                      words, launch_err());
        usleep(2000);
    }
}

typedef struct held {
    launch l;
    int fifo, keeper, server;
} held;

static held start_held(const char *flags)
{
    held h = {.fifo = launch_fifo()};
    launch_heard server;

    h.l = launch_start(flags, hold);
    server = launch_hear_all(h.fifo, 2, "PSERVER");
    CHECK(kill(server.self, SIGKILL) == 0);
    server = launch_hear_all(h.fifo, 1, "PSERVER");
    while (!strstr(launch_log("serverlog.0"), "started again (pid "))
        usleep(1000); /* the keeper is done with it; the test has a limit */
    h.keeper = server.parent;
    h.server = server.self;
    return h;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Of its environment, which is empty for a moment as it calls exec(); the test
 * has a limit. */
static const char *value_of(int pid, const char *variable)
{
    char path[64], text[1 << 14];
    size_t n = 0, at = 0;

    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    while (n == 0) {
        FILE *f = fopen(path, "r");

        CHECK(f);
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    text[n] = 0;
    while (at < n && strncmp(text + at, variable, strlen(variable)) != 0)
        at += strlen(text + at) + 1;
    CHECK(at < n);
    return test_keep(text + at + strlen(variable));
}

/* The folders that the job's processes were told. */
typedef struct told {
    const char *path[3];
} told;

static told told_folders(int pid)
{
    told t = {{value_of(pid, "FLEET_LOG_FOLDER="),
               value_of(pid, "FLEET_IPC_FOLDER="),
               value_of(pid, "FLEET_KEYS=")}};

    for (int i = 0; i < 3; i++)
        CHECK(exists(t.path[i]));
    return t;
}

static void check_nothing_left(held h, told t)
{
    launch_silence(h.fifo);
    launch_nothing_left();
    for (int i = 0; i < 3; i++)
        CHECK(!exists(t.path[i]));
}

static void ends_all_at(int signal, bool at_keeper, int status)
{
    held h = start_held("--supervise --server_num 1");
    told t = told_folders(h.server);

    CHECK(kill(at_keeper ? h.keeper : h.l.pid, signal) == 0);
    CHECK_INT(launch_wait(h.l), status);
    check_nothing_left(h, t);
}

TEST(leaves_nothing_after_a_restart_and_SIGINT)
{
    ends_all_at(SIGINT, false, 130);
}

TEST(leaves_nothing_after_a_restart_when_it_is_killed)
{
    ends_all_at(SIGKILL, false, 137);
}

TEST(leaves_nothing_after_a_restart_when_its_keeper_is_killed)
{
    ends_all_at(SIGKILL, true, 137);
}

/* Of several descriptors the keeper has none for the pipes of a new process.
 * It watches 9, and poll() may not have fewer. */
static void let_restarts_fail(int keeper, struct rlimit *before)
{
    char path[64];
    struct rlimit few;
    int least = 9;

    for (bool taken = true; taken; least += taken) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", keeper, least);
        taken = exists(path);
    }
    CHECK(prlimit(keeper, RLIMIT_NOFILE, NULL, before) == 0);
    few = *before;
    few.rlim_cur = (rlim_t)least;
    CHECK(prlimit(keeper, RLIMIT_NOFILE, &few, NULL) == 0);
}

static held start_waiting(struct rlimit *before)
{
    held h = start_held("--supervise --restarts 100 --server_num 1");

    let_restarts_fail(h.keeper, before);
    CHECK(kill(h.server, SIGKILL) == 0);
    wait_for_words("again in 0.4 s");
    return h;
}

TEST(a_restart_that_fails_is_tried_again)
{
    struct rlimit before;
    held h = start_waiting(&before);

    CHECK_CONTAINS(launch_err(), "server 0 cannot be started again: cannot "
                                 "make a pipe: Too many open files: it is "
                                 "started again in 0.2");
    CHECK(prlimit(h.keeper, RLIMIT_NOFILE, &before, NULL) == 0);
    launch_hear_all(h.fifo, 1, "PSERVER");
    CHECK(kill(h.l.pid, SIGTERM) == 0);
    CHECK_INT(launch_wait(h.l), 143);
    CHECK_CONTAINS(launch_err(), "2 restarts: 2 of server 0\n");
    launch_silence(h.fifo);
}

static void ends_while_it_waits(int signal, int status)
{
    struct rlimit before;
    held h = start_waiting(&before);

    CHECK(kill(h.l.pid, signal) == 0);
    CHECK_INT(launch_wait(h.l), status);
    launch_silence(h.fifo);
    launch_nothing_left();
}

TEST(a_signal_ends_a_job_that_waits_to_start_a_server)
{
    ends_while_it_waits(SIGTERM, 143);
    CHECK_CONTAINS(launch_err(), "1 restart: 1 of server 0\n");
}

TEST(leaves_nothing_when_it_is_killed_before_a_restart)
{
    ends_while_it_waits(SIGKILL, 137);
}

TEST(names_a_program_that_has_gone)
{
    const char *program =
        test_file("program", "#!/bin/sh\n" LAUNCH_HOLD
                             "while :; do sleep 1000 & wait; done\n");
    int fifo = launch_fifo(), server;
    launch l;

    CHECK(chmod(program, 0700) == 0);
    l = launch_start_command((char *[]){
        (char *)"--supervise", (char *)"--server_num=1", (char *)"--grace=0",
        (char *)"--log_dir", (char *)test_path("log"), (char *)program, NULL});
    server = launch_hear_all(fifo, 2, "PSERVER").self;
    CHECK(unlink(program) == 0 && kill(server, SIGKILL) == 0);
    CHECK_INT(launch_wait(l), 127);
    CHECK_CONTAINS(launch_err(), "the job has failed: server 0 cannot be "
                                 "started again: cannot execute ");
    launch_silence(fifo);
}

/* --- ports ---------------------------------------------------------------- */

static int connect_to(int port)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool is_connected(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    return info.tcpi_state == TCP_ESTABLISHED;
}

/* What connects while nobody runs is the next process's. */
TEST(the_port_stays_the_jobs_while_nobody_runs)
{
    held h = start_held("--supervise --server_num 1");
    int port = atoi(value_of(h.server, "PADDLE_PORT=")), fd;

    CHECK(kill(h.l.pid, SIGSTOP) == 0); /* it lets no stopped keeper be */
    CHECK(kill(h.keeper, SIGSTOP) == 0 && kill(h.server, SIGKILL) == 0);
    fd = connect_to(port);
    CHECK(fd >= 0);
    CHECK(kill(h.keeper, SIGCONT) == 0 && kill(h.l.pid, SIGCONT) == 0);
    launch_hear_all(h.fifo, 1, "PSERVER");
    CHECK(is_connected(fd));
    CHECK(kill(h.l.pid, SIGTERM) == 0);
    CHECK_INT(launch_wait(h.l), 143);
    CHECK(!is_connected(fd));
    close(fd);
}

TEST(the_port_goes_with_a_server_that_has_ended)
{
    int fifo = launch_fifo(), server, port, fd;
    launch l =
        launch_start("--supervise --server_num 1", LAUNCH_HOLD LAUNCH_SERVER
                     " && exec sleep 1000;" LAUNCH_WAIT);

    server = launch_hear_all(fifo, 2, "PSERVER").self;
    port = atoi(value_of(server, "PADDLE_PORT="));
    fd = connect_to(port);
    CHECK(fd >= 0);
    close(fd);
    CHECK(kill(server, SIGTERM) == 0);
    wait_for_words("killed by SIGTERM");
    CHECK(connect_to(port) < 0);
    launch_go();
    CHECK_INT(launch_wait(l), 143);
}

/* --- folders and flags ---------------------------------------------------- */

static const char show_folder[] =
    "stat -c 'MODE=%a' \"$FLEET_LOG_FOLDER\"; env; touch "
    "\"$FLEET_LOG_FOLDER/record\"";

TEST(journals_have_a_folder_of_the_job)
{
    const char *folder;
    char log[300];

    unsetenv("FLEET_LOG");
    unsetenv("FLEET_LOG_FOLDER");
    CHECK_INT(launch_run("--supervise --server_num 1", show_folder), 0);
    folder = launch_value("serverlog.0", "FLEET_LOG_FOLDER");
    snprintf(log, sizeof log, "%s/fleetrun-journals-", test_path("log"));
    CHECK(strncmp(folder, log, strlen(log)) == 0);
    CHECK(!exists(folder));
    CHECK_TEXT(launch_value("serverlog.0", "MODE"), "700");
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG"), "process");
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_LOG_FOLDER"), folder);
    CHECK_TEXT(launch_value("workerlog.0", "FLEET_LOG"), "process");
    CHECK_INT(launch_run("--server_num 1", "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG_FOLDER"), "(unset)");
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG"), "(unset)");
}

TEST(a_folder_of_journals_that_is_gone_is_named_at_once)
{
    unsetenv("FLEET_LOG");
    unsetenv("FLEET_LOG_FOLDER");
    CHECK_INT(launch_run("--supervise --server_num 1 --grace 0", LAUNCH_SERVER
                         " && { rm -r \"$FLEET_LOG_FOLDER\"; kill -9 $$; };"
                         "exec sleep 1000"),
              1);
    CHECK_CONTAINS(launch_err(), " cannot be started again: the folder of "
                                 "journals, ");
    CHECK_CONTAINS(launch_err(), ", is gone");
}

TEST(journals_of_the_user_stay)
{
    char flags[400];

    snprintf(flags, sizeof flags, "--supervise --server_num 1 --journals %s//",
             test_path("far/away"));
    setenv("FLEET_LOG", "power", 1);
    setenv("FLEET_LOG_FOLDER", test_path("elsewhere"), 1);
    CHECK_INT(launch_run(flags, show_folder), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG_FOLDER"),
               test_path("far/away"));
    CHECK_TEXT(launch_value("serverlog.0", "MODE"), "700");
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG"), "power");
    CHECK(exists(test_path("far/away/record")));
    CHECK_INT(launch_run("--supervise --server_num 1", "env"), 0);
    CHECK_TEXT(launch_value("serverlog.0", "FLEET_LOG_FOLDER"),
               test_path("elsewhere"));
}

/* A server that was killed with all of its job is looked for where it was. */
TEST(a_job_that_was_killed_as_a_whole_has_its_ports_again)
{
    static const char ports[] = "PADDLE_PSERVERS_IP_PORT_LIST";
    const char *script = "env; mkdir -p $FLEET_LOG_FOLDER/server-1;"
                         ">$FLEET_LOG_FOLDER/server-1/identity";
    char flags[400], identity[300];
    const char *first, *second;

    snprintf(flags, sizeof flags, "--supervise --server_num 2 --journals %s",
             test_path("kept"));
    CHECK_INT(launch_run(flags, script), 0);
    first = launch_value("workerlog.0", ports);
    CHECK_INT(launch_run(flags, "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", ports), first);
    snprintf(identity, sizeof identity, "%s/server-1/identity",
             test_path("kept"));
    CHECK(unlink(identity) == 0); /* it has ended: any ports will do */
    CHECK_INT(launch_run(flags, script), 0);
    second = launch_value("workerlog.0", ports);
    CHECK(strcmp(first, second) != 0);
    snprintf(flags, sizeof flags, "--supervise --server_num 3 --journals %s",
             test_path("kept"));
    CHECK_INT(launch_run(flags, "env"), 0);
    CHECK(!strstr(launch_value("workerlog.0", ports), second));
}

static void refuses(const char *flags, const char *words)
{
    CHECK_INT(launch_run(flags, "true"), 2);
    CHECK_CONTAINS(launch_err(), words);
}

TEST(flags_without_a_meaning_are_refused)
{
    refuses("--server_num 1 --restarts 3", "are for --supervise");
    refuses("--server_num 1 --restart_window 3", "are for --supervise");
    refuses("--server_num 1 --restart_delay 3", "are for --supervise");
    refuses("--server_num 1 --journals x", "is for --supervise");
    refuses("--supervise", "--supervise needs servers");
    refuses("--supervise --server_num 1 --worker_num 2 --collective",
            "--supervise: ranks cannot");
    refuses("--supervise --server_num 1 --restarts -1",
            "--restarts: expected an integer from 0 to 1000000");
    setenv("FLEET_LOG", "none", 1);
    refuses("--supervise --server_num 1", "FLEET_LOG is none");
}

/* --- several nodes -------------------------------------------------------- */

/* Each fleetrun looks after its own. */
TEST(each_node_starts_its_own_servers_again)
{
    int fifo = launch_fifo();
    char flags[300], lists[200];
    launch l[2];

    snprintf(lists, sizeof lists,
             "--supervise --insecure --servers 127.0.0.77:%d,127.0.0.78:%d "
             "--workers 127.0.0.77:1,127.0.0.78:1 --host",
             launch_free_port("127.0.0.77"), launch_free_port("127.0.0.78"));
    count_runs();
    for (int i = 0; i < 2; i++) {
        snprintf(flags, sizeof flags, "%s 127.0.0.%d", lists, 77 + i);
        l[i] = launch_start(
            flags, LAUNCH_HOLD LAUNCH_SERVER
            " && [ $POD_NAME = default.server.1 ] && {" RUN DIE_UP_TO(2) LAST
            "exit 0; };" WAIT_FOR_LAST);
    }
    launch_hear_all(fifo, 6, "");
    CHECK_INT(launch_wait(l[0]), 0);
    CHECK_INT(launch_wait(l[1]), 0);
    CHECK_CONTAINS(launch_err(), "2 restarts: 2 of server 1\n");
    launch_silence(fifo);
}
