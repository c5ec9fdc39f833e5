/* run_lines.c - lines of `metrics_log`: what they say. */
#include "fleet/config/run_lines.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "fleet/job/dataset.h"
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

/* Where the disk refuses its first line a run has none: that one is tried again
 * before the next. */
static fleet_status begin_run(fl_config_run *t)
{
    fl_text text = {0};

    t->seen.run = fl_nonce() | 1;
    t->seen.line.n = 0;
    fl_text_add(
        &text,
        "{\"run\":\"%016" PRIx64 "\",\"step\":%" PRId64 ",\"samples\":%" PRId64
        ",\"epochs\":%" PRId64 ",\"time\":%.3f}",
        t->seen.run, t->seen.step, t->seen.samples, t->c->epochs, wall_time());
    FL_TRY(write_line(t, &text));
    t->lines.goes_on = !t->lines.has_failed;
    return FLEET_OK;
}

fleet_status fl_run_lines_open(fl_config_run *t)
{
    if (is_ahead(t))
        catch_up(t);
    if (t->seen.run == 0)
        begin_lines(t);
    t->line_ns = fl_now_ns();
    t->line_samples = t->seen.samples;
    if (!t->c->metrics_log || !fleet_is_first_worker(t->f) || !t->trains)
        return FLEET_OK;
    FL_TRY(fl_metric_log_open(&t->lines, t->c->metrics_log, t->seen.run,
                              t->seen.line.n, &t->f->context.log));
    return t->lines.goes_on ? FLEET_OK : begin_run(t);
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

bool fl_run_lines_due(const fl_config_run *t)
{
    const int64_t every = t->c->metrics_steps > 0 ? t->c->metrics_steps : EVERY;

    return t->lines.fd >= 0 && t->seen.step - t->seen.line.step >= every;
}

/* Since the last line. A GPU's last losses are in the next one. */
static void add_rates(fl_config_run *t, fl_text *text)
{
    const fleet_executor *e = t->trainer;
    const fl_run_line *last = &t->seen.line;
    int64_t now = fl_now_ns(), n = e->loss_samples - last->loss_samples;
    double seconds = (double)(now - t->line_ns) * 1e-9 - t->line_validated_s;
    double samples = (double)(t->seen.samples - t->line_samples);

    fl_text_member(text, "samples_per_s",
                   samples > 0 && seconds > 0 ? floor(samples / seconds + 0.5)
                                              : (double)NAN,
                   12);
    fl_text_member(
        text, "loss",
        n > 0 ? (e->loss_sum - last->loss_sum) / (double)n : (double)NAN, 9);
    t->line_ns = now;
    t->line_samples = t->seen.samples;
    t->line_validated_s = 0;
}

static void add_validation(fl_text *text, const fleet_evaluation *v)
{
    fl_text_member(text, "validation_loss", v->loss, 9);
    fl_text_member(text, "validation_auc", v->auc, 9);
    fl_text_member(text, "validation_logloss", v->logloss, 9);
    fl_text_member(text, "validation_accuracy", v->accuracy, 9);
    fl_text_add(text, ",\"validation_samples\":%" PRId64, v->samples);
}

fleet_status fl_run_lines_add(fl_config_run *t, bool validated)
{
    const fleet_executor *e = t->trainer;
    fl_text text = {0};
    float rate;

    if (t->lines.fd < 0)
        return FLEET_OK;
    if (!t->lines.goes_on)
        FL_TRY(begin_run(t));
    if (!t->lines.goes_on)
        return FLEET_OK;
    FL_TRY(fleet_optimizer_get_learning_rate(t->program->training.optimizer,
                                             &rate));
    fl_text_add(&text,
                "{\"step\":%" PRId64 ",\"epoch\":%" PRId64
                ",\"samples\":%" PRId64,
                t->seen.step, t->epoch, t->seen.samples);
    add_rates(t, &text);
    fl_text_add(&text, ",\"learning_rate\":");
    fl_text_float(&text, rate);
    if (validated)
        add_validation(&text, &t->seen.newest);
    fl_text_add(&text, ",\"time\":%.3f}", wall_time());
    FL_TRY(write_line(t, &text));
    t->seen.line = (fl_run_line){.n = t->seen.line.n + !t->lines.has_failed,
                                 .step = t->seen.step,
                                 .loss_sum = e->loss_sum,
                                 .loss_samples = e->loss_samples};
    return FLEET_OK;
}
