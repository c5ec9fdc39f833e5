/* strategy.c - the strategy: each field once in a table that says what becomes
 * of it. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/handle.h"
#include "runtime/plan.h"

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
                        .use_dynamic_loss_scaling = 1},
        .localsgd_configs = {1, 1},
        .adaptive_localsgd_configs = {1, 1},
        .dgc_configs = {0, 1, 0.999f},
        .lars_configs = {0.001f, 0.0005f, 0},
        .lamb_configs = {0.01f},
        .sharding_configs = {1, 8},
        .sync_nccl_allreduce = 1,
        .nccl_comm_num = 1,
        .hierarchical_allreduce_inter_nranks = 1,
        .fuse_all_reduce_ops = 1,
        .fuse_grad_size_in_MB = 32,
        .last_comm_group_size_MB = 1,
    };
}

typedef enum field_type { BOOL, INT, INT64, FLOAT } field_type;

typedef enum fate {
    HONOURED,
    SERVERS, /* nothing to act on: there are no servers */
    ALONE,   /* nothing to act on: there is one worker */
    REFUSED  /* any value but the default */
} fate;

typedef struct field {
    const char *name;
    field_type type;
    size_t offset;
    fate fate;
} field;

#define FIELD(type, member, fate)                                              \
    {                                                                          \
#member, type, offsetof(fleet_distributed_strategy, member), fate      \
    }

static const field fields[] = {
    FIELD(BOOL, is_collective, ALONE),
    FIELD(BOOL, a_sync, SERVERS),
    FIELD(INT64, a_sync_configs.k_steps, SERVERS),
    FIELD(INT, a_sync_configs.max_merge_var_num, SERVERS),
    FIELD(INT, a_sync_configs.send_queue_size, SERVERS),
    FIELD(BOOL, a_sync_configs.independent_recv_thread, SERVERS),
    FIELD(INT, a_sync_configs.min_send_grad_num_before_recv, SERVERS),
    FIELD(INT, a_sync_configs.thread_pool_size, SERVERS),
    FIELD(INT, a_sync_configs.send_wait_times, SERVERS),
    FIELD(BOOL, a_sync_configs.runtime_split_send_recv, SERVERS),
    FIELD(BOOL, a_sync_configs.launch_barrier, SERVERS),
    FIELD(INT, a_sync_configs.lr_decay_steps, SERVERS),
    FIELD(BOOL, a_sync_configs.use_ps_gpu, REFUSED),
    FIELD(BOOL, gradient_merge, HONOURED),
    FIELD(INT, gradient_merge_configs.k_steps, HONOURED),
    FIELD(BOOL, gradient_merge_configs.avg, HONOURED),
    FIELD(BOOL, amp, REFUSED),
    FIELD(FLOAT, amp_configs.init_loss_scaling, REFUSED),
    FIELD(INT, amp_configs.incr_every_n_steps, REFUSED),
    FIELD(INT, amp_configs.decr_every_n_nan_or_inf, REFUSED),
    FIELD(FLOAT, amp_configs.incr_ratio, REFUSED),
    FIELD(FLOAT, amp_configs.decr_ratio, REFUSED),
    FIELD(BOOL, amp_configs.use_dynamic_loss_scaling, REFUSED),
    FIELD(BOOL, amp_configs.use_pure_fp16, REFUSED),
    FIELD(BOOL, amp_configs.use_bf16, REFUSED),
    FIELD(BOOL, recompute, REFUSED),
    FIELD(BOOL, localsgd, REFUSED),
    FIELD(INT, localsgd_configs.k_steps, REFUSED),
    FIELD(INT, localsgd_configs.begin_step, REFUSED),
    FIELD(BOOL, adaptive_localsgd, REFUSED),
    FIELD(INT, adaptive_localsgd_configs.k_steps, REFUSED),
    FIELD(INT, adaptive_localsgd_configs.begin_step, REFUSED),
    FIELD(BOOL, dgc, REFUSED),
    FIELD(INT, dgc_configs.rampup_begin_step, REFUSED),
    FIELD(INT, dgc_configs.rampup_step, REFUSED),
    FIELD(FLOAT, dgc_configs.sparsity, REFUSED),
    FIELD(BOOL, lars, REFUSED),
    FIELD(FLOAT, lars_configs.lars_coeff, REFUSED),
    FIELD(FLOAT, lars_configs.lars_weight_decay, REFUSED),
    FIELD(FLOAT, lars_configs.epsilon, REFUSED),
    FIELD(BOOL, lamb, REFUSED),
    FIELD(FLOAT, lamb_configs.lamb_weight_decay, REFUSED),
    FIELD(BOOL, sharding, REFUSED),
    FIELD(INT, sharding_configs.stage, REFUSED),
    FIELD(INT, sharding_configs.sharding_degree, REFUSED),
    FIELD(BOOL, sync_nccl_allreduce, ALONE),
    FIELD(INT, nccl_comm_num, ALONE),
    FIELD(BOOL, use_hierarchical_allreduce, ALONE),
    FIELD(INT, hierarchical_allreduce_inter_nranks, ALONE),
    FIELD(BOOL, sync_batch_norm, REFUSED),
    FIELD(BOOL, fuse_all_reduce_ops, ALONE),
    FIELD(INT, fuse_grad_size_in_MB, ALONE),
    FIELD(FLOAT, last_comm_group_size_MB, ALONE),
    FIELD(BOOL, find_unused_parameters, REFUSED),
    FIELD(BOOL, calc_comm_same_stream, ALONE),
    FIELD(BOOL, fp16_allreduce, ALONE),
    FIELD(BOOL, gradient_scale_sum, ALONE),
    FIELD(BOOL, deterministic, HONOURED),
};

