/* ps_geo_test.c - geo mode between handles and processes: every worker trains
 * copies with its own optimizer, servers have the mean of what they have made,
 * and whatever reads the servers finds all of it there.
 */
#define SUITE ps_geo
#include "job_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"

/* --- counters: worker w adds 1 to row w, and 1 / workers to the others ---- */

enum { ROWS = 8 };

typedef struct count {
    int64_t every;
    int steps;
} count;

static const count *count_of(const ps_node *n)
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
    s.a_sync_configs.k_steps = count_of(n)->every;
    sgd = fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), &s);
    CHECK_OK(fleet_minimize(
        sgd, fleet_mean(n->s.p, fleet_mul(n->s.p, steps, weight))));
}

static fleet_status run_step(ps_node *n, fleet_executor *e, float rows[ROWS])
{
    int64_t ids[ROWS], dims[] = {ROWS, 1};
    float weight[ROWS];
    const fleet_feed feed[] = {
        {"ids", FLEET_INT64, ids, dims, 2, NULL},
        {"weight", FLEET_FLOAT32, weight, dims, 2, NULL}};
    fleet_fetch fetch = {
        .var = n->s.m.loss, .data = rows, .size = ROWS * sizeof *rows};
    float workers = (float)n->job->workers;

    for (int i = 0; i < ROWS; i++) {
        ids[i] = i;
        weight[i] = i == n->index ? -ROWS * workers : -ROWS; /* of a mean */
    }
    return fleet_executor_run(e, feed, 2, &fetch, 1);
}

/* What all rows have after so many steps of every worker. */
static int count_right(const ps_node *n, const float rows[ROWS])
{
    float workers = (float)n->job->workers;
    float own = 1 + (workers - 1) / workers;
    int right = 0;

    for (int i = 0; i < ROWS; i++)
        right += rows[i] ==
                 (float)count_of(n)->steps * (i < n->job->workers ? own : 1);
    return right;
}

/* Before each step a worker's copies have all of its own steps. The numbers of
 * all workers are added up so that nobody pushes before all have looked. */
static fleet_status count_steps(ps_node *n)
{
    int behind = 0, there, here;
    float rows[ROWS];
    double one = 1;

    FL_TRY(ps_begin(n));
    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    for (int i = 0; i < count_of(n)->steps; i++) {
        FL_TRY(run_step(n, n->s.e, rows));
        behind += rows[n->index] < (float)i;
    }
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(run_step(n, n->s.tester, rows));
    there = count_right(n, rows);
    FL_TRY(fleet_metrics_sum(n->s.f, &one, 1));
    FL_TRY(run_step(n, n->s.e, rows)); /* its copies, before one step more */
    here = count_right(n, rows);
    FL_TRY(fleet_metrics_sum(n->s.f, &one, 1));
    if (behind > 0 || there < ROWS || here < ROWS)
        return fl_fail(FLEET_ESTATE,
                       "%d steps behind; %d rows of the servers and %d copies "
                       "of %d are right",
                       behind, there, here, (int)ROWS);
    return ps_end(n);
}

/* What a worker writes by hand reaches the copies of all of them. */
static fleet_status write_rows(ps_node *n)
{
    const uint64_t key[] = {3, 5};
    const float value[] = {100, 200};
    float rows[ROWS];
    double one = 1;

    FL_TRY(ps_begin(n));
    for (int i = 0; i < count_of(n)->steps; i++)
        FL_TRY(run_step(n, n->s.e, rows));
    FL_TRY(fleet_table_set(n->s.f, "steps", key, 2, 1, value, NULL));
    FL_TRY(run_step(n, n->s.e, rows));
    FL_TRY(fleet_metrics_sum(n->s.f, &one, 1));
    if (rows[3] != 100 || rows[5] != 200 ||
        rows[4] != (float)count_of(n)->steps)
        return fl_fail(FLEET_ESTATE, "rows 3, 4, 5 are %g, %g, %g", rows[3],
                       rows[4], rows[5]);
    return ps_end(n);
}

TEST(rows_that_are_written_by_hand_are_the_copies_too)
{
    count c = {.every = 3, .steps = 10};
    ps_job j = {.servers = 2,
                .workers = 2,
                .open = open_counters,
                .work = write_rows,
                .user = &c};

    ps_start_all(&j);
    ps_check_all_end(&j);
}

static void check_counts(int workers, int64_t every, int steps)
{
    count c = {.every = every, .steps = steps};
    ps_job j = {.servers = 2,
                .lanes = 2,
                .workers = workers,
                .open = open_counters,
                .work = count_steps,
                .user = &c};

    ps_start_all(&j);
    ps_check_all_end(&j);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "mode ps-geo");
}

TEST_LIMIT(of_4_processes_servers_and_copies_have_the_mean_to_the_bit, 120)
{
    check_counts(4, 100, 1000 / TEST_SLOWNESS);
}

