/* mesh_test.c - rounds of messages between workers that are threads: each gets
 * what each has sent in that round, with keys and without; who gives up, or is
 * silent, is named; who was stopped has missed nothing. */
#define SUITE mesh
#include "net_kit.h"
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ps/mesh/mesh.h"

enum { N = 3, ROUNDS = 4, LARGE = 33 << 20, STOPPED_MS = 2000 * TEST_PATIENCE };

typedef struct crowd {
    pthread_barrier_t barrier;
    double x[10000];
    pthread_mutex_t lock;
    const char *keys; /* a folder; NULL: none */
    int gives_up;     /* in the last round, that worker; -1: none */
    int silent;       /* likewise; it ends before */
    int64_t fail_at;  /* of all allocations of rounds; 0: none fails */
    const char *server;
    bool stops; /* worker 0, in its first round, for longer than its deadline;
                   worker 1 sends then, worker 2 when it runs again */
    sem_t sent[N]; /* by worker: it may send */
} crowd;

typedef struct one {
    crowd *c;
    int index, n_look;
    fleet_status status;
    char error[300];
    pthread_t thread;
} one;

static fleet_status sum_of_crowd(void *arg, double *x, int n)
{
    crowd *c = ((one *)arg)->c;

    CHECK(n <= (int)(sizeof c->x / sizeof *c->x));
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < n; i++)
        c->x[i] += x[i];
    pthread_mutex_unlock(&c->lock);
    pthread_barrier_wait(&c->barrier);
    memcpy(x, c->x, (size_t)n * sizeof *x);
    pthread_barrier_wait(&c->barrier);
    return FLEET_OK;
}

static fleet_status is_well(void *arg)
{
    one *w = arg;

    if (!w->c->stops || w->index != 0 || ++w->n_look > 2)
        return FLEET_OK;
    CHECK(sem_post(&w->c->sent[w->n_look]) == 0);
    for (int64_t end = fl_now_ms() + STOPPED_MS + 100;
         w->n_look == 1 && fl_now_ms() < end;)
        poll(NULL, 0, 10);
    return FLEET_OK;
}

/* From a to b in that round: some bytes of a letter, none at times, in round 1
 * so many that they are several frames. */
static int64_t size_of(const crowd *c, int a, int b, int round)
{
    return c->fail_at == 0 && round == 1 && a == 0 && b == 1
               ? LARGE
               : (a + b + round) % 4 * 1000;
}

static char letter_of(int a, int b, int round)
{
    return (char)('a' + a * 9 + b * 3 + round);
}

static void check_messages(const crowd *c, int b, int round, const char **in,
                           int64_t *from)
{
    for (int a = 0; a < N; a++) {
        CHECK_INT(from[a], size_of(c, a, b, round));
        for (int64_t i = 0; i<from[a]; i += from[a]> 9999 ? 4001 : 1)
            CHECK(in[a][i] == letter_of(a, b, round));
    }
}

static fleet_status run_round(one *w, fl_mesh *m, char *const *out, int round)
{
    const bool gives_up = round == ROUNDS - 1 && w->c->gives_up == w->index;
    const char *in[N];
    int64_t to[N], from[N];
    fleet_status status;

    for (int b = 0; b < N; b++) {
        to[b] = gives_up ? -1 : size_of(w->c, w->index, b, round);
        if (to[b] > 0)
            memset(out[b], letter_of(w->index, b, round), (size_t)to[b]);
    }
    status = fl_mesh_round(m, (const char *const *)out, to, in, from);
    if (status == FLEET_OK && !gives_up)
        check_messages(w->c, w->index, round, in, from);
    return status;
}

