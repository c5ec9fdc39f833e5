/* rendezvous_keys_test.c - the rendezvous with keys: ranks that have theirs
 * meet as they do without, and nobody else takes a place, hears a word, or ends
 * the job. Rank 0 is a process, and the test is rank 1 or a stranger. */
#define _GNU_SOURCE
#define SUITE rendezvous_keys
#include "rank_keys_kit.h"
#include "wire_kit.h"
#include "test.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "collective/rendezvous/rendezvous_client.h"
#include "collective/rendezvous/rendezvous_server.h"

enum { LONG_MS = 20000, SOON_MS = 1000 * TEST_PATIENCE, MOST = 4, SAYS = 64 };

static const char planted[] = "a-name-that-nobody-else-has";

/* Where rank 0 of a job listens, and the folder of its keys; NULL: none. */
typedef struct scene {
    int listener, port, size;
    const char *folder, *log;
    pid_t zero;
} scene;

static scene open_scene(const char *folder, int size)
{
    scene s = {.size = size, .folder = folder, .log = test_path("log")};
    char bound[FL_RENDEZVOUS_NAME];

    CHECK_OK(fl_rendezvous_listen("tcp://127.0.0.1:0", &s.listener, bound));
    s.port = atoi(strrchr(bound, ':') + 1);
    return s;
}

/* --- ranks ---------------------------------------------------------------- */

typedef struct rank_side {
    fl_rank_keys keys;
    fl_rendezvous_options options;
    char address[40];
    fl_log log;
} rank_side;

static void add_line(void *user, fleet_log_level level, const char *line)
{
    FILE *f = fopen(user, "a");

    (void)level;
    CHECK(f && fprintf(f, "%s\n", line) > 0 && fclose(f) == 0);
}

static void open_side(rank_side *r, const scene *s, int rank, int port)
{
    *r = (rank_side){.options = {.own = {.magic = FL_RENDEZVOUS_MAGIC,
                                         .version = FL_RENDEZVOUS_VERSION,
                                         .rank = rank,
                                         .size = s->size,
                                         .host = "here"},
                                 .listener = rank == 0 ? s->listener : 0,
                                 .connect_ms = LONG_MS,
                                 .deadline_ms = LONG_MS}};
    snprintf(r->options.own.job, sizeof r->options.own.job, "%s", planted);
    snprintf(r->address, sizeof r->address, "tcp://127.0.0.1:%d", port);
    r->options.address = r->address;
    fl_log_init(&r->log, add_line, (void *)s->log, FLEET_LOG_WARNING);
    r->options.log = &r->log;
    if (!s->folder)
        return;
    rank_keys_read(&r->keys, s->folder, rank, s->size);
    r->options.keys = &r->keys;
}

static void close_side(rank_side *r)
{
    rank_keys_done(&r->keys);
    fl_log_done(&r->log);
}

/* A call of all ranks, each with bytes of its own: what all of them hear. */
static fleet_status call_all(fl_rendezvous_client *c, int rank, char *all,
                             size_t *n)
{
    const fl_call call = {.kind = FL_CALL_BARRIER};
    fl_rendezvous_frame f = {0};
    const char *bytes;
    char says[SAYS];

    memset(says, 'a' + rank, sizeof says);
    CHECK(fl_rendezvous_client_send(c, FL_RENDEZVOUS_CALL, &call, sizeof call,
                                    says, sizeof says));
    while (f.kind == FL_RENDEZVOUS_NONE) {
        fl_rendezvous_client_wait(c, 100);
        FL_TRY(fl_rendezvous_client_next(c, &f, &bytes));
    }
    if (f.kind == FL_RENDEZVOUS_FAILURE)
        return fl_rendezvous_failure(bytes, f.bytes);
    CHECK_INT(f.kind, FL_RENDEZVOUS_CALLS);
    memcpy(all, bytes, f.bytes);
    *n = f.bytes;
    fl_rendezvous_client_drop(c, &f);
    return FLEET_OK;
}

static size_t join_and_call(const scene *s, int rank, int port, char *all)
{
    fl_rendezvous_client *c;
    rank_side r;
    size_t n = 0;

    open_side(&r, s, rank, port);
    CHECK_OK(fl_rendezvous_client_open(&c, &r.options));
    CHECK_OK(call_all(c, rank, all, &n));
    fl_rendezvous_client_close(c);
    close_side(&r);
    return n;
}

