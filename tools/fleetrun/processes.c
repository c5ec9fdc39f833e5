/* processes.c - lists of servers and workers, counts of them, ranks of several
 * hosts or nodes: the processes that the options describe. */
#define _GNU_SOURCE
#include "processes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/own_address.h"

static const char local_host[] = "127.0.0.1";

enum { FIRST_PORT = 6070 }; /* Paddle's */

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
    FL_TRY(run_options_integer(what, port, 1, 65535, &p->port));
    p->host = fl_strndup(entry, (size_t)(colon - entry));
    return p->host ? FLEET_OK : FLEET_ENOMEM;
}

static bool is_same_host(const char *a, const char *b)
{
    char bare[2][FL_HOST_SIZE];

    fl_address_bare_host(a, bare[0]);
    fl_address_bare_host(b, bare[1]);
    return strcmp(bare[0], bare[1]) == 0;
}

/* As it stands before a colon and a port: IPv6 in brackets. */
static char *name_host(const char *host)
{
    const bool bare = strchr(host, ':') && *host != '[';
    size_t size = strlen(host) + sizeof "[]";
    char *name = fl_alloc(size);

    if (name)
        snprintf(name, size, bare ? "[%s]" : "%s", host);
    return name;
}

/* The processes of a list; this node's are the entries with its host. */
static fleet_status read_list(const char *flag, const char *list,
                              const char *separators, const char *host,
                              run_process *p)
{
    for (;; list++, p++) {
        int length = (int)strcspn(list, separators);

        FL_TRY(read_entry(flag, list, length, p));
        p->is_local = is_same_host(p->host, host);
        list += length;
        if (!*list)
            return FLEET_OK;
    }
}

/* The processes that a number stands for: all are this node's. */
static fleet_status make_local(run_process *p, int n, const char *host,
                               int port)
{
    for (int i = 0; i < n; i++) {
        p[i].host = name_host(host);
        if (!p[i].host)
            return FLEET_ENOMEM;
        p[i].port = port ? port + i : 0;
        p[i].is_local = true;
        p[i].local_rank = i;
    }
    return FLEET_OK;
}

static const char *host_of_node(const run_options *o)
{
    const char *pod = getenv("POD_IP");

    if (o->host)
        return o->host;
    if (!o->servers && !o->workers && !o->heter_workers && o->n_node < 2)
        return local_host;
    return pod && *pod ? pod : local_host;
}

/* Ranks are numbered node after node. Of nodes with a fleetrun of their own
 * only the number of ranks is known. */
static fleet_status make_rank(run_job *j, run_process *p)
{
    const run_options *o = j->options;
    const int node = p->index / o->n_worker;
    const int this_node = o->node < 0 ? 0 : o->node;
    const char *host = host_of_node(o), *ip = o->ips;

    for (int i = 0; ip && i < node; i++)
        ip = strchr(ip, ',') + 1;
    p->local_rank = p->index % o->n_worker;
    p->is_local = ip || node == this_node;
    p->by_mpirun = j->by_mpirun;
    p->host = ip ? fl_strndup(ip, strcspn(ip, ","))
                 : name_host(p->is_local ? host : "?");
    if (!p->host)
        return FLEET_ENOMEM;
    if (!*p->host)
        return fl_fail(FLEET_EINVAL, "--ips: a host is missing in \"%.200s\"",
                       o->ips);
    if (o->start_port && p->is_local)
        p->port =
            o->start_port + (o->servers ? 0 : j->n_server) + p->local_rank;
    else if (o->n_ip > 1) /* a part of the rank's name: no process connects */
        p->port = FIRST_PORT + p->local_rank;
    return FLEET_OK;
}

static fleet_status make_ranks(run_job *j)
{
    run_process *rank = j->process + j->n_server;
    const char *master = j->options->master;

    for (int i = 0; i < j->n_worker; i++)
        FL_TRY(make_rank(j, &rank[i]));
    if (!master)
        return FLEET_OK;
    fl_text_add(&j->master, "%s", master);
    if (!rank->is_local || j->by_mpirun)
        return FLEET_OK;
    fl_free(rank->host); /* rank 0 listens at --master */
    rank->host = NULL;
    return read_entry("--master", master, (int)strlen(master), rank);
}

