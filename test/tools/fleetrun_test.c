/* fleetrun_test.c - how fleetrun starts a job: flags, environment, ports,
 * descriptors, output. How it ends one is in fleetrun_ends_test.c. */
#define _GNU_SOURCE
#define SUITE fleetrun
#include "launch_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_value(const char *log, const char *variable, const char *want)
{
    CHECK_TEXT(launch_value(log, variable), want);
}

/* The i-th entry of a list of endpoints. */
static const char *entry(const char *list, int i)
{
    char text[100];

    for (; i > 0; i--) {
        CHECK(strchr(list, ','));
        list = strchr(list, ',') + 1;
    }
    snprintf(text, sizeof text, "%.*s", (int)strcspn(list, ","), list);
    return test_keep(text);
}

static void check_own_endpoint(const char *log, const char *list, int i)
{
    char own[100];

    snprintf(own, sizeof own, "%s:%s", launch_value(log, "POD_IP"),
             launch_value(log, "PADDLE_PORT"));
    CHECK_TEXT(own, entry(launch_value(log, list), i));
}

static void check_common(const char *log)
{
    check_value(log, "PADDLE_TRAINERS_NUM", "3");
    check_value(log, "PADDLE_NNODES", "1");
    check_value(log, "PADDLE_JOB_ID", "night");
    check_value(log, "PADDLE_LOG_DIR", test_path("log"));
    CHECK_TEXT(launch_value(log, "PADDLE_PSERVERS_IP_PORT_LIST"),
               launch_value("serverlog.0", "PADDLE_PSERVERS_IP_PORT_LIST"));
    CHECK_TEXT(launch_value(log, "PADDLE_TRAINER_ENDPOINTS"),
               launch_value("serverlog.0", "PADDLE_TRAINER_ENDPOINTS"));
}

TEST(tells_a_server_its_part)
{
    setenv("PADDLE_TRAINER_ID", "77", 1); /* another launcher's */
    CHECK_INT(launch_run("--server_num 2 --worker_num 3 --job_id night", "env"),
              0);
    for (int i = 0; i < 2; i++) {
        const char *log = i ? "serverlog.1" : "serverlog.0";

        check_common(log);
        check_value(log, "TRAINING_ROLE", "PSERVER");
        check_value(log, "PADDLE_ROLE", "PSERVER");
        check_value(log, "PADDLE_TRAINER_ID", "(unset)");
        check_value(log, "POD_NAME", i ? "night.server.1" : "night.server.0");
        check_own_endpoint(log, "PADDLE_PSERVERS_IP_PORT_LIST", i);
    }
}

TEST(tells_a_worker_its_part)
{
    setenv("FLEET_LISTEN_FD", "7", 1);
    CHECK_INT(launch_run("--server_num 2 --worker_num 3 --job_id night", "env"),
              0);
    for (int i = 0; i < 3; i++) {
        char log[24], id[12], name[40];

        snprintf(log, sizeof log, "workerlog.%d", i);
        snprintf(id, sizeof id, "%d", i);
        snprintf(name, sizeof name, "night.worker.%d", i);
        check_common(log);
        check_value(log, "TRAINING_ROLE", "TRAINER");
        check_value(log, "PADDLE_ROLE", "TRAINER");
        check_value(log, "PADDLE_TRAINER_ID", id);
        check_value(log, "POD_NAME", name);
        check_value(log, "FLEET_LISTEN_FD", "(unset)");
        check_own_endpoint(log, "PADDLE_TRAINER_ENDPOINTS", i);
    }
}

TEST(divides_processors_unless_the_user_has)
{
    unsetenv("OMP_NUM_THREADS");
    unsetenv("GOMP_SPINCOUNT");
    setenv("FLEET_NUM_THREADS", "5", 1);
    CHECK_INT(launch_run("--server_num 1 --worker_num 99", "env"), 0);
    check_value("workerlog.98", "FLEET_NUM_THREADS", "5");
    CHECK_INT(atoi(launch_value("workerlog.98", "OMP_NUM_THREADS")) >= 1, 1);
    CHECK(atoi(launch_value("workerlog.98", "OMP_NUM_THREADS")) <=
          (int)sysconf(_SC_NPROCESSORS_ONLN) / 100 + 1);
    check_value("workerlog.98", "GOMP_SPINCOUNT", "0");
}

TEST(runs_one_worker_without_servers_as_it_is)
{
    setenv("PADDLE_TRAINERS_NUM", "3", 1);
    setenv("TRAINING_ROLE", "TRAINER", 1);
    CHECK_INT(launch_run("", "env"), 0);
    CHECK(!strstr(launch_log("workerlog.0"), "PADDLE"));
    check_value("workerlog.0", "TRAINING_ROLE", "(unset)");
}

