/* gpu_ranks_test.c - ranks on GPUs: the weights of one process, of ranks on
 * CPUs, and of each other, by every strategy; unequal ends, batches that are
 * wrong, and what cannot meet. */
#define SUITE gpu_ranks
#include "gpu_rank_kit.h"
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

/* --- the bits of one process --------------------------------------------- */

static void in_order(fleet_distributed_strategy *s)
{
    s->deterministic = 1;
}

/* One process on a GPU that merges as many batches. */
static uint64_t merged(kit_kind kind, kit_options how, int ranks, int batches)
{
    uint64_t hash;
    kit_model m;
    work k;

    how.device = "gpu:0";
    how.merge = ranks;
    how.max_batch = 50;
    kit_open(&m, kind, &how);
    work_open(&k, &m, batches, 31);
    for (int i = 0; i < k.n; i++)
        CHECK_OK(kit_run(m.e, k.b[i]));
    CHECK_OK(fleet_executor_flush(m.e));
    hash = kit_hash(m.f);
    work_close(&k);
    kit_close(&m);
    return hash;
}

/* Without an end of the same length for all: the last update is of fewer. */
static void equals_merged(kit_kind kind, kit_options how, int ranks)
{
    gpu_rank_lesson s = {
        .kind = kind, .how = how, .ranks = ranks, .batches = 7, .last = 31};

    s.how.choose = in_order;
    gpu_rank_run(&s);
    CHECK(s.hash == merged(kind, how, ranks, 7));
    CHECK_INT(s.updates[0], (7 + ranks - 1) / ranks);
}

TEST_LIMIT(in_order_they_have_the_bits_of_one_that_merges, 120)
{
    gpu_rank_open(3);
    for (int ranks = 2; ranks <= 3; ranks++) {
        equals_merged(KIT_MLP, (kit_options){.optimizer = "adam"}, ranks);
        equals_merged(KIT_MLP,
                      (kit_options){.optimizer = "momentum", .clip = 0.1f},
                      ranks);
        equals_merged(KIT_CTR, (kit_options){.optimizer = "adagrad"}, ranks);
        equals_merged(KIT_CTR, (kit_options){.clip = 0.1f}, ranks);
    }
    gpu_rank_close();
}

/* --- one step of twice the batch ----------------------------------------- */

static kit_batch rows_of(const kit_batch *all, int64_t first, int64_t n)
{
    kit_batch part = kit_head(all, n);

    for (int i = 0; i < part.n; i++) {
        size_t size = fleet_dtype_size(part.feed[i].dtype);

        part.feed[i].data = (const char *)all->feed[i].data +
                            (size_t)(first * all->dims[i][1]) * size;
    }
    return part;
}

static fleet_status take_a_half(kit_model *m, gpu_rank_lesson *s, int rank)
{
    kit_batch *all = kit_batch_for(m, 50, 3);
    kit_batch half = rows_of(all, rank * 25, 25);
    fleet_status status = kit_run(m->e, &half);

    (void)s;
    kit_batch_free(all);
    FL_TRY(status);
    return fleet_executor_flush(m->e);
}

static void check_twice_the_batch(kit_options how)
{
    gpu_rank_lesson s = {.how = how, .ranks = 2, .work = take_a_half};
    static float one[GPU_KIT_MOST];
    kit_batch *all;
    kit_model m;
    int64_t n;

    gpu_rank_open(2);
    gpu_rank_run(&s);
    how.device = "gpu:0";
    kit_open(&m, KIT_MLP, &how);
    all = kit_batch_for(&m, 50, 3);
    CHECK_OK(kit_run(m.e, all));
    CHECK_OK(fleet_executor_flush(m.e));
    n = gpu_kit_weights(m.f->store, one);
    for (int64_t i = 0; i < n; i++)
        CHECK(fabsf(s.weight[0][i] - one[i]) <=
              1e-6f * fmaxf(1, fabsf(one[i])));
    kit_batch_free(all);
    kit_close(&m);
    gpu_rank_close();
}

