/* plan_test.c - plans: listings of small models against those kept in golden/,
 * passes that refuse by name.
 *
 * FLEET_UPDATE_GOLDEN=1 writes the listings anew: read the difference then.
 */
#define SUITE plan
#include "fake_remote.h"
#include "fake_comm.h"
#include "golden.h"
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/plan/remote.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/pass.h"

/* --- listings ------------------------------------------------------------ */

static void check_dump(kit_kind kind, const kit_options *o, fleet_dump how,
                       const char *name)
{
    char *text;
    kit_model m;

    kit_build(&m, kind, o);
    text = fleet_program_dump(m.p, how, 40);
    golden_check(name, text);
    fleet_free(text);
    kit_close(&m);
}

TEST(plans_of_small_models_are_as_listed)
{
    check_dump(KIT_MLP, &(kit_options){0}, FLEET_DUMP_PLAN, "mlp.txt");
    check_dump(KIT_CTR, &(kit_options){0}, FLEET_DUMP_PLAN, "wide_deep.txt");
    check_dump(KIT_CTR, &(kit_options){.merge = 2, .clip = 1}, FLEET_DUMP_PLAN,
               "wide_deep_merge_clip.txt");
    check_dump(KIT_MLP, &(kit_options){.layers = "lars"}, FLEET_DUMP_PLAN,
               "mlp_lars.txt");
    check_dump(KIT_CTR, &(kit_options){.layers = "lamb", .merge = 2, .clip = 1},
               FLEET_DUMP_PLAN, "wide_deep_lamb_merge_clip.txt");
}

/* Places, and what is copied between them. */
TEST(plans_on_a_gpu_are_as_listed)
{
    gpu_kit_open();
    gpu_kit_control();
    check_dump(KIT_MLP, &(kit_options){.device = "gpu:0"}, FLEET_DUMP_PLAN,
               "mlp_gpu.txt");
    check_dump(KIT_CTR,
               &(kit_options){.device = "gpu:0", .merge = 2, .clip = 1},
               FLEET_DUMP_PLAN, "wide_deep_gpu_merge_clip.txt");
    check_dump(KIT_MLP, &(kit_options){.device = "cpu", .guard = "gpu:0"},
               FLEET_DUMP_PLAN, "mlp_guarded_gpu.txt");
    check_dump(KIT_MLP, &(kit_options){.device = "gpu:0", .bf16 = true},
               FLEET_DUMP_PLAN, "mlp_amp_gpu.txt");
    check_dump(KIT_MLP, &(kit_options){.device = "gpu:0", .fp16 = true},
               FLEET_DUMP_PLAN, "mlp_fp16_gpu.txt");
    check_dump(
        KIT_CTR,
        &(kit_options){.device = "gpu:0", .fp16 = true, .merge = 2, .clip = 1},
        FLEET_DUMP_PLAN, "wide_deep_fp16_gpu_merge_clip.txt");
    gpu_kit_close();
}

/* Of bfloat16, whatever this processor can run. */
static void check_amp_dump(kit_kind kind, const kit_options *o,
                           const char *name)
{
    char *text;
    kit_model m;

    kit_build(&m, kind, o);
    m.p->training.amp.type = FLEET_BFLOAT16;
    text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    golden_check(name, text);
    fleet_free(text);
    kit_close(&m);
}

TEST(plans_of_bfloat16_are_as_listed)
{
    check_amp_dump(KIT_MLP, &(kit_options){0}, "mlp_amp.txt");
    check_amp_dump(KIT_CTR, &(kit_options){.merge = 2, .clip = 1},
                   "wide_deep_amp_merge_clip.txt");
}

TEST(programs_are_as_listed)
{
    check_dump(KIT_MLP, &(kit_options){0}, FLEET_DUMP_TEXT, "mlp_program.txt");
    check_dump(KIT_CTR, &(kit_options){0}, FLEET_DUMP_TEXT,
               "wide_deep_program.txt");
    check_dump(KIT_POOLED, &(kit_options){0}, FLEET_DUMP_TEXT,
               "pooled_program.txt");
}

TEST(graphs_are_as_listed)
{
    check_dump(KIT_MLP, &(kit_options){0}, FLEET_DUMP_DOT, "mlp_program.dot");
    check_dump(KIT_MLP, &(kit_options){0}, FLEET_DUMP_PLAN_DOT, "mlp.dot");
}

