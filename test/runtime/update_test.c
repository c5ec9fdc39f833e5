/* update_test.c - between gradients and new weights: gradient merge, clip by
 * global norm, what is said about single parameters, programs that share. */
#define SUITE update
#include "gradient_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"

/* --- gradient merge ------------------------------------------------------ */

/* A group of three that gets n batches, against their sum by hand. */
static void check_group(kit_kind kind, int n, const kit_options *like)
{
    kit_options o = *like;
    gradients *g;
    kit_model m;

    o.optimizer = "sgd";
    o.learning_rate = 0.25f;
    o.merge = 3;
    kit_open(&m, kind, &o);
    g = gradients_new(&m);
    uint64_t before = kit_hash(m.f);
    for (int i = 0; i < n; i++) {
        kit_batch *b = kit_batch_for(&m, 30, i);

        CHECK(kit_hash(m.f) == before);
        CHECK_OK(kit_run(m.e, b));
        gradients_add(g, b);
        kit_batch_free(b);
    }
    CHECK((kit_hash(m.f) == before) == (n < 3));
    CHECK_OK(fleet_executor_flush(m.e));
    CHECK_INT(m.f->store->updates, 1);
    gradients_check(g, &m,
                    &(sgd_step){.rate = 0.25f,
                                .scale = o.sum ? 1 : 1.0f / (float)n,
                                .clip = 1,
                                .decay = o.l2_decay});
    gradients_free(g);
    kit_close(&m);
}

TEST(a_group_is_its_batches_added_in_their_order_to_the_bit)
{
    for (int threads = 1; threads <= 2; threads++) {
        check_group(KIT_MLP, 3, &(kit_options){.threads = threads});
        check_group(KIT_CTR, 3, &(kit_options){.threads = threads});
    }
}

TEST(a_group_may_be_summed_instead_of_averaged)
{
    check_group(KIT_MLP, 3, &(kit_options){.sum = true});
    check_group(KIT_CTR, 3, &(kit_options){.sum = true});
}

TEST(decay_is_applied_once_per_group)
{
    check_group(KIT_CTR, 3, &(kit_options){.l2_decay = 0.125f});
}

TEST(a_group_that_is_not_full_is_the_mean_of_what_came)
{
    for (int n = 1; n <= 2; n++) {
        check_group(KIT_MLP, n, &(kit_options){0});
        check_group(KIT_CTR, n, &(kit_options){0});
        check_group(KIT_CTR, n, &(kit_options){.sum = true});
    }
}

TEST(ending_a_group_that_has_not_begun_does_nothing)
{
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){.merge = 3});
    uint64_t before = kit_train(&m, 20, 3);
    CHECK_OK(fleet_executor_flush(m.e));
    CHECK(kit_hash(m.f) == before);
    CHECK_INT(m.f->store->updates, 1);
    kit_close(&m);
}

TEST(saves_and_loads_inside_a_group_are_refused_until_it_is_ended)
{
    const char *path = test_folder();
    char save[4096];
    kit_model m;

    snprintf(save, sizeof save, "%s/saved", path);
    kit_open(&m, KIT_CTR, &(kit_options){.merge = 3});
    kit_batch *b = kit_batch_for(&m, 20, 1);
    CHECK_OK(kit_run(m.e, b));
    CHECK_FAILS(fleet_save_persistables(m.f, save), FLEET_ESTATE,
                "a merge group is under way");
    CHECK_OK(fleet_executor_flush(m.e));
    CHECK_INT(m.f->store->updates, 1);
    CHECK_OK(fleet_save_persistables(m.f, save));
    CHECK_OK(kit_run(m.e, b));
    CHECK_FAILS(fleet_load_model(m.f, save), FLEET_ESTATE,
                "a merge group is under way");
    fleet_executor_destroy(m.e); /* gives its group up */
    m.e = NULL;
    CHECK_OK(fleet_save_persistables(m.f, save));
    CHECK_OK(fleet_load_model(m.f, save));
    kit_batch_free(b);
    kit_close(&m);
}

