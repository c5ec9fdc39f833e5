/* gpu_graphs_test.c - what a GPU does in an iteration, captured and replayed:
 * the bits of steps that are queued one by one, in far fewer calls; a capture
 * that fails is done without; what fails in a replayed iteration is told. */
#define SUITE gpu_graphs
#include "workers_kit.h"
#include "gpu_kit.h"
#include "rule_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/job/handle.h"
#include "runtime/optim/rule.h"
#include "runtime/exec/executor.h"

/* A list is captured when it comes again, and there are two slots. */
enum { BEFORE_REPLAY = 4 };

/* No more than these: fewer are better. */
enum { MLP_NODES = 22, WIDE_DEEP_NODES = 50 };

static void train(kit_model *m, int64_t rows, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        kit_batch *b = kit_batch_for(m, rows, i);

        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
}

/* What the host queues in one such batch. */
static long calls_of(kit_model *m, int64_t rows)
{
    long before = gpu_kit_control()->queued();

    train(m, rows, 1, 1);
    return gpu_kit_control()->queued() - before;
}

/* --- the same bits ------------------------------------------------------- */

/* Full batches and short ones, again and again. */
static void train_long(kit_model *m)
{
    for (int i = 0; i < 5; i++) {
        train(m, 40, 10 * i, 4);
        train(m, 17, 10 * i + 5, 1);
        CHECK_OK(fleet_executor_flush(m->e));
    }
}

static void check_same(kit_kind kind, kit_options o)
{
    kit_model with, without;

    with = gpu_kit_model(kind, o);
    o.no_graphs = true;
    without = gpu_kit_model(kind, o);
    train_long(&with);
    train_long(&without);
    CHECK(kit_hash(with.f) == kit_hash(without.f));
    CHECK(calls_of(&with, 40) < calls_of(&without, 40));
    kit_close(&with);
    kit_close(&without);
}

static void check_both(kit_options o)
{
    gpu_kit_open();
    if (test_fraction() == 1)
        check_same(KIT_MLP, o);
    check_same(KIT_CTR, o);
    gpu_kit_close();
}

TEST(graphs_give_the_bits_of_single_steps_with_each_shape_of_rule)
{
    for (int i = 0; kit_rule_of_shape(i); i++)
        check_both((kit_options){.optimizer = kit_rule_of_shape(i),
                                 .l2_decay = 0.01f});
}

TEST(graphs_give_the_bits_of_single_steps_that_merge_and_clip)
{
    check_both((kit_options){.merge = 2, .clip = 0.1f});
    check_both((kit_options){.merge = 3, .sum = true, .optimizer = "sgd"});
}

TEST(graphs_give_the_bits_of_single_steps_beside_steps_of_the_cpu)
{
    check_both((kit_options){.guard = "cpu", .optimizer = "sgd"});
}

TEST(graphs_give_the_bits_of_single_steps_with_rates_of_layers)
{
    check_both((kit_options){.layers = "lars"});
    check_both((kit_options){.layers = "lamb", .merge = 2});
}

/* With updates that are skipped at first, and a scale that grows later. */
TEST(graphs_give_the_bits_of_single_steps_in_mixed_precision)
{
    const fleet_amp_configs c = {.init_loss_scaling = 0x1p30f,
                                 .incr_every_n_steps = 5,
                                 .decr_every_n_nan_or_inf = 1,
                                 .incr_ratio = 2,
                                 .decr_ratio = 0.25f,
                                 .use_dynamic_loss_scaling = 1};

    check_both((kit_options){.bf16 = true});
    check_both((kit_options){.fp16 = true, .scaling = &c});
    check_both((kit_options){.fp16 = true, .scaling = &c, .merge = 2});
}

/* What an update is told changes, and is told by the same memory. */
TEST(the_learning_rate_and_the_step_reach_a_replayed_update)
{
    kit_model m[2];

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        m[i] = gpu_kit_model(KIT_MLP, (kit_options){.no_graphs = i});
        CHECK_OK(fleet_optimizer_set_piecewise_decay(
            m[i].o, (int64_t[]){7, 9}, (float[]){0.1f, 0.03f, 0.01f}, 2));
        train(&m[i], 40, 0, 12);
        CHECK_OK(fleet_executor_flush(m[i].e));
    }
    CHECK(kit_hash(m[0].f) == kit_hash(m[1].f));
    kit_close(&m[0]);
    kit_close(&m[1]);
    gpu_kit_close();
}