TEST(two_take_the_step_of_one_with_twice_the_batch)
{
    check_twice_the_batch((kit_options){.optimizer = "sgd"});
}

static void by_all_batches(fleet_distributed_strategy *s)
{
    s->sync_batch_norm = 1;
}

TEST(so_they_do_by_the_statistics_of_both_batches)
{
    check_twice_the_batch((kit_options){
        .optimizer = "sgd", .normalized = true, .choose = by_all_batches});
}

/* The last update is of the first rank alone, whose statistics are its own. */
TEST(a_rank_that_has_joined_adds_nothing_to_statistics)
{
    gpu_rank_lesson s = {.how = {.optimizer = "sgd",
                                 .normalized = true,
                                 .choose = by_all_batches},
                         .ranks = 2,
                         .batches = 3,
                         .last = 31};

    gpu_rank_open(2);
    gpu_rank_run(&s);
    CHECK_INT(s.updates[0], 2);
    gpu_rank_close();
}

/* --- every strategy, as on CPUs ------------------------------------------ */

static void each_alone(fleet_distributed_strategy *s)
{
    s->fuse_all_reduce_ops = 0;
}

static void halves(fleet_distributed_strategy *s)
{
    s->fp16_allreduce = 1;
}

static void sums(fleet_distributed_strategy *s)
{
    s->gradient_scale_sum = 1;
}

static void shards(fleet_distributed_strategy *s)
{
    s->sharding = 1;
}

static void shards_gradients(fleet_distributed_strategy *s)
{
    s->sharding = 1;
    s->sharding_configs.stage = 2;
    s->fuse_all_reduce_ops = 0;
}

static void shards_weights(fleet_distributed_strategy *s)
{
    shards_gradients(s);
    s->sharding_configs.stage = 3;
}

/* All of them: which are the largest may depend on a rounding. */
static void pairs(fleet_distributed_strategy *s)
{
    s->dgc = 1;
    s->dgc_configs.sparsity = 0;
}

static void few_pairs(fleet_distributed_strategy *s)
{
    s->dgc = 1;
    s->dgc_configs.sparsity = 0.9f;
}

static void means(fleet_distributed_strategy *s)
{
    s->localsgd = 1;
    s->localsgd_configs.k_steps = 2;
}

static void means_by_loss(fleet_distributed_strategy *s)
{
    s->adaptive_localsgd = 1;
    s->adaptive_localsgd_configs.k_steps = 2;
}

static void groups(fleet_distributed_strategy *s)
{
    s->use_hierarchical_allreduce = 1;
    s->hierarchical_allreduce_inter_nranks = 2;
}

typedef struct method {
    const char *name;
    void (*choose)(fleet_distributed_strategy *s);
    kit_options how;
    fl_training also; /* what the choice makes of a program on a CPU */
    int ranks;
} method;

static void agrees_with_cpus(const method *how)
{
    gpu_rank_lesson s = {.how = how->how,
                         .also.dgc.smallest = how->also.dgc.smallest,
                         .ranks = how->ranks ? how->ranks : 2,
                         .batches = 9,
                         .last = 31,
                         .passes = 2};
    rank_lesson cpu = {.how = how->how,
                       .also = how->also,
                       .batches = 9,
                       .last = 31,
                       .passes = 2};

    s.how.choose = how->choose;
    fprintf(stderr, "%s\n", how->name);
    gpu_rank_run(&s);
    rank_train(&cpu, s.ranks);
    gpu_kit_near(s.weight[0], cpu.weight[0], RANK_MOST_FLOATS);
    CHECK_INT(s.updates[0], cpu.updates[0]);
}

