/* validation.c - the validation files, evaluated with the weights of now. */
#include "fleet/config/validation.h"

#include <math.h>

#include "base/clock.h"
#include "base/text.h"
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
    fl_text text = {0};

    add_number(&text, "loss", e->loss);
    add_number(&text, "auc", e->auc);
    add_number(&text, "logloss", e->logloss);
    add_number(&text, "accuracy", e->accuracy);
    FL_INFO(&t->f->context.log, "validation in epoch %lld, step %lld: %s",
            (long long)t->epoch, (long long)t->seen.step, fl_text_chars(&text));
    fl_text_done(&text);
}

fleet_status fl_validation_run(fl_config_run *t)
{
    fl_run_state *seen = &t->seen;

    FL_TRY(fleet_executor_flush(t->trainer)); /* a GPU is still at it */
    FL_TRY(fleet_evaluate(t->tester, t->validated, &t->model, &seen->newest));
    seen->since = 0;
    seen->n_validation++;
    log_numbers(t, &seen->newest);
    return FLEET_OK;
}