static double evaluate(const kit_model *m)
{
    fleet_executor *e =
        fleet_executor_create(m->p, &(fleet_executor_options){.for_test = 1});
    double sum = 0;

    CHECK(e != NULL);
    for (int i = 0; i < 6; i++) {
        kit_batch *b = kit_batch_for(m, i == 5 ? 11 : 33, i);

        sum += (double)kit_step(e, b, m->m.loss);
        kit_batch_free(b);
    }
    fleet_executor_destroy(e);
    return sum;
}

TEST(evaluations_and_loads_in_between_are_seen_by_graphs)
{
    double loss[2][2];
    kit_model m[2];

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        m[i] = gpu_kit_model(KIT_CTR, (kit_options){.no_graphs = i});
        train(&m[i], 40, 0, 8);
        loss[i][0] = evaluate(&m[i]);
        CHECK_OK(fleet_save_persistables(m[i].f, test_path("save")));
        train(&m[i], 40, 8, 3);
        loss[i][1] = evaluate(&m[i]);
        CHECK(loss[i][1] != loss[i][0]);
        CHECK_OK(fleet_load_model(m[i].f, test_path("save")));
        CHECK(evaluate(&m[i]) == loss[i][0]);
        train(&m[i], 40, 20, 3);
    }
    CHECK(loss[0][0] == loss[1][0] && loss[0][1] == loss[1][1]);
    CHECK(kit_hash(m[0].f) == kit_hash(m[1].f));
    kit_close(&m[0]);
    kit_close(&m[1]);
    gpu_kit_close();
}

/* A larger batch moves what is pinned, under a plan that was replayed. */
TEST(memory_that_moves_is_not_used_by_old_graphs)
{
    static const int64_t rows[] = {8, 200, 8, 350, 200, 8};
    kit_options o = {.device = "gpu:0"};
    kit_model m[2];

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        for (int i = 0; i < 2; i++) {
            o.no_graphs = i;
            kit_open(&m[i], (kit_kind)kind, &o);
            for (int r = 0; r < 6; r++)
                train(&m[i], rows[r], r, 5);
            CHECK_OK(fleet_executor_flush(m[i].e));
        }
        CHECK(kit_hash(m[0].f) == kit_hash(m[1].f));
        kit_close(&m[0]);
        kit_close(&m[1]);
    }
    gpu_kit_close();
}

/* What comes from servers is sent by pinned memory, also while others go on. */
TEST(graphs_give_the_bits_of_single_steps_with_servers)
{
    kit_options o = {.device = "gpu:0", .clip = 0.1f};
    uint64_t hash[2];
    crew c;
    work k;

    gpu_kit_open();
    for (int sync = 0; sync < 2; sync++) {
        for (int i = 0; i < 2; i++) {
            o.clip = sync ? 0.1f : 0.0f;
            o.no_graphs = i;
            crew_open(&c, 1, sync, KIT_CTR, &o);
            work_open(&k, &c.m[0], 12, 50);
            for (int j = 0; j < 12; j++)
                CHECK_OK(crew_train(c.m[0].e, &k, j, 1));
            CHECK_OK(fleet_executor_flush(c.m[0].e));
            hash[i] = fake_server_hash(&c.server);
            work_close(&k);
            crew_close(&c);
        }
        CHECK(hash[0] == hash[1]);
    }
    gpu_kit_close();
}

/* --- a model of Fashion-MNIST's shapes ----------------------------------- */

enum { PIXELS = 784, ROWS = 24 };

