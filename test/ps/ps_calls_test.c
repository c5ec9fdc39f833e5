/* ps_calls_test.c - the calls of a job with servers besides training:
 * evaluation between passes, sums over workers, calls that come at the wrong
 * time or in the wrong process. */
#define SUITE ps_calls
#include "ps_kit.h"
#include "runtime/exec/executor.h"
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- evaluation ----------------------------------------------------------- */

static fleet_status evaluate(ps_node *n, double out[2])
{
    fleet_evaluation e;

    if (!n->s.tester)
        n->s.tester = fleet_executor_create(
            n->s.p, &(fleet_executor_options){.for_test = 1});
    CHECK(n->s.tester);
    FL_TRY(fleet_evaluate(n->s.tester, n->s.data, &n->s.m, &e));
    out[0] = e.auc;
    out[1] = e.logloss;
    return FLEET_OK;
}

static fleet_status train_and_evaluate(ps_node *n)
{
    FL_TRY(ps_begin(n));
    for (int i = 0; i < 2; i++) {
        FL_TRY(ps_passes(n, 1));
        if (n->index == 0)
            FL_TRY(evaluate(n, n->number + 2 * i));
    }
    return ps_end(n);
}

TEST(worker_0_evaluates_between_passes_what_all_have_trained)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .passes = 2,
                .file = {scene_file("a.txt", 300, 1)},
                .work = train_and_evaluate};
    ps_job once = j;
    ps_node alone = {.job = &once};
    fleet_options o = {.seed = 5, .num_threads = 1};
    double want[4];

    once.how.merge = 2;
    scene_open_as(&alone.s, &o, &once.how);
    scene_data(&alone.s, j.file[0], PS_BATCH, 1, 0);
    for (int i = 0; i < 2; i++) {
        scene_train(&alone.s, 1);
        CHECK_OK(evaluate(&alone, want + 2 * i));
    }
    scene_close(&alone.s);
    CHECK(ps_hash(&j) == ps_alone(&j, 2));
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(ps_worker(&j, 0)->number[i], want[i], 0);
    CHECK(want[0] != want[2]);
}

/* Test passes see the weights at their beginning, also while others train. */
static fleet_status evaluate_meanwhile(ps_node *n)
{
    FL_TRY(ps_begin(n));
    for (int i = 0; i < 5 && n->index == 0; i++)
        FL_TRY(evaluate(n, n->number));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_worker_may_evaluate_while_the_others_train)
{
    ps_job j = {.workers = 3,
                .how.a_sync = true,
                .file = {scene_file("a.txt", 300, 1)},
                .work = evaluate_meanwhile};

    ps_hash(&j);
    CHECK(ps_worker(&j, 0)->number[0] > 0);
    j.how.a_sync = false;
    ps_hash(&j);
}

/* --- metrics -------------------------------------------------------------- */

static fleet_status sums(ps_node *n)
{
    double i = n->index, x[3] = {i, i * i, 1}, none = 0;

    FL_TRY(ps_begin(n));
    FL_TRY(fleet_metrics_sum(n->s.f, x, 3));
    n->number[0] = 100 * x[0] + 10 * x[1] + x[2];
    n->number[1] = n->number[2] = i - 1;
    FL_TRY(fleet_metrics_max(n->s.f, &n->number[1], 1));
    FL_TRY(fleet_metrics_min(n->s.f, &n->number[2], 1));
    FL_TRY(fleet_metrics_sum(n->s.f, &none, 0));
    return ps_end(n);
}

TEST(numbers_are_added_up_over_workers)
{
    ps_job j = {.servers = 2, .workers = 3, .work = sums};

    ps_hash(&j);
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(ps_worker(&j, i)->number[0], 353, 0);
        CHECK_NEAR(ps_worker(&j, i)->number[1], 1, 0);
        CHECK_NEAR(ps_worker(&j, i)->number[2], -1, 0);
    }
}

