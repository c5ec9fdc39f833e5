/* fleetrun_nodes_test.c - several nodes that find each other by --master: real
 * fleetruns on one machine, each with an address of loopback of its own. */
#define _GNU_SOURCE
#define SUITE fleetrun_nodes
#include "job_kit.h"
#include "launch_kit.h"
#include "net/keys.h"
#include "net/roster_message.h"
#include "net/socket.h"
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORD = 40 };

static int master_port; /* of 127.0.0.1 */

static const char *err_of(int node)
{
    char name[16];

    snprintf(name, sizeof name, "err.%d", node);
    return test_path(name);
}

static const char *out_of(int node)
{
    char name[16];

    snprintf(name, sizeof name, "out.%d", node);
    return test_path(name);
}

static const char *read_file(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = 0;
    return test_keep(text);
}

static void redirect(const char *path, int fd)
{
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (to < 0 || dup2(to, fd) < 0)
        _exit(99);
}

/* fleetrun as node 127.0.0.1, 127.0.0.2, ...: the flags are one text. */
static launch start_node(int node, const char *flags, const char *script)
{
    const char *err = err_of(node), *out = out_of(node);
    char *argv[MOST_WORD + 1] = {(char *)test_beside("fleetrun"),
                                 (char *)"--log_dir", (char *)test_path("log")};
    char text[1000], *rest = text;
    launch l = {.out = -1};
    int n = 3;

    if (!master_port)
        master_port = launch_free_port("127.0.0.1");
    snprintf(text, sizeof text, "--master 127.0.0.1:%d --host 127.0.0.%d %s",
             master_port, node + 1, flags);
    rest = (char *)test_keep(text);
    for (char *f = strtok(rest, " "); f; f = strtok(NULL, " ")) {
        CHECK(n < MOST_WORD - 3);
        argv[n++] = f;
    }
    argv[n++] = (char *)"sh";
    argv[n++] = (char *)"-c";
    argv[n] = (char *)test_keep(script);
    unlink(err); /* of the one before */
    l.pid = test_fork();
    if (l.pid > 0)
        return l;
    launch_take_signals();
    redirect(out, 1);
    redirect(err, 2);
    execv(argv[0], argv);
    _exit(98);
}

static void ends_with(launch l, int node, int status)
{
    int came = launch_wait(l);

    if (came != status)
        test_fail(__FILE__, __LINE__, "node %d ended with %d, not %d: %s", node,
                  came, status, read_file(err_of(node)));
}

static void says(int node, const char *words)
{
    CHECK_CONTAINS(read_file(err_of(node)), words);
}

static void wait_until_said(int node, const char *words)
{
    for (int i = 0; !strstr(read_file(err_of(node)), words); i++) {
        if (i == 3000 * TEST_SLOWNESS)
            test_fail(__FILE__, __LINE__, "node %d did not say \"%s\": %s",
                      node, words, read_file(err_of(node)));
        poll(NULL, 0, 10);
    }
}

static const char *make_keys(const char *name)
{
    const char *keys = test_path(name);

    CHECK_OK(fl_keys_make(keys, 6, 6));
    return keys;
}

/* --- a job ---------------------------------------------------------------- */

static const char show[] = "env; [ \"$TRAINING_ROLE\" = TRAINER ] ||"
                           " readlink /proc/self/fd/$FLEET_LISTEN_FD;";

static void check_same(const char *variable, const char *first, int n_server,
                       int n_worker)
{
    char log[32];

    for (int i = 0; i < n_server + n_worker; i++) {
        snprintf(log, sizeof log, "%s.%d",
                 i < n_server ? "serverlog" : "workerlog",
                 i < n_server ? i : i - n_server);
        CHECK_TEXT(launch_value(log, variable), first);
    }
}

