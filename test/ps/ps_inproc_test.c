/* ps_inproc_test.c - whole jobs in one process, over inproc://: in sync the
 * same bits as one process, however many servers and lanes there are; in async
 * every gradient exactly once. */
#define SUITE ps_inproc
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- bits ----------------------------------------------------------------- */

/* Whatever the servers and lanes, the hash is that one. */
static void check_everywhere(ps_job j, uint64_t want)
{
    static const struct {
        int servers, lanes;
    } shape[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 1}, {3, 3}};

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int again = 0; again < 2; again++) {
            j.servers = shape[i].servers;
            j.lanes = shape[i].lanes;
            if (ps_hash(&j) != want)
                test_fail(__FILE__, __LINE__, "%d servers of %d lanes differ",
                          j.servers, j.lanes);
        }
}

/* 600 lines are 18 batches of 32 and one of 24: 19 steps of one, 9 of two and
 * one of one. */
TEST(two_workers_are_one_process_that_merges_their_batches)
{
    ps_job j = {.workers = 2, .file = {scene_file("a.txt", 600, 1)}};

    check_everywhere(j, ps_alone(&j, 2));
}

/* Weights, maxima, and samples without ids or numbers. */
TEST(workers_whose_slots_are_pooled_are_one_process)
{
    ps_job j = {.workers = 2,
                .passes = 2,
                .how.pooled = true,
                .file = {scene_pooled_file("a.txt", 300, 1)}};

    check_everywhere(j, ps_alone(&j, 2));
}

TEST(three_workers_with_an_uneven_end_and_two_passes)
{
    ps_job j = {.workers = 3,
                .passes = 2,
                .file = {scene_file("a.txt", 450, 1)},
                .shuffle = 100};
    uint64_t want = ps_alone(&j, 3);

    for (j.servers = 1; j.servers <= 3; j.servers++)
        CHECK(ps_hash(&j) == want);
}

TEST(one_worker_that_merges_is_one_process_that_merges)
{
    ps_job j = {.file = {scene_file("a.txt", 300, 1)}, .how.merge = 2};

    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

TEST(workers_that_merge_have_the_same_bits_everywhere)
{
    ps_job j = {.workers = 2,
                .passes = 2,
                .file = {scene_file("a.txt", 450, 1)},
                .how.merge = 2};
    uint64_t want = ps_hash(&j);

    j.servers = 3;
    CHECK(ps_hash(&j) == want);
    j.lanes = 2;
    CHECK(ps_hash(&j) == want);
    j.how.merge = 3;
    CHECK(ps_hash(&j) != want);
}

TEST(every_optimizer_and_everything_that_changes_gradients)
{
    static const scene_training how[] = {
        {.optimizer = "sgd", .clip = 0.3f},
        {.optimizer = "momentum", .l2_decay = 0.01f},
        {.optimizer = "adagrad", .decay = true},
        {.optimizer = "adam", .clip = 0.1f, .l2_decay = 0.01f, .decay = true},
        {.optimizer = KIT_ROW_ADAM, .l2_decay = 0.01f}};
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .passes = 2,
                .file = {scene_file("a.txt", 300, 1)}};
    uint64_t plain = ps_hash(&j);

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        j.how = how[i];
        if (ps_hash(&j) != ps_alone(&j, 2))
            test_fail(__FILE__, __LINE__, "%s differs", how[i].optimizer);
        CHECK(ps_worker(&j, 0)->hash != plain);
    }
}

TEST(workers_with_files_of_their_own)
{
    ps_job j = {.servers = 2,
                .workers = 3,
                .passes = 2,
                .shuffle = 50,
                .file = {scene_file("a.txt", 100, 1),
                         scene_file("b.txt", 10, 2),
                         scene_file("c.txt", 250, 3)}};
    uint64_t want = ps_hash(&j);
    const fleet_train_result *r = &ps_worker(&j, 2)->result;

    CHECK_INT(r->samples, 360);
    CHECK_INT(r->batches, 4 + 1 + 8);
    for (int i = 0; i < 2; i++)
        CHECK(ps_worker(&j, i)->result.loss == r->loss);
    j.servers = 1;
    CHECK(ps_hash(&j) == want);
}