static void open_images(kit_model *m, bool no_graphs)
{
    static const int64_t hidden[] = {128, 64};
    kit_options o = {.device = "gpu:0"};

    *m = (kit_model){.kind = KIT_MLP, .f = kit_handle(&o)};
    m->p = fleet_program_create(m->f);
    CHECK_OK(fleet_program_place(
        m->p, FLEET_GPU(0), &(fleet_place_options){.no_graphs = no_graphs}));
    fleet_mlp(
        m->p,
        &(fleet_mlp_options){
            .dim = PIXELS, .classes = 10, .hidden = hidden, .n_hidden = 2},
        &m->m);
    CHECK_OK(fleet_minimize(kit_optimizer(m->f, &o), m->m.loss));
    m->e = fleet_executor_create(m->p,
                                 &(fleet_executor_options){.max_batch = ROWS});
    CHECK(m->e != NULL);
}

static void train_images(kit_model *m, int n)
{
    for (int i = 0; i < n; i++) {
        kit_batch *b = kit_batch_new(i % 4 == 3 ? ROWS / 3 : ROWS);

        kit_floats(b, "image", PIXELS, i);
        kit_ids(b, "label", 1, 10, i + 100);
        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
    CHECK_OK(fleet_executor_flush(m->e));
}

TEST(graphs_give_the_bits_of_single_steps_on_images)
{
    kit_model with, without;

    gpu_kit_open();
    open_images(&with, false);
    open_images(&without, true);
    train_images(&with, 12);
    train_images(&without, 12);
    CHECK(kit_hash(with.f) == kit_hash(without.f));
    kit_close(&with);
    kit_close(&without);
    gpu_kit_close();
}

/* --- how much is queued -------------------------------------------------- */

TEST(a_dense_iteration_is_a_copy_of_its_feeds_and_one_launch)
{
    enum { FEEDS = 1, A_GRAPH = 1 };
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){.clip = 0.1f});
    train(&m, 40, 0, BEFORE_REPLAY);
    for (int i = 0; i < 4; i++)
        CHECK_INT(calls_of(&m, 40), FEEDS + A_GRAPH);
    CHECK(calls_of(&m, 39) > 10);
    kit_close(&m);
    gpu_kit_close();
}

/* Rows are made and counted there: four slots, two of them with their
 * offsets. */
TEST(an_iteration_with_tables_is_a_copy_of_its_feeds_and_one_launch)
{
    enum { FEEDS = 1, A_GRAPH = 1 };
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_CTR, (kit_options){.clip = 0.1f});
    train(&m, 40, 0, 3 * BEFORE_REPLAY); /* until there is room for all ids */
    for (int i = 0; i < 4; i++)
        CHECK_INT(calls_of(&m, 40), FEEDS + A_GRAPH);
    kit_close(&m);
    gpu_kit_close();
}

/* What the graph of an iteration has: each kernel of it, and each copy, costs a
 * GPU a few microseconds whatever it does. */
static long nodes_of(kit_model *m, const kit_batch *b, int before)
{
    long nodes;

    for (int i = 0; i < before; i++)
        CHECK_OK(kit_run(m->e, b));
    nodes = gpu_kit_control()->nodes();
    CHECK_OK(kit_run(m->e, b));
    CHECK_OK(fleet_executor_flush(m->e));
    return gpu_kit_control()->nodes() - nodes;
}

static void check_nodes(kit_model *m, kit_batch *b, int before, long most)
{
    long nodes = nodes_of(m, b, before);

    if (nodes < 10 || nodes > most)
        test_fail(__FILE__, __LINE__, "%ld nodes, and not up to %ld", nodes,
                  most);
    kit_batch_free(b);
    kit_close(m);
    gpu_kit_close();
}

TEST(an_iteration_of_layers_has_few_nodes)
{
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    check_nodes(&m, kit_batch_for(&m, 40, 1), BEFORE_REPLAY, MLP_NODES);
}

