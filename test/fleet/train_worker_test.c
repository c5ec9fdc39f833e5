/* train_worker_test.c - passes over a dataset by a worker: the same bits as
 * in one process, totals over all workers, and how a pass ends. */
#define SUITE train_worker
#include "fake_remote.h"
#include "model_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* A scene that is a worker, the only one. */
typedef struct worker {
    scene s;
    fake_server server;
    fake_worker w;
} worker;

static void worker_open(worker *w, const char *file, int64_t batch)
{
    fleet_options o = {.seed = 5, .num_threads = 2};

    scene_open(&w->s, &o, "adam");
    scene_data(&w->s, file, batch, 2, 0);
    fake_server_open(&w->server, w->s.p, 1, true);
    fake_worker_open(&w->w, &w->server, w->s.f, 0);
    w->s.e = fleet_executor_create(w->s.p, NULL);
    CHECK(w->s.e != NULL);
}

static void worker_close(worker *w)
{
    fake_worker_close(&w->w);
    fake_server_close(&w->server);
    scene_close(&w->s);
}

static fleet_status train(worker *w, const fleet_train_options *o,
                          fleet_train_result *r)
{
    return fleet_train_from_dataset(w->s.e, w->s.data, o, r);
}

static int count_calls(const worker *w, const char *call)
{
    int n = 0;

    for (const char *at = w->w.calls; (at = strstr(at, call)); at++)
        n++;
    return n;
}

/* What one process does in two passes. */
static uint64_t alone(const char *file, int64_t batch, fleet_train_result *r)
{
    fleet_options o = {.seed = 5, .num_threads = 1};
    uint64_t hash;
    scene s;

    scene_open(&s, &o, "adam");
    scene_data(&s, file, batch, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, r));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

TEST(passes_of_a_worker_are_those_of_one_process)
{
    const char *file = scene_file("a.txt", 300, 1);
    fleet_train_result want, got;
    uint64_t hash = alone(file, 32, &want);
    worker w;

    worker_open(&w, file, 32);
    CHECK_OK(train(&w, NULL, NULL));
    memset(w.server.sum, 0, sizeof w.server.sum);
    CHECK_OK(train(&w, NULL, &got));
    CHECK(fake_server_hash(&w.server) == hash);
    CHECK(got.loss == want.loss);
    CHECK_INT(got.batches, want.batches);
    CHECK_INT(got.samples, want.samples);
    worker_close(&w);
}

TEST(every_batch_but_the_first_is_pulled_ahead)
{
    worker w;

    worker_open(&w, scene_file("a.txt", 90, 1), 32);
    CHECK_OK(train(&w, NULL, NULL));
    CHECK_TEXT(w.w.calls, "pull0 arrive0 push pull1a settle arrive1 push "
                          "pull0a settle arrive0 push settle end");
    worker_close(&w);
}

TEST(the_result_is_that_of_all_workers)
{
    fleet_train_result r;
    worker w;

    worker_open(&w, scene_file("a.txt", 100, 1), 32);
    w.server.sum[0] = 6; /* what the others did */
    w.server.sum[1] = 300;
    w.server.sum[2] = 1e6;
    CHECK_OK(train(&w, NULL, &r));
    CHECK_INT(r.batches, 10);
    CHECK_INT(r.samples, 400);
    CHECK(r.loss > 2500 && r.loss < 2501);
    worker_close(&w);
}

TEST(a_worker_without_a_batch_ends_its_pass_too)
{
    fleet_train_result r;
    worker w;

    worker_open(&w, test_file("none.txt", ""), 32);
    w.server.sum[0] = 6;
    w.server.sum[1] = 300;
    CHECK_OK(train(&w, NULL, &r));
    CHECK_TEXT(w.w.calls, "end");
    CHECK_INT(r.batches, 6);
    CHECK_INT(r.samples, 300);
    worker_close(&w);
}

static int stop_at_2(void *user, int64_t batch, int64_t samples)
{
    *(int64_t *)user += samples;
    return batch == 2;
}

TEST(a_callback_that_ends_the_pass_ends_it_for_the_others)
{
    int64_t seen = 0;
    fleet_train_options t = {.on_batch = stop_at_2, .user = &seen};
    fleet_train_result r;
    worker w;

    worker_open(&w, scene_file("a.txt", 200, 1), 32);
    CHECK_OK(train(&w, &t, &r));
    CHECK_INT(r.batches, 2);
    CHECK_INT(seen, 64);
    CHECK_TEXT(w.w.calls, "pull0 arrive0 push pull1a settle arrive1 push "
                          "pull0a settle drop0 end");
    CHECK_OK(train(&w, NULL, NULL)); /* the next one begins anew */
    CHECK_CONTAINS(w.w.calls, "drop0 end pull0 arrive0");
    worker_close(&w);
}

