/* strategy_collective_test.c - the strategy of ranks: what is honoured, what is
 * refused in which mode, and what contradicts. */
#define SUITE strategy_collective
#include "golden.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <fleet/fleet.h>

static fleet *open_rank(const char *servers)
{
    const fleet_role role = {
        .worker_num = 2, .server_endpoints = servers, .collective = 1};
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    return f;
}

typedef fleet_optimizer *make_rule(fleet *f);

static fleet_optimizer *sgd(fleet *f)
{
    return fleet_sgd(f, 0.1f);
}

static fleet_optimizer *momentum(fleet *f)
{
    return fleet_momentum(f, 0.1f, NULL);
}

static fleet_optimizer *adam(fleet *f)
{
    return fleet_adam(f, 0.1f, NULL);
}

#define STRATEGY(servers, make, change, words)                                 \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_rank(servers);                                         \
        make_rule *rule = make;                                                \
        fleet_optimizer *o = rule(f);                                          \
        const char *why = words;                                               \
                                                                               \
        s.is_collective = 1;                                                   \
        s.change;                                                              \
        if (why) {                                                             \
            CHECK(fleet_distributed_optimizer(f, o, &s) == NULL);              \
            CHECK_CONTAINS(fleet_last_error(), why);                           \
        } else {                                                               \
            CHECK(fleet_distributed_optimizer(f, o, &s) == o);                 \
        }                                                                      \
        fleet_destroy(f);                                                      \
    } while (0)

#define SERVER "127.0.0.1:6000"

/* Ranks on GPUs have one communicator, on a stream of its own, and wait for
 * each of its calls: what asks for something else is told so. */
TEST(what_nccl_does_not_do_is_refused_with_what_it_does)
{
    static const char *const mode[] = {"collective", "hybrid"};
    char words[3][200];

    for (int i = 0; i < 2; i++) {
        const char *servers = i ? SERVER : NULL;

        snprintf(words[0], sizeof *words,
                 "strategy.nccl_comm_num: this version does not have 2 in mode "
                 "%s, expected 1",
                 mode[i]);
        snprintf(words[1], sizeof *words,
                 "strategy.sync_nccl_allreduce: this version does not have 0 "
                 "in mode %s, expected 1",
                 mode[i]);
        snprintf(words[2], sizeof *words,
                 "strategy.calc_comm_same_stream: this version does not have 1 "
                 "in mode %s, expected 0",
                 mode[i]);
        STRATEGY(servers, sgd, nccl_comm_num = 2, words[0]);
        STRATEGY(servers, sgd, sync_nccl_allreduce = 0, words[1]);
        STRATEGY(servers, sgd, calc_comm_same_stream = 1, words[2]);
        STRATEGY(servers, sgd, nccl_comm_num = 1, NULL);
    }
}

/* They wait for each other in each step. */
TEST(ranks_have_no_staleness_to_bound)
{
    STRATEGY(NULL, sgd, a_sync_configs.max_staleness = 4,
             "strategy.a_sync_configs.max_staleness: this version does not "
             "have 4 in mode collective (it bounds");
    STRATEGY(SERVER, sgd, a_sync_configs.max_staleness = 0,
             "strategy.a_sync_configs.max_staleness: this version does not "
             "have 0 in mode hybrid (it bounds");
    STRATEGY(SERVER, sgd, a_sync_configs.max_staleness = -1, NULL);
}

TEST(localsgd_is_for_ranks_without_servers_and_for_two_rules)
{
    STRATEGY(NULL, sgd, localsgd = 1, NULL);
    STRATEGY(NULL, momentum, localsgd = 1, NULL);
    STRATEGY(NULL, adam, localsgd = 1,
             "strategy.localsgd: expected SGD or Momentum, got adam");
    STRATEGY(SERVER, sgd, localsgd = 1,
             "strategy.localsgd: this version does not have 1 in mode hybrid");
    STRATEGY(NULL, sgd, localsgd_configs.k_steps = 4,
             "strategy.localsgd_configs.k_steps is 4, but strategy.localsgd is "
             "0");
    STRATEGY(NULL, sgd, localsgd_configs.begin_step = -1,
             "strategy.localsgd_configs.begin_step: expected 0 to");
    STRATEGY(NULL, sgd, localsgd_configs.k_steps = 0,
             "strategy.localsgd_configs.k_steps: expected 1 to");
    STRATEGY(NULL, sgd, localsgd = s.gradient_scale_sum = 1,
             "strategy.localsgd and strategy.gradient_scale_sum contradict");
}