TEST_LIMIT(two_processes_that_exchange_after_each_step, 120)
{
    check_counts(2, 1, 200 / TEST_SLOWNESS);
}

/* --- models --------------------------------------------------------------- */

static ps_job job_of(int workers, const scene_training *how)
{
    ps_job j = {.servers = 2,
                .lanes = 2,
                .workers = workers,
                .passes = 3,
                .how = *how,
                .file = {scene_file("a.txt", 600, 1)}};

    j.how.a_sync = true;
    j.how.geo = 4;
    return j;
}

static fleet_status train_alone(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, n->job->passes));
    n->number[0] = n->result.loss;
    return ps_end(n);
}

/* One worker is one process that trains by itself, but for what rounding does
 * to (w - base) + base. */
static void check_alone(const scene_training *how)
{
    ps_job j = job_of(1, how), local = job_of(1, how);
    double alone;

    j.work = train_alone;
    ps_run(&j);
    ps_check(&j);
    local.how.geo = 0;
    {
        scene s;
        fleet_train_result r = {0};

        scene_open_as(&s, &(fleet_options){.num_threads = 1, .seed = 5},
                      &local.how);
        scene_data(&s, local.file[0], PS_BATCH, 1, 0);
        s.e = fleet_executor_create(s.p, NULL);
        for (int i = 0; i < local.passes; i++)
            CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &r));
        alone = r.loss;
        scene_close(&s);
    }
    if (!(ps_worker(&j, 0)->number[0] < alone + 1e-4 &&
          ps_worker(&j, 0)->number[0] > alone - 1e-4))
        test_fail(__FILE__, __LINE__, "loss %.7f in geo, %.7f alone",
                  ps_worker(&j, 0)->number[0], alone);
}

TEST_LIMIT(one_worker_learns_what_one_process_does_by_any_rule, 240)
{
    static const scene_training how[] = {
        {.optimizer = "sgd", .decay = true},
        {.optimizer = "momentum", .l2_decay = 0.01f},
        {.optimizer = "adagrad", .clip = 0.05f},
        {.optimizer = "adam", .merge = 2, .l2_decay = 0.01f},
        {.optimizer = "ftrl", .pooled = false}};

    for (size_t i = 0; i < sizeof how / sizeof *how; i++)
        check_alone(&how[i]);
}

/* --- saves and loads ------------------------------------------------------ */

static fleet_status train_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    return ps_end(n);
}

static fleet_status load_and_hash(ps_node *n)
{
    FL_TRY(ps_begin(n));
    return ps_end(n);
}

/* Weights alone: states stay the workers'. */
TEST_LIMIT(a_save_has_all_updates_and_is_loaded_in_any_way, 120)
{
    const char *path = test_path("save");
    ps_job j = job_of(2, &(scene_training){.optimizer = "adam"});
    uint64_t hash;

    j.work = train_and_save;
    j.user = (void *)path;
    hash = ps_hash(&j);
    j.work = load_and_hash;
    j.servers = 3;
    j.load = path;
    CHECK(ps_hash(&j) == hash);
    j.load = NULL;
    j.server_load = path;
    CHECK(ps_hash(&j) == hash);
    j.work = NULL;
    CHECK(ps_hash(&j) != hash);
}

/* In the midst of training: the copies are forgotten, with what they have not
 * pushed. All workers load. */
static fleet_status go_back(ps_node *n)
{
    uint64_t saved, now;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    FL_TRY(fleet_params_hash(n->s.f, &saved));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 2));
    FL_TRY(fleet_load_model(n->s.f, n->job->user));
    FL_TRY(fleet_params_hash(n->s.f, &now));
    n->number[0] = saved == now;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1)); /* and training goes on */
    return ps_end(n);
}

TEST_LIMIT(after_a_load_all_have_what_was_loaded, 120)
{
    ps_job j = job_of(2, &(scene_training){.optimizer = "adagrad"});

    j.work = go_back;
    j.user = (void *)test_path("save");
    ps_run(&j);
    ps_check(&j);
    CHECK(ps_worker(&j, 0)->number[0] == 1);
    CHECK(ps_worker(&j, 1)->number[0] == 1);
}

enum { BATCHES = 16, BATCH = 4, LOADS_AFTER = 5 };

/* loss = mean of the rows: each row of a batch loses 0.5 / BATCH. */
static void open_means(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_dataset_options data = {.batch_size = BATCH, .n_use_var = 1};
    scene *c = &n->s;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    c->m.label = fleet_data(c->p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    c->m.prediction =
        fleet_sparse_embedding(c->p, c->m.label, 1,
                               &(fleet_sparse_embedding_options){
                                   .initializer = {FLEET_INIT_CONSTANT, 0, 0}});
    s.a_sync_configs.k_steps = 3;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(c->f, fleet_sgd(c->f, 0.5f), &s),
        fleet_mean(c->p, c->m.prediction)));
    data.use_var = &c->m.label;
    c->data = fleet_queue_dataset(c->f, &data);
    CHECK(c->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}

