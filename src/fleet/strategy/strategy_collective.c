/* strategy_collective.c - see strategy_collective.h. */
#include "fleet/strategy/strategy_collective.h"

#include <stddef.h>
#include <string.h>

#include "runtime/optim/optimizer.h"

/* Fleet's: fewer floats are reduced as they are. */
enum { FL_DGC_SMALLEST = 16384 };

/* Two fields of which one at most is on. */
typedef struct pair {
    const char *one, *other;
    size_t at_one, at_other;
} pair;

#define PAIR(one, other)                                                       \
    {                                                                          \
#one, #other, offsetof(fleet_distributed_strategy, one),               \
            offsetof(fleet_distributed_strategy, other)                        \
    }

static const pair pairs[] = {
    PAIR(dgc, localsgd),
    PAIR(dgc, adaptive_localsgd),
    PAIR(dgc, lars),
    PAIR(sharding, localsgd),
    PAIR(sharding, adaptive_localsgd),
    PAIR(localsgd, adaptive_localsgd),
    PAIR(localsgd, gradient_scale_sum),
    PAIR(adaptive_localsgd, gradient_scale_sum),
    PAIR(use_hierarchical_allreduce, deterministic),
};

static bool is_on(const fleet_distributed_strategy *s, size_t at)
{
    int on;

    memcpy(&on, (const char *)s + at, sizeof on);
    return on;
}

static fleet_status check_pairs(const fleet_distributed_strategy *s)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (is_on(s, pairs[i].at_one) && is_on(s, pairs[i].at_other))
            return fl_fail(FLEET_EINVAL,
                           "strategy.%s and strategy.%s contradict: one of "
                           "them",
                           pairs[i].one, pairs[i].other);
    return FLEET_OK;
}

static fleet_status check_steps(const char *name, int on,
                                const fleet_localsgd_configs *c)
{
    if (on || c->k_steps <= 1)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "strategy.%s_configs.k_steps is %d, but strategy.%s is 0",
                   name, c->k_steps, name);
}

static fleet_status check_groups(const fleet_distributed_strategy *s)
{
    int n = s->hierarchical_allreduce_inter_nranks;

    if (s->use_hierarchical_allreduce != (n > 1))
        return fl_fail(FLEET_EINVAL,
                       "strategy.hierarchical_allreduce_inter_nranks is %d, "
                       "but strategy.use_hierarchical_allreduce is %d: "
                       "expected %s",
                       n, s->use_hierarchical_allreduce,
                       n > 1 ? "1" : "groups of 2 ranks or more");
    return FLEET_OK;
}

fleet_status fl_strategy_check_ranks(const fleet_distributed_strategy *s)
{
    FL_TRY(check_steps("localsgd", s->localsgd, &s->localsgd_configs));
    FL_TRY(check_steps("adaptive_localsgd", s->adaptive_localsgd,
                       &s->adaptive_localsgd_configs));
    if (!(s->dgc_configs.sparsity >= 0 && s->dgc_configs.sparsity < 1))
        return fl_fail(FLEET_EINVAL,
                       "strategy.dgc_configs.sparsity: expected 0 to below 1, "
                       "got %g",
                       (double)s->dgc_configs.sparsity);
    if (!s->sharding && s->sharding_configs.sharding_degree > 0)
        return fl_fail(FLEET_EINVAL,
                       "strategy.sharding_configs.sharding_degree is %d, but "
                       "strategy.sharding is 0",
                       s->sharding_configs.sharding_degree);
    FL_TRY(check_groups(s));
    return check_pairs(s);
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

fleet_status fl_strategy_check_role(const fleet_distributed_strategy *s,
                                    const fl_role *role)
{
    int degree = s->sharding_configs.sharding_degree;
    int group = s->hierarchical_allreduce_inter_nranks;

    if (!fl_mode_has_ranks(fl_job_mode_of(role, s)))
        return FLEET_OK;
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

static void set_buckets(const fleet_distributed_strategy *s, fl_training *t)
{
    const double per_mb = (1 << 20) / sizeof(float);

    if (!s->fuse_all_reduce_ops)
        return; /* each parameter by itself */
    t->all_reduce.bucket = (int64_t)(s->fuse_grad_size_in_MB * per_mb);
    t->all_reduce.last_bucket =
        (int64_t)((double)s->last_comm_group_size_MB * per_mb);
}

void fl_strategy_set_ranks(const fleet_distributed_strategy *s, fl_training *t)
{
    set_buckets(s, t);
    t->sum_over_ranks = s->gradient_scale_sum;
    t->all_reduce.fp16 = s->fp16_allreduce;
    t->sharded = s->sharding;
    t->all_reduce.group = s->hierarchical_allreduce_inter_nranks;
    t->dgc.on = s->dgc;
    t->dgc.sparsity = s->dgc_configs.sparsity;
    t->dgc.begin = s->dgc_configs.rampup_begin_step;
    t->dgc.ramp = s->dgc_configs.rampup_step;
    t->dgc.smallest = FL_DGC_SMALLEST;
    if (s->localsgd || s->adaptive_localsgd) {
        const fleet_localsgd_configs *c =
            s->localsgd ? &s->localsgd_configs : &s->adaptive_localsgd_configs;

        t->localsgd.steps = c->k_steps;
        t->localsgd.begin = c->begin_step;
        t->localsgd.adaptive = s->adaptive_localsgd;
    }
}