TEST(adaptive_localsgd_is_the_same_but_not_beside_it)
{
    STRATEGY(NULL, momentum, adaptive_localsgd = 1, NULL);
    STRATEGY(NULL, adam, adaptive_localsgd = 1,
             "strategy.adaptive_localsgd: expected SGD or Momentum");
    STRATEGY(SERVER, sgd, adaptive_localsgd = 1,
             "strategy.adaptive_localsgd: this version does not have 1 in mode "
             "hybrid");
    STRATEGY(NULL, sgd, localsgd = s.adaptive_localsgd = 1,
             "strategy.localsgd and strategy.adaptive_localsgd contradict");
    STRATEGY(NULL, sgd, adaptive_localsgd_configs.k_steps = 2,
             "but strategy.adaptive_localsgd is 0");
    STRATEGY(NULL, sgd, adaptive_localsgd_configs.begin_step = -1,
             "strategy.adaptive_localsgd_configs.begin_step: expected 0");
}

TEST(dgc_is_for_momentum)
{
    STRATEGY(NULL, momentum, dgc = 1, NULL);
    STRATEGY(SERVER, momentum, dgc = 1, NULL);
    STRATEGY(NULL, sgd, dgc = 1, "strategy.dgc: expected Momentum, got sgd");
    STRATEGY(NULL, momentum, dgc = s.localsgd = 1,
             "strategy.dgc and strategy.localsgd contradict");
    STRATEGY(NULL, momentum, dgc_configs.rampup_step = 0,
             "strategy.dgc_configs.rampup_step: expected 1 to");
}

#define GROUPS hierarchical_allreduce_inter_nranks

TEST(groups_of_ranks_must_divide_them_and_have_an_order_of_their_own)
{
    STRATEGY(NULL, adam, use_hierarchical_allreduce = 1; s.GROUPS = 2, NULL);
    STRATEGY(SERVER, adam, use_hierarchical_allreduce = 1; s.GROUPS = 2, NULL);
    STRATEGY(NULL, adam, use_hierarchical_allreduce = 1,
             "strategy.hierarchical_allreduce_inter_nranks is 1, but "
             "strategy.use_hierarchical_allreduce is 1: expected groups of 2 "
             "ranks or more");
    STRATEGY(NULL, adam, GROUPS = 2,
             "strategy.hierarchical_allreduce_inter_nranks is 2, but "
             "strategy.use_hierarchical_allreduce is 0");
    STRATEGY(NULL, adam, use_hierarchical_allreduce = 1;
             s.GROUPS = 3,
             "strategy.hierarchical_allreduce_inter_nranks is 3, which does "
             "not divide the 2 ranks");
    STRATEGY(NULL, adam, use_hierarchical_allreduce = s.deterministic = 1;
             s.GROUPS = 2,
             "strategy.use_hierarchical_allreduce and strategy.deterministic "
             "contradict");
}

