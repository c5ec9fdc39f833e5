/* strategy_fields.c - see strategy_fields.h. */
#include "fleet/strategy/strategy_fields.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "fleet/strategy/strategy_amp.h"

static const fl_support fates[FL_N_PURPOSE][FL_N_JOB_MODE] = {
    /* local, ps-sync, ps-async, collective, hybrid sync and async */
    [FL_FOR_STEP] = {FL_ACTIVE, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                     FL_ACTIVE},
    [FL_FOR_SCALING] = {FL_NO_SCALING, FL_NO_SCALING, FL_NO_SCALING,
                        FL_NO_SCALING, FL_NO_SCALING, FL_NO_SCALING},
    [FL_FOR_PURE] = {FL_NO_PURE, FL_NO_PURE, FL_NO_PURE, FL_NO_PURE, FL_NO_PURE,
                     FL_NO_PURE},
    [FL_FOR_LAYERS] = {FL_ACTIVE, FL_REFUSED, FL_REFUSED, FL_ACTIVE, FL_ACTIVE,
                       FL_ACTIVE},
    [FL_FOR_ASYNC] = {FL_NO_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_NO_SERVERS,
                      FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_SERVERS] = {FL_NO_SERVERS, FL_FIXED, FL_FIXED, FL_NO_SERVERS,
                        FL_FIXED, FL_FIXED},
    [FL_FOR_ORDER] = {FL_ACTIVE, FL_ACTIVE, FL_REFUSED, FL_ACTIVE, FL_ACTIVE,
                      FL_REFUSED},
    [FL_FOR_RANKS] = {FL_NO_COLLECTIVE, FL_REFUSED, FL_REFUSED, FL_ACTIVE,
                      FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_SUMS] = {FL_NO_COLLECTIVE, FL_NO_COLLECTIVE, FL_NO_COLLECTIVE,
                     FL_ACTIVE, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_WEIGHTS] = {FL_NO_COLLECTIVE, FL_NO_COLLECTIVE, FL_NO_COLLECTIVE,
                        FL_ACTIVE, FL_REFUSED, FL_REFUSED},
    [FL_FOR_STAGE] = {FL_NO_COLLECTIVE, FL_NO_COLLECTIVE, FL_NO_COLLECTIVE,
                      FL_FIXED, FL_FIXED, FL_FIXED},
    [FL_FOR_NCCL] = {FL_NO_COLLECTIVE, FL_NO_COLLECTIVE, FL_NO_COLLECTIVE,
                     FL_NO_GPU, FL_NO_GPU, FL_NO_GPU},
    [FL_FOR_LATER] = {FL_REFUSED, FL_REFUSED, FL_REFUSED, FL_REFUSED,
                      FL_REFUSED, FL_REFUSED},
};

#define FIELD(type, member, purpose, low, high)                                \
    {                                                                          \
#member, FL_FIELD_##type,                                              \
            offsetof(fleet_distributed_strategy, member), FL_FOR_##purpose,    \
            low, high                                                          \
    }
#define SWITCH(member, purpose) FIELD(BOOL, member, purpose, 0, 1)
#define LEAST                   1e-6
#define MOST                    1e9

