/* ranks.c - see ranks.h. */
#define _GNU_SOURCE
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "port.h"
#include "tell.h"

enum { HELLO_MS = 1000 };

/* --- mpirun ----------------------------------------------------------------
 */

static fleet_status find_mpirun(run_job *j)
{
    const char *at = getenv("PATH");
    char path[PATH_MAX];

    while (at && *at) {
        int n = (int)strcspn(at, ":");

        snprintf(path, sizeof path, "%.*s/mpirun", n, at);
        if (n > 0 && access(path, X_OK) == 0) {
            j->mpirun = fl_strdup(path);
            return j->mpirun ? FLEET_OK : FLEET_ENOMEM;
        }
        at += n + (at[n] == ':');
    }
    return fl_fail(FLEET_EIO,
                   "mpirun is not in PATH: ranks on CPUs are MPI processes; "
                   "install Open MPI, on Debian with apt-get install "
                   "openmpi-bin");
}

/* --- the listener ----------------------------------------------------------
 */

static fleet_status listen_here(run_job *j)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof a.sun_path, "%s/ranks", j->sockets);
    snprintf(j->reach, sizeof j->reach, "unix:%s", a.sun_path);
    j->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (j->listener < 0 ||
        bind(j->listener, (struct sockaddr *)&a, sizeof a) != 0 ||
        listen(j->listener, SOMAXCONN) != 0)
        return fl_fail(FLEET_EIO, "cannot listen on %s: %s", a.sun_path,
                       strerror(errno));
    return FLEET_OK;
}

static fleet_status listen_to_hosts(run_job *j)
{
    const char *host = j->process[j->n_server].host;
    int port = 0;

    FL_TRY(run_port_open(host, &port, true, &j->listener));
    snprintf(j->reach, sizeof j->reach, "tcp:%.40s:%d", host, port);
    return FLEET_OK;
}

static bool has_hosts(const run_job *j)
{
    return j->options->n_ip > 1;
}

fleet_status run_ranks_open(run_job *j)
{
    FL_TRY(find_mpirun(j));
    FL_TRY(run_folders_choose(j->token));
    FL_TRY(has_hosts(j) ? listen_to_hosts(j) : listen_here(j));
    if (!has_hosts(j))
        FL_TRY(run_folders_make_shared(j->options->word, j->files));
    fcntl(j->listener, F_SETFL, O_NONBLOCK);
    return FLEET_OK;
}

void run_ranks_close(run_job *j)
{
    if (j->listener >= 0)
        close(j->listener);
    fl_free(j->mpirun);
}

/* --- what mpirun is told ---------------------------------------------------
 */

/* What the user has set stays. Its own choice of hosts, as in a batch job of
 * Slurm's, would take ranks to where nobody expects them: --ips says it. */
static void tell_mpirun(const run_job *j)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_rmaps_base_mapping_policy", "slot"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_plm", "rsh"},
        {"OMPI_MCA_ras", "^slurm,tm,lsf,gridengine,loadleveler"},
    };
    static const char *const folders[] = {
        "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory"};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 0);
    for (size_t i = 0; *j->files && i < sizeof folders / sizeof *folders; i++)
        setenv(folders[i], j->files, 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    setenv(RUN_RANK_REACH, j->reach, 1);
    setenv(RUN_RANK_TOKEN, j->token, 1);
}

typedef struct arguments {
    char **at;
    size_t n;
} arguments;

static void add(arguments *a, const char *argument)
{
    a->at[a->n++] = (char *)argument;
}

/* "a:2,b:2" */
static const char *list_hosts(const run_job *j)
{
    fl_text text = {0};

    for (const char *at = j->options->ips; at;) {
        int n = (int)strcspn(at, ",");

        fl_text_add(&text, "%s%.*s:%d", text.length ? "," : "", n, at,
                    j->options->n_worker);
        at = at[n] ? at + n + 1 : NULL;
    }
    return fl_text_chars(&text);
}

