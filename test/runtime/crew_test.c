/* crew_test.c - trainer threads: in order they have the bits of a gradient
 * merge over as many batches, whatever the number of compute threads; with
 * hogwild no update is lost; lines, callbacks, metrics and errors come as from
 * one thread; what they cannot train is refused by name.
 */
#define SUITE crew
#include "fake_comm.h"
#include "fake_remote.h"
#include "gpu_kit.h"
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/exec/executor.h"

enum { BATCH = 32, MOST_TEXT = 20000 };

/* What a training leaves behind. */
typedef struct outcome {
    uint64_t hash;
    int64_t updates;
    fleet_train_result r;
    char text[MOST_TEXT]; /* its lines, without the time */
} outcome;

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    outcome *o = user;
    const char *from = strstr(line, "batch:");

    (void)level;
    if (from && strlen(o->text) + strlen(from) + 2 < MOST_TEXT)
        strcat(strcat(o->text, from), "\n");
}

/* How a scene is trained here. */
typedef struct trial {
    scene_training how;
    int thread, hogwild, compute, epochs; /* 0: 1 */
    int64_t batch;                        /* 0: BATCH */
    bool counts;                          /* an AUC, in the training */
    int stop_at;                          /* a batch; 0: none */
} trial;

static int stop(void *user, int64_t batch, int64_t samples)
{
    const trial *t = user;

    CHECK(samples > 0);
    return t->stop_at > 0 && batch >= t->stop_at;
}

static outcome train(const trial *t)
{
    outcome o = {.hash = 0};
    fleet_options f = {.seed = 5,
                       .num_threads = t->compute ? t->compute : 1,
                       .log = keep_line,
                       .log_user = &o};
    const char *file = t->how.pooled
                           ? scene_pooled_file("p.txt", SCENE_LINES, 1)
                           : scene_file("a.txt", SCENE_LINES, 1);
    const fleet_var *shown[2];
    fleet_train_options how = {.fetch_list = shown,
                               .n_fetch = 1,
                               .print_period = 1,
                               .on_batch = stop,
                               .user = (void *)(uintptr_t)t,
                               .thread = t->thread,
                               .hogwild = t->hogwild};
    scene s;

    scene_open_as(&s, &f, &t->how);
    shown[0] = s.m.loss;
    if (t->counts)
        shown[how.n_fetch++] = fleet_auc(s.p, s.m.prediction, s.m.label, 100);
    scene_data(&s, file, t->batch ? t->batch : BATCH, 2, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e != NULL);
    for (int i = 0; i < (t->epochs ? t->epochs : 1); i++)
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, &how, &o.r));
    o.hash = scene_hash(&s);
    o.updates = s.e->store->updates;
    scene_close(&s);
    return o;
}

/* n threads as a merge over n batches: weights, losses, lines. */
static void check_as_merged(trial t, int threads)
{
    outcome merged, at_once;
    int merge = t.how.merge > 1 ? t.how.merge : 1;

    t.thread = threads;
    at_once = train(&t);
    t.thread = t.compute = 0;
    t.how.merge = merge * threads;
    merged = train(&t);
    CHECK(at_once.hash == merged.hash);
    CHECK_INT(at_once.updates, merged.updates);
    CHECK_TEXT(at_once.text, merged.text);
    CHECK_INT(at_once.r.batches, merged.r.batches);
    CHECK_INT(at_once.r.samples, merged.r.samples);
    CHECK(at_once.r.loss == merged.r.loss);
}

/* --- in order ------------------------------------------------------------- */

TEST(in_order_has_the_bits_of_a_gradient_merge)
{
    check_as_merged((trial){.compute = 2, .epochs = 2}, 2);
    check_as_merged((trial){.compute = 2}, 3);
    check_as_merged((trial){.compute = 1}, 5);
    check_as_merged((trial){.compute = 4, .batch = 7}, 2); /* two to each */
}

