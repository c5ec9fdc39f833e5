/* role_test.c - who a process is: what the environment and fleet_role say, what
 * of it is refused, and with which words. */
#define SUITE role
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/memory.h"
#include "base/thread.h"
#include "fleet/job/handle.h"

#define LIST "PADDLE_PSERVERS_IP_PORT_LIST"

/* What of PaddlePaddle's variables a launcher sets. */
static void be_worker(const char *id)
{
    setenv(LIST, "10.0.0.1:6000,10.0.0.2:6001", 1);
    setenv("PADDLE_TRAINERS_NUM", "3", 1);
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", id, 1);
}

static void be_server(const char *ip, const char *port)
{
    be_worker("0");
    setenv("TRAINING_ROLE", "PSERVER", 1);
    setenv("POD_IP", ip, 1);
    setenv("PADDLE_PORT", port, 1);
}

static fleet *open_fleet(const fleet_options *o)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, o));
    return f;
}

static fleet *open_role(fleet_role role)
{
    return open_fleet(&(fleet_options){.role = &role});
}

#define REFUSED(options, code, words)                                          \
    do {                                                                       \
        fleet *none;                                                           \
                                                                               \
        CHECK_FAILS(fleet_init(&none, options), code, words);                  \
        CHECK(none == NULL);                                                   \
    } while (0)

#define ROLE_REFUSED(code, words, ...)                                         \
    REFUSED((&(fleet_options){.role = &(fleet_role){__VA_ARGS__}}), code, words)

#define VARIABLE_REFUSED(name, value, code, words)                             \
    do {                                                                       \
        setenv(name, value, 1);                                                \
        REFUSED(NULL, code, words);                                            \
        unsetenv(name);                                                        \
    } while (0)

/* --- without servers ------------------------------------------------------ */

TEST(without_variables_a_process_is_the_only_worker)
{
    fleet *f = open_fleet(NULL);

    CHECK(fleet_is_worker(f) && fleet_is_first_worker(f));
    CHECK(!fleet_is_server(f));
    CHECK_INT(fleet_worker_index(f), 0);
    CHECK_INT(fleet_server_index(f), -1);
    CHECK_INT(fleet_worker_num(f), 1);
    CHECK_INT(fleet_server_num(f), 0);
    CHECK_TEXT(fleet_server_endpoints(f), "");
    fleet_destroy(f);
    CHECK_INT(fleet_is_worker(NULL) + fleet_is_server(NULL) +
                  fleet_is_first_worker(NULL) + fleet_worker_index(NULL) +
                  fleet_server_index(NULL) + fleet_worker_num(NULL) +
                  fleet_server_num(NULL),
              0);
    CHECK_TEXT(fleet_server_endpoints(NULL), "");
}

TEST(a_single_rank_of_a_scheduler_is_one_process)
{
    setenv("PADDLE_TRAINERS_NUM", "1", 1);
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    setenv(LIST, "", 1);
    fleet_destroy(open_fleet(NULL));
}

TEST(a_server_without_a_list_of_servers_is_refused)
{
    setenv("TRAINING_ROLE", "PSERVER", 1);
    REFUSED(NULL, FLEET_ENOENT,
            LIST " is not set, but TRAINING_ROLE is \"PSERVER\"");
    ROLE_REFUSED(FLEET_EINVAL, "role.server_endpoints: a server needs them",
                 .kind = FLEET_SERVER);
}

/* --- with servers --------------------------------------------------------- */

TEST(a_worker_is_what_the_environment_says)
{
    fleet *f;

    be_worker("2");
    f = open_fleet(NULL);
    CHECK(fleet_is_worker(f) && !fleet_is_first_worker(f));
    CHECK(!fleet_is_server(f));
    CHECK_INT(fleet_worker_index(f), 2);
    CHECK_INT(fleet_server_index(f), -1);
    CHECK_INT(fleet_worker_num(f), 3);
    CHECK_INT(fleet_server_num(f), 2);
    CHECK_TEXT(fleet_server_endpoints(f), "10.0.0.1:6000,10.0.0.2:6001");
    CHECK_TEXT(f->role.server[1], "tcp://10.0.0.2:6001");
    CHECK_TEXT(f->role.job_id, "default");
    CHECK_INT(f->role.listen_fd, -1);
    fleet_destroy(f);
}