static fleet_status unequal_sums(ps_node *n)
{
    double x[2] = {0, 0};

    FL_TRY(ps_begin(n));
    FL_TRY(fleet_metrics_sum(n->s.f, x, 1 + n->index));
    return ps_end(n);
}

TEST(sums_that_do_not_match_end_the_job_with_a_reason)
{
    ps_job j = {.workers = 2, .work = unequal_sums};

    ps_run(&j);
    for (int i = 0; i < 3; i++) {
        CHECK(j.node[i].status != FLEET_OK);
        CHECK_CONTAINS(j.node[i].error, "worker 1 has come to a sum of 2 "
                                        "numbers, worker 0 to a sum of 1 "
                                        "number: ");
    }
}

static fleet_status sum_and_max(ps_node *n)
{
    double x = 1;

    FL_TRY(ps_begin(n));
    FL_TRY(n->index == 0 ? fleet_metrics_max(n->s.f, &x, 1)
                         : fleet_metrics_sum(n->s.f, &x, 1));
    return ps_end(n);
}

static fleet_status sum_and_barrier(ps_node *n)
{
    double x = 1;

    FL_TRY(ps_begin(n));
    FL_TRY(n->index == 0 ? fleet_metrics_sum(n->s.f, &x, 1)
                         : fleet_barrier_worker(n->s.f));
    return ps_end(n);
}

/* As many numbers as the end of a pass adds up. */
static fleet_status sum_and_pass(ps_node *n)
{
    double x[3] = {1, 1, 1};

    FL_TRY(ps_begin(n));
    FL_TRY(n->index == 0 ? fleet_metrics_sum(n->s.f, x, 3) : ps_passes(n, 1));
    return ps_end(n);
}

TEST(different_calls_of_as_many_numbers_end_the_job_with_both_named)
{
    static const struct {
        ps_body *work;
        bool a_sync;
        const char *says;
    } all[] = {{sum_and_max, 0,
                "worker 1 has come to a sum of 1 number, "
                "worker 0 to a maximum of 1 number"},
               {sum_and_barrier, 0,
                "worker 1 has come to a barrier or a load, "
                "worker 0 to a sum of 1 number"},
               {sum_and_pass, 1,
                "worker 1 has come to the end of a training "
                "pass, worker 0 to a sum of 3 numbers"}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ps_job j = {.workers = 2,
                    .how = {.a_sync = all[i].a_sync},
                    .file = {scene_file("a.txt", 100, 1)},
                    .work = all[i].work};

        ps_run(&j);
        for (int k = 0; k < j.n_node; k++)
            CHECK_CONTAINS(j.node[k].error, all[i].says);
    }
}

enum { N_SCORE = 60 };

static void f1_of(fleet_program *p, fleet_var *x, fleet_var *label)
{
    fleet_metric(p, FLEET_METRIC_F1, x, label, 0.25f);
}

static const fleet_var *f1_in(const fleet_program *p)
{
    return fleet_program_var(p, "metric_0.tmp");
}

/* A prediction that is what is fed, whose AUC is counted, and whose F1. */
static void open_auc(ps_node *n, const fleet_options *o)
{
    scene *c = &n->s;
    fleet_var *x;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    x = fleet_data(c->p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    c->m.label =
        fleet_data(c->p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    c->m.prediction = fleet_auc(c->p, x, c->m.label, 0);
    f1_of(c->p, x, c->m.label);
    c->m.loss = fleet_mean(c->p, fleet_fc(c->p, x, 1, NULL));
    CHECK_OK(fleet_program_status(c->p));
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(c->f, fleet_sgd(c->f, 0.1f), NULL),
        c->m.loss));
}

