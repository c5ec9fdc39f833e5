/* watch_phases.c - how the processes of a job are ended: grace, SIGTERM,
 * SIGKILL, each with a deadline. */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agents.h"
#include "watch_internal.h"

void __attribute__((format(printf, 1, 2))) watch_report(const char *format, ...)
{
    char line[PATH_MAX + 500] = "fleetrun: ";
    size_t n = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + n, sizeof line - n, format, args);
    va_end(args);
    dprintf(2, "%s\n", line);
}

int64_t watch_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool watch_lives(const watch *w, const run_process *p)
{
    return p->pid > 0 || watch_is_due(w, p);
}

int watch_count_running(const watch *w)
{
    int n = 0;

    for (int i = 0; i < w->job->n_all; i++)
        n += !w->job->process[i].is_mpirun &&
             watch_lives(w, &w->job->process[i]);
    return n;
}

run_process *watch_mpirun(const watch *w)
{
    return w->job->by_mpirun ? &w->job->process[w->job->n_process] : NULL;
}

bool watch_any_runs(const watch *w)
{
    return watch_count_running(w) > 0 ||
           (watch_mpirun(w) && watch_mpirun(w)->pid > 0);
}

static bool any_lives(const watch *w, int first)
{
    for (int i = first; i < w->job->n_process; i++)
        if (watch_lives(w, &w->job->process[i]))
            return true;
    return false;
}

bool watch_ranks_run(const watch *w)
{
    return any_lives(w, w->job->n_server);
}

bool watch_workers_started(const watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started)
            return false;
    return true;
}

/* --- phases --------------------------------------------------------------- */

void watch_enter_phase(watch *w, watch_phase phase, int ms, const char *since)
{
    w->phase = phase;
    w->phase_ms = ms;
    w->since = since;
    w->deadline = ms == NEVER ? NEVER : watch_now_ms() + ms;
}

/* To the process's group; one that is stopped must go on to notice. */
static void signal_process(const run_process *p, int signal)
{
    if (p->pid <= 0)
        return;
    if (p->by_mpirun) {
        run_agents_signal(p, signal);
        return;
    }
    kill(-p->pid, signal);
    kill(-p->pid, SIGCONT);
}

/* mpirun ends by itself when its ranks have ended, and tidies up. */
static void signal_all(const watch *w, int signal)
{
    for (int i = 0; i < w->job->n_all; i++)
        if (!w->job->process[i].is_mpirun)
            signal_process(&w->job->process[i], signal);
    if (watch_mpirun(w) && (w->at_once || !watch_ranks_run(w)))
        signal_process(watch_mpirun(w), signal);
}

void watch_kill_all(watch *w)
{
    w->at_once = w->at_once || w->phase == WATCH_KILL;
    watch_enter_phase(w, WATCH_KILL,
                      watch_mpirun(w) && !w->at_once ? TERM_MS : NEVER,
                      w->since);
    w->reports = false;
    signal_all(w, SIGKILL);
}

static void terminate_all(watch *w, int ms, const char *since)
{
    watch_enter_phase(w, WATCH_TERM, ms, since);
    w->reports = false;
    signal_all(w, SIGTERM);
}

/* Workers that stop need their servers until they have saved. */
static void terminate_workers(watch *w, int ms, const char *since)
{
    watch_enter_phase(w, WATCH_TERM, ms,
                      since); /* and nobody is due any more */
    w->spares_servers = w->job->n_server > 0 && watch_ranks_run(w);
    if (!w->spares_servers) {
        terminate_all(w, ms, since);
        return;
    }
    w->reports = false;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        signal_process(&w->job->process[i], SIGTERM);
}

void watch_terminate_servers(watch *w)
{
    w->spares_servers = false;
    for (int i = 0; i < w->job->n_all; i++)
        if (w->job->process[i].is_server)
            signal_process(&w->job->process[i], SIGTERM);
}

void watch_terminate_newcomers(watch *w)
{
    for (int i = w->job->n_process; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];

        if (!p->joins || p->counts)
            continue;
        p->restarts.due = 0; /* nor is it started again */
        signal_process(p, SIGTERM);
    }
}

static void report_late(const watch *w, const char *signal)
{
    for (int i = 0; i < w->job->n_all; i++) {
        const run_process *p = &w->job->process[i];

        if (p->pid > 0 && (!p->is_mpirun || !watch_ranks_run(w)))
            watch_report("%s (pid %d) has not ended within %g s of %s: %s",
                         run_process_name(p), (int)p->pid, w->phase_ms / 1000.0,
                         w->since, signal);
    }
}

static void report_missing(const watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started)
            watch_report("mpirun has not started %s within %g s: SIGTERM; see "
                         "mpirun.log",
                         run_process_name(&w->job->process[i]),
                         w->phase_ms / 1000.0);
}

static bool only_joined_run(const watch *w)
{
    return !any_lives(w, 0);
}

void watch_deadline_passed(watch *w)
{
    if (w->phase == WATCH_RUN) {
        w->exit_status = 1;
        report_missing(w);
        terminate_all(w, TERM_MS, "SIGTERM");
    } else if (w->phase == WATCH_GRACE) {
        /* Only servers are left, and all is done. With replicas that may be one
         * that the job did without: it sleeps, or was started again too late
         * to find the others. One that joins may wait for its first lane. */
        if (w->exit_status == 0 && w->job->options->replicas < 2 &&
            !only_joined_run(w))
            w->exit_status = 1;
        report_late(w, "SIGTERM");
        terminate_all(w, TERM_MS, "SIGTERM");
    } else {
        if (w->phase == WATCH_TERM)
            report_late(w, "SIGKILL");
        watch_kill_all(w);
    }
}

/* The first one asks, a second one insists. */
void watch_handle_signal(watch *w, int signal)
{
    const char *name = sigabbrev_np(signal);

    if (w->exit_status == 0)
        w->exit_status = 128 + signal;
    w->abandoned = true;
    if (w->phase >= WATCH_TERM) {
        watch_report("SIG%s: killing what is left", name);
        watch_kill_all(w);
        return;
    }
    watch_report("SIG%s: ending the job", name);
    terminate_workers(w, w->job->options->grace_ms, "that signal");
}