const fl_strategy_field fl_fields[] = {
    SWITCH(is_collective, RANKS),
    SWITCH(a_sync, ASYNC),
    FIELD(INT64, a_sync_configs.k_steps, SERVERS, 0, MOST),
    FIELD(INT, a_sync_configs.max_merge_var_num, SERVERS, 1, MOST),
    FIELD(INT, a_sync_configs.send_queue_size, SERVERS, 1, MOST),
    SWITCH(a_sync_configs.independent_recv_thread, SERVERS),
    FIELD(INT, a_sync_configs.min_send_grad_num_before_recv, SERVERS, 1, MOST),
    FIELD(INT, a_sync_configs.thread_pool_size, SERVERS, 1, MOST),
    FIELD(INT, a_sync_configs.send_wait_times, SERVERS, 0, MOST),
    SWITCH(a_sync_configs.runtime_split_send_recv, SERVERS),
    SWITCH(a_sync_configs.launch_barrier, SERVERS),
    FIELD(INT, a_sync_configs.lr_decay_steps, SERVERS, 1, MOST),
    SWITCH(a_sync_configs.use_ps_gpu, LATER),
    SWITCH(gradient_merge, STEP),
    FIELD(INT, gradient_merge_configs.k_steps, STEP, 1, 1e6),
    SWITCH(gradient_merge_configs.avg, STEP),
    SWITCH(amp, STEP),
    FIELD(FLOAT, amp_configs.init_loss_scaling, SCALING, LEAST, 1e12),
    FIELD(INT, amp_configs.incr_every_n_steps, SCALING, 1, MOST),
    FIELD(INT, amp_configs.decr_every_n_nan_or_inf, SCALING, 1, MOST),
    FIELD(FLOAT, amp_configs.incr_ratio, SCALING, 1, 1e6),
    FIELD(FLOAT, amp_configs.decr_ratio, SCALING, LEAST, 1),
    SWITCH(amp_configs.use_dynamic_loss_scaling, SCALING),
    FIELD(WORDS, amp_configs.custom_white_list, STEP, 0, 1),
    FIELD(WORDS, amp_configs.custom_black_list, STEP, 0, 1),
    FIELD(WORDS, amp_configs.custom_black_varnames, STEP, 0, 1),
    SWITCH(amp_configs.use_pure_fp16, LATER),
    SWITCH(amp_configs.use_fp16_guard, PURE),
    SWITCH(amp_configs.use_bf16, STEP),
    SWITCH(recompute, LATER),
    SWITCH(localsgd, WEIGHTS),
    FIELD(INT, localsgd_configs.k_steps, WEIGHTS, 1, 1e6),
    FIELD(INT, localsgd_configs.begin_step, WEIGHTS, 0, MOST),
    SWITCH(adaptive_localsgd, WEIGHTS),
    FIELD(INT, adaptive_localsgd_configs.k_steps, WEIGHTS, 1, 1e6),
    FIELD(INT, adaptive_localsgd_configs.begin_step, WEIGHTS, 0, MOST),
    SWITCH(dgc, SUMS),
    FIELD(INT, dgc_configs.rampup_begin_step, SUMS, 0, MOST),
    FIELD(INT, dgc_configs.rampup_step, SUMS, 1, MOST),
    FIELD(FLOAT, dgc_configs.sparsity, SUMS, -INFINITY, INFINITY),
    SWITCH(lars, LAYERS),
    FIELD(FLOAT, lars_configs.lars_coeff, LAYERS, 1e-9, 1e3),
    FIELD(FLOAT, lars_configs.lars_weight_decay, LAYERS, 0, 1e3),
    FIELD(FLOAT, lars_configs.epsilon, LAYERS, 0, 1e3),
    SWITCH(lamb, LAYERS),
    FIELD(FLOAT, lamb_configs.lamb_weight_decay, LAYERS, 0, 1e3),
    SWITCH(sharding, SUMS),
    FIELD(INT, sharding_configs.stage, STAGE, 1, 3),
    FIELD(INT, sharding_configs.sharding_degree, SUMS, 0, 4096),
    SWITCH(sync_nccl_allreduce, NCCL),
    FIELD(INT, nccl_comm_num, NCCL, 1, 64),
    SWITCH(use_hierarchical_allreduce, SUMS),
    FIELD(INT, hierarchical_allreduce_inter_nranks, SUMS, 1, MOST),
    SWITCH(sync_batch_norm, LATER),
    SWITCH(fuse_all_reduce_ops, SUMS),
    FIELD(INT, fuse_grad_size_in_MB, SUMS, 0, 1e6),
    FIELD(FLOAT, last_comm_group_size_MB, SUMS, LEAST, 1e6),
    SWITCH(find_unused_parameters, LATER),
    SWITCH(calc_comm_same_stream, NCCL),
    SWITCH(fp16_allreduce, SUMS),
    SWITCH(gradient_scale_sum, SUMS),
    SWITCH(deterministic, ORDER),
};