/* Scores [first, end) of one list: the AUC, and F1. */
static fleet_status count_scores(ps_node *n, int first, int end, double got[2])
{
    float x[N_SCORE], label[N_SCORE], out;
    int64_t dims[] = {end - first, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, x, dims, 2, NULL},
                         {"label", FLEET_FLOAT32, label, dims, 2, NULL}};
    fleet_fetch fetch = {
        .var = n->s.m.prediction, .data = &out, .size = sizeof out};

    for (int i = first; i < end; i++) {
        x[i - first] = (float)(i * 7 % 31) / 31;
        label[i - first] = (float)(i * i % 5 < 2);
    }
    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    CHECK(n->s.tester);
    FL_TRY(fleet_executor_run(n->s.tester, feed, 2, &fetch, 1));
    FL_TRY(fleet_metrics_value(n->s.f, f1_in(n->s.p), &got[1]));
    return fleet_metrics_auc(n->s.f, n->s.m.prediction, &got[0]);
}

static fleet_status auc_of_a_part(ps_node *n)
{
    static const int cut[] = {0, 7, 30, N_SCORE};

    FL_TRY(ps_begin(n));
    FL_TRY(count_scores(n, cut[n->index], cut[n->index + 1], n->number));
    return ps_end(n);
}

TEST(the_auc_and_f1_are_those_of_all_workers)
{
    ps_job j = {.workers = 3, .open = open_auc, .work = auc_of_a_part};
    ps_node alone = {.job = &j};
    fleet_options o = {.num_threads = 1};
    double want[2];

    open_auc(&alone, &o);
    CHECK_OK(count_scores(&alone, 0, N_SCORE, want));
    scene_close(&alone.s);
    ps_hash(&j);
    CHECK(want[0] > 0.2 && want[0] < 0.8);
    CHECK(want[1] > 0.2 && want[1] < 0.8);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            CHECK_NEAR(ps_worker(&j, i)->number[k], want[k], 0);
}

/* --- at the wrong time ---------------------------------------------------- */

static void check_refused(ps_node *n, const char *words)
{
    double x = 1;
    uint64_t hash;

    CHECK_FAILS(fleet_train_from_dataset(n->s.e, n->s.data, NULL, NULL),
                FLEET_ESTATE, words);
    CHECK_FAILS(fleet_barrier_worker(n->s.f), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_stop_worker(n->s.f), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_metrics_sum(n->s.f, &x, 1), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_params_hash(n->s.f, &hash), FLEET_ESTATE, words);
    if (n->index == 0) /* the others leave it to worker 0 */
        CHECK_FAILS(fleet_save_persistables(n->s.f, n->job->user), FLEET_ESTATE,
                    words);
    CHECK(access(n->job->user, F_OK) != 0);
}

static fleet_status call_too_early_and_too_late(ps_node *n)
{
    n->s.e = fleet_executor_create(n->s.p, NULL);
    CHECK(n->s.e);
    check_refused(n, "call fleet_init_worker() first");
    FL_TRY(fleet_init_worker(n->s.f));
    CHECK_FAILS(fleet_init_worker(n->s.f), FLEET_ESTATE, "called already");
    CHECK_FAILS(fleet_init_server(n->s.f, NULL), FLEET_ESTATE,
                "this process is a worker");
    CHECK_FAILS(fleet_run_server(n->s.f), FLEET_ESTATE,
                "this process is a worker");
    FL_TRY(ps_passes(n, 1));
    FL_TRY(ps_end(n));
    check_refused(n, "fleet_stop_worker() was called");
    CHECK_FAILS(fleet_init_worker(n->s.f), FLEET_ESTATE, "called already");
    return FLEET_OK;
}

/* A server's handle has none: they are the lanes'. */
static void refuse_what_needs_parameters(ps_node *n)
{
    uint64_t hash;
    double x = 1;

    CHECK_FAILS(fleet_save_persistables(n->s.f, test_path("servers-save")),
                FLEET_ESTATE, "this process is a server");
    CHECK_FAILS(fleet_load_model(n->s.f, test_path("servers-save")),
                FLEET_ESTATE, "this process is a server");
    CHECK_FAILS(fleet_params_hash(n->s.f, &hash), FLEET_ESTATE,
                "this process is a server");
    CHECK_FAILS(fleet_metrics_sum(n->s.f, &x, 1), FLEET_ESTATE,
                "this process is a server");
    CHECK_FAILS(fl_executor_iterate(n->s.e, PS_BATCH), FLEET_ESTATE,
                "this process is a server");
}