TEST(a_merge_group_has_k_steps_of_each_thread)
{
    check_as_merged((trial){.how = {.merge = 2}, .compute = 2}, 2);
    check_as_merged((trial){.how = {.merge = 3}, .compute = 2}, 4);
}

TEST(whatever_is_trained)
{
    check_as_merged((trial){.how = {.pooled = true, .clip = 0.5f}}, 2);
    check_as_merged((trial){.how = {.norm_clip = 0.01f}, .compute = 2}, 2);
    check_as_merged((trial){.how = {.storage = FLEET_ROW_INT8,
                                    .optimizer = "adagrad",
                                    .decay = true},
                            .compute = 2},
                    2);
    check_as_merged(
        (trial){.how = {.layers = "lamb", .l2_decay = 0.01f}, .compute = 2}, 2);
}

TEST(more_threads_than_a_stream_has_batches_for)
{
    check_as_merged((trial){.compute = 2, .batch = 40}, 9);
    check_as_merged((trial){.compute = 2, .batch = 100}, 64);
}

TEST(one_thread_is_the_callers_alone)
{
    outcome one = train(&(trial){.thread = 1}), none = train(&(trial){0});

    CHECK(one.hash == none.hash);
    CHECK_TEXT(one.text, none.text);
}

TEST(metrics_count_each_batch_in_its_order)
{
    outcome o = train(&(trial){.counts = true, .thread = 3, .compute = 2});

    CHECK_CONTAINS(o.text, "batch: [19], ");
    check_as_merged((trial){.counts = true, .compute = 2}, 3);
}

TEST(a_callback_ends_the_pass_behind_its_round)
{
    outcome o = train(&(trial){.thread = 2, .stop_at = 3, .compute = 2});

    CHECK_INT(o.r.batches, 4);
    CHECK_INT(o.updates, 2);
    CHECK(o.hash == train(&(trial){.how = {.merge = 2}, .stop_at = 4}).hash);
}

static int stop_at_5(void *user, int64_t batch, int64_t samples)
{
    (void)samples;
    *(int64_t *)user = batch; /* the last one that was reported */
    if (batch == 5)
        fleet_train_stop();
    return 0;
}

TEST(a_pass_that_is_stopped_goes_on_to_the_bit)
{
    fleet_options f = {.seed = 5, .num_threads = 2};
    int64_t last = 0;
    fleet_train_options how = {
        .thread = 3, .on_batch = stop_at_5, .user = &last};
    fleet_train_result r;
    scene s;

    scene_open(&s, &f, "adam");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), BATCH, 2, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &how, &r));
    CHECK_INT(r.stopped, 1);
    CHECK_INT(r.batch, 6); /* the round's last */
    CHECK_INT(last, 6);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &how, &r));
    CHECK_INT(last, 19);
    CHECK_INT(r.batches, 19);
    CHECK(scene_hash(&s) == train(&(trial){.thread = 3}).hash);
    CHECK(r.loss == train(&(trial){.thread = 3}).r.loss);
    scene_close(&s);
}

/* --- hogwild -------------------------------------------------------------- */

enum { WIDTH = 2500, OUT = 8, IDS = 30, LINES = 64 };

/* Lines of numbers that are small integers, and an id. */
static const char *whole_numbers(void)
{
    size_t room = (size_t)LINES * (2 * WIDTH + 40), used = 0;
    char *text = malloc(room);
    const char *path;

    for (int i = 0; i < LINES; i++) {
        used += (size_t)sprintf(text + used, "%d", WIDTH);
        for (int j = 0; j < WIDTH; j++)
            used += (size_t)sprintf(text + used, " %d", (i + j) % 3);
        used += (size_t)sprintf(text + used, " 1 %d\n", i % IDS);
    }
    path = test_file_bytes("whole.txt", text, used);
    free(text);
    return path;
}

/* A model whose gradients do not depend on its weights, and whose sums are
 * exact: the weights after any number of updates say whether one is missing,
 * and not in which order they were made. */