/* --- sockets -------------------------------------------------------------- */

/* What a server of the test below is: this program, once more. Here and not in
 * a script, which cannot ask a socket. */
static void say_whether_it_listens(void)
{
    int fd = atoi(getenv("FLEET_LISTEN_FD")), yes = 0;
    struct sockaddr_in a;
    socklen_t size = sizeof a, n = sizeof yes;

    if (getsockname(fd, (struct sockaddr *)&a, &size) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &n) == 0)
        printf("%s %s %s\n", yes ? "listens" : "does not listen",
               inet_ntoa(a.sin_addr),
               ntohs(a.sin_port) == atoi(getenv("PADDLE_PORT")) ? "as told"
                                                                : "elsewhere");
    fflush(stdout);
}

__attribute__((constructor)) static void be_a_server(void)
{
    if (!getenv("TEST_LISTENS"))
        return;
    if (getenv("FLEET_LISTEN_FD"))
        say_whether_it_listens();
    _exit(0);
}

TEST(gives_a_server_a_socket_that_listens_on_its_port)
{
    const char *log = test_path("log");

    setenv("TEST_LISTENS", "1", 1);
    CHECK_INT(
        launch_command((char *[]){(char *)"--server_num=2", (char *)"--log_dir",
                                  (char *)log, (char *)test_program(), NULL}),
        0);
    CHECK_TEXT(launch_log("serverlog.0"), "listens 127.0.0.1 as told\n");
    CHECK_TEXT(launch_log("serverlog.1"), "listens 127.0.0.1 as told\n");
    CHECK_TEXT(launch_log("workerlog.0"), "");
}

TEST(passes_no_other_descriptor_on)
{
    char want[32];

    CHECK(dup2(2, 50) == 50); /* of whoever starts fleetrun */
    CHECK_INT(launch_run("--server_num 3 --worker_num 2",
                         "echo FD=$FLEET_LISTEN_FD; ls /proc/$$/fd; true"),
              0);
    CHECK_TEXT(launch_log("workerlog.0"), "FD=\n0\n1\n2\n");
    CHECK_TEXT(launch_log("workerlog.1"), "FD=\n0\n1\n2\n");
    snprintf(want, sizeof want, "FD=%s\n0\n1\n2\n%s\n",
             launch_value("serverlog.2", "FD"),
             launch_value("serverlog.2", "FD"));
    CHECK_TEXT(launch_log("serverlog.2"), want);
}

TEST(starts_fifty_times_without_a_clash_of_ports)
{
    for (int i = 0; i < 25; i++) {
        launch a = launch_start("--server_num 2 --worker_num 2", "true");
        launch b = launch_start("--server_num 2 --worker_num 2", "true");

        CHECK_INT(launch_wait(a), 0);
        CHECK_INT(launch_wait(b), 0);
    }
}

/* Of an address that no other test has ports of. */
TEST(counts_ports_from_the_first_one)
{
    int port = launch_free_port("127.0.0.79");
    char flags[100], want[100];

    port = port > 65000 ? port - 1000 : port;
    snprintf(flags, sizeof flags,
             "--host 127.0.0.79 --server_num 2 --worker_num 1 --start_port %d",
             port);
    CHECK_INT(launch_run(flags, "env"), 0);
    snprintf(want, sizeof want, "127.0.0.79:%d,127.0.0.79:%d", port, port + 1);
    check_value("workerlog.0", "PADDLE_PSERVERS_IP_PORT_LIST", want);
    snprintf(want, sizeof want, "%d", port + 2);
    check_value("workerlog.0", "PADDLE_PORT", want);
}

TEST(names_a_port_that_is_taken)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char flags[100], want[100];

    CHECK(bind(fd, (struct sockaddr *)&a, size) == 0 && listen(fd, 1) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &size) == 0);
    snprintf(flags, sizeof flags, "--servers 127.0.0.1:%d", ntohs(a.sin_port));
    CHECK_INT(launch_run(flags, "true"), 1);
    snprintf(want, sizeof want,
             "cannot listen on 127.0.0.1:%d: Address already in use",
             ntohs(a.sin_port));
    CHECK_CONTAINS(launch_err(), want);
    close(fd);
}

/* --- several nodes -------------------------------------------------------- */

static const char *two_nodes(void)
{
    char flags[300];

    snprintf(flags, sizeof flags,
             "--insecure --servers 127.0.0.1:%d,127.0.0.2:%d "
             "--trainers 127.0.0.2:9001,127.0.0.1:9002,127.0.0.1:9003",
             launch_free_port("127.0.0.1"), launch_free_port("127.0.0.2"));
    return test_keep(flags);
}

