/* gpu_train_test.c - programs on a GPU compute what they do on the CPU: models
 * with each optimizer, merged, clipped, with parts on either side; what is read
 * and written here while they train there; and what is refused. */
#define SUITE gpu_train
#include "workers_kit.h"
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/optim/rule.h"
#include "runtime/exec/compile.h"

/* --- the same as on the CPU ----------------------------------------------- */

static void agree(kit_kind kind, kit_options o, const char *device,
                  const char *guard)
{
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    kit_model a, b;
    int64_t n;

    o.max_batch = o.max_batch < 0 ? 0 : 40;
    kit_open(&a, kind, &o);
    o.device = device;
    o.guard = guard;
    kit_open(&b, kind, &o);
    gpu_kit_train(&a, 6);
    gpu_kit_train(&b, 6);
    n = gpu_kit_weights(a.f->store, here);
    CHECK_INT(gpu_kit_weights(b.f->store, there), n);
    gpu_kit_near(there, here, n);
    kit_close(&a);
    kit_close(&b);
}

static void agree_both(kit_options o, const char *device, const char *guard)
{
    gpu_kit_open();
    agree(KIT_MLP, o, device, guard);
    agree(KIT_CTR, o, device, guard);
    gpu_kit_close();
}

TEST(models_agree_with_each_optimizer)
{
    for (int i = 0; i < FL_N_RULE; i++)
        agree_both((kit_options){.optimizer = fl_rule_of((fl_rule_kind)i)->name,
                                 .learning_rate = 0.01f,
                                 .l2_decay = 0.01f},
                   "gpu:0", NULL);
}

TEST(models_agree_whose_groups_have_rules_of_their_own)
{
    agree_both((kit_options){.group = "adam", .optimizer = "sgd"}, "gpu:0",
               NULL);
    agree_both((kit_options){.group = "sgd", .clip = 0.1f, .merge = 2}, "gpu:0",
               NULL);
}

TEST(models_agree_that_merge_and_clip)
{
    agree_both((kit_options){.merge = 2, .clip = 0.1f, .optimizer = "sgd"},
               "gpu:0", NULL);
    agree_both((kit_options){.merge = 4, .sum = true, .optimizer = "sgd"},
               "gpu:0", NULL);
}

static void keep_one(fleet_distributed_strategy *s)
{
    s->recompute = 1;
    s->recompute_configs.checkpoints = "fc_1.tmp";
}

/* Copies between the two sides are of no stage. */
TEST(models_agree_that_compute_activations_again)
{
    const kit_options o = {.choose = keep_one, .optimizer = "sgd"};

    gpu_kit_open();
    agree(KIT_MLP, o, "gpu:0", NULL);
    agree(KIT_MLP, o, "gpu:0", "cpu");
    agree(KIT_MLP, o, "cpu", "gpu:0");
    gpu_kit_close();
}

TEST(models_agree_whose_operators_are_guarded)
{
    agree_both((kit_options){.optimizer = "sgd"}, "gpu:0", "cpu");
    agree_both((kit_options){.optimizer = "sgd", .clip = 0.1f, .merge = 2},
               "cpu", "gpu:0");
}

TEST(models_agree_whose_layers_have_rates_of_their_own)
{
    static const char *const all[] = {"lars", "lamb"};

    for (int i = 0; i < 2; i++) {
        agree_both((kit_options){.layers = all[i], .l2_decay = 0.01f}, "gpu:0",
                   NULL);
        agree_both((kit_options){.layers = all[i], .merge = 2, .clip = 0.1f},
                   "gpu:0", NULL);
    }
}

/* A weight after a few batches, with a step that only CPUs have. */
static float weight_with_copy(bool on_gpu)
{
    static float w[GPU_KIT_MOST];
    const kit_options o = {.optimizer = "sgd"};
    const fleet_place_options allow = {.allow_cpu = 1};
    fleet *f = kit_handle(&o);
    fleet_program *p = fleet_program_create(f);
    kit_batch *b = kit_batch_new(30);
    fleet_executor *e;
    fleet_var *x;

    if (on_gpu)
        CHECK_OK(fleet_program_place(p, FLEET_GPU(0), &allow));
    kit_floats(b, "x", 6, 1);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 6}, 2);
    x = fleet_tanh(p, gpu_kit_copy(p, fleet_fc(p, x, 9, NULL)));
    CHECK_OK(fleet_minimize(kit_optimizer(f, &o), fleet_mean(p, x)));
    e = fleet_executor_create(p, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(kit_run(e, b));
    CHECK_OK(fleet_executor_flush(e));
    CHECK(gpu_kit_weights(f->store, w) > 0);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return w[0];
}

