/* start.c - from fleetrun to a process of the job. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "job.h"

/* --- its environment -------------------------------------------------------
 */

/* What a process of a job is told; none of it is inherited from fleetrun's own
 * environment. */
static const char *const told[] = {"PADDLE_PSERVERS_IP_PORT_LIST",
                                   "PADDLE_TRAINER_ENDPOINTS",
                                   "PADDLE_TRAINERS_NUM",
                                   "PADDLE_TRAINER_ID",
                                   "PADDLE_PORT",
                                   "PADDLE_ROLE",
                                   "PADDLE_JOB_ID",
                                   "PADDLE_NNODES",
                                   "PADDLE_LOG_DIR",
                                   "TRAINING_ROLE",
                                   "POD_IP",
                                   "POD_NAME",
                                   "FLEET_LISTEN_FD",
                                   "FLEET_IPC_FOLDER"};

static void tell_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int count_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The processes of a node share its processors; what the user has set stays.
 * libgomp's threads would spin for long, next to processes that have work. */
static void tell_threads(const run_job *j)
{
    int n = count_processors() / j->n_local;
    char text[16];

    snprintf(text, sizeof text, "%d", n > 1 ? n : 1);
    setenv("OMP_NUM_THREADS", text, 0);
    setenv("FLEET_NUM_THREADS", text, 0);
    setenv("GOMP_SPINCOUNT", j->n_local == 1 ? "10000" : "0", 0);
}

static void tell_place(const run_job *j, const run_process *p)
{
    char name[300];

    setenv("POD_IP", p->host, 1);
    tell_number("PADDLE_PORT", p->port);
    snprintf(name, sizeof name, "%s.%s.%d", j->options->job,
             p->is_server ? "server" : "worker", p->index);
    setenv("POD_NAME", name, 1);
    if (p->is_server)
        tell_number("FLEET_LISTEN_FD", p->socket);
    else
        tell_number("PADDLE_TRAINER_ID", p->index);
}

static void set_environment(const run_job *j, const run_process *p)
{
    const char *role = p->is_server ? "PSERVER" : "TRAINER";

    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        unsetenv(told[i]);
    tell_threads(j);
    if (j->n_server == 0)
        return;
    setenv("PADDLE_PSERVERS_IP_PORT_LIST", fl_text_chars(&j->servers), 1);
    setenv("PADDLE_TRAINER_ENDPOINTS", fl_text_chars(&j->workers), 1);
    tell_number("PADDLE_TRAINERS_NUM", j->n_worker);
    tell_number("PADDLE_NNODES", j->n_host);
    setenv("PADDLE_JOB_ID", j->options->job, 1);
    setenv("PADDLE_LOG_DIR", j->options->log_folder, 1);
    setenv("FLEET_IPC_FOLDER", j->sockets, 1);
    setenv("TRAINING_ROLE", role, 1);
    setenv("PADDLE_ROLE", role, 1);
    tell_place(j, p);
}

/* --- the process -----------------------------------------------------------
 */

/* Nothing of fleetrun's stays open but the standard three and `keep`. */
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

static bool redirect(const int to[2])
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    return null >= 0 && dup2(null, 0) >= 0 && dup2(to[0], 1) >= 0 &&
           dup2(to[1], 2) >= 0;
}

/* In the child: become the program, or report why not. */
static void __attribute__((noreturn))
become(const run_job *j, const run_process *p, const int to[2], int report,
       pid_t parent)
{
    char **command = j->options->command;
    int e = 0;

    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        !redirect(to))
        e = errno;
    if (getppid() != parent) /* it died before the call above */
        _exit(1);
    if (!e) {
        set_environment(j, p);
        close_others(p->is_server ? p->socket : -1);
        reset_signals();
        execvp(command[0], command);
        e = errno;
    }
    if (write(report, &e, sizeof e) != sizeof e)
        _exit(1);
    _exit(126);
}

/* The pipe ends empty when the program has begun. */
static fleet_status read_report(const run_job *j, int report)
{
    ssize_t n;
    int e;

    do
        n = read(report, &e, sizeof e);
    while (n < 0 && errno == EINTR);
    close(report);
    if (n == 0)
        return FLEET_OK;
    return fl_fail(n == sizeof e && e == ENOENT ? FLEET_ENOENT : FLEET_ECHILD,
                   "cannot execute %s: %s", j->options->command[0],
                   strerror(n == sizeof e ? e : errno));
}

static fleet_status fork_it(run_job *j, run_process *p, const int to[2])
{
    const pid_t parent = getpid();
    int report[2];

    if (pipe2(report, O_CLOEXEC) != 0)
        return fl_fail(FLEET_EIO, "cannot make a pipe: %s", strerror(errno));
    p->pid = fork();
    if (p->pid == 0)
        become(j, p, to, report[1], parent);
    close(report[1]);
    if (p->pid > 0) {
        p->was_started = true;
        return read_report(j, report[0]);
    }
    close(report[0]);
    p->pid = 0;
    return fl_fail(FLEET_EIO, "cannot start %s: %s", run_name(p),
                   strerror(errno));
}

fleet_status run_start(run_job *j, run_process *p)
{
    const bool first = !p->is_server && p->index == 0;
    const bool shows_errors = first && (j->options->verbose || isatty(2));
    int to[2] = {-1, -1};
    fleet_status status;

    status = run_output_open(&p->output[0], p->log, first ? 1 : -1, &to[0]);
    if (status == FLEET_OK)
        status = run_output_open(&p->output[1], p->log, shows_errors ? 2 : -1,
                                 &to[1]);
    if (status == FLEET_OK)
        status = fork_it(j, p, to);
    for (int i = 0; i < 2; i++)
        if (to[i] >= 0)
            close(to[i]);
    if (p->is_server) { /* it is the server's alone: with it the port closes */
        close(p->socket);
        p->socket = -1;
    }
    return status;
}