TEST(sharding_is_over_all_ranks)
{
    STRATEGY(NULL, adam, sharding = 1, NULL);
    STRATEGY(SERVER, sgd, sharding = 1, NULL);
    STRATEGY(NULL, adam, sharding_configs.sharding_degree = 2,
             "strategy.sharding_configs.sharding_degree is 2, but "
             "strategy.sharding is 0");
    STRATEGY(NULL, adam, sharding = s.sharding_configs.sharding_degree = 2,
             "strategy.sharding: expected 0 to 1, got 2");
    STRATEGY(NULL, adam, sharding = 1;
             s.sharding_configs.sharding_degree = 2, NULL);
    STRATEGY(NULL, adam, sharding = 1;
             s.sharding_configs.sharding_degree = 8,
             "strategy.sharding_configs.sharding_degree: this version shards "
             "over all 2 ranks (0 stands for them), not over groups of 8");
    STRATEGY(NULL, adam, sharding = 1; s.sharding_configs.stage = 2, NULL);
    STRATEGY(SERVER, adam, sharding = 1; s.sharding_configs.stage = 2, NULL);
    STRATEGY(NULL, adam, sharding = 1; s.sharding_configs.stage = 3, NULL);
    STRATEGY(SERVER, adam, sharding = 1; s.sharding_configs.stage = 3, NULL);
    STRATEGY(NULL, adam, sharding_configs.stage = 2,
             "strategy.sharding_configs.stage is 2, but strategy.sharding is "
             "0");
    STRATEGY(NULL, adam, sharding = 1;
             s.sharding_configs.stage = 4,
             "strategy.sharding_configs.stage: expected 1 to 3, got 4");
    STRATEGY(NULL, momentum, sharding = s.dgc = 1, NULL);
    STRATEGY(NULL, momentum, sharding = s.lars = 1, NULL);
    STRATEGY(NULL, adam, sharding = s.lamb = 1, NULL);
    STRATEGY(NULL, sgd, sharding = s.localsgd = 1,
             "strategy.sharding and strategy.localsgd contradict");
    STRATEGY(NULL, sgd, sharding = s.adaptive_localsgd = 1,
             "strategy.sharding and strategy.adaptive_localsgd contradict");
}

TEST(sums_in_the_middle_of_a_step_go_with_what_has_one_step_for_all_ranks)
{
    static const char *const words =
        "strategy.sync_batch_norm with strategy.gradient_merge is not in this "
        "version: ranks agree once for 2 batches";

    STRATEGY(NULL, adam, sync_batch_norm = s.deterministic = 1, NULL);
    STRATEGY(SERVER, adam, sync_batch_norm = 1, NULL);
    STRATEGY(NULL, sgd, sync_batch_norm = s.localsgd = 1,
             "strategy.sync_batch_norm and strategy.localsgd contradict");
    STRATEGY(NULL, adam, sync_batch_norm = s.gradient_scale_sum = 1,
             "strategy.sync_batch_norm and strategy.gradient_scale_sum "
             "contradict");
    STRATEGY(NULL, sgd, sync_batch_norm = s.gradient_merge = 1;
             s.gradient_merge_configs.k_steps = 2, words);
    STRATEGY(SERVER, adam, sync_batch_norm = 1;
             s.is_collective = 0,
             "strategy.sync_batch_norm: this version does not have 1 in mode "
             "ps-async (workers of servers do not meet in the middle");
}

TEST(gradients_that_are_shared_out_do_not_go_with_what_needs_them_whole)
{
    STRATEGY(NULL, momentum, sharding = s.dgc = 1;
             s.sharding_configs.stage = 2,
             "strategy.sharding_configs.stage 2 with strategy.dgc is not in "
             "this version: it needs whole gradients on each rank");
    STRATEGY(NULL, adam, sharding = s.fp16_allreduce = 1;
             s.sharding_configs.stage = 2, "with strategy.fp16_allreduce is");
    STRATEGY(SERVER, adam, sharding = s.gradient_merge = 1;
             s.gradient_merge_configs.k_steps = s.sharding_configs.stage = 2,
             "with strategy.gradient_merge is");
    STRATEGY(NULL, adam, sharding = s.use_hierarchical_allreduce = 1;
             s.hierarchical_allreduce_inter_nranks = 2;
             s.sharding_configs.stage = 2,
             "with strategy.use_hierarchical_allreduce is");
    STRATEGY(NULL, momentum, sharding = s.dgc = 1;
             s.sharding_configs.stage = 3,
             "strategy.sharding_configs.stage 3 with strategy.dgc is not in");
    STRATEGY(NULL, momentum, sharding = s.lars = 1;
             s.sharding_configs.stage = 2, NULL);
    STRATEGY(NULL, adam, sharding = s.lamb = 1;
             s.sharding_configs.stage = 3, NULL);
}

