/* config_watch.c - what of the configuration says how a training is watched. */
#include "fleet/config/config_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "fleet/watch/metric_log.h"

static const char *const metric_names[] = {"loss", "auc", "logloss", "accuracy",
                                           NULL};

void fl_config_metric_name(const fl_config *c, char name[FL_RANKING_NAME])
{
    if (c->metric == FL_METRIC_RANKING)
        fl_ranking_name(&c->ranking[c->judge], name);
    else
        snprintf(name, FL_RANKING_NAME, "%s", metric_names[c->metric]);
}

/* --- metrics of retrieval ------------------------------------------------- */

/* Files of items are read in each evaluation. */
static fleet_status check_items(const fl_config *c, const fl_at *root)
{
    fl_at dataset = fl_at_key(root, "dataset");
    fl_at items = fl_at_key(&dataset, "items");

    if (c->n_ranking == 0)
        return items.json ? fl_at_expected(&items, "nothing: there are no "
                                                   "`metrics` of items")
                          : FLEET_OK;
    if (!items.json && fl_config_has_stdin(c->train, c->n_train))
        return fl_at_expected(&items, "files: `metrics` are of all items, and "
                                      "train is standard input");
    return FLEET_OK;
}

static fleet_status read_metric_name(fl_config *c, const fl_at *at)
{
    fleet_ranking *to = &c->ranking[c->n_ranking];
    const char *name = "";

    FL_TRY(fl_at_string(at, &name));
    if (!fl_ranking_parse(name, to))
        return fl_at_expected(at, "\"recall@K\" or \"ndcg@K\", K from 1 to "
                                  "1000000");
    for (int i = 0; i < c->n_ranking; i++)
        if (c->ranking[i].kind == to->kind && c->ranking[i].k == to->k)
            return fl_at_expected(at, "each of them once");
    c->n_ranking++;
    return FLEET_OK;
}

fleet_status fl_config_read_metrics(fl_config *c, const fl_at *root)
{
    fl_at list = fl_at_key(root, "metrics");

    FL_TRY(fl_at_array(&list));
    if (fl_at_count(&list) > FLEET_MOST_RANKINGS)
        return fl_at_expected(&list, "at most 8 metrics");
    for (fl_at one = fl_at_first(&list); one.json; fl_at_next(&list, &one))
        FL_TRY(read_metric_name(c, &one));
    if (c->n_ranking > 0 && c->n_test == 0 && c->n_validation == 0)
        return fl_at_expected(&list, "nothing: there are no files of "
                                     "dataset.test or dataset.validation");
    return check_items(c, root);
}

/* --- validations ---------------------------------------------------------- */

static bool take_metric(fl_config *c, const char *is)
{
    char name[FL_RANKING_NAME];

    for (int i = 0; metric_names[i]; i++)
        if (strcmp(is, metric_names[i]) == 0) {
            c->metric = (fl_metric_kind)i;
            return true;
        }
    for (int i = 0; i < c->n_ranking; i++) {
        fl_ranking_name(&c->ranking[i], name);
        if (strcmp(is, name) == 0) {
            c->metric = FL_METRIC_RANKING;
            c->judge = i;
            return true;
        }
    }
    return false;
}

/* One of the names, or of `metrics`. */
static fleet_status read_metric(fl_config *c, const fl_at *at)
{
    char name[FL_RANKING_NAME];
    fleet_status status;
    const char *is = NULL;
    fl_text names = {0};

    FL_TRY(fl_at_string(at, &is));
    if (!is || take_metric(c, is))
        return FLEET_OK;
    fl_text_add(&names, "one of \"loss\", \"auc\", \"logloss\", "
                        "\"accuracy\"");
    for (int i = 0; i < c->n_ranking; i++) {
        fl_ranking_name(&c->ranking[i], name);
        fl_text_add(&names, ", \"%s\"", name);
    }
    if (c->n_ranking == 0)
        fl_text_add(&names, ", or of `metrics`, which has none");
    status = fl_at_expected(at, fl_text_chars(&names));
    fl_text_done(&names);
    return status;
}

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

    FL_TRY(fl_at_keys(at, keys));
    c->validates = at->json;
    FL_TRY(read_metric(c, &metric));
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

/* A CSV's. */
static fleet_status name_columns(fl_config *c)
{
    char name[FL_RANKING_NAME];
    fl_text text = {0};

    fl_text_add(&text, "%s", fl_metric_columns);
    for (int i = 0; i < c->n_ranking; i++) {
        fl_ranking_name(&c->ranking[i], name);
        fl_text_add(&text, ",validation_%s", name);
    }
    c->metrics_columns = fl_arena_strdup(&c->arena, fl_text_chars(&text));
    fl_text_done(&text);
    return c->metrics_columns ? FLEET_OK : FLEET_ENOMEM;
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
    return which == 1 ? name_columns(c) : FLEET_OK;
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