TEST(a_server_finds_itself_in_the_list)
{
    fleet *f;

    be_server("10.0.0.2", "6001");
    setenv("PADDLE_JOB_ID", "job-7", 1);
    f = open_fleet(NULL);
    CHECK(fleet_is_server(f) && !fleet_is_worker(f));
    CHECK(!fleet_is_first_worker(f));
    CHECK_INT(fleet_server_index(f), 1);
    CHECK_INT(fleet_worker_index(f), -1);
    CHECK_INT(fleet_worker_num(f), 3);
    CHECK_TEXT(f->role.job_id, "job-7");
    fleet_destroy(f);
}

TEST(a_server_of_ipv6_finds_itself_with_brackets_and_without)
{
    static const char *const ips[] = {"fe80::2", "[fe80::2]"};

    for (int i = 0; i < 2; i++) {
        fleet *f;

        be_server(ips[i], "6000");
        setenv(LIST, "[fe80::1]:6000,[fe80::2]:6000", 1);
        f = open_fleet(NULL);
        CHECK_INT(fleet_server_index(f), 1);
        CHECK_TEXT(f->role.server[1], "tcp://[fe80::2]:6000");
        fleet_destroy(f);
    }
}

TEST(a_variable_that_is_missing_is_named)
{
    static const struct {
        const char *name, *expected;
        bool of_server;
    } need[] = {
        {"PADDLE_TRAINERS_NUM", "expected an integer from 1 to 4096", false},
        {"TRAINING_ROLE", "expected TRAINER, PSERVER or HETER_TRAINER", false},
        {"PADDLE_TRAINER_ID", "expected an integer from 0 to 2", false},
        {"POD_IP", "expected the address of this server", true},
        {"PADDLE_PORT", "expected an integer from 1 to 65535", true},
    };

    for (int i = 0; i < 5; i++) {
        char words[200];

        if (need[i].of_server)
            be_server("10.0.0.1", "6000");
        else
            be_worker("0");
        unsetenv(need[i].name);
        snprintf(words, sizeof words, "%s is not set, but " LIST " is: %s",
                 need[i].name, need[i].expected);
        REFUSED(NULL, FLEET_ENOENT, words);
    }
}

TEST(a_number_that_is_none_is_refused_with_what_came)
{
    static const char *const bad[] = {"0",
                                      "-1",
                                      "4097",
                                      "two",
                                      "1.5",
                                      "1 ",
                                      "+1",
                                      " 1",
                                      "1e2",
                                      "0x10",
                                      "99999999999999999999"};

    be_worker("0");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[200];

        setenv("PADDLE_TRAINERS_NUM", bad[i], 1);
        snprintf(words, sizeof words,
                 "PADDLE_TRAINERS_NUM is \"%s\": expected an integer from 1 "
                 "to 4096",
                 bad[i]);
        REFUSED(NULL, FLEET_EINVAL, words);
    }
    setenv("PADDLE_TRAINERS_NUM", "4096", 1);
    fleet_destroy(open_fleet(NULL));
}

TEST(a_worker_is_one_of_their_number)
{
    be_worker("3");
    REFUSED(NULL, FLEET_EINVAL,
            "PADDLE_TRAINER_ID is \"3\": expected an integer from 0 to 2");
    ROLE_REFUSED(FLEET_EINVAL, "role.index: expected 0 to 2, got 3", .index = 3,
                 .worker_num = 3, .server_endpoints = "a:1");
    ROLE_REFUSED(FLEET_EINVAL, "role.index: expected 0 to 0, got -1",
                 .index = -1);
    ROLE_REFUSED(FLEET_EINVAL, "role.index: expected 0 to 1, got 2", .index = 2,
                 .kind = FLEET_SERVER, .worker_num = 9,
                 .server_endpoints = "a:1,b:1");
    ROLE_REFUSED(FLEET_EINVAL, "role.worker_num: expected 1 to 4096, got 4097",
                 .worker_num = 4097, .server_endpoints = "a:1");
    ROLE_REFUSED(FLEET_EINVAL, "role.worker_num: expected 1 to 4096, got -1",
                 .worker_num = -1);
    ROLE_REFUSED(FLEET_EINVAL, "role.kind: expected 0 to 1, got 2",
                 .kind = (fleet_role_kind)2);
}

