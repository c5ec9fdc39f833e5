/* ps_budget_test.c - a server's memory does not grow with what its workers do
 * not read: 32 of them ask for more and more, by tcp and by ipc, while one
 * trains and ends with the bits of a job that was left alone. */
#define _GNU_SOURCE
#define SUITE ps_budget
#include "base/clock.h"
#include "net_kit.h"
#include "ps/server/lane.h"
#include "ps_kit.h"
#include "test.h"
#include "wire_kit.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    PULLERS = TEST_SLOWNESS > 10 ? 8 : 32,
    UNITS = 2048, /* a parameter with a whole block of 64 KB */
    BLOCKS = 64,  /* of an answer: 4 MB */
    FIRST = 24,   /* pulls of each before the training begins: 96 MB */
    MB = 1 << 20,
    SLACK = 96, /* MB: what a server takes besides for 32 connections */
    READ_MS = 30000 * TEST_SLOWNESS
};

/* What pullers know of the job. */
typedef struct target {
    const ps_job *job;
    uint64_t number;
    uint32_t peer, param;
} target;

typedef struct puller {
    uint32_t stream;
    int fd;
    uint64_t request;
} puller;

/* --- what they say -------------------------------------------------------- */

static fl_msg_head head_of(const target *t, fl_msg_kind kind, uint32_t stream,
                           uint64_t request)
{
    return (fl_msg_head){.version = FL_MSG_VERSION,
                         .kind = (uint8_t)kind,
                         .job = t->number,
                         .peer = t->peer,
                         .stream = stream,
                         .incarnation = 1,
                         .request = request};
}

/* n times the first block of a parameter. */
static fl_packet *pull_packet(const target *t, uint32_t stream,
                              uint64_t request, uint32_t param, uint32_t n)
{
    fl_msg_head head = head_of(t, FL_MSG_PULL, stream, request);
    fl_msg_writer w;
    fl_packet *p;
    uint64_t *key;

    fl_msg_begin(&w, net_pool, &head);
    fl_msg_section(&w, FL_SECTION_DENSE, 0)->n_key = n;
    key = fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key);
    for (uint32_t i = 0; i < n; i++)
        key[i] = (uint64_t)param << 32;
    CHECK_OK(fl_msg_end(&w, true, &p));
    return p;
}

static fl_packet *plain_packet(const target *t, fl_msg_kind kind,
                               uint32_t stream, uint64_t request)
{
    fl_msg_head head = head_of(t, kind, stream, request);
    fl_msg_writer w;
    fl_packet *p;

    if (kind == FL_MSG_STEP) { /* it leaves */
        head.step = 1;
        head.flags = FL_MSG_END_OF_STEP | FL_MSG_LEAVE;
    }
    fl_msg_begin(&w, net_pool, &head);
    CHECK_OK(fl_msg_end(&w, true, &p));
    return p;
}

static void say_packet(int fd, fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        wire_say_frame(fd, p->frame[i].data, p->frame[i].size,
                       i + 1 < p->n_frame);
    fl_packet_drop(p);
}

/* --- what they learn ------------------------------------------------------ */

static void ask(fl_socket *s, fl_packet *p, fl_msg *msg, fl_packet **answer)
{
    CHECK_OK(fl_socket_send(s, NULL, p));
    fl_packet_drop(p);
    *answer = net_receive(s, NULL);
    CHECK_OK(fl_msg_decode(*answer, msg));
}

/* The run and the process from the answer to a stranger; a parameter whose
 * first block is whole. */
static target learn(const ps_job *j)
{
    target t = {.job = j, .number = fl_msg_job("default", 0)};
    char address[64];
    fl_socket *s;
    fl_packet *p;
    fl_msg msg;

    net_open_pool();
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", j->port[0]);
    s = net_connect(address);
    ask(s, plain_packet(&t, FL_MSG_HEARTBEAT, 1, 1), &msg, &p);
    CHECK_INT(msg.head.status, FL_ANSWER_FENCED);
    t.number = msg.head.job;
    t.peer = msg.head.peer;
    fl_packet_drop(p);
    for (;; t.param++) {
        size_t bytes;

        ask(s, pull_packet(&t, 1, 2 + t.param, t.param, 1), &msg, &p);
        CHECK_INT(msg.head.status, FL_ANSWER_OK);
        bytes = msg.column[0][FL_AT_VALUES].size;
        fl_packet_drop(p);
        if (bytes == FL_BLOCK * sizeof(float))
            break;
    }
    fl_socket_close(s, 0);
    return t;
}

