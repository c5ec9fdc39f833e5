/* strategy.c - the strategy: its defaults, what is refused, and its use. */
#include <string.h>

#include "base/memory.h"
#include "fleet/strategy/strategy_amp.h"
#include "fleet/strategy/strategy_fields.h"
#include "fleet/strategy/strategy_collective.h"

fleet_distributed_strategy fleet_distributed_strategy_default(void)
{
    return (fleet_distributed_strategy){
        .a_sync = 1,
        .a_sync_configs = {.max_merge_var_num = 1,
                           .send_queue_size = 16,
                           .min_send_grad_num_before_recv = 1,
                           .thread_pool_size = 1,
                           .send_wait_times = 1,
                           .launch_barrier = 1,
                           .lr_decay_steps = 10},
        .gradient_merge_configs = {.k_steps = 1, .avg = 1},
        .amp_configs = {.init_loss_scaling = 32768,
                        .incr_every_n_steps = 1000,
                        .decr_every_n_nan_or_inf = 2,
                        .incr_ratio = 2,
                        .decr_ratio = 0.8f,
                        .use_dynamic_loss_scaling = 1,
                        .use_fp16_guard = 1},
        .localsgd_configs = {1, 1},
        .adaptive_localsgd_configs = {1, 1},
        .dgc_configs = {0, 1, 0.999f},
        .lars_configs = {0.001f, 0.0005f, 0},
        .lamb_configs = {0.01f},
        .sharding_configs = {.stage = 1},
        .sync_nccl_allreduce = 1,
        .nccl_comm_num = 1,
        .hierarchical_allreduce_inter_nranks = 1,
        .fuse_all_reduce_ops = 1,
        .fuse_grad_size_in_MB = 32,
        .last_comm_group_size_MB = 1,
    };
}

fl_job_mode fl_job_mode_of(const fl_role *role,
                           const fleet_distributed_strategy *s)
{
    if (role->server_num == 0)
        return role->collective ? FL_COLLECTIVE : FL_LOCAL;
    if (role->collective && s->is_collective)
        return s->a_sync ? FL_HYBRID_ASYNC : FL_HYBRID_SYNC;
    return s->a_sync ? FL_PS_ASYNC : FL_PS_SYNC;
}

const char *fl_job_mode_name(fl_job_mode mode)
{
    static const char *const name[] = {
        [FL_LOCAL] = "local",        [FL_PS_SYNC] = "ps-sync",
        [FL_PS_ASYNC] = "ps-async",  [FL_COLLECTIVE] = "collective",
        [FL_HYBRID_SYNC] = "hybrid", [FL_HYBRID_ASYNC] = "hybrid",
    };

    return name[mode];
}

static fleet_status check_range(const fleet_distributed_strategy *s,
                                const fl_strategy_field *f)
{
    int digits = f->type == FL_FIELD_FLOAT ? 6 : 10;
    double got = fl_strategy_field_value(s, f);

    if (got >= f->low && got <= f->high)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "strategy.%s: expected %.*g to %.*g, got %.*g",
                   f->name, digits, f->low, digits, f->high, digits, got);
}

/* A FL_FIELD_BOOL is 0 or 1: a 2 would be taken for "on" here and for a typing
 * error there. */
static fleet_status check_bools(const fleet_distributed_strategy *s)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        if (fl_fields[i].type == FL_FIELD_BOOL)
            FL_TRY(check_range(s, &fl_fields[i]));
    return FLEET_OK;
}

static fleet_status check_numbers(const fleet_distributed_strategy *s)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        if (fl_fields[i].type != FL_FIELD_BOOL)
            FL_TRY(check_range(s, &fl_fields[i]));
    return FLEET_OK;
}

/* What to do about it; "": nothing but another value. */
static const char *advice(const fl_strategy_field *f, double got)
{
    if (f->purpose == FL_FOR_RANKS)
        return " (workers that are ranks are started with fleetrun "
               "--collective, or have role.collective = 1)";
    if (got > 0)
        return "";
    return " (a strategy starts from FLEET_DISTRIBUTED_STRATEGY_INIT, not from "
           "zeros)"; /* that nobody may have meant */
}

/* With the mode, unless no mode has it. */
static fleet_status refuse(const fleet_distributed_strategy *s,
                           const fl_strategy_field *f, fl_job_mode mode)
{
    double got = fl_strategy_field_value(s, f);
    bool by_mode = f->purpose != FL_FOR_LATER;

    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.%s: this version does not have %g%s%s%s", f->name,
                   got, by_mode ? " in mode " : "",
                   by_mode ? fl_job_mode_name(mode) : "", advice(f, got));
}

fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode)
{
    FL_TRY(check_bools(s));
    if (!s->a_sync && s->a_sync_configs.k_steps > 0)
        return fl_fail(FLEET_EINVAL,
                       "strategy.a_sync_configs.k_steps is %lld, which is geo "
                       "mode, but strategy.a_sync is 0",
                       (long long)s->a_sync_configs.k_steps);
    if (mode != FL_LOCAL && s->a_sync_configs.k_steps > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.a_sync_configs.k_steps is %lld, which is geo "
                       "mode: not in this version",
                       (long long)s->a_sync_configs.k_steps);
    for (int i = 0; i < FL_N_FIELD; i++)
        if (fl_strategy_field_fate(s, &fl_fields[i], mode) >= FL_FIXED &&
            fl_strategy_field_is_asked(s, &fl_fields[i]))
            return refuse(s, &fl_fields[i], mode);
    if (!s->gradient_merge && s->gradient_merge_configs.k_steps > 1)
        return fl_fail(FLEET_EINVAL,
                       "strategy.gradient_merge_configs.k_steps is %d, but "
                       "strategy.gradient_merge is 0",
                       s->gradient_merge_configs.k_steps);
    FL_TRY(check_numbers(s));
    FL_TRY(fl_strategy_check_ranks(s));
    FL_TRY(fl_layerwise_check_numbers(s));
    return fl_amp_check(s, mode);
}

/* --- use ----------------------------------------------------------------- */

static bool is_same(const fleet_distributed_strategy *a,
                    const fleet_distributed_strategy *b,
                    const fl_strategy_field *f)
{
    if (fl_strategy_field_value(a, f) != fl_strategy_field_value(b, f))
        return false;
    return f->type != FL_FIELD_WORDS || !fl_strategy_field_words(a, f) ||
           strcmp(fl_strategy_field_words(a, f),
                  fl_strategy_field_words(b, f)) == 0;
}

/* Words are the handle's from now on. */
static fleet_status own_words(fl_store *store, fleet_distributed_strategy *s)
{
    for (int i = 0; i < FL_N_FIELD; i++) {
        const char *words;

        if (fl_fields[i].type != FL_FIELD_WORDS ||
            !fl_strategy_field_words(s, &fl_fields[i]))
            continue;
        words = fl_arena_strdup(&store->arena,
                                fl_strategy_field_words(s, &fl_fields[i]));
        if (!words)
            return FLEET_ENOMEM;
        memcpy((char *)s + fl_fields[i].offset, &words, sizeof words);
    }
    return FLEET_OK;
}

/* What is trained already would not follow another one. */
static fleet_status check_same(const fleet_distributed_strategy *now,
                               const fleet_distributed_strategy *wanted)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        if (!is_same(now, wanted, &fl_fields[i]))
            return fl_fail(FLEET_ESTATE,
                           "fleet_distributed_optimizer: fleet_minimize() has "
                           "been called with another strategy.%s",
                           fl_fields[i].name);
    return FLEET_OK;
}

fleet_optimizer *fleet_distributed_optimizer(
    fleet *f, fleet_optimizer *o, const fleet_distributed_strategy *strategy)
{
    fleet_distributed_strategy wanted;

    if (fl_handle_check(f, "fleet_distributed_optimizer") != FLEET_OK)
        return NULL;
    if (!o)
        return NULL; /* its own failure is already set */
    if (o->context != &f->context) {
        fl_fail(FLEET_EINVAL, "fleet_distributed_optimizer: the optimizer "
                              "belongs to another handle");
        return NULL;
    }
    wanted = strategy ? *strategy : fleet_distributed_strategy_default();
    if (fl_strategy_check(&wanted, fl_job_mode_of(&f->role, &wanted)) !=
        FLEET_OK)
        return NULL;
    if (fl_layerwise_check(&wanted, o) != FLEET_OK ||
        fl_strategy_check_rule(&wanted, o, fl_job_mode_of(&f->role, &wanted)) !=
            FLEET_OK ||
        fl_strategy_check_role(&wanted, &f->role) != FLEET_OK ||
        (f->trained && check_same(&f->strategy, &wanted) != FLEET_OK) ||
        own_words(f->store, &wanted) != FLEET_OK)
        return NULL;
    f->strategy = wanted;
    fl_strategy_warn(f);
    return o;
}
