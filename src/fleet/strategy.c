/* strategy.c - the strategy: each field once in a table that says what becomes
 * of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/amp.h"
#include "fleet/handle.h"
#include "fleet/keepers.h"
#include "fleet/strategy_ranks.h"
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

typedef enum field_type { BOOL, INT, INT64, FLOAT, WORDS } field_type;

/* What a field is for; with the mode, that is what becomes of it. */
typedef enum purpose {
    STEP,    /* how a step is computed */
    SCALING, /* how a loss of float16 is scaled */
    PURE,    /* for training in float16 without float */
    LAYERS,  /* how dense parameters that are kept here are updated */
    ASYNC,   /* the choice between the modes of servers */
    SERVERS, /* how workers and servers talk */
    ORDER,   /* a fixed order of sums over workers */
    RANKS,   /* ranks in place of servers */
    SUMS,    /* what ranks reduce */
    WEIGHTS, /* means of weights in place of that */
    STAGE,   /* has one value where they do */
    NCCL,    /* the same on GPUs */
    LATER,   /* not in this version */
    N_PURPOSE
} purpose;

typedef enum fate {
    HONOURED,
    NO_SERVERS,    /* nothing to act on */
    NO_COLLECTIVE, /* nothing to act on */
    NO_GPU,        /* nothing to act on */
    NO_SCALING,    /* nothing to act on */
    NO_PURE,       /* nothing to act on */
    SWITCHED_OFF,  /* a field that turns it on is 0 */
    FIXED,         /* the default is what happens, another value is refused */
    REFUSED        /* any value but the default */
} fate;

static const fate fates[N_PURPOSE][FL_N_JOB_MODE] = {
    /* local, ps-sync, ps-async, collective, hybrid sync and async */
    [STEP] = {HONOURED, HONOURED, HONOURED, HONOURED, HONOURED, HONOURED},
    [SCALING] = {NO_SCALING, NO_SCALING, NO_SCALING, NO_SCALING, NO_SCALING,
                 NO_SCALING},
    [PURE] = {NO_PURE, NO_PURE, NO_PURE, NO_PURE, NO_PURE, NO_PURE},
    [LAYERS] = {HONOURED, REFUSED, REFUSED, HONOURED, HONOURED, HONOURED},
    [ASYNC] = {NO_SERVERS, HONOURED, HONOURED, NO_SERVERS, HONOURED, HONOURED},
    [SERVERS] = {NO_SERVERS, FIXED, FIXED, NO_SERVERS, FIXED, FIXED},
    [ORDER] = {HONOURED, HONOURED, REFUSED, HONOURED, HONOURED, REFUSED},
    [RANKS] = {NO_COLLECTIVE, REFUSED, REFUSED, HONOURED, HONOURED, HONOURED},
    [SUMS] = {NO_COLLECTIVE, NO_COLLECTIVE, NO_COLLECTIVE, HONOURED, HONOURED,
              HONOURED},
    [WEIGHTS] = {NO_COLLECTIVE, NO_COLLECTIVE, NO_COLLECTIVE, HONOURED, REFUSED,
                 REFUSED},
    [STAGE] = {NO_COLLECTIVE, NO_COLLECTIVE, NO_COLLECTIVE, FIXED, FIXED,
               FIXED},
    [NCCL] = {NO_COLLECTIVE, NO_COLLECTIVE, NO_COLLECTIVE, NO_GPU, NO_GPU,
              NO_GPU},
    [LATER] = {REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED},
};

typedef struct field {
    const char *name;
    field_type type;
    size_t offset;
    purpose purpose;
    double low, high; /* without effect, too: it must be one that could be */
} field;

#define FIELD(type, member, purpose, low, high)                                \
    {                                                                          \
#member, type, offsetof(fleet_distributed_strategy, member), purpose,  \
            low, high                                                          \
    }
#define SWITCH(member, purpose) FIELD(BOOL, member, purpose, 0, 1)
#define LEAST                   1e-6
#define MOST                    1e9