static int connect_by_ipc(const ps_job *j)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char pattern[300];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/*-server-0-lane-0",
             ps_folder(&j->node[0]));
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    snprintf(a.sun_path, sizeof a.sun_path, "%.100s", found.gl_pathv[0]);
    globfree(&found);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

/* --- what they do --------------------------------------------------------- */

static void open_pullers(puller *all, const target *t, bool ipc)
{
    for (uint32_t i = 0; i < PULLERS; i++) {
        puller *p = &all[i];

        *p = (puller){.stream = 1 + i, .request = 1000};
        p->fd = ipc ? connect_by_ipc(t->job) : wire_connect(t->job->port[0]);
        wire_greet(p->fd);
        wire_hear_greeting(p->fd);
        say_packet(p->fd, plain_packet(t, FL_MSG_STEP, p->stream, 1));
    }
}

static void pull_more(puller *all, const target *t, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < PULLERS; i++)
            say_packet(all[i].fd,
                       pull_packet(t, all[i].stream, ++all[i].request, t->param,
                                   BLOCKS));
}

/* A frame of ZMTP: its flags, and in `to` the first bytes of its body. */
static int read_frame(int fd, void *to, size_t most, size_t *size)
{
    static char rest[1 << 16];
    unsigned char flags, small, large[8];
    size_t n = 0, left;

    wire_hear(fd, &flags, 1);
    if (flags & 2) {
        wire_hear(fd, large, sizeof large);
        for (int i = 0; i < 8; i++)
            n = n << 8 | large[i];
    } else {
        wire_hear(fd, &small, 1);
        n = small;
    }
    *size = n;
    wire_hear(fd, to, n < most ? n : most);
    for (left = n < most ? 0 : n - most; left > 0;) {
        size_t k = left < sizeof rest ? left : sizeof rest;

        wire_hear(fd, rest, k);
        left -= k;
    }
    return flags;
}

/* Read messages until all its pulls are answered: with 4 MB each. */
static void read_answers(const puller *p)
{
    int64_t end = fl_now_ms() + READ_MS;
    uint64_t n = p->request - 1000;
    char head[88];
    size_t size;

    while (n > 0) {
        size_t all = 0;
        uint64_t request;
        int flags = read_frame(p->fd, head, sizeof head, &size);

        CHECK(fl_now_ms() < end);
        memcpy(&request, head + 40, sizeof request);
        while (flags & 1) {
            char first;

            flags = read_frame(p->fd, &first, 1, &size);
            all += size;
        }
        if (request <= 1000)
            continue; /* that it has left */
        CHECK_INT(head[59], FL_ANSWER_OK);
        CHECK(all >= BLOCKS * FL_BLOCK * sizeof(float));
        n--;
    }
}

static void close_pullers(puller *all, const target *t)
{
    for (int i = 0; i < PULLERS; i++) {
        say_packet(all[i].fd, plain_packet(t, FL_MSG_BYE, all[i].stream, 2));
        shutdown(all[i].fd, SHUT_WR);
    }
}

/* --- the job -------------------------------------------------------------- */

/* MB of a process: now, and at most so far. */
static long resident(const ps_node *n)
{
    char path[64];
    long pages = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)n->pid);
    f = fopen(path, "r");
    CHECK(f && fscanf(f, "%*d %ld", &pages) == 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE) / MB;
}

static long most_resident(const ps_node *n)
{
    char path[64], line[200];
    long kb = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)n->pid);
    f = fopen(path, "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %ld", &kb);
    fclose(f);
    CHECK(kb > 0);
    return kb / 1024;
}

static fleet_status hold_and_tell(ps_node *n)
{
    fleet_status status = ps_hold(n);

    if (status == FLEET_OK)
        fprintf(stderr, "hash %016llx\n", (unsigned long long)n->hash);
    return status;
}

