/* evaluate.c - fleet_evaluate() and the closing line. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/train/ranking.h"
#include "fleet/train/tally.h"
#include "fleet/train/train.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/feed_fetch.h"

/* A prediction beside its label. */
typedef struct task_counts {
    const fleet_var *label, *prediction;
    float *p; /* predictions of a batch */
    size_t p_capacity;
    fl_tally tally;
    fleet_evaluation found;
} task_counts;

typedef struct evaluation {
    task_counts task[FLEET_MOST_TASKS];
    int n_task;
    int64_t samples;
    fl_ranking ranking;
    bool ranks;
} evaluation;

static fleet_status count_batch(task_counts *t, fleet_executor *e, int64_t rows)
{
    fleet_fetch f = {.var = t->prediction};
    const void *labels = e->input[t->label->id].data;

    if (!labels)
        return fl_fail(FLEET_ENOENT,
                       "fleet_evaluate: no slot of the dataset feeds the label "
                       "\"%s\"",
                       t->label->name);
    FL_TRY(fl_grow(&t->p, &t->p_capacity, (size_t)(rows * t->tally.classes),
                   sizeof *t->p));
    f.data = t->p;
    f.size = t->p_capacity * sizeof *t->p;
    FL_TRY(fl_executor_fetch(e, &f));
    return fl_tally_add(&t->tally, t->p, t->label->dtype, labels, rows);
}

static fleet_status observe(void *arg, fleet_executor *e, const fl_batch *b)
{
    evaluation *v = arg;

    for (int i = 0; i < v->n_task; i++)
        FL_TRY(count_batch(&v->task[i], e, b->rows));
    v->samples += b->rows;
    return v->ranks ? fl_ranking_add(&v->ranking, e, b->rows) : FLEET_OK;
}

/* own: the executor's variable for the label. */
static fleet_status check_label(const fleet_executor *e, const fleet_var *label,
                                const fleet_var *own)
{
    if (!own || own->program != e->program || own->kind != FL_VAR_DATA)
        return fl_fail(FLEET_EINVAL,
                       "fleet_evaluate: the label \"%s\" is no data variable "
                       "of the executor's program",
                       label->name);
    if (own->ragged || fl_shape_cols(&own->shape) != 1)
        return fl_fail(FLEET_ESHAPE,
                       "fleet_evaluate: the label \"%s\" has %s: expected one "
                       "number of a sample",
                       label->name,
                       own->ragged ? "as many numbers as it likes"
                                   : fl_shape_print(&own->shape).chars);
    return FLEET_OK;
}

static fleet_status open_task(evaluation *v, const fleet_executor *e,
                              const fleet_var *label,
                              const fleet_var *prediction)
{
    task_counts *t = &v->task[v->n_task];

    if (!label || !prediction)
        return fl_fail(FLEET_EINVAL,
                       "fleet_evaluate: NULL argument: the label or the "
                       "prediction of task %d of the model",
                       v->n_task);
    t->label = fl_executor_own_var(e, label);
    FL_TRY(check_label(e, label, t->label));
    FL_TRY(fl_tally_check_rows("fleet_evaluate: the prediction", prediction));
    t->prediction = prediction;
    v->n_task++;
    return fl_tally_open(&t->tally, fl_shape_cols(&prediction->shape));
}

static fleet_status open_tasks(evaluation *v, const fleet_executor *e,
                               const fleet_model *model)
{
    if (model->n_task < 0 || model->n_task > FLEET_MOST_TASKS)
        return fl_fail(FLEET_EINVAL,
                       "fleet_evaluate: %d tasks; expected 0 to %d",
                       model->n_task, (int)FLEET_MOST_TASKS);
    if (v->ranks && !model->label)
        return FLEET_OK;
    if (model->n_task == 0)
        return open_task(v, e, model->label, model->prediction);
    for (int i = 0; i < model->n_task; i++)
        FL_TRY(
            open_task(v, e, model->task[i].label, model->task[i].prediction));
    return FLEET_OK;
}

static void close_evaluation(evaluation *v)
{
    fl_ranking_close(&v->ranking);
    for (int i = 0; i < v->n_task; i++) {
        fl_free(v->task[i].p);
        fl_tally_close(&v->task[i].tally);
    }
}

static fleet_status run_evaluation(evaluation *v, fleet_executor *e,
                                   fleet_dataset *d, double *loss)
{
    const fleet_var *want[FLEET_MOST_TASKS + 2];
    fleet_train_options o = {.fetch_list = want, .print_period = INT64_MAX};
    fleet_train_result r;

    for (int i = 0; i < v->n_task; i++)
        want[o.n_fetch++] = v->task[i].prediction;
    if (v->ranks) {
        want[o.n_fetch++] = v->ranking.user;
        want[o.n_fetch++] = v->ranking.item;
    }
    FL_TRY(fl_infer_pass(e, d, &o, observe, v, &r));
    if (v->samples == 0)
        return fl_fail(FLEET_EEND, "evaluation: the dataset has no sample");
    *loss = e->program->training.loss ? r.loss : (double)NAN;
    for (int i = 0; i < v->n_task; i++)
        FL_TRY(fl_tally_result(&v->task[i].tally, *loss, &v->task[i].found));
    return FLEET_OK;
}

static fleet_task_evaluation result_of(const task_counts *t)
{
    return (fleet_task_evaluation){
        .label = t->label->name,
        .auc = t->found.auc,
        .logloss = t->found.logloss,
        .accuracy = t->found.accuracy,
    };
}