const char *fl_strategy_field_words(const fleet_distributed_strategy *s,
                                    const fl_strategy_field *f)
{
    const char *words;

    memcpy(&words, (const char *)s + f->offset, sizeof words);
    return words && *words ? words : NULL;
}

double fl_strategy_field_value(const fleet_distributed_strategy *s,
                               const fl_strategy_field *f)
{
    const char *at = (const char *)s + f->offset;
    int64_t i64;
    int i;
    float x;

    switch (f->type) {
    case FL_FIELD_WORDS:
        return fl_strategy_field_words(s, f) != NULL;
    case FL_FIELD_BOOL:
    case FL_FIELD_INT:
        memcpy(&i, at, sizeof i);
        return i;
    case FL_FIELD_INT64:
        memcpy(&i64, at, sizeof i64);
        return (double)i64;
    default:
        memcpy(&x, at, sizeof x);
        return (double)x;
    }
}

void fl_strategy_field_set(fleet_distributed_strategy *s,
                           const fl_strategy_field *f, double x)
{
    char *at = (char *)s + f->offset;
    int64_t i64 = (int64_t)x;
    float real = (float)x;
    int i = (int)i64;

    if (f->type == FL_FIELD_INT64)
        memcpy(at, &i64, sizeof i64);
    else if (f->type == FL_FIELD_FLOAT)
        memcpy(at, &real, sizeof real);
    else
        memcpy(at, &i, sizeof i);
}

bool fl_strategy_field_is_asked(const fleet_distributed_strategy *s,
                                const fl_strategy_field *f)
{
    const fleet_distributed_strategy defaults =
        fleet_distributed_strategy_default();

    return fl_strategy_field_value(s, f) !=
           fl_strategy_field_value(&defaults, f);
}

/* What a field changes the way of, where its group's name does not say it. */
static const struct {
    const char *field, *way;
} ways[] = {
    {"amp_configs.incr_every_n_steps", "amp_configs.use_dynamic_loss_scaling"},
    {"amp_configs.decr_every_n_nan_or_inf",
     "amp_configs.use_dynamic_loss_scaling"},
    {"amp_configs.incr_ratio", "amp_configs.use_dynamic_loss_scaling"},
    {"amp_configs.decr_ratio", "amp_configs.use_dynamic_loss_scaling"},
    {"fuse_grad_size_in_MB", "fuse_all_reduce_ops"},
    {"last_comm_group_size_MB", "fuse_all_reduce_ops"},
};

static bool is_named(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == 0;
}

static const fl_strategy_field *field_named(const char *text, size_t length)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        if (is_named(fl_fields[i].name, text, length))
            return &fl_fields[i];
    return NULL;
}

const fl_strategy_field *fl_strategy_field_off_by(
    const fleet_distributed_strategy *s, const fl_strategy_field *f)
{
    const char *end = strstr(f->name, "_configs.");
    const fl_strategy_field *on = NULL;

    if (end)
        on = field_named(f->name, (size_t)(end - f->name));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if ((!on || fl_strategy_field_value(s, on) != 0) &&
            strcmp(ways[i].field, f->name) == 0)
            on = field_named(ways[i].way, strlen(ways[i].way));
    return on && fl_strategy_field_value(s, on) == 0 ? on : NULL;
}

fl_support fl_strategy_field_fate(const fleet_distributed_strategy *s,
                                  const fl_strategy_field *f, fl_job_mode mode)
{
    fl_support by_mode = fates[f->purpose][mode];

    if (by_mode != FL_ACTIVE && by_mode != FL_NO_SCALING)
        return by_mode;
    if (fl_strategy_field_off_by(s, f))
        return FL_SWITCHED_OFF;
    return fl_amp_dtype(s) == FLEET_FLOAT16 ? FL_ACTIVE : by_mode;
}