/* The same, by a worker. */
static void check_worker_dump(kit_kind kind, const kit_options *o, bool sync,
                              bool bf16, const char *name)
{
    char *text;
    fake_server s;
    fake_worker w;
    kit_model m;

    kit_build(&m, kind, o);
    m.p->training.amp.type = bf16 ? FLEET_BFLOAT16 : 0;
    fake_server_open(&s, m.p, 1, sync);
    fake_worker_open(&w, &s, m.f, 0);
    text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    golden_check(name, text);
    fleet_free(text);
    fake_worker_close(&w);
    fake_server_close(&s);
    kit_close(&m);
}

TEST(plans_of_workers_are_as_listed)
{
    const kit_options clip = {.merge = 2, .clip = 1};

    check_worker_dump(KIT_MLP, &(kit_options){0}, true, false,
                      "mlp_worker.txt");
    check_worker_dump(KIT_MLP, &(kit_options){0}, true, true,
                      "mlp_worker_amp.txt");
    check_worker_dump(KIT_CTR, &(kit_options){0}, true, false,
                      "wide_deep_worker.txt");
    check_worker_dump(KIT_CTR, &clip, true, false,
                      "wide_deep_worker_merge_clip_sync.txt");
    check_worker_dump(KIT_CTR, &clip, false, false,
                      "wide_deep_worker_merge_clip_async.txt");
}

TEST(plans_of_workers_on_a_gpu_are_as_listed)
{
    const kit_options clip = {.merge = 2, .clip = 1, .device = "gpu:0"};

    gpu_kit_open();
    gpu_kit_control();
    check_worker_dump(KIT_CTR, &(kit_options){.device = "gpu:0"}, false, false,
                      "wide_deep_worker_gpu_async.txt");
    check_worker_dump(KIT_CTR, &clip, true, false,
                      "wide_deep_worker_gpu_merge_clip_sync.txt");
    gpu_kit_close();
}

static fleet_status nothing_before(fl_comm *p, fl_queue *q)
{
    (void)p;
    (void)q;
    return FLEET_OK;
}

/* As NCCL's groups do, for plans. */
static void reduce_on_gpus(fl_comm *p)
{
    static fl_comm_class there;

    there = *p->methods;
    there.after = nothing_before;
    p->methods = &there;
}

/* Closes the model. */
static void check_dump_in_group(kit_model *m, bool on_gpus, const char *name)
{
    fake_group g;
    char *text;

    fake_group_open(&g, 2);
    if (on_gpus)
        reduce_on_gpus(&g.rank[0].p);
    m->f->store->agree = &g.rank[0].rounds;
    text = fleet_program_dump(m->p, FLEET_DUMP_PLAN, 40);
    golden_check(name, text);
    fleet_free(text);
    m->f->store->agree = NULL;
    fake_group_close(&g);
    kit_close(m);
}

/* The same, by a rank, with buckets of so many floats. */
static void check_rank_dump_of(const kit_options *o, int64_t bucket,
                               const fl_training *other, const char *name)
{
    kit_model m;

    kit_build(&m, KIT_MLP, o);
    m.p->training.all_reduce.bucket = bucket;
    m.p->training.all_reduce.last_bucket = bucket / 4;
    m.p->training.localsgd = other->localsgd;
    m.p->training.all_reduce.fp16 = other->all_reduce.fp16;
    m.p->training.dgc = other->dgc;
    m.p->training.sync_batch_norm = other->sync_batch_norm;
    m.p->training.all_reduce.group = other->all_reduce.group;
    if (other->sharded)
        m.f->store->share = (fl_share){1, 2, other->sharding_stage};
    m.o->residuals = other->dgc.on;
    check_dump_in_group(&m, o->device != NULL, name);
}

static void check_rank_dump(const kit_options *o, int64_t bucket,
                            const char *name)
{
    check_rank_dump_of(o, bucket, &(fl_training){0}, name);
}

TEST(plans_of_ranks_on_their_own_are_as_listed)
{
    check_rank_dump_of(&(kit_options){.optimizer = "momentum"}, 700,
                       &(fl_training){.localsgd.steps = 4},
                       "mlp_rank_local.txt");
    check_rank_dump_of(&(kit_options){.optimizer = "sgd"}, 700,
                       &(fl_training){.all_reduce.fp16 = true},
                       "mlp_rank_half.txt");
    check_rank_dump_of(&(kit_options){.optimizer = "momentum"}, 700,
                       &(fl_training){.dgc = {true, 0.9f, 0, 1, 100}},
                       "mlp_rank_dgc.txt");
}

