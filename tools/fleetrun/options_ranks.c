/* options_ranks.c - which GPUs, how many ranks, on which nodes or hosts. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/bucket_map.h"

/* --- devices -------------------------------------------------------------- */

/* The entry's position in a list; -1: it is not in it. */
static int find_entry(const char *list, const char *entry, size_t length)
{
    for (int i = 0;; i++) {
        size_t n = strcspn(list, ",");

        if (n == length && memcmp(list, entry, n) == 0)
            return i;
        list += n;
        if (!*list++)
            return -1;
    }
}

/* CUDA counts the visible devices; the flag names them as the system does. */
static fleet_status read_device(const char *entry, size_t length, int *gpu)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char text[64];

    if (visible && *visible) {
        *gpu = find_entry(visible, entry, length);
        if (*gpu >= 0)
            return FLEET_OK;
        return fl_fail(FLEET_EINVAL,
                       "--devices: %.*s is none of CUDA_VISIBLE_DEVICES, "
                       "\"%.200s\"",
                       (int)length, entry, visible);
    }
    snprintf(text, sizeof text, "%.*s", (int)length, entry);
    return run_options_integer("--devices", text, 0, 4095, gpu);
}

static fleet_status read_devices(run_options *o)
{
    const char *at = o->devices;

    while (at) {
        size_t length = strcspn(at, ",");
        int gpu;

        if (o->n_gpu == RUN_MOST_GPU)
            return fl_fail(FLEET_EINVAL, "--devices: more than %d",
                           RUN_MOST_GPU);
        FL_TRY(read_device(at, length, &gpu));
        for (int i = 0; i < o->n_gpu; i++)
            if (o->gpu[i] == gpu)
                return fl_fail(FLEET_EINVAL, "--devices: %.*s stands twice",
                               (int)length, at);
        o->gpu[o->n_gpu++] = gpu;
        at = at[length] ? at + length + 1 : NULL;
    }
    return FLEET_OK;
}

const char *run_options_gpus(const run_options *o, int local_rank)
{
    static char text[RUN_MOST_GPU * 6];
    int n = 0;

    if (o->n_gpu == 0)
        return NULL;
    if (o->n_worker > 1) {
        snprintf(text, sizeof text, "%d", o->gpu[local_rank]);
        return text;
    }
    for (int i = 0; i < o->n_gpu; i++) /* one worker has them all */
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "",
                      o->gpu[i]);
    return text;
}

/* --- ranks ---------------------------------------------------------------- */

static bool is_collective(const run_options *o)
{
    const bool has_servers = o->servers || o->n_server > 0;

    if (o->collective || o->nproc >= 0 || o->ips)
        return true;
    if (o->n_server > 0) /* the nodes are of servers and workers */
        return false;
    return o->n_node >= 0 || o->node >= 0 || o->master ||
           (o->devices && !has_servers && !o->workers);
}

static fleet_status count_ranks(run_options *o)
{
    if (o->workers)
        return fl_fail(FLEET_EINVAL, "--workers: ranks are not listed but "
                                     "counted: give --nproc_per_node, and "
                                     "--ips for several hosts");
    if (o->nproc >= 0 && o->n_worker >= 0 && o->nproc != o->n_worker)
        return fl_fail(FLEET_EINVAL,
                       "--nproc_per_node is %d and --worker_num %d: they are "
                       "the same",
                       o->nproc, o->n_worker);
    if (o->nproc >= 0)
        o->n_worker = o->nproc;
    if (o->n_worker < 0)
        o->n_worker = o->n_gpu > 0 ? o->n_gpu : 1;
    return FLEET_OK;
}

