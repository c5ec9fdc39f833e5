/* ps_strays_test.c - who is no part of a job does it no harm, and is told why:
 * workers of another job, program or number, garbage on a server's port. The
 * job that they disturb ends well, with the bits of one that was left alone. */
#define _GNU_SOURCE
#define SUITE ps_strays
#include "net_kit.h"
#include "ps/locality.h"
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <glob.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A job that is held before its first step. */
static ps_job held_job(void)
{
    return (ps_job){.workers = 2,
                    .work = ps_hold,
                    .connect_ms = 5 * PS_SECOND,
                    .peer_ms = PS_SECOND,
                    .file = {scene_file("a.txt", 200, 1)}};
}

static void open_held(ps_job *j)
{
    ps_start_all(j);
    ps_hear_held(j);
}

static void close_held(ps_job *j)
{
    ps_let_go(j);
    ps_check_all_end(j);
}

/* A worker of a job that is like that one but for something. */
static ps_node stray_of(ps_job *stray, const ps_job *j, const char *name)
{
    *stray = *j;
    stray->work = NULL;
    stray->connect_ms = 5 * PS_SECOND;
    return (ps_node){.job = stray, .said = test_path(name)};
}

static void check_told(ps_job *j, ps_node *stray, const char *code,
                       const char *words)
{
    ps_start(stray);
    ps_check_fails(stray, words);
    CHECK_CONTAINS(ps_said(stray), code);
    CHECK_CONTAINS(ps_said(stray), "server 0 at 127.0.0.1:");
    CHECK_CONTAINS(ps_said(ps_server(j, 0)), words);
}

TEST(who_is_of_another_job_is_told_what_differs)
{
    ps_job j = held_job(), other;
    ps_node stray;

    open_held(&j);
    stray = stray_of(&other, &j, "job");
    other.id = "elections";
    check_told(&j, &stray, "EINVAL",
               "the worker is of job \"elections\", this server of "
               "\"default\"");
    stray = stray_of(&other, &j, "number");
    other.workers = 3;
    check_told(&j, &stray, "EINVAL",
               "the worker counts 3 workers (PADDLE_TRAINERS_NUM), this server "
               "2");
    stray = stray_of(&other, &j, "strategy");
    other.how.a_sync = true;
    check_told(&j, &stray, "EINVAL",
               "the worker trains in mode ps-async, this server in ps-sync: "
               "all processes must have the same strategy");
    stray = stray_of(&other, &j, "program");
    other.how.optimizer = "sgd";
    check_told(&j, &stray, "EINVAL", "the programs differ: ");
    close_held(&j);
}

/* A stranger's newline would be a line of its own in the server's log, and an
 * escape an order to the terminal that shows it. */
TEST(what_a_stranger_says_is_written_out)
{
    ps_job j = held_job(), other;
    ps_node stray;

    open_held(&j);
    stray = stray_of(&other, &j, "job");
    other.id = "a\nserver 0: all is well\x1b[31m";
    check_told(&j, &stray, "EINVAL",
               "job \"a\\nserver 0: all is well\\x1b[31m\", this server of");
    close_held(&j);
}

TEST(a_worker_of_bfloat16_is_not_one_of_float)
{
    ps_job j = held_job(), other;
    ps_node stray;

    kit_need_bf16();
    open_held(&j);
    stray = stray_of(&other, &j, "amp");
    other.how.bf16 = true;
    check_told(&j, &stray, "EINVAL",
               "the worker trains in mode ps-sync, amp 1, amp_configs.use_bf16 "
               "1, this server in ps-sync: all processes must have the same "
               "strategy");
    close_held(&j);
}

TEST(two_workers_with_one_number_are_named_both)
{
    ps_job j = held_job(), other;
    char twin[64], first[64];
    ps_node stray;

    open_held(&j);
    stray = stray_of(&other, &j, "twin");
    ps_start(&stray);
    snprintf(twin, sizeof twin, ":%d says that it is worker 0, and so does ",
             (int)stray.pid);
    snprintf(first, sizeof first, ":%d, which was heard of ",
             (int)ps_worker(&j, 0)->pid);
    ps_check_fails(&stray, "FLEET_EEXIST");
    CHECK_CONTAINS(ps_said(&stray), twin);
    CHECK_CONTAINS(ps_said(&stray), first);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), twin);
    close_held(&j);
}