static bool has_log(const char *name)
{
    return strcmp(launch_log(name), "(no such file)") != 0;
}

TEST(starts_what_is_on_this_node)
{
    char flags[400];

    snprintf(flags, sizeof flags, "%s --host 127.0.0.2", two_nodes());
    CHECK_INT(launch_run(flags, "env"), 0);
    CHECK(has_log("serverlog.1") && has_log("workerlog.0"));
    CHECK(!has_log("serverlog.0") && !has_log("workerlog.1") &&
          !has_log("workerlog.2"));
    check_value("serverlog.1", "PADDLE_NNODES", "2");
    check_value("serverlog.1", "PADDLE_TRAINERS_NUM", "3");
    check_own_endpoint("serverlog.1", "PADDLE_PSERVERS_IP_PORT_LIST", 1);
    check_own_endpoint("workerlog.0", "PADDLE_TRAINER_ENDPOINTS", 0);
    CHECK_CONTAINS(launch_out(), "PADDLE_TRAINER_ID=0");
}

/* 0: this machine has no IPv6. */
static int free_ipv6_port(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) != 0)
        return 0;
    CHECK(getsockname(fd, (struct sockaddr *)&a, &size) == 0);
    close(fd);
    return ntohs(a.sin6_port);
}

/* Brackets are at the user's choice where no port follows. */
TEST(starts_servers_and_workers_on_ipv6)
{
    char flags[200];
    int port = free_ipv6_port();

    if (port == 0)
        test_skip("this machine has no IPv6");
    snprintf(flags, sizeof flags,
             "--servers [::1]:%d --workers [::1]:%d --host ::1", port,
             free_ipv6_port());
    CHECK_INT(launch_run(flags, "env"), 0);
    CHECK_TEXT(launch_err(), "");
    check_own_endpoint("serverlog.0", "PADDLE_PSERVERS_IP_PORT_LIST", 0);
    check_value("serverlog.0", "POD_IP", "[::1]");
    check_own_endpoint("workerlog.0", "PADDLE_TRAINER_ENDPOINTS", 0);
    CHECK_INT(launch_run("--server_num 1 --worker_num 1 --host ::1", "env"), 0);
    check_value("serverlog.0", "POD_IP", "[::1]");
    check_own_endpoint("serverlog.0", "PADDLE_PSERVERS_IP_PORT_LIST", 0);
}

TEST(knows_its_node_by_POD_IP)
{
    setenv("POD_IP", "127.0.0.1", 1);
    CHECK_INT(launch_run(two_nodes(), "env"), 0);
    CHECK(has_log("serverlog.0") && has_log("workerlog.1") &&
          has_log("workerlog.2"));
    CHECK(!has_log("serverlog.1") && !has_log("workerlog.0"));
    check_value("workerlog.2", "PADDLE_TRAINER_ID", "2");
    CHECK_TEXT(launch_out(), "");
}

TEST(refuses_a_node_that_has_no_part)
{
    setenv("POD_IP", "10.1.2.3", 1);
    CHECK_INT(launch_run(two_nodes(), "true"), 2);
    CHECK_CONTAINS(launch_err(), "none of the processes is on 10.1.2.3");
}

/* --- output --------------------------------------------------------------- */

TEST(writes_whole_lines_to_logs)
{
    CHECK_INT(launch_run("--server_num 1 --worker_num 2",
                         LAUNCH_SERVER " && { echo served; exit; };"
                                       "printf be; echo error >&2;"
                                       "printf 'gin\\nend'"),
              0);
    CHECK_TEXT(launch_log("serverlog.0"), "served\n");
    CHECK_CONTAINS(launch_log("workerlog.0"), "begin\n");
    CHECK_CONTAINS(launch_log("workerlog.1"), "begin\n");
    CHECK_CONTAINS(launch_log("workerlog.1"), "error\n");
    CHECK_CONTAINS(launch_log("workerlog.1"), "end");
}

TEST(begins_logs_anew)
{
    CHECK_INT(launch_run("", "echo once"), 0);
    CHECK_INT(launch_run("", "echo again"), 0);
    CHECK_TEXT(launch_log("workerlog.0"), "again\n");
}

