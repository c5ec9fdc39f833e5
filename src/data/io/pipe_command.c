/* pipe_command.c - fork, exec of sh, wait, kill of the whole group. */
#define _GNU_SOURCE
#include "data/io/pipe_command.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_RUN = 126, NOT_FOUND = 127 }; /* as shells have it */

/* The child's side of vfork(). It borrows this process's memory, so it makes
 * system calls and nothing else. What the host has set for its own signals or
 * left open for itself does not reach the command. */
static void __attribute__((noreturn))
become(char *const args[], int in, int out, pid_t parent)
{
    /* the kernel's struct: no libc lets one set the two signals that it has for
     * itself, and those may come ignored, too */
    const char standard[64] = {0};
    sigset_t none;

    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        getppid() != parent || dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(CANNOT_RUN);
#ifdef SYS_close_range
    syscall(SYS_close_range, 3, ~0u, 0); /* an old kernel refuses: no harm */
#endif
    for (int s = 1; s < NSIG; s++)
        syscall(SYS_rt_sigaction, s, standard, NULL, _NSIG / 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/bin/sh", args);
    _exit(NOT_FOUND);
}

fleet_status fl_pipe_command_start(fl_pipe_command *c, const char *command,
                                   int in, int out)
{
    char sh[] = "sh", option[] = "-c";
    char *const args[] = {sh, option, (char *)command, NULL};
    const pid_t parent = getpid();
    sigset_t all, kept;
    pid_t pid;
    int e;

    sigfillset(&all); /* no handler of the host's may run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    pid = vfork();
    if (pid == 0)
        become(args, in, out, parent);
    e = errno;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (pid < 0)
        return fl_fail(FLEET_ECHILD, "cannot start it: %s", strerror(e));
    c->pid = pid;
    return FLEET_OK;
}

static fleet_status judge_exit(int status)
{
    const char *why = "";

    if (WIFSIGNALED(status))
        return fl_fail(FLEET_ECHILD, "killed by signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == 0)
        return FLEET_OK;
    if (WEXITSTATUS(status) == NOT_FOUND)
        why = " (command not found)";
    if (WEXITSTATUS(status) == CANNOT_RUN)
        why = " (cannot be run)";
    return fl_fail(FLEET_ECHILD, "exit code %d%s", WEXITSTATUS(status), why);
}

/* Dead, but not reaped: its number still means its group and no other. */
static bool has_ended(const fl_pipe_command *c, bool *lost, int *status)
{
    siginfo_t info = {.si_pid = 0};
    int e = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);

    *lost = e < 0 && errno == ECHILD;
    *status = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
                                         : W_EXITCODE(0, info.si_status);
    return e == 0 && info.si_pid == c->pid;
}

/* A host that waits for all its children may have been faster. */
static void kill_and_reap(fl_pipe_command *c)
{
    kill(-c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    c->pid = 0;
}

fleet_status fl_pipe_command_wait(fl_pipe_command *c, int wakeup)
{
    struct pollfd p = {.fd = wakeup, .events = POLLIN};
    bool lost;
    int status;

    while (!has_ended(c, &lost, &status)) {
        if (lost) {
            c->pid = 0;
            return fl_fail(FLEET_ECHILD,
                           "its exit code is lost: the program "
                           "ignores SIGCHLD or waits for all its children");
        }
        if (poll(&p, 1, 1) > 0)
            return fl_fail(FLEET_ESTATE, "the stream was closed");
    }
    kill_and_reap(c);
    return judge_exit(status);
}

void fl_pipe_command_kill(fl_pipe_command *c)
{
    bool lost;
    int status;

    if (c->pid > 0 && (has_ended(c, &lost, &status) || !lost))
        kill_and_reap(c);
    c->pid = 0;
}