TEST(plans_of_ranks_that_share_statistics_are_as_listed)
{
    const fl_training sync = {.sync_batch_norm = true};

    check_rank_dump_of(&(kit_options){.normalized = true}, 300, &sync,
                       "mlp_rank_sync_norm.txt");
    gpu_kit_open();
    check_rank_dump_of(&(kit_options){.normalized = true, .device = "gpu:0"},
                       300, &sync, "mlp_rank_gpu_sync_norm.txt");
    gpu_kit_close();
}

TEST(plans_of_ranks_that_share_out_states_are_as_listed)
{
    check_rank_dump_of(&(kit_options){0}, 700, &(fl_training){.sharded = true},
                       "mlp_rank_shard.txt");
    check_rank_dump_of(&(kit_options){.layers = "lamb"}, 700,
                       &(fl_training){.sharded = true},
                       "mlp_rank_shard_lamb.txt");
    check_rank_dump_of(&(kit_options){.clip = 1.0f}, 700,
                       &(fl_training){.sharded = true, .sharding_stage = 2},
                       "mlp_rank_shard_gradients.txt");
    check_rank_dump_of(&(kit_options){0}, 700,
                       &(fl_training){.sharded = true, .sharding_stage = 3},
                       "mlp_rank_shard_weights.txt");
}

/* The same, by a rank whose buckets are those of its strategy. */
static void check_strategy_dump(void (*choose)(fleet_distributed_strategy *s),
                                const char *name)
{
    const fleet_role role = {.worker_num = 2, .collective = 1};
    kit_model m;

    kit_build(&m, KIT_MLP, &(kit_options){.role = &role, .choose = choose});
    check_dump_in_group(&m, false, name);
}

/* Rows are elsewhere, as a pull and a push know it. */
static void check_rank_dump_beside_tables(const kit_options *o,
                                          const char *name)
{
    fl_remote elsewhere = {.sync = true};
    fake_group g;
    kit_model m;
    char *text;

    kit_build(&m, KIT_CTR, o);
    fake_group_open(&g, 2);
    m.f->store->agree = &g.rank[0].rounds;
    m.f->store->remote = &elsewhere;
    m.f->store->dense_local = true;
    text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    golden_check(name, text);
    fleet_free(text);
    m.f->store->agree = NULL;
    m.f->store->remote = NULL;
    fake_group_close(&g);
    kit_close(&m);
}

TEST(a_plan_of_ranks_that_clip_beside_tables_is_as_listed)
{
    check_rank_dump_beside_tables(&(kit_options){.merge = 2, .clip = 1},
                                  "wide_deep_rank_merge_clip.txt");
}

TEST(a_plan_of_ranks_that_sum_by_groups_is_as_listed)
{
    check_rank_dump_of(&(kit_options){.optimizer = "sgd"}, 700,
                       &(fl_training){.all_reduce.group = 2},
                       "mlp_rank_groups.txt");
}

TEST(plans_of_ranks_are_as_listed)
{
    check_rank_dump(&(kit_options){0}, 0, "mlp_rank_each.txt");
    check_rank_dump(&(kit_options){0}, 8 << 20, "mlp_rank.txt");
    check_rank_dump(&(kit_options){.merge = 2, .clip = 1}, 700,
                    "mlp_rank_merge_clip.txt");
    check_rank_dump(&(kit_options){.layers = "lamb"}, 700, "mlp_rank_lamb.txt");
}

/* Buckets of 2^18 floats hold all 1428 gradients, but for the last group, which
 * has at most 734 of them; by default it has room for all. */
static void choose_last_group(fleet_distributed_strategy *s)
{
    s->is_collective = 1;
    s->fuse_grad_size_in_MB = 1;
    s->last_comm_group_size_MB = 0.0028f;
}

TEST(the_last_group_of_gradients_is_as_large_as_the_strategy_says)
{
    check_strategy_dump(choose_last_group, "mlp_rank_last_group.txt");
}

