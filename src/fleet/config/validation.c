/* validation.c - the validation files, evaluated with the weights of now. */
#include "fleet/config/validation.h"

#include <math.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/config/config_internal.h"
#include "fleet/config/models.h"
#include "fleet/config/run_state.h"
#include "fleet/job/dataset.h"
#include "fleet/job/extra.h"
#include "fleet/job/stop.h"
#include "fleet/save/load.h"
#include "runtime/exec/executor.h"

bool fl_validation_due(const fl_config_run *t)
{
    return t->validated && t->c->validate_steps > 0 &&
           t->seen.since >= t->c->validate_steps && t->trainer->micro == 0;
}

static void add_number(fl_text *text, const char *name, double x)
{
    if (isfinite(x))
        fl_text_add(text, "%s%s %.6g", text->length > 0 ? ", " : "", name, x);
}

static void log_numbers(const fl_config_run *t, const fleet_evaluation *e)
{
    char name[FL_RANKING_NAME];
    fl_text text = {0};

    add_number(&text, "loss", e->loss);
    add_number(&text, "auc", e->auc);
    add_number(&text, "logloss", e->logloss);
    add_number(&text, "accuracy", e->accuracy);
    for (int i = 0; i < e->n_ranking; i++) {
        fl_ranking_name(&e->ranking[i], name);
        add_number(&text, name, e->ranking[i].value);
    }
    FL_INFO(&t->f->context.log, "validation in epoch %lld, step %lld: %s",
            (long long)t->epoch, (long long)t->seen.step, fl_text_chars(&text));
    fl_text_done(&text);
}

/* --- judged --------------------------------------------------------------- */

static double number_of(const fleet_evaluation *e, const fl_config *c)
{
    switch (c->metric) {
    case FL_METRIC_LOSS:
        return e->loss;
    case FL_METRIC_AUC:
        return e->auc;
    case FL_METRIC_LOGLOSS:
        return e->logloss;
    case FL_METRIC_ACCURACY:
        return e->accuracy;
    case FL_METRIC_RANKING:
        return e->ranking[c->judge].value;
    }
    return (double)NAN;
}

static bool is_better(const fl_config *c, double x, double than, double by)
{
    const bool larger =
        c->metric != FL_METRIC_LOSS && c->metric != FL_METRIC_LOGLOSS;

    return larger ? x > than + by : x < than - by;
}

/* The state in it is that of a training whose best one it is. Where the disk
 * refuses it the next one is compared with the best that is saved. */
static fleet_status save_best(fl_config_run *t, double x)
{
    const double before = t->seen.best;
    fleet_status status;

    t->seen.best = x;
    if (!t->c->save_best)
        return FLEET_OK;
    status = t->every.save(t, t->f, t->c->save_best);
    if (status == FLEET_OK)
        FL_INFO(&t->f->context.log, "the best one so far is saved to %s",
                t->c->save_best);
    if (status != FLEET_EIO && status != FLEET_EEXIST)
        return status;
    t->seen.best = before;
    FL_WARN(&t->f->context.log, "save_best: nothing is saved this time: %s",
            fleet_last_error());
    return FLEET_OK;
}

static fleet_status judge(fl_config_run *t)
{
    fl_run_state *seen = &t->seen;
    const fl_config *c = t->c;
    double x = number_of(&seen->newest, c);

    seen->bad++;
    if (isnan(seen->beats) || is_better(c, x, seen->beats, c->min_delta)) {
        seen->beats = x;
        seen->bad = 0;
    }
    if (isnan(seen->best) || is_better(c, x, seen->best, 0))
        FL_TRY(save_best(t, x));
    if (fl_validation_is_over(t))
        fl_stop_handle(t->f);
    return FLEET_OK;
}

fleet_status fl_validation_run(fl_config_run *t)
{
    fl_run_state *seen = &t->seen;
    fleet_status status;

    FL_TRY(fleet_executor_flush(t->trainer)); /* a GPU is still at it */
    status = fl_run_evaluate(t, t->validated, &seen->newest);
    if (status != FLEET_OK)
        return fl_fail_in(status, "validate_every");
    seen->since = 0;
    log_numbers(t, &seen->newest);
    return t->c->patience > 0 || t->c->save_best ? judge(t) : FLEET_OK;
}

static fleet_status check_ranking(const fl_config_run *t, const char *name)
{
    if (t->c->n_ranking > 0 && !(t->model.user && t->model.item))
        return fl_fail(FLEET_ECONFIG,
                       "metrics: expected nothing of model %s, which has no "
                       "vectors of users and items; gru4rec, sasrec, "
                       "two_tower, word2vec and youtube_dnn have",
                       t->c->model->name);
    if (!t->model.label && t->c->metric != FL_METRIC_LOSS &&
        t->c->metric != FL_METRIC_RANKING)
        return fl_fail(FLEET_ECONFIG,
                       "validate_every.metric: expected \"loss\" or one of "
                       "`metrics`, as there is no label, got \"%s\"",
                       name);
    return FLEET_OK;
}

