/* strategy_report.c - a strategy in the log, in what the processes of a job
 * compare, and in the dump. */
#include "fleet/strategy/strategy_report.h"

#include <stdio.h>

#include "fleet/job/param_home.h"
#include "fleet/strategy/strategy_fields.h"
#include "runtime/graph/table_options.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/lower.h"
#include "runtime/plan/job_signature.h"

enum { EFFECT = 160 }; /* characters of a text with a name in it */

static const char *effect_of(const fleet_distributed_strategy *s,
                             const fl_strategy_field *f, fl_job_mode mode,
                             char made[EFFECT])
{
    char value[FL_FIELD_TEXT];

    switch (fl_strategy_field_support(s, f, mode)) {
    case FL_ACTIVE:
        return "honoured";
    case FL_NO_EFFECT_SERVERS:
        return "no effect: no servers, training is synchronous";
    case FL_NO_EFFECT_COLLECTIVE:
        return mode == FL_LOCAL ? "no effect: one worker"
                                : "no effect: no collective";
    case FL_NO_EFFECT_FLOAT16:
        return "no effect: for float16, bfloat16 needs no scaling";
    case FL_NO_EFFECT_PURE_FP16:
        return "no effect: for use_pure_fp16 alone";
    case FL_NO_EFFECT_OFF:
        snprintf(made, EFFECT, "no effect: strategy.%s is %s",
                 fl_strategy_field_off_by(s, f)->name,
                 fl_strategy_field_text(fl_strategy_field_off_by(s, f), 0, 6,
                                        value));
        return made;
    case FL_NO_EFFECT_ASYNC:
        return "off: another value makes the mode ps-half-async";
    case FL_FIXED:
        if (f->why) {
            snprintf(made, EFFECT, "fixed: %s", f->why);
            return made;
        }
        return "fixed: other values are not in this version";
    default:
        return f->purpose == FL_FOR_ORDER       ? "off: async has no order"
               : f->purpose == FL_FOR_STALENESS ? "off: for servers in async"
               : f->purpose == FL_FOR_CACHE || f->purpose == FL_FOR_CACHE_AGE
                   ? "off: for workers without copies that are no ranks"
               : f->purpose == FL_FOR_PS_GPU ? "off: for one process alone"
               : f->purpose == FL_FOR_WIRE   ? "off: in ps-geo all is exact"
               : f->purpose == FL_FOR_LOG
                   ? "off: for ps-sync, ps-async and ps-half-async"
               : f->purpose == FL_FOR_REPLICAS ? "off: for ps-sync and ps-async"
                                               : "off: not in this version";
    }
}

/* Training without servers is what a_sync = 0 asks for. */
static bool is_so_anyway(const fleet_distributed_strategy *s,
                         const fl_strategy_field *f)
{
    return f->purpose == FL_FOR_ASYNC && fl_strategy_field_value(s, f) == 0;
}

void fl_strategy_warn(fleet *f)
{
    const fleet_distributed_strategy *s = &f->strategy;
    fl_job_mode mode = fl_handle_mode(f);
    char made[EFFECT], value[FL_FIELD_TEXT];

    for (int i = 0; i < FL_N_FIELD; i++)
        if (fl_strategy_field_support(s, &fl_fields[i], mode) != FL_ACTIVE &&
            fl_strategy_field_is_asked(s, &fl_fields[i]) &&
            !is_so_anyway(s, &fl_fields[i]))
            FL_WARN(&f->context.log, "strategy.%s is %s: %s", fl_fields[i].name,
                    fl_strategy_field_text(
                        &fl_fields[i],
                        fl_strategy_field_value(s, &fl_fields[i]), 6, value),
                    effect_of(s, &fl_fields[i], mode, made));
}

/* --- for other processes ------------------------------------------------- */

/* What the mode's name does not say; "hybrid" is both sync and async. */
static bool is_term(const fleet_distributed_strategy *s,
                    const fl_strategy_field *f, fl_job_mode mode)
{
    if (f->purpose == FL_FOR_RANKS || f->purpose == FL_FOR_LOG ||
        (f->purpose == FL_FOR_ASYNC && !fl_mode_has_ranks(mode)))
        return false;
    return fl_strategy_field_support(s, f, mode) == FL_ACTIVE &&
           fl_strategy_field_is_asked(s, f);
}

void fl_strategy_terms(const fleet *f, fl_text *out)
{
    const fleet_distributed_strategy *s = &f->strategy;
    fl_job_mode mode = fl_handle_mode(f);
    char value[FL_FIELD_TEXT];

    fl_text_add(out, "%s", fl_job_mode_name(mode));
    for (int i = 0; i < FL_N_FIELD; i++) {
        const fl_strategy_field *one = &fl_fields[i];

        if (!is_term(s, one, mode))
            continue;
        if (one->type == FL_FIELD_WORDS)
            fl_text_add(out, ", %s %s", one->name,
                        fl_strategy_field_words(s, one));
        else
            fl_text_add(out, ", %s %s", one->name,
                        fl_strategy_field_text(
                            one, fl_strategy_field_value(s, one), 9, value));
    }
}

/* --- the dump ------------------------------------------------------------ */

static void describe_field(const fleet *f, const fl_strategy_field *one,
                           fl_text *out)
{
    fl_job_mode mode = fl_handle_mode(f);
    const char *words = one->type == FL_FIELD_WORDS
                            ? fl_strategy_field_words(&f->strategy, one)
                            : NULL;
    char value[FL_FIELD_TEXT], made[EFFECT];

    if (one->type != FL_FIELD_WORDS)
        words = fl_strategy_field_text(
            one, fl_strategy_field_value(&f->strategy, one), 6, value);
    fl_text_add(out, "%-48s %-12s %-8s %s\n", one->name, words ? words : "none",
                fl_strategy_field_is_asked(&f->strategy, one) ? "asked"
                                                              : "default",
                effect_of(&f->strategy, one, mode, made));
}

static void dump_lives(const fleet_program *p, fl_text *out)
{
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];

        if (v->kind != FL_VAR_TABLE || !fl_table_has_life(&v->ids.life))
            continue;
        fl_text_add(out, "table %s: ", v->name);
        fl_table_options_print(&v->ids.life, ", ", out);
        fl_text_add(out, "\n");
    }
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
                         &f->trained->place, &plan));
    fl_text_add(out, "mode %s, workers %d, servers %d\npasses %s\n",
                fl_job_mode_name(fl_handle_mode(f)), f->role.worker_num,
                f->role.server_num, fl_text_chars(&plan->passes));
    fl_plan_destroy(plan);
    fl_param_home_dump(f->trained, out);
    dump_lives(f->trained, out);
    if (f->trained->training.optimizer->n_own > 0)
        fl_job_signature_add_optimizer(out, f->trained->training.optimizer);
    return out->status;
}

char *fleet_strategy_dump(fleet *f)
{
    fl_text out = {0};

    if (fl_handle_check(f, "fleet_strategy_dump") != FLEET_OK)
        return NULL;
    for (int i = 0; i < FL_N_FIELD; i++)
        describe_field(f, &fl_fields[i], &out);
    if (dump_passes(f, &out) == FLEET_OK && out.status == FLEET_OK)
        return out.chars;
    fl_text_done(&out);
    return NULL;
}
