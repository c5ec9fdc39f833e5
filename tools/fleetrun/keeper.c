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
#include <unistd.h>

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

/* Pass signals on until the keeper has ended; its status. */
static int wait_for_keeper(pid_t keeper, const sigset_t *signals)
{
    int status, s;

    while (waitpid(keeper, &status, WNOHANG) != keeper)
        if (sigwait(signals, &s) == 0 && s != SIGCHLD)
            kill(keeper, s);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    dprintf(2, "fleetrun: its keeper (pid %d) was killed by SIG%s\n", keeper,
            sigabbrev_np(WTERMSIG(status)));
    return 128 + WTERMSIG(status);
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