static const char *write_ids(void)
{
    char text[BATCHES * BATCH * 8], *at = text;

    for (int i = 0; i < BATCHES * BATCH; i++)
        at += sprintf(at, "1 %d\n", i);
    return test_file("ids.txt", text);
}

static int load_after(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;

    (void)samples;
    if (batch == LOADS_AFTER)
        CHECK_OK(fleet_load_model(n->s.f, n->job->user));
    return 0;
}

static fleet_status count_losses(ps_node *n)
{
    enum { N = BATCHES * BATCH };
    static const int64_t dims[] = {N, 1};
    int64_t id[N];
    float row[N];
    fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};
    fleet_fetch fetch = {
        .var = n->s.m.prediction, .data = row, .size = sizeof row};

    for (int i = 0; i < N; i++)
        id[i] = i;
    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    FL_TRY(fleet_executor_run(n->s.tester, &feed, 1, &fetch, 1));
    for (int i = 0; i < N; i++) {
        n->number[0] += row[i] == -0.5f / BATCH;
        n->number[1] += row[i] == -1.0f / BATCH;
    }
    return FLEET_OK;
}

static fleet_status train_and_go_back(ps_node *n)
{
    fleet_train_options o = {.on_batch = load_after, .user = n};

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    FL_TRY(count_losses(n));
    return ps_end(n);
}

/* Rows of the next batch were asked for before the load. */
TEST(a_load_in_the_midst_of_a_pass_undoes_what_came_before_it_alone)
{
    ps_job j = {.lanes = 2,
                .open = open_means,
                .file = {write_ids()},
                .work = train_and_go_back,
                .user = (void *)test_path("save")};

    ps_run(&j);
    ps_check(&j);
    CHECK_INT(ps_worker(&j, 0)->number[0] + ps_worker(&j, 0)->number[1],
              BATCHES * BATCH);
    CHECK_INT(ps_worker(&j, 0)->number[0], LOADS_AFTER * BATCH);
}

/* --- the field ------------------------------------------------------------ */

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = {.a_sync = true, .geo = n->server ? 4 : 5};

    scene_open_as(&n->s, o, &how);
}

TEST(a_server_with_another_k_refuses_the_worker)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "the worker trains in mode ps-geo, a_sync_configs.k_steps "
                   "5, this server in ps-geo, a_sync_configs.k_steps 4");
}

static fleet_distributed_strategy geo(void)
{
    fleet_distributed_strategy s = fleet_distributed_strategy_default();

    s.a_sync_configs.k_steps = 100;
    return s;
}

static void check_refused(const fleet_distributed_strategy *s, int collective,
                          fleet_status code, const char *words)
{
    const fleet_role worker = {.kind = FLEET_WORKER,
                               .worker_num = 2,
                               .collective = collective,
                               .server_endpoints = "127.0.0.1:7000"};
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &worker}));
    CHECK(!fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), s));
    CHECK_INT(fleet_last_status(), code);
    CHECK_CONTAINS(fleet_last_error(), words);
    fleet_destroy(f);
}

TEST(what_geo_cannot_be_with_is_refused_by_name)
{
    fleet_distributed_strategy s = geo();

    s.a_sync = 0;
    check_refused(&s, 0, FLEET_EINVAL,
                  "strategy.a_sync_configs.k_steps is 100, which is geo mode, "
                  "but strategy.a_sync is 0");
    s = geo();
    s.is_collective = 1;
    check_refused(&s, 1, FLEET_EUNSUPPORTED,
                  "strategy.a_sync_configs.k_steps is 100, which is geo mode: "
                  "not in mode hybrid, whose workers reduce gradients");
    s = geo();
    s.a_sync_configs.max_staleness = 3;
    check_refused(&s, 0, FLEET_EUNSUPPORTED,
                  "strategy.a_sync_configs.max_staleness: this version does "
                  "not have 3 in mode ps-geo");
    s = geo();
    s.deterministic = 1;
    check_refused(&s, 0, FLEET_EUNSUPPORTED,
                  "strategy.deterministic: this version does not have 1 in "
                  "mode ps-geo");
    s = geo();
    s.lars = 1;
    check_refused(&s, 0, FLEET_EUNSUPPORTED,
                  "strategy.lars: this version does not have it in mode "
                  "ps-geo");
}

/* --- quality, under fleetrun ---------------------------------------------- */

#define GEO "\"a_sync\": true, \"a_sync_configs\": {\"k_steps\": 100}"

TEST_LIMIT(adult_in_geo, 120)
{
    const char *line =
        job_train("--server_num 2 --worker_num 2", job_adult(GEO));

    CHECK_CONTAINS(line, "\"mode\":\"ps-geo\"");
    job_at_least(line, "auc", 0.898);
}