static void set_result(const evaluation *v, double loss, int n_task,
                       fleet_evaluation *out)
{
    const double none = (double)NAN;
    fleet_task_evaluation first = {
        .auc = none, .logloss = none, .accuracy = none};

    if (v->n_task > 0)
        first = result_of(&v->task[0]);
    *out = (fleet_evaluation){.samples = v->samples,
                              .auc = first.auc,
                              .logloss = first.logloss,
                              .accuracy = first.accuracy,
                              .loss = loss,
                              .n_task = n_task};
    for (int i = 0; i < n_task; i++)
        out->task[i] = result_of(&v->task[i]);
}

/* With v->ranking open, if it ranks. */
static fleet_status evaluate(evaluation *v, fleet_executor *e, fleet_dataset *d,
                             const fleet_model *model, fleet_evaluation *out)
{
    double loss = 0;

    FL_TRY(open_tasks(v, e, model));
    FL_TRY(run_evaluation(v, e, d, &loss));
    set_result(v, loss, model->n_task, out);
    return v->ranks ? fl_ranking_result(&v->ranking, out) : FLEET_OK;
}

fleet_status fleet_evaluate(fleet_executor *e, fleet_dataset *d,
                            const fleet_model *model, fleet_evaluation *out)
{
    evaluation v = {.n_task = 0};
    fleet_status status;

    if (!e || !d || !out || !model || !model->prediction)
        return fl_fail(FLEET_EINVAL, "fleet_evaluate: NULL argument");
    if (!model->label)
        return fl_fail(FLEET_EINVAL, "fleet_evaluate: the model has no label");
    status = evaluate(&v, e, d, model, out);
    close_evaluation(&v);
    return status;
}

fleet_status fleet_evaluate_ranking(fleet_executor *e, fleet_dataset *d,
                                    fleet_dataset *items,
                                    const fleet_model *model,
                                    const fleet_ranking *metrics, int n,
                                    fleet_evaluation *out)
{
    evaluation v = {.ranks = true};
    fleet_status status;

    if (!e || !d || !items || !out || !model || !model->prediction)
        return fl_fail(FLEET_EINVAL, "fleet_evaluate_ranking: NULL argument");
    status = fl_ranking_open(&v.ranking, model, metrics, n);
    if (status == FLEET_OK)
        status = fl_ranking_read_items(&v.ranking, e, items);
    if (status == FLEET_OK)
        status = evaluate(&v, e, d, model, out);
    close_evaluation(&v);
    return status;
}

/* --- the closing line ---------------------------------------------------- */

/* A name as JSON has it. */
static void add_name(fl_text *t, const char *key, const char *name)
{
    fl_json *json = fl_json_string(name ? name : "");
    char *text = fl_json_print(json, false);

    fl_json_free(json);
    if (text)
        fl_text_add(t, "\"%s\":%s", key, text);
    else
        t->status = FLEET_ENOMEM;
    fl_free(text);
}

static void add_tasks(fl_text *t, const fleet_evaluation *e)
{
    for (int64_t i = 0; e && i < e->n_task && i < FLEET_MOST_TASKS; i++) {
        const fleet_task_evaluation *task = &e->task[i];

        fl_text_add(t, i == 0 ? ",\"tasks\":[{" : ",{");
        add_name(t, "label", task->label);
        fl_text_member(t, "auc", task->auc, 6);
        fl_text_member(t, "logloss", task->logloss, 6);
        fl_text_member(t, "accuracy", task->accuracy, 6);
        fl_text_add(t, i == e->n_task - 1 ? "}]" : "}");
    }
}

static void add_rankings(fl_text *t, const fleet_evaluation *e)
{
    char name[FL_RANKING_NAME];

    for (int i = 0; e && i < e->n_ranking && i < FLEET_MOST_RANKINGS; i++) {
        fl_ranking_name(&e->ranking[i], name);
        fl_text_member(t, name, e->ranking[i].value, 6);
    }
}

char *fleet_report_line(fleet *f, const fleet_report *r)
{
    const double none = (double)NAN;
    const fl_gpu *gpu;
    fl_text t = {0};

    if (fl_handle_check(f, "fleet_report_line") != FLEET_OK)
        return NULL;
    gpu = f->trained && f->trained->place.on_gpu ? f->trained->place.gpu : NULL;
    if (!r || !r->model || strpbrk(r->model, "\"\\\n")) {
        fl_fail(FLEET_EINVAL, "fleet_report_line: no model, or a name with "
                              "quotes");
        return NULL;
    }
    fl_text_add(&t,
                "{\"model\":\"%s\",\"mode\":\"%s\",\"device\":\"%s%s\","
                "\"workers\":%d,\"servers\":%d",
                r->model, fl_job_mode_name(fl_handle_mode(f)),
                gpu ? "cuda:" : "cpu", gpu ? gpu->d->name : "",
                fleet_worker_num(f), fleet_server_num(f));
    fl_text_member(&t, "auc", r->evaluation ? r->evaluation->auc : none, 6);
    fl_text_member(&t, "logloss", r->evaluation ? r->evaluation->logloss : none,
                   6);
    fl_text_member(&t, "accuracy",
                   r->evaluation ? r->evaluation->accuracy : none, 6);
    add_tasks(&t, r->evaluation);
    add_rankings(&t, r->evaluation);
    fl_text_member(&t, "loss", r->loss, 6);
    fl_text_member(&t, "samples_per_s", floor(r->samples_per_s + 0.5), 12);
    fl_text_member(&t, "seconds",
                   r->seconds > 0 ? r->seconds
                                  : (double)(fl_now_ns() - f->made_ns) * 1e-9,
                   4);
    if (r->bad_lines > 0)
        fl_text_add(&t, ",\"bad_lines\":%lld", (long long)r->bad_lines);
    fl_text_add(&t, ",\"params_hash\":\"%016llx\"}",
                (unsigned long long)r->params_hash);
    if (t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}
