/* rendezvous_test.c - how ranks find each other: who is let in, who is refused,
 * who is missing, and what strangers do to it (nothing). Ranks are
 * processes. */
#define SUITE rendezvous
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/rendezvous/rendezvous_client.h"

enum { DEADLINE_MS = 1000 * TEST_PATIENCE, LONG_MS = 20000, MOST = 4 };

/* One rank, and how its attempt has to end. */
typedef struct attempt {
    int rank, size;
    const char *job, *bus;
    uint32_t version;
    int64_t deadline_ms;
    fleet_status status;
    const char *words, *more;
} attempt;

typedef struct point {
    int listener;
    char address[FL_RENDEZVOUS_NAME + 8];
} point;

static point open_point(void)
{
    char bound[FL_RENDEZVOUS_NAME];
    point p;

    CHECK_OK(fl_rendezvous_listen("tcp://127.0.0.1:0", &p.listener, bound));
    snprintf(p.address, sizeof p.address, "tcp://%s", bound);
    return p;
}

static fl_rendezvous_options meeting_of(const attempt *a, const point *p)
{
    fl_rendezvous_options m = {
        .own = {.magic = FL_RENDEZVOUS_MAGIC,
                .version =
                    a->version ? a->version : (uint32_t)FL_RENDEZVOUS_VERSION,
                .rank = a->rank,
                .size = a->size,
                .host = "here"},
        .address = p->address,
        .listener = a->rank == 0 ? p->listener : 0,
        .connect_ms = a->deadline_ms ? a->deadline_ms : LONG_MS,
        .deadline_ms = LONG_MS};

    snprintf(m.own.job, sizeof m.own.job, "%s", a->job ? a->job : "job");
    snprintf(m.own.bus, sizeof m.own.bus, "%s", a->bus ? a->bus : "");
    return m;
}

/* Until all have come to a call. */
static void meet_in_a_call(fl_rendezvous_client *l)
{
    const fl_call call = {.kind = FL_CALL_BARRIER};
    fl_rendezvous_frame f = {0};
    const char *bytes;

    CHECK(fl_rendezvous_client_send(l, FL_RENDEZVOUS_CALL, &call, sizeof call,
                                    NULL, 0));
    while (f.kind == FL_RENDEZVOUS_NONE) {
        fl_rendezvous_client_wait(l, 100);
        CHECK_OK(fl_rendezvous_client_next(l, &f, &bytes));
    }
    CHECK_INT(f.kind, FL_RENDEZVOUS_CALLS);
    fl_rendezvous_client_drop(l, &f);
}

static void try(const attempt *a, const point *p)
{
    fl_rendezvous_options m = meeting_of(a, p);
    fl_rendezvous_client *l;

    if (a->status) {
        CHECK_FAILS(fl_rendezvous_client_open(&l, &m), a->status, a->words);
        if (a->more)
            CHECK_CONTAINS(fleet_last_error(), a->more);
        CHECK(l == NULL);
        return;
    }
    CHECK_OK(fl_rendezvous_client_open(&l, &m));
    meet_in_a_call(l);
    fl_rendezvous_client_close(l);
}

static pid_t start(const attempt *a, const point *p)
{
    pid_t child = test_fork();

    if (child > 0)
        return child;
    if (a->rank != 0)
        close(p->listener);
    try(a, p);
    _exit(0);
}

static void check_ends(pid_t child)
{
    int status = -1;

    if (!test_ends_within(child, LONG_MS * TEST_SLOWNESS))
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
}

/* The listener is rank 0's from when it was started. */
static void run_at(const attempt *a, int n, point *p)
{
    pid_t child[MOST];

    for (int i = 0; i < n; i++)
        child[i] = start(&a[i], p);
    close(p->listener);
    for (int i = 0; i < n; i++)
        check_ends(child[i]);
}

static void run(const attempt *a, int n)
{
    point p = open_point();

    run_at(a, n, &p);
}

TEST(ranks_meet)
{
    const attempt a[] = {{.rank = 2, .size = 4},
                         {.rank = 0, .size = 4},
                         {.rank = 3, .size = 4},
                         {.rank = 1, .size = 4}};
    const attempt one = {.rank = 0, .size = 1};

    run(a, 4);
    run(&one, 1);
}

TEST(a_rank_of_another_job_is_refused_on_both_sides)
{
    const attempt a[] = {{.rank = 0,
                          .size = 2,
                          .deadline_ms = DEADLINE_MS,
                          .status = FLEET_ETIMEDOUT,
                          .words = "rank 1 did not come",
                          .more = "is of job 'other', rank 0 of 'job'"},
                         {.rank = 1,
                          .size = 2,
                          .job = "other",
                          .status = FLEET_EINVAL,
                          .words = "is of job 'other', rank 0 of 'job'"}};

    run(a, 2);
}

TEST(a_rank_of_another_version_is_refused_on_both_sides)
{
    const attempt a[] = {{.rank = 0,
                          .size = 2,
                          .deadline_ms = DEADLINE_MS,
                          .status = FLEET_ETIMEDOUT,
                          .words = "rank 1 did not come",
                          .more = "has version 77"},
                         {.rank = 1,
                          .size = 2,
                          .version = 77,
                          .status = FLEET_EINVAL,
                          .words = "has version 77"}};

    run(a, 2);
}