TEST(another_strategy_is_refused_after_minimize)
{
    fleet_distributed_strategy other = FLEET_DISTRIBUTED_STRATEGY_INIT;
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    fleet_optimizer *o = m.f->store->optimizer;
    fleet_distributed_strategy same = m.f->strategy;
    other.gradient_merge = 1;
    other.gradient_merge_configs.k_steps = 4;
    CHECK(!fleet_distributed_optimizer(m.f, o, &other));
    CHECK_STATUS(fleet_last_status(), FLEET_ESTATE);
    CHECK(fleet_distributed_optimizer(m.f, o, &same) == o);
    kit_close(&m);
}

TEST(a_clip_is_refused_once_a_training_without_it_has_begun)
{
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    kit_train(&m, 20, 1);
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(m.f->store->optimizer, 1),
                FLEET_ESTATE, "a training without it has begun");
    kit_close(&m);
}

TEST(a_larger_batch_inside_a_group_is_refused)
{
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){.merge = 2});
    kit_batch *b = kit_batch_for(&m, 40, 1), small = kit_head(b, 20);
    CHECK_OK(kit_run(m.e, &small));
    CHECK_STATUS(kit_run(m.e, b), FLEET_ESTATE);
    CHECK_TEXT(fleet_last_error(), "a batch of 40 in a merge group that began "
                                   "with 20: set max_batch of the executor's "
                                   "options");
    CHECK_OK(kit_run(m.e, &small)); /* the group goes on */
    CHECK_INT(m.f->store->updates, 1);
    CHECK_OK(kit_run(m.e, b)); /* another one begins */
    CHECK_OK(kit_run(m.e, &small));
    CHECK_INT(m.f->store->updates, 2);
    kit_batch_free(b);
    kit_close(&m);
}

TEST(batches_of_a_group_may_differ_up_to_the_most)
{
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){.merge = 3, .max_batch = 50});
    for (int i = 0; i < 6; i++) {
        kit_batch *b = kit_batch_for(&m, 50 - (5 - i) * 7, i);

        CHECK_OK(kit_run(m.e, b));
        kit_batch_free(b);
    }
    CHECK_INT(m.f->store->updates, 2);
    kit_close(&m);
}

TEST(a_new_fetch_inside_a_group_is_refused)
{
    float p[100];
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){.merge = 2});
    kit_batch *b = kit_batch_for(&m, 20, 1);
    CHECK_OK(kit_run(m.e, b));
    CHECK_STATUS(kit_fetch(m.e, b, m.m.prediction, p, 100), FLEET_ESTATE);
    CHECK_CONTAINS(fleet_last_error(), "fetch it from the group's first batch");
    CHECK_OK(kit_run(m.e, b));
    CHECK_OK(kit_fetch(m.e, b, m.m.prediction, p, 100));
    kit_batch_free(b);
    kit_close(&m);
}

/* A batch that fails ends its group; its sums are not in the next one's. */
TEST(a_group_in_which_a_batch_fails_leaves_no_trace)
{
    kit_model m, clean;

    kit_open(&m, KIT_CTR, &(kit_options){.merge = 3});
    kit_open(&clean, KIT_CTR, &(kit_options){.merge = 3});
    kit_batch *bad = kit_batch_for(&m, 20, 50), *b = kit_batch_for(&m, 20, 51);
    ((float *)(uintptr_t)bad->feed[0].data)[7] = NAN;
    CHECK_OK(kit_run(m.e, b));
    CHECK_STATUS(kit_run(m.e, bad), FLEET_ENUMERIC);
    CHECK_INT(m.f->store->updates, 0);
    CHECK(kit_train(&m, 20, 3) == kit_train(&clean, 20, 3));
    CHECK_INT(m.f->store->updates, 1);
    kit_batch_free(bad);
    kit_batch_free(b);
    kit_close(&m);
    kit_close(&clean);
}

/* --- clip by global norm ------------------------------------------------- */

