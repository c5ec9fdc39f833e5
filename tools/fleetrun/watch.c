/* watch.c - see watch.h. One thread waits for whatever comes next: output, the
 * end of a process, a signal, a deadline. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "guard.h"
#include "tail.h"

enum { TERM_MS = 5000, NEVER = -1 };

/* What the processes that still run have been told, in this order. */
typedef enum watch_phase {
    WATCH_RUN,   /* nothing: all is well */
    WATCH_GRACE, /* nothing: they should end by themselves until the deadline */
    WATCH_TERM,  /* SIGTERM */
    WATCH_KILL   /* SIGKILL */
} watch_phase;

typedef struct watch {
    run_job *job;
    int life, signals;
    struct pollfd *polled; /* signals, life, then two per process */
    watch_phase phase;
    int64_t deadline;  /* of the phase, in ms; NEVER */
    int window;        /* how long the phase lasts, in ms */
    const char *since; /* what it began with */
    int exit_status;
    bool reports;   /* of processes that fail: not of those we have ended */
    bool abandoned; /* nobody waits for the output any more */
} watch;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    char line[PATH_MAX + 500] = "fleetrun: ";
    size_t n = strlen(line);
    va_list args;

    va_start(args, format);
    vsnprintf(line + n, sizeof line - n, format, args);
    va_end(args);
    dprintf(2, "%s\n", line);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int count_running(const run_job *j)
{
    int n = 0;

    for (int i = 0; i < j->n_process; i++)
        n += j->process[i].pid > 0;
    return n;
}

/* --- phases ----------------------------------------------------------------
 */

static void enter(watch *w, watch_phase phase, int ms, const char *since)
{
    w->phase = phase;
    w->window = ms;
    w->since = since;
    w->deadline = ms == NEVER ? NEVER : now_ms() + ms;
}

/* To the group of each that runs; one that is stopped must go on to notice. */
static void send_all(const watch *w, int signal)
{
    for (int i = 0; i < w->job->n_process; i++) {
        const run_process *p = &w->job->process[i];

        if (p->pid > 0) {
            kill(-p->pid, signal);
            kill(-p->pid, SIGCONT);
        }
    }
}

static void kill_all(watch *w)
{
    enter(w, WATCH_KILL, NEVER, w->since);
    w->reports = false;
    send_all(w, SIGKILL);
}

static void terminate_all(watch *w, int ms, const char *since)
{
    enter(w, WATCH_TERM, ms, since);
    w->reports = false;
    send_all(w, SIGTERM);
}

static void name_late(const watch *w, const char *signal)
{
    for (int i = 0; i < w->job->n_process; i++) {
        const run_process *p = &w->job->process[i];

        if (p->pid > 0)
            say("%s (pid %d) has not ended within %g s of %s: %s", run_name(p),
                (int)p->pid, w->window / 1000.0, w->since, signal);
    }
}

static void pass_deadline(watch *w)
{
    if (w->phase == WATCH_GRACE) {
        if (w->exit_status == 0) /* only servers are left, and all is done */
            w->exit_status = 1;
        name_late(w, "SIGTERM");
        terminate_all(w, TERM_MS, "SIGTERM");
    } else {
        name_late(w, "SIGKILL");
        kill_all(w);
    }
}

/* The first one asks, a second one insists. */
static void take_signal(watch *w, int signal)
{
    const char *name = sigabbrev_np(signal);

    if (w->exit_status == 0)
        w->exit_status = 128 + signal;
    w->abandoned = true;
    if (w->phase >= WATCH_TERM) {
        say("SIG%s: killing what is left", name);
        kill_all(w);
        return;
    }
    say("SIG%s: ending the job", name);
    terminate_all(w, w->job->options->grace_ms, "that signal");
}

/* --- ends ------------------------------------------------------------------
 */

static const char *describe(int status)
{
    static char text[64];

    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));

        snprintf(text, sizeof text, "was killed by SIG%s", name ? name : "RT");
    } else {
        snprintf(text, sizeof text, "ended with status %d",
                 WEXITSTATUS(status));
    }
    return text;
}

static int exit_status_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void report_first(watch *w, const run_process *p, int pid)
{
    char heading[200];
    int left = count_running(w->job);

    snprintf(heading, sizeof heading, "fleetrun: %s (pid %d) %s", run_name(p),
             pid, describe(p->status));
    run_tail_show(heading, run_log_path(w->job, p));
    if (left > 0)
        say("%d other%s %g s to end", left,
            left == 1 ? " process has" : " processes have",
            w->job->options->grace_ms / 1000.0);
}

static void judge(watch *w, const run_process *p, int pid)
{
    if (p->status == 0 || !w->reports)
        return;
    if (w->exit_status != 0) {
        say("%s (pid %d) %s, too; see %s", run_name(p), pid,
            describe(p->status), run_log_path(w->job, p));
        return;
    }
    w->exit_status = exit_status_of(p->status);
    report_first(w, p, pid);
    enter(w, WATCH_GRACE, w->job->options->grace_ms, "the failure");
}

