/* inference.c - inference models and the predictor. */
#include "fleet/inference_internal.h"

#include <string.h>

#include <fleet/executor.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/checkpoint.h"
#include "fleet/job/dataset.h"
#include "fleet/job/handle.h"
#include "fleet/save/load_into.h"
#include "fleet/train/slot_fits.h"
#include "fleet/save/manifest.h"
#include "ops/ops.h"
#include "runtime/exec/executor.h"
#include "runtime/store/table.h"
#include "runtime/graph/program_json.h"

/* --- saving --------------------------------------------------------------- */

static fleet_status check_fetch(fleet *f, fleet_var *const *fetch, int n)
{
    if (!fetch || n < 1)
        return fl_fail(FLEET_EINVAL, "inference model: nothing to fetch");
    for (int i = 0; i < n; i++)
        if (!fetch[i] || fetch[i]->program != fetch[0]->program ||
            fetch[i]->program->context != &f->context ||
            fetch[i]->kind != FL_VAR_TEMP)
            return fl_fail(FLEET_EINVAL,
                           "inference model: fetch[%d] is not computed by the "
                           "program",
                           i);
    return fleet_program_status(fetch[0]->program);
}

/* What the pruned program reads must be fed, and nothing else. */
static fleet_status check_feeds(const fleet_program *p, const bool *marked,
                                fleet_var *const *feed, int n_feed)
{
    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; marked[i] && j < p->node[i]->n_in; j++) {
            const fleet_var *v = p->node[i]->in[j];
            bool fed = !v || v->kind != FL_VAR_DATA;

            for (int k = 0; k < n_feed; k++)
                fed = fed || feed[k] == v;
            if (!fed)
                return fl_fail(FLEET_ENOENT,
                               "inference model: the result depends on \"%s\", "
                               "which is not among the feeds",
                               v->name);
        }
    return FLEET_OK;
}

bool fl_inference_reads(const fleet_program *p, const bool *marked,
                        const char *name)
{
    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; marked[i] && j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j] && strcmp(p->node[i]->in[j]->name, name) == 0)
                return true;
    return false;
}

static fleet_status put_names(fl_json *object, const char *key,
                              fleet_var *const *v, int n)
{
    fl_json *list = fl_json_array();

    FL_TRY(fl_json_put(object, key, list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_string(v[i]->name)));
    return FLEET_OK;
}

typedef struct model {
    fleet *f;
    const fleet_inference_options *o;
    const char *path;
    fleet_var *const *feed, *const *fetch;
    int n_feed, n_fetch;
} model;

/* The pruned program, with what is fed and fetched. */
static fleet_status program_json(const model *m, fl_json **program)
{
    fleet_status status;

    FL_TRY(fl_program_to_json(m->fetch[0]->program, m->fetch, m->n_fetch,
                              program));
    status = put_names(*program, "feed", m->feed, m->n_feed);
    if (status == FLEET_OK)
        status = put_names(*program, "fetch", m->fetch, m->n_fetch);
    if (status != FLEET_OK) {
        fl_json_free(*program);
        *program = NULL;
    }
    return status;
}

/* Weights come with their ids. */
static fleet_status check_slot_of(const fleet_dataset *d, const fleet_var *v)
{
    const char *name = v->weighs ? v->weighs->name : v->name;

    for (int i = 0; i < d->n_slot; i++)
        if (strcmp(d->slots[i].name, name) == 0)
            return v->weighs ? FLEET_OK : fl_slot_fits(&d->slots[i], v);
    return fl_fail(FLEET_ENOENT,
                   "inference model: no slot of the dataset feeds \"%s\"",
                   name);
}

static fleet_status check_dataset(const model *m)
{
    const fleet_dataset *d = m->o->dataset;
    bool found = !m->o->label;

    if (d->fleet != m->f)
        return fl_fail(FLEET_EINVAL,
                       "inference model: the dataset is another handle's");
    if (d->n_slot == 0)
        return fl_fail(FLEET_ESTATE, "inference model: the dataset has no "
                                     "files, which say what its slots are");
    for (int i = 0; i < m->n_feed; i++)
        FL_TRY(check_slot_of(d, m->feed[i]));
    for (int i = 0; i < d->n_slot && !found; i++)
        found = strcmp(d->slots[i].name, m->o->label) == 0;
    return found ? FLEET_OK
                 : fl_fail(FLEET_ENOENT,
                           "inference model: the dataset has no slot \"%s\", "
                           "for a label",
                           m->o->label);
}