/* One update of n batches, clipped to `share` of the norm that they have. */
static void check_clip(kit_kind kind, int n, double share, float decay)
{
    kit_options o = {.optimizer = "sgd",
                     .learning_rate = 0.5f,
                     .merge = n,
                     .threads = 2,
                     .l2_decay = decay};
    kit_batch *b[2];
    gradients *g;
    double norm;
    kit_model m;

    kit_build(&m, kind, &o);
    g = gradients_new(&m);
    for (int i = 0; i < n; i++) {
        b[i] = kit_batch_for(&m, 50, i);
        gradients_add(g, b[i]);
    }
    kit_close(&m);
    norm = sqrt(gradients_square(g, 1.0f / (float)n));
    o.clip = (float)(share * norm);
    kit_open(&m, kind, &o);
    for (int i = 0; i < n; i++)
        CHECK_OK(kit_run(m.e, b[i]));
    gradients_check(g, &m,
                    &(sgd_step){.rate = 0.5f,
                                .scale = 1.0f / (float)n,
                                .clip = share < 1 ? (float)share : 1,
                                .decay = decay,
                                .tolerance = share < 1 ? 1e-4 : 0});
    for (int i = 0; i < n; i++)
        kit_batch_free(b[i]);
    gradients_free(g);
    kit_close(&m);
}

static void check_own_clip(kit_kind kind, int n, float norm, int threads)
{
    kit_options o = {.optimizer = "sgd",
                     .learning_rate = 0.5f,
                     .merge = n,
                     .threads = threads,
                     .l2_decay = 0.125f,
                     .norm_clip = norm};
    gradients *g;
    kit_model m;

    kit_open(&m, kind, &o);
    g = gradients_new(&m);
    for (int i = 0; i < n; i++) {
        kit_batch *b = kit_batch_for(&m, 50, i);

        CHECK_OK(kit_run(m.e, b));
        gradients_add(g, b);
        kit_batch_free(b);
    }
    gradients_check(g, &m,
                    &(sgd_step){.rate = 0.5f,
                                .scale = 1.0f / (float)n,
                                .clip = 1,
                                .decay = 0.125f,
                                .norm = (double)norm,
                                .tolerance = 1e-4});
    gradients_free(g);
    kit_close(&m);
}

/* One between the norms of a model's gradients, one below all, one above. */
TEST(each_parameter_and_table_is_scaled_down_to_the_norm_by_its_own)
{
    static const float norm[] = {1e-2f, 1e-4f, 1e4f};

    for (int i = 0; i < 3; i++) {
        check_own_clip(KIT_MLP, 1, norm[i], 1);
        check_own_clip(KIT_CTR, 1, norm[i], 2);
        check_own_clip(KIT_CTR, 2, norm[i], 1);
        check_own_clip(KIT_POOLED, 1, norm[i], 1);
    }
}

/* By plain SGD, with a rate of 1: so far the weights go. */
TEST(a_parameter_of_many_blocks_is_scaled_down_to_the_norm_as_a_whole)
{
    enum { IN = 1100, OUT = 1000, ROWS = 4 };
    const kit_options o = {.optimizer = "sgd",
                           .learning_rate = 1,
                           .threads = 2,
                           .norm_clip = 0.0625f};
    fleet *f = kit_handle(&o);
    fleet_program *p = fleet_program_create(f);
    fleet_var *y = fleet_fc(p, kit_data(p, "x", IN), OUT,
                            &(fleet_fc_options){.name = "y"});
    kit_batch *b = kit_batch_new(ROWS);
    float *before = malloc((size_t)IN * OUT * sizeof *before);
    const fl_param *w;
    fleet_executor *e;
    double sum = 0;

    CHECK_OK(fleet_minimize(kit_optimizer(f, &o), fleet_mean(p, y)));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL && before != NULL);
    kit_floats(b, "x", IN, 1);
    w = fl_store_param(f->store, "y.w");
    CHECK_INT(w->n, IN * OUT);
    memcpy(before, w->flat->weight + w->offset, (size_t)w->n * sizeof *before);
    CHECK_OK(kit_run(e, b));
    for (int64_t i = 0; i < w->n; i++) {
        double x = (double)(w->flat->weight[w->offset + i] - before[i]);

        sum += x * x;
    }
    CHECK_NEAR(sqrt(sum), 0.0625, 1e-6);
    free(before);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(a_clip_by_norm_is_set_before_training_and_alone)
{
    kit_model m;
    fleet_optimizer *o, *own;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    CHECK_FAILS(fleet_optimizer_set_norm_clip(m.o, 1), FLEET_ESTATE,
                "call it before fleet_minimize()");
    o = fleet_sgd(m.f, 1);
    own = fleet_sgd(m.f, 1);
    CHECK_FAILS(fleet_optimizer_set_norm_clip(o, 0), FLEET_EINVAL,
                "norm: 0 is out of range");
    CHECK_FAILS(fleet_optimizer_set_norm_clip(o, NAN), FLEET_EINVAL,
                "norm: nan is out of range");
    CHECK_OK(fleet_optimizer_set_norm_clip(o, 2));
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(o, 1), FLEET_EINVAL,
                "clips by norm: expected one of them");
    CHECK_OK(fleet_optimizer_set_norm_clip(own, 2));
    CHECK_FAILS(fleet_optimizer_set_table(o, "t", own), FLEET_EINVAL,
                "table \"t\": its optimizer clips by norm");
    own = fleet_sgd(m.f, 1);
    CHECK_OK(fleet_optimizer_set_table(o, "t", own));
    CHECK_FAILS(fleet_optimizer_set_norm_clip(own, 1), FLEET_EINVAL,
                "or a group's: it clips their gradients, too");
    o = fleet_sgd(m.f, 1);
    CHECK_OK(fleet_optimizer_set_global_norm_clip(o, 1));
    CHECK_FAILS(fleet_optimizer_set_norm_clip(o, 1), FLEET_EINVAL,
                "clips by global norm: expected one of them");
    kit_close(&m);
}

