/* run_lines.c - lines of `metrics_log`: what they say. */
#include "fleet/config/run_lines.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "fleet/job/dataset.h"
#include "fleet/train/ranking.h"
#include "runtime/exec/executor.h"

enum { EVERY = 100 }; /* batches, as lines of the log are */

/* --- a run ---------------------------------------------------------------- */

static double wall_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A worker that was started again in the middle of a job is ahead of the
 * checkpoint that it has loaded: lines behind that are not written again. */
static bool is_ahead(const fl_config_run *t)
{
    const fl_position *at = &t->train->at;

    return at->pass > t->seen.pass ||
           (at->pass == t->seen.pass && at->batch > t->seen.batch);
}

static void catch_up(fl_config_run *t)
{
    const fl_position *at = &t->train->at;

    if (at->pass == t->seen.pass)
        t->seen.step += at->batch - t->seen.batch;
    t->seen.run = 0;
}

/* The first line will be of the batches from now on. */
static void begin_lines(fl_config_run *t)
{
    const fl_position *at = &t->train->at;

    t->seen.line = (fl_run_line){.step = t->seen.step,
                                 .loss_sum = at->loss_sum,
                                 .loss_samples = at->samples};
}

/* One that memory did not suffice for is none. */
static fleet_status write_line(fl_config_run *t, fl_text *text)
{
    fleet_status status = text->status;

    if (status == FLEET_OK)
        fl_metric_log_add(&t->lines, fl_text_chars(text));
    fl_text_done(text);
    return status;
}

static fleet_status write_first_line(fl_config_run *t)
{
    fl_text text = {0};

    if (t->c->metrics_columns)
        fl_text_add(&text, "%s", t->c->metrics_columns);
    else
        fl_text_add(&text,
                    "{\"run\":\"%016" PRIx64 "\",\"step\":%" PRId64
                    ",\"samples\":%" PRId64 ",\"epochs\":%" PRId64
                    ",\"time\":%.3f}",
                    t->seen.run, t->seen.step, t->seen.samples, t->c->epochs,
                    wall_time());
    return write_line(t, &text);
}

/* Where the disk refuses its first line a run has none: that one is tried again
 * before the next. A CSV has one of all runs. */
static fleet_status begin_run(fl_config_run *t)
{
    t->seen.run = fl_nonce() | 1;
    t->seen.line.n = 0;
    if (!t->c->metrics_columns || t->lines.is_empty)
        FL_TRY(write_first_line(t));
    t->lines.goes_on = !t->lines.has_failed;
    t->lines.is_empty = t->lines.has_failed;
    return FLEET_OK;
}

static fleet_status open_lines(fl_config_run *t)
{
    FL_TRY(fl_metric_log_open(&t->lines, t->c->metrics_log,
                              t->c->metrics_columns, t->seen.run,
                              t->seen.line.n, &t->f->context.log));
    return t->lines.goes_on ? FLEET_OK : begin_run(t);
}

/* Also without lines it is a run, whose losses go on. */
static fleet_status open_events(fl_config_run *t)
{
    if (t->seen.run == 0)
        t->seen.run = fl_nonce() | 1;
    return fl_event_log_open(&t->events, t->c->tensorboard, t->seen.step + 1,
                             &t->f->context.log);
}

fleet_status fl_run_lines_open(fl_config_run *t)
{
    if (is_ahead(t))
        catch_up(t);
    if (t->seen.run == 0)
        begin_lines(t);
    t->line_ns = fl_now_ns();
    t->line_samples = t->seen.samples;
    if (!fleet_is_first_worker(t->f) || !t->trains)
        return FLEET_OK;
    if (t->c->tensorboard)
        FL_TRY(open_events(t));
    return t->c->metrics_log ? open_lines(t) : FLEET_OK;
}

/* The executor's sums begin anew with each pass, but for one that goes on in
 * one process. */
void fl_run_lines_begin_pass(fl_config_run *t)
{
    if (t->train->at.batch > 0 && !fl_store_is_shared(t->trainer->store))
        return;
    t->seen.line.loss_sum = 0;
    t->seen.line.loss_samples = 0;
}

/* --- a line --------------------------------------------------------------- */

static bool is_on(const fl_config_run *t)
{
    return t->lines.fd >= 0 || t->events.fd >= 0;
}

bool fl_run_lines_due(const fl_config_run *t)
{
    const int64_t every = t->c->metrics_steps > 0 ? t->c->metrics_steps : EVERY;

    return is_on(t) && t->seen.step - t->seen.line.step >= every;
}

/* What a line says. */
typedef struct told {
    double speed, loss; /* since the last line; NAN: not known */
    float rate;
    const fleet_evaluation *found; /* NULL: there was no validation */
} told;

/* A GPU's last losses are in the next one. */
static fleet_status take_numbers(fl_config_run *t, bool validated, told *now)
{
    const fleet_executor *e = t->trainer;
    const fl_run_line *last = &t->seen.line;
    int64_t ns = fl_now_ns(), n = e->loss_samples - last->loss_samples;
    double seconds = (double)(ns - t->line_ns) * 1e-9 - t->line_validated_s;
    double samples = (double)(t->seen.samples - t->line_samples);

    now->speed = samples > 0 && seconds > 0 ? floor(samples / seconds + 0.5)
                                            : (double)NAN;
    now->loss =
        n > 0 ? (e->loss_sum - last->loss_sum) / (double)n : (double)NAN;
    now->found = validated ? &t->seen.newest : NULL;
    t->line_ns = ns;
    t->line_samples = t->seen.samples;
    t->line_validated_s = 0;
    return fleet_optimizer_get_learning_rate(t->program->training.optimizer,
                                             &now->rate);
}

