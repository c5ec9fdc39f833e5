/* predict_files.c - fleet_predict_files(): batches scored on several threads,
 * written and compared with their labels in the order of the data. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "fleet/inference_internal.h"
#include "fleet/predict/in_order.h"
#include "fleet/predict/predict_output.h"
#include "fleet/predict/scoring.h"
#include "fleet/train/tally.h"

static const char call[] = "fleet_predict_files";

enum { BATCH = 1024 };

typedef struct prediction {
    const fl_scoring *s;
    const fleet_predict_options *o;
    fl_in_order order;
    int n_output; /* of the model */
    int *shown;   /* which of them are written, in their order */
    int n_shown;

    /* batch by batch */
    fl_score_file file;
    fl_tally tally; /* classes 0: nothing is compared */
    int64_t samples;
} prediction;

/* --- one thread ----------------------------------------------------------- */

typedef struct scorer {
    prediction *p;
    void **out; /* by output: of a whole batch */
    size_t *size;
    fl_text text; /* the lines of a batch */
} scorer;

__attribute__((format(printf, 3, 4))) static int print_value(char *out,
                                                             size_t size,
                                                             const char *format,
                                                             ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = fl_format(out, size, format, args);
    va_end(args);
    return n;
}

/* 9 digits read as the same bits. */
static void add_value(fl_text *t, fleet_dtype dtype, const void *values,
                      int64_t i)
{
    char digits[32];
    int n = dtype == FLEET_FLOAT32
                ? print_value(digits, sizeof digits, "%.9g",
                              (double)((const float *)values)[i])
                : print_value(digits, sizeof digits, "%lld",
                              (long long)((const int64_t *)values)[i]);

    fl_text_bytes(t, digits, (size_t)n);
}

/* Lines for all rows of the batch. */
static void write_lines(scorer *w, int64_t rows)
{
    const prediction *p = w->p;

    w->text.length = 0;
    for (int64_t row = 0; p->file.path && row < rows; row++) {
        for (int k = 0; k < p->n_shown; k++) {
            const int i = p->shown[k];
            const int64_t n = fl_scoring_cols(p->s, i);
            const fleet_dtype dtype =
                fleet_predictor_output(p->s->predictor, i)->dtype;

            for (int64_t c = 0; c < n; c++) {
                if (k + c > 0)
                    fl_text_bytes(&w->text, "\t", 1);
                add_value(&w->text, dtype, w->out[i], row * n + c);
            }
        }
        fl_text_bytes(&w->text, "\n", 1);
    }
}

static fleet_status score_batch(void *worker, const fl_batch *b)
{
    scorer *w = worker;

    FL_TRY(fl_scoring_run(w->p->s, b, w->out, w->size));
    write_lines(w, b->rows);
    return w->text.status;
}

static fleet_status hand_on_scores(void *worker, const fl_batch *b)
{
    scorer *w = worker;
    prediction *p = w->p;

    if (p->tally.classes > 0)
        FL_TRY(fl_scoring_compare(p->s, &p->tally, w->out[0], b));
    p->samples += b->rows;
    return fl_score_file_put(&p->file, w->text.chars, w->text.length);
}

static fleet_status open_scorer(scorer *w, prediction *p)
{
    w->p = p;
    FL_TRY(FL_NEW(&w->out, (size_t)p->n_output * sizeof *w->out));
    FL_TRY(FL_NEW(&w->size, (size_t)p->n_output * sizeof *w->size));
    for (int i = 0; i < p->n_output; i++) {
        w->size[i] = (size_t)p->order.batch_size * fl_scoring_row_size(p->s, i);
        FL_TRY(FL_NEW(&w->out[i], w->size[i]));
    }
    return FLEET_OK;
}

static void close_scorer(scorer *w)
{
    for (int i = 0; w->out && i < w->p->n_output; i++)
        fl_free(w->out[i]);
    fl_free(w->out);
    fl_free(w->size);
    fl_text_done(&w->text);
}

static fleet_status run_scorers(prediction *p, scorer *w, void **worker)
{
    const int n = p->order.n_thread;
    fleet_status status = FLEET_OK;

    for (int i = 0; i < n && status == FLEET_OK; i++) {
        worker[i] = &w[i];
        status = open_scorer(&w[i], p);
    }
    if (status == FLEET_OK)
        status =
            fl_in_order_run(&p->order, worker, score_batch, hand_on_scores);
    for (int i = 0; i < n; i++)
        if (w[i].p)
            close_scorer(&w[i]);
    return status;
}

static fleet_status score_all(prediction *p)
{
    const size_t n = (size_t)p->order.n_thread;
    void **worker = fl_alloc_array(n, sizeof *worker);
    scorer *w = fl_alloc_array(n, sizeof *w);
    fleet_status status =
        w && worker ? run_scorers(p, w, worker) : FLEET_ENOMEM;

    fl_free(w);
    fl_free(worker);
    return status;
}

/* --- the call ------------------------------------------------------------- */

static fleet_status check_options(const fleet_predict_options *o)
{
    FL_TRY(fl_scoring_check_numbers(o->threads, o->batch_size, call));
    if (o->n_name < 0 || (o->n_name > 0 && !o->names))
        return fl_fail(FLEET_EINVAL, "%s: names is NULL, but n_name is %d",
                       call, o->n_name);
    for (int i = 0; i < o->n_name; i++)
        if (!o->names[i])
            return fl_fail(FLEET_EINVAL, "%s: names[%d] is NULL", call, i);
    return FLEET_OK;
}

