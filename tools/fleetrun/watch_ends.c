/* watch_ends.c - how the processes of a job have ended, and what that means for
 * the job. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agents.h"
#include "job_journals.h"
#include "spawn.h"
#include "watch_internal.h"

enum { TAIL_LINES = 20, TAIL_BYTES = 16 << 10 };

const char *watch_status_text(int status)
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

/* Read up to `size` bytes of the file's end; the number read. */
static size_t read_end(const char *path, char *bytes, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n = 0;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0)
        n = pread(fd, bytes, size,
                  st.st_size > (off_t)size ? st.st_size - (off_t)size : 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* Write "HEADING; PATH ends with:" and the log's last lines, where a user looks
 * first, to stderr. */
static void show_log_tail(const char *heading, const char *path)
{
    char bytes[TAIL_BYTES];
    size_t n = read_end(path, bytes, sizeof bytes), at;
    int lines = 0;

    if (n == 0) {
        dprintf(2, "%s; %s is empty\n", heading, path);
        return;
    }
    n -= bytes[n - 1] == '\n';
    for (at = n; at > 0; at--)
        if (bytes[at - 1] == '\n' && ++lines == TAIL_LINES)
            break;
    dprintf(2, "%s; %s ends with:\n%.*s\n", heading, path, (int)(n - at),
            bytes + at);
}

void watch_fail(watch *w, const run_process *p, int exit_status)
{
    char heading[sizeof w->first + 20];
    int left;

    w->exit_status = exit_status;
    watch_enter_phase(w, WATCH_GRACE, w->job->options->grace_ms, "the failure");
    left = watch_count_running(w);
    snprintf(heading, sizeof heading, "fleetrun: %s", w->first);
    show_log_tail(heading, run_process_log(w->job, p));
    if (left > 0)
        watch_report("%d other%s %g s to end", left,
                     left == 1 ? " process has" : " processes have",
                     w->job->options->grace_ms / 1000.0);
}

/* --- servers with replicas ------------------------------------------------ */

/* The other copies of what server p keeps, or whose other copies p has. */
static const run_process *neighbour_of(const watch *w, const run_process *p,
                                       int step)
{
    const int n = w->job->n_server;

    return &w->job->process[(p->index + step + n) % n];
}

static bool is_gone(const run_process *p)
{
    return p->was_started && p->pid == 0;
}

/* The one beside the server that had ended before it; NULL: none had. */
static const run_process *gone_beside(const watch *w, const run_process *p)
{
    if (w->job->options->replicas < 2 || !p->is_server)
        return NULL;
    for (int step = -1; step <= 1; step += 2)
        if (is_gone(neighbour_of(w, p, step)))
            return neighbour_of(w, p, step);
    return NULL;
}

/* One that was started again has copies at most, of what others lead: what it
 * fails of, perhaps that the job has ended on all other nodes, is no failure
 * of theirs. */
static bool is_newcomer(const run_process *p)
{
    return p->restarts.n > 0 && p->status != 0;
}

/* A server has died, and of each two copies one is left: the job goes on. */
static bool is_outlived(const watch *w, const run_process *p, const char *why)
{
    if (w->job->options->replicas < 2 || !p->is_server ||
        w->phase > WATCH_GRACE || w->exit_status != 0 ||
        (!watch_has_died(p->status) && !is_newcomer(p)) || gone_beside(w, p))
        return false;
    watch_report("%s: the job goes on without it, as server %d has a copy of "
                 "what it kept (--replicas 2); see %s",
                 why, neighbour_of(w, p, 1)->index, run_process_log(w->job, p));
    return true;
}

/* ", after server 0, ..." or "". In a buffer of the next call's. */
static const char *why_not_outlived(const watch *w, const run_process *p)
{
    static char text[120];
    const run_process *other = gone_beside(w, p);

    *text = 0;
    if (other && watch_has_died(p->status))
        snprintf(text, sizeof text,
                 ", after server %d: both copies of some of their lanes are "
                 "gone",
                 other->index);
    return text;
}

static void report_failure(watch *w, const run_process *p, int pid)
{
    if (p->status == 0 || !w->reports)
        return;
    if (w->exit_status != 0) {
        watch_report("%s (pid %d) %s, too; see %s", run_process_name(p), pid,
                     watch_status_text(p->status), run_process_log(w->job, p));
        return;
    }
    snprintf(w->first, sizeof w->first, "%s (pid %d) %s%s%s",
             run_process_name(p), pid, watch_status_text(p->status),
             watch_restart_limit(w, p), why_not_outlived(w, p));
    watch_fail(w, p, exit_status_of(p->status));
}

static void begin_grace(watch *w)
{
    watch_enter_phase(w, WATCH_GRACE, w->job->options->grace_ms,
                      "the last worker's end");
    watch_terminate_newcomers(w);
}

/* Servers end by themselves once all workers have left them; where some workers
 * are on other nodes that has no deadline. mpirun ends when the agents of its
 * ranks are released; some of them may never have come. */
static void check_workers(watch *w)
{
    if (watch_ranks_run(w) ||
        (w->phase < WATCH_TERM && !watch_workers_started(w)))
        return;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        run_agents_release(&w->job->process[i]);
    if (w->phase == WATCH_RUN)
        begin_grace(w);
    if (w->spares_servers)
        watch_terminate_servers(w);
}

void watch_move_output(run_output *o)
{
    while (run_output_step(o) && o->ending)
        ;
}

/* The process has ended: what its pipes hold now is all. */
static void end_outputs(run_process *p)
{
    for (int i = 0; i < 2; i++) {
        run_output_end(&p->output[i]);
        watch_move_output(&p->output[i]);
    }
}

static void read_agents(watch *w);

/* mpirun has ended. What agents had reported before counts; all other ranks
 * have ended with it. */
static void release_agents(watch *w)
{
    read_agents(w);
    for (int i = w->job->n_server; i < w->job->n_process; i++) {
        run_process *p = &w->job->process[i];

        run_agents_release(p);
        p->pid = 0;
        end_outputs(p);
    }
}

/* mpirun's own status matters only where a rank is missing, or was ended by
 * it. */
static bool mpirun_has_failed(const watch *w)
{
    if (w->exit_status != 0)
        return false;
    for (int i = w->job->n_server; i < w->job->n_process; i++)
        if (!w->job->process[i].was_started || w->job->process[i].pid > 0 ||
            w->job->process[i].ended_by_mpirun)
            return true;
    return false;
}

static void mpirun_ended(watch *w, run_process *p, int pid)
{
    bool failed;

    read_agents(w);
    failed = mpirun_has_failed(w);
    release_agents(w);
    if (failed && p->status == 0)
        p->status = 1 << 8; /* as if it had ended with 1 */
    if (failed)
        report_failure(w, p, pid);
    else if (w->phase == WATCH_RUN)
        begin_grace(w);
}

/* It has ended and is not reaped yet, so its pid still names its group
 * alone. */
static void reap_process(watch *w, run_process *p)
{
    int pid = p->pid;
    char why[80];

    kill(-pid, SIGKILL); /* what it started and left behind */
    waitpid(pid, &p->status, 0);
    p->pid = 0;
    end_outputs(p);
    if (p->is_mpirun) {
        mpirun_ended(w, p, pid);
        return;
    }
    snprintf(why, sizeof why, "%s (pid %d) %s", run_process_name(p), pid,
             watch_status_text(p->status));
    if (watch_restart(w, p, why))
        return;
    run_job_leave_port(p);
    if (p->joins && p->status == 0)
        run_journals_forget_joined(w->job, p);
    if (!is_outlived(w, p, why) && watch_is_missed(w, p, why))
        report_failure(w, p, pid);
    check_workers(w);
}

static run_process *find_process(run_job *j, pid_t pid)
{
    for (int i = 0; i < j->n_all; i++)
        if (j->process[i].pid == pid && !j->process[i].by_mpirun)
            return &j->process[i];
    return NULL;
}

/* Of the processes that have ended those that a signal has killed: other
 * processes may have failed because of them. */
static void reap_killed(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];
        siginfo_t info = {0};

        if (p->pid > 0 && !p->by_mpirun &&
            waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) ==
                0 &&
            info.si_pid == p->pid && info.si_code != CLD_EXITED)
            reap_process(w, p);
    }
}

