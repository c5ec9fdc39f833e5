/* job_journals.c - make the folder of journals, and keep the job's ports in
 * it. */
#define _GNU_SOURCE
#include "job_journals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the journals, which are in folders of processes: "7401 7402 ...", the
 * ports of the servers, then of the workers; 0: of another node. Nodes that
 * find each other may share the folder, and have a file each: "ports-1". */
static const char ports_file[] = "ports";

static bool keeps_ports(const run_job *j)
{
    const run_options *o = j->options;

    return o->journals && !o->servers && !o->workers && o->start_port == 0;
}

static fleet_status ports_path(const run_job *j, const char *suffix,
                               char path[PATH_MAX])
{
    char node[16] = "";

    if (j->nodes)
        snprintf(node, sizeof node, "-%d", run_nodes_rank(j->nodes));
    if (snprintf(path, PATH_MAX, "%s/%s%s%s", j->journals, ports_file, node,
                 suffix) >= PATH_MAX)
        return fl_fail(FLEET_EIO, "--journals: the path is too long");
    return FLEET_OK;
}

/* ps/journal/journal_folder.h: has a server that was here not ended? */
static bool has_unended(const run_job *j)
{
    char path[PATH_MAX];

    for (int i = 0; i < j->n_server; i++)
        if (snprintf(path, sizeof path, "%s/server-%d/identity", j->journals,
                     i) < (int)sizeof path &&
            access(path, F_OK) == 0)
            return true;
    return false;
}

/* A server that comes back is looked for where it was. Ports of a job of
 * another size are no help: its servers' journals are refused by servers. */
static fleet_status read_ports(run_job *j)
{
    char path[PATH_MAX];
    int n = 0, port;
    FILE *f;

    if (!keeps_ports(j) || !has_unended(j))
        return FLEET_OK;
    FL_TRY(ports_path(j, "", path));
    f = fopen(path, "re");
    for (; f && fscanf(f, "%d", &port) == 1; n++)
        if (n < j->n_process && port > 0 && port < 65536)
            j->process[n].port = port;
    if (f)
        fclose(f);
    for (int i = 0; n != j->n_process && i < j->n_process; i++)
        j->process[i].port = 0;
    return FLEET_OK;
}

static bool flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* On the disk, as what servers flush: a machine may crash. */
fleet_status run_journals_keep_ports(const run_job *j)
{
    char path[PATH_MAX], new_path[PATH_MAX];
    bool ok = true;
    FILE *f;

    if (!keeps_ports(j))
        return FLEET_OK;
    FL_TRY(ports_path(j, "", path));
    FL_TRY(ports_path(j, ".new", new_path));
    f = fopen(new_path, "we");
    for (int i = 0; f && i < j->n_process; i++)
        ok = fprintf(f, "%d ", j->process[i].port) > 0 && ok;
    ok = ok && f && fflush(f) == 0 && fsync(fileno(f)) == 0;
    ok = f && fclose(f) == 0 && ok;
    if (!ok || rename(new_path, path) != 0 || !flush_folder(j->journals))
        return fl_fail(FLEET_EIO, "cannot write %s: %s", path, strerror(errno));
    return FLEET_OK;
}

/* Processes may change their folder: they get the path from the root. */
fleet_status run_journals_open(run_job *j)
{
    const run_options *o = j->options;
    const char *given = getenv("FLEET_LOG_FOLDER");
    char path[PATH_MAX];

    if (!o->supervise || o->replicas > 1 || (!o->journals && given && *given))
        return FLEET_OK;
    if (o->journals) {
        FL_TRY(run_folders_make_deep("--journals", "the journals", o->journals,
                                     0700));
        snprintf(path, sizeof path, "%s", o->journals);
    } else {
        FL_TRY(run_folders_make_journals(o->word, o->log_folder, path,
                                         sizeof path));
    }
    if (!realpath(path, j->journals))
        return fl_fail(FLEET_EIO, "cannot find the folder %s: %s", path,
                       strerror(errno));
    return read_ports(j);
}