/* Servers end by themselves once all workers have left them. Where some workers
 * are on other nodes that may take as long as it takes. */
static void check_servers(watch *w)
{
    if (w->phase != WATCH_RUN)
        return;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started || w->job->process[i].pid > 0)
            return;
    enter(w, WATCH_GRACE, w->job->options->grace_ms, "the last worker's end");
}

/* What can be moved at once; all of it if there will be no more. */
static void move(run_output *o)
{
    while (run_output_step(o) && o->ending)
        ;
}

/* It has ended and is not reaped: its number still means its group alone. */
static void reap(watch *w, run_process *p)
{
    int pid = p->pid;

    kill(-pid, SIGKILL); /* what it started and left behind */
    waitpid(pid, &p->status, 0);
    p->pid = 0;
    for (int i = 0; i < 2; i++) {
        run_output_end(&p->output[i]);
        move(&p->output[i]);
    }
    judge(w, p, pid);
    check_servers(w);
}

static run_process *find(run_job *j, pid_t pid)
{
    for (int i = 0; i < j->n_process; i++)
        if (j->process[i].pid == pid)
            return &j->process[i];
    return NULL;
}

static void reap_all(watch *w)
{
    for (;;) {
        siginfo_t info = {0};
        run_process *p;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            return;
        p = find(w->job, info.si_pid);
        if (p)
            reap(w, p);
        else
            waitpid(info.si_pid, NULL, 0); /* an orphan that was adopted */
    }
}

/* --- the loop --------------------------------------------------------------
 */

static void take_signals(watch *w)
{
    struct signalfd_siginfo info;

    while (read(w->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGCHLD)
            reap_all(w);
        else
            take_signal(w, (int)info.ssi_signo);
}

static bool is_over(const watch *w)
{
    if (count_running(w->job) > 0)
        return false;
    for (int i = 0; i < w->job->n_process && !w->abandoned; i++)
        for (int k = 0; k < 2; k++)
            if (!run_output_is_over(&w->job->process[i].output[k]))
                return false;
    return true;
}

/* Of the outputs: index 2 and on. */
static run_output *output_at(const watch *w, int i)
{
    return &w->job->process[(i - 2) / 2].output[i % 2];
}

static int time_left(const watch *w)
{
    int64_t left;

    if (w->deadline == NEVER || count_running(w->job) == 0)
        return -1;
    left = w->deadline - now_ms();
    return left < 0 ? 0 : (int)left;
}

static void wait_once(watch *w)
{
    const int n = 2 + 2 * w->job->n_process;

    for (int i = 2; i < n; i++)
        w->polled[i] = run_output_wants(output_at(w, i));
    if (poll(w->polled, (nfds_t)n, time_left(w)) < 0)
        return;
    for (int i = 2; i < n; i++)
        if (w->polled[i].revents)
            move(output_at(w, i));
    if (w->polled[0].revents)
        take_signals(w);
    if (w->polled[1].revents) {
        w->polled[1].fd = -1;
        w->abandoned = true;
        kill_all(w);
    }
    if (time_left(w) == 0)
        pass_deadline(w);
}

/* If one cannot be started, those that were are killed. */
static void start_all(watch *w)
{
    for (int i = 0; i < w->job->n_process; i++) {
        run_process *p = &w->job->process[i];
        fleet_status status = p->is_local ? run_start(w->job, p) : FLEET_OK;

        if (status == FLEET_OK)
            continue;
        say("%s", fleet_last_error());
        w->exit_status = status == FLEET_ENOENT   ? 127
                         : status == FLEET_ECHILD ? 126
                                                  : 1;
        kill_all(w);
        return;
    }
}

static fleet_status open_watch(watch *w)
{
    sigset_t signals = run_guard_signals();
    size_t n = 2 + 2 * (size_t)w->job->n_process;

    w->polled = fl_alloc_array(n, sizeof *w->polled);
    if (!w->polled)
        return FLEET_ENOMEM;
    w->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signals < 0)
        return fl_fail(FLEET_EIO, "cannot watch for signals: %s",
                       strerror(errno));
    w->polled[0] = (struct pollfd){.fd = w->signals, .events = POLLIN};
    w->polled[1] = (struct pollfd){.fd = w->life, .events = POLLIN};
    return FLEET_OK;
}

int run_watch(run_job *j, int life)
{
    watch w = {.job = j,
               .life = life,
               .signals = -1,
               .deadline = NEVER,
               .reports = true};

    if (open_watch(&w) == FLEET_OK) {
        start_all(&w);
        while (!is_over(&w))
            wait_once(&w);
    } else {
        say("%s", fleet_last_error());
        w.exit_status = 1;
    }
    if (w.signals >= 0)
        close(w.signals);
    fl_free(w.polled);
    return w.exit_status;
}
