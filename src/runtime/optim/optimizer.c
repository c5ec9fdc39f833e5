/* optimizer.c - optimizers: their numbers, checked, and the learning rate of
 * each update. */
#include "runtime/optim/optimizer.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"

static fleet_status out_of_range(const char *what, double got)
{
    return fl_fail(FLEET_EINVAL, "%s: %g is out of range", what, got);
}

/* 1 / (1 - beta^t) until it is 1 in float. */
static fleet_status fill_corrections(fleet_optimizer *o)
{
    double a = (double)FL_NUMBER_OF(o, ADAM, beta1);
    double b = (double)FL_NUMBER_OF(o, ADAM, beta2);
    double steps = ceil(log(0x1p-26) / log(b > a ? b : a)) + 2;
    double pa = 1, pb = 1;

    if (!(steps < 4e6)) /* the table would be too long */
        return fl_fail(FLEET_EINVAL,
                       "%s: %g is out of range: its bias correction needs %g "
                       "updates to become 1; expected at most %g",
                       b > a ? "beta2" : "beta1", b > a ? b : a, steps,
                       1 - 18.1 / 4e6);
    o->n_correct = (uint32_t)steps + 1;
    o->correct_a = fl_alloc_array(o->n_correct, sizeof(float));
    o->correct_b = fl_alloc_array(o->n_correct, sizeof(float));
    if (!o->correct_a || !o->correct_b)
        return FLEET_ENOMEM;
    for (uint32_t t = 1; t < o->n_correct; t++) {
        pa *= a;
        pb *= b;
        o->correct_a[t] = (float)(1.0 / (1.0 - pa));
        o->correct_b[t] = (float)(1.0 / (1.0 - pb));
    }
    return FLEET_OK;
}

fleet_status fl_optimizer_check_numbers(fl_rule_kind kind,
                                        const float number[FL_MAX_NUMBER])
{
    const float *g0 = &number[FL_AT_ROWWISE_ADAGRAD_initial_g2sum];
    const float *epsilon = &number[FL_AT_ROWWISE_ADAGRAD_epsilon];

    if (kind != FL_RULE_ROWWISE_ADAGRAD || !(*g0 > 0) || *epsilon == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "rowwise_adagrad: epsilon %g beside initial_g2sum %g, whose "
                   "form has no epsilon: expected one of them",
                   (double)*epsilon, (double)*g0);
}

static fleet_status set_numbers(fleet_optimizer *o, const float *number)
{
    const fl_rule *rule = fl_rule_of(o->kind);

    FL_TRY(fl_optimizer_check_numbers(o->kind, number));
    for (int i = 0; i < FL_MAX_NUMBER; i++) {
        const fl_rule_number *n = &rule->number[i];

        if (!n->name)
            continue;
        o->number[i] = number[i] != 0.0f ? number[i] : n->otherwise;
        if (!n->flag && !(o->number[i] >= 0 && (double)o->number[i] < n->below))
            return out_of_range(n->name, (double)o->number[i]);
    }
    return fl_rule_has_moments(o->kind) ? fill_corrections(o) : FLEET_OK;
}

fleet_optimizer *fl_optimizer_create(fl_context *context, fl_rule_kind kind,
                                     float learning_rate,
                                     const float number[FL_MAX_NUMBER])
{
    fleet_optimizer *o;

    if (!(learning_rate > 0) || !isfinite(learning_rate)) {
        fl_fail(FLEET_EINVAL, "%s: the learning rate %g is not positive",
                fl_rule_of(kind)->name, (double)learning_rate);
        return NULL;
    }
    o = fl_alloc(sizeof *o);
    if (!o)
        return NULL;
    o->context = context;
    o->kind = kind;
    o->learning_rate = o->first_rate = learning_rate;
    if (set_numbers(o, number) == FLEET_OK)
        return o;
    fl_optimizer_destroy(o);
    return NULL;
}

void fl_optimizer_destroy(fleet_optimizer *o)
{
    if (!o)
        return;
    fl_schedule_done(&o->schedule);
    fl_free(o->correct_a);
    fl_free(o->correct_b);
    for (size_t i = 0; i < o->n_own; i++)
        fl_free(o->own[i].name);
    fl_free(o->own);
    fl_free(o);
}