TEST(ranks_that_count_differently_are_refused)
{
    const attempt a[] = {
        {.rank = 0,
         .size = 2,
         .deadline_ms = DEADLINE_MS,
         .status = FLEET_ETIMEDOUT,
         .words = "where 1 of 2 ranks are"},
        {.rank = 1,
         .size = 3,
         .status = FLEET_EINVAL,
         .words = "comes as rank 1 of 3, but rank 0 expects 2"}};

    run(a, 2);
}

/* Which of the two is refused is the clock's. */
TEST(two_ranks_with_one_number_are_told)
{
    point p = open_point();
    const attempt zero = {.rank = 0,
                          .size = 3,
                          .deadline_ms = DEADLINE_MS,
                          .status = FLEET_ETIMEDOUT,
                          .words = "rank 2 did not come",
                          .more = "two ranks have one number"};
    attempt one = {.rank = 1, .size = 3};
    pid_t child[2];
    fl_rendezvous_options m;
    fl_rendezvous_client *l;
    int fd;

    child[0] = start(&zero, &p);
    CHECK_OK(fl_rendezvous_connect(p.address, LONG_MS, &fd));
    m = meeting_of(&one, &p);
    CHECK(send(fd, &m.own, sizeof m.own, 0) == sizeof m.own);
    CHECK_FAILS(fl_rendezvous_client_open(&l, &m), FLEET_EINVAL,
                "comes as rank 1, which 127.0.0.1:");
    close(p.listener);
    check_ends(child[0]);
    close(fd);
}

TEST(who_is_missing_is_named_to_those_who_came)
{
    const attempt a[] = {{.rank = 0,
                          .size = 3,
                          .deadline_ms = DEADLINE_MS,
                          .status = FLEET_ETIMEDOUT,
                          .words = "rank 1 did not come within"},
                         {.rank = 2,
                          .size = 3,
                          .deadline_ms = DEADLINE_MS,
                          .status = FLEET_ETIMEDOUT,
                          .words = "rank 1 did not come within"}};

    run(a, 2);
}

static bool has_threads(pid_t p)
{
    char path[40];
    struct stat s;

    snprintf(path, sizeof path, "/proc/%d/task", (int)p);
    return stat(path, &s) == 0 && s.st_nlink > 3; /* ".", "..", and one each */
}

/* For longer than rank 0 waits for rank 2, and rank 1 for an answer. */
TEST(ranks_that_were_stopped_wait_on)
{
    const attempt a[] = {{.rank = 0, .size = 3, .deadline_ms = 2 * DEADLINE_MS},
                         {.rank = 1, .size = 3, .deadline_ms = 2 * DEADLINE_MS},
                         {.rank = 2, .size = 3}};
    point p = open_point();
    pid_t child[3];

    for (int i = 0; i < 2; i++)
        child[i] = start(&a[i], &p);
    while (!has_threads(child[0])) /* the one that lets ranks in */
        usleep(1000);
    for (int i = 0; i < 2; i++)
        CHECK(kill(child[i], SIGSTOP) == 0);
    usleep((2 * DEADLINE_MS + 2500) * 1000);
    for (int i = 0; i < 2; i++)
        CHECK(kill(child[i], SIGCONT) == 0);
    child[2] = start(&a[2], &p);
    close(p.listener);
    for (int i = 0; i < 3; i++)
        check_ends(child[i]);
}

TEST(nobody_there_is_said)
{
    point p = open_point();
    const attempt a = {.rank = 1,
                       .size = 2,
                       .deadline_ms = 100,
                       .status = FLEET_ETIMEDOUT,
                       .words = "did not reach rank 0 at tcp://127.0.0.1:",
                       .more = "within 100 ms: Connection refused"};

    close(p.listener);
    try(&a, &p);
}

TEST(ranks_on_one_gpu_are_named_with_it)
{
    const char *bus = "0000:3b:00.0";
    attempt a[] = {{.rank = 0, .size = 3, .bus = bus},
                   {.rank = 1, .size = 3, .bus = "0000:5e:00.0"},
                   {.rank = 2, .size = 3, .bus = bus}};

    for (int i = 0; i < 3; i++) {
        a[i].status = FLEET_EINVAL;
        a[i].words = "ranks 0 and 2 are both on GPU 0000:3b:00.0";
    }
    run(a, 3);
}

TEST(an_address_that_is_none_or_taken_is_named)
{
    point p = open_point(), none = {0, "tcp://localhost:1"};
    const attempt zero = {.rank = 0,
                          .size = 2,
                          .status = FLEET_EIO,
                          .words = "rank 0 cannot listen at tcp://127.0.0.1:"},
                  wrong = {.rank = 1,
                           .size = 2,
                           .status = FLEET_EINVAL,
                           .words = "cannot meet at \"tcp://localhost:1\""};
    point taken = p;

    taken.listener = 0;
    try(&zero, &taken);
    try(&wrong, &none);
    close(p.listener);
}