static void *run_one(void *arg)
{
    one *w = arg;
    fl_mesh_options o = {
        .index = w->index,
        .n = N,
        .server = w->c->server ? w->c->server : "tcp://127.0.0.1:7001",
        .deadline_ms = w->c->silent >= 0              ? 500 * TEST_SLOWNESS
                       : w->c->stops && w->index == 0 ? STOPPED_MS
                                                      : 20000,
        .arg = w,
        .sum = sum_of_crowd,
        .status = is_well};
    char *out[N];
    fl_keys *keys = NULL;
    fl_mesh *m = NULL;

    if (w->c->keys)
        CHECK_OK(fl_keys_read(&keys, w->c->keys, false, w->index));
    o.keys = keys;
    for (int b = 0; b < N; b++)
        out[b] = malloc(LARGE);
    w->status = fl_mesh_open(&m, &o);
    if (w->c->fail_at > 0) {
        pthread_barrier_wait(&w->c->barrier);
        if (w->index == 0)
            fl_memory_fail_at(w->c->fail_at, false);
        pthread_barrier_wait(&w->c->barrier);
    }
    if (w->c->stops && w->index > 0)
        CHECK(sem_wait(&w->c->sent[w->index]) == 0);
    for (int i = 0; i < ROUNDS && w->status == FLEET_OK; i++)
        if (i < ROUNDS - 1 || w->c->silent != w->index)
            w->status = run_round(w, m, out, i);
    snprintf(w->error, sizeof w->error, "%s", fleet_last_error());
    for (int i = 1; i < N && w->index == 0; i++)
        CHECK(sem_post(&w->c->sent[i]) == 0); /* also where it has failed */
    pthread_barrier_wait(&w->c->barrier); /* all have ended their last round */
    fl_mesh_close(m);
    fl_keys_destroy(keys);
    for (int b = 0; b < N; b++)
        free(out[b]);
    return NULL;
}

static void run_crowd(crowd *c, one *w)
{
    pthread_barrier_init(&c->barrier, NULL, N);
    pthread_mutex_init(&c->lock, NULL);
    for (int i = 0; i < N; i++)
        CHECK(sem_init(&c->sent[i], 0, 0) == 0);
    for (int i = 0; i < N; i++) {
        w[i] = (one){.c = c, .index = i};
        CHECK(pthread_create(&w[i].thread, NULL, run_one, &w[i]) == 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(w[i].thread, NULL);
    for (int i = 0; i < N; i++)
        sem_destroy(&c->sent[i]);
    pthread_barrier_destroy(&c->barrier);
    pthread_mutex_destroy(&c->lock);
}

TEST(each_gets_what_each_has_sent)
{
    crowd c = {.gives_up = -1, .silent = -1};
    one w[N];

    run_crowd(&c, w);
    for (int i = 0; i < N; i++)
        CHECK(w[i].status == FLEET_OK);
}

TEST(so_it_is_with_keys)
{
    crowd c = {.gives_up = -1, .silent = -1, .keys = test_path("keys")};
    one w[N];

    CHECK_OK(fl_keys_make(c.keys, 1, N));
    run_crowd(&c, w);
    for (int i = 0; i < N; i++)
        CHECK(w[i].status == FLEET_OK);
}

TEST(who_gives_up_is_named)
{
    crowd c = {.gives_up = 1, .silent = -1};
    one w[N];

    run_crowd(&c, w);
    for (int i = 0; i < N; i += 2) {
        CHECK_STATUS(w[i].status, FLEET_EPEER);
        CHECK_CONTAINS(w[i].error, "worker 1 gives up");
    }
}

/* At each allocation in turn, of one of them; no other one waits for it. */
TEST_LIMIT(who_runs_out_of_memory_tells_the_others, 200)
{
    bool failed = true;
    one w[N];

    for (int n = 1; failed; n++) {
        crowd c = {.gives_up = -1, .silent = -1, .fail_at = n};

        run_crowd(&c, w);
        fl_memory_fail_at(0, false);
        failed = false;
        for (int i = 0; i < N; i++) {
            CHECK(w[i].status == FLEET_OK || w[i].status == FLEET_ENOMEM ||
                  w[i].status == FLEET_EPEER);
            failed = failed || w[i].status == FLEET_ENOMEM;
        }
        CHECK(failed || n > 20);
    }
}

TEST(who_is_silent_is_named)
{
    crowd c = {.gives_up = -1, .silent = 2};
    one w[N];

    run_crowd(&c, w);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(w[i].status, FLEET_ETIMEDOUT);
        CHECK_CONTAINS(w[i].error, "worker 2 has sent nothing for");
    }
}

TEST(who_was_stopped_takes_what_has_come_and_waits_on)
{
    crowd c = {.gives_up = -1, .silent = -1, .stops = true};
    one w[N];

    run_crowd(&c, w);
    for (int i = 0; i < N; i++)
        CHECK_OK(w[i].status);
}

TEST(who_has_no_way_to_the_server_says_so)
{
    crowd c = {
        .gives_up = -1, .silent = -1, .server = "tcp://255.255.255.255:7001"};
    one w[N];

    run_crowd(&c, w);
    for (int i = 0; i < N; i++) {
        CHECK_STATUS(w[i].status, FLEET_EIO);
        CHECK_CONTAINS(w[i].error, "no way to 255.255.255.255:7001");
    }
}