/* The weight of scores, one of which is beyond doubt, after a batch. */
static float weight_of_focal_loss(bool on_gpu)
{
    static float w[GPU_KIT_MOST];
    const kit_options o = {.optimizer = "sgd", .learning_rate = 0.1f};
    const int64_t dims[] = {3, 1};
    const fleet_feed feed[] = {
        {"x", FLEET_FLOAT32, (float[]){95, -200, 1}, dims, 2, NULL},
        {"y", FLEET_FLOAT32, (float[]){1, 0, 0}, dims, 2, NULL}};
    const fleet_param_attr one = {.name = "w",
                                  .initializer = {FLEET_INIT_CONSTANT, 1, 0}};
    fleet *f = kit_handle(&o);
    fleet_program *p = fleet_program_create(f);
    fleet_executor *e;
    fleet_var *x;

    if (on_gpu)
        CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
    x = fleet_mul(p, kit_data(p, "x", 1),
                  fleet_parameter(p, (int64_t[]){1}, 1, &one));
    x = fleet_sigmoid_focal_loss(p, x, kit_data(p, "y", 1), 0, 0.5f);
    CHECK_OK(fleet_minimize(kit_optimizer(f, &o), fleet_mean(p, x)));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(fleet_executor_run(e, feed, 2, NULL, 0));
    CHECK_OK(fleet_executor_flush(e));
    CHECK(gpu_kit_weights(f->store, w) > 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return w[0];
}

/* A factor of 0 has no infinite gradient. */
TEST(a_focal_loss_of_scores_beyond_doubt_agrees)
{
    float here, there;

    gpu_kit_open();
    here = weight_of_focal_loss(false);
    there = weight_of_focal_loss(true);
    CHECK(isfinite(here) && here < 1);
    CHECK(isfinite(there));
    CHECK_NEAR(there, here, 1e-5);
    gpu_kit_close();
}

/* They run here, as allowed. */
TEST(a_model_agrees_with_steps_that_have_no_kernel)
{
    gpu_kit_open();
    CHECK_NEAR(weight_with_copy(true), weight_with_copy(false), 1e-3);
    gpu_kit_close();
}

/* Also with more ids and numbers than there was room for, and with lookups on
 * the CPU. */
TEST(models_whose_slots_are_pooled_agree)
{
    static const char *const guards[] = {NULL, "cpu"};

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        const kit_options o = {.learning_rate = 0.01f, .merge = 1 + i};

        agree(KIT_POOLED, o, "gpu:0", guards[i]);
        agree(KIT_POOLED, (kit_options){.max_batch = -1}, "gpu:0", guards[i]);
    }
    gpu_kit_close();
}

/* Rows of histories are on the host. */
TEST(models_of_histories_agree)
{
    gpu_kit_open();
    for (int i = 0; i < 2; i++)
        agree(KIT_SEQUENCE,
              (kit_options){.learning_rate = 0.01f, .merge = 1 + i}, "gpu:0",
              NULL);
    gpu_kit_close();
}

/* A plan for each size, not one for all. */
TEST(models_agree_with_a_plan_for_each_batch_size)
{
    gpu_kit_open();
    agree(KIT_MLP, (kit_options){.max_batch = -1}, "gpu:0", NULL);
    agree(KIT_CTR, (kit_options){.max_batch = -1}, "gpu:0", NULL);
    gpu_kit_close();
}

/* --- programs with a part on either side --------------------------------- */

typedef struct parts {
    fleet *f;
    fleet_program *p;
    fleet_var *loss, *auc;
    fleet_executor *e;
} parts;

/* A layer here, one there, one that both use; columns put together from both
 * sides; a metric on one. */