/* Yesterday's worker 3 is not taken for one of today's. */
TEST(removes_the_logs_of_a_larger_job)
{
    static const char *const stay[] = {"workerlog.01", "workerlog.2.gz",
                                       "workerlog.", "notes", "serverlogs.7"};

    CHECK_INT(launch_run("--server_num 3 --worker_num 11", "true"), 0);
    CHECK(access(test_path("log/serverlog.2"), F_OK) == 0);
    CHECK(access(test_path("log/workerlog.10"), F_OK) == 0);
    for (int i = 0; i < 5; i++) {
        char name[40];

        snprintf(name, sizeof name, "log/%s", stay[i]);
        test_file(name, "");
    }
    CHECK_INT(launch_run("--server_num 1 --worker_num 2", "true"), 0);
    for (int i = 0; i < 11; i++) {
        char name[40];

        snprintf(name, sizeof name, "log/serverlog.%d", i);
        CHECK_INT(access(test_path(name), F_OK) == 0, i < 1);
        snprintf(name, sizeof name, "log/workerlog.%d", i);
        CHECK_INT(access(test_path(name), F_OK) == 0, i < 2);
    }
    for (int i = 0; i < 5; i++) {
        char name[40];

        snprintf(name, sizeof name, "log/%s", stay[i]);
        CHECK(access(test_path(name), F_OK) == 0);
    }
}

static const char speak[] = LAUNCH_SERVER
    " && exit; echo out$PADDLE_TRAINER_ID; echo err$PADDLE_TRAINER_ID >&2";

TEST(shows_the_stdout_of_worker_0)
{
    CHECK_INT(launch_run("--server_num 1 --worker_num 2", speak), 0);
    CHECK_TEXT(launch_out(), "out0\n");
    CHECK_TEXT(launch_err(), "");
}

TEST(shows_its_stderr_when_asked)
{
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --verbose", speak), 0);
    CHECK_TEXT(launch_out(), "out0\n");
    CHECK_TEXT(launch_err(), "err0\n");
}

TEST(goes_on_when_nobody_reads)
{
    int ends[2];
    launch l;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    close(ends[0]);
    l = launch_start_to(ends[1], "", "seq 20000; echo done >&2");
    CHECK_INT(launch_wait(l), 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "\n9999\n");
    close(ends[1]);
}

/* A result that is nowhere but in a log is not what was asked for. */
TEST(fails_when_its_output_is_full)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    CHECK(full >= 0);
    CHECK_INT(launch_wait(launch_start_to(full, "--server_num 1 --worker_num 2",
                                          "echo a result")),
              1);
    CHECK_CONTAINS(launch_err(),
                   "the output of worker 0 is lost: No space left on device; ");
    CHECK_CONTAINS(launch_err(), "workerlog.0 has all of it");
    CHECK_TEXT(launch_log("workerlog.0"), "a result\n");
    CHECK_INT(launch_wait(launch_start_to(full, "", "echo a result; exit 3")),
              3);
    close(full);
}

TEST(fails_when_nobody_can_be_helped)
{
    static const char *const flags[] = {"--help", "--version"};
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    for (int i = 0; i < 2; i++) {
        CHECK_INT(launch_wait(launch_start_to(full, flags[i], "")), 1);
        CHECK_CONTAINS(launch_err(), "stdout: No space left on device");
    }
    close(full);
}

/* As in a full folder: the reason of the failure is in no log. */
TEST(shows_what_a_log_does_not_take)
{
    const char *folder = test_path("log");

    CHECK(mkdir(folder, 0700) == 0);
    CHECK(symlink("/dev/full", test_path("log/serverlog.0")) == 0);
    CHECK_INT(launch_run("--server_num 1 --worker_num 1",
                         LAUNCH_SERVER " && { echo the reason >&2; exit 7; };"
                                       "sleep 60"),
              7);
    CHECK_CONTAINS(launch_err(), "fleetrun: a log is incomplete: No space left "
                                 "on device; its other lines follow\n");
    CHECK_CONTAINS(launch_err(), "\nthe reason\n");
}

TEST(shows_more_than_a_pipe_holds)
{
    int ends[2];
    char bytes[4096];
    size_t all = 0;
    ssize_t n;
    launch l;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    l = launch_start_to(ends[1], "", "seq 100000");
    close(ends[1]);
    while ((n = read(ends[0], bytes, sizeof bytes)) > 0)
        all += (size_t)n;
    CHECK_INT(all, 588895);
    CHECK_INT(launch_wait(l), 0);
    close(ends[0]);
}

TEST(makes_the_folder_of_the_logs)
{
    const char *path = test_path("a/b//c/");
    char *arguments[] = {(char *)"--log_dir", (char *)path, (char *)"true",
                         NULL};

    CHECK_INT(launch_command(arguments), 0);
    CHECK(access(test_path("a/b/c/workerlog.0"), F_OK) == 0);
}

