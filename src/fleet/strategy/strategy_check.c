/* strategy_check.c - a strategy as a whole: what is refused, and its use. */
#include "fleet/strategy/strategy_check.h"

#include <stdio.h>
#include <string.h>

#include "fleet/strategy/strategy_amp.h"
#include "fleet/strategy/strategy_collective.h"
#include "fleet/strategy/strategy_fields.h"
#include "fleet/strategy/strategy_lars_lamb.h"
#include "fleet/strategy/strategy_log.h"
#include "fleet/strategy/strategy_replicas.h"
#include "fleet/strategy/strategy_report.h"

enum { EXPECTED = 200 }; /* characters */

/* Switches come first: a 2 would be taken for "on" by one check and for a
 * typing error by another. */
static fleet_status check_ranges(const fleet_distributed_strategy *s,
                                 bool switches)
{
    for (int i = 0; i < FL_N_FIELD; i++) {
        const fl_strategy_field *f = &fl_fields[i];
        int digits = f->type == FL_FIELD_FLOAT ? 6 : 10;
        double got = fl_strategy_field_value(s, f);

        if ((f->type == FL_FIELD_BOOL) == switches &&
            !(got >= f->low && got <= f->high))
            return fl_fail(
                FLEET_EINVAL, "strategy.%s: expected %.*g to %.*g, got %.*g%s",
                f->name, digits, f->low, digits, f->high, digits, got,
                got == 0 ? " (a strategy begins as "
                           "FLEET_DISTRIBUTED_STRATEGY_INIT)"
                         : "");
    }
    return FLEET_OK;
}

/* A field was changed that its group's switch, which is 0, gives an effect. */
static fleet_status check_switch(const fleet_distributed_strategy *s,
                                 const fl_strategy_field *f)
{
    const fl_strategy_field *on = fl_strategy_field_switch(f);

    if (!f->needs_switch || !fl_strategy_field_is_asked(s, f) ||
        fl_strategy_field_value(s, on) != 0)
        return FLEET_OK;
    if (f->type == FL_FIELD_WORDS)
        return fl_fail(FLEET_EINVAL, "strategy.%s is set, but strategy.%s is 0",
                       f->name, on->name);
    return fl_fail(FLEET_EINVAL, "strategy.%s is %.*g, but strategy.%s is 0",
                   f->name, f->type == FL_FIELD_FLOAT ? 6 : 10,
                   fl_strategy_field_value(s, f), on->name);
}

static fleet_status check_not_with(const fleet_distributed_strategy *s,
                                   const fl_strategy_field *f)
{
    const char *other = f->not_with;

    while (other && *other && fl_strategy_field_value(s, f) != 0) {
        size_t n = strcspn(other, ",");

        if (fl_strategy_field_value(s, fl_strategy_field_named(other, n)) != 0)
            return fl_fail(FLEET_EINVAL,
                           "strategy.%s and strategy.%.*s contradict: one of "
                           "them",
                           f->name, (int)n, other);
        other += n + (other[n] == ',');
    }
    return FLEET_OK;
}

/* What to do about it; "": nothing but another value. */
static const char *advice(const fl_strategy_field *f, double got)
{
    if (f->purpose == FL_FOR_RANKS)
        return " (workers that are ranks are started with fleetrun "
               "--collective, or have role.collective = 1)";
    if (f->purpose == FL_FOR_SYNC_NORM)
        return " (workers of servers do not meet in the middle of a step: "
               "ranks do, in modes collective and hybrid; expected 0)";
    if (f->purpose == FL_FOR_STALENESS)
        return " (it bounds how far workers of parameter servers in async are "
               "apart; expected -1)";
    if (f->purpose == FL_FOR_CACHE || f->purpose == FL_FOR_CACHE_AGE)
        return " (a cache is for workers of parameter servers that are no "
               "ranks, and keep no copies of all rows; expected 0)";
    if (f->purpose == FL_FOR_WIRE)
        return " (what geo exchanges is exact: expected fp32)";
    if (f->purpose == FL_FOR_LOG)
        return " (servers that write logs come back in modes without ranks, "
               "of whose dense parameters there is no log; expected none)";
    if (f->purpose == FL_FOR_REPLICAS)
        return " (lanes have second copies in the modes ps-sync and ps-async; "
               "expected 1)";
    if (f->purpose == FL_FOR_STAGES)
        return " (batches are in flight between the stages of a job with heter "
               "workers, in modes ps-sync and ps-async; expected 0)";
    if (f->purpose == FL_FOR_PS_GPU)
        return " (rows of a pass are on the GPU of one process that trains "
               "alone; expected 0)";
    if (f->purpose == FL_FOR_HALF_ASYNC)
        return " (it is for workers of parameter servers that are no ranks)";
    if (got > 0)
        return "";
    return " (a strategy starts from FLEET_DISTRIBUTED_STRATEGY_INIT, not from "
           "zeros)"; /* which the caller may not have meant */
}

/* What is always done, of a field that is fixed. */
static const char *expected(const fleet_distributed_strategy *s,
                            const fl_strategy_field *f, fl_job_mode mode,
                            char text[EXPECTED])
{
    text[0] = 0;
    if (fl_strategy_field_support(s, f, mode) == FL_FIXED)
        snprintf(text, EXPECTED, ", expected %g%s%s", f->standard,
                 f->why ? ": " : "", f->why ? f->why : "");
    return text;
}

