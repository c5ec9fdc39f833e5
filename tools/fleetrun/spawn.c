/* spawn.c - fork, prepare the child, become the program, or report why not. */
#define _GNU_SOURCE
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Close all descriptors on exec, but the standard three and `keep`. */
static void close_others(int keep)
{
#ifdef SYS_close_range
    enum {
        CLOEXEC = 1 << 2
    }; /* CLOSE_RANGE_CLOEXEC: until the exec, the
          pipe that reports it is needed */
    if (syscall(SYS_close_range, 3, ~0u, CLOEXEC) != 0)
#endif
        for (int fd = 3, n = (int)sysconf(_SC_OPEN_MAX); fd < n; fd++)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (keep >= 0)
        fcntl(keep, F_SETFD, 0);
}

static void reset_signals(void)
{
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL); /* those that cannot be set are as they should be */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool redirect_streams(const int to[2])
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return null >= 0 && dup2(null, 0) >= 0 && dup2(to[0], 1) >= 0 &&
           dup2(to[1], 2) >= 0;
}

/* In the child: become the program, or report why not. */
static void __attribute__((noreturn))
become_program(const run_spawn *s, int report, pid_t parent)
{
    char **command = s->command;
    int e = 0;

    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        !redirect_streams(s->to))
        e = errno;
    if (getppid() != parent) /* it died before the call above */
        _exit(1);
    if (!e) {
        if (s->prepare)
            command = s->prepare(s->user, command);
        if (!s->inherit)
            close_others(s->keep);
        reset_signals();
        if (command)
            execvp(command[0], command);
        e = command ? errno : ENOMEM;
    }
    if (write(report, &e, sizeof e) != sizeof e)
        _exit(1);
    _exit(126);
}

fleet_status run_spawn_failed(const char *program, int error)
{
    return fl_fail(error == ENOENT ? FLEET_ENOENT : FLEET_ECHILD,
                   "cannot execute %s: %s", program, strerror(error));
}

/* The pipe ends empty when the program has begun. */
static fleet_status read_report(const run_spawn *s, int report, int *error)
{
    ssize_t n;
    int e = 0;

    do
        n = read(report, &e, sizeof e);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return FLEET_OK;
    *error = n == sizeof e ? e : errno;
    return run_spawn_failed(s->command[0], *error);
}

fleet_status run_spawn_start(const run_spawn *s, pid_t *pid, int *error)
{
    const pid_t parent = getpid();
    fleet_status status;
    int report[2];

    *pid = 0;
    *error = 0;
    if (pipe2(report, O_CLOEXEC) != 0)
        return fl_fail(FLEET_EIO, "cannot make a pipe: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0)
        become_program(s, report[1], parent);
    close(report[1]);
    if (*pid > 0) {
        status = read_report(s, report[0], error);
    } else {
        *pid = 0;
        status =
            fl_fail(FLEET_EIO, "cannot start a process: %s", strerror(errno));
    }
    close(report[0]);
    return status;
}