static pid_t start_rank(const scene *s, int rank)
{
    char all[4096];
    pid_t child = test_fork();

    if (child > 0)
        return child;
    join_and_call(s, rank, s->port, all);
    _exit(0);
}

static scene start_job(const char *folder, int size)
{
    scene s = open_scene(folder, size);

    s.zero = start_rank(&s, 0);
    close(s.listener);
    return s;
}

static void check_ends(pid_t child)
{
    int status = -1;

    if (!test_ends_within(child, LONG_MS * TEST_SLOWNESS))
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
}

/* Rank 1 of 2 comes, and the job does what it would have done. */
static void finish_job(const scene *s)
{
    char all[4096];

    CHECK_INT(join_and_call(s, 1, s->port, all),
              2 * (sizeof(uint32_t) + sizeof(fl_call) + SAYS));
    check_ends(s->zero);
}

/* --- the log of rank 0 ---------------------------------------------------- */

static const char *read_log(void)
{
    static char text[1 << 16];
    FILE *f = fopen(test_path("log"), "r");

    text[0] = 0;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    return text;
}

static int count_in_log(const char *words)
{
    int n = 0;

    for (const char *at = read_log(); (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

/* So many were refused for want of a key: a line each, and one with the sum. */
static void check_refused(int n)
{
    char sum[80];

    snprintf(sum, sizeof sum, ": %d connections had no key of this job", n);
    CHECK_INT(count_in_log(": refused: "), n);
    CHECK_CONTAINS(read_log(), sum);
}

/* --- ranks with keys ------------------------------------------------------ */

/* What rank `rank` of a job hears. */
static size_t hear_as(const char *folder, int rank, int size, char *all)
{
    scene s = open_scene(folder, size);
    pid_t child[MOST];
    size_t n;

    for (int i = 0; i < size; i++)
        if (i != rank)
            child[i] = start_rank(&s, i);
    n = join_and_call(&s, rank, s.port, all);
    close(s.listener);
    for (int i = 0; i < size; i++)
        if (i != rank)
            check_ends(child[i]);
    return n;
}

TEST(ranks_hear_what_they_hear_without)
{
    const char *folder;

    rank_keys_need();
    folder = rank_keys_make("keys", 3);
    for (int size = 2; size <= 3; size++)
        for (int rank = 1; rank < size; rank++) {
            char with[4096], without[4096];
            size_t n = hear_as(folder, rank, size, with);

            CHECK_INT(n, hear_as(NULL, rank, size, without));
            CHECK(memcmp(with, without, n) == 0);
        }
    CHECK_TEXT(read_log(), "");
}

/* The job's name goes over the wire, and what ranks call. */
static void look_for_text(const char *folder, bool is_seen)
{
    char all[4096], says[SAYS];
    scene s = open_scene(folder, 2);
    wire w;

    s.zero = start_rank(&s, 0);
    close(s.listener);
    wire_open(&w, s.port);
    join_and_call(&s, 1, w.port, all);
    check_ends(s.zero);
    wire_close(&w);
    CHECK(w.all.n > sizeof(fl_rendezvous_handshake));
    CHECK_INT(wire_has(&w, planted, sizeof planted - 1), is_seen);
    memset(says, 'b', sizeof says);
    CHECK_INT(wire_has(&w, says, sizeof says), is_seen);
    wire_done(&w);
}

TEST(nothing_of_it_is_seen_on_the_wire)
{
    rank_keys_need();
    look_for_text(rank_keys_make("keys", 2), false);
    look_for_text(NULL, true);
}

/* --- strangers ------------------------------------------------------------ */

static void say_and_hear_end(int port, const void *bytes, size_t n)
{
    int fd = wire_connect(port);

    wire_say(fd, bytes, n);
    wire_hear_end(fd);
}

TEST(strangers_without_a_key_do_no_harm)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    fl_seal_request request = {
        .magic = FL_SEAL_MAGIC, .version = FL_SEAL_VERSION, .rank = 1};
    char noise[3000];
    uint32_t x = 1;
    scene s;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    say_and_hear_end(s.port, get, sizeof get);
    say_and_hear_end(s.port, noise, sizeof noise);
    say_and_hear_end(s.port, &request, sizeof request); /* of small order */
    memcpy(request.key, noise, sizeof request.key);
    request.rank = 7;
    say_and_hear_end(s.port, &request, sizeof request);
    finish_job(&s);
    check_refused(4);
}

/* A stranger is answered once, and then has to have a key. */
TEST(who_is_answered_and_has_no_key_is_refused)
{
    fl_seal_request request = {.magic = FL_SEAL_MAGIC,
                               .version = FL_SEAL_VERSION,
                               .rank = 1,
                               .key = {9}};
    fl_seal_answer answer;
    char noise[500] = {20};
    scene s;
    int fd;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    fd = wire_connect(s.port);
    wire_say(fd, &request, sizeof request);
    CHECK(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    wire_say(fd, noise, sizeof noise);
    wire_hear_end(fd);
    finish_job(&s);
    check_refused(1);
    CHECK_CONTAINS(read_log(), "comes as rank 1 and does not have its key");
}

/* A rank of the job that was started without keys. */
TEST(a_rank_without_keys_is_told_so)
{
    fl_rendezvous_client *c;
    scene s, plain;
    rank_side r;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    plain = s;
    plain.folder = NULL;
    open_side(&r, &plain, 1, s.port);
    CHECK_FAILS(fl_rendezvous_client_open(&c, &r.options), FLEET_EINVAL,
                "has no keys, and rank 0 has: FLEET_KEYS");
    CHECK(!c);
    close_side(&r);
    finish_job(&s);
    check_refused(1);
}

/* It tries until its deadline, once a second. */
TEST(a_key_of_another_job_is_refused)
{
    fl_rendezvous_client *c;
    scene s, other;
    rank_side r;
    int n;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    other = s;
    other.folder = rank_keys_make("others", 2);
    open_side(&r, &other, 1, s.port);
    r.options.connect_ms = SOON_MS;
    CHECK_FAILS(fl_rendezvous_client_open(&c, &r.options), FLEET_ETIMEDOUT,
                "Has it keys of the same folder?");
    close_side(&r);
    finish_job(&s);
    n = count_in_log("comes as rank 1 and does not have its key");
    CHECK(n >= 1 && n <= 2 + SOON_MS / 1000);
    check_refused(n);
}

/* --- a rank of the job that says that it is another one ------------------- */

/* By hand: the handshake of rank `says`, sealed with the key of rank `key` as
 * that of rank `asks`. How the server refuses that; FLEET_EPEER: by the
 * connection's end alone. */
static fleet_status come_as(const scene *s, int key, int asks, int says)
{
    fl_seal_request request;
    fl_seal_answer answer;
    uint8_t head[FL_SEAL_HEAD];
    fl_rendezvous_frame f;
    fl_rank_keys keys;
    const char *bytes;
    fl_inbox in;
    fl_seal *seal;
    rank_side r;
    int fd = wire_connect(s->port);

    open_side(&r, s, 0, s->port);
    r.options.own.rank = says;
    rank_keys_read(&keys, s->folder, key, s->size);
    CHECK_OK(fl_seal_create(&seal, &keys, s->size));
    CHECK_OK(fl_inbox_make(&in, 4096));
    CHECK(fl_seal_begin(seal, asks, &request));
    wire_say(fd, &request, sizeof request);
    CHECK(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    CHECK(fl_seal_finish(seal, &answer, head));
    wire_say(fd, head, sizeof head);
    fl_rendezvous_write(fd, seal, &r.options.own, sizeof r.options.own);
    in.seal = seal;
    while (fl_inbox_read(&in, fd))
        poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 100);
    CHECK(!in.is_forged && fl_inbox_frame(&in, &f, &bytes));
    if (f.kind == FL_RENDEZVOUS_FAILURE)
        fl_rendezvous_failure(bytes, f.bytes);
    else
        fl_fail(FLEET_EPEER, "not a word");
    close(fd);
    fl_free(in.data);
    fl_seal_destroy(seal);
    rank_keys_done(&keys);
    close_side(&r);
    return f.kind == FL_RENDEZVOUS_FAILURE ? FLEET_EINVAL : FLEET_EPEER;
}

TEST(no_rank_takes_the_place_of_another_one)
{
    const char *folder;
    char all[4096];
    pid_t one;
    scene s;

    rank_keys_need();
    folder = rank_keys_make("keys", 3);
    s = start_job(folder, 3);
    one = start_rank(&s, 1);
    CHECK_FAILS(come_as(&s, 1, 2, 2), FLEET_EPEER, "not a word");
    CHECK_FAILS(come_as(&s, 1, 1, 2), FLEET_EINVAL,
                "comes as rank 2 with the key of rank 1");
    CHECK_FAILS(come_as(&s, 1, 0, 0), FLEET_EPEER, "not a word");
    join_and_call(&s, 2, s.port, all);
    check_ends(one);
    check_ends(s.zero);
    check_refused(3);
}

/* --- in rank 0's place ---------------------------------------------------- */

TEST(a_rank_does_not_speak_to_a_rank_0_without_keys)
{
    fl_rendezvous_client *c;
    scene s, keyed;
    const char *folder;
    rank_side r;

    rank_keys_need();
    folder = rank_keys_make("keys", 2);
    s = start_job(NULL, 2);
    keyed = s;
    keyed.folder = folder;
    open_side(&r, &keyed, 1, s.port);
    CHECK_FAILS(fl_rendezvous_client_open(&c, &r.options), FLEET_EPEER,
                "does not have the key of rank 0");
    close_side(&r);
    finish_job(&s);
    CHECK_CONTAINS(read_log(), "has keys, and rank 0 has none");
}

/* It knows all public keys, and has the secret of rank 1. It says that all
 * ranks have come: with its answer, or when it has heard a rank's head. */
static void pretend_to_be_0(const scene *s, bool early)
{
    const uint64_t magic = FL_RENDEZVOUS_MAGIC;
    struct pollfd at = {.fd = s->listener, .events = POLLIN};
    uint8_t head[FL_SEAL_HEAD];
    fl_seal_request request;
    fl_seal_answer answer;
    fl_rank_keys keys;
    fl_seal *seal;
    int fd;

    rank_keys_read(&keys, s->folder, 1, 2);
    CHECK_OK(fl_seal_create(&seal, &keys, 2));
    CHECK(poll(&at, 1, LONG_MS) == 1);
    fd = accept(s->listener, NULL, NULL);
    CHECK(recv(fd, &request, sizeof request, MSG_WAITALL) == sizeof request);
    CHECK(fl_seal_accept(seal, &request, &answer));
    wire_say(fd, &answer, sizeof answer);
    if (!early)
        CHECK(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    fl_rendezvous_send(fd, seal, FL_RENDEZVOUS_READY, &magic, sizeof magic,
                       NULL, 0);
    wire_hear_end(fd);
    fl_seal_destroy(seal);
    rank_keys_done(&keys);
}

TEST(a_rank_does_not_believe_another_rank_0)
{
    rank_keys_need();
    for (int early = 0; early < 2; early++) {
        scene s = open_scene(rank_keys_make("keys", 2), 2);
        pid_t one = test_fork();

        if (one == 0) {
            fl_rendezvous_client *c;
            rank_side r;

            open_side(&r, &s, 1, s.port);
            CHECK_FAILS(fl_rendezvous_client_open(&c, &r.options), FLEET_EPEER,
                        "does not have the key of rank 0");
            _exit(0);
        }
        pretend_to_be_0(&s, early);
        check_ends(one);
        close(s.listener);
    }
}

/* --- on the way ----------------------------------------------------------- */

TEST(a_connection_that_was_recorded_opens_no_other_one)
{
    enum { FIRST = sizeof(fl_seal_request) };
    fl_seal_answer answer;
    char all[4096];
    const char *folder;
    scene s;
    wire w;
    int fd;

    rank_keys_need();
    folder = rank_keys_make("keys", 2);
    s = start_job(folder, 2);
    wire_open(&w, s.port);
    join_and_call(&s, 1, w.port, all);
    check_ends(s.zero);
    wire_close(&w);
    CHECK(w.first.n > FIRST + sizeof(fl_rendezvous_handshake));

    s = start_job(folder, 2);
    say_and_hear_end(s.port, w.first.bytes, w.first.n);
    fd = wire_connect(s.port);
    wire_say(fd, w.first.bytes, FIRST);
    CHECK(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    wire_say(fd, w.first.bytes + FIRST, w.first.n - FIRST);
    wire_hear_end(fd);
    finish_job(&s);
    check_refused(2);
    wire_done(&w);
}

/* One bit of what rank 1 says first is changed: it comes again. */
static void spoil_handshake(const char *folder, int64_t at)
{
    char all[4096];
    scene s = start_job(folder, 2);
    wire w;

    wire_listen(&w, s.port);
    w.spoil_at = at;
    wire_start(&w);
    join_and_call(&s, 1, w.port, all);
    check_ends(s.zero);
    wire_close(&w);
    CHECK_INT(w.spoil_at, -1);
    wire_done(&w);
}

TEST(who_comes_changed_is_refused_and_comes_again)
{
    enum {
        KEY = offsetof(fl_seal_request, key),
        HEAD = sizeof(fl_seal_request)
    };
    const char *folder;

    rank_keys_need();
    folder = rank_keys_make("keys", 2);
    spoil_handshake(folder, KEY + 5);
    spoil_handshake(folder, HEAD + 5);
    spoil_handshake(folder, HEAD + FL_SEAL_HEAD + 60);
    CHECK_INT(count_in_log(": refused: "), 3);
    CHECK_INT(count_in_log(": 1 connections had no key of this job"), 3);
}

/* Once ranks are together it is the end of the job, and said to be that. */
TEST(a_frame_that_is_changed_by_a_bit_ends_the_job_by_name)
{
    static const char words[] = "is not as the rank has sealed it";
    fl_rendezvous_client *c;
    char all[4096];
    rank_side r;
    size_t n;
    scene s;
    wire w;

    rank_keys_need();
    s = open_scene(rank_keys_make("keys", 2), 2);
    s.zero = test_fork();
    if (s.zero == 0) {
        open_side(&r, &s, 0, s.port);
        CHECK_OK(fl_rendezvous_client_open(&c, &r.options));
        CHECK_FAILS(call_all(c, 0, all, &n), FLEET_EPEER, words);
        fl_rendezvous_client_close(c);
        _exit(0);
    }
    close(s.listener);
    wire_listen(&w, s.port);
    w.spoil_at = sizeof(fl_seal_request) + FL_SEAL_HEAD +
                 sizeof(fl_rendezvous_handshake) + 2 * (2 + 17) + 30;
    wire_start(&w);
    open_side(&r, &s, 1, w.port);
    CHECK_OK(fl_rendezvous_client_open(&c, &r.options));
    CHECK_FAILS(call_all(c, 1, all, &n), FLEET_EPEER, words);
    fl_rendezvous_client_close(c);
    close_side(&r);
    check_ends(s.zero);
    wire_close(&w);
    wire_done(&w);
}

/* --- who says nothing ----------------------------------------------------- */

/* More of them than the server has places for, and some that were answered. */
TEST(silent_peers_keep_no_rank_out)
{
    enum { SILENT = 2 * FL_ACCEPT_UNKNOWN_PEERS };
    fl_seal_request request = {.magic = FL_SEAL_MAGIC,
                               .version = FL_SEAL_VERSION,
                               .rank = 1,
                               .key = {9}};
    int64_t began = fl_now_ms();
    int fd[SILENT];
    scene s;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    for (int i = 0; i < SILENT; i++) {
        fd[i] = wire_connect(s.port);
        if (i % 4 == 0)
            wire_say(fd[i], &request, sizeof request);
    }
    finish_job(&s);
    CHECK(fl_now_ms() - began < FL_ACCEPT_HANDSHAKE_MS * TEST_SLOWNESS);
    CHECK_TEXT(read_log(), "");
    for (int i = 0; i < SILENT; i++)
        close(fd[i]);
}

TEST(a_flood_of_refusals_has_a_hundred_lines)
{
    scene s;

    rank_keys_need();
    s = start_job(rank_keys_make("keys", 2), 2);
    for (int i = 0; i < 110; i++)
        say_and_hear_end(s.port, "no rank at all", 14);
    finish_job(&s);
    CHECK_INT(count_in_log(": refused: "), 100);
    CHECK_INT(count_in_log("further ones are counted"), 1);
    CHECK_CONTAINS(read_log(), ": 110 connections had no key of this job");
}

/* --- a build without libsodium -------------------------------------------- */

TEST(without_libsodium_keys_are_refused_by_name)
{
    uint8_t of[2][FL_RANK_KEY] = {{0}};
    const fl_rank_keys keys = {.of = of};
    fl_rendezvous_client *c;
    fl_seal *seal;
    rank_side r;
    scene s = open_scene(NULL, 2);

    if (fl_seal_create(&seal, &keys, 2) == FLEET_OK) {
        fl_seal_destroy(seal);
        test_skip("this build has libsodium");
    }
    for (int rank = 0; rank < 2; rank++) {
        open_side(&r, &s, rank, s.port);
        r.options.keys = &keys;
        CHECK_FAILS(fl_rendezvous_client_open(&c, &r.options),
                    FLEET_EUNSUPPORTED, "this build has no libsodium");
        close_side(&r);
    }
}
