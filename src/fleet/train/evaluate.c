/* evaluate.c - fleet_evaluate() and the closing line. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/train/train.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/feed_fetch.h"

enum { BUCKETS = 65536 };

typedef struct evaluation {
    const fleet_model *model;
    float *p; /* predictions of a batch */
    size_t p_capacity;
    int64_t *pos, *neg; /* histograms, two classes */
    double logloss;
    int64_t right, samples;
    int64_t classes; /* columns of the prediction */
} evaluation;

static double label_of(const fleet_var *label, const void *data, int64_t row)
{
    return label->dtype == FLEET_INT64 ? (double)((const int64_t *)data)[row]
                                       : (double)((const float *)data)[row];
}

static void count_binary(evaluation *v, double p, double label)
{
    const double least = 1e-15;
    int64_t at = (int64_t)(p * BUCKETS);
    double q = label > 0.5 ? p : 1 - p;

    at = at < 0 ? 0 : at >= BUCKETS ? BUCKETS - 1 : at;
    (label > 0.5 ? v->pos : v->neg)[at]++;
    v->logloss -= log(q < least ? least : q);
    v->right += (p > 0.5) == (label > 0.5);
}

static fleet_status count_row(evaluation *v, const float *p, double label,
                              int64_t row)
{
    int64_t best = 0;

    for (int64_t c = 0; c < v->classes; c++)
        if (!isfinite(p[c]))
            return fl_fail(FLEET_ENUMERIC,
                           "evaluation: the prediction of sample %lld is not a "
                           "finite number",
                           (long long)(v->samples + row));
    if (v->classes <= 2 && label != 0.0 && label != 1.0)
        return fl_fail(FLEET_EINVAL,
                       "evaluation: label %g of sample %lld is "
                       "neither 0 nor 1",
                       label, (long long)(v->samples + row));
    if (v->classes <= 2) {
        count_binary(v, (double)p[v->classes - 1], label);
        return FLEET_OK;
    }
    for (int64_t c = 1; c < v->classes; c++)
        if (p[c] > p[best])
            best = c;
    v->right += (double)best == label;
    return FLEET_OK;
}

static fleet_status observe(void *arg, fleet_executor *e, const fl_batch *b)
{
    evaluation *v = arg;
    fleet_fetch f = {.var = v->model->prediction};
    const void *labels = e->input[v->model->label->id].data;

    FL_TRY(fl_grow(&v->p, &v->p_capacity, (size_t)(b->rows * v->classes),
                   sizeof *v->p));
    f.data = v->p;
    f.size = v->p_capacity * sizeof *v->p;
    FL_TRY(fl_executor_fetch(e, &f));
    for (int64_t i = 0; i < b->rows; i++)
        FL_TRY(count_row(v, v->p + i * v->classes,
                         label_of(v->model->label, labels, i), i));
    v->samples += b->rows;
    return FLEET_OK;
}

static fleet_status run_evaluation(evaluation *v, fleet_executor *e,
                                   fleet_dataset *d, double *loss)
{
    const fleet_var *want = v->model->prediction;
    fleet_train_options o = {
        .fetch_list = &want, .n_fetch = 1, .print_period = INT64_MAX};
    fleet_train_result r;

    FL_TRY(FL_NEW(&v->pos, BUCKETS * sizeof *v->pos));
    FL_TRY(FL_NEW(&v->neg, BUCKETS * sizeof *v->neg));
    FL_TRY(fl_infer_pass(e, d, &o, observe, v, &r));
    *loss = e->program->training.loss ? r.loss : (double)NAN;
    return v->samples > 0 ? FLEET_OK
                          : fl_fail(FLEET_EEND, "evaluation: the dataset has "
                                                "no sample");
}

fleet_status fleet_evaluate(fleet_executor *e, fleet_dataset *d,
                            const fleet_model *model, fleet_evaluation *out)
{
    evaluation v = {.model = model};
    fleet_status status;
    double loss;

    if (!e || !d || !out || !model || !model->prediction || !model->label)
        return fl_fail(FLEET_EINVAL, "fleet_evaluate: NULL argument");
    v.classes = fl_shape_cols(&model->prediction->shape);
    status = run_evaluation(&v, e, d, &loss);
    if (status == FLEET_OK) {
        double n = (double)v.samples;
        bool binary = v.classes <= 2;

        *out = (fleet_evaluation){
            .samples = v.samples,
            .auc = binary ? fleet_metrics_auc_of(v.pos, v.neg, BUCKETS)
                          : (double)NAN,
            .logloss = binary ? v.logloss / n : (double)NAN,
            .accuracy = (double)v.right / n,
            .loss = loss,
        };
    }
    fl_free(v.p);
    fl_free(v.pos);
    fl_free(v.neg);
    return status;
}

/* --- the closing line ---------------------------------------------------- */

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
    fl_text_member(&t, "loss", r->loss, 6);
    fl_text_member(&t, "samples_per_s", floor(r->samples_per_s + 0.5), 12);
    fl_text_member(&t, "seconds",
                   r->seconds > 0 ? r->seconds
                                  : (double)(fl_now_ns() - f->made_ns) * 1e-9,
                   4);
    fl_text_add(&t, ",\"params_hash\":\"%016llx\"}",
                (unsigned long long)r->params_hash);
    if (t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}