TEST(a_role_that_this_version_does_not_have_is_named)
{
    static const char *const roles[] = {"COORDINATOR", "trainer"};

    be_worker("0");
    for (int i = 0; i < 2; i++) {
        char words[100];

        setenv("TRAINING_ROLE", roles[i], 1);
        snprintf(words, sizeof words,
                 "TRAINING_ROLE is \"%s\": expected TRAINER, PSERVER or "
                 "HETER_TRAINER",
                 roles[i]);
        REFUSED(NULL, FLEET_EUNSUPPORTED, words);
    }
}

TEST(a_server_that_is_not_in_the_list_is_refused)
{
    be_server("10.0.0.1", "6001");
    REFUSED(NULL, FLEET_EINVAL,
            "POD_IP:PADDLE_PORT is \"10.0.0.1:6001\": expected one of " LIST
            ", \"10.0.0.1:6000,10.0.0.2:6001\"");
    setenv("POD_IP", "10.0.0", 1);
    REFUSED(NULL, FLEET_EINVAL, "POD_IP:PADDLE_PORT: \"10.0.0:6001\"");
    be_server("10.0.0.1", "65536");
    REFUSED(NULL, FLEET_EINVAL,
            "PADDLE_PORT is \"65536\": expected an integer from 1 to 65535");
}

/* --- lists of endpoints --------------------------------------------------- */

TEST(a_server_that_joins_has_a_number_and_an_address_of_its_own)
{
    fleet *f;

    be_server("10.0.0.9", "6000");
    setenv("FLEET_LISTEN_FD", "999", 1); /* of another server's environment */
    setenv("FLEET_JOIN", "1", 1);
    REFUSED(NULL, FLEET_EINVAL, "FLEET_JOIN is \"1\": expected an integer");
    setenv("FLEET_JOIN", "3", 1);
    f = open_fleet(NULL);
    CHECK(f->role.joins);
    CHECK_INT(f->role.index, 3);
    CHECK_INT(f->role.server_num, 2);
    CHECK_TEXT(f->role.server[3], "tcp://10.0.0.9:6000");
    fleet_destroy(f);
    setenv("POD_IP", "10.0.0.2", 1);
    setenv("PADDLE_PORT", "6001", 1);
    REFUSED(NULL, FLEET_EINVAL,
            "FLEET_JOIN is 3, but \"10.0.0.2:6001\" is in " LIST);
    unsetenv("FLEET_JOIN");
}

TEST(a_malformed_endpoint_is_refused_with_what_came)
{
    static const char *const bad[] = {
        "10.0.0.1",     "10.0.0.1:",      ":6000",
        "10.0.0.1:0",   "10.0.0.1:65536", "10.0.0.1:x",
        "10.0.0:600",   "10.0.0.256:600", "fe80::1:600",
        "[fe80::1:600", "[x]:600",        "[]:600",
        "a b:600",      "tcp://a:600",    "inproc://",
        "a:+600",       "[fe80::1]600",   "a:99999999999999999999"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char list[100], words[200];

        snprintf(list, sizeof list, "10.0.0.9:1,%s", bad[i]);
        snprintf(words, sizeof words,
                 "role.server_endpoints: \"%s\": expected ip:port, with a port "
                 "from 1 to 65535",
                 bad[i]);
        ROLE_REFUSED(FLEET_EINVAL, words, .server_endpoints = list);
    }
    ROLE_REFUSED(FLEET_EINVAL, "\"\": expected ip:port",
                 .server_endpoints = "a:1,");
    be_worker("0");
    setenv(LIST, "10.0.0.1:6000,,10.0.0.2:6000", 1);
    REFUSED(NULL, FLEET_EINVAL, LIST ": \"\": expected ip:port");
}

TEST(an_endpoint_that_stands_twice_is_refused)
{
    be_worker("0");
    setenv(LIST, "a:1,b:1, a:1", 1);
    REFUSED(NULL, FLEET_EINVAL,
            LIST ": \"a:1\" stands twice in \"a:1,b:1, a:1\"");
    ROLE_REFUSED(FLEET_EINVAL, "\"a:01\" stands twice",
                 .server_endpoints = "a:1,a:01");
    ROLE_REFUSED(FLEET_EINVAL, "\"inproc://x\" stands twice",
                 .server_endpoints = "inproc://x,inproc://x");
}