bool fl_optimizer_has_moments(const fleet_optimizer *o)
{
    return fl_rule_has_moments(o->kind);
}

bool fl_optimizer_has_row_steps(const fleet_optimizer *o)
{
    return fl_optimizer_has_moments(o) && FL_NUMBER_OF(o, ADAM, row_steps) != 0;
}

void fl_optimizer_update(const fleet_optimizer *o, int64_t done, int batches,
                         fl_update *u)
{
    uint32_t t = done + 1 < (int64_t)o->n_correct ? (uint32_t)(done + 1)
                                                  : o->n_correct - 1;

    *u = (fl_update){
        .lr = fl_schedule_rate(&o->schedule, o->learning_rate, done),
        .scale = 1.0f / (float)batches,
        .mean = 1.0f / (float)batches,
        .clip = 1.0f,
        .decay = o->l2_decay,
        .most = o->value_clip,
        .l1 = o->l1_decay,
        .correct_a = o->n_correct ? o->correct_a[t] : 1.0f,
        .correct_b = o->n_correct ? o->correct_b[t] : 1.0f,
        .version = (uint64_t)done + 1,
    };
    memcpy(u->number, o->number, sizeof u->number);
    if (fl_optimizer_has_row_steps(o)) {
        u->correct_a_at = o->correct_a;
        u->correct_b_at = o->correct_b;
        u->n_correct = o->n_correct;
    }
}

static fleet_status check_rate(const fleet_optimizer *o, int64_t done)
{
    float rate;

    if (o->kind != FL_RULE_FTRL)
        return FLEET_OK;
    rate = fl_schedule_rate(&o->schedule, o->learning_rate, done);
    if (rate >= FLT_MIN)
        return FLEET_OK;
    return fl_fail(FLEET_ENUMERIC,
                   "ftrl: the learning rate of update %" PRId64
                   ", by which it divides, is %g: expected one from %g on",
                   done + 1, (double)rate, (double)FLT_MIN);
}

fleet_status fl_optimizer_check_rates(const fleet_optimizer *o, int64_t done)
{
    FL_TRY(check_rate(o, done));
    for (size_t i = 0; i < o->n_own; i++)
        FL_TRY(check_rate(o->own[i].optimizer, done));
    return FLEET_OK;
}

fl_update_rates fl_update_rates_of(const fleet_param_attr *a)
{
    return (fl_update_rates){
        a->learning_rate > 0 ? a->learning_rate : 1.0f,
        a->no_decay       ? 0
        : a->l2_decay > 0 ? a->l2_decay
                          : -1.0f,
        a->average,
    };
}

fl_update fl_update_with(const fl_update *u, const fleet_param_attr *attr)
{
    const fl_update_rates rates = fl_update_rates_of(attr);
    fl_update own = *u;

    fl_update_change(&own, &rates);
    return own;
}

fl_rule_dense *fl_optimizer_dense(const fleet_optimizer *o,
                                  const fleet_param_attr *attr)
{
    const fl_update_rates rates = fl_update_rates_of(attr);

    return fl_rule_set_best()->of[fl_rule_with(o->kind, &rates)].dense;
}

fl_rule_rows *fl_optimizer_rows(const fleet_optimizer *o)
{
    return fl_rule_set_best()->of[o->kind].rows;
}

void fl_optimizer_resume_plateau(fleet_optimizer *o, const fl_plateau_state *s)
{
    if (!o->plateau.on || (s->reports == 0 && o->plateau.seen.reports == 0))
        return;
    o->plateau.seen = *s;
    o->learning_rate = s->reports > 0 ? s->learning_rate : o->first_rate;
}

/* --- settings ------------------------------------------------------------ */

