/* job.c - a job is opened, its processes are started one by one, it is
 * closed. */
#define _GNU_SOURCE
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents.h"
#include "base/memory.h"
#include "environment.h"
#include "job_journals.h"
#include "job_keys.h"
#include "mpirun.h"
#include "net/own_address.h"
#include "processes.h"
#include "requests.h"
#include "spawn.h"

const char *run_process_name(const run_process *p)
{
    static char name[32];

    if (p->is_mpirun)
        return "mpirun";
    snprintf(name, sizeof name, "%s %d",
             p->is_server   ? "server"
             : p->stage > 0 ? "heter worker"
                            : "worker",
             p->index);
    return name;
}

const char *run_process_log(const run_job *j, const run_process *p)
{
    static char path[PATH_MAX];

    if (p->is_mpirun)
        snprintf(path, sizeof path, "%s/mpirun.log", j->options->log_folder);
    else
        snprintf(path, sizeof path, "%s/%s.%d", j->options->log_folder,
                 p->is_server   ? "serverlog"
                 : p->stage > 0 ? "heterlog"
                                : "workerlog",
                 p->index);
    return path;
}

bool run_job_has_hosts(const run_job *j)
{
    return j->options->n_ip > 1;
}

/* --- open and close ------------------------------------------------------- */

/* A worker's port out of a list is not bound, because no process connects to
 * it; nor is a port of another host. The other ranks connect to rank 0 where
 * MPI does not join them. */
static fleet_status bind_ports(run_job *j)
{
    for (int i = 0; i < j->n_all; i++) {
        run_process *p = &j->process[i];

        if (!p->is_local || p->is_mpirun ||
            (!p->is_server && p->stage == 0 &&
             (j->options->workers || j->options->n_ip > 1)))
            continue;
        p->listens = p->is_server || p->stage > 0 ||
                     (j->options->collective && !j->by_mpirun &&
                      p->index == 0 && j->n_worker > 1);
        FL_TRY(run_job_bind(p));
    }
    return FLEET_OK;
}

fleet_status run_job_bind(run_process *p)
{
    return fl_address_open(p->host, &p->port, p->listens, &p->socket);
}

static fleet_status join_endpoints(run_job *j)
{
    for (int i = 0; i < j->n_process; i++) {
        const run_process *p = &j->process[i];

        if (!p->is_server && j->options->n_node > 1 && !j->options->ips &&
            !j->options->meets)
            break; /* this node does not know the ports of others */
        fl_text_add(p->is_server   ? &j->servers
                    : p->stage > 0 ? &j->heter
                                   : &j->workers,
                    "%s%s:%d", p->index ? "," : "", p->host, p->port);
    }
    if (j->options->collective && !j->options->master)
        fl_text_add(&j->master, "%s:%d", j->process[j->n_server].host,
                    j->process[j->n_server].port);
    FL_TRY(j->servers.status);
    FL_TRY(j->heter.status);
    FL_TRY(j->master.status);
    return j->workers.status;
}

void run_job_stage(const run_job *j, int stage, fl_text *out)
{
    for (int i = j->n_server; i < j->n_process; i++)
        if (j->process[i].stage == stage)
            fl_text_add(out, "%s%s:%d", out->length ? "," : "",
                        j->process[i].host, j->process[i].port);
}

/* Is it the log of a process that this job does not have, on no node? */
static bool is_stale(const run_job *j, const char *name)
{
    static const char *const names[] = {"workerlog.", "serverlog.",
                                        "heterlog."};
    const int most = j->options->servers_max;
    const int n[] = {j->n_worker, most > j->n_server ? most : j->n_server,
                     j->n_heter};

    for (int i = 0; i < 3; i++) {
        const char *digits = name + strlen(names[i]);

        if (strncmp(name, names[i], strlen(names[i])) != 0)
            continue;
        return *digits && strlen(digits) < 10 &&
               digits[strspn(digits, "0123456789")] == 0 &&
               (*digits != '0' || !digits[1]) && atoi(digits) >= n[i];
    }
    return false;
}

/* A larger job in this folder has left logs that look like this one's. What
 * cannot be removed stays. */
static void remove_stale_logs(const run_job *j)
{
    DIR *dir = opendir(j->options->log_folder);
    struct dirent *e;

    while (dir && (e = readdir(dir)) != NULL)
        if (is_stale(j, e->d_name))
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir)
        closedir(dir);
}

fleet_status run_job_open_log(const run_job *j, run_process *p)
{
    const char *path = run_process_log(j, p);

    if (p->log >= 0)
        return FLEET_OK;
    p->log =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (p->log < 0)
        return fl_fail(FLEET_EIO, "cannot open the log %s: %s", path,
                       strerror(errno));
    return FLEET_OK;
}