typedef struct linear {
    fleet *f;
    fleet_dataset *d;
    fleet_executor *e;
} linear;

static void linear_open(linear *m, const char *file, int64_t batch,
                        const fleet_sparse_embedding_options *rows)
{
    fleet_fc_options fc = {
        .weight = {.initializer = {.kind = FLEET_INIT_CONSTANT}}};
    fleet_var *x, *id, *loss;
    fleet_program *p;

    CHECK_OK(fleet_init(&m->f, &(fleet_options){.num_threads = 2}));
    p = fleet_program_create(m->f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, WIDTH}, 2);
    id = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    loss = fleet_add(p, fleet_mean(p, fleet_fc(p, x, OUT, &fc)),
                     fleet_mean(p, fleet_sparse_embedding(p, id, OUT, rows)));
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, 0.125f), loss));
    m->d = fleet_queue_dataset(
        m->f, &(fleet_dataset_options){.batch_size = batch,
                                       .use_var = (fleet_var *[]){x, id},
                                       .n_use_var = 2});
    CHECK(m->d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(m->d, &file, 1));
    m->e = fleet_executor_create(p, NULL);
    CHECK(m->e != NULL);
}

static void linear_close(linear *m)
{
    fleet_executor_destroy(m->e);
    fleet_destroy(m->f);
}

static uint64_t sum_with_life(const fleet_table_options *life, const char *file,
                              int64_t batch, int threads, int hogwild,
                              int64_t updates)
{
    fleet_sparse_embedding_options rows = {
        .initializer = {.kind = FLEET_INIT_CONSTANT}, .life = *life};
    fleet_train_options how = {.thread = threads, .hogwild = hogwild};
    uint64_t hash;
    linear m;

    linear_open(&m, file, batch, &rows);
    while (m.e->store->updates < updates)
        CHECK_OK(fleet_train_from_dataset(m.e, m.d, &how, NULL));
    CHECK_INT(m.e->store->updates, updates);
    CHECK_OK(fleet_params_hash(m.f, &hash));
    linear_close(&m);
    return hash;
}

static uint64_t sum_of_updates(const char *file, int64_t batch, int threads,
                               int hogwild, int64_t updates)
{
    static const fleet_table_options none;

    return sum_with_life(&none, file, batch, threads, hogwild, updates);
}

TEST(hogwild_loses_no_update)
{
    const char *file = whole_numbers();
    int64_t updates = (test_fraction() <= 10 ? 30 : 1) * LINES / 2;
    uint64_t hash = sum_of_updates(file, 2, 1, 0, updates);

    CHECK(sum_of_updates(file, 2, 2, 1, updates) == hash);
    CHECK(sum_of_updates(file, 2, 4, 1, updates) == hash);
}

TEST(in_order_batches_are_one_that_is_as_large)
{
    const char *file = whole_numbers();

    CHECK(sum_of_updates(file, 2, 4, 0, LINES / 8) ==
          sum_of_updates(file, 8, 1, 0, LINES / 8));
}

/* Of a key that comes for the third time, a round is one update. */
TEST(tables_may_have_a_life)
{
    const fleet_table_options third = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};
    const char *file = whole_numbers();
    uint64_t hash = sum_with_life(&third, file, 8, 1, 0, LINES / 2);

    CHECK(sum_with_life(&third, file, 2, 4, 0, LINES / 2) == hash);
    CHECK(sum_of_updates(file, 2, 4, 0, LINES / 2) != hash);
    sum_with_life(&third, file, 2, 4, 1, LINES); /* the number of updates */
}

TEST(hogwild_trains)
{
    const fleet_evaluation least = {.auc = 0.9};
    fleet_options f = {.seed = 5, .num_threads = 2};
    fleet_train_options how = {.thread = 2, .hogwild = 1};
    fleet_executor_options test = {.for_test = 1};
    fleet_evaluation got;
    scene s;

    scene_open(&s, &f, "adam");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    s.tester = fleet_executor_create(s.p, &test);
    for (int i = 0; i < 8; i++)
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, &how, NULL));
    CHECK_INT(s.e->store->updates, 8 * 19);
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &got));
    CHECK(got.auc > least.auc);
    scene_close(&s);
}