static void build_parts(parts *m, const char *one, const char *other)
{
    fleet_program *p = m->p;
    fleet_fc_options shared = {.weight = {.name = "shared"}, .no_bias = 1};
    fleet_var *x, *y, *a, *b, *prediction;

    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 6}, 2);
    y = fleet_data(p, "y", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK_OK(fleet_device_guard(p, one));
    a = fleet_fc(p, x, 6, &shared);
    CHECK_OK(fleet_device_guard(p, other));
    b = fleet_fc(p, fleet_tanh(p, a), 6, &shared);
    CHECK_OK(fleet_device_guard(p, one));
    a = fleet_relu(p, fleet_add(p, a, b));
    CHECK_OK(fleet_device_guard(p, other));
    a = fleet_fc(p, fleet_concat(p, (fleet_var *[]){a, b, x}, 3, 1), 1, NULL);
    prediction = fleet_sigmoid(p, a);
    CHECK_OK(fleet_device_guard(p, one));
    m->auc = fleet_auc(p, prediction, y, 1000);
    CHECK_OK(fleet_device_guard(p, NULL));
    m->loss = fleet_mean(p, fleet_sigmoid_cross_entropy(p, a, y));
    CHECK_OK(fleet_program_status(p));
}

static void open_parts(parts *m, fleet_place place, const char *one,
                       const char *other)
{
    kit_options o = {.optimizer = "momentum", .clip = 0.5f};
    fleet_optimizer *opt;

    m->f = kit_handle(&o);
    m->p = fleet_program_create(m->f);
    CHECK_OK(fleet_program_place(m->p, place,
                                 &(fleet_place_options){.strict_fp32 = 1}));
    build_parts(m, one, other);
    opt = kit_optimizer(m->f, &o);
    CHECK_OK(fleet_optimizer_set_piecewise_decay(
        opt, (int64_t[]){2, 4}, (float[]){0.1f, 0.03f, 0.01f}, 2));
    CHECK_OK(fleet_minimize(opt, m->loss));
    m->e = fleet_executor_create(m->p, NULL);
    CHECK(m->e != NULL);
}

static kit_batch *batch_of_parts(int seed)
{
    kit_batch *b = kit_batch_new(30);

    kit_floats(b, "x", 6, seed);
    kit_ids(b, "y", 1, 2, seed + 50);
    return b;
}

/* The weights after some batches, and the metric. */
static int64_t train_parts(parts *m, float *w, double *auc)
{
    float loss;

    for (int i = 0; i < 6; i++) {
        kit_batch *b = batch_of_parts(i);

        loss = kit_step(m->e, b, m->loss);
        CHECK(loss > 0 && loss < 2);
        kit_batch_free(b);
    }
    CHECK_OK(fleet_metrics_auc(m->f, m->auc, auc));
    return gpu_kit_weights(m->f->store, w);
}

static void close_parts(parts *m)
{
    fleet_executor_destroy(m->e);
    fleet_destroy(m->f);
}

TEST(parts_on_either_side_agree_with_all_on_one)
{
    static const char *const side[][2] = {
        {"gpu:0", "cpu"}, {"cpu", "gpu:0"}, {"gpu:0", "gpu:0"}, {"cpu", "cpu"}};
    static const fleet_place place[] = {FLEET_CPU, FLEET_GPU(0)};
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    double auc_here, auc_there;
    parts a, b;

    gpu_kit_open();
    open_parts(&a, 0, NULL, NULL);
    train_parts(&a, here, &auc_here);
    for (int i = 0; i < 8; i++) {
        open_parts(&b, place[i / 4], side[i % 4][0], side[i % 4][1]);
        gpu_kit_near(there, here, train_parts(&b, there, &auc_there));
        CHECK_NEAR(auc_there, auc_here, 1e-3);
        CHECK_OK(fleet_metrics_reset(b.f));
        CHECK_OK(fleet_metrics_auc(b.f, b.auc, &auc_there));
        CHECK_NEAR(auc_there, 0.5, 1e-9);
        close_parts(&b);
    }
    close_parts(&a);
    gpu_kit_close();
}

/* Said before the guard or after it. */
TEST(strict_floats_count_for_a_gpu_that_guards_alone_name)
{
    static const fleet_place_options strict = {.strict_fp32 = 1};

    gpu_kit_open();
    for (int after = 0; after < 2; after++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);

        if (!after)
            CHECK_OK(fleet_program_place(p, FLEET_CPU, &strict));
        CHECK_OK(fleet_device_guard(p, "gpu:0"));
        CHECK(p->place.gpu && p->place.gpu->options.strict_fp32 == !after);
        CHECK_OK(fleet_program_place(p, FLEET_CPU, &strict));
        CHECK(p->place.gpu->options.strict_fp32 && !p->place.on_gpu);
        CHECK_OK(fleet_program_place(p, FLEET_CPU, NULL));
        CHECK(!p->place.gpu->options.strict_fp32);
        fleet_destroy(f);
    }
    gpu_kit_close();
}