TEST(nodes_agree_on_lists_and_ranks)
{
    static const char flags[] =
        "--insecure --nnodes 3 --server_num 1 --worker_num 2";
    const char *list;
    launch l[3];

    l[2] = start_node(2,
                      "--insecure --nnodes 3 --server_num 1 --worker_num 2 "
                      "--node_rank 2",
                      show); /* it waits for one that serves */
    l[0] = start_node(0, flags, show);
    wait_until_said(0, "node 127.0.0.3 has come: 2 of 3");
    l[1] = start_node(1, flags, show);
    for (int i = 0; i < 3; i++)
        ends_with(l[i], i, 0);
    list = launch_value("serverlog.0", "PADDLE_PSERVERS_IP_PORT_LIST");
    check_same("PADDLE_PSERVERS_IP_PORT_LIST", list, 3, 6);
    CHECK(strncmp(list, "127.0.0.1:", 10) == 0);
    CHECK_CONTAINS(list, ",127.0.0.2:");
    CHECK_CONTAINS(strstr(list, ",127.0.0.2:"), ",127.0.0.3:");
    list = launch_value("serverlog.0", "PADDLE_TRAINER_ENDPOINTS");
    check_same("PADDLE_TRAINER_ENDPOINTS", list, 3, 6);
    check_same("PADDLE_TRAINERS_NUM", "6", 3, 6);
    check_same("PADDLE_NNODES", "3", 3, 6);
    CHECK_TEXT(launch_value("workerlog.5", "POD_IP"), "127.0.0.3");
    CHECK_TEXT(launch_value("workerlog.2", "PADDLE_TRAINER_ID"), "2");
    CHECK_TEXT(launch_value("workerlog.2", "POD_IP"), "127.0.0.2");
    CHECK_CONTAINS(launch_log("serverlog.2"), "socket:");
}

/* As on a network's disk: each keeps the ports of its own. */
TEST(nodes_may_share_a_folder_of_journals)
{
    char flags[400], name[40];
    launch l[3];

    snprintf(flags, sizeof flags,
             "--insecure --nnodes 3 --server_num 1 --supervise --journals %s",
             test_path("journals"));
    for (int i = 0; i < 3; i++)
        l[i] = start_node(i, flags, "exit 0");
    for (int i = 0; i < 3; i++)
        ends_with(l[i], i, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "journals/ports-%d", i);
        CHECK(access(test_path(name), F_OK) == 0);
    }
}

/* The port is free for another job once this one runs, and nobody serves
 * there any more: what runs does not need it. */
TEST(a_job_that_runs_needs_no_master)
{
    const char *keys = make_keys("k");
    char flags[300];
    int fifo = launch_fifo();
    launch l[4];

    snprintf(flags, sizeof flags,
             "--keys %s --nnodes 2 --server_num 1 --worker_num 1", keys);
    for (int i = 0; i < 2; i++)
        l[i] = start_node(i, flags, LAUNCH_HOLD LAUNCH_WAIT);
    launch_hear_all(fifo, 4, "");
    for (int i = 2; i < 4; i++)
        l[i] = start_node(i, flags, "exit 0");
    for (int i = 2; i < 4; i++)
        ends_with(l[i], i, 0);
    launch_go();
    for (int i = 0; i < 2; i++)
        ends_with(l[i], i, 0);
}

TEST_LIMIT(training_has_the_bits_of_the_job_by_lists, 240)
{
    const char *config = job_epochs(job_adult("\"a_sync\": false"), 1),
               *keys = make_keys("k");
    const char *hash, *line;
    char flags[300];
    launch l[2];

    hash = job_hash(job_train("--server_num 2 --worker_num 2", config));
    snprintf(flags, sizeof flags,
             "--keys %s --nnodes 2 --server_num 1 --worker_num 1", keys);
    for (int i = 0; i < 2; i++)
        l[i] = start_node(i, flags, job_script(config));
    for (int i = 0; i < 2; i++)
        ends_with(l[i], i, 0);
    line = read_file(out_of(0)); /* of worker 0, on whichever node */
    CHECK_CONTAINS(*line ? line : read_file(out_of(1)), hash);
}

/* --- who does not belong -------------------------------------------------- */

TEST(other_command_lines_are_refused_and_the_job_waits)
{
    static const char flags[] =
        "--insecure --nnodes 2 --server_num 1 --worker_num 1";
    static const struct {
        const char *flags, *words;
    } other[] = {
        {"--insecure --nnodes 2 --server_num 1 --worker_num 2",
         "--worker_num is \"2\" on 127.0.0.2, but \"1\" on 127.0.0.1"},
        {"--insecure --nnodes 3 --server_num 1 --worker_num 1",
         "--nnodes is \"3\" on 127.0.0.2, but \"2\" on 127.0.0.1"},
        {"--insecure --nnodes 2 --server_num 1 --worker_num 1 --job_id b",
         "--job_id is \"b\" on 127.0.0.2, but \"default\" on 127.0.0.1, which "
         "serves --master: expected the same on all nodes; another job needs "
         "another port"},
        {"--insecure --nnodes 2 --server_num 1 --node_rank 0",
         "--node_rank of 127.0.0.2 is 0, but 127.0.0.1 is that node already"},
    };
    launch l[2];

    l[0] = start_node(0, flags, "exit 0");
    wait_until_said(0, "and waits for 2 nodes");
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        ends_with(start_node(1, other[i].flags, "exit 0"), 1, 2);
        says(1, "refuses this node: ");
        says(1, other[i].words);
        wait_until_said(0, other[i].words);
    }
    l[1] = start_node(1, flags, "exit 0");
    ends_with(l[1], 1, 0);
    ends_with(l[0], 0, 0);
}

