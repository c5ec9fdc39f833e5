/* phases.c - how the processes of a job are ended. */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ranks.h"
#include "watching.h"

void __attribute__((format(printf, 1, 2))) run_say(const char *format, ...)
{
    char line[PATH_MAX + 500] = "fleetrun: ";
    size_t n = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + n, sizeof line - n, format, args);
    va_end(args);
    dprintf(2, "%s\n", line);
}

int64_t run_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int run_count_running(const run_job *j)
{
    int n = 0;

    for (int i = 0; i < j->n_process; i++)
        n += j->process[i].pid > 0;
    return n;
}

run_process *run_mpirun(const watch *w)
{
    return w->job->by_mpirun ? &w->job->process[w->job->n_process] : NULL;
}

bool run_anything_runs(const watch *w)
{
    return run_count_running(w->job) > 0 ||
           (run_mpirun(w) && run_mpirun(w)->pid > 0);
}

bool run_ranks_run(const watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (w->job->process[i].pid > 0)
            return true;
    return false;
}

bool run_workers_came(const watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started)
            return false;
    return true;
}

/* --- phases ----------------------------------------------------------------
 */

void run_enter(watch *w, watch_phase phase, int ms, const char *since)
{
    w->phase = phase;
    w->window = ms;
    w->since = since;
    w->deadline = ms == NEVER ? NEVER : run_now_ms() + ms;
}

/* To its group; one that is stopped must go on to notice. */
static void send_one(const run_process *p, int signal)
{
    if (p->pid <= 0)
        return;
    if (p->by_mpirun) {
        run_ranks_signal(p, signal);
        return;
    }
    kill(-p->pid, signal);
    kill(-p->pid, SIGCONT);
}

/* mpirun ends when its ranks have, and tidies up. */
static void send_all(const watch *w, int signal)
{
    for (int i = 0; i < w->job->n_process; i++)
        send_one(&w->job->process[i], signal);
    if (run_mpirun(w) && (w->at_once || !run_ranks_run(w)))
        send_one(run_mpirun(w), signal);
}

void run_kill_all(watch *w)
{
    w->at_once = w->at_once || w->phase == WATCH_KILL;
    run_enter(w, WATCH_KILL, run_mpirun(w) && !w->at_once ? TERM_MS : NEVER,
              w->since);
    w->reports = false;
    send_all(w, SIGKILL);
}

static void terminate_all(watch *w, int ms, const char *since)
{
    run_enter(w, WATCH_TERM, ms, since);
    w->reports = false;
    send_all(w, SIGTERM);
}

static void name_late(const watch *w, const char *signal)
{
    for (int i = 0; i < w->job->n_all; i++) {
        const run_process *p = &w->job->process[i];

        if (p->pid > 0 && (!p->is_mpirun || !run_ranks_run(w)))
            run_say("%s (pid %d) has not ended within %g s of %s: %s",
                    run_name(p), (int)p->pid, w->window / 1000.0, w->since,
                    signal);
    }
}

static void name_missing(const watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started)
            run_say("mpirun has not started %s within %g s: SIGTERM; see "
                    "mpirun.log",
                    run_name(&w->job->process[i]), w->window / 1000.0);
}

void run_pass_deadline(watch *w)
{
    if (w->phase == WATCH_RUN) {
        w->exit_status = 1;
        name_missing(w);
        terminate_all(w, TERM_MS, "SIGTERM");
    } else if (w->phase == WATCH_GRACE) {
        if (w->exit_status == 0) /* only servers are left, and all is done */
            w->exit_status = 1;
        name_late(w, "SIGTERM");
        terminate_all(w, TERM_MS, "SIGTERM");
    } else {
        if (w->phase == WATCH_TERM)
            name_late(w, "SIGKILL");
        run_kill_all(w);
    }
}

/* The first one asks, a second one insists. */
void run_take_signal(watch *w, int signal)
{
    const char *name = sigabbrev_np(signal);

    if (w->exit_status == 0)
        w->exit_status = 128 + signal;
    w->abandoned = true;
    if (w->phase >= WATCH_TERM) {
        run_say("SIG%s: killing what is left", name);
        run_kill_all(w);
        return;
    }
    run_say("SIG%s: ending the job", name);
    terminate_all(w, w->job->options->grace_ms, "that signal");
}