TEST(a_worker_without_a_batch_takes_part)
{
    ps_job j = {
        .workers = 4, .passes = 2, .file = {scene_file("a.txt", 70, 1)}};

    CHECK(ps_hash(&j) == ps_alone(&j, 4));
}

/* A tower whose layers have rates and decays of their own, one of them
 * frozen. */
static void open_rates(ps_node *n, const fleet_options *o)
{
    const ps_job *j = n->job;
    fleet_param_attr slow = {.learning_rate = 0.1f, .no_decay = 1},
                     frozen = {.frozen = 1};
    fleet_sparse_embedding_options rows = {.learning_rate = 3,
                                           .l2_decay = 0.1f};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *label, *x, *u;
    scene *c = &n->s;
    fleet_optimizer *adam;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    label = fleet_data(c->p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    x = fleet_data(c->p, "dense", FLEET_FLOAT32, (int64_t[]){-1, 3}, 2);
    u = fleet_data(c->p, "u", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    u = fleet_sparse_embedding(c->p, u, 4, &rows);
    x = fleet_concat(c->p, (fleet_var *[]){x, u}, 2, 1);
    x = fleet_fc(c->p, x, 300,
                 &(fleet_fc_options){.activation = FLEET_TANH, .weight = slow});
    x = fleet_fc(c->p, x, 70, &(fleet_fc_options){.weight = frozen});
    x = fleet_fc(c->p, x, 1, &(fleet_fc_options){.activation = FLEET_SIGMOID});
    x = fleet_mean(c->p, fleet_log_loss(c->p, x, label, 0));
    CHECK_OK(fleet_program_status(c->p));
    adam = fleet_adam(c->f, 0.01f, NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(adam, 0.01f));
    s.a_sync = 0;
    s.gradient_merge = j->how.merge > 1;
    s.gradient_merge_configs.k_steps = j->how.merge > 1 ? j->how.merge : 1;
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(c->f, adam, &s), x));
    c->data = fleet_queue_dataset(
        c->f,
        &(fleet_dataset_options){
            .batch_size = PS_BATCH,
            .use_var = (fleet_var *[]){label, fleet_program_var(c->p, "dense"),
                                       fleet_program_var(c->p, "u")},
            .n_use_var = 3});
    CHECK(c->data);
    CHECK_OK(fleet_dataset_set_filelist(c->data, j->file, 1));
}

static const char *short_file(int lines)
{
    char text[9000], *at = text;

    for (int i = 0; i < lines; i++)
        at += sprintf(at, "1 %d 3 0.%d 0.%d -1 1 %d\n", i % 3 == 0, i * 7 % 10,
                      i * 3 % 10, i * i % 37);
    return test_file("short.txt", text);
}

TEST(parameters_with_rates_of_their_own)
{
    ps_job j = {.workers = 2, .passes = 2, .open = open_rates};
    uint64_t want;

    j.file[0] = short_file(200);
    want = ps_alone(&j, 2);
    for (j.servers = 1; j.servers <= 3; j.servers++)
        CHECK(ps_hash(&j) == want);
}

/* Weights of several blocks, a bias of one: 20 x 900 and 900 x 40. */
static void open_mlp(ps_node *n, const fleet_options *o)
{
    static const int64_t hidden[] = {900, 40};
    fleet_optimizer *adam;
    scene *c = &n->s;
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    fleet_mlp(c->p,
              &(fleet_mlp_options){
                  .dim = 20, .classes = 3, .hidden = hidden, .n_hidden = 2},
              &c->m);
    CHECK_OK(fleet_program_status(c->p));
    adam = fleet_adam(c->f, 0.01f, NULL);
    CHECK_OK(fleet_optimizer_set_global_norm_clip(adam, 0.2f));
    s.a_sync = 0;
    s.gradient_merge = n->job->how.merge > 1;
    s.gradient_merge_configs.k_steps =
        n->job->how.merge > 1 ? n->job->how.merge : 1;
    CHECK_OK(
        fleet_minimize(fleet_distributed_optimizer(c->f, adam, &s), c->m.loss));
    c->data = fleet_queue_dataset(
        c->f, &(fleet_dataset_options){
                  .batch_size = PS_BATCH,
                  .use_var = (fleet_var *[]){c->m.label,
                                             fleet_program_var(c->p, "image")},
                  .n_use_var = 2});
    CHECK(c->data);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}