/* How many steps of operators under a guard "gpu" run on the GPU. */
static int guarded_steps(const parts *m)
{
    const fl_plan *plan = m->e->last->plan;
    int n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        n += plan->step[i]->node &&
             plan->step[i]->node->place == FLEET_ANY_GPU &&
             plan->step[i]->engine == FL_ENGINE_GPU;
    return n;
}

/* "gpu" is the GPU that the program uses, and the CPU where it uses none. */
TEST(a_guard_without_a_number_takes_the_gpu_of_the_program)
{
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    double auc_here, auc_there;
    parts a, b;

    gpu_kit_open();
    open_parts(&a, 0, "gpu", "cpu");
    train_parts(&a, here, &auc_here);
    CHECK(!a.p->place.gpu && guarded_steps(&a) == 0);
    open_parts(&b, FLEET_GPU(0), "gpu", "cpu");
    gpu_kit_near(there, here, train_parts(&b, there, &auc_there));
    CHECK_NEAR(auc_there, auc_here, 1e-3);
    CHECK(guarded_steps(&b) > 0);
    close_parts(&b);
    open_parts(&b, FLEET_CPU, "gpu", "gpu:0");
    gpu_kit_near(there, here, train_parts(&b, there, &auc_there));
    CHECK(guarded_steps(&b) > 0);
    close_parts(&b);
    close_parts(&a);
    gpu_kit_close();
}

/* --- with servers --- */

static void agree_by_servers(kit_kind kind)
{
    static const kit_options o = {.optimizer = "sgd", .clip = 0.1f};
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    kit_options on_gpu = o;
    crew a, b;
    work k;

    gpu_kit_open();
    on_gpu.device = "gpu:0";
    for (int sync = 0; sync < 2; sync++) {
        crew_open(&a, 1, sync, kind, &o);
        crew_open(&b, 1, sync, kind, &on_gpu);
        work_open(&k, &a.m[0], 6, 20);
        for (int i = 0; i < 6; i++) {
            CHECK_OK(crew_train(a.m[0].e, &k, i, 1));
            CHECK_OK(crew_train(b.m[0].e, &k, i, 1));
        }
        int64_t n = gpu_kit_weights(a.server.store, here);
        CHECK_INT(gpu_kit_weights(b.server.store, there), n);
        gpu_kit_near(there, here, n);
        work_close(&k);
        crew_close(&a);
        crew_close(&b);
    }
    gpu_kit_close();
}

TEST(models_agree_that_servers_keep)
{
    agree_by_servers(KIT_CTR);
}

TEST(models_whose_slots_are_pooled_agree_that_servers_keep)
{
    agree_by_servers(KIT_POOLED);
}

/* --- what is read and written here ---------------------------------------- */

TEST(saves_and_hashes_move_between_the_two)
{
    kit_model there, here;
    const char *path = test_path("save"), *back = test_path("back");
    uint64_t hash;

    gpu_kit_open();
    there = gpu_kit_model(KIT_CTR, (kit_options){.seed = 1});
    gpu_kit_train(&there, 4);
    hash = kit_hash(there.f);
    CHECK_OK(fleet_save_persistables(there.f, path));
    kit_open(&here, KIT_CTR, &(kit_options){.seed = 2, .max_batch = 40});
    CHECK_OK(fleet_load_model(here.f, path));
    CHECK(kit_hash(here.f) == hash);
    gpu_kit_train(&here, 3);
    hash = kit_hash(here.f);
    CHECK_OK(fleet_save_persistables(here.f, back));
    CHECK_OK(fleet_load_model(there.f, back));
    CHECK(kit_hash(there.f) == hash);
    gpu_kit_train(&here, 3); /* with the states that came along */
    gpu_kit_train(&there, 3);
    {
        static float a[GPU_KIT_MOST], b[GPU_KIT_MOST];
        int64_t n = gpu_kit_weights(here.f->store, a);

        gpu_kit_weights(there.f->store, b);
        gpu_kit_near(b, a, n);
    }
    kit_close(&there);
    kit_close(&here);
    gpu_kit_close();
}

