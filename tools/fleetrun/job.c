/* job.c - see job.h; start.c starts them. */
#define _GNU_SOURCE
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "port.h"

static const char local_host[] = "127.0.0.1";

const char *run_name(const run_process *p)
{
    static char name[32];

    snprintf(name, sizeof name, "%s %d", p->is_server ? "server" : "worker",
             p->index);
    return name;
}

const char *run_log_path(const run_job *j, const run_process *p)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s.%d", j->options->log_folder,
             p->is_server ? "serverlog" : "workerlog", p->index);
    return path;
}

/* --- who there is ----------------------------------------------------------
 */

static int count(const char *list)
{
    int n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* The entry "host:port" of `length` characters. */
static fleet_status read_entry(const char *flag, const char *entry, int length,
                               run_process *p)
{
    const char *colon = memrchr(entry, ':', (size_t)length);
    char port[8], what[300];
    int n = colon ? (int)(entry + length - colon) - 1 : 0;

    if (!colon || colon == entry || n < 1 || n >= (int)sizeof port)
        return fl_fail(FLEET_EINVAL, "%s: expected ip:port, got \"%.*s\"", flag,
                       length, entry);
    snprintf(port, sizeof port, "%.*s", n, colon + 1);
    snprintf(what, sizeof what, "%s: the port of %.*s", flag, length, entry);
    FL_TRY(run_integer(what, port, 1, 65535, &p->port));
    p->host = fl_strndup(entry, (size_t)(colon - entry));
    return p->host ? FLEET_OK : FLEET_ENOMEM;
}

/* Those of a list; this node's are those with its host. */
static fleet_status read_list(const char *flag, const char *list,
                              const char *host, run_process *p)
{
    for (;; list++, p++) {
        int length = (int)strcspn(list, ",");

        FL_TRY(read_entry(flag, list, length, p));
        p->is_local = strcmp(p->host, host) == 0;
        list += length;
        if (!*list)
            return FLEET_OK;
    }
}

/* Those that a number stands for: all of them are this node's. */
static fleet_status make_local(run_process *p, int n, const char *host,
                               int port)
{
    for (int i = 0; i < n; i++) {
        p[i].host = fl_strdup(host);
        if (!p[i].host)
            return FLEET_ENOMEM;
        p[i].port = port ? port + i : 0;
        p[i].is_local = true;
    }
    return FLEET_OK;
}

static const char *this_host(const run_options *o)
{
    const char *pod = getenv("POD_IP");

    if (o->host)
        return o->host;
    return (o->servers || o->workers) && pod && *pod ? pod : local_host;
}

static fleet_status find_all(run_job *j)
{
    const run_options *o = j->options;
    const char *host = this_host(o);
    run_process *worker = j->process + j->n_server;
    int port = o->start_port;

    if (o->servers)
        FL_TRY(read_list("--servers", o->servers, host, j->process));
    else
        FL_TRY(make_local(j->process, j->n_server, host, port));
    if (o->workers)
        return read_list("--workers", o->workers, host, worker);
    return make_local(worker, j->n_worker, host,
                      port && !o->servers ? port + j->n_server : port);
}

static bool are_same(const run_process *a, const run_process *b)
{
    return a->port && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Count this node's processes, and the nodes. */
static fleet_status count_all(run_job *j)
{
    for (int i = 0; i < j->n_process; i++) {
        const run_process *p = &j->process[i];
        bool is_new = true;

        for (int k = 0; k < i; k++) {
            if (are_same(p, &j->process[k]))
                return fl_fail(FLEET_EINVAL, "%s:%d stands twice in the lists",
                               p->host, p->port);
            is_new = is_new && strcmp(p->host, j->process[k].host) != 0;
        }
        j->n_host += is_new;
        j->n_local += p->is_local;
    }
    return FLEET_OK;
}

static fleet_status check_all(const run_job *j)
{
    const run_options *o = j->options;

    if (j->n_local == 0)
        return fl_fail(FLEET_EINVAL,
                       "none of the processes is on %s, which is this node's "
                       "address; --host or POD_IP gives another",
                       this_host(o));
    if (j->n_host > 1 && !(o->servers && o->workers))
        return fl_fail(FLEET_EINVAL,
                       "a number counts this node's processes: with several "
                       "nodes give --servers and --workers");
    return FLEET_OK;
}

static fleet_status list_processes(run_job *j)
{
    const run_options *o = j->options;

    j->n_server = o->servers ? count(o->servers) : o->n_server;
    j->n_worker = o->workers ? count(o->workers) : o->n_worker;
    j->n_process = j->n_server + j->n_worker;
    j->process = fl_alloc_array((size_t)j->n_process, sizeof *j->process);
    if (!j->process)
        return FLEET_ENOMEM;
    for (int i = 0; i < j->n_process; i++) {
        run_process *p = &j->process[i];

        p->is_server = i < j->n_server;
        p->index = p->is_server ? i : i - j->n_server;
        p->socket = p->log = p->output[0].from = p->output[1].from = -1;
    }
    FL_TRY(find_all(j));
    FL_TRY(count_all(j));
    return check_all(j);
}

/* --- what they need --------------------------------------------------------
 */

/* A worker's port out of a list is not bound: the list says what it is, and
 * nobody connects to it. */
static fleet_status bind_ports(run_job *j)
{
    for (int i = 0; i < j->n_process; i++) {
        run_process *p = &j->process[i];

        if (p->is_local && (p->is_server || !j->options->workers))
            FL_TRY(run_port_open(p->host, &p->port, p->is_server, &p->socket));
    }
    return FLEET_OK;
}

static fleet_status join_endpoints(run_job *j)
{
    for (int i = 0; i < j->n_process; i++) {
        const run_process *p = &j->process[i];

        fl_text_add(p->is_server ? &j->servers : &j->workers, "%s%s:%d",
                    p->index ? "," : "", p->host, p->port);
    }
    return j->servers.status != FLEET_OK ? j->servers.status
                                         : j->workers.status;
}

static fleet_status make_folders(const char *path)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part - 32)
        return fl_fail(FLEET_EIO, "--log_dir: the path is too long");
    for (char *c = part + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(part, 0777); /* if it is neither made nor there, the next
                                  one fails */
            *c = '/';
        }
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        return fl_fail(FLEET_EIO, "cannot make the folder %s of the logs: %s",
                       path, strerror(errno));
    return FLEET_OK;
}

