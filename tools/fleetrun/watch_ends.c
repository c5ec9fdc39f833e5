/* ends.c - how the processes of a job have ended, and what that means for it.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"
#include "spawn.h"
#include "tail.h"
#include "watching.h"

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
    int left = run_count_running(w->job);

    snprintf(w->first, sizeof w->first, "%s (pid %d) %s", run_name(p), pid,
             describe(p->status));
    snprintf(heading, sizeof heading, "fleetrun: %s", w->first);
    run_tail_show(heading, run_log_path(w->job, p));
    if (left > 0)
        run_say("%d other%s %g s to end", left,
                left == 1 ? " process has" : " processes have",
                w->job->options->grace_ms / 1000.0);
}

static void judge(watch *w, const run_process *p, int pid)
{
    if (p->status == 0 || !w->reports)
        return;
    if (w->exit_status != 0) {
        run_say("%s (pid %d) %s, too; see %s", run_name(p), pid,
                describe(p->status), run_log_path(w->job, p));
        return;
    }
    w->exit_status = exit_status_of(p->status);
    report_first(w, p, pid);
    run_enter(w, WATCH_GRACE, w->job->options->grace_ms, "the failure");
}

/* Servers end by themselves once all workers have left them. Where some workers
 * are on other nodes that may take as long as it takes. mpirun ends when those
 * that watch its ranks are let go; some ranks may never have come. */
static void check_workers(watch *w)
{
    if (run_ranks_run(w) || (w->phase < WATCH_TERM && !run_workers_came(w)))
        return;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        run_ranks_release(&w->job->process[i]);
    if (w->phase == WATCH_RUN)
        run_enter(w, WATCH_GRACE, w->job->options->grace_ms,
                  "the last worker's end");
}

/* What can be moved at once; all of it if there will be no more. */
void run_move(run_output *o)
{
    while (run_output_step(o) && o->ending)
        ;
}

/* What it has written is all. */
static void end_outputs(run_process *p)
{
    for (int i = 0; i < 2; i++) {
        run_output_end(&p->output[i]);
        run_move(&p->output[i]);
    }
}

static void hear_all(watch *w);

/* What the ranks had said before counts; who has said nothing has ended with
 * mpirun. */
static void end_ranks(watch *w)
{
    hear_all(w);
    for (int i = w->job->n_server; i < w->job->n_process; i++) {
        run_process *p = &w->job->process[i];

        run_ranks_release(p);
        p->pid = 0;
        end_outputs(p);
    }
}

/* When all ranks have ended well mpirun's own status is of no interest. */
static bool is_interesting(const watch *w)
{
    if (w->exit_status != 0)
        return false;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started || w->job->process[i].pid > 0 ||
            w->job->process[i].asked)
            return true;
    return false;
}

static void judge_mpirun(watch *w, run_process *p, int pid)
{
    bool interesting;

    hear_all(w);
    interesting = is_interesting(w);
    end_ranks(w);
    if (interesting && p->status == 0)
        p->status = 1 << 8; /* it has started less than it should */
    if (interesting)
        judge(w, p, pid);
    else if (w->phase == WATCH_RUN)
        run_enter(w, WATCH_GRACE, w->job->options->grace_ms,
                  "the last worker's end");
}

/* It has ended and is not reaped: its number still means its group alone. */
static void reap(watch *w, run_process *p)
{
    int pid = p->pid;

    kill(-pid, SIGKILL); /* what it started and left behind */
    waitpid(pid, &p->status, 0);
    p->pid = 0;
    end_outputs(p);
    if (p->is_mpirun) {
        judge_mpirun(w, p, pid);
        return;
    }
    judge(w, p, pid);
    check_workers(w);
}

static run_process *find(run_job *j, pid_t pid)
{
    for (int i = 0; i < j->n_all; i++)
        if (j->process[i].pid == pid && !j->process[i].by_mpirun)
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

/* --- ranks -----------------------------------------------------------------
 */

static void end_rank(watch *w, run_process *p, int status)
{
    int pid = p->pid;

    p->status = status;
    p->pid = 0;
    if (w->job->options->n_ip == 1) /* by tcp the last of it is still to come */
        end_outputs(p);
    if (!p->asked)
        judge(w, p, pid);
    check_workers(w);
}

/* Has mpirun ended, or does it in no time? */
static bool mpirun_ends(watch *w)
{
    const int64_t deadline = run_now_ms() + MPIRUN_MS;
    const run_process *m = run_mpirun(w);
    int left = MPIRUN_MS;

    for (; m->pid > 0 && left > 0; left = (int)(deadline - run_now_ms()))
        if (poll(&w->polled[POLLED_SIGNALS], 1, left) == 1)
            run_take_signals(w);
    return m->pid <= 0;
}

/* Who watched it has died, and the rank with it; if mpirun has died, that is
 * the failure, and all ranks have ended. */
static void lose_rank(watch *w, run_process *p)
{
    close(p->control);
    p->control = -1;
    if (p->pid > 0 && !mpirun_ends(w))
        end_rank(w, p, SIGKILL);
}

static void give_up_start(watch *w, run_process *p, int error)
{
    fleet_status status = run_spawn_failed(w->job->options->command[0], error);

    p->pid = 0;
    if (w->exit_status == 0) {
        run_say("%s", fleet_last_error());
        w->exit_status = status == FLEET_ENOENT ? 127 : 126;
        run_kill_all(w);
    }
    check_workers(w);
}

static void take_message(watch *w, run_process *p, const run_message *m)
{
    if (m->news == RUN_STARTED)
        p->pid = m->value;
    else if (m->news == RUN_NOT_STARTED)
        give_up_start(w, p, m->value);
    else {
        p->asked = m->news == RUN_WAS_ASKED;
        end_rank(w, p, m->value);
    }
}

void run_hear(watch *w, run_process *p)
{
    run_message m;

    if (run_ranks_hear(p, &m))
        take_message(w, p, &m);
    else
        lose_rank(w, p);
}

/* What has been said already. */
static void hear_all(watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++) {
        run_process *p = &w->job->process[i];
        run_message m;

        while (p->control >= 0 && p->pid > 0 && run_ranks_has(p) &&
               run_ranks_hear(p, &m))
            take_message(w, p, &m);
    }
}

void run_take_signals(watch *w)
{
    struct signalfd_siginfo info;

    while (read(w->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGCHLD)
            reap_all(w);
        else
            run_take_signal(w, (int)info.ssi_signo);
}