/* wide_deep of 26 slots of an id, a tower of four layers, and 13 numbers. */
TEST(an_iteration_of_26_slots_has_few_nodes)
{
    enum { SLOTS = 26 };
    static const fleet_dense_slot dense[] = {{.name = "numbers", .dim = 13}};
    static const int64_t hidden[] = {16, 16, 8, 8};
    fleet_ctr_options o = {.dense = dense,
                           .n_dense = 1,
                           .n_ids = SLOTS,
                           .embedding_dim = 4,
                           .rows = 1000001, /* as PaddleRec's */
                           .hidden = hidden,
                           .n_hidden = 4};
    kit_options place = {.device = "gpu:0"};
    fleet_id_slot ids[SLOTS] = {{0}};
    kit_batch *b = kit_batch_new(8);
    char name[SLOTS][8];
    kit_model m = {0};

    kit_floats(b, "numbers", 13, 1);
    kit_ids(b, "label", 1, 2, 2);
    for (int i = 0; i < SLOTS; i++) {
        snprintf(name[i], sizeof name[i], "C%d", i + 1);
        ids[i] = (fleet_id_slot){.name = name[i], .dim = 1};
        kit_ids(b, name[i], 1, 30, 3 + i);
    }
    o.ids = ids;
    gpu_kit_open();
    gpu_kit_control()->set_relu_by_algorithm(true); /* relus can be fused */
    m.f = kit_handle(&place);
    m.p = fleet_program_create(m.f);
    CHECK_OK(fleet_program_place(m.p, FLEET_GPU(0), NULL));
    CHECK(fleet_wide_deep(m.p, &o, &m.m) != NULL);
    CHECK_OK(fleet_minimize(kit_optimizer(m.f, &place), m.m.loss));
    m.e = fleet_executor_create(m.p, NULL);
    check_nodes(&m, b, 3 * BEFORE_REPLAY, WIDE_DEEP_NODES);
}

TEST(an_executor_does_without_graphs_if_its_program_does)
{
    fleet_executor_options o = {.place = FLEET_GPU(0), .max_batch = 40};
    kit_model m;
    long calls;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){.no_graphs = true});
    train(&m, 40, 0, BEFORE_REPLAY);
    calls = calls_of(&m, 40);
    fleet_executor_destroy(m.e);
    m.e = fleet_executor_create(m.p, &o);
    train(&m, 40, 0, BEFORE_REPLAY);
    CHECK_INT(calls_of(&m, 40), calls);
    kit_close(&m);
    gpu_kit_close();
}

/* As with one list for the batches in between and one for the last. */
TEST(each_iteration_of_a_merge_group_is_its_feeds_and_one_launch)
{
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){.merge = 3});
    train(&m, 40, 0, 12); /* three batches, two slots, each list twice */
    for (int i = 0; i < 6; i++)
        CHECK_INT(calls_of(&m, 40), 2);
    kit_close(&m);
    gpu_kit_close();
}

/* --- what fails ---------------------------------------------------------- */

static char warnings[2000];

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(warnings);

    (void)user;
    (void)level;
    snprintf(warnings + n, sizeof warnings - n, "%s\n", line);
}

TEST(a_capture_that_fails_is_told_once_and_done_without)
{
    kit_model m, without;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    without = gpu_kit_model(KIT_MLP, (kit_options){.no_graphs = true});
    m.f->context.log.callback = keep_warnings;
    train(&m, 40, 0, 2);
    for (int slot = 0; slot < 2; slot++) {
        gpu_kit_control()->fail_at(1); /* what a graph takes of the GPU */
        train(&m, 40, 2 + slot, 1);
    }
    gpu_kit_control()->fail_at(0);
    CHECK_CONTAINS(warnings, "gpu:0: no CUDA graph of a step (failure 1 of 4, "
                             "then it goes without): cuda: "
                             "cudaGraphInstantiate: out of memory");
    CHECK(strchr(warnings, '\n')[1] == 0); /* one line */
    train(&m, 40, 4, 4);
    train(&without, 40, 0, 8);
    CHECK(calls_of(&m, 40) == calls_of(&without, 40));
    CHECK(kit_hash(m.f) == kit_hash(without.f));
    kit_close(&m);
    kit_close(&without);
    gpu_kit_close();
}

/* Two slots' lists: a pause of 16, then of 32 and 64; 128 would be next. */
enum { FIRST_PAUSE = 2 * 16, ALL_PAUSES = 2 * (16 + 32 + 64) };

/* So many batches, with no memory for a graph. */
static void train_short(kit_model *m, int n)
{
    for (int i = 0; i < n; i++) {
        gpu_kit_control()->fail_at(1);
        train(m, 40, i, 1);
    }
    gpu_kit_control()->fail_at(0);
}