/* Each thread's copy is of the weights of its batch's start: with one compute
 * thread batches of a round train one behind the other, as without threads. */
TEST(hogwild_on_one_thread_is_one_batch_after_the_other)
{
    trial t = {.how = {.pooled = true, .clip = 0.5f, .decay = true}};
    outcome alone = train(&t), hogwild;

    t.thread = 4;
    t.hogwild = 1;
    hogwild = train(&t);
    CHECK(hogwild.hash == alone.hash);
    CHECK_TEXT(hogwild.text, alone.text);
    CHECK_INT(hogwild.updates, alone.updates);
    t.counts = true; /* metrics count where threads meet */
    t.how.storage = FLEET_ROW_FLOAT16;
    hogwild = train(&t);
    t.thread = 0;
    CHECK(hogwild.hash == train(&t).hash);
}

/* --- one kind after the other --------------------------------------------- */

static fleet_status pass(scene *s, int threads, int hogwild)
{
    return fleet_train_from_dataset(
        s->e, s->data,
        &(fleet_train_options){.thread = threads, .hogwild = hogwild}, NULL);
}

TEST(passes_of_one_executor_may_have_other_threads)
{
    fleet_options f = {.seed = 5, .num_threads = 1};
    uint64_t hash[2];
    scene s;

    for (int i = 0; i < 2; i++) {
        scene_open(&s, &f, "adam");
        scene_data(&s, scene_file("a.txt", 100, 1), BATCH, 1, 0);
        s.e = fleet_executor_create(s.p, NULL);
        CHECK_OK(pass(&s, 2, 0));
        CHECK_OK(pass(&s, i == 0 ? 0 : 4, 1)); /* the same, on one thread */
        CHECK_OK(pass(&s, 3, 0));
        CHECK_OK(pass(&s, 0, 0));
        hash[i] = scene_hash(&s);
        scene_close(&s);
    }
    CHECK(hash[0] == hash[1]);
}

/* --- errors --------------------------------------------------------------- */

static void check_explodes(int threads, int hogwild, const char *words)
{
    fleet_options f = {.seed = 5, .num_threads = 2};
    scene s;

    scene_open(&s, &f, "explode");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(pass(&s, threads, hogwild), FLEET_ENUMERIC, words);
    CHECK_FAILS(pass(&s, 0, 0), FLEET_ENUMERIC, "is not finite");
    scene_close(&s);
}

TEST(a_loss_that_is_not_finite_is_that_of_its_batch)
{
    check_explodes(2, 0, "batch 3: the loss is not finite");
    check_explodes(4, 0, "batch 5: the loss is not finite");
    check_explodes(2, 1, ": the loss is not finite");
}

TEST(a_malformed_line_comes_behind_the_batches_before_it)
{
    char text[3 * 100];
    fleet_options f = {.seed = 5, .num_threads = 2};
    fleet_train_result r;
    scene s;

    snprintf(text, sizeof text, "%s%s%s",
             "1 1 3 0.1 0.2 0.3 1 5 1 6 1 7\n1 0 3 0.1 0.2 0.3 1 5 1 6 1 7\n",
             "1 1 3 0.1 0.2 0.3 1 5 1 6 1 7\n", "1 1 3 0.1 0.2\n");
    scene_open(&s, &f, "adam");
    scene_data(&s, test_file("b.txt", text), 1, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(
                    s.e, s.data, &(fleet_train_options){.thread = 2}, &r),
                FLEET_EFORMAT, "b.txt:4");
    CHECK_INT(r.batches, 3);
    CHECK_INT(s.e->store->updates, 1); /* the rest of the group is given up */
    CHECK_INT(s.e->store->n_flat, 0);
    scene_close(&s);
}