TEST_LIMIT(each_strategy_is_that_of_cpus, 200)
{
    const kit_options sgd = {.optimizer = "sgd", .learning_rate = 0.1f};
    const kit_options momentum = {.optimizer = "momentum",
                                  .learning_rate = 0.01f};
    const method all[] = {
        {"buckets", each_alone, sgd, {.all_reduce.bucket = 1}, 3},
        {"gradients of the CPU",
         NULL,
         {.optimizer = "sgd", .guard = "cpu"},
         {.all_reduce.bucket = 0},
         2},
        {"merge",
         NULL,
         {.optimizer = "sgd", .merge = 2},
         {.all_reduce.bucket = 0},
         2},
        {"fp16_allreduce", halves, sgd, {.all_reduce.fp16 = true}, 2},
        {"sharding", shards, momentum, {.sharded = true}, 2},
        {"sharding of gradients",
         shards_gradients,
         {.optimizer = "momentum", .learning_rate = 0.01f, .clip = 0.1f},
         {.sharded = true},
         3},
        {"sharding of weights",
         shards_weights,
         {.optimizer = "momentum", .learning_rate = 0.01f, .clip = 0.1f},
         {.sharded = true},
         3},
        {"dgc", pairs, momentum, {.dgc = {true, 0, 0, 1, 100}}, 2},
        {"localsgd", means, sgd, {.localsgd = {2, 1, false}}, 2},
        {"adaptive_localsgd",
         means_by_loss,
         sgd,
         {.localsgd = {2, 1, true}},
         3},
    };

    gpu_rank_open(3);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        agrees_with_cpus(&all[i]);
    gpu_rank_close();
}

TEST_LIMIT(layers_have_their_rates, 100)
{
    const kit_options lars = {.layers = "lars", .learning_rate = 0.1f};
    const kit_options lamb = {.layers = "lamb", .learning_rate = 0.01f};
    const method all[] = {
        {"lars", NULL, lars, {.all_reduce.bucket = 0}, 2},
        {"lamb", NULL, lamb, {.all_reduce.bucket = 0}, 2},
        {"lamb, sharded", shards, lamb, {.sharded = true}, 2},
        {"lars, of parts", shards_gradients, lars, {.sharded = true}, 2},
        {"lamb, of parts", shards_gradients, lamb, {.sharded = true}, 2},
        {"lars, weights", shards_weights, lars, {.sharded = true}, 2},
        {"lamb, weights", shards_weights, lamb, {.sharded = true}, 2},
    };

    gpu_rank_open(2);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        agrees_with_cpus(&all[i]);
    gpu_rank_close();
}

/* Twice the sum's rate is the mean's of two. */
TEST(a_sum_is_the_mean_times_its_batches)
{
    gpu_rank_lesson mean = {.how = {.optimizer = "sgd", .learning_rate = 0.2f},
                            .ranks = 2,
                            .batches = 6};
    gpu_rank_lesson sum = mean;

    sum.how.learning_rate = 0.1f;
    sum.how.choose = sums;
    gpu_rank_open(2);
    gpu_rank_run(&mean);
    gpu_rank_run(&sum);
    gpu_kit_near(sum.weight[0], mean.weight[0], GPU_RANK_FLOATS);
    gpu_rank_close();
}

TEST(all_add_the_few_pairs_that_are_sent)
{
    gpu_rank_lesson s = {.how = {.optimizer = "momentum",
                                 .learning_rate = 0.01f,
                                 .choose = few_pairs},
                         .also.dgc.smallest = 100,
                         .ranks = 3,
                         .batches = 10};

    gpu_rank_open(3);
    gpu_rank_run(&s);
    gpu_rank_close();
}

TEST(groups_of_ranks_sum_as_all_do)
{
    gpu_rank_lesson flat = {
        .how.optimizer = "sgd", .ranks = 4, .batches = 9, .last = 31};
    gpu_rank_lesson by_groups = flat;

    by_groups.how.choose = groups;
    gpu_rank_open(4);
    gpu_rank_run(&flat);
    gpu_rank_run(&by_groups);
    gpu_kit_near(by_groups.weight[0], flat.weight[0], GPU_RANK_FLOATS);
    gpu_rank_close();
}

/* --- what is wrong ------------------------------------------------------- */

