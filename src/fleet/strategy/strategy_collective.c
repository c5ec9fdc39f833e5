/* strategy_collective.c - what a strategy may not say about ranks. */
#include "fleet/strategy/strategy_collective.h"

#include "runtime/optim/optimizer.h"

fleet_status fl_strategy_check_ranks(const fleet_distributed_strategy *s)
{
    int n = s->hierarchical_allreduce_inter_nranks;

    if (!(s->dgc_configs.sparsity >= 0 && s->dgc_configs.sparsity < 1))
        return fl_fail(FLEET_EINVAL,
                       "strategy.dgc_configs.sparsity: expected 0 to below 1, "
                       "got %g",
                       (double)s->dgc_configs.sparsity);
    if (s->use_hierarchical_allreduce != (n > 1))
        return fl_fail(FLEET_EINVAL,
                       "strategy.hierarchical_allreduce_inter_nranks is %d, "
                       "but strategy.use_hierarchical_allreduce is %d: "
                       "expected %s",
                       n, s->use_hierarchical_allreduce,
                       n > 1 ? "1" : "groups of 2 ranks or more");
    return FLEET_OK;
}

/* As with Fleet. The mean of weights says nothing of what rules with second
 * moments remember. */
fleet_status fl_strategy_check_rule(const fleet_distributed_strategy *s,
                                    const fleet_optimizer *o, fl_job_mode mode)
{
    const char *name = s->localsgd            ? "localsgd"
                       : s->adaptive_localsgd ? "adaptive_localsgd"
                                              : NULL;

    if (s->dgc && fl_mode_has_ranks(mode) && o->kind != FL_RULE_MOMENTUM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.dgc: expected Momentum, got %s",
                       fl_rule_of(o->kind)->name);
    if (!name || mode != FL_COLLECTIVE || o->kind == FL_RULE_SGD ||
        o->kind == FL_RULE_MOMENTUM)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.%s: expected SGD or Momentum, got %s", name,
                   fl_rule_of(o->kind)->name);
}

/* From stage 2 on no rank has the gradient of all weights. */
static fleet_status check_stage(const fleet_distributed_strategy *s)
{
    const int stage = s->sharding_configs.stage;
    const char *other = s->dgc              ? "dgc"
                        : s->fp16_allreduce ? "fp16_allreduce"
                        : s->gradient_merge ? "gradient_merge"
                        : s->use_hierarchical_allreduce
                            ? "use_hierarchical_allreduce"
                            : NULL;

    if (!s->sharding || stage < 2)
        return FLEET_OK;
    return other ? fl_fail(FLEET_EUNSUPPORTED,
                           "strategy.sharding_configs.stage %d with "
                           "strategy.%s is not in this version: it needs "
                           "whole gradients on each rank; stage 1 goes with it",
                           stage, other)
                 : FLEET_OK;
}

fleet_status fl_strategy_check_role(const fleet_distributed_strategy *s,
                                    const fl_role *role)
{
    int degree = s->sharding_configs.sharding_degree;
    int group = s->hierarchical_allreduce_inter_nranks;

    if (!fl_mode_has_ranks(fl_job_mode_of(role, s)))
        return FLEET_OK;
    FL_TRY(check_stage(s));
    if (s->sync_batch_norm && s->gradient_merge_configs.k_steps > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.sync_batch_norm with strategy.gradient_merge "
                       "is not in this version: ranks agree once for %d "
                       "batches, and would have to before each of them",
                       s->gradient_merge_configs.k_steps);
    if (role->worker_num % group != 0)
        return fl_fail(FLEET_EINVAL,
                       "strategy.hierarchical_allreduce_inter_nranks is %d, "
                       "which does not divide the %d ranks",
                       group, role->worker_num);
    if (degree == 0 || degree == role->worker_num)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.sharding_configs.sharding_degree: this version "
                   "shards over all %d ranks (0 stands for them), not over "
                   "groups of %d",
                   role->worker_num, degree);
}
