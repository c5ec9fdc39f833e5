/* watch.c - see watch.h. One thread waits for whatever comes next: output, the
 * end of a process, a signal, a deadline. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "guard.h"
#include "ranks.h"
#include "watching.h"

/* --- the loop --------------------------------------------------------------
 */

static bool is_over(const watch *w)
{
    if (run_anything_runs(w))
        return false;
    for (int i = 0; i < w->job->n_all && !w->abandoned; i++)
        for (int k = 0; k < 2; k++)
            if (!run_output_is_over(&w->job->process[i].output[k]))
                return false;
    return true;
}

static int time_left(const watch *w)
{
    int64_t left;

    if (w->deadline == NEVER || !run_anything_runs(w))
        return -1;
    left = w->deadline - run_now_ms();
    return left < 0 ? 0 : (int)left;
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
        of[2] = (struct pollfd){.fd = p->control, .events = POLLIN};
    }
    return (nfds_t)(N_POLLED + POLLED_OF_EACH * w->job->n_all);
}

static void take_outputs(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];

        for (int k = 0; k < 2; k++)
            if (polled_of(w, i)[k].revents)
                run_move(&p->output[k]);
    }
}

/* Who was killed comes before those that may have failed because of it. */
static void hear_ranks(watch *w)
{
    for (int killed = 1; killed >= 0; killed--)
        for (int i = w->job->n_server; i < w->job->n_process; i++) {
            run_process *p = &w->job->process[i];

            if (p->control >= 0 && polled_of(w, i)[2].revents &&
                (!killed || run_ranks_was_killed(p))) {
                polled_of(w, i)[2].revents = 0;
                run_hear(w, p);
            }
        }
}

/* All have come: from now on they may take as long as they like. */
static void accept_rank(watch *w)
{
    run_ranks_accept(w->job, w->phase >= WATCH_TERM);
    if (w->phase == WATCH_RUN && run_workers_came(w))
        run_enter(w, WATCH_RUN, NEVER, NULL);
}

/* In the order in which things may have come about: who tells of an end, one
 * that has ended, who comes. */
static void take_news(watch *w)
{
    hear_ranks(w);
    if (w->polled[POLLED_SIGNALS].revents)
        run_take_signals(w);
    if (w->polled[POLLED_RANKS].revents)
        accept_rank(w);
}

static void wait_once(watch *w)
{
    if (poll(w->polled, prepare_poll(w), time_left(w)) < 0)
        return;
    take_outputs(w);
    take_news(w);
    if (w->polled[POLLED_LIFE].revents) {
        w->polled[POLLED_LIFE].fd = -1;
        w->abandoned = w->at_once = true;
        run_kill_all(w);
    }
    if (time_left(w) == 0)
        run_pass_deadline(w);
}

/* If one cannot be started, those that were are killed. */
static void start_all(watch *w)
{
    for (int i = 0; i < w->job->n_all; i++) {
        run_process *p = &w->job->process[i];
        fleet_status status =
            p->is_local && !p->by_mpirun ? run_start(w->job, p) : FLEET_OK;

        if (status == FLEET_OK)
            continue;
        run_say("%s", fleet_last_error());
        w->exit_status = status == FLEET_ENOENT   ? 127
                         : status == FLEET_ECHILD ? 126
                                                  : 1;
        run_kill_all(w);
        return;
    }
}

static fleet_status open_watch(watch *w)
{
    sigset_t signals = run_guard_signals();
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
    w->polled[POLLED_LIFE] = (struct pollfd){.fd = w->life, .events = POLLIN};
    w->polled[POLLED_RANKS] =
        (struct pollfd){.fd = w->job->listener, .events = POLLIN};
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
        if (j->by_mpirun && w.phase == WATCH_RUN)
            run_enter(&w, WATCH_RUN, j->options->connect_ms, "the start");
        while (!is_over(&w))
            wait_once(&w);
        if (*w.first && j->n_process > 1)
            run_say("the job has failed: %s", w.first);
    } else {
        run_say("%s", fleet_last_error());
        w.exit_status = 1;
    }
    if (w.signals >= 0)
        close(w.signals);
    fl_free(w.polled);
    return w.exit_status;
}