enum { N_FIELD = sizeof fields / sizeof *fields };

static double value_of(const fleet_distributed_strategy *s, const field *f)
{
    const char *at = (const char *)s + f->offset;
    int64_t i64;
    int i;
    float x;

    switch (f->type) {
    case BOOL:
    case INT:
        memcpy(&i, at, sizeof i);
        return i;
    case INT64:
        memcpy(&i64, at, sizeof i64);
        return (double)i64;
    default:
        memcpy(&x, at, sizeof x);
        return (double)x;
    }
}

static fleet_status check_range(const char *name, double got, double low,
                                double high)
{
    if (got >= low && got <= high)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "strategy.%s: expected %g to %g, got %g", name,
                   low, high, got);
}

/* A field without effect must still be one that could be. */
static fleet_status check_ranges(const fleet_distributed_strategy *s)
{
    const fleet_a_sync_configs *c = &s->a_sync_configs;
    const double most = 1e9;

    FL_TRY(check_range("a_sync_configs.k_steps", (double)c->k_steps, 0, most));
    FL_TRY(check_range("a_sync_configs.max_merge_var_num", c->max_merge_var_num,
                       1, most));
    FL_TRY(check_range("a_sync_configs.send_queue_size", c->send_queue_size, 1,
                       most));
    FL_TRY(check_range("a_sync_configs.min_send_grad_num_before_recv",
                       c->min_send_grad_num_before_recv, 1, most));
    FL_TRY(check_range("a_sync_configs.thread_pool_size", c->thread_pool_size,
                       1, most));
    FL_TRY(check_range("a_sync_configs.send_wait_times", c->send_wait_times, 0,
                       most));
    FL_TRY(check_range("a_sync_configs.lr_decay_steps", c->lr_decay_steps, 1,
                       most));
    FL_TRY(check_range("gradient_merge_configs.k_steps",
                       s->gradient_merge_configs.k_steps, 1, 1e6));
    FL_TRY(check_range("nccl_comm_num", s->nccl_comm_num, 1, 64));
    FL_TRY(check_range("hierarchical_allreduce_inter_nranks",
                       s->hierarchical_allreduce_inter_nranks, 1, most));
    FL_TRY(
        check_range("fuse_grad_size_in_MB", s->fuse_grad_size_in_MB, 0, 1e6));
    return check_range("last_comm_group_size_MB",
                       (double)s->last_comm_group_size_MB, 1e-6, 1e6);
}

/* A BOOL is 0 or 1: a 2 would be taken for "on" here and for a typing error
 * there. */
static fleet_status check_bools(const fleet_distributed_strategy *s)
{
    for (int i = 0; i < N_FIELD; i++)
        if (fields[i].type == BOOL)
            FL_TRY(check_range(fields[i].name, value_of(s, &fields[i]), 0, 1));
    return FLEET_OK;
}

/* --- from JSON ----------------------------------------------------------- */

static void set_value(fleet_distributed_strategy *s, const field *f, double x)
{
    char *at = (char *)s + f->offset;
    int64_t i64 = (int64_t)x;
    float real = (float)x;
    int i = (int)i64;

    if (f->type == INT64)
        memcpy(at, &i64, sizeof i64);
    else if (f->type == FLOAT)
        memcpy(at, &real, sizeof real);
    else
        memcpy(at, &i, sizeof i);
}

