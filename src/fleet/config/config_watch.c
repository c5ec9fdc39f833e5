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

static bool is_named_csv(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && strcmp(path + n - 4, ".csv") == 0;
}

/* By the path's name, unless it is said. */
static fleet_status read_log_path(fl_config *c, const fl_at *path,
                                  const fl_at *format)
{
    static const char *const formats[] = {"json", "csv", NULL};
    int which;

    FL_TRY(fl_config_path(path, &c->metrics_log));
    if (!c->metrics_log)
        return format->json ? fl_at_expected(format, "nothing: there is no "
                                                     "path")
                            : FLEET_OK;
    which = is_named_csv(c->metrics_log);
    FL_TRY(fl_at_choice(format, formats, &which));
    c->metrics_csv = which == 1;
    return FLEET_OK;
}

/* A path, or an object with it. */
static fleet_status read_metrics_log(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {
        "path", "steps", "format", "tensorboard", "histogram_steps", NULL};
    const bool is_path = !at->json || fl_at_is_string(at);
    fl_at path = is_path ? *at : fl_at_key(at, "path");
    fl_at steps = fl_at_key(at, "steps"), format = fl_at_key(at, "format");
    fl_at events = fl_at_key(at, "tensorboard");
    fl_at histograms = fl_at_key(at, "histogram_steps");

    if (is_path)
        return read_log_path(c, &path, &format);
    if (!fl_at_is_object(at))
        return fl_at_expected(at, "a string or an object");
    FL_TRY(fl_at_keys(at, keys));
    if (!events.json)
        FL_TRY(fl_at_required(&path));
    FL_TRY(read_log_path(c, &path, &format));
    FL_TRY(fl_config_path(&events, &c->tensorboard));
    FL_TRY(fl_at_int(&histograms, 1, FL_MOST_EXACT, &c->histogram_steps));
    if (histograms.json && !c->tensorboard)
        return fl_at_expected(&histograms, "nothing: there is no tensorboard");
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