static char *endpoints(int n)
{
    char *list = malloc((size_t)n * 20), *at = list;

    for (int i = 0; i < n; i++)
        at += sprintf(at, "%sh:%d", i ? "," : "", i + 1);
    return list;
}

TEST(there_are_at_most_128_servers)
{
    char *list = endpoints(128), *more = endpoints(129);
    fleet *f = open_role((fleet_role){.server_endpoints = list});

    CHECK_INT(fleet_server_num(f), 128);
    CHECK_TEXT(f->role.server[127], "tcp://h:128");
    fleet_destroy(f);
    ROLE_REFUSED(FLEET_EINVAL, "role.server_endpoints: more than 128 servers",
                 .server_endpoints = more);
    free(list);
    free(more);
}

TEST(an_endpoint_has_at_most_121_characters)
{
    char host[200] = "";

    memset(host, 'h', 119);
    strcpy(host + 119, ":1");
    fleet_destroy(open_role((fleet_role){.server_endpoints = host}));
    strcpy(host + 119, "h:1");
    ROLE_REFUSED(FLEET_EINVAL, "an endpoint of more than 121 characters",
                 .server_endpoints = host);
}

/* --- the struct ----------------------------------------------------------- */

TEST(the_struct_wins_over_the_environment)
{
    fleet *f;

    setenv(LIST, "nonsense", 1);
    f = open_role((fleet_role){.kind = FLEET_SERVER,
                               .index = 1,
                               .worker_num = 2,
                               .server_endpoints = "inproc://a, inproc://b",
                               .job_id = "mine"});
    CHECK(fleet_is_server(f));
    CHECK_INT(fleet_server_index(f), 1);
    CHECK_INT(fleet_worker_num(f), 2);
    CHECK_TEXT(f->role.server[1], "inproc://b");
    CHECK_TEXT(f->role.job_id, "mine");
    CHECK_INT(f->role.listen_fd, -1);
    fleet_destroy(f);
    f = open_role((fleet_role){0}); /* alone, whatever the variables say */
    CHECK_INT(fleet_server_num(f), 0);
    fleet_destroy(f);
}

TEST(a_role_opens_without_memory_or_says_so)
{
    fleet_role role = {.server_endpoints = "a:1,b:1", .job_id = "j"};
    fleet_options o = {.role = &role};
    fleet_status status = FLEET_ENOMEM;

    for (int64_t n = 1; status == FLEET_ENOMEM; n++) {
        fl_role r;

        fl_memory_fail_at(n, false);
        status = fl_role_open(&r, &o);
        fl_memory_fail_at(0, false);
        fl_role_done(&r);
        CHECK(n < 10);
    }
    CHECK_OK(status);
}

/* --- sockets -------------------------------------------------------------- */

static int listening(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(listen(fd, 5) == 0);
    return fd;
}

TEST(an_inherited_socket_is_taken_if_it_listens)
{
    int fd = listening(), other = socket(AF_INET, SOCK_STREAM, 0);
    char text[20];
    fleet *f;

    f = open_role((fleet_role){
        .kind = FLEET_SERVER, .server_endpoints = "a:1", .listen_fd = fd});
    CHECK_INT(f->role.listen_fd, fd);
    fleet_destroy(f);
    be_server("10.0.0.1", "6000");
    snprintf(text, sizeof text, "%d", fd);
    setenv("FLEET_LISTEN_FD", text, 1);
    f = open_fleet(NULL);
    CHECK_INT(f->role.listen_fd, fd);
    fleet_destroy(f);
    snprintf(text, sizeof text, "%d", other);
    setenv("FLEET_LISTEN_FD", text, 1);
    REFUSED(NULL, FLEET_EINVAL, "expected the descriptor of a listening");
    close(other);
    REFUSED(NULL, FLEET_EINVAL, "FLEET_LISTEN_FD is ");
    close(fd);
    VARIABLE_REFUSED("FLEET_LISTEN_FD", "x", FLEET_EINVAL,
                     "FLEET_LISTEN_FD is \"x\": expected an integer");
    ROLE_REFUSED(FLEET_EINVAL, "role.listen_fd is -2", .kind = FLEET_SERVER,
                 .server_endpoints = "a:1", .listen_fd = -2);
    fleet_destroy(open_role((fleet_role){
        .kind = FLEET_SERVER, .server_endpoints = "a:1", .listen_fd = -1}));
}