/* mpirun takes nothing but its own variables to other hosts by itself. */
static void add_hosts(const run_job *j, arguments *a)
{
    extern char **environ;

    add(a, "--host");
    add(a, list_hosts(j));
    for (char **v = environ; *v; v++)
        if (run_is_told(*v)) {
            add(a, "-x");
            add(a, fl_strndup(*v, strcspn(*v, "=")));
        }
}

/* Of these and the NULL behind the last one. */
static size_t count_arguments(const run_job *j)
{
    extern char **environ;
    size_t n = 8; /* mpirun -n N --host LIST SELF FLAG */

    for (char **v = environ; *v; v++)
        n += 2;
    for (char **v = j->options->command; *v; v++)
        n++;
    return n;
}

char **run_ranks_command(const run_job *j)
{
    static char self[PATH_MAX], number[12];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    arguments a = {0};

    self[n > 0 ? n : 0] = 0;
    snprintf(number, sizeof number, "%d", j->n_worker);
    tell_mpirun(j);
    a.at = fl_alloc_array(count_arguments(j), sizeof *a.at);
    if (!a.at)
        return NULL;
    add(&a, j->mpirun);
    add(&a, "-n");
    add(&a, number);
    if (has_hosts(j))
        add_hosts(j, &a);
    add(&a, self);
    add(&a, RUN_RANK_FLAG);
    for (char **c = j->options->command; *c; c++)
        add(&a, *c);
    return a.at;
}

/* --- connections -----------------------------------------------------------
 */

/* Whole, within its deadline, and of this job. */
static bool read_hello(const run_job *j, int fd, run_hello *h)
{
    struct timeval limit = {.tv_sec = HELLO_MS / 1000};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return recv(fd, h, sizeof *h, MSG_WAITALL) == sizeof *h &&
           memcmp(h->token, j->token, sizeof h->token) == 0 && h->rank >= 0 &&
           h->rank < j->n_worker;
}

static bool send_ends(int fd, const int ends[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr m = {.msg_iov = &data,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(c), ends, 2 * sizeof(int));
    return sendmsg(fd, &m, MSG_NOSIGNAL) == 1;
}

/* On this machine it gets pipes, as every other process has. */
static bool give_pipes(run_job *j, run_process *p, int fd)
{
    int ends[2] = {-1, -1};
    bool ok = true;

    for (int i = 0; ok && i < 2; i++)
        ok = run_output_open(&p->output[i], p->log, run_shown(j, p, i + 1),
                             &ends[i]) == FLEET_OK;
    ok = ok && send_ends(fd, ends);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return ok;
}

static bool take(run_job *j, int fd, bool ending)
{
    run_process *p;
    run_hello h;

    if (!read_hello(j, fd, &h))
        return false;
    p = &j->process[j->n_server + h.rank];
    if (h.stream != RUN_CONTROL) {
        const int i = h.stream == RUN_ERR;

        return !p->was_started && p->output[i].from < 0 &&
               run_output_take(&p->output[i], p->log, run_shown(j, p, i + 1),
                               fd) == FLEET_OK;
    }
    if (ending || p->was_started || (!has_hosts(j) && !give_pipes(j, p, fd)))
        return false;
    p->control = fd;
    p->pid = h.pid;
    p->was_started = true;
    return true;
}

void run_ranks_accept(run_job *j, bool ending)
{
    int fd = accept4(j->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0 && !take(j, fd, ending))
        close(fd);
}

bool run_ranks_has(const run_process *p)
{
    struct pollfd one = {.fd = p->control, .events = POLLIN};

    return p->control >= 0 && poll(&one, 1, 0) == 1;
}

bool run_ranks_was_killed(const run_process *p)
{
    run_message m;

    return recv(p->control, &m, sizeof m, MSG_PEEK | MSG_DONTWAIT) ==
               sizeof m &&
           m.news == RUN_ENDED && WIFSIGNALED(m.value);
}

bool run_ranks_hear(run_process *p, run_message *m)
{
    return recv(p->control, m, sizeof *m, MSG_WAITALL) == sizeof *m;
}

void run_ranks_signal(const run_process *p, int signal)
{
    unsigned char byte = (unsigned char)signal;

    send(p->control, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void run_ranks_release(run_process *p)
{
    if (p->control >= 0)
        close(p->control);
    p->control = -1;
}
