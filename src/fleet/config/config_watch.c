/* config_watch.c - what of the configuration says how a training is watched. */
#include "fleet/config/config_internal.h"

#include <string.h>

const char *const fl_metric_names[] = {"loss", "auc", "logloss", "accuracy",
                                       NULL};

/* What nothing asks for is a mistake. */
static fleet_status check_judging(const fl_config *c, const fl_at *at)
{
    fl_at metric = fl_at_key(at, "metric"), delta = fl_at_key(at, "min_delta");
    fl_at best = fl_at_key(at, "save_best");

    if (metric.json && c->patience == 0 && !c->save_best)
        return fl_at_expected(&metric,
                              "nothing: there is no patience or save_best");
    if (delta.json && c->patience == 0)
        return fl_at_expected(&delta, "nothing: there is no patience");
    if (c->save_best && c->save && strcmp(c->save_best, c->save) == 0)
        return fl_at_expected(&best, "another folder than that of `save`");
    if (c->save_best && c->save_every.folder &&
        strcmp(c->save_best, c->save_every.folder) == 0)
        return fl_at_expected(&best, "another folder than that of the "
                                     "checkpoints of `save_every`");
    return FLEET_OK;
}

static fleet_status read_validate_every(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"steps",     "metric",    "patience",
                                       "min_delta", "save_best", NULL};
    fl_at steps = fl_at_key(at, "steps"), metric = fl_at_key(at, "metric");
    fl_at patience = fl_at_key(at, "patience");
    fl_at delta = fl_at_key(at, "min_delta");
    fl_at best = fl_at_key(at, "save_best");
    int which = FL_METRIC_LOSS;

    FL_TRY(fl_at_keys(at, keys));
    c->validates = at->json;
    FL_TRY(fl_at_choice(&metric, fl_metric_names, &which));
    c->metric = (fl_metric_kind)which;
    FL_TRY(fl_at_int(&patience, 1, FL_MOST_EXACT, &c->patience));
    FL_TRY(fl_at_double(&delta, 0, 1e9, &c->min_delta));
    FL_TRY(fl_config_path(&best, &c->save_best));
    FL_TRY(check_judging(c, at));
    return fl_at_int(&steps, 1, FL_MOST_EXACT, &c->validate_steps);
}

/* A path, or an object with it. */
static fleet_status read_metrics_log(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"path", "steps", NULL};
    fl_at path = fl_at_key(at, "path"), steps = fl_at_key(at, "steps");

    if (!at->json || fl_at_is_string(at))
        return fl_config_path(at, &c->metrics_log);
    if (!fl_at_is_object(at))
        return fl_at_expected(at, "a string or an object");
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_required(&path));
    FL_TRY(fl_config_path(&path, &c->metrics_log));
    return fl_at_int(&steps, 1, FL_MOST_EXACT, &c->metrics_steps);
}

/* Files that nothing reads are a mistake, and so is a validation of none. */
static fleet_status check_files(const fl_config *c, const fl_at *root)
{
    fl_at dataset = fl_at_key(root, "dataset");
    fl_at files = fl_at_key(&dataset, "validation");

    if (files.json && !c->validates)
        return fl_at_expected(&files, "nothing: there is no `validate_every`");
    if (c->validates && c->n_validation == 0 && c->n_test == 0)
        return fl_at_expected(&files, "files: `validate_every` evaluates them, "
                                      "or those of `test`");
    return FLEET_OK;
}

fleet_status fl_config_read_watch(fl_config *c, const fl_at *root)
{
    fl_at every = fl_at_key(root, "validate_every");
    fl_at lines = fl_at_key(root, "metrics_log");

    FL_TRY(read_validate_every(c, &every));
    FL_TRY(read_metrics_log(c, &lines));
    return check_files(c, root);
}