/* --- strangers ----------------------------------------------------------- */

/* Somebody who talks something else, with a listener or to one. */
static void say(const point *p, const void *bytes, size_t n)
{
    char answer[100];
    int fd;

    CHECK_OK(fl_rendezvous_connect(p->address, LONG_MS, &fd));
    CHECK(fd >= 0);
    fcntl(fd, F_SETFL, 0);
    CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
    shutdown(fd, SHUT_WR);
    while (recv(fd, answer, sizeof answer, 0) > 0)
        ;
    close(fd);
}

static void say_much(const point *p)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    attempt later = {.rank = 1, .size = 2};
    fl_rendezvous_handshake g = meeting_of(&later, p).own;
    char noise[3000];
    uint32_t x = 1;

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    say(p, "", 0);
    say(p, get, sizeof get);
    say(p, noise, sizeof noise);
    say(p, &g, sizeof g - 1);
    g.rank = -5;
    say(p, &g, sizeof g);
    g.rank = 0;
    say(p, &g, sizeof g);
}

TEST(strangers_do_no_harm)
{
    const attempt a[] = {{.rank = 0, .size = 2}, {.rank = 1, .size = 2}};
    point p = open_point();
    pid_t zero = start(&a[0], &p), one;

    say_much(&p);
    for (int i = 0; i < 50; i++) { /* who says nothing */
        int fd;

        CHECK_OK(fl_rendezvous_connect(p.address, LONG_MS, &fd));
        close(fd);
    }
    one = start(&a[1], &p);
    close(p.listener);
    check_ends(zero);
    check_ends(one);
}

/* A rank that is let in and then talks nonsense ends the job, by name. */
static void check_nonsense(const void *bytes, size_t n)
{
    attempt one = {.rank = 1, .size = 2}, zero = {.rank = 0, .size = 2};
    point p = open_point();
    fl_rendezvous_handshake g = meeting_of(&one, &p).own;
    fl_rendezvous_options m = meeting_of(&zero, &p);
    char buffer[sizeof g + 4096];
    const char *told;
    fl_rendezvous_frame f = {0};
    fl_rendezvous_client *l;
    int fd;

    memcpy(buffer, &g, sizeof g);
    memcpy(buffer + sizeof g, bytes, n);
    CHECK_OK(fl_rendezvous_connect(p.address, LONG_MS, &fd));
    CHECK(send(fd, buffer, sizeof g + n, MSG_NOSIGNAL) ==
          (ssize_t)(sizeof g + n));
    if (fl_rendezvous_client_open(&l, &m) == FLEET_OK) {
        while (f.kind == FL_RENDEZVOUS_NONE) {
            fl_rendezvous_client_wait(l, 100);
            CHECK_OK(fl_rendezvous_client_next(l, &f, &told));
        }
        CHECK_INT(f.kind, FL_RENDEZVOUS_FAILURE);
        fl_rendezvous_failure(told, f.bytes);
        fl_rendezvous_client_close(l);
    }
    CHECK_CONTAINS(fleet_last_error(), "rank 1 at 127.0.0.1:");
    CHECK_CONTAINS(fleet_last_error(), "talks nonsense");
    close(fd);
}

TEST(a_rank_that_talks_nonsense_is_named)
{
    const fl_rendezvous_frame huge = {FL_RENDEZVOUS_CALL, 0xFFFFFFF0},
                              none = {0, 0},
                              unknown = {FL_N_RENDEZVOUS_KIND, 0},
                              empty = {FL_RENDEZVOUS_CALL, 0},
                              welcome = {FL_RENDEZVOUS_READY, 0};
    struct {
        fl_rendezvous_frame f;
        fl_post p;
    } post = {{FL_RENDEZVOUS_POST, sizeof(fl_post)}, {FL_OUT, 99, 5}};

    check_nonsense(&huge, sizeof huge);
    check_nonsense(&none, sizeof none);
    check_nonsense(&unknown, sizeof unknown);
    check_nonsense(&empty, sizeof empty);
    check_nonsense(&welcome, sizeof welcome);
    check_nonsense(&post, sizeof post);
    post.p = (fl_post){7, 0, 5};
    check_nonsense(&post, sizeof post);
    post.p = (fl_post){FL_IN, 0, -5};
    check_nonsense(&post, sizeof post);
}

/* Who listens where rank 0 should be: one that answers something else. */
TEST(what_listens_and_is_no_rank_is_said)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const attempt a = {.rank = 1,
                       .size = 2,
                       .status = FLEET_EPEER,
                       .words = "where rank 0 should, is no libfleet"};
    point p = open_point();
    struct pollfd one = {.fd = p.listener, .events = POLLIN};
    pid_t child = start(&a, &p);
    int fd;

    CHECK(poll(&one, 1, LONG_MS) == 1);
    fd = accept(p.listener, NULL, NULL);
    CHECK(fd >= 0);
    CHECK(send(fd, answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer);
    check_ends(child);
    close(fd);
    close(p.listener);
}