enum { NAME = 16 + FL_RANKING_NAME };

/* "validation_recall@10" */
static void name_ranking(const fleet_evaluation *v, int i, const char *in_front,
                         char key[NAME])
{
    char name[FL_RANKING_NAME];

    fl_ranking_name(&v->ranking[i], name);
    snprintf(key, NAME, "%s%s", in_front, name);
}

/* --- as JSON -------------------------------------------------------------- */

static void add_validation(fl_text *text, const fleet_evaluation *v)
{
    char key[NAME];

    fl_text_member(text, "validation_loss", v->loss, 9);
    fl_text_member(text, "validation_auc", v->auc, 9);
    fl_text_member(text, "validation_logloss", v->logloss, 9);
    fl_text_member(text, "validation_accuracy", v->accuracy, 9);
    for (int i = 0; i < v->n_ranking; i++) {
        name_ranking(v, i, "validation_", key);
        fl_text_member(text, key, v->ranking[i].value, 9);
    }
    fl_text_add(text, ",\"validation_samples\":%" PRId64, v->samples);
}

static void put_object(const fl_config_run *t, const told *now, fl_text *text)
{
    fl_text_add(text,
                "{\"step\":%" PRId64 ",\"epoch\":%" PRId64
                ",\"samples\":%" PRId64,
                t->seen.step, t->epoch, t->seen.samples);
    fl_text_member(text, "samples_per_s", now->speed, 12);
    fl_text_member(text, "loss", now->loss, 9);
    fl_text_add(text, ",\"learning_rate\":");
    fl_text_float(text, now->rate);
    if (now->found)
        add_validation(text, now->found);
    fl_text_add(text, ",\"time\":%.3f}", wall_time());
}

/* --- as a row of CSV ------------------------------------------------------ */

/* What is not known is empty. */
static void add_cell(fl_text *text, double x, int digits)
{
    if (isfinite(x))
        fl_text_add(text, ",%.*g", digits, x);
    else
        fl_text_add(text, ",");
}

/* metrics_columns */
static void put_row(const fl_config_run *t, const told *now, fl_text *text)
{
    const fleet_evaluation none = {.auc = (double)NAN,
                                   .logloss = (double)NAN,
                                   .accuracy = (double)NAN,
                                   .loss = (double)NAN};
    const fleet_evaluation *v = now->found ? now->found : &none;

    fl_text_add(text, "%016" PRIx64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
                t->seen.run, t->seen.step, t->epoch, t->seen.samples);
    add_cell(text, now->speed, 12);
    add_cell(text, now->loss, 9);
    fl_text_add(text, ",");
    fl_text_float(text, now->rate);
    add_cell(text, v->loss, 9);
    add_cell(text, v->auc, 9);
    add_cell(text, v->logloss, 9);
    add_cell(text, v->accuracy, 9);
    add_cell(text, now->found ? (double)v->samples : (double)NAN, 18);
    fl_text_add(text, ",%.3f", wall_time());
    for (int i = 0; i < t->c->n_ranking; i++)
        add_cell(text, now->found ? v->ranking[i].value : (double)NAN, 9);
}

/* --- as an event ---------------------------------------------------------- */

static fleet_status add_event_of(fl_config_run *t, const told *now)
{
    enum { FIRST = 8 };
    const fleet_evaluation *v = now->found;
    char tag[FLEET_MOST_RANKINGS][NAME];
    fl_event_scalar all[FIRST + FLEET_MOST_RANKINGS] = {
        {"train/loss", now->loss},
        {"train/samples_per_s", now->speed},
        {"train/learning_rate", (double)now->rate},
        {"train/epoch", (double)t->epoch},
        {"validation/loss", v ? v->loss : (double)NAN},
        {"validation/auc", v ? v->auc : (double)NAN},
        {"validation/logloss", v ? v->logloss : (double)NAN},
        {"validation/accuracy", v ? v->accuracy : (double)NAN}};
    int n = FIRST;

    for (int i = 0; v && i < v->n_ranking; i++) {
        name_ranking(v, i, "validation/", tag[i]);
        all[n++] = (fl_event_scalar){tag[i], v->ranking[i].value};
    }
    return t->events.fd < 0
               ? FLEET_OK
               : fl_event_log_add(&t->events, t->seen.step, all, n);
}

/* *written: the file has it. */
static fleet_status add_line_of(fl_config_run *t, const told *now,
                                bool *written)
{
    fl_text text = {0};

    *written = false;
    if (t->lines.fd >= 0 && !t->lines.goes_on)
        FL_TRY(begin_run(t));
    if (t->lines.fd < 0 || !t->lines.goes_on)
        return FLEET_OK;
    if (t->c->metrics_columns)
        put_row(t, now, &text);
    else
        put_object(t, now, &text);
    FL_TRY(write_line(t, &text));
    *written = !t->lines.has_failed;
    return FLEET_OK;
}

fleet_status fl_run_lines_add(fl_config_run *t, bool validated)
{
    const fleet_executor *e = t->trainer;
    bool written;
    told now;

    if (!is_on(t))
        return FLEET_OK;
    FL_TRY(take_numbers(t, validated, &now));
    FL_TRY(add_event_of(t, &now));
    FL_TRY(add_line_of(t, &now, &written));
    t->seen.line = (fl_run_line){.n = t->seen.line.n + written,
                                 .step = t->seen.step,
                                 .loss_sum = e->loss_sum,
                                 .loss_samples = e->loss_samples};
    return FLEET_OK;
}
