/* gpu_loss_scaling_ranks_test.c - ranks on GPUs that train in float16: one
 * rank's overflow skips the update of all, they keep one scale, and have the
 * bits of one process that merges their batches. */
#define SUITE gpu_loss_scaling_ranks
#include "gpu_rank_kit.h"
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"

static fleet_amp_configs scaling(float first, int grow_after, float shrink)
{
    return (fleet_amp_configs){.init_loss_scaling = first,
                               .incr_every_n_steps = grow_after,
                               .decr_every_n_nan_or_inf = 1,
                               .incr_ratio = 2,
                               .decr_ratio = shrink,
                               .use_dynamic_loss_scaling = 1};
}

enum { NEVER = 1000000 };

/* What each rank has at its end. */
static fl_scaling at_end[GPU_RANK_MOST];

static fleet_status train_and_tell(kit_model *m, gpu_rank_lesson *s, int rank)
{
    fl_store *store = m->f->store;

    FL_TRY(gpu_rank_train(m, s, rank));
    CHECK_OK(fl_store_to_host(store));
    at_end[rank] = store->scaling;
    for (int64_t i = 0; i < store->flats->n; i++)
        CHECK(isfinite(store->flats->weight[i]));
    return FLEET_OK;
}

/* Of so many updates, some perhaps skipped. */
static void run(gpu_rank_lesson *s, int64_t updates)
{
    s->how.fp16 = true;
    if (!s->work)
        s->work = train_and_tell;
    gpu_rank_run(s);
    for (int i = 0; i < s->ranks; i++) {
        CHECK(memcmp(&at_end[i], &at_end[0], sizeof *at_end) == 0);
        CHECK_INT(s->updates[i] + at_end[i].skipped, updates);
    }
}

/* --- the bits of one process ---------------------------------------------- */

static void in_order(fleet_distributed_strategy *s)
{
    s->deterministic = 1;
}

/* One process on a GPU that merges as many batches; *scale: that it ends
 * with. */
static uint64_t merged(kit_kind kind, kit_options how, int ranks, int batches,
                       float *scale)
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
    CHECK_OK(fleet_get_loss_scaling(m.f, scale));
    work_close(&k);
    kit_close(&m);
    return hash;
}

/* The first updates are skipped, the last one is of fewer batches. */
static void equals_merged(kit_kind kind, kit_options how, int ranks)
{
    enum { BATCHES = 13 };
    const fleet_amp_configs c = scaling(0x1p38f, 2, 0x1p-8f);
    gpu_rank_lesson s = {.kind = kind,
                         .how = how,
                         .ranks = ranks,
                         .batches = BATCHES,
                         .last = 31};
    float scale;

    how.fp16 = true;
    how.scaling = &c;
    s.how.scaling = &c;
    s.how.choose = in_order;
    run(&s, (BATCHES + ranks - 1) / ranks);
    CHECK(at_end[0].skipped > 1 && s.updates[0] > 1);
    CHECK(s.hash == merged(kind, how, ranks, BATCHES, &scale));
    CHECK_NEAR(at_end[0].scale, scale, 0);
}

TEST_LIMIT(in_order_they_have_the_bits_of_one_that_merges, 120)
{
    gpu_rank_open(3);
    for (int ranks = 2; ranks <= 3; ranks++) {
        equals_merged(KIT_MLP, (kit_options){.optimizer = "adam"}, ranks);
        equals_merged(KIT_MLP,
                      (kit_options){.optimizer = "momentum", .clip = 0.1f},
                      ranks);
    }
    gpu_rank_close();
}

TEST_LIMIT(so_they_have_with_tables_that_they_share_out, 200)
{
    gpu_rank_open(3);
    for (int ranks = 2; ranks <= 3; ranks++) {
        equals_merged(KIT_CTR, (kit_options){.optimizer = "adam"}, ranks);
        equals_merged(KIT_CTR, (kit_options){.optimizer = "sgd", .clip = 0.1f},
                      ranks);
    }
    gpu_rank_close();
}

/* --- one rank that overflows ---------------------------------------------- */

static void each_alone(fleet_distributed_strategy *s)
{
    s->fuse_all_reduce_ops = 0;
}

static void halves(fleet_distributed_strategy *s)
{
    s->fp16_allreduce = 1;
}

static void shards(fleet_distributed_strategy *s)
{
    s->sharding = 1;
}

static void shards_gradients(fleet_distributed_strategy *s)
{
    s->sharding = 1;
    s->sharding_configs.stage = 2;
}

static void shards_weights(fleet_distributed_strategy *s)
{
    shards_gradients(s);
    s->sharding_configs.stage = 3;
}

static void groups(fleet_distributed_strategy *s)
{
    s->use_hierarchical_allreduce = 1;
    s->hierarchical_allreduce_inter_nranks = 2;
}

/* A number of the last rank's second batch that a cast makes infinite: what
 * follows is bounded, so the loss is as good as any; its gradient is not. */