static fleet_status read_field(const fl_at *at, const field *f,
                               fleet_distributed_strategy *s)
{
    double x = value_of(s, f);
    int64_t i = (int64_t)x;
    bool b = x != 0;

    if (f->type == BOOL) {
        FL_TRY(fl_at_bool(at, &b));
        x = b;
    } else if (f->type == FLOAT) {
        FL_TRY(fl_at_double(at, -1e9, 1e9, &x));
    } else {
        FL_TRY(fl_at_int(at, -1000000000, 1000000000, &i));
        x = (double)i;
    }
    set_value(s, f, x);
    return FLEET_OK;
}

/* The names of fields below a prefix, up to the next dot. */
static int names_below(const char *prefix, const char **name, char *text,
                       size_t size)
{
    size_t length = strlen(prefix), used = 0;
    int n = 0;

    for (int i = 0; i < N_FIELD; i++) {
        const char *rest = fields[i].name + length;
        size_t word;

        if (strncmp(fields[i].name, prefix, length) != 0)
            continue;
        word = strcspn(rest, ".");
        if (n && strncmp(name[n - 1], rest, word) == 0 &&
            name[n - 1][word] == 0)
            continue;
        if (used + word + 1 > size)
            break;
        memcpy(text + used, rest, word);
        name[n++] = text + used;
        used += word + 1;
    }
    name[n] = NULL;
    return n;
}

static fleet_status check_names(const fl_at *at, const char *prefix)
{
    const char *name[N_FIELD + 1];
    char text[N_FIELD * 48] = {0};

    names_below(prefix, name, text, sizeof text);
    return fl_at_keys(at, name);
}

fleet_status fl_strategy_read(const fl_at *at, fleet_distributed_strategy *s)
{
    FL_TRY(check_names(at, ""));
    for (int i = 0; i < N_FIELD; i++) {
        const char *dot = strchr(fields[i].name, '.');
        char group[64];
        fl_at in, value;

        if (!dot) {
            value = fl_at_key(at, fields[i].name);
        } else {
            size_t n = (size_t)(dot - fields[i].name);

            memcpy(group, fields[i].name, n);
            group[n] = 0;
            in = fl_at_key(at, group);
            group[n] = '.';
            group[n + 1] = 0;
            FL_TRY(check_names(&in, group));
            value = fl_at_key(&in, dot + 1);
        }
        FL_TRY(read_field(&value, &fields[i], s));
    }
    return fl_strategy_check(s);
}

/* --- use ----------------------------------------------------------------- */

static bool is_asked(const fleet_distributed_strategy *s, const field *f)
{
    const fleet_distributed_strategy defaults =
        fleet_distributed_strategy_default();

    return value_of(s, f) != value_of(&defaults, f);
}

fleet_status fl_strategy_check(const fleet_distributed_strategy *s)
{
    FL_TRY(check_bools(s));
    for (int i = 0; i < N_FIELD; i++)
        if (fields[i].fate == REFUSED && is_asked(s, &fields[i]))
            return fl_fail(
                FLEET_EUNSUPPORTED,
                "strategy.%s: this version does not have it (a strategy starts "
                "from FLEET_DISTRIBUTED_STRATEGY_INIT, not from zeros)",
                fields[i].name);
    if (!s->a_sync && s->a_sync_configs.k_steps > 0)
        return fl_fail(FLEET_EINVAL,
                       "strategy.a_sync_configs.k_steps is %lld, which is geo "
                       "mode, but strategy.a_sync is 0",
                       (long long)s->a_sync_configs.k_steps);
    if (!s->gradient_merge && s->gradient_merge_configs.k_steps > 1)
        return fl_fail(FLEET_EINVAL,
                       "strategy.gradient_merge_configs.k_steps is %d, but "
                       "strategy.gradient_merge is 0",
                       s->gradient_merge_configs.k_steps);
    return check_ranges(s);
}

/* What is trained already would not follow another one. */
static fleet_status check_same(const fleet_distributed_strategy *now,
                               const fleet_distributed_strategy *wanted)
{
    for (int i = 0; i < N_FIELD; i++)
        if (value_of(now, &fields[i]) != value_of(wanted, &fields[i]))
            return fl_fail(FLEET_ESTATE,
                           "fleet_distributed_optimizer: fleet_minimize() has "
                           "been called with another strategy.%s",
                           fields[i].name);
    return FLEET_OK;
}