static fleet_status call_what_is_a_workers(ps_node *n)
{
    CHECK_FAILS(fleet_init_worker(n->s.f), FLEET_ESTATE,
                "this process is a server");
    CHECK_FAILS(fleet_barrier_worker(n->s.f), FLEET_ESTATE,
                "this process is a server");
    CHECK_FAILS(fleet_stop_worker(n->s.f), FLEET_ESTATE,
                "this process is a server");
    n->s.e = fleet_executor_create(n->s.p, NULL);
    CHECK(n->s.e);
    CHECK_FAILS(fleet_train_from_dataset(n->s.e, n->s.data, NULL, NULL),
                FLEET_ESTATE, "server");
    refuse_what_needs_parameters(n);
    FL_TRY(fleet_init_server(n->s.f, NULL));
    CHECK_FAILS(fleet_init_server(n->s.f, NULL), FLEET_ESTATE,
                "called already");
    FL_TRY(fleet_run_server(n->s.f));
    refuse_what_needs_parameters(n);
    return FLEET_OK;
}

TEST(calls_at_the_wrong_time_or_place_are_refused_and_do_no_harm)
{
    ps_job j = {.workers = 2,
                .file = {scene_file("a.txt", 100, 1)},
                .serve = call_what_is_a_workers,
                .work = call_too_early_and_too_late,
                .user = (void *)test_path("save")};

    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

static void *run(void *arg)
{
    ps_node *n = arg;
    fleet_status status = fleet_run_server(n->s.f);

    if (status == FLEET_ESTATE) {
        CHECK_CONTAINS(fleet_last_error(), "fleet_run_server: it runs already");
        ps_tell(&n->job->go);
    } else {
        n->number[0] = status;
    }
    return NULL;
}

static fleet_status run_twice(ps_node *n)
{
    pthread_t thread;

    n->number[0] = -1;
    CHECK(pthread_create(&thread, NULL, run, n) == 0);
    run(n);
    pthread_join(thread, NULL);
    return (fleet_status)n->number[0];
}

static fleet_status leave_when_one_is_refused(ps_node *n)
{
    FL_TRY(ps_begin(n));
    ps_hear(&n->job->go);
    return ps_end(n);
}

TEST(a_server_runs_once_at_a_time)
{
    ps_job j = {.workers = 1,
                .serve = run_twice,
                .go = ps_pipe_make(),
                .file = {scene_file("a.txt", 100, 1)},
                .work = leave_when_one_is_refused};

    ps_hash(&j);
}

static fleet_status init_before_minimize(ps_node *n)
{
    n->status =
        n->server ? fleet_init_server(n->s.f, NULL) : fleet_init_worker(n->s.f);
    return n->status;
}

static void open_nothing(ps_node *n, const fleet_options *o)
{
    CHECK_OK(fleet_init(&n->s.f, o));
}

TEST(without_a_program_nobody_starts)
{
    ps_job j = {.open = open_nothing,
                .serve = init_before_minimize,
                .work = init_before_minimize};

    ps_run(&j);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(j.node[i].status, FLEET_ESTATE);
        CHECK_CONTAINS(j.node[i].error, "call fleet_minimize() before");
    }
}

/* What a child of fork() says when it uses its parent's handle. */
static int use_in_a_child(ps_node *n)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(fleet_barrier_worker(n->s.f) == FLEET_ESTATE &&
                      fleet_stop_worker(n->s.f) == FLEET_ESTATE &&
                      fleet_train_from_dataset(n->s.e, n->s.data, NULL, NULL) ==
                          FLEET_ESTATE
                  ? 7
                  : 8);
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static fleet_status fork_in_between(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    CHECK_INT(use_in_a_child(n), 7);
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_child_of_fork_is_refused_and_its_parent_goes_on)
{
    ps_job j = {.passes = 2,
                .file = {scene_file("a.txt", 100, 1)},
                .work = fork_in_between};

    CHECK(ps_hash(&j) == ps_alone(&j, 1));
}
