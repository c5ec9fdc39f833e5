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

#include "base/memory.h"
#include "net/own_address.h"
#include "processes.h"

/* Beside the journals, which are in folders of processes: "7401 7402 ...", the
 * ports of the servers, then of the workers; 0: of another node. Nodes that
 * find each other may share the folder, and have a file each: "ports-1". */
static const char ports_file[] = "ports";

/* Alike "joined-2": port, node and host of a server that has joined. */
static const char joined_file[] = "joined-";

enum { NAME_SIZE = 24 };

static bool keeps_ports(const run_job *j)
{
    const run_options *o = j->options;

    return o->journals && !o->servers && !o->workers && o->start_port == 0;
}

static void name_ports(const run_job *j, char name[NAME_SIZE])
{
    if (j->nodes)
        snprintf(name, NAME_SIZE, "%s-%d", ports_file, j->node);
    else
        snprintf(name, NAME_SIZE, "%s", ports_file);
}

static fleet_status path_of(const char *folder, const char *name,
                            const char *suffix, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s%s", folder, name, suffix) >= PATH_MAX)
        return fl_fail(FLEET_EIO, "--journals: the path is too long");
    return FLEET_OK;
}

/* ps/journal/journal_folder.h: a server that was there has not ended. */
static bool has_not_ended(const char *folder, int server)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/server-%d/identity", folder,
                    server) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

static bool has_unended(const run_job *j, const char *folder)
{
    for (int server = 0; server < j->n_server; server++)
        if (has_not_ended(folder, server))
            return true;
    return false;
}

/* A server that comes back is looked for where it was. Ports of a job of
 * another size are no help: its servers' journals are refused by servers. */
static fleet_status read_ports(run_job *j)
{
    char path[PATH_MAX], name[NAME_SIZE];
    int n = 0, port;
    FILE *f;

    if (!keeps_ports(j) || !has_unended(j, j->journals))
        return FLEET_OK;
    name_ports(j, name);
    FL_TRY(path_of(j->journals, name, "", path));
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
static fleet_status write_file(const char *folder, const char *name,
                               const fl_text *text)
{
    char path[PATH_MAX], new_path[PATH_MAX];
    const char *all = fl_text_chars(text);
    bool ok;
    FILE *f;

    FL_TRY(text->status);
    FL_TRY(path_of(folder, name, "", path));
    FL_TRY(path_of(folder, name, ".new", new_path));
    f = fopen(new_path, "we");
    ok = f && fputs(all, f) >= 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;
    ok = f && fclose(f) == 0 && ok;
    if (!ok || rename(new_path, path) != 0 || !flush_folder(folder))
        return fl_fail(FLEET_EIO, "cannot write %s: %s", path, strerror(errno));
    return FLEET_OK;
}

fleet_status run_journals_keep_ports(const run_job *j)
{
    char name[NAME_SIZE];
    fl_text text = {0};
    fleet_status status;

    if (!keeps_ports(j))
        return FLEET_OK;
    name_ports(j, name);
    for (int i = 0; i < j->n_process; i++)
        fl_text_add(&text, "%d ", j->process[i].port);
    status = write_file(j->journals, name, &text);
    fl_text_done(&text);
    return status;
}

/* --- servers that join ---------------------------------------------------- */

/* Also the one that is fleetrun's own environment's. */
static const char *folder_of(const run_job *j)
{
    const char *given = getenv("FLEET_LOG_FOLDER");

    return !j->options->supervise || j->options->replicas > 1 ? NULL
           : *j->journals                                     ? j->journals
                                                              : given;
}

fleet_status run_journals_keep_joined(const run_job *j, const run_process *p)
{
    const char *folder = folder_of(j);
    char name[NAME_SIZE];
    fl_text text = {0};
    fleet_status status;

    if (!folder)
        return FLEET_OK;
    snprintf(name, sizeof name, "%s%d", joined_file, p->index);
    fl_text_add(&text, "%d %d %s\n", p->port, j->node, p->host);
    status = write_file(folder, name, &text);
    fl_text_done(&text);
    return status;
}

void run_journals_forget_joined(const run_job *j, const run_process *p)
{
    const char *folder = folder_of(j);
    char path[PATH_MAX], name[NAME_SIZE];

    snprintf(name, sizeof name, "%s%d", joined_file, p->index);
    if (folder && path_of(folder, name, "", path) == FLEET_OK)
        unlink(path);
}

/* Its port, if this node has started the server of that number; else 0. */
static int read_joined(const run_job *j, const char *folder,
                       const run_process *p)
{
    char path[PATH_MAX], name[NAME_SIZE], host[FL_HOST_SIZE] = "";
    int port = 0, node = -1, n;
    FILE *f = NULL;

    snprintf(name, sizeof name, "%s%d", joined_file, p->index);
    if (path_of(folder, name, "", path) == FLEET_OK)
        f = fopen(path, "re");
    n = f ? fscanf(f, "%d %d %255s", &port, &node, host) : 0;
    if (f)
        fclose(f);
    return n == 3 && node == j->node && strcmp(host, p->host) == 0 &&
                   port > 0 && port < 65536
               ? port
               : 0;
}

static fleet_status find_joined(run_job *j, const char *folder, run_process *p)
{
    FL_TRY(run_processes_take(j, p));
    p->port = read_joined(j, folder, p);
    p->is_local = p->counts = p->port > 0;
    if (!p->is_local) {
        fl_free(p->host);
        p->host = NULL;
    }
    return FLEET_OK;
}

/* Where this node has none of the servers that the job began with, its folder
 * may not have them either. */
static bool is_of_this_job(const run_job *j, const char *folder)
{
    for (int i = 0; i < j->n_server; i++)
        if (j->process[i].is_local)
            return has_unended(j, folder);
    return true;
}

fleet_status run_journals_find_joined(run_job *j)
{
    const char *folder = folder_of(j);
    run_process *p;

    if (folder && !is_of_this_job(j, folder))
        return FLEET_OK;
    for (int i = j->n_server;
         folder && (p = run_processes_joined(j, i)) != NULL; i++)
        if (has_not_ended(folder, i))
            FL_TRY(find_joined(j, folder, p));
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