static fleet_status find_output(const fleet_predictor *p, const char *name,
                                int *found)
{
    fl_text all = {0};
    fleet_status status;

    for (int i = 0; i < p->n_output; i++)
        if (strcmp(p->output[i]->name, name) == 0) {
            *found = i;
            return FLEET_OK;
        }
    for (int i = 0; i < p->n_output; i++)
        fl_text_add(&all, "%s%s", i ? ", " : "", p->output[i]->name);
    status = fl_fail(FLEET_ENOENT,
                     "%s: the model has no output \"%.200s\"; expected one of: "
                     "%.600s",
                     call, name, fl_text_chars(&all));
    fl_text_done(&all);
    return status;
}

static fleet_status choose_outputs(prediction *p)
{
    const fleet_predict_options *o = p->o;

    p->n_output = fleet_predictor_output_num(p->s->predictor);
    p->n_shown = o->n_name > 0 ? o->n_name : p->n_output;
    FL_TRY(FL_NEW(&p->shown, (size_t)p->n_shown * sizeof *p->shown));
    for (int k = 0; k < p->n_shown; k++) {
        p->shown[k] = k;
        if (o->n_name > 0)
            FL_TRY(find_output(p->s->predictor, o->names[k], &p->shown[k]));
        FL_TRY(fl_tally_check_rows(
            "fleet_predict_files: output",
            fleet_predictor_output(p->s->predictor, p->shown[k])));
    }
    return FLEET_OK;
}

static fleet_status write_header(prediction *p)
{
    fl_text text = {0};
    fleet_status status;

    if (!p->o->header)
        return FLEET_OK;
    for (int k = 0; k < p->n_shown; k++) {
        const int64_t n = fl_scoring_cols(p->s, p->shown[k]);
        const char *name =
            fleet_predictor_output(p->s->predictor, p->shown[k])->name;

        for (int64_t c = 0; c < n; c++) {
            fl_text_add(&text, "%s%s", k + c > 0 ? "\t" : "", name);
            if (n > 1)
                fl_text_add(&text, "[%lld]", (long long)c);
        }
    }
    fl_text_add(&text, "\n");
    status = text.status;
    if (status == FLEET_OK)
        status = fl_score_file_put(&p->file, text.chars, text.length);
    fl_text_done(&text);
    return status;
}

static fleet_status begin_comparing(prediction *p)
{
    if (p->s->label < 0)
        return FLEET_OK;
    FL_TRY(fl_scoring_check_label(p->s, call));
    return fl_tally_open(&p->tally, fl_scoring_cols(p->s, 0));
}

static fleet_status predict_all(prediction *p, const char *const *paths, int n)
{
    const int64_t size = p->o->batch_size > 0 ? p->o->batch_size : BATCH;
    fl_stream_spec spec = p->s->spec;

    spec.pipe_command = p->o->pipe_command;
    FL_TRY(choose_outputs(p));
    FL_TRY(begin_comparing(p));
    FL_TRY(fl_in_order_open(&p->order, &spec, paths, n, p->o->threads, size));
    FL_TRY(fl_score_file_open(&p->file, p->o->output));
    FL_TRY(write_header(p));
    return score_all(p);
}

static fleet_status finish_scores(prediction *p, fleet_predict_result *r)
{
    if (p->tally.classes > 0)
        FL_TRY(fl_tally_result(&p->tally, (double)NAN, &r->evaluation));
    FL_TRY(fl_score_file_commit(&p->file));
    r->samples = p->samples;
    return FLEET_OK;
}

static void close_prediction(prediction *p)
{
    fl_in_order_close(&p->order);
    fl_score_file_close(&p->file);
    fl_tally_close(&p->tally);
    fl_free(p->shown);
}

fleet_status fleet_predict_files(fleet_predictor *predictor,
                                 const char *const *paths, int n,
                                 const fleet_predict_options *options,
                                 fleet_predict_result *result)
{
    static const fleet_predict_options defaults;
    const fleet_predict_options *o = options ? options : &defaults;
    const int64_t began_ns = fl_now_ns();
    fleet_predict_result r = {0};
    prediction p = {.o = o, .file = {.fd = -1, .writer = {.fd = -1}}};
    fleet_status status;
    fl_scoring *s;

    if (result)
        *result = r;
    if (!predictor || !paths || n < 1)
        return fl_fail(FLEET_EINVAL, "%s: no predictor, or no files", call);
    for (int i = 0; i < n; i++)
        if (!paths[i])
            return fl_fail(FLEET_EINVAL, "%s: paths[%d] is NULL", call, i);
    FL_TRY(check_options(o));
    FL_TRY(fl_scoring_of(predictor, o->label, call, &s));
    FL_TRY(fl_scoring_check_command(s, o->pipe_command, call));
    p.s = s;
    status = predict_all(&p, paths, n);
    if (status == FLEET_OK)
        status = finish_scores(&p, &r);
    close_prediction(&p);
    r.seconds = (double)(fl_now_ns() - began_ns) * 1e-9;
    if (status == FLEET_OK && result)
        *result = r;
    return status;
}