static const char *images(int lines)
{
    char *text = malloc((size_t)lines * 200), *at = text;
    const char *path;

    for (int i = 0; i < lines; i++) {
        at += sprintf(at, "1 %d 20", i * i % 3);
        for (int k = 0; k < 20; k++)
            at += sprintf(at, " 0.%d", (i * 31 + k * k * 7) % 97);
        at += sprintf(at, "\n");
    }
    path = test_file("images.txt", text);
    free(text);
    return path;
}

TEST(dense_weights_of_several_blocks_with_a_clip)
{
    ps_job j = {.workers = 2, .open = open_mlp, .file = {images(200)}};

    check_everywhere(j, ps_alone(&j, 2));
}

static void check_async(const char *file, bool pooled)
{
    ps_job j = {.servers = 2,
                .workers = 3,
                .lanes = 2,
                .passes = 1,
                .how = {.a_sync = true,
                        .clip = 0.9f,
                        .decay = !pooled,
                        .pooled = pooled},
                .file = {file}};
    double first;

    ps_hash(&j);
    first = ps_worker(&j, 0)->result.loss;
    j.passes = 6;
    ps_hash(&j);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(ps_worker(&j, i)->result.batches, 19);
        CHECK_INT(ps_worker(&j, i)->result.samples, 600);
        CHECK(ps_worker(&j, i)->result.loss < first - 0.02);
    }
}

TEST(async_trains_and_counts_every_batch)
{
    check_async(scene_file("a.txt", 600, 1), false);
    check_async(scene_pooled_file("b.txt", 600, 1), true);
}

/* --- the sum test --------------------------------------------------------- */

/* loss = mean(w x) + mean(rows): constant gradients, of 1 / 4 for w where x is
 * 0.25, of n / B for a row that is n times in the batch. */
static void open_sums(ps_node *n, const fleet_options *o)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    scene *c = &n->s;
    fleet_var *x, *id, *loss;

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    x = fleet_data(c->p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    id = fleet_data(c->p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    x = fleet_fc(c->p, x, 1,
                 &(fleet_fc_options){.weight.initializer = zero, .no_bias = 1});
    id = fleet_sparse_embedding(
        c->p, id, 1, &(fleet_sparse_embedding_options){.initializer = zero});
    loss = fleet_mean(c->p, fleet_add(c->p, x, id));
    CHECK_OK(fleet_program_status(c->p));
    s.a_sync = n->job->how.a_sync;
    if (n->job->how.merged > 0)
        s.a_sync_configs.max_merge_var_num = n->job->how.merged;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(c->f, fleet_sgd(c->f, 0.5f), &s), loss));
    c->m.prediction = x;
    c->m.label = id;
}

static fleet_status step(ps_node *n, fleet_executor *e, fleet_fetch *fetch,
                         int n_fetch)
{
    static const float x[4] = {0.25f, 0.25f, 0.25f, 0.25f};
    static const int64_t id[4] = {7, 8, 7, 7};
    static const int64_t dims[] = {4, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, x, dims, 2, NULL},
                         {"id", FLEET_INT64, id, dims, 2, NULL}};

    (void)n;
    return fleet_executor_run(e, feed, 2, fetch, n_fetch);
}

static fleet_status read_sums(ps_node *n)
{
    float x[4], row[4];
    fleet_fetch fetch[] = {
        {.var = n->s.m.prediction, .data = x, .size = sizeof x},
        {.var = n->s.m.label, .data = row, .size = sizeof row}};
    fleet_status status = FLEET_OK;

    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    CHECK(n->s.tester);
    status = step(n, n->s.tester, fetch, 2);
    n->number[0] = (double)x[0] * 4;
    n->number[1] = (double)row[0];
    n->number[2] = (double)row[1];
    return status;
}

static fleet_status push_500(ps_node *n)
{
    fleet_status status = ps_begin(n);

    for (int i = 0; i < 500 && status == FLEET_OK; i++)
        status = step(n, n->s.e, NULL, 0);
    if (status == FLEET_OK)
        status = fleet_barrier_worker(n->s.f);
    if (status == FLEET_OK)
        status = read_sums(n);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* 2 workers x 500 steps of 0.5 * 0.25; of 0.5 * 3/4; of 0.5 * 1/4. */
TEST(async_applies_every_gradient_exactly_once)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .how.a_sync = true,
                .open = open_sums,
                .work = push_500};

    ps_hash(&j);
    for (int i = 0; i < 2; i++) {
        const ps_node *n = ps_worker(&j, i);

        CHECK_NEAR(n->number[0], -125, 0);
        CHECK_NEAR(n->number[1], -375, 0);
        CHECK_NEAR(n->number[2], -125, 0);
    }
}