static fleet_status open_log(run_job *j, run_process *p)
{
    const char *path = run_log_path(j, p);

    p->log =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (p->log < 0)
        return fl_fail(FLEET_EIO, "cannot open the log %s: %s", path,
                       strerror(errno));
    return FLEET_OK;
}

/* Where servers put their sockets for workers of this machine: a server that is
 * killed cannot remove its own. */
static fleet_status make_socket_folder(run_job *j)
{
    snprintf(j->sockets, sizeof j->sockets, "/tmp/fleetrun-XXXXXX");
    if (mkdtemp(j->sockets))
        return FLEET_OK;
    j->sockets[0] = 0;
    return fl_fail(FLEET_EIO, "cannot make a folder for sockets in /tmp: %s",
                   strerror(errno));
}

static void remove_socket_folder(run_job *j)
{
    DIR *d = *j->sockets ? opendir(j->sockets) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    if (*j->sockets)
        rmdir(j->sockets);
}

fleet_status run_job_open(run_job *j, const run_options *o)
{
    *j = (run_job){.options = o};
    FL_TRY(list_processes(j));
    FL_TRY(bind_ports(j));
    FL_TRY(join_endpoints(j));
    if (j->n_server > 0)
        FL_TRY(make_socket_folder(j));
    FL_TRY(make_folders(o->log_folder));
    for (int i = 0; i < j->n_process; i++)
        if (j->process[i].is_local)
            FL_TRY(open_log(j, &j->process[i]));
    return FLEET_OK;
}

static void close_process(run_process *p)
{
    if (p->socket >= 0)
        close(p->socket);
    if (p->log >= 0)
        close(p->log);
    run_output_close(&p->output[0]);
    run_output_close(&p->output[1]);
    fl_free(p->host);
}

void run_job_close(run_job *j)
{
    for (int i = 0; j->process && i < j->n_process; i++)
        close_process(&j->process[i]);
    fl_free(j->process);
    fl_text_done(&j->servers);
    fl_text_done(&j->workers);
    remove_socket_folder(j);
    *j = (run_job){0};
}