TEST(fp16_allreduce_is_for_all_ranks)
{
    STRATEGY(NULL, adam, fp16_allreduce = 1, NULL);
    STRATEGY(SERVER, sgd, fp16_allreduce = 1, NULL);
    STRATEGY(NULL, sgd, fp16_allreduce = 2,
             "strategy.fp16_allreduce: expected 0 to 1, got 2");
}

TEST(states_that_are_shared_out_are_saved_by_all_ranks_or_not_at_all)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_rank(NULL);
    fleet_program *p = fleet_program_create(f);
    fleet_model m;
    char *text;

    s.sharding = 1;
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK_OK(
        fleet_minimize(fleet_distributed_optimizer(f, adam(f), &s), m.loss));
    text = fleet_strategy_dump(f);
    CHECK_CONTAINS(text, "passes all_reduce update sharding form_regions");
    fleet_free(text);
    CHECK_FAILS(fleet_save_persistables(f, test_path("save")), FLEET_ESTATE,
                "strategy.sharding has the optimizer's states on 2 ranks");
    fleet_destroy(f);
}

TEST(what_refuses_a_strategy_is_the_failure_of_minimize)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_rank(NULL);
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    s.localsgd = 1;
    CHECK_FAILS(
        fleet_minimize(fleet_distributed_optimizer(f, adam(f), &s), m.loss),
        FLEET_EUNSUPPORTED,
        "fleet_minimize: no optimizer; the last failure was: "
        "strategy.localsgd: expected SGD");
    CHECK_FAILS(fleet_minimize(NULL, m.loss), FLEET_EINVAL,
                "fleet_minimize: no optimizer");
    s.localsgd_configs.k_steps = 0;
    CHECK_FAILS(
        fleet_minimize(fleet_distributed_optimizer(f, sgd(f), &s), m.loss),
        FLEET_EINVAL, "strategy.localsgd_configs.k_steps");
    fleet_destroy(f);
}

TEST(the_dump_names_what_ranks_do)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_rank(NULL);
    fleet_program *p = fleet_program_create(f);
    fleet_model m;
    char *text;

    s.localsgd = 1;
    s.localsgd_configs.k_steps = 4;
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK_OK(
        fleet_minimize(fleet_distributed_optimizer(f, sgd(f), &s), m.loss));
    text = fleet_strategy_dump(f);
    CHECK_CONTAINS(text, "mode collective, workers 2, servers 0");
    CHECK_CONTAINS(text, "passes all_reduce update localsgd form_regions");
    fleet_free(text);
    fleet_destroy(f);
}

/* --- the whole of it ------------------------------------------------------ */

static void check_dump(const fleet_distributed_strategy *s, const char *name)
{
    fleet *f = open_rank(NULL);
    fleet_program *p = fleet_program_create(f);
    fleet_optimizer *o;
    fleet_model m;
    char *dump;

    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    o = fleet_distributed_optimizer(f, momentum(f), s);
    CHECK_OK(fleet_minimize(o, m.loss));
    dump = fleet_strategy_dump(f);
    golden_check(name, dump);
    fleet_free(dump);
    fleet_destroy(f);
}

TEST(dumps_of_ranks_are_as_listed)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.is_collective = 1;
    s.deterministic = 1;
    s.gradient_scale_sum = 1;
    s.last_comm_group_size_MB = 0.5f;
    check_dump(&s, "strategy_ranks_sum.txt");
    s = fleet_distributed_strategy_default();
    s.is_collective = 1;
    s.adaptive_localsgd = 1;
    s.adaptive_localsgd_configs.begin_step = 3;
    check_dump(&s, "strategy_ranks_adaptive.txt");
}