/* A key of another job, or one that is not for this. */
TEST(nobody_without_a_key_of_a_process_comes)
{
    const char *keys = test_path("k"), *other = make_keys("other");
    const int n[] = {2, 2, 1, 1};
    char flags[300], address[64];
    fl_packet_pool *pool;
    fl_socket *s;
    fl_keys *own;
    fl_packet *p;
    fl_text text = {0};
    fl_roster_message m = {.kind = FL_ROSTER_JOIN,
                           .id = "x",
                           .rank = 1,
                           .host = "spy",
                           .rest = ""};
    launch l[2];

    setenv("FLEET_CONNECT_DEADLINE_MS", "1500", 1);
    CHECK_OK(fl_keys_make_all(keys, n));
    snprintf(flags, sizeof flags, "--keys %s --nnodes 2 --server_num 1", keys);
    l[0] = start_node(0, flags, "exit 0");
    snprintf(flags, sizeof flags,
             "--keys %s --nnodes 2 --server_num 1 --node_rank 1", other);
    l[1] = start_node(1, flags, "exit 0");
    CHECK_OK(fl_keys_read_as(&own, keys, FL_ROLE_SUBSCRIBER, 0));
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", master_port);
    CHECK_OK(fl_socket_connect_to(&s, address, own, 0));
    CHECK_OK(fl_packet_pool_create(&pool, 1 << 16));
    CHECK_OK(fl_packet_create(pool, &p));
    fl_roster_message_write(&m, &text);
    memcpy(fl_packet_add(p, text.length), text.chars, text.length);
    CHECK_OK(fl_socket_send(s, NULL, p));
    fl_packet_drop(p);
    ends_with(l[0], 0, 1);
    says(0, "only 1 of 2 nodes (--nnodes) have come within 1500 ms");
    CHECK(!strstr(read_file(err_of(0)), "spy"));
    ends_with(l[1], 1, 1);
    says(1, "no fleetrun has answered at --master");
    says(1, "with keys of the same folder? This node cannot serve it");
    fl_text_done(&text);
    fl_socket_close(s, 0);
    fl_packet_pool_destroy(pool);
    fl_keys_destroy(own);
}

/* --- who does not come ---------------------------------------------------- */

TEST(a_missing_node_is_counted_for_all)
{
    static const char flags[] = "--insecure --nnodes 3 --server_num 1";
    launch l[2];

    setenv("FLEET_CONNECT_DEADLINE_MS", "700", 1);
    l[0] = start_node(0, flags, "echo never");
    l[1] = start_node(1, "--insecure --nnodes 3 --server_num 1 --node_rank 1",
                      "echo never");
    for (int i = 0; i < 2; i++) {
        ends_with(l[i], i, 1);
        says(i, "only 2 of 3 nodes (--nnodes) have come within 700 ms "
                "(FLEET_CONNECT_DEADLINE_MS): 127.0.0.1, 127.0.0.2");
    }
    CHECK_CONTAINS(launch_log("workerlog.0"), "no such file");
}

/* Each knows of the other: what is killed from now on is missed. */
static launch begin_two_of_three(launch l[2])
{
    static const char flags[] = "--insecure --nnodes 3 --server_num 1";

    l[0] = start_node(0, flags, "echo never");
    l[1] = start_node(1, "--insecure --nnodes 3 --server_num 1 --node_rank 1",
                      "echo never");
    wait_until_said(0, "node 127.0.0.2 has come: 2 of 3");
    wait_until_said(1, " has answered");
    return l[1];
}

TEST(a_signal_ends_all_before_the_job_begins)
{
    launch l[2];

    begin_two_of_three(l);
    CHECK(kill(l[1].pid, SIGTERM) == 0);
    ends_with(l[1], 1, 128 + SIGTERM);
    ends_with(l[0], 0, 1);
    says(0, "node 127.0.0.2 has ended before the job began: ended by SIGTERM");
    begin_two_of_three(l); /* the one that serves */
    CHECK(kill(l[0].pid, SIGINT) == 0);
    ends_with(l[0], 0, 128 + SIGINT);
    ends_with(l[1], 1, 1);
    says(1, "node 127.0.0.1 has ended before the job began: ended by SIGINT");
}