static fleet_status check_ips(run_options *o)
{
    o->n_ip = o->ips ? run_options_count(o->ips) : 1;
    if (!o->ips)
        return FLEET_OK;
    if (o->devices)
        return fl_fail(FLEET_EINVAL,
                       "--ips is for ranks on CPUs, which are started from one "
                       "host; with --devices start fleetrun on each node, with "
                       "--nnodes, --master and --node_rank");
    if (o->n_node >= 0 && o->n_node != o->n_ip)
        return fl_fail(FLEET_EINVAL, "--ips has %d hosts, but --nnodes is %d",
                       o->n_ip, o->n_node);
    if (o->node > 0)
        return fl_fail(
            FLEET_EINVAL,
            "--node_rank is %d: with --ips fleetrun is started once, "
            "on the first of them",
            o->node);
    if (o->host)
        return fl_fail(FLEET_EINVAL, "--ips and --host: the first of --ips is "
                                     "this host");
    return FLEET_OK;
}

/* Several nodes, on each of which the user starts fleetrun. */
static fleet_status check_nodes(const run_options *o)
{
    const int n = o->n_node < 0 ? 1 : o->n_node;

    if (o->ips)
        return FLEET_OK;
    if (n > 1 && !o->devices)
        return fl_fail(FLEET_EINVAL,
                       "--nnodes is %d: ranks on the CPUs of several nodes are "
                       "processes of one MPI job: give --ips on one of them, "
                       "or start the program with mpirun or srun",
                       n);
    if (o->node >= n)
        return fl_fail(FLEET_EINVAL,
                       "--node_rank: expected 0 to %d, one of --nnodes, got %d",
                       n - 1, o->node);
    if (n > 1 && (!o->master || o->node < 0))
        return fl_fail(FLEET_EINVAL, "--nnodes is %d: give --%s, too", n,
                       o->master ? "node_rank" : "master");
    if (n > 1 && (o->servers || o->n_server > 0))
        return fl_fail(FLEET_EINVAL,
                       "--nnodes is %d: servers beside ranks are "
                       "for one node, or for --ips",
                       n);
    return FLEET_OK;
}

/* Several nodes with servers and workers on each. */
static fleet_status check_meeting(run_options *o)
{
    const int n = o->n_node < 0 ? 1 : o->n_node;

    if (o->node >= n)
        return fl_fail(FLEET_EINVAL,
                       "--node_rank: expected 0 to %d, one of --nnodes, got %d",
                       n - 1, o->node);
    o->meets = o->n_server > 0 && n > 1;
    if (!o->meets)
        return FLEET_OK;
    if (!o->master)
        return fl_fail(FLEET_EINVAL,
                       "--nnodes is %d: give --master, too, where the "
                       "fleetruns of the nodes find each other",
                       n);
    if (o->workers)
        return fl_fail(FLEET_EINVAL, "--workers and --nnodes: lists have all "
                                     "nodes; give --worker_num, of each node");
    if (o->heter_numbers || o->heter_workers)
        return fl_fail(FLEET_EINVAL, "--nnodes is for servers and workers: "
                                     "with heter workers give lists");
    if ((int64_t)n * o->n_server > FL_MOST_SERVER)
        return fl_fail(FLEET_EINVAL,
                       "--server_num: %d on each of %d nodes are more than %d",
                       o->n_server, n, FL_MOST_SERVER);
    return FLEET_OK;
}

static fleet_status check_devices(const run_options *o)
{
    if (o->workers && o->devices)
        return fl_fail(FLEET_EINVAL,
                       "--devices and --workers: give a number of workers");
    if (o->n_gpu == 0 || o->n_worker == 1 || o->n_worker == o->n_gpu)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "--devices has %d, but there are %d workers on this node: "
                   "expected one for each",
                   o->n_gpu, o->n_worker);
}

fleet_status run_options_check_ranks(run_options *o)
{
    FL_TRY(read_devices(o));
    o->n_ip = 1;
    o->collective = is_collective(o);
    if (o->collective) {
        FL_TRY(count_ranks(o));
        FL_TRY(check_ips(o));
        FL_TRY(check_nodes(o));
    } else {
        FL_TRY(check_meeting(o));
    }
    if (o->n_worker < 0)
        o->n_worker = 1;
    return check_devices(o);
}
