/* watch.c - the loop of a running job. One thread waits for whatever comes
 * next: output, the end of a process, a signal, a deadline. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "keeper.h"
#include "agents.h"
#include "watch_internal.h"

static bool is_over(const watch *w)
{
    if (watch_any_runs(w))
        return false;
    for (int i = 0; i < w->job->n_all && !w->abandoned; i++)
        for (int k = 0; k < 2; k++)
            if (!run_output_is_over(&w->job->process[i].output[k]))
                return false;
    return true;
}

static int left_until(int64_t time)
{
    const int64_t left = time - watch_now_ms();

    if (time == NEVER)
        return -1;
    return left < 0 ? 0 : (int)left;
}

static int time_left(const watch *w)
{
    return watch_any_runs(w) ? left_until(w->deadline) : -1;
}

/* Until the next of what does not come as an event. */
static int time_to_wait(const watch *w)
{
    const int left = time_left(w), restart = left_until(watch_next_restart(w));

    return left < 0 || (restart >= 0 && restart < left) ? restart : left;
}

static struct pollfd *polled_of(const watch *w, int i)
{
    return w->polled + N_POLLED + POLLED_OF_EACH * i;
}

static nfds_t prepare_poll(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        const run_process *p = &w->job->process[i];
        struct pollfd *of = polled_of(w, i);

        of[0] = run_output_wants(&p->output[0]);
        of[1] = run_output_wants(&p->output[1]);
        of[2] = (struct pollfd){.fd = p->agent, .events = POLLIN};
    }
    return (nfds_t)(N_POLLED + POLLED_OF_EACH * w->job->n_all);
}

static void move_outputs(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];

        for (int k = 0; k < 2; k++)
            if (polled_of(w, i)[k].revents)
                watch_move_output(&p->output[k]);
    }
}

/* Ranks that a signal has killed come first: other ranks may have failed
 * because of them. */
static void read_ready_agents(watch *w)
{
    for (int killed = 1; killed >= 0; killed--)
        for (int i = w->job->n_server; i < w->job->n_process; i++) {
            run_process *p = &w->job->process[i];

            if (p->agent >= 0 && polled_of(w, i)[2].revents &&
                (!killed || run_agents_was_killed(p))) {
                polled_of(w, i)[2].revents = 0;
                watch_read_agent(w, p);
            }
        }
}

/* Once all agents have come the ranks have no deadline. */
static void accept_agent(watch *w)
{
    run_agents_accept(w->job, w->phase >= WATCH_TERM);
    if (w->phase == WATCH_RUN && watch_workers_started(w))
        watch_enter_phase(w, WATCH_RUN, NEVER, NULL);
}

/* In the order in which events may have come about: a reported end, a
 * child's end, a new agent. */
static void handle_events(watch *w)
{
    read_ready_agents(w);
    if (w->polled[POLLED_SIGNALS].revents)
        watch_read_signals(w);
    if (w->polled[POLLED_AGENTS].revents)
        accept_agent(w);
    if (w->polled[POLLED_REQUESTS].revents)
        watch_read_requests(w);
}

static void wait_once(watch *w)
{
    if (poll(w->polled, prepare_poll(w), time_to_wait(w)) < 0)
        return;
    move_outputs(w);
    handle_events(w);
    if (w->polled[POLLED_ALIVE].revents) {
        w->polled[POLLED_ALIVE].fd = -1;
        w->abandoned = w->at_once = true;
        watch_kill_all(w);
    }
    watch_start_due(w);
    if (time_left(w) == 0)
        watch_deadline_passed(w);
}

/* If one cannot be started, the processes started before it are killed. */
static void start_all(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];
        fleet_status status =
            p->is_local && !p->by_mpirun ? run_job_start(w->job, p) : FLEET_OK;

        if (status == FLEET_OK)
            continue;
        watch_report("%s", fleet_last_error());
        w->exit_status = status == FLEET_ENOENT   ? 127
                         : status == FLEET_ECHILD ? 126
                                                  : 1;
        watch_kill_all(w);
        return;
    }
}

static fleet_status open_watch(watch *w)
{
    sigset_t signals = run_keeper_signals();
    size_t n = N_POLLED + POLLED_OF_EACH * (size_t)w->job->n_all;

    w->polled = fl_alloc_array(n, sizeof *w->polled);
    if (!w->polled)
        return FLEET_ENOMEM;
    w->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signals < 0)
        return fl_fail(FLEET_EIO, "cannot watch for signals: %s",
                       strerror(errno));
    w->polled[POLLED_SIGNALS] =
        (struct pollfd){.fd = w->signals, .events = POLLIN};
    w->polled[POLLED_ALIVE] = (struct pollfd){.fd = w->alive, .events = POLLIN};
    w->polled[POLLED_AGENTS] =
        (struct pollfd){.fd = w->job->agent_listener, .events = POLLIN};
    w->polled[POLLED_REQUESTS] =
        (struct pollfd){.fd = w->job->requests, .events = POLLIN};
    return FLEET_OK;
}

/* Results that nobody got are no success. */
static void report_lost_lines(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++)
        for (int k = 0; k < 2; k++) {
            const run_process *p = &w->job->process[i];
            const int error = p->output[k].show_error;

            if (error == 0)
                continue;
            watch_report("the output of %s is lost: %s; %s has all of it",
                         run_process_name(p), strerror(error),
                         run_process_log(w->job, p));
            if (w->exit_status == 0)
                w->exit_status = 1;
        }
}

int run_watch(run_job *j, int alive)
{
    watch w = {.job = j,
               .alive = alive,
               .signals = -1,
               .deadline = NEVER,
               .reports = true};

    if (open_watch(&w) == FLEET_OK) {
        start_all(&w);
        if (j->by_mpirun && w.phase == WATCH_RUN)
            watch_enter_phase(&w, WATCH_RUN, j->options->connect_ms,
                              "the start");
        while (!is_over(&w))
            wait_once(&w);
        report_lost_lines(&w);
        watch_report_restarts(&w);
        if (*w.first && j->n_process > 1)
            watch_report("the job has failed: %s", w.first);
    } else {
        watch_report("%s", fleet_last_error());
        w.exit_status = 1;
    }
    if (w.signals >= 0)
        close(w.signals);
    fl_free(w.polled);
    return w.exit_status;
}