static const field fields[] = {
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

enum { N_FIELD = sizeof fields / sizeof *fields };

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

static const char *words_of(const fleet_distributed_strategy *s, const field *f)
{
    const char *words;

    memcpy(&words, (const char *)s + f->offset, sizeof words);
    return words && *words ? words : NULL;
}

static double value_of(const fleet_distributed_strategy *s, const field *f)
{
    const char *at = (const char *)s + f->offset;
    int64_t i64;
    int i;
    float x;

    switch (f->type) {
    case WORDS:
        return words_of(s, f) != NULL;
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

static const field *field_named(const char *text, size_t length)
{
    for (int i = 0; i < N_FIELD; i++)
        if (is_named(fields[i].name, text, length))
            return &fields[i];
    return NULL;
}

/* A switch that is off, without which the field does nothing: its group's, dgc
 * of dgc_configs, or its way's. NULL: there is none. */
static const field *switched_off(const fleet_distributed_strategy *s,
                                 const field *f)
{
    const char *end = strstr(f->name, "_configs.");
    const field *on = NULL;

    if (end)
        on = field_named(f->name, (size_t)(end - f->name));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if ((!on || value_of(s, on) != 0) &&
            strcmp(ways[i].field, f->name) == 0)
            on = field_named(ways[i].way, strlen(ways[i].way));
    return on && value_of(s, on) == 0 ? on : NULL;
}

static fate fate_of(const fleet_distributed_strategy *s, const field *f,
                    fl_job_mode mode)
{
    fate by_mode = fates[f->purpose][mode];

    if (by_mode != HONOURED && by_mode != NO_SCALING)
        return by_mode;
    if (switched_off(s, f))
        return SWITCHED_OFF;
    return fl_amp_narrow(s) == FLEET_FLOAT16 ? HONOURED : by_mode;
}

static fleet_status check_range(const fleet_distributed_strategy *s,
                                const field *f)
{
    int digits = f->type == FLOAT ? 6 : 10;
    double got = value_of(s, f);

    if (got >= f->low && got <= f->high)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "strategy.%s: expected %.*g to %.*g, got %.*g",
                   f->name, digits, f->low, digits, f->high, digits, got);
}

/* A BOOL is 0 or 1: a 2 would be taken for "on" here and for a typing error
 * there. */
static fleet_status check_bools(const fleet_distributed_strategy *s)
{
    for (int i = 0; i < N_FIELD; i++)
        if (fields[i].type == BOOL)
            FL_TRY(check_range(s, &fields[i]));
    return FLEET_OK;
}

static fleet_status check_numbers(const fleet_distributed_strategy *s)
{
    for (int i = 0; i < N_FIELD; i++)
        if (fields[i].type != BOOL)
            FL_TRY(check_range(s, &fields[i]));
    return FLEET_OK;
}

static bool is_asked(const fleet_distributed_strategy *s, const field *f)
{
    const fleet_distributed_strategy defaults =
        fleet_distributed_strategy_default();

    return value_of(s, f) != value_of(&defaults, f);
}

/* What to do about it; "": nothing but another value. */
static const char *advice(const field *f, double got)
{
    if (f->purpose == RANKS)
        return " (workers that are ranks are started with fleetrun "
               "--collective, or have role.collective = 1)";
    if (got > 0)
        return "";
    return " (a strategy starts from FLEET_DISTRIBUTED_STRATEGY_INIT, not from "
           "zeros)"; /* that nobody may have meant */
}

/* With the mode, unless no mode has it. */
static fleet_status refuse(const fleet_distributed_strategy *s, const field *f,
                           fl_job_mode mode)
{
    double got = value_of(s, f);
    bool by_mode = f->purpose != LATER;

    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.%s: this version does not have %g%s%s%s", f->name,
                   got, by_mode ? " in mode " : "",
                   by_mode ? fl_job_mode_name(mode) : "", advice(f, got));
}

/* Without a role, local: what no mode has is refused. */
static fleet_status check_strategy(const fleet_distributed_strategy *s,
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
    for (int i = 0; i < N_FIELD; i++)
        if (fate_of(s, &fields[i], mode) >= FIXED && is_asked(s, &fields[i]))
            return refuse(s, &fields[i], mode);
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
    const char *words = NULL;
    bool b = x != 0;

    if (f->type == WORDS) { /* the config's, for as long as it is there */
        FL_TRY(fl_at_string(at, &words));
        memcpy((char *)s + f->offset, &words, sizeof words);
        return FLEET_OK;
    }
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
    return check_strategy(s, FL_LOCAL);
}

/* --- use ----------------------------------------------------------------- */

static bool is_same(const fleet_distributed_strategy *a,
                    const fleet_distributed_strategy *b, const field *f)
{
    if (value_of(a, f) != value_of(b, f))
        return false;
    return f->type != WORDS || !words_of(a, f) ||
           strcmp(words_of(a, f), words_of(b, f)) == 0;
}

/* Words are the handle's from now on. */
static fleet_status own_words(fl_store *store, fleet_distributed_strategy *s)
{
    for (int i = 0; i < N_FIELD; i++) {
        const char *words;

        if (fields[i].type != WORDS || !words_of(s, &fields[i]))
            continue;
        words = fl_arena_strdup(&store->arena, words_of(s, &fields[i]));
        if (!words)
            return FLEET_ENOMEM;
        memcpy((char *)s + fields[i].offset, &words, sizeof words);
    }
    return FLEET_OK;
}

/* What is trained already would not follow another one. */
static fleet_status check_same(const fleet_distributed_strategy *now,
                               const fleet_distributed_strategy *wanted)
{
    for (int i = 0; i < N_FIELD; i++)
        if (!is_same(now, wanted, &fields[i]))
            return fl_fail(FLEET_ESTATE,
                           "fleet_distributed_optimizer: fleet_minimize() has "
                           "been called with another strategy.%s",
                           fields[i].name);
    return FLEET_OK;
}

enum { EFFECT = 128 }; /* characters of words that are made */

static const char *effect_of(const fleet_distributed_strategy *s,
                             const field *f, fl_job_mode mode,
                             char made[EFFECT])
{
    switch (fate_of(s, f, mode)) {
    case HONOURED:
        return "honoured";
    case NO_SERVERS:
        return "no effect: no servers, training is synchronous";
    case NO_COLLECTIVE:
        return mode == FL_LOCAL ? "no effect: one worker"
                                : "no effect: no collective";
    case NO_GPU:
        return "no effect: ranks on GPUs have one communicator, whose calls "
               "are waited for, and those on CPUs none";
    case NO_SCALING:
        return "no effect: for float16, bfloat16 needs no scaling";
    case NO_PURE:
        return "no effect: for use_pure_fp16 alone";
    case SWITCHED_OFF:
        snprintf(made, EFFECT, "no effect: strategy.%s is 0",
                 switched_off(s, f)->name);
        return made;
    case FIXED:
        return "fixed: other values are not in this version";
    default:
        return f->purpose == ORDER ? "off: async has no order"
                                   : "off: not in this version";
    }
}

/* Training without servers is what a_sync = 0 asks for. */
static bool is_so_anyway(const fleet_distributed_strategy *s, const field *f)
{
    return f->purpose == ASYNC && value_of(s, f) == 0;
}

/* What is asked for in vain is in the log. */
static void warn(fleet *f)
{
    const fleet_distributed_strategy *s = &f->strategy;
    fl_job_mode mode = fl_job_mode_of(&f->role, s);
    char made[EFFECT];

    for (int i = 0; i < N_FIELD; i++)
        if (fate_of(s, &fields[i], mode) != HONOURED &&
            is_asked(s, &fields[i]) && !is_so_anyway(s, &fields[i]))
            FL_WARN(&f->context.log, "strategy.%s is %g: %s", fields[i].name,
                    value_of(s, &fields[i]),
                    effect_of(s, &fields[i], mode, made));
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
    if (check_strategy(&wanted, fl_job_mode_of(&f->role, &wanted)) != FLEET_OK)
        return NULL;
    if (fl_layerwise_check(&wanted, o) != FLEET_OK ||
        fl_strategy_check_rule(&wanted, o, fl_job_mode_of(&f->role, &wanted)) !=
            FLEET_OK ||
        fl_strategy_check_role(&wanted, &f->role) != FLEET_OK ||
        (f->trained && check_same(&f->strategy, &wanted) != FLEET_OK) ||
        own_words(f->store, &wanted) != FLEET_OK)
        return NULL;
    f->strategy = wanted;
    warn(f);
    return o;
}

/* --- for others ---------------------------------------------------------- */

/* What the mode's name does not say; "hybrid" is both sync and async. */
static bool is_term(const fleet_distributed_strategy *s, const field *f,
                    fl_job_mode mode)
{
    if (f->purpose == RANKS ||
        (f->purpose == ASYNC && !fl_mode_has_ranks(mode)))
        return false;
    return fate_of(s, f, mode) == HONOURED && is_asked(s, f);
}

static void add_term(const fleet_distributed_strategy *s, const field *f,
                     fl_text *out)
{
    if (f->type == WORDS)
        fl_text_add(out, ", %s %s", f->name, words_of(s, f));
    else
        fl_text_add(out, ", %s %.9g", f->name, value_of(s, f));
}

void fl_strategy_terms(const fleet *f, fl_text *out)
{
    fl_job_mode mode = fl_job_mode_of(&f->role, &f->strategy);

    fl_text_add(out, "%s", fl_job_mode_name(mode));
    for (int i = 0; i < N_FIELD; i++)
        if (is_term(&f->strategy, &fields[i], mode))
            add_term(&f->strategy, &fields[i], out);
}

/* --- the dump ------------------------------------------------------------ */

static void describe(const fleet *f, const field *one, fl_text *out)
{
    fl_job_mode mode = fl_job_mode_of(&f->role, &f->strategy);
    const char *words = one->type == WORDS ? words_of(&f->strategy, one) : NULL;
    char value[32], made[EFFECT];

    snprintf(value, sizeof value, "%g", value_of(&f->strategy, one));
    fl_text_add(out, "%-48s %-12s %-8s %s\n", one->name,
                one->type != WORDS ? value
                : words            ? words
                                   : "none",
                is_asked(&f->strategy, one) ? "asked" : "default",
                effect_of(&f->strategy, one, mode, made));
}

static fleet_status dump_passes(fleet *f, fl_text *out)
{
    fl_plan *plan;

    if (!f->trained)
        return FLEET_OK;
    f->trained->sealed = true;
    FL_TRY(fl_store_add(f->store, f->trained));
    FL_TRY(fl_store_train(f->store, f->trained->training.optimizer));
    FL_TRY(fl_plan_build(f->trained, f->store, 1, true, NULL,
                         &f->trained->placing, &plan));
    fl_text_add(out, "mode %s, workers %d, servers %d\npasses %s\n",
                fl_job_mode_name(fl_job_mode_of(&f->role, &f->strategy)),
                f->role.worker_num, f->role.server_num,
                fl_text_chars(&plan->passes));
    fl_plan_destroy(plan);
    fl_keepers_dump(f->trained, out);
    return out->status;
}

char *fleet_strategy_dump(fleet *f)
{
    fl_text out = {0};

    if (fl_handle_check(f, "fleet_strategy_dump") != FLEET_OK)
        return NULL;
    for (int i = 0; i < N_FIELD; i++)
        describe(f, &fields[i], &out);
    if (dump_passes(f, &out) == FLEET_OK && out.status == FLEET_OK)
        return out.chars;
    fl_text_done(&out);
    return NULL;
}