TEST(lanes_and_their_ports_are_read_and_checked)
{
    int cpus = fl_cpu_count(), want = cpus / 4 < 2 ? 2 : cpus / 4;
    fleet *f;

    be_server("10.0.0.1", "6000");
    f = open_fleet(NULL);
    CHECK_INT(f->role.lanes, cpus < 2 ? 1 : want > 16 ? 16 : want);
    CHECK_INT(f->role.lane_port[1], 0);
    fleet_destroy(f);
    setenv("FLEET_SERVER_LANES", "3", 1);
    setenv("FLEET_LANE_PORTS", "7001,7002", 1);
    f = open_fleet(NULL);
    CHECK_INT(f->role.lanes, 3);
    CHECK_INT(f->role.lane_port[1], 7001);
    CHECK_INT(f->role.lane_port[2], 7002);
    fleet_destroy(f);
    f = open_fleet(&(fleet_options){.server_lanes = 2}); /* more than needed */
    CHECK_INT(f->role.lanes, 2);
    fleet_destroy(f);
    VARIABLE_REFUSED("FLEET_LANE_PORTS", "7001", FLEET_EINVAL,
                     "FLEET_LANE_PORTS is \"7001\": expected ports from 1 to "
                     "65535 with commas, one for "
                     "each lane but the first of 3");
    VARIABLE_REFUSED("FLEET_LANE_PORTS", "7001,7002,x", FLEET_EINVAL,
                     "\"7001,7002,x\"");
    VARIABLE_REFUSED("FLEET_LANE_PORTS", "7001,0", FLEET_EINVAL, "\"7001,0\"");
    VARIABLE_REFUSED("FLEET_SERVER_LANES", "17", FLEET_EINVAL,
                     "FLEET_SERVER_LANES is \"17\": expected an integer from 1 "
                     "to 16");
    REFUSED(&(fleet_options){.server_lanes = 17}, FLEET_EINVAL,
            "server_lanes: expected 0 to 16, got 17");
}

/* So many servers that keys are shared out into 1,024 buckets. */
TEST(more_lanes_than_can_keep_anything_are_refused)
{
    char list[2048] = "", *at = list;
    fleet *f;

    for (int i = 0; i < 100; i++)
        at += sprintf(at, "%s10.0.0.1:%d", i ? "," : "", 6000 + i);
    be_server("10.0.0.1", "6000");
    setenv("PADDLE_PSERVERS_IP_PORT_LIST", list, 1);
    REFUSED(&(fleet_options){.server_lanes = 11}, FLEET_EINVAL,
            "server_lanes: 11 lanes of each of 100 servers: expected at most "
            "10, as all servers together have at most 1024");
    f = open_fleet(&(fleet_options){.server_lanes = 10});
    CHECK_INT(f->role.lanes, 10);
    fleet_destroy(f);
}

/* --- deadlines ------------------------------------------------------------ */

TEST(a_deadline_is_the_options_or_the_environments_or_the_default)
{
    fleet *f;

    f = open_fleet(NULL);
    CHECK_INT(f->role.deadline_ms[FL_CONNECT_DEADLINE], 60000);
    CHECK_INT(f->role.deadline_ms[FL_REQUEST_DEADLINE], 30000);
    CHECK_INT(f->role.deadline_ms[FL_PEER_DEADLINE], 10000);
    CHECK_INT(f->role.deadline_ms[FL_STEP_DEADLINE], 600000);
    fleet_destroy(f);
    setenv("FLEET_CONNECT_DEADLINE_MS", "1", 1);
    setenv("FLEET_REQUEST_DEADLINE_MS", "2", 1);
    setenv("FLEET_PEER_DEADLINE_MS", "3", 1);
    setenv("FLEET_STEP_DEADLINE_MS", "2147483647", 1);
    f = open_fleet(&(fleet_options){.peer_deadline_ms = 2000});
    CHECK_INT(f->role.deadline_ms[FL_CONNECT_DEADLINE], 1);
    CHECK_INT(f->role.deadline_ms[FL_REQUEST_DEADLINE], 2);
    CHECK_INT(f->role.deadline_ms[FL_PEER_DEADLINE], 2000);
    CHECK_INT(f->role.deadline_ms[FL_STEP_DEADLINE], INT32_MAX);
    fleet_destroy(f);
}