/* How the lines are read, and what they are standardized by. */
static fleet_status reader_json(const model *m, fl_json **reader,
                                fl_json **statistics)
{
    fleet_dataset *d = m->o ? m->o->dataset : NULL;

    if (!d)
        return fl_statistics_of(m->f, statistics);
    FL_TRY(check_dataset(m));
    FL_TRY(fl_dataset_need_statistics(d));
    FL_TRY(fl_reading_save(d, m->o->label, reader));
    return d->has_statistics ? fl_statistics_save(&d->statistics, statistics)
                             : FLEET_OK;
}

static fleet_status save_marked(const model *m, bool *marked)
{
    const fleet_program *p = m->fetch[0]->program;
    fl_json *program, *statistics = NULL, *reader = NULL;
    fl_save s = {.what = "inference"};
    fleet_status status;

    fl_program_mark(p, m->fetch, m->n_fetch, marked);
    FL_TRY(check_feeds(p, marked, m->feed, m->n_feed));
    FL_TRY(fl_store_add(m->f->store, p));
    FL_TRY(program_json(m, &program));
    status = reader_json(m, &reader, &statistics);
    s.program = program;
    s.reader = reader;
    s.statistics = statistics;
    if (status == FLEET_OK)
        status = fl_checkpoint_write(m->f, &s, p, marked, m->path);
    fl_json_free(statistics);
    fl_json_free(reader);
    fl_json_free(program);
    return status;
}

/* Into out, of FLEET_MOST_TASKS + 3; returns their number. */
static int predictions_of(const fleet_model *m, fleet_var **out)
{
    int n = 0;

    for (int i = 0; i < m->n_task; i++)
        out[n++] = m->task[i].prediction;
    if (n == 0)
        out[n++] = m->prediction;
    if (m->conversion)
        out[n++] = m->conversion;
    if (m->user)
        out[n++] = m->user;
    if (m->item)
        out[n++] = m->item;
    return n;
}

fleet_status fl_prediction_json(const fleet_model *of, fl_json **json)
{
    const fleet_program *p = of->prediction->program;
    fleet_var **feed = fl_alloc_array(p->n_var, sizeof *feed);
    fleet_var *fetch[FLEET_MOST_TASKS + 3];
    bool *marked = fl_alloc(p->n_node);
    fleet_status status = FLEET_ENOMEM;
    model m = {.feed = feed, .fetch = fetch};

    m.n_fetch = predictions_of(of, fetch);
    if (feed && marked) {
        fl_program_mark(p, fetch, m.n_fetch, marked);
        for (size_t i = 0; i < p->n_var; i++)
            if (p->var[i]->kind == FL_VAR_DATA &&
                fl_inference_reads(p, marked, p->var[i]->name))
                feed[m.n_feed++] = p->var[i];
        status = program_json(&m, json);
    }
    fl_free(feed);
    fl_free(marked);
    return status;
}

static fleet_status save_model(const model *m, const char *call)
{
    fleet_var *const *feed = m->feed, *const *fetch = m->fetch;
    const int n_feed = m->n_feed, n_fetch = m->n_fetch;
    fleet *f = m->f;
    fleet_status status;
    bool *marked;

    FL_TRY(fl_handle_check_worker(f, call));
    if (!fl_checkpoint_is_mine(f, call))
        return FLEET_OK;
    if (n_feed < 0 || (n_feed > 0 && !feed))
        return fl_fail(FLEET_EINVAL, "inference model: no feeds");
    for (int i = 0; i < n_feed; i++)
        if (!feed[i] || feed[i]->kind != FL_VAR_DATA)
            return fl_fail(FLEET_EINVAL,
                           "inference model: feed[%d] is not a data variable",
                           i);
    FL_TRY(check_fetch(f, fetch, n_fetch));
    FL_TRY(FL_NEW(&marked, fetch[0]->program->n_node));
    status = save_marked(m, marked);
    fl_free(marked);
    return status;
}

fleet_status fleet_save_inference_model(fleet *f, const char *path,
                                        fleet_var *const *feed, int n_feed,
                                        fleet_var *const *fetch, int n_fetch)
{
    const model m = {f, NULL, path, feed, fetch, n_feed, n_fetch};

    return save_model(&m, "fleet_save_inference_model");
}

fleet_status fleet_save_inference_model_with(fleet *f, const char *path,
                                             fleet_var *const *feed, int n_feed,
                                             fleet_var *const *fetch,
                                             int n_fetch,
                                             const fleet_inference_options *o)
{
    const model m = {f, o, path, feed, fetch, n_feed, n_fetch};

    return save_model(&m, "fleet_save_inference_model_with");
}

