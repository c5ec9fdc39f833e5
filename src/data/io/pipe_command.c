/* pipe_command.c - fork, exec of sh, wait, kill of the whole group; and the
 * guard that kills it when this process cannot. */
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

#include "base/clock.h"
#include "base/text.h"
#include "data/io/fd.h"

enum { CANNOT_RUN = 126, NOT_FOUND = 127 }; /* as shells have it */

/* A child: what runs in it, where, and with which standard descriptors. */
typedef struct child_args {
    const char *script;
    int fd[3];
    pid_t group;  /* 0: a new one */
    pid_t parent; /* dies with that process's thread; 0: lives on */
} child_args;

/* The child's side of vfork(). It borrows this process's memory, so it makes
 * system calls and nothing else. What the host has set for its own signals or
 * left open for itself does not reach the command. */
static void __attribute__((noreturn)) become(const child_args *c)
{
    char sh[] = "sh", option[] = "-c";
    char *const args[] = {sh, option, (char *)c->script, NULL};
    /* the kernel's struct: no libc lets one set the two signals that it has for
     * itself, and those may come ignored, too */
    const char standard[64] = {0};
    sigset_t none;

    if (setpgid(0, c->group) != 0 ||
        (c->parent &&
         (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != c->parent)))
        _exit(CANNOT_RUN);
    for (int i = 0; i < 3; i++)
        if (c->fd[i] != i && dup2(c->fd[i], i) < 0)
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

static fleet_status start_child(const child_args *c, pid_t *pid)
{
    sigset_t all, kept;
    int e;

    sigfillset(&all); /* no handler of the host's may run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    *pid = vfork();
    if (*pid == 0)
        become(c);
    e = errno;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (*pid > 0)
        return FLEET_OK;
    *pid = 0;
    return fl_fail(FLEET_ECHILD, "cannot start it: %s", strerror(e));
}

/* The kernel's signal at a parent's death reaches the shell alone, and not what
 * the shell has started. The guard waits for the end of a pipe that comes when
 * this process is gone. */
static fleet_status start_guard(fl_pipe_command *c)
{
    child_args guard = {.script = "read -r line; kill -KILL 0",
                        .group = c->pid};
    fleet_status status;
    int ends[2];

    FL_TRY(fl_fd_pipe(ends, 0));
    for (int i = 0; i < 3; i++)
        guard.fd[i] = ends[0]; /* it holds nothing of the host's */
    status = start_child(&guard, &c->guard);
    fl_fd_close(&ends[0]);
    c->alive = ends[1];
    return status;
}

static const char path_word[] = "{path}";

bool fl_pipe_command_has_path(const char *command)
{
    return command && strstr(command, path_word);
}

/* In single quotes a shell takes all but a single quote as it is. */
static void add_quoted(fl_text *t, const char *path)
{
    fl_text_add(t, "'");
    for (; *path; path++) {
        if (*path == '\'')
            fl_text_add(t, "'\\''");
        else
            fl_text_add(t, "%c", *path);
    }
    fl_text_add(t, "'");
}

char *fl_pipe_command_with_path(const char *command, const char *path)
{
    fl_text t = {0};

    for (const char *at; (at = strstr(command, path_word));
         command = at + sizeof path_word - 1) {
        fl_text_add(&t, "%.*s", (int)(at - command), command);
        add_quoted(&t, path);
    }
    fl_text_add(&t, "%s", command);
    if (t.status != FLEET_OK)
        fl_text_done(&t);
    return t.status == FLEET_OK ? t.chars : NULL;
}

fleet_status fl_pipe_command_start(fl_pipe_command *c, const char *command,
                                   int in, int out)
{
    const child_args shell = {
        .script = command, .fd = {in, out, 2}, .parent = getpid()};
    fleet_status status;

    *c = (fl_pipe_command){.alive = -1};
    FL_TRY(start_child(&shell, &c->pid));
    status = start_guard(c);
    if (status != FLEET_OK)
        fl_pipe_command_kill(c);
    return status;
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
static void reap(pid_t pid)
{
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Without `own` the number of its group may be another's by now: then the guard
 * alone knows which one it is in. */
static void end_group(fl_pipe_command *c, bool own)
{
    if (own) {
        kill(-c->pid, SIGKILL);
        reap(c->pid);
    }
    fl_fd_close(&c->alive);
    reap(c->guard);
    c->pid = c->guard = 0;
}

fleet_status fl_pipe_command_wait(fl_pipe_command *c, int wakeup,
                                  int64_t timeout_ms)
{
    fl_wait wait = fl_wait_for(timeout_ms);
    struct pollfd p = {.fd = wakeup, .events = POLLIN};
    bool lost;
    int status;

    while (!has_ended(c, &lost, &status)) {
        if (lost) {
            end_group(c, false);
            return fl_fail(FLEET_ECHILD,
                           "its exit code is lost: the program "
                           "ignores SIGCHLD or waits for all its children");
        }
        if (poll(&p, 1, 1) > 0)
            return fl_fail(FLEET_ESTATE, "the stream was closed");
        if (timeout_ms > 0 && fl_wait_left(&wait) == 0)
            return FLEET_ETIMEDOUT;
    }
    end_group(c, true);
    return judge_exit(status);
}

void fl_pipe_command_kill(fl_pipe_command *c)
{
    bool lost;
    int status;

    if (c->pid > 0)
        end_group(c, has_ended(c, &lost, &status) || !lost);
}
