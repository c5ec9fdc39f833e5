/* minimize.c - fleet_minimize(): a program is trained, as the strategy says. */
#include <math.h>
#include <string.h>

#include "fleet/heter/stage_job.h"
#include "fleet/job/param_home.h"
#include "fleet/ranks.h"
#include "fleet/strategy/strategy_collective.h"
#include "fleet/strategy/strategy_fields.h"
#include "fleet/strategy/strategy_lars_lamb.h"
#include "runtime/graph/shown_slots.h"
#include "runtime/optim/narrow_rows.h"
#include "runtime/optim/own_optimizers.h"
#include "runtime/plan/recompute.h"
#include "runtime/plan/remote.h"

/* What an earlier call has not given. That call has said why, so the failure is
 * its; unless the last failure was of fleet_minimize() itself. */
static fleet_status missing(const char *what)
{
    const char *why = fleet_last_error();

    if (!*why || strncmp(why, "fleet_minimize", 14) == 0)
        return fl_fail(FLEET_EINVAL, "fleet_minimize: no %s", what);
    return fl_fail(fl_last_code(),
                   "fleet_minimize: no %s; the last failure was: %s", what,
                   why);
}

/* Plans that are made from now on know the mode. */
static void follow_mode(fleet *f)
{
    fl_job_mode mode = fl_handle_mode(f);

    if (f->store->remote)
        f->store->remote->sync = fl_mode_is_sync(mode);
    f->store->dense_local = fl_mode_has_ranks(mode);
    f->store->sums = mode == FL_PS_GEO;
    f->store->gpu_passes = f->strategy.a_sync_configs.use_ps_gpu != 0;
    f->store->layerwise = f->trained->training.layerwise;
    f->store->worker = f->role.index;
    f->store->workers = f->role.worker_num;
    if (fl_has_ranks(f) && f->strategy.sharding)
        f->store->share = (fl_share){f->role.index, f->role.worker_num,
                                     f->trained->training.sharding_stage};
    fl_ranks_open(f);
}

/* Workers that were started as ranks, and do not train as such. */
static void warn_of_mode(fleet *f)
{
    fl_job_mode mode = fl_handle_mode(f);

    if (f->role.collective && f->role.server_num > 0 && !fl_has_ranks(f) &&
        fleet_is_first_worker(f))
        FL_WARN(&f->context.log,
                "workers are ranks here, but strategy.is_collective is 0: "
                "they train in mode %s",
                fl_job_mode_name(mode));
}

static bool has_var(const fleet_program *p, const char *name, size_t n)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (strlen(p->var[i]->name) == n &&
            memcmp(p->var[i]->name, name, n) == 0)
            return true;
    return false;
}

/* A name may be another program's of the handle: it is no error. */
static void warn_of_names(fleet *f, const fleet_program *p)
{
    const char *word = f->strategy.amp_configs.custom_black_varnames;

    while (word && *word) {
        size_t n = strcspn(word, ",");

        if (!has_var(p, word, n))
            FL_WARN(&f->context.log,
                    "strategy.amp_configs.custom_black_varnames: the program "
                    "has no variable \"%.*s\"",
                    (int)n, word);
        word += n + (word[n] == ',');
    }
}

/* Does a gradient of the loss get to anything that is trained? None passes
 * metrics. `reached` has a place for each variable. */
static bool is_learned(const fleet_program *p, const fleet_var *loss,
                       bool *reached)
{
    bool any = false;

    memset(reached, 0, p->n_var * sizeof *reached);
    reached[loss->id] = true;
    for (size_t i = p->n_node; i-- > 0;) {
        const fl_node *n = p->node[i];
        bool passes = false;

        for (int j = 0; n->op->gradient && j < n->op->n_out; j++)
            passes = passes || reached[n->out[j]->id];
        for (int j = 0; passes && j < n->n_in; j++)
            if (n->in[j])
                reached[n->in[j]->id] = true;
    }
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];
        bool is_kept = v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE;

        any = any || (reached[i] && is_kept && !v->attr.frozen &&
                      v->attr.average == 0);
    }
    return any;
}

/* Such a program may run, and learns nothing. */
static fleet_status warn_of_nothing(fleet *f, const fleet_program *p,
                                    const fleet_var *loss)
{
    bool *reached;

    FL_TRY(FL_NEW(&reached, p->n_var * sizeof *reached));
    if (!is_learned(p, loss, reached))
        FL_WARN(&f->context.log,
                "fleet_minimize: the gradient of \"%s\" reaches no parameter "
                "and no table that is trained: nothing will change",
                loss->name);
    fl_free(reached);
    return FLEET_OK;
}

