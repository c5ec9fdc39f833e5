/* ps_staleness_test.c - bounded staleness between processes: rows say how many
 * steps of each worker a pull has seen, and none has seen fewer than the bound
 * allows; who is done, or gone, holds nobody up for good.
 */
#define SUITE ps_staleness
#include "ps_kit.h"
#include "test.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fleet/job/handle.h"

enum { WORKERS = 8, BOUND = 4 };

/* --- counters: worker w adds 1 to row w in each step ---------------------- */

typedef struct race {
    int bound, rounds;
    ps_pipe went, go; /* a step of a fast worker; of the slow one, worker 0 */
    bool leaves;      /* worker 0, when it is done: it does not wait */
    const char *log;  /* a folder; NULL: servers write none */
    struct seen {
        _Atomic int pulls, most, at_bound, wrong;
    } * seen; /* of each worker, in memory that all have */
} race;

static race *race_of(const ps_node *n)
{
    return n->job->user;
}

static void open_counters(ps_node *n, const fleet_options *o)
{
    const fleet_sparse_embedding_options table = {
        .table = "steps", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *ids, *weight, *steps;
    fleet_optimizer *sgd;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    ids = fleet_data(n->s.p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    weight = fleet_data(n->s.p, "weight", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    steps = fleet_sparse_embedding(n->s.p, ids, 1, &table);
    n->s.m.loss = steps;
    s.a_sync_configs.max_staleness = race_of(n)->bound;
    if (race_of(n)->log) {
        s.log = FLEET_DURABLE_PROCESS;
        s.log_configs.folder = race_of(n)->log;
    }
    sgd = fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), &s);
    CHECK_OK(fleet_minimize(
        sgd, fleet_mean(n->s.p, fleet_mul(n->s.p, steps, weight))));
}

/* Of the others that still count. done: steps of this worker before this. */
static void note_seen(const ps_node *n, const float *steps, int done)
{
    struct seen *mine = &race_of(n)->seen[n->index];
    int staleness = 0;

    for (int i = 0; i < WORKERS; i++)
        if (i != n->index && done - (int)steps[i] > staleness)
            staleness = done - (int)steps[i];
    mine->pulls++;
    mine->at_bound += staleness == race_of(n)->bound;
    mine->wrong += staleness > race_of(n)->bound;
    if (staleness > mine->most)
        mine->most = staleness;
}

static fleet_status count_step(ps_node *n, int done)
{
    int64_t ids[WORKERS], dims[] = {WORKERS, 1};
    float weight[WORKERS] = {0}, steps[WORKERS];
    const fleet_feed feed[] = {
        {"ids", FLEET_INT64, ids, dims, 2, NULL},
        {"weight", FLEET_FLOAT32, weight, dims, 2, NULL}};
    fleet_fetch fetch = {
        .var = n->s.m.loss, .data = steps, .size = sizeof steps};
    fleet_status status;

    for (int i = 0; i < WORKERS; i++)
        ids[i] = i;
    weight[n->index] = -WORKERS; /* of the mean: -1 */
    status = fleet_executor_run(n->s.e, feed, 2, &fetch, 1);
    if (status == FLEET_OK)
        note_seen(n, steps, done);
    return status;
}

/* Worker 0 makes a step whenever it is told to. */
static fleet_status run_race(ps_node *n)
{
    race *r = race_of(n);
    fleet_status status = ps_begin(n);

    for (int i = 0; status == FLEET_OK && i < r->rounds; i++) {
        if (n->index == 0)
            ps_hear(&r->go);
        status = count_step(n, i);
        if (n->index > 0)
            ps_tell(&r->went);
    }
    return status == FLEET_OK ? ps_end(n) : status;
}

static struct seen *shared_memory(void)
{
    void *p = mmap(NULL, WORKERS * sizeof(struct seen), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/* So many steps of the fast workers, all together. */
static void hear_steps(const race *r, int *heard, int n)
{
    char bytes[4096];

    while (*heard < n) {
        struct pollfd in = {.fd = r->went.fd[0], .events = POLLIN};
        ssize_t got;

        if (poll(&in, 1, 30000 * TEST_SLOWNESS) != 1)
            test_fail(__FILE__, __LINE__, "%d steps of %d were heard", *heard,
                      n);
        got = read(in.fd, bytes, sizeof bytes);
        CHECK(got > 0);
        *heard += (int)got;
    }
}

/* The bound holds the fast workers after one step more: it is a pull that
 * waits. */
static void let_race(const race *r)
{
    int fast = WORKERS - 1, heard = 0;

    for (int i = 0; i < r->rounds; i++) {
        int most = i + r->bound + 1 < r->rounds ? i + r->bound + 1 : r->rounds;

        hear_steps(r, &heard, fast * most);
        ps_tell(&r->go);
    }
}

static void open_race(ps_job *j, race *r, int bound, int rounds)
{
    *r = (race){.bound = bound, .rounds = rounds, .seen = shared_memory()};
    r->went = ps_pipe_make();
    r->go = ps_pipe_make();
    j->user = r;
    j->open = open_counters;
    j->workers = WORKERS;
}

static void check_race(ps_job *j, const race *r)
{
    ps_check_all_end(j);
    for (int i = 0; i < WORKERS; i++) {
        CHECK_INT(r->seen[i].wrong, 0);
        CHECK_INT(r->seen[i].pulls, r->rounds);
        CHECK_INT(r->seen[i].most, i == 0 ? 0 : r->bound);
        if (i > 0)
            CHECK_INT(r->seen[i].at_bound, r->rounds - r->bound);
    }
    CHECK_CONTAINS(ps_said(ps_server(j, 0)), "pulls of staleness 0: ");
    CHECK_CONTAINS(ps_said(ps_server(j, 0)),
                   "5 to 8: 0, 9 to 16: 0, 17 to 32: 0, 33 to 64: 0, more: 0");
}

/* Two servers of two lanes each: rows are on all of them. */
TEST_LIMIT(of_8_processes_none_pulls_what_is_staler_than_the_bound, 120)
{
    ps_job j = {
        .servers = 2, .lanes = 2, .work = run_race, .step_ms = 20 * PS_SECOND};
    race r;

    open_race(&j, &r, BOUND, 1000 / TEST_SLOWNESS);
    ps_start_all(&j);
    let_race(&r);
    check_race(&j, &r);
}

TEST_LIMIT(with_a_bound_of_0_all_are_in_step, 120)
{
    ps_job j = {.work = run_race, .step_ms = 20 * PS_SECOND};
    race r;

    open_race(&j, &r, 0, 200 / TEST_SLOWNESS);
    ps_start_all(&j);
    let_race(&r);
    check_race(&j, &r);
}

/* Whenever the fast workers can go no further a server dies; they wait for the
 * slow one all the same. */
TEST_LIMIT(servers_that_are_killed_come_back_and_the_bound_holds, 120)
{
    ps_job j = {.servers = 2,
                .lanes = 2,
                .work = run_race,
                .connect_ms = 60 * PS_SECOND,
                .request_ms = 60 * PS_SECOND,
                .step_ms = 60 * PS_SECOND};
    int heard = 0;
    race r;

    open_race(&j, &r, 2, 12);
    r.log = test_path("log");
    setenv("FLEET_TRANSPORT", "tcp", 1); /* its lanes have their ports again */
    ps_start_all(&j);
    for (int i = 0; i < r.rounds; i++) {
        int most = i + r.bound + 1 < r.rounds ? i + r.bound + 1 : r.rounds;

        hear_steps(&r, &heard, (WORKERS - 1) * most);
        if (i % 3 == 1 && most < r.rounds) { /* all workers train */
            int server = i / 3 % 2;

            ps_kill(ps_server(&j, server), SIGKILL);
            CHECK_INT(ps_wait(ps_server(&j, server)), 128 + SIGKILL);
            ps_start(ps_server(&j, server));
            ps_hear_words(ps_server(&j, server), "is back");
        }
        ps_tell(&r.go);
    }
    ps_check_all_end(&j);
    for (int i = 0; i < WORKERS; i++) {
        CHECK_INT(r.seen[i].wrong, 0);
        CHECK_INT(r.seen[i].pulls, r.rounds);
        CHECK_INT(r.seen[i].most, i == 0 ? 0 : r.bound);
    }
}

/* --- workers that stop, die or are done ----------------------------------- */

/* Worker 0 makes no step more, and says when the other ones can go no further
 * without it. */
static void wait_until_held(const race *r)
{
    int heard = 0;

    hear_steps(r, &heard, (WORKERS - 1) * (r->bound + 1));
}

static void check_gone(int signal_number)
{
    ps_job j = {.work = run_race, .peer_ms = PS_SECOND};
    race r;

    open_race(&j, &r, 1, 100);
    ps_start_all(&j);
    wait_until_held(&r);
    ps_kill(ps_worker(&j, 0), signal_number);
    for (int i = 1; i < WORKERS; i++)
        ps_check_fails(ps_worker(&j, i), "is gone: server 0 has not heard");
    ps_check_fails(ps_server(&j, 0), "worker 0 (");
    if (signal_number == SIGSTOP)
        ps_kill(ps_worker(&j, 0), SIGKILL);
    CHECK_INT(ps_wait(ps_worker(&j, 0)), 128 + SIGKILL);
}

TEST_LIMIT(a_slow_worker_that_is_stopped_is_named_by_the_peer_deadline, 120)
{
    check_gone(SIGSTOP);
}

TEST_LIMIT(a_slow_worker_that_is_killed_is_named_by_the_peer_deadline, 120)
{
    check_gone(SIGKILL);
}

/* It lives and does not train: the step deadline names it. */
TEST_LIMIT(a_slow_worker_that_hangs_is_named_by_the_step_deadline, 120)
{
    ps_job j = {.work = run_race, .peer_ms = PS_SECOND, .step_ms = PS_SECOND};
    race r;

    open_race(&j, &r, 1, 100);
    ps_start_all(&j);
    wait_until_held(&r);
    for (int i = 1; i < WORKERS; i++)
        ps_check_fails(ps_worker(&j, i), "for worker 0, without progress");
    ps_tell(&r.go); /* or it would not look at the job */
    CHECK_INT(ps_wait(ps_worker(&j, 0)), 1);
    CHECK_INT(ps_wait(ps_server(&j, 0)), 1);
}

/* Worker 0 makes three steps, and waits for all workers, or leaves. */
static fleet_status be_done_early(ps_node *n)
{
    race *r = race_of(n);
    int steps = n->index == 0 ? 3 : r->rounds;
    fleet_status status = ps_begin(n);

    for (int i = 0; status == FLEET_OK && i < steps; i++)
        status = count_step(n, i);
    if (status == FLEET_OK && !(r->leaves && n->index == 0))
        status = fleet_barrier_worker(n->s.f);
    return status == FLEET_OK ? fleet_stop_worker(n->s.f) : status;
}

static void check_done_early(bool leaves)
{
    ps_job j = {.servers = 2, .lanes = 2, .work = be_done_early};
    race r;

    open_race(&j, &r, 2, 40);
    r.leaves = leaves;
    ps_start_all(&j);
    ps_check_all_end(&j);
    for (int i = 0; i < WORKERS; i++)
        CHECK_INT(r.seen[i].pulls, i == 0 ? 3 : 40);
}

TEST_LIMIT(a_worker_at_a_barrier_is_not_waited_for, 120)
{
    check_done_early(false);
}

TEST_LIMIT(a_worker_that_has_left_is_not_waited_for, 120)
{
    check_done_early(true);
}

/* --- passes over files ---------------------------------------------------- */

/* Of files of unequal length, with prefetches. */
TEST_LIMIT(passes_over_unequal_files_end_together, 120)
{
    static const int bounds[] = {0, 1, 5};

    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        ps_job j = {.servers = 2,
                    .workers = 3,
                    .lanes = 2,
                    .passes = 3,
                    .batch = 20,
                    .how = {.a_sync = true,
                            .bounds_staleness = true,
                            .max_staleness = bounds[i]}};

        j.file[0] = scene_file("long.txt", 900, 1);
        j.file[1] = scene_file("short.txt", 100, 2);
        j.file[2] = scene_file("middle.txt", 400, 3);
        ps_run(&j);
        ps_check(&j);
    }
}

/* --- who differs ---------------------------------------------------------- */

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = {.a_sync = true,
                          .bounds_staleness = true,
                          .max_staleness = n->server ? 4 : 5};

    scene_open_as(&n->s, o, &how);
}

TEST(a_server_with_another_bound_refuses_the_worker)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "the worker trains in mode ps-async, "
                   "a_sync_configs.max_staleness 5, this server in ps-async, "
                   "a_sync_configs.max_staleness 4");
}

/* --- the field ------------------------------------------------------------ */

TEST(sync_has_nothing_stale_and_refuses_the_field)
{
    const fleet_role worker = {.kind = FLEET_WORKER,
                               .worker_num = 2,
                               .server_endpoints = "127.0.0.1:7000"};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    s.a_sync = 0;
    s.a_sync_configs.max_staleness = 0;
    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &worker}));
    CHECK(!fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    CHECK_INT(fleet_last_status(), FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(),
                   "strategy.a_sync_configs.max_staleness is 0, but "
                   "strategy.a_sync is 0");
    fleet_destroy(f);
}

TEST(the_dump_says_what_becomes_of_the_field)
{
    const fleet_role worker = {.kind = FLEET_WORKER,
                               .worker_num = 2,
                               .server_endpoints = "127.0.0.1:7000"};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    char *dump;
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &worker}));
    s.a_sync_configs.max_staleness = 0;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s) != NULL);
    dump = fleet_strategy_dump(f);
    CHECK_CONTAINS(dump, "a_sync_configs.max_staleness                     0"
                         "            asked    honoured");
    fleet_free(dump);
    fleet_destroy(f);
}