/* What a worker of such a job is told. */
static void check_no_norms(void (*make)(fleet *f), const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_optimizer *o = fleet_momentum(f, 1, NULL);
    fleet_var *row =
        fleet_sparse_embedding(p, kit_data_ids(p, "id", 1), 2,
                               &(fleet_sparse_embedding_options){.table = "t"});

    CHECK_OK(fleet_optimizer_set_norm_clip(o, 1));
    make(f);
    CHECK_FAILS(fleet_minimize(o, fleet_mean(p, row)), FLEET_EUNSUPPORTED,
                words);
    f->role.server_num = 0;
    f->role.worker_num = 1;
    fleet_destroy(f);
}

static void of_servers(fleet *f)
{
    f->role.server_num = 1;
}

static void of_layers(fleet *f)
{
    f->strategy.lars = 1;
}

static void of_ranks(fleet *f)
{
    f->role.worker_num = 2;
    f->role.collective = true;
    f->strategy.is_collective = 1;
}

TEST(modes_without_the_norms_refuse_a_clip_by_norm)
{
    check_no_norms(of_servers, "fleet_minimize: a clip by norm: a lane of a "
                               "server has parts of a gradient");
    check_no_norms(of_layers, "a clip by norm: strategy.lars and strategy.lamb "
                              "have rates by the norm");
    check_no_norms(of_ranks, "a clip by norm: table \"t\" is shared out");
}

TEST(gradients_beyond_the_norm_are_scaled_down_to_it)
{
    check_clip(KIT_MLP, 1, 0.3, 0);
    check_clip(KIT_CTR, 1, 0.3, 0);
    check_clip(KIT_CTR, 2, 0.01, 0);
}

TEST(gradients_within_the_norm_stay_as_they_are)
{
    check_clip(KIT_MLP, 1, 1.01, 0);
    check_clip(KIT_CTR, 1, 1.01, 0);
    check_clip(KIT_CTR, 2, 100, 0);
}

TEST(decay_comes_after_the_clip)
{
    check_clip(KIT_CTR, 1, 0.2, 0.25f);
    check_clip(KIT_CTR, 2, 1.5, 0.25f);
}

TEST(a_clip_does_not_depend_on_the_number_of_threads)
{
    uint64_t hash[3];

    for (int i = 0; i < 3; i++) {
        kit_model m;

        kit_open(&m, KIT_CTR,
                 &(kit_options){.threads = 1 + i, .clip = 0.05f, .merge = 2});
        hash[i] = kit_train(&m, 100, 6);
        kit_close(&m);
    }
    CHECK(hash[0] == hash[1] && hash[0] == hash[2]);
}