static void refuse(const trial *t, fleet_status status, const char *words)
{
    scene s;

    scene_open_as(&s, NULL, &t->how);
    scene_data(&s, scene_file("a.txt", 10, 1), BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(pass(&s, t->thread, t->hogwild), status, words);
    scene_close(&s);
}

TEST(what_threads_cannot_train_is_refused_by_name)
{
    refuse(&(trial){.thread = 65}, FLEET_EINVAL,
           "thread 65: expected 0 to 64 trainer threads");
    refuse(&(trial){.thread = -1}, FLEET_EINVAL, "thread -1: expected 0 to 64");
    refuse(&(trial){.thread = 2, .hogwild = 1, .how = {.merge = 2}},
           FLEET_EUNSUPPORTED, "hogwild do not merge batches");
    refuse(&(trial){.thread = 2, .hogwild = 1, .how = {.layers = "lamb"}},
           FLEET_EUNSUPPORTED, "hogwild do not train by lars or lamb");
    refuse(&(trial){.thread = 2, .hogwild = 1, .how = {.norm_clip = 1}},
           FLEET_EUNSUPPORTED, "hogwild do not clip by norm");
}

TEST(tables_with_a_memory_cap_are_refused)
{
    fleet_sparse_embedding_options rows = {.memory_cap_bytes = 1 << 20,
                                           .cold_folder = test_folder()};
    linear m;

    linear_open(&m, whole_numbers(), 2, &rows);
    CHECK_FAILS(fleet_train_from_dataset(
                    m.e, m.d, &(fleet_train_options){.thread = 2}, NULL),
                FLEET_EUNSUPPORTED, "memory_cap_bytes");
    linear_close(&m);
}

TEST(a_gpu_is_refused)
{
    fleet_executor_options here = {.place = FLEET_CPU};
    fleet_train_options two = {.thread = 2};
    scene s;

    gpu_kit_open();
    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 100, 1), BATCH, 1, 0);
    CHECK_OK(fleet_program_place(s.p, FLEET_GPU(0), NULL));
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e != NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &two, NULL),
                FLEET_EUNSUPPORTED, "trainer threads do not train on a GPU");
    fleet_executor_destroy(s.e);
    s.e = fleet_executor_create(s.p, &here);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &two, NULL));
    scene_close(&s);
    gpu_kit_close();
}

/* A rank says what it intends before each update: members would. */
TEST(ranks_are_refused)
{
    static fake_group ranks;
    scene s;

    fake_group_open(&ranks, 2);
    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 10, 1), BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    s.e->store->agree = &ranks.rank[0].rounds;
    CHECK_FAILS(pass(&s, 2, 0), FLEET_EUNSUPPORTED,
                "trainer threads do not train among ranks");
    s.e->store->agree = NULL;
    scene_close(&s);
    fake_group_close(&ranks);
}

TEST(tests_have_one_thread)
{
    fleet_executor_options test = {.for_test = 1};
    fleet_train_options two = {.thread = 2};
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 10, 1), BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, &test);
    CHECK_FAILS(fleet_infer_from_dataset(s.e, s.data, &two, NULL),
                FLEET_EUNSUPPORTED, "trainer threads are for training");
    scene_close(&s);
}

/* --- with servers --------------------------------------------------------- */

typedef struct remote_scene {
    fake_server server;
    fake_worker worker;
    scene s;
} remote_scene;

static void open_remote(remote_scene *r, int merge, bool sync)
{
    const scene_training how = {.merge = merge};
    const fleet_options f = {.seed = 5, .num_threads = 2};

    scene_open_as(&r->s, &f, &how);
    scene_data(&r->s, scene_file("a.txt", 200, 1), BATCH, 1, 0);
    fake_server_open(&r->server, r->s.p, 1, sync);
    fake_worker_open(&r->worker, &r->server, r->s.f, 0);
    r->s.e = fleet_executor_create(r->s.p, NULL);
}