static bool has_table(const fleet *f, const char *name)
{
    for (size_t i = 0; i < f->n_program; i++) {
        const fleet_program *p = f->program[i];

        for (size_t k = 0; k < p->n_var; k++)
            if (p->var[k]->kind == FL_VAR_TABLE &&
                strcmp(p->var[k]->name, name) == 0)
                return true;
    }
    return false;
}

/* A rule of whole rows has nothing to say of a dense parameter. */
static fleet_status check_rows_alone(const fleet_program *p,
                                     const fleet_optimizer *o)
{
    const fl_rule *rule = fl_rule_of(o->kind);

    for (size_t i = 0; rule->n_row > 0 && i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_PARAM && !p->var[i]->attr.frozen &&
            !fl_optimizer_own(o, p->var[i]->name, true))
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: %s keeps numbers of whole rows and "
                           "is for tables, but \"%s\" is a dense parameter: "
                           "give %s to tables with "
                           "fleet_optimizer_set_table()",
                           rule->name, p->var[i]->name, rule->name);
    return FLEET_OK;
}

/* In geo servers add up what copies have changed: a sum that is rounded each
 * time is no sum. */
static fleet_status check_storage(const fleet *f, const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];

        if (v->kind == FL_VAR_TABLE && v->ids.storage != FLEET_ROW_FLOAT32 &&
            fl_handle_mode(f) == FL_PS_GEO)
            return fl_fail(
                FLEET_EUNSUPPORTED,
                "fleet_minimize: table \"%s\" keeps rows in %s, and "
                "in geo mode (a_sync_configs.k_steps) servers add up "
                "floats",
                v->name, fl_storage_names[v->ids.storage]);
    }
    return FLEET_OK;
}

/* In geo a copy's weights are in the bounds, and what servers add up is not;
 * and where rows are in few bits there must be a number in the bounds. */
static fleet_status check_bounds(const fleet *f, const fleet_program *p,
                                 const fleet_optimizer *all)
{
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];
        const fleet_optimizer *own = v->kind == FL_VAR_TABLE
                                         ? fl_optimizer_own(all, v->name, false)
                                         : NULL;
        const fleet_optimizer *o = own ? own : all;
        float low = o->low, high = o->high;

        if (v->kind != FL_VAR_TABLE || !o->bounds)
            continue;
        if (fl_handle_mode(f) == FL_PS_GEO)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: table \"%s\" has row bounds, and "
                           "in geo mode (a_sync_configs.k_steps) servers add "
                           "up what workers have changed, beyond any bounds",
                           v->name);
        if (!fl_narrow_bounds(v->ids.storage, fmaxf(fabsf(low), fabsf(high)),
                              &low, &high))
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: table \"%s\" keeps rows in %s, "
                           "which has no number within the row bounds %g to "
                           "%g: expected wider ones",
                           v->name, fl_storage_names[v->ids.storage],
                           (double)o->low, (double)o->high);
    }
    return FLEET_OK;
}

/* A clip by norm needs all of a parameter's or a table's gradient in one place.
 * NULL: it is. */
static const char *why_no_norms(const fleet *f)
{
    fl_job_mode mode = fl_handle_mode(f);

    if (mode != FL_LOCAL && mode != FL_COLLECTIVE)
        return "a lane of a server has parts of a gradient, and no other "
               "lane's "
               "norm";
    if (f->strategy.lars || f->strategy.lamb)
        return "strategy.lars and strategy.lamb have rates by the norm of each "
               "parameter themselves";
    if (f->strategy.dgc)
        return "strategy.dgc: no rank knows the norm of a gradient";
    return NULL;
}

static fleet_status check_norm_clip(const fleet *f, const fleet_program *p,
                                    const fleet_optimizer *o)
{
    const char *why = o->norm_clip > 0 ? why_no_norms(f) : NULL;

    if (why)
        return fl_fail(FLEET_EUNSUPPORTED, "fleet_minimize: a clip by norm: %s",
                       why);
    for (size_t i = 0; o->norm_clip > 0 && i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_TABLE && !p->var[i]->attr.frozen &&
            fl_handle_mode(f) == FL_COLLECTIVE)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: a clip by norm: table \"%s\" is "
                           "shared out, and each rank has the gradient of its "
                           "own rows",
                           p->var[i]->name);
    return FLEET_OK;
}