/* Their means: a quarter of it. */
TEST(half_async_applies_every_gradient_exactly_once)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .how = {.a_sync = true, .merged = 4},
                .open = open_sums,
                .work = push_500};

    ps_hash(&j);
    for (int i = 0; i < 2; i++) {
        const ps_node *n = ps_worker(&j, i);

        CHECK_NEAR(n->number[0], -125.0 / 4, 0);
        CHECK_NEAR(n->number[1], -375.0 / 4, 0);
        CHECK_NEAR(n->number[2], -125.0 / 4, 0);
    }
}

/* --- loops of the host's own ---------------------------------------------- */

/* Worker i does 3 i steps, twice, and worker 0 evaluates in between. */
static fleet_status loop(ps_node *n)
{
    fleet_status status = ps_begin(n);

    for (int pass = 0; pass < 2 && status == FLEET_OK; pass++) {
        for (int i = 0; i < 3 * n->index && status == FLEET_OK; i++)
            status = step(n, n->s.e, NULL, 0);
        if (status == FLEET_OK)
            status = fleet_barrier_worker(n->s.f);
        if (status == FLEET_OK && n->index == 0) {
            fleet_executor_destroy(n->s.tester);
            status = read_sums(n);
        }
    }
    return status == FLEET_OK ? ps_end(n) : status;
}

/* In sync the longest loop counts the updates, each of a mean; in async all
 * add up, in half-async means of up to four. */
TEST(loops_with_unequal_counts_meet_in_a_barrier)
{
    ps_job j = {.servers = 2, .workers = 3, .open = open_sums, .work = loop};

    ps_hash(&j);
    CHECK_NEAR(ps_worker(&j, 0)->number[0], -6 * 2 * 0.125, 0);
    CHECK_NEAR(ps_worker(&j, 0)->number[1], -6 * 2 * 0.375, 0);
    j.how.a_sync = true;
    ps_hash(&j);
    CHECK_NEAR(ps_worker(&j, 0)->number[0], -(0 + 3 + 6) * 2 * 0.125, 0);
    CHECK_NEAR(ps_worker(&j, 0)->number[1], -(0 + 3 + 6) * 2 * 0.375, 0);
    j.how.merged = 4; /* 3 are a push, 6 are two */
    ps_hash(&j);
    CHECK_NEAR(ps_worker(&j, 0)->number[0], -(0 + 1 + 2) * 2 * 0.125, 0);
    CHECK_NEAR(ps_worker(&j, 0)->number[1], -(0 + 1 + 2) * 2 * 0.375, 0);
}

/* --- many ----------------------------------------------------------------- */

/* Two steps of all. */
TEST(sixty_four_workers_on_eight_servers_of_four_lanes_are_one_process)
{
    enum { WORKERS = 64, SAMPLES = 4 };
    ps_job j = {.servers = 8,
                .workers = WORKERS,
                .lanes = 4,
                .batch = SAMPLES,
                .how = {.optimizer = "sgd"},
                .file = {scene_file("a.txt", 2 * WORKERS * SAMPLES, 1)}};

    CHECK(ps_hash(&j) == ps_alone(&j, WORKERS));
}

/* --- what is left --------------------------------------------------------- */

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    CHECK(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static fleet_status fail_in_the_midst(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK && n->index == 1)
        return fleet_params_hash(NULL, NULL); /* any failure */
    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(no_descriptor_stays_open_however_a_job_ends)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .file = {scene_file("a.txt", 100, 1)}};
    int before;

    ps_hash(&j);
    before = open_files();
    for (int i = 0; i < 3; i++)
        ps_hash(&j);
    j.work = fail_in_the_midst;
    for (int i = 0; i < 3; i++) {
        ps_run(&j);
        CHECK(ps_worker(&j, 0)->status != FLEET_OK);
    }
    CHECK_INT(open_files(), before);
}