/* --- what is said about single parameters -------------------------------- */

typedef struct layers {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
    kit_batch *b;
} layers;

/* Two layers; `attr` is said of the first one's weight. SGD, rate 0.5, decay
 * 0.125. */
static void open_layers(layers *s, fleet_param_attr attr)
{
    fleet_fc_options first = {.name = "first", .weight = attr};
    fleet_optimizer *o;
    fleet_var *x;

    s->f = kit_handle(&(kit_options){0});
    s->p = fleet_program_create(s->f);
    x = fleet_data(s->p, "x", FLEET_FLOAT32, (int64_t[]){-1, 7}, 2);
    x = fleet_fc(s->p, fleet_fc(s->p, x, 11, &first), 1,
                 &(fleet_fc_options){.name = "last"});
    o = fleet_sgd(s->f, 0.5f);
    CHECK_OK(fleet_optimizer_set_l2_decay(o, 0.125f));
    CHECK_OK(fleet_minimize(o, fleet_mean(s->p, fleet_square(s->p, x))));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
    s->b = kit_batch_new(13);
    kit_floats(s->b, "x", 7, 1);
}

static void close_layers(layers *s)
{
    kit_batch_free(s->b);
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

/* A step; the parameter must have gone by this rate and decay. */
static void check_step(layers *s, const char *name, float rate, float decay)
{
    const fl_param *p = fl_store_param(s->f->store, name);
    const fleet_var *v = fleet_program_var(s->p, name);
    float *w = p->flat->weight + p->offset, before[200];
    const float *g;

    memcpy(before, w, (size_t)p->n * sizeof *w);
    CHECK_OK(kit_run(s->e, s->b));
    g = fl_compiled_pointer(s->e->last, s->e->last->plan->gradient_of[v->id]);
    for (int64_t i = 0; i < p->n; i++) {
        float d = decay * before[i], all = g[i] + d, step = rate * all;

        CHECK(w[i] == before[i] - step && g[i] != 0);
    }
}

TEST(a_parameter_may_have_a_learning_rate_of_its_own)
{
    layers s;

    open_layers(&s, (fleet_param_attr){.learning_rate = 0.25f});
    check_step(&s, "first.w", 0.5f * 0.25f, 0.125f);
    check_step(&s, "first.b", 0.5f, 0.125f);
    check_step(&s, "last.w", 0.5f, 0.125f);
    close_layers(&s);
}

TEST(a_parameter_may_have_a_decay_of_its_own_or_none)
{
    layers s;

    open_layers(&s, (fleet_param_attr){.l2_decay = 0.75f});
    check_step(&s, "first.w", 0.5f, 0.75f);
    check_step(&s, "last.w", 0.5f, 0.125f);
    close_layers(&s);
    open_layers(&s, (fleet_param_attr){.l2_decay = 0.75f, .no_decay = 1});
    check_step(&s, "first.w", 0.5f, 0);
    check_step(&s, "first.b", 0.5f, 0.125f);
    close_layers(&s);
}

/* AdamW's decay is beside the gradient, and none at all is none of it. */
TEST(a_parameter_without_decay_has_none_of_adamw_either)
{
    float after[2] = {0};

    for (int none = 0; none < 2; none++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *x = kit_data(p, "x", 1), *w, *loss;
        kit_batch *b = kit_batch_new(3);
        fleet_executor *e;

        w = fleet_parameter(
            p, (int64_t[]){1}, 1,
            &(fleet_param_attr){.name = "w",
                                .no_decay = none,
                                .initializer = {FLEET_INIT_CONSTANT, 2, 0}});
        loss = fleet_mean(p, fleet_mul(p, x, w));
        CHECK_OK(fleet_minimize(
            fleet_adamw(f, 0.1f, &(fleet_adamw_options){.weight_decay = 0.5f}),
            loss));
        e = fleet_executor_create(p, NULL);
        CHECK(e != NULL);
        memset(kit_floats(b, "x", 1, 1), 0, 3 * sizeof(float));
        CHECK_OK(kit_run(e, b));
        after[none] = *(float *)fl_store_param(f->store, "w")->flat->weight;
        kit_batch_free(b);
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
    CHECK_NEAR(after[0], 2 - 0.1 * 0.5 * 2, 1e-6);
    CHECK(after[1] == 2.0f);
}

TEST(a_frozen_parameter_stays_and_the_others_go_on)
{
    const fl_param *p;
    float before[77];
    layers s;

    open_layers(&s, (fleet_param_attr){.frozen = 1});
    p = fl_store_param(s.f->store, "first.w");
    memcpy(before, p->flat->weight + p->offset, sizeof before);
    check_step(&s, "first.b", 0.5f, 0.125f);
    check_step(&s, "last.w", 0.5f, 0.125f);
    CHECK(memcmp(before, p->flat->weight + p->offset, sizeof before) == 0);
    CHECK(s.e->last->plan->gradient_of[fleet_program_var(s.p, "first.w")->id] <
          0);
    close_layers(&s);
}

/* w, seen as a matrix; the loss is the mean of the square of x w. */
TEST(a_parameter_is_trained_through_a_reshape)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *w =
        fleet_parameter(p, (int64_t[]){6}, 1, &(fleet_param_attr){.name = "w"});
    fleet_var *y =
        fleet_matmul(p, x, fleet_reshape(p, w, (int64_t[]){2, 3}, 2));
    kit_batch *b = kit_batch_new(1);
    float *fed = kit_floats(b, "x", 2, 1);
    float before[6];

    CHECK_OK(
        fleet_minimize(fleet_sgd(f, 1), fleet_mean(p, fleet_square(p, y))));
    fleet_executor *e = fleet_executor_create(p, NULL);
    const fl_param *q = fl_store_param(f->store, "w");
    memcpy(before, q->flat->weight + q->offset, sizeof before);
    CHECK_OK(kit_run(e, b));
    for (int i = 0; i < 6; i++) {
        float sum = fed[0] * before[i % 3] + fed[1] * before[3 + i % 3];
        float want = before[i] - 2.0f / 3 * sum * fed[i / 3];

        CHECK_CLOSE(&q->flat->weight[q->offset + i], &want, 1, 1e-6);
        CHECK(want != before[i]);
    }
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- programs that share ------------------------------------------------- */

/* A program with a layer "shared" of that many units, and one of its own. */
static fleet_program *program_of(fleet *f, const char *own, int64_t units,
                                 fleet_optimizer *o)
{
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 4}, 2);

    x = fleet_fc(p, x, units, &(fleet_fc_options){.name = "shared"});
    x = fleet_fc(p, x, 1, &(fleet_fc_options){.name = own});
    CHECK_OK(fleet_minimize(o, fleet_mean(p, fleet_square(p, x))));
    return p;
}