static fleet_status check_tables(const fleet *f, const fleet_optimizer *o)
{
    if (o->n_user > 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_minimize: the optimizer is a table's "
                       "(fleet_optimizer_set_table()) or a group's, and "
                       "nothing else's");
    for (size_t i = 0; i < o->n_own; i++)
        if (!o->own[i].is_param && !has_table(f, o->own[i].name))
            return fl_fail(FLEET_ENOENT,
                           "fleet_minimize: the table \"%s\" has an optimizer "
                           "of its own, and no program has that table",
                           o->own[i].name);
    return FLEET_OK;
}

/* A group may have only what fl_strategy_check_rule() lets be minimized. */
static fleet_status check_groups_rules(const fleet *f, const fleet_optimizer *o)
{
    for (size_t i = 0; i < o->n_own; i++)
        if (o->own[i].is_param)
            FL_TRY(fl_strategy_check_rule(&f->strategy, o->own[i].optimizer,
                                          fl_handle_mode(f)));
    return FLEET_OK;
}

/* What changes updates themselves is written for one rule. */
static fleet_status check_groups(const fleet *f, const fleet_optimizer *o)
{
    const fleet_distributed_strategy *s = &f->strategy;
    const char *field = s->lars   ? "lars"
                        : s->lamb ? "lamb"
                        : s->dgc && fl_mode_has_ranks(fl_handle_mode(f)) ? "dgc"
                                                                         : NULL;

    for (size_t i = 0; field && i < o->n_own; i++)
        if (o->own[i].is_param)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: \"%s\" is of a group with an "
                           "optimizer of its own, and strategy.%s is for one "
                           "that updates all dense parameters",
                           o->own[i].name, field);
    return check_groups_rules(f, o);
}

/* What is not trained in stages is not trained at all, and may be tried again
 * with another strategy. */
static fleet_status make_stages(fleet *f, fleet_program *p,
                                const fl_training *before)
{
    fleet_status status = fl_stage_job_make(f, p);

    if (status != FLEET_OK)
        p->training = *before;
    return status;
}

fleet_status fleet_minimize(fleet_optimizer *o, fleet_var *loss)
{
    fleet_program *p = loss ? loss->program : NULL;
    fl_training before;
    fleet *f;

    if (!o || !loss)
        return missing(o ? "loss" : "optimizer");
    FL_TRY(fleet_program_status(p));
    f = fl_handle_of(p->context);
    FL_TRY(fl_handle_check(f, "fleet_minimize"));
    if (o->context != p->context)
        return fl_fail(FLEET_EINVAL, "fleet_minimize: the optimizer belongs to "
                                     "another handle");
    if (p->for_test)
        return fl_fail(FLEET_ESTATE, "fleet_minimize: the program is a clone "
                                     "for tests (fleet_program_clone())");
    if (p->sealed || p->training.loss)
        return fl_fail(FLEET_ESTATE, "fleet_minimize: the program %s",
                       p->sealed ? "has run already" : "is trained already");
    if (loss->dtype != FLEET_FLOAT32 || fl_shape_batched(&loss->shape) ||
        fl_shape_count(&loss->shape, 1) != 1)
        return fl_fail(FLEET_ESHAPE,
                       "fleet_minimize: the loss \"%s\" has shape %s; expected "
                       "[1]",
                       loss->name, fl_shape_print(&loss->shape).chars);
    FL_TRY(check_tables(f, o));
    FL_TRY(check_groups(f, o));
    FL_TRY(check_rows_alone(p, o));
    FL_TRY(check_storage(f, p));
    if (fl_shown_slots_check(p) != FLEET_OK)
        return fl_fail_in(fl_last_code(), "fleet_minimize");
    FL_TRY(check_bounds(f, p, o));
    FL_TRY(check_norm_clip(f, p, o));
    FL_TRY(fl_lars_lamb_check(&f->strategy, o));
    if (f->strategy.recompute)
        FL_TRY(
            fl_recompute_check(p, f->strategy.recompute_configs.checkpoints));
    FL_TRY(fl_param_home_check(f, p));
    FL_TRY(warn_of_nothing(f, p, loss));
    fl_param_home_warn(f, p);
    before = p->training;
    p->training.loss = loss;
    p->training.optimizer = o;
    o->residuals = f->strategy.dgc && f->role.kind == FLEET_WORKER &&
                   fl_mode_has_ranks(fl_handle_mode(f));
    fl_strategy_set_training(&f->strategy, &p->training);
    FL_TRY(make_stages(f, p, &before));
    fl_optimizer_fix(o);
    if (f->store->scaling.scale == 0) /* nothing was loaded */
        f->store->scaling.scale = p->training.scaling.first;
    f->trained = p;
    follow_mode(f);
    warn_of_mode(f);
    warn_of_names(f, p);
    return FLEET_OK;
}