TEST(plans_of_ranks_on_gpus_are_as_listed)
{
    const kit_options gpu = {.device = "gpu:0"};

    gpu_kit_open();
    gpu_kit_control();
    check_rank_dump(&gpu, 700, "mlp_rank_gpu.txt");
    check_rank_dump(&(kit_options){.device = "gpu:0", .merge = 2, .clip = 1},
                    700, "mlp_rank_gpu_merge_clip.txt");
    check_rank_dump(&(kit_options){.device = "gpu:0", .fp16 = true}, 700,
                    "mlp_rank_gpu_fp16.txt");
    check_rank_dump_of(&(kit_options){.optimizer = "sgd", .device = "gpu:0"},
                       700, &(fl_training){.all_reduce.fp16 = true},
                       "mlp_rank_gpu_half.txt");
    check_rank_dump_of(&gpu, 700,
                       &(fl_training){.sharded = true, .sharding_stage = 2},
                       "mlp_rank_gpu_shard_gradients.txt");
    check_rank_dump_of(&gpu, 700,
                       &(fl_training){.sharded = true, .sharding_stage = 3},
                       "mlp_rank_gpu_shard_weights.txt");
    gpu_kit_close();
}

TEST(listings_do_not_depend_on_the_threads)
{
    check_dump(KIT_CTR, &(kit_options){.threads = 3}, FLEET_DUMP_PLAN,
               "wide_deep.txt");
}

TEST(what_cannot_be_listed_is_refused)
{
    kit_model m;

    kit_build(&m, KIT_MLP, &(kit_options){0});
    CHECK(fleet_program_dump(m.p, FLEET_DUMP_PLAN, 0) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "a plan needs a batch, got 0");
    CHECK(fleet_program_dump(m.p, (fleet_dump)9, 1) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "9 is no form");
    CHECK(fleet_program_dump(NULL, FLEET_DUMP_TEXT, 1) == NULL);
    kit_close(&m);
}

/* --- passes -------------------------------------------------------------- */

static fleet_status pass_applies(fl_lowering *l, bool *applied)
{
    (void)l;
    *applied = true;
    return FLEET_OK;
}

static fleet_status pass_has_nothing_to_do(fl_lowering *l, bool *applied)
{
    (void)l;
    (void)applied;
    return FLEET_OK;
}

static fleet_status pass_fails(fl_lowering *l, bool *applied)
{
    (void)l;
    (void)applied;
    return fl_fail(FLEET_EINVAL, "it cannot be done");
}

/* Run a list of passes; which have applied must be `applied`. */
static void check_passes(const fl_pass *pass, int n, fleet_status want,
                         const char *words, const char *applied)
{
    fl_plan plan = {0};
    fl_lowering l = {.plan = &plan};

    CHECK_STATUS(fl_passes_run_list(&l, pass, n, FL_PASS_PLAN), want);
    CHECK_CONTAINS(fleet_last_error(), words);
    CHECK_TEXT(fl_text_chars(&plan.passes), applied);
    fl_text_done(&plan.passes);
}

TEST(passes_of_their_time_run_in_order)
{
    const fl_pass passes[] = {
        {"one", FL_PASS_PLAN, "", "", pass_applies},
        {"two", FL_PASS_GRAPH, "", "", pass_applies},
        {"three", FL_PASS_PLAN, "", "", pass_has_nothing_to_do},
        {"four", FL_PASS_PLAN, "one", "three", pass_applies},
    };

    check_passes(passes, 4, FLEET_OK, "", "one four");
}

TEST(a_pass_that_needs_another_is_refused_by_name)
{
    const fl_pass passes[] = {
        {"merge", FL_PASS_PLAN, "", "", pass_has_nothing_to_do},
        {"send", FL_PASS_PLAN, "merge", "", pass_applies},
    };

    check_passes(passes, 2, FLEET_EUNSUPPORTED,
                 "pass send needs merge, which was not applied", "");
}

TEST(passes_that_conflict_are_refused_by_name)
{
    const fl_pass passes[] = {
        {"merge_more", FL_PASS_PLAN, "", "", pass_applies},
        {"calm", FL_PASS_PLAN, "", "merge", pass_applies},
        {"merge", FL_PASS_PLAN, "", "", pass_applies},
        {"idle", FL_PASS_PLAN, "", "merge", pass_has_nothing_to_do},
        {"send", FL_PASS_PLAN, "", "merge", pass_applies},
    };

    check_passes(passes, 5, FLEET_EUNSUPPORTED,
                 "send cannot be used together with merge",
                 "merge_more calm merge");
}

TEST(a_pass_that_fails_ends_the_list)
{
    const fl_pass passes[] = {
        {"one", FL_PASS_PLAN, "", "", pass_applies},
        {"two", FL_PASS_PLAN, "", "", pass_fails},
        {"three", FL_PASS_PLAN, "", "", pass_applies},
    };

    check_passes(passes, 3, FLEET_EINVAL, "it cannot be done", "one");
}