TEST(a_pass_that_fails_does_not_end_and_keeps_what_it_trained)
{
    fleet_train_result r;
    worker w;

    worker_open(&w,
                test_file("bad.txt", "1 1 3 0 0 0 1 5 1 6 2 7 8\n"
                                     "1 0 3 0 0 0 1 5 1 9 2 7 8\n"
                                     "what is this\n"),
                1);
    CHECK_FAILS(train(&w, NULL, &r), FLEET_EFORMAT, "bad.txt:3");
    CHECK_INT(r.batches, 2);
    CHECK_INT(w.server.updates, 2);
    CHECK_TEXT(w.w.calls, "pull0 arrive0 push pull1a settle arrive1 push "
                          "settle");
    worker_close(&w);
}

static void check_failing(fake_call call, int nth, int64_t batches)
{
    fleet_train_result r;
    worker w;

    worker_open(&w, scene_file("a.txt", 200, 1), 32);
    w.w.fail_at[call] = nth;
    CHECK_FAILS(train(&w, NULL, &r), FLEET_EINVAL, "server 3 is not");
    CHECK_TEXT(fleet_last_error(), "server 3 is not what it was");
    CHECK_INT(r.batches, batches);
    CHECK_INT(count_calls(&w, "end"), call == FAKE_END_PASS);
    CHECK_OK(train(&w, NULL, NULL)); /* no batch is held, nor a slot */
    worker_close(&w);
}

TEST(a_call_that_fails_ends_the_pass)
{
    check_failing(FAKE_PULL, 1, 0);
    check_failing(FAKE_ARRIVE, 1, 0);
    check_failing(FAKE_ARRIVE, 3, 2);
    check_failing(FAKE_PUSH, 7, 6);
    check_failing(FAKE_SETTLE, 4, 3);
    check_failing(FAKE_END_PASS, 1, 7);
}

/* --- inference ----------------------------------------------------------- */

TEST(inference_begins_with_the_weights_of_now)
{
    const char *file = scene_file("a.txt", 100, 1);
    fleet_evaluation want, got;
    scene s;
    worker w;

    scene_open(&s, &(fleet_options){.seed = 5}, "adam");
    scene_data(&s, file, 32, 1, 0);
    scene_train(&s, 1);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &want));
    worker_open(&w, file, 32);
    w.s.tester =
        fleet_executor_create(w.s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(train(&w, NULL, NULL));
    w.w.calls[0] = '\0';
    CHECK_OK(fleet_evaluate(w.s.tester, w.s.data, &w.s.m, &got));
    CHECK_TEXT(w.w.calls, "refresh pull0n pull1n arrive0 pull0n arrive1 pull1n "
                          "arrive0 arrive1");
    CHECK(got.logloss == want.logloss && got.auc == want.auc);
    w.w.fail_at[FAKE_REFRESH] = 1;
    CHECK_FAILS(fleet_evaluate(w.s.tester, w.s.data, &w.s.m, &got),
                FLEET_EINVAL, "server 3");
    scene_close(&s);
    worker_close(&w);
}

typedef struct tested {
    worker *w;
    fleet_evaluation e;
} tested;

static int evaluate(void *user, int64_t batch, int64_t samples)
{
    tested *t = user;

    (void)samples;
    if (batch == 2)
        CHECK_OK(
            fleet_evaluate(t->w->s.tester, t->w->s.data, &t->w->s.m, &t->e));
    return 0;
}

TEST(a_callback_may_evaluate_while_the_next_batch_is_under_way)
{
    const char *file = scene_file("a.txt", 100, 1);
    worker w;
    tested t = {.w = &w};
    fleet_train_options o = {.on_batch = evaluate, .user = &t};
    fleet_train_result r;
    uint64_t want = alone(file, 32, &r);

    worker_open(&w, file, 32);
    w.s.tester =
        fleet_executor_create(w.s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(train(&w, &o, NULL));
    CHECK_OK(train(&w, NULL, NULL));
    CHECK_INT(t.e.samples, 100);
    CHECK(fake_server_hash(&w.server) == want);
    worker_close(&w);
}
