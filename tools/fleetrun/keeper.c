/* keeper.c - fork the keeper, pass signals on to it, adopt and kill orphans. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { INSIST_S = 5 };

sigset_t run_keeper_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, ends[i]);
    return set;
}

/* Kill one child of this process, of the job or adopted; false when there is
 * none that can be killed. */
static bool kill_a_child(void)
{
    FILE *list = fopen("/proc/thread-self/children", "re");
    bool killed = false;
    int pid;

    while (list && !killed && fscanf(list, "%d", &pid) == 1)
        killed = kill(pid, SIGKILL) == 0 &&
                 (waitpid(pid, NULL, 0) == pid || errno == EINTR);
    if (list)
        fclose(list);
    return killed;
}

/* Each that dies leaves its own children to this process. */
void run_keeper_kill_children(void)
{
    while (kill_a_child())
        ;
}

/* The keeper's side. It has a process group of its own, so that a terminal's
 * signals come once, through fleetrun. */
static void __attribute__((noreturn))
become_keeper(int (*keep)(void *user, int alive), void *user, int alive)
{
    int status;

    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN); /* a terminal may stop background writers */
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "fleetrun-keeper");
    status = keep(user, alive);
    run_keeper_kill_children();
    exit(status);
}

/* What fleetrun knows of its keeper. */
typedef struct keeper_state {
    pid_t pid;
    int n_signal, first; /* that were passed on */
    time_t deadline;     /* after the second one */
    bool was_killed;     /* by fleetrun */
} keeper_state;

static time_t now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* The first signal asks; at a second one the keeper kills the job and ends. */
static void pass_on(keeper_state *k, int s)
{
    if (k->n_signal++ == 0)
        k->first = s;
    if (k->n_signal == 2)
        k->deadline = now_s() + INSIST_S;
    kill(k->pid, s);
}

/* A keeper that cannot end is killed, and with it what it has started. */
static void wait_for_signal(keeper_state *k, const sigset_t *signals)
{
    static const struct timespec second = {.tv_sec = 1};
    int s = sigtimedwait(signals, NULL, k->deadline ? &second : NULL);

    if (s > 0 && s != SIGCHLD)
        pass_on(k, s);
    if (!k->deadline || now_s() <= k->deadline)
        return;
    k->was_killed = true;
    kill(k->pid, SIGKILL);
}

/* Has it ended? One that was stopped goes on: a job is watched, or ended. */
static bool has_ended(const keeper_state *k, int *status)
{
    if (waitpid(k->pid, status, WNOHANG | WUNTRACED) != k->pid)
        return false;
    if (!WIFSTOPPED(*status))
        return true;
    dprintf(2,
            "fleetrun: its keeper (pid %d) was stopped by SIG%s: it goes on\n",
            k->pid, sigabbrev_np(WSTOPSIG(*status)));
    kill(k->pid, SIGCONT);
    return false;
}

/* Pass signals on until the keeper has ended; its status. */
static int wait_for_keeper(pid_t keeper, const sigset_t *signals)
{
    keeper_state k = {.pid = keeper};
    int status;

    while (!has_ended(&k, &status))
        wait_for_signal(&k, signals);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    dprintf(2, "fleetrun: its keeper (pid %d) was killed by SIG%s%s\n", keeper,
            sigabbrev_np(WTERMSIG(status)),
            k.was_killed ? ": it had not ended after the second signal" : "");
    return 128 + (k.was_killed ? k.first : WTERMSIG(status));
}

fleet_status run_keeper(int (*keep)(void *user, int alive), void *user,
                        int *exit_status)
{
    sigset_t signals = run_keeper_signals();
    int alive[2];
    pid_t keeper;

    signal(SIGCHLD, SIG_DFL); /* if ignored, waitpid() has no statuses */
    sigprocmask(SIG_SETMASK, &signals, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(alive, O_CLOEXEC) != 0 || (keeper = fork()) < 0)
        return fl_fail(FLEET_EIO, "cannot start the keeper: %s",
                       strerror(errno));
    if (keeper == 0) {
        close(alive[1]);
        become_keeper(keep, user, alive[0]);
    }
    close(alive[0]);
    *exit_status = wait_for_keeper(keeper, &signals);
    run_keeper_kill_children();
    return FLEET_OK;
}