static void reap_all(watch *w)
{
    reap_killed(w);
    for (;;) {
        siginfo_t info = {0};
        run_process *p;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            return;
        p = find_process(w->job, info.si_pid);
        if (p)
            reap_process(w, p);
        else
            waitpid(info.si_pid, NULL, 0); /* an orphan that was adopted */
    }
}

/* --- ranks beneath mpirun ------------------------------------------------- */

static void rank_ended(watch *w, run_process *p, int status)
{
    int pid = p->pid;

    p->status = status;
    p->pid = 0;
    if (w->job->options->n_ip == 1) /* by tcp the last of it is still to come */
        end_outputs(p);
    if (!p->ended_by_mpirun)
        report_failure(w, p, pid);
    check_workers(w);
}

/* Has mpirun ended, or does it end within MPIRUN_END_MS? */
static bool mpirun_ends(watch *w)
{
    const int64_t deadline = watch_now_ms() + MPIRUN_END_MS;
    const run_process *m = watch_mpirun(w);
    int left = MPIRUN_END_MS;

    for (; m->pid > 0 && left > 0; left = (int)(deadline - watch_now_ms()))
        if (poll(&w->polled[POLLED_SIGNALS], 1, left) == 1)
            watch_read_signals(w);
    return m->pid <= 0;
}