/* With the mode, unless no mode has it. */
static fleet_status refuse_field(const fleet_distributed_strategy *s,
                                 const fl_strategy_field *f, fl_job_mode mode)
{
    double got = fl_strategy_field_value(s, f);
    bool by_mode = f->purpose != FL_FOR_LATER;
    char text[EXPECTED], value[FL_FIELD_TEXT];

    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.%s: this version does not have %s%s%s%s%s",
                   f->name, fl_strategy_field_text(f, got, 6, value),
                   by_mode ? " in mode " : "",
                   by_mode ? fl_job_mode_name(mode) : "",
                   expected(s, f, mode, text), advice(f, got));
}

static bool is_refused(const fleet_distributed_strategy *s,
                       const fl_strategy_field *f, fl_job_mode mode)
{
    return fl_strategy_field_is_asked(s, f) &&
           fl_strategy_field_support(s, f, mode) >= FL_FIXED;
}

static bool is_refused_by_all(const fleet_distributed_strategy *s,
                              const fl_strategy_field *f)
{
    bool all = true;

    for (int mode = 0; mode < FL_N_JOB_MODE; mode++)
        all = all && is_refused(s, f, (fl_job_mode)mode);
    return all;
}

static fleet_status check_geo(const fleet_distributed_strategy *s,
                              fl_job_mode mode)
{
    int64_t steps = s->a_sync_configs.k_steps;

    if (!s->a_sync && steps > 0)
        return fl_fail(FLEET_EINVAL,
                       "strategy.a_sync_configs.k_steps is %lld, which is geo "
                       "mode, but strategy.a_sync is 0",
                       (long long)steps);
    if (fl_mode_has_ranks(mode) && mode != FL_COLLECTIVE && steps > 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.a_sync_configs.k_steps is %lld, which is geo "
                       "mode: not in mode %s, whose workers reduce gradients",
                       (long long)steps, fl_job_mode_name(mode));
    if (mode == FL_PS_GEO && (s->lars || s->lamb))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.%s: this version does not have it in mode "
                       "ps-geo, where a worker updates block by block",
                       s->lars ? "lars" : "lamb");
    return FLEET_OK;
}

/* Weights that are older than their push would have to be. */
static fleet_status check_half_async(const fleet_distributed_strategy *s)
{
    const fleet_a_sync_configs *c = &s->a_sync_configs;
    bool beside = c->independent_recv_thread;

    if (c->max_staleness < 0 ||
        (!beside && c->min_send_grad_num_before_recv == 1))
        return FLEET_OK;
    return fl_fail(
        FLEET_EINVAL,
        "strategy.a_sync_configs.%s is %d, but "
        "strategy.a_sync_configs.max_staleness is %d: the weights "
        "would be staler than that",
        beside ? "independent_recv_thread" : "min_send_grad_num_before_recv",
        beside ? 1 : c->min_send_grad_num_before_recv, c->max_staleness);
}

static fleet_status check_rest(const fleet_distributed_strategy *s,
                               fl_job_mode mode)
{
    FL_TRY(check_ranges(s, false));
    for (int i = 0; i < FL_N_FIELD; i++)
        FL_TRY(check_switch(s, &fl_fields[i]));
    FL_TRY(check_half_async(s));
    FL_TRY(fl_strategy_check_replicas(s));
    FL_TRY(fl_strategy_check_ranks(s));
    for (int i = 0; i < FL_N_FIELD; i++)
        FL_TRY(check_not_with(s, &fl_fields[i]));
    return fl_amp_check(s, mode);
}

fleet_status fl_strategy_check(const fleet_distributed_strategy *s,
                               fl_job_mode mode)
{
    FL_TRY(check_ranges(s, true));
    FL_TRY(check_geo(s, mode));
    for (int i = 0; i < FL_N_FIELD; i++)
        if (is_refused(s, &fl_fields[i], mode))
            return refuse_field(s, &fl_fields[i], mode);
    return check_rest(s, mode);
}

fleet_status fl_strategy_check_any(const fleet_distributed_strategy *s)
{
    FL_TRY(check_ranges(s, true));
    FL_TRY(check_geo(s, FL_LOCAL));
    for (int i = 0; i < FL_N_FIELD; i++)
        if (is_refused_by_all(s, &fl_fields[i]))
            return refuse_field(s, &fl_fields[i], FL_LOCAL);
    return check_rest(s, FL_LOCAL);
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
    fl_job_mode mode;

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
    if (fl_strategy_log_read(&f->role, &wanted) != FLEET_OK ||
        fl_strategy_replicas_read(&f->role, &wanted) != FLEET_OK)
        return NULL;
    mode = fl_job_mode_of(&f->role, &wanted);
    if (fl_strategy_check(&wanted, mode) != FLEET_OK ||
        fl_lars_lamb_check(&wanted, o) != FLEET_OK ||
        fl_strategy_check_rule(&wanted, o, mode) != FLEET_OK ||
        fl_strategy_check_role(&wanted, &f->role) != FLEET_OK ||
        (f->trained && check_same(&f->strategy, &wanted) != FLEET_OK) ||
        own_words(f->store, &wanted) != FLEET_OK)
        return NULL;
    f->strategy = wanted;
    fl_strategy_warn(f);
    return o;
}