static const char *const effect[] = {
    [HONOURED] = "honoured",
    [SERVERS] = "no effect: no servers, training is synchronous",
    [ALONE] = "no effect: one worker",
    [REFUSED] = "off: not in this version",
};

/* What is asked for in vain is in the log. */
static void warn(fleet *f)
{
    for (int i = 0; i < N_FIELD; i++)
        if (fields[i].fate != HONOURED && is_asked(&f->strategy, &fields[i]))
            FL_WARN(&f->context.log, "strategy.%s is %g: %s", fields[i].name,
                    value_of(&f->strategy, &fields[i]), effect[fields[i].fate]);
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
    if (strategy && fl_strategy_check(strategy) != FLEET_OK)
        return NULL;
    wanted = strategy ? *strategy : fleet_distributed_strategy_default();
    if (f->trained && check_same(&f->strategy, &wanted) != FLEET_OK)
        return NULL;
    f->strategy = wanted;
    f->has_strategy = true;
    warn(f);
    return o;
}

/* What a call before has not given; it has said why, unless that was this one.
 */
static fleet_status missing(const char *what)
{
    const char *why = fleet_last_error();

    if (!*why || strncmp(why, "fleet_minimize", 14) == 0)
        return fl_fail(FLEET_EINVAL, "fleet_minimize: no %s", what);
    return fl_fail(FLEET_EINVAL, "fleet_minimize: no %s (%s)", what, why);
}

fleet_status fleet_minimize(fleet_optimizer *o, fleet_var *loss)
{
    fleet_program *p = loss ? loss->program : NULL;
    fleet *f;

    if (!o || !loss)
        return missing(o ? "loss" : "optimizer");
    FL_TRY(fleet_program_status(p));
    f = fl_handle_of(p->context);
    FL_TRY(fl_handle_check(f, "fleet_minimize"));
    if (o->context != p->context)
        return fl_fail(FLEET_EINVAL, "fleet_minimize: the optimizer belongs to "
                                     "another handle");
    if (p->sealed || p->training.loss)
        return fl_fail(FLEET_ESTATE, "fleet_minimize: the program %s",
                       p->sealed ? "has run already" : "is trained already");
    if (loss->dtype != FLEET_FLOAT32 || fl_shape_batched(&loss->shape) ||
        fl_shape_count(&loss->shape, 1) != 1)
        return fl_fail(FLEET_ESHAPE,
                       "fleet_minimize: the loss \"%s\" has shape %s; expected "
                       "[1]",
                       loss->name, fl_shape_print(&loss->shape).chars);
    if (!f->has_strategy)
        f->strategy = fleet_distributed_strategy_default();
    p->training.loss = loss;
    p->training.optimizer = o;
    if (f->strategy.gradient_merge)
        p->training.merge_steps = f->strategy.gradient_merge_configs.k_steps;
    p->training.merge_average = f->strategy.gradient_merge_configs.avg != 0;
    f->trained = p;
    return FLEET_OK;
}

/* --- the dump ------------------------------------------------------------ */

static void describe(const fleet_distributed_strategy *s, const field *f,
                     fl_text *out)
{
    fl_text_add(out, "%-48s %-12g %-8s %s\n", f->name, value_of(s, f),
                is_asked(s, f) ? "asked" : "default", effect[f->fate]);
}

static fleet_status dump_passes(fleet *f, fl_text *out)
{
    fl_plan *plan;

    if (!f->trained)
        return FLEET_OK;
    f->trained->sealed = true;
    FL_TRY(fl_store_add(f->store, f->trained));
    FL_TRY(fl_store_train(f->store, f->trained->training.optimizer));
    FL_TRY(fl_plan_build(f->trained, f->store, 1, true, NULL, &plan));
    fl_text_add(out, "mode local, workers 1, servers 0\npasses %s\n",
                fl_text_chars(&plan->passes));
    fl_plan_destroy(plan);
    return out->status;
}

char *fleet_strategy_dump(fleet *f)
{
    fleet_distributed_strategy defaults = fleet_distributed_strategy_default();
    const fleet_distributed_strategy *s;
    fl_text out = {0};

    if (fl_handle_check(f, "fleet_strategy_dump") != FLEET_OK)
        return NULL;
    s = f->has_strategy ? &f->strategy : &defaults;
    for (int i = 0; i < N_FIELD; i++)
        describe(s, &fields[i], &out);
    if (dump_passes(f, &out) == FLEET_OK && out.status == FLEET_OK)
        return out.chars;
    fl_text_done(&out);
    return NULL;
}