/* The agent has died, and its rank with it. If mpirun has died, that is the
 * failure, and all ranks have ended. */
static void agent_lost(watch *w, run_process *p)
{
    close(p->agent);
    p->agent = -1;
    if (p->pid > 0 && !mpirun_ends(w))
        rank_ended(w, p, SIGKILL);
}

static void rank_not_started(watch *w, run_process *p, int error)
{
    fleet_status status = run_spawn_failed(w->job->options->command[0], error);

    p->pid = 0;
    if (w->exit_status == 0) {
        watch_report("%s", fleet_last_error());
        w->exit_status = status == FLEET_ENOENT ? 127 : 126;
        watch_kill_all(w);
    }
    check_workers(w);
}

static void handle_message(watch *w, run_process *p, const run_agent_message *m)
{
    if (m->event == RUN_RANK_STARTED)
        p->pid = m->value;
    else if (m->event == RUN_RANK_NOT_STARTED)
        rank_not_started(w, p, m->value);
    else {
        p->ended_by_mpirun = m->event == RUN_RANK_ENDED_BY_MPIRUN;
        rank_ended(w, p, m->value);
    }
}

void watch_read_agent(watch *w, run_process *p)
{
    run_agent_message m;

    if (run_agents_receive(p, &m))
        handle_message(w, p, &m);
    else
        agent_lost(w, p);
}

/* Handle the messages that have come already. */
static void read_agents(watch *w)
{
    for (int i = w->job->n_server; i < w->job->n_process; i++) {
        run_process *p = &w->job->process[i];
        run_agent_message m;

        while (p->agent >= 0 && p->pid > 0 && run_agents_has_message(p) &&
               run_agents_receive(p, &m))
            handle_message(w, p, &m);
    }
}

void watch_read_signals(watch *w)
{
    struct signalfd_siginfo info;

    while (read(w->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo == SIGCHLD)
            reap_all(w);
        else
            watch_handle_signal(w, (int)info.ssi_signo);
}