/* So many on each of several nodes, node after node. Where those of other nodes
 * listen is not known yet: run_processes_agree(). */
static fleet_status make_nodes(run_job *j)
{
    const run_options *o = j->options;
    const int node = run_nodes_rank(j->nodes);
    const char *host = run_nodes_host(j->nodes);
    run_process *worker = j->process + j->n_server;
    const int port = o->start_port;

    for (int i = 0; i < j->n_process; i++) {
        run_process *p = &j->process[i];
        const int n = p->is_server ? o->n_server : o->n_worker;

        p->local_rank = p->index % n;
        if (p->index / n == node)
            continue;
        p->host = name_host("?");
        if (!p->host)
            return FLEET_ENOMEM;
    }
    FL_TRY(
        make_local(j->process + node * o->n_server, o->n_server, host, port));
    return make_local(worker + node * o->n_worker, o->n_worker, host,
                      port ? port + o->n_server : 0);
}

static fleet_status make_processes(run_job *j)
{
    const run_options *o = j->options;
    const char *host = host_of_node(o);
    run_process *worker = j->process + j->n_server;
    int port = o->start_port;

    if (o->meets)
        return make_nodes(j);
    if (o->servers)
        FL_TRY(read_list("--servers", o->servers, ",", host, j->process));
    else
        FL_TRY(make_local(j->process, j->n_server, o->ips ? local_host : host,
                          port));
    if (o->collective)
        return make_ranks(j);
    port = port && !o->servers ? port + j->n_server : port;
    if (o->workers)
        FL_TRY(read_list("--workers", o->workers, ",", host, worker));
    else
        FL_TRY(make_local(worker, j->n_worker, host, port));
    port = port && !o->workers ? port + j->n_worker : port;
    if (o->heter_workers)
        return read_list("--heter_workers", o->heter_workers, ",;", host,
                         worker + j->n_worker);
    return make_local(worker + j->n_worker, j->n_heter, host, port);
}

/* Stage after stage; those on GPUs take this node's in their order. */
static void set_stages(run_job *j)
{
    const run_options *o = j->options;
    run_process *p = j->process + j->n_server + j->n_worker;
    int gpu = 0;

    for (int stage = 1; stage < o->n_stage; stage++)
        for (int i = 0; i < o->stage[stage]; i++, p++) {
            p->stage = stage;
            if (o->stage_on_gpu[stage] && p->is_local)
                p->gpu = gpu++;
        }
}

static bool are_same(const run_process *a, const run_process *b)
{
    return a->port && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Count this node's processes, and the nodes. */
static fleet_status count_processes(run_job *j)
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
    j->n_on_node = j->n_local;
    if (j->options->n_ip > 1)
        j->n_on_node = j->n_server + j->options->n_worker;
    if (j->options->n_node > 1)
        j->n_host = j->options->n_node;
    return FLEET_OK;
}

fleet_status run_processes_need_keys(const run_options *o, bool has_servers)
{
    if (o->keys || o->insecure)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s of a job on several nodes need keys that all nodes "
                   "have: \"fleetrun keys FOLDER\" makes them, and --keys "
                   "FOLDER uses them; --insecure does without",
                   has_servers ? "servers" : "ranks on GPUs");
}

static fleet_status check_processes(const run_job *j)
{
    const run_options *o = j->options;

    if (j->n_local == 0)
        return fl_fail(FLEET_EINVAL,
                       "none of the processes is on %s, which is this node's "
                       "address; --host or POD_IP gives another",
                       host_of_node(o));
    for (int i = 0; o->collective && i < j->n_server; i++)
        if (!j->process[i].is_local)
            return fl_fail(FLEET_EINVAL,
                           "--servers: beside ranks all servers are on this "
                           "node, %s; %s is not",
                           host_of_node(o), j->process[i].host);
    if (j->n_host > 1 && !o->collective && !o->meets &&
        (!o->servers || !o->workers || o->heter_numbers))
        return fl_fail(FLEET_EINVAL,
                       "a number counts this node's processes: with several "
                       "nodes give --servers and --workers%s",
                       o->heter_numbers ? ", and --heter_workers" : "");
    if (j->needs_keys && j->n_host > 1)
        return run_processes_need_keys(o, j->n_server > 0);
    return FLEET_OK;
}