static fleet_status find_nodes(run_job *j, int alive)
{
    fleet_status status;

    FL_TRY(run_processes_need_keys(j->options, true));
    status = run_nodes_join(&j->nodes, j->options, alive);
    j->signal = run_nodes_signal(j->nodes);
    return status;
}

static fleet_status agree_on_ports(run_job *j)
{
    fleet_status status;

    if (!j->nodes)
        return FLEET_OK;
    status = run_processes_agree(j);
    j->signal = run_nodes_signal(j->nodes);
    return status;
}

static fleet_status open_job(run_job *j, int alive)
{
    const run_options *o = j->options;

    if (o->meets)
        FL_TRY(find_nodes(j, alive));
    j->node = j->nodes ? run_nodes_rank(j->nodes) : 0;
    FL_TRY(run_processes_list(j));
    FL_TRY(run_folders_make_deep("--log_dir", "the logs", o->log_folder, 0777));
    FL_TRY(run_journals_open(j));
    FL_TRY(run_journals_find_joined(j));
    FL_TRY(bind_ports(j));
    FL_TRY(run_journals_keep_ports(j));
    if (j->needs_keys || j->by_mpirun)
        FL_TRY(run_folders_make(o->word, j->sockets));
    FL_TRY(run_keys_open(j));
    if (j->n_server > 0)
        FL_TRY(run_requests_open(j->sockets, &j->requests));
    FL_TRY(agree_on_ports(j));
    FL_TRY(join_endpoints(j));
    if (j->by_mpirun) {
        FL_TRY(run_mpirun_open(j));
        FL_TRY(run_agents_open(j));
    }
    remove_stale_logs(j);
    for (int i = 0; i < j->n_all; i++)
        if (j->process[i].is_local)
            FL_TRY(run_job_open_log(j, &j->process[i]));
    return FLEET_OK;
}

/* What fails until the nodes have agreed, the others hear of. */
fleet_status run_job_open(run_job *j, const run_options *o, int alive)
{
    fleet_status status;

    *j = (run_job){.options = o, .agent_listener = -1, .requests = -1};
    status = open_job(j, alive);
    run_nodes_close(j->nodes, status);
    j->nodes = NULL;
    return status;
}

static void close_process(run_process *p)
{
    if (p->socket >= 0)
        close(p->socket);
    if (p->log >= 0)
        close(p->log);
    if (p->agent >= 0)
        close(p->agent);
    run_output_close(&p->output[0]);
    run_output_close(&p->output[1]);
    fl_free(p->host);
}

void run_job_close(run_job *j)
{
    for (int i = 0; j->process && i < j->n_all; i++)
        close_process(&j->process[i]);
    fl_free(j->process);
    fl_text_done(&j->servers);
    fl_text_done(&j->workers);
    fl_text_done(&j->heter);
    fl_text_done(&j->master);
    run_agents_close(j);
    run_mpirun_close(j);
    if (j->requests >= 0)
        close(j->requests);
    run_folders_remove(j->options->word, j->options->log_folder);
    *j = (run_job){0};
}

/* --- start a process ------------------------------------------------------ */

typedef struct starting {
    const run_job *job;
    const run_process *process;
} starting;

static char **prepare_process(void *user, char **command)
{
    const starting *s = user;

    run_environment_set(s->job, s->process);
    return s->process->is_mpirun ? run_mpirun_command(s->job) : command;
}

int run_job_shown(const run_job *j, const run_process *p, int stream)
{
    const bool first =
        !p->is_server && !p->is_mpirun && p->stage == 0 && p->index == 0;

    if (!first || (stream == 2 && !j->options->verbose && !isatty(2)))
        return -1;
    return stream;
}

void run_job_leave_port(run_process *p)
{
    if (!p->listens || p->socket < 0)
        return;
    close(p->socket);
    p->socket = -1;
}

fleet_status run_job_start(run_job *j, run_process *p)
{
    starting s = {j, p};
    run_spawn how = {.command = j->options->command,
                     .to = {-1, -1},
                     .keep = p->listens ? p->socket : -1,
                     .prepare = prepare_process,
                     .user = &s};
    fleet_status status = FLEET_OK;
    int error;

    for (int i = 0; status == FLEET_OK && i < 2; i++)
        status = run_output_open(&p->output[i], p->log,
                                 run_job_shown(j, p, i + 1), &how.to[i]);
    if (status == FLEET_OK)
        status = run_spawn_start(&how, &p->pid, &error);
    p->was_started = p->was_started || p->pid > 0;
    for (int i = 0; i < 2; i++)
        if (how.to[i] >= 0)
            close(how.to[i]);
    if (!j->options->supervise) /* the port closes with the process */
        run_job_leave_port(p);
    return status;
}