/* All of a node, by its keeper: fleetrun's only child. */
static void kill_node(launch l)
{
    char path[100];
    int keeper = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", l.pid, l.pid);
    f = fopen(path, "r");
    CHECK(f && fscanf(f, "%d", &keeper) == 1);
    fclose(f);
    CHECK(kill(keeper, SIGKILL) == 0);
    launch_wait(l);
}

TEST(a_node_that_is_killed_is_named_by_all)
{
    launch l[2];

    setenv("FLEET_PEER_DEADLINE_MS", "500", 1);
    begin_two_of_three(l);
    kill_node(l[1]);
    ends_with(l[0], 0, 1);
    says(0, "node 127.0.0.2 came and has said nothing for 500 ms");
    begin_two_of_three(l);
    kill_node(l[0]);
    ends_with(l[1], 1, 1);
    says(1, "the node that serves --master");
    says(1, "has said nothing for 500 ms");
    begin_two_of_three(l); /* fleetrun alone: its keeper says so */
    CHECK(kill(l[1].pid, SIGKILL) == 0);
    launch_wait(l[1]);
    ends_with(l[0], 0, 1);
    says(0, "node 127.0.0.2 has ended before the job began: fleetrun was "
            "killed");
}

/* Its port is taken: the others hear why. */
TEST(a_node_that_cannot_begin_says_why)
{
    static const char flags[] = "--insecure --nnodes 2 --server_num 1";
    char more[200];
    launch l[2];
    int port;

    master_port = launch_free_port("127.0.0.1");
    do
        port = launch_free_port("127.0.0.2");
    while (port == master_port || port > 65000);
    snprintf(more, sizeof more, "%s --node_rank 1 --start_port %d", flags,
             port);
    l[1] = start_node(1, more, "exit 0");
    snprintf(more, sizeof more, "%s --start_port %d", flags, master_port);
    l[0] = start_node(0, more, "exit 0");
    ends_with(l[0], 0, 1); /* it serves there */
    says(0, "cannot listen on 127.0.0.1");
    ends_with(l[1], 1, 1);
    says(1, "node 127.0.0.1 has ended before the job began: cannot listen on "
            "127.0.0.1");
}

/* --- flags ---------------------------------------------------------------- */

TEST(wrong_flags_are_refused)
{
    static const struct {
        const char *flags, *words;
    } wrong[] = {
        {"--nnodes 2 --server_num 1", "--nnodes is 2: give --master, too"},
        {"--nnodes 2 --server_num 1 --master a", "expected ip:port, got \"a\""},
        {"--nnodes 2 --server_num 1 --master a:b", "its port: expected an "
                                                   "integer from 1 to 65535"},
        {"--nnodes 2 --server_num 1 --master a:1 --node_rank 2",
         "--node_rank: expected 0 to 1, one of --nnodes, got 2"},
        {"--nnodes 2 --server_num 1 --master a:1 --workers a:1,b:1",
         "--workers and --nnodes"},
        {"--nnodes 2 --server_num 1 --master a:1 --heter_worker_num 1",
         "with heter workers give lists"},
        {"--nnodes 2 --server_num 65 --master a:1",
         "65 on each of 2 nodes are more than 128"},
        {"--nnodes 2 --server_num 1 --servers_max 1 --master a:1",
         "--servers_max is 1, and the job begins with 2 servers"},
    };
    char flags[200];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(flags, sizeof flags, "--insecure %s", wrong[i].flags);
        CHECK_INT(launch_run(flags, "true"), 2);
        CHECK_CONTAINS(launch_err(), wrong[i].words);
    }
    CHECK_INT(
        launch_run("--nnodes 2 --server_num 1 --master 127.0.0.1:1", "true"),
        2);
    CHECK_CONTAINS(launch_err(), "servers of a job on several nodes need keys");
}

TEST(one_node_needs_no_other)
{
    CHECK_INT(
        launch_run("--nnodes 1 --server_num 1 --master 127.0.0.1:1", "env"), 0);
    CHECK_TEXT(launch_value("workerlog.0", "PADDLE_NNODES"), "1");
    CHECK_TEXT(launch_value("workerlog.0", "PADDLE_GLOBAL_SIZE"), "(unset)");
}