static int count_workers(const run_options *o)
{
    if (o->workers)
        return run_options_count(o->workers);
    return o->n_worker * (o->n_node > 1 && !o->ips ? o->n_node : o->n_ip);
}

/* Among its kind: servers that join are numbered behind the others. */
static int number_of(const run_job *j, int i)
{
    if (i < j->n_server)
        return i;
    if (i >= j->n_process)
        return i - j->n_process - j->by_mpirun + j->n_server;
    i -= j->n_server;
    return i < j->n_worker ? i : i - j->n_worker;
}

fleet_status run_processes_list(run_job *j)
{
    const run_options *o = j->options;

    j->n_server = o->servers ? run_options_count(o->servers) : o->n_server;
    j->n_server *= o->meets ? o->n_node : 1;
    j->n_worker = count_workers(o);
    j->n_heter = o->n_heter;
    j->n_process = j->n_server + j->n_worker + j->n_heter;
    j->by_mpirun = o->collective && !o->devices && j->n_worker > 1;
    j->needs_keys =
        j->n_server > 0 || (o->collective && o->devices && j->n_worker > 1);
    j->n_all = j->n_process + j->by_mpirun;
    if (o->servers_max > j->n_server)
        j->n_all += o->servers_max - j->n_server;
    j->process = fl_alloc_array((size_t)j->n_all, sizeof *j->process);
    if (!j->process)
        return FLEET_ENOMEM;
    for (int i = 0; i < j->n_all; i++) {
        run_process *p = &j->process[i];

        p->is_mpirun = j->by_mpirun && i == j->n_process;
        p->joins = !p->is_mpirun && i >= j->n_process;
        p->is_server = i < j->n_server || p->joins;
        p->index = number_of(j, i);
        p->gpu = -1;
        p->socket = p->log = p->agent = -1;
        p->output[0].from = p->output[1].from = -1;
    }
    FL_TRY(make_processes(j));
    set_stages(j);
    FL_TRY(count_processes(j));
    if (j->by_mpirun)
        j->process[j->n_process].is_local = true;
    return check_processes(j);
}

/* --- servers that join ---------------------------------------------------- */

run_process *run_processes_joined(const run_job *j, int server)
{
    const int first = j->n_process + j->by_mpirun, n = j->n_all - first;

    return server >= j->n_server && server - j->n_server < n
               ? &j->process[first + server - j->n_server]
               : NULL;
}

/* Where its servers are, if it has one. */
static const char *host_of_joined(const run_job *j)
{
    const run_process *p = j->process;

    while (!p->is_local)
        p++;
    return p->host;
}

fleet_status run_processes_take(const run_job *j, run_process *p)
{
    if (p->host)
        return FLEET_OK;
    p->host = fl_strdup(host_of_joined(j));
    p->is_local = p->listens = true;
    return p->host ? FLEET_OK : FLEET_ENOMEM;
}

/* --- several nodes that find each other ----------------------------------- */

/* What a node says of itself, and hears of others: its servers, its workers. */
static run_process *process_of(const run_job *j, int node, int i)
{
    const run_options *o = j->options;

    return i < o->n_server ? &j->process[node * o->n_server + i]
                           : &j->process[j->n_server + node * o->n_worker + i -
                                         o->n_server];
}

fleet_status run_processes_agree(run_job *j)
{
    const run_options *o = j->options;
    const int n = o->n_server + o->n_worker, own = run_nodes_rank(j->nodes);
    int *ports = fl_alloc_array((size_t)n, sizeof *ports);
    fleet_status status = ports ? FLEET_OK : FLEET_ENOMEM;

    for (int i = 0; ports && i < n; i++)
        ports[i] = process_of(j, own, i)->port;
    if (status == FLEET_OK)
        status = run_nodes_agree(j->nodes, ports);
    fl_free(ports);
    FL_TRY(status);
    for (int i = 0; i < n * o->n_node; i++) {
        const int node = i / n;
        run_process *p = process_of(j, node, i % n);

        if (node == own)
            continue;
        fl_free(p->host);
        p->host = name_host(run_nodes_host_of(j->nodes, node));
        if (!p->host)
            return FLEET_ENOMEM;
        p->port = run_nodes_ports_of(j->nodes, node)[i % n];
    }
    return FLEET_OK;
}