static void check_stopped(gpu_rank_lesson *s, fleet_status code,
                          const char *words)
{
    char told[200];

    gpu_rank_try(s);
    for (int i = 0; i < s->ranks; i++) {
        CHECK_INT(s->status[i], i == s->bad_rank ? code : FLEET_EPEER);
        CHECK_CONTAINS(s->error[i], words);
        CHECK_INT(s->updates[i], 0); /* no result was kept */
    }
    snprintf(told, sizeof told, "rank %d gave up: batch 2", s->bad_rank);
    CHECK_CONTAINS(s->error[0], told);
}

TEST(a_loss_that_is_not_finite_stops_all_before_an_update)
{
    gpu_rank_lesson s = {.ranks = 3, .batches = 12, .bad_rank = 2};

    gpu_rank_open(3);
    check_stopped(&s, FLEET_ENUMERIC, "batch 2: the loss is not finite");
    gpu_rank_close();
}

TEST(a_label_out_of_range_stops_all)
{
    gpu_rank_lesson s = {
        .ranks = 2, .batches = 8, .bad_rank = 1, .bad_label = 99};

    gpu_rank_open(2);
    check_stopped(&s, FLEET_EINVAL, "of sample 7 is out of range");
    gpu_rank_close();
}

/* What the one that is good has at its end: the first update, no second. */
static fleet_status train_and_look(kit_model *m, gpu_rank_lesson *s, int rank)
{
    fleet_status status = gpu_rank_train(m, s, rank);
    fl_store *store = m->f->store;

    CHECK(status != FLEET_OK);
    CHECK_OK(fl_store_to_host(store));
    memcpy(s->weight[rank], store->flats->weight,
           (size_t)store->flats->n * sizeof(float));
    s->updates[rank] = store->updates;
    return status;
}

TEST(nobody_updates_with_what_another_has_rejected)
{
    gpu_rank_lesson bad = {.how.choose = in_order,
                           .ranks = 2,
                           .batches = 8,
                           .bad_rank = 1,
                           .work = train_and_look};
    gpu_rank_lesson good = {.how.choose = in_order, .ranks = 2, .batches = 2};

    gpu_rank_open(2);
    gpu_rank_try(&bad);
    gpu_rank_run(&good);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(bad.updates[i], 1);
        CHECK(memcmp(bad.weight[i], good.weight[0], sizeof *bad.weight) == 0);
    }
    gpu_rank_close();
}

/* --- a table that is shared out is whole for those who have joined -------- */

#define PART                                                                   \
    "ranks share out the rows of 4 tables, and this process has its own"

/* Found before there are threads. */
static char part[300], whole[300];

static void refuses_to_save(kit_model *m)
{
    static const char *const name[] = {"numbers", "one", "three", "some",
                                       "mean"};
    fleet_var *feed[5];

    for (int i = 0; i < 5; i++)
        feed[i] = fleet_program_var(m->p, name[i]);
    CHECK_FAILS(fleet_save_persistables(m->f, part), FLEET_ESTATE, PART);
    CHECK_FAILS(
        fleet_save_inference_model(m->f, part, feed, 5, &m->m.prediction, 1),
        FLEET_ESTATE, PART);
}

static void refuses_a_part(kit_model *m)
{
    fleet_executor *test =
        fleet_executor_create(m->p, &(fleet_executor_options){.for_test = 1});
    kit_batch *b = kit_batch_for(m, 20, 5);
    uint64_t hash;

    CHECK(test != NULL);
    CHECK_FAILS(kit_run(test, b), FLEET_ESTATE, PART);
    CHECK_FAILS(fleet_params_hash(m->f, &hash), FLEET_ESTATE, PART);
    if (fleet_is_first_worker(m->f))
        refuses_to_save(m);
    fleet_executor_destroy(test);
    kit_batch_free(b);
}

static fleet_status train_and_save(kit_model *m, gpu_rank_lesson *s, int rank)
{
    FL_TRY(gpu_rank_train(m, s, rank));
    return fleet_save_persistables(m->f, whole);
}

static fleet_status load_whole(kit_model *m, gpu_rank_lesson *s, int rank)
{
    (void)s, (void)rank;
    FL_TRY(fleet_load_model(m->f, whole));
    refuses_a_part(m);
    return FLEET_OK;
}