TEST(a_capture_that_failed_is_tried_again_after_a_pause)
{
    enum { FEEDS = 1, A_GRAPH = 1 };
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    m.f->context.log.callback = keep_warnings;
    train(&m, 40, 0, 2);
    train_short(&m, 2);
    train(&m, 40, 4, FIRST_PAUSE - 1);
    CHECK(calls_of(&m, 40) > 10); /* the last of the pause */
    train(&m, 40, 0, 2);
    CHECK_INT(calls_of(&m, 40), FEEDS + A_GRAPH);
    CHECK(strchr(warnings, '\n')[1] == 0);
    kit_close(&m);
    gpu_kit_close();
}

TEST(captures_that_fail_again_and_again_come_to_an_end)
{
    kit_model m, without;
    long calls;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    without = gpu_kit_model(KIT_MLP, (kit_options){.no_graphs = true});
    m.f->context.log.callback = keep_warnings;
    train(&m, 40, 0, 2);
    train_short(&m, 2 * 4 + ALL_PAUSES); /* four failures of each list */
    train(&without, 40, 0, 4);
    calls = calls_of(&without, 40);
    for (int i = 0; i < 2 * 128 + 4; i++)
        CHECK_INT(calls_of(&m, 40), calls);
    CHECK(strchr(warnings, '\n')[1] == 0);
    kit_close(&m);
    kit_close(&without);
    gpu_kit_close();
}

/* The batch is wrong, and those that follow are good. */
static fleet_status run_until_said(kit_model *m, kit_batch *bad)
{
    fleet_status status = kit_run(m->e, bad);

    for (int i = 0; i < 3 && status == FLEET_OK; i++) {
        kit_batch *b = kit_batch_for(m, 40, i);

        status = kit_run(m->e, b);
        kit_batch_free(b);
    }
    return status;
}

TEST(a_loss_that_is_not_finite_stops_replayed_updates_and_is_told)
{
    kit_model m;
    kit_batch *bad;
    uint64_t hash;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    train(&m, 40, 0, 8);
    CHECK_OK(fleet_executor_flush(m.e));
    hash = kit_hash(m.f);
    bad = kit_batch_for(&m, 40, 9);
    ((float *)(void *)(uintptr_t)bad->feed[0].data)[33] = NAN;
    CHECK_FAILS(run_until_said(&m, bad), FLEET_ENUMERIC,
                "batch 9: the loss is not finite (gpu:0)");
    CHECK(kit_hash(m.f) == hash);
    CHECK_INT(m.f->store->updates, 8);
    CHECK_INT(calls_of(&m, 40), 2); /* graphs go on */
    CHECK_OK(fleet_executor_flush(m.e));
    CHECK(kit_hash(m.f) != hash);
    kit_batch_free(bad);
    kit_close(&m);
    gpu_kit_close();
}

TEST(a_label_out_of_range_in_a_replayed_iteration_is_told)
{
    kit_model m;
    kit_batch *bad;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    train(&m, 40, 0, 8);
    bad = kit_batch_for(&m, 40, 9);
    ((int64_t *)(void *)(uintptr_t)bad->feed[1].data)[7] = 99;
    CHECK_FAILS(run_until_said(&m, bad), FLEET_EINVAL, "of sample 7 is out");
    CHECK_CONTAINS(fleet_last_error(), "batch 9");
    kit_batch_free(bad);
    kit_close(&m);
    gpu_kit_close();
}

/* --- the end ------------------------------------------------------------- */

TEST(an_executor_may_go_with_its_graphs_under_way)
{
    kit_model m;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = gpu_kit_model((kit_kind)kind, (kit_options){0});
        train(&m, 40, 0, 9);
        kit_close(&m);
    }
    gpu_kit_close();
}

TEST(a_child_process_leaves_its_parents_graphs_alone)
{
    kit_model m;
    kit_batch *b;
    pid_t child;
    int status;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    b = kit_batch_for(&m, 40, 1);
    train(&m, 40, 0, 8);
    child = fork();
    if (child == 0) {
        test_ends_process = true;
        CHECK_FAILS(kit_run(m.e, b), FLEET_ESTATE, "made before fork()");
        fleet_executor_destroy(m.e);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_INT(calls_of(&m, 40), 2);
    CHECK_OK(fleet_executor_flush(m.e));
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}