TEST(a_deadline_that_cannot_be_is_refused_by_name)
{
    VARIABLE_REFUSED("FLEET_PEER_DEADLINE_MS", "0", FLEET_EINVAL,
                     "FLEET_PEER_DEADLINE_MS is \"0\": expected an integer "
                     "from 1 to 2147483647");
    VARIABLE_REFUSED("FLEET_CONNECT_DEADLINE_MS", "2s", FLEET_EINVAL,
                     "FLEET_CONNECT_DEADLINE_MS is \"2s\"");
    REFUSED(&(fleet_options){.step_deadline_ms = -1}, FLEET_EINVAL,
            "step_deadline_ms: expected 0 to 2147483647, got -1");
    REFUSED((&(fleet_options){.request_deadline_ms = (int64_t)1 << 40}),
            FLEET_EINVAL, "request_deadline_ms: expected 0 to 2147483647");
}

TEST(switches_are_kept_or_refused)
{
    fleet *f;

    setenv("FLEET_TRANSPORT", "tcp", 1);
    f = open_fleet(&(fleet_options){.no_sigterm_handler = 1});
    CHECK(f->role.tcp_only && f->role.no_sigterm_handler);
    fleet_destroy(f);
    unsetenv("FLEET_TRANSPORT");
    f = open_fleet(NULL);
    CHECK(!f->role.tcp_only && !f->role.no_sigterm_handler);
    fleet_destroy(f);
    VARIABLE_REFUSED("FLEET_TRANSPORT", "udp", FLEET_EINVAL,
                     "FLEET_TRANSPORT is \"udp\": expected \"tcp\"");
    REFUSED(&(fleet_options){.no_sigterm_handler = 2}, FLEET_EINVAL,
            "no_sigterm_handler: expected 0 to 1, got 2");
    REFUSED(&(fleet_options){.keep_descriptor_limit = -1}, FLEET_EINVAL,
            "keep_descriptor_limit: expected 0 to 1, got -1");
}

/* --- what follows from a role --------------------------------------------- */

TEST(files_are_shared_out_in_blocks)
{
    static const int64_t want[3][2] = {{0, 3}, {3, 2}, {5, 2}};
    int64_t first, count;
    fleet *f;

    for (int w = 0; w < 3; w++) {
        f = open_role((fleet_role){
            .index = w, .worker_num = 3, .server_endpoints = "a:1"});
        CHECK_OK(fleet_util_file_shard(f, 7, &first, &count));
        CHECK_INT(first, want[w][0]);
        CHECK_INT(count, want[w][1]);
        CHECK_OK(fleet_util_file_shard(f, 1, &first, &count));
        CHECK_INT(count, w == 0);
        fleet_destroy(f);
    }
    f = open_role(
        (fleet_role){.kind = FLEET_SERVER, .server_endpoints = "a:1"});
    CHECK_OK(fleet_util_file_shard(f, 7, &first, &count));
    CHECK_INT(count, 0);
    fleet_destroy(f);
}

TEST(the_closing_line_says_mode_workers_and_servers)
{
    fleet *f = open_role((fleet_role){
        .index = 1, .worker_num = 2, .server_endpoints = "a:1,b:1,c:1"});
    char *line = fleet_report_line(f, &(fleet_report){.model = "mlp"});

    CHECK_CONTAINS(line, "\"mode\":\"ps-async\",\"device\":\"cpu\","
                         "\"workers\":2,\"servers\":3,");
    fleet_free(line);
    fleet_destroy(f);
}

TEST(calls_of_the_other_role_are_refused)
{
    fleet *f = open_role((fleet_role){.server_endpoints = "a:1"});

    CHECK_FAILS(fleet_init_server(f, NULL), FLEET_ESTATE, "is a worker");
    CHECK_FAILS(fleet_run_server(f), FLEET_ESTATE, "is a worker");
    CHECK_FAILS(fleet_init_worker(f), FLEET_ESTATE, "fleet_minimize()");
    fleet_destroy(f);
}