/* --- the port ------------------------------------------------------------- */

TEST(a_port_in_use_is_named)
{
    ps_job j = {
        .connect_ms = PS_SECOND, .request_ms = PS_SECOND, .peer_ms = PS_SECOND};
    char words[80];

    ps_prepare(&j);
    snprintf(words, sizeof words, "127.0.0.1:%d", j.port[0]);
    j.no_listen_fd = true;
    ps_start(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0), words);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "FLEET_EIO");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "in use");
}

static int knock(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static int knock_ipc(const char *folder)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char pattern[300];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/*-server-0-lane-0", folder);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    snprintf(a.sun_path, sizeof a.sun_path, "%.100s", found.gl_pathv[0]);
    globfree(&found);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* What it may send; who hangs up on us is in his right. */
static void say(int fd, const void *bytes, size_t size)
{
    (void)!send(fd, bytes, size, MSG_NOSIGNAL);
}

static void say_garbage(int fd, unsigned seed)
{
    uint8_t bytes[4000];

    net_fill_bytes(bytes, sizeof bytes, seed);
    say(fd, bytes, sizeof bytes);
}

/* A greeting of ZMTP 3.0, mechanism NULL; then a READY that is garbage. */
static void greet(int fd, unsigned seed)
{
    uint8_t greeting[64] = {0xFF, 0,    0, 0, 0,   0,   0,   0,
                            1,    0x7F, 3, 0, 'N', 'U', 'L', 'L'};

    say(fd, greeting, sizeof greeting);
    say_garbage(fd, seed);
}

/* A peer that speaks ZeroMQ, and sends what are no messages, or damaged
 * ones. */
static void send_nonsense(const char *address)
{
    fl_socket *s;

    net_open_pool();
    s = net_connect(address);
    for (unsigned i = 0; i < 20; i++) {
        fl_packet *p = net_sample(1 + (int)i % (FL_MSG_KINDS - 1), true);

        net_send(s, NULL, 1 + i * 100, i);
        ((uint8_t *)p->frame[i % (unsigned)p->n_frame].data)[0] ^=
            (uint8_t)(1 + i);
        CHECK_OK(fl_socket_send(s, NULL, p));
        fl_packet_drop(p);
    }
    fl_socket_close(s, 1000);
}

/* As the server says at its end. */
static int garbage_counted(ps_job *j)
{
    static const char words[] = "server 0, lane 0: ";
    const char *said = strstr(ps_said(ps_server(j, 0)), words);

    CHECK_CONTAINS(said, " packets were no messages, ");
    return atoi(said + sizeof words - 1);
}

TEST(garbage_on_a_servers_sockets_does_no_harm)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: server\r\n\r\n";
    ps_job j = held_job();
    char address[64];
    int open[30], n = 0;

    j.lanes = 2;
    open_held(&j);
    for (unsigned i = 0; i < 10; i++) {
        open[n] =
            i % 2 ? knock(j.port[0]) : knock_ipc(ps_folder(ps_server(&j, 0)));
        say_garbage(open[n++], i);
        open[n] = knock(j.port[0]);
        say(open[n++], http, sizeof http - 1);
        open[n] = knock(j.port[0]); /* a scanner, or one that stays silent */
        greet(open[n], i);
        if (i % 3 == 0)
            close(open[n]);
        else
            n++;
    }
    open[n++] = knock(j.port[0]);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j.port[0]);
    send_nonsense(address);
    close_held(&j);
    CHECK(garbage_counted(&j) >= 40);
    while (n > 0)
        close(open[--n]);
    net_end(NULL, NULL);
}

/* --- other versions ------------------------------------------------------- */