TEST(names_a_folder_that_cannot_be_made)
{
    const char *path = test_file("plain", "a file");
    char below[300];

    snprintf(below, sizeof below, "%s/log", path);
    CHECK_INT(launch_command(
                  (char *[]){(char *)"--log_dir", below, (char *)"true", NULL}),
              1);
    CHECK_CONTAINS(launch_err(), below);
    CHECK_CONTAINS(launch_err(), "Not a directory");
}

/* --- flags ---------------------------------------------------------------- */

TEST(reads_values_behind_a_space_and_an_equal_sign)
{
    static const char *const same[] = {
        "--server_num 1 --worker_num 2", "--server_num=1 --worker_num=2",
        "--server_num=1 --trainer_num 2", "--server_num 1 --worker_num=2 --"};

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_INT(launch_run(same[i], "env"), 0);
        check_value("workerlog.1", "PADDLE_TRAINERS_NUM", "2");
    }
}

TEST(leaves_the_programs_flags_alone)
{
    char *arguments[] = {(char *)"--log_dir", (char *)test_path("log"),
                         (char *)"echo",      (char *)"--server_num",
                         (char *)"--help",    NULL};

    CHECK_INT(launch_command(arguments), 0);
    CHECK_TEXT(launch_out(), "--server_num --help\n");
}

TEST(refuses_wrong_use)
{
    static const struct {
        const char *flags, *words;
    } wrong[] = {
        {"--sever_num 1", "unknown flag --sever_num"},
        {"--server_nu 1", "unknown flag --server_nu;"},
        {"-n 1", "unknown flag -n"},
        {"--server_num x", "expected an integer from 0 to 128, got \"x\""},
        {"--server_num=", "--server_num: its value is missing"},
        {"--worker_num 0", "expected an integer from 1 to 4096, got \"0\""},
        {"--worker_num 2", "several workers need servers"},
        {"--server_num 0 --worker_num 2", "several workers need servers"},
        {"--workers a:1,b:2", "several workers need servers"},
        {"--servers a:1 --server_num 1", "--servers and --server_num"},
        {"--workers a:1 --worker_num 1", "--workers and --worker_num"},
        {"--servers 127.0.0.1", "expected ip:port, got \"127.0.0.1\""},
        {"--servers 127.0.0.1:1,", "expected ip:port, got \"\""},
        {"--servers 127.0.0.1:0", "expected an integer from 1 to 65535"},
        {"--servers a:1,a:1 --host a", "a:1 stands twice"},
        {"--servers 10.0.0.1:1,127.0.0.1:2", "with several nodes"},
        {"--server_num 9 --start_port 65530", "end above 65535"},
        {"--server_num 1 --servers_max 9 --start_port 65530",
         "--start_port: 10 ports from 65530 on end above 65535"},
        {"--servers a:1 --workers a:2 --start_port 9", "lists have ports"},
        {"--verbose=1", "--verbose takes no value"},
        {"--grace soon", "--grace: expected an integer"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(launch_run(wrong[i].flags, "true"), 2);
        CHECK_CONTAINS(launch_err(), wrong[i].words);
    }
}

TEST(refuses_to_start_nothing)
{
    CHECK_INT(launch_command((char *[]){NULL}), 2);
    CHECK_CONTAINS(launch_err(), "no program");
    CHECK_INT(launch_command((char *[]){(char *)"--log_dir", NULL}), 2);
    CHECK_CONTAINS(launch_err(), "--log_dir: its value is missing");
}

TEST(says_why_a_program_cannot_be_executed)
{
    char *log = (char *)test_path("log");
    char *text = (char *)test_file("text", "not a program");
    char *flags[] = {(char *)"--server_num=2", (char *)"--log_dir", log,
                     (char *)"no-such-program", NULL};

    CHECK_INT(launch_command(flags), 127);
    CHECK_TEXT(launch_err(), "fleetrun: cannot execute no-such-program: No "
                             "such file or directory\n");
    flags[3] = text;
    CHECK_INT(launch_command(flags), 126);
    CHECK_CONTAINS(launch_err(), "Permission denied");
}

TEST(explains_itself)
{
    CHECK_INT(launch_command((char *[]){(char *)"--help", NULL}), 0);
    CHECK_CONTAINS(launch_out(), "usage: fleetrun");
    CHECK_CONTAINS(launch_out(), "--server_num");
    CHECK_INT(launch_command((char *[]){(char *)"--version", NULL}), 0);
    CHECK_CONTAINS(launch_out(), "fleetrun ");
    CHECK_CONTAINS(launch_out(), fleet_version());
}