/* The loss of a batch, by an executor for test at a place. */
static float loss_at(const kit_model *m, fleet_place place)
{
    fleet_executor_options o = {.for_test = 1, .place = place};
    fleet_executor *e = fleet_executor_create(m->p, &o);
    kit_batch *b = kit_batch_for(m, 33, 5);
    float loss;

    CHECK(e != NULL);
    loss = kit_step(e, b, m->m.loss);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    return loss;
}

TEST(evaluation_on_either_side_sees_what_the_gpu_has_trained)
{
    kit_model m;
    float before;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = gpu_kit_model((kit_kind)kind, (kit_options){0});
        before = loss_at(&m, FLEET_CPU);
        gpu_kit_train(&m, 5);
        CHECK_NEAR(loss_at(&m, 0), loss_at(&m, FLEET_CPU), 1e-5);
        CHECK(fabsf(loss_at(&m, FLEET_CPU) - before) > 1e-3f);
        kit_close(&m);
    }
    gpu_kit_close();
}

typedef struct evaluator {
    const kit_model *m;
    float loss;
    pthread_t thread;
} evaluator;

static void *evaluate(void *arg)
{
    evaluator *v = arg;

    for (int i = 0; i < 5; i++)
        v->loss = loss_at(v->m, i % 2 ? FLEET_CPU : 0);
    return NULL;
}

TEST(several_threads_evaluate_what_is_on_the_gpu)
{
    evaluator v[3];
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_CTR, (kit_options){0});
    gpu_kit_train(&m, 3);
    for (int i = 0; i < 3; i++) {
        v[i].m = &m;
        CHECK_INT(pthread_create(&v[i].thread, NULL, evaluate, &v[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_join(v[i].thread, NULL), 0);
    CHECK(v[0].loss == v[1].loss && v[1].loss == v[2].loss);
    kit_close(&m);
    gpu_kit_close();
}

static void *evaluate_here(void *arg)
{
    evaluator *v = arg;

    for (int i = 0; i < 20; i++)
        v->loss = loss_at(v->m, FLEET_CPU);
    return NULL;
}

/* The GPU's mirrors of the store come while somebody else iterates. */
TEST(a_thread_evaluates_on_the_cpu_while_the_gpu_gets_its_first_copies)
{
    evaluator v;
    kit_model m;
    float there;

    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        m = gpu_kit_model((kit_kind)kind, (kit_options){0});
        v = (evaluator){.m = &m, .loss = loss_at(&m, FLEET_CPU)};
        CHECK_INT(pthread_create(&v.thread, NULL, evaluate_here, &v), 0);
        there = loss_at(&m, 0);
        CHECK_INT(pthread_join(v.thread, NULL), 0);
        CHECK_NEAR(there, v.loss, 1e-5);
        kit_close(&m);
    }
    gpu_kit_close();
}

/* Two executors of one program, in turn, each where it is. */
TEST(training_goes_on_where_the_other_side_has_left_it)
{
    static float a[GPU_KIT_MOST], b[GPU_KIT_MOST];
    fleet_executor *first, *second;
    kit_model both, one;
    int64_t n;

    gpu_kit_open();
    both = gpu_kit_model(KIT_MLP, (kit_options){.optimizer = "momentum"});
    kit_open(&one, KIT_MLP, &(kit_options){.optimizer = "momentum"});
    first = both.e;
    second = fleet_executor_create(
        both.p, &(fleet_executor_options){.place = FLEET_CPU});
    CHECK(second != NULL);
    for (int i = 0; i < 3; i++) {
        both.e = i % 2 ? second : first;
        gpu_kit_train(&both, 2);
        gpu_kit_train(&one, 2);
    }
    both.e = first;
    n = gpu_kit_weights(one.f->store, a);
    gpu_kit_weights(both.f->store, b);
    gpu_kit_near(b, a, n);
    fleet_executor_destroy(second);
    kit_close(&both);
    kit_close(&one);
    gpu_kit_close();
}

TEST(a_fetched_parameter_is_the_one_after_the_update)
{
    static float w[GPU_KIT_MOST], all[GPU_KIT_MOST];
    const fl_param *p;
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){0});
    b = kit_batch_for(&m, 40, 1);
    p = m.f->store->params.entry[0].value;
    CHECK_OK(kit_fetch(m.e, b, fleet_program_var(m.p, p->name), w, p->n));
    gpu_kit_weights(m.f->store, all);
    CHECK(memcmp(w, all + p->offset, (size_t)p->n * sizeof *w) == 0);
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}