fleet_status fl_optimizer_check_setter(const fleet_optimizer *o,
                                       const char *call)
{
    if (!o)
        return fl_fail(FLEET_EINVAL, "%s: no optimizer", call);
    if (o->serves)
        return fl_fail(FLEET_ESTATE,
                       "%s: the workers say how this server updates: call it "
                       "before fleet_init_server()",
                       call);
    if (o->n_user > 0 && o->is_fixed)
        return fl_fail(FLEET_ESTATE,
                       "%s: the optimizer of a table or of a group is set "
                       "before fleet_minimize(): it is one for the whole "
                       "training",
                       call);
    if (o->passes > 0)
        return fl_fail(
            FLEET_ESTATE,
            "%s: a pass over a dataset is under way: call it between "
            "two passes",
            call);
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_l2_decay(fleet_optimizer *o, float decay)
{
    FL_TRY(fl_optimizer_check_setter(o, "fleet_optimizer_set_l2_decay"));
    if (!(decay >= 0) || !isfinite(decay))
        return out_of_range("l2_decay", (double)decay);
    o->l2_decay = decay;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_l1_decay(fleet_optimizer *o, float decay)
{
    FL_TRY(fl_optimizer_check_setter(o, "fleet_optimizer_set_l1_decay"));
    if (!(decay >= 0) || !isfinite(decay))
        return out_of_range("l1_decay", (double)decay);
    o->l1_decay = decay;
    return FLEET_OK;
}

/* What a plan was made for stays. */
fleet_status fleet_optimizer_set_value_clip(fleet_optimizer *o, float most)
{
    FL_TRY(fl_optimizer_check_setter(o, "fleet_optimizer_set_value_clip"));
    if (!(most > 0) || !isfinite(most))
        return out_of_range("value clip", (double)most);
    if (o->in_use && o->value_clip <= 0)
        return fl_fail(FLEET_ESTATE, "fleet_optimizer_set_value_clip: a "
                                     "training without it has begun");
    o->value_clip = most;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_global_norm_clip(fleet_optimizer *o,
                                                  float norm)
{
    FL_TRY(
        fl_optimizer_check_setter(o, "fleet_optimizer_set_global_norm_clip"));
    if (o->n_user > 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_optimizer_set_global_norm_clip: the norm is that "
                       "of all gradients: set it on the optimizer that is "
                       "minimized, not on a table's or a group's");
    if (!(norm > 0) || !isfinite(norm))
        return out_of_range("global norm", (double)norm);
    if (o->norm_clip > 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_optimizer_set_global_norm_clip: the optimizer "
                       "clips by norm: expected one of them");
    if (o->in_use && o->clip_norm <= 0)
        return fl_fail(FLEET_ESTATE, "fleet_optimizer_set_global_norm_clip: a "
                                     "training without it has begun");
    o->clip_norm = norm;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_norm_clip(fleet_optimizer *o, float norm)
{
    static const char call[] = "fleet_optimizer_set_norm_clip";

    FL_TRY(fl_optimizer_check_setter(o, call));
    if (o->is_fixed)
        return fl_fail(FLEET_ESTATE, "%s: call it before fleet_minimize()",
                       call);
    if (o->n_user > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: set it on the optimizer that is minimized, not on "
                       "a table's or a group's: it clips their gradients, too",
                       call);
    if (!(norm > 0) || !isfinite(norm))
        return out_of_range("norm", (double)norm);
    if (o->clip_norm > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: the optimizer clips by global norm: expected one "
                       "of them",
                       call);
    o->norm_clip = norm;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_row_bounds(fleet_optimizer *o, float low,
                                            float high)
{
    FL_TRY(fl_optimizer_check_setter(o, "fleet_optimizer_set_row_bounds"));
    if (o->is_fixed)
        return fl_fail(FLEET_ESTATE, "fleet_optimizer_set_row_bounds: call it "
                                     "before fleet_minimize()");
    if (o->n_group > 0)
        return fl_fail(FLEET_EINVAL, "fleet_optimizer_set_row_bounds: the "
                                     "optimizer is a group's, which has no "
                                     "rows");
    if (!(low < high) || !isfinite(low) || !isfinite(high))
        return fl_fail(FLEET_EINVAL,
                       "row bounds: expected a number and a larger one, got %g "
                       "and %g",
                       (double)low, (double)high);
    o->bounds = true;
    o->low = low;
    o->high = high;
    return FLEET_OK;
}