static fleet_status overflow_once(kit_model *m, gpu_rank_lesson *s, int rank)
{
    work k;

    work_open(&k, m, s->batches, 50);
    if (rank == s->ranks - 1)
        ((float *)(uintptr_t)k.b[rank + s->ranks]->feed[0].data)[33] = 1e38f;
    for (int i = rank; i < k.n; i += s->ranks)
        FL_TRY(kit_run(m->e, k.b[i]));
    work_close(&k);
    FL_TRY(fleet_executor_flush(m->e));
    CHECK_OK(fl_store_to_host(m->f->store));
    at_end[rank] = m->f->store->scaling;
    return FLEET_OK;
}

static void check_one_skips_all(const char *name, kit_options how, int ranks)
{
    const fleet_amp_configs c = scaling(256, NEVER, 0.5f);
    int merge = how.merge > 1 ? how.merge : 1;
    gpu_rank_lesson s = {.how = how,
                         .ranks = ranks,
                         .batches = 4 * ranks * merge,
                         .work = overflow_once};

    fprintf(stderr, "%s\n", name);
    s.how.scaling = &c;
    run(&s, 4);
    CHECK_INT(at_end[0].skipped, 1);
    CHECK_NEAR(at_end[0].scale, 128, 0);
    for (int i = 0; i < GPU_RANK_FLOATS; i++)
        CHECK(isfinite(s.weight[0][i]));
}

TEST_LIMIT(one_rank_that_overflows_skips_the_update_of_all, 200)
{
    gpu_rank_open(4);
    check_one_skips_all("buckets", (kit_options){.choose = each_alone}, 3);
    check_one_skips_all("in order", (kit_options){.choose = in_order}, 2);
    check_one_skips_all("merge", (kit_options){.merge = 2, .clip = 0.1f}, 2);
    check_one_skips_all("fp16_allreduce",
                        (kit_options){.optimizer = "sgd", .choose = halves}, 2);
    check_one_skips_all("sharding", (kit_options){.choose = shards}, 3);
    check_one_skips_all("sharding of gradients",
                        (kit_options){.choose = shards_gradients}, 3);
    check_one_skips_all("sharding of weights",
                        (kit_options){.choose = shards_weights}, 3);
    check_one_skips_all("lars", (kit_options){.layers = "lars"}, 2);
    check_one_skips_all("groups", (kit_options){.choose = groups}, 4);
    gpu_rank_close();
}

/* A sum that is no float16 is an overflow like any other. */
TEST(a_sum_that_float16_does_not_hold_skips_the_update)
{
    const fleet_amp_configs c = scaling(0x1p22f, NEVER, 0.5f);
    gpu_rank_lesson s = {
        .how = {.optimizer = "sgd", .scaling = &c, .choose = halves},
        .ranks = 2,
        .batches = 24};

    gpu_rank_open(2);
    run(&s, 12);
    CHECK(at_end[0].skipped > 0 && s.updates[0] > 0);
    gpu_rank_close();
}

/* --- ends that are unequal, and what is loaded ---------------------------- */

/* A scale that grows with each update until one overflows, again and again:
 * also while a rank has no batch, for the last update or in a pass to come. */
static void check_ends(kit_kind kind)
{
    const fleet_amp_configs c = scaling(0x1p24f, 1, 0.5f);

    gpu_rank_open(2);
    for (int rounds = 12; rounds < 14; rounds++)
        for (int passes = 1; passes <= 2; passes++) {
            gpu_rank_lesson s = {.kind = kind,
                                 .how.scaling = &c,
                                 .ranks = 2,
                                 .batches = 2 * rounds - 1,
                                 .passes = passes};

            run(&s, passes * rounds);
            CHECK(at_end[0].skipped > 3);
        }
    gpu_rank_close();
}

TEST_LIMIT(a_rank_without_a_batch_skips_what_the_others_skip, 100)
{
    check_ends(KIT_MLP);
}

TEST_LIMIT(so_does_one_that_has_rows_of_the_others, 100)
{
    check_ends(KIT_CTR);
}

static fleet_status have_loaded(kit_model *m, gpu_rank_lesson *s, int rank)
{
    (void)s;
    if (rank == 0)
        m->f->store->scaling = (fl_scaling){.scale = 64, .good = 1};
    return FLEET_OK;
}

TEST(all_begin_with_the_scale_of_the_first)
{
    const fleet_amp_configs c = scaling(1024, 3, 0.5f);
    gpu_rank_lesson s = {
        .how.scaling = &c, .ranks = 3, .batches = 6, .before = have_loaded};

    gpu_rank_open(3);
    run(&s, 2);
    CHECK_NEAR(at_end[2].scale, 128, 0);
    gpu_rank_close();
}

/* --- what is refused ------------------------------------------------------ */

TEST(ranks_that_do_not_sum_all_gradients_are_refused)
{
    static const char *const words[] = {
        "float16 with strategy.localsgd",
        "float16 with strategy.adaptive_localsgd", "float16 with strategy.dgc"};
    fleet_role role = {.worker_num = 2, .master = "127.0.0.1:39999"};

    for (int i = 0; i < 3; i++) {
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
        fleet *f = kit_handle(&(kit_options){.role = &role});
        fleet_optimizer *o = fleet_momentum(f, 0.1f, NULL);

        s.amp = 1;
        s.localsgd = i == 0;
        s.adaptive_localsgd = i == 1;
        s.dgc = i == 2;
        kit_refused(f, o, &s, FLEET_EUNSUPPORTED, words[i]);
        fleet_destroy(f);
    }
}