/* Its other workers are pullers, and there is one share of the data that is
 * read. */
static void open_job(ps_job *j)
{
    *j = (ps_job){
        .workers = 1 + PULLERS,
        .work = hold_and_tell,
        .connect_ms = 20 * PS_SECOND,
        .peer_ms = 20 * PS_SECOND,
        .how = {.units = UNITS},
        .file = {scene_file("a.txt", 8 * PS_BATCH * (1 + PULLERS), 1)}};
    ps_prepare(j);
    ps_start(ps_server(j, 0));
    ps_start(ps_worker(j, 0));
}

static const char *hash_of(ps_job *j)
{
    const char *said = ps_said(ps_worker(j, 0));
    char hash[22];

    CHECK_CONTAINS(said, "hash ");
    snprintf(hash, sizeof hash, "%s", strstr(said, "hash "));
    return test_keep(hash);
}

/* The budget that lane_budget.h states, without steps and parked requests,
 * which are small. */
static void check_memory(const ps_job *j, long before)
{
    long most = before + SLACK +
                (long)((PULLERS + 1) * (FL_MOST_UNREAD + FL_MOST_SMALL) / MB);

    if (TEST_SLOWNESS == 1 && most_resident(&j->node[0]) > most)
        test_fail(__FILE__, __LINE__, "%ld MB before, %ld MB at most: not %ld",
                  before, most_resident(&j->node[0]), most);
}

/* The worker trains while the pullers ask. How: pulls before it begins; more of
 * them until it has ended. */
static const char *train_among(bool ipc, int first)
{
    static puller all[PULLERS];
    ps_job *j = calloc(1, sizeof *j);
    const char *hash;
    long before;
    target t;

    CHECK(j);
    open_job(j);
    t = learn(j);
    before = resident(ps_server(j, 0));
    open_pullers(all, &t, ipc);
    pull_more(all, &t, first);
    ps_hear(&j->held);
    ps_tell(&j->go);
    while (!ps_ends_within(ps_worker(j, 0), 20))
        if (first > 0 && all[0].request < 1000 + 100)
            pull_more(all, &t, 1);
    ps_check_ends(ps_worker(j, 0));
    check_memory(j, before);
    for (int i = 0; i < 2 && first > 0; i++)
        read_answers(&all[i * (PULLERS - 1)]);
    check_memory(j, before);
    close_pullers(all, &t);
    ps_check_ends(ps_server(j, 0));
    for (int i = 0; i < PULLERS; i++)
        close(all[i].fd);
    hash = hash_of(j);
    net_end(NULL, NULL);
    free(j);
    return hash;
}

TEST_LIMIT(pullers_by_tcp_that_do_not_read_are_no_harm, 120)
{
    const char *undisturbed = train_among(false, 0);

    CHECK_TEXT(train_among(false, FIRST), undisturbed);
}

TEST_LIMIT(pullers_by_ipc_that_do_not_read_are_no_harm, 120)
{
    const char *undisturbed = train_among(true, 0);

    CHECK_TEXT(train_among(true, FIRST), undisturbed);
}

/* --- a worker with more than a share -------------------------------------- */

/* 5.5 million weights, 22 MB, go to each worker after each step: more than a
 * lane keeps unread, so the second half is sent while the first one is read. */
static void check_large(const char *transport)
{
    ps_job j = {.workers = 2,
                .how = {.units = 240000, .optimizer = "sgd"},
                .peer_ms = 20 * PS_SECOND,
                .file = {scene_file("a.txt", 8 * PS_BATCH, 1)}};
    uint64_t alone = ps_alone(&j, 2);

    setenv("FLEET_TRANSPORT", transport, 1);
    j.work = hold_and_tell;
    ps_start_all(&j);
    ps_hear_held(&j);
    ps_let_go(&j);
    ps_check_all_end(&j);
    CHECK(strtoull(hash_of(&j) + 5, NULL, 16) == alone);
}

TEST_LIMIT(a_step_that_pulls_more_than_a_share_has_the_same_bits, 120)
{
    check_large("tcp");
    if (TEST_SLOWNESS <= 10)
        check_large("");
}