fleet_status fl_validation_check(const fl_config_run *t)
{
    const fleet_var *p = t->model.prediction;
    int64_t classes = fl_shape_cols(&p->shape);
    char name[FL_RANKING_NAME];

    fl_config_metric_name(t->c, name);
    FL_TRY(check_ranking(t, name));
    if ((t->c->metric == FL_METRIC_AUC || t->c->metric == FL_METRIC_LOGLOSS) &&
        classes > 2)
        return fl_fail(FLEET_ECONFIG,
                       "validate_every.metric: expected \"loss\" or "
                       "\"accuracy\" of %lld classes, got \"%s\", which is of "
                       "two",
                       (long long)classes, name);
    return FLEET_OK;
}

/* --- a training that goes on, and one that ends --------------------------- */

static fleet_status take_best(void *arg, fl_saved *s)
{
    fl_at root = fl_at_root(s->manifest), at = fl_at_key(&root, "extra");
    fleet_status status;
    size_t size;
    void *extra;

    FL_TRY(fl_extra_read(&at, &extra, &size));
    status = extra ? fl_run_state_read(extra, size, arg) : FLEET_OK;
    fl_free(extra);
    return status;
}

/* The best save outlives a process; one that is damaged is none. */
static fleet_status find_best(const fl_config_run *t, fl_run_state *best)
{
    fleet_status status;

    if (!t->c->save_best || !fleet_is_first_worker(t->f))
        return FLEET_OK;
    status = fl_saved_use(t->c->save_best, "checkpoint", take_best, best);
    if (status != FLEET_ENOENT && status != FLEET_ECORRUPT)
        return status;
    fl_error_clear();
    return FLEET_OK;
}

/* A process that was started again behind the last batch of a pass does again
 * what came at its end. What the best save was better than, if it is of that
 * end, is not known: it is better once more, and the same call to servers. */
static bool comes_again(const fl_config_run *t, const fl_run_state *best)
{
    return t->train->at.batch > 0 && best->pass > t->train->at.pass;
}

/* Of a checkpoint: 1 and more; of a ranking with its k. */
static int64_t number_of_metric(const fl_config *c)
{
    const fleet_ranking *r = &c->ranking[c->judge];

    return c->metric == FL_METRIC_RANKING
               ? 16 * r->k + FL_METRIC_RANKING + 1 + (int64_t)r->kind
               : (int64_t)c->metric + 1;
}

fleet_status fl_validation_go_on(fl_config_run *t, bool known)
{
    const int64_t metric = number_of_metric(t->c);
    fl_run_state best = {.metric = 0};

    if (!known && (t->train->at.pass > 0 || t->train->at.batch > 0)) {
        FL_TRY(find_best(t, &best));
        t->seen.metric = comes_again(t, &best) ? 0 : best.metric;
        t->seen.best = best.best;
        t->seen.beats = best.beats;
    }
    if (t->c->save_best && !fl_file_exists(t->c->save_best))
        t->seen.best = (double)NAN; /* the next number is the best save's */
    if (t->seen.metric != metric) {
        t->seen.best = t->seen.beats = (double)NAN;
        t->seen.bad = 0;
    }
    t->seen.metric = metric;
    return FLEET_OK;
}

bool fl_validation_is_over(const fl_config_run *t)
{
    return t->c->patience > 0 && t->seen.bad >= t->c->patience;
}

static void log_end(const fl_config_run *t)
{
    char name[FL_RANKING_NAME];

    fl_config_metric_name(t->c, name);
    if (!fleet_is_first_worker(t->f)) {
        FL_INFO(&t->f->context.log,
                "stopped early in epoch %lld, step %lld, by the first worker",
                (long long)t->epoch, (long long)t->seen.step);
        return;
    }
    FL_INFO(&t->f->context.log,
            "stopped early in epoch %lld, step %lld: in %lld validations in a "
            "row %s was no better than %.6g",
            (long long)t->epoch, (long long)t->seen.step,
            (long long)t->seen.bad, name, t->seen.beats);
}

fleet_status fl_validation_agree(fl_config_run *t, bool *over)
{
    double x = fleet_is_first_worker(t->f) && fl_validation_is_over(t);

    *over = false;
    if (t->c->patience == 0)
        return FLEET_OK;
    FL_TRY(fleet_metrics_max(t->f, &x, 1));
    *over = x > 0;
    if (*over)
        log_end(t);
    return FLEET_OK;
}