/* --- the predictor -------------------------------------------------------- */

static fleet_status read_vars(const fleet_program *p, const fl_at *at,
                              fl_var_kind kind, fleet_var ***v, int *n)
{
    if (!fl_at_is_array(at))
        return fl_at_expected(at, "names of variables");
    FL_TRY(FL_NEW(v, (size_t)fl_at_count(at) * sizeof **v));
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        const char *name = "";
        fleet_var *found;

        FL_TRY(fl_at_string(&e, &name));
        found = fleet_program_var(p, name);
        if (!found || found->kind != kind)
            return fl_fail(FLEET_ECONFIG, "%s: no such variable", e.path);
        (*v)[(*n)++] = found;
    }
    return FLEET_OK;
}

static void forget_model(fleet_predictor *p)
{
    fl_program_free(p->program);
    fl_store_destroy(p->store);
    fl_free(p->input);
    fl_free(p->output);
    fl_reading_done(&p->reading);
    p->program = NULL;
    p->store = NULL;
    p->input = p->output = NULL;
    p->n_input = p->n_output = 0;
}

static fleet_status no_program(const fl_saved *s)
{
    fl_at root = fl_at_root(s->manifest);
    const char *what = "";

    FL_TRY(fl_manifest_text(&root, "what", &what));
    return fl_fail(FLEET_EINVAL,
                   "%s has no program to predict with: what was saved is "
                   "\"%s\"; expected \"inference\", by "
                   "fleet_save_inference_model()",
                   s->folder.path, what);
}

static fleet_status read_model(void *arg, fl_saved *s)
{
    fleet_predictor *p = arg;
    fl_at root = fl_at_root(s->manifest), at = fl_at_key(&root, "program");
    fl_at feed = fl_at_key(&at, "feed"), fetch = fl_at_key(&at, "fetch");
    fl_at reader = fl_at_key(&root, "reader");
    fl_at statistics = fl_at_key(&root, "statistics");

    if (!at.json)
        return no_program(s);
    forget_model(p);
    p->context.seed = s->seed;
    FL_TRY(fl_store_create(&p->context, fl_table_make, &p->store));
    p->program = fl_program_create(&p->context, p->store);
    if (!p->program)
        return FLEET_ENOMEM;
    p->program->predicts = true;
    FL_TRY(fl_program_from_json(p->program, &at, fl_op_find));
    FL_TRY(read_vars(p->program, &feed, FL_VAR_DATA, &p->input, &p->n_input));
    FL_TRY(
        read_vars(p->program, &fetch, FL_VAR_TEMP, &p->output, &p->n_output));
    FL_TRY(fl_store_add(p->store, p->program));
    if (reader.json)
        FL_TRY(fl_reading_load(&p->reading, &reader, &statistics));
    return fl_saved_apply(s, p->store, NULL, &(fl_load_how){0});
}

fleet_predictor *fleet_load_inference_model(const char *path)
{
    fleet_predictor *p = fl_alloc(sizeof *p);
    fleet_status status;

    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->may_run, NULL);
    pthread_cond_init(&p->may_change, NULL);
    fl_log_init(&p->context.log, NULL, NULL, FLEET_LOG_WARNING);
    status = fl_context_init(&p->context, 0, 1);
    p->context.survives_fork = true;
    if (status == FLEET_OK)
        status = fl_saved_use(path, NULL, read_model, p);
    if (status == FLEET_OK)
        return p;
    fleet_predictor_destroy(p);
    return NULL;
}

void fleet_predictor_destroy(fleet_predictor *p)
{
    if (!p)
        return;
    while (p->idle) {
        fl_spare_executor *next = p->idle->next;

        fleet_executor_destroy(p->idle->executor);
        fl_free(p->idle);
        p->idle = next;
    }
    for (int i = 0; i < FL_N_LABEL_USE; i++)
        if (p->scoring[i])
            p->close_scoring(p->scoring[i]);
    forget_model(p);
    fl_context_done(&p->context);
    fl_log_done(&p->context.log);
    fl_free(p->followed);
    pthread_cond_destroy(&p->may_run);
    pthread_cond_destroy(&p->may_change);
    pthread_mutex_destroy(&p->lock);
    fl_free(p);
}

int fleet_predictor_output_num(const fleet_predictor *p)
{
    return p ? p->n_output : 0;
}

const fleet_var *fleet_predictor_output(const fleet_predictor *p, int i)
{
    return p && i >= 0 && i < p->n_output ? p->output[i] : NULL;
}

int fleet_predictor_input_num(const fleet_predictor *p)
{
    return p ? p->n_input : 0;
}