TEST(two_programs_train_what_they_share)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_optimizer *o = fleet_adam(f, 0.1f, NULL);
    fleet_program *a = program_of(f, "a", 5, o), *b;
    fleet_executor *ea = fleet_executor_create(a, NULL), *eb;
    kit_batch *batch = kit_batch_new(6);
    const fl_param *shared, *own;
    float before[20], mine;

    kit_floats(batch, "x", 4, 1);
    CHECK_OK(kit_run(ea, batch));
    b = program_of(f, "b", 5, o); /* comes later: a group of its own */
    eb = fleet_executor_create(b, NULL);
    shared = fl_store_param(f->store, "shared.w");
    own = fl_store_param(f->store, "a.w");
    memcpy(before, shared->flat->weight + shared->offset, sizeof before);
    mine = own->flat->weight[own->offset];
    CHECK_OK(kit_run(eb, batch));
    for (int i = 0; i < 20; i++)
        CHECK(shared->flat->weight[shared->offset + i] != before[i]);
    CHECK(own->flat->weight[own->offset] == mine);
    CHECK_INT(f->store->updates, 2);
    CHECK_OK(kit_run(ea, batch));
    CHECK(own->flat->weight[own->offset] != mine);
    kit_batch_free(batch);
    fleet_executor_destroy(ea);
    fleet_executor_destroy(eb);
    fleet_destroy(f);
}