/* Nothing that was pulled is in use. */
static void close_remote(remote_scene *r)
{
    fleet_executor_destroy(r->s.e);
    r->s.e = NULL;
    fake_worker_close(&r->worker);
    fake_server_close(&r->server);
    scene_close(&r->s);
}

static uint64_t train_remotely(int threads, int merge, bool sync)
{
    remote_scene r;
    uint64_t hash;

    open_remote(&r, merge, sync);
    CHECK_OK(pass(&r.s, threads, 0));
    CHECK_OK(pass(&r.s, threads, 0));
    hash = fake_server_hash(&r.server);
    close_remote(&r);
    return hash;
}

/* Rows that come at the last moment, and go as soon as they may. */
TEST(with_servers_in_order_has_the_bits_of_a_gradient_merge)
{
    for (int threads = 2; threads < 5; threads++)
        for (int sync = 0; sync < 2; sync++)
            CHECK(train_remotely(threads, 1, sync) ==
                  train_remotely(1, threads, sync));
}

/* All pulls of a round are under way before one is waited for; the update is
 * one push. */
TEST(with_servers_a_round_pulls_for_all_and_pushes_once)
{
    remote_scene r;

    open_remote(&r, 1, true);
    CHECK_OK(pass(&r.s, 3, 0));
    CHECK_CONTAINS(r.worker.calls, "pull2 pull3 pull4 arrive2 arrive3 arrive4 "
                                   "push settle drop2 drop3 drop4");
    close_remote(&r);
}

TEST(with_servers_hogwild_pushes_each_batch)
{
    remote_scene r;

    open_remote(&r, 1, false);
    CHECK_OK(pass(&r.s, 2, 1));
    CHECK_CONTAINS(r.worker.calls, "arrive2 arrive3 push push drop2 drop3");
    close_remote(&r);
    open_remote(&r, 1, true);
    CHECK_FAILS(pass(&r.s, 2, 1), FLEET_EUNSUPPORTED,
                "with hogwild do not train with servers in sync");
    close_remote(&r);
}

/* Whichever call of it fails: nothing stays under way, and the next pass
 * trains. */
TEST(with_servers_a_call_that_fails_ends_the_pass)
{
    for (int call = FAKE_PULL; call <= FAKE_PUSH; call++)
        for (int hogwild = 0; hogwild < 2; hogwild++)
            for (int n = 1; n < 4; n++) {
                remote_scene r;

                open_remote(&r, 1, false);
                r.worker.fail_at[call] = n;
                CHECK(pass(&r.s, 2, hogwild) != FLEET_OK);
                CHECK_OK(pass(&r.s, 2, hogwild));
                close_remote(&r);
            }
}

/* --- memory --------------------------------------------------------------- */

/* A pass in which allocation n fails, 0: none, and one after it; how many
 * allocations the first one made. */
static int64_t fail_at(const char *file, int hogwild, int64_t n, int64_t made)
{
    fleet_status status;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, file, 8, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    fl_memory_fail_at(n, false);
    status = pass(&s, 2, hogwild);
    if (n == 0)
        made = fl_memory_count();
    fl_memory_fail_at(0, false);
    if (status != (n ? FLEET_ENOMEM : FLEET_OK) && n < made - 20)
        test_fail(__FILE__, __LINE__, "allocation %lld of %lld: %s",
                  (long long)n, (long long)made, fleet_status_name(status));
    CHECK_OK(pass(&s, 2, hogwild));
    scene_close(&s);
    return made;
}

/* Whichever allocation it is; reader threads may make a few more or less. */
TEST(memory_that_runs_out_is_an_error)
{
    const char *file = scene_file("a.txt", 40, 1);

    for (int hogwild = 0; hogwild < 2; hogwild++) {
        int64_t made = fail_at(file, hogwild, 0, 0);

        CHECK(made > 100);
        for (int64_t n = 1; n <= made; n += test_fraction() == 1 ? 7 : 41)
            fail_at(file, hogwild, n, made);
    }
}