static fleet_status look_from_outside(kit_model *m, gpu_rank_lesson *s,
                                      int rank)
{
    (void)s, (void)rank;
    refuses_a_part(m);
    return FLEET_OK;
}

TEST(who_has_not_joined_or_has_left_has_no_whole_table)
{
    gpu_rank_lesson first = {.kind = KIT_CTR,
                             .ranks = 2,
                             .batches = 6,
                             .work = train_and_save,
                             .after = look_from_outside};
    gpu_rank_lesson again = {
        .kind = KIT_CTR, .ranks = 2, .before = load_whole, .batches = 2};

    snprintf(part, sizeof part, "%s", test_path("part"));
    snprintf(whole, sizeof whole, "%s", test_path("whole"));
    gpu_rank_open(2);
    gpu_rank_run(&first);
    gpu_rank_run(&again);
    gpu_rank_close();
}

/* --- what cannot meet ---------------------------------------------------- */

TEST(a_rank_has_to_know_where_rank_0_is)
{
    fleet_role role = {.worker_num = 2};
    kit_model m;

    gpu_rank_open(2);
    kit_open(&m, KIT_MLP, &(kit_options){.device = "gpu:0", .role = &role});
    CHECK_FAILS(fleet_init_worker(m.f), FLEET_ENOENT,
                "nothing says where rank 0 can be met: expected PADDLE_MASTER");
    kit_close(&m);
    gpu_rank_close();
}

/* Before it makes anybody wait. */
TEST(what_has_no_kernel_is_refused_when_it_joins)
{
    fleet_role role = {.worker_num = 2, .master = "127.0.0.1:39999"};
    kit_options o = {.optimizer = "sgd", .role = &role};
    fleet_program *p;
    fleet_var *x;
    fleet *f;

    gpu_rank_open(2);
    f = kit_handle(&o);
    p = fleet_program_create(f);
    CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
    x = fleet_fc(p, kit_data(p, "x", 6), 9, NULL);
    CHECK_OK(fleet_minimize(kit_optimizer(f, &o),
                            fleet_mean(p, gpu_kit_copy(p, x))));
    CHECK_FAILS(fleet_init_worker(f), FLEET_EUNSUPPORTED,
                "has no kernel \"kit.copy\" of float32 on gpu:0");
    fleet_destroy(f);
    gpu_rank_close();
}

TEST(a_rank_that_does_not_come_is_named)
{
    fleet_role role = {.worker_num = 2, .master = "127.0.0.1:39999"};
    kit_model m;

    setenv("FLEET_CONNECT_DEADLINE_MS", "300", 1);
    gpu_rank_open(2);
    kit_open(&m, KIT_MLP, &(kit_options){.device = "gpu:0", .role = &role});
    CHECK_FAILS(fleet_init_worker(m.f), FLEET_ETIMEDOUT, "rank 1");
    kit_close(&m);
    gpu_rank_close();
}

TEST(an_address_that_is_none_is_refused)
{
    fleet_role role = {.worker_num = 2, .master = "nowhere"};
    fleet *none;

    CHECK_FAILS(fleet_init(&none, &(fleet_options){.role = &role}),
                FLEET_EINVAL, "role.master: \"nowhere\": expected ip:port");
}

static fleet_status wait_for_others(kit_model *m, gpu_rank_lesson *s, int rank)
{
    (void)s;
    (void)rank;
    return fleet_barrier_worker(m->f);
}

static void differ(fleet_distributed_strategy *s)
{
    static _Atomic int n;

    s->gradient_scale_sum = n++ % 2;
}

TEST(ranks_that_differ_are_refused)
{
    gpu_rank_lesson s = {
        .how.choose = differ, .ranks = 2, .work = wait_for_others};

    gpu_rank_open(2);
    gpu_rank_try(&s);
    CHECK(s.status[0] != FLEET_OK && s.status[1] != FLEET_OK);
    CHECK_CONTAINS(s.error[1], "gradient_scale_sum");
    gpu_rank_close();
}