const fleet_var *fleet_predictor_input(const fleet_predictor *p, int i)
{
    return p && i >= 0 && i < p->n_input ? p->input[i] : NULL;
}

/* In the tables of that name, or in all, or what could not be; under the
 * lock. */
static fleet_status set_fresh(const fleet_predictor *p, const char *table,
                              fl_table_ids want, bool only_check)
{
    bool found = !table;

    for (size_t i = 0; i < p->program->n_var; i++) {
        fleet_var *v = p->program->var[i];

        if (v->kind != FL_VAR_TABLE || (table && strcmp(v->name, table) != 0))
            continue;
        found = true;
        want.check = v->ids.check;
        want.storage = v->ids.storage;
        FL_TRY(fl_table_ids_check(v->name, &v->shape, &want));
        if (!only_check)
            v->ids = want;
    }
    return found ? FLEET_OK
                 : fl_fail(FLEET_ENOENT,
                           "fleet_predictor_set_fresh: the model has no table "
                           "\"%.200s\"",
                           table);
}

fleet_status fleet_predictor_set_fresh(fleet_predictor *p, const char *table,
                                       fleet_fresh fresh, int64_t default_id)
{
    const fl_table_ids want = {.fresh = fresh, .default_id = default_id};
    fleet_status status;

    if (!p)
        return fl_fail(FLEET_EINVAL, "fleet_predictor_set_fresh: no predictor");
    if (fresh < FLEET_FRESH_INITIAL || fresh > FLEET_FRESH_ROW)
        return fl_fail(FLEET_EINVAL,
                       "fleet_predictor_set_fresh: fresh %d does not exist",
                       (int)fresh);
    pthread_mutex_lock(&p->lock);
    status = p->has_run ? fl_fail(FLEET_ESTATE,
                                  "fleet_predictor_set_fresh: the predictor "
                                  "has run: call it before")
                        : set_fresh(p, table, want, true);
    if (status == FLEET_OK)
        status = set_fresh(p, table, want, false);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* An executor for this call alone: an idle one, or a new one. */
static fleet_status take_executor(fleet_predictor *p, fl_spare_executor **out)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&p->lock);
    while (p->changes)
        pthread_cond_wait(&p->may_run, &p->lock);
    p->has_run = true;
    *out = p->idle;
    if (*out) {
        p->idle = (*out)->next;
    } else { /* under the lock: it seals the program and adds to the store */
        status = FL_NEW(out, sizeof **out);
        if (status == FLEET_OK) {
            (*out)->executor = fleet_executor_create(p->program, NULL);
            status = (*out)->executor ? FLEET_OK : fl_last_code();
            if (status == FLEET_OK)
                (*out)->executor->any_batch = true;
        }
    }
    p->n_running += status == FLEET_OK;
    pthread_mutex_unlock(&p->lock);
    if (status != FLEET_OK && *out) {
        fl_free(*out);
        *out = NULL;
    }
    return status;
}

static fleet_status run_rows(fleet_predictor *p, fleet_executor *e,
                             const fleet_feed *feed, int n_feed,
                             void *const *out, const size_t *size)
{
    fleet_fetch fetch[16], *f = fetch;
    fleet_status status;

    if (p->n_output > 16)
        FL_TRY(FL_NEW(&f, (size_t)p->n_output * sizeof *f));
    for (int i = 0; i < p->n_output; i++)
        f[i] =
            (fleet_fetch){.var = p->output[i], .data = out[i], .size = size[i]};
    status = fleet_executor_run(e, feed, n_feed, f, p->n_output);
    if (f != fetch)
        fl_free(f);
    return status;
}

fleet_status fleet_predictor_run(fleet_predictor *p, const fleet_feed *feed,
                                 int n_feed, void *const *out,
                                 const size_t *size, int n_out)
{
    fleet_status status;
    fl_spare_executor *one;

    if (!p || !out || !size)
        return fl_fail(FLEET_EINVAL, "fleet_predictor_run: NULL argument");
    if (n_out != p->n_output)
        return fl_fail(FLEET_EINVAL,
                       "fleet_predictor_run: expected %d outputs, got %d",
                       p->n_output, n_out);
    FL_TRY(fl_context_check(&p->context));
    FL_TRY(take_executor(p, &one));
    status = run_rows(p, one->executor, feed, n_feed, out, size);
    pthread_mutex_lock(&p->lock);
    one->next = p->idle;
    p->idle = one;
    if (--p->n_running == 0 && p->changes)
        pthread_cond_signal(&p->may_change);
    pthread_mutex_unlock(&p->lock);
    return status;
}