/* The version stands behind the magic number. */
static void set_version(fl_packet *p, uint8_t version)
{
    ((uint8_t *)p->frame[0].data)[4] = version;
}

static fl_packet *hello_packet(void)
{
    fl_msg_head head = {.version = FL_MSG_VERSION,
                        .kind = FL_MSG_HELLO,
                        .stream = 1,
                        .request = 7};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, net_pool, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, "{}");
    CHECK_OK(fl_msg_end(&w, true, &p));
    return p;
}

TEST(a_worker_of_another_version_is_told)
{
    ps_job j = held_job();
    char address[64];
    fl_packet *p;
    fl_msg msg;
    fl_socket *s;
    char *text;

    open_held(&j);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j.port[0]);
    net_open_pool();
    s = net_connect(address);
    p = hello_packet();
    set_version(p, FL_MSG_VERSION + 1);
    CHECK_OK(fl_socket_send(s, NULL, p));
    fl_packet_drop(p);
    p = net_receive(s, NULL);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.status, FL_ANSWER_REFUSED);
    CHECK_INT(msg.head.request, 7);
    CHECK_INT(msg.head.step, FLEET_EUNSUPPORTED);
    text = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    CHECK_CONTAINS(text, "the worker speaks protocol 2, this server 1");
    fleet_free(text);
    fl_packet_drop(p);
    net_end(s, NULL);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)),
                   "the worker speaks protocol 2, this server 1");
    close_held(&j);
}

/* A server that refuses in its own, newer words. */
static void refuse_as_newer(fl_socket *s)
{
    fl_peer from;
    fl_packet *p = net_receive(s, &from), *answer;
    fl_msg msg;
    fl_msg_writer w;

    CHECK_OK(fl_msg_decode(p, &msg));
    msg.head.kind = FL_MSG_ANSWER;
    msg.head.status = FL_ANSWER_REFUSED;
    msg.head.n_section = 0;
    fl_msg_begin(&w, net_pool, &msg.head);
    CHECK_OK(fl_msg_end(&w, true, &answer));
    set_version(answer, FL_MSG_VERSION + 1);
    CHECK_OK(fl_socket_send(s, &from, answer));
    fl_packet_drop(answer);
    fl_packet_drop(p);
}

TEST(a_worker_names_a_server_of_another_version)
{
    ps_job j = {.connect_ms = 20 * PS_SECOND};
    char address[64];
    fl_socket *s;

    ps_prepare(&j);
    ps_start(ps_worker(&j, 0));
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j.port[0]);
    net_open_pool();
    CHECK_OK(fl_socket_listen(&s));
    CHECK_OK(fl_socket_bind(s, address, j.listen_fd[0], NULL));
    refuse_as_newer(s);
    ps_check_fails(ps_worker(&j, 0), "speaks protocol 2, this worker 1");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "FLEET_EUNSUPPORTED");
    net_end(s, NULL);
}

/* --- the folder for sockets
 * ---------------------------------------------------
 */

TEST(a_folder_for_sockets_that_cannot_be_used_is_refused)
{
    fl_ipc_folder folder;
    char open_to_all[200];

    snprintf(open_to_all, sizeof open_to_all, "%s", test_path("open"));
    CHECK(mkdir(open_to_all, 0755) == 0 && chmod(open_to_all, 0755) == 0);
    setenv("FLEET_IPC_FOLDER", "/no/such/folder", 1);
    CHECK_FAILS(fl_ipc_folder_open(&folder), FLEET_EINVAL,
                "FLEET_IPC_FOLDER is \"/no/such/folder\": expected a folder of "
                "this user alone (mode 0700)");
    setenv("FLEET_IPC_FOLDER", open_to_all, 1);
    CHECK_FAILS(fl_ipc_folder_open(&folder), FLEET_EINVAL, "this user alone");
    unsetenv("FLEET_IPC_FOLDER");
    CHECK_OK(fl_ipc_folder_open(&folder));
    CHECK(folder.ours);
    fl_ipc_folder_close(&folder);
}