TEST(a_program_that_does_not_fit_is_refused_and_leaves_all_as_it_was)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_optimizer *o = fleet_sgd(f, 0.1f);
    fleet_program *a = program_of(f, "a", 5, o), *b;
    fleet_executor *e = fleet_executor_create(a, NULL);
    uint64_t before = kit_hash(f);

    b = program_of(f, "b", 6, o);
    CHECK(fleet_executor_create(b, NULL) == NULL);
    CHECK_TEXT(fleet_last_error(), "\"shared.w\" has shape [4,6] here, and "
                                   "[4,5] in another program of this handle");
    CHECK(kit_hash(f) == before);
    CHECK(fl_store_param(f->store, "b.w") == NULL);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(a_handle_trains_with_one_optimizer)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *a = program_of(f, "a", 5, fleet_sgd(f, 0.1f));
    fleet_program *b = program_of(f, "b", 5, fleet_adam(f, 0.1f, NULL));
    fleet_executor *e = fleet_executor_create(a, NULL), *tester;

    CHECK(fleet_executor_create(b, NULL) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "trains with another optimizer already");
    tester = fleet_executor_create(b, &(fleet_executor_options){.for_test = 1});
    CHECK(tester != NULL);
    fleet_executor_destroy(tester);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- what cannot be minimized -------------------------------------------- */

typedef struct target {
    fleet *f;
    fleet_program *p;
    fleet_var *each, *mean; /* [B, 1]; [1] */
    fleet_optimizer *o;
} target;

static target target_of(void)
{
    target t = {.f = kit_handle(&(kit_options){0})};
    fleet_var *x;

    t.p = fleet_program_create(t.f);
    x = fleet_data(t.p, "x", FLEET_FLOAT32, (int64_t[]){-1, 4}, 2);
    t.each = fleet_fc(t.p, x, 1, NULL);
    t.mean = fleet_mean(t.p, t.each);
    t.o = fleet_sgd(t.f, 1);
    return t;
}

TEST(an_optimizer_and_a_loss_are_needed)
{
    target t = target_of();

    CHECK_FAILS(fleet_minimize(fleet_sgd(t.f, -1), t.mean), FLEET_EINVAL,
                "no optimizer; the last failure was: sgd: the learning rate -1 "
                "is not positive");
    CHECK_FAILS(fleet_minimize(t.o, NULL), FLEET_EINVAL, "no loss");
    CHECK_OK(fleet_minimize(t.o, t.mean));
    fleet_destroy(t.f);
}

TEST(a_loss_is_one_number)
{
    target t = target_of();

    CHECK_FAILS(fleet_minimize(t.o, t.each), FLEET_ESHAPE,
                "has shape [-1,1]; expected [1]");
    CHECK_FAILS(fleet_minimize(t.o, fleet_program_var(t.p, "x")), FLEET_ESHAPE,
                "\"x\" has shape [-1,4]; expected [1]");
    CHECK_OK(fleet_minimize(t.o, t.mean));
    fleet_destroy(t.f);
}

TEST(a_program_is_minimized_once_and_before_it_runs)
{
    target t = target_of(), ran = target_of();

    CHECK_OK(fleet_minimize(t.o, t.mean));
    CHECK_FAILS(fleet_minimize(t.o, t.mean), FLEET_ESTATE,
                "is trained already");
    fleet_executor_destroy(fleet_executor_create(ran.p, NULL));
    CHECK_FAILS(fleet_minimize(ran.o, ran.mean), FLEET_ESTATE,
                "has run already");
    fleet_destroy(t.f);
    fleet_destroy(ran.f);
}

TEST(a_program_that_failed_is_not_minimized)
{
    target t = target_of();

    CHECK(fleet_fc(t.p, t.mean, 3, NULL) == NULL);
    CHECK_FAILS(fleet_minimize(t.o, t.mean), FLEET_ESHAPE, "fc: ");
    fleet_destroy(t.f);
}

TEST(an_optimizer_serves_its_own_handle)
{
    target t = target_of(), other = target_of();

    CHECK_FAILS(fleet_minimize(other.o, t.mean), FLEET_EINVAL,
                "belongs to another handle");
    fleet_destroy(t.f);
    fleet_destroy(other.f);
}
