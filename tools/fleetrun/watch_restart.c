/* watch_restart.c - under --supervise a process that dies is started again:
 * which one, when, and how often. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch_internal.h"

enum {
    FIRST_DELAY_MS = 100,
    ASKS_FOR_RESTART = 75, /* EX_TEMPFAIL of sysexits.h */
    CANNOT_EXECUTE = 126,
    NO_PROGRAM = 127
};

/* Not while the job ends, but while servers end after the last worker. */
static bool restarts_allowed(const watch *w)
{
    return w->job->options->supervise &&
           (w->phase == WATCH_RUN ||
            (w->phase == WATCH_GRACE && w->exit_status == 0));
}

/* Other servers have what a server had, with replicas, and nobody has what a
 * worker had. What a server dies of at the end is no matter then. */
static bool can_come_back(const watch *w, const run_process *p)
{
    return w->job->options->replicas < 2 ||
           (p->is_server && w->phase == WATCH_RUN);
}

bool watch_is_due(const watch *w, const run_process *p)
{
    return p->restarts.due != 0 && restarts_allowed(w) && can_come_back(w, p);
}

/* Somebody has killed it, or it has crashed, so it could not tell the others.
 * Who ends with a status has told them why, and the job is over. A shell says
 * of what it has started that 128 + n means signal n. */
bool watch_has_died(int status)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    const int killer = WIFSIGNALED(status) ? WTERMSIG(status) : code - 128;

    if (killer == SIGTERM || killer == SIGINT || killer == SIGHUP)
        return false; /* it was asked to end */
    return code == ASKS_FOR_RESTART || (killer > 0 && killer < NSIG);
}

static bool count_restart(const watch *w, run_restarts *r, int64_t now)
{
    const run_options *o = w->job->options;

    if (r->n_window == 0 || now - r->window >= o->restart_window * 1000LL) {
        r->window = now;
        r->n_window = 0;
    }
    if (r->n_window >= o->restarts)
        return false;
    r->n_window++;
    return true;
}

/* The first time at once, then later and later, as long as it does not get up,
 * which has taken longer than any delay. Ten times take half a minute: workers
 * of libfleet wait for two. */
static int next_delay_ms(const watch *w, run_restarts *r, int64_t now)
{
    const int most = w->job->options->restart_delay * 1000;
    int ms = 0;

    if (now - r->started >= most)
        r->n_quick = 0;
    if (r->n_quick > 0)
        ms = r->n_quick > 16 ? most : FIRST_DELAY_MS << (r->n_quick - 1);
    r->n_quick++;
    return ms < most ? ms : most;
}

/* p will be started again, which `why` has the reason for; false: it was too
 * often. */
static bool schedule(watch *w, run_process *p, const char *why)
{
    const int64_t now = watch_now_ms();
    run_restarts *r = &p->restarts;
    char when[40] = "";
    int ms;

    if (!count_restart(w, r, now))
        return false;
    ms = next_delay_ms(w, r, now);
    r->due = now + ms;
    snprintf(r->why, sizeof r->why, "%s", why);
    if (ms > 0)
        snprintf(when, sizeof when, " in %g s", ms / 1000.0);
    watch_report("%s: it is started again%s, %d of %d times within %d s; see "
                 "%s",
                 why, when, r->n_window, w->job->options->restarts,
                 w->job->options->restart_window, run_process_log(w->job, p));
    return true;
}

bool watch_restart(watch *w, run_process *p, const char *why)
{
    return restarts_allowed(w) && can_come_back(w, p) &&
           watch_has_died(p->status) && schedule(w, p, why);
}

const char *watch_restart_limit(const watch *w, const run_process *p)
{
    static char text[80];
    const run_restarts *r = &p->restarts;

    *text = 0;
    if (restarts_allowed(w) && watch_has_died(p->status) && r->n_window > 0)
        snprintf(text, sizeof text, ", after %d restart%s within %g s",
                 r->n_window, r->n_window == 1 ? "" : "s",
                 (double)(watch_now_ms() - r->window) / 1000.0);
    return text;
}

/* Is all read that the process before has written? */
static bool may_start(const watch *w, const run_process *p)
{
    return watch_is_due(w, p) && run_output_is_over(&p->output[0]) &&
           run_output_is_over(&p->output[1]);
}

int64_t watch_next_restart(const watch *w)
{
    int64_t next = NEVER;

    for (int i = 0; i < w->job->n_all; i++) {
        const run_process *p = &w->job->process[i];

        if (may_start(w, p) && (next == NEVER || p->restarts.due < next))
            next = p->restarts.due;
    }
    return next;
}

static bool ends_within_a_line(const run_output *o)
{
    return o->whole > 0 && o->buffer[o->whole - 1] != '\n';
}

/* A log is one of several processes: where the next one begins. */
static void note_in_log(const run_process *p, bool cut)
{
    dprintf(p->log, "%sfleetrun: %s: started again (pid %d)\n", cut ? "\n" : "",
            p->restarts.why, (int)p->pid);
}

/* It is not started again; of one that the job does not know that is a line. */
static void lose(watch *w, run_process *p, const char *why, int exit_status)
{
    if (!watch_is_missed(w, p, why)) {
        run_job_leave_port(p);
        return;
    }
    snprintf(w->first, sizeof w->first, "%s", why);
    watch_fail(w, p, exit_status);
}

/* A short table of processes or descriptors may be longer the next time. */
static void start_failed(watch *w, run_process *p, fleet_status status)
{
    char why[300];

    snprintf(why, sizeof why, "%s cannot be started again: %s",
             run_process_name(p), fleet_last_error());
    if (status != FLEET_ENOENT && status != FLEET_ECHILD && schedule(w, p, why))
        return;
    lose(w, p, why,
         status == FLEET_ENOENT   ? NO_PROGRAM
         : status == FLEET_ECHILD ? CANNOT_EXECUTE
                                  : 1);
}

/* The process would begin anew where the others go on, and they would wait for
 * the one that they know. */
static bool journals_are_gone(watch *w, run_process *p)
{
    char why[sizeof w->first];

    if (!*w->job->journals || access(w->job->journals, F_OK) == 0 ||
        errno != ENOENT)
        return false;
    snprintf(why, sizeof why,
             "%s cannot be started again: the folder of journals, %.300s, is "
             "gone",
             run_process_name(p), w->job->journals);
    lose(w, p, why, 1);
    return true;
}

static void start_again(watch *w, run_process *p)
{
    const bool cut =
        ends_within_a_line(&p->output[0]) || ends_within_a_line(&p->output[1]);
    fleet_status status;

    p->restarts.due = 0;
    if (journals_are_gone(w, p))
        return;
    status = run_job_start(w->job, p);
    if (status != FLEET_OK) {
        start_failed(w, p, status);
        return;
    }
    p->restarts.started = watch_now_ms();
    p->restarts.n++;
    note_in_log(p, cut);
}

void watch_start_due(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];

        if (may_start(w, p) && p->restarts.due <= watch_now_ms())
            start_again(w, p);
    }
}

void watch_report_restarts(const watch *w)
{
    fl_text text = {0};
    int n = 0;

    for (int i = 0; i < w->job->n_all; i++) {
        const run_process *p = &w->job->process[i];

        if (p->restarts.n == 0)
            continue;
        fl_text_add(&text, "%s%d of %s", n > 0 ? ", " : "", p->restarts.n,
                    run_process_name(p));
        n += p->restarts.n;
    }
    if (n > 0)
        watch_report("%d restart%s: %s", n, n == 1 ? "" : "s",
                     fl_text_chars(&text));
    fl_text_done(&text);
}
